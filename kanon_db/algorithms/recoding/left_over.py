"""Placing the records that are left over when classes have been grown."""

from __future__ import annotations

from typing import Literal

import numba

from kanon_db.algorithms.ground.arrays import IntArray, Integer
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.recoding.class_summaries import NONE, ClassSummaries, entry, make_move
from kanon_db.algorithms.recoding.ncp import Ncp
from kanon_db.algorithms.recoding.packed_records import PackedRecords

LeftOverRule = Literal["least_increase", "least_result"]

_RECORDS_PER_BEAT = 8


def place_left_over(
    ncp: Ncp,
    class_of_record: IntArray,
    left_over: IntArray,
    rule: LeftOverRule = "least_increase",
    pulse: Pulse = UNLIMITED,
) -> IntArray:
    """Put records, one by one, into the classes that lose least by taking them.

    Parameters
    ----------
    ncp : Ncp
    class_of_record : ndarray of int64, shape (n_records,)
        Classes numbered from 0 without gaps; -1 for a record in none.
    left_over : ndarray of int64
        Records to be placed, in this order.
    rule : {"least_increase", "least_result"}
        Whether the increase of a class's loss is to be least, or the loss that it has afterwards.
        Of several such classes, the first one is taken.
    pulse : Pulse
        Only its heartbeat is used.

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
    classes = ClassSummaries.of(records, class_of_record, left_over.size)
    for start in range(0, left_over.size, _RECORDS_PER_BEAT):
        pulse.beat()
        some = left_over[start : start + _RECORDS_PER_BEAT]
        _place(records, classes, some, rule == "least_increase")
    return classes.class_of_record


@numba.njit(cache=True, nogil=True)
def _place(
    records: PackedRecords, classes: ClassSummaries, left_over: IntArray, by_increase: bool
) -> None:
    for record in left_over:
        best: Integer = NONE
        best_loss = 0
        for g in range(classes.sizes.size):
            after = classes.losses[g] + entry(records, classes, g, record)
            loss = after * (classes.sizes[g] + 1)
            if by_increase:
                loss -= classes.losses[g] * classes.sizes[g]
            if best < 0 or loss < best_loss:
                best, best_loss = g, loss
        make_move(records, classes, record, best)
