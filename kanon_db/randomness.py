"""Randomness that nobody can replay."""

from __future__ import annotations

import os

from kanon_db.algorithms.ground.arrays import AnyIntArray
from kanon_db.algorithms.ground.shuffling import shuffled


class SecureRandom:
    """Bytes and permutations from the operating system's cryptographic generator.

    A seeded generator would let anyone who guesses or reads the seed, or reconstructs the
    generator's state from a published order, undo the shuffling. There is no seed here.
    """

    def bytes(self, length: int) -> bytes:
        """Return uniformly random bytes."""
        return os.urandom(length)

    def permutation(self, n: int) -> AnyIntArray:
        """Return a uniformly random order of ``0 … n-1``, see :func:`.shuffled`."""
        return shuffled(n, self.bytes)
