"""The order of arrays as long as a table, found so that a cancel ends it at once.

numpy cannot be interrupted, and its :func:`numpy.argsort` takes ten seconds for a hundred million
numbers. So the numbers of a long array are first dealt to groups, smaller numbers to earlier
groups. Then each group is sorted, two at a time; it fits into fast memory, so that all take less
time than one sort. Between groups there is a heartbeat (:mod:`kanon_db.heartbeat`), and what it
raises ends everything within some tenths of a second: no thread is left behind that holds the
array, or waits for the interpreter. Where few numbers are possible, each has a group of its own,
and nothing is left to sort; short arrays are sorted by their digits. :func:`numpy.sort` is left to
numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import numba
import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.ground.threads import in_threads, n_cores
from kanon_db.heartbeat import beat

_Integer = TypeVar("_Integer", bound=np.integer)

LONG: Final = 1 << 22
"""Numbers that are sorted, or moved, between two heartbeats: some tenths of a second at most."""

_BITS_OF_GROUPS: Final = 11
_MOST_COUNTED: Final = 1 << 20
"""Counts that fit into fast memory: groups of a long array with one number each, or digits."""

_FEW: Final = 500
"""Numbers that numpy sorts in less time."""

_MOST_PASSES: Final = 4
"""Over a short array, by digits of as many values as it has numbers: numpy would take longer."""

_NUMBERS_OF_PART: Final = 1 << 19


def order_of(numbers: AnyIntArray, *, stable: bool = False) -> IntArray:
    """Return the order of whole numbers.

    Parameters
    ----------
    numbers : ndarray of int, shape (n,)
    stable : bool
        Whether equal numbers stay in the order in which they come.

    Returns
    -------
    ndarray of int64, shape (n,)
        As :func:`numpy.argsort` does; without `stable`, equal numbers come in any order.

    Examples
    --------
    >>> order_of(np.array([7, 3, 5])).tolist()
    [1, 2, 0]
    """
    native = numbers.astype(numbers.dtype.newbyteorder("="), copy=False)
    return _order(native, Pulse(heartbeat=beat), n_cores(), stable=stable)


def taken(values: npt.NDArray[_Integer], order: AnyIntArray) -> npt.NDArray[_Integer]:
    """Return ``values[order]``; what is read from all over a long array takes long, too."""
    if order.size <= LONG:
        found: npt.NDArray[_Integer] = values[order]
        return found
    found = np.empty(order.size, dtype=values.dtype)
    for start in range(0, order.size, LONG):
        np.take(values, order[start : start + LONG], out=found[start : start + LONG])
        beat()
    return found


def _order(numbers: AnyIntArray, pulse: Pulse, workers: int, *, stable: bool) -> IntArray:
    low, high = (int(numbers.min()), int(numbers.max())) if numbers.size else (0, 0)
    n_bits = (high - low).bit_length()
    if numbers.size <= LONG:
        is_worth_it = numbers.size >= _FEW
        if is_worth_it and n_bits <= _MOST_PASSES * _bits_of_digits(numbers.size):
            return _order_by_digits(numbers, low, n_bits)
        return np.argsort(numbers, kind="stable" if stable else None)
    if high - low >= _MOST_COUNTED:
        n_bits = _BITS_OF_GROUPS
    groups = _Groups(numbers, low, high, n_bits, pulse)
    order = np.empty(numbers.size, dtype=np.int64)
    nexts = groups.starts[:-1].copy()
    for start in range(0, numbers.size, LONG):
        _deal(numbers, groups.low, groups.shift, nexts, order, start, start + LONG)
        pulse.beat()

    def run(start: int, end: int, pulse: Pulse) -> None:
        own = order[start:end]
        own[:] = own[_order(numbers[own], pulse, 1, stable=stable)]

    groups.each(run, workers, pulse)
    return order


def _bits_of_digits(n: int) -> int:
    """Return how many bits of numbers are counted at once: there are about as many counts."""
    return min((2 * n).bit_length() - 1, _MOST_COUNTED.bit_length() - 1)


def _order_by_digits(numbers: AnyIntArray, low: int, n_bits: int) -> IntArray:
    """Return the order of numbers by as few digits as there may be, the lowest of which is first.

    **Source:** D. E. Knuth, *The Art of Computer Programming* 3, Section 5.2.5, Algorithm R.
    """
    n_passes = max(1, -(-n_bits // _bits_of_digits(numbers.size)))
    width = -(-n_bits // n_passes)
    order = np.arange(numbers.size)
    for digit in range(n_passes):
        order = _by_digit(numbers, np.uint64(low % 2**64), digit * width, width, order)
    return order


class _Groups:
    """Groups of numbers by their highest bits, above the least of them.

    Parameters
    ----------
    numbers : ndarray of int, shape (n,)
    low, high : int
        The least and the greatest of them.
    n_bits : int
        Of the numbers of groups.
    pulse : Pulse
    """

    def __init__(
        self, numbers: AnyIntArray, low: int, high: int, n_bits: int, pulse: Pulse
    ) -> None:
        self.low = np.uint64(low % 2**64)
        self.shift = np.uint64(max((high - low).bit_length() - n_bits, 0))
        counts = np.zeros(((high - low) >> int(self.shift)) + 1, dtype=np.int64)
        for start in range(0, numbers.size, LONG):
            _count(numbers[start : start + LONG], self.low, self.shift, counts)
            pulse.beat()
        self.starts: IntArray = np.append(0, np.cumsum(counts))

    def each(self, run: Callable[[int, int, Pulse], None], workers: int, pulse: Pulse) -> None:
        """Run something for each group with several numbers, given where it starts and ends."""
        if not self.shift:  # all numbers of a group are equal
            return

        def run_some(part: range, pulse: Pulse) -> None:
            for group in part:
                start, end = self.starts[group : group + 2].tolist()
                if end - start > 1:
                    run(start, end, pulse)
                    pulse.beat()

        if workers == 1:
            run_some(range(self.starts.size - 1), pulse)
        else:
            in_threads(run_some, list(self._parts()), workers, pulse.of_part())

    def _parts(self) -> Iterator[range]:
        """Divide the groups into runs of about as many numbers."""
        ends = np.flatnonzero(np.diff(self.starts[1:] // _NUMBERS_OF_PART, append=-1)) + 1
        start = 0
        for end in ends.tolist():
            yield range(start, end)
            start = end


@numba.njit(cache=True, nogil=True)
def _by_digit(
    numbers: AnyIntArray, low: np.uint64, shift: int, width: int, before: IntArray
) -> IntArray:
    """Bring an order into that of a digit; places with the same one stay as they are."""
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    nexts = np.zeros((1 << width) + 1, dtype=np.int64)
    for number in numbers:
        nexts[((np.uint64(number) - low) >> np.uint64(shift) & mask) + np.uint64(1)] += 1
    nexts = np.cumsum(nexts)
    order = np.empty_like(before)
    for place in before:
        digit = (np.uint64(numbers[place]) - low) >> np.uint64(shift) & mask
        order[nexts[digit]] = place
        nexts[digit] += 1
    return order


@numba.njit(cache=True, nogil=True)
def _count(numbers: AnyIntArray, low: np.uint64, shift: np.uint64, counts: IntArray) -> None:
    """Count the numbers of each group."""
    for number in numbers:
        counts[(np.uint64(number) - low) >> shift] += 1


@numba.njit(cache=True, nogil=True)
def _deal(
    numbers: AnyIntArray,
    low: np.uint64,
    shift: np.uint64,
    nexts: IntArray,
    order: IntArray,
    start: int,
    end: int,
) -> None:
    """Put the places of some numbers, one after the other, into their groups."""
    for place in range(start, min(end, numbers.size)):
        group = (np.uint64(numbers[place]) - low) >> shift
        order[nexts[group]] = place
        nexts[group] += 1
