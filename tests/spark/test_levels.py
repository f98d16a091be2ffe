"""Weights that are learned on Spark: what workers do with a model, and answers against numpy."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import astuple
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kanon_db import spark as on_spark
from kanon_db.algorithms.bucketization.buckets import BucketSetting, WeightUnits
from kanon_db.algorithms.bucketization.privacy import PrivacySpecification
from kanon_db.algorithms.bucketization.value_model import learn
from kanon_db.errors import RiskError, VerificationError
from kanon_db.spark.kinds import bucket_kind
from kanon_db.spark.kinds.bucket_kind import (
    bucketed,
    sample_buckets,
    weigh,
    whole_buckets,
)
from tests.expected_counts import Weighted, are_drawn
from tests.integration.parties import Parties, parties
from tests.spark import data

__all__ = ["parties"]

pytestmark = pytest.mark.filterwarnings("ignore:this publication does not tell:UserWarning")

CHECK = "weights of values add up to their numbers in each bucket, none above its threshold"


# What workers do, without Spark.


def dealt(seed: int = 0) -> Any:
    """Return sorted records of buckets of four, whose age decides on the value for most."""
    import pyarrow as pa

    random = np.random.default_rng(seed)
    n = 2_000
    ages = random.integers(0, 40, n)
    values = np.where(random.random(n) < 0.8, ages // 10, random.integers(0, 4, n))
    return pa.table(
        {
            "c0": pa.array(ages.astype(np.int32)),
            "order_key": np.arange(n),
            "bucket": pa.array((1 + np.arange(n) // 4).astype(np.int32)),
            "code": pa.array(values.astype(np.int32)),
        }
    )


@pytest.fixture(scope="module")
def known() -> Any:
    """What is broadcast: a model of `dealt`, with units, values and a seed."""
    import pyarrow as pa

    records = bucketed(dealt(), ["c0"], 4)
    units = WeightUnits.of([Fraction(1)] * 4, records.extreme_shares[1])
    model = learn(records, np.random.default_rng(1), n_codes=[40])
    assert model is not None
    ages = pa.array(np.arange(40, dtype=np.int32))
    return model, units, {"c0": ages}, 4, 17


def weighed(known: Any, records: Any, size: int = 300) -> Any:
    import pyarrow as pa

    names = ["c0", "order_key", "bucket", "levels"]
    found = weigh((*known, names), iter(records.to_batches(max_chunksize=size)))
    return pa.Table.from_batches(list(found))


def levels_in(found: Any) -> np.ndarray:
    text = b"".join(found["levels"].to_pylist())
    return np.frombuffer(text, dtype=np.uint8).reshape(found.num_rows, -1)


def test_workers_weigh_whole_buckets(known: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Levels add up; a task that is run again finds the same, however its records come."""
    monkeypatch.setattr(bucket_kind, "_RECORDS_OF_RUN", 170)
    records = dealt()
    found = weighed(known, records)
    assert found.select(["c0", "order_key", "bucket"]) == records.select(
        ["c0", "order_key", "bucket"]
    )
    levels, units = levels_in(found), known[1]
    counts = np.zeros((500, 4), dtype=np.int64)
    np.add.at(counts, (np.arange(2_000) // 4, records["code"].to_numpy()), 1)
    assert (levels.reshape(500, 4, 4).sum(axis=1) == counts * units.parts).all()
    assert (levels <= units.most).all()
    own = levels[np.arange(2_000), records["c0"].to_numpy() // 10] / units.parts[0]
    assert own.mean() > 0.5  # the model has found the relation; a share is about 0.4
    for size in (1, 7, 5_000):
        assert found == weighed(known, records, size)


@pytest.mark.pitfall(12)
def test_workers_do_not_learn_who_has_which_value(known: Any) -> None:
    """Values change places within buckets, and each record has the same levels."""
    import pyarrow as pa

    records, random = dealt(), np.random.default_rng(3)
    codes = random.permuted(records["code"].to_numpy().reshape(-1, 4), axis=1).reshape(-1)
    assert (codes != records["code"].to_numpy()).mean() > 0.3
    others = records.set_column(3, "code", pa.array(codes))
    assert weighed(known, records) == weighed(known, others)
    one, other = (bucketed(each, ["c0"], 4) for each in (records, others))
    assert one.values.tolist() == other.values.tolist()


@pytest.mark.parametrize("size", [1, 3, 50])
@pytest.mark.parametrize("n_records", [1, 6, 20, 100])
def test_runs_of_whole_buckets(size: int, n_records: int) -> None:
    import pyarrow as pa

    buckets = np.repeat([3, 4, 7, 8, 9], [5, 1, 12, 2, 7]).astype(np.int32)
    table = pa.table({"bucket": buckets})
    runs = [
        run["bucket"].to_pylist()
        for run in whole_buckets(iter(table.to_batches(max_chunksize=size)), n_records)
    ]
    assert [bucket for run in runs for bucket in run] == buckets.tolist()
    for one, other in pairwise(runs):
        assert one[-1] != other[0]
        assert len(one) >= n_records
    assert runs == [
        run["bucket"].to_pylist() for run in whole_buckets(iter(table.to_batches()), n_records)
    ]


def test_buckets_of_a_sample() -> None:
    """Each as likely as any other; enough of them for the records that are wanted."""
    setting = BucketSetting.of([2, 30], [3_000, 200])
    random, times = np.random.default_rng(0), np.zeros(3_201)
    for _ in range(400):
        drawn = sample_buckets(setting, 1_000, random)
        assert np.unique(drawn).size == drawn.size
        sizes = np.where(drawn <= 3_000, 2, 30)
        assert 1_000 <= sizes.sum() < 1_030 + 30
        times[drawn] += 1
    share = times[1:3_001].mean() / times[3_001:].mean()
    assert 0.9 < share < 1.1
    assert sample_buckets(setting, 12_000, random).tolist() == list(range(1, 3_201))


# Answers from files.


def read(target: Path) -> Weighted:
    """Read QIT, SAT and the table of weights as a reader without Spark does."""
    manifest = json.loads((target / "manifest.json").read_text())
    layout = manifest["layout"]
    qit, sat, est = (data.read(target, name) for name in ("qit", "sat", "est"))
    known = sorted(est.to_pylist(), key=lambda row: row["weights"])
    values = [row["disease"] for row in known]
    bucket = qit["bucket_id"].to_numpy() - 1
    sizes = np.bincount(bucket)
    counts = np.zeros((sizes.size, len(values)), dtype=np.int64)
    for row in sat.to_pylist():
        counts[row["bucket_id"] - 1, values.index(row["disease"])] += row["count"]
    fields = qit["weights"].combine_chunks().flatten()
    return Weighted(
        {
            name: np.array(qit[name].to_pylist(), dtype=object)
            for name in layout["quasi_identifiers"]
        },
        bucket, sizes, values, counts,
        np.column_stack([one.to_numpy() for one in fields]).astype(np.int64),
        np.array([row["parts"] for row in known]),
        are_drawn_from_all=are_drawn(layout, manifest["parameters"]),
    )  # fmt: skip


@pytest.fixture(scope="module")
def found(weighted: Path) -> Weighted:
    return read(weighted)


QUESTIONS: dict[str, tuple[Callable[[Weighted], Any], Callable[[Any], bool]]] = {
    "age < 40 AND disease = 'disease 1'": (
        lambda f: f.where("age", lambda a: a < 40), lambda v: v == "disease 1",
    ),
    "sex = 'f' AND disease IS NULL": (
        lambda f: f.where("sex", lambda s: s == "f"), lambda v: v is None,
    ),
    "zip IS NULL AND disease IN ('disease 1', 'disease 3')": (
        lambda f: ~f.where("zip", lambda _: True), lambda v: v in ("disease 1", "disease 3"),
    ),
    "age * 2 > 90.5 AND disease <> 'disease 1'": (
        lambda f: f.where("age", lambda a: a > 45), lambda v: v not in (None, "disease 1"),
    ),
    "age > 200 AND disease = 'disease 2'": (
        lambda f: f.where("age", lambda a: a > 200), lambda v: v == "disease 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("question", QUESTIONS)
def test_counts_add_up_weights(spark: Any, weighted: Path, found: Weighted, question: str) -> None:
    """Estimate, error and bounds, by weights and by the paper's estimator, as in PostgreSQL."""
    records, holds = QUESTIONS[question]
    for estimator in ("published", "paper"):
        answer = on_spark.estimate_count(
            spark, str(weighted), f"SELECT count(*) FROM people_w WHERE {question}",
            estimator=estimator,
        )  # fmt: skip
        is_paper = estimator == "paper"
        expected = found.answer(records(found), found.which(holds), question, is_paper=is_paper)
        assert astuple(answer)[:4] == pytest.approx(expected)


def test_groups_and_either_side(spark: Any, weighted: Path, found: Weighted) -> None:
    rows = on_spark.estimate_counts(
        spark, str(weighted),
        "SELECT sex, disease, count(*) FROM people_w WHERE age < 50 GROUP BY sex, disease",
    )  # fmt: skip
    assert len(rows) == 2 * len(found.values)
    for row in rows:
        key = json.loads(row.group_key)
        records = found.where("sex", lambda s, sex=key["sex"]: s == sex)
        records &= found.where("age", lambda a: a < 50)
        values = found.which(lambda v, own=key["disease"]: v == own)
        expected = found.answer(records, values, "sex age")
        assert (row.estimate, row.std_error, row.lower_bound, row.upper_bound) == pytest.approx(
            expected
        )
    either = "age < 30 OR disease = 'disease 2'"
    answer = on_spark.estimate_count(
        spark, str(weighted), f"SELECT count(*) FROM people_w WHERE {either}"
    )
    others = ~found.where("age", lambda a: a < 30)
    neither = others.sum() - found.weights[others][:, found.which(lambda v: v == "disease 2")].sum()
    # NULL meets no condition: it is among those of neither.
    assert answer.estimate == pytest.approx(4_000 - neither)


def test_sums_and_averages(spark: Any, weighted: Path, found: Weighted) -> None:
    """Of x on either side: the weights times x, and those divided by the weights."""
    ages = np.array(found.columns["age"], dtype=float)
    values = found.which(lambda v: v in ("disease 2", "disease 5"))
    own = found.weights[:, values].sum(axis=1)
    women = found.where("sex", lambda s: s == "f")
    totals = {"f": float((own * ages)[women].sum()), "m": float((own * ages)[~women].sum())}
    numbers = {"f": float(own[women].sum()), "m": float(own[~women].sum())}
    rows = on_spark.estimate(
        spark, str(weighted), "SELECT sex, sum(age), avg(age) FROM people_w"
        " WHERE disease IN ('disease 2', 'disease 5') GROUP BY sex",
    )  # fmt: skip
    assert len(rows) == 4
    for row in rows:
        sex = json.loads(row.group_key)["sex"]
        expected = totals[sex] / (numbers[sex] if row.aggregate.startswith("avg") else 1)
        assert row.estimate == pytest.approx(expected)
        assert 0 < row.std_error <= (row.upper_bound - row.lower_bound) / 2
    x = np.array([np.nan if v is None else float(len(v)) for v in found.values])
    young = found.where("age", lambda a: a < 40)
    # Those with nine letters are more than half of the values, those with ten are not.
    by_x = {
        length: (young.sum() - found.weights[young][:, x != length].sum())
        if 2 * (x == length).sum() > x.size else found.weights[young][:, x == length].sum()
        for length in (9.0, 10.0)
    }  # fmt: skip
    total = sum(length * n for length, n in by_x.items())
    spelled = "CASE WHEN disease LIKE 'disease __' THEN 10 WHEN disease IS NOT NULL THEN 9 END"
    (answer, mean) = on_spark.estimate(
        spark, str(weighted), f"SELECT sum({spelled}), avg({spelled}) FROM people_w WHERE age < 40"
    )
    assert answer.estimate == pytest.approx(min(max(total, answer.lower_bound), answer.upper_bound))
    assert mean.estimate == pytest.approx(total / sum(by_x.values()))


def test_verification_adds_up_weights(
    spark: Any, weighted: Path, found: Weighted, tmp_path: Path
) -> None:
    """From the files alone; and finds levels that were changed, also where the sums are right."""
    import pyarrow as pa

    checks = {check.check: check for check in on_spark.verify(spark, str(weighted))}
    assert checks[CHECK].holds
    counts = found.counts.sum(axis=0)
    labels = [str(value) if value is not None else None for value in found.values]
    limits = PrivacySpecification.parse(json.dumps(data.THETA)).thresholds(labels, counts)
    for place, limit in enumerate(limits.thresholds):
        assert Fraction(int(found.levels[:, place].max()), int(found.parts[place])) <= limit

    def moved(qit: Any) -> Any:
        """Give all of a value's weight in the first bucket to one record."""
        rows = qit.to_pylist()
        (bucket, *_) = [row["bucket_id"] for row in rows]
        own = [row for row in rows if row["bucket_id"] == bucket]
        most = max(own[0]["weights"], key=lambda f: sum(row["weights"][f] for row in own))
        own[0]["weights"][most] = sum(row["weights"].pop(most) for row in own)
        for row in own[1:]:
            row["weights"][most] = 0
        return pa.Table.from_pylist(rows, schema=qit.schema)

    def lost(qit: Any) -> Any:
        rows = qit.to_pylist()
        field = next(name for name, level in rows[0]["weights"].items() if level)
        rows[0]["weights"][field] -= 1
        return pa.Table.from_pylist(rows, schema=qit.schema)

    def without_one(est: Any) -> Any:
        return est.slice(1)

    for number, (name, change) in enumerate([("qit", moved), ("qit", lost), ("est", without_one)]):
        target = tmp_path / str(number) / "people_w"
        shutil.copytree(weighted, target)
        data.tamper(target, name, change)()
        failed = [check.check for check in on_spark.verify(spark, str(target)) if not check.holds]
        assert failed == [CHECK]


# What takes longer.


def test_uncapped(spark: Any, related: str, tmp_path: Path) -> None:
    """A risk, which is refused, and accepted with a reason."""
    target = tmp_path / "published" / "people_u"
    asked = {**data.ASKED, "privacy": {"default": 0.4}, "estimates": "uncapped"}
    with pytest.raises(RiskError, match="uncapped_estimates"):
        on_spark.publish_buckets(spark, related, str(target), **asked)
    accept = {"uncapped_estimates": "a test"}
    on_spark.publish_buckets(spark, related, str(target), accept=accept, **asked)
    found = read(target)
    assert max(found.most.values()) > Fraction(2, 5)
    checks = on_spark.verify(spark, str(target))
    assert all(check.holds for check in checks)
    names = {check.check for check in checks}
    assert "weights of values add up to their numbers in each bucket" in names
    assert any("uncapped_estimates" in name for name in names)


@pytest.mark.parametrize("estimates", ["paper", "capped"])
def test_nothing_is_learned(
    spark: Any, people: str, related: str, tmp_path: Path, estimates: str
) -> None:
    """Where that is asked for, or nothing is related."""
    target = tmp_path / "published" / "people_n"
    source = related if estimates == "paper" else people
    on_spark.publish_buckets(spark, source, str(target), estimates=estimates, **data.ASKED)
    assert {path.name for path in target.glob("release-*/*")} == {"qit", "sat"}
    assert data.read(target, "qit").column_names == ["age", "sex", "zip", "bucket_id"]
    assert not any("weights of values" in one.check for one in on_spark.verify(spark, str(target)))


def test_odd_names(spark: Any, related: str, tmp_path: Path, parties: Parties) -> None:
    """Columns may be called as those of weights are."""
    frame = spark.read.parquet(related).selectExpr(
        "age AS weights", "sex AS `v0`", "zip AS `a.b c`", "disease AS parts"
    )
    target = tmp_path / "published" / "odd"
    on_spark.publish_buckets(
        spark, frame, str(target), source_name="odd", quasi_identifiers=["weights", "v0", "a.b c"],
        sensitive="parts", privacy=data.THETA,
    )  # fmt: skip
    assert all(check.holds for check in on_spark.verify(spark, str(target)))
    layout = json.loads((target / "manifest.json").read_text())["layout"]
    assert layout["weighted"] == ["parts"]
    question = "SELECT count(*) FROM odd WHERE weights < 40 AND parts = 'disease 2'"
    by_weights, paper = (
        on_spark.estimate_count(spark, str(target), question, estimator=estimator)
        for estimator in ("published", "paper")
    )
    assert by_weights.estimate != pytest.approx(paper.estimate)
    assert by_weights.lower_bound <= by_weights.estimate <= by_weights.upper_bound
    on_spark.load(spark, str(target), parties.publisher)


def test_weights_are_as_near_as_those_of_postgresql(
    spark: Any, related: str, weighted: Path, found: Weighted, parties: Parties
) -> None:
    """Of the same buckets, loaded and learned anew: errors of counts, beside the paper's."""
    on_spark.load(spark, str(weighted), parties.publisher)
    there = Weighted.read(parties.analyst, "people_w", "disease")
    rows = data.related(4_000).to_pylist()
    errors = np.zeros(3)
    for low in range(18, 85, 3):
        for value in found.values:
            true = sum(low <= row["age"] < low + 10 and row["disease"] == value for row in rows)
            each = []
            for own in (found, there):
                records = own.where("age", lambda a, low=low: low <= a < low + 10)
                values = own.which(lambda v, value=value: v == value)
                each.append(own.answer(records, values, "age")[0])
            each.append(there.answer(records, values, "age", is_paper=True)[0])
            errors += np.abs(np.array(each) - true)
    here, in_postgresql, paper = errors
    assert here < 0.8 * paper
    assert 0.8 < here / in_postgresql < 1.25


def test_changed_weights_are_not_loaded(
    spark: Any, weighted: Path, tmp_path: Path, parties: Parties
) -> None:
    target = tmp_path / "people_x"
    shutil.copytree(weighted, target)
    data.tamper(target, "est", lambda est: est.slice(1))()
    with pytest.raises(VerificationError, match="changed"):
        on_spark.load(spark, str(target), parties.publisher, publication="people_x")
