"""Randomness that nobody can replay."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray


class SecureRandom:
    """Permutations from the operating system's cryptographic generator.

    A seeded generator would let anyone who guesses or reads the seed, or reconstructs the
    generator's state from a published order, undo the shuffling. There is no seed here.
    """

    def permutation(self, n: int) -> NDArray[np.int64]:
        """Return a uniformly random order of ``0 … n-1``.

        Sorts by 64-bit keys; two keys are equal with a probability below n**2 / 2**65
        (3e-8 for a million), which would make the order of that one pair predictable.
        """
        keys = np.frombuffer(os.urandom(8 * n), dtype=np.uint64)
        return np.argsort(keys)
