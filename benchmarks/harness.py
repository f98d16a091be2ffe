"""What the benchmarks share: repeated timing, a private server, tables in Markdown."""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self, TypeVar

import psycopg
from psycopg import sql

from kanon_db.cluster.local_cluster import LocalCluster
from kanon_db.installation.install import install

T = TypeVar("T")
REST = "\n<!-- what follows is printed, and kept on no page -->\n\n"
"""Stands in the results of a benchmark before what no reader decides by."""


def seconds(action: Callable[[], object], *, runs: int = 5) -> float:
    """Return the median wall-clock time of an action over several runs."""
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def timed(action: Callable[[], T]) -> tuple[T, float]:
    """Return a result and for how long processors worked on it, here and in other processes."""
    before = os.times()
    result = action()
    return result, sum(os.times()[:4]) - sum(before[:4])


def table(heading: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Format rows as a Markdown table."""
    first, *others = (f"| {' | '.join(map(str, line))} |" for line in (heading, *rows))
    return "\n".join([first, "|" + "---|" * len(heading), *others]) + "\n"


@contextmanager
def private_server() -> Iterator[str]:
    """Run a private cluster with kanon_db installed; gives its connection string."""
    cluster = LocalCluster(Path(tempfile.gettempdir(), f"kanon-bench-{uuid.uuid4().hex[:8]}"))
    dsn = cluster.start()
    try:
        install(dsn)
        with psycopg.connect(dsn, autocommit=True) as admin:
            # One table is published in many ways, for the same readers.
            admin.execute("INSERT INTO kanon.setting VALUES ('combined_releases', 'warn')")
            # What is measured of steps is read from other sessions.
            database = sql.Identifier(admin.info.dbname)
            admin.execute(sql.SQL("ALTER DATABASE {} SET kanon.progress = 'on'").format(database))
        yield dsn
    finally:
        cluster.destroy()


class Watch:
    """Looks at something again and again during a block."""

    def __init__(self, look: Callable[[], float], *, every: float = 0.005) -> None:
        self._look = look
        self._every = every
        self._is_over = threading.Event()
        self._sampler = threading.Thread(target=self._sample)
        self._before = self._most = 0.0

    @property
    def needed(self) -> float:
        """The most during the block above that before it."""
        return self._most - self._before

    @property
    def most(self) -> float:
        """The most during the block."""
        return self._most

    def __enter__(self) -> Self:
        self._before = self._most = self._look()
        self._sampler.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._is_over.set()
        self._sampler.join()

    def _sample(self) -> None:
        while not self._is_over.wait(self._every):
            self._most = max(self._most, self._look())


class PrivateMemory(Watch):
    """Watches the private memory (`RssAnon`) of a server process, in MB, without shared buffers."""

    def __init__(self, backend_pid: int) -> None:
        self._status = Path(f"/proc/{backend_pid}/status")
        super().__init__(self._now)

    def _now(self) -> float:
        for line in self._status.read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024
        raise LookupError("no RssAnon")


def peak_memory(backend_pid: int) -> float:
    """Return the peak resident memory of a server process in MB, shared buffers included."""
    for line in Path(f"/proc/{backend_pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise LookupError("no VmHWM")


def processor_seconds(pid: int) -> float:
    """Return how long a process has computed, for itself or in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def running_seconds(pid: int) -> float:
    """Return how long a process of one thread has had a core, which takes no note of its waits."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
