"""Attacks of one publisher on another, and through the catalog that publishers may write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.integration.parties import (
    WAYS,
    Connection,
    Functions,
    Parties,
    create_table,
    fetch,
    sqlstate_of,
    value,
)

PRIVACY = '{"l": 3}'


@pytest.fixture(scope="module")
def published(parties: Parties) -> Parties:
    rows = [(i % 30, f"disease {i % 5}") for i in range(300)]
    create_table(parties.publisher, "data.people", "age int, sick text", rows)
    kanon = Functions(parties.publisher)
    kanon.register("data.people", ["age"], "sick")
    kanon.publish("data.people", "people", privacy=PRIVACY)
    return parties


@pytest.fixture(scope="module")
def other(
    published: Parties,
    connect_as: Callable[[str, str], Connection],
    new_role: Callable[..., str],
) -> Iterator[Connection]:
    """Another publisher, who may not read the source."""
    with connect_as(published.dsn, new_role("kanon_publisher")) as connection:
        fetch(connection, "SET search_path = public")
        yield connection


def refused(call: Callable[[], object]) -> None:
    assert sqlstate_of(call) == "42501"


@pytest.mark.parametrize("way", WAYS)
def test_no_right_on_the_source(published: Parties, other: Connection, way: str) -> None:
    kanon = WAYS[way](other)
    refused(lambda: kanon.publish("data.people", "stolen", privacy=PRIVACY))
    refused(lambda: kanon.register("data.people", ["age"], "sick"))
    # Rights on some columns are not enough for the others.
    fetch(published.publisher, f"GRANT USAGE ON SCHEMA data TO {other.info.user}")
    fetch(published.publisher, f"GRANT SELECT (age) ON data.people TO {other.info.user}")
    refused(lambda: kanon.publish("data.people", "stolen", privacy=PRIVACY))
    refused(lambda: kanon.register("data.people", ["age"], "sick"))
    fetch(published.publisher, f"REVOKE SELECT (age) ON data.people FROM {other.info.user}")
    fetch(published.publisher, f"REVOKE USAGE ON SCHEMA data FROM {other.info.user}")
    assert Functions(published.publisher).publications() == ["people"]


@pytest.mark.parametrize("way", WAYS)
def test_rights_on_the_columns_suffice(published: Parties, other: Connection, way: str) -> None:
    """What is not published need not be readable."""
    fetch(published.publisher, f"GRANT USAGE ON SCHEMA data TO {other.info.user}")
    create_table(
        published.publisher, f"data.columns_{way}", "name text, age int, sick int",
        [(f"name {i}", i % 5, i % 7) for i in range(70)],
    )  # fmt: skip
    fetch(
        published.publisher, f"GRANT SELECT (age, sick) ON data.columns_{way} TO {other.info.user}"
    )
    kanon = WAYS[way](other)
    kanon.register(f"data.columns_{way}", ["age"], "sick", identifiers=["name"])
    kanon.publish(f"data.columns_{way}", f"columns_{way}", privacy=PRIVACY)
    kanon.drop(f"columns_{way}")
    fetch(published.publisher, f"REVOKE USAGE ON SCHEMA data FROM {other.info.user}")


@pytest.mark.parametrize("way", WAYS)
def test_drop_and_replace(published: Parties, other: Connection, way: str) -> None:
    kanon = WAYS[way](other)
    create_table(other, f"pg_temp.mine_{way}", "age int, sick int", [])
    refused(lambda: kanon.drop("people"))
    fetch(published.admin, "CREATE SCHEMA IF NOT EXISTS other")
    fetch(published.admin, f"GRANT ALL ON SCHEMA other TO {other.info.user}")
    create_table(other, f"other.{way}", "age int, sick int", [(i, i % 4) for i in range(40)])
    kanon.register(f"other.{way}", ["age"], "sick")
    refused(lambda: kanon.publish(f"other.{way}", "people", privacy=PRIVACY, replace=True))
    owner = Functions(published.publisher)
    assert all(holds for *_, holds in owner.verify("people"))
    assert owner.publications() == ["people"]


@pytest.mark.parametrize("way", WAYS)
def test_registered_by_another(published: Parties, other: Connection, way: str) -> None:
    """A description stays its author's, even where another may read the source."""
    create_table(published.publisher, f"data.both_{way}", "age int, sick int", [])
    fetch(published.publisher, f"GRANT USAGE ON SCHEMA data TO {other.info.user}")
    fetch(published.publisher, f"GRANT SELECT ON data.both_{way} TO {other.info.user}")
    WAYS[way](published.publisher).register(f"data.both_{way}", ["age"], "sick")
    refused(lambda: WAYS[way](other).register(f"data.both_{way}", ["sick"], "age"))
    assert value(
        published.admin,
        "SELECT sensitive FROM kanon.source WHERE relation_name = $1::text",
        f"both_{way}",
    ) == "sick"  # fmt: skip


def test_entries_of_others(published: Parties, other: Connection) -> None:
    """The catalog refuses to change another's entries, and to write in another's name."""
    for table, owner in (("publication", "published_by"), ("source", "registered_by")):
        for statement in (
            f"DELETE FROM kanon.{table} WHERE {owner} <> current_user RETURNING 1",
            f"UPDATE kanon.{table} SET {owner} = {owner} WHERE {owner} <> current_user RETURNING 1",
        ):
            assert fetch(other, statement) == []
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        fetch(
            other,
            "INSERT INTO kanon.publication (name, kind, method, source_schema, source_relation,"
            " parameters, layout, records, guarantee, metrics, relations, published_by) SELECT"
            " 'forged', kind, method, source_schema, source_relation, parameters, layout, records,"
            " guarantee, metrics, relations, published_by FROM kanon.publication",
        )


