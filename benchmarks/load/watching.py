"""What the analysts' sessions take and wait for, while they ask."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.load.releases import Connection

_SECONDS_BETWEEN_LOCKS = 0.02
_SECONDS_BETWEEN_SIZES = 5.0


def private_memory(backend_pid: int) -> float:
    """Return the memory of a server process in MB, without what it shares with others.

    It is what the kernel calls anonymous: shared buffers and programs' code are not in it.
    """
    for line in Path(f"/proc/{backend_pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) / 1024
    raise LookupError("no Anonymous")


@dataclass
class Watch:
    """Looks at sessions until it is told to stop.

    Attributes
    ----------
    waits : list of float
        Seconds that somebody was seen to have waited for a lock.
    sizes : list of tuple of float and ndarray
        When the memory was measured, and that of each session in MB.
    """

    admin: Connection
    pids: Sequence[int]
    waits: list[float] = field(default_factory=list)
    sizes: list[tuple[float, np.ndarray]] = field(default_factory=list)

    def watch_until(self, stop: threading.Event) -> None:
        """Look at locks fifty times a second, and at the memory every few seconds."""
        while not stop.wait(_SECONDS_BETWEEN_LOCKS):
            ((seconds,),) = self.admin.execute(
                "SELECT extract(epoch FROM max(clock_timestamp() - waitstart))::float8"
                " FROM pg_locks WHERE NOT granted AND pid = ANY (%s)",
                [list(self.pids)],
            ).fetchall()
            if seconds is not None:
                self.waits.append(seconds)
            now = time.monotonic()
            if not self.sizes or now - self.sizes[-1][0] > _SECONDS_BETWEEN_SIZES:
                self.sizes.append((now, np.array([private_memory(pid) for pid in self.pids])))

    def growth(self, seconds: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean memory of each session, at the begin and at the end of the watch.

        Parameters
        ----------
        seconds : float
            How long begin and end are.
        """
        first, last = self.sizes[0][0], self.sizes[-1][0]
        begin = [size for at, size in self.sizes if at <= first + seconds]
        end = [size for at, size in self.sizes if at >= last - seconds]
        return np.mean(begin, axis=0), np.mean(end, axis=0)
