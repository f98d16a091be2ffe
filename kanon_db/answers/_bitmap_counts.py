"""Answers from the bitmaps of a publication, which are read a few megabytes at a time."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import chain, islice
from math import prod
from operator import or_
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeAlias

from kanon_db.answers._bitmap_sums import (
    MOST_PLANES,
    ChosenValues,
    Classes,
    Divided,
    Matching,
    Pairs,
    RecordWeights,
    TruthBitmaps,
    WeightedValue,
    Weights,
    add_up,
    can_meet,
    count_exactly,
    count_joined,
    count_pairs,
    divide_classes,
    evaluate,
    in_buckets,
    is_one_by_one,
    is_readable,
    join_pairs,
    match,
    number_bits,
    sum_joined,
    sum_pairs,
    sum_weighted,
    unpack_bits,
    weigh,
)
from kanon_db.answers.plan import Plan, PlannedKey
from kanon_db.answers.scope import GroupValues, OpenQuery
from kanon_db.errors import UnsupportedQueryError
from kanon_db.query.expressions import (
    TEXT,
    Aggregate,
    And,
    Column,
    Constant,
    Expression,
    Measure,
    attributes,
    joined,
)
from kanon_db.query.formulas import (
    NOTHING,
    Estimated,
    Group,
    MatchedPairs,
    ValueTotals,
    Weighed,
    all_but,
    count_buckets,
    judged,
    sum_buckets,
    summed,
    trust,
    trust_of_counts,
    weights,
)
from kanon_db.query.layout import (
    BucketLayout,
    BucketTables,
    Side,
    condition_of,
    condition_on,
    parts_of,
    weight_field,
)
from kanon_db.query.sql import (
    Constants,
    Nested,
    Select,
    Statement,
    count_in_buckets,
    join_relations,
    same_value,
    speller,
    write,
)
from kanon_db.query.sql import (
    number_columns as grouped_columns,
)
from kanon_db.session.protocol import Row

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import BoolArray, FloatArray, IntArray
    from kanon_db.answers._bitmap_sums import AnyArray
    from kanon_db.query.formulas import Counts


_MOST_SPARSE: Final = 10
"""Combinations of values, for each one that occurs."""


class Slice(NamedTuple):
    """A group's part of the records or values, with the values of its keys so far."""

    values: GroupValues
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
        return self._divide_part(Slice((), self.bits), 0)

    def _divide_part(self, part: Slice, depth: int) -> Iterator[Slice]:
        if depth == len(self.divisions):
            yield part
            return
        self.heartbeat()
        for other in self.divisions[depth]:
            if both := part.bits & other.bits:
                yield from self._divide_part(Slice(part.values + other.values, both), depth + 1)

    def count(self, most: int) -> int:
        """Return the number of parts, or more than `most` if there are more."""
        # Where most combinations do not occur, finding those that do takes long: their number is
        # not looked for, and taken as more.
        if prod(map(len, self.divisions)) > _MOST_SPARSE * most:
            return most + 1
        return sum(1 for _ in islice(self, most + 1))


@dataclass(frozen=True, eq=False)
class CountedSlice:
    """A group's part of the records, or values, as numbers of the buckets that have some of it."""

    values: GroupValues
    places: list[IntArray]  # where these buckets stand among those of each size
    counts: Counts  # how much of the part each of them has
    weighed: list[Weighed]  # what is summed of it; empty if nothing is
    known: RecordWeights | ChosenValues | None = None  # what weights tell of it, where QIT has them

    @classmethod
    def of(cls, values: GroupValues, numbers: AnyArray, tables: BucketTables) -> Self:
        """Divide numbers, as :func:`.count_in_buckets` names them, by the sizes of buckets."""
        import numpy as np

        numbers = numbers[np.argsort(numbers["bucket"], kind="stable")]
        firsts = np.array(tables.first_bucket_ids) - 1
        by_size = np.split(numbers, np.searchsorted(numbers["bucket"], firsts[1:]))
        return cls(
            values,
            [own["bucket"] - first for own, first in zip(by_size, firsts, strict=True)],
            [own["n"].astype(np.uint16) for own in by_size],
            [
                Weighed(*(own[name].astype(np.float64) for name in _WEIGHED))
                for own in by_size
                if "n_x" in (numbers.dtype.names or ())
            ],
        )

    def in_buckets(self, tables: BucketTables) -> Counts:
        """Return how many of the part each bucket has, for each size."""
        import numpy as np

        counts: Counts = []
        for n, places, own in zip(tables.buckets_of_sizes, self.places, self.counts, strict=True):
            in_all = np.zeros(n, dtype=np.uint16)
            in_all[places] = own
            counts.append(in_all)
        return counts


_WEIGHED: Final = ("n_x", *weights("", ""))


