"""Local assignment of small random tables against its promises, checked with fractions."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise
from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kanon_db.algorithms.bucketization import marginal_refinement
from kanon_db.algorithms.bucketization.local_assignment import assign_locally
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.bucketization.two_size import two_size
from kanon_db.algorithms.ground.computation import UNLIMITED
from kanon_db.errors import IneligibleError, InfeasibleError
from tests.profiles import examples
from tests.property import strategies

Table = tuple[list[int], tuple[Fraction, ...]]


def microdata(counts: list[int], n_codes: list[int], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Records with these counts of sensitive values, in random order, some of them equal."""
    generator = np.random.default_rng(seed)
    values = generator.permutation(np.repeat(np.arange(len(counts)), counts)).astype(np.int32)
    columns = [generator.integers(n, size=values.size) for n in n_codes]
    return np.column_stack([values, *columns])[:, 1:].astype(np.int32), values


@given(
    strategies.tables(6, 40, eligible=True),
    st.integers(2, 60),
    st.lists(st.integers(1, 5), max_size=3),
    st.integers(0, 2**32),
)
@settings(max_examples=examples(200), deadline=None)
def test_a_private_bucket_for_each_record_wherever_two_size_works(
    table: Table, max_size: int, n_codes: list[int], seed: int
) -> None:
    counts, thresholds = table
    privacy = FPrimePrivacy(thresholds)
    qi_codes, values = microdata(counts, n_codes, seed)
    try:
        found = assign_locally(qi_codes, values, privacy, max_size, np.random.default_rng(seed))
    except (InfeasibleError, IneligibleError) as refusal:
        try:
            two_size(counts, privacy, max_size)
        except type(refusal):
            return
        raise
    buckets = found.bucket_of_record
    sizes = np.bincount(buckets)
    assert sizes.sum() == values.size
    assert sizes.min() >= 1
    assert sizes.max() <= max_size
    assert (np.diff(sizes) >= 0).all()
    assert found.setting.pairs == tuple(sorted(Counter(sizes.tolist()).items()))
    for (g, value), count in Counter(zip(buckets.tolist(), values.tolist(), strict=True)).items():
        assert count <= thresholds[value] * int(sizes[g])


@given(strategies.counts(5, 15), st.integers(1, 12), st.integers(0, 2**32))
@settings(max_examples=examples(60), deadline=None)
def test_refinement_keeps_the_values_of_buckets_and_lowers_the_objective(
    counts: list[int], n_buckets: int, seed: int
) -> None:
    qi_codes, values = microdata(counts, [4, 3], seed)
    generator = np.random.default_rng(seed)
    buckets = np.unique(generator.integers(n_buckets, size=values.size), return_inverse=True)[1]
    before = Counter(zip(buckets.tolist(), values.tolist(), strict=True))
    objectives = []
    for _ in range(3):
        with mock.patch.object(marginal_refinement, "_LEAST_RECORDS", 1):
            marginals = marginal_refinement.refine(
                buckets,
                qi_codes,
                values,
                len(counts),
                generator,
                n_terms=0,
                pulse=UNLIMITED,
            )
        objectives.append(marginals.objective)
    assert Counter(zip(buckets.tolist(), values.tolist(), strict=True)) == before
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(objectives))
