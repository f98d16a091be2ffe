"""The extension, by psql alone: created, dumped and restored, updated, dropped; and attacked.

The server is a copy of the machine's PostgreSQL, whose folder of extensions is its own.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pglast
import psycopg
import pytest
from pglast import ast
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import kanon_db
from kanon_db.cluster import _host
from kanon_db.errors import InvalidParameterError, PermissionDeniedError, ServerError
from kanon_db.installation.doctor import examine
from kanon_db.installation.extension import tle_registration, write_extension
from kanon_db.installation.install import install, uninstall
from tests.clusters import create_database, new_folder, private_cluster
from tests.integration.parties import Functions, create_table, fetch, value
from tests.migration.test_install import second
from tests.migration.test_restore import run

__all__ = ["second"]


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    """The server's programs, which find their extensions beside themselves."""
    real = _host.find_programs().directory
    shared = Path(run("pg_config", "--sharedir").strip())
    home = new_folder()
    programs, copied = (home / path.relative_to("/") for path in (real, shared))
    try:
        shutil.copytree(real, programs)
        (programs.parent / "lib").symlink_to(real.parent / "lib")
        (copied / "extension").mkdir(parents=True)
        for file in shared.iterdir():
            if file.name != "extension":
                (copied / file.name).symlink_to(file)
        for file in (shared / "extension").iterdir():
            if not file.name.startswith("kanon"):
                (copied / "extension" / file.name).symlink_to(file)
        yield home
    finally:
        shutil.rmtree(home)


@pytest.fixture(scope="module")
def folder(tree: Path) -> Path:
    """Where the server looks for extensions."""
    return next(tree.glob("**/extension"))


@pytest.fixture(scope="module")
def server(tree: Path) -> Iterator[str]:
    """A server of these programs, without the extension's files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_host, "DEBIAN_ROOT", tree / _host.DEBIAN_ROOT.relative_to("/"))
        with private_cluster() as dsn:
            yield dsn


@pytest.fixture(scope="module")
def installed(server: str) -> str:
    """A database that was installed by statements, before there were files of the extension."""
    dsn = made(server)
    install(dsn)
    assert states(dsn)["extension"] == ("ok", "none: installed by statements")
    return dsn


@pytest.fixture(scope="module")
def files(installed: str, server: str, folder: Path) -> list[str]:
    """Of the extension, where the server finds them."""
    return [path.name for path in write_extension(dsn=server)]


@pytest.fixture
def extended(server: str, files: list[str]) -> Iterator[str]:
    """A database with the extension."""
    dsn = made(server)
    psql(dsn, "CREATE EXTENSION kanon CASCADE")
    yield dsn
    dropped(dsn)


def made(server: str) -> str:
    return create_database(server, f"kanon_test_{uuid.uuid4().hex[:12]}")


def dropped(dsn: str) -> None:
    name = conninfo_to_dict(dsn)["dbname"]
    psql(make_conninfo(dsn, dbname="postgres"), f"DROP DATABASE {name} WITH (FORCE)")


def psql(dsn: str, text: str, *, fails: bool = False) -> str:
    """Run statements up to the first error; what psql prints."""
    program = _host.find_programs().path("psql")
    done = subprocess.run(
        [program, "-qAtX", "-v", "ON_ERROR_STOP=1", dsn], input=text, capture_output=True, text=True
    )
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr if fails else done.stdout


def refused(dsn: str, text: str) -> str:
    """What psql prints of a statement that fails."""
    return psql(dsn, text, fails=True)


def states(dsn: str) -> dict[str, tuple[str, str]]:
    return {found.subject: (found.state, found.value) for found in examine(dsn)}


PEOPLE = """
CREATE SCHEMA data;
CREATE TABLE data.people AS
    SELECT i AS id, i % 50 AS age, 'disease ' || i % 5 AS sick FROM generate_series(1, 500) AS i;