def _choose_values(
    reader: BitmapReader, weighed: Expression | None, n_values: int
) -> dict[GroupValues, ChosenValues]:
    """Find the sensitive values of each group, and what is summed of each."""
    import numpy as np

    tables, spell, constants = reader.tables, speller("s"), Constants()
    keys = reader.plan.keys_of(1)
    columns = {f"k{key.number}": write(key.expression, spell, constants) for key in keys}
    columns["place"] = f"s.{tables.weights}"
    if weighed is not None:
        x = f"({write(weighed, spell, constants)})::float8"
        columns |= {"has": f"(({x}) IS NOT NULL)::int4", "x": x}
    numbers = {"place": "int4"} | ({} if weighed is None else {"has": "int4", "x": "float8"})
    where = [write(part, spell, constants) for part in parts_of(reader.plan.values)]
    select = Select(columns, [f"{tables.learned} AS s"], where)
    statement, chosen_of = Statement(select.write(), constants.bound), {}
    for values, rows in reader.opened.packed(statement, [key.number for key in keys], numbers):
        are_chosen, x_of = np.zeros(n_values, dtype=np.bool_), np.full(n_values, np.nan)
        are_chosen[rows["place"]] = True
        if weighed is not None:
            x_of[rows["place"]] = np.where(rows["has"] > 0, rows["x"], np.nan)
        chosen_of[values] = ChosenValues(are_chosen, x_of)
    return chosen_of


def _record_weights(
    reader: BitmapReader, weighed: Expression | None, parts: Sequence[int], needed: BoolArray
) -> dict[GroupValues, RecordWeights]:
    """Add up the weights of the records of each group, and those times what is summed.

    Only those of the values that are needed; of others, 0.
    """
    import numpy as np

    tables, spell, constants = reader.tables, speller("q"), Constants()
    keys = reader.plan.keys_of(0)
    names = {f"k{key.number}": write(key.expression, spell, constants) for key in keys}
    inner = {**names, "w": f"q.{tables.weights}"}
    levels = {i: f'r.w."{weight_field(i)}"' for i in np.flatnonzero(needed).tolist()}
    summed = {"n": "count(*)", **{f"w{i}": f"sum({one})" for i, one in levels.items()}}
    if weighed is not None:
        inner["x"] = f"({write(weighed, spell, constants)})::float8"
        has = "CASE WHEN r.x IS NOT NULL THEN {} END"
        summed = {"n": "count(r.x)", "sx": "sum(r.x)"}
        summed |= {f"w{i}": f"sum({has.format(one)})" for i, one in levels.items()}
        summed |= {f"x{i}": f"sum(r.x * {one})" for i, one in levels.items()}
    where = [write(part, spell, constants) for part in parts_of(reader.plan.records)]
    records = Nested([Select(inner, [f"{tables.qit} AS q"], where)], "r")
    columns = {**{name: f"r.{name}" for name in names}, **summed}
    select = Select(columns, [records], group=grouped_columns(len(names)))
    statement = Statement(select.write(), constants.bound)
    each, weights = np.array(parts, dtype=np.float64), {}
    numbers = dict.fromkeys(summed, "float8")
    for values, rows in reader.opened.packed(statement, [key.number for key in keys], numbers):
        row = {name: float(rows[name].sum()) for name in summed}
        own, times = (
            np.array([row.get(f"{of}{i}", 0.0) for i in range(len(parts))]) / each for of in "wx"
        )
        weights[values] = RecordWeights(row["n"], own, row.get("sx", 0.0), times)
    return weights


Slices: TypeAlias = GroupSlices | list[CountedSlice]


def _number_of(parts: Slices, most: int) -> int:
    return len(parts) if isinstance(parts, list) else parts.count(most)


MOST_WORK: Final = 500_000_000
"""Groups times buckets; above this, a statement counts the records of each bucket faster."""

SUM_WORK: Final = 10
"""How much more work it is to sum than to count."""

_TRIED: Final = 16
"""Pairs of groups that are looked at, for each answer: many have no bucket in common."""

_ARRAY_BYTES: Final = 300
"""What two arrays take beside their numbers, rounded up."""


class NoRoomError(Exception):
    """The bitmaps, or the counts of buckets, would need more memory than a query may."""


