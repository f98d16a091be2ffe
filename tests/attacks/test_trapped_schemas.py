"""What an administrator's commands find, where others have laid look-alikes in every schema.

Members of the groups and a stranger may create schemas. Each lays traps of one kind, and the
database's search path leads through all of them before it comes to the server's own schema: only
what says where everything is runs none of them.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from kanon_db.cluster._host import find_programs
from kanon_db.installation.interpreter import _Trial
from tests.acceptance.commands import Answer
from tests.acceptance.commands import kanon as command
from tests.integration.parties import Connection, Functions, create_table, fetch, quoted, value
from tests.service import Service

ROOT = Path(__file__).parents[2]
SAFE = "-c search_path=pg_catalog,pg_temp"
"""Options of the tests' own sessions."""

SIGNATURES = (
    "", "text", "name", "oid", "regclass", "integer", "bigint", "text[]", "text, text",
    "text, name", "name, text", "text, name, name", "text, text, text", "oid, text", "name, name",
    "text, integer", "text, boolean", "text, text, boolean", "oid, oid, text",
)  # fmt: skip
OPERATORS = ("=", "<>", "<", ">", "||", "~", "->>", "->", "+", "-", "%", "&&", "@>")
OPERANDS = (
    "text, text", "name, text", "text, name", "name, name", "oid, oid", "int4, int4",
    "text, int4", '"char", text', "text[], text[]", "jsonb, text", "int8, int8",
)  # fmt: skip
CATALOGS = (
    "pg_class", "pg_namespace", "pg_roles", "pg_proc", "pg_database", "pg_extension",
    "pg_available_extensions", "pg_auth_members", "pg_depend", "pg_settings", "pg_stat_activity",
    "pg_type", "pg_language", "pg_event_trigger",
)  # fmt: skip
TYPES = ("text", "name", "oid", "regclass", "int4", "int8", "bool", "jsonb")

FIRE = """
CREATE SEQUENCE {0}.fired;
GRANT ALL ON SEQUENCE {0}.fired TO PUBLIC;
GRANT USAGE ON SCHEMA {0} TO PUBLIC;
CREATE FUNCTION {0}.fire() RETURNS boolean LANGUAGE plpgsql IMMUTABLE COST 0.001 AS
    $$BEGIN PERFORM pg_catalog.nextval('{0}.fired'); RETURN true; END$$;
"""
"""A sequence counts also what is rolled back."""


def function_names() -> list[str]:
    """The words that this project's statements call."""
    files = [*(ROOT / "kanon_db").rglob("*.py"), *(ROOT / "docker").iterdir()]
    words = (re.findall(r"\b([a-z_0-9]+)\(", file.read_text()) for file in files)
    return sorted({word for found in words for word in found})


def lay_functions(owner: Connection, schema: str) -> None:
    names = fetch(
        owner,
        "SELECT DISTINCT proname::text FROM pg_proc WHERE prokind = 'f' AND proname = ANY ($1)"
        " AND pronamespace = 'pg_catalog'::regnamespace",
        function_names(),
    )
    assert len(names) > 50
    for (name,) in names:
        owner.execute(";".join(
            f"CREATE FUNCTION {schema}.{quoted(name)}({types}) RETURNS text LANGUAGE plpgsql"
            f" IMMUTABLE AS $$BEGIN PERFORM {schema}.fire(); RETURN NULL; END$$"
            for types in SIGNATURES
        ).encode())  # fmt: skip


def lay_operators(owner: Connection, schema: str) -> None:
    for number, types in enumerate(OPERANDS):
        left, right = types.split(", ")
        of = f"LEFTARG = pg_catalog.{left}, RIGHTARG = pg_catalog.{right}"
        owner.execute(
            f"CREATE FUNCTION {schema}.operate_{number}({types}) RETURNS boolean LANGUAGE plpgsql"
            f" IMMUTABLE AS $$BEGIN RETURN {schema}.fire(); END$$".encode()
        )
        owner.execute(";".join(
            f"CREATE OPERATOR {schema}.{name} (FUNCTION = {schema}.operate_{number}, {of})"
            for name in OPERATORS
        ).encode())  # fmt: skip