CREATE ROLE {0}_publisher LOGIN IN ROLE kanon_publisher;
CREATE ROLE {0}_reader LOGIN IN ROLE kanon_analyst;
GRANT ALL ON SCHEMA data TO {0}_publisher;
ALTER TABLE data.people OWNER TO {0}_publisher;
SET ROLE {0}_publisher;
SELECT kanon.register_source('data.people', '{{age}}', 'sick', entity => 'id');
SELECT name FROM kanon.publish_buckets('data.people', 'parts', privacy => '{{"l": 3}}',
    readers => '{{{0}_reader}}');
SELECT name FROM kanon.publish_generalized('data.people', 'classes', k => 3,
    readers => '{{{0}_reader}}', accept => '{{"combined_releases": "a test"}}');
SELECT name FROM kanon.publish_freeform('data.people', 'matches', k => 3,
    readers => '{{{0}_reader}}', accept => '{{"combined_releases": "a test"}}');
SELECT name FROM kanon.publish_suppressed('data.people', 'patterns', k => 3,
    readers => '{{{0}_reader}}', accept => '{{"combined_releases": "a test"}}');
"""

QUESTIONS = "SET ROLE {}_reader;" + "".join(
    f"SELECT * FROM kanon.estimate_count('SELECT COUNT(*) FROM {name} WHERE age < 30');"
    f"SELECT bool_and(holds) FROM kanon.verify('{name}');"
    for name in ("parts", "classes", "matches", "patterns")
)

LEDGER = "SELECT name, state, readers FROM kanon.releases ORDER BY release_id"

DROPS = (
    "DROP EXTENSION kanon",
    "DROP EXTENSION kanon CASCADE",
    "DROP EXTENSION plpython3u CASCADE",
    "DROP SCHEMA published CASCADE",
    "DROP SCHEMA kanon CASCADE",
    "DO $$BEGIN EXECUTE 'DROP EXTEN' || 'SION kan' || 'on CASCADE'; END$$",
)


@pytest.mark.slow("publishes each kind, and two more databases")
def test_from_create_to_drop(extended: str, server: str) -> None:
    """Publish, ask, dump and restore in one line, go on; what is published is not dropped along."""
    name = conninfo_to_dict(extended)["dbname"]
    psql(extended, PEOPLE.format(name))
    answers, ledger = psql(extended, QUESTIONS.format(name)), psql(extended, LEDGER)
    assert answers.count("\nt\n") == 4
    before = psql(extended, "SELECT count(*) FROM kanon.publications")
    for statement in DROPS:
        told = refused(extended, statement)
        assert re.search(
            'DROP TABLE "publication"|other objects depend on it|extension kanon requires it', told
        )
        assert ("SELECT kanon.drop_publication" in told) == ("SCHEMA" not in statement)
    psql(extended, "CREATE EXTENSION pg_trgm; CREATE SCHEMA other; DROP EXTENSION pg_trgm;"
         " DROP SCHEMA other")  # fmt: skip
    assert psql(extended, "SELECT count(*) FROM kanon.publications") == before
    there = made(server)
    dump = run("pg_dump", extended)
    psql(there, dump)
    assert psql(there, QUESTIONS.format(name)) == answers
    assert psql(there, LEDGER) == ledger
    # Of another owner, and without rights: `kanon install` gives back what publications need.
    other = made(server)
    psql(other, run("pg_dump", "--no-owner", "--no-privileges", extended))
    install(other)
    assert psql(other, QUESTIONS.format(name)) == answers
    assert psql(other, "SELECT extversion FROM pg_extension WHERE extname = 'kanon'") != ""
    dropped(other)
    # Where no kanon_db is, what is published are plain tables and views.
    plain = made(server)
    publications = re.sub(r"^(CREATE|COMMENT ON) EXTENSION .*\n", "", dump, flags=re.MULTILINE)
    run("psql", "-q", plain, text=publications)
    rows = f"SET ROLE {name}_reader; SELECT round(sum(weight)) FROM published.parts;" + "".join(
        f"SELECT count(*), count(age) FROM published.{kind};"
        for kind in ("classes", "matches", "patterns")
    )
    assert psql(plain, rows) == psql(extended, rows)
    assert psql(plain, "SELECT count(*) FROM pg_namespace WHERE nspname = 'kanon'") == "0\n"
    dropped(plain)
    added = (
        "INSERT INTO data.people SELECT i, i % 50, 'new ' || i % 4 FROM generate_series(501, 590) i"
    )
    refresh = (
        f"{added}; SET ROLE {name}_publisher;"
        " SELECT kanon.register_source('data.people', '{age}', 'sick', entity => 'id');"
        " SELECT added FROM kanon.refresh('parts',"
        ' accept => \'{"combined_releases": "a test"}\')'
    )
    assert psql(there, refresh).splitlines()[-1] == "90"
    # It knows roles and relations by the numbers that they have here.
    found = "SELECT bool_and(role = role_name::regrole) FROM kanon.release_reader"
    assert psql(there, f"{found} WHERE role_name ~ '_reader$'") == "t\n"
    again = (
        f"SET ROLE {name}_publisher; SELECT kanon.publish_suppressed('data.people', 'more', k => 2,"
        f" readers => '{{{name}_reader}}')"
    )
    assert "a known risk is not accepted: combined_releases" in refused(there, again)
    assert [found for found in examine(there) if found.state == "broken"] == []
    for dsn in (extended, there):
        psql(dsn, "SELECT kanon.drop_publication(name) FROM kanon.publications")
        psql(dsn, "DROP EXTENSION kanon")
        assert psql(dsn, "SELECT count(*) FROM data.people") != "0\n"
        assert psql(dsn, "SELECT nspname FROM pg_namespace WHERE nspname ~ '^kanon'") == ""
    dropped(there)


def test_a_dump_has_rows_of_the_catalog_once(extended: str) -> None:
    """And no object of ours, no secret, and nothing that follows from the package."""
    psql(extended, "INSERT INTO kanon.setting VALUES ('combined_releases', 'warn')")
    objects = run("pg_dump", "--schema-only", extended)
    created = re.findall(r"^CREATE (?:SCHEMA|EXTENSION IF NOT EXISTS) (\w+)", objects, re.MULTILINE)
    assert sorted(created) == ["kanon", "plpython3u", "published"]
    assert objects.count("\nCREATE ") == 3
    rows = run("pg_dump", "--data-only", extended)
    copied = re.findall(r"^COPY kanon\.(\w+) ", rows, re.MULTILINE)
    assert len(copied) == len(set(copied))
    tables = psql(extended, "SELECT relname FROM pg_class WHERE relkind = 'r'"
                  " AND relnamespace = 'kanon'::regnamespace").split()  # fmt: skip
    assert set(tables) - set(copied) == {"alembic_version", "draw_key"}
    counters = re.findall(r"setval\('kanon\.(\w+)'", rows)
    assert len(counters) == len(set(counters)) == 5
    assert "combined_releases\twarn" in rows
    assert "package\t" not in rows


OBJECTS = """
SELECT i.type, i.identity, pg_get_userbyid(o.owner)::text, o.acl::text, o.definition FROM (
    SELECT 'pg_proc'::regclass AS class, oid, proowner AS owner, proacl AS acl,
           pg_get_functiondef(oid) AS definition
    FROM pg_proc WHERE pronamespace = 'kanon'::regnamespace UNION ALL
    SELECT 'pg_class', oid, relowner, relacl, concat(relkind, reloptions::text)
    FROM pg_class WHERE relnamespace = 'kanon'::regnamespace AND relkind IN ('r', 'v', 'm', 'S')
    UNION ALL
    SELECT 'pg_namespace', oid, nspowner, nspacl, '' FROM pg_namespace
    WHERE nspname IN ('kanon', 'published') UNION ALL
    SELECT 'pg_event_trigger', oid, evtowner, NULL, concat(evtenabled, evttags::text)
    FROM pg_event_trigger
) AS o CROSS JOIN LATERAL pg_identify_object(o.class, o.oid, 0) AS i ORDER BY 1, 2
"""

MEMBERS = """
SELECT i.type, i.identity FROM pg_depend AS d
CROSS JOIN LATERAL pg_identify_object(d.classid, d.objid, 0) AS i
WHERE d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass
  AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'kanon')
  AND i.type NOT IN ('type') ORDER BY 1, 2