class BitmapReader:
    """Reads the bitmaps of one publication, and what is known of the groups that they make."""

    def __init__(self, opened: OpenQuery, layout: BucketLayout, plan: Plan) -> None:
        self.opened = opened
        self.layout = layout
        self.plan = plan
        self.tables = layout.tables
        self.keys = plan.keys
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
        """Account for bitmaps that are kept; NoRoomError where they are too many."""
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
        bits_of: dict[float, int] = {}
        columns, condition = f"({sql})::float8 AS x", f"{sql} IS NOT NULL"
        for row, bits in self.rows(columns, attribute, [operand], constants, condition):
            if row["x"] not in bits_of:
                self.keep()
            bits_of[row["x"]] = bits_of.get(row["x"], 0) | bits
        return list(bits_of.items())

    def numbered(self, bitmaps: Sequence[int]) -> AnyArray:
        """Return which of the bitmaps has each bit; see `_bitmap_sums.number_bits`."""

        def watched() -> Iterator[int]:
            for bitmap in bitmaps:
                self.heartbeat()
                yield bitmap

        return number_bits(watched(), len(bitmaps), self.tables.n_records)

    def number_values(self, parts: Sequence[tuple[float, int]]) -> tuple[AnyArray, FloatArray]:
        """Return which of some values each record has, from 1 (0 for none), and these values."""
        import numpy as np

        return self.numbered([bits for _, bits in parts]), np.array([x for x, _ in parts])

    def slices(self, bits: int, side: Side) -> GroupSlices:
        """Divide records, or values, by the keys of their side."""
        by_attribute: dict[str, list[PlannedKey]] = {}
        for key in self.plan.keys_of(side):
            (attribute,) = attributes(key.expression)
            by_attribute.setdefault(attribute, []).append(key)
        divisions = [self._divide(attribute, own) for attribute, own in by_attribute.items()]
        return GroupSlices(bits, divisions, self.heartbeat)

    def counted(self, side: Side) -> list[CountedSlice]:
        """Count the records, or values, of each bucket that meet a condition, by their keys."""
        parts: list[CountedSlice] = []
        for values, numbers in self._count_parts(side, is_by_bucket=True):
            self.heartbeat()
            self._room -= 2 * numbers.nbytes + _ARRAY_BYTES * len(self.tables.sizes)
            if self._room < 0 or len(parts) >= self.limits.n_answers:
                raise NoRoomError
            parts.append(CountedSlice.of(values, numbers, self.tables))
        return parts

    def with_weights(
        self,
        records: list[CountedSlice],
        values: list[CountedSlice],
    ) -> tuple[list[CountedSlice], list[CountedSlice]]:
        """Add what the weights in QIT tell of each part of records, for the parts of values."""
        import numpy as np

        tables, by_others = self.tables, self.plan.shape == "either"
        rows = self.opened.fetch(
            f"SELECT w.{tables.weights} AS place, w.{tables.parts} AS parts FROM {tables.learned}"
            " AS w"
        )
        parts = [row["parts"] for row in sorted(rows, key=lambda row: row["place"])]
        chosen = _choose_values(self, self.plan.summed_on(1), len(parts))
        needed = np.ones(len(parts), dtype=np.bool_)
        # No more than what the values add up, see `add_up`.
        if len(chosen) == 1 and self.plan.summed_on(1) is None:
            ((are_weighed, _),) = chosen.values()
            needed = (
                ~are_weighed
                if by_others or 2 * are_weighed.sum() > are_weighed.size
                else are_weighed
            )
        own = _record_weights(self, self.plan.summed_on(0), parts, needed)
        room = 16 * len(parts) * (len(own) + len(chosen))
        if room > self._room:
            return records, values  # by the paper's estimator, as where bitmaps have no room
        self._room -= room
        return (
            [replace(part, known=own.get(part.values)) for part in records],
            [replace(part, known=chosen.get(part.values)) for part in values],
        )

    def exact(self) -> list[Group]:
        """Answer what is on one side: it is published as it is."""
        groups: list[Group] = []
        is_average = self.plan.measure.function == "avg"
        for values, numbers in self._count_parts(self.plan.only_side, is_by_bucket=False):
            if len(groups) == self.limits.n_answers:
                raise self.limits.too_many()
            totals = {name: numbers[name].sum().item() for name in numbers.dtype.names or ()}
            answer = Estimated(float(totals["n"]), 0.0, totals["n"], totals["n"])
            if self.plan.summed is not None:
                x = totals["sx"] / (totals["n_x"] or 1) if is_average else totals["sx"]
                answer = Estimated(x, 0.0, x, x) if totals["n_x"] else NOTHING
            groups.append(self.group(values, answer))
        return groups

    def _count_parts(
        self, side: Side, *, is_by_bucket: bool
    ) -> Iterator[tuple[GroupValues, AnyArray]]:
        """Run the statement that counts one side by its keys."""
        keys, weighed = self.plan.keys_of(side), self.plan.summed_on(side)
        condition = self.plan.values if side else self.plan.records
        parts, constants = {f"k{key.number}": key.expression for key in keys}, Constants()
        counted = count_in_buckets(
            self.tables, side, parts, condition, weighed, self.opened.lookups, constants,
            is_by_bucket=is_by_bucket,
        )  # fmt: skip
        types_of_parts = {"bucket": "int4", "n": "int4"} if is_by_bucket else {"n": "int8"}
        sums = _WEIGHED if is_by_bucket else ("n_x", "sx")
        numbers = types_of_parts | dict.fromkeys([] if weighed is None else sums, "float8")
        written = Statement(counted.write(), constants.bound)
        return self.opened.packed(written, [key.number for key in keys], numbers)

    def group(self, values: GroupValues, counted: Estimated) -> Group:
        """Name a group by the values of its keys."""
        ordered = tuple(sorted(values))
        key = self.opened.key(ordered)
        self._key_room -= len(key.encode())
        if self._key_room < 0:
            raise self.limits.too_many()
        return Group(key, tuple(rank for _, _, rank in ordered), (counted,))

    @property
    def counts_bytes(self) -> int:
        """What the counts of all buckets take."""
        return self.tables.n_buckets * (1 if self.tables.sizes[-1] < 256 else 2)

    def are_few(
        self,
        own: Slices,
        slices_beside: Slices,
        *,
        times: int = 1,
        kept: int | None = None,
    ) -> bool:
        """Whether groups are few enough to count each, keeping what is counted of the others."""
        if not self.keys:
            return True
        most = self.limits.n_answers
        if isinstance(own, list):  # of each, only its own buckets are looked at
            most *= _TRIED
        else:
            most = min(MOST_WORK // (self.tables.n_buckets * times), most)
        n_others = _number_of(slices_beside, most)
        n_bytes = n_others * (self.counts_bytes if kept is None else kept)
        return (
            n_bytes <= self.limits.bitmaps
            and _number_of(own, most // max(1, n_others)) * n_others <= most
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
        source = join_relations(self.tables.bit, "b", expressions, self.opened.lookups)
        rows = self.opened.stream(
            max(1, self.limits.batch // self.bitmap_bytes),
            f"SELECT {columns}, b.{self.tables.bits} AS bits FROM {' '.join(source)}"
            f" WHERE b.{self.tables.attribute} = $1::text AND {condition}",
            attribute,
            *constants.bound,
        )
        return ((row, int.from_bytes(row["bits"], "little")) for row in rows)

    def _divide(self, attribute: str, keys: Sequence[PlannedKey]) -> list[Slice]:
        """Read the bitmaps of an attribute's values, those of one group together."""
        constants, expressions = Constants(first=2), [key.expression for key in keys]
        written = [write(expression, speller("b"), constants) for expression in expressions]
        columns = ", ".join(
            f"to_jsonb({sql})::text AS j{i}, dense_rank() OVER (ORDER BY {sql}) AS r{i}"
            for i, sql in enumerate(written)
        )
        slices: dict[tuple[int, ...], Slice] = {}
        for row, bits in self.rows(columns, attribute, expressions, constants):
            ranks = tuple(row[f"r{i}"] for i in range(len(keys)))
            values = tuple(
                (key.number, "null" if row[f"j{i}"] is None else row[f"j{i}"], ranks[i])
                for i, key in enumerate(keys)
            )
            if ranks not in slices:
                self.keep()
            slices[ranks] = Slice(values, bits | (slices[ranks].bits if ranks in slices else 0))
        return list(slices.values())

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


_MOST_CLASSES: Final = 256
_MOST_PAIRS: Final = 1 << 14
"""Classes of records, or of values, and their pairs, before alike ones are put together: above
this, the server joins the records of each bucket with its values faster."""

_TRUTHS: Final = (True, None, False)
"""What the number of a condition's part says of it."""


def count_with_pairs(reader: BitmapReader) -> list[Group] | None:
    """Answer a count, sum or average of what meets a condition on both sides; None if too much."""
    matching = _matching(reader)
    return None if matching is None else _PairCounter(reader, matching).answered()


def _matching(reader: BitmapReader) -> Matching | None:
    """Divide records and values by what the condition asks of them; None if into too many."""
    both_sides = joined(And, reader.plan.pairs)
    if both_sides is None:
        raise TypeError("the condition does not need both sides")
    leaves = reader.plan.leaves
    compared = [_compare_sides(reader, leaf) for leaf in leaves.pairs]
    records = _classes(reader, reader.plan.records, leaves.records, [c.records for c in compared])
    values = _classes(reader, reader.plan.values, leaves.values, [c.values for c in compared])
    if records is None or values is None or len(records) * len(values) > _MOST_PAIRS:
        return None
    truths = {leaf: _truth_by_labels(0, place) for place, leaf in enumerate(leaves.records)}
    truths |= {leaf: _truth_by_labels(1, place) for place, leaf in enumerate(leaves.values)}
    for number, (leaf, comparison) in enumerate(zip(leaves.pairs, compared, strict=True)):
        truths[leaf] = comparison.truth_by_labels(
            len(leaves.records) + number, len(leaves.values) + number
        )
    return match(both_sides, truths, (records, values))


def _classes(
    reader: BitmapReader,
    chosen: Expression | None,
    leaves: Sequence[Expression],
    divisions: Sequence[Sequence[int]],
) -> Classes | None:
    """Divide what meets some conditions by the truth of others, and into parts; None if many."""
    most = min(_MOST_CLASSES, reader.room // 2)  # the old ones and the new ones are kept
    whole_classes: Classes = [(reader.truth(chosen).true, ())]
    for parts in chain(_parts(reader, leaves), divisions):
        classes = divide_classes(whole_classes, parts, most)
        if classes is None:
            return None
        whole_classes = classes
    reader.keep(len(whole_classes))
    return whole_classes


def _parts(reader: BitmapReader, leaves: Sequence[Expression]) -> Iterator[Sequence[int]]:
    """Read where each condition is true, unknown and false."""
    for leaf in leaves:
        truth = reader.truth(leaf)
        yield truth.true, truth.unknown, reader.everything & ~(truth.true | truth.unknown)


def _truth_by_labels(side: Side, place: int) -> Pairs:
    """Return the truth of a condition on one side from the labels of a pair."""
    return lambda *labels: _TRUTHS[labels[side][place]]


@dataclass(frozen=True)
class _Compared:
    """A comparison of both sides: the parts of either, and the truth for each pair of them."""

    records: list[int]
    values: list[int]
    truths: list[tuple[bool | None, ...]]

    def truth_by_labels(self, of_records: int, of_values: int) -> Pairs:
        """Return its truth from the labels of a pair, at these places."""
        return lambda records, values: self.truths[values[of_values]][records[of_records]]


def _compare_sides(reader: BitmapReader, condition: Expression) -> _Compared:
    """Let the server compare each value of a quasi-identifier with each sensitive value."""
    tables, layout = reader.tables, reader.layout
    (name,) = attributes(condition) - layout.sensitive.keys()
    (sensitive,) = attributes(condition) - {name}
    constants = Constants(first=2)

    def spell(column: Column) -> str:
        return speller("b" if column.name == name else "v")(column)

    sql = write(condition, spell, constants)
    own = {name: f"b.{layout.quasi_identifiers[name].sql}"}
    source = join_relations(tables.bit, "v", [condition], reader.opened.lookups, own)
    truths = (
        f"(SELECT array_agg({sql} ORDER BY v.ctid) FROM {' '.join(source)}"
        f" WHERE v.{tables.attribute} = {constants.write(Constant(sensitive, TEXT))}) AS truths"
    )
    records: dict[tuple[bool | None, ...], int] = {}
    for row, bits in reader.rows(truths, name, [], constants):
        truth_row = tuple(row["truths"])
        if truth_row not in records:
            reader.keep()
        records[truth_row] = records.get(truth_row, 0) | bits
    by_place = list(zip(*records, strict=True))
    values: dict[tuple[bool | None, ...], int] = {}
    place = "row_number() OVER (ORDER BY b.ctid) - 1 AS place"
    for row, bits in reader.rows(place, sensitive, [], Constants(first=2)):
        truth_row = by_place[row["place"]]
        if truth_row not in values:
            reader.keep()
        values[truth_row] = values.get(truth_row, 0) | bits
    return _Compared(list(records.values()), list(values.values()), list(values))


class _PairCounter:
    """Counts, or sums, the pairs of classes that match."""

    def __init__(self, reader: BitmapReader, matching: Matching) -> None:
        self._reader = reader
        side: Side = 0 if reader.plan.summed_on(1) is None else 1
        self._side = side
        self._other: Side = 0 if side else 1
        self._own, self._others = matching.sides[side], matching.sides[self._other]
        self._matches = matching.along(side)

    def answered(self) -> list[Group] | None:
        """Answer for each group that can have records; None if there are too many."""
        reader, keys, weighed = self._reader, self._reader.keys, self._reader.plan.summed
        if not self._matches:
            nothing = Estimated(0.0, 0.0, 0, 0) if weighed is None else NOTHING
            return [] if keys else [reader.group((), nothing)]
        own = reader.slices(reduce(or_, self._own), self._side)
        other_slices = reader.slices(reduce(or_, self._others), self._other)
        if not reader.are_few(
            own, other_slices, times=self._times(weighed), kept=self._bytes_kept()
        ):
            return None
        summed = None if weighed is None else self._make_sum(weighed)
        divided_others = [
            (part.values, self._divide_part(part, self._others)) for part in other_slices
        ]
        groups = []
        for part in own:
            in_own = self._divide_part(part, self._own)
            for values, in_others in divided_others:
                pairs: MatchedPairs | None = None
                if keys or summed is None:
                    pairs = count_pairs(in_own, in_others, self._matches)
                    if keys and not pairs.estimate:
                        continue
                if summed is not None:
                    pairs = summed(part, in_own, in_others)
                groups.append(reader.group(part.values + values, self._calibrate(pairs)))
        return groups

    def _times(self, weighed: Expression | None) -> int:
        """Return how often each bucket is looked at, compared with a condition on each side."""
        n_own = len(self._own) * (1 if weighed is None else SUM_WORK)
        return max(1, (n_own + len(self._others)) // 2)

    def _bytes_kept(self) -> int:
        """Return the bytes that are kept for each group of the other side."""
        reader, n_pairs = self._reader, len(self._own) * len(self._others)
        counts = len(self._others) * reader.counts_bytes
        if not any(is_one_by_one(size, n_pairs) for size in reader.tables.sizes):
            return counts + reader.bitmap_bytes
        slots = reader.tables.n_records * (1 if len(self._others) < 256 else 2)
        return counts + slots + reader.bitmap_bytes

    def _divide_part(self, part: Slice, classes: Sequence[int]) -> Divided:
        """Divide a group into its classes."""
        return Divided(part.bits, classes, self._reader.shape, self._reader.heartbeat)

    def _make_sum(
        self, weighed: Expression
    ) -> Callable[[Slice, Divided, Divided], MatchedPairs | None]:
        """Return what sums a group of this side, over what matches in one of the other side."""
        is_average = self._reader.plan.measure.function == "avg"
        numbers, x_of = self._reader.number_values(self._reader.values(weighed))

        def summed(part: Slice, own: Divided, other: Divided) -> MatchedPairs | None:
            which = numbers * unpack_bits(part.bits, numbers.size)
            return sum_pairs(own, (which, x_of), other, self._matches, is_average=is_average)

        return summed

    def _calibrate(self, pairs: MatchedPairs | None) -> Estimated:
        if pairs is None:
            return NOTHING
        return judged(pairs, trust(self._reader.layout.assignment))


if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
    from kanon_db.query.formulas import Counts

    _Find = Callable[[Counts, "_Other"], Estimated]


def count_with_bitmaps(opened: OpenQuery) -> list[Group]:
    """Answer a count, sum or average over buckets, also with groups."""
    # If each condition, each key of the groups and what is summed depends on one attribute with
    # bitmaps, bitmaps count, if those of the groups fit into the query's memory. Otherwise a
    # statement counts the records, and the values, of each bucket, unless a part needs both sides.
    # For all else, the server joins the records of each bucket with its values, a run of buckets at
    # a time.
    layout, (plan,) = opened.layout, opened.plans
    if not isinstance(layout, BucketLayout):
        raise TypeError("these are no buckets")
    aggregate, is_count = plan.measure, plan.summed is None
    if plan.keys and (aggregate.condition or (is_count and aggregate.operand)):
        return _in_all_groups(opened)
    with suppress(NoRoomError):
        groups = _from_bitmaps(BitmapReader(opened, layout, plan))
        if groups is not None:
            return groups
    with opened.frugal():
        with suppress(NoRoomError):
            groups = _from_counts(BitmapReader(opened, layout, plan))
            if groups is not None:
                return groups
        return _from_pairs(BitmapReader(opened, layout, plan))


def _in_all_groups(opened: OpenQuery) -> list[Group]:
    """Answer where some records are not chosen: their groups are listed all the same."""
    query = opened.query
    aggregate, everybody = query.measures[0].aggregate, Aggregate("count", None)

    def counted(where: Expression | None, one: Aggregate) -> list[Group]:
        part = query._replace(where=where, measures=(Measure("", one),))
        return count_with_bitmaps(replace(opened, query=part))

    listed = counted(query.where, everybody)
    if aggregate.function == "count":
        nothing = Estimated(0.0, 0.0, 0, 0)
        groups = counted(condition_of(query, aggregate), everybody)
    else:
        nothing = NOTHING
        groups = counted(condition_on(query, aggregate), replace(aggregate, condition=None))
    estimates = {_spell_key(group.key): group.estimates for group in groups}
    return [
        group._replace(estimates=estimates.get(_spell_key(group.key), (nothing,)))
        for group in listed
    ]


def _spell_key(group_key: str) -> str:
    """Return a group's key with each number in one spelling: 1.0 and 1.00 are equal."""

    def number(text: str) -> str:
        plain = text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text
        return "0" if plain == "-0" else plain

    return json.dumps(json.loads(group_key, parse_float=number, parse_int=number))


def _from_bitmaps(reader: BitmapReader) -> list[Group] | None:
    """Answer from bitmaps in the way that fits the plan; None where some are missing."""
    plan = reader.plan
    keys = [key.expression for key in plan.keys]
    if not _are_in_bitmaps(
        reader, plan.records, plan.values, *plan.pairs, apart=[*keys, plan.summed]
    ):
        return None
    if plan.shape == "pairs":
        try:
            with reader.opened.session.savepoint():
                return count_with_pairs(reader)
        except UnsupportedQueryError:  # arithmetic, on values that the rest of it excludes
            return None
    records = reader.slices(reader.truth(plan.records).true, 0)
    values = reader.slices(reader.truth(plan.values).true, 1)
    if plan.shape != "exact" or plan.summed is not None:
        return _Counter(reader).answer(records, values)
    if not reader.are_few(records, values):
        return None
    parts = values if plan.only_side else records
    return [reader.group(part.values, count_exactly(part.bits)) for part in parts]


def _from_counts(reader: BitmapReader) -> list[Group] | None:
    """Answer from counts of each bucket; None if a part needs both sides."""
    plan = reader.plan
    if plan.shape == "pairs":
        return None
    if plan.shape == "exact":
        return reader.exact()
    records = reader.counted(0)
    keys = [key.expression for key in plan.keys_of(1)]
    if _are_in_bitmaps(reader, plan.values, apart=[*keys, plan.summed_on(1)]):
        return _Counter(reader).answer(records, reader.slices(reader.truth(plan.values).true, 1))
    values = reader.counted(1)
    if reader.layout.in_fields:
        records, values = reader.with_weights(records, values)
    return _Counter(reader).answer(records, values)


def _are_in_bitmaps(
    reader: BitmapReader, *conditions: Expression | None, apart: Sequence[Expression | None]
) -> bool:
    """Whether bitmaps tell of these conditions, and of each of the expressions by one attribute."""
    with_bitmaps = frozenset(reader.tables.with_bitmaps)
    return all(
        is_readable(one, with_bitmaps, reader.plan.uncertain) for one in conditions if one
    ) and all(len(names := attributes(one)) == 1 and names <= with_bitmaps for one in apart if one)


def _from_pairs(reader: BitmapReader) -> list[Group]:
    """Answer from the pairs of a record and a value that the server finds in each bucket."""
    import numpy as np

    plan, tables, limits, opened = reader.plan, reader.tables, reader.limits, reader.opened
    written = join_pairs(plan, tables, opened.lookups)
    is_count = plan.summed is None
    numbers = dict.fromkeys(("bucket", "record", "n_records", "value", "n_values"), "int4")
    if not is_count:
        numbers |= {"has": "int4", "x": "float8"}
    run = max(1, limits.batch // (_PAIR_BYTES * tables.sizes[-1] ** 2))
    firsts, all_sizes = np.array(tables.first_bucket_ids) - 1, np.array(tables.sizes, dtype=float)

    def sizes(buckets: IntArray) -> FloatArray:
        sums_of: FloatArray = all_sizes[np.searchsorted(firsts, buckets, side="right") - 1]
        return sums_of

    totals = np.zeros(4 if is_count else 9)
    sums_of: dict[tuple[int, ...], tuple[GroupValues, FloatArray, tuple[float, float]]] = {}
    if not plan.keys:
        sums_of[()] = (), totals, _NO_VALUE
    for values, pairs in opened.packed(written, range(len(plan.keys)), numbers, run):
        reader.heartbeat()
        ranks = tuple(rank for *_, rank in values)
        _, sums, (least, most) = sums_of.get(ranks, (values, totals, _NO_VALUE))
        chosen = pairs if is_count else pairs[pairs["has"] > 0]
        if chosen.size and is_count:
            sums = sums + count_joined(chosen, sizes)
        elif chosen.size:
            more, ends = sum_joined(chosen, sizes)
            sums, least, most = sums + more, min(least, ends[0]), max(most, ends[1])
        sums_of[ranks] = values, sums, (least, most)
        if len(sums_of) > limits.n_answers:
            raise limits.too_many()
    known = trust(reader.layout.assignment)
    is_average = plan.measure.function == "avg"
    groups = []
    for values, sums, extremes in sums_of.values():
        sum_of_pairs: MatchedPairs | None
        if is_count:
            estimate, variance, low, high = sums.tolist()
            sum_of_pairs = MatchedPairs(estimate, variance, int(low), int(high))
        else:
            sum_of_pairs = summed(sums.tolist(), extremes, is_average=is_average)
        answer = NOTHING if sum_of_pairs is None else judged(sum_of_pairs, known)
        if plan.shape == "either":
            answer = all_but(tables.n_records, answer)
        groups.append(reader.group(values, answer))
    return groups


_NO_VALUE: Final = math.inf, -math.inf
"""The least and the greatest of no value."""

_PAIR_BYTES: Final = 32
"""What a pair takes, and where there are as many records and values as places, its bucket."""


class _Other:
    """A part of the other side, which the parts of one side meet."""

    def __init__(self, counter: _Counter, part: Slice | CountedSlice) -> None:
        self._counter, self._part = counter, part
        self.values, self.counts = part.values, counter.everywhere(part)
        self.known = part.known if isinstance(part, CountedSlice) else None

    @cached_property
    def bits(self) -> int | None:
        """The records, or values, of the part; None if only their numbers are known."""
        return self._part.bits if isinstance(self._part, Slice) else None

    @cached_property
    def weights(self) -> Weights | None:
        """The weights of the sensitive values of the part, if they have any."""
        if self.bits is None:
            return None
        return self._counter.weights(self.bits)

    @cached_property
    def totals(self) -> ValueTotals:
        """Sums over all buckets."""
        return ValueTotals.of(self.counts, self._counter.sizes)


class _Counter:
    """Counts, or sums, where the condition is a conjunction of its two sides."""

    def __init__(self, reader: BitmapReader) -> None:
        self._reader = reader
        self._plan = reader.plan
        self._layout = reader.layout
        self._tables = reader.tables
        self.sizes = reader.tables.sizes
        # By the weights of the values that are asked for: of those who meet neither condition, no
        # person adds less than 1 minus those.
        self._by_others = reader.plan.shape == "either"

    def answer(self, records: Slices, values: Slices) -> list[Group] | None:
        """Count, or sum, for each pair of parts, one from each side, with a bucket in common."""
        reader, weighed = self._reader, self._plan.summed
        side: Side = 0 if self._plan.summed_on(1) is None else 1
        own, other_side = (values, records) if side else (records, values)
        if weighed is not None and isinstance(own, GroupSlices):
            most = MOST_WORK // (SUM_WORK * self._tables.n_records)
            if own.count(most) > max(1, most):
                return None
        if not reader.are_few(own, other_side):
            return None
        kept = [_Other(self, part) for part in other_side]
        find_in = self._count_parts if weighed is None else self._make_sum(weighed, side, own)
        groups: list[Group] = []
        for part in own:
            places = part.places if isinstance(part, CountedSlice) else None
            in_own = part.counts if isinstance(part, CountedSlice) else reader.in_buckets(part.bits)
            find = find_in(part, in_own, places)
            for other in kept:
                reader.heartbeat()
                here = other.counts
                if places is not None:
                    here = [counts[at] for counts, at in zip(here, places, strict=True)]
                if not reader.keys or can_meet(in_own, here):
                    if len(groups) == reader.limits.n_answers:
                        raise reader.limits.too_many()
                    answer = find(here, other)
                    if self._plan.shape == "either":
                        answer = all_but(self._tables.n_records, answer)
                    groups.append(reader.group(part.values + other.values, answer))
        return groups

    def _count_parts(
        self, part: Slice | CountedSlice, in_records: Counts, places: list[IntArray] | None
    ) -> _Find:
        """Count for these records what any values give; of all buckets, or of some."""

        def find(in_values: Counts, other: _Other) -> Estimated:
            by_weights = None
            if isinstance(part, CountedSlice):
                match part.known, other.known:
                    case RecordWeights() as records, ChosenValues() as values:
                        by_weights = add_up(
                            records.n, records.of_values, values.are_chosen,
                            by_others=self._by_others,
                        )  # fmt: skip
            elif other.weights is not None:
                by_weights = other.weights.sum(part.bits)
            totals = None if places is None else other.totals
            pairs, doubt = count_buckets(in_records, in_values, self.sizes, totals)
            if by_weights is None:
                return judged(pairs, trust_of_counts(self._layout.assignment), doubt=doubt)
            return self._weighed(pairs, by_weights)

        return find

    def _make_sum(
        self, operand: Expression, side: Side, own: Slices
    ) -> Callable[[Slice | CountedSlice, Counts, list[IntArray] | None], _Find]:
        """Sum, or average, an operand on one side, as bitmaps or a statement tell it."""
        reader = self._reader
        is_average = self._plan.measure.function == "avg"
        parts = reader.values(operand) if isinstance(own, GroupSlices) else []
        numbers, x_of = reader.number_values(parts)

        def by_weights(part: Slice, chosen: AnyArray, other: _Other) -> float | None:
            """Return the sum, or the average, of the weights times x."""
            import numpy as np

            each: AnyArray
            if side == 0:
                if other.weights is None:
                    return None
                each = np.bincount(chosen, other.weights.of_records, x_of.size + 1)[1:]
            else:
                if other.bits is None:
                    return None
                each = np.zeros(len(parts))
                for at, (_, bits) in enumerate(parts):
                    if not part.bits & bits:
                        continue
                    own = self.weights(part.bits & bits)
                    if own is None:
                        return None
                    each[at] = own.sum(other.bits)
            total = float(each @ x_of)
            if not is_average:
                return total
            number = float(each.sum())
            return total / number if number > 0 else None

        def total(
            part: Slice | CountedSlice, _in_own: Counts, _places: list[IntArray] | None
        ) -> _Find:
            chosen: AnyArray | None = None
            if isinstance(part, CountedSlice):
                weighed = part.weighed
            else:
                chosen = numbers * unpack_bits(part.bits, self._tables.n_records)
                weighed = weigh(chosen, x_of, *reader.shape)

            def find(counts: Counts, other: _Other) -> Estimated:
                pairs = sum_buckets(weighed, counts, self.sizes, is_average=is_average)
                if pairs is None:
                    return NOTHING
                estimate = None
                if isinstance(part, Slice) and chosen is not None:
                    estimate = by_weights(part, chosen, other)
                elif isinstance(part, CountedSlice):
                    match (part.known, other.known)[:: -1 if side else 1]:
                        case RecordWeights() as records, ChosenValues() as values:
                            estimate = sum_weighted(records, values, side, is_average=is_average)
                if estimate is None:
                    return judged(pairs, trust(self._layout.assignment))
                return self._weighed(pairs, estimate)

            return find

        return total

    def _weighed(self, pairs: MatchedPairs, by_weights: float) -> Estimated:
        """Judge an estimate by weights."""
        is_paper = self._layout.is_paper
        known = trust(self._layout.assignment, is_weighted=True, is_paper=is_paper)
        return judged(pairs, known, by_weights=by_weights, is_paper=is_paper)

    @cached_property
    def _attribute(self) -> str | None:
        """The sensitive attribute that alone the query asks for, if its values have weights."""
        sensitive = self._layout.sensitive.keys() & set(self._plan.columns)
        known = sensitive & set(self._tables.weighted) & set(self._tables.with_bitmaps)
        return next(iter(known)) if len(sensitive) == len(known) == 1 else None

    @cached_property
    def _bits_of_values(self) -> list[int]:
        """The bitmap of each sensitive value; empty where they have no weights, or no room."""
        if self._attribute is None:
            return []
        bitmaps: list[int] = []
        for row in self._rows_of_values("b.bits", "true"):
            if len(bitmaps) >= self._reader.room:
                return []
            bitmaps.append(int.from_bytes(row["bits"], "little"))
        if bitmaps:
            self._reader.keep(len(bitmaps))
        return bitmaps

    def weights(self, bits: int) -> Weights | None:
        """Read the weights of the sensitive values in a bitmap, or those of all others."""
        chosen = [place for place, own in enumerate(self._bits_of_values) if own & bits]
        if not chosen:
            return None
        are_others = self._by_others or 2 * len(chosen) > len(self._bits_of_values)
        if are_others:
            unlisted = set(range(len(self._bits_of_values))) - set(chosen)
            chosen = sorted(unlisted)
        n_records, summed_values = self._tables.n_records, []
        listed = f"'{{{', '.join(map(str, chosen))}}}'::int4[]"
        for row in self._rows_of_values("b.weights, b.parts", f"b.place = ANY ({listed})"):
            value = WeightedValue.of(row["weights"] or b"", n_records, row["parts"] or 0)
            # Rows that no publisher wrote, in what was restored from somewhere, are not used.
            is_sound = 1 <= len(value.planes) <= MOST_PLANES and value.parts > 0
            if not is_sound or len(value.planes) > self._reader.room:
                return None
            self._reader.keep(len(value.planes))
            summed_values.append(value)
        return Weights(summed_values, n_records, are_others)

    def _rows_of_values(self, columns: str, condition: str) -> Iterator[Row]:
        """Read what is known of each sensitive value, in the order of its places from 0."""
        tables, attribute = self._tables, self._attribute
        if attribute is None:
            raise TypeError("no single sensitive attribute is asked for")
        sensitive = self._layout.sensitive[attribute]
        equal = same_value(sensitive, f"b.{sensitive.sql}", f"w.{sensitive.sql}")
        if len(tables.sensitive) > 1:
            equal += f" AND w.{tables.attribute} = b.{tables.attribute}"
        return self._reader.opened.stream(
            max(1, self._reader.limits.batch // (5 * self._reader.bitmap_bytes)),
            f"SELECT {columns} FROM (SELECT b.{tables.bits} AS bits, w.{tables.weights} AS weights,"
            f" w.{tables.parts} AS parts, row_number() OVER (ORDER BY w.ctid) - 1 AS place"
            f" FROM {tables.bit} AS b LEFT JOIN {tables.learned} AS w ON {equal}"
            f" WHERE b.{tables.attribute} = $1::text) AS b WHERE {condition} ORDER BY b.place",
            attribute,
        )

    def everywhere(self, part: Slice | CountedSlice) -> Counts:
        """Return how much of a part each bucket has."""
        if isinstance(part, Slice):
            return self._reader.in_buckets(part.bits)
        return part.in_buckets(self._tables)
