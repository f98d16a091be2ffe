"""Whether one release only puts buckets of another together: then it tells nothing new."""

from __future__ import annotations

import numpy as np

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.releases.placements import Release


def coarsening(fine: Release, coarse: Release) -> IntArray | None:
    """Return the coarse bucket of each fine bucket, shape (n_buckets,), if there is one.

    Only where each tuple is in one fine bucket. Otherwise the coarse release could have put people
    of a tuple into buckets anew: who is where would look the same, and two independent draws of it
    tell more than one.

    Parameters
    ----------
    fine, coarse : Release

    Returns
    -------
    ndarray of int64, or None
        None unless the people of each coarse bucket are exactly those of its fine buckets.

    Examples
    --------
    >>> people, values = np.arange(4), np.array([0, 1, 0, 1])
    >>> fine = Release.of(people, np.array([0, 0, 1, 1]), values)
    >>> coarse = Release.of(people, np.array([0, 0, 0, 0]), values)
    >>> coarsening(fine, coarse).tolist(), coarsening(coarse, fine)
    ([0, 0], None)
    """
    n_tuples = 1 + max(
        int(one.tuple_of.max(initial=-1)) for one in (fine, coarse)
    )  # fmt: skip
    if (np.bincount(fine.tuple_of, minlength=n_tuples) > 1).any():
        return None
    place = np.full(n_tuples, -1, dtype=np.int64)
    place[coarse.tuple_of] = coarse.bucket_of
    found = np.full(fine.n_buckets, -1, dtype=np.int64)
    found[fine.bucket_of] = place[fine.tuple_of]
    if (found < 0).any():
        return None
    width = max(coarse.n_buckets, 1)
    keys = fine.tuple_of.astype(np.int64) * width + found[fine.bucket_of]
    own, inverse = np.unique(keys, return_inverse=True)
    theirs = coarse.tuple_of.astype(np.int64) * width + coarse.bucket_of
    order = np.argsort(theirs)
    people = np.bincount(inverse, fine.people, own.size).astype(np.int64)
    if not np.array_equal(own, theirs[order]):
        return None
    return found if np.array_equal(people, coarse.people[order]) else None


def holds_the_same(fine: Release, coarse: Release, bucket: IntArray) -> bool:
    """Whether each coarse bucket holds the values of its fine buckets, and no others.

    Parameters
    ----------
    fine, coarse : Release
    bucket : ndarray of int64
        What :func:`coarsening` returned.
    """
    width = 1 + max(int(one.value.max(initial=-1)) for one in (fine, coarse))
    sums = []
    for one, buckets in ((fine, bucket[fine.bucket]), (coarse, coarse.bucket)):
        keys, inverse = np.unique(buckets.astype(np.int64) * width + one.value, return_inverse=True)
        sums.append((keys, np.bincount(inverse, one.count, keys.size)))
    return all(np.array_equal(own, theirs) for own, theirs in zip(*sums, strict=True))
