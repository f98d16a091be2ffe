"""Answers from the bitmaps of a publication, which are read a few megabytes at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, reduce
from itertools import chain, islice
from math import prod
from operator import or_
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from kanon_db.answers._bitmap_sums import (
    Classes,
    Composed,
    Divided,
    Matching,
    Pairs,
    TruthBitmaps,
    by_sides,
    can_meet,
    count_exactly,
    count_pairs,
    divided,
    evaluate,
    in_buckets,
    is_one_by_one,
    is_readable,
    leaves_of,
    match,
    numbered,
    sum_pairs,
    unpacked,
    weigh,
)
from kanon_db.answers.scope import OpenQuery
from kanon_db.errors import UnsupportedQueryError
from kanon_db.query.expressions import (
    DERIVED,
    TEXT,
    Aggregate,
    And,
    Column,
    Constant,
    Expression,
    Key,
    Measure,
    TruthTest,
    attributes,
    joined,
)
from kanon_db.query.formulas import (
    NOTHING,
    Estimated,
    Group,
    MatchedPairs,
    Weighed,
    all_but,
    between,
    corrected,
    count_buckets,
    regress,
    sum_buckets,
    trust,
    weights,
)
from kanon_db.query.layout import (
    BucketLayout,
    BucketTables,
    Side,
    by_side,
    chosen_by,
    condition_of,
    disjoint_sides,
    factors,
    parts_of,
    side_of,
)
from kanon_db.query.sql import Constants, Statement, joined_relations, same_value, speller, write
from kanon_db.query.sql import joined_relations as lookups_joined
from kanon_db.session.protocol import Row

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
    from kanon_db.answers._bitmap_sums import AnyArray
    from kanon_db.query.formulas import Counts


# The parts of records, or of sensitive values, that the keys of GROUP BY make.


_MOST_SPARSE: Final = 10
"""Combinations of values, for each one that occurs."""


class Slice(NamedTuple):
    """A group's part of the records or values, with the values of its keys so far."""

    values: tuple[tuple[int, str, int], ...]  # number of the key, JSON, rank
    bits: int


@dataclass(frozen=True)
class GroupSlices:
    """The parts of records, or values, that the keys of one side make, one at a time.

    Only the bitmaps of each attribute are kept, not those of their combinations.
    """

    bits: int
    divisions: Sequence[Sequence[Slice]]
    heartbeat: Callable[[], None]

    def __iter__(self) -> Iterator[Slice]:
        return self._divided(Slice((), self.bits), 0)

    def _divided(self, part: Slice, depth: int) -> Iterator[Slice]:
        if depth == len(self.divisions):
            yield part
            return
        self.heartbeat()
        for other in self.divisions[depth]:
            if both := part.bits & other.bits:
                yield from self._divided(Slice(part.values + other.values, both), depth + 1)

    def count(self, most: int) -> int:
        """Return the number of parts, or more than `most` if there are more.

        Where most combinations do not occur, finding those that do takes long: their number is not
        looked for, and taken as more.
        """
        if prod(map(len, self.divisions)) > _MOST_SPARSE * most:
            return most + 1
        return sum(1 for _ in islice(self, most + 1))


@dataclass(frozen=True, eq=False)
class CountedSlice:
    """A group's part of the records, as numbers of the buckets that have some of it.

    Attributes
    ----------
    values : tuple of (int, str, int)
        As those of :class:`Slice`.
    places : list of ndarray of int64
        Where these buckets stand among those of each size.
    counts : list of ndarray of uint16
        How many records of the part each of them has.
    weighed : list of Weighed
        What is summed of these records; empty if nothing is.
    """

    values: tuple[tuple[int, str, int], ...]
    places: list[IntArray]
    counts: Counts
    weighed: list[Weighed]

    @classmethod
    def of(
        cls, values: tuple[tuple[int, str, int], ...], numbers: FloatArray, tables: BucketTables
    ) -> Self:
        """Divide numbers by the sizes of their buckets.

        Parameters
        ----------
        values : tuple
        numbers : ndarray, shape (n_columns, n)
            The bucket, from 0; the number of its records; the columns of Weighed, if there are any.
        tables : BucketTables
        """
        import numpy as np

        numbers = numbers[:, np.argsort(numbers[0], kind="stable")]
        firsts = np.array(tables.first_bucket_ids) - 1
        by_size = np.split(numbers, np.searchsorted(numbers[0], firsts[1:]), axis=1)
        return cls(
            values,
            [own[0].astype(np.int64) - first for own, first in zip(by_size, firsts, strict=True)],
            [own[1].astype(np.uint16) for own in by_size],
            [Weighed(*own[2:]) for own in by_size if len(own) > 2],
        )

    def in_buckets(self, tables: BucketTables) -> Counts:
        """Return how many records each bucket has, for each size."""
        import numpy as np

        found: Counts = []
        for n, places, own in zip(tables.buckets_of_sizes, self.places, self.counts, strict=True):
            in_all = np.zeros(n, dtype=np.uint16)
            in_all[places] = own
            found.append(in_all)
        return found


