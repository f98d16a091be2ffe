"""Prepares a server process for Python; it is imported before anything heavy."""

from __future__ import annotations

import gc
import os
import os.path
from collections.abc import Callable
from typing import Final, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., object])

_CONTAINERS: Final = 200_000
"""Further objects after which garbage is collected: twenty megabytes or so.

A session's first estimate makes 60,000, its first publication 135,000."""

_KEPT: Final = 8 << 20
"""Bytes; twice as many are kept at the most."""

_SLOTS: Final = 15_400
"""So many that CPython takes 256 kB, of which more than half are left."""


def choose_cache() -> None:
    """Let numba keep compiled code where the server's user may write."""
    # This is usually the user's home, but a service may have none, or one where others could put
    # code that it would run, such as /tmp. The working directory of a server process is its data
    # directory, which nobody else can write to; that of a worker may be such a place, too.
    home = os.path.expanduser("~")  # noqa: PTH111  # a first estimate would wait for pathlib
    if "NUMBA_CACHE_DIR" in os.environ or _is_own(home):
        return
    here = os.getcwd()  # noqa: PTH109
    if _is_own(here):
        os.environ["NUMBA_CACHE_DIR"] = os.path.join(here, "kanon_db_cache")  # noqa: PTH118
    else:  # where nothing can be kept, also if numba looks in the home
        os.environ["NUMBA_CACHE_DIR"] = os.environ["XDG_CACHE_HOME"] = os.devnull


def _is_own(folder: str) -> bool:
    """Whether this process may write to a folder of its user's, where not everybody may."""
    try:
        found = os.stat(folder)  # noqa: PTH116  # as above
    except OSError:
        return False
    is_for_all = found.st_mode & 0o002
    return found.st_uid == os.geteuid() and not is_for_all and os.access(folder, os.W_OK)


def choose_threads() -> None:
    """Let numpy's linear algebra do without threads, which take longer to start than all of numpy.

    A server process should have none, and the largest matrix here has 128 rows.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def choose_collection() -> None:
    """Look for garbage less often than at every 700th object: imports make many more."""
    # They leave no garbage, but a first estimate would wait 10 ms for each search, and a first
    # publication twice as long. What other PL/Python functions leave is looked for as seldom.
    gc.set_threshold(_CONTAINERS)


def choose_memory() -> None:
    """Let the C library keep freed memory of some megabytes for the next array."""
    # Else it may give it back to the system, and ask for it again, several times in each question.
    # It learns from what is freed how large arrays are: see M_MMAP_THRESHOLD in `man mallopt`.
    # `bytes` leaves the zeros in it to the system, which has none to write until they are read.
    bytes(_KEPT)


def with_stack(function: _Function) -> _Function:
    """Let what a function calls, however deep, find its stack in one piece."""
    # CPython takes 16 kB at a time. Where a loop runs at the end of a piece, as it may inside of
    # some imports, each of its calls takes another from the system, and gives it back, which costs
    # 20 ms of a first estimate. A function that claims to need more than a piece gets a larger one,
    # of which it leaves the rest to what it calls.
    function.__code__ = function.__code__.replace(co_stacksize=_SLOTS)
    return function


choose_cache()
choose_threads()
choose_collection()
choose_memory()
