"""Answering counts from a publication's bitmaps; see `kanon_db.counting.bitmaps`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Final

from kanon_db.answering.scope import OpenQuery
from kanon_db.answering.slices import Slice, Slices
from kanon_db.counting.answers import NOTHING, Estimated, Group
from kanon_db.counting.bitmaps import (
    Composed,
    Truth,
    can_meet,
    count_exactly,
    evaluate,
    in_buckets,
    is_readable,
    weigh,
)
from kanon_db.counting.checking import Key
from kanon_db.counting.expressions import Expression, TruthTest, attributes
from kanon_db.counting.formulas import all_but, count_buckets, sum_buckets
from kanon_db.counting.layout import BucketLayout
from kanon_db.counting.regression import Matched, between, corrected, regress, times_of
from kanon_db.counting.sides import Side, chosen_by, condition_of, disjoint_sides, factors, side_of
from kanon_db.counting.writing import Constants, write
from kanon_db.counting.writing.exact import DERIVED
from kanon_db.counting.writing.joins import joined, same_value, speller
from kanon_db.session.protocol import Row

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import FloatArray
    from kanon_db.counting.formulas import Counts, Weighed

    _Levels = Callable[[], FloatArray]
    """Finds what is hidden of the values of one group, once for all groups of the other side."""

    _Find = Callable[[Counts, _Levels], Estimated]

_MOST_WORK: Final = 500_000_000
"""Groups times buckets; above this, one statement over QIT and SAT is faster."""


class _NoRoomError(Exception):
    """The bitmaps, or the counts of buckets, would need more memory than a query may."""


def count_with_bitmaps(opened: OpenQuery) -> list[Group] | None:
    """Answer a count, sum or average, also with groups, from bitmaps; None if that is not possible.

    It is possible if each condition, each key of the groups and what is summed depends on one
    attribute with bitmaps, and the condition is a conjunction of its two sides (for a count without
    groups, also a disjunction); and if the bitmaps of the groups fit into the query's memory.

    Notes
    -----
    The numbers are those of the statement over QIT and SAT, up to rounding.
    """
    layout, query = opened.layout, opened.query
    if not isinstance(layout, BucketLayout) or len(query.measures) > 1:
        return None
    aggregate = query.measures[0].aggregate
    if query.keys and aggregate.condition is not None:
        return None  # its groups are those of all records, whether they are chosen or not
    with_bitmaps = frozenset(layout.tables.with_bitmaps)
    if aggregate.function in DERIVED:
        return None
    weighed = None if aggregate.function == "count" else aggregate.operand
    # A sum ignores NULLs by itself, and a group with nothing but NULLs is still a group.
    choose = condition_of if weighed is None else chosen_by
    condition = choose(query, aggregate)
    if condition is not None and not is_readable(condition, with_bitmaps):
        return None
    apart = [key.expression for key in query.keys]
    for expression in apart if weighed is None else [*apart, weighed]:
        mentioned = attributes(expression)
        if len(mentioned) != 1 or not mentioned <= with_bitmaps:
            return None
    counter = _Counter(opened, layout)
    split = factors(condition, layout)
    if split is None:
        sides = disjoint_sides(query, aggregate, layout)
        return None if sides is None else counter.either(sides)
    records, values = map(counter.true, split)
    is_two_sided = {side_of(key.expression, layout) for key in query.keys} | {
        side for side, part in enumerate(split) if part is not None
    } == {0, 1}
    try:
        if weighed is not None:
            return counter.summed(records, values, weighed, is_average=aggregate.function == "avg")
        return counter.grouped(records, values, is_two_sided=is_two_sided)
    except _NoRoomError:
        return None


class _Counter:
    """Reads and counts the bitmaps of one publication."""

    def __init__(self, opened: OpenQuery, layout: BucketLayout) -> None:
        self._opened = opened
        self._layout = layout
        self._keys = opened.query.keys
        self._tables = layout.tables
        self._sizes = self._tables.sizes
        self._n_buckets = self._tables.buckets_of_sizes
        self._everything = (1 << self._tables.n_records) - 1
        self._bitmap_bytes = self._tables.n_records // 8 + 1
        self._limits = opened.limits
        self._room = opened.limits.bitmaps
        self._key_room = opened.limits.text

    def true(self, condition: Expression | None) -> int:
        """Return the bitmap of the records, or values, that meet a condition."""
        return evaluate(condition, self._read, self._everything).true

    def either(self, sides: tuple[Expression, Expression]) -> list[Group]:
        """Count what meets the condition of either side: all records except those of neither."""
        records, values = (self.true(TruthTest(side, "true", negated=True)) for side in sides)
        in_records, in_values = map(self._in_buckets, (records, values))
        neither = self._counted(in_records)(in_values, self._levels(values))
        return [Group("{}", (), (all_but(self._tables.n_records, neither),))]

    def grouped(self, records: int, values: int, *, is_two_sided: bool) -> list[Group] | None:
        """Count for each group that can have records."""
        slices = self._slices(records, 0), self._slices(values, 1)
        if not self._are_few(*slices):
            return None
        if not is_two_sided:
            side = int(any(side_of(key.expression, self._layout) for key in self._keys))
            if not self._keys:
                side = int(records == self._everything)
            return [self._group(part.values, count_exactly(part.bits)) for part in slices[side]]

        return self._meeting(*slices, lambda _part, in_records: self._counted(in_records))

    def summed(
        self, records: int, values: int, operand: Expression, *, is_average: bool
    ) -> list[Group] | None:
        """Sum, or average, for each group that can have records."""
        side = side_of(operand, self._layout) or 0
        slices = self._slices(records, 0), self._slices(values, 1)
        parts = self._values(operand)
        most = _MOST_WORK // max(1, len(parts) * self._tables.n_records)
        own, others = slices[side], slices[1 - side]
        if own.count(most) > most or not self._are_few(own, others):
            return None

        def total(part: Slice, _own: Counts) -> _Find:
            weighed = weigh(self._watched(part, parts), *self._shape)
            return self._summed(part, weighed, parts, side, is_average=is_average)

        return self._meeting(own, others, total)

    def _counted(self, in_records: Counts) -> _Find:
        """Count for these records what any values give."""
        layout, composed = self._layout, self._composed
        direction = None if composed is None else composed.along(in_records, *self._shape)

        def find(in_values: Counts, levels: _Levels) -> Estimated:
            found, doubt = count_buckets(in_records, in_values, self._sizes)
            if composed is not None and direction is not None:
                return self._corrected(found, direction, levels())
            times = times_of(layout.assignment, is_corrected=True)
            correction = (0.0, doubt if layout.assignment == "random" else 0.0)
            return corrected(found, correction, is_paper=layout.is_paper, times=times)

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
        own = [(x, part.bits & bits) for x, bits in values]

        def find(counts: Counts, levels: _Levels) -> Estimated:
            found = sum_buckets(weighed, counts, self._sizes, is_average=is_average)
            if found is None:
                return NOTHING
            if composed is None:
                times = times_of(self._layout.assignment, is_corrected=False)
                return corrected(found, (0.0, 0.0), is_paper=True, times=times)
            mean = found.estimate if is_average else 0.0
            if side == 0:
                direction = composed.along([w.x - mean * w.n for w in weighed], *self._shape)
                return self._corrected(found, direction, levels())
            hidden = composed.levels([(x - mean, bits) for x, bits in own])
            return self._corrected(found, composed.along(counts, *self._shape), hidden)

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
        times = times_of(layout.assignment, is_corrected=True)
        return corrected(found, correction, is_paper=layout.is_paper, times=times)

    def _levels(self, values: int) -> _Levels:
        """Return what finds what is hidden of some values, when it is first asked for."""

        @cache
        def found() -> FloatArray:
            if self._composed is None:
                raise TypeError("nothing is known of these buckets")
            return self._composed.levels([(1, values)])

        return found

    @property
    def _shape(self) -> tuple[Sequence[int], Sequence[int]]:
        return self._sizes, self._n_buckets

    @cached_property
    def _composed(self) -> Composed | None:
        """How values of buckets go together; None where it is not known, or not asked for."""
        tables, layout = self._tables, self._layout
        of_records = [key for key in self._keys if side_of(key.expression, layout) == 0]
        sensitive = layout.sensitive
        if tables.spectrum is None or len(of_records) > 1:
            return None
        equal = same_value(sensitive, f"b.{sensitive.sql}", f"c.{sensitive.sql}")
        rows = self._opened.stream(
            max(1, self._limits.batch // self._bitmap_bytes),
            f"SELECT b.{tables.bits} AS bits, c.{tables.directions} AS directions,"
            f" c.{tables.hidden} AS hidden FROM {tables.bit} AS b"
            f" JOIN {tables.composition} AS c ON {equal} WHERE b.{tables.attribute} = $1::text",
            sensitive.name,
        )
        return Composed.of(
            ((row["bits"], row["directions"], row["hidden"]) for row in rows), tables.n_records
        )

    def _are_few(self, own: Slices, others: Slices) -> bool:
        """Whether the groups are few enough to count each, keeping the counts of the others."""
        if not self._keys:
            return True
        most = min(_MOST_WORK // self._tables.n_buckets, self._limits.n_answers)
        n_others = others.count(most)
        n_bytes = 2 * n_others * self._tables.n_buckets
        return (
            n_bytes <= self._limits.bitmaps
            and own.count(most // max(1, n_others)) * n_others <= most
        )

    def _meeting(
        self, own: Slices, others: Slices, finder: Callable[[Slice, Counts], _Find]
    ) -> list[Group]:
        """Answer for each pair of parts, one from each side, that have a bucket in common."""
        counted = [
            (other.values, self._in_buckets(other.bits), self._levels(other.bits))
            for other in others
        ]
        groups = []
        for part in own:
            in_own = self._in_buckets(part.bits)
            find = finder(part, in_own)
            for values, counts, levels in counted:
                self._opened.session.heartbeat()
                if not self._keys or can_meet(in_own, counts):
                    groups.append(self._group(part.values + values, find(counts, levels)))
        return groups

    def _group(self, values: tuple[tuple[int, str, int], ...], counted: Estimated) -> Group:
        ordered = sorted(values)
        named = [
            (json.dumps(self._keys[number].name, ensure_ascii=False), text)
            for number, text, _ in ordered
        ]
        key = ", ".join(f"{name}: {text}" for name, text in named)
        self._key_room -= len(key.encode())
        if self._key_room < 0:
            raise self._limits.too_many()
        return Group(f"{{{key}}}", tuple(rank for _, _, rank in ordered), (counted,))

    def _values(self, operand: Expression) -> list[tuple[float, int]]:
        """Read the values of an expression on one attribute, each with its records."""
        constants = Constants(first=2)
        sql = write(operand, speller("b"), constants)
        (attribute,) = attributes(operand)
        found: dict[float, int] = {}
        columns, condition = f"({sql})::float8 AS x", f"{sql} IS NOT NULL"
        for row, bits in self._rows(columns, attribute, [operand], constants, condition):
            if row["x"] not in found:
                self._keep()
            found[row["x"]] = found.get(row["x"], 0) | bits
        return list(found.items())

    def _keep(self) -> None:
        """Account for one more bitmap that is kept."""
        self._room -= self._bitmap_bytes
        if self._room < 0:
            raise _NoRoomError

    def _rows(
        self,
        columns: str,
        attribute: str,
        expressions: Sequence[Expression],
        constants: Constants,
        condition: str = "true",
    ) -> Iterator[tuple[Row, int]]:
        """Read the bitmaps of an attribute's values, with columns that depend on the value."""
        source = joined(self._tables.bit, "b", expressions, self._opened.lookups)
        rows = self._opened.stream(
            max(1, self._limits.batch // self._bitmap_bytes),
            f"SELECT {columns}, b.{self._tables.bits} AS bits FROM {' '.join(source)}"
            f" WHERE b.{self._tables.attribute} = $1::text AND {condition}",
            attribute,
            *constants.bound,
        )
        return ((row, int.from_bytes(row["bits"], "little")) for row in rows)

    def _in_buckets(self, bits: int) -> Counts:
        return in_buckets(bits, self._sizes, self._n_buckets)

    def _watched(
        self, part: Slice, values: Sequence[tuple[float, int]]
    ) -> Iterator[tuple[float, int]]:
        """Pass on the records of each value, in a part."""
        for x, bits in values:
            self._opened.session.heartbeat()
            yield x, part.bits & bits

    def _slices(self, bits: int, side: Side) -> Slices:
        """Divide records, or values, by the keys of their side."""
        numbered = [
            (number, key)
            for number, key in enumerate(self._keys)
            if side_of(key.expression, self._layout) == side
        ]
        by_attribute: dict[str, list[tuple[int, Key]]] = {}
        for number, key in numbered:
            (attribute,) = attributes(key.expression)
            by_attribute.setdefault(attribute, []).append((number, key))
        divisions = [self._divide(attribute, own) for attribute, own in by_attribute.items()]
        return Slices(bits, divisions, self._opened.session.heartbeat)

    def _divide(self, attribute: str, keys: Sequence[tuple[int, Key]]) -> list[Slice]:
        """Read the bitmaps of an attribute's values, those of one group together."""
        constants, expressions = Constants(first=2), [key.expression for _, key in keys]
        written = [write(expression, speller("b"), constants) for expression in expressions]
        columns = ", ".join(
            f"to_jsonb({sql})::text AS j{i}, dense_rank() OVER (ORDER BY {sql}) AS r{i}"
            for i, sql in enumerate(written)
        )
        found: dict[tuple[int, ...], Slice] = {}
        for row, bits in self._rows(columns, attribute, expressions, constants):
            ranks = tuple(row[f"r{i}"] for i in range(len(keys)))
            values = tuple(
                (number, "null" if row[f"j{i}"] is None else row[f"j{i}"], ranks[i])
                for i, (number, _) in enumerate(keys)
            )
            if ranks not in found:
                self._keep()
            found[ranks] = Slice(values, bits | (found[ranks].bits if ranks in found else 0))
        return list(found.values())

    def _read(self, condition: Expression) -> Truth:
        """Find the records for which a condition on one attribute is true, or unknown."""
        constants = Constants(first=2)
        sql = write(condition, speller("b"), constants)
        # A condition without columns is evaluated for each value of an arbitrary attribute.
        (attribute,) = attributes(condition) or {self._tables.with_bitmaps[0]}
        truth = {True: 0, False: 0}
        columns, possible = f"{sql} IS TRUE AS holds", f"{sql} IS NOT FALSE"
        for row, bits in self._rows(columns, attribute, [condition], constants, possible):
            truth[row["holds"]] |= bits
        return Truth(truth[True], truth[False])
