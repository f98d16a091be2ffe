"""Describing microdata: what a description must be, and when it may be replaced."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kanon_db.interfaces.python import Kanon
from kanon_db.session.psycopg_session import PsycopgSession
from tests.integration.parties import (
    WAYS,
    Functions,
    Package,
    Parties,
    fetch,
    quoted,
    sqlstate_of,
    value,
)

INVALID, UNKNOWN, IN_USE, MISMATCH = "22023", "42704", "55006", "42804"


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    fetch(
        parties.publisher,
        "CREATE TABLE data.people (name text, age int, sex text, born date, stay interval,"
        " income numeric, sick text)",
    )


@pytest.fixture
def kanon(parties: Parties) -> Iterator[Functions | Package]:
    yield Functions(parties.publisher)
    fetch(parties.admin, "DELETE FROM kanon.source")


@pytest.mark.parametrize(
    ("quasi_identifiers", "sensitive", "identifiers", "sqlstate"),
    [
        (["age", "sex"], "sick", ["name"], None),
        (["age"], None, [], None),
        (["age", "sex"], "sex", [], INVALID),
        (["age"], "sick", ["age"], INVALID),
        (["age"], "sick", ["sick"], INVALID),
        (["age", "age"], "sick", [], INVALID),
        (["age"], "sick", ["name", "name"], INVALID),
        ([], "sick", ["name"], INVALID),
        (["weight"], "sick", [], UNKNOWN),
        (["age"], "weight", [], UNKNOWN),
        (["age"], "sick", ["weight"], UNKNOWN),
        (["AGE"], "sick", [], UNKNOWN),
        ([""], "sick", [], UNKNOWN),
        (["ctid"], "sick", [], UNKNOWN),
        (["tableoid"], "sick", [], UNKNOWN),
    ],
)
def test_roles(
    kanon: Functions | Package,
    quasi_identifiers: list[str],
    sensitive: str | None,
    identifiers: list[str],
    sqlstate: str | None,
) -> None:
    found = sqlstate_of(
        lambda: kanon.register("data.people", quasi_identifiers, sensitive, identifiers)
    )
    assert found == sqlstate


@pytest.mark.parametrize(
    ("attributes", "sqlstate"),
    [
        ({}, None),
        ({"age": {}}, None),
        ({"age": {"kind": "numeric", "lower": 0, "upper": 120, "weight": 0.4}}, None),
        ({"born": {"kind": "numeric", "lower": "1900-01-01"}, "stay": {"kind": "numeric"}}, None),
        ({"sex": {"kind": "categorical", "weight": 2}}, None),
        ({"age": {"kind": "categorical"}}, None),
        ({"sex": {"kind": "numeric"}}, MISMATCH),
        ({"sex": {"lower": 1}}, MISMATCH),
        ({"age": {"kind": "ordinal"}}, INVALID),
        ({"age": {"kind": None}}, INVALID),
        ({"age": {"kind": ["numeric"]}}, INVALID),
        ({"age": {"lower": 2, "upper": 1}}, INVALID),
        ({"age": {"lower": 1, "upper": 1}}, None),
        ({"age": {"lower": "a"}}, INVALID),
        ({"age": {"lower": "", "upper": 5}}, INVALID),
        ({"age": {"lower": 3e10}}, INVALID),
        ({"born": {"lower": "1900-02-30"}}, INVALID),
        ({"born": {"lower": "2000-01-01", "upper": "1999-12-31"}}, INVALID),
        ({"stay": {"lower": "23 hours", "upper": "1 day"}}, None),
        ({"stay": {"lower": "25 hours", "upper": "1 day"}}, INVALID),
        ({"age": {"lower": [1]}}, INVALID),
        ({"age": {"upper": True}}, INVALID),
        ({"age": {"weight": 0}}, INVALID),
        ({"age": {"weight": -1}}, INVALID),
        ({"age": {"weight": "1"}}, INVALID),
        ({"age": {"weight": True}}, INVALID),
        ({"age": {"weight": None}}, INVALID),
        ({"age": {"wieght": 1}}, INVALID),
        ({"age": 1}, INVALID),
        ({"age": None}, INVALID),
        ({"age": []}, INVALID),
        ({"age": {"round": 5}}, None),
        ({"age": {"round": 5, "top": 90, "bottom": 20, "weight": 2, "upper": 120}}, None),
        ({"age": {"top": 90}}, None),
        ({"born": {"round": "month", "top": "2000-01-01"}}, None),
        ({"age": {"round": 0}}, INVALID),
        ({"age": {"round": -5}}, INVALID),
        ({"age": {"round": 2.5}}, INVALID),
        ({"age": {"round": 1e16}}, INVALID),
        ({"age": {"round": "month"}}, INVALID),
        ({"age": {"round": "5"}}, INVALID),
        ({"age": {"round": True}}, INVALID),
        ({"age": {"round": [5]}}, INVALID),
        ({"age": {"round": None}}, INVALID),
        ({"age": {"top": 20, "bottom": 90}}, INVALID),
        ({"age": {"top": "old"}}, INVALID),
        ({"age": {"top": None}}, INVALID),
        ({"age": {"top": 3e10}}, INVALID),
        ({"born": {"round": 5}}, INVALID),
        ({"born": {"round": "fortnight"}}, INVALID),
        ({"born": {"round": "hour"}}, INVALID),
        ({"born": {"top": "infinity"}}, INVALID),
        ({"age": {"kind": "categorical", "round": 5}}, INVALID),
        ({"sex": {"round": 5}}, MISMATCH),
        ({"sex": {"top": "m"}}, MISMATCH),
        ({"stay": {"round": "hour"}}, MISMATCH),
        ({"sick": {"weight": 1}}, INVALID),
        ({"nobody": {"weight": 1}}, INVALID),
        ([], INVALID),
        (1, INVALID),
        ("age", INVALID),
    ],
)
def test_attributes(kanon: Functions | Package, attributes: object, sqlstate: str | None) -> None:
    def call() -> int:
        qi = ["age", "sex", "born", "stay"]
        return kanon.register("data.people", qi, "sick", attributes=json.dumps(attributes))

    assert sqlstate_of(call) == sqlstate


@pytest.mark.parametrize("text", ["", "{", '{"age": NaN}', '{"age": {"weight": Infinity}}',
                                  '{"age": {"weight": 1e999}}', "\x00", "[" * 100_000])  # fmt: skip
def test_attributes_that_are_no_json(parties: Parties, text: str) -> None:
    call = Package(parties.publisher).register
    assert sqlstate_of(lambda: call("data.people", ["age"], "sick", attributes=text)) == INVALID


def test_null_arguments(parties: Parties) -> None:
    """SQL's NULL in place of an argument is refused like any other mistake."""
    kanon = Functions(parties.publisher)
    for call in (
        lambda: kanon.register("data.people", None, "sick"),
        lambda: kanon.register("data.people", ["age", None], "sick"),
        lambda: kanon.register("data.people", ["age"], "sick", [None]),
        lambda: fetch(parties.publisher, "SELECT kanon.register_source(NULL, '{age}')"),
        lambda: fetch(parties.publisher, "SELECT kanon.verify(NULL)"),
        lambda: fetch(parties.publisher, "SELECT kanon.metrics(NULL)"),
        lambda: fetch(parties.publisher, "SELECT kanon.drop_publication(NULL)"),
        lambda: fetch(parties.publisher, "SELECT kanon.estimate_count(NULL)"),
        lambda: fetch(parties.publisher, "SELECT kanon.rewrite_count(NULL)"),
        *(
            lambda name=name: fetch(
                parties.publisher,
                "SELECT kanon.publish_buckets('data.people', 'people',"
                f" privacy => '{{\"l\": 2}}', {name} => NULL)",
            )
            for name in ("max_bucket_size", "method", "assignment")
        ),
        lambda: fetch(parties.publisher, "SELECT kanon.publish_buckets('data.people', 'people')"),
        lambda: fetch(
            parties.publisher,
            "SELECT kanon.publish_buckets('data.people', 'people', privacy => '{\"l\": 2}',"
            " readers => '{NULL}')",
        ),
    ):
        assert sqlstate_of(call) == INVALID


