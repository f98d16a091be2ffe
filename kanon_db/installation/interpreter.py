"""Prepares the server's Python: its folders, its environment, and searches that it compiles."""

from __future__ import annotations

import compileall
import hashlib
import json
import os
import secrets
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

from psycopg import sql

import kanon_db
from kanon_db.cluster.cluster_folder import CONFIGURATION, ENVIRONMENT, NEW, require_trusted
from kanon_db.dataclasses import dataclass
from kanon_db.errors import ServerError
from kanon_db.operations import operations
from kanon_db.session import fetch_one
from kanon_db.session.psycopg_session import PsycopgSession, open_connection

_PACKAGE = Path(__file__).resolve().parents[1]


def resource_directory(name: str) -> Path:
    """Return the folder `name` (``sql`` or ``migrations``)."""
    inside = _PACKAGE / name
    return inside if inside.is_dir() else _PACKAGE.parent / name


def import_paths() -> list[str]:
    """Return the folders that the server needs on its path to import the same packages as we do."""
    import numpy as np

    paths = [_PACKAGE.parent, Path(np.__file__).resolve().parents[1]]
    return list(dict.fromkeys(str(path) for path in paths))


_NEEDED: Final = ("kanon_db", "numpy", "sqlglot")
"""Packages that sessions import, if only to write a rewritten statement."""

_ANSWER: Final = "kanon_db.answer"
"""The setting through which a block of Python answers, until its transaction ends."""


def server_paths(session: PsycopgSession) -> list[str]:
    """Find folders from which the server's own interpreter can import kanon_db."""
    # The server embeds the interpreter that PostgreSQL was built with, and runs as an operating
    # system user of its own. It can use our environment if the minor versions agree and that user
    # can read it. If it cannot be read, a private cluster gets a copy beside its data.
    server = server_interpreter(session)
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    if server.version != ours:
        raise ServerError(
            "the server's Python differs from this one",
            detail=f"server: {server.version}, here: {ours}",
            hint=f"install kanon_db for the server's interpreter:"
            f" /usr/bin/python{server.version} -m venv DIR; DIR/bin/pip install kanon_db;"
            " DIR/bin/kanon install",
        )
    paths = import_paths()
    compile_packages(paths)
    if can_import(session, paths):
        return paths
    copied = _copy_environment(server.data_directory, paths)
    if copied is not None and can_import(session, copied):
        return copied
    raise ServerError(
        "the server cannot read the environment that holds kanon_db",
        detail=f"operating-system user {server.os_user}, folders {', '.join(paths)}",
        hint="install kanon_db in a folder that this user can read, for example under /opt",
    )


def compile_packages(paths: Sequence[str]) -> None:
    """Compile what sessions import, where that is missing or old."""
    # The server's user may not write there, so every session would compile it again: for half a
    # second and more, before a first estimate. pip compiles what it installs; other tools, and
    # changes to a checkout, leave it to the first import by somebody who may write.
    for path in paths:
        for name in _NEEDED:
            if (package := Path(path, name)).is_dir():
                compileall.compile_dir(package, quiet=2)


@dataclass(frozen=True)
class ServerInterpreter:
    """The Python inside the server."""

    version: str
    os_user: str
    data_directory: Path


def server_interpreter(session: PsycopgSession) -> ServerInterpreter:
    """Ask the server which Python it embeds, and as which user it runs."""
    row = _ask_python(
        session,
        "import os, pwd, sys\n"
        "user = pwd.getpwuid(os.geteuid()).pw_name\n"
        "return f'{sys.version_info.major}.{sys.version_info.minor}|{user}'",
    )
    version, os_user = row.split("|", 1)
    directory = fetch_one(session, "SELECT current_setting('data_directory') AS value")["value"]
    return ServerInterpreter(version, os_user, Path(directory))


def can_import(session: PsycopgSession, paths: list[str]) -> bool:
    """Tell whether the server finds this version of kanon_db, and what it needs, in the folders."""
    printed = _ask_python(
        session,
        "import importlib.machinery, os\n"
        f"paths, needed = {paths!r}, {_NEEDED!r}\n"
        "find = importlib.machinery.PathFinder.find_spec\n"
        "specs = [find(name, paths) for name in needed]\n"
        "return str(all(s and s.origin and os.access(s.origin, os.R_OK) for s in specs))",
    )
    return printed == "True"