@dataclass(frozen=True)
class CountedSlices:
    """The parts of the records that the keys of their side make, counted by a statement."""

    parts: Sequence[CountedSlice]

    def __iter__(self) -> Iterator[CountedSlice]:
        return iter(self.parts)

    def count(self, most: int) -> int:
        """Return the number of parts, or more than `most` if there are more."""
        return min(len(self.parts), most + 1)


# Reading a publication's bitmaps, a few megabytes at a time, for one query.


MOST_WORK: Final = 500_000_000
"""Groups times buckets; above this, one statement over QIT and SAT is faster."""

SUM_WORK: Final = 10
"""How much more work it is to sum than to count."""

_GROUPS_AT_ONCE: Final = 16
"""Of groups that a statement counts, how many are read at a time."""

_ARRAY_BYTES: Final = 300
"""What two arrays take beside their numbers, rounded up."""


class NoRoomError(Exception):
    """The bitmaps, or the counts of buckets, would need more memory than a query may."""


class BitmapReader:
    """Reads the bitmaps of one publication, and what is known of the groups that they make."""

    def __init__(self, opened: OpenQuery, layout: BucketLayout) -> None:
        self.opened = opened
        self.layout = layout
        self.tables = layout.tables
        self.keys = opened.query.keys
        self.limits = opened.limits
        self.heartbeat = opened.session.heartbeat
        self.shape = self.tables.sizes, self.tables.buckets_of_sizes
        self.everything = (1 << self.tables.n_records) - 1
        self.bitmap_bytes = self.tables.n_records // 8 + 1
        self._room = opened.limits.bitmaps
        self._key_room = opened.limits.text

    @property
    def room(self) -> int:
        """The number of bitmaps that may still be kept."""
        return max(0, self._room // self.bitmap_bytes)

    def keep(self, n_bitmaps: int = 1) -> None:
        """Account for bitmaps that are kept.

        Raises
        ------
        NoRoomError
        """
        self._room -= n_bitmaps * self.bitmap_bytes
        if self._room < 0:
            raise NoRoomError

    def truth(self, condition: Expression | None) -> TruthBitmaps:
        """Find the records, or values, for which a condition is true, or unknown."""
        return evaluate(condition, self._read, self.everything)

    def in_buckets(self, bits: int) -> Counts:
        """Count the bits of each bucket."""
        return in_buckets(bits, *self.shape)

    def values(self, operand: Expression) -> list[tuple[float, int]]:
        """Read the values of an expression on one attribute, each with its records."""
        constants = Constants(first=2)
        sql = write(operand, speller("b"), constants)
        (attribute,) = attributes(operand)
        found: dict[float, int] = {}
        columns, condition = f"({sql})::float8 AS x", f"{sql} IS NOT NULL"
        for row, bits in self.rows(columns, attribute, [operand], constants, condition):
            if row["x"] not in found:
                self.keep()
            found[row["x"]] = found.get(row["x"], 0) | bits
        return list(found.items())

    def numbered(self, bitmaps: Sequence[int]) -> AnyArray:
        """Return which of the bitmaps has each bit; see `_bitmap_sums.numbered`."""

        def watched() -> Iterator[int]:
            for bitmap in bitmaps:
                self.heartbeat()
                yield bitmap

        return numbered(watched(), len(bitmaps), self.tables.n_records)

    def valued(self, parts: Sequence[tuple[float, int]]) -> tuple[AnyArray, FloatArray]:
        """Return which of some values each record has, from 1 (0 for none), and these values."""
        import numpy as np

        return self.numbered([bits for _, bits in parts]), np.array([x for x, _ in parts])

    def slices(self, bits: int, side: Side) -> GroupSlices:
        """Divide records, or values, by the keys of their side."""
        by_attribute: dict[str, list[tuple[int, Key]]] = {}
        for number, key in enumerate(self.keys):
            if side_of(key.expression, self.layout) == side:
                (attribute,) = attributes(key.expression)
                by_attribute.setdefault(attribute, []).append((number, key))
        divisions = [self._divide(attribute, own) for attribute, own in by_attribute.items()]
        return GroupSlices(bits, divisions, self.heartbeat)

    def counted(self, condition: Expression | None, weighed: Expression | None) -> CountedSlices:
        """Count the records of each bucket that meet a condition on their side, by its keys.

        Parameters
        ----------
        condition : Expression or None
        weighed : Expression, optional
            What is summed of them.

        Raises
        ------
        NoRoomError
        """
        import numpy as np

        keys = {
            number: key.expression
            for number, key in enumerate(self.keys)
            if side_of(key.expression, self.layout) == 0
        }
        dtype = ">i4" if weighed is None else ">f8"
        written, n_columns = self._counting_statement(condition, weighed, keys)
        parts: list[CountedSlice] = []
        with self.opened.frugal():
            for row in self.opened.stream(_GROUPS_AT_ONCE, written.text, *written.bound):
                self.heartbeat()
                packed = row["numbers"] or b""
                self._room -= 2 * len(packed) + _ARRAY_BYTES * len(self.tables.sizes)
                if self._room < 0 or len(parts) >= self.limits.n_answers:
                    raise NoRoomError
                values = tuple(
                    (i, "null" if row[f"j{i}"] is None else row[f"j{i}"], row[f"r{i}"])
                    for i in keys
                )
                numbers = np.frombuffer(packed, dtype=dtype).reshape(-1, n_columns)
                part = CountedSlice.of(values, numbers.T.astype(np.float64), self.tables)
                parts.append(part)
        return CountedSlices(parts)

    def _counting_statement(
        self, condition: Expression | None, weighed: Expression | None, keys: dict[int, Expression]
    ) -> tuple[Statement, int]:
        """Write what counts records by buckets and keys, and say how many numbers a bucket has."""
        constants, spell = Constants(), speller("q")
        of_keys = {f"k{i}": write(key, spell, constants) for i, key in keys.items()}
        numbers = {"bucket": f"q.{self.tables.bucket_id} - 1", "n": "count(*)"}
        if weighed is not None:
            x = f"({write(weighed, spell, constants)})::float8"
            numbers |= {"n_x": f"count({x})", **weights(x, "")}
        source = joined_relations(
            self.tables.qit, "q", [condition, weighed, *keys.values()], self.opened.lookups
        )
        where = " AND ".join(write(part, spell, constants) for part in parts_of(condition))
        by = ", ".join(str(i + 1) for i in range(1 + len(keys)))
        columns = {"bucket": numbers["bucket"], **of_keys, **numbers}
        of_buckets = (
            f"SELECT {', '.join(f'{sql} AS {name}' for name, sql in columns.items())}"
            f" FROM {' '.join(source)} WHERE {where or 'true'} GROUP BY {by}"
        )
        send, type_ = ("int4send", "int4") if weighed is None else ("float8send", "float8")
        packed = " || ".join(f"{send}(coalesce({name}, 0)::{type_})" for name in numbers)
        shown = [f"string_agg({packed}, ''::bytea) AS numbers"]
        shown += [f"to_jsonb(k{i})::text AS j{i}" for i in keys]
        shown += [f"dense_rank() OVER (ORDER BY k{i}) AS r{i}" for i in keys]
        grouped = f" GROUP BY {', '.join(of_keys)}" if of_keys else ""
        text = f"SELECT {', '.join(shown)} FROM ({of_buckets}) AS b{grouped}"
        return Statement(text, constants.bound), len(numbers)

    def group(self, values: tuple[tuple[int, str, int], ...], counted: Estimated) -> Group:
        """Name a group by the values of its keys."""
        ordered = sorted(values)
        named = [
            (json.dumps(self.keys[number].name, ensure_ascii=False), text)
            for number, text, _ in ordered
        ]
        key = ", ".join(f"{name}: {text}" for name, text in named)
        self._key_room -= len(key.encode())
        if self._key_room < 0:
            raise self.limits.too_many()
        return Group(f"{{{key}}}", tuple(rank for _, _, rank in ordered), (counted,))

    @property
    def counts_bytes(self) -> int:
        """What the counts of all buckets take."""
        return self.tables.n_buckets * (1 if self.tables.sizes[-1] < 256 else 2)

    def are_few(
        self,
        own: GroupSlices | CountedSlices,
        others: GroupSlices | CountedSlices,
        *,
        times: int = 1,
        kept: int | None = None,
    ) -> bool:
        """Whether the groups are few enough to count each, keeping what is counted of the others.

        Parameters
        ----------
        own, others : GroupSlices or CountedSlices
        times : int
            How often each bucket is looked at for a group.
        kept : int, optional
            Bytes for each of the others; by default, those of counts.
        """
        if not self.keys:
            return True
        most = min(MOST_WORK // (self.tables.n_buckets * times), self.limits.n_answers)
        n_others = others.count(most)
        n_bytes = n_others * (self.counts_bytes if kept is None else kept)
        return (
            n_bytes <= self.limits.bitmaps
            and own.count(most // max(1, n_others)) * n_others <= most
        )

    def rows(
        self,
        columns: str,
        attribute: str,
        expressions: Sequence[Expression],
        constants: Constants,
        condition: str = "true",
    ) -> Iterator[tuple[Row, int]]:
        """Read the bitmaps of an attribute's values, with columns that depend on the value."""
        source = joined_relations(self.tables.bit, "b", expressions, self.opened.lookups)
        rows = self.opened.stream(
            max(1, self.limits.batch // self.bitmap_bytes),
            f"SELECT {columns}, b.{self.tables.bits} AS bits FROM {' '.join(source)}"
            f" WHERE b.{self.tables.attribute} = $1::text AND {condition}",
            attribute,
            *constants.bound,
        )
        return ((row, int.from_bytes(row["bits"], "little")) for row in rows)

    def _divide(self, attribute: str, keys: Sequence[tuple[int, Key]]) -> list[Slice]:
        """Read the bitmaps of an attribute's values, those of one group together."""
        constants, expressions = Constants(first=2), [key.expression for _, key in keys]
        written = [write(expression, speller("b"), constants) for expression in expressions]
        columns = ", ".join(
            f"to_jsonb({sql})::text AS j{i}, dense_rank() OVER (ORDER BY {sql}) AS r{i}"
            for i, sql in enumerate(written)
        )
        found: dict[tuple[int, ...], Slice] = {}
        for row, bits in self.rows(columns, attribute, expressions, constants):
            ranks = tuple(row[f"r{i}"] for i in range(len(keys)))
            values = tuple(
                (number, "null" if row[f"j{i}"] is None else row[f"j{i}"], ranks[i])
                for i, (number, _) in enumerate(keys)
            )
            if ranks not in found:
                self.keep()
            found[ranks] = Slice(values, bits | (found[ranks].bits if ranks in found else 0))
        return list(found.values())

    def _read(self, condition: Expression) -> TruthBitmaps:
        """Find the records for which a condition on one attribute is true, or unknown."""
        constants = Constants(first=2)
        sql = write(condition, speller("b"), constants)
        # A condition without columns is evaluated for each value of an arbitrary attribute.
        (attribute,) = attributes(condition) or {self.tables.with_bitmaps[0]}
        truth = {True: 0, False: 0}
        columns, possible = f"{sql} IS TRUE AS holds", f"{sql} IS NOT FALSE"
        for row, bits in self.rows(columns, attribute, [condition], constants, possible):
            truth[row["holds"]] |= bits
        return TruthBitmaps(truth[True], truth[False])


# Answering from bitmaps where a condition needs both sides; see `kanon_db.answers._bitmap_sums`.


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
                found: MatchedPairs | None = None
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
    ) -> Callable[[Slice, Divided, Divided], MatchedPairs | None]:
        """Return what sums a group of this side, over what matches in one of the other side."""
        numbers, x_of = self._reader.valued(self._reader.values(weighed))

        def summed(part: Slice, own: Divided, others: Divided) -> MatchedPairs | None:
            which = numbers * unpacked(part.bits, numbers.size)
            return sum_pairs(own, (which, x_of), others, self._matches, is_average=is_average)

        return summed

    def _calibrated(self, found: MatchedPairs | None) -> Estimated:
        if found is None:
            return NOTHING
        known = trust(self._reader.layout.assignment, is_paper=True, is_composed=False)
        return corrected(found, (0.0, 0.0), known)


# Answering counts from a publication's bitmaps; see `kanon_db.answers._bitmap_sums`.


if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
    from kanon_db.query.formulas import Counts

    _Levels = Callable[[], FloatArray]
    """Finds what is hidden of the values of one group, once for all groups of the other side."""

    _Find = Callable[[Counts, _Levels], Estimated]


def count_with_bitmaps(opened: OpenQuery) -> list[Group] | None:
    """Answer a count, sum or average, also with groups, from bitmaps; None if that is not possible.

    It is possible if each condition, each key of the groups and what is summed depends on one
    attribute with bitmaps, and if the bitmaps of the groups fit into the query's memory. Where
    only the sensitive attribute has them, a statement counts the records of each bucket, if the
    condition is a conjunction (or, for a count without groups, a disjunction) of its two sides.

    Notes
    -----
    Bounds are those of the statement over QIT and SAT, and so are estimates under
    ``kanon.estimator = 'paper'``, up to rounding.
    """
    layout, query = opened.layout, opened.query
    if not isinstance(layout, BucketLayout) or not layout.tables.with_bitmaps:
        return None
    if len(query.measures) > 1:
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
    apart = [key.expression for key in query.keys]
    apart = apart if weighed is None else [*apart, weighed]
    is_read = condition is None or is_readable(condition, with_bitmaps, layout.sensitive.name)
    for expression in apart:
        mentioned = attributes(expression)
        is_read &= len(mentioned) == 1 and mentioned <= with_bitmaps
    reader = BitmapReader(opened, layout)
    try:
        if is_read:
            return _answered(reader, condition, weighed)
        is_apart = all(attributes(one) and side_of(one, layout) is not None for one in apart)
        if is_apart and layout.sensitive.name in with_bitmaps:
            return _with_counted_records(reader, condition, weighed)
    except NoRoomError:
        pass
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


def _with_counted_records(
    reader: BitmapReader, condition: Expression | None, weighed: Expression | None
) -> list[Group] | None:
    """Answer from the bitmaps of sensitive values, and records that a statement counts.

    Only what the composition of buckets corrects: of anything else, the statement over QIT and SAT
    gives the same numbers.
    """
    layout, query = reader.layout, reader.opened.query
    aggregate = query.measures[0].aggregate
    if not _Counter(reader).is_corrected:
        return None
    sides: set[int | None] = {side_of(key.expression, layout) for key in query.keys}
    split = factors(condition, layout)
    if split is None:
        apart = disjoint_sides(query, aggregate, layout)
        if apart is None:
            return None
        records, values = (TruthTest(side, "true", negated=True) for side in apart)
        neither = _Counter(reader).with_counted(records, values, None)
        if neither is None:
            return None
        found = neither[0].estimates[0]
        return [Group("{}", (), (all_but(layout.tables.n_records, found),))]
    sides |= {side for side, part in enumerate(split) if part is not None}
    sides |= set() if weighed is None else {side_of(weighed, layout)}
    if sides != {0, 1}:  # it is exact, as a statement over one relation
        return None
    return _Counter(reader).with_counted(*split, weighed, is_average=aggregate.function == "avg")


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

    def with_counted(
        self,
        on_records: Expression | None,
        on_values: Expression | None,
        weighed: Expression | None,
        *,
        is_average: bool = False,
    ) -> list[Group] | None:
        """Count, or sum, for each group, where a statement counts the records of each bucket."""
        reader = self._reader
        side = None if weighed is None else side_of(weighed, self._layout)
        records = reader.counted(on_records, weighed if side == 0 else None)
        values = reader.slices(reader.truth(on_values).true, 1)
        if weighed is not None and side == 1:
            if not self._are_few_sums(values, records):
                return None
            return self._meeting(values, records, self._weighing(weighed, 1, is_average=is_average))
        n_values = values.count(reader.limits.n_answers)
        if n_values * len(records.parts) > reader.limits.n_answers:
            return None
        if n_values * reader.counts_bytes > reader.limits.bitmaps:
            return None
        counted = [
            (one.values, reader.in_buckets(one.bits), self._levels(one.bits)) for one in values
        ]
        groups = []
        for part in records.parts:
            find = (
                self._counted(part.counts, part.places)
                if weighed is None
                else self._summed(0, part.weighed, (), 0, is_average=is_average, places=part.places)
            )
            for named, counts, levels in counted:
                reader.heartbeat()
                here = [own[at] for own, at in zip(counts, part.places, strict=True)]
                if not self._keys or can_meet(part.counts, here):
                    groups.append(reader.group(part.values + named, find(here, levels)))
        return groups

    def summed(
        self, records: int, values: int, operand: Expression, *, is_average: bool
    ) -> list[Group] | None:
        """Sum, or average, for each group that can have records."""
        side = side_of(operand, self._layout) or 0
        slices = self._reader.slices(records, 0), self._reader.slices(values, 1)
        own, others = slices[side], slices[1 - side]
        if not self._are_few_sums(own, others):
            return None
        return self._meeting(own, others, self._weighing(operand, side, is_average=is_average))

    def _are_few_sums(self, own: GroupSlices, others: GroupSlices | CountedSlices) -> bool:
        most = MOST_WORK // (SUM_WORK * self._tables.n_records)
        return own.count(most) <= max(1, most) and self._reader.are_few(own, others)

    def _weighing(
        self, operand: Expression, side: Side, *, is_average: bool
    ) -> Callable[[Slice, Counts], _Find]:
        """Sum, or average, what bitmaps tell of an operand on one side."""
        parts = self._reader.values(operand)
        numbers, x_of = self._reader.valued(parts)

        def total(part: Slice, _own: Counts) -> _Find:
            chosen = numbers * unpacked(part.bits, self._tables.n_records)
            weighed = weigh(chosen, x_of, *self._reader.shape)
            return self._summed(part.bits, weighed, parts, side, is_average=is_average)

        return total

    def _counted(self, in_records: Counts, places: list[IntArray] | None = None) -> _Find:
        """Count for these records what any values give; of all buckets, or of some."""
        layout, composed = self._layout, self._composed
        direction = None
        if composed is not None:
            direction = composed.along(in_records, *self._reader.shape, places)

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
        bits: int,
        weighed: list[Weighed],
        values: Sequence[tuple[float, int]],
        side: Side,
        *,
        is_average: bool,
        places: list[IntArray] | None = None,
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
                rest = [w.x - mean * w.n for w in weighed]
                direction = composed.along(rest, *self._reader.shape, places)
                return self._corrected(found, direction, levels())
            hidden = composed.levels((x - mean, bits & own) for x, own in values)
            return self._corrected(found, composed.along(counts, *self._reader.shape), hidden)

        return find

    def _corrected(
        self, found: MatchedPairs, direction: tuple[FloatArray, float, float], levels: FloatArray
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

    @property
    def is_corrected(self) -> bool:
        """Whether it is known how values of buckets go together with the records of each group."""
        of_records = [key for key in self._keys if side_of(key.expression, self._layout) == 0]
        return self._tables.spectrum is not None and len(of_records) <= 1

    @cached_property
    def _composed(self) -> Composed | None:
        """How values of buckets go together; None where it is not known, or not asked for."""
        tables, layout = self._tables, self._layout
        sensitive = layout.sensitive
        if not self.is_corrected:
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
        self,
        own: GroupSlices,
        others: GroupSlices | CountedSlices,
        finder: Callable[[Slice, Counts], _Find],
    ) -> list[Group]:
        """Answer for each pair of parts, one from each side, that have a bucket in common."""
        counted = [
            (
                other.values,
                self._in_buckets(other),
                self._levels(other.bits if isinstance(other, Slice) else 0),
            )
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

    def _in_buckets(self, part: Slice | CountedSlice) -> Counts:
        if isinstance(part, Slice):
            return self._reader.in_buckets(part.bits)
        return part.in_buckets(self._tables)