def lay_relations(owner: Connection, schema: str) -> None:
    for name in CATALOGS:
        fetch(
            owner,
            f"CREATE VIEW {schema}.{name} AS SELECT * FROM pg_catalog.{name} WHERE {schema}.fire()",
        )
    for name in ("setting", "publication", "publications", "source", "alembic_version"):
        fetch(
            owner,
            f"CREATE VIEW {schema}.{name} AS SELECT 'a'::text AS name, 'b'::text AS value,"
            f" '0001'::text AS version_num WHERE {schema}.fire()",
        )


def lay_types(owner: Connection, schema: str) -> None:
    for name in TYPES:
        fetch(
            owner,
            f"CREATE DOMAIN {schema}.{name} AS pg_catalog.{name} CHECK ({schema}.fire())",
        )


LAID = {
    "kanon_user": (lay_functions, "SELECT format('%s', 'a'::pg_catalog.text)"),
    "kanon_analyst": (lay_operators, "SELECT 'a'::pg_catalog.name = 'a'::pg_catalog.text"),
    "kanon_publisher": (lay_relations, "SELECT FROM pg_roles"),
    "": (lay_types, "SELECT CAST('a' AS text)"),
}
"""What a member of each group lays, and a stranger; and a statement that falls into it."""


class Trapped:
    """A database full of traps."""

    def __init__(self, dsn: str, owners: dict[str, str]) -> None:
        self.dsn, self.owners = dsn, owners
        self.admin = psycopg.connect(make_conninfo(dsn, options=SAFE), autocommit=True)

    def schema(self, group: str) -> str:
        """The schema of the functions is found first: it is named like the superuser."""
        return "postgres" if group == "kanon_user" else f"traps_{group}"

    def lay(self) -> None:
        database = quoted(self.admin.info.dbname)
        for group, role in self.owners.items():
            fetch(self.admin, f"GRANT CREATE ON DATABASE {database} TO {role}")
            with psycopg.connect(
                make_conninfo(self.dsn, user=role, options=SAFE), autocommit=True
            ) as owner:
                schema = self.schema(group)
                fetch(owner, f"CREATE SCHEMA {schema}")
                owner.execute(FIRE.format(schema).encode())
                LAID[group][0](owner, schema)
        schemas = ", ".join(map(self.schema, self.owners))
        path = f'"$user", {schemas}, public, pg_catalog'
        fetch(self.admin, f"ALTER DATABASE {database} SET search_path = {path}")

    def fired(self) -> list[str]:
        """Of whom a trap was run since the last look."""
        found = [
            group
            for group in self.owners
            if value(self.admin, f"SELECT is_called FROM {self.schema(group)}.fired")
        ]
        for group in found:
            fetch(self.admin, f"ALTER SEQUENCE {self.schema(group)}.fired RESTART")
        return found

    def run(self, *words: object, user: str | None = None) -> Answer:
        dsn = make_conninfo(self.dsn, **({} if user is None else {"user": user}))
        return command(*words, dsn=dsn)


def owners_of(new_role: Callable[..., str]) -> dict[str, str]:
    return {group: new_role(*([group] if group else [])) for group in LAID}


@pytest.fixture(scope="module")
def trapped(module_database: str, new_role: Callable[..., str]) -> Iterator[Trapped]:
    """With a publication of the administrator's, mine."""
    made = Trapped(module_database, owners_of(new_role))
    with psycopg.connect(module_database, autocommit=True) as admin:
        fetch(admin, "CREATE SCHEMA data")
        create_table(admin, "data.people", "age int, ill int", [(i % 12, i % 4) for i in range(60)])
        kanon = Functions(admin)
        kanon.register("data.people", ["age"], "ill")
        kanon.publish("data.people", "mine", privacy='{"l": 2}')
    made.lay()
    yield made
    made.admin.close()


