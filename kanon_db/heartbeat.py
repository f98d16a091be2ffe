"""Calls the heartbeat of the running operation from code that nobody gave a pulse.

A pulse (:mod:`kanon_db.algorithms.ground.computation`) is passed to what may take long for its own
reasons. Sorting takes long only because a table is long, deep below many callers; so it asks here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final


def no_heartbeat() -> None:
    """Do nothing: the default, outside of any operation and in its other threads."""


_OWN: Final[ContextVar[Callable[[], None]]] = ContextVar("heartbeat", default=no_heartbeat)


def beat() -> None:
    """Say that work goes on; to be called every few milliseconds. What it raises ends it."""
    _OWN.get()()


@contextmanager
def beating(heartbeat: Callable[[], None]) -> Iterator[None]:
    """Have :func:`beat` call something, in this thread, during the block."""
    token = _OWN.set(heartbeat)
    try:
        yield
    finally:
        _OWN.reset(token)
