"""Randomness that nobody can replay."""

from __future__ import annotations

import os

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray
from kanon_db.algorithms.ground.sorting import order_of


class SecureRandom:
    """Bytes and permutations from the operating system's cryptographic generator.

    A seeded generator would let anyone who guesses or reads the seed, or reconstructs the
    generator's state from a published order, undo the shuffling. There is no seed here.
    """

    def bytes(self, length: int) -> bytes:
        """Return uniformly random bytes."""
        return os.urandom(length)

    def permutation(self, n: int) -> AnyIntArray:
        """Return a uniformly random order of ``0 … n-1``, in int32 where that suffices.

        Sorts by 64-bit keys; two keys are equal with a probability below n**2 / 2**65
        (3e-8 for a million), which would make the order of that one pair predictable.
        """
        keys = np.frombuffer(self.bytes(8 * n), dtype=np.uint64)
        order = order_of(keys)
        return order.astype(np.int32) if n <= np.iinfo(np.int32).max else order
