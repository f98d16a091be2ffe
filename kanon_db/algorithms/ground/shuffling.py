"""Random orders from a stream of random bytes, without a sort."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray, SmallWordArray
from kanon_db.heartbeat import beat

MOST_AT_ONCE: Final = 1 << 22
"""Places that are shuffled at random all over them; of more, memory would be too slow."""

_BITS_OF_GROUPS: Final = 11
_SPARE_WORDS: Final = 16


def shuffled(n: int, random_bytes: Callable[[int], bytes]) -> AnyIntArray:
    """Draw an order of ``0 … n-1``.

    Parameters
    ----------
    n : int
        At least 0.
    random_bytes : callable
        Gives so many bytes, of which each has 256 equally likely values, whatever the others are.

    Returns
    -------
    ndarray of int32 or int64, shape (n,)
        Each order has the same probability; int32 where that suffices.

    Notes
    -----
    **Source:** R. A. Fisher and F. Yates, *Statistical Tables* (1938), example 12, in the form of
    R. Durstenfeld, Algorithm 235, CACM 7 (1964); its numbers below a bound as D. Lemire draws them,
    *Fast random integer generation in an interval*, ACM TOMACS 29 (2019), Algorithm 5. More than
    :data:`MOST_AT_ONCE` places are first dealt to groups, each to any of them with the same
    probability, and then each group is shuffled: M. Sandelius, *A simple randomization procedure*,
    JRSS B 24 (1962). Every step is exact, so no order is more likely than another.
    """
    kind = np.int32 if n <= np.iinfo(np.int32).max else np.int64
    if n <= MOST_AT_ONCE:
        order: AnyIntArray = np.arange(n, dtype=kind)
        _shuffle(order, random_bytes)
        return order
    dealt: AnyIntArray = np.empty(n, dtype=kind)
    start = 0
    for end in _deal(dealt, random_bytes).tolist():
        _shuffle(dealt[start:end], random_bytes)
        beat()
        start = end
    return dealt


def _shuffle(places: AnyIntArray, random_bytes: Callable[[int], bytes]) -> None:
    """Shuffle fewer than 2^32 places in place."""
    left = places.size
    while left > 1:
        # Nearly always enough: a number is refused with a probability below left / 2^32.
        words = np.frombuffer(random_bytes(4 * (left + _SPARE_WORDS)), dtype=np.uint32)
        left = _swap(places, left, words)


def _deal(dealt: AnyIntArray, random_bytes: Callable[[int], bytes]) -> IntArray:
    """Deal the places to groups at random; return where each of these ends."""
    groups = np.empty(dealt.size, dtype=np.uint16)
    counts = np.zeros(1 << _BITS_OF_GROUPS, dtype=np.int64)
    parts = [slice(start, start + MOST_AT_ONCE) for start in range(0, dealt.size, MOST_AT_ONCE)]
    for part in parts:
        drawn = np.frombuffer(random_bytes(2 * groups[part].size), dtype=np.uint16)
        groups[part] = drawn >> np.uint16(16 - _BITS_OF_GROUPS)
        counts += np.bincount(groups[part], minlength=counts.size)
        beat()
    ends: IntArray = np.cumsum(counts)
    nexts = ends - counts
    for part in parts:
        _put(groups[part], part.start, nexts, dealt)
        beat()
    return ends


@numba.njit(cache=True, nogil=True)
def _swap(places: AnyIntArray, left: int, words: SmallWordArray) -> int:
    """Swap the last of the places that are left with any of these; return how many are left then.

    A random word w below 2^32 gives the upper half of w * left. It is refused where fewer words
    would give the last numbers than the others.
    """
    for word in words:
        if left <= 1:
            break
        bound = np.uint64(left)
        product = np.uint64(word) * bound
        lower = product & np.uint64(0xFFFFFFFF)
        if lower < bound and lower < (np.uint64(1 << 32) - bound) % bound:
            continue
        left -= 1
        other = np.int64(product >> np.uint64(32))
        places[left], places[other] = places[other], places[left]
    return left


@numba.njit(cache=True, nogil=True)
def _put(groups: AnyIntArray, start: int, nexts: IntArray, dealt: AnyIntArray) -> None:
    """Put places from `start` on, one after the other, into their groups."""
    for i in range(groups.size):
        group = groups[i]
        dealt[nexts[group]] = start + i
        nexts[group] += 1
