"""Tables that do not fit into one value of the server are read, written and checked in parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from kanon_db.publications import relations
from kanon_db.publications.buckets import bucket_relations, kind
from kanon_db.session.psycopg_session import PsycopgSession
from kanon_db.transfer import coded_columns, columns
from kanon_db.transfer.allowance import Allowance
from kanon_db.transfer.coded_columns import read_few_values
from kanon_db.transfer.columns import (
    ColumnType,
    column_types,
    find_relation,
    parts_of,
)
from kanon_db.transfer.snapshot import Snapshot, take_snapshot
from kanon_db.transfer.values import distinct_values, read_codes
from tests.integration.parties import Functions, Package, Parties, fetch, value

PRIVACY = '{"l": 3}'
N_ROWS = 3000


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    fetch(
        parties.publisher,
        "CREATE TABLE data.people AS SELECT nullif(i % 40, 7) AS age, chr(97 + i % 3) AS sex,"
        f" i AS person, nullif('d' || i % 11, 'd4') AS sick FROM generate_series(1, {N_ROWS}) AS i",
    )
    Functions(parties.publisher).register("data.people", ["age", "sex", "person"], "sick")


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let everything be too much for one value."""
    monkeypatch.setattr(columns, "_ROWS_AT_ONCE", 700)
    monkeypatch.setattr(coded_columns, "_MOST_NAMED", 1)
    monkeypatch.setattr(bucket_relations, "_NUMBERS_AT_ONCE", 700)
    monkeypatch.setattr(bucket_relations, "_PAIRS_AT_ONCE", 700)
    monkeypatch.setattr(relations, "_ROWS_AT_ONCE", 700)
    monkeypatch.setattr(kind, "_MOST_AT_ONCE", 700)
    monkeypatch.setattr(kind, "_MOST_SHARED", 700)


@pytest.mark.long
@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize("assignment", ["random", "cells"])
def test_published_in_parts(parties: Parties, assignment: str) -> None:
    """The same people are published, and what is wrong is found in every part."""
    kanon = Package(parties.publisher)
    kanon.publish("data.people", "parted", privacy=PRIVACY, assignment=assignment)
    for published, source in (
        ("SELECT age, sex, person FROM published.parted_qit",
         "SELECT age, sex, person FROM data.people"),
        ("SELECT sick, sum(count)::int8 FROM published.parted_sat GROUP BY 1",
         "SELECT sick, count(*) FROM data.people GROUP BY 1"),
    ):  # fmt: skip
        assert Counter(fetch(parties.publisher, published)) == Counter(
            fetch(parties.publisher, source)
        )
    assert all(holds for *_, holds in kanon.verify("parted"))
    last = value(parties.publisher, "SELECT max(bucket_id) FROM published.parted_qit")
    for bucket in (1, last // 2, last):
        for change in CHANGES:
            with parties.admin.transaction(force_rollback=True):
                fetch(parties.admin, change, bucket)
                assert not all(holds for *_, holds in Package(parties.admin).verify("parted"))
    kanon.drop("parted")


CHANGES = (
    "UPDATE published.parted_sat SET count = count + 1 WHERE bucket_id = $1::int4",
    "UPDATE published.parted_sat SET bucket_id = NULL WHERE bucket_id = $1::int4",
    "UPDATE published.parted_qit SET sex = 'z' WHERE bucket_id = $1::int4",
    "DELETE FROM published.parted_qit WHERE bucket_id = $1::int4",
)


@pytest.fixture
def snapshot(parties: Parties) -> Iterator[tuple[Snapshot, dict[str, ColumnType]]]:
    session = PsycopgSession(parties.publisher)
    with session.transaction():
        relation, oid, _ = find_relation(session, "data.people")
        types = column_types(session, oid)
        yield take_snapshot(session, relation, list(types), Allowance.of(session)), types


def test_columns_with_few_values(
    snapshot: tuple[Snapshot, dict[str, ColumnType]], request: pytest.FixtureRequest
) -> None:
    """All at once, or looked up one by one: the values and codes are those of each column alone."""
    taken, types = snapshot
    for is_large in (False, True):
        if is_large:
            request.getfixturevalue("in_parts")
        found = read_few_values(taken, list(types.values()), most=100)
        assert list(found) == ["age", "sex", "sick"]  # not the person's number
        for name, column in found.items():
            alone = distinct_values(taken, types[name])
            assert column.values.labels == alone.labels
            assert column.values.counts.tolist() == alone.counts.tolist()
            assert column.codes.dtype == np.uint8
            assert column.codes.tolist() == read_codes(taken, [alone])[:, 0].tolist()
    # No row is left out.
    parts = parts_of(taken.session, taken.table, taken.n_records, "s")
    assert len(parts) == 5
    found: list[int] = []
    for part in parts:
        rows = taken.session.fetch(
            f"SELECT {taken.record} AS record FROM {taken.table} AS s WHERE {part}"
        )
        assert 0 < len(rows) < N_ROWS / 2
        found += [row["record"] for row in rows]
    assert sorted(found) == list(range(N_ROWS))
