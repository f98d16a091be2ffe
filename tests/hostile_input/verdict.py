"""The verdict on what becomes of hostile input: answered, refused with a reason, or a defect."""

from __future__ import annotations

import contextlib
import math
import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psycopg

from kanon_db.errors import KanonError
from tests.hostile_input.tables import CANARIES
from tests.integration.parties import Connection

ANSWERED: Final = ""


@dataclass
class Verdict:
    """What became of many inputs.

    Attributes
    ----------
    allowed : collection of str
        The SQLSTATEs of refusals.
    backend_pid : int or None
        The server process that works for the calls, if one does.
    outcomes : Counter
        How many calls of each entry ended with each SQLSTATE.
    defects : list of str
        What must not be, each with the call.
    slowest : dict of str to (float, str)
        The longest call of each entry, in seconds of work.
    """

    allowed: frozenset[str]
    seconds: float = math.inf
    backend_pid: int | None = None
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    defects: list[str] = field(default_factory=list)
    slowest: dict[str, tuple[float, str]] = field(default_factory=dict)

    def of(self, entry: str, asked: str, call: Callable[[], object]) -> str:
        """Make one call, judge it, and return the SQLSTATE it ended with, or nothing."""
        outcome, taken = self._made(entry, asked, call)
        if taken > self.seconds:  # the first call of its kind, after an installation, compiles code
            outcome, taken = self._made(entry, asked, call)
            if taken > self.seconds:
                self._defect(entry, asked, f"took {taken:.1f} s")
        self.outcomes[entry, outcome] += 1
        self.slowest[entry] = max(self.slowest.get(entry, (0.0, "")), (taken, asked[:500]))
        return outcome

    def _made(self, entry: str, asked: str, call: Callable[[], object]) -> tuple[str, float]:
        started, worked = time.perf_counter(), self._work()
        said, outcome = "", ANSWERED
        try:
            call()
        except KanonError as error:
            outcome = error.sqlstate
            said = f"{error.message}\n{error.detail}\n{error.hint}\n{error!r}"
            if error.__cause__ or (error.__context__ and not error.__suppress_context__):
                said += f"\n{error.__cause__!r}\n{error.__context__!r}"
        except psycopg.Error as error:
            outcome = error.sqlstate or type(error).__name__
            said = "\n".join(_texts(error.diag)) + str(error)
            if "Traceback" in said:
                self._defect(entry, asked, f"a message shows a traceback: {said}")
        except Exception as error:  # noqa: BLE001  # whatever it is, it is what we look for
            outcome, said = type(error).__name__, "".join(traceback.format_exception(error))[-500:]
        # Where others use the machine, too, waiting is no work; and threads work side by side.
        taken = min(time.perf_counter() - started, self._work() - worked)
        if outcome not in self.allowed and outcome != ANSWERED:
            self._defect(entry, asked, f"{outcome}: {said}")
        self.hear(entry, asked, said)
        return outcome, taken

    def _work(self) -> float:
        """Processor time so far, of this process or of the server's."""
        if self.backend_pid is None:
            return time.process_time()
        with contextlib.suppress(FileNotFoundError):
            words = Path(f"/proc/{self.backend_pid}/stat").read_text().rpartition(")")[2].split()
            return sum(map(int, words[11:13])) / os.sysconf("SC_CLK_TCK")
        return math.inf  # it has crashed

    def hear(self, entry: str, asked: str, said: str) -> None:
        """Look for data values in what was said."""
        if any(canary in said and canary not in asked for canary in CANARIES):
            self._defect(entry, asked, f"a message shows a data value: {said}")

    def _defect(self, entry: str, asked: str, what: str) -> None:
        self.defects.append(f"{entry}: {what.strip()[:1000]}\n    {asked[:500]!r}")


def _texts(diagnostic: psycopg.errors.Diagnostic) -> Iterator[str]:
    for name in dir(diagnostic):
        text = None if name.startswith("_") else getattr(diagnostic, name)
        if isinstance(text, str):
            yield text


@contextlib.contextmanager
def listening(connection: Connection, verdict: Verdict) -> Iterator[None]:
    """Judge notices and warnings, too."""

    def hear(diagnostic: psycopg.errors.Diagnostic) -> None:
        verdict.hear("notice", "", "\n".join(_texts(diagnostic)))

    connection.add_notice_handler(hear)
    yield
    connection.remove_notice_handler(hear)