@pytest.mark.parametrize(
    ("source", "sqlstate"),
    [
        ("data.nowhere", UNKNOWN),
        ("nowhere.people", UNKNOWN),
        ("people", UNKNOWN),
        ("data.people, data.people", "42602"),
        ("data.people; SELECT 1", "42602"),
        ("(SELECT * FROM data.people)", "42602"),
        ("", "42602"),
        ("a.b.c.d", "42601"),
    ],
)
def test_sources_that_are_none(parties: Parties, source: str, sqlstate: str) -> None:
    kanon = Package(parties.publisher)
    assert sqlstate_of(lambda: kanon.register(source, ["age"], "sick")) == sqlstate


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE SEQUENCE data.odd",
        "CREATE INDEX odd ON data.people (age)",
        "CREATE TYPE data.odd AS (age int, sick text)",
        "CREATE TEMPORARY TABLE odd (age int, sick text)",
    ],
)
def test_relations_that_hold_no_microdata(
    kanon: Functions | Package, parties: Parties, statement: str
) -> None:
    with parties.publisher.transaction(force_rollback=True):
        fetch(parties.publisher, statement)
        name = "pg_temp.odd" if "TEMPORARY" in statement else "data.odd"

        def call() -> None:
            with parties.publisher.transaction():
                kanon.register(name, ["age"], "sick")

        assert sqlstate_of(call) in (INVALID, UNKNOWN)


