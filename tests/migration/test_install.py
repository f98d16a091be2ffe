"""Installing: afresh, from every revision, again; and taking it out."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

import kanon_db
from kanon_db.errors import InUseError, ServerError
from kanon_db.installation import doctor
from kanon_db.installation.doctor import examine
from kanon_db.installation.install import install, migration_script, uninstall
from kanon_db.installation.interpreter import resource_directory
from tests.integration.parties import (
    Connection,
    Functions,
    Parties,
    columns_of,
    create_source,
    fetch,
    parties,
    sqlstate_of,
    value,
    warn_only,
)
from tests.migration.test_restore import run
from tests.profiles import long_but

__all__ = ["parties"]

RELEASED = {
    "0001": "79448f4b0e08088223e5fba1b49a2b9d0e59fdf899b3a979fa02206807afad21",
    "0002": "75ff40c99eb4090e785642a3a7f5edf74e8c2c9c14f6dba3cdf21642d59faa98",
    "0003": "cbca66cfae6966ced27721b8b22a70b97cc0dea779f445ef06693dfe722435f7",
    "0004": "c3f314446084a274948fb933ebc8390b5ab2c6ce585b696abd5c4e94bd7e5990",
    "0005": "a4465d6f70eb08a42d43488dd8722b4664a9b20cea224ce2eaa46c712ab18a51",
    "0006": "41586670aec9fc4de263c2408a458fb1737e2be41b441d9f0b4c2f6218ab578f",
    "0007": "21be0e9aeaa901d0a9a7dd7c7d94a14cf9c95c29e9c84ec143478fdd72b44631",
    "0008": "00d39e8a803da6115b170522f6b4d174132f71e2dc7ecae4e7e3679941c67a2e",
    "0009": "7b42272c8f5b156302f3dc17ff6b81ca4ddbd4b3bffc0e8e3543638f5f949070",
    "0010": "5f6963e3761333bc22599d7914785553244a8bdcaf3b080979266b57b0975fee",
    "0011": "70d7173ae23523069dfaaf1a3c85b09baf3beac13722e698c1a5992a9e8e5922",
    "0012": "3fc5322419c19338e9d01b5d0363a6f611c3e7ffed3de49da08916cb16347a9c",
    "0013": "746b6afd6d46ce1c8705160b2239db233772eb9d54ce843fbb170bd6e2925bad",
    "0014": "7069ccf8ddd9a5d22cb38c977dd3f011f1124b5e39effeab85d3a6b5a71440eb",
    "0015": "ad2832e229636bd9f98c8e6dcd53c0a8dd0b1c5008663bbb32c875c4c1e35651",
}
"""SHA-256 of every released migration: what is released is never edited, only followed."""

MIGRATIONS = resource_directory("migrations")


def script_directory() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    return ScriptDirectory.from_config(config)


REVISIONS = [script.revision for script in script_directory().walk_revisions()][::-1]
"""All revisions, oldest first."""


@pytest.fixture
def dsn(new_database: Callable[..., str]) -> str:
    return new_database(installed=False)


@pytest.fixture
def admin(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


def dump(dsn: str) -> str:
    """Everything that the database defines, as pg_dump writes it."""
    written = run("pg_dump", "--schema-only", f"--dbname={dsn}")
    # Each dump has a random word of its own in these.
    return re.sub(r"^\\(un)?restrict .*$", "", written, flags=re.MULTILINE)


def restore(dsn: str, file: Path) -> None:
    """Restore a dump from before; its functions import from a folder that does not exist."""
    run("psql", "-q", dsn, text=gzip.decompress(file.read_bytes()).decode())


def test_released_migrations_are_never_edited() -> None:
    """One line of descent: a branch would leave two installations that are not alike."""
    hashes = {
        file.name.split("_")[0]: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in (MIGRATIONS / "versions").glob("*.py")
    }
    assert hashes == RELEASED
    script = script_directory()
    assert len(script.get_heads()) == len(script.get_bases()) == 1
    assert sorted(RELEASED) == REVISIONS


# The way from the first revision leads through all others.
@pytest.mark.parametrize("revision", long_but((REVISIONS[0], REVISIONS[-1]), REVISIONS))
def test_migrated_equals_fresh(
    dsn: str, admin: Connection, installed_dsn: str, revision: str
) -> None:
    fetch(admin, "CREATE SCHEMA kanon")
    fetch(admin, "CREATE SCHEMA published")
    admin.execute(migration_script(None, revision).encode())
    report = install(dsn)
    assert f"was {revision}" in " ".join(report.actions)
    assert dump(dsn) == dump(installed_dsn)
    settings = dict(fetch(admin, "SELECT name, value FROM kanon.setting"))
    assert settings.keys() == {"home", "published_schema"}
    assert settings["published_schema"] == "published"
    assert value(admin, "SELECT kanon.version()") == kanon_db.__version__


BEFORE = Path(__file__).parent / "before"


@pytest.mark.parametrize("state", sorted(path.name for path in BEFORE.iterdir()))
def test_upgrade_of_a_dump(dsn: str, admin: Connection, installed_dsn: str, state: str) -> None:
    """What an older version published is verified, asked, replaced and dropped by this one."""
    restore(dsn, BEFORE / state)
    kanon = Functions(admin)
    names = kanon.publications()
    assert [name.removeprefix("before_") for name in names] == list("balgfp")
    oid = "SELECT 'kanon.verify(text)'::regprocedure::oid"
    entries = (
        "SELECT publication_id, name, kind, method, source_schema, source_relation, parameters,"
        " layout, records, guarantee, relations, published_by, published_at, {} FROM"
        " kanon.publication ORDER BY name"
    )
    before = value(admin, oid), fetch(admin, entries.format("metrics"))
    install(dsn)
    assert fetch(admin, "SELECT name FROM kanon.releases ORDER BY name") == [
        (name,) for name in sorted(names)
    ]
    warn_only(admin)
    # Only of local assignment something was promised that did not hold: now it is said.
    parameters, guarantee = fetch(
        admin, "SELECT parameters, guarantee FROM kanon.publication WHERE name = 'before_l'"
    )[0]
    accept = parameters.pop("accept")
    assert accept == {"uninformed_reader": "published before this risk had to be accepted"}
    said = ", by readers who do not know how records were put into buckets"
    assert guarantee.endswith(said)
    fetch(
        admin,
        "UPDATE kanon.publication SET parameters = parameters - 'accept',"
        f" guarantee = replace(guarantee, '{said}', '') WHERE name = 'before_l'",
    )
    assert before == (
        value(admin, oid), fetch(admin, entries.format("metrics || source_metrics")),
    )  # fmt: skip
    # Columns without a role were published; now each must be named to be published again.
    assert fetch(admin, "SELECT insensitive, entity FROM kanon.source") == [([], None)]
    was_shown = {"number", "age", "sex", "sick"}
    for name in ("before_f", "before_g", "before_p"):
        assert was_shown <= set(columns_of(admin, f"published.{name}"))
    columns = "SELECT columns FROM kanon.source"
    names_of = "SELECT array_agg(attname::text ORDER BY attnum) FROM pg_attribute WHERE attnum > 0"
    assert value(admin, columns) == value(
        admin, f"{names_of} AND NOT attisdropped AND attrelid = 'public.people'::regclass"
    )
    for (measured,) in fetch(admin, "SELECT metrics FROM kanon.publication"):
        assert not {"gcp", "usefulness_loss", "loss_of_age"} & measured.keys()
    for name in names:
        assert all(holds for *_, holds in kanon.verify(name)), name
        assert kanon.metrics(name)["records"] == 60
        assert kanon.attack(name)
        estimate, _, lower, upper = kanon.estimate(f"SELECT COUNT(*) FROM {name} WHERE sex = 'f'")
        assert lower <= estimate <= upper
    # What would look empty in a snapshot from before it took another's place fails there.
    for name in ("before_a", "before_b", "before_l"):
        definition = value(admin, f"SELECT pg_get_viewdef('published.{name}'::regclass)")
        assert "kanon.require_visible(" in definition
        assert value(admin, f"SELECT sum(weight)::int FROM published.{name}") == 60
    kanon.publish("public.people", "before_b", privacy='{"l": 2}', replace=True)
    kanon.freeform("public.people", "before_f", k=3, replace=True)
    kanon.generalize("public.people", "before_g", k=3, replace=True)
    kanon.suppress("public.people", "before_p", k=3, replace=True)
    for name in ("before_f", "before_g", "before_p"):
        assert not {"number", "name"} & set(columns_of(admin, f"published.{name}"))
    for name in names:
        kanon.drop(name)
    fetch(admin, "DROP TABLE public.people")
    fetch(admin, "DELETE FROM kanon.source")
    assert functions_of(dsn) == functions_of(installed_dsn)


EVERY_KIND = Path(__file__).parent / "every_kind"
"""A database of version 0.1.0 before it had one answering engine: how it was made, and answers."""


@pytest.mark.parametrize("part", long_but((0,), range(4)))
def test_an_upgrade_answers_as_before(dsn: str, admin: Connection, part: int) -> None:
    """Every kind, by both estimators: all numbers to nine digits, and the same refusals.

    Bounds are not equal in all digits: since then, the ends of sums are rounded outward. Buckets
    had no weights yet: both estimators are the paper's, whose errors are others now.
    """
    restore(dsn, EVERY_KIND / "dump.sql.gz")
    install(dsn)
    kanon = Functions(admin)
    answers = json.loads((EVERY_KIND / "answers.json").read_text())
    assert sorted(answers) == sorted(kanon.publications())
    for name, by_estimator in answers.items():
        assert all(holds for *_, holds in kanon.verify(name)), name
        if name == "model":
            for age, town, votes in by_estimator:
                asked = json.dumps({"age": age, "town": town})
                assert list(*fetch(admin, CLASSIFY, asked)) == votes
            continue
        of_buckets = name in ("buckets_random", "buckets_cells", "buckets_local", "stays_m")
        for estimator in by_estimator:
            fetch(admin, f"SET kanon.estimator = '{estimator}'")
            questions = by_estimator["paper" if of_buckets else estimator]
            for question, before in [*questions.items()][part::4]:
                now = _answered(admin, question.format(name))
                if of_buckets:
                    now, before = _without_errors(now), _without_errors(before)  # noqa: PLW2901
                assert now == before, (name, estimator, question)


CLASSIFY = "SELECT label, agreement FROM kanon.classify('model', $1::jsonb)"


def _answered(connection: Connection, question: str) -> object:
    """Estimates, errors and bounds by their groups and aggregates, or the SQLSTATE of a refusal."""
    try:
        rows = fetch(
            connection,
            "SELECT group_key, aggregate, estimate, std_error, lower_bound, upper_bound"
            " FROM kanon.estimate($1::text)",
            question,
        )
    except psycopg.Error as error:
        return error.sqlstate
    tolerance = 1e-9 * max(1, *(abs(number or 0) for row in rows for number in row[2:]))
    return {
        json.dumps([group, aggregate]): [
            None if number is None else pytest.approx(number, rel=1e-9, abs=tolerance)
            for number in numbers
        ]
        for group, aggregate, *numbers in rows
    }


def _without_errors(answer: Any) -> object:
    """Leave out the errors, and what follows from them."""
    if not isinstance(answer, dict):
        return answer
    return {
        key: [number for place, number in enumerate(numbers) if place != 1]
        for key, numbers in answer.items()
    }


def test_older_buckets_live_on(dsn: str, admin: Connection) -> None:
    """Those whose composition was published are answered, refreshed with weights, and dropped."""
    restore(dsn, EVERY_KIND / "dump.sql.gz")
    install(dsn)
    kanon = Functions(admin)
    described = "SELECT layout FROM kanon.publications WHERE name = $1::text"
    kanon.register(
        "public.clinic", ["age", "born", "income", "height", "town", "ward", "smoker"], "ill",
        ["id"], insensitive=["cost"], arrival="seen",
    )  # fmt: skip
    kanon.register("public.stays", ["age", "town", "smoker"], "ill", entity="id")
    for name in ("buckets_random", "buckets_cells", "stays_m"):
        ((before,),) = fetch(admin, described, name)
        assert before["spectrum"]
        assert "weighted" not in before
        explained = fetch(
            admin, "SELECT * FROM kanon.explain_count($1::text)",
            f"SELECT COUNT(*) FROM {name} WHERE age < 40 AND ill = 'ill 3'",
        )  # fmt: skip
        assert "the paper's estimator" in str(explained)
        fetch(
            admin,
            "INSERT INTO public.clinic SELECT id + 2000, seen + 900, age, born, income, height,"
            " town, ward, smoker, ill, cost FROM public.clinic"
            " WHERE id <= 100 AND NOT EXISTS (SELECT FROM public.clinic WHERE id > 2000)",
        )
        if name != "buckets_random":  # whose source is published again in other buckets
            fetch(admin, "DELETE FROM public.stays WHERE id = 230")
            kanon.call("refresh", name)
            ((after,),) = fetch(admin, described, name)
            assert "weighted" in after
            assert "spectrum" not in after
        assert all(holds for *_, holds in kanon.verify(name)), name
        kanon.drop(name)
        assert fetch(admin, "SELECT to_regclass($1::text)", f"published.{name}_est") == [(None,)]


def functions_of(dsn: str) -> list[tuple[Any, ...]]:
    """Every function of ours, whole."""
    with psycopg.connect(dsn) as connection:
        return fetch(
            connection,
            "SELECT pg_get_functiondef(oid), proacl::text FROM pg_proc"
            " WHERE pronamespace = 'kanon'::regnamespace ORDER BY proname",
        )


@pytest.fixture(scope="module")
def live(parties: Parties) -> Connection:
    """A publisher's connection to a database with a publication, people."""
    rows = [(i % 9, i % 4) for i in range(60)]
    kanon = create_source(parties.publisher, "data.people", "age int, sick int", rows)
    kanon.publish("data.people", "people", privacy='{"l": 2}')
    return parties.publisher


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


