"""Counts up to each rank, and from each on, are those of the slots one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.answers.buckets.bucket_pairs import Matches, count_groups, rank_groups
from kanon_db.answers.buckets.ranked_counts import RankedSums, RanksOfPair
from kanon_db.publications.buckets.tallies import GroupCounts
from tests.unit.sizes import sizes_of

N_RANKS = 3
SLOT = st.tuples(st.integers(0, 2), st.integers(0, N_RANKS - 1), st.integers(0, 2))
"""The group of the side that is ordered (2 is none), the rank, and the other side's group."""


@st.composite
def runs(draw):
    """For some sizes, buckets of slots."""
    return [
        draw(st.lists(st.lists(SLOT, min_size=size, max_size=size), min_size=1, max_size=4))
        for size in draw(st.lists(st.integers(1, 5), min_size=1, max_size=3, unique=True))
    ]


def at_boundary(ranks: RanksOfPair, boundary: int) -> int:
    """The place of the last boundary, up to one, at which something changes."""
    return int(np.searchsorted(ranks.boundaries, boundary, "right")) - 1


def put(sums: RankedSums, buckets: list[list[tuple[int, int, int]]]) -> None:
    """Add buckets of one size, or of several: slots that one does not have are in no group."""
    sizes = sizes_of(buckets)
    padded = [[*bucket, *[(2, 0, 2)] * (sizes.largest - len(bucket))] for bucket in buckets]
    group, rank, other = np.array(padded).transpose(2, 1, 0)  # (size, n_buckets)
    place = np.where(group < 2, group * N_RANKS + rank, 2 * N_RANKS)
    sums.n_records += sum(map(len, buckets))
    sums.n_buckets += len(buckets)
    sums.add(sizes, place, GroupCounts.of(other, 2))


@given(runs(), st.sampled_from([0, 1]), st.integers(0, N_RANKS), st.booleans(), st.booleans())
def test_counts_of_sides_that_are_apart(cases, side, rank, is_above, are_together):
    if are_together:
        cases = [[bucket for buckets in cases for bucket in buckets]]
    parts = [RankedSums((2, 2), N_RANKS, side) for _ in cases]
    for one, buckets in zip(parts, cases, strict=True):
        put(one, buckets)
    sums = parts[0].begin()
    for one in parts:
        sums = sums + one
    ranks = range(rank, N_RANKS) if is_above else range(rank)
    every = [bucket for buckets in cases for bucket in buckets]
    for number in range(4):
        g, h = divmod(number, 2) if side == 0 else reversed(divmod(number, 2))
        expected = np.zeros(3)
        own, other = np.zeros(2), np.zeros(2)
        for bucket in every:
            size = len(bucket)
            q = sum(group == g and of in ranks for group, of, _ in bucket)
            s = sum(group == h for _, _, group in bucket)
            expected += q * s / size, max(q + s - size, 0), min(q, s)
            own += q, q * q / size
            other += s, s * s / size
        of_pair = sums.of_pair(number)
        at = at_boundary(of_pair, rank)
        pairs, margins = of_pair.above if is_above else of_pair.below
        got = pairs.estimate[at], pairs.lower[at], pairs.upper[at]
        assert got == pytest.approx(tuple(expected))
        of_sides = [margins.records, margins.values]
        for margin, wanted in zip(of_sides[:: 1 if side == 0 else -1], (own, other), strict=True):
            assert [margin.total[at], margin.packed[at]] == pytest.approx(wanted)


@given(
    st.integers(1, 4).flatmap(
        lambda size: st.tuples(
            st.just(size),
            st.sets(
                st.tuples(st.integers(0, size - 1), st.integers(0, size - 1), st.integers(0, 2)),
                min_size=1,
            ),
        )
    ),
    st.randoms(use_true_random=False),
)
def test_counts_of_pairs(case, random):
    size, places = case
    record, value, bucket = np.array(sorted(places)).T
    group = np.array([random.randrange(2) for _ in record])
    rank = np.array([random.randrange(N_RANKS) for _ in record])
    sizes = sizes_of([[0] * (size + random.randrange(2)) for _ in range(3)])
    matches = Matches(record, value, bucket, group, rank.astype(float), sizes)
    sums = RankedSums((2, 1), N_RANKS)
    for number, parts in rank_groups(matches, N_RANKS):
        sums.pairs.add(number, parts)
    of_pairs = [sums.of_pair(g) for g in range(2)]
    for at in range(N_RANKS + 1):
        for is_above, chosen in ((False, rank < at), (True, rank >= at)):
            own = Matches(*(part[chosen] for part in matches[:-1]), sizes)
            of_groups, counts = count_groups(own)
            for g, of_pair in enumerate(of_pairs):
                expected = counts[:, of_groups == g].sum(axis=1)
                (_, *parts), _ = of_pair.above if is_above else of_pair.below
                got = [part[at_boundary(of_pair, at)] for part in parts]
                assert got == pytest.approx(expected, abs=1e-9)
