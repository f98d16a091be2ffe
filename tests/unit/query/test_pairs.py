"""Counting and summing pairs that match against the definitions, bucket by bucket."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.answers.buckets import bucket_pairs
from kanon_db.answers.buckets.bucket_pairs import Matches
from kanon_db.answers.buckets.slots import combine_truths, is_tried_whole
from kanon_db.publications import codes
from kanon_db.publications.buckets.tallies import (
    DependenceEffect,
    GroupCounts,
    Margin,
    Margins,
    MatchedPairs,
    SumsByGroup,
    Tally,
    Weighed,
    count_draws,
    judge_pairs,
    sort_slots,
    sum_slots,
    summed,
    weigh_draws,
    weigh_groups,
    weigh_slots,
)
from kanon_db.publications.codes import Sizes, chunks_of_buckets
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
from kanon_db.transfer.tries import FALSE, TRUE
from tests.expected_counts import of_buckets
from tests.unit.sizes import sizes_of

MOST_CLASSES = 6
THREE = Sizes(np.array([3]))


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


def _runs(shape, *of_places):
    """For each size, what the places of its buckets have, shape (size, n_buckets)."""
    first = 0
    for size, n in zip(*shape, strict=True):
        own = slice(first, first + size * n)
        yield size, n, *(np.array(one[own]).reshape(size, n) for one in of_places)
        first = own.stop


def _blocks_of_hits(case, are_together):
    """For each size, or for all together, which pairs match, with what the records have."""
    shape, classes, matches, x = case
    table = np.zeros((len(matches) + 1, len(matches[0]) + 1), dtype=np.uint8)
    table[1:, 1:] = matches
    numbers = [np.nan if number is None else number for number in x]
    blocks = [
        ([size] * n, table[records[:, np.newaxis], values[np.newaxis]], own)
        for size, n, records, values, own in _runs(shape, *classes, numbers)
    ]
    if are_together:
        sizes = [size for of_each, _, _ in blocks for size in of_each]
        hits = np.zeros((max(sizes), max(sizes), len(sizes)), np.uint8)
        own, first = np.full((max(sizes), len(sizes)), np.nan), 0
        for (size, *_), hits_of_size, x_of_size in blocks:
            here = slice(first, first := first + x_of_size.shape[1])
            hits[:size, :size, here], own[:size, here] = hits_of_size, x_of_size
        blocks = [(sizes, hits, own)]
    for of_each, hits, own in blocks:
        yield sizes_of([range(size) for size in of_each]), hits, own


def _expected_count(hits):
    """Estimate, variance and bounds of one bucket, by the matrix of its pairs."""
    size = len(hits)
    # Those that any record, or value, with a match may have instead.
    any_record, any_value = hits.sum(axis=1) > 0, hits.sum(axis=0) > 0
    all_records = any_record & (hits.sum(axis=1) == any_value.sum())
    all_values = any_value & (hits.sum(axis=0) == any_record.sum())
    lower = max(
        0,
        (hits.sum(axis=1) == size).sum(),
        (hits.sum(axis=0) == size).sum(),
        any_record.sum() + all_values.sum() - size,
        all_records.sum() + any_value.sum() - size,
    )
    return np.array([hits.sum() / size, _covariance(hits, hits), lower, _covers(hits)])


def _matches(hits, x, n_groups, sizes):
    """The pairs that match and have a number; a pair's group follows from its record."""
    record, value, bucket = np.nonzero(hits)
    numbers = x[record, bucket]
    has = ~np.isnan(numbers)
    parts = (part[has] for part in (record, value, bucket, record % n_groups, numbers))
    return Matches(*parts, sizes)


@given(divided_buckets(), st.booleans())
def test_counts_follow_from_the_pairs_of_each_bucket(case, are_together):
    shape, classes, matches, _ = case
    expected = sum(_expected_count(_hits(at, classes, matches)) for at in _buckets(shape))
    blocks = _blocks_of_hits(case, are_together)
    found = sum(bucket_pairs.count_all(hits, sizes) for sizes, hits, _ in blocks)
    assert found == pytest.approx(expected, abs=1e-9)


