"""A server whose administrator is no superuser, and the workers that run its operations."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from kanon_db.installation.install import install
from kanon_db.installation.service import allow
from kanon_db.operations import operations
from tests.integration.parties import Connection, Functions, _cast, fetch, value

KANON = str(Path(sys.executable).with_name("kanon"))

SHORT = {"heartbeat": "0.5", "grace": "60"}
"""Options of workers in tests: one that is gone is noticed after 2.5 seconds."""


@dataclass
class Worker:
    """A running ``kanon worker``."""

    process: subprocess.Popen[bytes]
    log: Path

    def said(self) -> str:
        return self.log.read_text()

    def stop(self, how: int = signal.SIGTERM) -> int:
        """End it, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(90)


@dataclass
class Service:
    """A database where operations are jobs."""

    superuser_dsn: str
    administrator: str
    folder: Path
    key: bytes | None = None
    workers: list[Worker] = field(default_factory=list)

    @property
    def dsn(self) -> str:
        """Connection string of its administrator."""
        return self.as_role(self.administrator)

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

    def work(self, *, wait: bool = True, **options: str) -> Worker:
        """Start a worker."""
        log = self.folder / f"worker-{len(self.workers)}.log"
        given = [f"--{name.replace('_', '-')}={text}" for name, text in (SHORT | options).items()]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [KANON, "worker", "--dsn", self.superuser_dsn, *given],
                stderr=output, stdout=output, env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip
        self.workers.append(Worker(process, log))
        until = time.monotonic() + 60
        while wait and "looking for jobs" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
        return self.workers[-1]

    def close(self) -> None:
        for worker in self.workers:
            worker.stop(signal.SIGKILL)


@contextlib.contextmanager
def served(cluster_dsn: str, database: str, folder: Path) -> Iterator[Service]:
    """Make a database, and install kanon_db there as a host's customer could."""
    administrator = f"{database}_admin"
    with psycopg.connect(cluster_dsn, autocommit=True) as superuser:
        fetch(superuser, f"CREATE ROLE {administrator} LOGIN CREATEROLE")
        fetch(superuser, f"CREATE DATABASE {database} TEMPLATE template0")
        fetch(superuser, f"GRANT CREATE ON DATABASE {database} TO {administrator}")
    service = Service(make_conninfo(cluster_dsn, dbname=database), administrator, folder)
    install(service.dsn)
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
        answered = [row for (row,) in fetch(self.connection, "SELECT * FROM kanon.wait()")]
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


def wait_until(holds: Callable[[], Any], seconds: float = 30) -> Any:
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
