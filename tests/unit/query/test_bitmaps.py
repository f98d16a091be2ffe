"""Counting with bitmaps against counting bucket by bucket."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.answers._bitmap_sums import (
    TruthBitmaps,
    count_exactly,
    evaluate,
    in_buckets,
    is_readable,
)
from kanon_db.query.expressions import (
    INTEGER,
    TEXT,
    And,
    Arithmetic,
    Case,
    Column,
    Comparison,
    Constant,
    Not,
    NullTest,
    Or,
    TruthTest,
    by_attribute,
)
from kanon_db.query.formulas import (
    ValueTotals,
    Weighed,
    corrected,
    count_buckets,
    sum_buckets,
    trust,
)
from tests.expected_counts import of_buckets

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
    sizes, n_buckets = [size for size, _ in classes], [n for _, n in classes]
    records = _bitmap(classes, [records for _, records, _ in buckets])
    values = _bitmap(classes, [values for _, _, values in buckets])
    in_records, in_values = (in_buckets(bits, sizes, n_buckets) for bits in (records, values))
    assert [n for counts in in_records for n in counts.tolist()] == [
        sum(slots) for _, slots, _ in buckets
    ]
    found, doubt = count_buckets(in_records, in_values, sizes)
    counted = corrected(found, (0.0, doubt), trust("random", is_paper=False))
    expected = of_buckets([(size, sum(records), sum(values)) for size, records, values in buckets])
    assert counted.estimate == pytest.approx(expected[0], rel=1e-12)
    assert counted.std_error == pytest.approx(expected[1], rel=1e-9)
    assert (counted.lower_bound, counted.upper_bound) == expected[2:]
    # Buckets without a matching record tell nothing but the sums of all values.
    totals = ValueTotals.of(in_values, sizes)
    some = [counts > 0 for counts in in_records]
    here = (
        [own[at] for own, at in zip(counts, some, strict=True)]
        for counts in (in_records, in_values)
    )
    assert count_buckets(*here, sizes, totals) == (found, doubt)


VALUES = st.sampled_from([-3.5, -1.0, 0.0, 0.25, 2.0, 7.0])


@given(
    buckets=st.integers(2, 5).flatmap(
        lambda size: st.lists(
            st.tuples(st.lists(VALUES, min_size=1, max_size=size), st.integers(1, size)),
            min_size=1, max_size=2,
        ).map(lambda found: (size, found))
    ),
    is_average=st.booleans(),
)  # fmt: skip
def test_sums_follow_from_all_matchings(buckets, is_average):
    """Each choice of s of a bucket's records is equally likely; the rest of them has no value."""
    size, found = buckets
    weighed = Weighed(
        *np.array(
            [[len(x), sum(x), sum(v * v for v in x), sum(v for v in x if v > 0),
              sum(v for v in x if v < 0), min(x), max(x)] for x, _ in found], dtype=float,
        ).T
    )  # fmt: skip
    others = [np.array([s for _, s in found], dtype=np.uint8)]
    matched = sum_buckets([weighed], others, [size], is_average=is_average)
    assert matched is not None
    choices = [list(combinations([*x, *[None] * (size - len(x))], s)) for x, s in found]
    worlds = [
        [v for chosen in world for v in chosen if v is not None] for world in product(*choices)
    ]
    sums, counts = (np.array([f(world) for world in worlds], dtype=float) for f in (sum, len))
    mean = sums.mean() / counts.mean()
    reached = sums / np.maximum(counts, 1) if is_average else sums
    assert matched.estimate == pytest.approx(mean if is_average else sums.mean(), abs=1e-9)
    rest = sums - mean * counts if is_average else sums
    assert matched.variance == pytest.approx(rest.var(), abs=1e-9)
    assert matched.lower_bound <= reached[counts > 0].min() + 1e-9
    assert matched.upper_bound >= reached[counts > 0].max() - 1e-9


RECORDS = 6
A, B, C = (Column(name, f'"{name}"', TEXT) for name in "abc")
CONDITIONS = [Comparison("=", A, Constant("1", INTEGER)), NullTest(B), NullTest(C)]
PREDICATES = st.recursive(
    st.sampled_from(CONDITIONS),
    lambda inner: st.one_of(
        inner.map(Not),
        st.builds(
            Case,
            st.lists(st.tuples(inner, inner), min_size=1, max_size=2).map(tuple),
            st.none() | inner,
        ),
        st.builds(TruthTest, inner, st.sampled_from(["true", "false", "unknown"]), st.booleans()),
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
        case Case(branches, default):
            for when, then in branches:
                if _one_by_one(when, truths, record):
                    return _one_by_one(then, truths, record)
            return None if default is None else _one_by_one(default, truths, record)
        case TruthTest(part, wanted, negated):
            inner = _one_by_one(part, truths, record)
            return (inner is {"true": True, "false": False, "unknown": None}[wanted]) != negated
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
    def read(condition):
        """Conditions on one attribute come as a whole, as the server would get them."""
        found = [_one_by_one(condition, truths, record) for record in range(RECORDS)]
        return TruthBitmaps(
            *(
                sum(1 << record for record, truth in enumerate(found) if truth is wanted)
                for wanted in (True, None)
            )
        )

    assert is_readable(predicate, frozenset("abc"))
    truth = evaluate(predicate, read, (1 << RECORDS) - 1)
    for record in range(RECORDS):
        expected = _one_by_one(predicate, truths, record)
        assert (truth.true >> record) & 1 == (expected is True)
        assert (truth.unknown >> record) & 1 == (expected is None)


def test_no_predicate_is_true_everywhere():
    assert evaluate(None, lambda _: TruthBitmaps(0, 0), 0b111) == TruthBitmaps(0b111, 0)


def test_counts_on_one_side_are_exact():
    counted = count_exactly(0b10110)
    assert (counted.estimate, counted.std_error) == (3.0, 0.0)
    assert counted.lower_bound == counted.upper_bound == 3


def test_parts_of_one_attribute_are_read_together():
    one, other, third = CONDITIONS
    both = by_attribute(And((one, other, Not(one), third)))
    assert both == And((And((one, Not(one))), other, third))


def test_what_bitmaps_cannot_tell():
    with_bitmaps = frozenset("ab")
    assert not is_readable(CONDITIONS[2], with_bitmaps)
    assert not is_readable(And((CONDITIONS[0], CONDITIONS[2])), with_bitmaps)
    assert not is_readable(Comparison("=", A, B), with_bitmaps)
    assert is_readable(Or((CONDITIONS[0], CONDITIONS[1])), with_bitmaps)
    assert not is_readable(Constant("true", TEXT), frozenset())
    two = Case(((CONDITIONS[0], CONDITIONS[1]),), None)
    assert is_readable(two, with_bitmaps)
    ratio = Comparison("=", Arithmetic("/", A, A), A)
    assert not is_readable(Case(((CONDITIONS[1], ratio),), None), with_bitmaps)
