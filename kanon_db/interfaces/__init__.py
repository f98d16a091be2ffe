"""Offers the declared operations in SQL, in Python and on the command line."""

from __future__ import annotations

import sys


def main() -> None:
    """Start the command ``kanon``, importing little, so that Ctrl-C is heard from the start."""
    try:
        from kanon_db.interfaces.cli import main as command
    except KeyboardInterrupt:
        sys.stderr.write("stopped: nothing was published or changed\n")
        sys.exit(1)
    command()