def test_the_description_is_kept(kanon: Functions | Package, parties: Parties) -> None:
    attributes = {"age": {"kind": "numeric", "lower": 0, "upper": 120, "weight": 0.4}}
    first = kanon.register("data.people", ["age", "sex"], "sick", ["name"], json.dumps(attributes))
    found = (
        "SELECT schema_name, relation_name, quasi_identifiers, sensitive, identifiers, attributes,"
        " registered_by::regrole::text FROM kanon.source"
    )
    by = parties.publisher.info.user
    assert fetch(parties.publisher, found) == [
        ("data", "people", ["age", "sex"], "sick", ["name"], attributes, by)
    ]
    # Registered again, the description is another, the source is the same.
    assert kanon.register("data.people", ["sex"], "age") == first
    assert fetch(parties.publisher, found) == [("data", "people", ["sex"], "age", [], {}, by)]


@pytest.mark.parametrize(
    ("insensitive", "entity", "sqlstate"),
    [
        (["stay", "born"], "name", None),
        ([], None, None),
        (["age"], None, INVALID),
        (["sick"], None, INVALID),
        (["income"], None, INVALID),
        (["stay", "stay"], None, INVALID),
        (["weight"], None, UNKNOWN),
        ([], "weight", UNKNOWN),
        ([], "", UNKNOWN),
        ([], "age", INVALID),
        ([], "sick", INVALID),
        ([], "income", INVALID),
        (["name"], "name", INVALID),
    ],
)
def test_roles_of_other_columns(
    kanon: Functions | Package,
    parties: Parties,
    insensitive: list[str],
    entity: str | None,
    sqlstate: str | None,
) -> None:
    """A column has one role or none; the roles are kept in the database."""
    register = lambda: kanon.register(
        "data.people", ["age", "sex"], "sick", ["income"], insensitive=insensitive, entity=entity
    )
    assert sqlstate_of(register) == sqlstate
    if sqlstate is None:
        kept = fetch(parties.publisher, "SELECT insensitive, entity FROM kanon.source")
        assert kept == [(insensitive, entity)]


def test_columns_of_every_role_must_be_readable(parties: Parties) -> None:
    """Publishing reads insensitive columns and entities, too."""
    fetch(parties.admin, "CREATE TABLE public.partly (age int, sick text, note text, who int)")
    role = quoted(parties.publisher.info.user)
    fetch(parties.admin, f"GRANT SELECT (age, sick) ON public.partly TO {role}")
    kanon = Functions(parties.publisher)
    kanon.register("public.partly", ["age"], "sick")
    for given in ({"insensitive": ["note"]}, {"entity": "who"}):
        register = lambda: kanon.register("public.partly", ["age"], "sick", **given)
        assert sqlstate_of(register) == "42501"
    fetch(parties.admin, "DELETE FROM kanon.source")


WARNED = (
    "CREATE TABLE data.warned AS SELECT i % 50 AS age, i AS weight, i % 2 AS ward,"
    " 'n' AS nick_name, 'secret ' || i AS code, i % 5 AS sick, 'x' AS rest, i * 1.5 AS income"
    " FROM generate_series(1, 1000) AS i"
)


def warnings_of(parties: Parties, way: str, **given: object) -> list[str]:
    """What registering says: as the server's warnings and notices, and as the package's."""
    heard: list[str] = []
    if way == "sql":
        listen = lambda notice: heard.append(f"{notice.severity}: {notice.message_primary}")
        parties.publisher.add_notice_handler(listen)
        Functions(parties.publisher).register("data.warned", **given)
        parties.publisher.remove_notice_handler(listen)
        said = [text.split(": ", 1) for text in heard]
        # That a column has no role is no mistake.
        assert all(
            severity == ("NOTICE" if text.startswith("columns without a role") else "WARNING")
            for severity, text in said
        )
        return [text for _, text in said]
    kanon = Package(parties.publisher)
    kanon.kanon = Kanon(PsycopgSession(parties.publisher, None, heard.append, heard.append))
    kanon.register("data.warned", **given)
    return heard


