"""Rows on both sides: made on Spark, loaded into PostgreSQL; answers are the same."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kanon_db
from kanon_db import spark as on_spark
from kanon_db.errors import UnsupportedQueryError, VerificationError
from kanon_db.interfaces.python import Kanon
from tests.integration.parties import Parties, parties
from tests.spark import data
from tests.spark.test_command import run

__all__ = ["parties"]

N = 500
CELLS = {
    "generalized": ["age", "born", "pay", "city", "member", "Seen at", "height"],
    "freeform": ["age", "born", "pay", "city", "member", "Seen at", "height"],
    "suppressed": ["age", "born", "city", "member"],
}
PUBLISH = {
    "generalized": on_spark.publish_generalized,
    "freeform": on_spark.publish_freeform,
    "suppressed": on_spark.publish_suppressed,
}

QUESTIONS = [
    "SELECT count(*) FROM people",
    "SELECT count(*) FROM people WHERE age BETWEEN 30 AND 39.5 AND disease = 'disease 1'",
    "SELECT count(*) FROM people WHERE age IN (20, 30, 40) OR city = 'Ulm'",
    "SELECT count(*) FROM people WHERE age IS NULL AND city IS NOT NULL",
    "SELECT count(*) FROM people WHERE city IN ('Ulm', 'New York') AND member",
    "SELECT count(*) FROM people WHERE city LIKE '%ö%' AND NOT member",
    "SELECT count(*) FROM people WHERE born >= '1950-02-01' AND born < '1950-03-15'",
    (
        "SELECT count(*) FROM people WHERE EXTRACT(month FROM born) IN (2, 3)"
        " AND disease <> 'disease 1'"
    ),
    "SELECT count(*) FROM people WHERE age * 2 > 75.5 AND member IS TRUE",
    "SELECT count(*) FROM people WHERE disease LIKE 'disease _' AND born = '1950-01-20'",
    "SELECT count(*) FROM people WHERE (age < 30 AND city = 'Ulm') OR (age > 50 AND member)",
    "SELECT disease, count(*) FROM people WHERE age < 40 GROUP BY disease",
    "SELECT city, count(*), sum(age), avg(age) FROM people GROUP BY city",
    "SELECT member, city, count(*) FROM people WHERE age >= 25 GROUP BY member, city",
    "SELECT born, count(*) FROM people WHERE disease = 'disease 2' GROUP BY born",
    "SELECT sum(age), avg(age), count(age) FROM people WHERE disease = 'disease 1'",
    "SELECT avg(age * 2 + 1) FROM people WHERE city = 'Ulm'",
    "SELECT sum(pay), avg(pay) FROM people WHERE age < 40",
    "SELECT count(*) FROM people WHERE height > 1.7 AND pay >= 3",
    "SELECT avg(height) FROM people WHERE member",
    "SELECT city, corr(age, pay), corr(height, age * pay) FROM people GROUP BY city",
    "SELECT count(*) FROM people WHERE \"Seen at\" < '2024-01-05 12:00:00'",
    (
        "SELECT count(*) FILTER (WHERE age < 30) AS young, count(*) FILTER (WHERE member),"
        " count(*) FILTER (WHERE age < 30) * 100.0 / count(*) AS percent FROM people"
    ),
    (
        "SELECT city, count(*) AS n FROM people WHERE age < 50 GROUP BY city"
        " HAVING count(*) > 10 ORDER BY n DESC LIMIT 2"
    ),
    (
        "SELECT CASE WHEN born < '1950-02-01' THEN 1 WHEN member THEN 2 END AS n, count(*)"
        " FROM people WHERE disease IS NOT NULL GROUP BY 1"
    ),
    "SELECT count(*) FROM people WHERE COALESCE(age, 0) < 30 AND age IS DISTINCT FROM 25",
    "SELECT count(*) FROM people WHERE CASE WHEN member THEN city = 'Ulm' ELSE age < 30 END",
    (
        "SELECT count(DISTINCT age), count(DISTINCT city), count(DISTINCT born),"
        " count(DISTINCT pay), count(DISTINCT disease), count(DISTINCT member) FROM people"
    ),
    (
        "SELECT count(DISTINCT city), count(DISTINCT age), count(DISTINCT height)"
        " FILTER (WHERE member) FROM people WHERE age < 40 AND disease <> 'disease 1'"
    ),
    "SELECT count(DISTINCT \"Seen at\") FROM people WHERE disease = 'disease 2'",
    "SELECT count(DISTINCT age * 2 + 1), count(DISTINCT COALESCE(age, 0)) FROM people WHERE member",
    "SELECT city, count(DISTINCT disease), count(DISTINCT age) FROM people GROUP BY city",
    "SELECT disease, count(DISTINCT disease), max(pay) FROM people GROUP BY disease",
    "SELECT count(DISTINCT EXTRACT(month FROM born)) FROM people WHERE city LIKE '%ö%'",
    "SELECT min(age), max(age), min(pay), max(pay), min(height), max(id) FROM people",
    "SELECT min(age), max(age) FROM people WHERE city = 'Ulm' AND disease = 'disease 1'",
    (
        "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY age),"
        " percentile_cont(0.25) WITHIN GROUP (ORDER BY age) FROM people WHERE member"
    ),
    (
        "SELECT percentile_cont(0.9) WITHIN GROUP (ORDER BY pay), percentile_disc(0.1) WITHIN GROUP"
        " (ORDER BY height) FROM people WHERE disease IN ('disease 1', 'disease 2')"
    ),
    (
        "SELECT city, min(age), percentile_cont(0.5) WITHIN GROUP (ORDER BY age * 2 - 0.5) AS half"
        " FROM people WHERE disease <> 'disease 3' GROUP BY city HAVING min(age) < 30"
    ),
    (
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY age) FILTER (WHERE city = 'Ulm')"
        " - percentile_cont(0.5) WITHIN GROUP (ORDER BY age) AS older FROM people WHERE age > 20"
    ),
    "SELECT max(EXTRACT(month FROM born)), min(EXTRACT(day FROM born)) FROM people WHERE member",
    "SELECT min(age * age), max(pay * 2.5) FROM people WHERE age BETWEEN 30 AND 45 AND pay <> 7.5",
    "SELECT min(COALESCE(age, 99)), max(NULLIF(age, 59)) FROM people WHERE city <> 'New York'",
    "SELECT born, min(EXTRACT(day FROM born)) FROM people WHERE NOT member GROUP BY born",
    "SELECT min(age - pay), max(pay + age * 2) FROM people WHERE city = 'Ulm'",
    (
        "SELECT percentile_cont(0.4) WITHIN GROUP (ORDER BY age), max(age) FROM people"
        " WHERE age > pay * 2 + 10 OR (age < 30 AND member)"
    ),
    (
        "SELECT CASE WHEN born < '1950-04-01' THEN 'old' END, member, min(EXTRACT(day FROM born)),"
        " percentile_disc(0.75) WITHIN GROUP (ORDER BY EXTRACT(day FROM born)) FROM people"
        " WHERE disease <> 'disease 1' GROUP BY 1, 2"
    ),
    (
        "SELECT count(DISTINCT CASE WHEN age < 40 THEN EXTRACT(month FROM born) END),"
        " count(DISTINCT CASE WHEN member THEN city ELSE disease END) FROM people"
    ),
]
"""Asked of each kind."""


def persons(n: int, seed: int = 5) -> Any:
    """Return an Arrow table with NULLs, numbers, dates, points in time, texts and booleans."""
    import pyarrow as pa

    random = np.random.default_rng(seed)
    members = [None, True, False]
    start = datetime(2024, 1, 1)  # without a time zone
    seen = [start + timedelta(minutes=int(i)) for i in random.integers(0, 20_000, n)]
    return (
        data.mixed(n)
        .append_column("member", pa.array([members[i] for i in random.integers(0, 3, n)]))
        .append_column("Seen at", pa.array(seen, pa.timestamp("us")))
        .append_column("height", pa.array(np.round(random.normal(1.7, 0.1, n), 3)))
    )


@dataclass(frozen=True)
class Both:
    """A publication on both sides."""

    spark: Any
    target: Path
    kanon: Kanon

    def here(self, question: str, **given: Any) -> list[Any]:
        asked = question.replace("FROM people", f"FROM {self.target.name}")
        return on_spark.estimate(
            self.spark, str(self.target), asked, on_warning=lambda _: None, **given
        )

    def there(self, question: str) -> dict[tuple[str, str], Any]:
        asked = question.replace("FROM people", f"FROM {self.target.name}")
        found = self.kanon.perform("estimate", {"query": asked})
        return {(row.group_key, row.aggregate): row for row in found.itertuples()}


@pytest.fixture(scope="module", params=list(CELLS))
def both(
    request: pytest.FixtureRequest,
    spark: Any,
    parties: Parties,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Both]:
    import pyarrow.parquet as pq

    kind = request.param
    folder = tmp_path_factory.mktemp("rows")
    source, target = folder / "people.parquet", folder / "published" / f"people_{kind[0]}"
    pq.write_table(persons(N), source)
    names = CELLS[kind]
    others = [n for n in ("pay", "member", "Seen at", "height") if n not in names]
    PUBLISH[kind](
        spark, source, str(target), quasi_identifiers=names, sensitive="disease", k=5,
        insensitive=["id", *others], source_name=f"people {kind}", on_warning=lambda _: None,
    )  # fmt: skip
    dsn = parties.dsn_of("publisher")
    on_spark.load(spark, str(target), dsn)
    with kanon_db.connect(dsn) as connected:
        yield Both(spark, target, connected)


def number(found: Any) -> float:
    return math.nan if found is None else float(found)


@pytest.mark.parametrize("question", QUESTIONS)
def test_both_sides_answer_alike(both: Both, question: str) -> None:
    require_alike(both, question)


def require_alike(both: Both, question: str) -> None:
    """Compare the answers of both sides."""
    here, wanted = both.here(question), both.there(question)
    assert {(row.group_key, row.aggregate) for row in here} == set(wanted)
    for row in here:
        other = wanted[row.group_key, row.aggregate]
        for name in ("estimate", "lower_bound", "upper_bound"):
            assert number(getattr(row, name)) == pytest.approx(
                number(getattr(other, name)), rel=1e-9, abs=1e-9, nan_ok=True
            ), (question, name, row, other)
        # An error is the root of variances of which some are differences of equal numbers: where
        # these are zero but for rounding (1e-16), their roots are not (1e-8 for each record).
        for name in ("std_error", "likely_low", "likely_high"):
            assert number(getattr(row, name)) == pytest.approx(
                number(getattr(other, name)), rel=1e-6, abs=1e-8 * N, nan_ok=True
            ), (question, name, row, other)


def test_bounds_hold_in_the_source(both: Both) -> None:
    people = persons(N).to_pylist()
    for question, is_met in (
        ("age < 40 AND member", lambda p: p["age"] is not None and p["age"] < 40 and p["member"]),
        ("city = 'Ulm' OR disease IS NULL", lambda p: p["city"] == "Ulm" or p["disease"] is None),
        ("born < '1950-03-01'", lambda p: p["born"] < date(1950, 3, 1)),
        ("pay >= 10.25", lambda p: p["pay"] >= Decimal("10.25")),
    ):
        (found,) = both.here(f"SELECT count(*) FROM people WHERE {question}")
        true = sum(bool(is_met(person)) for person in people)
        assert found.lower_bound <= true <= found.upper_bound, question
        assert found.lower_bound <= found.likely_low <= found.estimate, question
        assert found.estimate <= found.likely_high <= found.upper_bound, question


REFUSED = [
    ("SELECT count(*) FROM people WHERE age / 10 = 3", "kanon spark load"),
    ("SELECT count(*) FROM people WHERE city < 'Ulm'", "compare with = or IN"),
    ("SELECT count(*) FROM people WHERE name = 'Ada'", "its columns are"),
    ("SELECT count(*) FROM people JOIN data.zips AS z ON z.zip = people.age", "kanon spark load"),
    (
        "SELECT count(*) FROM people WHERE 1 / CAST(age - age AS double precision) > 0",
        "exclude such values",
    ),
]


@pytest.mark.parametrize(("question", "hint"), REFUSED)
def test_refusals_say_what_to_do(both: Both, question: str, hint: str) -> None:
    with pytest.raises(UnsupportedQueryError) as caught:
        both.here(question)
    assert hint in f"{caught.value.detail} {caught.value.hint}"


NAMES = ['quote"d', "back`tick", "attribute", "low0", "Mixed", "mixed", "n", "a.b"]
"""Quoted, differing in case only, and as statements and frames call columns of their own."""


def odd(n: int) -> Any:
    """Return an Arrow table whose columns have odd names."""
    import pyarrow as pa

    random = np.random.default_rng(2)
    columns: dict[str, Any] = {}
    for place, name in enumerate(NAMES):
        numbers = random.integers(0, 8, n).astype(np.int32)
        columns[name] = pa.array(numbers if place % 2 else [f"x{i % 3}" for i in numbers])
    return pa.table(columns | {"disease": [f"d{i}" for i in random.integers(0, 3, n)]})


def test_names_are_only_names(spark: Any, parties: Parties, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    source, target = tmp_path / "odd.parquet", tmp_path / "published" / "Odd"
    pq.write_table(odd(80), source)
    on_spark.publish_generalized(
        spark, source, str(target), quasi_identifiers=NAMES[:5], sensitive="disease", k=4,
        insensitive=NAMES[5:], source_name="odd", on_warning=lambda _: None,
    )  # fmt: skip
    dsn = parties.dsn_of("publisher")
    on_spark.load(spark, str(target), dsn, on_warning=lambda _: None)
    asked = [
        'SELECT "quote""d", count(*) FROM "Odd" WHERE "back`tick" > 3 GROUP BY "quote""d"',
        'SELECT sum(low0), avg("a.b") FROM "Odd" WHERE "Mixed" = \'x1\' OR mixed < 4',
        "SELECT n, count(*) AS attribute FROM \"Odd\" WHERE attribute = 'x0' GROUP BY n",
        f'SELECT count(*) FROM "Odd" WHERE low0 IN ({", ".join(map(str, range(9_000)))})',
    ]
    with kanon_db.connect(dsn) as connected:
        both = Both(spark, target, connected)
        for question in asked:
            require_alike(both, question)


WIDE = [
    "SELECT avg(income), sum(income) FROM wide WHERE score < 0.5",
    "SELECT count(*) FROM wide WHERE income * 2 > 50001 AND income < 40000.5",
    "SELECT count(*) FROM wide WHERE EXTRACT(month FROM at) = 3 AND NOT small IN (1, 3)",
    "SELECT count(*) FROM wide WHERE at >= '2024-02-01 06:30:00+00' OR at IS NULL",
    "SELECT avg(level), count(level) FROM wide WHERE level BETWEEN 100.125 AND 5000.0625",
    "SELECT sum(score), count(*) FROM wide WHERE score > 0.25",
    "SELECT small, count(*), avg(large) FROM wide WHERE income < 30000 GROUP BY small",
    "SELECT min(income), max(large), min(score), max(level) FROM wide",
    (
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY level), count(DISTINCT at),"
        " percentile_disc(0.3) WITHIN GROUP (ORDER BY large) FROM wide WHERE score < 0.5"
    ),
    (
        "SELECT small, max(income * 2), percentile_cont(0.9) WITHIN GROUP (ORDER BY score)"
        " FROM wide WHERE income > 10000 GROUP BY small"
    ),
    "SELECT count(*) FROM wide WHERE large > 5000000000 AND large <> 6000000000",
    "SELECT count(*) FROM wide WHERE income > level",
]


TOO_WIDE = "SELECT count(DISTINCT income) FROM wide"
"""Its values, one by one in each range, are more than an answer may have or compare."""


@pytest.mark.parametrize("kind", ["generalized", "freeform"])
def test_wide_ranges_of_all_types(spark: Any, parties: Parties, tmp_path: Path, kind: str) -> None:
    """Ranges of too many values to list them, and those of real numbers and points in time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    n, random = 150, np.random.default_rng(8)
    start = datetime(2024, 1, 1, tzinfo=UTC)
    times = [None if i < 5_000 else start + timedelta(minutes=int(i))
             for i in random.integers(0, 150_000, n)]  # fmt: skip
    columns = {
        "income": pa.array(random.integers(0, 60_000, n).astype(np.int32)),
        "large": pa.array(random.integers(0, 10_000_000_000, n)),
        "small": pa.array(random.integers(0, 5, n).astype(np.int16)),
        "level": pa.array([Decimal(int(i)) / 16 for i in random.integers(0, 160_000, n)],
                          pa.decimal128(20, 4)),
        "score": pa.array(random.random(n).astype(np.float32)),
        "at": pa.array(times, pa.timestamp("us", "UTC")),
    }  # fmt: skip
    table = pa.table(columns | {"disease": [f"d{i}" for i in random.integers(0, 3, n)]})
    source, target = tmp_path / "wide.parquet", tmp_path / "published" / f"wide_{kind[0]}"
    pq.write_table(table, source)
    PUBLISH[kind](
        spark, source, str(target), quasi_identifiers=list(columns), sensitive="disease", k=5,
        source_name=f"wide {kind}", on_warning=lambda _: None,
    )  # fmt: skip
    dsn = parties.dsn_of("publisher")
    on_spark.load(spark, str(target), dsn, on_warning=lambda _: None)
    with kanon_db.connect(dsn) as connected:
        both = Both(spark, target, connected)
        for question in WIDE:
            require_alike(both, question.replace("FROM wide", f"FROM {target.name}"))
        for side in (both.here, both.there):
            with pytest.raises(UnsupportedQueryError, match=r"too many|more values than"):
                side(TOO_WIDE.replace("FROM wide", f"FROM {target.name}"))


