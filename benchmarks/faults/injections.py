"""The faults: what happens to a publishing at a random moment.

Each is a function of a `Scene`. It starts the call with ``with scene.publishing()``, waits for the
moment, does harm, and repairs what was not kanon_db's to repair (a lock, a column, a disk).
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import psycopg

from benchmarks.faults.scene import LOST, PUBLISHED, Scene, warm_up
from benchmarks.faults.server import PUBLISHER, SCRATCH, Disk
from benchmarks.faults.ways import NAME, make_source

INSERTED, INSERTED_ZIP = 10, 97
"""Records that are inserted meanwhile; no other record has their zip."""

_HELD_SECONDS = 0.2

_CHANGES = (
    ("RENAME COLUMN age TO years", "RENAME COLUMN years TO age"),
    ("ADD COLUMN note int", "DROP COLUMN note"),
    ("ALTER COLUMN age TYPE int8", "ALTER COLUMN age TYPE int4"),
)
"""What happens to a source's columns, and how it is undone."""


@dataclass(frozen=True)
class Fault:
    """A fault, and the SQLSTATEs with which a call that it stops may end.

    Attributes
    ----------
    needs_disk : bool
        Whether it needs a disk of its own, which only root may mount.
    of_source : bool
        Whether it harms the source, which is read when the call begins.
    """

    name: str
    inject: Callable[[Scene], None]
    told: frozenset[str]
    needs_disk: bool
    of_source: bool


FAULTS: dict[str, Fault] = {}


def _fault(
    name: str, *told: str, needs_disk: bool = False, of_source: bool = False
) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
    def register(inject: Callable[[Scene], None]) -> Callable[[Scene], None]:
        FAULTS[name] = Fault(name, inject, frozenset(told), needs_disk, of_source)
        return inject

    return register


_CRASH = (LOST, "57P01", "57P02", "57P03")


@_fault("pg_cancel_backend", "57014")
def _cancelled(scene: Scene) -> None:
    with scene.publishing(), scene.server.connect() as admin:
        scene.wait_for_moment()
        admin.execute("SELECT pg_cancel_backend(%s)", [scene.pid])


@_fault("pg_terminate_backend", "57P01", LOST)
def _terminated(scene: Scene) -> None:
    with scene.publishing(), scene.server.connect() as admin:
        scene.wait_for_moment()
        admin.execute("SELECT pg_terminate_backend(%s)", [scene.pid])


@_fault("kill -9 of the backend", *_CRASH)
def _backend_killed(scene: Scene) -> None:
    with scene.server.crashing(), scene.publishing():
        scene.wait_for_moment()
        os.kill(scene.pid, signal.SIGKILL)


@_fault("kill -9 of the server", *_CRASH)
def _server_killed(scene: Scene) -> None:
    with scene.publishing(), scene.server.crashing():
        scene.wait_for_moment()
        os.kill(scene.server.postmaster(), signal.SIGKILL)


@_fault("kill -9 of all its processes", *_CRASH)
def _all_killed(scene: Scene) -> None:
    """As when a container is killed: with the server alone, a session may still end its call."""
    with scene.publishing(), scene.server.crashing() as admin:
        processes = admin.execute("SELECT pid FROM pg_stat_activity").fetchall()
        scene.wait_for_moment()
        for process in (scene.server.postmaster(), *(pid for (pid,) in processes)):
            os.kill(process, signal.SIGKILL)


@_fault("immediate shutdown", *_CRASH)
def _shut_down(scene: Scene) -> None:
    with scene.publishing(), scene.server.crashing():
        scene.wait_for_moment()
        os.kill(scene.server.postmaster(), signal.SIGQUIT)


@_fault("disk full", "53100", *_CRASH, needs_disk=True)
def _disk_full(scene: Scene) -> None:
    disk = _mounted(scene.server.disk)
    with scene.server.crashing() as witness:
        try:
            with scene.publishing():
                scene.wait_for_moment()
                disk.fill()
        finally:
            disk.free()
        # Without space for its log, the server stops; without space for a table, it does not.
        if scene.calls[0].ended in (PUBLISHED, "53100"):
            witness.close()


@_fault("disk of temporary tables full", "53100", needs_disk=True)
def _scratch_full(scene: Scene) -> None:
    disk = _mounted(scene.server.scratch)
    scene.publisher.execute(f"SET temp_tablespaces = {SCRATCH}")
    try:
        with scene.publishing():
            scene.wait_for_moment()
            disk.fill()
    finally:
        disk.free()


