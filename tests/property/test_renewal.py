"""People who come and leave: what every renewal keeps."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kanon_db.algorithms.releases.bucket_releases import BucketRelease
from kanon_db.algorithms.releases.m_invariance import NEW, renew
from kanon_db.algorithms.releases.release_measures import measure_releases
from tests.profiles import examples

Signature = tuple[int, ...]


@st.composite
def years(draw: st.DrawFn) -> tuple[int, int, list[tuple[list[int], list[bool]]]]:
    """Return m, a seed, and for each month the values of who comes, and who leaves of all."""
    m = draw(st.integers(2, 4))
    months = []
    n = 0
    for _ in range(draw(st.integers(1, 4))):
        comes = draw(st.lists(st.integers(0, 5), max_size=25))
        n += len(comes)
        months.append((comes, draw(st.lists(st.booleans(), min_size=n, max_size=n))))
    return m, draw(st.integers(0, 2**32)), months


@given(years())
@settings(max_examples=examples(100), deadline=None)
def test_everybody_keeps_a_signature_of_values_that_are_there_once(
    year: tuple[int, int, list[tuple[list[int], list[bool]]]],
) -> None:
    m, seed, months = year
    random = np.random.default_rng(seed)
    values: list[int] = []
    under: list[Signature | None] = []
    here: set[int] = set()
    last: set[int] = set()
    releases = []
    for comes, leaves in months:
        here |= set(range(len(values), len(values) + len(comes)))
        values += comes
        under += [None] * len(comes)
        here -= {one for one in here if leaves[one]}
        asked = sorted(one for one in here if under[one] is None or one in last)
        signatures = sorted({s for one in asked if (s := under[one]) is not None})
        position = [NEW if (s := under[one]) is None else signatures.index(s) for one in asked]
        found = renew(
            np.array([values[one] for one in asked], dtype=np.int64),
            np.array(position, dtype=np.int64), signatures, m, random,
        )  # fmt: skip
        assert found.counterfeit_value.size == 0
        buckets: dict[int, list[int]] = {}
        for one, bucket in zip(asked, found.bucket_of.tolist(), strict=True):
            if bucket >= 0:
                buckets.setdefault(bucket, []).append(one)
        assert sorted(buckets) == list(range(found.signature_of_bucket.size))
        for bucket, people in buckets.items():
            signature = found.signatures[found.signature_of_bucket[bucket]]
            assert tuple(sorted(values[one] for one in people)) == signature
            assert len(signature) >= m
            assert all(under[one] in (None, signature) for one in people)
        placed = {one for people in buckets.values() for one in people}
        _none_too_few(asked, under, values, placed, m)
        for bucket, people in buckets.items():
            for one in people:
                under[one] = found.signatures[found.signature_of_bucket[bucket]]
        last = placed
        if placed:
            order = sorted(placed)
            place = dict(zip(asked, found.bucket_of.tolist(), strict=True))
            releases.append(BucketRelease.of(
                np.array(order), np.array([place[one] for one in order]),
                np.array([values[one] for one in order]),
            ))  # fmt: skip
    if releases:
        measured = measure_releases(releases, len(values), [Fraction(1, m)] * 6, max_worlds=10_000)
        assert measured.contradicted == 0
        assert [c for c in measured.checks if c.kind != "estimate" and not c.holds] == []


def _none_too_few(
    asked: list[int], under: list[Signature | None], values: list[int], placed: set[int], m: int
) -> None:
    """Nobody is left out who could be placed: of each signature, and of those who are new."""
    for signature in {under[one] for one in asked} - {None}:
        assert signature is not None
        counts = Counter(values[one] for one in asked if under[one] == signature)
        number = sum(under[one] == signature for one in placed)
        assert number == len(signature) * min(counts[value] for value in signature)
    new = [one for one in asked if under[one] is None]
    counts = Counter(values[one] for one in new)
    is_eligible = max(counts.values(), default=0) * m <= len(new)
    assert len(placed & set(new)) == (len(new) if is_eligible else 0)


def test_whose_value_changed_is_left_out() -> None:
    random = np.random.default_rng(0)
    found = renew(np.array([0, 1, 2]), np.array([0, 0, 0]), [(0, 1)], 2, random)
    assert found.waits.tolist() == [False, False, True]


@pytest.mark.parametrize("n", [0, 1])
def test_too_few_to_publish(n: int) -> None:
    found = renew(np.zeros(n, dtype=int), np.full(n, NEW), (), 2, np.random.default_rng(0))
    assert found.waits.all()
    assert not found.signature_of_bucket.size