def test_files_that_have_changed_are_not_asked(spark: Any, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    source, target = tmp_path / "odd.parquet", tmp_path / "published" / "odd"
    pq.write_table(odd(40), source)
    on_spark.publish_suppressed(
        spark, source, str(target), quasi_identifiers=["n"], sensitive="disease", k=4,
        on_warning=lambda _: None,
    )  # fmt: skip
    question = "SELECT count(*) FROM odd WHERE n = 'x1'"
    assert on_spark.estimate_count(spark, str(target), question).upper_bound <= 40
    tell = data.tamper(target, "rows", lambda rows: rows.slice(1))
    with pytest.raises(VerificationError, match="changed"):
        on_spark.estimate(spark, str(target), question)
    # Nor those of another number of rows that the manifest was made to name.
    tell()
    with pytest.raises(VerificationError, match="changed"):
        on_spark.estimate(spark, str(target), question)


@pytest.mark.long
def test_rows_are_asked_from_a_shell(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    source, target = tmp_path / "odd.parquet", str(tmp_path / "published" / "odd")
    pq.write_table(odd(40), source)
    roles = ["--quasi-identifiers", "n", "--sensitive", "disease"]
    published, counted, refused = run(
        ["publish", "generalized", "--source", str(source), "--target", target, "--k", "4", *roles],
        ["estimate", target, "SELECT count(*) FROM odd WHERE n = 'x1'", "--json"],
        ["estimate", target, "SELECT min(n) FROM odd", "--json"],
    )
    assert published["returncode"] == 0, published
    (row,) = json.loads(counted["stdout"])["rows"]
    assert row["lower_bound"] <= row["estimate"] <= row["upper_bound"]
    assert refused["returncode"] == 1
