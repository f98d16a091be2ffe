"""Reads columns as codes, all of them together.

Columns with few values are read from a snapshot in one pass (`read_few_values`, `read_columns`).
Where every value can be written again from its code, no copy is needed: one statement reads the
source (`read_coded`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Self

import numpy as np

from kanon_db.algorithms.ground.arrays import IntArray, taken
from kanon_db.dataclasses import dataclass
from kanon_db.session.protocol import Session, fetch_one, shared, temporary_table
from kanon_db.transfer._packed_columns import (
    Ends,
    KnownValues,
    PackedColumns,
    PackedDigits,
    WholeNumbers,
    are_close,
    list_values,
    read_whole_numbers,
    widen_ends,
)
from kanon_db.transfer.allowance import Allowance
from kanon_db.transfer.columns import WHOLE_NUMBERS, ColumnType, Relation, selected
from kanon_db.transfer.snapshot import (
    Records,
    Size,
    Snapshot,
    all_rows,
    estimate_size,
    require_rows,
)
from kanon_db.transfer.values import (
    CodedColumn,
    distinct_values,
    least_type,
    number_values,
    read_codes,
)

_SAMPLE_OF_SNAPSHOT: Final = 10_000
"""Number of records in which we look for columns with too many values."""

_FEW: Final = 1000
"""Values in the sample: a group of records has a buffer of its own, of a kilobyte at least."""

MOST_GROUPED: Final = 31
"""The number of columns that PostgreSQL's GROUPING() can take."""

_MOST_GROUPED_BYTES: Final = 1 << 28
"""Size of the positions of all values, which the server collects in memory: 4 bytes for each, and
as much again when its buffers grow by doubling."""


_MOST_NAMED: Final = 1 << 27
"""Records whose numbers fit into one value of the server, which may have a gigabyte."""


def read_few_values(
    snapshot: Snapshot, columns: Sequence[ColumnType], most: int
) -> dict[str, CodedColumn]:
    """Read the columns that have few values.

    By name, in the order of `columns`.
    """
    n_values = count_in_sample(snapshot, columns)
    few = [column for column in columns if n_values[column.name] <= most]
    coded = _read_few(snapshot, few)
    return {column.name: coded[column.name] for column in few}


def read_columns(
    snapshot: Snapshot, columns: Sequence[ColumnType], n_values: Mapping[str, int]
) -> dict[str, CodedColumn]:
    """Read columns, whatever number of values they have.

    `n_values`: of a sample. Raises as :func:`distinct_values` and :func:`read_codes`.
    """
    coded = _read_few(
        snapshot,
        [
            column
            for column in columns
            if n_values[column.name] <= _FEW or are_close(snapshot.ends, column)
        ],
    )
    remaining = [column for column in columns if column.name not in coded]
    values = [distinct_values(snapshot, column) for column in remaining]
    if values:
        for each, codes in zip(values, read_codes(snapshot, values).T, strict=True):
            coded[each.column.name] = CodedColumn(each, codes.astype(least_type(each)))
    return {column.name: coded[column.name] for column in columns}


def _read_few(snapshot: Snapshot, few: Sequence[ColumnType]) -> dict[str, CodedColumn]:
    close = [column for column in few if are_close(snapshot.ends, column)]
    coded = read_whole_numbers(snapshot, close)
    few = [column for column in few if column.name not in coded]
    if snapshot.n_records > _MOST_NAMED:
        return coded | {column.name: _look_up(snapshot, column) for column in few}
    at_once = most_grouped(snapshot.n_records)
    for start in range(0, len(few), at_once):
        coded |= _group_records(snapshot, few[start : start + at_once])
    return coded


