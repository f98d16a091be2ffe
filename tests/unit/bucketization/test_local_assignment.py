from __future__ import annotations

import importlib
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from kanon_db.algorithms.bucketization.local_assignment import (
    UNPLACED,
    LocalAssignment,
    assign_locally,
    place_unplaced,
    sweep,
)
from kanon_db.algorithms.bucketization.marginal_refinement import refine
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.ground.arrays import sort_keys
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse
from kanon_db.errors import IneligibleError, InfeasibleError, InvalidParameterError
from kanon_db.metrics.count_queries import count_errors, random_queries
from kanon_db.randomness import SecureRandom

module = importlib.import_module("kanon_db.algorithms.bucketization.local_assignment")
refinement = importlib.import_module("kanon_db.algorithms.bucketization.marginal_refinement")

ANY, HALF, THIRD = Fraction(1), Fraction(1, 2), Fraction(1, 3)


class CanceledError(Exception):
    """What a heartbeat raises when a user cancels."""


class StopAfter:
    """A heartbeat that ends the work at its n-th beat."""

    def __init__(self, n: int) -> None:
        self.left = n

    def __call__(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise CanceledError


def limits_of(privacy: FPrimePrivacy, largest: int) -> np.ndarray:
    return privacy.occurrence_limits(np.arange(largest + 1)).astype(np.int16)


def codes(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def correlated_table(n_records: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three quasi-identifiers, and five values that depend on the first."""
    generator = np.random.default_rng(seed)
    qi_codes = np.column_stack([generator.integers(n, size=n_records) for n in (12, 4, 3)])
    values = (qi_codes[:, 0] // 3 + generator.integers(3, size=n_records)) % 5
    return qi_codes.astype(np.int32), values.astype(np.int32)


class TestSortKeys:
    def test_first_attribute_foremost(self) -> None:
        first, second = codes(1, 0, 1, 0), codes(0, 2, 1, 1)
        assert np.argsort(sort_keys([first, second])).tolist() == [3, 1, 0, 2]

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


class TestSweep:
    def test_buckets_close_when_they_are_private(self) -> None:
        limits = limits_of(FPrimePrivacy((HALF, HALF, ANY)), 6)
        assert sweep(np.arange(5), codes(2, 0, 1, 1, 2), limits).tolist() == [0, 1, 1, 2, 2]

    def test_a_rare_value_waits_for_a_bucket_that_is_large_enough(self) -> None:
        limits = limits_of(FPrimePrivacy((Fraction(1, 4), ANY)), 6)
        buckets = sweep(np.arange(6), codes(1, 0, 1, 1, 1, 1), limits)
        assert buckets.tolist() == [0, 1, 1, 1, 1, 2]

    def test_an_excess_meets_later_records(self) -> None:
        limits = limits_of(FPrimePrivacy((HALF, HALF)), 4)
        buckets = sweep(np.arange(8), codes(0, 0, 0, 0, 1, 1, 1, 1), limits)
        assert buckets.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]

    def test_what_cannot_be_placed_is_left_over(self) -> None:
        limits = limits_of(FPrimePrivacy((THIRD, ANY)), 3)
        assert sweep(np.arange(3), codes(0, 0, 1), limits).tolist() == [UNPLACED] * 3

    def test_a_value_that_fits_no_size_is_left_over_with_what_follows(self) -> None:
        limits = limits_of(FPrimePrivacy((Fraction(1, 9), ANY)), 3)
        assert sweep(np.arange(2), codes(0, 1), limits).tolist() == [UNPLACED] * 2

    def test_blocks_go_on_where_the_last_one_ended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        _, values = correlated_table(200)
        limits = limits_of(FPrimePrivacy((Fraction(2, 5),) * 5), 12)
        order = np.random.default_rng(0).permutation(200)
        whole = sweep(order, values, limits)
        for length in (1, 7, 199):
            monkeypatch.setattr(
                "kanon_db.algorithms.bucketization.local_assignment._RECORDS_PER_SWEPT_BLOCK",
                length,
            )
            assert sweep(order, values, limits).tolist() == whole.tolist()


class TestPlaceLeftOver:
    def test_the_nearest_bucket_with_room(self) -> None:
        # Bucket 1 holds the value already, bucket 0 is too small for it, bucket 2 has room.
        limits = limits_of(FPrimePrivacy((THIRD, ANY)), 4)
        buckets = np.array([0, 1, 1, 1, 2, 2, UNPLACED])
        values = codes(1, 0, 1, 1, 1, 1, 0)
        place_unplaced(buckets, np.array([0, 1, 2, 3, 6, 4, 5]), values, limits)
        assert buckets.tolist() == [0, 1, 1, 1, 2, 2, 2]

    def test_full_buckets_stay_as_they_are(self) -> None:
        limits = limits_of(FPrimePrivacy((HALF, ANY)), 2)
        buckets = np.array([0, 0, 1, 1, UNPLACED])
        place_unplaced(buckets, np.arange(5), codes(0, 1, 1, 1, 0), limits)
        assert buckets.tolist() == [0, 0, 1, 1, UNPLACED]

    def test_several_records_spread(self) -> None:
        limits = limits_of(FPrimePrivacy((THIRD, ANY)), 4)
        buckets = np.array([0, 0, 1, 1, 2, 2, UNPLACED, UNPLACED, UNPLACED, UNPLACED])
        place_unplaced(buckets, np.arange(10), codes(1, 1, 1, 1, 1, 1, 0, 0, 0, 0), limits)
        assert sorted(buckets.tolist()) == [UNPLACED, 0, 0, 0, 1, 1, 1, 2, 2, 2]

    def test_without_any_bucket(self) -> None:
        buckets = np.full(2, UNPLACED)
        place_unplaced(buckets, np.arange(2), codes(0, 0), np.zeros((1, 3), np.int16))
        assert buckets.tolist() == [UNPLACED] * 2


@pytest.fixture
def small_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tables of a few hundred records be refined."""
    monkeypatch.setattr(refinement, "_LEAST_RECORDS", 1)


@pytest.mark.usefixtures("small_cells")
class TestRefine:
    def test_a_swap_takes_a_record_to_where_its_neighbors_are(self) -> None:
        """Of two equal values, the one from the other town changes places."""
        qi_codes = np.array([[0], [0], [1], [1]], dtype=np.int32)
        values, buckets = codes(0, 1, 0, 2), np.array([0, 1, 1, 0])
        found = refine(
            buckets, qi_codes, values, 3, np.random.default_rng(0), n_terms=10**6, pulse=UNLIMITED
        )
        assert buckets.tolist() == [1, 1, 0, 0]
        assert found.objective == pytest.approx(0)

    def test_errors_are_those_of_the_buckets(self) -> None:
        qi_codes, values = correlated_table(300)
        buckets = np.random.default_rng(1).integers(60, size=300)
        buckets = np.unique(buckets, return_inverse=True)[1]
        marginals = refine(
            buckets, qi_codes, values, 5, np.random.default_rng(2), n_terms=10**6, pulse=UNLIMITED
        )
        sizes = np.bincount(buckets)
        shares = np.zeros((sizes.size, 5))
        np.add.at(shares, (buckets, values), 1)
        shares /= sizes[:, np.newaxis]
        errors = np.eye(5)[values] - shares[buckets]
        for (a, b), first, width in zip(
            marginals.pairs, marginals.first_cell, marginals.widths, strict=True
        ):
            cell = qi_codes[:, a] * max(width, 1) + (qi_codes[:, b] if width else 0)
            expected = np.zeros((cell.max() + 1, 5))
            np.add.at(expected, cell, errors)
            found = marginals.errors[first : first + len(expected)]
            assert found == pytest.approx(expected, abs=1e-9)

    def test_no_bucket_changes_its_values(self) -> None:
        qi_codes, values = correlated_table(300)
        buckets = np.unique(np.random.default_rng(1).integers(60, size=300), return_inverse=True)[1]
        before = Counter(zip(buckets.tolist(), values.tolist(), strict=True))
        original = buckets.copy()
        refine(
            buckets, qi_codes, values, 5, np.random.default_rng(2), n_terms=10**6, pulse=UNLIMITED
        )
        assert (buckets != original).any()
        assert Counter(zip(buckets.tolist(), values.tolist(), strict=True)) == before

    def test_the_objective_falls_with_each_pass(self, monkeypatch: pytest.MonkeyPatch) -> None:
        qi_codes, values = correlated_table(400)
        start = np.arange(400) % 80
        objectives = []
        for most in (1, 2, 5, 20):
            monkeypatch.setattr(refinement, "_MOST_PASSES", most)
            marginals = refine(
                start.copy(),
                qi_codes,
                values,
                5,
                np.random.default_rng(2),
                n_terms=10**12,
                pulse=UNLIMITED,
            )
            objectives.append(marginals.objective)
        assert objectives == sorted(objectives, reverse=True)
        assert objectives[-1] < objectives[0]

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
    def test_buckets_are_private_and_numbered_by_size(self) -> None:
        qi_codes, values = correlated_table(1000)
        privacy = FPrimePrivacy((Fraction(1, 4), Fraction(3, 10), HALF, ANY, HALF))
        found = assign_locally(qi_codes, values, privacy, 20, SecureRandom())
        assert privately(found, values, privacy, 20)
        sizes = np.bincount(found.bucket_of_record)
        assert (np.diff(sizes) >= 0).all()
        assert found.setting.pairs == tuple(sorted(Counter(sizes.tolist()).items()))

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
        queries = random_queries(
            200,
            [12, 4, 3],
            5,
            np.random.default_rng(0),
            dimensionality=[1, 2],
            selectivity=[0.1],
        )
        found = assign_locally(qi_codes, values, privacy, 10, np.random.default_rng(0))
        shuffled = np.random.default_rng(0).permutation(3000)
        randomly = assign_locally(qi_codes[shuffled], values, privacy, 10, np.random.default_rng(0))
        local = count_errors(found.bucket_of_record, qi_codes, values, queries).mean
        random = count_errors(randomly.bucket_of_record, qi_codes, values, queries).mean
        assert local < random / 2

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

    def test_no_quasi_identifiers(self) -> None:
        values = codes(0, 1, 0, 1)
        privacy = FPrimePrivacy((HALF, HALF))
        found = assign_locally(np.empty((4, 0), np.int32), values, privacy, 2, SecureRandom())
        assert found.setting.pairs == ((2, 2),)

    def test_empty_table(self) -> None:
        found = assign_locally(
            np.empty((0, 2), np.int32), codes(), FPrimePrivacy((HALF,)), 5, SecureRandom()
        )
        assert (found.bucket_of_record.size, found.setting.pairs) == (0, ())

    def test_arguments_are_not_changed(self) -> None:
        qi_codes, values = correlated_table(100)
        before = qi_codes.copy(), values.copy()
        assign_locally(qi_codes, values, FPrimePrivacy((HALF,) * 5), 10, SecureRandom())
        assert (qi_codes == before[0]).all()
        assert (values == before[1]).all()

    def test_ineligible(self) -> None:
        with pytest.raises(IneligibleError, match="no publication"):
            assign_locally(
                np.zeros((3, 1), np.int32), codes(0, 0, 1), FPrimePrivacy((HALF, ANY)), 5,
                SecureRandom(),
            )  # fmt: skip

    def test_infeasible(self) -> None:
        """Three halves and two others do not fit buckets of two."""
        values, privacy = codes(0, 0, 1, 1, 2), FPrimePrivacy((HALF, HALF, HALF))
        with pytest.raises(InfeasibleError, match="at most two sizes") as caught:
            assign_locally(np.zeros((5, 1), np.int32), values, privacy, 2, SecureRandom())
        assert caught.value.hint

    def test_max_bucket_size_below_the_smallest_bucket(self) -> None:
        with pytest.raises(InfeasibleError, match="smaller than the smallest possible bucket"):
            assign_locally(
                np.zeros((3, 1), np.int32), codes(0, 1, 2), FPrimePrivacy((THIRD,) * 3), 2,
                SecureRandom(),
            )  # fmt: skip

    @pytest.mark.parametrize("size", [0, 5001])
    def test_max_bucket_size_out_of_range(self, size: int) -> None:
        with pytest.raises(InvalidParameterError, match="max_bucket_size"):
            assign_locally(
                np.zeros((1, 1), np.int32), codes(0), FPrimePrivacy((ANY,)), size, SecureRandom()
            )

    @pytest.mark.parametrize(
        ("qi_codes", "values"),
        [
            (np.zeros((2, 1), np.int32), codes(0)),
            (np.zeros(1, np.int32), codes(0)),
            (np.zeros((1, 1), np.int32), codes(2)),
            (np.zeros((1, 1), np.int32), codes(-1)),
            (np.full((1, 1), -1, np.int32), codes(0)),
        ],
    )
    def test_arrays_that_do_not_match(self, qi_codes: np.ndarray, values: np.ndarray) -> None:
        with pytest.raises(InvalidParameterError, match=r"code|threshold"):
            assign_locally(qi_codes, values, FPrimePrivacy((ANY, ANY)), 5, SecureRandom())

    def test_too_many_limits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_MAX_CELLS", 30)
        with pytest.raises(InvalidParameterError, match="too much memory") as caught:
            assign_locally(
                np.zeros((10, 1), np.int32), codes(*range(10)), FPrimePrivacy((HALF,) * 10), 10,
                SecureRandom(),
            )  # fmt: skip
        assert caught.value.hint == "lower max_bucket_size to at most 2"

    def test_heartbeat_ends_each_step(self) -> None:
        qi_codes, values = correlated_table(3_000)
        privacy = FPrimePrivacy((HALF,) * 5)
        for beats in (0, 1, 2, 4, 20):
            with pytest.raises(CanceledError):
                assign_locally(
                    qi_codes,
                    values,
                    privacy,
                    10,
                    np.random.default_rng(0),
                    pulse=Pulse(heartbeat=StopAfter(beats)),
                )
