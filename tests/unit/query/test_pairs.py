"""Counting and summing pairs that match against the definitions, bucket by bucket."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.answers import _bitmap_sums
from kanon_db.answers._bitmap_sums import (
    Divided,
    TruthBitmaps,
    count_exactly,
    count_joined,
    count_pairs,
    evaluate,
    in_buckets,
    is_readable,
    number_bits,
    sum_joined,
    sum_pairs,
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
    count_buckets,
    judged,
    sum_buckets,
    summed,
    trust_of_counts,
)
from tests.expected_counts import of_buckets

MOST_CLASSES = 6


@st.composite
def divided_buckets(draw):
    """Buckets of some sizes with the class, from 1, and the number at each place."""
    shape = sorted(
        draw(
            st.lists(
                st.tuples(st.integers(1, 5), st.integers(1, 6)),
                min_size=1, max_size=3, unique_by=lambda pair: pair[0],
            )
        )
    )  # fmt: skip
    n = [draw(st.integers(1, MOST_CLASSES)) for _ in "rv"]
    matches = draw(
        st.lists(
            st.lists(st.booleans(), min_size=n[1], max_size=n[1]).filter(any),
            min_size=n[0], max_size=n[0],
        ).filter(lambda rows: all(map(any, zip(*rows, strict=True))))
    )  # fmt: skip
    n_records = sum(size * number for size, number in shape)
    classes = [
        draw(st.lists(st.integers(0, most), min_size=n_records, max_size=n_records)) for most in n
    ]
    x = draw(st.lists(st.none() | st.integers(-3, 3), min_size=n_records, max_size=n_records))
    return ([size for size, _ in shape], [number for _, number in shape]), classes, matches, x


def _bitmaps(classes, n):
    return [
        sum(1 << place for place, at in enumerate(classes) if at == number)
        for number in range(1, n + 1)
    ]


def _buckets(shape):
    """The places of each bucket."""
    first = 0
    for size, n in zip(*shape, strict=True):
        for bucket in range(n):
            yield [first + slot * n + bucket for slot in range(size)]
        first += size * n


def _hits(places, classes, matches):
    """The pairs of a bucket that match, as a matrix of 0 and 1."""
    records, values = classes
    return np.array(
        [
            [bool(records[r] and values[v] and matches[records[r] - 1][values[v] - 1])
             for v in places]
            for r in places
        ],
        dtype=float,
    )  # fmt: skip


def _covariance(a, b):
    """Of the sums that a random matching takes from two matrices (Hoeffding 1951)."""
    centred = [m - m.mean(axis=0) - m.mean(axis=1)[:, None] + m.mean() for m in (a, b)]
    return (centred[0] * centred[1]).sum() / max(len(a) - 1, 1)


def _covers(hits):
    """The least of the covers that docs/understand/estimation.md names."""
    by_record, by_value, size = hits.sum(axis=1), hits.sum(axis=0), len(hits)
    full_records, full_values = (by_record == size).sum(), (by_value == size).sum()
    return min(
        (by_record > 0).sum(),
        (by_value > 0).sum(),
        full_records + (by_value > full_records).sum(),
        full_values + (by_record > full_values).sum(),
    )


def _assert_counted(case):
    shape, classes, matches, _ = case
    sides = [
        Divided(-1, _bitmaps(of, n), shape, lambda: None)
        for of, n in zip(classes, (len(matches), len(matches[0])), strict=True)
    ]
    found = count_pairs(*sides, matches)
    estimate = variance = lower = upper = 0.0
    for places in _buckets(shape):
        hits = _hits(places, classes, matches)
        estimate += hits.sum() / len(places)
        variance += _covariance(hits, hits)
        upper += _covers(hits)
        # Those that any record, or value, with a match may have instead.
        any_record, any_value = hits.sum(axis=1) > 0, hits.sum(axis=0) > 0
        all_records = any_record & (hits.sum(axis=1) == any_value.sum())
        all_values = any_value & (hits.sum(axis=0) == any_record.sum())
        lower += max(
            0,
            (hits.sum(axis=1) == len(places)).sum(),
            (hits.sum(axis=0) == len(places)).sum(),
            any_record.sum() + all_values.sum() - len(places),
            all_records.sum() + any_value.sum() - len(places),
        )
    assert found.estimate == pytest.approx(estimate)
    assert found.variance == pytest.approx(variance, abs=1e-9)
    assert (found.lower_bound, found.upper_bound) == (lower, upper)


@given(divided_buckets())
def test_counts_follow_from_the_pairs_of_each_bucket(case):
    _assert_counted(case)


@pytest.mark.parametrize("limit", ["_FEW_CODES", "_MOST_CODES"])
def test_counts_of_many_classes(limit):
    """Where there are too many codes to count each, the numbers are the same."""

    @given(divided_buckets())
    def counted(case):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_bitmap_sums, limit, 1)
            _assert_counted(case)

    counted()


@given(divided_buckets(), st.booleans(), st.booleans())
def test_sums_follow_from_the_pairs_of_each_bucket(case, is_average, is_of_values):
    shape, classes, matches, x = case
    if is_of_values:
        classes, matches = classes[::-1], list(zip(*matches, strict=True))
    own, others = (
        Divided(-1, _bitmaps(of, n), shape, lambda: None)
        for of, n in zip(classes, (len(matches), len(matches[0])), strict=True)
    )
    different = sorted({number for number in x if number is not None})
    bitmaps = [
        sum(1 << place for place, number in enumerate(x) if number == one) for one in different
    ]
    which = number_bits(bitmaps, len(bitmaps), len(x))
    found = sum_pairs(
        own, (which, np.array(different, dtype=float)), others, matches, is_average=is_average
    )
    totals = np.zeros(9)
    reached = []
    for places in _buckets(shape):
        there = np.array([x[place] is not None for place in places])
        numbers = np.array([x[place] or 0 for place in places], dtype=float)
        hits = _hits(places, classes, matches) * there[:, None]
        sums, size = hits * numbers[:, None], len(places)
        reached += [numbers[at] for at, row in enumerate(hits) if row.any()]
        highs, lows = [], []
        for rows, taken in ((hits, sums), (hits.T, sums.T)):
            ends = [
                (row[hit > 0], hit.all()) for hit, row in zip(rows, taken, strict=True) if hit.any()
            ]
            highs.append(sum(e.max() if full else max(e.max(), 0) for e, full in ends))
            lows.append(sum(e.min() if full else min(e.min(), 0) for e, full in ends))
        any_line = [(hits.sum(axis=axis) > 0).sum() for axis in (0, 1)]
        full_lines = [(hits.sum(axis=axis) == size).sum() for axis in (0, 1)]
        totals += [
            sums.sum() / size, hits.sum() / size, _covariance(sums, sums), _covariance(hits, hits),
            _covariance(sums, hits), max(lows), min(highs), max(full_lines), min(any_line),
        ]  # fmt: skip
    t, c, tt, cc, tc, t_low, t_high, c_low, c_high = totals
    if not c:
        assert found is None
        return
    if not is_average:
        expected = (t, tt, t_low, t_high, 1)
    else:
        low, high = min(reached), max(reached)
        if c_low == c_high:
            low, high = max(low, t_low / c_low), min(high, t_high / c_low)
        mean = t / c
        expected = (mean, tt - 2 * mean * tc + mean * mean * cc, low, high, c)
    numbers = found.estimate, found.variance, found.lower_bound, found.upper_bound, found.number
    assert numbers == pytest.approx(expected, abs=1e-9)


def _joined(case):
    """The pairs of each bucket as the server joins them, and the sizes of buckets."""
    shape, classes, matches, x = case
    rows, sizes = [], []
    for bucket, places in enumerate(_buckets(shape)):
        sizes.append(len(places))
        number = bucket * len(x)
        alike = [
            {key: [at for at, place in enumerate(places) if key_of(place) == key]
             for key in dict.fromkeys(map(key_of, places)) if key[0]}
            for key_of in (lambda at: (classes[0][at], x[at]), lambda at: (classes[1][at],))
        ]  # fmt: skip
        for (record, value), of_record in alike[0].items():
            for (other,), of_value in alike[1].items():
                if matches[record - 1][other - 1]:
                    ids = number + of_record[0], number + of_value[0]
                    rows.append((bucket, ids[0], len(of_record), ids[1], len(of_value),
                                 value is not None, value or 0))  # fmt: skip
    names = ["bucket", "record", "n_records", "value", "n_values", "has"]
    dtype = [*((name, ">i4") for name in names), ("x", ">f8")]
    return np.array(rows, dtype=dtype), lambda at: np.array(sizes, dtype=float)[at]


@given(divided_buckets(), st.booleans())
def test_joined_pairs_give_what_classes_do(case, is_average):
    shape, classes, matches, x = case
    pairs, sizes = _joined(case)
    own, others = (
        Divided(-1, _bitmaps(of, n), shape, lambda: None)
        for of, n in zip(classes, (len(matches), len(matches[0])), strict=True)
    )
    counted = count_pairs(own, others, matches)
    expected = counted.estimate, counted.variance, counted.lower_bound, counted.upper_bound
    found = count_joined(pairs, sizes) if pairs.size else np.zeros(4)
    assert found == pytest.approx(expected, abs=1e-9)
    different = sorted({number for number in x if number is not None})
    bitmaps = [sum(1 << at for at, number in enumerate(x) if number == one) for one in different]
    numbers = number_bits(bitmaps, len(bitmaps), len(x)), np.array(different, dtype=float)
    wanted = sum_pairs(own, numbers, others, matches, is_average=is_average)
    pairs = pairs[pairs["has"] > 0]
    if not pairs.size:
        assert wanted is None
        return
    totals, extremes = sum_joined(pairs, sizes)
    assert summed(totals.tolist(), extremes, is_average=is_average) == pytest.approx(
        wanted, abs=1e-9
    )


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
    counted = judged(found, trust_of_counts("random"), doubt=doubt)
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
