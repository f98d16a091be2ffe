"""Describing microdata: what a description must be, and when it may be replaced."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

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
)

INVALID, UNKNOWN, MISMATCH = "22023", "42704", "42804"


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    fetch(
        parties.publisher,
        "CREATE TABLE data.people (name text, age int, sex text, born date, stay interval,"
        " income numeric, sick text, notes json)",
    )


@pytest.fixture
def kanon(parties: Parties) -> Iterator[Functions]:
    yield Functions(parties.publisher)
    fetch(parties.admin, "DELETE FROM kanon.source")


ROLES: list[tuple[str | None, list[str], str | None, dict[str, object]]] = [
    (None, ["age", "sex"], "sick", {"identifiers": ["name"]}),
    (None, ["age"], None, {}),
    (None, ["age"], "sick", {"insensitive": ["stay", "born"], "entity": "name"}),
    (INVALID, ["age", "sex"], "sex", {}),
    (INVALID, ["age"], "sick", {"identifiers": ["age"]}),
    (INVALID, ["age", "age"], "sick", {}),
    (INVALID, ["age"], "sick", {"identifiers": ["name", "name"]}),
    (INVALID, [], "sick", {"identifiers": ["name"]}),
    (INVALID, ["age"], "sick", {"insensitive": ["age"]}),
    (INVALID, ["age"], "sick", {"insensitive": ["sick"]}),
    (INVALID, ["age"], "sick", {"insensitive": ["name"], "entity": "name"}),
    (INVALID, ["age"], "sick", {"entity": "age"}),
    (INVALID, ["age"], "sick", {"identifiers": ["income"], "entity": "income"}),
    (UNKNOWN, ["weight"], "sick", {}),
    (UNKNOWN, ["age"], "weight", {}),
    (UNKNOWN, ["age"], "sick", {"identifiers": ["weight"]}),
    (UNKNOWN, ["age"], "sick", {"insensitive": ["weight"]}),
    (UNKNOWN, ["age"], "sick", {"entity": ""}),
    (UNKNOWN, ["AGE"], "sick", {}),
    (UNKNOWN, ["tableoid"], "sick", {}),
    (MISMATCH, ["age"], "sick", {"entity": "notes"}),
    (None, ["age"], "sick", {"also_sensitive": ["income", "born"]}),
    (INVALID, ["age"], "sick", {"also_sensitive": ["sick"]}),
    (INVALID, ["age"], "sick", {"also_sensitive": ["age"]}),
    (INVALID, ["age"], "sick", {"also_sensitive": ["income", "income"]}),
    (INVALID, ["age"], "sick", {"also_sensitive": ["income"], "insensitive": ["income"]}),
    (INVALID, ["age"], None, {"also_sensitive": ["income"]}),
    (UNKNOWN, ["age"], "sick", {"also_sensitive": ["weight"]}),
]
"""What is given, and the SQLSTATE of its refusal."""


def test_roles(kanon: Functions, parties: Parties) -> None:
    """A column has one role or none; the roles are kept in the database."""
    for sqlstate, quasi_identifiers, sensitive, given in ROLES:
        call = partial(kanon.register, "data.people", quasi_identifiers, sensitive, **given)
        assert sqlstate_of(call) == sqlstate, (quasi_identifiers, sensitive, given)
        if sqlstate is None:
            kept = fetch(
                parties.publisher, "SELECT insensitive, entity, also_sensitive FROM kanon.source"
            )
            lists = [given.get(name, []) for name in ("insensitive", "also_sensitive")]
            assert kept == [(lists[0], given.get("entity"), lists[1])]


ATTRIBUTES: dict[str | None, list[object]] = {
    None: [
        {},
        {"age": {}},
        {"age": {"kind": "numeric", "lower": 0, "upper": 120, "weight": 0.4}},
        {"born": {"kind": "numeric", "lower": "1900-01-01"}, "stay": {"kind": "numeric"}},
        {"sex": {"kind": "categorical", "weight": 2}, "age": {"kind": "categorical"}},
        {"age": {"lower": 1, "upper": 1}},
        {"stay": {"lower": "23 hours", "upper": "1 day"}},
        {"age": {"round": 5, "top": 90, "bottom": 20, "weight": 2, "upper": 120}},
        {"born": {"round": "month", "top": "2000-01-01"}},
        {"stay": {"round": 86400, "top": "1 month"}},
    ],
    MISMATCH: [
        {"sex": {"kind": "numeric"}},
        {"sex": {"lower": 1}},
        {"sex": {"round": 5}},
        {"sex": {"top": "m"}},
    ],
    INVALID: [
        *(
            {"age": described}
            for described in (
                {"kind": "ordinal"}, {"kind": None}, {"kind": ["numeric"]}, {"wieght": 1},
                {"lower": 2, "upper": 1}, {"lower": "a"}, {"lower": 3e10}, {"lower": [1]},
                {"upper": True}, {"weight": 0}, {"weight": "1"}, {"weight": None}, {"round": 0},
                {"round": 2.5}, {"round": 1e16}, {"round": "month"}, {"round": True},
                {"round": None}, {"top": 20, "bottom": 90}, {"top": "old"}, {"top": None},
                {"kind": "categorical", "round": 5}, 1, None, [],
            )
        ),
        {"born": {"lower": "1900-02-30"}},
        {"born": {"lower": "2000-01-01", "upper": "1999-12-31"}},
        {"stay": {"lower": "25 hours", "upper": "1 day"}},
        {"stay": {"round": "hour"}},
        {"born": {"round": 5}},
        {"born": {"round": "hour"}},
        {"born": {"top": "infinity"}},
        {"sick": {"weight": 1}},
        {"nobody": {"weight": 1}},
        [],
        "age",
    ],
}  # fmt: skip


def test_attributes(kanon: Functions) -> None:
    for sqlstate, all_given in ATTRIBUTES.items():
        for given in all_given:
            call = lambda: kanon.register(
                "data.people", ["age", "sex", "born", "stay"], "sick", attributes=json.dumps(given)
            )
            assert sqlstate_of(call) == sqlstate, given


NULLS = (
    "register_source(NULL, '{age}')",
    "register_source('data.people', NULL, 'sick')",
    "register_source('data.people', '{age,NULL}', 'sick')",
    "register_source('data.people', '{age}', 'sick', '{NULL}')",
    *(f"{name}(NULL)" for name in ("verify", "metrics", "drop_publication", "estimate_count",
                                   "rewrite_count")),
    "publish_buckets('data.people', 'people')",
    *(f"publish_buckets('data.people', 'people', privacy => '{{\"l\": 2}}', {given})"
      for given in ("max_bucket_size => NULL", "method => NULL", "assignment => NULL",
                    "readers => '{NULL}'")),
)  # fmt: skip


def test_null_arguments(parties: Parties) -> None:
    """SQL's NULL in place of an argument is refused like any other mistake."""
    for call in NULLS:
        asked = lambda: fetch(parties.publisher, f"SELECT kanon.{call}")
        assert sqlstate_of(asked) == INVALID, call


