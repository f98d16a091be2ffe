"""Sparse people: nearly everybody is alone with their birth date, zip code and sex."""

from __future__ import annotations

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, sort_keys

RARE = 0.02


def sparse_codes(n_people: int) -> tuple[CodeArray, CodeArray]:
    """Draw birth dates in days, zip codes and sexes, and who has the rare value (1).

    One person in fifty has it, whatever their quasi-identifiers.
    """
    random = np.random.default_rng(1)
    codes = random.integers(0, [80 * 365, 900, 2], (n_people, 3)).astype(np.int32)
    return codes, (random.random(n_people) < RARE).astype(np.int32)


def swept(qi_codes: CodeArray, codes: CodeArray, rare: int, size: int) -> AnyIntArray:
    """Sweep sorted records into buckets, as no method may: one in `size` has the rare value.

    A record with it opens a bucket that waits for others, so that the bucket names its record.
    """
    order = np.argsort(sort_keys(list(qi_codes.T), reflected=True), kind="stable")
    buckets = np.empty(codes.size, dtype=np.int64)
    pooled: list[int] = []
    n_buckets = 0
    for record in order.tolist():
        pooled.append(record)
        if len(pooled) >= size * int((codes[pooled] == rare).sum()):
            buckets[pooled] = n_buckets
            n_buckets, pooled = n_buckets + 1, []
    buckets[pooled] = n_buckets - 1
    return buckets