"""
"""Types are those of the rows of relations."""


def objects(dsn: str, query: str = OBJECTS) -> list[tuple[object, ...]]:
    with psycopg.connect(dsn) as admin:
        return fetch(admin, query)


def test_it_is_what_is_installed(extended: str, installed: str) -> None:
    """Object by object, with owners, rights and definitions; and all of it is the extension's.

    The page for administrators lists what is installed: tests/docs/test_operation.py.
    """
    assert objects(extended) == objects(installed)
    listed = psql(extended, "\\dx+ kanon").splitlines()
    members = objects(extended, MEMBERS)
    kept = [one[:2] for one in objects(extended) if one[1] != "published"]
    assert [one for one in members if one not in kept] == []
    assert [one for one in kept if one not in members] == []
    assert {line.split(" ", 1)[0] for line in listed} >= {"event", "function", "table", "view"}
    assert [i for kind, i in members if kind == "table" and f"table {i}" not in listed] == []
    assert len([line for line in listed if not line.startswith("type ")]) == len(members)
    assert states(extended)["extension"] == ("ok", f"kanon {kanon_db.__version__}")
    assert {state for state, _ in states(extended).values()} == {"ok"}
    report = install(extended)  # it goes on as before
    assert f"extension kanon {kanon_db.__version__}" in report.actions
    assert objects(extended) == objects(installed)


@pytest.mark.slow("installs by statements, and twice more")
def test_an_installation_becomes_the_extension(
    server: str, installed: str, files: list[str]
) -> None:
    """By one command, and loses nothing; where an object is another's, by none."""
    with psycopg.connect(installed, autocommit=True) as admin:
        create_table(admin, "public.people", "id int, age int, sick int",
                     [(i, i % 9, i % 4) for i in range(60)])  # fmt: skip
        kanon = Functions(admin)
        kanon.register("public.people", ["age"], "sick", entity="id")
        kanon.publish("public.people", "parts", privacy='{"l": 2}')
        answer = kanon.estimate("SELECT COUNT(*) FROM parts WHERE age < 4")
        before = objects(installed)
        assert states(installed)["extension"][0] == "warning"
        foreign = f"foreign_{uuid.uuid4().hex[:12]}"
        fetch(admin, f"CREATE ROLE {foreign}")
        fetch(
            admin,
            f"CREATE TABLE kanon.planted (a int); ALTER TABLE kanon.planted OWNER TO {foreign}",
        )
        with pytest.raises(PermissionDeniedError, match="objects of somebody else"):
            install(installed)
        assert "objects of somebody else" in refused(
            installed, "CREATE EXTENSION kanon VERSION 'unpackaged'; ALTER EXTENSION kanon UPDATE"
        )
        psql(installed, "DROP EXTENSION IF EXISTS kanon; DROP TABLE kanon.planted")
        install(installed)
        assert value(admin, "SELECT extversion FROM pg_extension WHERE extname = 'kanon'") == (
            kanon_db.__version__
        )
        assert objects(installed) == before
        assert len(objects(installed, MEMBERS)) > len(before) - 2
        assert kanon.estimate("SELECT COUNT(*) FROM parts WHERE age < 4") == answer
        copied = re.findall(r"^COPY kanon\.(\w+) ", run("pg_dump", installed), re.MULTILINE)
        assert "publication" in copied
    uninstall(installed, drop_publications=True)
    assert psql(installed, "SELECT extname FROM pg_extension WHERE extname = 'kanon'") == ""


