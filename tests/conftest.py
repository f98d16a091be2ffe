"""Fixtures for tests that need a server.

``cluster_dsn`` (session)
    Superuser's connection string of a private cluster, made for the run and destroyed after it.
    ``KANON_TEST_DSN`` names a server to use instead: superuser, local trust authentication.
``installed_dsn`` (session)
    A database with kanon installed, the template of the others. Never leave a session open on it:
    PostgreSQL clones only databases that nobody uses.
``new_database`` (session)
    Factory: ``new_database()`` gives the connection string of a fresh clone of the template,
    ``new_database(installed=False)`` of an empty database. All are dropped after the run.
``database`` (test), ``module_database`` (module)
    Connection string of a fresh clone, dropped afterwards, for one test or one module.
``new_role`` (session)
    Factory: ``new_role("kanon_analyst")`` makes a role that may log in, a member of the roles
    named; returns its name. All are dropped after the run.
``connect_as`` (session)
    Function: ``connect_as(dsn, role)`` opens a psycopg connection, in autocommit mode, as a role.
``shared`` (session)
    The folder with papers and golden results; tests that need it are skipped if it is absent.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from psycopg import sql
from psycopg.conninfo import make_conninfo

from kanon_db.cluster.local import LocalCluster

# Times are measured in benchmarks/, never asserted: a loaded machine fails no test.
settings.register_profile(
    "kanon",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("kanon")


def _execute(dsn: str, statement: sql.Composed) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement)


def _create(cluster_dsn: str, template: str) -> str:
    name = f"kanon_test_{uuid.uuid4().hex[:12]}"
    _execute(
        cluster_dsn,
        sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
            sql.Identifier(name), sql.Identifier(template)
        ),
    )
    return make_conninfo(cluster_dsn, dbname=name)


def _drop(cluster_dsn: str, dsn: str) -> None:
    name = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
    _execute(
        cluster_dsn,
        sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(str(name))),
    )


@pytest.fixture(scope="session")
def cluster_dsn() -> Iterator[str]:
    if given := os.environ.get("KANON_TEST_DSN"):
        yield given
        return
    # Not made by mkdtemp: that folder would be closed to the server's OS user.
    cluster = LocalCluster(Path(tempfile.gettempdir(), f"kanon-test-{uuid.uuid4().hex[:12]}"))
    try:
        dsn = cluster.start()
        # Its data need not survive the machine: the tests take half the time.
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("SELECT pg_reload_conf()")
        yield dsn
    finally:
        cluster.destroy()


@pytest.fixture(scope="session")
def installed_dsn(cluster_dsn: str) -> Iterator[str]:
    from kanon_db.installation.install import install

    dsn = _create(cluster_dsn, "template0")
    try:
        install(dsn)
        yield dsn
    finally:
        _drop(cluster_dsn, dsn)


@pytest.fixture(scope="session")
def new_role(cluster_dsn: str) -> Iterator[Callable[..., str]]:
    with contextlib.ExitStack() as cleanup:

        def make(*memberships: str) -> str:
            name = f"kanon_test_{uuid.uuid4().hex[:12]}"
            role = sql.Identifier(name)
            _execute(cluster_dsn, sql.SQL("CREATE ROLE {} LOGIN").format(role))
            cleanup.callback(_execute, cluster_dsn, sql.SQL("DROP ROLE {}").format(role))
            for group in memberships:
                _execute(cluster_dsn, sql.SQL("GRANT {} TO {}").format(sql.Identifier(group), role))
            return name

        yield make


# new_role comes first, so that roles outlive the databases that mention them.
@pytest.fixture(scope="session")
def new_database(
    cluster_dsn: str, new_role: Callable[..., str], request: pytest.FixtureRequest
) -> Iterator[Callable[..., str]]:
    with contextlib.ExitStack() as cleanup:

        def make(*, installed: bool = True) -> str:
            template = "template0"
            if installed:
                source = request.getfixturevalue("installed_dsn")
                template = str(psycopg.conninfo.conninfo_to_dict(source)["dbname"])
            dsn = _create(cluster_dsn, template)
            cleanup.callback(_drop, cluster_dsn, dsn)
            return dsn

        yield make


@pytest.fixture
def database(cluster_dsn: str, new_database: Callable[..., str]) -> Iterator[str]:
    dsn = new_database()
    yield dsn
    _drop(cluster_dsn, dsn)


@pytest.fixture(scope="module")
def module_database(cluster_dsn: str, new_database: Callable[..., str]) -> Iterator[str]:
    dsn = new_database()
    yield dsn
    _drop(cluster_dsn, dsn)


@pytest.fixture(scope="session")
def connect_as() -> Callable[[str, str], psycopg.Connection[Any]]:
    def connect(dsn: str, role: str) -> psycopg.Connection[Any]:
        return psycopg.connect(make_conninfo(dsn, user=role), autocommit=True)

    return connect


@pytest.fixture(scope="session")
def shared() -> Path:
    beside = Path(__file__).parents[2] / "shared"
    folder = Path(os.environ.get("KANON_SHARED", beside))
    if not folder.is_dir():
        pytest.skip(f"no shared folder: set KANON_SHARED, or put it at {beside}")
    return folder
