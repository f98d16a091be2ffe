"""Answering from bitmaps where a condition needs both sides; see `kanon_db.counting.pairs`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from operator import or_
from typing import Final

from kanon_db.answering.bitmap_reader import SUM_WORK, BitmapReader
from kanon_db.answering.slices import Slice
from kanon_db.counting.answers import NOTHING, Estimated, Group
from kanon_db.counting.bitmaps import unpacked
from kanon_db.counting.checking.types import TEXT
from kanon_db.counting.classes import (
    Classes,
    Matching,
    Pairs,
    by_sides,
    divided,
    leaves_of,
    match,
)
from kanon_db.counting.expressions import And, Column, Constant, Expression, attributes, joined
from kanon_db.counting.pairs import Divided, count_pairs, is_one_by_one, sum_pairs
from kanon_db.counting.regression import Matched, corrected, trust
from kanon_db.counting.sides import Side, by_side, parts_of, side_of
from kanon_db.counting.writing.joins import joined as lookups_joined
from kanon_db.counting.writing.joins import speller
from kanon_db.counting.writing.sql import Constants, write

_MOST_CLASSES: Final = 256
_MOST_PAIRS: Final = 1 << 14
"""Classes of records, or of values, and their pairs, before alike ones are put together."""

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
    compared = [_compared(reader, leaf) for leaf in leaves.pairs]
    records = _classes(reader, on_records, leaves.records, [c.records for c in compared])
    values = _classes(reader, on_values, leaves.values, [c.values for c in compared])
    if records is None or values is None or len(records) * len(values) > _MOST_PAIRS:
        return None
    truths = {leaf: _told_by(0, place) for place, leaf in enumerate(leaves.records)}
    truths |= {leaf: _told_by(1, place) for place, leaf in enumerate(leaves.values)}
    for number, (leaf, found) in enumerate(zip(leaves.pairs, compared, strict=True)):
        truths[leaf] = found.told_by(len(leaves.records) + number, len(leaves.values) + number)
    return match(whole, truths, (records, values))


def _classes(
    reader: BitmapReader,
    chosen: Sequence[Expression],
    leaves: Sequence[Expression],
    divisions: Sequence[Sequence[int]],
) -> Classes | None:
    """Divide what meets some conditions by the truth of others, and then into parts.

    Returns
    -------
    Classes or None
        None if there would be too many.
    """
    most = min(_MOST_CLASSES, reader.room // 2)  # the old ones and the new ones are kept
    found: Classes = [(reader.truth(joined(And, chosen)).true, ())]
    for parts in chain(_parts(reader, leaves), divisions):
        classes = divided(found, parts, most)
        if classes is None:
            return None
        found = classes
    reader.keep(len(found))
    return found


def _parts(reader: BitmapReader, leaves: Sequence[Expression]) -> Iterator[Sequence[int]]:
    """Read where each condition is true, unknown and false."""
    for leaf in leaves:
        truth = reader.truth(leaf)
        yield truth.true, truth.unknown, reader.everything & ~(truth.true | truth.unknown)


def _told_by(side: Side, place: int) -> Pairs:
    """Return the truth of a condition on one side from the labels of a pair."""
    return lambda *labels: _TRUTHS[labels[side][place]]


@dataclass(frozen=True)
class _Compared:
    """A comparison of both sides: the parts of either, and the truth for each pair of them."""

    records: list[int]
    values: list[int]
    truths: list[tuple[bool | None, ...]]

    def told_by(self, of_records: int, of_values: int) -> Pairs:
        """Return its truth from the labels of a pair, at these places."""
        return lambda records, values: self.truths[values[of_values]][records[of_records]]


def _compared(reader: BitmapReader, condition: Expression) -> _Compared:
    """Let the server compare each value of a quasi-identifier with each sensitive value."""
    tables, sensitive = reader.tables, reader.layout.sensitive.name
    (name,) = attributes(condition) - {sensitive}
    constants = Constants(first=2)

    def spell(column: Column) -> str:
        return speller("b" if column.name == name else "v")(column)

    sql = write(condition, spell, constants)
    own = {name: f"b.{reader.layout.quasi_identifiers[name].sql}"}
    source = lookups_joined(tables.bit, "v", [condition], reader.opened.lookups, own)
    truths = (
        f"(SELECT array_agg({sql} ORDER BY v.ctid) FROM {' '.join(source)}"
        f" WHERE v.{tables.attribute} = {constants.write(Constant(sensitive, TEXT))}) AS truths"
    )
    records: dict[tuple[bool | None, ...], int] = {}
    for row, bits in reader.rows(truths, name, [], constants):
        alike = tuple(row["truths"])
        if alike not in records:
            reader.keep()
        records[alike] = records.get(alike, 0) | bits
    by_place = list(zip(*records, strict=True))
    values: dict[tuple[bool | None, ...], int] = {}
    place = "row_number() OVER (ORDER BY b.ctid) - 1 AS place"
    for row, bits in reader.rows(place, sensitive, [], Constants(first=2)):
        alike = by_place[row["place"]]
        if alike not in values:
            reader.keep()
        values[alike] = values.get(alike, 0) | bits
    return _Compared(list(records.values()), list(values.values()), list(values))


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
        if not reader.are_few(own, others, times=self._times(weighed), kept=self._kept()):
            return None
        summed = None if weighed is None else self._summed(weighed, is_average=is_average)
        divided_others = [(part.values, self._divided(part, self._others)) for part in others]
        groups = []
        for part in own:
            in_own = self._divided(part, self._own)
            for values, in_others in divided_others:
                found: Matched | None = None
                if keys or summed is None:
                    found = count_pairs(in_own, in_others, self._matches)
                    if keys and not found.estimate:
                        continue
                if summed is not None:
                    found = summed(part, in_own, in_others)
                groups.append(reader.group(part.values + values, self._calibrated(found)))
        return groups

    def _times(self, weighed: Expression | None) -> int:
        """Return how often each bucket is looked at, compared with a condition on each side."""
        n_own = len(self._own) * (1 if weighed is None else SUM_WORK)
        return max(1, (n_own + len(self._others)) // 2)

    def _kept(self) -> int:
        """Return the bytes that are kept for each group of the other side."""
        reader, n_pairs = self._reader, len(self._own) * len(self._others)
        counts = len(self._others) * reader.counts_bytes
        if not any(is_one_by_one(size, n_pairs) for size in reader.tables.sizes):
            return counts + reader.bitmap_bytes
        slots = reader.tables.n_records * (1 if len(self._others) < 256 else 2)
        return counts + slots + reader.bitmap_bytes

    def _divided(self, part: Slice, classes: Sequence[int]) -> Divided:
        """Divide a group into its classes."""
        return Divided(part.bits, classes, self._reader.shape, self._reader.heartbeat)

    def _summed(
        self, weighed: Expression, *, is_average: bool
    ) -> Callable[[Slice, Divided, Divided], Matched | None]:
        """Return what sums a group of this side, over what matches in one of the other side."""
        numbers, x_of = self._reader.valued(self._reader.values(weighed))

        def summed(part: Slice, own: Divided, others: Divided) -> Matched | None:
            which = numbers * unpacked(part.bits, numbers.size)
            return sum_pairs(own, (which, x_of), others, self._matches, is_average=is_average)

        return summed

    def _calibrated(self, found: Matched | None) -> Estimated:
        if found is None:
            return NOTHING
        known = trust(self._reader.layout.assignment, is_paper=True, is_composed=False)
        return corrected(found, (0.0, 0.0), known)