@pytest.mark.pitfall(53)
def test_53_the_traps_are_no_blanks(trapped: Trapped) -> None:
    """Whoever does not say where everything is runs each of them."""
    with psycopg.connect(trapped.dsn, autocommit=True) as careless:
        for group, (_, statement) in LAID.items():
            fetch(careless, statement)
            assert group in trapped.fired(), statement


COUNT = "SELECT COUNT(*) FROM mine WHERE age < 6"
COMMANDS: dict[str, tuple[Sequence[str], int]] = {
    "doctor": (["doctor"], 0),
    "publications": (["publications"], 0),
    "verify": (["verify", "mine"], 0),
    "metrics": (["metrics", "mine"], 0),
    "query": (["query", COUNT], 0),
    "export": (["export", "mine", "{folder}/mine.csv"], 0),
    "report": (["report", "mine", "-o", "{folder}/mine.html"], 0),
    "inspect": (["inspect", "data.people"], 0),
    "attack": (["attack", "mine"], 0),
    "register": (
        ["register", "data.people", "--quasi-identifiers", "age", "--sensitive", "ill"],
        0,
    ),
    "publish": (["publish", "suppressed", "data.people", "other", "--k", "2"], 0),
    "grant": (["grant", "other", "--readers", "kanon_user"], 0),
    "drop": (["drop", "other"], 0),
    "upgrade": (["install", "--no-compile"], 0),
    "service allow": (["service", "allow", "kanon_user"], 1),
    "service forbid": (["service", "forbid", "kanon_user"], 0),
    "uninstall": (["uninstall"], 1),
    "uninstall, publications too": (["uninstall", "--drop-publications", "--yes"], 0),
    "install": (["install", "--no-compile"], 0),
}
"""In this order, each with its exit code."""


@pytest.mark.long
@pytest.mark.pitfall(53)
@pytest.mark.parametrize("name", COMMANDS)
def test_53_no_command_of_an_administrator_runs_a_trap(
    trapped: Trapped, tmp_path: Path, name: str
) -> None:
    words, code = COMMANDS[name]
    answer = trapped.run(*(word.format(folder=tmp_path) for word in words))
    assert trapped.fired() == []
    assert answer.returncode == code, answer.stderr


@pytest.mark.pitfall(53)
def test_53_nor_do_trials_that_compile(trapped: Trapped) -> None:
    with _Trial.of(trapped.dsn):
        pass
    assert trapped.fired() == []


