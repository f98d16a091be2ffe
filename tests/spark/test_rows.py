"""Rows that are published on Spark: what one machine would publish, and what they promise."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kanon_db import spark as on_spark
from kanon_db.algorithms import freeform, suppression
from kanon_db.algorithms.generalization import mondrian
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
from kanon_db.errors import (
    IneligibleError,
    InvalidParameterError,
    RiskError,
    SchemaMismatchError,
    TooFewError,
    VerificationError,
)
from kanon_db.metrics.information_loss import measure_classes
from kanon_db.metrics.information_loss import measure_freeform as freeform_loss
from kanon_db.spark import _coded_records
from kanon_db.spark.kinds import generalized_kind, suppressed_kind
from tests.spark import data

N = 1_500
NAMES = data.ROWS["quasi_identifiers"]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> str:
    pq = pytest.importorskip("pyarrow.parquet")
    folder = tmp_path_factory.mktemp("mixed")
    table = data.mixed(N)
    for i in range(2):
        pq.write_table(table.slice(i * N // 2, N // 2), folder / f"{i}.parquet")
    return str(folder)


@pytest.fixture(scope="module")
def source() -> list[dict[str, Any]]:
    """The records by their numbers."""
    return list(data.mixed(N).to_pylist())


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few records make a part, as if the table were large."""
    monkeypatch.setattr(_coded_records, "RECORDS_OF_PART", 300)


def microdata(rows: list[dict[str, Any]]) -> Microdata:
    """Number values as one machine does: in their order, NULL last."""
    codes, attributes = [], []
    for name in NAMES:
        column = [row[name] for row in rows]
        known = sorted({value for value in column if value is not None})
        place = {value: i for i, value in enumerate(known)} | {None: len(known)}
        n_values = len(known) + (None in column)
        codes.append([place[value] for value in column])
        if name == "city":
            attributes.append(Attribute(n_values))
            continue
        numbers = [86400.0 * one.toordinal() if name == "born" else float(one) for one in known]
        array = np.array(numbers + [np.nan] * (None in column))
        attributes.append(
            Attribute(n_values, numbers=array, lower=numbers[0], upper=numbers[-1])
        )  # fmt: skip
    return Microdata(np.array(codes).T, tuple(attributes))


