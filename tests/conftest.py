"""Fixtures for tests that need a server.

Under pytest-xdist each worker is a session with a cluster of its own: roles belong to a cluster,
and no test sees what another worker does.

``cluster_dsn`` (session)
    Superuser's connection string of a private cluster, made for the run and destroyed after it.
    ``KANON_TEST_DSN`` names a server to use instead: superuser, local trust authentication.
``installed_dsn`` (session)
    A database with kanon installed, the template of the others. Never leave a session open on it:
    PostgreSQL clones only databases that nobody uses.
``new_database`` (session)
    Factory: ``new_database()`` gives the connection string of a fresh clone of the template,
    ``new_database(installed=False)`` of an empty database. All are dropped after the run,
    or go with the private cluster.
``database`` (test), ``module_database`` (module)
    Connection string of a fresh clone, dropped afterwards, for one test or one module.
``new_role`` (session)
    Factory: ``new_role("kanon_analyst")`` makes a role that may log in, a member of the roles
    named; returns its name. All are dropped after the run, or go with the private cluster.
``connect_as`` (session)
    Function: ``connect_as(dsn, role)`` opens a psycopg connection, in autocommit mode, as a role.
``gathering`` (session)
    What gives each module its ``parties`` (`tests/integration/parties.py`), those of `FROZEN` with
    publications that stay.
``service_server`` (session), ``service_cluster_dsn`` (session)
    A server as hosts run it (`tests/service.py`), where nobody but the tests is a superuser; the
    superuser's connection string.
``service`` (session)
    A database there that a role without superuser has installed (`tests/service.py`), with one
    worker; one pytest-xdist worker runs all modules of `SERVICE`, which share it.
``shared`` (session)
    The folder with papers and golden results; tests that need it are skipped if it is absent.
"""

from __future__ import annotations

import compileall
import contextlib
import gc
import os
import pwd
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from _pytest.doctest import DoctestModule
from psycopg import sql
from psycopg.conninfo import make_conninfo

from kanon_db.cluster import _host
from tests import profiles
from tests.clusters import create_database, private_cluster
from tests.service import Server, Service, served

profiles.load()

collect_ignore = ["toy_kind"]
"""Not to be imported when tests are collected: that registers it."""

PACKAGE = Path(__file__).parents[1] / "kanon_db"

_IS_PRIVATE = "KANON_TEST_DSN" not in os.environ
"""Whether the cluster goes after the run, and with it all databases and roles."""

SERVICE = ("tests/integration/test_service.py", "tests/attacks/test_hostile_submitter.py")
"""Modules that share one service: a server, a database and a worker."""

FROZEN = (
    "tests/attacks/test_lookup.py",
    "tests/attacks/test_query_injection.py",
    "tests/attacks/test_reading_the_source.py",
    "tests/integration/test_classes.py",
    "tests/integration/test_draws.py",
    "tests/integration/test_evaluation.py",
    "tests/integration/test_frozen.py",
    "tests/integration/test_shares.py",
    "tests/integration/test_weights.py",
)
"""Modules that read the same publications (`tests/integration/frozen.py`), which are made once."""

ROWS = tuple(
    f"{folder}/{name}"
    for folder, names in {
        "kanon_db/algorithms": ("freeform", "generalization", "recoding", "suppression"),
        "tests/unit": ("freeform", "generalization", "suppression"),
        "tests/property": (
            "test_classes", "test_freeform", "test_generalization", "test_loss_bounds",
            "test_nested_classes", "test_programs", "test_suppression",
        ),
    }.items()
    for name in names
)  # fmt: skip
"""Tests of searches for rows, which share two thirds of the loops.

One worker runs all of them: two at the same time would compile most of these loops twice.
"""

FIRST = (
    *ROWS,
    "kanon_db/",
    "tests/unit/",
    "tests/property/",
    "tests/spark/",
    "tests/attacks/test_hostile_names.py",
    "tests/integration/test_interrupted.py",
    "tests/golden/test_suppression.py",
    "tests/integration/test_local.py",
    "tests/integration/test_battery.py",
    "tests/acceptance/test_hospital.py",
    "tests/acceptance/test_commands.py",
    "tests/meaning/",
    "tests/corpus/",
    "tests/integration/test_estimates.py",
    *FROZEN,
    "tests/migration/",
    "tests/integration/",
)
"""What runs first: the examples compile the kernels that all other tests then load. Then come the
longest modules, since one at the end would leave the other workers idle."""


