"""Threads that compute without the interpreter's lock, and leave signals to the main one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


def n_cores() -> int:
    """How many threads compute at a time, unless told otherwise: two, on a machine that has them.

    A server has other sessions to answer.
    """
    return min(2, os.cpu_count() or 1)


class Threads:
    """Some threads, gone when the block ends; what they have not begun by then is not done.

    Parameters
    ----------
    number : int
        At least 1.
    """

    def __init__(self, number: int) -> None:
        self._executor = ThreadPoolExecutor(number)

    def start(
        self, work: Callable[_Given, _Found], *given: _Given.args, **named: _Given.kwargs
    ) -> Future[_Found]:
        """Have a thread do something.

        Signals are for the thread that knows what to do about them: new threads block them.
        """
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            return self._executor.submit(work, *given, **named)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._executor.shutdown(cancel_futures=True)
