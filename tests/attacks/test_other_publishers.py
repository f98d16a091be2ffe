"""Attacks of one publisher on another, and through what a publisher can make the catalog say."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from kanon_db.installation.install import install
from kanon_db.publications.relations import StagedRelations
from kanon_db.session.psycopg_session import PsycopgSession
from tests.integration.parties import (
    WAYS,
    Connection,
    Functions,
    Parties,
    create_people,
    create_table,
    fetch,
    sqlstate_of,
    value,
)

PRIVACY = '{"l": 3}'


@pytest.fixture(scope="module")
def published(parties: Parties) -> Parties:
    kanon = create_people(parties.publisher)
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


@pytest.mark.pitfall(26)
@pytest.mark.parametrize("way", WAYS)
def test_drop_and_replace(published: Parties, other: Connection, way: str) -> None:
    """Another's publication is neither dropped nor replaced."""
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


@pytest.mark.pitfall(26)
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


COLUMNS = {
    "_qit": "NULL::int AS age, NULL::int AS bucket_id",
    "_sat": "NULL::int AS bucket_id, NULL::text AS sick, NULL::int AS count",
    "_bit": "''::text AS attribute, NULL::int AS age, NULL::text AS sick, ''::bytea AS bits",
}


@pytest.fixture
def planted(published: Parties) -> Iterator[Callable[..., None]]:
    """Make an entry of the publisher's invention, over relations that they staged."""
    fetch(
        published.admin,
        "CREATE OR REPLACE FUNCTION public.spy() RETURNS int LANGUAGE plpgsql"
        f" AS $$BEGIN RAISE EXCEPTION 'spied' USING ERRCODE = '{SPIED}'; END$$",
    )
    session = PsycopgSession(published.publisher)

    def plant(layout: dict[str, object], parameters: dict[str, object]) -> None:
        source = source_of(published.publisher)
        with session.transaction():
            staging = StagedRelations.begin(session, "published")
            for suffix, columns in COLUMNS.items():
                staging.create_table(suffix, f"SELECT {columns}")
            staging.create_weighted_view(LAYOUT, "_qit", "_sat")
            entry = {
                "kind": "buckets", "method": "two_size", "records": 300, "guarantee": "",
                "metrics": {}, "source_metrics": {}, "layout": {**LAYOUT, **layout}, **source,
                "parameters": {"privacy": {"l": 2}, "max_bucket_size": 50, **parameters},
            }  # fmt: skip
            suffixes = ["", *COLUMNS]
            staging.publish(
                "planted",
                entry,
                suffixes=suffixes,
                closed=[],
                readers=[],
                replace=False,
                notes={},
            )

    yield plant
    Functions(published.publisher).drop("planted")


def source_of(connection: Connection) -> dict[str, object]:
    ((source_id, at),) = fetch(
        connection,
        "SELECT source_id, registered_at::text FROM kanon.source WHERE relation_name = 'people'",
    )
    return {"source_id": source_id, "registered_at": at}


LAYOUTS: dict[str, dict[str, object]] = {
    "sizes": {"sizes": [SPY]},
    "several sizes": {"sizes": [3, SPY], "first_bucket_ids": [1, 2]},
    "first numbers": {"sizes": [3, 4], "first_bucket_ids": [1, SPY]},
    "number of buckets": {"n_buckets": SPY},
    "attributes with bitmaps": {"with_bitmaps": [SPY]},
    "eigenvalues": {"spectrum": {"eigenvalues": [SPY], "expected": [1]}},
    "huge eigenvalues": {"spectrum": {"eigenvalues": [10**400], "expected": [1]}},
    "directions": {"spectrum": {"eigenvalues": [1], "expected": [1]}, "directions": SPY},
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


@pytest.mark.pitfall(6, 26)
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


MALFORMED: dict[str, dict[str, object]] = {
    "a number for names": {"quasi_identifiers": 5},
    "nothing for a name": {"sensitive": None},
    "a list for a name": {"weight": ["x"]},
    "an object for a name": {"bucket_id": {"x": 1}},
}


@pytest.mark.pitfall(26)
@pytest.mark.parametrize("what", MALFORMED)
def test_a_planted_entry_stops_no_installation(
    planted: Callable[..., None], published: Parties, what: str
) -> None:
    """An upgrade makes views of earlier versions anew from what their publishers wrote."""
    planted(MALFORMED[what], {})
    definition = value(published.admin, "SELECT pg_get_viewdef('published.planted'::regclass)")
    unguarded, guard, _ = definition.partition("WHERE kanon.require_visible(")
    assert guard
    fetch(published.admin, f"CREATE OR REPLACE VIEW published.planted AS {unguarded}")
    assert 'publication "planted" is not what' in " ".join(install(published.dsn).actions)
    assert "planted" in Functions(published.admin).publications()


def test_relation_in_the_way(published: Parties) -> None:
    """A relation made by hand under a publication's name is neither replaced nor adopted."""
    kanon = Functions(published.publisher)
    for suffix in ("", "_qit", "_sat", "_bit"):
        fetch(published.admin, f"CREATE TABLE published.taken{suffix} (mine int)")
        for replace in (False, True):
            with pytest.raises(psycopg.errors.DuplicateObject):
                kanon.publish("data.people", "taken", privacy=PRIVACY, replace=replace)
        assert fetch(published.admin, f"SELECT mine FROM published.taken{suffix}") == []
        fetch(published.admin, f"DROP TABLE published.taken{suffix}")
