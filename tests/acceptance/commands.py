"""Running the installed command ``kanon``, as a person or a script would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


def kanon(*arguments: object, dsn: str | None = None, cwd: Path | None = None) -> Answer:
    """Run a command without a terminal; ``dsn`` goes into the environment."""
    environment = {name: value for name, value in os.environ.items() if name != "KANON_DSN"}
    if dsn is not None:
        environment["KANON_DSN"] = dsn
    done = subprocess.run(
        [KANON, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment,
        cwd=cwd,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Answer(done.returncode, done.stdout, done.stderr)
