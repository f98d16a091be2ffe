"""Memory that arrays no longer need."""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """Let the system have the memory that was freed, and that the C library would keep.

    After a large array was freed, glibc takes smaller ones from a heap, whose end alone it gives
    back: a server's process would stay as large as if it still had them. Other C libraries have no
    such function, and need none.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))
