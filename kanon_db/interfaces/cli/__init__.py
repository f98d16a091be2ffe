"""Defines the command ``kanon``: options in, one call of the Python interface, results out."""

from kanon_db.interfaces.cli.commands import main

__all__ = ["main"]
