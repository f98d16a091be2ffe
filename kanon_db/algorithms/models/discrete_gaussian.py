"""Exact samples of the discrete Gaussian distribution, by whole numbers only."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt
from typing import Protocol

import numpy as np

from kanon_db.algorithms.ground.arrays import IntArray

_BYTES_AT_ONCE = 4096


class Bits(Protocol):
    """Uniformly random bytes: :class:`kanon_db.randomness.SecureRandom` has them."""

    def bytes(self, length: int) -> bytes:
        """Return uniformly random bytes."""
        ...


def discrete_gaussian(variance: Fraction, n: int, random: Bits) -> IntArray:
    """Draw whole numbers x with probabilities proportional to exp(-x^2 / (2 variance)).

    Parameters
    ----------
    variance : Fraction
        sigma^2, above 0.
    n : int
        How many numbers.
    random : Bits

    Returns
    -------
    ndarray of int64, shape (n,)

    Notes
    -----
    **Source:** Canonne, Kamath, Steinke, *The discrete Gaussian for differential privacy*, NeurIPS
    2020, Algorithms 1 to 3. All arithmetic is on whole numbers; no probability is rounded. A number
    takes some microseconds, more or less depending on what is drawn: who can time single draws
    learns something of them.
    """
    sampler = _Sampler(random)
    return np.fromiter((sampler.gaussian(variance) for _ in range(n)), dtype=np.int64, count=n)


class _Sampler:
    def __init__(self, random: Bits) -> None:
        self._random = random
        self._buffer = b""
        self._position = 0

    def gaussian(self, variance: Fraction) -> int:
        """Algorithm 3: discrete Laplace, accepted with the ratio of the two."""
        p, q = variance.as_integer_ratio()
        t = isqrt(p // q) + 1
        while True:
            y = self._laplace(t)
            # exp(-(|y| - variance / t)^2 / (2 variance))
            if self._exp((abs(y) * t * q - p) ** 2, 2 * p * q * t * t):
                return y

    def _laplace(self, t: int) -> int:
        """Algorithm 2: whole numbers x with probabilities proportional to exp(-|x| / t)."""
        while True:
            u = self._below(t)
            if not self._exp(u, t):
                continue
            v = 0
            while self._exp(1, 1):
                v += 1
            size, is_negative = u + t * v, self._below(2)
            if size or not is_negative:
                return -size if is_negative else size

    def _exp(self, numerator: int, denominator: int) -> bool:
        """Algorithm 1: true with the probability exp(-numerator / denominator)."""
        while numerator > denominator:
            if not self._exp_within_1(1, 1):
                return False
            numerator -= denominator
        return self._exp_within_1(numerator, denominator)

    def _exp_within_1(self, numerator: int, denominator: int) -> bool:
        k = 1
        while self._below(denominator * k) < numerator:
            k += 1
        return k % 2 == 1

    def _below(self, limit: int) -> int:
        """Draw a number from 0 to limit - 1, each with the same probability."""
        bits = (limit - 1).bit_length()
        n_bytes = (bits + 7) // 8
        while True:
            drawn = int.from_bytes(self._bytes(n_bytes), "little") >> (8 * n_bytes - bits)
            if drawn < limit:
                return drawn

    def _bytes(self, n: int) -> bytes:
        if self._position + n > len(self._buffer):
            self._buffer, self._position = self._random.bytes(max(n, _BYTES_AT_ONCE)), 0
        self._position += n
        return self._buffer[self._position - n : self._position]
