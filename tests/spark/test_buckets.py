"""Every assignment and method on Spark, beside what the same algorithms find on one machine."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kanon_db import spark as on_spark
from kanon_db.algorithms.bucketization import FPrimePrivacy, two_size
from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.bucketization.cell_assignment import (
    CellCutter,
    allot_cells,
    assign_in_cells,
)
from kanon_db.algorithms.bucketization.multi_size import multi_size, optimal
from kanon_db.algorithms.bucketization.privacy import PrivacySpecification
from kanon_db.algorithms.ground.computation import UNLIMITED
from kanon_db.randomness import SecureRandom
from kanon_db.spark._tables import hashing_with_key
from kanon_db.spark.kinds import _bucket_dealing
from kanon_db.spark.kinds._bucket_dealing import Slices, locate
from tests.spark import data

LARGEST = 12


class Table:
    """A random table of people, and what is asked for of it."""

    def __init__(self, seed: int, folder: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        random = np.random.default_rng(seed)
        n, m = int(random.integers(200, 900)), int(random.integers(4, 9))
        columns = {
            "who": np.arange(n),
            "age": random.integers(0, 40, n),
            "zip": random.integers(0, 9, n),
        }
        codes = (columns["age"] // 10 + random.integers(0, m, n)) % m
        columns |= {"value": np.array([f"v{code}" for code in codes])}
        self.path, self.folder, self.seed = folder / "source.parquet", folder, seed
        pq.write_table(pa.table(columns), self.path)
        self.table = pa.table(columns)
        self.quasi_identifiers = ["age", "zip", "who"][: 2 + seed % 2]
        self.labels, self.codes = np.unique(columns["value"], return_inverse=True)
        self.counts = np.bincount(self.codes)
        self.privacy = {"default": float(ceil(20 * max(self.counts) / n + 3) / 20)}
        self.qi_codes = np.column_stack(
            [np.unique(columns[name], return_inverse=True)[1] for name in self.quasi_identifiers]
        ).astype(np.int32)

    @property
    def thresholds(self) -> FPrimePrivacy:
        given = PrivacySpecification.parse(json.dumps(self.privacy))
        return given.thresholds(list(map(str, self.labels)), self.counts)

    def publish(self, session: Any, **given: Any) -> tuple[Any, Path]:
        target = self.folder / f"b{len(list(self.folder.iterdir()))}"
        known = on_spark.releases(session, str(self.folder))
        found = on_spark.publish_buckets(
            session, self.path, str(target), quasi_identifiers=self.quasi_identifiers,
            sensitive="value", privacy=self.privacy, max_bucket_size=LARGEST, replace=True,
            accept={"combined_releases": "a test"} if known else {},
            **given,
        )  # fmt: skip
        return found, target

    def is_kept(self, target: Path) -> None:
        """Thresholds hold; nobody is there twice, and nobody is lost."""
        qit, sat = data.read(target, "qit"), data.read(target, "sat")
        shown = self.table.select(self.quasi_identifiers)
        assert data.rows(qit.select(self.quasi_identifiers)) == data.rows(shown)
        sizes = Counter(qit["bucket_id"].to_pylist())
        filled: Counter[int] = Counter()
        values: Counter[str] = Counter()
        most = Fraction(str(self.privacy["default"]))
        for row in sat.to_pylist():
            assert Fraction(row["count"], sizes[row["bucket_id"]]) <= most
            filled[row["bucket_id"]] += row["count"]
            values[row["value"]] += row["count"]
        assert filled == sizes
        assert values == Counter(self.table["value"].to_pylist())
        if "who" in self.quasi_identifiers:
            data.require_own_values(target, "who", "value", self.table["value"].to_pylist())


@pytest.fixture
def one_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts are declined or not, but always the same."""
    monkeypatch.setattr(CellCutter, "_declines", lambda *given: given[-1] % 2 == 0)


