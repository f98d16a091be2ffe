"""The log of a private cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psycopg


class ServerLog:
    """What a server writes to its log from now on; nothing, if it cannot be read from here."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        ((folder,),) = connection.execute("SHOW data_directory").fetchall()
        self._path = Path(folder).with_name("server.log")
        self.is_readable = self._path.is_file() and os.access(self._path, os.R_OK)
        self._before = self._path.stat().st_size if self.is_readable else 0

    def text(self) -> str:
        """What was written since."""
        if not self.is_readable:
            return ""
        with self._path.open("rb") as file:
            file.seek(self._before)
            return file.read().decode(errors="replace")
