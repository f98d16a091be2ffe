"""Answering counts from a publication's bitmaps; see `kanon_db.counting.bitmaps`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import TYPE_CHECKING

from kanon_db.answering.bitmap_reader import MOST_WORK, SUM_WORK, BitmapReader, NoRoomError
from kanon_db.answering.opened import OpenQuery
from kanon_db.answering.slices import Slice, Slices
from kanon_db.counting.answers import NOTHING, Estimated, Group
from kanon_db.counting.bitmaps import (
    Composed,
    can_meet,
    count_exactly,
    is_readable,
    unpacked,
    weigh,
)
from kanon_db.counting.checking import Measure
from kanon_db.counting.expressions import DERIVED, Aggregate, Expression, TruthTest, attributes
from kanon_db.counting.formulas import all_but, count_buckets, sum_buckets
from kanon_db.counting.layout import BucketLayout
from kanon_db.counting.regression import Matched, between, corrected, regress, trust
from kanon_db.counting.sides import Side, chosen_by, condition_of, disjoint_sides, factors, side_of
from kanon_db.counting.writing.joins import same_value
from kanon_db.errors import UnsupportedQueryError

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import FloatArray
    from kanon_db.counting.formulas import Counts, Weighed

    _Levels = Callable[[], FloatArray]
    """Finds what is hidden of the values of one group, once for all groups of the other side."""

    _Find = Callable[[Counts, _Levels], Estimated]


def count_with_bitmaps(opened: OpenQuery) -> list[Group] | None:
    """Answer a count, sum or average, also with groups, from bitmaps; None if that is not possible.

    It is possible if each condition, each key of the groups and what is summed depends on one
    attribute with bitmaps, and if the bitmaps of the groups fit into the query's memory.

    Notes
    -----
    The numbers are those of the statement over QIT and SAT, up to rounding.
    """
    layout, query = opened.layout, opened.query
    if not isinstance(layout, BucketLayout) or len(query.measures) > 1:
        return None
    aggregate = query.measures[0].aggregate
    if aggregate.function in DERIVED:
        return None
    is_count = aggregate.function == "count"
    if query.keys and (aggregate.condition or (is_count and aggregate.operand)):
        return _in_all_groups(opened)
    with_bitmaps = frozenset(layout.tables.with_bitmaps)
    weighed = None if is_count else aggregate.operand
    # A sum ignores NULLs by itself, and a group with nothing but NULLs is still a group.
    choose = condition_of if weighed is None else chosen_by
    condition = choose(query, aggregate)
    if condition is not None and not is_readable(condition, with_bitmaps, layout.sensitive.name):
        return None
    apart = [key.expression for key in query.keys]
    for expression in apart if weighed is None else [*apart, weighed]:
        mentioned = attributes(expression)
        if len(mentioned) != 1 or not mentioned <= with_bitmaps:
            return None
    reader = BitmapReader(opened, layout)
    try:
        return _answered(reader, condition, weighed)
    except NoRoomError:
        return None


def _in_all_groups(opened: OpenQuery) -> list[Group] | None:
    """Answer where some records are not chosen: their groups are listed all the same."""
    query = opened.query
    aggregate, everybody = query.measures[0].aggregate, Aggregate("count", None)

    def counted(where: Expression | None, one: Aggregate) -> list[Group] | None:
        part = query._replace(where=where, measures=(Measure("", one),))
        return count_with_bitmaps(replace(opened, query=part))

    listed = counted(query.where, everybody)
    if listed is None:
        return None
    if aggregate.function == "count":
        nothing, found = (
            Estimated(0.0, 0.0, 0, 0),
            counted(condition_of(query, aggregate), everybody),
        )
    else:
        nothing = NOTHING
        found = counted(chosen_by(query, aggregate), replace(aggregate, condition=None))
    if found is None:
        return None
    estimates = {group.key: group.estimates for group in found}
    return [group._replace(estimates=estimates.get(group.key, (nothing,))) for group in listed]


def _answered(
    reader: BitmapReader, condition: Expression | None, weighed: Expression | None
) -> list[Group] | None:
    """Answer in the way that fits the condition."""
    layout, query = reader.layout, reader.opened.query
    aggregate = query.measures[0].aggregate
    is_average = aggregate.function == "avg"
    split = factors(condition, layout)
    if split is None:
        sides = disjoint_sides(query, aggregate, layout)
        if sides is not None:
            return _Counter(reader).either(sides)
        try:
            with reader.opened.session.savepoint():
                from kanon_db.answering.by_pairs import count_with_pairs

                return count_with_pairs(reader, condition, weighed, is_average=is_average)
        except UnsupportedQueryError:  # arithmetic, on values that the rest of it excludes
            return None
    records, values = (reader.truth(part).true for part in split)
    if weighed is not None:
        return _Counter(reader).summed(records, values, weighed, is_average=is_average)
    is_two_sided = {side_of(key.expression, layout) for key in query.keys} | {
        side for side, part in enumerate(split) if part is not None
    } == {0, 1}
    return _Counter(reader).grouped(records, values, is_two_sided=is_two_sided)


class _Counter:
    """Counts, or sums, where the condition is a conjunction of its two sides."""

    def __init__(self, reader: BitmapReader) -> None:
        self._reader = reader
        self._layout = reader.layout
        self._keys = reader.keys
        self._tables = reader.tables
        self._sizes = reader.tables.sizes

    def either(self, sides: tuple[Expression, Expression]) -> list[Group]:
        """Count what meets the condition of either side: all records except those of neither."""
        records, values = (
            self._reader.truth(TruthTest(side, "true", negated=True)).true for side in sides
        )
        in_records, in_values = map(self._reader.in_buckets, (records, values))
        neither = self._counted(in_records)(in_values, self._levels(values))
        return [Group("{}", (), (all_but(self._tables.n_records, neither),))]

    def grouped(self, records: int, values: int, *, is_two_sided: bool) -> list[Group] | None:
        """Count for each group that can have records."""
        slices = self._reader.slices(records, 0), self._reader.slices(values, 1)
        if not self._reader.are_few(*slices):
            return None
        if not is_two_sided:
            side = int(any(side_of(key.expression, self._layout) for key in self._keys))
            if not self._keys:
                side = int(records == self._reader.everything)
            return [
                self._reader.group(part.values, count_exactly(part.bits)) for part in slices[side]
            ]

        return self._meeting(*slices, lambda _part, in_records: self._counted(in_records))

    def summed(
        self, records: int, values: int, operand: Expression, *, is_average: bool
    ) -> list[Group] | None:
        """Sum, or average, for each group that can have records."""
        side = side_of(operand, self._layout) or 0
        slices = self._reader.slices(records, 0), self._reader.slices(values, 1)
        own, others = slices[side], slices[1 - side]
        most = MOST_WORK // (SUM_WORK * self._tables.n_records)
        if own.count(most) > max(1, most) or not self._reader.are_few(own, others):
            return None
        parts = self._reader.values(operand)
        numbers, x_of = self._reader.valued(parts)

        def total(part: Slice, _own: Counts) -> _Find:
            chosen = numbers * unpacked(part.bits, self._tables.n_records)
            weighed = weigh(chosen, x_of, *self._reader.shape)
            return self._summed(part, weighed, parts, side, is_average=is_average)

        return self._meeting(own, others, total)

    def _counted(self, in_records: Counts) -> _Find:
        """Count for these records what any values give."""
        layout, composed = self._layout, self._composed
        direction = None if composed is None else composed.along(in_records, *self._reader.shape)

        def find(in_values: Counts, levels: _Levels) -> Estimated:
            found, doubt = count_buckets(in_records, in_values, self._sizes)
            if composed is not None and direction is not None:
                return self._corrected(found, direction, levels())
            known = trust(
                layout.assignment, is_paper=True, is_composed=layout.assignment == "random"
            )
            return corrected(found, (0.0, doubt), known)

        return find

    def _summed(
        self,
        part: Slice,
        weighed: list[Weighed],
        values: Sequence[tuple[float, int]],
        side: Side,
        *,
        is_average: bool,
    ) -> _Find:
        """Sum, or average, for these records (or values) what those of the other side give."""
        composed = self._composed

        def find(counts: Counts, levels: _Levels) -> Estimated:
            found = sum_buckets(weighed, counts, self._sizes, is_average=is_average)
            if found is None:
                return NOTHING
            if composed is None:
                known = trust(self._layout.assignment, is_paper=True, is_composed=False)
                return corrected(found, (0.0, 0.0), known)
            mean = found.estimate if is_average else 0.0
            if side == 0:
                direction = composed.along([w.x - mean * w.n for w in weighed], *self._reader.shape)
                return self._corrected(found, direction, levels())
            hidden = composed.levels((x - mean, part.bits & bits) for x, bits in values)
            return self._corrected(found, composed.along(counts, *self._reader.shape), hidden)

        return find

    def _corrected(
        self, found: Matched, direction: tuple[FloatArray, float, float], levels: FloatArray
    ) -> Estimated:
        """Correct what a random matching gives by what the composition of buckets tells."""
        along, total, packed = direction
        layout, tables = self._layout, self._tables
        if tables.spectrum is None:
            raise TypeError("nothing is known of these buckets")
        b = between(packed, total, tables.n_records, tables.n_buckets)
        correction = regress(along, total, b, levels, tables.spectrum)
        return corrected(found, correction, trust(layout.assignment, is_paper=layout.is_paper))

    def _levels(self, values: int) -> _Levels:
        """Return what finds what is hidden of some values, when it is first asked for."""

        @cache
        def found() -> FloatArray:
            if self._composed is None:
                raise TypeError("nothing is known of these buckets")
            return self._composed.levels([(1, values)])

        return found

    @cached_property
    def _composed(self) -> Composed | None:
        """How values of buckets go together; None where it is not known, or not asked for."""
        tables, layout = self._tables, self._layout
        of_records = [key for key in self._keys if side_of(key.expression, layout) == 0]
        sensitive = layout.sensitive
        if tables.spectrum is None or len(of_records) > 1:
            return None
        equal = same_value(sensitive, f"b.{sensitive.sql}", f"c.{sensitive.sql}")
        rows = self._reader.opened.stream(
            max(1, self._reader.limits.batch // self._reader.bitmap_bytes),
            f"SELECT b.{tables.bits} AS bits, c.{tables.directions} AS directions,"
            f" c.{tables.hidden} AS hidden FROM {tables.bit} AS b"
            f" JOIN {tables.composition} AS c ON {equal} WHERE b.{tables.attribute} = $1::text",
            sensitive.name,
        )
        return Composed.of(
            ((row["bits"], row["directions"], row["hidden"]) for row in rows), tables.n_records
        )

    def _meeting(
        self, own: Slices, others: Slices, finder: Callable[[Slice, Counts], _Find]
    ) -> list[Group]:
        """Answer for each pair of parts, one from each side, that have a bucket in common."""
        counted = [
            (other.values, self._reader.in_buckets(other.bits), self._levels(other.bits))
            for other in others
        ]
        groups = []
        for part in own:
            in_own = self._reader.in_buckets(part.bits)
            find = finder(part, in_own)
            for values, counts, levels in counted:
                self._reader.heartbeat()
                if not self._keys or can_meet(in_own, counts):
                    groups.append(self._reader.group(part.values + values, find(counts, levels)))
        return groups
