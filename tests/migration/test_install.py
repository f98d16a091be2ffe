"""Installing: afresh, from an earlier catalog, again; and taking it out."""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from kanon_db.errors import InUseError, InvalidNameError, ServerError
from kanon_db.installation import doctor
from kanon_db.installation.doctor import examine
from kanon_db.installation.install import current_revision, install, uninstall
from kanon_db.installation.interpreter import resource_directory
from kanon_db.installation.sql_objects import revisions
from tests.clusters import admin, dsn
from tests.integration.parties import (
    Connection,
    Functions,
    Parties,
    create_people,
    create_source,
    create_table,
    fetch,
    parties,
    sqlstate_of,
    value,
    warn_only,
)
from tests.migration.test_restore import run

__all__ = ["admin", "dsn"]

__all__ = ["parties"]

RELEASED = {
    "0001": "d08b0756dbcc11f0f250c047fa76594b8a8a3572027e8b0df9a48352ddcf129b",
}
"""SHA-256 of every released migration: what is released is never edited, only followed."""

MIGRATIONS = resource_directory("migrations")


def script_directory() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    return ScriptDirectory.from_config(config)


def dump(dsn: str) -> str:
    """Everything that the database defines, as pg_dump writes it."""
    written = run("pg_dump", "--schema-only", f"--dbname={dsn}")
    # Each dump has a random word of its own in these.
    return re.sub(r"^\\(un)?restrict .*$", "", written, flags=re.MULTILINE)


def test_released_migrations_are_never_edited() -> None:
    """One line of descent: a branch would leave two installations that are not alike."""
    hashes = {
        file.name.split("_")[0]: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in (MIGRATIONS / "versions").glob("*.py")
    }
    assert hashes == RELEASED
    script = script_directory()
    assert len(script.get_heads()) == len(script.get_bases()) == 1
    assert sorted(RELEASED) == sorted(one.revision for one in script.walk_revisions())


SECOND = """
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.execute("ALTER TABLE kanon.publication ADD title text NOT NULL DEFAULT ''")
    op.execute("UPDATE kanon.publication SET title = 'The publication ' || name")
    op.execute("CREATE TABLE kanon.reader_note (release_id bigint REFERENCES kanon.release)")
"""
"""A migration that changes a table with rows, and makes one."""


@pytest.fixture
def second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let the package bring a second migration, once it is called."""
    folder = tmp_path / "migrations"
    shutil.copytree(MIGRATIONS, folder)
    (folder / "versions" / "0002_second.py").write_text(SECOND)
    resources = {"migrations": folder}

    def bring() -> None:
        monkeypatch.setattr(
            "kanon_db.installation.sql_objects.resource_directory",
            lambda name: resources.get(name) or resource_directory(name),
        )

    return bring


@pytest.mark.slow("two installations, one after the other")
def test_a_second_migration(
    database: str, dsn: str, second: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Publications of the first catalog are answered as before, and go on; no way leads back."""
    with psycopg.connect(database, autocommit=True) as admin:
        warn_only(admin)
        rows = [(i, i % 9, i % 4) for i in range(60)]
        create_table(admin, "public.people", "id int, age int, sick int", rows)
        kanon = Functions(admin)
        kanon.register("public.people", ["age"], "sick", entity="id")
        kanon.publish("public.people", "parts", privacy='{"l": 2}')
        kanon.generalize("public.people", "rows", k=3)
        question = "SELECT COUNT(*) FROM {} WHERE age < 4"
        entries = "SELECT to_jsonb(p) - 'title' FROM kanon.publication AS p ORDER BY name"
        look = lambda: (
            fetch(admin, entries), fetch(admin, "SELECT name, state, readers FROM kanon.releases"),
            [(kanon.estimate(question.format(name)), kanon.verify(name)) for name in ENTRIES],
        )  # fmt: skip
        before = look()
        second()
        last, first = revisions()
        assert (last.revision, last.follows, last.is_head) == ("0002", "0001", True)
        assert (first.revision, first.follows, first.is_head) == ("0001", None, False)
        assert current_revision(database) == "0001"
        catalog = {finding.subject: finding for finding in examine(database)}["catalog"]
        assert (catalog.state, catalog.remedy) == ("broken", "kanon install")
        assert "catalog at revision 0002, was 0001" in install(database).actions
        assert {finding.state for finding in examine(database)} == {"ok"}
        assert look() == before
        titles = fetch(admin, "SELECT title FROM kanon.publication ORDER BY name")
        assert titles == [(f"The publication {name}",) for name in ENTRIES]
        install(dsn)
        assert fetch_catalog(database) == fetch_catalog(dsn)
        # What was published goes on.
        fetch(admin, "INSERT INTO public.people SELECT i, i % 9, i % 4"
              " FROM generate_series(60, 99) AS i")  # fmt: skip
        assert kanon.call("refresh", "parts")["added"] == 40
        kanon.generalize("public.people", "rows", k=4, replace=True)
        for name in ENTRIES:
            kanon.drop(name)
    monkeypatch.undo()
    with pytest.raises(ServerError, match="from before its first release"):
        install(database)


