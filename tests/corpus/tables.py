"""The corpus's tables: 48 people in buckets that are the same at every run.

Two publications of them: ``ill`` with a sensitive text, ``paid`` with a sensitive number. Beside
each, a table of every pair of a record and a sensitive value of its bucket, a row for each
occurrence of the value: what an analyst's query gives there is the matrix that its answer
depends on.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np

from kanon_db.algorithms.bucketization.buckets import BucketSetting, bit_positions, pack_bits
from kanon_db.publications.buckets.bucket_relations import first_bucket_ids
from tests.integration.parties import (
    Connection,
    Parties,
    create_table,
    enter_by_hand,
    fetch,
)

COLUMNS = {
    "age": "int", "sex": "text", "zip": "int", "born": "date", "seen": "timestamp",
    "height": "float8", "member": "boolean",
}  # fmt: skip
SENSITIVE = {"ill": ("illness", "text"), "paid": ("cost", "int")}
SETTING = BucketSetting.of([3, 4], [8, 6])


def people() -> list[tuple[Any, ...]]:
    draw = random.Random(48)  # noqa: S311  # the same people at every run
    return [
        (
            draw.choice([None, 18, 20, 25, 30, 31, 40, 55]),
            draw.choice(["f", "m", "F", None]),
            draw.randrange(6),
            f"{draw.randrange(1980, 1984)}-0{draw.randrange(1, 5)}-15",
            draw.choice([None, "2020-01-01 00:00", "2020-01-31 12:30", "2021-06-01 08:00"]),
            draw.choice([1.5, 1.75, 0.1, None]),
            draw.choice([True, False, None]),
            draw.choice(["flu", "cold", "HIV", "hay fever", None]),
            draw.choice([0, 10, 25, -5, None]),
        )
        for _ in range(SETTING.n_records)
    ]


def make_tables(parties: Parties) -> None:
    """Create source, publications, pairs and lookup tables."""
    rows = people()
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    create_table(parties.publisher, "data.people", f"{columns}, illness text, cost int", rows)
    for name, (sensitive, kind) in SENSITIVE.items():
        _publish(parties.admin, name, rows, sensitive, kind)
    create_table(
        parties.publisher, "data.regions", "zip int, region text, price int",
        [(0, "north", 5), (1, "south", 7), (2, "north", None), (3, None, 1)],
    )  # fmt: skip
    create_table(
        parties.publisher, "data.severity", "illness text, grade int",
        [("flu", 1), ("HIV", 3), ("cold", 1)],
    )  # fmt: skip
    create_table(parties.publisher, "data.doubled", "zip int", [(0,), (0,), (1,)])
    fetch(parties.publisher, "CREATE VIEW data.region_view AS SELECT * FROM data.regions")
    fetch(parties.publisher, "CREATE TABLE data.secret (zip int)")
    fetch(parties.publisher, "GRANT USAGE ON SCHEMA data TO kanon_analyst")
    for table in ("regions", "severity", "doubled", "region_view"):
        fetch(parties.publisher, f"GRANT SELECT ON data.{table} TO kanon_analyst")


def _publish(
    connection: Connection, name: str, rows: list[tuple[Any, ...]], sensitive: str, kind: str
) -> None:
    draw = random.Random(name)  # noqa: S311
    buckets = [
        number
        for (first, n, size) in zip(
            first_bucket_ids(SETTING), SETTING.counts.tolist(), SETTING.sizes.tolist(), strict=True
        )
        for number in range(first, first + n)
        for _ in range(size)
    ]
    draw.shuffle(buckets)
    position = list(COLUMNS).index
    values = [row[len(COLUMNS) + (sensitive == "cost")] for row in rows]
    columns = ", ".join(f"{column} {type_}" for column, type_ in COLUMNS.items())
    create_table(
        connection, f"published.{name}_qit", f"{columns}, bucket_id int",
        [(*row[: len(COLUMNS)], bucket) for row, bucket in zip(rows, buckets, strict=True)],
    )  # fmt: skip
    counted = Counter(zip(buckets, values, strict=True))
    create_table(
        connection, f"published.{name}_sat", f"bucket_id int, {sensitive} {kind}, count int",
        [(bucket, value, count) for (bucket, value), count in counted.items()],
    )  # fmt: skip
    fetch(connection, f"CREATE TABLE published.{name}_bit AS SELECT ''::text AS attribute,"
          f" q.*, s.{sensitive}, ''::bytea AS bits FROM published.{name}_qit AS q,"
          f" published.{name}_sat AS s WITH NO DATA")  # fmt: skip
    fetch(connection, f"ALTER TABLE published.{name}_bit DROP bucket_id")
    for side, attributes in ((0, list(COLUMNS)), (1, [sensitive])):
        order = list(range(len(rows)))
        draw.shuffle(order)
        places, _ = bit_positions(
            np.array(buckets), np.array(order) if side == 0 else np.arange(len(rows)), SETTING
        )
        for attribute in attributes:
            cells = values if side else [row[position(attribute)] for row in rows]
            for value in dict.fromkeys(cells):
                at = [place for place, cell in zip(places, cells, strict=True) if cell == value]
                fetch(
                    connection,
                    f"INSERT INTO published.{name}_bit (attribute, {attribute}, bits)"
                    f" VALUES ($1::text, $2::text::{kind if side else COLUMNS[attribute]},"
                    " $3::bytea)",
                    attribute,
                    None if value is None else str(value),
                    pack_bits(np.array(at), len(rows)),
                )
    fetch(
        connection,
        f"CREATE VIEW published.{name} AS SELECT q.*, s.{sensitive},"
        " s.count::float8 / sum(s.count) OVER (PARTITION BY record_id) AS weight"
        f" FROM (SELECT *, row_number() OVER () AS record_id FROM published.{name}_qit) AS q"
        f" JOIN published.{name}_sat AS s USING (bucket_id)",
    )
    fetch(
        connection,
        f"CREATE TABLE data.{name}_pairs AS SELECT q.*, s.{sensitive}, s.value_id,"
        " count(*) OVER (PARTITION BY q.bucket_id, q.record_id) AS bucket_size FROM"
        f" (SELECT *, row_number() OVER () AS record_id FROM published.{name}_qit) AS q JOIN"
        f" (SELECT *, row_number() OVER () AS value_id FROM published.{name}_sat,"
        " generate_series(1, count)) AS s USING (bucket_id)",
    )
    fetch(connection, f"GRANT SELECT ON data.{name}_pairs TO PUBLIC")
    layout = {
        "quasi_identifiers": list(COLUMNS),
        "sensitive": sensitive,
        "bucket_id": "bucket_id",
        "count": "count",
        "attribute": "attribute",
        "bits": "bits",
        "weight": "weight",
        "weights": "weights",
        "parts": "parts",
        "with_bitmaps": [*COLUMNS, sensitive],
        "bytewise": [],
        "weighted": [],
        "placed_by": [],
        "n_buckets": SETTING.n_buckets,
        "sizes": SETTING.sizes.tolist(),
        "first_bucket_ids": first_bucket_ids(SETTING),
    }
    enter_by_hand(connection, name, "buckets", layout, len(rows), ["", "_qit", "_sat", "_bit"])
