"""The bound on the loss of all classes of a table, beside all of its classes."""

from fractions import Fraction
from itertools import combinations

import numpy as np
from hypothesis import given, settings

from kanon_db.algorithms.generalization import optimal, prove_least_loss
from kanon_db.algorithms.recoding import ExactLoss, Microdata
from tests.generalization_plain import numeric_table, total_loss
from tests.property.generalization_tables import tables

CASES = tables(9, 4, least_records=2)


@settings(max_examples=40)
@given(CASES)
def test_no_classes_lose_less_than_the_bound(case: tuple[Microdata, int]) -> None:
    table, k = case[0], max(case[1], 2)
    best = optimal(table, k)
    found = prove_least_loss(table, k, best.class_of_record)
    assert found.objective == best.proof.objective
    assert found.lower_bound <= best.proof.objective
    # No weaker than what each record loses at least in a class of k records
    exact = ExactLoss.of(table, "ncp")
    boxes = list(combinations(range(table.n_records), k))
    losses = exact.of_classes(np.array(boxes).reshape(-1), k * np.arange(1, len(boxes) + 1)) // k
    least = sum(
        min(loss for box, loss in zip(boxes, losses.tolist(), strict=True) if record in box)
        for record in range(table.n_records)
    )
    assert found.lower_bound >= least * exact.unit * 99 / 100


def test_classes_of_neighbors_are_not_always_best() -> None:
    table = numeric_table([[0], [5], [5], [5], [10]])
    of_neighbors = ([0, 0, 0, 0, 0], [0, 0, 1, 1, 1], [0, 0, 0, 1, 1])
    least = min(total_loss(table, np.array(classes)) for classes in of_neighbors)
    assert least == Fraction(25, 10)
    best = optimal(table, 2).class_of_record
    assert total_loss(table, best) == Fraction(20, 10)
    assert best[0] == best[4] != best[1]
