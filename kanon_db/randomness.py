"""Draws random bytes and orders that nobody can predict."""

from __future__ import annotations

import hashlib
import os

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, shuffled


class SecureRandom:
    """Bytes and permutations from the operating system's cryptographic generator."""

    def bytes(self, length: int) -> bytes:
        """Return uniformly random bytes."""
        return os.urandom(length)

    def permutation(self, n: int) -> AnyIntArray:
        """Return a uniformly random order of ``0 … n-1``, see :func:`.shuffled`."""
        return shuffled(n, self.bytes)

    def generator(self) -> np.random.Generator:
        """Return numpy's generator, where what it draws is no secret's only protection."""
        return np.random.default_rng(int.from_bytes(self.bytes(16)))


class SeededRandom(SecureRandom):
    """The same draws in the same order, for whoever has the seed; to all others, random ones.

    Whoever guesses or reads the seed, or could reconstruct the generator's state from a published
    order, would undo the shuffling. So the seed is a secret of 256 bits, made by
    :func:`kanon_db.publications.pipeline.draw_records`, and the bytes are SHAKE256 of it and of a
    counter (FIPS 202), of which any number tells nothing of others.
    """

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._drawn = 0

    def settle(self, *found: object) -> None:
        """Draw from what a search has found from here on, however it was asked for.

        Two results of one seed, as of searches that the clock ends, are so drawn apart; equal ones
        are one draw. `found` is arrays, and what has one text.
        """
        digest = hashlib.sha256(self._seed)
        for one in found:
            if isinstance(one, np.ndarray):
                content = np.ascontiguousarray(one, dtype=np.int64).ravel().data
            else:
                content = memoryview(repr(one).encode())
            digest.update(content.nbytes.to_bytes(8, "big"))
            digest.update(content)
        self._seed, self._drawn = digest.digest(), 0

    def bytes(self, length: int) -> bytes:
        """Return the next bytes."""
        self._drawn += 1
        return hashlib.shake_256(self._seed + self._drawn.to_bytes(8, "big")).digest(length)
