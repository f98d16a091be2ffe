"""Classes of one numeric attribute: nested ones, in time linear in the records, are optimal."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kanon_db.algorithms.generalization import optimal, prove_least_loss
from kanon_db.algorithms.generalization._class_search import DistinctRecords
from kanon_db.algorithms.generalization.optimal_classes import (
    MOST_K,
    best_partition,
    has_nested_optimum,
    members_of_sets,
)
from kanon_db.algorithms.generalization.set_partition import MAX_RECORDS, set_partition
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse
from kanon_db.algorithms.recoding import Attribute, ExactLoss, Microdata
from kanon_db.algorithms.recoding.microdata import sort_order
from kanon_db.errors import InvalidParameterError
from tests.generalization_plain import numeric_table, optimal_loss, random_table, total_loss


def table_of(values: list[int] | np.ndarray) -> Microdata:
    return numeric_table([[int(value)] for value in values])


def in_clusters(random: np.random.Generator, n: int, k: int) -> np.ndarray:
    """Clusters of k to 2k - 1 values, with single values between them, in any order."""
    values: list[int] = []
    place = 0
    while len(values) < n:
        place += int(random.integers(1, 9))
        size = random.integers(k, 2 * k) if random.random() < 0.55 else random.integers(1, 3)
        values += (place + random.integers(0, random.integers(1, 4), size)).tolist()
    return random.permutation(values[:n])


def least_loss(table: Microdata, k: int) -> Fraction:
    """Least loss over all partitions."""
    exact = ExactLoss.of(table, "ncp")
    records, sets = members_of_sets(table.n_records)
    sizes = np.bincount(sets)
    losses = np.full(sizes.size, np.inf)
    losses[1:] = exact.of_classes(records, np.cumsum(sizes)[1:])
    losses[sizes < k] = np.inf
    return int(best_partition(losses, 0.0, 0)[1]) * exact.unit


def n_runs(table: Microdata, class_of_record: np.ndarray) -> int:
    """How often the class changes from one record to the next in sorted order, and one."""
    return int(np.count_nonzero(np.diff(class_of_record[sort_order(table)]))) + 1


@settings(max_examples=40)
@given(st.data())
def test_no_classes_of_a_numeric_attribute_lose_less(data: st.DataObject) -> None:
    """With NULLs, ties, weights and bounds beyond the data."""
    n = data.draw(st.integers(2, 10))
    codes = data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))
    numbers = np.cumsum(data.draw(st.lists(st.integers(1, 9), min_size=6, max_size=6)), dtype=float)
    upper = float(numbers[-1]) + data.draw(st.integers(0, 3))
    if data.draw(st.booleans()):
        numbers[-1] = np.nan
    weight = data.draw(st.sampled_from([1.0, 0.3]))
    table = Microdata(
        np.array(codes)[:, np.newaxis], (Attribute(6, numbers, float(numbers[0]), upper, weight),)
    )
    k = data.draw(st.integers(2, min(n, 4)))
    found = optimal(table, k)
    assert np.bincount(found.class_of_record).min() >= k
    assert found.proof.objective == total_loss(table, found.class_of_record)
    least = least_loss(table, k)
    assert found.proof.lower_bound <= least <= found.proof.objective
    has_nulls = bool(np.isnan(numbers[table.codes[:, 0]]).any())
    assert found.proof.is_optimal or has_nulls
    if found.proof.is_optimal:
        assert prove_least_loss(table, k, np.zeros(n, np.int64)).lower_bound == least


@pytest.mark.parametrize(("k", "n", "n_tables"), [(2, 12, 40), (3, 13, 40), (4, 15, 12)])
def test_nested_classes_are_optimal(k: int, n: int, n_tables: int) -> None:
    """Up to 15 records: enough for three classes of 4, 5 and 6, one within another."""
    random, n_nested = np.random.default_rng(k), 0
    for _ in range(n_tables):
        table = table_of(in_clusters(random, n, k))
        found = optimal(table, k)
        assert found.proof.gap == 0
        assert found.proof.objective == least_loss(table, k)
        n_nested += n_runs(table, found.class_of_record) > found.class_of_record.max() + 1
    assert n_nested


def test_a_class_lies_around_several() -> None:
    table = table_of([0, *[4] * 4, *[6] * 4, 10, 11])
    found = optimal(table, 3)
    around = found.class_of_record[0]
    assert np.flatnonzero(found.class_of_record == around).tolist() == [0, 9, 10]
    assert found.proof.objective == least_loss(table, 3) == 3


@pytest.mark.parametrize("k", [2, 3])
def test_frequent_values_divide_the_table(k: int) -> None:
    """Values of at least 7k records, at the ends and side by side, too."""
    random = np.random.default_rng(k)
    for n_copies in ([7 * k, 7 * k + 1], [9 * k], [7 * k - 1, 8 * k], [7 * k, 7 * k]):
        frequent = np.repeat(random.choice(20, len(n_copies), replace=False), n_copies)
        table = table_of(np.concatenate([frequent, random.integers(0, 20, 6 * k)]))
        found = optimal(table, k)
        assert total_loss(table, found.class_of_record) == found.proof.objective
        exact = ExactLoss.of(table, "ncp")
        types = DistinctRecords.of(exact, sort_order(table))
        upper = exact.units_of(found.class_of_record) + 1
        other = set_partition(types, k, upper, pulse=UNLIMITED)
        assert other.proof.is_optimal
        assert other.proof.objective == upper - 1


def test_out_of_time_classes_of_neighbors_are_left() -> None:
    random = np.random.default_rng(3)
    table = table_of(random.integers(0, 500, 400))
    best, found = optimal(table, 3), optimal(table, 3, pulse=Pulse(1e-9))
    assert best.proof.gap == 0
    assert found.proof.lower_bound <= best.proof.objective <= found.proof.objective
    assert 0 < found.proof.gap < 1
    assert n_runs(table, found.class_of_record) == found.class_of_record.max() + 1


def test_many_records_have_a_proof() -> None:
    """More than the search of other tables takes: distinct numbers, decimals, many copies."""
    random, n, k = np.random.default_rng(4), 20_000, 10
    for column in (
        random.permutation(n).astype(np.float64),
        np.round(random.normal(50_000, 15_000, n), 2),
        random.integers(0, 90, n).astype(np.float64) ** 2,
    ):
        numbers, codes = np.unique(column, return_inverse=True)
        attribute = Attribute(numbers.size, numbers, float(numbers[0]), float(numbers[-1]))
        table = Microdata(codes[:, np.newaxis].astype(np.int32), (attribute,))
        found = optimal(table, k)
        assert found.proof.gap == 0
        assert np.bincount(found.class_of_record).min() >= k
        exact = ExactLoss.of(table, "ncp")
        assert exact.is_exact
        assert exact.total(found.class_of_record) == found.proof.objective
        groups = np.empty(n, dtype=np.int64)
        groups[sort_order(table)] = np.arange(n) // k
        assert found.proof.objective <= exact.total(groups)
        assert prove_least_loss(table, k, groups).lower_bound == found.proof.objective


def test_the_bound_of_rounded_losses_is_lowered() -> None:
    random = np.random.default_rng(5)
    column = np.sort(random.random(8))
    attribute = Attribute(8, column, float(column[0]), float(column[-1]))
    table = Microdata(np.arange(8)[:, np.newaxis], (attribute,))
    assert not ExactLoss.of(table, "ncp").is_exact
    found, least = optimal(table, 3), optimal_loss(table, 3)
    assert found.proof.lower_bound <= least <= found.proof.lower_bound + Fraction(1, 10**9)


def test_the_bound_of_rounded_losses_is_lowered_with_nulls() -> None:
    """A NULL beside 0 costs two whole losses, and numbers alone three."""
    numbers = np.array([0.0, 1.0, np.nan])
    table = Microdata([[0], [1], [1], [2], [2], [2]], (Attribute(3, numbers, 0.0, 1.0, 1e-9),))
    assert not ExactLoss.of(table, "ncp").is_exact
    proof, least = optimal(table, 2).proof, optimal_loss(table, 2)
    assert least == 2 * Fraction(1e-9) < proof.objective
    assert proof.lower_bound <= least <= proof.lower_bound * (1 + Fraction(1, 10**9))


def test_which_tables_have_nested_optima() -> None:
    random = np.random.default_rng(6)
    assert has_nested_optimum(random_table(random, 50, "n", 9), MOST_K)
    assert not has_nested_optimum(random_table(random, 500, "n", 9), MOST_K + 1)
    assert not has_nested_optimum(random_table(random, 50, "c", 9), 2)
    assert not has_nested_optimum(random_table(random, 50, "nn", 9), 2)
    numbers = np.append(np.arange(MAX_RECORDS, dtype=np.float64), np.nan)
    attribute = Attribute(MAX_RECORDS + 1, numbers, 0, MAX_RECORDS)
    few_nulls = Microdata(np.arange(MAX_RECORDS + 1)[:, np.newaxis], (attribute,))
    assert not has_nested_optimum(few_nulls, 2)
    with pytest.raises(InvalidParameterError, match="too many records for an exact search"):
        optimal(few_nulls, 2)
