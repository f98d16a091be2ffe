"""Starts the command ``kanon``, importing little, so that Ctrl-C is heard from the start."""

from __future__ import annotations

import sys


def main() -> None:
    """Load the command, and run it."""
    try:
        from kanon_db.interfaces.cli import main as command
    except KeyboardInterrupt:
        sys.stderr.write("stopped: nothing was published or changed\n")
        sys.exit(1)
    command()