def _ask_python(session: PsycopgSession, body: str) -> str:
    """Run a function body in the server's Python; nothing is written, so standbys answer, too."""
    block = (
        "def ask():\n"
        + textwrap.indent(body, "    ")
        + f"\nset_answer = plpy.prepare(\"SELECT set_config('{_ANSWER}', $1, true)\", ['text'])"
        "\nplpy.execute(set_answer, [ask()])"
    )
    session.fetch(f"DO LANGUAGE plpython3u {session.literal(block)}")
    return str(fetch_one(session, "SELECT current_setting($1::text) AS value", _ANSWER)["value"])


def _copy_environment(data_directory: Path, paths: list[str]) -> list[str] | None:
    """Copy the environment beside a private cluster's data; return None for any other server.

    The copy still belongs to us (to root): the server's user may read it, but not change it.
    """
    home = data_directory.parent
    try:
        # The server says where that is, and a server of somebody else may say anything.
        require_trusted(home)
        if not (home / CONFIGURATION).exists() or not os.access(home, os.W_OK):
            return None
    except (OSError, ServerError):
        return None
    target, unfinished = home / ENVIRONMENT, home / (ENVIRONMENT + NEW)
    shutil.rmtree(unfinished, ignore_errors=True)
    for path in paths:
        shutil.copytree(path, unfinished, dirs_exist_ok=True, ignore=_not_for_the_server)
    for file in (unfinished, *unfinished.rglob("*")):
        file.chmod(0o755 if file.is_dir() else 0o644)
    # Never overwrite the old files, since running backends have its libraries mapped.
    shutil.rmtree(target, ignore_errors=True)
    unfinished.rename(target)
    return [str(target)]


def _not_for_the_server(folder: str, names: list[str]) -> set[str]:
    """Leave out what no import needs: from a checkout, copy only the package."""
    if (Path(folder) / "pyproject.toml").exists():
        return set(names) - {"kanon_db", "sql", "migrations"}
    return set()


@cache
def package_digest() -> str:
    """Return what identifies this package's Python, SQL and migrations, whatever its version."""
    parts = {
        "kanon_db": _PACKAGE.rglob("*.py"),
        "sql": resource_directory("sql").rglob("*.sql"),
        "migrations": (resource_directory("migrations") / "versions").glob("*.py"),
    }
    inside = tuple(_PACKAGE / name for name in ("sql", "migrations"))  # in a wheel
    digest = hashlib.sha256()
    for name, files in parts.items():
        for file in sorted(files):
            if name != "kanon_db" or not any(map(file.is_relative_to, inside)):
                digest.update(f"{name} {file.name} ".encode() + file.read_bytes())
    return digest.hexdigest()[:32]


def is_current(session: PsycopgSession) -> bool:
    """Tell whether the database's objects are those of this package."""
    rows = session.fetch("SELECT value FROM kanon.setting WHERE name = 'package'")
    return bool(rows) and rows[0]["value"] == package_digest()


def preamble(paths: Sequence[str]) -> str:
    """Return the first lines of every PL/Python body: use this environment, and this package."""
    # A session keeps the modules that it has imported, and with them what its first call was
    # installed with. So it can tell whether it was there before an upgrade.
    refused = {
        "message": "this session holds an older kanon_db",
        "hint": "start a new session",
        "sqlstate": ServerError.sqlstate,
    }
    digest = package_digest()
    return (
        "import sys\n"
        f"sys.path[:0] = [path for path in {list(paths)!r} if path not in sys.path]\n"
        "import kanon_db\n"
        f"if (kanon_db.__version__ != {kanon_db.__version__!r}\n"
        f"        or vars(kanon_db).setdefault('installed', {digest!r}) != {digest!r}):\n"
        f"    return {json.dumps({'error': refused})!r}\n"
    )


