"""Answering from bitmaps where a condition needs both sides; see `kanon_db.counting.pairs`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from kanon_db.answering.bitmap_reader import SUM_WORK, BitmapReader
from kanon_db.answering.slices import Slice
from kanon_db.counting.answers import NOTHING, Estimated, Group
from kanon_db.counting.expressions import And, Expression, joined
from kanon_db.counting.pairs import (
    Classes,
    Matching,
    Pairs,
    by_sides,
    count_pairs,
    divided,
    leaves_of,
    match,
    sum_pairs,
)
from kanon_db.counting.regression import Matched, corrected, times_of
from kanon_db.counting.sides import Side, by_side, parts_of, side_of

if TYPE_CHECKING:
    from kanon_db.counting.formulas import Counts

_MOST_CLASSES: Final = 64
"""Of records, or of values, before alike ones are put together."""

_MOST_PAIRS: Final = 256
"""Pairs of classes; above this, one statement over QIT and SAT is as fast."""

_TRUTHS: Final = (True, None, False)
"""What the number of a condition's part says of it."""


def count_with_pairs(
    reader: BitmapReader,
    condition: Expression | None,
    weighed: Expression | None,
    *,
    is_average: bool,
) -> list[Group] | None:
    """Answer a count, sum or average of what meets a condition on both sides; None if too much.

    Raises
    ------
    NoRoomError
        When the bitmaps would need more memory than a query may.
    """
    matching = _matching(reader, condition)
    if matching is None:
        return None
    side = 0 if weighed is None else side_of(weighed, reader.layout) or 0
    return _PairCounter(reader, matching, side).answered(weighed, is_average=is_average)


def _matching(reader: BitmapReader, condition: Expression | None) -> Matching | None:
    """Divide records and values by what the condition asks of them; None if into too many."""
    on_records, on_values, both = by_side(parts_of(condition), reader.layout)
    whole = joined(And, [by_sides(part, reader.layout) for part in both])
    if whole is None:
        raise TypeError("the condition does not need both sides")
    leaves = leaves_of(whole, reader.layout)
    records = _classes(reader, on_records, leaves.on_sides[0])
    values = _classes(reader, on_values, leaves.on_sides[1])
    if records is None or values is None:
        return None
    truths = {
        leaf: _told_by(side, place)
        for side, on_side in enumerate(leaves.on_sides)
        for place, leaf in enumerate(on_side)
    }
    found = match(whole, truths, (records, values))
    return found if len(found.sides[0]) * len(found.sides[1]) <= _MOST_PAIRS else None


def _classes(
    reader: BitmapReader, chosen: Sequence[Expression], leaves: Sequence[Expression]
) -> Classes | None:
    """Divide what meets some conditions by the truth of others; None if into too many classes."""
    classes: Classes = [(reader.truth(joined(And, chosen)).true, ())]
    most = min(_MOST_CLASSES, reader.room // 2)  # the old ones and the new ones are kept
    for leaf in leaves:
        truth = reader.truth(leaf)
        false = reader.everything & ~(truth.true | truth.unknown)
        found = divided(classes, (truth.true, truth.unknown, false), most)
        if found is None:
            return None
        classes = found
    reader.keep(len(classes))
    return classes


def _told_by(side: int, place: int) -> Pairs:
    """Return the truth of a condition on one side from the labels of a pair."""
    return lambda *labels: _TRUTHS[labels[side][place]]


class _PairCounter:
    """Counts, or sums, the pairs of classes that match."""

    def __init__(self, reader: BitmapReader, matching: Matching, side: Side) -> None:
        self._reader = reader
        self._side: Side = side
        self._other: Side = 0 if side else 1
        self._own, self._others = matching.sides[side], matching.sides[self._other]
        self._matches = matching.along(side)

    def answered(self, weighed: Expression | None, *, is_average: bool) -> list[Group] | None:
        """Answer for each group that can have records; None if there are too many."""
        reader, keys = self._reader, self._reader.keys
        if not self._matches:
            nothing = Estimated(0.0, 0.0, 0, 0) if weighed is None else NOTHING
            return [] if keys else [reader.group((), nothing)]
        own = reader.slices(reduce(or_, self._own), self._side)
        others = reader.slices(reduce(or_, self._others), self._other)
        if not reader.are_few(own, others, self._width(weighed)):
            return None
        summed = None if weighed is None else self._summed(weighed, is_average=is_average)
        counted = [(part.values, self._in_buckets(part, self._others)) for part in others]
        groups = []
        for part in own:
            in_own = self._in_buckets(part, self._own) if keys or summed is None else []
            find = None if summed is None else summed(part)
            for values, in_others in counted:
                reader.heartbeat()
                if in_own:
                    found = count_pairs(in_own, in_others, self._matches, reader.shape[0])
                    if keys and not found.estimate:
                        continue
                answer = found if find is None else find(in_others)
                groups.append(reader.group(part.values + values, self._calibrated(answer)))
        return groups

    def _width(self, weighed: Expression | None) -> tuple[int, int]:
        """Return into how many classes groups are divided; those to sum are as much as many."""
        times = 1 if weighed is None else SUM_WORK
        return times * len(self._own), len(self._others)

    def _summed(
        self, weighed: Expression, *, is_average: bool
    ) -> Callable[[Slice], Callable[[list[Counts]], Matched | None]]:
        """Return what sums a group of this side, then over what matches of the other one."""
        reader = self._reader
        numbers, x_of = reader.valued(reader.values(weighed))

        def of_group(part: Slice) -> Callable[[list[Counts]], Matched | None]:
            in_class = reader.numbered([part.bits & bits for bits in self._own])
            return lambda in_others: sum_pairs(
                (in_class, numbers), x_of, in_others, self._matches, reader.shape,
                reader.heartbeat, is_average=is_average,
            )  # fmt: skip

        return of_group

    def _in_buckets(self, part: Slice, classes: Sequence[int]) -> list[Counts]:
        """Count what a group has of each class in each bucket."""
        self._reader.heartbeat()
        return [self._reader.in_buckets(part.bits & bits) for bits in classes]

    def _calibrated(self, found: Matched | None) -> Estimated:
        if found is None:
            return NOTHING
        times = times_of(self._reader.layout.assignment, is_corrected=False)
        return corrected(found, (0.0, 0.0), is_paper=True, times=times)