def test_a_renamed_schema_is_renamed_back(live: Connection, parties: Parties) -> None:
    """Rather than all publications dropped, or an empty schema made beside it."""
    fetch(parties.admin, "ALTER SCHEMA published RENAME TO shared")
    (broken,) = [one for one in examine(parties.dsn) if one.state != "ok"]
    with pytest.raises(ServerError, match="schema of the publications is missing"):
        install(parties.dsn)
    fetch(parties.admin, broken.remedy)
    assert {finding.state for finding in examine(parties.dsn)} == {"ok"}


def test_kanon_is_renamed_back(live: Connection, parties: Parties) -> None:
    """Rather than made again beside the publications of the one that was renamed."""
    before = dump(parties.dsn)
    fetch(parties.admin, "ALTER SCHEMA kanon RENAME TO elsewhere")
    broken = examine(parties.dsn)[-1]
    with pytest.raises(ServerError, match="the schema kanon has been renamed"):
        install(parties.dsn)
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
    Functions(live).publish("data.people", "again", privacy='{"l": 2}')
    fetch(admin, "CREATE SCHEMA own AUTHORIZATION kanon_publisher")
    fetch(admin, "CREATE TABLE own.people (a int)")
    fetch(admin, "ALTER TABLE own.people OWNER TO kanon_publisher")
    uninstall(dsn, drop_publications=True)
    assert fetch(admin, "SELECT count(*) FROM own.people") == [(0,)]
    left = dump(dsn)
    assert "kanon." not in left
    assert "kanon_publisher" not in left
    assert fetch(live, "SELECT count(*) FROM data.people") == [(60,)]


