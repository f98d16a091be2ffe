"""Reports how far an operation is: to a listener, and to other sessions of the server."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import ceil, inf
from typing import Any, Final, NamedTuple

from kanon_db.heartbeat import beating

PREFIX: Final = "kanon_db"
_MAX_BYTES: Final = 63
"""Bytes of `application_name` that PostgreSQL keeps."""

_SECONDS_BETWEEN: Final = 0.5
"""Seconds after which a step that goes on reports again how far it is."""

_LEAST_SHARE: Final = 0.05
_LEAST_SECONDS: Final = 1.0
"""Before this much is done, and has taken this long, nobody knows how long the rest takes."""

_STATE: Final = (
    "SELECT pg_catalog.current_setting('application_name') AS own,"
    " pg_catalog.current_setting('kanon.progress', true) AS wanted"
)
_SHOW: Final = "SELECT pg_catalog.set_config('application_name', $1::pg_catalog.text, true)"


class Progress(NamedTuple):
    """The current step of an operation."""

    phase: int  # the number of the phase, from 1 on, and how many there are; 0 where nobody knows
    phases: int
    step: str  # what is being done in this phase
    share: float | None = None  # how much of the step is done, where that is known
    # How long the step may still take, where something can be said about it.
    seconds: float | None = None
    # Whether `seconds` is what is left of the phase's time limit, which a search may exceed a
    # little; otherwise it follows from the share.
    is_limit: bool = False

    @property
    def title(self) -> str:
        """The phase and the step.

        Examples
        --------
        >>> Progress(3, 6, "writing the codes").title
        '3 of 6: writing the codes'
        """
        return f"{self.phase} of {self.phases}: {self.step}" if self.phases else self.step

    @property
    def remaining(self) -> str:
        """Return in words how long the step may still take; empty where nothing can be said.

        Examples
        --------
        >>> Progress(3, 6, "writing the codes", 0.4, 11.5).remaining
        'about 12 s left'
        >>> Progress(2, 6, "choosing patterns", seconds=47.2, is_limit=True).remaining
        'time limit in 48 s'
        """
        if self.seconds is None:
            return ""
        seconds = f"{ceil(self.seconds)} s"
        return f"time limit in {seconds}" if self.is_limit else f"about {seconds} left"

    @property
    def short(self) -> str:
        """All of it as an `application_name`, which the view `kanon.progress` reads.

        Examples
        --------
        >>> Progress(3, 6, "writing the codes", 0.4, 11.5).short
        'kanon_db 3/6 40% ~12s writing the codes'
        >>> Progress(2, 6, "choosing patterns", None, 48, True).short
        'kanon_db 2/6 <48s choosing patterns'
        """
        parts = [PREFIX]
        if self.phases:
            parts.append(f"{self.phase}/{self.phases}")
        if self.share is not None:
            parts.append(f"{self.share:.0%}")
        if self.seconds is not None:
            parts.append(f"{'<' if self.is_limit else '~'}{ceil(self.seconds)}s")
        return " ".join([*parts, self.step])[:_MAX_BYTES]


Watcher = Callable[[Progress], None]


class Reporter:
    """Follows what an operation says of itself; shows steps at once, shares now and then."""

    def __init__(self, show: Watcher, clock: Callable[[], float] = time.monotonic) -> None:
        self._show = show
        self._clock = clock
        self.clear()

    def clear(self) -> None:
        """Forget the operation, which is over."""
        self._phases: list[str] = []
        self._phase = 0
        self._step = ""
        self._share: float | None = None
        self._limit = inf
        self._began = self._shown_at = 0.0

    def plan(self, phases: Sequence[str]) -> None:
        """Say which phases there are, in their order."""
        self._phases, self._phase = list(phases), 0

    def phase(self, name: str) -> None:
        """Begin a phase; one that is not planned is a step."""
        if name in self._phases:
            self._phase, self._limit = self._phases.index(name) + 1, inf
        self.step(name)

    def step(self, name: str) -> None:
        """Begin a step of the phase."""
        self._step, self._share = name, None
        self._began = self._clock()
        self._now()
        self.heartbeat()

    def limit(self, seconds: float) -> None:
        """Say that the phase has a time limit, from now on."""
        self._limit = self._clock() + seconds
        self._beat()

    def done(self, n: int, of: int) -> None:
        """Say how much of the step is done."""
        self._share = n / of if of else None
        self._beat()
        self.heartbeat()

    def heartbeat(self) -> None:
        """Show how far the step is, now and then; a session also checks for a cancel."""
        self._beat()

    def _beat(self) -> None:
        if self._share is None and self._limit == inf:
            return
        if self._clock() - self._shown_at >= _SECONDS_BETWEEN:
            self._now()

    def _now(self) -> None:
        if not self._step:
            return
        now = self._shown_at = self._clock()
        seconds, is_limit = None, now < self._limit < inf
        if is_limit:
            seconds = self._limit - now
        elif self._share is not None and self._share >= _LEAST_SHARE:
            spent = now - self._began
            if spent >= _LEAST_SECONDS:
                seconds = spent * (1 - self._share) / self._share
        self._show(
            Progress(self._phase, len(self._phases), self._step, self._share, seconds, is_limit)
        )


class ReportingSession(Reporter, ABC):
    """The part of a session that says how far an operation is; see the protocol."""

    def __init__(self, watcher: Watcher | None = None) -> None:
        super().__init__(self._print_progress)
        self._watcher = watcher
        self._own: str | None = None
        """The session's `application_name`, while it shows how far an operation is."""
        self._is_wanted = True

    @abstractmethod
    def fetch(self, statement: str, *values: Any) -> Sequence[Any]:
        """Run one statement; see the protocol."""

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Run an operation, beating for what sorts, and then restore the `application_name`.

        After an error, the server itself restores it, with the rest of the transaction.
        """
        self._begin()
        with beating(self.heartbeat):
            yield
        self._end()

    def _begin(self) -> None:
        self.clear()
        self._own, self._is_wanted = None, True

    def _end(self) -> None:
        if self._own is not None:
            self.fetch(_SHOW, self._own)
        self._begin()

    def _print_progress(self, progress: Progress) -> None:
        if self._watcher is not None:
            self._watcher(progress)
        if self._own is None and self._is_wanted:
            (state,) = self.fetch(_STATE)
            self._is_wanted = state["wanted"] == "on"
            if self._is_wanted:
                self._own = state["own"]
        if self._is_wanted:
            self.fetch(_SHOW, progress.short)
