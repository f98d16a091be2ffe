"""Running the command ``kanon``, as a person or a script would."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from kanon_db.interfaces.cli import main

KANON = Path(sys.executable).with_name("kanon")


@dataclass(frozen=True)
class Answer:
    """What a command printed, and its exit code."""

    returncode: int
    stdout: str
    stderr: str

    def json(self) -> Any:
        """Read the output as the one JSON document that it must be."""
        return json.loads(self.stdout)


def _environment(dsn: str | None) -> Mapping[str, str]:
    others = {name: value for name, value in os.environ.items() if name != "KANON_DSN"}
    return others if dsn is None else {**others, "KANON_DSN": dsn}


def kanon(*arguments: object, dsn: str | None = None, cwd: Path | None = None) -> Answer:
    """Run a command without a terminal; ``dsn`` goes into the environment.

    It runs in this process, which spares most of its time; what `installed_kanon` runs is the
    same function.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with (
        Path(os.devnull).open() as stdin,
        mock.patch.object(sys, "argv", ["kanon", *map(str, arguments)]),
        mock.patch.object(sys, "stdin", stdin),
        mock.patch.dict(os.environ, _environment(dsn), clear=True),
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code
    printed = []
    for stream in (out, err):
        stream.flush()
        printed.append(stream.buffer.getvalue().decode())
    return Answer(int(code or 0), *printed)


def installed_kanon(*arguments: object, dsn: str | None = None) -> Answer:
    """Run the installed command, in a process of its own."""
    done = subprocess.run(
        [KANON, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=_environment(dsn),
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Answer(done.returncode, done.stdout, done.stderr)