@pytest.mark.parametrize("way", WAYS)
def test_roles_that_are_probably_mistakes_are_warned_of(parties: Parties, way: str) -> None:
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.warned")
    fetch(parties.publisher, WARNED)
    warned = warnings_of(
        parties, way, quasi_identifiers=["age", "weight"], sensitive="sick",
        insensitive=["ward", "nick_name", "code"], identifiers=["income"],
    )  # fmt: skip
    role, unique, named, near = warned
    assert role.startswith('columns without a role are not published: "rest";')
    assert unique.startswith('quasi-identifier "weight" is nearly unique (100% of its values')
    assert "publish generalized rows" in unique
    assert named.startswith('insensitive column "nick_name" has a name like a column that ident')
    assert near.startswith('insensitive column "code" is nearly unique (100% of its values')
    assert "secret" not in str(warned)
    # Without a sensitive attribute there are no buckets; identifiers and entities may be unique.
    columns = ["income", "rest", "nick_name", "code"]
    rest = {"identifiers": columns, "insensitive": ["ward", "sick"], "entity": "weight"}
    assert warnings_of(parties, way, quasi_identifiers=["age"], sensitive=None, **rest) == []
    fetch(parties.publisher, "DROP TABLE data.warned")
    fetch(parties.admin, "DELETE FROM kanon.source")


@pytest.mark.parametrize(("unique", "is_warned"), [(99, False), (100, True)])
def test_a_tenth_of_unique_values_is_nearly_unique(
    parties: Parties, unique: int, is_warned: bool
) -> None:
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.warned")
    fetch(
        parties.publisher,
        f"CREATE TABLE data.warned AS SELECT CASE WHEN i <= {unique} THEN i ELSE 0 END AS part,"
        " i % 2 AS sick FROM generate_series(1, 1000) AS i",
    )
    warned = warnings_of(parties, "sql", quasi_identifiers=["part"], sensitive="sick")
    assert len(warned) == is_warned
    fetch(parties.admin, "DELETE FROM kanon.source")


def test_looking_for_unique_values_can_be_canceled(parties: Parties) -> None:
    """It ends with the statement, and is not taken for a column that cannot be read."""
    slow = "SELECT i AS age, pg_sleep(0.1)::text AS note FROM generate_series(1, 10000) AS i"
    fetch(parties.publisher, f"CREATE OR REPLACE VIEW data.slow AS {slow}")
    for way in WAYS.values():
        fetch(parties.publisher, "SET statement_timeout = '1s'")
        register = lambda: way(parties.publisher).register(
            "data.slow", ["age"], None, insensitive=["note"]
        )
        assert sqlstate_of(register) == "57014"
        fetch(parties.publisher, "RESET statement_timeout")
    assert fetch(parties.publisher, "SELECT FROM kanon.source") == []


def test_kept_while_published(kanon: Functions | Package, parties: Parties) -> None:
    with parties.publisher.transaction(force_rollback=True):
        fetch(parties.publisher, "INSERT INTO data.people (age, sick) VALUES (1, 'a'), (2, 'b')")
        kanon.register("data.people", ["age"], "sick")
        kanon.publish("data.people", "people", privacy='{"l": 2}')

        def again() -> None:
            with parties.publisher.transaction():
                kanon.register("data.people", ["sex"], "sick")

        assert sqlstate_of(again) == IN_USE
        assert value(parties.publisher, "SELECT quasi_identifiers FROM kanon.source") == ["age"]
        kanon.drop("people")
        again()
        assert value(parties.publisher, "SELECT quasi_identifiers FROM kanon.source") == ["sex"]


def test_not_registered(kanon: Functions | Package) -> None:
    assert sqlstate_of(lambda: kanon.publish("data.people", "p", privacy='{"l": 2}')) == UNKNOWN


def test_no_sensitive_attribute(kanon: Functions | Package) -> None:
    kanon.register("data.people", ["age"], None)
    assert sqlstate_of(lambda: kanon.publish("data.people", "p", privacy='{"l": 2}')) == INVALID


def test_source_changes_its_shape(kanon: Functions | Package, parties: Parties) -> None:
    """Columns that went, or changed their type, after registering."""
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.shape")
    fetch(parties.publisher, "CREATE TABLE data.shape (age int, sick text)")
    fetch(parties.publisher, "INSERT INTO data.shape VALUES (1, '1'), (2, '2')")
    kanon.register("data.shape", ["age"], "sick")
    fetch(parties.publisher, "ALTER TABLE data.shape ALTER sick TYPE json USING to_json(sick)")
    assert sqlstate_of(lambda: kanon.publish("data.shape", "p", privacy='{"l": 2}')) == MISMATCH
    fetch(parties.publisher, "ALTER TABLE data.shape RENAME sick TO ill")
    assert sqlstate_of(lambda: kanon.publish("data.shape", "p", privacy='{"l": 2}')) == MISMATCH
    fetch(parties.publisher, "DROP TABLE data.shape")
    gone = sqlstate_of(lambda: kanon.publish("data.shape", "p", privacy='{"l": 2}'))
    assert gone in (UNKNOWN, "42P01")  # in SQL, the cast to regclass already fails