ENTRIES = ("parts", "rows")


def fetch_catalog(dsn: str) -> list[tuple[Any, ...]]:
    """The columns and constraints of the catalog's tables."""
    with psycopg.connect(dsn) as connection:
        return fetch(
            connection,
            "SELECT table_name, column_name, data_type, column_default, is_nullable"
            " FROM information_schema.columns WHERE table_schema = 'kanon' UNION ALL"
            " SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), NULL, NULL"
            " FROM pg_constraint WHERE connamespace = 'kanon'::regnamespace"
            " ORDER BY 1, 2",
        )


@pytest.fixture(scope="module")
def live(parties: Parties) -> Connection:
    """A publisher's connection to a database with a publication, people."""
    rows = [(i % 9, i % 4) for i in range(60)]
    kanon = create_source(parties.publisher, "data.people", "age int, sick int", rows)
    kanon.publish("data.people", "people", privacy='{"l": 2}')
    return parties.publisher


@pytest.mark.long
def test_install_again(live: Connection, parties: Parties) -> None:
    """A second installation changes nothing, and publications live on."""
    dsn, kanon = parties.dsn, Functions(live)
    before, verified = dump(dsn), kanon.verify("people")
    # The schema of publications is chosen once.
    report = install(dsn, published_schema="elsewhere")
    assert [text for text in report.actions if 'schema "elsewhere" ignored' in text]
    assert not [text for text in install(dsn).actions if "ignored" in text]
    assert dump(dsn) == before
    assert kanon.publications() == ["people"]
    assert kanon.verify("people") == verified


@pytest.mark.long
def test_a_renamed_schema_is_renamed_back(live: Connection, parties: Parties) -> None:
    """Rather than all publications dropped, or an empty schema made beside it."""
    fetch(parties.admin, "ALTER SCHEMA published RENAME TO shared")
    (broken,) = [one for one in examine(parties.dsn) if one.state != "ok"]
    with pytest.raises(ServerError, match="schema of the publications is missing"):
        install(parties.dsn)
    fetch(parties.admin, broken.remedy)
    assert {finding.state for finding in examine(parties.dsn)} == {"ok"}


@pytest.mark.long
def test_kanon_is_renamed_back(live: Connection, parties: Parties) -> None:
    """Rather than made again beside the publications of the one that was renamed."""
    before = dump(parties.dsn)
    fetch(parties.admin, "ALTER SCHEMA kanon RENAME TO elsewhere")
    broken = examine(parties.dsn)[-1]
    for operation in (install, uninstall):
        with pytest.raises(ServerError, match="the schema kanon has been renamed"):
            operation(parties.dsn)
    fetch(parties.admin, broken.remedy)
    assert dump(parties.dsn) == before
    assert {finding.state for finding in examine(parties.dsn)} == {"ok"}


def test_a_source_elsewhere(live: Connection, parties: Parties) -> None:
    """A source whose schema is renamed is answered from, and registered again for more."""
    kanon = Functions(live)
    query = "SELECT COUNT(*) FROM people WHERE age < 30"
    before, verified = kanon.estimate(query), kanon.verify("people")
    fetch(live, "ALTER SCHEMA data RENAME TO moved")
    assert (kanon.estimate(query), kanon.verify("people")) == (before, verified)
    publish = lambda: kanon.publish("moved.people", "people", privacy='{"l": 2}', replace=True)
    assert sqlstate_of(publish) is not None
    kanon.register("moved.people", ["age"], "sick")
    publish()
    assert kanon.estimate(query)[2] <= before[3]
    fetch(live, "ALTER SCHEMA moved RENAME TO data")


