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

from kanon_db.algorithms.bucketization.buckets import BucketSetting
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
    store = _write_store(connection, name, sensitive, draw)
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
        "weight": "weight",
        "weights": "weights",
        "parts": "parts",
        "store": store,
        "bytewise": [],
        "weighted": [],
        "placed_by": [],
        "n_buckets": SETTING.n_buckets,
        "sizes": SETTING.sizes.tolist(),
        "first_bucket_ids": first_bucket_ids(SETTING),
    }
    enter_by_hand(
        connection, name, "buckets", layout, len(rows), ["", "_qit", "_sat", "_val", "_cod"]
    )


def _write_store(
    connection: Connection, name: str, sensitive: str, draw: random.Random
) -> dict[str, Any]:
    """Write the codes of both tables, a bucket's slots in any order; what the layout says of it."""
    named = {**dict.fromkeys(COLUMNS, "qit"), sensitive: "sat"}
    shown = ", ".join(named)
    fetch(connection, f"CREATE TABLE published.{name}_val AS SELECT 0 AS column_no, 0 AS code,"
          f" {shown} FROM published.{name}_qit, published.{name}_sat WITH NO DATA")  # fmt: skip
    fetch(connection, f"CREATE TABLE published.{name}_cod (column_no int, chunk int, codes bytea)")
    described = []
    for number, (column, table) in enumerate(named.items()):
        fetch(
            connection,
            f"INSERT INTO published.{name}_val (column_no, code, {column}) SELECT {number},"
            f" row_number() OVER (ORDER BY {column}) - 1, {column}"
            f" FROM (SELECT DISTINCT {column} FROM published.{name}_{table}) AS v",
        )
        ((n_values,),) = fetch(
            connection, f"SELECT count(*) FROM published.{name}_val WHERE column_no = {number}"
        )
        described.append([column, number, n_values, int(table == "sat")])
    for table, repeated in (("qit", ""), ("sat", ", generate_series(1, t.count)")):
        own = [one for one in described if named[one[0]] == table]
        codes = ", ".join(
            f"(SELECT code FROM published.{name}_val AS v WHERE v.column_no = {number}"
            f" AND v.{column} IS NOT DISTINCT FROM t.{column})"
            for column, number, *_ in own
        )
        rows = fetch(
            connection, f"SELECT bucket_id, {codes} FROM published.{name}_{table} AS t{repeated}"
        )
        draw.shuffle(rows)
        rows.sort(key=lambda row: row[0])
        in_slots: list[tuple[Any, ...]] = []
        for size, n in zip(SETTING.sizes.tolist(), SETTING.counts.tolist(), strict=True):
            part = rows[len(in_slots) :][: size * n]
            in_slots += [part[bucket * size + slot] for slot in range(size) for bucket in range(n)]
        for place, (_, number, *_) in enumerate(own, start=1):
            fetch(
                connection,
                f"INSERT INTO published.{name}_cod VALUES ({number}, 0, $1::bytea)",
                bytes(row[place] for row in in_slots),
            )
    names = {one: one for one in ("column_no", "code", "chunk", "codes")}
    return {**names, "records": 1 << 20, "columns": described}