@given(divided_buckets(), st.integers(1, 3), st.booleans())
def test_counts_of_groups_follow_from_their_pairs(case, n_groups, are_together):
    shape, classes, matches, _ = case
    expected = np.zeros((4, n_groups))
    for places in _buckets(shape):
        hits = _hits(places, classes, matches)
        for group in range(n_groups):
            own = hits * (np.arange(len(places)) % n_groups == group)[:, None]
            expected[:, group] += _expected_count(own)
    sums = SumsByGroup(4)
    for sizes, hits, x in _blocks_of_hits(case, are_together):
        pairs = _matches(hits, np.zeros_like(x), n_groups, sizes)
        if pairs.group.size:
            sums.add(*bucket_pairs.count_groups(pairs))
    found = np.zeros((4, n_groups))
    found[:, sums.group] = sums.totals
    assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("x", [1e154, 1e155, -1e300])
def test_errors_of_sums_whose_squares_overflow_are_those_of_the_bounds(x):
    """Whether their variance is infinite, below 0, or no number, it is none."""
    place = np.zeros(1, np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        matches = Matches(place, place, place, place, np.array([x]), THREE)
        _, totals, least, most = bucket_pairs.sum_groups(matches)
    pairs = summed(totals[:, 0].tolist(), (least.item(), most.item()), is_average=False)
    answer = judge_pairs(pairs, DependenceEffect(0.0))
    assert not np.isfinite(pairs.variance)
    assert answer.std_error == pytest.approx(abs(x) / 2)
    assert (answer.likely_low, answer.likely_high) == (answer.lower_bound, answer.upper_bound)


@given(divided_buckets(), st.booleans(), st.booleans(), st.booleans())
def test_sums_follow_from_the_pairs_of_each_bucket(case, is_average, is_of_values, are_together):
    shape, classes, matches, x = case
    sums = SumsByGroup(9)
    for sizes, hits, own in _blocks_of_hits(case, are_together):
        pairs = _matches(hits, own, 1, sizes)
        if is_of_values:  # the same with both sides changed
            pairs = pairs._replace(record=pairs.value, value=pairs.record)
        if pairs.group.size:
            sums.add(*bucket_pairs.sum_groups(pairs))
    found = None
    if sums.group.size:
        extremes = sums.least.item(), sums.most.item()
        found = summed(sums.totals[:, 0].tolist(), extremes, is_average=is_average)
    totals = np.zeros(9)
    reached = []
    for places in _buckets(shape):
        there = np.array([x[place] is not None for place in places])
        numbers = np.array([x[place] or 0 for place in places], dtype=float)
        hits = _hits(places, classes, matches) * there[:, None]
        own_sums, size = hits * numbers[:, None], len(places)
        reached += [numbers[at] for at, row in enumerate(hits) if row.any()]
        highs, lows = [], []
        for rows, taken in ((hits, own_sums), (hits.T, own_sums.T)):
            ends = [
                (row[hit > 0], hit.all()) for hit, row in zip(rows, taken, strict=True) if hit.any()
            ]
            highs.append(sum(e.max() if full else max(e.max(), 0) for e, full in ends))
            lows.append(sum(e.min() if full else min(e.min(), 0) for e, full in ends))
        any_line = [(hits.sum(axis=axis) > 0).sum() for axis in (0, 1)]
        full_lines = [(hits.sum(axis=axis) == size).sum() for axis in (0, 1)]
        totals += [
            own_sums.sum() / size, hits.sum() / size, _covariance(own_sums, own_sums),
            _covariance(hits, hits), _covariance(own_sums, hits), max(lows), min(highs),
            max(full_lines), min(any_line),
        ]  # fmt: skip
    t, c, tt, cc, tc, t_low, t_high, c_low, c_high = totals
    if not c:
        assert found is None
        return
    if not is_average:
        expected = (t, tt, t_low, t_high, 1)
    else:
        low, high = min(reached), max(reached)
        numbers_of = max(c_low, 1), c_high
        low = max(low, min(t_low / n for n in numbers_of))
        high = min(high, max(t_high / n for n in numbers_of))
        mean = t / c
        expected = (mean, tt - 2 * mean * tc + mean * mean * cc, low, high, c)
    numbers = found.estimate, found.variance, found.lower_bound, found.upper_bound, found.number
    assert numbers == pytest.approx(expected, abs=1e-9)


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


def _slots(classes, slots):
    """For each size, the slots of its buckets, shape (size, n_buckets)."""
    first = 0
    for size, n in classes:
        yield size, np.array(slots[first : first + n], dtype=np.uint8).T
        first += n


@given(
    st.lists(st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=6), max_size=4),
    st.sampled_from([(2, 2), (400, 400)]),
)
def test_tallies_of_chunks_are_added(chunks, n_groups):
    """Whether each number has a place of its own, or only those that occur."""
    whole = Tally(n_groups, THREE.distinct)
    added = whole.begin()
    for chunk in chunks:
        of_records, q, s = np.array(chunk, dtype=np.int64).T[:, np.newaxis]
        own, of_values = whole.begin(), np.ones_like(s)
        for tally in (whole, own):
            tally.add(THREE, GroupCounts(of_records % 2, q), GroupCounts(of_values, s))
        added += own
    assert [own.tolist() for own in added.lines()] == [own.tolist() for own in whole.lines()]


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.sampled_from([(1, 1), (1, 3), (3, 2), (5, 5), (400, 400)]),
    st.data(),
)
def test_pairs_of_groups_are_counted_bucket_by_bucket(sizes, n_groups, data):
    """Slots in no group have the number after the last one, as those that a bucket lacks."""
    sides = []
    for n in n_groups:
        group = st.sampled_from([*range(min(n, 5)), n])
        buckets = [data.draw(st.lists(group, min_size=size, max_size=size)) for size in sizes]
        padded = [[*slots, *[n] * (max(sizes) - len(slots))] for slots in buckets]
        sides.append(np.array(padded, dtype=np.uint16).T)
    tally, expected = Tally(n_groups, np.arange(1, 6)), defaultdict(lambda: np.zeros(4))
    of_sides = [GroupCounts.of(side, n) for side, n in zip(sides, n_groups, strict=True)]
    tally.add(sizes_of([range(size) for size in sizes]), *of_sides)
    for size, records, values in zip(sizes, *(side.T.tolist() for side in sides), strict=True):
        for g, h in product(set(records) - {n_groups[0]}, set(values) - {n_groups[1]}):
            q, s = np.array([records.count(g)]), np.array([values.count(h)])
            expected[g * n_groups[1] + h] += count_draws(q, s, size)[:, 0]
    found = tally.groups()
    pairs = {
        number: sums
        for number, *sums in zip(*(one.tolist() for one in found), strict=True)
        if any(sums)
    }
    assert pairs == {number: pytest.approx(sums.tolist()) for number, sums in expected.items()}


