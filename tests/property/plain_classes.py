"""Small releases of rows, and their worlds counted in the plainest way."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations, product

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.recoding.generalized_cells import Ranges, Sets
from kanon_db.algorithms.releases.row_releases import ClassFits, fits_of

N_VALUES = 2
N_CODES = 3

Person = tuple[int, int]
"""Two quasi-identifiers."""


@dataclass(frozen=True, eq=False)
class Class:
    """Ranges of the first quasi-identifier, sets of the second, and the records of rows."""

    low: int
    high: int
    members: frozenset[int]
    records: tuple[int, ...]

    def covers(self, person: Person) -> bool:
        return self.low <= person[0] <= self.high and person[1] in self.members


@dataclass(frozen=True)
class Case:
    """People with their records, of which a remainder is the sensitive value.

    Buckets show the first quasi-identifier and the sensitive value only.
    """

    people: list[Person]
    records: list[int]
    rows: list[list[Class]]
    buckets: list[list[int]]

    @cached_property
    def worlds(self) -> dict[tuple[int, ...], int]:
        """Everybody's records, and in how many ways the releases can be explained by them."""
        found = {}
        for chosen in product(sorted(set(self.records)), repeat=len(self.people)):
            ways = 1
            for release in self.rows:
                ways = ways and ways * sum(1 for _ in self.seatings(release, chosen))
            for buckets in self.buckets:
                ways = ways and ways * self.dealings(buckets, chosen)
            if ways:
                found[chosen] = ways
        return found

    def seatings(
        self, release: Sequence[Class], chosen: Sequence[int]
    ) -> Iterator[tuple[int | None, ...]]:
        """All ways to tell whose the rows are: a class for each person, None if left out."""
        seats: list[int | None] = [c for c, one in enumerate(release) for _ in one.records]
        seats += [None] * (len(self.people) - len(seats))
        wanted = Counter((c, r) for c, one in enumerate(release) for r in one.records)
        for way in set(permutations(seats)):
            sat = [
                (c, chosen[who])
                for who, c in enumerate(way)
                if c is not None and release[c].covers(self.people[who])
            ]
            if Counter(sat) == wanted:
                yield way

    def dealings(self, buckets: Sequence[int], chosen: Sequence[int]) -> int:
        """Count the ways to put people with the same first quasi-identifier into its buckets."""
        values = [record % N_VALUES for record in self.records]
        wanted = Counter(zip(buckets, values, strict=True))
        alike = defaultdict(list)
        for who, person in enumerate(self.people):
            alike[person[0]].append(who)
        ways = [set(permutations([buckets[who] for who in group])) for group in alike.values()]
        found = 0
        for way in product(*ways):
            dealt = Counter(
                (b, chosen[who] % N_VALUES)
                for group, its in zip(alike.values(), way, strict=True)
                for who, b in zip(group, its, strict=True)
            )
            found += dealt == wanted
        return found


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Up to five people, one to three releases of rows, and perhaps one of buckets."""
    n = draw(st.integers(2, 5))
    code = st.integers(0, N_CODES - 1)
    people = draw(st.lists(st.tuples(code, code), min_size=n, max_size=n))
    records = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    rows = []
    for _ in range(draw(st.integers(1, 2))):
        number = draw(st.integers(1, 2))
        dealt = [draw(st.integers(-1 if draw(st.booleans()) else 0, number - 1)) for _ in range(n)]
        release = []
        for c in range(number):
            its = [who for who in range(n) if dealt[who] == c]
            if its:
                first, second = zip(*(people[who] for who in its), strict=True)
                wider = draw(st.sets(code)) if draw(st.booleans()) else set()
                release.append(
                    Class(
                        min(first), max(first), frozenset(second) | wider,
                        tuple(records[who] for who in its),
                    )
                )  # fmt: skip
        if release:
            rows.append(release)
    assume(rows)
    buckets = [draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))]
    return Case(people, records, rows, buckets if draw(st.booleans()) else [])


def coded(release: Sequence[Class]) -> tuple[list[Ranges | Sets], IntArray]:
    """The cells of each class, and their numbers."""
    low = np.array([one.low for one in release], dtype=np.int32)
    high = np.array([one.high for one in release], dtype=np.int32)
    members = [sorted(one.members) for one in release]
    codes = np.array([code for its in members for code in its], dtype=np.int32)
    ends = np.cumsum([len(its) for its in members])
    cells = [Ranges(low, high, np.zeros(low.size, dtype=np.bool_)), Sets(codes, ends)]
    return cells, np.stack([np.arange(len(release))] * 2, axis=1)


def fitted(tuples: Sequence[Person], release: Sequence[Class]) -> ClassFits:
    """The classes that people fit, as the cells themselves say."""
    cells, cell_of_class = coded(release)
    found = fits_of(np.array(tuples, dtype=np.int32), cells, cell_of_class, [N_CODES] * 2)
    assert found is not None
    for t, person in enumerate(tuples):
        its = sorted(found.classes[found.first[t] : found.first[t + 1]].tolist())
        assert its == [c for c, one in enumerate(release) if one.covers(person)]
    return found