LAYOUT = {
    "quasi_identifiers": ["age"],
    "sensitive": "sick",
    "bucket_id": "bucket_id",
    "count": "count",
    "attribute": "attribute",
    "bits": "bits",
    "with_bitmaps": ["age", "sick"],
    "weight": "weight",
    "n_buckets": 1,
    "sizes": [300],
    "first_bucket_ids": [1],
}
SPY, SPIED = "(SELECT public.spy())", "XX123"


@pytest.fixture
def planted(other: Connection, published: Parties) -> Iterator[Callable[..., None]]:
    """Make an entry of the other publisher's invention, over relations of theirs."""
    fetch(
        published.admin,
        "CREATE OR REPLACE FUNCTION public.spy() RETURNS int LANGUAGE plpgsql"
        f" AS $$BEGIN RAISE EXCEPTION 'spied' USING ERRCODE = '{SPIED}'; END$$",
    )
    fetch(other, "CREATE TABLE published.planted_qit (age int, bucket_id int)")
    fetch(other, "CREATE TABLE published.planted_sat (bucket_id int, sick text, count int)")
    fetch(
        other, "CREATE TABLE published.planted_bit (attribute text, age int, sick text, bits bytea)"
    )
    fetch(other, "CREATE VIEW published.planted AS SELECT 1 AS age FROM published.planted_qit")

    def plant(layout: dict[str, object], parameters: dict[str, object]) -> None:
        fetch(
            other,
            "INSERT INTO kanon.publication (name, kind, method, source_schema, source_relation,"
            " parameters, layout, records, guarantee, metrics, relations) VALUES"
            " ('planted', 'buckets', 'two_size', 'data', 'people', $1::text::jsonb,"
            " $2::text::jsonb, 300, '', '{}', '{planted,planted_qit,planted_sat,planted_bit}')",
            json.dumps({"privacy": {"l": 2}, "max_bucket_size": 50, **parameters}),
            json.dumps({**LAYOUT, **layout}),
        )

    yield plant
    fetch(other, "DELETE FROM kanon.publication WHERE name = 'planted'")
    fetch(other, "DROP VIEW published.planted")
    fetch(other, "DROP TABLE published.planted_qit, published.planted_sat, published.planted_bit")


LAYOUTS: dict[str, dict[str, object]] = {
    "sizes": {"sizes": [SPY]},
    "several sizes": {"sizes": [3, SPY], "first_bucket_ids": [1, 2]},
    "first numbers": {"sizes": [3, 4], "first_bucket_ids": [1, SPY]},
    "number of buckets": {"n_buckets": SPY},
    "attributes with bitmaps": {"with_bitmaps": [SPY]},
    "column": {"bucket_id": SPY, "count": SPY, "sensitive": SPY},
    "columns": {"quasi_identifiers": [SPY]},
    "bitmaps": {"attribute": SPY, "bits": SPY},
}
PARAMETERS: dict[str, dict[str, object]] = {
    "l": {"l": SPY},
    "largest size": {"max_bucket_size": SPY},
    "theta": {"privacy": {"theta": SPY}},
    "values": {"privacy": {"l": 2, "values": {SPY: "1/2"}}},
}


@pytest.mark.parametrize("place", [*LAYOUTS, *PARAMETERS])
def test_planted_entry(planted: Callable[..., None], published: Parties, place: str) -> None:
    """SQL in an entry is never run, not even for an administrator who verifies it."""
    planted(LAYOUTS.get(place, {}), PARAMETERS.get(place, {}))
    kanon = Functions(published.admin)
    for call in (
        lambda: kanon.verify("planted"),
        lambda: kanon.metrics("planted"),
        lambda: kanon.estimate("SELECT COUNT(*) FROM planted WHERE age = 3"),
        lambda: kanon.estimate("SELECT COUNT(*) FROM planted WHERE age = 3 AND sick = 'a'"),
        lambda: fetch(
            published.admin,
            kanon.rewrite("SELECT COUNT(*) FROM planted WHERE age = 3 AND sick = 'a'"),
        ),
    ):
        assert sqlstate_of(call) != SPIED


def test_planted_view(planted: Callable[..., None], published: Parties, other: Connection) -> None:
    """A view that calls a function in place of what was published is not read by verify."""
    planted({}, {})
    fetch(other, "CREATE OR REPLACE VIEW published.planted AS SELECT public.spy() AS age")
    fetch(other, "ALTER TABLE published.planted_qit RENAME TO planted_away")
    fetch(other, "CREATE VIEW published.planted_qit AS SELECT public.spy() AS age, 1 AS bucket_id")
    kanon = Functions(published.admin)
    assert [holds for *_, holds in kanon.verify("planted")] == [False]
    assert sqlstate_of(lambda: kanon.metrics("planted")) == "KN003"
    fetch(other, "DROP VIEW published.planted_qit")
    fetch(other, "ALTER TABLE published.planted_away RENAME TO planted_qit")


def test_relation_in_the_way(published: Parties, other: Connection) -> None:
    """A relation made by hand under a publication's name is neither replaced nor adopted."""
    kanon = Functions(published.publisher)
    for suffix in ("", "_qit", "_sat", "_bit"):
        fetch(other, f"CREATE TABLE published.taken{suffix} (mine int)")
        for replace in (False, True):
            with pytest.raises(psycopg.errors.DuplicateObject):
                kanon.publish("data.people", "taken", privacy=PRIVACY, replace=replace)
        assert fetch(other, f"SELECT mine FROM published.taken{suffix}") == []
        fetch(other, f"DROP TABLE published.taken{suffix}")
