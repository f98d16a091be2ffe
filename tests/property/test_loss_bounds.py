"""The bound on the loss of all classes of a table, beside all of its classes."""

import importlib
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kanon_db.algorithms.generalization import prove_least_loss
from kanon_db.algorithms.generalization._class_search import ClassSearch, DistinctRecords
from kanon_db.algorithms.ground.computation import UNLIMITED
from kanon_db.algorithms.recoding import Attribute, ExactLoss, Microdata
from kanon_db.algorithms.recoding.microdata import sort_order
from tests.generalization_plain import numeric_table, optimal_loss, total_loss
from tests.property.generalization_tables import tables

# The package's attribute of this name is the function.
set_partition = importlib.import_module("kanon_db.algorithms.generalization.set_partition")

CASES = tables(9, 4, least_records=2)


@settings(max_examples=25)
@given(CASES)
def test_the_bound_on_a_small_table_is_the_least_loss_of_all_partitions(
    case: tuple[Microdata, int],
) -> None:
    table, k = case[0], max(case[1], 2)
    whole = np.zeros(table.n_records, dtype=np.int64)
    proof = prove_least_loss(table, k, whole)
    assert proof.objective == total_loss(table, whole)
    assert proof.lower_bound == optimal_loss(table, k)


@settings(max_examples=25)
@given(CASES, st.booleans())
def test_no_classes_lose_less_than_the_bound(case: tuple[Microdata, int], is_large: bool) -> None:
    """The bound before a search of all classes closes the gap; of a large table, without cuts."""
    table, k = case[0], max(case[1], 2)
    whole = np.zeros(table.n_records, dtype=np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(set_partition, "_enumerate", lambda *_: None)
        patch.setattr(set_partition._ColumnGeneration, "_prove", lambda _: None)
        if is_large:
            patch.setattr(set_partition, "MAX_RECORDS", 0)
        bound = prove_least_loss(table, k, whole).lower_bound
    assert bound <= optimal_loss(table, k)
    # No weaker than what each record loses at least in a class of k records
    exact = ExactLoss.of(table, "ncp")
    boxes = list(combinations(range(table.n_records), k))
    losses = exact.of_classes(np.array(boxes).reshape(-1), k * np.arange(1, len(boxes) + 1)) // k
    least = sum(
        min(loss for box, loss in zip(boxes, losses.tolist(), strict=True) if record in box)
        for record in range(table.n_records)
    )
    assert bound >= least * exact.unit * 99 / 100


def test_no_classes_lose_less_than_a_bound_of_rounded_losses() -> None:
    """Numbers whose fractions have no small denominator: a unit would be too small."""
    random = np.random.default_rng(5)
    for _ in range(12):
        column = np.sort(random.random(7))
        numbers = Attribute(7, column, float(column[0]), float(column[-1]))
        codes = np.column_stack([np.arange(7), random.integers(0, 3, 7)]).astype(np.int32)
        table = Microdata(codes, (numbers, Attribute(3, weight=float(random.random()))))
        assert not ExactLoss.of(table, "ncp").is_exact
        least = optimal_loss(table, 2)
        bound = prove_least_loss(table, 2, np.zeros(7, dtype=np.int64)).lower_bound
        assert bound <= least <= bound + Fraction(1, 10**9)


@settings(max_examples=40)
@given(CASES, st.integers(1, 3), st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_no_class_is_charged_more_than_it_loses(
    case: tuple[Microdata, int], quota: int, tolerance: int, seed: int
) -> None:
    """Whatever the solver says, and although only some of the classes are listed."""
    table, k = case[0], max(case[1], 2)
    exact, order = ExactLoss.of(table, "ncp"), sort_order(table)
    types = DistinctRecords.of(exact, order)
    random = np.random.default_rng(seed)
    duals = random.integers(-5, types.largest_loss // 2 + 6, types.copies.size)
    search = ClassSearch(types, k, duals, -tolerance, capacity=10_000, quota=quota, pulse=UNLIMITED)
    classes = search.all()
    assert classes is not None
    lowered = duals.copy()
    set_partition._lower_duals(lowered, classes.members, search.reduced_costs, search.limits)
    assert (lowered <= duals).all()
    of_record = np.repeat(lowered, types.copies)
    for size in range(k, 2 * k):
        for members in combinations(range(table.n_records), size):
            loss = exact.of_classes(order[list(members)], np.array([size]))[0]
            assert of_record[list(members)].sum() <= loss


def test_many_copies_of_few_records_have_a_bound() -> None:
    table = numeric_table([[value] for value in (0, 0, 1, 3, 3, 3) * 20_000 + (9,)])
    proof = prove_least_loss(table, 5, np.minimum(table.codes[:, 0], 2))
    assert proof.objective == 60_001 * Fraction(6, 9)
    # Best: 9 with four times 3, and all others with their like.
    assert 3 <= proof.lower_bound <= 5 * Fraction(6, 9)


def test_classes_of_neighbors_are_not_always_best() -> None:
    table = numeric_table([[0], [5], [5], [5], [10]])
    of_neighbors = ([0, 0, 0, 0, 0], [0, 0, 1, 1, 1], [0, 0, 0, 1, 1])
    least = min(total_loss(table, np.array(classes)) for classes in of_neighbors)
    assert least == Fraction(25, 10)
    crossing = np.array([0, 1, 1, 1, 0])
    assert total_loss(table, crossing) == Fraction(20, 10)
    assert prove_least_loss(table, 2, crossing).gap == 0
