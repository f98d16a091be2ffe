"""The published tables and count queries of the golden results, through the database."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import psycopg
import pytest
from psycopg import sql

from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.publications.buckets.bucket_relations import first_bucket_ids
from tests.integration.parties import enter_by_hand

QI = ("Gender", "Zip", "Age")


@pytest.fixture(scope="module")
def case(golden):
    return golden("count_queries")


@pytest.fixture(scope="module")
def published(case, module_database):
    """The QIT and SAT of the golden results as a publication, buckets numbered by their size."""
    sizes = Counter(bucket for bucket, _ in case["SAT"])
    by_size = sorted(sizes, key=lambda bucket: (sizes[bucket], bucket))
    number = {bucket: position for position, bucket in enumerate(by_size, start=1)}
    counted = Counter(sizes.values())
    setting = BucketSetting.of(list(counted), list(counted.values()))
    layout = {
        "quasi_identifiers": list(QI),
        "sensitive": "SA",
        "bucket_id": "bucket_id",
        "count": "count",
        "attribute": "attribute",
        "bits": "bits",
        "weight": "weight",
        "with_bitmaps": [],
        "n_buckets": setting.n_buckets,
        "sizes": setting.sizes.tolist(),
        "first_bucket_ids": first_bucket_ids(setting),
    }
    with psycopg.connect(module_database) as connection:
        connection.execute(
            'CREATE TABLE published.t_qit ("Gender" text, "Zip" int, "Age" int, bucket_id int)'
        )
        connection.execute('CREATE TABLE published.t_sat (bucket_id int, "SA" text, count int)')
        connection.execute(
            'CREATE VIEW published.t AS SELECT "Gender", "Zip", "Age", "SA", count::float8 / ('
            "SELECT sum(count) FROM published.t_sat AS b WHERE b.bucket_id = s.bucket_id) AS weight"
            " FROM published.t_qit JOIN published.t_sat AS s USING (bucket_id)"
        )
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO published.t_qit VALUES (%s, %s, %s, %s)",
                [(*(row[name] for name in QI), number[bucket]) for row, bucket in case["QIT"]],
            )
            pairs = Counter((number[bucket], value) for bucket, value in case["SAT"])
            cursor.executemany(
                "INSERT INTO published.t_sat VALUES (%s, %s, %s)",
                [(*pair, count) for pair, count in pairs.items()],
            )
        enter_by_hand(connection, "t", "buckets", layout, len(case["T"]), ["", "_qit", "_sat"])
    return module_database


def _where(predicates) -> sql.Composed:
    parts = [
        sql.SQL("{} IN ({})").format(
            sql.Identifier(column), sql.SQL(", ").join(map(sql.Literal, values))
        )
        for column, values in predicates.items()
    ]
    return sql.SQL(" AND ").join(parts)


def test_every_query(case, published):
    with psycopg.connect(published) as connection:
        for query in case["queries"]:
            where = _where(query["pred"])
            text = (sql.SQL("SELECT COUNT(*) FROM t WHERE ") + where).as_string(connection)
            estimate, std_error, lower, upper = connection.execute(
                "SELECT * FROM kanon.estimate_count(%s)", [text]
            ).fetchone()
            weighted = connection.execute(
                sql.SQL("SELECT coalesce(sum(weight), 0) FROM published.t WHERE ") + where
            ).fetchone()[0]
            assert estimate == pytest.approx(float(Fraction(query["est"])), abs=1e-12)
            assert weighted == pytest.approx(estimate, abs=1e-12)
            assert lower <= query["act"] <= upper
            assert std_error >= 0
            if query["rel_error"] is not None:
                error = abs(query["act"] - estimate) / query["act"]
                assert error == pytest.approx(float(Fraction(query["rel_error"])), abs=1e-12)