def test_uninstall_keeps_views_of_others(live: Connection, parties: Parties) -> None:
    """What somebody has made of a publication, or of a function, does not go with it."""
    dsn = parties.dsn
    for query in ("TABLE published.people", "SELECT kanon.version()"):
        fetch(live, f"CREATE VIEW data.mine AS {query}")
        with pytest.raises(InUseError, match="views elsewhere"):
            uninstall(dsn, drop_publications=True)
        fetch(live, "DROP VIEW data.mine")
    fetch(
        live,
        "CREATE FUNCTION data.mine() RETURNS bigint LANGUAGE sql"
        " BEGIN ATOMIC SELECT count(*) FROM published.people; END",
    )
    with pytest.raises(InUseError, match="publications exist"):
        uninstall(dsn)
    Functions(live).drop("people")  # what is left is empty, and still not dropped
    for given in (True, False):
        with pytest.raises(InUseError, match="views elsewhere") as raised:
            uninstall(dsn, drop_publications=given)
        assert raised.value.detail == "function data.mine()"
    fetch(live, "DROP FUNCTION data.mine()")


def test_uninstall_keeps_what_is_not_ours(live: Connection, parties: Parties) -> None:
    """Relations in the schema of publications, and microdata of the role kanon_publisher."""
    dsn, admin = parties.dsn, parties.admin
    fetch(admin, "CREATE TABLE published.kept (a int)")
    with pytest.raises(InUseError):
        uninstall(dsn)
    assert fetch(admin, "SELECT count(*) FROM published.kept") == [(0,)]
    fetch(admin, "DROP TABLE published.kept")
    Functions(live).register("data.people", ["age"], "sick")
    Functions(live).publish("data.people", "again", privacy='{"l": 2}')
    fetch(admin, "CREATE SCHEMA own AUTHORIZATION kanon_publisher")
    fetch(admin, "CREATE TABLE own.people (a int)")
    fetch(admin, "ALTER TABLE own.people OWNER TO kanon_publisher")
    left = uninstall(dsn, drop_publications=True)
    assert "what kanon_publisher owns: schema own, table own.people" in left
    owners = "SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'own' UNION ALL"
    assert fetch(admin, f"{owners} SELECT relowner::regrole::text FROM pg_class"
                 " WHERE oid = 'own.people'::regclass") == [("kanon_publisher",)] * 2  # fmt: skip
    assert "kanon." not in dump(dsn)
    fetch(admin, "DROP SCHEMA own CASCADE")
    assert fetch(live, "SELECT count(*) FROM data.people") == [(60,)]


def test_uninstall_keeps_what_lies_beside(database: str) -> None:
    """Functions and types beside publications, and what others have made with an extension."""
    with psycopg.connect(database, autocommit=True) as admin:
        fetch(admin, "CREATE FUNCTION published.kept() RETURNS int LANGUAGE sql AS 'SELECT 1'")
        fetch(admin, "CREATE EXTENSION pg_trgm SCHEMA published")
        fetch(admin, "CREATE TABLE names (name text)")
        fetch(admin, "CREATE INDEX ON names USING gin (name published.gin_trgm_ops)")
        for given, named in ((False, ["extension pg_trgm", "function published.kept()"]),
                             (True, ["extension pg_trgm"])):  # fmt: skip
            with pytest.raises(InUseError, match="what is no publication") as raised:
                uninstall(database, drop_publications=given)
            assert raised.value.detail == f'in schema "published": {", ".join(named)}'
        fetch(admin, "ALTER EXTENSION pg_trgm SET SCHEMA public")
        uninstall(database, drop_publications=True)
        assert value(admin, "SELECT count(*) FROM pg_indexes WHERE tablename = 'names'") == 1


def test_uninstall_waits_for_who_publishes(database: str) -> None:
    """What they publish is not taken along; and of two who uninstall, one finds nothing."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with (
        psycopg.connect(database) as publisher,
        psycopg.connect(database, autocommit=True) as admin,
        ThreadPoolExecutor() as pool,
    ):

        def wait_for(number: int) -> None:
            while value(admin, waiting) < number:
                time.sleep(0.02)

        name = value(admin, "SELECT quote_ident(current_database())")
        fetch(admin, f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
        fetch(publisher, "CREATE SCHEMA data")
        create_people(publisher).publish("data.people", "people", privacy='{"l": 2}')
        taken_out = pool.submit(uninstall, database)
        wait_for(1)
        publisher.commit()
        with pytest.raises(InUseError, match="publications exist"):
            taken_out.result()
        fetch(publisher, "TABLE kanon.source")
        both = [pool.submit(uninstall, database, drop_publications=True) for _ in range(2)]
        wait_for(2)
        fetch(publisher, "SELECT FROM kanon.publication, published.people")  # is no deadlock
        publisher.commit()
        (refused,) = filter(None, (one.exception() for one in both))
        assert str(refused) == "kanon_db is not installed in this database"


def test_uninstall_names_python_after_a_change_of_ways(database: str) -> None:
    """A service that was installed where functions ran in the server before."""
    install(database, service=True)
    assert "the extension plpython3u" in uninstall(database)


@pytest.mark.parametrize(
    "name", ["pg_catalog", "information_schema", "public", "kanon", "kanon_queue", "x" * 64, "a\nb"]
)
def test_where_publications_cannot_lie(dsn: str, admin: Connection, name: str) -> None:
    """In a schema of the server's, of ours or of everybody's, or one whose name is cut or hides."""
    fetch(admin, "ALTER SCHEMA public OWNER TO CURRENT_USER")  # as before PostgreSQL 15
    before = dump(dsn)
    with pytest.raises(InvalidNameError, match="a schema of this name"):
        install(dsn, published_schema=name)
    assert dump(dsn) == before


ESTIMATE_COUNT = "kanon.estimate_count(text, jsonb, jsonb, text)"
FOUR_COLUMNS = """
CREATE FUNCTION kanon.estimate_count(query text, figures jsonb DEFAULT NULL,
    params jsonb DEFAULT NULL, publication text DEFAULT NULL) RETURNS TABLE(
    estimate double precision, std_error double precision, lower_bound bigint, upper_bound bigint)
