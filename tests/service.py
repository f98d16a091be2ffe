"""A server whose administrator is no superuser, and the workers that run its operations."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from kanon_db.cluster import _host
from kanon_db.installation.install import install
from kanon_db.installation.service import allow, read_key
from kanon_db.operations import operations
from tests.clusters import new_folder
from tests.integration.parties import Connection, Functions, _cast, fetch, value

KANON = str(Path(sys.executable).with_name("kanon"))

SHORT = {"pace": "0.1", "grace": "60"}
"""Options of workers in tests: one that is gone is noticed after 2 seconds."""


class Server:
    """A PostgreSQL as hosts run it: by TCP, it asks for passwords; its disk is small.

    ``KANON_SERVICE_BIN`` names the folder of its programs, which need no PL/Python; without it,
    they are those of the private cluster.
    """

    SETTINGS = """
listen_addresses = '127.0.0.1'
password_encryption = 'scram-sha-256'
fsync = off
autovacuum = off
max_wal_size = '64MB'
min_wal_size = '32MB'
"""

    def __init__(self) -> None:
        given = os.environ.get("KANON_SERVICE_BIN")
        self._programs = Path(given) if given else _host.find_programs().directory
        self._account = _host.server_account()
        self.folder = new_folder()
        self.log = self.folder.with_suffix(".log")  # not on its disk, which may be full
        self.is_small = False

    def create(self) -> None:
        """Make its data directory, on a small file system where that can be, and start it."""
        self.folder.mkdir()
        self.is_small = bool(shutil.which("mount")) and os.geteuid() == 0 and subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=400m", "none", self.folder], capture_output=True
        ).returncode == 0  # fmt: skip
        self.log.touch(mode=0o600)
        if os.geteuid() == 0:
            for path in (self.folder, self.log):
                os.chown(path, self._account.pw_uid, self._account.pw_gid)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._run("initdb", "--username=postgres", "--auth-local=trust", "--encoding=UTF8",
                  "--auth-host=scram-sha-256", "--locale=C.UTF-8", "--no-sync")  # fmt: skip
        with (self.folder / "data" / "postgresql.conf").open("a") as settings:
            settings.write(self.SETTINGS)
            settings.write(f"port = {self.port}\nunix_socket_directories = '{self.folder}'\n")
        self.start()

    @property
    def dsn(self) -> str:
        """Connection string of its superuser."""
        return f"host={self.folder} port={self.port} user=postgres dbname=postgres"

    def start(self) -> None:
        self._run("pg_ctl", "start", "--wait", "--silent", f"--log={self.log}")

    def is_up(self) -> bool:
        try:
            psycopg.connect(self.dsn).close()
        except psycopg.OperationalError:
            return False
        return True

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """Leave no room on its disk for a while; start it again if that has ended it."""
        filler = self.folder / "filler"
        with psycopg.connect(self.dsn, autocommit=True) as admin:
            admin.execute("CHECKPOINT")  # The next one would give room back.
        try:
            with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(65536))
            yield
        finally:
            filler.unlink()
        wait_until(lambda: self.is_up() or self._restarted())

    def _restarted(self) -> bool:
        if not (self.folder / "data" / "postmaster.pid").exists():
            self.start()
        return False

    def destroy(self) -> None:
        with contextlib.suppress(Exception):
            self._run("pg_ctl", "stop", "--mode=immediate", "--silent")
        if self.is_small:
            subprocess.run(["umount", "--lazy", self.folder], check=True)
        shutil.rmtree(self.folder)
        self.log.unlink()

    def _run(self, program: str, *words: str) -> None:
        data = str(self.folder / "data")
        _host.run([str(self._programs / program), f"--pgdata={data}", *words],
                  account=self._account, cwd=self.folder)  # fmt: skip


class Line:
    """A way to a server by TCP, which can be cut."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._ends: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                ours, _ = self._server.accept()
            except OSError:  # it is to end
                self._server.close()
                return
            try:
                theirs = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                ours.close()
                continue
            self._ends += [ours, theirs]
            for one, other in ((ours, theirs), (theirs, ours)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    @staticmethod
    def _carry(one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        one.close()

    def cut(self) -> None:
        """Reset all connections, as a firewall does that has forgotten them."""
        ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):  # it has ended
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self.cut()


@dataclass
class Worker:
    """A running ``kanon worker``."""

    process: subprocess.Popen[bytes]
    log: Path
    options: dict[str, str]

    def lives(self) -> bool:
        return self.process.poll() is None

    def said(self) -> str:
        return self.log.read_text()

    def stop(self, how: int = signal.SIGTERM) -> int:
        """End it, and return its exit code."""
        if self.lives():
            self.process.send_signal(how)
        return self.process.wait(90)


@dataclass
class Service:
    """A database where operations are jobs."""

    superuser_dsn: str
    administrator: str
    folder: Path
    workers: list[Worker] = field(default_factory=list)
    spares: list[Worker] = field(default_factory=list)

    @property
    def dsn(self) -> str:
        """Connection string of its administrator."""
        return self.as_role(self.administrator)

    @property
    def key_file(self) -> Path:
        return self.folder / "key"

    @property
    def key(self) -> bytes:
        return read_key(self.key_file, create=True)

    def as_role(self, role: str) -> str:
        return make_conninfo(self.superuser_dsn, user=role)

    def connect(self, role: str) -> Connection:
        return psycopg.connect(self.as_role(role), autocommit=True, prepare_threshold=None)

    def submitter(self, role: str, *groups: str) -> Connection:
        """Make a role that submits jobs."""
        with psycopg.connect(self.dsn, autocommit=True) as admin:
            fetch(admin, f"CREATE ROLE {role} LOGIN")
            for group in groups:
                fetch(admin, f"GRANT {group} TO {role}")
        allow(self.dsn, [role], self.key)
        return self.connect(role)

    def by_tcp(self, **options: object) -> str:
        """Connection string of the way of workers, where the server asks for passwords."""
        return make_conninfo(self.superuser_dsn, **{"host": "127.0.0.1", "user": "", **options})

    def work(self, *, wait: bool = True, through: Line | None = None, **options: str) -> Worker:
        """Start a worker."""
        log = self.folder / f"worker-{len(self.workers)}-{len(self.spares)}.log"
        dsn = self.by_tcp() if through is None else self.by_tcp(port=through.port)
        chosen = SHORT | {"key_file": str(self.key_file), "dsn": dsn} | options
        given = [f"--{name.replace('_', '-')}={text}" for name, text in chosen.items()]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [KANON, "worker", *given],
                stderr=output, stdout=output, env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip
        self.workers.append(Worker(process, log, options))
        until = time.monotonic() + 60
        while wait and "looking for jobs" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
        return self.workers[-1]

    def spare(self, **options: str) -> Worker:
        """Start one that does no jobs here."""
        self.work(wait=False, **options)
        self.spares.append(self.workers.pop())
        return self.spares[-1]

    def working(self, **options: str) -> Worker:
        """The last worker, if it runs with these options; a new one in its place otherwise."""
        if self.workers and self.workers[-1].options == options and self.workers[-1].lives():
            return self.workers[-1]
        for worker in self.workers:
            worker.stop()
        return self.work(**options)

    def close(self) -> None:
        for worker in (*self.workers, *self.spares):
            worker.stop(signal.SIGKILL)


@contextlib.contextmanager
def served(cluster_dsn: str, database: str, folder: Path) -> Iterator[Service]:
    """Make a database, and install kanon_db there as a host's customer could."""
    administrator = "host_admin"  # of all databases, as at hosts
    with psycopg.connect(cluster_dsn, autocommit=True) as superuser:
        if not fetch(superuser, "SELECT true FROM pg_roles WHERE rolname = $1", administrator):
            fetch(superuser, f"CREATE ROLE {administrator} LOGIN CREATEROLE")
        fetch(superuser, f"CREATE DATABASE {database} TEMPLATE template0")
        fetch(superuser, f"GRANT CREATE ON DATABASE {database} TO {administrator}")
    service = Service(make_conninfo(cluster_dsn, dbname=database), administrator, folder)
    install(service.dsn)
    allow(service.dsn, [], service.key)
    # Sources are published in many ways; tests of releases take this back.
    with psycopg.connect(service.dsn, autocommit=True) as admin:
        fetch(admin, "INSERT INTO kanon.setting (name, value) VALUES ('combined_releases', 'warn')")
    try:
        yield service
    finally:
        service.close()


class Jobs(Functions):
    """The operations as SQL functions that submit jobs."""

    def rows(self, function: str, *texts: str, **given: object) -> list[dict[str, Any]]:
        """Call a function, wait for its job, and return its rows with the types of SQL."""
        operation = operations()[function]
        types = {item.name: item.type for item in operation.parameters}
        casts = [_cast(item.type) for item, _ in zip(operation.parameters, texts, strict=False)]
        casts += [_cast(types[name]) for name in given]
        names = ["" for _ in texts] + [f"{name} => " for name in given]
        arguments = ", ".join(
            f"{name}${i}{cast}"
            for i, (name, cast) in enumerate(zip(names, casts, strict=True), start=1)
        )
        fetch(
            self.connection,
            f"SELECT * FROM kanon.{function}({arguments})",
            *texts,
            *given.values(),
        )
        answered = [row for (row,) in fetch(self.connection, "SELECT * FROM kanon.wait(NULL, 300)")]
        if operation.is_value or not operation.result:
            return [{function: row} for row in answered] or [{function: None}]
        columns = ", ".join(f'"{column.name}" {column.sql}' for column in operation.result)
        with psycopg.RawCursor(self.connection, row_factory=psycopg.rows.dict_row) as cursor:
            cursor.execute(
                "SELECT r.* FROM unnest($1::jsonb[]) WITH ORDINALITY AS a (answer, n)"
                f" CROSS JOIN jsonb_to_record(a.answer) AS r ({columns}) ORDER BY n".encode(),
                [[psycopg.types.json.Jsonb(row) for row in answered]],
            )
            return cursor.fetchall()


def wait_until(holds: Callable[[], Any], seconds: float = 60) -> Any:
    """Wait until something holds, and return it."""
    until = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < until
        time.sleep(0.02)
    return found


def submit(connection: Connection, call: str, *values: object) -> int:
    """Submit a call of a function; return the number of its job."""
    fetch(connection, f"SELECT * FROM kanon.{call}", *values)
    return int(value(connection, "SELECT max(job_id) FROM kanon.jobs"))


def state(connection: Connection, job: int) -> str:
    return str(value(connection, "SELECT state FROM kanon.jobs WHERE job_id = $1", job))


PEOPLE = """
CREATE SCHEMA {0};
CREATE TABLE {0}.people AS SELECT i AS number, 'name ' || i AS name, i % 37 AS age,
    (ARRAY['f', 'm'])[1 + i % 2] AS sex, 'town ' || i % 7 AS town, 'illness ' || i % 4 AS sick
FROM generate_series(1, {1}) AS i
"""


def give_people(service: Service, connection: Connection, schema: str, n: int = 200) -> None:
    """Make people who belong to a submitter, and register them."""
    role = connection.info.user
    with psycopg.connect(service.superuser_dsn, autocommit=True) as superuser:
        superuser.execute(
            sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(
                sql.Identifier(superuser.info.dbname), sql.Identifier(role)
            )
        )
    connection.execute(PEOPLE.format(schema, n).encode())
    Jobs(connection).register(f"{schema}.people", ["age", "sex", "town"], "sick", ["name"])


def slow_people(connection: Connection, schema: str) -> None:
    """Make and register a view of people that is as slow as is wanted."""
    connection.execute(
        f"CREATE TABLE {schema}.pause AS SELECT 0.0::float8 AS seconds;"
        f"CREATE FUNCTION {schema}.nap() RETURNS boolean LANGUAGE plpgsql AS $$BEGIN"
        f" PERFORM pg_catalog.pg_sleep(seconds) FROM {schema}.pause; RETURN true; END$$;"
        f"CREATE VIEW {schema}.slow AS SELECT * FROM {schema}.people"
        f" WHERE {schema}.nap()".encode()
    )
    Jobs(connection).register(f"{schema}.slow", ["age", "sex", "town"], "sick", ["name"])


@contextlib.contextmanager
def slowly(connection: Connection, schema: str, seconds: float) -> Iterator[None]:
    """Let each record of its slow view take some time."""
    fetch(connection, f"UPDATE {schema}.pause SET seconds = $1", seconds)
    yield
    fetch(connection, f"UPDATE {schema}.pause SET seconds = 0")
