"""Sources of which nothing needs a copy: one statement reads all of their columns as codes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray
from kanon_db.session.protocol import Session, fetch_one
from kanon_db.transfer.columns import WHOLE_NUMBERS, ColumnType, Relation, selected
from kanon_db.transfer.few_values import collect, found_in, most_grouped
from kanon_db.transfer.records import Records, Size, require_rows
from kanon_db.transfer.room import Room
from kanon_db.transfer.snapshot import all_rows, expected_size
from kanon_db.transfer.values import CodedColumn
from kanon_db.transfer.whole_numbers import Ends, Packing, are_close

_PLAIN: Final = (
    *WHOLE_NUMBERS, "boolean", "date", "text", "character varying", "uuid",
    "time without time zone", "timestamp without time zone", "timestamp with time zone",
)  # fmt: skip
"""Types whose equal values are the same value: of numeric, 1.0 and 1.00 are not."""

_ROWS_OF_PART: Final = 1 << 25
"""Rows whose numbers are one value of the server, which may have a gigabyte: a quarter of it, since
the planner may expect too few."""

_MOST_IN_SAMPLE: Final = 128
"""Values of a column: a text is looked up in an array of them by walking along it."""

_SAMPLE: Final = 10_000
"""Records among which we look for columns with too many values."""

_ATTEMPTS: Final = 3
"""How often numbers are read anew, because others have come that lie outside their ends."""


@dataclass(frozen=True, kw_only=True)
class CodedRecords(Records):
    """Records whose values are all known by codes.

    Attributes
    ----------
    columns : mapping of str to CodedColumn
        All columns that were asked for, by name.
    width : float
        Bytes of a row, as the server's planner expects.
    """

    columns: Mapping[str, CodedColumn]
    width: float

    def size(self) -> Size:
        """Return how much was read."""
        return Size(self.n_records, self.width)


def read_coded(
    session: Session, source: Relation, columns: Sequence[ColumnType], room: Room, most: int
) -> CodedRecords | None:
    """Read all rows of a source as codes, by one statement; None where it needs a copy.

    Since one statement reads everything, all columns are of the same state of the source. Values
    are written again from their codes, so equal values must be the same one, and few of them, or
    whole numbers that lie close together.

    Parameters
    ----------
    columns : sequence of ColumnType
        Each with an equality and an order.
    room : Room
    most : int
        How many rows may be read.

    Raises
    ------
    PermissionDeniedError
        As :func:`.take_snapshot`.
    InfeasibleError
        When the source has no rows, or more than `most`, or a text that is too long.
    """
    expected = expected_size(session, source, [column.name for column in columns])
    if not _are_plain(session, source, columns):
        return None
    session.step("reading the source")
    reader = _Reader(session, source, columns, room, most, expected)
    if all(column.type_name in WHOLE_NUMBERS for column in columns):
        return reader.whole_numbers()
    if len(columns) <= most_grouped(2 * int(expected.n_records) + 1):
        share = min(100.0, 100 * _SAMPLE / max(expected.n_records, 1))
        if _have_few_values(session, source, columns, share):
            return reader.grouped()
    return None


def _are_plain(session: Session, source: Relation, columns: Sequence[ColumnType]) -> bool:
    """Tell whether equal values of all columns are the same value."""
    found = fetch_one(
        session,
        "SELECT count(*) AS n FROM pg_attribute AS a JOIN pg_collation AS c ON c.oid ="
        " a.attcollation WHERE a.attrelid = to_regclass($1::text) AND NOT c.collisdeterministic",
        source.quoted(session),
    )
    return not found["n"] and all(
        column.type_name in _PLAIN or column.type_category == "E" for column in columns
    )


def _have_few_values(
    session: Session, source: Relation, columns: Sequence[ColumnType], share: float
) -> bool:
    """Tell whether each column has few values in a sample, which views and foreign tables lack."""
    kind = fetch_one(
        session,
        "SELECT max(relkind::text) AS kind FROM pg_class WHERE oid = to_regclass($1::text)",
        source.quoted(session),
    )["kind"]
    if kind not in ("r", "p", "m"):
        return False
    counts = ", ".join(f"count(DISTINCT s.{session.identifier(column.name)})" for column in columns)
    names = selected(session, source, [column.name for column in columns])
    with all_rows(session, source):
        found = fetch_one(
            session,
            f"SELECT ARRAY[{counts}] AS n_values FROM (SELECT {names} FROM"
            f" {source.quoted(session)} TABLESAMPLE BERNOULLI ($1::text::float8)) AS s",
            str(share),
        )
    return all(n <= _MOST_IN_SAMPLE for n in found["n_values"])


@dataclass(frozen=True)
class _Reader:
    """Reads the columns of a source."""

    session: Session
    source: Relation
    columns: Sequence[ColumnType]
    room: Room
    most: int
    expected: Size

    def grouped(self) -> CodedRecords:
        """Collect which records have each value."""
        record = self.session.identifier(f"kanon_record_{os.urandom(8).hex()}")
        numbered = self._rows(f"(row_number() OVER ())::int4 - 1 AS {record}, ")
        with all_rows(self.session, self.source):
            collected = collect(self.session, self.columns, record, numbered)
        found = fetch_one(
            self.session,
            f"SELECT coalesce(sum(records), 0)::int8 / {len(self.columns)} AS n FROM {collected}",
        )
        records = self._records(found["n"])
        return self._complete(records, found_in(collected, records, self.columns))

    def whole_numbers(self) -> CodedRecords | None:
        """Read whole numbers; None if some do not lie close together."""
        ends = self._ends()
        for _ in range(_ATTEMPTS):
            if not all(are_close(ends, column) for column in self.columns):
                return None
            packings = list(Packing.of(self.columns, ends))
            n_records, now, packed = self._packed(packings)
            if now == ends:
                records = self._records(n_records)
                found = dict[str, CodedColumn]()
                for packing, numbers in zip(packings, packed.T, strict=True):
                    found |= packing.unpacked(records, numbers)
                return self._complete(records, found)
            ends = now
        return None

    def _packed(self, packings: Sequence[Packing]) -> tuple[int, Ends, AnyIntArray]:
        """Read the packed numbers of each record, and the ends that they have by now."""
        sent, bound = [], list[str]()
        for packing in packings:
            sent.append(f"int8send({packing.expression(self.session, len(bound) + 1)})")
            bound += packing.below
        part, grouped = "", ""
        if self.expected.n_records > _ROWS_OF_PART:
            name = self.session.identifier(f"kanon_part_{os.urandom(8).hex()}")
            part = f"(row_number() OVER ()) / {_ROWS_OF_PART} AS {name}, "
            grouped = f" GROUP BY s.{name}"
        n_records, ends, packed = 0, dict[str, tuple[int, int]](), [np.empty(0, dtype=">i8")]
        with all_rows(self.session, self.source):
            for row in self.session.stream(
                1,
                f"SELECT count(*) AS n, {self._least_and_greatest()},"
                f" string_agg({' || '.join(sent)}, ''::bytea) AS numbers"
                f" FROM {self._rows(part)} AS s{grouped}",
                *bound,
            ):
                n_records += row["n"]
                ends = _united(ends, self._found_ends(row))
                packed.append(np.frombuffer(row["numbers"] or b"", dtype=">i8"))
        together = packed[1] if len(packed) == 2 else np.concatenate(packed)
        return n_records, ends, together.reshape(-1, len(packings))

    def _ends(self) -> Ends:
        """Look for the ends of all columns, by a statement that may have a parallel plan."""
        with all_rows(self.session, self.source):
            row = fetch_one(
                self.session,
                f"SELECT {self._least_and_greatest()} FROM (SELECT {self._names}"
                f" FROM {self.source.quoted(self.session)}) AS s",
            )
        return self._found_ends(row)

    def _least_and_greatest(self) -> str:
        names = [f"s.{self.session.identifier(column.name)}" for column in self.columns]
        least, greatest = (
            f"ARRAY[{', '.join(f'{end}({name})' for name in names)}]::int8[] AS {called}"
            for end, called in (("min", "least"), ("max", "greatest"))
        )
        return f"{least}, {greatest}"

    def _found_ends(self, row: Mapping[str, Sequence[int | None]]) -> Ends:
        found = zip(self.columns, row["least"], row["greatest"], strict=True)
        return {
            column.name: (least, greatest)
            for column, least, greatest in found
            if least is not None and greatest is not None
        }

    def _rows(self, number: str = "") -> str:
        """Select the rows of the source, one more than may be read."""
        return (
            f"(SELECT {number}{self._names} FROM {self.source.quoted(self.session)}"
            f" LIMIT {self.most + 1})"
        )

    @property
    def _names(self) -> str:
        return selected(self.session, self.source, [column.name for column in self.columns])

    def _records(self, n_records: int) -> Records:
        require_rows(n_records, self.most, self.source)
        return Records(session=self.session, n_records=n_records, room=self.room)

    def _complete(self, records: Records, found: Mapping[str, CodedColumn]) -> CodedRecords:
        columns = {column.name: found[column.name] for column in self.columns}
        return CodedRecords(**vars(records), columns=columns, width=self.expected.width)


def _united(some: Ends, others: Ends) -> dict[str, tuple[int, int]]:
    """Return the ends of all of both."""
    return {
        name: (min(ends[0] for ends in both), max(ends[1] for ends in both))
        for name in {**some, **others}
        if (both := [found[name] for found in (some, others) if name in found])
    }