@given(counted_buckets(), st.booleans())
def test_tallies_equal_the_buckets_one_by_one(case, are_drawn_from_all):
    classes, buckets = case
    sides = [[bucket[side] for bucket in buckets] for side in (1, 2)]
    parts = [(Tally((1, 1), np.arange(1, 8)), Margins((1, 1))) for _ in range(2)]
    for number, ((size, records), (_, values)) in enumerate(
        zip(*(_slots(classes, side) for side in sides), strict=True)
    ):
        assert sum_slots(records).tolist() == records.astype(int).sum(axis=0).tolist()
        tally, margins = parts[number % 2]
        margins.n_records += records.size
        margins.n_buckets += records.shape[1]
        own, beside = (GroupCounts.of_side(mask, None, 1) for mask in (records, values))
        sizes = Sizes(np.array([size]))
        margins.records.add_counts(sizes, own)
        margins.values.add_counts(sizes, beside)
        tally.add(sizes, own, beside)
    groups = (parts[0][0] + parts[1][0]).groups()
    of_pairs = (parts[0][1] + parts[1][1]).of_pairs(groups.number)
    hidden = of_pairs.hide(0.1, groups.estimate if are_drawn_from_all else None)
    numbers = [own.item() for own in groups[1:]]
    by_weights = groups.upper.item() / 2
    counted = judge_pairs(MatchedPairs(*numbers), hidden.at(0), by_weights=by_weights)
    expected = of_buckets(
        [(size, sum(records), sum(values)) for size, records, values in buckets], by_weights,
        strength=0.1, are_drawn_from_all=are_drawn_from_all,
    )  # fmt: skip
    assert counted.estimate == pytest.approx(expected[0], rel=1e-12)
    assert counted.std_error == pytest.approx(expected[1], rel=1e-9)
    assert (counted.lower_bound, counted.upper_bound) == expected[2:]


