"""Releases of rows set against others, compared with all worlds on small tables."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kanon_db.algorithms.recoding import RowClasses
from kanon_db.algorithms.recoding.generalized_cells import Ranges, Sets
from kanon_db.algorithms.releases import BucketRelease
from kanon_db.algorithms.releases.row_releases import (
    ClassContents,
    MergedClasses,
    fits_of,
    merge,
)
from tests.profiles import examples
from tests.property.plain_classes import N_VALUES, Case, Class, Person, cases, fitted
from tests.worlds import measure_worlds

MANY = settings(max_examples=examples(200), deadline=None)


@dataclass(frozen=True)
class Read:
    """A case as arrays."""

    tuples: list[Person]
    number: np.ndarray
    linked: np.ndarray
    merged: list[MergedClasses]
    releases: list[BucketRelease]


def read(case: Case) -> Read:
    tuples = sorted(set(case.people))
    number = np.array([case.people.count(one) for one in tuples])
    linked = np.unique([first for first, _ in tuples], return_inverse=True)[1]
    if not case.buckets:
        linked = np.arange(len(tuples))
    found = Read(tuples, number, linked, [], [])
    for release in case.rows:
        fits = fitted(tuples, release)
        of_row = np.repeat(np.arange(len(release)), [len(one.records) for one in release])
        records = np.array([record for one in release for record in one.records])
        values = ClassContents.of(of_row, records % N_VALUES, len(release))
        merged = merge(fits, number, linked, values)
        found.merged.append(merged)
        found.releases.append(merged.release)
    for buckets in case.buckets:
        place = {first: t for (first, _), t in zip(tuples, linked.tolist(), strict=True)}
        own = np.array([place[first] for first, _ in case.people])
        _, dense = np.unique(buckets, return_inverse=True)
        values = np.array(case.records) % N_VALUES
        found.releases.append(BucketRelease.of(own, dense, values))
    return found


@MANY
@given(cases(), st.sampled_from([Fraction(1, 2), Fraction(2, 3), Fraction(10**8 - 1, 10**8)]))
def test_merged_classes_are_never_overstated(case: Case, bound: Fraction) -> None:
    """Whom a check finds certain, or above the bound whatever is likely, is so in all worlds."""
    arrays = read(case)
    n_linked = int(arrays.linked.max()) + 1
    found = measure_worlds(arrays.releases, n_linked, [bound] * N_VALUES)
    total = sum(case.worlds.values())
    share = np.zeros((len(case.people), N_VALUES))
    for world, ways in case.worlds.items():
        for who, record in enumerate(world):
            share[who, record % N_VALUES] += ways / total
    its = [arrays.tuples.index(person) for person in case.people]
    known = [np.isin(arrays.linked, one.release.tuple_of) for one in arrays.merged]
    somewhere = np.any(known, axis=0)[its] | bool(case.buckets)
    likely = share.max(axis=1)[somewhere]
    certain = int((likely > 1 - 1e-12).sum())
    above = int((likely > float(bound) + 1e-12).sum())
    assert found.contradicted == 0
    for name in ("candidates", "forced"):
        assert found.check(name).certain <= certain
        assert found.check(name).people <= above
    if arrays.number.max() == 1 and n_linked == len(case.people):
        # Of people who are alike, differencing counts who is in a group, whoever that is.
        assert max(found.check("inserted").certain, found.check("deleted").certain) <= certain
    if all(one.is_exact for one in arrays.merged) and not case.buckets:
        assert found.check("worlds").certain == certain_by_values(case, somewhere)


def certain_by_values(case: Case, somewhere: np.ndarray) -> int:
    """Count whose value is certain for readers who do not link rows by what else they show."""
    records = [record % N_VALUES for record in case.records]
    rows = [
        [Class(o.low, o.high, o.members, tuple(r % N_VALUES for r in o.records)) for o in release]
        for release in case.rows
    ]
    worlds = Case(case.people, records, rows, []).worlds
    its = np.flatnonzero(somewhere).tolist()
    return sum(len({world[who] for world in worlds}) == 1 for who in its)


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_fits_are_those_of_each_class(data: st.DataObject) -> None:
    """As many people and classes as make a tree of boxes, with cells of all kinds."""
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n_codes = [int(n) for n in random.integers(1, 90, 3)]
    n_cells = int(random.integers(1, 30))
    low = random.integers(0, n_codes[0], n_cells)
    high = np.minimum(low + random.integers(-1, 4, n_cells), n_codes[0] - 1)
    sets = [np.flatnonzero(random.random(n_codes[1]) < 0.1) for _ in range(n_cells)]
    everything = random.random(n_cells) < 0.2
    point = random.integers(0, n_codes[2], n_cells)
    cells = [
        Ranges(low.astype(np.int32), high.astype(np.int32), everything),
        Sets(np.concatenate(sets).astype(np.int32), np.cumsum([one.size for one in sets])),
        Ranges(point.astype(np.int32), point.astype(np.int32), random.random(n_cells) < 0.5),
    ]
    cell_of_class = random.integers(0, n_cells, (int(random.integers(1, 200)), 3))
    codes = np.stack([random.integers(0, n, 60) for n in n_codes], axis=1).astype(np.int32)
    found = fits_of(codes, cells, cell_of_class, n_codes)
    assert found is not None
    covering = RowClasses(cells, cell_of_class, n_codes)
    for t in range(60):
        its = np.sort(found.classes[found.first[t] : found.first[t + 1]])
        assert np.array_equal(its, covering.classes_of(codes[t]))
    n_pairs = int(found.first[-1])
    if n_pairs:
        assert fits_of(codes, cells, cell_of_class, n_codes, most=n_pairs - 1) is None
