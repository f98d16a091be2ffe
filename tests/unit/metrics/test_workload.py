"""Unique records are counted as one would by hand."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from kanon_db.advice.identifying_columns import unique_records
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
from kanon_db.errors import InvalidParameterError
from kanon_db.metrics.count_queries import CountErrors, CountQuery, random_queries
from kanon_db.metrics.information_loss import measure_classes
from kanon_db.publications.buckets.bucket_workload import count_errors


def make_table(
    n_records: int, n_values: list[int], n_sensitive: int, n_buckets: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    qi_codes = np.column_stack([generator.integers(n, size=n_records) for n in n_values])
    sa_codes = generator.integers(n_sensitive, size=n_records)
    buckets = generator.integers(n_buckets, size=n_records)
    return qi_codes.astype(np.int32), sa_codes.astype(np.int32), buckets


def naive(
    buckets: np.ndarray, qi_codes: np.ndarray, sa_codes: np.ndarray, query: CountQuery
) -> tuple[int, float]:
    """Count record by record, and estimate bucket by bucket, as [GB] Section 3.2 writes it."""
    matches_qi = np.array(
        [all(mask[row[a]] for a, mask in query.quasi_identifiers.items()) for row in qi_codes]
    )
    matches_sa = np.array([query.sensitive[code] for code in sa_codes])
    estimate = 0.0
    for g in set(buckets.tolist()):
        inside = buckets == g
        estimate += (matches_qi & inside).sum() * (matches_sa & inside).sum() / inside.sum()
    return int((matches_qi & matches_sa).sum()), float(estimate)


class TestRandomQueries:
    def test_shapes_follow_dimensionality_and_selectivity(self) -> None:
        queries = random_queries(
            60,
            [10, 7, 3],
            20,
            np.random.default_rng(5),
            dimensionality=[1, 2],
            selectivity=[0.05, 0.25],
        )
        assert {(len(q.quasi_identifiers), q.selectivity) for q in queries} == {
            (qd, s) for qd in (1, 2) for s in (0.05, 0.25)
        }
        sizes = (10, 7, 3)
        for query in queries:
            share = query.selectivity ** (1 / (len(query.quasi_identifiers) + 1))
            assert query.sensitive.sum() == math.ceil(20 * share - 1e-6)
            for a, mask in query.quasi_identifiers.items():
                assert mask.sum() == math.ceil(sizes[a] * share - 1e-6)

    def test_a_whole_number_of_values_is_not_rounded_up(self) -> None:
        """In floating point 0.001 ** (1 / 3) exceeds 0.1."""
        queries = random_queries(
            5, [10, 10], 10, np.random.default_rng(0), dimensionality=[2], selectivity=[0.001]
        )
        assert {int(q.sensitive.sum()) for q in queries} == {1}

    @pytest.mark.parametrize(
        ("n_values", "dimensionality", "selectivity"),
        [([3], [2], [0.1]), ([3], [0], [0.1]), ([3], [], [0.1]), ([0], [1], [0.1]),
         ([3], [1], [0.0]), ([3], [1], [1.1]), ([3], [1], [])],
    )  # fmt: skip
    def test_out_of_range(
        self, n_values: list[int], dimensionality: list[int], selectivity: list[float]
    ) -> None:
        with pytest.raises(InvalidParameterError):
            random_queries(
                1,
                n_values,
                2,
                np.random.default_rng(0),
                dimensionality=dimensionality,
                selectivity=selectivity,
            )


class TestCounts:
    # 64 queries fill a word: one less, exactly one, and more than two.
    @pytest.mark.parametrize("n_queries", [0, 1, 63, 64, 130])
    def test_against_a_naive_loop(self, n_queries: int) -> None:
        qi_codes, sa_codes, buckets = make_table(300, [6, 4, 3], 5, 40)
        queries = random_queries(
            n_queries,
            [6, 4, 3],
            5,
            np.random.default_rng(2),
            dimensionality=[1, 2, 3],
            selectivity=[0.05, 0.3],
        )
        errors = count_errors(buckets, qi_codes, sa_codes, queries)
        expected = [naive(buckets, qi_codes, sa_codes, query) for query in queries]
        assert errors.actual.tolist() == [actual for actual, _ in expected]
        assert errors.estimated == pytest.approx([estimate for _, estimate in expected])

    def test_blocks_of_records_add_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        qi_codes, sa_codes, buckets = make_table(500, [6, 4], 5, 30)
        buckets[buckets > 25] = 3  # a bucket larger than a block
        queries = random_queries(
            70, [6, 4], 5, np.random.default_rng(2), dimensionality=[1, 2], selectivity=[0.1]
        )
        whole = count_errors(buckets, qi_codes, sa_codes, queries)
        for length in (1, 7, 100, 499):
            monkeypatch.setattr("kanon_db.metrics.count_queries._RECORDS_PER_BLOCK", length)
            monkeypatch.setattr("kanon_db.publications.codes.BYTES_AT_ONCE", 64 * length)
            pieces = count_errors(buckets, qi_codes, sa_codes, queries)
            assert pieces.actual.tolist() == whole.actual.tolist()
            assert pieces.estimated == pytest.approx(whole.estimated)


class TestCountErrors:
    def test_queries_without_a_match_have_no_relative_error(self) -> None:
        errors = CountErrors(np.array([4, 0, 2, 8]), np.array([5.0, 1.0, 2.0, 4.0]))
        assert errors.relative[[0, 2, 3]].tolist() == [0.25, 0.0, 0.5]
        assert math.isnan(errors.relative[1])
        assert (errors.mean, errors.median, errors.n_undefined) == (0.25, 0.25, 1)

    def test_select(self) -> None:
        errors = CountErrors(np.array([4, 0, 2, 8]), np.array([5.0, 1.0, 2.0, 4.0]))
        some = errors.select(np.array([True, True, False, False]))
        assert (some.mean, some.n_undefined) == (0.25, 1)

    def test_nothing_to_average(self) -> None:
        errors = CountErrors(np.array([0]), np.array([1.0]))
        assert math.isnan(errors.mean)
        assert math.isnan(errors.median)


AGE = Attribute(4, np.array([20.0, 30.0, 60.0, np.nan]), 20.0, 60.0, weight=2.0)
PLACE = Attribute(3)
TABLE = Microdata([[0, 0], [1, 1], [2, 2], [3, 2], [3, 0], [3, 0]], (AGE, PLACE))


def test_measures_of_classes_and_suppressed_records() -> None:
    measured = measure_classes(TABLE, [0, 0, 1, 1, 1, -1])
    assert (measured.n_records, measured.n_classes, measured.n_suppressed) == (6, 2, 1)
    assert (measured.smallest_class, measured.average_class_size) == (2, 2.5)
    assert measured.discernibility_loss == 2**2 + 3**2 + 6
    # Ages: 2 cells lose 1/4, 3 lose 1; places: 5 lose 1/2; the suppressed record 1 each.
    assert measured.loss_by_attribute.tolist() == pytest.approx([4.5 / 6, 3.5 / 6])
    assert measured.gcp == pytest.approx(8 / 12)
    assert measured.weighted_loss == pytest.approx(2 * 4.5 + 3.5)
    assert measured.ob_gcp == pytest.approx(4.5 + 5 / 3 + 1)
    assert measured.binary_loss == pytest.approx(2 * 4.5 + 5 * 2 / 3 + 1)


def test_all_suppressed_and_empty() -> None:
    measured = measure_classes(TABLE, [-1] * 6)
    assert (measured.gcp, measured.n_classes, measured.smallest_class) == (1.0, 0, 0)
    empty = measure_classes(Microdata(np.zeros((0, 2), dtype=np.int32), (AGE, PLACE)), [])
    assert (empty.gcp, empty.discernibility_loss, empty.average_class_size) == (0.0, 0, 0.0)


def test_refusals() -> None:
    with pytest.raises(InvalidParameterError, match="must have a class"):
        measure_classes(TABLE, [0, 0])


@pytest.mark.parametrize("n_values", [2, 7, 100_000])
@pytest.mark.parametrize("n_columns", [1, 2, 3, 5])
def test_all_combinations(n_values: int, n_columns: int) -> None:
    codes = np.random.default_rng(3).integers(0, n_values, (60, n_columns), dtype=np.int32)
    codes[:30] = codes[30:]
    codes[0] = 1
    found = {one.columns: one.records for one in unique_records(codes)}
    sizes = {1, 2, 3, n_columns} & set(range(1, n_columns + 1))
    wanted = [c for size in sorted(sizes) for c in combinations(range(n_columns), size)]
    assert sorted(found) == sorted(wanted)
    for columns, records in found.items():
        tuples = Counter(tuple(row) for row in codes[:, columns].tolist())
        assert records == sum(n == 1 for n in tuples.values())


def test_without_time_there_is_still_what_matters() -> None:
    codes = np.zeros((5, 6), dtype=np.int32)
    found = [one.columns for one in unique_records(codes, pulse=Pulse(0))]
    assert found == [(0, 1, 2, 3, 4, 5), *((a,) for a in range(6))]