@given(
    st.integers(1, 5).flatmap(
        lambda size: st.lists(
            st.lists(
                st.tuples(st.integers(0, 3), st.none() | st.integers(-3, 3)),
                min_size=size, max_size=size,
            ),
            min_size=1, max_size=4,
        )
    )
)  # fmt: skip
def test_groups_of_a_bucket_have_their_own_counts_and_sums(buckets):
    n_groups = 3  # and who is in none of them
    group = np.array([[g for g, _ in bucket] for bucket in buckets], dtype=np.uint8).T
    numbers = [[np.nan if x is None else x for _, x in bucket] for bucket in buckets]
    x = np.array(numbers, dtype=np.float64).T
    counts = GroupCounts.of(group, n_groups)
    groups, of_buckets, weighed = weigh_groups(x, group, n_groups)
    for place, bucket in enumerate(buckets):
        at = counts.is_first[:, place]
        found = dict(zip(counts.group[at, place], counts.n[at, place], strict=True))
        assert found == {
            g: sum(own == g for own, _ in bucket)
            for g in range(n_groups)
            if any(own == g for own, _ in bucket)
        }
        wanted = {}
        for g in range(n_groups):
            own = [number for other, number in bucket if other == g and number is not None]
            if own:
                wanted[g] = _weigh(own)
        at = of_buckets == place
        assert sorted(groups[at]) == sorted(wanted)
        for g, *sums in zip(groups[at], *(part[at] for part in weighed), strict=True):
            assert sums == wanted[g]
    alone = weigh_slots(x)
    for place, bucket in enumerate(buckets):
        own = [number for _, number in bucket if number is not None]
        assert [part[place] for part in alone] == (
            _weigh(own) if own else [0, 0, 0, 0, 0, np.inf, -np.inf]
        )


@given(st.integers(1, 40) | st.sampled_from([128, 129, 300]), st.integers(1, 3), st.data())
def test_slots_are_sorted(size, n_buckets, data):
    seed = data.draw(st.integers(0, 2**32 - 1))
    slots = np.random.default_rng(seed).integers(0, 1 + seed % 300, (size, n_buckets))
    before = slots.copy()
    assert (sort_slots(slots) == np.sort(slots, axis=0)).all()
    assert (slots == before).all()


@given(
    st.lists(
        st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=4
    ),
    st.integers(1, 9) | st.just(1 << 17),
)  # fmt: skip
def test_margins_of_groups_follow_from_their_counts(buckets, n_groups):
    sizes = sizes_of(buckets)
    padded = [[*own, *[n_groups] * (sizes.largest - len(own))] for own in buckets]
    group = np.minimum(np.array(padded).T, n_groups)
    found, expected = Margin(n_groups), np.zeros((2, n_groups))
    found.add_counts(sizes, GroupCounts.of(group, n_groups))
    for bucket in buckets:
        for g in set(bucket) & {*range(n_groups)}:
            n = bucket.count(g)
            expected[:, g] += n, n * n / len(bucket)
    np.testing.assert_allclose(found.sums, expected, rtol=1e-12)
    alone, mask = Margin(1), group == 0
    alone.add_counts(sizes, GroupCounts.of_side(mask.astype(np.uint8), None, 1))
    assert alone.sums[:, 0] == pytest.approx(expected[:, 0])


