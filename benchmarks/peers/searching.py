"""Run one search in a process of its own, in our environment or in that of the other tools.

The argument is a JSON object: ``module`` (``ours`` or ``theirs``, which is asked for what it has
prepared), ``tool``, ``k``, ``l`` (or null), ``block_size`` (or null), ``table`` (a file that
:mod:`benchmarks.peers.tables` has written), ``hierarchies`` (a folder), ``output`` (where the class
of each record goes), ``most_seconds`` and ``most_bytes``. Prints a JSON object: the seconds of the
search alone, those that processors worked for it, and the megabytes of the process at its most.
"""

from __future__ import annotations

import importlib
import json
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def main() -> None:
    """Search, and write what was found."""
    task: dict[str, Any] = json.loads(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (task["most_bytes"],) * 2)
    search, classes = importlib.import_module(task["module"]).prepared(task)
    # The alarm ends the process even in the midst of compiled code.
    signal.setitimer(signal.ITIMER_REAL, task["most_seconds"])
    started, worked = time.perf_counter(), time.process_time()
    found = search()
    taken = {"seconds": time.perf_counter() - started, "worked": time.process_time() - worked}
    signal.setitimer(signal.ITIMER_REAL, 0)
    np.save(task["output"], classes(found))
    print(json.dumps(taken | {"megabytes": _peak_memory()}))


def _peak_memory() -> float:
    # getrusage would count what the process was before it became this one.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise LookupError("no VmHWM")


if __name__ == "__main__":
    main()
