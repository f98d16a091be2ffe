"""Equivalence classes that records enter and leave: what each such step loses, in one look.

A class keeps the set of its categorical values as bits, a second set of those that only one record
has, and of each numeric attribute the two lowest and the two highest positions. So what the class
loses without one of its records, with another one, or both, follows without looking at its records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, IntArray, Integer, WordArray
from kanon_db.algorithms.recoding.ncp import Ncp

LeftOverRule = Literal["least_increase", "least_result"]

_BITS = 64
# Multiplied by a power of two, its leading six bits tell which one.
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_LOWEST_BIT = np.zeros(64, dtype=np.int64)
_LOWEST_BIT[[(0x03F79D71B4CB0A89 << position) % 2**64 >> 58 for position in range(64)]] = np.arange(
    64
)
_BEYOND = 2**31 - 1
_RECORDS_PER_HEARTBEAT = 8


class PackedRecords(NamedTuple):
    """Records as bits and positions.

    Parameters
    ----------
    words : ndarray of int32, shape (n_records, g)
        Of each group of attributes, which word the bits of the record are in.
    bits : ndarray of uint64, shape (n_records, g)
        The bits themselves: one for each attribute of the group.
    bit_loss : ndarray of int64, shape (64 n_words,)
        Loss, in units, of one more value, by its bit.
    numbers : ndarray of int32, shape (n_records, p)
        Positions of the numeric attributes.
    whole : ndarray of int64, shape (p,)
        Loss, in units, of a numeric cell that tells nothing.
    one_value : int
        Loss, in units, of the bits of one record, which a class does not lose.
    """

    words: CodeArray
    bits: WordArray
    bit_loss: IntArray
    numbers: CodeArray
    whole: IntArray
    one_value: int

    @classmethod
    def of(cls, ncp: Ncp) -> PackedRecords:
        """Pack the values of records.

        Parameters
        ----------
        ncp : Ncp

        Returns
        -------
        PackedRecords

        Notes
        -----
        Attributes with few values share a word; one with more than 64 has words of its own.
        Only values that occur get a bit.
        """
        categorical = np.flatnonzero(~ncp.numeric).tolist()
        codes = {j: np.unique(ncp.values[:, j], return_inverse=True)[1] for j in categorical}
        sizes = {j: int(codes[j].max(initial=0)) + 1 for j in categorical}
        groups: list[tuple[int, list[int]]] = []  # bits in use, attributes
        for j in sorted(categorical, key=lambda j: -sizes[j]):
            for position, (n_used, members) in enumerate(groups):
                if n_used + sizes[j] <= _BITS:
                    groups[position] = (n_used + sizes[j], [*members, j])
                    break
            else:
                groups.append((sizes[j], [j]))
        n_words = [-(-n_used // _BITS) for n_used, _ in groups]
        words = np.zeros((ncp.values.shape[0], len(groups)), dtype=np.int32)
        bits = np.zeros(words.shape, dtype=np.uint64)
        bit_loss = np.zeros(sum(n_words) * _BITS, dtype=np.int64)
        for g, (_, members) in enumerate(groups):
            offset = sum(n_words[:g]) * _BITS
            words[:, g] = offset // _BITS
            for j in members:
                positions = offset + codes[j]
                words[:, g] = positions // _BITS
                bits[:, g] |= np.uint64(1) << (positions % _BITS).astype(np.uint64)
                bit_loss[offset : offset + sizes[j]] = ncp.step[j]
                offset += sizes[j]
        numbers = np.ascontiguousarray(ncp.values[:, ncp.numeric])
        one_value = int(ncp.step.sum())
        return cls(words, bits, bit_loss, numbers, ncp.whole[ncp.numeric], one_value)

    @property
    def n_words(self) -> int:
        """Words of the set of a class."""
        return self.bit_loss.size // _BITS


class Classes(NamedTuple):
    """Equivalence classes, changed in place.

    Parameters
    ----------
    class_of_record : ndarray of int64, shape (n_records,)
        -1 for a record in none.
    members : ndarray of int32, shape (starts[-1],)
        Records of class g, in the first ``sizes[g]`` places from ``starts[g]`` on.
    starts : ndarray of int64, shape (n_classes + 1,)
    place : ndarray of int32, shape (n_records,)
        Where in ``members`` each record is.
    sizes : ndarray of int64, shape (n_classes,)
        Records of each class.
    present, once : ndarray of uint64, shape (n_classes, n_words)
        Values that some record has, and that just one has.
    ends : ndarray of int32, shape (n_classes, p, 4)
        Lowest, second lowest, highest and second highest position.
    losses : ndarray of int64, shape (n_classes,)
        Loss, in units, of each record of the class.
    """

    class_of_record: IntArray
    members: CodeArray
    starts: IntArray
    place: CodeArray
    sizes: IntArray
    present: WordArray
    once: WordArray
    ends: CodeArray
    losses: IntArray

    @classmethod
    def of(cls, records: PackedRecords, class_of_record: IntArray, room: int = 0) -> Classes:
        """Gather the records of each class.

        Parameters
        ----------
        records : PackedRecords
        class_of_record : ndarray of int64, shape (n_records,)
            Classes numbered from 0 without gaps; -1 for a record in none.
        room : int
            How many more records each class can take.

        Returns
        -------
        Classes
        """
        n_classes = int(class_of_record.max(initial=-1)) + 1
        sizes = np.bincount(class_of_record + 1, minlength=n_classes + 1)[1:]
        order = np.argsort(class_of_record, kind="stable")[class_of_record.size - sizes.sum() :]
        starts = np.concatenate([[0], np.cumsum(sizes + room)])
        places = np.arange(order.size) + np.repeat(np.arange(n_classes) * room, sizes)
        place = np.zeros(class_of_record.size, dtype=np.int32)
        place[order] = places
        members = np.full(starts[-1], -1, dtype=np.int32)
        members[places] = order
        shape = (n_classes, records.n_words)
        classes = cls(
            class_of_record.copy(), members, starts, place, sizes,
            np.zeros(shape, dtype=np.uint64), np.zeros(shape, dtype=np.uint64),
            np.zeros((n_classes, records.whole.size, 4), dtype=np.int32),
            np.zeros(n_classes, dtype=np.int64),
        )  # fmt: skip
        _summarize_all(records, classes)
        return classes


def place_left_over(
    ncp: Ncp,
    class_of_record: IntArray,
    left_over: IntArray,
    rule: LeftOverRule = "least_increase",
    heartbeat: Callable[[], None] = lambda: None,
) -> IntArray:
    """Put records, one by one, into the classes that lose least by them.

    Parameters
    ----------
    ncp : Ncp
    class_of_record : ndarray of int64, shape (n_records,)
        Classes numbered from 0 without gaps; -1 for a record in none.
    left_over : ndarray of int64
        Records to be placed, in this order.
    rule : {"least_increase", "least_result"}
        Whether the loss that a class gains is to be least, or that which it has afterwards. Of
        several classes the first.
    heartbeat : callable
        Called every few records.

    Returns
    -------
    ndarray of int64, shape (n_records,)

    Notes
    -----
    **Source:** [OB] Section 3.2, Table 7.
    """
    if not left_over.size:
        return class_of_record
    records = PackedRecords.of(ncp)
    classes = Classes.of(records, class_of_record, left_over.size)
    for start in range(0, left_over.size, _RECORDS_PER_HEARTBEAT):
        heartbeat()
        _place(
            records, classes, left_over[start : start + _RECORDS_PER_HEARTBEAT],
            rule == "least_increase",
        )  # fmt: skip
    return classes.class_of_record


def disperse(
    records: PackedRecords,
    class_of_record: IntArray,
    neighbors: CodeArray,
    type_of_record: CodeArray,
    first_of_type: IntArray,
    k: int,
    share: float,
    random: np.random.Generator,
) -> IntArray:
    """Give up some classes; their records join the classes of records much like them.

    Parameters
    ----------
    records : PackedRecords
        In order of their row types.
    class_of_record : ndarray of int64, shape (n_records,)
        Classes numbered from 0 without gaps.
    neighbors : ndarray of int32, shape (t, q)
        Row types near to each one; -1: none.
    type_of_record : ndarray of int32, shape (n_records,)
    first_of_type : ndarray of int64, shape (t + 1,)
    k : int
        Room for more records in each class.
    share : float
        How many of the classes, rounded down.
    random : numpy.random.Generator

    Returns
    -------
    ndarray of int64, shape (n_records,)
        Classes numbered from 0 without gaps. A class stays if one of its records finds no other.
    """
    n_classes = int(class_of_record.max()) + 1
    given_up = random.permutation(n_classes)[: int(n_classes * share)]
    classes = Classes.of(records, class_of_record, k)
    _disperse(records, classes, given_up, neighbors, type_of_record, first_of_type)
    numbers: IntArray = np.unique(classes.class_of_record, return_inverse=True)[1]
    return numbers


@numba.njit(cache=True, nogil=True)
def lowest_bit(bits: np.uint64) -> Integer:
    """Find the position of the lowest bit that is set."""
    alone = bits & (~bits + np.uint64(1))
    return np.int64(_LOWEST_BIT[(alone * _DE_BRUIJN) >> np.uint64(58)])


@numba.njit(cache=True, nogil=True)
def bits_loss(bits: np.uint64, word: Integer, bit_loss: IntArray) -> Integer:
    """Loss, in units, of all values of a word."""
    total = 0
    while bits:
        total += int(bit_loss[np.int64(word) * 64 + lowest_bit(bits)])
        bits &= bits - np.uint64(1)
    return total


@numba.njit(cache=True, nogil=True)
def exchange(
    records: PackedRecords, classes: Classes, g: Integer, leaving: Integer, entering: Integer
) -> Integer:
    """Tell what a record of class g loses more if one record leaves and another enters."""
    difference = 0
    for group in range(records.words.shape[1]):
        word_out, word_in = records.words[leaving, group], records.words[entering, group]
        bits_in = records.bits[entering, group]
        gained = bits_in & ~classes.present[g, word_in]
        lost = records.bits[leaving, group] & classes.once[g, word_out]
        if word_out == word_in:
            lost &= ~bits_in
        if gained:
            difference += bits_loss(gained, word_in, records.bit_loss)
        if lost:
            difference -= bits_loss(lost, word_out, records.bit_loss)
    for j in range(records.whole.size):
        low, high = classes.ends[g, j, 0], classes.ends[g, j, 2]
        before = min(np.int64(high - low), records.whole[j])
        number = records.numbers[leaving, j]
        if number == low:
            low = classes.ends[g, j, 1]
        if number == high:
            high = classes.ends[g, j, 3]
        number = records.numbers[entering, j]
        low, high = min(low, number), max(high, number)
        difference += min(np.int64(high - low), records.whole[j]) - before
    return difference


@numba.njit(cache=True, nogil=True)
def entry(records: PackedRecords, classes: Classes, g: Integer, entering: Integer) -> Integer:
    """Tell what a record of class g loses more if another record enters."""
    difference = 0
    for group in range(records.words.shape[1]):
        word = records.words[entering, group]
        gained = records.bits[entering, group] & ~classes.present[g, word]
        if gained:
            difference += bits_loss(gained, word, records.bit_loss)
    for j in range(records.whole.size):
        low, high = classes.ends[g, j, 0], classes.ends[g, j, 2]
        number = records.numbers[entering, j]
        after = max(high, number) - min(low, number)
        difference += min(np.int64(after), records.whole[j])
        difference -= min(np.int64(high - low), records.whole[j])
    return difference


@numba.njit(cache=True, nogil=True)
def departure(records: PackedRecords, classes: Classes, g: Integer, leaving: Integer) -> Integer:
    """Tell what a record of class g, of at least two, loses more if one leaves: at most 0."""
    difference = 0
    for group in range(records.words.shape[1]):
        word = records.words[leaving, group]
        lost = records.bits[leaving, group] & classes.once[g, word]
        if lost:
            difference -= bits_loss(lost, word, records.bit_loss)
    for j in range(records.whole.size):
        low, high = classes.ends[g, j, 0], classes.ends[g, j, 2]
        before = min(np.int64(high - low), records.whole[j])
        number = records.numbers[leaving, j]
        if number == low:
            low = classes.ends[g, j, 1]
        if number == high:
            high = classes.ends[g, j, 3]
        difference += min(np.int64(high - low), records.whole[j]) - before
    return difference


@numba.njit(cache=True, nogil=True)
def union_loss(records: PackedRecords, classes: Classes, g: Integer, h: Integer) -> Integer:
    """Loss, in units, of each record of two classes as one."""
    total = -records.one_value
    for word in range(classes.present.shape[1]):
        total += bits_loss(
            classes.present[g, word] | classes.present[h, word], word, records.bit_loss
        )
    for j in range(records.whole.size):
        low = min(classes.ends[g, j, 0], classes.ends[h, j, 0])
        high = max(classes.ends[g, j, 2], classes.ends[h, j, 2])
        total += min(np.int64(high - low), records.whole[j])
    return total


@numba.njit(cache=True, nogil=True)
def move(classes: Classes, record: Integer, g: Integer) -> None:
    """Move a record into class g, or out of all if g is -1, without summarizing again."""
    h = classes.class_of_record[record]
    if h >= 0:
        classes.sizes[h] -= 1
        last = classes.members[classes.starts[h] + classes.sizes[h]]
        classes.members[classes.place[record]] = last
        classes.place[last] = classes.place[record]
    if g >= 0:
        place = classes.starts[g] + classes.sizes[g]
        classes.members[place] = record
        classes.place[record] = place
        classes.sizes[g] += 1
    classes.class_of_record[record] = g


@numba.njit(cache=True, nogil=True)
def summarize(records: PackedRecords, classes: Classes, g: Integer) -> None:
    """Find the sets and ends of class g anew from its members."""
    present, twice = classes.present[g], classes.once[g]
    present[:] = 0
    twice[:] = 0
    members = classes.members[classes.starts[g] : classes.starts[g] + classes.sizes[g]]
    for record in members:
        for group in range(records.words.shape[1]):
            word, bits = records.words[record, group], records.bits[record, group]
            twice[word] |= present[word] & bits
            present[word] |= bits
    for word in range(present.size):
        classes.once[g, word] = present[word] & ~twice[word]
    for j in range(records.whole.size):
        low, low2, high, high2 = _BEYOND, _BEYOND, -1, -1
        for record in members:
            number = records.numbers[record, j]
            if number < low:
                low, low2 = number, low
            elif number < low2:
                low2 = number
            if number > high:
                high, high2 = number, high
            elif number > high2:
                high2 = number
        classes.ends[g, j, 0], classes.ends[g, j, 1] = low, low2
        classes.ends[g, j, 2], classes.ends[g, j, 3] = high, high2


@numba.njit(cache=True, nogil=True)
def _summarize_all(records: PackedRecords, classes: Classes) -> None:
    for g in range(classes.sizes.size):
        if classes.sizes[g]:
            summarize(records, classes, g)
            classes.losses[g] = union_loss(records, classes, g, g)


@numba.njit(cache=True, nogil=True)
def _place(
    records: PackedRecords, classes: Classes, left_over: IntArray, by_increase: bool
) -> None:
    for record in left_over:
        best, best_loss = -1, 0
        for g in range(classes.sizes.size):
            after = classes.losses[g] + entry(records, classes, g, record)
            loss = after * (classes.sizes[g] + 1)
            if by_increase:
                loss -= classes.losses[g] * classes.sizes[g]
            if best < 0 or loss < best_loss:
                best, best_loss = g, loss
        classes.losses[best] += entry(records, classes, best, record)
        move(classes, record, best)
        summarize(records, classes, best)


@numba.njit(cache=True, nogil=True)
def _disperse(
    records: PackedRecords,
    classes: Classes,
    given_up: IntArray,
    neighbors: CodeArray,
    type_of_record: CodeArray,
    first_of_type: IntArray,
) -> None:
    is_given_up = np.zeros(classes.sizes.size, dtype=np.bool_)
    is_given_up[given_up] = True
    for g in given_up:
        start = classes.starts[g]
        members = classes.members[start : start + classes.sizes[g]].copy()
        targets = np.full(members.size, -1, dtype=np.int64)
        for i in range(members.size):
            least = 0
            for near in neighbors[type_of_record[members[i]]]:
                if near < 0:
                    break
                for other in range(first_of_type[near], first_of_type[near + 1]):
                    h = classes.class_of_record[other]
                    # Room for all the others of the class too.
                    space = classes.starts[h + 1] - classes.starts[h] - classes.sizes[h]
                    if is_given_up[h] or space < members.size:
                        continue
                    after = classes.losses[h] + entry(records, classes, h, members[i])
                    more = after * (classes.sizes[h] + 1) - classes.losses[h] * classes.sizes[h]
                    if targets[i] < 0 or more < least:
                        targets[i], least = h, more
        if (targets < 0).any():
            is_given_up[g] = False
            continue
        for i in range(members.size):
            h = targets[i]
            classes.losses[h] += entry(records, classes, h, members[i])
            move(classes, members[i], h)
            summarize(records, classes, h)