@_fault("temp_file_limit", "53400")
def _files_limited(scene: Scene) -> None:
    """No moment: a limit of random size, which sorts reach if they may use little memory."""
    with scene.server.connect() as admin:
        # Only a superuser may limit the files of others, and only of sessions to come.
        kilobytes = 64 + int(4096 * scene.moment)
        admin.execute(f"ALTER ROLE {PUBLISHER} SET temp_file_limit = {kilobytes}")
        admin.execute(f"ALTER ROLE {PUBLISHER} SET work_mem = '64kB'")
        with scene.server.connect(PUBLISHER) as scene.publisher, scene.publishing():
            pass
        admin.execute(f"ALTER ROLE {PUBLISHER} RESET ALL")


@_fault("lock_timeout", "55P03")
def _locks_taken(scene: Scene) -> None:
    """Everything is locked that the call has not locked before."""
    scene.publisher.execute("SET lock_timeout = '50ms'")
    locks = [
        "LOCK TABLE kanon.publication IN SHARE MODE",
        f"LOCK TABLE {scene.source} IN ACCESS EXCLUSIVE MODE",
    ]
    if scene.replaces:
        # A reader's lock; LOCK TABLE takes none of materialized views.
        locks.append(f"SELECT FROM published.{NAME} LIMIT 0")
    with scene.publishing(), scene.server.connect() as admin, admin.transaction():
        admin.execute("SET LOCAL lock_timeout = '1ms'")
        scene.wait_for_moment()
        for lock in locks:
            with suppress(psycopg.errors.LockNotAvailable), admin.transaction():
                admin.execute(lock)
        scene.wait_until_over()


@_fault("statement_timeout", "57014")
def _timed_out(scene: Scene) -> None:
    scene.publisher.execute(f"SET statement_timeout = {max(1, int(1000 * scene.moment))}")
    with scene.publishing():
        pass


@_fault("columns of the source changed", "42703", "42804", of_source=True)
def _columns_changed(scene: Scene) -> None:
    change, undo = _CHANGES[int(scene.random.integers(len(_CHANGES)))]
    with scene.server.connect() as admin:
        with scene.publishing():
            scene.wait_for_moment()
            admin.execute(f"ALTER TABLE {scene.source} {change}")
        admin.execute(f"ALTER TABLE {scene.source} {undo}")


@_fault("source dropped", "42P01", "42704", "42804", of_source=True)
def _source_dropped(scene: Scene) -> None:
    with scene.server.connect() as admin:
        with scene.publishing():
            scene.wait_for_moment()
            admin.execute(f"DROP TABLE {scene.source}")
        make_source(admin, scene.way, "new", min(scene.records), PUBLISHER)


@_fault("source locked for a while", of_source=True)
def _source_locked(scene: Scene) -> None:
    with scene.server.connect() as admin, scene.publishing():
        scene.wait_for_moment()
        with admin.transaction():
            admin.execute(f"LOCK TABLE {scene.source} IN ACCESS EXCLUSIVE MODE")
            time.sleep(_HELD_SECONDS)


@_fault("rows inserted into the source", of_source=True)
def _rows_inserted(scene: Scene) -> None:
    scene.records.add(max(scene.records) + INSERTED)
    with scene.server.connect() as admin, scene.publishing():
        scene.wait_for_moment()
        admin.execute(
            f"INSERT INTO {scene.source}"
            f" SELECT 18 + i, i % 2, {INSERTED_ZIP}, i FROM generate_series(1, {INSERTED}) AS i"
        )


@_fault("another publisher of the same name", "42710", "55P03", "40001", "40P01")
def _two_publishers(scene: Scene) -> None:
    with scene.server.connect(PUBLISHER) as other:
        warm_up(other, scene.way)
        with scene.publishing():
            scene.wait_for_moment()
            scene.publish_too(other)


@_fault("client gone", LOST)
def _client_gone(scene: Scene) -> None:
    with scene.publishing():
        scene.wait_for_moment()
        with socket.socket(fileno=os.dup(scene.publisher.fileno())) as connection:
            connection.shutdown(socket.SHUT_RDWR)


def _mounted(disk: Disk | None) -> Disk:
    if disk is None:
        raise LookupError("no disk of its own")
    return disk