def test_sources_that_are_none(parties: Parties) -> None:
    kanon = Package(parties.publisher)
    for source, sqlstate in {
        "data.nowhere": UNKNOWN, "nowhere.people": UNKNOWN, "people": UNKNOWN, "": "42602",
        "data.people, data.people": "42602", "data.people; SELECT 1": "42602",
        "(SELECT * FROM data.people)": "42602", "a.b.c.d": "42601",
    }.items():  # fmt: skip
        assert sqlstate_of(lambda: kanon.register(source, ["age"], "sick")) == sqlstate
    for statement in (
        "CREATE SEQUENCE data.odd",
        "CREATE INDEX odd ON data.people (age)",
        "CREATE TYPE data.odd AS (age int, sick text)",
        "CREATE TEMPORARY TABLE odd (age int, sick text)",
    ):
        with parties.publisher.transaction(force_rollback=True):
            fetch(parties.publisher, statement)
            name = "pg_temp.odd" if "TEMPORARY" in statement else "data.odd"
            assert sqlstate_of(lambda: kanon.register(name, ["age"], "sick")) in (INVALID, UNKNOWN)


def test_the_description_is_kept(kanon: Functions, parties: Parties) -> None:
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


def warnings_of(parties: Parties, way: str, **given: Any) -> list[str]:
    """What registering says: as the server's warnings and notices, and as the package's."""
    heard: list[str] = []
    if way == "sql":
        listen = lambda said: heard.append(f"{said.severity_nonlocalized}: {said.message_primary}")
        parties.publisher.add_notice_handler(listen)
        Functions(parties.publisher).register("data.warned", **given)
        parties.publisher.remove_notice_handler(listen)
        return heard
    warn, note = (lambda text, of=of: heard.append(f"{of}: {text}") for of in ("WARNING", "NOTICE"))
    kanon = Package(parties.publisher)
    kanon.kanon = Kanon(PsycopgSession(parties.publisher, on_warning=warn, on_notice=note))
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
    unique = " is nearly unique (100% of its values"
    for said, begins in zip(
        warned,
        (
            'NOTICE: columns without a role are not published: "rest";',
            f'WARNING: quasi-identifier "weight"{unique}',
            'WARNING: insensitive column "nick_name" has a name like a column that identifies',
            f'WARNING: insensitive column "code"{unique}',
        ),
        strict=True,
    ):
        assert said.startswith(begins)
    assert "publish generalized rows" in warned[1]
    assert "secret" not in str(warned)
    # Without a sensitive attribute there are no buckets; identifiers and entities may be unique.
    columns = ["income", "rest", "nick_name", "code"]
    rest = {"identifiers": columns, "insensitive": ["ward", "sick"], "entity": "weight"}
    assert warnings_of(parties, way, quasi_identifiers=["age"], sensitive=None, **rest) == []
    fetch(parties.publisher, "DROP TABLE data.warned")
    fetch(parties.admin, "DELETE FROM kanon.source")


