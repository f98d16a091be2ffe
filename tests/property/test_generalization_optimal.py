from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kanon_db.algorithms.generalization.greedy_classes import initial
from kanon_db.algorithms.generalization.optimal_classes import optimal, split_carry
from kanon_db.algorithms.recoding.loss import ExactLoss
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata, sort_order
from tests.profiles import examples
from tests.unit.generalization.exhaustive import assert_valid, exhaustive_optimum, total_loss

LOSSES = st.sampled_from(["ncp", "binary"])


@st.composite
def microdata(draw: st.DrawFn, max_records: int) -> Microdata:
    """Records with numeric and categorical attributes, NULLs and repeated rows among them."""
    attributes = []
    for _ in range(draw(st.integers(1, 4))):
        n_values = draw(st.integers(1, 5))
        weight = draw(st.sampled_from([1.0, 0.2, 2.5]))
        if draw(st.booleans()):
            attributes.append(Attribute(n_values, weight=weight))
            continue
        ends = st.integers(-20, 20)
        numbers = sorted(draw(st.sets(ends, min_size=n_values, max_size=n_values)))
        column = np.array(numbers, dtype=np.float64)
        lower, upper = column[0] - draw(st.integers(0, 3)), column[-1] + draw(st.integers(0, 3))
        if draw(st.booleans()):
            column[-1] = np.nan
        attributes.append(Attribute(n_values, column, lower, upper, weight))
    row = st.tuples(*(st.integers(0, attribute.n_values - 1) for attribute in attributes))
    rows = draw(st.lists(row, min_size=2, max_size=max_records))
    return Microdata(np.array(rows), tuple(attributes))


@settings(max_examples=examples(60))
@given(microdata(8), st.integers(1, 3), LOSSES)
def test_optimal_is_the_least_of_all_partitions(table: Microdata, k: int, loss: str) -> None:
    k = min(k, table.n_records)
    found = optimal(table, k, loss=loss)  # type: ignore[arg-type]
    assert found.proof.status == "optimal"
    assert found.proof.objective == found.proof.lower_bound == exhaustive_optimum(table, k, loss)
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
