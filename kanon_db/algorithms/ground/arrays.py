"""Declares the array types of all algorithms; sorts, shuffles and numbers long arrays.

A cancel ends each of these operations within tenths of a second, however long the array is. Types
are named after their contents where that fixes the type, otherwise after the type.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from inspect import unwrap
from typing import Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.computation import (
    Pulse,
    in_threads,
    kernel,
    n_cores,
    tune_heap,
)
from kanon_db.heartbeat import beat

CodeArray: TypeAlias = npt.NDArray[np.int32]
"""Codes of values, as they come from the database; matches of freeform records."""

SmallIntArray: TypeAlias = npt.NDArray[np.int16]
"""Limits on how often a value may stand in a bucket."""

SmallWordArray: TypeAlias = npt.NDArray[np.uint32]
"""Sets of bits beside numbers of 32 bits."""

IntArray: TypeAlias = npt.NDArray[np.int64]
"""Counts, positions, numbers of records and classes, losses in units."""

AnyIntArray: TypeAlias = npt.NDArray[np.integer]
"""Integers of any width, as callers pass them."""

WordArray: TypeAlias = npt.NDArray[np.uint64]
"""Sets of bits; the state of a random generator."""

FloatArray: TypeAlias = npt.NDArray[np.float64]

SingleArray: TypeAlias = npt.NDArray[np.float32]
"""Estimates; whatever depends on them is checked with exact numbers first."""

AnyFloatArray: TypeAlias = npt.NDArray[np.floating]
"""Of either width, in loops that are compiled for both."""

BoolArray: TypeAlias = npt.NDArray[np.bool_]

Integer: TypeAlias = int | np.integer
"""A whole number as compiled code takes and returns it."""


_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_LARGE_ARRAY: Final = 1 << 20
_KEPT: Final = 8 << 20
"""Bytes."""


def give_back() -> None:
    """Return freed memory that the C library keeps to the system.

    glibc returns only its heap's end, so a server's process would stay as large as it was.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


@contextmanager
def giving_back() -> Iterator[None]:
    """Return each array of a megabyte or more to the system once it is freed, while the block runs.

    For long work with many arrays. **Source:** M_MMAP_THRESHOLD, M_TRIM_THRESHOLD in `man mallopt`.
    """
    _keep(_LARGE_ARRAY, _LARGE_ARRAY)
    try:
        yield
    finally:
        _keep(_KEPT, 2 * _KEPT)


def _keep(array: int, free: int) -> None:
    """Set glibc's thresholds in bytes: of arrays on the heap, and of free memory at its end."""
    tune_heap(_M_MMAP_THRESHOLD, array)
    tune_heap(_M_TRIM_THRESHOLD, free)


def hash_numbers(numbers: AnyIntArray) -> WordArray:
    """Hash each number to 64 bits, so that sums of hashes identify what was summed.

    **Source:** the output function of SplitMix64 (G. Steele et al., OOPSLA 2014), one to one.
    """
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


_Integer = TypeVar("_Integer", bound=np.integer)

LONG: Final = 1 << 22
"""Numbers sorted or moved between two heartbeats: at most some tenths of a second."""

_BITS_OF_GROUPS: Final = 11
_MOST_COUNTED: Final = 1 << 20
"""Counts that fit into the cache: of groups that have one number each, or of digits."""

_FEW: Final = 1 << 16
"""Up to this length, numpy sorts in some milliseconds; compiling a loop takes 0.3 seconds."""

_MOST_PASSES: Final = 4
"""Over a short array, by digits of as many values as it has numbers: numpy would take longer."""

_NUMBERS_OF_PART: Final = 1 << 19


def narrow(codes: AnyIntArray) -> AnyIntArray:
    """Return codes from 0 on in as few bytes as they need."""
    return codes.astype(np.min_scalar_type(int(codes.max(initial=0))), copy=False)


def order_of(numbers: AnyIntArray, *, stable: bool = False) -> IntArray:
    """Return the order of whole numbers.

    Long arrays are dealt to groups that fit the cache: faster, and with heartbeats.
    """
    native = numbers.astype(numbers.dtype.newbyteorder("="), copy=False)
    return _order(native, Pulse(heartbeat=beat), n_cores(), stable=stable)


def taken(values: npt.NDArray[_Integer], order: AnyIntArray) -> npt.NDArray[_Integer]:
    """Return ``values[order]``, with heartbeats: random reads of a long array are slow, too."""
    if order.size <= LONG:
        picked: npt.NDArray[_Integer] = values[order]
        return picked
    picked = np.empty(order.size, dtype=values.dtype)
    for start in range(0, order.size, LONG):
        np.take(values, order[start : start + LONG], out=picked[start : start + LONG])
        beat()
    return picked


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
    """Return the number of bits in a digit: about as many counts as there are numbers."""
    return min((2 * n).bit_length() - 1, _MOST_COUNTED.bit_length() - 1)


