"""Threads that compute without the interpreter's lock, and leave signals to the main one."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from kanon_db.algorithms.ground.pulse import Pulse

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")
_Part = TypeVar("_Part")

_POLL_SECONDS = 0.005


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


class _StoppedError(Exception):
    """Another part of the work has failed, or it is not wanted any more."""


def in_threads(
    run: Callable[[_Part, Pulse], _Found], parts: Sequence[_Part], workers: int, pulse: Pulse
) -> list[_Found]:
    """Run something for each part; leave no thread, whatever is raised.

    Parameters
    ----------
    run : callable
        It beats the pulse that it is given every few milliseconds.
    parts : sequence
    workers : int
        Threads.
    pulse : Pulse
        It beats in the calling thread, which knows how many parts are done.

    Returns
    -------
    list
        What was found for each part.
    """
    stop = threading.Event()
    left = iter(enumerate(parts))
    found: dict[int, _Found] = {}

    def beat() -> None:
        if stop.is_set():
            raise _StoppedError

    of_threads = Pulse(pulse.seconds_left, beat)

    def run_some() -> None:
        """Run one part after the other; the threads share what is left."""
        for number, part in left:
            found[number] = run(part, of_threads)

    with Threads(workers) as threads:
        try:
            running = [threads.start(run_some) for _ in range(min(workers, len(parts)))]
            while True:
                done, waited_for = wait(running, _POLL_SECONDS, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()  # raises what the thread raised
                if not waited_for:
                    return [found[number] for number in range(len(parts))]
                pulse.done(len(found), len(parts))
        finally:
            stop.set()