FOUR_COLUMNS = """
CREATE FUNCTION kanon.estimate_count(query text) RETURNS TABLE(estimate double precision,
    std_error double precision, lower_bound bigint, upper_bound bigint)
LANGUAGE sql AS 'SELECT 1.0, 0.0, 1, 1'
"""
"""As an earlier package made it."""


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
    fetch(admin, "DROP FUNCTION kanon.estimate_count(text)")
    fetch(admin, FOUR_COLUMNS)
    fetch(admin, "CREATE VIEW public.dependent AS SELECT * FROM kanon.estimate_count('…')")
    with pytest.raises(InUseError, match="whose parameters or results have changed") as raised:
        install(dsn)
    assert raised.value.detail == "function kanon.estimate_count(text)"
    fetch(admin, "DROP VIEW public.dependent")
    install(dsn)
    result = "SELECT pg_get_function_result('kanon.estimate_count(text)'::regprocedure)"
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

    def test_broken(self, database: str) -> None:
        for break_it, subject in (
            ("DROP FUNCTION kanon.verify(text)", "functions"),
            ("DROP FUNCTION kanon.version()", "kanon_db"),
            ("GRANT EXECUTE ON FUNCTION kanon.verify(text) TO PUBLIC", "EXECUTE for PUBLIC"),
            ("ALTER FUNCTION kanon.verify(text) RESET search_path", "functions"),
            ("ALTER FUNCTION kanon.verify(text) SET search_path = public", "functions"),
            ("ALTER FUNCTION kanon.verify(text) SECURITY DEFINER", "functions"),
            ("REVOKE USAGE ON SCHEMA kanon FROM kanon_analyst", "role kanon_analyst"),
            ("REVOKE USAGE ON SCHEMA published FROM kanon_publisher", "role kanon_publisher"),
            ("DROP VIEW kanon.publications", "kanon_db"),
            ("DROP SCHEMA published", "schema published"),
        ):
            with psycopg.connect(database, autocommit=True) as admin:
                fetch(admin, break_it)
            broken = [finding for finding in examine(database) if finding.state == "broken"]
            assert subject in [finding.subject for finding in broken], break_it
            assert {finding.remedy for finding in broken} == {"kanon install"}, break_it
            install(database)
            assert set(self.states(database).values()) == {"ok"}, break_it

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
