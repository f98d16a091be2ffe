"""The store of codes: its format, what writes it, and what reads it.

``<name>_values`` has the distinct values of each published column, in the column's own type, in
PostgreSQL's order, NULL last: a code is a rank. ``<name>_codes`` has the codes, a chunk of whole
buckets or classes at a time, in as few bytes as the number of values takes, the lowest byte first.
Within a run of buckets of one size they are stored slot by slot, shape (bucket_size, n_buckets), so
that a bucket's sum takes a few additions of vectors.

The records of a bucket take its slots in the order of their quasi-identifiers, its values in the
order of their codes. So the store tells nothing that the other relations do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.ground.arrays import AnyIntArray
from kanon_db.catalog.names import free_column_name
from kanon_db.publications.relations import StagedRelations
from kanon_db.query.layout import CODES, VALUES, BucketTables, Quotes, Side
from kanon_db.session import Session
from kanon_db.transfer.values import NumberedColumn

_RECORDS: Final = 1 << 20
"""Records of a chunk, about: it is read and counted at once."""

_COLUMNS: Final = ("column_no", "code", "chunk", "codes")


class Run(NamedTuple):
    """Buckets of one size in a chunk."""

    bucket_size: int
    n_buckets: int
    first: int  # where they begin in the chunk
    # Where the first bucket's first slot is among those of all chunks, and how far its next one is
    place: int
    step: int


class Chunk(NamedTuple):
    """Whole buckets, or whole classes, whose codes are stored together."""

    number: int
    n_records: int
    runs: Sequence[Run]
    n_classes: int = 0

    def cut(self, in_slots: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Take what this chunk has of an array with an element for each slot of all buckets."""
        return np.concatenate(
            [
                in_slots[start : start + run.n_buckets]
                for run in self.runs
                for start in range(run.place, run.place + run.bucket_size * run.step, run.step)
            ]
        )


