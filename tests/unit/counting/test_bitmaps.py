"""Counting with bitmaps against counting bucket by bucket."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.counting.bitmaps import Truth, count_buckets, count_exactly, evaluate
from kanon_db.counting.predicate import And, Comparison, Literal, Not, NullTest, Or

CLASSES = st.lists(
    st.tuples(st.integers(1, 7), st.integers(1, 6)),
    min_size=1, max_size=3, unique_by=lambda pair: pair[0],
).map(sorted)  # fmt: skip


@st.composite
def counted_buckets(draw):
    """Bucket classes with, for each bucket, which slots of records and of values match."""
    classes = draw(CLASSES)
    buckets = [
        (size, draw(st.lists(st.booleans(), min_size=size, max_size=size)),
         draw(st.lists(st.booleans(), min_size=size, max_size=size)))
        for size, n in classes
        for _ in range(n)
    ]  # fmt: skip
    return classes, buckets


def _bitmap(classes, slots):
    bitmap = base = first = 0
    for size, n in classes:
        for bucket in range(n):
            for slot in range(size):
                if slots[first + bucket][slot]:
                    bitmap |= 1 << (base + slot * n + bucket)
        base += size * n
        first += n
    return bitmap


@given(counted_buckets())
def test_sums_equal_those_of_the_buckets_one_by_one(case):
    classes, buckets = case
    counted = count_buckets(
        _bitmap(classes, [records for _, records, _ in buckets]),
        _bitmap(classes, [values for _, _, values in buckets]),
        [size for size, _ in classes],
        [n for _, n in classes],
    )
    qs = [(size, sum(records), sum(values)) for size, records, values in buckets]
    estimate = sum(Fraction(q * s, n) for n, q, s in qs)
    variance = sum(
        q * Fraction(s, n) * (1 - Fraction(s, n)) * Fraction(n - q, n - 1)
        for n, q, s in qs
        if n > 1
    )
    assert counted.estimate == pytest.approx(float(estimate), rel=1e-12)
    assert counted.std_error == pytest.approx(math.sqrt(variance), rel=1e-12)
    assert counted.lower_bound == sum(max(0, q + s - n) for n, q, s in qs)
    assert counted.upper_bound == sum(min(q, s) for n, q, s in qs)


RECORDS = 6
CONDITIONS = [Comparison("a", "=", Literal("number", "1")), NullTest("b"), NullTest("c")]
PREDICATES = st.recursive(
    st.sampled_from(CONDITIONS),
    lambda inner: st.one_of(
        inner.map(Not),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: And(tuple(parts))),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Or(tuple(parts))),
    ),
    max_leaves=8,
)


def _one_by_one(predicate, truths, record):
    """SQL's three-valued logic for one record; None is unknown."""
    match predicate:
        case Not(part):
            inner = _one_by_one(part, truths, record)
            return None if inner is None else not inner
        case And(parts) | Or(parts):
            absorbing = isinstance(predicate, Or)
            inner = [_one_by_one(part, truths, record) for part in parts]
            if absorbing in inner:
                return absorbing
            return None if None in inner else not absorbing
        case _:
            return truths[CONDITIONS.index(predicate)][record]


@given(
    PREDICATES,
    st.lists(
        st.lists(st.sampled_from([True, False, None]), min_size=RECORDS, max_size=RECORDS),
        min_size=3, max_size=3,
    ),
)  # fmt: skip
def test_predicates_follow_three_valued_logic(predicate, truths):
    def bits(condition, wanted):
        row = truths[CONDITIONS.index(condition)]
        return sum(1 << record for record, truth in enumerate(row) if truth is wanted)

    truth = evaluate(predicate, lambda c: Truth(bits(c, True), bits(c, None)), (1 << RECORDS) - 1)
    for record in range(RECORDS):
        expected = _one_by_one(predicate, truths, record)
        assert (truth.true >> record) & 1 == (expected is True)
        assert (truth.unknown >> record) & 1 == (expected is None)


def test_no_predicate_is_true_everywhere():
    assert evaluate(None, lambda _: Truth(0, 0), 0b111) == Truth(0b111, 0)


def test_counts_on_one_side_are_exact():
    counted = count_exactly(0b10110)
    assert (counted.estimate, counted.std_error) == (3.0, 0.0)
    assert counted.lower_bound == counted.upper_bound == 3