LANGUAGE sql AS 'SELECT 1.0, 0.0, 1, 1'
"""
"""As an earlier package made it."""


@pytest.mark.long
def test_installed_and_taken_out(dsn: str, admin: Connection, installed_dsn: str) -> None:
    """A failed installation leaves nothing, nor does the end of one; roles of others stay."""
    before = dump(dsn)
    fetch(admin, "CREATE FUNCTION public.stop() RETURNS event_trigger LANGUAGE plpgsql AS"
          " $$BEGIN IF to_regprocedure('kanon.verify(text)') IS NOT NULL THEN"
          " RAISE EXCEPTION 'stopped'; END IF; END$$")  # fmt: skip
    fetch(admin, "CREATE EVENT TRIGGER stop ON ddl_command_end EXECUTE FUNCTION public.stop()")
    with pytest.raises(ServerError, match="cannot be installed"):
        install(dsn)
    fetch(admin, "DROP EVENT TRIGGER stop")
    fetch(admin, "DROP FUNCTION public.stop()")
    assert dump(dsn) == before
    install(dsn)
    # A function whose parameters have changed since goes, unless something depends on it.
    fetch(admin, "DROP FUNCTION kanon.metrics(text)")
    fetch(admin, "CREATE FUNCTION kanon.metrics(name text, old int) RETURNS int LANGUAGE sql"
          " AS 'SELECT 1'")  # fmt: skip
    fetch(admin, "CREATE VIEW public.dependent AS SELECT kanon.metrics('a', 1) AS found")
    with pytest.raises(InUseError, match="whose parameters or results have changed"):
        install(dsn)
    fetch(admin, "DROP VIEW public.dependent")
    install(dsn)
    rows = fetch(admin, "SELECT proargnames::text FROM pg_proc WHERE proname = 'metrics'")
    assert rows == [("{name,metric,value}",)]
    # So does one that returned fewer columns.
    fetch(admin, f"DROP FUNCTION {ESTIMATE_COUNT}")
    fetch(admin, FOUR_COLUMNS)
    fetch(admin, "CREATE VIEW public.dependent AS SELECT * FROM kanon.estimate_count('…')")
    with pytest.raises(InUseError, match="whose parameters or results have changed") as raised:
        install(dsn)
    assert raised.value.detail == "function kanon.estimate_count(text,jsonb,jsonb,text)"
    fetch(admin, "DROP VIEW public.dependent")
    install(dsn)
    result = f"SELECT pg_get_function_result('{ESTIMATE_COUNT}'::regprocedure)"
    assert value(admin, result).endswith(
        "likely_low double precision, likely_high double precision)"
    )
    uninstall(dsn)
    left = dump(dsn)
    assert "kanon" not in left
    assert "published" not in left
    with pytest.raises(ServerError, match="not installed"):
        uninstall(dsn)
    assert value(admin, "SELECT count(*) FROM pg_roles WHERE rolname ~ '^kanon_(pub|ana)'") == 2
    # A package older than the installation must not touch it.
    install(dsn)
    before = dump(dsn)
    fetch(admin, "UPDATE kanon.alembic_version SET version_num = '9999'")
    with pytest.raises(ServerError, match="newer"):
        install(dsn)
    assert dump(dsn) == before
    assert {finding.subject: finding.state for finding in examine(dsn)}["catalog"] == "broken"


class TestDoctor:
    """`kanon doctor`: what is right, what is wrong, and that it changes nothing."""

    def states(self, dsn: str) -> dict[str, str]:
        return {finding.subject: finding.state for finding in examine(dsn)}

    def test_good(self, installed_dsn: str) -> None:
        """It changes nothing; where nothing can be written, as on a standby, it finds the same."""
        before = dump(installed_dsn)
        assert set(self.states(installed_dsn).values()) == {"ok"}
        assert dump(installed_dsn) == before
        options = "-c default_transaction_read_only=on"
        read_only = psycopg.conninfo.make_conninfo(installed_dsn, options=options)
        assert examine(read_only) == examine(installed_dsn)

    def test_others(self, installed_dsn: str, new_role: Callable[..., str]) -> None:
        """Strangers, and roles that are no administrators."""
        states = self.states(psycopg.conninfo.make_conninfo(installed_dsn, user=new_role()))
        assert states["kanon_db"] == "warning"
        assert "broken" not in states.values()
        user = new_role("kanon_publisher")
        states = self.states(psycopg.conninfo.make_conninfo(installed_dsn, user=user))
        assert set(states.values()) == {"ok", "warning"}

    @pytest.mark.slow("installs into a database, and breaks it in many ways")
    def test_broken(self, database: str) -> None:
        """Each fault is named, also beside others, and one installation mends all of them."""
        for faults in (
            {
                "functions": "DROP FUNCTION kanon.verify(text)",
                "rights in kanon": "GRANT SELECT ON kanon.draw_key TO pg_monitor",
                "role kanon_analyst": "REVOKE USAGE ON SCHEMA kanon FROM kanon_analyst",
                "role kanon_publisher": "REVOKE USAGE ON SCHEMA published FROM kanon_publisher",
                "kanon_db": "DROP FUNCTION kanon.version()",
            },
            {
                "rights in kanon": "GRANT EXECUTE ON FUNCTION kanon.verify(text) TO PUBLIC",
                "functions": "ALTER FUNCTION kanon.verify(text) RESET search_path",
                "schema published": "DROP SCHEMA published CASCADE",
            },
            {
                "functions": "ALTER FUNCTION kanon.verify(text) SET search_path = public",
                "kanon_db": "DROP VIEW kanon.publications",
            },
            {"functions": "ALTER FUNCTION kanon.verify(text) SECURITY DEFINER"},
        ):
            named: set[str] = set()
            for subject, break_it in faults.items():
                with psycopg.connect(database, autocommit=True) as admin:
                    fetch(admin, break_it)
                broken = [finding for finding in examine(database) if finding.state == "broken"]
                assert subject not in named, break_it
                named = {finding.subject for finding in broken}
                assert subject in named, break_it
                assert {finding.remedy for finding in broken} == {"kanon install"}, break_it
            install(database)
            assert set(self.states(database).values()) == {"ok"}, faults

    def test_without_plpython_it_comes_first(
        self, dsn: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        states = self.states(dsn)
        assert states["PL/Python"] == states["kanon_db"] == "broken"
        monkeypatch.setattr(doctor, "_AVAILABLE", "pg_available_extensions WHERE false")
        remedies = {finding.subject: finding.remedy for finding in examine(dsn)}
        assert remedies["PL/Python"].startswith("apt-get install postgresql-plpython3-")
        assert remedies["kanon_db"] == "PL/Python first, then kanon install"

    def test_broken_environment(self, database: str) -> None:
        """The server's functions look for the package where it no longer is."""
        with psycopg.connect(database, autocommit=True) as admin:
            function = "pg_get_functiondef('kanon.python_version(jsonb)'::regprocedure)"
            made = value(admin, f"SELECT {function}")
            assert "import kanon_db\n" in made
            fetch(admin, made.replace("import kanon_db\n", "import kanon_db_that_was_moved\n"))
        assert self.states(database)["kanon_db"] == "broken"

    @pytest.mark.long
    @pytest.mark.parametrize("power", ["SUPERUSER", "BYPASSRLS"])
    def test_powerful_role(self, installed_dsn: str, power: str) -> None:
        with psycopg.connect(installed_dsn, autocommit=True) as admin:
            fetch(admin, f"ALTER ROLE kanon_publisher {power}")
            try:
                findings = {finding.subject: finding for finding in examine(installed_dsn)}
            finally:
                fetch(admin, f"ALTER ROLE kanon_publisher NO{power}")
        assert findings["role kanon_publisher"].state == "broken"
        assert "ALTER ROLE" in findings["role kanon_publisher"].remedy
