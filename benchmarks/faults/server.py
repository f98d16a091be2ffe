"""A private server that faults may break, on disks of its own that can be filled."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from kanon_db.cluster.local_cluster import LocalCluster
from kanon_db.errors import ServerError
from kanon_db.installation.install import install
from tests.integration.parties import warn_only

Connection = psycopg.Connection[Any]

PUBLISHER, ANALYST = "fault_publisher", "fault_analyst"
SCRATCH = "fault_scratch"
"""A tablespace for temporary tables, on the second disk."""

STANDING = "standing"
"""The `application_name` of sessions that stay open from one trial to the next."""

PATIENCE = 120
"""Seconds within which a server must answer again, and a session must be gone."""

HANGS = "300s"
"""The `statement_timeout` of sessions that stay open: a call that takes longer hangs."""

_SETTINGS = {
    # Its processes, not its host, are what crashes here; and the disk is small.
    "fsync": "off",
    "max_wal_size": "'64MB'",
    "min_wal_size": "'32MB'",
    # Nothing comes by that would tidy up, or hold a lock, at a random time.
    "autovacuum": "off",
}


@dataclass(frozen=True)
class Disk:
    """A small file system of its own."""

    folder: Path

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"

    def fill(self) -> None:
        """Take all the space that is left."""
        with self._ballast.open("wb") as file:
            while True:
                volume = os.statvfs(self.folder)
                size = max(volume.f_frsize, volume.f_frsize * volume.f_bfree)
                try:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    if size == volume.f_frsize:
                        return

    def free(self) -> None:
        """Give the space back."""
        self._ballast.unlink(missing_ok=True)


@contextmanager
def small_disk(megabytes: int) -> Iterator[Disk | None]:
    """Mount a file system in memory; gives None where the caller may not."""
    folder = Path(tempfile.gettempdir(), f"kanon-faults-{uuid.uuid4().hex[:8]}")
    folder.mkdir(mode=0o755)
    mount = shutil.which("mount", path="/usr/bin:/bin")
    options = f"size={megabytes}m,mode=0755"
    try:
        if mount is None or os.geteuid() != 0 or subprocess.run(
            [mount, "-t", "tmpfs", "-o", options, "none", folder], capture_output=True, check=False
        ).returncode:  # fmt: skip
            yield None
            return
        try:
            yield Disk(folder)
        finally:
            subprocess.run(["umount", folder], check=True)  # noqa: S607
    finally:
        folder.rmdir()


@dataclass(frozen=True)
class Server:
    """A private cluster with kanon_db and two roles, a publisher and an analyst.

    Attributes
    ----------
    disk, scratch : Disk or None
        That of the cluster, and that of the tablespace `SCRATCH`; None where nobody may mount one.
    """

    cluster: LocalCluster
    dsn: str
    data: Path
    disk: Disk | None
    scratch: Disk | None
    _standing: dict[str, Connection] = field(default_factory=dict)

    def connect(self, role: str = "postgres", **settings: str) -> Connection:
        """Open a session, in autocommit mode."""
        return psycopg.connect(make_conninfo(self.dsn, user=role, **settings), autocommit=True)

    def standing(self, role: str) -> Connection:
        """Return a session that stays open until it is lost, so that it imports everything once."""
        if role in self._standing:
            try:
                self._standing[role].execute("SELECT 1")
            except psycopg.OperationalError:
                self._standing.pop(role).close()
        if role not in self._standing:
            self._standing[role] = self.connect(
                role, application_name=STANDING, options=f"-c statement_timeout={HANGS}"
            )
        return self._standing[role]

    def close(self) -> None:
        """Close the sessions that stay open."""
        for session in self._standing.values():
            session.close()

    def postmaster(self) -> int:
        """Return the number of the server's first process."""
        return int((self.data / "postmaster.pid").read_text().partition("\n")[0])

    @contextmanager
    def crashing(self) -> Iterator[Connection]:
        """After the block, wait until all sessions were lost, and the server answers again.

        Gives a session that is lost with them. If the block closes it, there was no crash.
        """
        witness = self.connect()
        try:
            yield witness
            if not witness.closed:
                with suppress(psycopg.OperationalError):
                    witness.execute("SELECT pg_sleep(%s)", [PATIENCE])
        finally:
            witness.close()
        self._recover()

    def _recover(self) -> None:
        """Wait until the server answers; start it if it is down."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self.connect().close()
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
                self._start()
            else:
                return

    def _start(self) -> None:
        try:
            self.cluster.start()
        except ServerError:
            return  # it is still going down, or still starting: asked again

    def wait_until_quiet(self) -> list[str]:
        """Wait until nobody does anything; names the sessions of those that still do."""
        deadline = time.monotonic() + PATIENCE
        with self.connect() as admin:
            while True:
                others = admin.execute(
                    "SELECT usename::text || ': ' || coalesce(state, '') FROM pg_stat_activity"
                    " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
                    " AND (application_name <> %s OR state <> 'idle')",
                    [STANDING],
                ).fetchall()
                if not others or time.monotonic() > deadline:
                    return [name for (name,) in others]
                time.sleep(0.01)


@contextmanager
def breakable_server() -> Iterator[Server]:
    """Run a server that may be broken in every way, with kanon_db installed."""
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(400))
        scratch = stack.enter_context(small_disk(16))
        parent = disk.folder if disk else Path(tempfile.gettempdir())
        cluster = LocalCluster(parent / f"kanon-faults-{uuid.uuid4().hex[:8]}")
        stack.callback(cluster.destroy)
        dsn = cluster.start()
        install(dsn)
        data = cluster.status().data_directory
        if data is None:
            raise LookupError("no data directory")
        with psycopg.connect(dsn, autocommit=True) as admin:
            for name, value in _SETTINGS.items():
                admin.execute(f"ALTER SYSTEM SET {name} = {value}")
            admin.execute("SELECT pg_reload_conf()")
            warn_only(admin)
            for role, group in ((PUBLISHER, "kanon_publisher"), (ANALYST, "kanon_analyst")):
                admin.execute(f"CREATE ROLE {role} LOGIN IN ROLE {group}")
            admin.execute(f"CREATE SCHEMA data AUTHORIZATION {PUBLISHER}")
            if scratch:
                owner = data.stat()
                os.chown(scratch.folder, owner.st_uid, owner.st_gid)
                admin.execute(f"CREATE TABLESPACE {SCRATCH} LOCATION '{scratch.folder}'")
                admin.execute(f"GRANT CREATE ON TABLESPACE {SCRATCH} TO PUBLIC")
        server = Server(cluster, dsn, data, disk, scratch)
        stack.callback(server.close)
        yield server