def most_grouped(n_records: int) -> int:
    """Return how many columns of a table of so many records are read by one statement."""
    return min(MOST_GROUPED, max(1, _MOST_GROUPED_BYTES // (8 * n_records)))


def most_bytes_read(n_records: int, n_columns: int) -> float:
    """Return how much memory the server takes at most for the columns that it reads at once."""
    return 8.0 * n_records * min(n_columns, most_grouped(n_records))


def count_in_sample(snapshot: Snapshot, columns: Sequence[ColumnType]) -> dict[str, int]:
    """Count the values that each column has in some records from all over the table.

    NULL is not counted.
    """
    counts = ", ".join(
        f"count(DISTINCT {snapshot.session.identifier(column.name)})" for column in columns
    )
    row = fetch_one(
        snapshot.session,
        f"SELECT ARRAY[{counts}] AS n_values FROM (SELECT * FROM {snapshot.table}"
        f" WHERE {snapshot.record} % greatest(1, $1::int4 / {_SAMPLE_OF_SNAPSHOT}) = 0) AS sample",
        str(snapshot.n_records),
    )
    return {column.name: n for column, n in zip(columns, row["n_values"], strict=True)}


def _group_records(snapshot: Snapshot, columns: Sequence[ColumnType]) -> dict[str, CodedColumn]:
    """Collect the records of all values of all columns in one pass."""
    session = snapshot.session
    session.step("reading values")
    collected = temporary_table(session, "places")
    names = [f"s.{session.identifier(column.name)}" for column in columns]
    select = (
        f"SELECT grouping({', '.join(names)}) AS grouped_by,"
        f" {', '.join(f'{name} AS value_{i}' for i, name in enumerate(names))},"
        f" count(*) AS records, string_agg(int4send(s.{snapshot.record}), ''::bytea) AS places"
        f" FROM {snapshot.table} AS s"
        f" GROUP BY GROUPING SETS ({', '.join(f'({name})' for name in names)})"
    )
    session.fetch(f"CREATE TEMPORARY TABLE {collected} ON COMMIT DROP AS {select} WITH NO DATA")
    # Compressing takes longer than writing what it saves.
    session.fetch(f"ALTER TABLE {collected} ALTER places SET STORAGE EXTERNAL")
    session.fetch(f"INSERT INTO {collected} {select}")
    coded = {}
    # GROUPING has a 1 for each column that is *not* grouped by; the first is the highest bit.
    everything = (1 << len(columns)) - 1
    for i, column in enumerate(columns):
        grouped_by = everything ^ (1 << len(columns) - 1 - i)
        values = number_values(
            snapshot,
            column,
            f"SELECT value_{i} AS value, records FROM {collected} WHERE grouped_by = {grouped_by}",
        )
        codes = np.empty(snapshot.n_records, dtype=least_type(values))
        rows = session.stream(
            1,
            f"SELECT places FROM {collected} WHERE grouped_by = {grouped_by} ORDER BY value_{i}",
        )
        for code, row in enumerate(rows):
            codes[np.frombuffer(row["places"], dtype=">i4")] = code
        coded[column.name] = CodedColumn(values, codes)
    session.fetch(f"DROP TABLE {collected}")
    return coded


def _look_up(snapshot: Snapshot, column: ColumnType) -> CodedColumn:
    """Count the values of a column, and then look up that of each record."""
    values = distinct_values(snapshot, column)
    codes = read_codes(snapshot, [values])[:, 0]
    return CodedColumn(values, codes.astype(least_type(values)))


_PLAIN: Final = (
    *WHOLE_NUMBERS, "boolean", "date", "text", "character varying", "uuid",
    "time without time zone", "timestamp without time zone", "timestamp with time zone",
)  # fmt: skip
"""Types whose equal values are the same value: of numeric, 1.0 and 1.00 are not."""

_BYTES_OF_PART: Final = 1 << 27
"""Numbers of records that are one value of the server, which may have a gigabyte, and is sent with
two digits a byte: an eighth of that, since the planner may expect too few."""

_MOST_LISTED: Final = 128
"""Values of a column other than whole numbers: the server looks for that of each record."""

_MOST_BYTES_LISTED: Final = 1 << 16
"""Bytes of these values' texts, all of which the server has at hand for each record."""

_SAMPLE_OF_SOURCE: Final = 30_000
"""Records among which we look for values: one of a thousandth of the records is hardly missed."""

_LEAST_BYTES: Final = 28
"""Bytes that a row takes in a table, at least."""

_ATTEMPTS: Final = 3
"""Times that records are read anew, because some have values that were not known."""


@dataclass(frozen=True, kw_only=True)
class CodedRecords(Records):
    """Records whose values are all known by codes."""

    columns: Mapping[str, CodedColumn]  # All columns that were asked for, by name
    width: float  # Bytes of a row, as the server's planner expects

    def in_order(self, order: IntArray) -> Self:
        """See :meth:`Records.in_order`."""
        columns = {
            name: replace(column, codes=taken(column.codes, order))
            for name, column in self.columns.items()
        }
        return replace(self, columns=columns)

    def size(self) -> Size:
        """Return how much was read."""
        return Size(self.n_records, self.width)


def read_coded(
    session: Session, source: Relation, columns: Sequence[ColumnType], room: Allowance, most: int
) -> CodedRecords | None:
    """Read all rows of a source as codes, by one statement; None where it needs a copy."""
    # Since one statement reads everything, all columns are of the same state of the source. Values
    # are written again from their codes, so equal values must be the same one, and few of them, or
    # whole numbers that lie close together.
    expected = estimate_size(session, source, [column.name for column in columns])
    if not _are_plain(session, source, columns):
        return None
    session.step("reading the source")
    return _SourceReader(session, source, columns, room, most, expected).read()


def _are_plain(session: Session, source: Relation, columns: Sequence[ColumnType]) -> bool:
    """Tell whether equal values of all columns are the same value."""
    counted = fetch_one(
        session,
        "SELECT count(*) AS n FROM pg_attribute AS a JOIN pg_collation AS c ON c.oid ="
        " a.attcollation WHERE a.attrelid = to_regclass($1::text) AND NOT c.collisdeterministic",
        source.quoted(session),
    )
    return not counted["n"] and all(
        column.type_name in _PLAIN or column.type_category == "E" for column in columns
    )


@dataclass
class _SourceReader:
    """Reads the columns of a source."""

    session: Session
    source: Relation
    columns: Sequence[ColumnType]
    room: Allowance
    most: int
    expected: Size

    def __post_init__(self) -> None:
        relation = fetch_one(
            self.session,
            "SELECT max(relkind::text) AS kind FROM pg_class WHERE oid = to_regclass($1::text)",
            self.source.quoted(self.session),
        )
        # A view may take long, and be different at each look: it is read once, without a sample.
        self.is_table = relation["kind"] in ("r", "p", "m")
        self.n_seen = self.expected.n_records

    def read(self) -> CodedRecords | None:
        """Read them; None if some have too many values, or others come all the time."""
        known: dict[str, KnownValues] = {}
        unknown, sampled = self.columns, True
        for _ in range(_ATTEMPTS if self.is_table else 1):
            for one in self._know(unknown, sampled=sampled) or ():
                known[one.column.name] = one
            if len(known) < len(self.columns):
                return None
            n_records, columns = self._digits([known[column.name] for column in self.columns])
            unknown = [digits.known.column for digits in columns if not digits.are_known]
            if not unknown:
                return self._complete(n_records, columns)
            known = {name: one for name, one in known.items() if one.column not in unknown}
            sampled = False
        return None

    def _know(
        self, columns: Sequence[ColumnType], *, sampled: bool
    ) -> Sequence[KnownValues] | None:
        """Find the values of columns; None if there are too many."""
        numbers = [column for column in columns if column.type_name in WHOLE_NUMBERS]
        if len(numbers) < len(columns) and not self.is_table:
            return None  # before anything is read
        ends = (sampled and self._sample_ends(numbers)) or self._ends(numbers)
        close = [column for column in numbers if are_close(ends, column)]
        remaining = [column for column in columns if column not in close]
        listed = self._list_values(remaining, sampled=sampled) if remaining else []
        return None if listed is None else [*self._close(close, ends), *listed]

    def _close(self, columns: Sequence[ColumnType], ends: Ends) -> Sequence[KnownValues]:
        """Keep the ends of whole numbers where a statement with a parallel plan can read them."""
        if not columns:
            return []
        table = self.session.identifier("pg_temp", f"kanon_ends_{os.urandom(8).hex()}")
        self.session.fetch(
            f"CREATE TEMPORARY TABLE {table} ON COMMIT DROP AS SELECT $1::text[]::int8[] AS below,"
            " $2::text[]::int8[] AS least, $3::text[]::int8[] AS greatest",
            [str(ends[column.name][0] - 1) for column in columns],
            *([str(ends[column.name][end]) for column in columns] for end in range(2)),
        )

        def kept(name: str, i: int) -> str:
            return f"(SELECT e.{name}[{i}] FROM {table} AS e)"

        values = []
        for i, column in enumerate(columns, start=1):
            least, greatest = ends[column.name]
            both = kept("least", i), kept("greatest", i)
            values.append(WholeNumbers(column, greatest - least + 1, least, kept("below", i), both))
        return values

    def _list_values(
        self, columns: Sequence[ColumnType], *, sampled: bool
    ) -> Sequence[KnownValues] | None:
        """List the values of columns; None if there are too many, or no sample can be taken."""
        if not self.is_table:
            return None
        sample = ""
        if sampled:
            share = min(100.0, 100 * _SAMPLE_OF_SOURCE / max(self.expected.n_records, 1))
            sample = f" TABLESAMPLE BERNOULLI ({share:.6f})"
        names = selected(self.session, self.source, [column.name for column in columns])
        with all_rows(self.session, self.source):
            listing = list_values(
                self.session,
                columns,
                f"(SELECT {names} FROM {self.source.columns(self.session, sample)})",
                _MOST_LISTED,
                _MOST_BYTES_LISTED,
            )
        if listing is None or any(not one.n_values for one in listing):
            return None
        return listing

    def _sample_ends(self, columns: Sequence[ColumnType]) -> Ends:
        """Guess ends that hold all whole numbers by a sample; nothing without one.

        Others are found when all are read; a row fewer would be found by no sample.
        """
        if not self.is_table or not columns:
            return {}
        row = fetch_one(
            self.session,
            "SELECT max(pg_relation_size(oid)) FILTER (WHERE relkind <> 'p') AS bytes"
            " FROM pg_class WHERE oid = to_regclass($1::text)",
            self.source.quoted(self.session),
        )
        # Of large tables, it must be known how many rows there are; of partitioned ones, too.
        if row["bytes"] is None or row["bytes"] > _LEAST_BYTES * _BYTES_OF_PART // 8:
            return {}
        share = min(100.0, 100 * _SAMPLE_OF_SOURCE / max(self.expected.n_records, 1))
        ends = self._ends(columns, f" TABLESAMPLE SYSTEM ({share:.6f})")
        return {k: widen_ends(*v) for k, v in ends.items()} if len(ends) == len(columns) else {}

    def _ends(self, columns: Sequence[ColumnType], sample: str = "") -> Ends:
        """Look for the ends of whole numbers."""
        if not columns:
            return {}
        names = [self.session.identifier(column.name) for column in columns]
        read = selected(self.session, self.source, [column.name for column in columns])
        with all_rows(self.session, self.source):
            row = fetch_one(
                self.session,
                "SELECT count(*) AS n,"
                f" ARRAY[{', '.join(f'min({name})' for name in names)}]::int8[] AS least,"
                f" ARRAY[{', '.join(f'max({name})' for name in names)}]::int8[] AS greatest"
                f" FROM (SELECT {read} FROM {self.source.columns(self.session, sample)}) AS s",
            )
        self.n_seen = max(self.n_seen, row["n"])
        extremes = zip(columns, row["least"], row["greatest"], strict=True)
        return {
            column.name: (least, greatest)
            for column, least, greatest in extremes
            if least is not None
        }

    def _digits(self, known: Sequence[KnownValues]) -> tuple[int, list[PackedDigits]]:
        """Read the digits of each record."""
        packings = list(PackedColumns.of(known))
        numbers = {f"p{i}": packing.expression(self.session) for i, packing in enumerate(packings)}
        part = grouped = ""
        rows_of_part = _BYTES_OF_PART // (8 * len(packings))
        if self.n_seen > rows_of_part:
            part = f"(row_number() OVER ()) / {rows_of_part} AS part, "
            grouped = " GROUP BY n.part"
        statement = (
            "SELECT count(*) AS n,"
            f" string_agg({' || '.join(f'int8send(n.{name})' for name in numbers)}, ''::bytea)"
            f" AS numbers FROM (SELECT {part}"
            f"{', '.join(f'{number} AS {name}' for name, number in numbers.items())}"
            f" FROM (SELECT {self._names} FROM {self.source.columns(self.session)}) AS s"
            f" LIMIT {self.most + 1}) AS n{grouped}"
        )
        n_records, packed = 0, [[np.empty(0, dtype=np.int64)] for _ in packings]
        with all_rows(self.session, self.source), shared(self.session):
            # Only a statement that is fetched at once may have a parallel plan.
            rows = self.session.stream(1, statement) if part else self.session.fetch(statement)
            for row in rows:
                n_records += row["n"]
                sent = np.frombuffer(row["numbers"] or b"", dtype=">i8")
                for parts, own in zip(packed, sent.reshape(-1, len(packings)).T, strict=True):
                    parts.append(own.astype(np.int64))
        require_rows(n_records, self.most, self.source)
        columns: list[PackedDigits] = []
        for packing, parts in zip(packings, packed, strict=True):
            together = parts[1] if len(parts) == 2 else np.concatenate(parts)
            parts.clear()
            columns += packing.unpacked(together)
        return n_records, columns

    @property
    def _names(self) -> str:
        return selected(self.session, self.source, [column.name for column in self.columns])

    def _complete(self, n_records: int, columns: Sequence[PackedDigits]) -> CodedRecords:
        records = Records(session=self.session, n_records=n_records, room=self.room)
        coded = {digits.known.column.name: digits.coded(records) for digits in columns}
        ordered = {column.name: coded[column.name] for column in self.columns}
        return CodedRecords(**vars(records), columns=ordered, width=self.expected.width)