def cells(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what a published row shows of its quasi-identifiers, so that it can be compared."""
    return tuple(
        tuple(cell.values()) if isinstance(cell := row[name], dict)
        else tuple(cell) if isinstance(cell, list)
        else cell
        for name in NAMES
    )  # fmt: skip


def covers(cell: Any, value: Any) -> bool:
    """Whether a range or a set holds a value."""
    if isinstance(cell, list):
        return value in cell
    if cell is None:
        return value is None
    if cell["lower"] is None:
        return cell["upper"] is None
    return value is not None and bool(cell["lower"] <= value <= cell["upper"])


def require_own_cells(found: list[dict[str, Any]], source: list[dict[str, Any]]) -> None:
    """Require that rows have the other columns of their records, and cells that cover them."""
    for row in found:
        record = source[row["id"]]
        assert row["disease"] == record["disease"]
        assert all(covers(row[name], record[name]) for name in NAMES)


def holding(spark: Any, target: Path) -> Iterator[str]:
    for check in on_spark.verify(spark, str(target)):
        assert check.holds, check
        yield check.check


@pytest.mark.usefixtures("in_parts")
def test_mondrian_has_the_classes_of_one_machine(
    spark: Any, mixed: str, source: list[dict[str, Any]], target: Path
) -> None:
    made = on_spark.publish_generalized(
        spark, mixed, str(target), **data.ROWS, k=4, method="mondrian", refine=False
    )
    found = data.read(target, "rows").to_pylist()
    assert sorted(row["id"] for row in found) == list(range(N))
    assert list(found[0]) == ["id", *NAMES, "disease"]
    require_own_cells(found, source)
    assert made.metrics["parts"] > 4
    table = microdata(source)
    classes = mondrian(table, 4).class_of_record
    # Different classes may show the same cells.
    own = {row["id"]: cells(row) for row in found}
    of_class = defaultdict(set)
    for record, number in enumerate(classes.tolist()):
        of_class[number].add(own[record])
    assert all(len(shown) == 1 for shown in of_class.values())
    assert min(Counter(own.values()).values()) >= 4
    lost = measure_classes(table, classes)
    for name, value in (("gcp", lost.gcp), ("gcp_ob", lost.ob_gcp)):
        assert made.metrics[name] == pytest.approx(value, rel=1e-12)
    assert "k-anonymity: every combination of cells occurs k times" in list(holding(spark, target))
    layout = json.loads((target / "manifest.json").read_text())["layout"]
    assert [cell.get("range_type") for cell in layout["quasi_identifiers"]] == [
        "int4range", "daterange", "numrange", None,
    ]  # fmt: skip


@pytest.mark.parametrize("constraints", [None, {"l": 3, "default": 0.6}])
@pytest.mark.usefixtures("in_parts")
def test_what_parts_leave_is_searched_again(
    spark: Any, mixed: str, source: list[dict[str, Any]], target: Path,
    monkeypatch: pytest.MonkeyPatch, constraints: dict[str, Any] | None,
) -> None:  # fmt: skip
    """The records of the classes that lose most, of all parts, and no others get other cells."""
    asked: dict[str, Any] = {**data.ROWS, "k": 5, "method": "greedy_search", "refine": False}
    asked |= {} if constraints is None else {"constraints": constraints}
    chosen: list[list[Any]] = []
    improve = generalized_kind.improve_worst_classes

    def looked_at(job: Any, recoded: Any, search: Any) -> Any:
        shown = recoded.withColumnRenamed(job.snapshot.column("id"), "id")
        chosen.append(shown.select("id", "loss", "class").collect())
        return improve(job, recoded, search)

    monkeypatch.setattr(generalized_kind, "improve_worst_classes", looked_at)
    made = on_spark.publish_generalized(spark, mixed, str(target), **asked)
    monkeypatch.setattr(
        generalized_kind, "improve_worst_classes", lambda _job, recoded, _search: recoded
    )
    once = target.parent / "once"
    before = on_spark.publish_generalized(
        spark, mixed, str(once), **asked, accept={"combined_releases": "a test reads both"}
    )
    assert made.metrics["parts"] == before.metrics["parts"] > 4
    assert made.metrics["gcp"] < before.metrics["gcp"]
    found = data.read(target, "rows").to_pylist()
    assert sorted(row["id"] for row in found) == list(range(N))
    require_own_cells(found, source)
    own = {row["id"]: cells(row) for row in found}
    other = {row["id"]: cells(row) for row in data.read(once, "rows").to_pylist()}
    (rows,) = chosen
    sizes = Counter(row["class"] for row in rows)
    worst, n_records = set(), 0
    for loss, number in sorted({(-row["loss"], row["class"]) for row in rows}):
        n_records += sizes[number]
        if n_records > 300 or not loss:
            break
        worst.add(number)
    assert all(row["class"] in worst or own[row["id"]] == other[row["id"]] for row in rows)
    assert any(own[record] != other[record] for record in own)


@pytest.mark.usefixtures("in_parts")
def test_constraints_hold_in_each_class(
    spark: Any, mixed: str, source: list[dict[str, Any]], target: Path
) -> None:
    constraints = {"l": 3, "entropy_l": 2, "t": 0.6, "distance": "ordered", "default": 0.6}
    made = on_spark.publish_generalized(
        spark, mixed, str(target), **data.ROWS, k=5, method="greedy_search", refine=False,
        constraints=constraints,
    )  # fmt: skip
    assert made.metrics["parts"] > 1
    found = data.read(target, "rows").to_pylist()
    require_own_cells(found, source)
    values = defaultdict(list)
    for row in found:
        values[cells(row)].append(row["disease"])
    for one in values.values():
        assert len(one) >= 5
        assert len(set(one)) >= 3
        assert max(Counter(one).values()) <= 0.6 * len(one)
    checks = set(holding(spark, target))
    assert "t-closeness (ordered distance) of every class" in checks
    assert "entropy l-diversity of every class" in checks


@pytest.mark.usefixtures("in_parts")
def test_constraints_hold_for_each_sensitive_attribute(
    spark: Any, mixed: str, source: list[dict[str, Any]], target: Path
) -> None:
    """Rows of all kinds show and protect several; buckets do not."""
    roles = {**data.ROWS, "insensitive": [], "also_sensitive": ["id"]}
    frame = spark.read.parquet(mixed).selectExpr(
        "age", "born", "pay", "city", "disease", "cast(id % 4 AS string) AS id"
    )
    constraints = {"l": 3, "attributes": {"id": {"default": 0.5}}}
    made = on_spark.publish_generalized(
        spark, frame, str(target), source_name="s", **roles, k=5, method="mondrian", refine=False,
        constraints=constraints,
    )  # fmt: skip
    assert made.metrics["parts"] > 1
    found = data.read(target, "rows").to_pylist()
    values = defaultdict(list)
    for row in found:
        values[cells(row)].append((row["disease"], row["id"]))
    for one in values.values():
        assert len({disease for disease, _ in one} - {None}) >= 3
        assert max(Counter(number for _, number in one).values()) <= 0.5 * len(one)
    checks = set(holding(spark, target))
    assert "distinct l-diversity of every class of disease" in checks
    assert "F'-privacy: frequency in class <= threshold of id" in checks
    attacks = {one.attack for one in on_spark.attack(spark, str(target), frame)}
    assert {"homogeneity of disease", "homogeneity of id", "linking a row"} <= attacks
    for name in ("freeform", "suppressed"):
        publish = getattr(on_spark, f"publish_{name}")
        other = target.parent / name
        accept = {"combined_releases": "a test reads all"}
        publish(spark, frame, str(other), source_name="s", **roles, k=5, accept=accept)
        assert {"disease", "id"} <= set(data.read(other, "rows").column_names)
    with pytest.raises(InvalidParameterError, match="protects one sensitive attribute"):
        on_spark.publish_buckets(
            spark, frame, str(target.parent / "b"), source_name="s", privacy={"l": 2}, **roles,
            accept=accept,
        )  # fmt: skip


@pytest.mark.usefixtures("in_parts")
def test_refined_and_suppressed_by_parts(
    spark: Any, mixed: str, source: list[dict[str, Any]], target: Path
) -> None:
    made = on_spark.publish_generalized(
        spark, mixed, str(target), **data.ROWS, k=5, max_suppressed=0.02,
        options={"time_limit": 2},
    )  # fmt: skip
    found = data.read(target, "rows").to_pylist()
    require_own_cells(found, source)
    assert len({row["id"] for row in found}) == len(found)
    assert len(found) + made.metrics["suppressed_records"] == N
    assert made.metrics["suppressed_records"] <= 0.02 * N
    assert min(Counter(map(cells, found)).values()) >= 5
    assert list(holding(spark, target))


def test_patterns_are_those_of_one_machine(
    spark: Any, mixed: str, source: list[dict[str, Any]], target: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Whether the driver or Spark tries them, and fewer than k records are left out."""
    monkeypatch.setattr(suppressed_kind, "MOST_ROW_TYPES", 700)
    made = on_spark.publish_suppressed(spark, mixed, str(target), **data.ROWS, k=7)
    found = data.read(target, "rows").to_pylist()
    table = microdata(source)
    wanted = suppression.greedy(table.codes, suppression.all_patterns(4), 7)
    numbers = wanted.pattern_of_record.tolist()
    texts = wanted.patterns.texts
    assert {row["id"]: row["pattern"] for row in found} == {
        record: texts[number] for record, number in enumerate(numbers) if number >= 0
    }
    assert len(found) + made.metrics["suppressed_records"] == N
    assert made.metrics["suppressed_records"] == numbers.count(-1) < 7
    for row in found:
        for name, mark in zip(NAMES, row["pattern"], strict=True):
            assert row[name] == (source[row["id"]][name] if mark == "." else None)
    assert min(Counter((*cells(row), row["pattern"]) for row in found).values()) >= 7
    assert list(holding(spark, target))


def test_left_over_records_join_others(
    spark: Any, mixed: str, source: list[dict[str, Any]], target: Path
) -> None:
    """Some of those who could keep their city go with those who could not."""
    cities = Counter(row["city"] for row in source)
    (rarest, few), (_, k) = sorted(cities.items(), key=lambda item: item[1])[:2]
    assert few < k
    asked: dict[str, Any] = {**data.ROWS, "k": k, "quasi_identifiers": ["city"]}
    with pytest.raises(RiskError, match="left_over_records"):
        on_spark.publish_suppressed(
            spark, mixed, str(target), **asked, options={"left_over": "publish"}
        )
    made = on_spark.publish_suppressed(
        spark, mixed, str(target), **asked, options={"left_over": "join"}
    )
    found = data.read(target, "rows").to_pylist()
    assert sorted(row["id"] for row in found) == list(range(N))
    assert made.metrics["suppressed_records"] == 0
    shown = Counter((row["city"], row["pattern"]) for row in found)
    assert shown[None, "*"] == k
    assert min(shown.values()) >= k
    hidden = Counter(source[row["id"]]["city"] for row in found if row["pattern"] == "*")
    assert hidden[rarest] == few
    assert list(holding(spark, target))


def test_freeform_rows_cover_k_records(
    spark: Any, mixed: str, source: list[dict[str, Any]], target: Path
) -> None:
    made = on_spark.publish_freeform(
        spark, mixed, str(target), **data.ROWS, k=3,
        options={"partition_size": 200, "refine": False},
    )  # fmt: skip
    assert made.metrics["segments"] == N // 200
    found = data.read(target, "rows").to_pylist()
    assert sorted(row["id"] for row in found) == list(range(N))
    require_own_cells(found, source)
    for row in found[:200]:
        covered = [
            record["id"] for record in source
            if all(covers(row[name], record[name]) for name in NAMES)
        ]  # fmt: skip
        assert len(covered) >= 3
    assert list(holding(spark, target))
    table = microdata(source)
    whole = freeform.partitioned(table, 3, partial(freeform.sort_greedy, improve=False), 200)
    lost = freeform_loss(table, freeform.cells(table, whole.matches))
    assert made.metrics["gcp"] == pytest.approx(lost.gcp, rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "asked", "error", "match"),
    [
        ("generalized", {"k": 5, "method": "optimal"}, InvalidParameterError, "not made on Spark"),
        ("generalized", {"k": 5, "method": "split_carry"}, InvalidParameterError, "not made on"),
        ("suppressed", {"k": 5, "method": "optimal"}, InvalidParameterError, "not made on Spark"),
        ("freeform", {"k": 5, "method": "optimal"}, InvalidParameterError, "not made on Spark"),
        ("freeform", {"k": 5, "options": {"partition_size": 4}}, InvalidParameterError, "less"),
        ("generalized", {"k": 5, "attributes": {"age": {"round": 5}}}, InvalidParameterError,
         "not coarsened on Spark"),
        ("generalized", {"k": 5_000, "method": "mondrian"}, TooFewError, "must not exceed"),
        ("generalized", {"k": 5, "constraints": {"l": 50}}, IneligibleError, "no equivalence"),
        ("generalized", {"k": 5, "attributes": {"born": {"lower": "soon"}}}, InvalidParameterError,
         "no value of its column"),
        ("generalized", {"k": 5, "attributes": {"age": {"lower": 70, "upper": 10}}},
         InvalidParameterError, "lower must not exceed upper"),
        ("suppressed", {"k": 5, "attributes": {"city": {"kind": "numeric"}}}, SchemaMismatchError,
         "only columns of numbers"),
    ],
)  # fmt: skip
def test_refusals(
    spark: Any, mixed: str, target: Path, kind: str, asked: dict[str, Any], error: Any, match: str
) -> None:
    publish = getattr(on_spark, f"publish_{kind}")
    with pytest.raises(error, match=match):
        publish(spark, mixed, str(target), **data.ROWS, **asked)
    assert not target.parent.exists() or not list(target.parent.iterdir())