def _order_by_digits(numbers: AnyIntArray, low: int, n_bits: int) -> IntArray:
    """Return the order of numbers, sorted by as few digits as possible, the lowest first.

    **Source:** D. E. Knuth, *The Art of Computer Programming* 3, Section 5.2.5, Algorithm R.
    """
    n_passes = max(1, -(-n_bits // _bits_of_digits(numbers.size)))
    width = -(-n_bits // n_passes)
    order = np.arange(numbers.size)
    for digit in range(n_passes):
        order = _by_digit(numbers, np.uint64(low % 2**64), digit * width, width, order)
    return order


class _Groups:
    """Groups of numbers by their highest bits, above the least of them."""

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
        """Call ``run`` with the start and the end of each group that has several numbers."""
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


@kernel
def _by_digit(
    numbers: AnyIntArray, low: np.uint64, shift: int, width: int, before: IntArray
) -> IntArray:
    """Sort an order stably by one digit."""
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    nexts = np.zeros((1 << width) + 1, dtype=np.int64)
    for number in numbers:
        nexts[((np.uint64(number) - low) >> np.uint64(shift) & mask) + np.uint64(1)] += 1
    for i in range(1, nexts.size):
        nexts[i] += nexts[i - 1]
    order = np.empty_like(before)
    for place in before:
        digit = (np.uint64(numbers[place]) - low) >> np.uint64(shift) & mask
        order[nexts[digit]] = place
        nexts[digit] += 1
    return order


@kernel
def _count(numbers: AnyIntArray, low: np.uint64, shift: np.uint64, counts: IntArray) -> None:
    """Count the numbers of each group."""
    for number in numbers:
        counts[(np.uint64(number) - low) >> shift] += 1


@kernel
def _deal(
    numbers: AnyIntArray,
    low: np.uint64,
    shift: np.uint64,
    nexts: IntArray,
    order: IntArray,
    start: int,
    end: int,
) -> None:
    """Deal the places of some numbers to their groups, in order."""
    for place in range(start, min(end, numbers.size)):
        group = (np.uint64(numbers[place]) - low) >> shift
        order[nexts[group]] = place
        nexts[group] += 1


def distinct(keys: npt.NDArray[_Integer]) -> npt.NDArray[_Integer]:
    """Return the distinct keys, ascending.

    Parameters
    ----------
    keys : ndarray of integers, shape (n,)

    Returns
    -------
    ndarray of the same type, shape (n_distinct,)

    Notes
    -----
    It returns what :func:`numpy.unique` does, which hashes and takes ten times as long for a
    million keys, and first loads numpy's masked arrays, for 7 ms.

    Examples
    --------
    >>> distinct(np.array([3, 1, 3]))
    array([1, 3])
    """
    ordered = np.sort(keys)
    is_new = np.ones(ordered.size, dtype=np.bool_)
    is_new[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_new]


def numbered(keys: AnyIntArray) -> IntArray:
    """Return the number of each key among the distinct ones, which count from 0 in their order.

    The inverse of :func:`numpy.unique`; keys close together are looked up, in a fifth of the time.
    """
    least, greatest = int(keys.min(initial=0)), int(keys.max(initial=0))
    if greatest - least > keys.size:
        order = order_of(keys)
        ordered = taken(keys, order)
        is_new = np.zeros(keys.size, dtype=np.bool_)
        is_new[1:] = ordered[1:] != ordered[:-1]
        del ordered  # of a long array, two at a time are many bytes
        numbers = np.empty(keys.size, dtype=np.int64)
        numbers[order] = np.cumsum(is_new)
        return numbers
    places = keys - least if least else keys
    is_key = np.zeros(greatest - least + 1, dtype=np.bool_)
    is_key[places] = True
    found: IntArray = (np.cumsum(is_key) - 1)[places]
    return found


def number_as_seen(keys: AnyIntArray) -> IntArray:
    """Return the number of each key, from 0 in the order in which keys are first seen."""
    numbers = numbered(keys)
    first = np.empty(int(numbers.max(initial=-1)) + 1, dtype=np.int64)
    first[numbers[::-1]] = np.arange(keys.size)[::-1]
    places = np.empty_like(first)
    places[np.argsort(first)] = np.arange(first.size)
    return taken(places, numbers)


_LARGEST_KEY = 2**62


def sort_keys(columns: Iterable[AnyIntArray], *, reflected: bool = False) -> IntArray:
    """Pack the codes of each record into one integer, to sort by, the first attribute foremost.

    ``reflected``: as a reflected Gray code. Distinct codes are numbered before they overflow.
    """
    keys = np.zeros(1, dtype=np.int64)
    n_keys = 1
    for column in columns:
        n_codes = int(column.max(initial=0)) + 1
        if n_keys * n_codes > _LARGEST_KEY:
            keys = numbered(keys)
            n_keys = int(keys.max(initial=0)) + 1
        turned = np.where(keys % 2, n_codes - 1 - column, column) if reflected else column
        keys = keys * n_codes
        keys = np.add(keys, turned, out=keys if keys.size == turned.size else None)
        n_keys *= n_codes
    return keys


MOST_AT_ONCE: Final = 1 << 22
"""Most places to shuffle at once; with more, random accesses would miss the cache."""

_FEW_SHUFFLED: Final = 1 << 14
"""Up to this length, Python shuffles in a few milliseconds. Loading numba takes 0.1 seconds, and a
publication of few people may need it for nothing else."""

_BITS_OF_SHUFFLED_GROUPS: Final = 11
_SPARE_WORDS: Final = 16


def shuffled(n: int, random_bytes: Callable[[int], bytes]) -> AnyIntArray:
    """Draw an order of ``0 … n-1``.

    **Source:** Fisher, Yates 1938 (Durstenfeld 1964); Lemire 2019; Sandelius 1962. Exact.
    """
    kind = np.int32 if n <= np.iinfo(np.int32).max else np.int64
    if n <= _FEW_SHUFFLED:
        places = list(range(n))
        _shuffle(places, random_bytes)
        return np.array(places, dtype=kind)
    if n <= MOST_AT_ONCE:
        order: AnyIntArray = np.arange(n, dtype=kind)
        _shuffle(order, random_bytes)
        return order
    dealt: AnyIntArray = np.empty(n, dtype=kind)
    start = 0
    for end in _deal_places(dealt, random_bytes).tolist():
        _shuffle(dealt[start:end], random_bytes)
        beat()
        start = end
    return dealt


def _shuffle(places: AnyIntArray | list[int], random_bytes: Callable[[int], bytes]) -> None:
    """Shuffle fewer than 2^31 places in place; those of a list without loading numba."""
    left = len(places)
    while left > 1:
        # Nearly always enough: a number is rejected with a probability below left / 2^32.
        words = np.frombuffer(random_bytes(4 * (left + _SPARE_WORDS)), dtype=np.uint32)
        if isinstance(places, list):
            left = unwrap(_swap)(places, left, words.tolist())
        else:
            left = _swap(places, left, words)


def _deal_places(dealt: AnyIntArray, random_bytes: Callable[[int], bytes]) -> IntArray:
    """Deal the places to groups at random; return where each of these ends."""
    groups = np.empty(dealt.size, dtype=np.uint16)
    counts = np.zeros(1 << _BITS_OF_SHUFFLED_GROUPS, dtype=np.int64)
    parts = [slice(start, start + MOST_AT_ONCE) for start in range(0, dealt.size, MOST_AT_ONCE)]
    for part in parts:
        drawn = np.frombuffer(random_bytes(2 * groups[part].size), dtype=np.uint16)
        groups[part] = drawn >> np.uint16(16 - _BITS_OF_SHUFFLED_GROUPS)
        counts += np.bincount(groups[part], minlength=counts.size)
        beat()
    ends: IntArray = np.cumsum(counts)
    nexts = ends - counts
    for part in parts:
        _put(groups[part], part.start, nexts, dealt)
        beat()
    return ends


@kernel
def _swap(places: AnyIntArray, left: int, words: SmallWordArray) -> int:
    """Swap the last place left with a random one, as long as words last; return how many are left.

    Takes the upper half of w * left; rejects w < 2^32 where some numbers would be likelier.
    """
    for word in words:
        if left <= 1:
            break
        product = word * left
        lower = product & 0xFFFFFFFF
        if lower < left and lower < (0x100000000 - left) % left:
            continue
        left -= 1
        other = product >> 32
        places[left], places[other] = places[other], places[left]
    return left


@kernel
def _put(groups: AnyIntArray, start: int, nexts: IntArray, dealt: AnyIntArray) -> None:
    """Deal the places from `start` on to their groups, in order."""
    for i in range(groups.size):
        group = groups[i]
        dealt[nexts[group]] = start + i
        nexts[group] += 1


def components(n: int, one: AnyIntArray, other: AnyIntArray) -> IntArray:
    """Return the lowest number in the connected component of each number, given linked pairs."""
    return _roots(n, one.astype(np.int64), other.astype(np.int64))


@kernel
def _roots(n: int, one: IntArray, other: IntArray) -> IntArray:
    root = np.arange(n)
    for i in range(one.size):
        a, b = one[i], other[i]
        while root[a] != a:
            root[a] = root[root[a]]
            a = root[a]
        while root[b] != b:
            root[b] = root[root[b]]
            b = root[b]
        if a != b:
            root[max(a, b)] = min(a, b)
    for i in range(n):
        root[i] = root[root[i]]
    return root


def unpack_levels(planes: bytes, n_records: int) -> npt.NDArray[np.uint8]:
    """Return the numbers whose binary digits, at most eight, are bitmaps, the lowest first.

    Examples
    --------
    >>> unpack_levels(bytes([0b01, 0b11]), 2).tolist()
    [3, 2]
    """
    length = -(-n_records // 8)
    levels = np.zeros(n_records, np.uint8)
    for digit, first in enumerate(range(0, len(planes), length)):
        plane = np.frombuffer(planes, np.uint8, length, first)
        levels |= np.unpackbits(plane, bitorder="little", count=n_records) << digit
    return levels
