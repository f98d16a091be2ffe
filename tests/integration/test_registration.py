"""Describing microdata: what a description must be, and when it may be replaced."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.integration.parties import (
    WAYS,
    Functions,
    Package,
    Parties,
    fetch,
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


@pytest.fixture(params=WAYS)
def kanon(request: pytest.FixtureRequest, parties: Parties) -> Iterator[Functions | Package]:
    yield WAYS[request.param](parties.publisher)
    fetch(parties.publisher, "DELETE FROM kanon.source")


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
        " registered_by::text FROM kanon.source"
    )
    by = parties.publisher.info.user
    assert fetch(parties.publisher, found) == [
        ("data", "people", ["age", "sex"], "sick", ["name"], attributes, by)
    ]
    # Registered again, the description is another, the source is the same.
    assert kanon.register("data.people", ["sex"], "age") == first
    assert fetch(parties.publisher, found) == [("data", "people", ["sex"], "age", [], {}, by)]


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