@pytest.mark.slow("a session of Spark starts")
@pytest.mark.parametrize(
    ("seed", "method", "assignment"),
    [(1, "two_size", "cells"), (2, "multi_size", "cells"), (3, "optimal", "random"),
     (4, "multi_size", "random"), (5, "anatomy", "cells")],
)  # fmt: skip
@pytest.mark.usefixtures("one_outcome")
def test_buckets_are_those_of_one_machine(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, method: str,
    assignment: str,
) -> None:  # fmt: skip
    """The same setting, cells and loss, of random tables; several slices and parts are dealt."""
    monkeypatch.setattr(_bucket_dealing, "_RECORDS_OF_PART", 128)
    table = Table(seed, tmp_path)
    if method == "anatomy":
        table.privacy = {"l": int(1 / table.privacy["default"])}
    privacy = table.thresholds

    def search(counts: Any, thresholds: FPrimePrivacy) -> BucketSetting:
        if method == "anatomy":
            from kanon_db.algorithms.bucketization import anatomy

            return anatomy(counts, thresholds.corresponding_l())
        if method == "optimal":
            return optimal(counts, thresholds, LARGEST).setting
        return {"two_size": two_size, "multi_size": multi_size}[method](counts, thresholds, LARGEST)

    found, target = table.publish(spark, method=method, assignment=assignment)
    if assignment == "random":
        setting = search(table.counts, privacy)
    else:
        is_anatomy = method == "anatomy"
        cells = assign_in_cells(
            table.qi_codes, table.codes.astype(np.int32),
            lambda factor: privacy.tightened(factor).diverse() if is_anatomy
            else privacy.tightened(factor),
            table.codes.size if is_anatomy else LARGEST, search, SecureRandom(),
        )  # fmt: skip
        setting = cells.setting
        assert found.metrics["cells"] == len(cells.tightening) > 1
    assert found.metrics["loss"] == setting.loss
    sizes = Counter(Counter(data.read(target, "qit")["bucket_id"].to_pylist()).values())
    assert tuple(sorted(sizes.items())) == setting.pairs
    if method == "anatomy":
        table.privacy = {"default": 1 / table.privacy["l"]}
    table.is_kept(target)
    assert all(check.holds for check in on_spark.verify(spark, str(target)))


