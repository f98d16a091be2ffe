"""What keeps a long computation in touch with the world: a heartbeat, and the end of its time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf
from time import monotonic
from typing import Final, Self, TypeVar

from kanon_db.heartbeat import no_heartbeat

_T = TypeVar("_T")

_ITEMS_PER_BEAT = 1000


class Pulse:
    """A heartbeat and a time limit, passed through a computation as one.

    Parameters
    ----------
    seconds : float
        From now until time is over; infinity for no limit.
    heartbeat : callable
        What :meth:`beat` calls: it notices a cancel, and raises.
    on_done : callable, optional
        What :meth:`done` calls instead, with how much of all is done.

    Notes
    -----
    The one way in which an algorithm learns that its time ran out. It then returns the best that
    it has found, with a :class:`~kanon_db.algorithms.ground.proof.Proof` that says how good that
    is.
    """

    def __init__(
        self,
        seconds: float = inf,
        heartbeat: Callable[[], None] = no_heartbeat,
        on_done: Callable[[int, int], None] | None = None,
    ) -> None:
        self.seconds = seconds
        self._start = monotonic()
        self._heartbeat = heartbeat
        self._on_done = on_done

    def beat(self) -> None:
        """Say that work goes on; to be called every few milliseconds. What it raises ends it."""
        self._heartbeat()

    def done(self, n: int, of: int) -> None:
        """Beat, and say how much of all is done: only where the whole of a step knows it."""
        if self._on_done is None:
            self._heartbeat()
        else:
            self._on_done(n, of)

    @property
    def seconds_left(self) -> float:
        """Seconds until the end, negative after it."""
        return self._start + self.seconds - monotonic()

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return self.seconds_left <= 0

    @property
    def spent(self) -> float:
        """Share of the time that has passed, above 1 after the end; 0 without a limit."""
        return (monotonic() - self._start) / self.seconds if self.seconds > 0 else inf

    def within(self, seconds: float) -> Self:
        """Return the same heartbeat with a limit from now on, which ends no later than this one."""
        return type(self)(min(seconds, self.seconds_left), self._heartbeat, self._on_done)

    def until(self, share: float) -> Self:
        """Return the same heartbeat, over when a share above 0 of this one's time has passed."""
        return self.within(self.seconds * share - (monotonic() - self._start))

    def of_part(self) -> Self:
        """Return the same heartbeat and limit for a part of a step, which beats when it is done."""
        return type(self)(self.seconds_left, self._heartbeat)

    def watched(self, items: Iterable[_T]) -> Iterator[_T]:
        """Go through items of light work, with a beat every few milliseconds.

        Yields
        ------
        object
        """
        for i, item in enumerate(items):
            if i % _ITEMS_PER_BEAT == 0:
                self.beat()
            yield item


UNLIMITED: Final = Pulse()
"""No limit and no heartbeat: the default of every algorithm."""
