"""The command ``kanon``: options in, one call of the Python interface, results out."""

from kanon_db.interfaces.cli.main import main

__all__ = ["main"]
