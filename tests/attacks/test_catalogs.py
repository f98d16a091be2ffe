"""Attacks by reading the server's catalogs: what changes there when one person comes, or changes.

Every relation of the server's that an analyst may read is read before and after, whole.
"""

from __future__ import annotations

import re

import psycopg
import pytest

from tests.integration.parties import Functions, Parties, create_table, fetch, value

CANARY = "canary of the source"
PEOPLE = [(i, f"{CANARY} {i % 5}") for i in range(100)]

ACTIVITY = re.compile(r"pg_(stat|statio)_|pg_locks$|pg_cursors$|pg_backend_memory_contexts$")
"""What counts what sessions do: it changes all the time, and tells how much, not what."""

TOLD = {"relpages", "reltuples", "relallvisible", "relallfrozen", "relfrozenxid", "relminmxid"}
"""What the server tells everybody about a table: how large it is, and how recently vacuumed."""

CHANGES = [
    f"INSERT INTO data.people VALUES (999, '{CANARY} of a rare kind'), (999, '{CANARY} too')",
    f"UPDATE data.people SET sick = '{CANARY} of another' WHERE age = 7",
    "DELETE FROM data.people WHERE age = 8",
]


@pytest.fixture(scope="module")
def published(parties: Parties) -> Parties:
    create_table(parties.publisher, "data.people", "age int, sick text", PEOPLE)
    fetch(parties.publisher, "ALTER TABLE data.people SET (fillfactor = 50)")
    fetch(parties.publisher, "CREATE INDEX ON data.people (sick)")
    fetch(parties.publisher, "CREATE STATISTICS data.both ON age, sick FROM data.people")
    fetch(parties.publisher, "VACUUM ANALYZE data.people")
    kanon = Functions(parties.publisher)
    kanon.register("data.people", ["age"], "sick")
    kanon.publish("data.people", "people", privacy='{"l": 2}', readers=[])
    return parties


def everything(parties: Parties) -> dict[str, list[str]]:
    """All rows of all relations of the server's that the analyst may read."""
    relations = fetch(
        parties.analyst,
        "SELECT oid::regclass::text FROM pg_class WHERE relkind IN ('r', 'v')"
        " AND relnamespace IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)"
        " AND has_table_privilege(oid, 'SELECT') AND relname !~ 'timezone'",
    )
    read = {}
    for (relation,) in relations:
        try:
            rows = fetch(parties.analyst, f"SELECT t::text FROM {relation} AS t")
        except psycopg.errors.InsufficientPrivilege:
            continue
        read[relation] = sorted(str(row) for (row,) in rows)
    return read


def classes(parties: Parties) -> dict[str, dict[str, object]]:
    rows = fetch(parties.analyst, "SELECT oid::text, to_jsonb(c) FROM pg_class AS c")
    return dict(rows)


@pytest.mark.pitfall(9)
def test_people_who_come_change_and_go(published: Parties) -> None:
    """Nothing but the size of the source differs, for someone who may not read it."""
    before, known = everything(published), classes(published)
    for statement in (*CHANGES, "VACUUM ANALYZE data.people"):
        fetch(published.publisher, statement)
    after = everything(published)
    assert len(before) > 150
    assert before.keys() == after.keys()
    differing = {name for name in before if before[name] != after[name]}
    assert {name for name in differing if not ACTIVITY.match(name)} == {"pg_class"}
    assert CANARY not in str(after)
    source = {
        oid
        for (oid,) in fetch(
            published.publisher,
            "SELECT unnest(ARRAY[c.oid, c.reltoastrelid, 'data.people_sick_idx'::regclass])::text"
            " FROM pg_class AS c WHERE c.oid = 'data.people'::regclass",
        )
    }
    for oid, row in classes(published).items():
        told = {name for name in row if row[name] != known[oid][name]}
        assert told <= (TOLD if oid in source else set()), row["relname"]
    # docs/understand/privacy.md says so: PostgreSQL tells everybody how many rows a table has.
    rows = "SELECT reltuples::int FROM pg_class WHERE relname = 'people' AND relkind = 'r'"
    assert value(published.analyst, rows) == len(PEOPLE) + 1