_PEOPLE: Final = """
CREATE TABLE {} AS
SELECT i % 37 AS age, i % 5 AS children, 'town ' || i % 7 AS town, i * 0.5::float8 AS income,
    date '2000-01-01' + i % 50 AS day, 'illness ' || i % 4 AS illness
FROM generate_series(1, 160) AS i
"""
_QUASI_IDENTIFIERS: Final = ("age", "children", "town", "income", "day")
_Given: TypeAlias = Mapping[str, Any]
_BUCKETS: Final[_Given] = {"privacy": {"l": 2}, "readers": []}
_ROWS: Final[_Given] = {"k": 3, "readers": []}
_BRIEFLY: Final[_Given] = {"options": {"time_limit": 2}}
_TRIALS: Final[tuple[tuple[str, str, _Given], ...]] = (
    ("buckets", "publish_buckets", _BUCKETS),
    ("Mondrian", "publish_generalized", {**_ROWS, "method": "mondrian", **_BRIEFLY}),
    ("greedy search", "publish_generalized", {**_ROWS, "method": "greedy_search", **_BRIEFLY}),
    ("K-Member", "publish_generalized", {**_ROWS, "method": "k_member", "refine": False}),
    ("freeform rows", "publish_freeform", _ROWS),
    ("suppressed rows", "publish_suppressed", _ROWS),
)
"""The publications that are tried, by name."""


def compile_searches(dsn: str) -> Iterator[tuple[str, int, int]]:
    """Compile what the searches need; yield what comes next, how many are done, and how many are.

    `dsn`: of a superuser. Trials are rolled back; what was compiled before an error stays.
    """
    # SQL functions run as the server's OS user, the command line and Python as that of this
    # process: both compile at the same time.
    n = len(_TRIALS) + 1
    with _Trial.of(dsn) as server, _Trial.of(dsn) as own, ThreadPoolExecutor(1) as beside:

        def call(function: str, given: _Given) -> None:
            by_server = beside.submit(server.call, function, given)
            own.perform(function, given)
            by_server.result()

        for done, (what, function, given) in enumerate(_TRIALS):
            yield what, done, n
            call(function, {**given, "dry_run": True})
        yield "several releases", n - 1, n
        call("publish_buckets", _BUCKETS)
        call("check_release", {})


@dataclass(frozen=True)
class _Trial:
    """Made-up people in a schema of their own, in a transaction that is rolled back."""

    session: PsycopgSession
    schema: str

    @classmethod
    @contextmanager
    def of(cls, dsn: str) -> Iterator[Self]:
        """Make the people, and register them."""
        schema = f"kanon_{secrets.token_hex(8)}"  # nobody has a publication of this name
        with open_connection(dsn) as connection:
            session = PsycopgSession(connection)
            with connection.transaction(force_rollback=True), session.transaction():
                trial = cls(session, schema)
                connection.execute("SET LOCAL client_min_messages = error")
                connection.execute("SET LOCAL statement_timeout = 0")
                connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
                connection.execute(sql.SQL(_PEOPLE).format(sql.Identifier(schema, "people")))
                request = {"quasi_identifiers": _QUASI_IDENTIFIERS, "sensitive": "illness"}
                trial.perform(
                    "register_source", {"source": trial.source, **request}, of_people=False
                )
                yield trial

    @property
    def source(self) -> str:
        """The name of the table."""
        return f"{self.schema}.people"

    def perform(self, operation: str, given: _Given, *, of_people: bool = True) -> None:
        """Perform an operation in this process."""
        found = operations()[operation]
        named = {"source": self.source, "publication": self.schema} if of_people else {}
        with self.session.transaction():
            found.perform(self.session, found.read({**named, **given}))

    def call(self, operation: str, given: _Given) -> None:
        """Call the SQL function, in the server."""
        written = [
            sql.SQL("{} => {}").format(sql.Identifier(name), _literal(value))
            for name, value in given.items()
        ]
        arguments = sql.SQL(", ").join(
            [sql.Literal(self.source), sql.Literal(self.schema), *written]
        )
        with self.session.translate_errors():
            self.session.connection.execute(
                sql.SQL("SELECT count(*) FROM kanon.{}({})").format(
                    sql.Identifier(operation), arguments
                )
            )


def _literal(value: object) -> sql.Literal:
    """Write an argument: JSON and lists as PostgreSQL reads them."""
    if isinstance(value, Mapping):
        return sql.Literal(json.dumps(value))
    return sql.Literal("{}" if value == [] else value)
