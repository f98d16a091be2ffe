"""The store of codes follows from what is published: whoever reads it learns nothing new."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from kanon_db.catalog.entries import find_publication
from kanon_db.publications import codes
from kanon_db.publications.codes import CodeTables, Store
from kanon_db.session.psycopg_session import PsycopgSession
from tests.integration.parties import Package, Parties, create_source, failed_checks, fetch

COLUMNS = "age int, town text, paid numeric, person int8, since timestamptz, sick text, ward int"
QI = ["age", "town", "paid", "person", "since"]
BY_BYTES = QI.index("town")


def people(n: int) -> list[tuple[Any, ...]]:
    draw = random.Random(3)  # noqa: S311  # made-up data
    return [
        (
            None if draw.random() < 0.1 else draw.randrange(30),
            draw.choice(["a", "B", "ä", "Z", None]),
            draw.choice([None, "1.5", "2", "10"]),
            # Two at a time, to which the server gives one hash.
            i // 2 << 32 * (i % 2),
            f"2020-01-{1 + draw.randrange(28):02} 00:00Z",
            draw.choice(["flu", "cold", None, "cough", "gout"]),
            draw.randrange(6),
        )
        for i in range(n)
    ]


@pytest.mark.pitfall(1)
@pytest.mark.parametrize("assignment", ["random", "cells"])
def test_the_store_follows_from_qit_and_sat(
    parties: Parties, monkeypatch: pytest.MonkeyPatch, assignment: str
) -> None:
    """Whatever the order of rows and of chunks, plain Python makes the same of the two tables."""
    monkeypatch.setattr(codes, "RECORDS_OF_CHUNK", 50)
    name = f"stored_{assignment}"
    create_source(
        parties.publisher, f"data.{name}", COLUMNS, people(400), QI, "sick", also_sensitive=["ward"]
    )
    Package(parties.publisher).publish(
        f"data.{name}", name, privacy='{"l": 2}', assignment=assignment
    )
    assert failed_checks(parties.admin, name) == []
    session = PsycopgSession(parties.analyst)
    with session.transaction():
        layout = find_publication(session, name).layout
        store = Store(session, CodeTables.of(session, "published", name, layout))
        assert len(store.chunks) > 5
        assert max(chunk.n_records for chunk in store.chunks) <= 50
        read = [store.arrays(chunk, list(store.columns)) for chunk in store.chunks]
    values = {
        column: [
            row[0]
            for row in fetch(
                parties.analyst,
                f"SELECT {column} FROM published.{name}_val WHERE column_no = $1 ORDER BY code",
                stored.number,
            )
        ]
        for column, stored in store.columns.items()
    }
    records, contents = defaultdict(list), defaultdict(list)
    for bucket, *record in fetch(
        parties.analyst, f"SELECT bucket_id, {', '.join(QI)} FROM published.{name}_qit"
    ):
        records[bucket].append([values[c].index(v) for c, v in zip(QI, record, strict=True)])
    for bucket, sick, ward, count in fetch(
        parties.analyst, f"SELECT bucket_id, sick, ward, count FROM published.{name}_sat"
    ):
        own = [values["sick"].index(sick), values["ward"].index(ward)]
        contents[bucket] += [own] * count

    def place(record: list[int]) -> list[Any]:
        town = values["town"][record[BY_BYTES]]
        bytes_of_town = (town is None, (town or "").encode())
        return [bytes_of_town if i == BY_BYTES else code for i, code in enumerate(record)]

    bucket = 0
    for chunk, arrays in zip(store.chunks, read, strict=True):
        for run in chunk.runs:
            own = slice(run.first, run.first + run.bucket_size * run.n_buckets)
            slots = np.stack(
                [arrays[c][own].reshape(run.bucket_size, run.n_buckets) for c in store.columns],
                axis=-1,
            )
            for i in range(run.n_buckets):
                bucket += 1
                assert slots[:, i, : len(QI)].tolist() == sorted(records[bucket], key=place)
                assert slots[:, i, len(QI) :].tolist() == sorted(contents[bucket])
    assert bucket == layout["n_buckets"]
