"""What is allowed without a word tells nobody more than one release: all worlds are counted."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.releases.bucket_releases import BucketRelease, coarsening, holds_the_same
from kanon_db.algorithms.releases.row_releases import ClassContents, merge
from kanon_db.catalog.entries import Publication
from kanon_db.publications.kind import PublishedClasses
from kanon_db.publications.releases.joint_disclosure import (
    ReleasedClasses,
    ReleasedRows,
    follows_from,
)
from tests.profiles import examples
from tests.property.plain_classes import N_CODES, Case, Class, Person, cases, coded, fitted
from tests.worlds import measure_worlds


def _dealt(draw: st.DrawFn, n: int, n_buckets: int) -> IntArray:
    """Put people into buckets; each bucket has one at least."""
    own = draw(st.permutations(range(n)))
    buckets = [draw(st.integers(0, n_buckets - 1)) for _ in range(n - n_buckets)]
    found = np.empty(n, dtype=np.int64)
    found[list(own)] = [*range(n_buckets), *buckets]
    return found


def _worst(release: BucketRelease, n_values: int) -> list[Fraction]:
    """The largest share that each value has in a bucket: the bound that the release keeps."""
    sizes = np.bincount(release.bucket, release.count, minlength=release.n_buckets)
    bounds = [Fraction(0)] * n_values
    for bucket, value, count in zip(release.bucket, release.value, release.count, strict=True):
        share = Fraction(int(count), int(sizes[bucket]))
        bounds[value] = max(bounds[value], share)
    return bounds


@st.composite
def nested(draw: st.DrawFn) -> tuple[BucketRelease, list[BucketRelease], int]:
    """A release, and others that put its buckets together."""
    n, n_fine = draw(st.integers(2, 7)), draw(st.integers(1, 3))
    n_fine = min(n_fine, n)
    buckets = _dealt(draw, n, n_fine)
    values = np.array(draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)))
    people = np.array(draw(st.lists(st.integers(0, n), min_size=n, max_size=n)))
    fine = BucketRelease.of(people, buckets, values)
    others = []
    for _ in range(draw(st.integers(1, 2))):
        together = np.array(draw(st.lists(st.integers(0, 1), min_size=n_fine, max_size=n_fine)))
        _, dense = np.unique(together[buckets], return_inverse=True)
        others.append(BucketRelease.of(people, dense, values))
    return fine, others, n + 1


@given(nested())
@settings(max_examples=examples(150), deadline=None)
def test_coarser_buckets_tell_nothing_new(
    case: tuple[BucketRelease, list[BucketRelease], int],
) -> None:
    """Two or three releases, with equal quasi-identifiers: no share exceeds that of the finest."""
    fine, coarser, n_tuples = case
    bounds = _worst(fine, 3)
    allowed = []
    for coarse in coarser:
        bucket = coarsening(fine, coarse)
        if bucket is not None:  # not where people who are alike are in several buckets
            assert holds_the_same(fine, coarse, bucket)
            allowed.append(coarse)
    found = measure_worlds([fine, *allowed], n_tuples, bounds, 10**6)
    exact = [check for check in found.checks if check.kind != "estimate"]
    assert [check for check in exact if not check.holds] == []


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[BucketRelease], int, list[Fraction]]:
    """The states of a publication with up to three batches of different people."""
    states: list[BucketRelease] = []
    people: list[int] = []
    buckets: list[int] = []
    values: list[int] = []
    bounds = [Fraction(0)] * 3
    for _ in range(draw(st.integers(2, 3))):
        n = draw(st.integers(1, 4))
        first = max(buckets, default=-1) + 1
        its_buckets = _dealt(draw, n, draw(st.integers(1, min(2, n))))
        its_values = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
        alone = BucketRelease.of(np.arange(n), its_buckets, np.array(its_values))
        bounds = list(map(max, bounds, _worst(alone, 3)))
        people += range(len(people), len(people) + n)
        buckets += (its_buckets + first).tolist()
        values += its_values
        states.append(BucketRelease.of(np.array(people), np.array(buckets), np.array(values)))
    return states, len(people), bounds


@given(batches())
@settings(max_examples=examples(150), deadline=None)
def test_batches_of_new_people_keep_their_bounds(
    case: tuple[list[BucketRelease], int, list[Fraction]],
) -> None:
    """A reader of all states of a publication knows no more than one of its last state."""
    states, n_people, bounds = case
    found = measure_worlds(states, n_people, bounds, 10**6)
    exact = [check for check in found.checks if check.kind == "exact" and check.name == "worlds"]
    assert [check for check in exact if not check.holds] == []
    assert found.check("forced").holds
    assert found.contradicted == 0


def _published(people: list[Person], release: list[Class]) -> tuple[ReleasedRows, PublishedClasses]:
    """What is read of a release of rows, which show a record."""
    tuples = sorted(set(people))
    fits = fitted(tuples, release)
    of_row = np.repeat(np.arange(len(release)), [len(one.records) for one in release])
    records = np.array([record for one in release for record in one.records])
    contents = ClassContents.of(of_row, records, len(release))
    number = np.array([people.count(one) for one in tuples])
    labels: list[str | None] = [str(record) for record in range(4)]
    read = ReleasedClasses(fits, of_row, *coded(release), {"record": (labels, records)})
    merged = merge(fits, number, np.arange(len(tuples)), contents)
    cells = [{"name": "first", "cell": "range"}, {"name": "second", "cell": "set"}]
    publication = Publication(
        name="p", kind="generalized", method="", source="", parameters={}, records=len(people),
        layout={"quasi_identifiers": cells, "others": ["record"]}, guarantee="", metrics={},
    )  # fmt: skip
    described = PublishedClasses("", publication, "record", thresholds=None)
    return ReleasedRows(read, contents, merged), described


@given(cases(), st.data())
@settings(max_examples=examples(300), deadline=None)
def test_coarser_classes_tell_nothing_new(case: Case, data: st.DataObject) -> None:
    """Of a release of rows that follows from another, all worlds are as likely as before."""
    fine = case.rows[0]
    together: dict[int, list[Class]] = {}
    for one in fine:
        together.setdefault(data.draw(st.integers(0, 1)), []).append(one)
    coarse = [
        Class(
            min(one.low for one in its), max(one.high for one in its),
            frozenset().union(*(one.members for one in its)) - data.draw(st.sets(st.just(0))),
            tuple(record for one in its for record in one.records),
        )
        for its in together.values()
    ]  # fmt: skip
    n_codes = {"first": N_CODES, "second": N_CODES}
    own, other = _published(case.people, fine), _published(case.people, coarse)
    follow = follows_from(own, other, n_codes)
    event(f"follows: {follow}")
    if not follow:
        return
    before = Case(case.people, case.records, [fine], []).worlds
    both = Case(case.people, case.records, [fine, coarse], []).worlds
    sums = [sum(worlds.values()) for worlds in (before, both)]
    assert {world: ways * sums[1] for world, ways in before.items()} == {
        world: ways * sums[0] for world, ways in both.items()
    }


def test_other_rows_do_not_follow() -> None:
    people = [(0, 0), (0, 1), (1, 0), (2, 2)]
    n_codes = {"first": N_CODES, "second": N_CODES}
    everything = frozenset(range(N_CODES))
    fine = [Class(0, 0, frozenset({0, 1}), (0, 1)), Class(1, 2, frozenset({0, 2}), (2, 3))]
    fine_read = _published(people, fine)
    assert follows_from(fine_read, fine_read, n_codes)
    coarse = [Class(0, 2, everything, (0, 1, 2, 3))]
    assert follows_from(fine_read, _published(people, coarse), n_codes)
    assert not follows_from(_published(people, coarse), fine_read, n_codes)
    for other in (
        [Class(0, 2, everything, (0, 1, 2, 2))],  # another record
        [Class(0, 2, everything, (0, 1, 2))],  # somebody less
        [Class(0, 1, frozenset({0, 1}), (0, 1, 2)), Class(2, 2, frozenset({2}), (3,))],
    ):
        assert not follows_from(fine_read, _published(people, other), n_codes)
    wide = [Class(0, 2, everything, (0, 1)), Class(0, 2, everything, (2, 3))]
    tight = [Class(0, 0, everything, (0, 1)), Class(1, 2, frozenset({0, 2}), (2, 3))]
    assert follows_from(fine_read, _published(people, tight), n_codes)
    assert not follows_from(_published(people, tight), fine_read, n_codes)  # tighter cells
    assert not follows_from(fine_read, _published(people, wide), n_codes)  # somebody fits both


def test_people_who_move_are_no_coarsening() -> None:
    people, values = np.arange(4), np.array([0, 1, 0, 1])
    one = BucketRelease.of(people, np.array([0, 0, 1, 1]), values)
    other = BucketRelease.of(people, np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1]))
    assert coarsening(one, other) is None
    fewer = BucketRelease.of(people[:3], np.array([0, 0, 0]), values[:3])
    assert coarsening(one, fewer) is None
    assert coarsening(fewer, one) is None
    swapped = BucketRelease.of(people, np.array([0, 0, 0, 0]), np.array([0, 0, 0, 1]))
    bucket = coarsening(one, swapped)
    assert bucket is not None
    assert not holds_the_same(one, swapped, bucket)
