"""One publishing that is to be disturbed: its session, its call, and the moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import psycopg

from benchmarks.faults.server import Connection, Server
from benchmarks.faults.ways import NAME, Way

PUBLISHED, LOST = "published", "connection lost"


class LateError(Exception):
    """The call ended before it was disturbed."""


class Call(threading.Thread):
    """A call in a thread of its own, and how it ended: `PUBLISHED`, `LOST` or an SQLSTATE."""

    def __init__(self, connection: Connection, statement: str) -> None:
        super().__init__()
        self._connection, self._statement = connection, statement
        self.ended = ""
        self.seconds = 0.0

    def run(self) -> None:
        """Make the call."""
        started = time.perf_counter()
        try:
            self._connection.execute(self._statement)
        except psycopg.Error as error:
            self.ended = error.sqlstate or LOST
        else:
            self.ended = PUBLISHED
        self.seconds = time.perf_counter() - started


@dataclass
class Scene:
    """What a fault needs to know of the publishing that it disturbs.

    Attributes
    ----------
    moment : float
        Seconds from the begin of the call to the fault.
    records : set of int
        How many records may be published. A fault that changes the source adds to it.
    """

    server: Server
    way: Way
    replaces: bool
    moment: float
    publisher: Connection
    records: set[int]
    random: np.random.Generator
    calls: list[Call] = field(default_factory=list)

    @property
    def source(self) -> str:
        """The relation that is being published."""
        return self.way.source("new")

    @property
    def pid(self) -> int:
        """The process of the publisher's session."""
        return self.publisher.info.backend_pid

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Publish in the background; wait for the end."""
        call = self._call(self.publisher)
        try:
            yield
        finally:
            call.join()

    def publish_too(self, other: Connection) -> None:
        """Publish the same in another session."""
        self._call(other).join()

    def _call(self, connection: Connection) -> Call:
        call = Call(connection, self.way.statement("new", replace=self.replaces))
        self.calls.append(call)
        call.start()
        return call

    def wait_for_moment(self) -> None:
        """Wait until the publishing is to be disturbed.

        Raises
        ------
        LateError
            When it has already ended.
        """
        self.calls[0].join(self.moment)
        if self.is_over():
            raise LateError

    def is_over(self) -> bool:
        """Whether the call has ended."""
        return not self.calls[0].is_alive()

    def wait_until_over(self) -> None:
        """Wait until the call has ended."""
        self.calls[0].join()


def warm_up(publisher: Connection, way: Way) -> None:
    """Let a session import what its call needs, so that faults meet the work of the call."""
    small = way.statement("small", replace=False, options=", dry_run => true")
    publisher.execute(small.replace(f"'{NAME}'", "'warming_up'"))