def test_too_many_combinations_for_the_driver(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values are taken together in groups, and there are cuts between these."""
    monkeypatch.setattr(_bucket_dealing, "_MOST_NUMBERS", 500)
    table = Table(7, tmp_path)
    seen = []
    count = _bucket_dealing.HistogramColumns.histogram

    def kept(*given: Any) -> Any:
        seen.append(count(*given))
        return seen[-1]

    monkeypatch.setattr(_bucket_dealing.HistogramColumns, "histogram", kept)
    found, target = table.publish(spark, assignment="cells")
    (known,) = seen
    assert known.weights.sum() == table.codes.size
    assert known.qi_codes.size + 2 * len(known.weights) <= 500
    assert known.last_codes[0] is not None
    assert found.metrics["cells"] > 1
    table.is_kept(target)


def test_an_empty_table(spark: Any, tmp_path: Path) -> None:
    """It has no records, no cells and no buckets."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(data.table(10).slice(0, 0), tmp_path / "none.parquet")
    for assignment in ("random", "cells"):
        found = on_spark.publish_buckets(
            spark, tmp_path / "none.parquet", str(tmp_path / assignment), assignment=assignment,
            **data.ROLES, privacy={"default": 0.5},
            accept={} if assignment == "random" else {"combined_releases": "a test"},
        )  # fmt: skip
        assert found.records == 0
    assert pa.types.is_int32(data.read(tmp_path / "cells", "qit").schema.field("age").type)


# What the workers do, without Spark: thousands of times, for the shares of what happens by chance.


def batches(columns: dict[str, Any], size: int = 5) -> Iterator[Any]:
    import pyarrow as pa

    return iter(pa.table(columns).to_batches(max_chunksize=size))


def on_workers(tree: Any, slices: Slices, qi_codes: Any, codes: Any, known: Any) -> Any:
    """Return the published bucket of each record, as workers find it with a new key."""
    import pyarrow as pa

    n_values, allotment, numbers = known
    numbered = {"record": np.arange(codes.size), "code": codes}
    names = [f"q{i}" for i in range(qi_codes.shape[1])]
    numbered |= dict(zip(names, qi_codes.T, strict=True))
    keyed = hashing_with_key(SecureRandom().bytes(32))(batches(numbered))
    located = locate((tree, slices, names), keyed)
    whole = pa.Table.from_batches(list(located))
    before = counted_before(whole, slices, n_values)
    whole = whole.sort_by([(name, "ascending") for name in ("slice", "code", "rank_key")])
    known = slices.cell, n_values, *before, allotment, numbers
    buckets = np.empty(codes.size, dtype=np.int64)
    for part in np.unique(slices.part):
        of_part = whole.filter(np.asarray(whole["part"]) == part)
        for batch in _bucket_dealing.deal(known, iter(of_part.to_batches(max_chunksize=5))):
            buckets[batch.column("record").to_numpy()] = batch.column("bucket").to_numpy()
    return buckets


def counted_before(whole: Any, slices: Slices, n_values: int) -> Any:
    of, code = (whole[name].to_numpy() for name in ("slice", "code"))
    runs, n = np.unique(of * n_values + code, return_counts=True)
    return _bucket_dealing.begun(slices, n_values, runs // n_values, runs % n_values, n)


def chi_square(one: Any, other: Any) -> tuple[float, int]:
    """Compare how often things happened in as many runs of either kind."""
    either = one + other
    seen = either > 0
    return float(((one - other)[seen] ** 2 / either[seen]).sum()), int(seen.sum())


@pytest.mark.long
@pytest.mark.pitfall(14)
def test_membership_is_drawn_as_on_one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which records share a bucket, in cells of several slices: as often as on one machine.

    The statistic of some 100 things that may happen, and more, is compared with twice its mean,
    more than seven standard deviations above it.
    """
    monkeypatch.setattr(_bucket_dealing, "_RECORDS_OF_PART", 4)
    random, n, m, runs = np.random.default_rng(0), 24, 4, 1500
    qi_codes = (np.arange(n) % 2)[:, np.newaxis].astype(np.int32)
    codes = random.permutation(np.arange(n) % m).astype(np.int32)
    privacy = FPrimePrivacy((Fraction(1, 2),) * m)

    def search(counts: Any, thresholds: FPrimePrivacy) -> BucketSetting:
        return two_size(counts, thresholds, 4)

    monkeypatch.setattr(CellCutter, "_declines", lambda *_: False)
    order = np.argsort(qi_codes[:, 0], kind="stable")
    cutter = CellCutter(
        qi_codes[order], codes[order], lambda _: privacy, 4, SecureRandom(), 8, UNLIMITED
    )
    cells = cutter.cells()
    assert len(cells) == 2
    setting, allotment = allot_cells(cells, search, m)
    slices = Slices.of(np.array([cell.n_records for cell in cells]), m)
    assert slices.n_slices.tolist() == [4, 4]
    plain = np.arange(setting.n_buckets, dtype=np.int32)
    found = [np.zeros((n, n)), np.zeros((n, n))]
    there = [np.zeros((n, setting.n_buckets)), np.zeros((n, setting.n_buckets))]
    for _ in range(runs):
        on_spark_ = on_workers(cutter.tree(), slices, qi_codes, codes, (m, allotment, plain))
        alone = assign_in_cells(
            qi_codes, codes, lambda _: privacy, 4, search, SecureRandom(), least=8
        ).bucket_of_record
        for i, buckets in enumerate((on_spark_, alone)):
            found[i] += np.triu(buckets[:, np.newaxis] == buckets, 1)
            there[i][np.arange(n), buckets] += 1
    for one, other in (found, there):
        statistic, degrees = chi_square(one, other)
        assert statistic < 2 * degrees
