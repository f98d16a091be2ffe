"""Memory that arrays no longer need.

Other C libraries than glibc have no such functions, and need none.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_LARGE: Final = 1 << 20
_KEPT: Final = 8 << 20
"""Bytes."""


def give_back() -> None:
    """Let the system have the memory that was freed, and that the C library would keep.

    After a large array was freed, glibc takes smaller ones from a heap, whose end alone it gives
    back: a server's process would stay as large as if it still had them.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


@contextmanager
def giving_back() -> Iterator[None]:
    """Let the system have each array of a megabyte as soon as it is freed, while the block runs.

    It takes some time to get the next one from the system again, so this is for work that has many
    of them, and needs most of its time for something else. Afterwards, freed memory of some
    megabytes is kept again.

    Notes
    -----
    **Source:** M_MMAP_THRESHOLD and M_TRIM_THRESHOLD in `man mallopt`.
    """
    _keep(_LARGE, _LARGE)
    try:
        yield
    finally:
        _keep(_KEPT, 2 * _KEPT)


def _keep(array: int, free: int) -> None:
    """Keep arrays of fewer bytes, and free memory of as many."""
    choose = getattr(ctypes.CDLL(None), "mallopt", None)
    if choose is not None:
        choose(_M_MMAP_THRESHOLD, array)
        choose(_M_TRIM_THRESHOLD, free)
