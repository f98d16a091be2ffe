"""Reading a publication's bitmaps, a few megabytes at a time, for one query."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kanon_db.answering.opened import OpenQuery
from kanon_db.answering.slices import Slice, Slices
from kanon_db.counting.answers import Estimated, Group
from kanon_db.counting.bitmaps import Truth, evaluate, in_buckets, numbered
from kanon_db.counting.checking import Key
from kanon_db.counting.expressions import Expression, attributes
from kanon_db.counting.layout import BucketLayout
from kanon_db.counting.sides import Side, side_of
from kanon_db.counting.writing.joins import joined, speller
from kanon_db.counting.writing.sql import Constants, write
from kanon_db.session.protocol import Row

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import FloatArray
    from kanon_db.counting.bitmaps import AnyArray
    from kanon_db.counting.formulas import Counts

MOST_WORK: Final = 500_000_000
"""Groups times buckets; above this, one statement over QIT and SAT is faster."""

SUM_WORK: Final = 10
"""How much more work it is to sum than to count."""


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

    def truth(self, condition: Expression | None) -> Truth:
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
        """Return which of the bitmaps has each bit; see `kanon_db.counting.bitmaps.numbered`."""

        def watched() -> Iterator[int]:
            for bitmap in bitmaps:
                self.heartbeat()
                yield bitmap

        return numbered(watched(), len(bitmaps), self.tables.n_records)

    def valued(self, parts: Sequence[tuple[float, int]]) -> tuple[AnyArray, FloatArray]:
        """Return which of some values each record has, from 1 (0 for none), and these values."""
        import numpy as np

        return self.numbered([bits for _, bits in parts]), np.array([x for x, _ in parts])

    def slices(self, bits: int, side: Side) -> Slices:
        """Divide records, or values, by the keys of their side."""
        by_attribute: dict[str, list[tuple[int, Key]]] = {}
        for number, key in enumerate(self.keys):
            if side_of(key.expression, self.layout) == side:
                (attribute,) = attributes(key.expression)
                by_attribute.setdefault(attribute, []).append((number, key))
        divisions = [self._divide(attribute, own) for attribute, own in by_attribute.items()]
        return Slices(bits, divisions, self.heartbeat)

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
        self, own: Slices, others: Slices, *, times: int = 1, kept: int | None = None
    ) -> bool:
        """Whether the groups are few enough to count each, keeping what is counted of the others.

        Parameters
        ----------
        own, others : Slices
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
        source = joined(self.tables.bit, "b", expressions, self.opened.lookups)
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

    def _read(self, condition: Expression) -> Truth:
        """Find the records for which a condition on one attribute is true, or unknown."""
        constants = Constants(first=2)
        sql = write(condition, speller("b"), constants)
        # A condition without columns is evaluated for each value of an arbitrary attribute.
        (attribute,) = attributes(condition) or {self.tables.with_bitmaps[0]}
        truth = {True: 0, False: 0}
        columns, possible = f"{sql} IS TRUE AS holds", f"{sql} IS NOT FALSE"
        for row, bits in self.rows(columns, attribute, [condition], constants, possible):
            truth[row["holds"]] |= bits
        return Truth(truth[True], truth[False])