class _Examples:
    """Looks for examples only in modules that have some, which imports no others."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path) -> Generator[None, list[Any], list[Any]]:
        found = yield
        if file_path.suffix == ".py" and ">>>" not in file_path.read_text(encoding="utf-8"):
            return [one for one in found if not isinstance(one, DoctestModule)]
        return found


def pytest_configure(config: pytest.Config) -> None:
    """Before any worker starts, make room for compiled code that every process can use."""
    config.pluginmanager.register(_Examples())  # hooks of this module see only what is below tests
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(PACKAGE, quiet=1)
        accounts = map(_host.find_account, ("postgres", _host.OWN_ACCOUNT))
        _hand_compiled_code_to(next(filter(None, accounts), None))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let one worker run all tests of a group; others go by files."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            scope = super()._split_scope(nodeid)
            groups = (ROWS, "tests/spark/", SERVICE, FROZEN)
            shared = [starts for starts in groups if scope.startswith(starts)]
            return str(shared[0]) if shared else scope

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without looking for garbage: a million objects are made, and all of them stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Take the compiled code back."""
    if not hasattr(config, "workerinput"):
        _hand_compiled_code_to(pwd.getpwuid(os.geteuid()))


def _hand_compiled_code_to(account: pwd.struct_passwd | None) -> None:
    """Give the folders of compiled code to an OS user, if root runs the tests.

    Numba keeps its code beside Python's, in folders that it may write to. The server of a cluster
    that root made runs as another user: it would compile every kernel once more.
    """
    if account is None or os.geteuid() != 0:
        return
    for folder in PACKAGE.rglob("__pycache__"):
        for path in (folder, *folder.iterdir()):
            os.chown(path, account.pw_uid, account.pw_gid)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of `FIRST` first, in its order."""
    items.sort(key=lambda item: _place(item.nodeid))


def _place(name: str) -> int:
    return next((i for i, start in enumerate(FIRST) if name.startswith(start)), len(FIRST))


def _execute(dsn: str, statement: sql.Composed) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement)


def _create(cluster_dsn: str, template: str) -> str:
    return create_database(cluster_dsn, f"kanon_test_{uuid.uuid4().hex[:12]}", template)


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
    with private_cluster() as dsn:
        yield dsn


@pytest.fixture(scope="session")
def service_server() -> Iterator[Server]:
    server = Server()
    try:
        server.create()
        yield server
    finally:
        server.destroy()


@pytest.fixture(scope="session")
def service_cluster_dsn(service_server: Server) -> str:
    return service_server.dsn


@pytest.fixture(scope="session")
def service(
    service_cluster_dsn: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    with served(service_cluster_dsn, f"kanon_{uuid.uuid4().hex[:12]}", folder) as found:
        yield found


@pytest.fixture(scope="session")
def installed_dsn(cluster_dsn: str) -> Iterator[str]:
    from kanon_db.installation.install import install

    dsn = _create(cluster_dsn, "template0")
    try:
        install(dsn)
        # Most tests publish one table in many ways; tests of releases take this back.
        _execute(
            dsn,
            sql.SQL("INSERT INTO kanon.setting (name, value) VALUES ('combined_releases', 'warn')"),
        )
        yield dsn
    finally:
        if not _IS_PRIVATE:
            _drop(cluster_dsn, dsn)


@pytest.fixture(scope="session")
def new_role(cluster_dsn: str) -> Iterator[Callable[..., str]]:
    with contextlib.ExitStack() as cleanup:

        def make(*memberships: str) -> str:
            name = f"kanon_test_{uuid.uuid4().hex[:12]}"
            role = sql.Identifier(name)
            _execute(cluster_dsn, sql.SQL("CREATE ROLE {} LOGIN").format(role))
            if not _IS_PRIVATE:
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
            if not _IS_PRIVATE:
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
def gathering(
    new_database: Callable[..., str],
    connect_as: Callable[[str, str], psycopg.Connection[Any]],
    new_role: Callable[..., str],
) -> Iterator[Any]:
    from tests.integration.parties import Gathering, gathered

    found = Gathering(lambda: gathered(new_database(), connect_as, new_role))
    yield found
    found.close()


@pytest.fixture(scope="session")
def shared() -> Path:
    beside = Path(__file__).parents[2] / "shared"
    folder = Path(os.environ.get("KANON_SHARED", beside))
    if not folder.is_dir():
        pytest.skip(f"no shared folder: set KANON_SHARED, or put it at {beside}")
    return folder