def test_a_name_that_identifies_is_warned_of(spark: Any, mixed: str, target: Path) -> None:
    frame = spark.read.parquet(mixed).withColumnRenamed("id", "e_mail")
    heard: list[str] = []
    on_spark.publish_suppressed(
        spark, frame, str(target), source_name="s", on_warning=heard.append, k=5,
        **{**data.ROWS, "insensitive": ["e_mail"]},
    )  # fmt: skip
    assert any('"e_mail" has a name like a column that identifies people' in one for one in heard)


def test_inexact_numbers_in_sets(spark: Any, mixed: str, target: Path) -> None:
    frame = spark.read.parquet(mixed)
    frame = frame.withColumn("pay", frame["pay"].cast("double"))
    with pytest.raises(SchemaMismatchError, match="inexact numbers in sets"):
        on_spark.publish_generalized(
            spark, frame, str(target), source_name="s", **data.ROWS, k=5, method="mondrian",
            attributes={"pay": {"kind": "categorical"}},
        )  # fmt: skip


def test_a_wrong_cell_leaves_nothing(
    spark: Any, mixed: str, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release with a bug in it, here another cell for one record, is not published."""
    from pyspark.sql import functions as f

    keep = generalized_kind.keep_recoded

    def with_a_bug(job: Any, recoded: Any) -> Any:
        wrong = f.struct(f.lit(1).alias("lower"), f.lit(2).alias("upper"))
        return keep(job, recoded.withColumn(
            "q0", f.when(f.col("record") == 0, wrong).otherwise(f.col("q0"))
        ))  # fmt: skip

    monkeypatch.setattr(generalized_kind, "keep_recoded", with_a_bug)
    with pytest.raises(VerificationError, match="nothing was published"):
        on_spark.publish_generalized(
            spark, mixed, str(target), **data.ROWS, k=4, method="mondrian", refine=False
        )
    assert list(target.parent.iterdir()) == []
