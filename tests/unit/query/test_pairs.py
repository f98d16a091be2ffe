"""Counting and summing pairs that match against the definitions, bucket by bucket."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.answers import _bitmap_sums
from kanon_db.answers._bitmap_sums import (
    Divided,
    count_joined,
    count_pairs,
    numbered,
    sum_joined,
    sum_pairs,
)
from kanon_db.query.formulas import summed

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
    which = numbered(bitmaps, len(bitmaps), len(x))
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
    numbers = numbered(bitmaps, len(bitmaps), len(x)), np.array(different, dtype=float)
    wanted = sum_pairs(own, numbers, others, matches, is_average=is_average)
    pairs = pairs[pairs["has"] > 0]
    if not pairs.size:
        assert wanted is None
        return
    totals, extremes = sum_joined(pairs, sizes)
    assert summed(totals.tolist(), extremes, is_average=is_average) == pytest.approx(
        wanted, abs=1e-9
    )
