"""What a run says of itself: how far it is, and what its caller is warned of."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

from kanon_db.session.progress import Progress, Tracker, Watcher


def _ignore(_progress: Progress) -> None:
    """Show nothing."""


class Voice:
    """Passes on what a run says.

    Parameters
    ----------
    on_progress : callable, optional
        Called with a :class:`~kanon_db.session.progress.Progress` for each step.
    on_warning : callable, optional
        Called with the text of each warning; without it, Python's own warnings have it.
    """

    def __init__(
        self, on_progress: Watcher | None = None, on_warning: Callable[[str], None] | None = None
    ) -> None:
        self._tracker = Tracker(on_progress or _ignore)
        self._on_warning = on_warning

    def plan(self, phases: Sequence[str]) -> None:
        """Say which phases there are, in their order."""
        self._tracker.plan(phases)

    def phase(self, name: str) -> None:
        """Begin a phase of the plan."""
        self._tracker.phase(name)

    def step(self, name: str) -> None:
        """Begin a step of the phase."""
        self._tracker.step(name)

    def limit(self, seconds: float) -> None:
        """Say that the phase has a time limit, from now on."""
        self._tracker.limit(seconds)

    def done(self, n: int, of: int) -> None:
        """Say how much of the step is done."""
        self._tracker.done(n, of)

    def heartbeat(self) -> None:
        """Show how far the step is, now and then."""
        self._tracker.beat()

    def warn(self, message: str) -> None:
        """Warn of something that does not stop the run."""
        if self._on_warning is None:
            warnings.warn(message, stacklevel=2)
        else:
            self._on_warning(message)
