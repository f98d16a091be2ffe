"""Records are dealt into buckets, at random and locally."""

from __future__ import annotations

import importlib
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from kanon_db.algorithms.bucketization import bucket_assignment
from kanon_db.algorithms.bucketization.bucket_assignment import (
    is_valid,
    partition_records,
    round_robin,
)
from kanon_db.algorithms.bucketization.buckets import MAX_RECORDS, BucketSetting
from kanon_db.algorithms.bucketization.local_assignment import (
    LocalAssignment,
    assign_locally,
)
from kanon_db.algorithms.bucketization.marginal_refinement import refine
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.ground.arrays import sort_keys
from kanon_db.algorithms.ground.computation import UNLIMITED
from kanon_db.errors import IneligibleError, InfeasibleError, InvalidParameterError, KanonError
from kanon_db.metrics.count_queries import count_errors, random_queries
from kanon_db.randomness import SecureRandom


class TestPartitionRecords:
    def test_invalid(self) -> None:
        with pytest.raises(InvalidParameterError, match="limits must hold one number"):
            is_valid([1, 1], [[1], [1]], BucketSetting.of([1, 2], [1, 1]))
        with pytest.raises(InfeasibleError, match="not valid") as caught:
            partition_records([4, 2], [[1], [1]], BucketSetting.of([2], [3]))
        assert caught.value.detail == (
            "3 buckets for 6 records, table of 6 records and 2 sensitive values"
        )

    def test_products_beyond_64_bits(self) -> None:
        assert is_valid([MAX_RECORDS], [[2**62]], BucketSetting.of([2], [MAX_RECORDS // 2]))
        half, third = MAX_RECORDS // 2, MAX_RECORDS // 3 // 6 * 6
        setting = BucketSetting.of([1, 2], [half, half // 2])
        partition = partition_records([half, half], [[1, 2]] * 2, setting)
        assert partition.tolist() == [[half // 2, half // 2]] * 2
        setting = BucketSetting.of([1, 2, 3], [third, third // 2, third // 3])
        partition = partition_records([2 * third, third], [[1, 2, 3]] * 2, setting)
        assert partition.tolist() == [[2 * third // 3] * 3, [third // 3] * 3]


class TestRoundRobin:
    def test_table_4_of_the_paper(self) -> None:
        """32 records in 4 buckets of 8; filled in the paper's order, column by column."""
        counts = [2, 2, 2, 4, 4, 4, 6, 8]
        setting = BucketSetting.of([8], [4])
        allotment = round_robin(np.array(counts)[:, np.newaxis], setting)
        values = np.repeat(np.arange(8), counts)
        ranks = np.concatenate([np.arange(count) for count in counts])
        buckets = allotment.bucket_of(values, ranks)
        rows = [sorted(values[buckets == bucket] + 1) for bucket in range(4)]
        assert rows == [
            [1, 3, 4, 5, 6, 7, 8, 8],
            [1, 3, 4, 5, 6, 7, 8, 8],
            [2, 4, 5, 6, 7, 7, 8, 8],
            [2, 4, 5, 6, 7, 7, 8, 8],
        ]

    def test_runs_are_the_buckets_of_all_ranks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(bucket_assignment, "_RUN", 5)
        setting = BucketSetting.of([2, 3], [8, 8])
        allotment = round_robin([[9, 6], [0, 13], [7, 5]], setting)
        values = np.repeat([0, 1, 2], [15, 13, 12])
        ranks = np.concatenate([np.arange(n) for n in (15, 13, 12)])
        runs = list(allotment.runs())
        assert max(run.size for run in runs) == 5
        assert np.concatenate(runs).tolist() == allotment.bucket_of(values, ranks).tolist()

    @pytest.mark.parametrize(
        ("values", "ranks"),
        [([0], [2]), ([1], [0]), ([2], [1]), ([3], [0]), ([-1], [0]), ([0], [-1])],
    )
    def test_records_that_do_not_exist(self, values: list[int], ranks: list[int]) -> None:
        allotment = round_robin([[2], [0], [1]], BucketSetting.of([3], [1]))
        with pytest.raises(InvalidParameterError, match="not part of the allotment"):
            allotment.bucket_of(values, ranks)

    @pytest.mark.parametrize("partition", [[[1], [1]], [[1, 2]], [[4], [-1]], [3]])
    def test_a_partition_that_does_not_fill_the_buckets(self, partition: list[list[int]]) -> None:
        with pytest.raises(InvalidParameterError, match="does not fill"):
            round_robin(partition, BucketSetting.of([3], [1]))


module = importlib.import_module("kanon_db.algorithms.bucketization.local_assignment")
refinement = importlib.import_module("kanon_db.algorithms.bucketization.marginal_refinement")

ANY, HALF = Fraction(1), Fraction(1, 2)


def codes(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def correlated_table(n_records: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three quasi-identifiers, and five values that depend on the first."""
    generator = np.random.default_rng(seed)
    qi_codes = np.column_stack([generator.integers(n, size=n_records) for n in (12, 4, 3)])
    values = (qi_codes[:, 0] // 3 + generator.integers(3, size=n_records)) % 5
    return qi_codes.astype(np.int32), values.astype(np.int32)


class TestSortKeys:
    def test_reflected_neighbors_differ_in_one_attribute(self) -> None:
        grid = np.array([(i, j, k) for i in range(3) for j in range(3) for k in range(3)], np.int32)
        path = grid[np.argsort(sort_keys(list(grid.T), reflected=True))]
        assert ((path[1:] != path[:-1]).sum(axis=1) == 1).all()

    def test_more_codes_than_fit_an_integer(self) -> None:
        generator = np.random.default_rng(0)
        columns = [generator.integers(2**20, size=50).astype(np.int32) for _ in range(5)]
        expected = np.lexsort(columns[::-1])
        assert np.argsort(sort_keys(columns)).tolist() == expected.tolist()
        doubled = [np.tile(column, 2) for column in columns]
        for reflected in (False, True):
            keys = sort_keys(doubled, reflected=reflected)
            assert (keys[:50] == keys[50:]).all()
            assert np.unique(keys).size == 50


@pytest.fixture
def small_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tables of a few hundred records be refined."""
    monkeypatch.setattr(refinement, "_LEAST_RECORDS", 1)


@pytest.mark.usefixtures("small_cells")
class TestRefine:
    def test_no_record_is_moved_for_its_own_sake(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A cell of few records has no say: swaps would bring each to buckets of its own value."""
        monkeypatch.undo()
        generator = np.random.default_rng(0)
        values = generator.integers(3, size=200).astype(np.int32)
        unusual = np.column_stack([np.arange(200), generator.integers(2, size=200)])
        unusual = unusual.astype(np.int32)
        buckets = np.unique(generator.integers(40, size=200), return_inverse=True)[1]
        marginals = refine(buckets, unusual, values, 3, generator, n_terms=10**7, pulse=UNLIMITED)
        cells = marginals.weights.reshape(-1)
        n_single = int(marginals.first_cell[1])
        assert not cells[:n_single].any()
        counts = np.bincount(unusual[:, 1])
        found = cells[n_single : n_single + 2]
        assert found == pytest.approx(np.where(counts < 100, 0, counts**-0.5))

    def test_many_attributes_and_codes_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(refinement, "_MAX_ERRORS", 2**12)
        generator = np.random.default_rng(0)
        qi_codes = generator.integers(1000, size=(200, 12)).astype(np.int32)
        values = generator.integers(4, size=200).astype(np.int32)
        marginals = refine(
            np.arange(200) % 50, qi_codes, values, 4, generator, n_terms=10**6, pulse=UNLIMITED
        )
        assert len(marginals.pairs) == 36
        assert marginals.errors.size <= 2**12
        assert set(marginals.pairs.ravel().tolist()) == set(range(12))


def privately(
    found: LocalAssignment, values: np.ndarray, privacy: FPrimePrivacy, largest: int
) -> bool:
    """Check every bucket with fractions, sharing nothing with the algorithm."""
    for g in range(found.setting.n_buckets):
        inside = values[found.bucket_of_record == g].tolist()
        if not 1 <= len(inside) <= largest:
            return False
        for value, count in Counter(inside).items():
            if Fraction(count, len(inside)) > privacy.thresholds[value]:
                return False
    return True


class TestAssignLocally:
    def test_alike_records_share_buckets(self) -> None:
        """Where each place has both values equally often, no bucket needs two places."""
        places = np.repeat(np.arange(50), 10)
        qi_codes = np.column_stack([places, places % 7]).astype(np.int32)
        values = np.tile(codes(0, 1), 250)
        privacy = FPrimePrivacy((HALF, HALF))
        found = assign_locally(qi_codes, values, privacy, 10, SecureRandom())
        pairs = set(zip(found.bucket_of_record.tolist(), places.tolist(), strict=True))
        assert len(pairs) == found.setting.n_buckets

    def test_errors_of_count_queries_fall(self) -> None:
        qi_codes, values = correlated_table(3000)
        privacy = FPrimePrivacy((HALF,) * 5)
        random = np.random.default_rng
        queries = random_queries(
            200, [12, 4, 3], 5, random(0), dimensionality=[1, 2], selectivity=[0.1]
        )
        found = assign_locally(qi_codes, values, privacy, 10, random(0))
        shuffled = qi_codes[random(0).permutation(3000)]
        randomly = assign_locally(shuffled, values, privacy, 10, random(0))
        local, other = (
            count_errors(one.bucket_of_record, qi_codes, values, queries).mean
            for one in (found, randomly)
        )
        assert local < other / 2

    def test_the_same_randomness_gives_the_same_buckets(self) -> None:
        qi_codes, values = correlated_table(500)
        privacy = FPrimePrivacy((HALF,) * 5)
        first, second, third = (
            assign_locally(qi_codes, values, privacy, 10, np.random.default_rng(seed))
            for seed in (1, 1, 2)
        )
        assert first.bucket_of_record.tolist() == second.bucket_of_record.tolist()
        assert first.bucket_of_record.tolist() != third.bucket_of_record.tolist()

    def test_equal_records_are_interchangeable(self) -> None:
        """Which of three equal records joins the protected one is left to chance."""
        qi_codes = np.array([[0], [0], [0], [1], [0]], dtype=np.int32)
        values = codes(0, 0, 0, 0, 1)
        privacy = FPrimePrivacy((ANY, HALF))
        generator = np.random.default_rng(7)
        companions: Counter[int] = Counter()
        n_runs = 600
        for _ in range(n_runs):
            found = assign_locally(qi_codes, values, privacy, 2, generator).bucket_of_record
            companions.update(np.flatnonzero(found[:4] == found[4]).tolist())
        equal = np.array([companions[record] for record in range(3)])
        expected = equal.sum() / 3
        assert companions.total() == n_runs
        # 99.99 % quantile of chi-square with two degrees of freedom
        assert ((equal - expected) ** 2 / expected).sum() < 18.4

    def test_row_order_is_irrelevant(self) -> None:
        """Moving records to other rows does not change how often two of them share a bucket."""
        qi_codes = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [0, 0]], dtype=np.int32)
        values = codes(0, 0, 0, 0, 1)
        privacy = FPrimePrivacy((ANY, HALF))

        def frequencies(rows: np.ndarray) -> np.ndarray:
            generator = np.random.default_rng(3)
            together = np.zeros(5)
            for _ in range(400):
                found = assign_locally(qi_codes[rows], values[rows], privacy, 2, generator)
                buckets = np.empty(5, dtype=np.int64)
                buckets[rows] = found.bucket_of_record
                together += buckets == buckets[4]
            return together / 400

        difference = frequencies(np.arange(5)) - frequencies(np.array([4, 2, 0, 3, 1]))
        assert np.abs(difference).max() < 0.15  # four standard deviations

    def test_left_over_records_open_buckets_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "place_unplaced", lambda *_: None)
        values = codes(*([0] * 40 + [1] * 40 + [0] * 10))
        qi_codes = np.arange(90, dtype=np.int32).reshape(-1, 1)
        privacy = FPrimePrivacy((Fraction(3, 5), HALF))
        found = assign_locally(qi_codes, values, privacy, 10, np.random.default_rng(0))
        assert privately(found, values, privacy, 10)

    def test_buckets_larger_than_the_sweep_considers(self) -> None:
        privacy = FPrimePrivacy((Fraction(1, 200), ANY))
        values = np.zeros(1000, dtype=np.int32)
        values[5:] = 1
        found = assign_locally(np.zeros((1000, 1), np.int32), values, privacy, 5000, SecureRandom())
        assert privately(found, values, privacy, 5000)

    def test_refusals(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refused(
            error: type[KanonError], message: str, values: tuple[int, ...],
            *thresholds: Fraction, largest: int = 5, qi_codes: np.ndarray | None = None,
        ) -> str:  # fmt: skip
            given = np.zeros((len(values), 1), np.int32) if qi_codes is None else qi_codes
            privacy = FPrimePrivacy(thresholds)
            with pytest.raises(error, match=message) as caught:
                assign_locally(given, codes(*values), privacy, largest, SecureRandom())
            return caught.value.hint

        refused(IneligibleError, "no publication", (0, 0, 1), HALF, ANY)
        # Three halves and two others do not fit buckets of two.
        some = (0, 0, 1, 1, 2)
        assert refused(InfeasibleError, "at most two sizes", some, *[HALF] * 3, largest=2)
        for size in (0, 5001):
            refused(InvalidParameterError, "max_bucket_size", (0,), ANY, largest=size)
        for wrong in (np.zeros((2, 1)), np.zeros(1), np.full((1, 1), -1)):
            given = wrong.astype(np.int32)
            refused(InvalidParameterError, "code|threshold", (0,), ANY, ANY, qi_codes=given)
        for value in (2, -1):
            refused(InvalidParameterError, "code|threshold", (value,), ANY, ANY)
        monkeypatch.setattr(module, "_MAX_CELLS", 30)
        many = tuple(range(10))
        hint = refused(InvalidParameterError, "too much memory", many, *[HALF] * 10, largest=10)
        assert hint == "lower max_bucket_size to at most 2"
