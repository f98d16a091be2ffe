"""Attacks on which rows there are: parts that come and go between describing and publishing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.parties import (
    Functions,
    Parties,
    columns_of,
    create_source,
    create_table,
    fetch,
    holds,
    remains,
    sqlstate_of,
    value,
)
from tests.profiles import long_but

ROWS = [(i % 20, "mf"[i % 2], f"disease {i % 5}") for i in range(100)]
COLUMNS = "age int, sex text, sick text"

PARTITIONED = [
    "CREATE TABLE data.source (age int, sex text, sick text) PARTITION BY LIST (sex)",
    "CREATE TABLE data.source_m PARTITION OF data.source FOR VALUES IN ('m')",
    "INSERT INTO data.source SELECT * FROM data.people WHERE sex = 'm'",
    "CREATE TABLE data.source_f AS SELECT * FROM data.people WHERE sex = 'f'",
]
INHERITED = [
    "CREATE TABLE data.source AS SELECT * FROM data.people WHERE sex = 'm'",
    "CREATE TABLE data.source_f AS SELECT * FROM data.people WHERE sex = 'f'",
]
CHANGES = {
    "a partition is attached": (
        PARTITIONED,
        "ALTER TABLE data.source ATTACH PARTITION data.source_f FOR VALUES IN ('f')",
    ),
    "a partition is detached": (
        [*PARTITIONED, "ALTER TABLE data.source ATTACH PARTITION data.source_f DEFAULT"],
        "ALTER TABLE data.source DETACH PARTITION data.source_f",
    ),
    "a partition has row security": (
        [*PARTITIONED, "ALTER TABLE data.source ATTACH PARTITION data.source_f DEFAULT"],
        "ALTER TABLE data.source_f ENABLE ROW LEVEL SECURITY",
    ),
    "a partition has row security for its owner": (
        [
            *PARTITIONED,
            "ALTER TABLE data.source ATTACH PARTITION data.source_f DEFAULT",
            "ALTER TABLE data.source_f ENABLE ROW LEVEL SECURITY",
        ],
        "ALTER TABLE data.source_f FORCE ROW LEVEL SECURITY",
    ),
    "a table inherits": (INHERITED, "ALTER TABLE data.source_f INHERIT data.source"),
    "a table with a column more inherits": (
        [*INHERITED, "ALTER TABLE data.source_f ADD name text DEFAULT 'somebody'"],
        "ALTER TABLE data.source_f INHERIT data.source",
    ),
    "a table inherits no more": (
        [*INHERITED, "ALTER TABLE data.source_f INHERIT data.source"],
        "ALTER TABLE data.source_f NO INHERIT data.source",
    ),
}


@pytest.fixture(params=long_but([*CHANGES][::3], CHANGES))
def change(request: pytest.FixtureRequest, parties: Parties) -> Iterator[str]:
    """A described source that is in parts; what is changed then."""
    fetch(parties.publisher, "DROP SCHEMA data CASCADE")
    fetch(parties.publisher, "CREATE SCHEMA data")
    create_table(parties.publisher, "data.people", COLUMNS, ROWS)
    statements, change = CHANGES[request.param]
    for statement in statements:
        fetch(parties.publisher, statement)
    kanon = Functions(parties.publisher)
    kanon.register("data.source", ["age", "sex"], "sick")
    yield change
    for name in kanon.publications():
        kanon.drop(name)
    assert remains(parties.admin) == []


@pytest.mark.long
@pytest.mark.pitfall(16)
@pytest.mark.parametrize("kind", ["buckets", "suppressed"])
def test_parts_that_come_and_go(parties: Parties, change: str, kind: str) -> None:
    """What is published is what the source has then: no part is forgotten, none is kept."""
    kanon = Functions(parties.publisher)
    given = {"privacy": '{"l": 2}'} if kind == "buckets" else {"k": 2}
    publish = lambda: kanon.call(f"publish_{kind}", "data.source", "p", replace=True, **given)
    shown = "p_qit" if kind == "buckets" else "p"
    publish()
    fetch(parties.publisher, change)
    published = publish()
    n = value(parties.publisher, "SELECT count(*) FROM data.source")
    assert n in (50, 100)
    assert published["records"] == n
    assert value(parties.publisher, f"SELECT count(*) FROM published.{shown}") == n
    assert "name" not in columns_of(parties.publisher, f"published.{shown}")
    assert holds(kanon.connection, "p")


@pytest.mark.pitfall(16)
def test_row_security_that_comes_later(parties: Parties) -> None:
    """A policy that hides rows from the publisher makes a replacement fail; the old one stays."""
    kanon = create_source(parties.publisher, "data.later", COLUMNS, ROWS, ["age"], "sick")
    kanon.publish("data.later", "later", privacy='{"l": 2}')
    fetch(parties.publisher, "ALTER TABLE data.later ENABLE ROW LEVEL SECURITY")
    fetch(parties.publisher, "ALTER TABLE data.later FORCE ROW LEVEL SECURITY")
    fetch(parties.publisher, "CREATE POLICY few ON data.later USING (sick <> 'disease 1')")
    before = remains(parties.admin)
    again = lambda: kanon.publish("data.later", "later", privacy='{"l": 2}', replace=True)
    assert sqlstate_of(again) == "42501"
    assert remains(parties.admin) == before
    assert value(parties.publisher, "SELECT count(*) FROM published.later_qit") == len(ROWS)
    assert sqlstate_of(lambda: kanon.attack("later")) == "42501"
    assert sqlstate_of(lambda: kanon.evaluate("later")) == "42501"
    kanon.drop("later")