@pytest.mark.slow("a second version of the extension")
def test_update(
    extended: str, server: str, folder: Path, second: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """To the version after, and it is what that version creates; without a way, it says so."""
    psql(extended, PEOPLE.format(conninfo_to_dict(extended)["dbname"]))
    before = psql(extended, "SELECT to_jsonb(p) FROM kanon.publication AS p ORDER BY name")
    kept = {path.name: path.read_text() for path in folder.glob("kanon*")}
    second()
    monkeypatch.setattr(kanon_db, "__version__", "0.3.0")
    try:
        write_extension(dsn=server)
        assert (folder / "kanon--0.2.0--0.3.0.sql").exists()
        psql(extended, "ALTER EXTENSION kanon UPDATE")
        after = "SELECT to_jsonb(p) - 'title' FROM kanon.publication AS p ORDER BY name"
        assert psql(extended, after) == before
        assert "The publication parts" in psql(extended, "SELECT title FROM kanon.publication")
        fresh = made(server)
        psql(fresh, "CREATE EXTENSION kanon CASCADE")
        assert objects(extended) == objects(fresh)
        assert objects(extended, MEMBERS) == objects(fresh, MEMBERS)
        assert "COPY kanon.reader_note " in run("pg_dump", extended)
        dropped(fresh)
        psql(extended, "UPDATE pg_extension SET extversion = '0.1.0' WHERE extname = 'kanon'")
        with pytest.raises(ServerError, match="cannot update the extension") as raised:
            install(extended)
        assert raised.value.hint == "kanon extension --from 0.1.0; with pg_tle, and --tle"
    finally:
        for path in folder.glob("kanon*"):
            path.unlink()
        for name, text in kept.items():
            (folder / name).write_text(text)


PLANTED = """
CREATE SCHEMA kanon; CREATE FUNCTION kanon.here() RETURNS text LANGUAGE sql AS 'SELECT 1'
"""


class TestPlanted:
    """What others have laid before CREATE EXTENSION is neither adopted nor called."""

    @pytest.fixture
    def bare(self, server: str, files: list[str]) -> Iterator[str]:
        dsn = made(server)
        yield dsn
        dropped(dsn)

    @pytest.fixture
    def stranger(self, bare: str) -> str:
        name = f"stranger_{uuid.uuid4().hex[:12]}"
        psql(bare, f"CREATE ROLE {name} LOGIN; GRANT CREATE ON SCHEMA public TO {name};"
             f"GRANT CREATE ON DATABASE {conninfo_to_dict(bare)['dbname']} TO {name}")  # fmt: skip
        return name

    @pytest.mark.pitfall(4)
    @pytest.mark.parametrize(
        ("laid", "told"),
        [
            ("CREATE SCHEMA kanon", 'schema "kanon" already exists'),
            (PLANTED, 'schema "kanon" already exists'),
            ("CREATE SCHEMA published", "belongs to somebody else"),
        ],
    )  # fmt: skip
    def test_schemas(self, bare: str, stranger: str, laid: str, told: str) -> None:
        psql(make_conninfo(bare, user=stranger), laid)
        assert told in refused(bare, "CREATE EXTENSION kanon CASCADE")
        assert psql(bare, "SELECT extname FROM pg_extension WHERE extname = 'kanon'") == ""

    @pytest.mark.pitfall(4)
    def test_a_full_schema(self, bare: str) -> None:
        psql(bare, "CREATE SCHEMA published CREATE TABLE mine (a int)")
        assert "is not empty" in refused(bare, "CREATE EXTENSION kanon CASCADE")

    @pytest.mark.pitfall(4)
    def test_the_search_path(self, bare: str, stranger: str, extended: str) -> None:
        """Look-alikes in every schema that the session searches, and in that of publications."""
        psql(
            make_conninfo(bare, user=stranger),
            "CREATE SEQUENCE public.fired; GRANT ALL ON public.fired TO PUBLIC;"
            "CREATE FUNCTION public.fire(name, text) RETURNS boolean LANGUAGE sql AS"
            " $$SELECT pg_catalog.nextval('public.fired') > 0$$;"
            "CREATE OPERATOR public.= (FUNCTION = public.fire, LEFTARG = name, RIGHTARG = text);"
            "CREATE FUNCTION public.format(text, name) RETURNS text LANGUAGE sql AS"
            " $$SELECT pg_catalog.nextval('public.fired')::text$$;"
            "CREATE FUNCTION public.has_database_privilege(text, name, text) RETURNS boolean"
            " LANGUAGE sql AS $$SELECT pg_catalog.nextval('public.fired') > 0$$;"
            "CREATE VIEW public.pg_roles AS SELECT * FROM pg_catalog.pg_roles"
            " WHERE pg_catalog.nextval('public.fired') > 0",
        )
        psql(bare, "SET search_path = public, pg_catalog; SET quote_all_identifiers = on;"
             " CREATE EXTENSION kanon CASCADE")  # fmt: skip
        assert psql(bare, "SELECT is_called FROM public.fired") == "f\n"
        assert states(bare)["functions"][0] == "ok"
        assert objects(bare) == objects(extended)

    @pytest.mark.pitfall(4)
    def test_the_owner_of_publications(self, bare: str) -> None:
        """Who could be it would own them."""
        for power, back in (("LOGIN", "NOLOGIN"), ("CREATEROLE", "NOCREATEROLE")):
            psql(bare, f"ALTER ROLE kanon_owner {power}")
            try:
                told = refused(bare, "CREATE EXTENSION kanon CASCADE")
            finally:
                psql(bare, f"ALTER ROLE kanon_owner {back}")
            assert "the role that is to own publications can do too much" in told
        psql(bare, "ALTER ROLE kanon_user BYPASSRLS")
        try:
            assert "too powerful" in refused(bare, "CREATE EXTENSION kanon CASCADE")
        finally:
            psql(bare, "ALTER ROLE kanon_user NOBYPASSRLS")

    def test_another_encoding(self, server: str, files: list[str]) -> None:
        """Refused, as by `kanon install`: PL/Python would turn names into others."""
        name = f"kanon_test_{uuid.uuid4().hex[:12]}"
        psql(server, f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1'"
             " LC_COLLATE 'C' LC_CTYPE 'C'")  # fmt: skip
        latin = make_conninfo(server, dbname=name)
        assert "encoding does not fit" in refused(latin, "CREATE EXTENSION kanon CASCADE")
        with pytest.raises(ServerError, match="encoding does not fit"):
            install(latin)
        dropped(latin)

    def test_it_is_not_trusted(self, bare: str, stranger: str) -> None:
        """PL/Python runs as the server does: whoever is no superuser may not create it."""
        psql(bare, "CREATE EXTENSION plpython3u")
        assert "permission denied to create extension" in refused(
            make_conninfo(bare, user=stranger), "CREATE EXTENSION kanon"
        )

    @pytest.mark.pitfall(4)
    def test_default_privileges(self, bare: str, stranger: str, extended: str) -> None:
        """What administrators grant by default, also to our roles, is no right of ours."""
        grantees = f"{stranger}, kanon_analyst WITH GRANT OPTION"
        for kind in ("TABLES", "SEQUENCES", "FUNCTIONS", "SCHEMAS"):
            psql(bare, f"ALTER DEFAULT PRIVILEGES GRANT ALL ON {kind} TO {grantees}")
        psql(bare, "CREATE EXTENSION kanon CASCADE")
        assert psql(bare, RIGHTS) == psql(extended, RIGHTS)
        assert states(bare)["rights in kanon"] == ("ok", "of our roles")


RIGHTS = """
SELECT DISTINCT i.identity, pg_get_userbyid(a.grantee), a.privilege_type FROM (
    SELECT 'pg_class'::regclass AS class, oid, relowner AS owner, relacl AS acl FROM pg_class
    WHERE relnamespace = 'kanon'::regnamespace UNION ALL
    SELECT 'pg_namespace', oid, nspowner, nspacl FROM pg_namespace WHERE nspname = 'kanon' UNION ALL
    SELECT 'pg_proc', oid, proowner, proacl FROM pg_proc
    WHERE pronamespace = 'kanon'::regnamespace AND prosecdef
) AS o CROSS JOIN LATERAL pg_identify_object(o.class, o.oid, 0) AS i
CROSS JOIN LATERAL aclexplode(o.acl) AS a WHERE a.grantee <> o.owner ORDER BY 1, 2, 3;
SELECT DISTINCT i.identity, pg_get_userbyid(a.grantee)
FROM pg_proc AS p CROSS JOIN LATERAL pg_identify_object('pg_proc'::regclass, p.oid, 0) AS i
CROSS JOIN LATERAL aclexplode(p.proacl) AS a
WHERE p.pronamespace = 'kanon'::regnamespace
  AND pg_get_userbyid(a.grantee) <> 'kanon_analyst' ORDER BY 1, 2;
SELECT pg_get_userbyid(a.grantee) FROM pg_namespace CROSS JOIN LATERAL aclexplode(nspacl) AS a
WHERE nspname = 'published' AND a.privilege_type = 'CREATE' ORDER BY 1
"""
"""Whose own rights functions have, our roles may execute by default: but not those of another."""


PG_TLE = """
CREATE SCHEMA pgtle;
CREATE TABLE pgtle.registered (name text, version text, script text);
CREATE FUNCTION pgtle.install_extension(
    name text, version text, description text, ext text, requires text[] DEFAULT NULL
) RETURNS boolean LANGUAGE sql
AS 'INSERT INTO pgtle.registered VALUES (name, version, ext) RETURNING true';
CREATE FUNCTION pgtle.install_update_path(name text, fromvers text, tovers text, ext text)
RETURNS boolean LANGUAGE sql
AS $$INSERT INTO pgtle.registered VALUES (name, fromvers || '--' || tovers, ext) RETURNING true$$;
CREATE FUNCTION pgtle.set_default_version(name text, version text)
RETURNS boolean LANGUAGE sql AS 'SELECT true';
"""
"""As the documentation of pg_tle describes them; it is in no repository of Debian 12."""

FORBIDDEN = {
    "CopyStmt", "CreateEventTrigStmt", "CreateFdwStmt", "CreatePLangStmt", "LoadStmt",
    "TransactionStmt", "CreateCastStmt", "AlterSystemStmt", "CreateExtensionStmt", "VacuumStmt",
}  # fmt: skip
"""Statements that take a superuser, reach files, or that no extension has."""


class TestTle:
    """With pg_tle: as a service, by a role that is no superuser."""

    @pytest.fixture
    def registered(self, server: str) -> Iterator[dict[str, str]]:
        dsn = made(server)
        psql(dsn, PG_TLE)
        psql(dsn, tle_registration(["0.1.0"]))
        with psycopg.connect(dsn) as admin:
            yield dict(fetch(admin, "SELECT version, script FROM pgtle.registered"))
        dropped(dsn)

    def test_rules(self, registered: dict[str, str]) -> None:
        """Trusted languages, no files, nothing that takes a superuser or ends a transaction."""
        version = kanon_db.__version__
        assert registered.keys() == {version, f"0.1.0--{version}"}
        for script in registered.values():
            statements = [one.stmt for one in pglast.parse_sql(script)]
            functions = [one for one in statements if isinstance(one, ast.CreateFunctionStmt)]
            options = [option for one in functions for option in one.options]
            languages = {one.arg.sval for one in options if one.defname == "language"}
            assert languages == {"plpgsql", "sql"}
            assert {type(one).__name__ for one in statements} & FORBIDDEN == set()
            files = r"pg_read_(binary_)?file\b|pg_ls_|pg_stat_file|\blo_(im|ex)port|dblink|COPY "
            assert not re.search(rf"^\s*\\|{files}", script, re.MULTILINE)

    @pytest.mark.slow("installs as a service, twice")
    def test_what_it_creates(
        self, server: str, folder: Path, files: list[str], registered: dict[str, str]
    ) -> None:
        """What `kanon install --service` does; by the rights that pg_tle has scripts run with."""
        administrator = f"administrator_{uuid.uuid4().hex[:12]}"
        psql(server, f"CREATE ROLE {administrator} LOGIN CREATEROLE;"
             f"GRANT kanon_owner TO {administrator} WITH ADMIN OPTION")  # fmt: skip
        bare, service = made(server), made(server)
        version = kanon_db.__version__
        files_of_two = {
            "kanon--tle.control": "superuser = false\nrequires = ''\n",
            "kanon--tle.sql": registered[version],
            "kanon--next.control": "superuser = false\nrequires = ''\n",
            "kanon--tle--next.sql": registered[f"0.1.0--{version}"],
        }
        for name, text in files_of_two.items():
            (folder / name).write_text(text)
        try:
            for dsn in (bare, service):
                name = conninfo_to_dict(dsn)["dbname"]
                psql(server, f"GRANT CREATE ON DATABASE {name} TO {administrator}")
            here = make_conninfo(bare, user=administrator)
            psql(here, "CREATE SCHEMA published; CREATE EXTENSION kanon SCHEMA published"
                 " VERSION 'tle'")  # fmt: skip
            assert install(make_conninfo(service, user=administrator)).is_service
            assert objects(bare) == objects(service)
            assert psql(here, "SELECT kanon.version()") == f"{kanon_db.__version__}\n"
            members = {identity for _, identity in objects(bare, MEMBERS)}
            assert {"kanon", "kanon.publication", "kanon_queue.procrastinate_jobs"} <= members
            assert "COPY kanon.publication " in run("pg_dump", bare)
            psql(here, "ALTER EXTENSION kanon UPDATE TO 'next'")
            assert objects(bare) == objects(service)
            psql(here, "DROP EXTENSION kanon")
            assert psql(here, "SELECT nspname FROM pg_namespace WHERE nspname ~ 'kanon'") == ""
        finally:
            for name in files_of_two:
                (folder / name).unlink()
            dropped(bare)
            dropped(service)
            psql(server, f"DROP OWNED BY {administrator}; DROP ROLE {administrator}")


LEFT = """
SELECT nspname FROM pg_namespace WHERE nspname ~ '^(kanon|published)' UNION ALL
SELECT proname FROM pg_proc WHERE pronamespace = to_regnamespace('published') UNION ALL
SELECT concat_ws(' ', a.grantee::regrole, a.privilege_type)
FROM pg_database CROSS JOIN LATERAL aclexplode(datacl) AS a
WHERE datname = current_database() AND a.grantee::regrole::text ~ '^kanon_' ORDER BY 1
"""


def test_what_is_left(extended: str) -> None:
    """By PostgreSQL, which lets it be created again; and by `kanon uninstall`."""
    psql(extended, "DROP EXTENSION kanon")
    assert psql(extended, LEFT) == "kanon_publisher TEMPORARY\npublished\n"
    psql(extended, "CREATE EXTENSION kanon")
    uninstall(extended)
    assert psql(extended, LEFT) == ""


def test_without_an_installation_nothing_becomes_one(server: str, files: list[str]) -> None:
    dsn = made(server)
    told = refused(dsn, "CREATE EXTENSION plpython3u; CREATE EXTENSION kanon VERSION 'unpackaged'")
    assert "there is no installation that could become the extension" in told
    dropped(dsn)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="files cannot be written"):
        write_extension(tmp_path / "absent")


@pytest.mark.parametrize("version", ["../0.1.0", "0.1.0--0.2.0", "0.1'); DROP TABLE a --", ""])
def test_what_is_no_version(tmp_path: Path, version: str) -> None:
    """It would be the name of another file, or another statement."""
    for write in (tle_registration, lambda names: write_extension(tmp_path, earlier=names)):
        with pytest.raises(InvalidParameterError, match="versions are such as"):
            write([version])
    assert list(tmp_path.iterdir()) == []
