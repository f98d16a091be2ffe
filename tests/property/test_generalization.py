"""The methods of generalization against plain versions, on small tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.generalization.greedy_classes import (
    greedy_search,
    initial,
    k_member,
    one_of_each,
)
from kanon_db.algorithms.generalization.mondrian import mondrian
from kanon_db.algorithms.generalization.optimal_classes import optimal, split_carry
from kanon_db.algorithms.generalization.postprocessing import enforce, refine, suppress
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.recoding.changing_classes import Constraint
from kanon_db.algorithms.recoding.loss import ExactLoss, Ncp
from kanon_db.algorithms.recoding.microdata import Microdata, sort_order
from kanon_db.declaration.operation import read_request
from kanon_db.errors import IneligibleError
from kanon_db.metrics.information_loss import measure_classes
from kanon_db.publications.generalized import methods
from kanon_db.publications.generalized.kind import find_classes
from kanon_db.publications.generalized.request import GeneralizedRequest
from tests import generalization_plain as plain
from tests.profiles import examples
from tests.property.generalization_tables import tables

Case = tuple[Microdata, int]
LOSSES = st.sampled_from(["ncp", "binary"])


def assert_k_anonymous(class_of_record: np.ndarray, k: int) -> None:
    """Each record is in a class, classes are numbered without gaps, and each has k records."""
    assert (class_of_record >= 0).all()
    assert np.bincount(class_of_record).min() >= k


@settings(deadline=None, max_examples=examples(80))
@given(tables(), st.sampled_from(["least_increase", "least_result"]))
def test_greedy_search_is_algorithm_2(case: Case, rule: str) -> None:
    table, k = case
    before = table.codes.copy()
    found = greedy_search(table, k, left_over=rule).class_of_record  # type: ignore[arg-type]
    expected = plain.greedy_search(table, sort_order(table), k, rule)
    assert plain.as_classes(found) == [sorted(members) for members in expected]
    assert (table.codes == before).all()


@settings(deadline=None, max_examples=examples(60))
@given(tables(), st.integers(2, 8))
def test_greedy_search_in_blocks(case: Case, block_size: int) -> None:
    table, k = case
    found = greedy_search(table, k, block_size=block_size).class_of_record
    assert_k_anonymous(found, k)
    if block_size >= np.unique(table.codes, axis=0).shape[0]:
        assert (found == greedy_search(table, k).class_of_record).all()


@settings(deadline=None, max_examples=examples(60))
@given(tables(), st.integers(0, 2**32))
def test_k_member_is_the_plain_algorithm(case: Case, seed: int) -> None:
    table, k = case
    first = int(np.random.default_rng(seed).integers(table.n_records))
    found = k_member(table, k, random=np.random.default_rng(seed)).class_of_record
    expected = plain.k_member(table, sort_order(table), k, first)
    assert plain.as_classes(found) == [sorted(members) for members in expected]


@settings(deadline=None, max_examples=examples(80))
@given(tables(), st.sampled_from(["strict", "relaxed"]))
def test_mondrian_is_the_plain_algorithm(case: Case, cut: str) -> None:
    table, k = case
    found = mondrian(table, k, cut=cut).class_of_record  # type: ignore[arg-type]
    assert_k_anonymous(found, k)
    expected = plain.mondrian(table, list(range(table.n_records)), k, cut)
    assert plain.as_classes(found) == [sorted(members) for members in expected]


@settings(deadline=None, max_examples=examples(60))
@given(tables(), st.integers(0, 2**32))
def test_loss_and_metrics_are_the_plain_ones(case: Case, seed: int) -> None:
    table, _ = case
    classes = np.random.default_rng(seed).integers(-1, 3, size=table.n_records)
    numbered = np.unique(np.append(classes, -1), return_inverse=True)[1][:-1] - 1
    weight = sum(Fraction(a.weight).limit_denominator() for a in table.attributes)
    expected = plain.loss(table, plain.as_classes(numbered)) + weight * int((numbered < 0).sum())
    assert Ncp.of(table).total(numbered) == expected
    assert measure_classes(table, classes).weighted_loss == pytest.approx(float(expected))


@settings(deadline=None, max_examples=examples(60))
@given(tables(40), st.integers(0, 2**32), st.booleans(), st.fractions(0, 1, max_denominator=10))
def test_nothing_done_afterwards_loses_more(
    case: Case, seed: int, is_random: bool, share: Fraction
) -> None:
    table, k = case
    random, ncp = np.random.default_rng(seed), Ncp.of(table)
    before = mondrian(table, k).class_of_record
    if is_random:
        most = table.n_records // k - 1
        before = random.permutation(np.arange(table.n_records) // k).clip(max=most)
    after = refine(table, before, k, random=random, effort=50).class_of_record
    assert_k_anonymous(after, k)
    fewer = suppress(table, after, k, share).class_of_record
    assert (fewer < 0).sum() <= share * table.n_records
    again = refine(table, fewer, k, random=random, effort=20).class_of_record
    assert ((again < 0) == (fewer < 0)).all()
    for classes in (fewer, again):
        assert not (classes >= 0).any() or np.bincount(classes[classes >= 0]).min() >= k
    losses = [ncp.total(classes) for classes in (before, after, fewer, again)]
    assert losses == sorted(losses, reverse=True)


@st.composite
def own_constraints(draw: st.DrawFn, n_records: int) -> Constraint:
    n_values = draw(st.integers(1, 4))
    codes = draw(st.lists(st.integers(0, n_values - 1), min_size=n_records, max_size=n_records))
    shares = st.fractions(Fraction(1, 4), 1, max_denominator=12)
    return Constraint(
        np.array(codes),
        n_values,
        l=draw(st.none() | st.integers(1, 3)),
        entropy_l=draw(st.none() | st.fractions(1, 2, max_denominator=5)),
        t=draw(st.none() | st.fractions(0, 1, max_denominator=10)),
        distance=draw(st.sampled_from(["equal", "ordered"])),
        f_prime=draw(st.none() | st.tuples(*[shares] * n_values).map(FPrimePrivacy)),
    )


@st.composite
def constraints(draw: st.DrawFn, n_records: int) -> Constraint:
    """Constraints on one to three sensitive attributes."""
    first, *others = draw(st.lists(own_constraints(n_records), min_size=1, max_size=3))
    return replace(first, also=tuple(others))


@settings(deadline=None, max_examples=examples(60))
@given(st.data())
def test_constraints_hold_whatever_is_done(data: st.DataObject) -> None:
    table, k = data.draw(tables(40))
    constraint = data.draw(constraints(table.n_records))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    whole = np.zeros(table.n_records, dtype=np.int64)
    start = greedy_search(table, k).class_of_record
    if not plain.holds_for(constraint, list(range(table.n_records))):
        with pytest.raises(IneligibleError):
            enforce(table, start, k, constraint)
        return
    enforced = enforce(table, start, k, constraint).class_of_record
    ncp = Ncp.of(table)
    assert ncp.total(enforced) <= ncp.total(whole)
    refined = refine(table, enforced, k, random=random, effort=30, constraint=constraint)
    assert ncp.total(refined.class_of_record) <= ncp.total(enforced)
    fewer = suppress(table, refined.class_of_record, k, Fraction(1, 4), constraint=constraint)
    assert ncp.total(fewer.class_of_record) <= ncp.total(refined.class_of_record)
    assert (fewer.class_of_record < 0).sum() <= table.n_records / 4
    for classes in (enforced, refined.class_of_record, fewer.class_of_record):
        for members in plain.as_classes(classes):
            assert len(members) >= k
            assert plain.holds_for(constraint, members)


METHODS = ("optimal", "split_carry", "greedy_search", "k_member", "mondrian", "initial")


def found_by(method: str, table: Microdata, k: int, constraint: Constraint) -> np.ndarray:
    """The classes that are published."""
    asked = {"source": "public.t", "publication": "p", "k": max(k, 2), "method": method}
    request, pulse = read_request(GeneralizedRequest, asked), Pulse(5)
    found: np.ndarray = find_classes(
        table, request, constraint, pulse, method=method,
        search=lambda records: getattr(methods, method)(records, request, pulse),
        on_step=lambda _name: None,
    ).result  # fmt: skip
    return found


@settings(deadline=None, max_examples=examples(40))
@given(st.data())
def test_every_method_respects_each_attribute_and_optimal_is_best(data: st.DataObject) -> None:
    """Against all partitions of a few records."""
    table, k = data.draw(tables(7, 3, least_records=2))
    k = max(k, 2)
    constraint = data.draw(constraints(table.n_records))
    allowed = [
        plain.loss(table, classes)
        for classes in partitions(list(range(table.n_records)))
        if all(len(c) >= k and plain.holds_for(constraint, c) for c in classes)
    ]
    if not plain.holds_for(constraint, list(range(table.n_records))):
        assert not allowed
        with pytest.raises(IneligibleError):
            constraint.check_eligible()
        return
    for method in METHODS:
        classes = plain.as_classes(found_by(method, table, k, constraint))
        assert sorted(record for members in classes for record in members) == list(
            range(table.n_records)
        )
        assert all(len(c) >= k and plain.holds_for(constraint, c) for c in classes), method
        least = plain.loss(table, classes)
        assert least == min(allowed) if method == "optimal" else least >= min(allowed)


def partitions(records: list[int]) -> Iterator[list[list[int]]]:
    """All ways to put records into classes."""
    if not records:
        yield []
        return
    first, *others = records
    for classes in partitions(others):
        yield [[first], *classes]
        for place, members in enumerate(classes):
            yield [*classes[:place], [first, *members], *classes[place + 1 :]]


@st.composite
def entity_constraints(draw: st.DrawFn, n_records: int) -> Constraint:
    values = draw(constraints(n_records))
    n_entities = draw(st.integers(1, n_records))
    entities = st.lists(st.integers(0, n_entities - 1), min_size=n_records, max_size=n_records)
    also = tuple(replace(one, entropy_l=None, t=None) for one in values.also)
    return replace(
        values, entropy_l=None, t=None, also=also,
        entities=np.array(draw(entities)), least_entities=draw(st.integers(1, 4)),
    )  # fmt: skip


@settings(deadline=None, max_examples=examples(100))
@given(st.data())
def test_one_entity_with_k_records_is_not_k_entities(data: st.DataObject) -> None:
    """Against counting by sets: k entities in every class, and thresholds for shares of them."""
    table, k = data.draw(tables(40))
    constraint = data.draw(entity_constraints(table.n_records))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    fewer, place = one_of_each(table, constraint.entities)
    assert (fewer.codes[place] == table.codes).all()
    assert fewer.n_records == len(
        {
            (*row, e)
            for row, e in zip(table.codes.tolist(), constraint.entities.tolist(), strict=True)
        }
    )
    if fewer.n_records < k:
        return
    start = mondrian(fewer, k).class_of_record[place]
    if not plain.holds_for(constraint, list(range(table.n_records))):
        with pytest.raises(IneligibleError):
            enforce(table, start, k, constraint)
        return
    enforced = enforce(table, start, k, constraint).class_of_record
    refined = refine(table, enforced, k, random=random, effort=30, constraint=constraint)
    share = Fraction(1, 4)
    left = suppress(table, refined.class_of_record, k, share, constraint=constraint)
    for classes in (enforced, refined.class_of_record, left.class_of_record):
        for members in plain.as_classes(classes):
            assert len(members) >= k
            assert plain.holds_for(constraint, members)
    ncp = Ncp.of(table)
    assert ncp.total(enforced) <= ncp.total(np.zeros(table.n_records, dtype=np.int64))
    assert ncp.total(refined.class_of_record) <= ncp.total(enforced)


@settings(max_examples=examples(40))
@given(tables(16, 4, least_records=2), st.integers(1, 4), st.integers(1, 6), LOSSES)
def test_split_carry_lies_between_optimum_and_initial_classes(
    case: Case, s: int, carry: int, loss: str
) -> None:
    table, k = case
    exact = ExactLoss.of(table, loss)  # type: ignore[arg-type]
    best = optimal(table, k, loss=loss)  # type: ignore[arg-type]
    assert best.proof.status == "optimal"
    first = exact.total(initial(table, k).class_of_record)
    found = split_carry(table, k, s=s, carry=carry, loss=loss)  # type: ignore[arg-type]
    plain.assert_valid(found.class_of_record, table.n_records, k)
    assert best.proof.objective <= exact.total(found.class_of_record) <= first
    # Its groups are others than the initial ones.
    found = split_carry(table, k, bubble=(2 * k + s, carry), loss=loss)  # type: ignore[arg-type]
    plain.assert_valid(found.class_of_record, table.n_records, k)
    assert best.proof.objective <= exact.total(found.class_of_record)