def chunks_of_buckets(setting: Iterable[tuple[int, int]], most: int) -> list[Chunk]:
    """Divide buckets, given by sizes and numbers, into chunks of at most so many records each.

    Examples
    --------
    >>> for chunk in chunks_of_buckets([(2, 3), (3, 1)], 4):
    ...     print(chunk.n_records, [tuple(run) for run in chunk.runs])
    4 [(2, 2, 0, 0, 3)]
    2 [(2, 1, 0, 2, 3)]
    3 [(3, 1, 0, 6, 1)]
    """
    chunks: list[Chunk] = []
    runs: list[Run] = []
    n_records = before = 0
    for size, count in setting:
        start = 0
        while start < count:
            if runs and n_records + size > most:
                chunks.append(Chunk(len(chunks), n_records, runs))
                runs, n_records = [], 0
            n_buckets = min(count - start, max((most - n_records) // size, 1))
            runs.append(Run(size, n_buckets, n_records, before + start, count))
            n_records += size * n_buckets
            start += n_buckets
        before += size * count
    return [*chunks, Chunk(len(chunks), n_records, runs)] if runs else chunks


class StoredColumn(NamedTuple):
    """A column of the store."""

    name: str
    number: int
    n_values: int
    side: Side = 0
    cells: Literal["value", "range", "set"] = "value"
    per: Literal["record", "class"] = "record"

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """The type of its codes."""
        return code_type(self.n_values)


def code_type(n_values: int) -> np.dtype[np.unsignedinteger]:
    """Return the type of the fewest bytes for codes of so many values."""
    return np.dtype(np.min_scalar_type(max(n_values - 1, 0))).newbyteorder("<")


@dataclass(frozen=True)
class CodeTables:
    """The relations of a store, and its columns; every name is quoted."""

    values: str
    codes: str  # the relation
    column_no: str
    code: str
    chunk: str
    bytes: str  # the column `codes`
    columns: Mapping[str, StoredColumn]  # by the columns' own names, not quoted
    chunks: Sequence[Chunk]

    @classmethod
    def of(cls, quotes: Quotes, schema: str, name: str, layout: Mapping[str, Any]) -> Self:
        """Read a publication's layout as the catalog holds it."""
        stored = layout["store"]
        column_no, code, chunk, in_bytes = (quotes.identifier(stored[one]) for one in _COLUMNS)
        columns = [StoredColumn(*one) for one in stored["columns"]]
        sizes, firsts = (list(map(int, layout[one])) for one in ("sizes", "first_bucket_ids"))
        counts = np.diff(firsts, append=int(layout["n_buckets"]) + 1).tolist()
        return cls(
            values=quotes.identifier(schema, name + VALUES),
            codes=quotes.identifier(schema, name + CODES),
            column_no=column_no,
            code=code,
            chunk=chunk,
            bytes=in_bytes,
            columns={column.name: column for column in columns},
            chunks=chunks_of_buckets(zip(sizes, counts, strict=True), int(stored["records"])),
        )


class Store:
    """Reads codes, a chunk at a time."""

    def __init__(self, session: Session, tables: CodeTables) -> None:
        self.session, self.tables = session, tables

    @property
    def columns(self) -> Mapping[str, StoredColumn]:
        """The columns, by their names."""
        return self.tables.columns

    @property
    def chunks(self) -> Sequence[Chunk]:
        """The chunks, in their order."""
        return self.tables.chunks

    def codes(self, chunk: Chunk, names: Sequence[str]) -> dict[str, bytes]:
        """Read the codes of some columns in a chunk."""
        numbers = {self.columns[name].number: name for name in names}
        if not numbers:
            return {}
        t = self.tables
        rows = self.session.fetch(
            f"SELECT t.{t.column_no} AS number, t.{t.bytes} AS codes FROM {t.codes} AS t"
            f" WHERE t.{t.chunk} = {chunk.number}"
            f" AND t.{t.column_no} IN ({', '.join(map(str, numbers))})"
        )
        return {numbers[row["number"]]: row["codes"] for row in rows}

    def arrays(self, chunk: Chunk, names: Sequence[str]) -> dict[str, AnyIntArray]:
        """Read the codes of some columns in a chunk, shape (n_records,)."""
        return {
            name: np.frombuffer(codes, self.columns[name].dtype)
            for name, codes in self.codes(chunk, names).items()
        }


class StoreWriter:
    """Writes the store of a publication whose relations are staged."""

    def __init__(self, staging: StagedRelations, columns: Mapping[str, str], source: str) -> None:
        """Create the two tables; `columns` has SQL for each published column, from `source`."""
        session = staging.session
        self._session, self._staging = session, staging
        self._names = {one: free_column_name(one, columns) for one in _COLUMNS}
        own = {one: session.identifier(name) for one, name in self._names.items()}
        shown = ", ".join(f"{sql} AS {session.identifier(name)}" for name, sql in columns.items())
        staging.create_table(
            VALUES,
            f"SELECT 0::int4 AS {own['column_no']}, 0::int4 AS {own['code']}, {shown}"
            f" FROM {source}",
        )
        staging.create_table(
            CODES,
            f"SELECT 0::int4 AS {own['column_no']}, 0::int4 AS {own['chunk']},"
            f" ''::bytea AS {own['codes']}",
            uncompressed=[self._names["codes"]],
        )
        self._own = own
        self._written: list[StoredColumn] = []

    def write(self, column: NumberedColumn, side: Side, parts: Iterator[AnyIntArray]) -> None:
        """Write a column's values, and its codes, of which there is an array for each chunk."""
        session, own = self._session, self._own
        stored = StoredColumn(column.name, len(self._written), column.n_values, side)
        session.fetch(
            f"INSERT INTO {self._relation(VALUES)} ({own['column_no']}, {own['code']},"
            f" {session.identifier(column.name)})"
            f" SELECT {stored.number}, v.code, v.value FROM {column.table} AS v"
            " ORDER BY v.code"
        )
        for chunk, codes in enumerate(parts):
            session.fetch(
                f"INSERT INTO {self._relation(CODES)} VALUES ($1::int4, $2::int4, $3::bytea)",
                str(stored.number),
                str(chunk),
                codes.astype(stored.dtype).tobytes(),
            )
        self._written.append(stored)

    def layout(self) -> dict[str, Any]:
        """Return what the publication's layout says of the store."""
        self._staging.analyze(VALUES)
        return {**self._names, "records": _RECORDS, "columns": [list(c) for c in self._written]}

    def _relation(self, suffix: str) -> str:
        return self._session.identifier(self._staging.schema, self._staging.name + suffix)


def write_bucket_codes(
    staging: StagedRelations,
    tables: BucketTables,
    quasi_identifiers: Sequence[str],
    setting: BucketSetting,
    records: Iterable[NumberedColumn],
    values: Iterable[NumberedColumn],
) -> dict[str, Any]:
    """Write the store of buckets, given the codes of each side by the slots of all of them."""
    shown = {name: f"q.{staging.session.identifier(name)}" for name in quasi_identifiers}
    shown |= {name: f"s.{sql}" for name, sql in tables.sensitive.items()}
    writer = StoreWriter(staging, shown, f"{tables.qit} AS q, {tables.sat} AS s")
    chunks = chunks_of_buckets(setting.pairs, _RECORDS)
    of_side: tuple[Side, Side] = (0, 1)
    for side, columns in zip(of_side, (records, values), strict=True):
        for column in columns:
            writer.write(column, side, (chunk.cut(column.codes) for chunk in chunks))
    return writer.layout()