def _weigh(x):
    return [len(x), sum(x), sum(v * v for v in x), sum(v for v in x if v > 0),
            sum(v for v in x if v < 0), min(x), max(x)]  # fmt: skip


@given(CLASSES, st.integers(1, 20))
def test_a_chunk_puts_back_what_it_cuts_out(classes, most):
    n_records = sum(size * n for size, n in classes)
    everywhere, copied = np.arange(n_records), np.full(n_records, -1)
    chunks = chunks_of_buckets(classes, most)
    for chunk in chunks:
        own = chunk.cut(everywhere)
        assert own.size == chunk.n_records
        chunk.put(copied, own)
    assert (copied == everywhere).all()


@given(CLASSES, st.integers(1, 20), st.integers(0, 3))
def test_blocks_are_padded_to_their_largest_bucket(classes, most, lacking):
    """Every bucket is in one block, with its size; what it lacks is as its first slot, or given."""
    n_records = sum(size * n for size, n in classes)
    (chunk,) = chunks_of_buckets(classes, n_records)
    of_slots = np.arange(n_records)
    buckets = [own.tolist() for run in chunk.runs for own in run.slots(of_slots).T]
    found = []
    for block in chunk.blocks(lambda size: codes.BYTES_AT_ONCE * size // most):
        slots, padded = block.slots(of_slots), block.slots(of_slots, -lacking)
        sizes = np.broadcast_to(block.sizes.of(slice(None)), block.n_buckets).tolist()
        assert len(slots) * len(sizes) <= most or len(sizes) == 1
        for size, own, filled in zip(sizes, slots.T.tolist(), padded.T.tolist(), strict=True):
            found.append(own[:size])
            assert filled[:size] == own[:size]
            assert {*own[size:]} <= {own[0]}
            assert {*filled[size:]} <= {-lacking}
    assert found == buckets


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
    weighed = Weighed(*np.array([_weigh(x) for x, _ in found], dtype=float).T)
    others = np.array([s for _, s in found], dtype=np.uint8)
    totals, least, most = weigh_draws(size, weighed, others)
    extremes = least.min().item(), most.max().item()
    matched = summed(totals.sum(axis=1).tolist(), extremes, is_average=is_average)
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
    def where(condition, wanted):
        """Conditions on one attribute come as a whole, as the server would get them."""
        if condition not in CONDITIONS and not is_tried_whole(condition):
            return combine_truths(condition, wanted, where)
        found = [_one_by_one(condition, truths, record) for record in range(RECORDS)]
        return np.array([truth is (wanted == TRUE) for truth in found], dtype=np.uint8)

    for wanted, truth in ((TRUE, True), (FALSE, False)):
        found = where(predicate, wanted)
        expected = [_one_by_one(predicate, truths, record) is truth for record in range(RECORDS)]
        assert found.tolist() == expected


def test_parts_of_one_attribute_are_read_together():
    one, other, third = CONDITIONS
    both = by_attribute(And((one, other, Not(one), third)))
    assert both == And((And((one, Not(one))), other, third))


def test_what_may_fail_is_tried_whole():
    """A part alone would be evaluated for values that the rest excludes."""
    assert is_tried_whole(Comparison("=", A, B))
    assert not is_tried_whole(Or((CONDITIONS[0], CONDITIONS[1])))
    ratio = Comparison("=", Arithmetic("/", A, B), A)
    assert is_tried_whole(Case(((CONDITIONS[1], ratio),), None))
    assert is_tried_whole(And((CONDITIONS[1], ratio)))
