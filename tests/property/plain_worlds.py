"""Small sequences of releases, and their worlds counted in the plainest way."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import permutations, product

import numpy as np
from hypothesis import strategies as st

from kanon_db.algorithms.releases.bucket_releases import BucketRelease, BucketReleases


@dataclass(frozen=True)
class Case:
    """People by tuple, with their values; each release has its buckets of (person or None, value).

    A person is a tuple and a rank; None is a counterfeit.
    """

    values: dict[tuple[int, int], int]
    releases: list[list[list[tuple[tuple[int, int] | None, int]]]]
    n_tuples: int
    n_values: int

    @property
    def arrays(self) -> list[BucketRelease]:
        return [_as_arrays(buckets) for buckets in self.releases]

    @property
    def together(self) -> BucketReleases:
        return BucketReleases.of(self.arrays, self.n_tuples, self.n_values)


def _as_arrays(buckets: list[list[tuple[tuple[int, int] | None, int]]]) -> BucketRelease:
    placed = Counter((who[0], b) for b, bucket in enumerate(buckets) for who, _ in bucket if who)
    cells = Counter((b, value) for b, bucket in enumerate(buckets) for _, value in bucket)
    rows = np.array(
        [(*pair, n) for pair, n in sorted(placed.items())], dtype=np.int64
    ).reshape(-1, 3)  # fmt: skip
    contents = np.array(
        [(*pair, n) for pair, n in sorted(cells.items())], dtype=np.int64
    ).reshape(-1, 3)  # fmt: skip
    return BucketRelease(*rows.T, *contents.T)


@st.composite
def cases(draw: st.DrawFn, counterfeits: bool = True) -> Case:
    """Two or three releases of at most six people, who come and go; some have equal tuples."""
    sizes = draw(st.lists(st.sampled_from([1, 1, 1, 2, 3]), min_size=2, max_size=5))
    while sum(sizes) > 6:
        sizes.pop()
    n_values = draw(st.integers(2, 3))
    people = [(t, rank) for t, size in enumerate(sizes) for rank in range(size)]
    values = {who: draw(st.integers(0, n_values - 1)) for who in people}
    n_releases = draw(st.integers(2, 3))
    releases = []
    for _ in range(n_releases):
        numbers = [draw(st.sampled_from([size, size, size - 1])) for size in sizes]
        n_buckets = draw(st.integers(1, 3))
        buckets: list[list[tuple[tuple[int, int] | None, int]]] = [[] for _ in range(n_buckets)]
        for who in people:
            if who[1] < numbers[who[0]]:
                buckets[draw(st.integers(0, n_buckets - 1))].append((who, values[who]))
        if counterfeits and draw(st.booleans()):
            buckets[0].append((None, draw(st.integers(0, n_values - 1))))
        releases.append([bucket for bucket in buckets if bucket])
    return Case(values, releases, len(sizes), n_values)


def plain_posterior(case: Case) -> dict[int, dict[int, Fraction]]:
    """Each tuple's share of worlds with each value, of those that are in some release.

    People's values are tried one by one, and for each, in each release, every way to seat the
    people of a tuple in its buckets.
    """
    present = [Counter(who[0] for bucket in r for who, _ in bucket if who) for r in case.releases]
    most = {t: max(numbers[t] for numbers in present) for t in range(case.n_tuples)}
    people = [(t, rank) for t, number in most.items() for rank in range(number)]
    worlds = 0
    having: Counter[tuple[int, int]] = Counter()
    for chosen in product(range(case.n_values), repeat=len(people)):
        values = dict(zip(people, chosen, strict=True))
        weight = 1
        for buckets, numbers in zip(case.releases, present, strict=True):
            weight *= _seatings(buckets, numbers, values)
            if not weight:
                break
        worlds += weight
        for who, value in values.items():
            having[who[0], value] += weight
    assert worlds
    return {
        t: {
            v: Fraction(having[t, v], worlds * number) for v in range(case.n_values) if having[t, v]
        }
        for t, number in most.items()
        if number
    }


def _seatings(
    buckets: list[list[tuple[tuple[int, int] | None, int]]],
    numbers: Counter[int],
    values: dict[tuple[int, int], int],
) -> int:
    """Count the ways to seat the people so that each bucket holds its values."""
    here = sorted(numbers)
    by_tuple = []
    for t in here:
        seats = [b for b, bucket in enumerate(buckets) for who, _ in bucket if who and who[0] == t]
        by_tuple.append(list(_distinct(tuple(seats))))
    found = 0
    for ways in product(*by_tuple):
        left = [Counter(value for _, value in bucket) for bucket in buckets]
        for t, way in zip(here, ways, strict=True):
            for rank, b in enumerate(way):
                left[b][values[t, rank]] -= 1
        if min((n for bucket in left for n in bucket.values()), default=0) >= 0:
            orders = 1
            for bucket in left:
                # Which of the spare values is which counterfeit's.
                spare = list(bucket.elements())
                orders *= len(set(permutations(spare)))
            found += orders
    return found


@cache
def _distinct(seats: tuple[int, ...]) -> frozenset[tuple[int, ...]]:
    return frozenset(permutations(seats))
