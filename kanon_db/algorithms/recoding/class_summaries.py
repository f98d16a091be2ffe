"""Equivalence classes that records enter and leave: what each such step loses, in one look.

A class keeps the set of its categorical values as bits, a second set of those that only one record
has, and of each numeric attribute the two lowest and the two highest positions. So what the class
loses without one of its records, with another one, or both, follows without looking at its records.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, IntArray, Integer, WordArray
from kanon_db.algorithms.recoding.packed_records import PackedRecords, bits_loss

_BEYOND = 2**31 - 1

NONE: Final = np.int64(-1)
"""No record, or no class. For a plain -1, and for numbers of records in fewer bits, numba would
compile each kernel once more; so callers make them int64."""


class ClassSummaries(NamedTuple):
    """Equivalence classes and what their records have in common; changed in place.

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
    def of(cls, records: PackedRecords, class_of_record: IntArray, room: int = 0) -> ClassSummaries:
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
        ClassSummaries
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


@numba.njit(cache=True, nogil=True, inline="always")
def members_of(classes: ClassSummaries, g: Integer) -> CodeArray:
    """List the records of class g."""
    start = classes.starts[g]
    return classes.members[start : start + classes.sizes[g]]


@numba.njit(cache=True, nogil=True)
def exchange(
    records: PackedRecords, classes: ClassSummaries, g: Integer, leaving: Integer, entering: Integer
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
def entry(
    records: PackedRecords, classes: ClassSummaries, g: Integer, entering: Integer
) -> Integer:
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
def departure(
    records: PackedRecords, classes: ClassSummaries, g: Integer, leaving: Integer
) -> Integer:
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
def union_loss(records: PackedRecords, classes: ClassSummaries, g: Integer, h: Integer) -> Integer:
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
def move(classes: ClassSummaries, record: Integer, g: Integer) -> None:
    """Move a record into class g, or out of all classes if g is -1; summaries stay as they are."""
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
def make_move(records: PackedRecords, classes: ClassSummaries, record: Integer, h: Integer) -> None:
    """Move a record into class h, or out of all classes if h is -1, and summarize again."""
    g = classes.class_of_record[record]
    if g >= 0:
        classes.losses[g] += departure(records, classes, g, record)
    if h >= 0:
        classes.losses[h] += entry(records, classes, h, record)
    move(classes, record, h)
    for changed in (g, h):
        if changed >= 0:
            summarize(records, classes, changed)


@numba.njit(cache=True, nogil=True)
def summarize(records: PackedRecords, classes: ClassSummaries, g: Integer) -> None:
    """Find the sets and ends of class g anew from its members."""
    present, twice = classes.present[g], classes.once[g]
    present[:] = 0
    twice[:] = 0
    members = members_of(classes, g)
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
def _summarize_all(records: PackedRecords, classes: ClassSummaries) -> None:
    for g in range(classes.sizes.size):
        if classes.sizes[g]:
            summarize(records, classes, g)
            classes.losses[g] = union_loss(records, classes, g, g)
