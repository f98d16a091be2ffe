from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kanon_db.algorithms.generalization.greedy_classes import initial
from kanon_db.algorithms.generalization.optimal_classes import optimal, split_carry
from kanon_db.algorithms.recoding.loss import ExactLoss
from kanon_db.algorithms.recoding.microdata import Microdata, sort_order
from tests.generalization_plain import assert_valid, optimal_loss, total_loss
from tests.profiles import examples
from tests.property.generalization_tables import microdata

LOSSES = st.sampled_from(["ncp", "binary"])


@settings(max_examples=examples(60))
@given(microdata(8), st.integers(1, 3), LOSSES)
def test_optimal_is_the_least_of_all_partitions(table: Microdata, k: int, loss: str) -> None:
    k = min(k, table.n_records)
    found = optimal(table, k, loss=loss)  # type: ignore[arg-type]
    assert found.proof.status == "optimal"
    assert found.proof.objective == found.proof.lower_bound == optimal_loss(table, k, loss)
    assert found.proof.objective == total_loss(table, found.class_of_record, loss)
    assert_valid(found.class_of_record, table.n_records, k)


@settings(max_examples=examples(40))
@given(microdata(24), st.integers(2, 4), st.integers(1, 4), st.integers(1, 6), LOSSES)
def test_split_carry_lies_between_optimum_and_initial_classes(
    table: Microdata, k: int, s: int, carry: int, loss: str
) -> None:
    k = min(k, table.n_records)
    exact = ExactLoss.of(table, loss)  # type: ignore[arg-type]
    best = optimal(table, k, loss=loss)  # type: ignore[arg-type]
    assert best.proof.status == "optimal"
    first = exact.total(initial(table, k).class_of_record)
    found = split_carry(table, k, s=s, carry=carry, loss=loss)  # type: ignore[arg-type]
    assert_valid(found.class_of_record, table.n_records, k)
    assert best.proof.objective <= exact.total(found.class_of_record) <= first
    # Its groups are others than the initial ones.
    found = split_carry(table, k, bubble=(2 * k + s, carry), loss=loss)  # type: ignore[arg-type]
    assert_valid(found.class_of_record, table.n_records, k)
    assert best.proof.objective <= exact.total(found.class_of_record)


@settings(max_examples=examples(30))
@given(microdata(12), st.randoms(use_true_random=False))
def test_the_order_of_records_does_not_matter(table: Microdata, random: object) -> None:
    order = np.arange(table.n_records)
    random.shuffle(order)  # type: ignore[attr-defined]
    shuffled = Microdata(table.codes[order], table.attributes)
    assert optimal(shuffled, 2).proof.objective == optimal(table, 2).proof.objective
    rows = shuffled.codes[sort_order(shuffled)]
    assert np.array_equal(rows, table.codes[sort_order(table)])
