"""What the benchmarks share: repeated timing, a private server, tables in Markdown."""

from __future__ import annotations

import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kanon_db.cluster.local import LocalCluster
from kanon_db.installation.install import install


def seconds(action: Callable[[], object], *, runs: int = 5) -> float:
    """Return the median wall-clock time of an action over several runs."""
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def table(heading: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Format rows as a Markdown table."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) + "\n"


@contextmanager
def private_server() -> Iterator[str]:
    """Run a private cluster with kanon_db installed; gives its connection string."""
    cluster = LocalCluster(Path(tempfile.gettempdir(), f"kanon-bench-{uuid.uuid4().hex[:8]}"))
    dsn = cluster.start()
    try:
        install(dsn)
        yield dsn
    finally:
        cluster.destroy()


def peak_memory(backend_pid: int) -> float:
    """Return the peak resident memory of a server process in MB, shared buffers included."""
    for line in Path(f"/proc/{backend_pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise LookupError("no VmHWM")
