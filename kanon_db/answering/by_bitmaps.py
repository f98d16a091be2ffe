"""Answering counts from a publication's bitmaps; see `kanon_db.counting.bitmaps`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kanon_db.answering.scope import OpenQuery
from kanon_db.counting.answers import Counted, Estimated, Group
from kanon_db.counting.bitmaps import (
    Counts,
    Truth,
    count_buckets,
    count_exactly,
    evaluate,
    in_buckets,
    is_readable,
    sum_buckets,
    weigh,
)
from kanon_db.counting.bucket_statement import (
    condition_of,
    disjoint_sides,
    factors,
    side_of,
)
from kanon_db.counting.check import Key
from kanon_db.counting.expressions import Expression, TruthTest, attributes
from kanon_db.counting.joins import joined, speller
from kanon_db.counting.layout import BucketLayout
from kanon_db.counting.sql import Constants, write
from kanon_db.publications.buckets.tables import BucketTables

_MOST_WORK: Final = 500_000_000
"""Groups times buckets: above it, one statement over QIT and SAT is faster."""


@dataclass(frozen=True)
class _Slice:
    """A group's part of the records or values, with the group's values so far."""

    values: tuple[tuple[int, str, int], ...]  # number of the key, JSON, rank
    bits: int


def count_with_bitmaps(opened: OpenQuery) -> list[Group] | None:
    """Answer a count, sum or average, of groups too, from bitmaps; None where they cannot.

    They can where each condition, each group and what is summed depends on one attribute with
    bitmaps, and the condition is a conjunction of its two sides (a disjunction too, for a count
    without groups).

    Notes
    -----
    The numbers are those of the statement over QIT and SAT, up to rounding.
    """
    tables, layout, query = opened.tables, opened.layout, opened.query
    if tables is None or not isinstance(layout, BucketLayout) or len(query.measures) > 1:
        return None
    aggregate = query.measures[0].aggregate
    with_bitmaps = frozenset(tables.with_bitmaps)
    weighed = None if aggregate.function == "count" else aggregate.operand
    # A sum takes its NULLs out by itself: a group that has nothing else is a group.
    condition = query.where if weighed is not None else condition_of(query, aggregate)
    if condition is not None and not is_readable(condition, with_bitmaps):
        return None
    apart = [key.expression for key in query.keys]
    for expression in apart if weighed is None else [*apart, weighed]:
        mentioned = attributes(expression)
        if len(mentioned) != 1 or not mentioned <= with_bitmaps:
            return None
    counter = _Counter(opened, tables, layout)
    split = factors(condition, layout)
    if split is None:
        sides = disjoint_sides(query, aggregate, layout)
        return None if sides is None else counter.either(sides)
    records = counter.true(split.records)
    values = counter.true(split.values)
    if weighed is not None:
        return counter.summed(
            records, values, query.keys, weighed, is_average=aggregate.function == "avg"
        )
    is_two_sided = {side_of(key.expression, layout) for key in query.keys} | {
        side for side, part in enumerate((split.records, split.values)) if part is not None
    } == {0, 1}
    return counter.grouped(records, values, query.keys, is_two_sided=is_two_sided)


class _Counter:
    """Reads and counts bitmaps of one publication."""

    def __init__(self, opened: OpenQuery, tables: BucketTables, layout: BucketLayout) -> None:
        self._opened = opened
        self._tables = tables
        self._layout = layout
        self._sizes = tables.sizes
        self._n_buckets = tables.buckets_of_sizes
        n_records = sum(size * n for size, n in zip(self._sizes, self._n_buckets, strict=True))
        self._everything = (1 << n_records) - 1

    def true(self, condition: Expression | None) -> int:
        """Return the bitmap of the records, or values, that meet a condition."""
        return evaluate(condition, self._read, self._everything).true

    def either(self, sides: tuple[Expression, Expression]) -> list[Group]:
        """Count what meets a condition of one side or the other: all records but the rest."""
        records, values = (self.true(TruthTest(side, "true", negated=True)) for side in sides)
        neither = self._counted(self._in_buckets(records), self._in_buckets(values))
        n = self._everything.bit_count()
        return [
            Group("{}", (), (
                Estimated(n - neither.estimate, neither.std_error,
                          n - neither.upper_bound, n - neither.lower_bound),
            ))
        ]  # fmt: skip

    def grouped(
        self, records: int, values: int, keys: Sequence[Key], *, is_two_sided: bool
    ) -> list[Group] | None:
        """Count for each group that can have records."""
        slices = [self._slices(bits, keys, side) for side, bits in enumerate((records, values))]
        n_groups = len(slices[0]) * len(slices[1])
        if n_groups > 1 and n_groups * self._tables.n_buckets > _MOST_WORK:
            return None
        if not is_two_sided:
            side = 1 if any(side_of(key.expression, self._layout) for key in keys) else 0
            if not keys:
                side = int(records == self._everything)
            return [_group(keys, part.values, count_exactly(part.bits)) for part in slices[side]]
        groups = []
        in_values = [(part, self._in_buckets(part.bits)) for part in slices[1]]
        for part in slices[0]:
            in_records = self._in_buckets(part.bits)
            for other, counts in in_values:
                self._opened.session.heartbeat()
                counted = self._counted(in_records, counts)
                if counted.upper_bound or not keys:
                    groups.append(_group(keys, part.values + other.values, counted))
        return groups

    def summed(
        self,
        records: int,
        values: int,
        keys: Sequence[Key],
        operand: Expression,
        *,
        is_average: bool,
    ) -> list[Group] | None:
        """Sum, or average, for each group that can have records."""
        side = side_of(operand, self._layout) or 0
        slices = [self._slices(bits, keys, part) for part, bits in enumerate((records, values))]
        parts = self._values(operand)
        if len(slices[side]) * len(parts) * self._everything.bit_count() > _MOST_WORK:
            return None
        others = [(part, self._in_buckets(part.bits)) for part in slices[1 - side]]
        groups = []
        for part in slices[side]:
            own = self._in_buckets(part.bits)
            weighed = weigh(
                [(x, self._in_buckets(part.bits & bits)) for x, bits in parts], self._n_buckets
            )
            for other, counts in others:
                self._opened.session.heartbeat()
                found = sum_buckets(weighed, counts, self._sizes, is_average=is_average)
                can_meet = any(
                    bool(np.any((q > 0) & (s > 0))) for q, s in zip(own, counts, strict=True)
                )
                if can_meet or not keys:
                    groups.append(_group(keys, part.values + other.values, found))
        return groups

    def _values(self, operand: Expression) -> list[tuple[float, int]]:
        """Read the values of an expression on one attribute, each with its records."""
        constants = Constants(array="$2")
        sql = write(operand, speller("b"), constants)
        source = joined(self._tables.bit, "b", [operand], self._opened.lookups)
        rows = self._opened.fetch(
            f"SELECT ({sql})::float8 AS x, b.{self._tables.bits} AS bits FROM {source}"
            f" WHERE b.{self._tables.attribute} = $1::text AND {sql} IS NOT NULL",
            *attributes(operand),
            *([list(constants.values)] if constants.values else []),
        )
        found: dict[float, int] = {}
        for row in rows:
            bits = int.from_bytes(row["bits"], "little")
            found[row["x"]] = found.get(row["x"], 0) | bits
        return list(found.items())

    def _in_buckets(self, bits: int) -> Counts:
        return in_buckets(bits, self._sizes, self._n_buckets)

    def _counted(self, records: Counts, values: Counts) -> Counted:
        return count_buckets(records, values, self._sizes)

    def _slices(self, bits: int, keys: Sequence[Key], side: int) -> list[_Slice]:
        """Divide records, or values, by the keys of their side."""
        slices = [_Slice((), bits)]
        numbered = [
            (number, key)
            for number, key in enumerate(keys)
            if side_of(key.expression, self._layout) == side
        ]
        for attribute in dict.fromkeys(
            name for _, key in numbered for name in attributes(key.expression)
        ):
            own = [pair for pair in numbered if attributes(pair[1].expression) == {attribute}]
            divided = []
            for part in self._divide(attribute, own):
                divided += [
                    _Slice(before.values + part.values, both)
                    for before in slices
                    if (both := before.bits & part.bits)
                ]
            slices = divided
        return slices

    def _divide(self, attribute: str, keys: Sequence[tuple[int, Key]]) -> list[_Slice]:
        """Read the bitmaps of an attribute's values, those of one group together."""
        constants = Constants(array="$2")
        spell = speller("b")
        written = [write(key.expression, spell, constants) for _, key in keys]
        selected = ", ".join(
            f"to_jsonb({sql})::text AS j{i}, dense_rank() OVER (ORDER BY {sql}) AS r{i}"
            for i, sql in enumerate(written)
        )
        source = joined(
            self._tables.bit, "b", [key.expression for _, key in keys], self._opened.lookups
        )
        rows = self._opened.fetch(
            f"SELECT {selected}, b.{self._tables.bits} AS bits FROM {source}"
            f" WHERE b.{self._tables.attribute} = $1::text",
            attribute,
            *([list(constants.values)] if constants.values else []),
        )
        found: dict[tuple[int, ...], _Slice] = {}
        for row in rows:
            ranks = tuple(row[f"r{i}"] for i in range(len(keys)))
            bits = int.from_bytes(row["bits"], "little")
            if ranks in found:
                bits |= found[ranks].bits
            values = tuple(
                (number, "null" if row[f"j{i}"] is None else row[f"j{i}"], ranks[i])
                for i, (number, _) in enumerate(keys)
            )
            found[ranks] = _Slice(values, bits)
        return list(found.values())

    def _read(self, condition: Expression) -> Truth:
        """Find the records for which a condition on one attribute is true, or unknown."""
        constants = Constants(array="$2")
        sql = write(condition, speller("b"), constants)
        mentioned = attributes(condition) or {self._tables.with_bitmaps[0]}
        source = joined(self._tables.bit, "b", [condition], self._opened.lookups)
        rows = self._opened.fetch(
            f"SELECT b.{self._tables.bits} AS bits, {sql} IS TRUE AS holds FROM {source}"
            f" WHERE b.{self._tables.attribute} = $1::text AND {sql} IS NOT FALSE",
            *mentioned,
            *([list(constants.values)] if constants.values else []),
        )
        true = unknown = 0
        for row in rows:
            bits = int.from_bytes(row["bits"], "little")
            if row["holds"]:
                true |= bits
            else:
                unknown |= bits
        return Truth(true, unknown)


def _group(
    keys: Sequence[Key],
    values: tuple[tuple[int, str, int], ...],
    counted: Counted | Estimated,
) -> Group:
    ordered = sorted(values)
    key = ", ".join(f"{json.dumps(keys[number].name)}: {text}" for number, text, _ in ordered)
    return Group(
        f"{{{key}}}",
        tuple(rank for _, _, rank in ordered),
        (Estimated(counted.estimate, counted.std_error, counted.lower_bound,
                   counted.upper_bound),),
    )  # fmt: skip