def test_a_tenth_of_unique_values_is_nearly_unique(parties: Parties) -> None:
    for unique, is_warned in ((99, False), (100, True)):
        fetch(parties.publisher, "DROP TABLE IF EXISTS data.warned")
        part = f"CASE WHEN i <= {unique} THEN i ELSE 0 END AS part"
        made = f"SELECT {part}, i % 2 AS sick FROM generate_series(1, 1000) AS i"
        fetch(parties.publisher, f"CREATE TABLE data.warned AS {made}")
        warned = warnings_of(parties, "sql", quasi_identifiers=["part"], sensitive="sick")
        assert len(warned) == is_warned
        fetch(parties.admin, "DELETE FROM kanon.source")


@pytest.mark.long
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


def test_not_registered(kanon: Functions) -> None:
    publish = lambda: kanon.publish("data.people", "p", privacy='{"l": 2}')
    assert sqlstate_of(publish) == UNKNOWN
    kanon.register("data.people", ["age"], None)
    assert sqlstate_of(publish) == INVALID  # there is no sensitive attribute


def test_source_changes_its_shape(kanon: Functions, parties: Parties) -> None:
    """Columns that went, or changed their type, after registering."""
    fetch(parties.publisher, "CREATE TABLE data.shape AS SELECT 1 AS age, '1' AS sick")
    kanon.register("data.shape", ["age"], "sick")
    for change, sqlstate in {
        "ALTER TABLE data.shape ALTER sick TYPE json USING to_json(sick)": MISMATCH,
        "ALTER TABLE data.shape RENAME sick TO ill": MISMATCH,
        "DROP TABLE data.shape": "42P01",  # the cast to regclass already fails
    }.items():
        fetch(parties.publisher, change)
        publish = lambda: kanon.publish("data.shape", "p", privacy='{"l": 2}')
        assert sqlstate_of(publish) == sqlstate, change