@pytest.mark.pitfall(53)
def test_53_nor_do_scripts_of_containers(trapped: Trapped, new_role: Callable[..., str]) -> None:
    """The functions of docker/entrypoint, cut from it, with a user who is there already."""
    text = (ROOT / "docker" / "entrypoint").read_text()
    cut = re.findall(r"^(?:statements|user)\(\) {\n.*?^}\n", text, re.MULTILINE | re.DOTALL)
    assert len(cut) == 2
    functions = "".join(cut)
    programs = find_programs(None).directory
    script = f"""set -euo pipefail
as() {{ echo "$SERVER user=$1"; }}
programs={programs}
{functions}
user postgres {new_role()} 'a password'
statements postgres <<'END'
SELECT format('%s', name) FROM pg_roles CROSS JOIN (VALUES ('a'::text)) AS v (name) LIMIT 1;
END
"""
    server = {
        key: str(given) for key, given in conninfo_to_dict(trapped.dsn).items() if key != "user"
    }
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True,
        env={**os.environ, "SERVER": make_conninfo(**server)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert trapped.fired() == []


PLANTED = """
CREATE SCHEMA kanon;
GRANT USAGE ON SCHEMA kanon TO PUBLIC;
CREATE SEQUENCE kanon.fired;
CREATE FUNCTION kanon.fire() RETURNS boolean LANGUAGE plpgsql AS
    $$BEGIN PERFORM pg_catalog.nextval('kanon.fired'); RETURN true; END$$;
CREATE VIEW kanon.publications AS SELECT 1::bigint AS publication_id, 'mine' AS name,
    'buckets' AS kind, 'a' AS source, 'b' AS method, '{}'::jsonb AS parameters, 1::bigint AS rows,
    'c' AS guarantee, '{}'::jsonb AS metrics, '{}'::jsonb AS layout, now() AS published_at,
    'd' AS published_by, 'whole' AS state, 0::bigint AS waiting, NULL::jsonb AS waits
    WHERE kanon.fire();
CREATE VIEW kanon.publication AS SELECT * FROM kanon.publications;
CREATE VIEW kanon.setting AS SELECT 'published_schema' AS name, 'published' AS value
    WHERE kanon.fire();
CREATE VIEW kanon.alembic_version AS SELECT '0001' AS version_num WHERE kanon.fire();
CREATE FUNCTION kanon.version() RETURNS text LANGUAGE sql AS $$SELECT kanon.fire()::text$$;
"""


@pytest.mark.pitfall(53)
@pytest.mark.parametrize("group", LAID)
def test_53_a_schema_kanon_of_somebody_else(
    new_database: Callable[..., str], new_role: Callable[..., str],
    connect_as: Callable[[str, str], Connection], tmp_path: Path, group: str,
) -> None:  # fmt: skip
    """Every command refuses it, whoever made it; nor do those who are no superusers run it."""
    dsn = new_database(installed=False)
    planter, other = new_role(*([group] if group else [])), new_role("kanon_publisher")
    with psycopg.connect(make_conninfo(dsn, options=SAFE), autocommit=True) as admin:
        fetch(admin, f"GRANT CREATE ON DATABASE {quoted(admin.info.dbname)} TO {planter}")
        with connect_as(dsn, planter) as connection:
            connection.execute(PLANTED.encode())
        for user in (conninfo_to_dict(dsn)["user"], other):
            for words, _ in COMMANDS.values():
                given = [word.format(folder=tmp_path) for word in words]
                answer = command(*given, dsn=make_conninfo(dsn, user=user))
                assert answer.returncode == 1, (user, words)
                assert "belongs to somebody else" in " ".join(
                    (answer.stdout + answer.stderr).split()
                ), (user, words, answer)
        assert not value(admin, "SELECT is_called FROM kanon.fired")


@pytest.mark.pitfall(53)
def test_53_a_service_whose_administrator_is_no_superuser(service: Service, tmp_path: Path) -> None:
    """The administrator falls into no trap of others, and a superuser into none of both."""
    owners = {group: f"trapper_{number}" for number, group in enumerate(LAID)}
    for group, role in owners.items():
        service.submitter(role, *([group] if group else [])).close()
    trapped = Trapped(service.superuser_dsn, owners)
    trapped.lay()
    user = service.administrator
    for words in (
        ["service", "allow", owners["kanon_user"]], ["service", "forbid", owners["kanon_user"]],
        ["doctor"], ["publications"], ["install"],
    ):  # fmt: skip
        answer = trapped.run(*words, user=user)
        assert answer.returncode == 0, (words, answer.stderr)
        assert trapped.fired() == [], words
    # The administrator's own trap, where every view and function of ours looks.
    own = make_conninfo(service.dsn, options=SAFE)
    with psycopg.connect(own, autocommit=True) as administrator:
        administrator.execute(
            b"CREATE SEQUENCE kanon.fired; CREATE OR REPLACE FUNCTION kanon.mark(publication_id"
            b" bigint) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$BEGIN"
            b" PERFORM pg_catalog.nextval('kanon.fired'); RETURN 'a'; END$$"
        )
    for words, _ in COMMANDS.values():
        answer = trapped.run(*(word.format(folder=tmp_path) for word in words))
        assert answer.returncode == 1, words
        said = " ".join((answer.stdout + answer.stderr).split())
        assert "whose code a superuser does not run" in said, words
    assert not value(trapped.admin, "SELECT is_called FROM kanon.fired")
    assert trapped.fired() == []
    trapped.admin.close()
