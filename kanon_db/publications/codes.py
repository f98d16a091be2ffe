"""The store of codes: its format, what writes it, what reads it, and what examines it.

``<name>_val`` has the distinct values of each published column, or its distinct cells, in the
column's own type and in a fixed order, NULL last: a code is a rank. ``<name>_cod`` has the codes, a
chunk of whole buckets or classes at a time, in as few bytes as the number of values takes, the
lowest byte first.

Of buckets, values are in PostgreSQL's order. Within a run of buckets of one size their codes are
stored slot by slot, shape (bucket_size, n_buckets), so that a bucket's sum takes a few additions of
vectors. The records of a bucket take its slots in the order of their quasi-identifiers, its values
in the order of their codes. Of rows, cells are in the order of their texts, and suppressed ones are
the last; quasi-identifiers have a code for each class, of which the sizes are stored, too, other
columns one for each record, class by class, all of it sorted. So the store tells nothing that the
other relations do not.

To compare it with them, the server hashes the rows of a table with seeds drawn anew, and the
distinct values with the same ones. What each row's hashes and its bucket make together is added up:
the order of rows does not matter, and nobody can foresee a sum that stays the same while a row
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    CodeArray,
    FloatArray,
    IntArray,
    WordArray,
    distinct,
    hash_numbers,
)
from kanon_db.catalog.names import free_column_name
from kanon_db.dataclasses import dataclass
from kanon_db.errors import VerificationError
from kanon_db.publications.relations import StagedRelations
from kanon_db.publications.results import Check
from kanon_db.query.layout import CODES, VALUES, BucketTables, Quotes, Side
from kanon_db.session import Session, fetch_one
from kanon_db.session.protocol import Value
from kanon_db.transfer.columns import column_types, inverse_permutation
from kanon_db.transfer.values import RankedColumn

if TYPE_CHECKING:
    from kanon_db.algorithms.bucketization.buckets import BucketSetting

RECORDS_OF_CHUNK: Final = 1 << 20
"""Records of a chunk, about: it is read and counted at once."""

BYTES_AT_ONCE: Final = 1 << 19
"""Bytes of an array of what is looked at together: a processor's cache has room for several."""

_COLUMNS: Final = ("column_no", "code", "chunk", "codes")
_SIZES: Final = -1
"""The number of the column with the sizes of classes."""


class Run(NamedTuple):
    """Buckets of one size in a chunk."""

    bucket_size: int
    n_buckets: int
    first: int  # where they begin in the chunk
    # Where the first bucket's first slot is among those of all chunks, and how far its next one is
    place: int
    step: int

    def slots(self, in_chunk: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Take what the run has of an array of a chunk's slots, shape (size, n_buckets, ...)."""
        end = self.first + self.bucket_size * self.n_buckets
        shape = self.bucket_size, self.n_buckets, *in_chunk.shape[1:]
        return in_chunk[self.first : end].reshape(shape)

    def among_all(self, in_slots: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """View what the run has of an array of the slots of all chunks, shaped as by `slots`."""
        own = in_slots[self.place :]
        shape = self.bucket_size, self.n_buckets, *own.shape[1:]
        if self.n_buckets == self.step:
            return own[: self.bucket_size * self.n_buckets].reshape(shape)
        strides = self.step * own.strides[0], *own.strides
        return np.lib.stride_tricks.as_strided(own, shape, strides)

    def some(self, width: int) -> Iterator[slice]:
        """Yield some of the buckets at a time, each of which has `width` bytes."""
        at_once = max(1, BYTES_AT_ONCE // width)
        for first in range(0, self.n_buckets, at_once):
            yield slice(first, first + at_once)


class Sizes(NamedTuple):
    """The sizes of some buckets: those that there are, ascending, and which one each has."""

    distinct: IntArray
    which: IntArray | None = None  # None where all have the only one

    @property
    def largest(self) -> int:
        """The greatest of them."""
        return int(self.distinct[-1])

    def look_up(self, of_sizes: AnyIntArray) -> Any:
        """Give each bucket what its size has; where there is one size, a number for all."""
        return of_sizes[0] if self.which is None else of_sizes[self.which]

    def of(self, buckets: IntArray | slice) -> Any:
        """Return the sizes of some buckets; where there is one size, a number for all."""
        return self.largest if self.which is None else self.distinct[self.which[buckets]]

    def among(self, mask: npt.NDArray[np.bool_]) -> Any:
        """Return :meth:`of` the buckets of what is marked, shape (n_lines, n_buckets)."""
        return self.largest if self.which is None else self.of(np.nonzero(mask)[1])

    def part(self, here: slice | IntArray) -> Sizes:
        """Return those of some buckets."""
        return self if self.which is None else self._replace(which=self.which[here])

    def sums(self, of_buckets: npt.NDArray[Any]) -> FloatArray:
        """Add up what the buckets of each size have."""
        if self.which is None:
            return np.array([of_buckets.sum(dtype=np.float64)])
        return np.bincount(self.which, of_buckets, self.distinct.size).astype(np.float64)


class Block(NamedTuple):
    """Some buckets of a chunk: a part of one run, or several runs, padded to the largest size."""

    runs: Sequence[Run]
    here: slice  # Which buckets of the only run; all of several

    @property
    def n_buckets(self) -> int:
        """How many they are."""
        return sum(len(range(*self.here.indices(run.n_buckets))) for run in self.runs)

    @property
    def sizes(self) -> Sizes:
        """The size of each."""
        distinct = np.array([run.bucket_size for run in self.runs])
        if distinct.size == 1:
            return Sizes(distinct)
        n_buckets = [run.n_buckets for run in self.runs]
        return Sizes(distinct, np.repeat(np.arange(distinct.size), n_buckets))

    def slots(self, in_chunk: npt.NDArray[Any], lacking: Any = None) -> npt.NDArray[Any]:
        """Take what they have of an array of the chunk's slots, shape (largest size, n_buckets).

        Slots that a bucket does not have are as its first one, or `lacking`.
        """
        if len(self.runs) == 1:
            return self.runs[0].slots(in_chunk)[:, self.here]
        padded = np.empty((self.runs[-1].bucket_size, self.n_buckets), in_chunk.dtype)
        first = 0
        for run in self.runs:
            own, there = run.slots(in_chunk), slice(first, first + run.n_buckets)
            padded[: run.bucket_size, there] = own
            padded[run.bucket_size :, there] = own[0] if lacking is None else lacking
            first += run.n_buckets
        return padded


class Chunk(NamedTuple):
    """Whole buckets, or whole classes, whose codes are stored together."""

    number: int
    n_records: int
    runs: Sequence[Run]
    n_classes: int = 0

    def cut(self, in_slots: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Take what this chunk has of an array with an element for each slot of all buckets."""
        own = np.empty((self.n_records, *in_slots.shape[1:]), in_slots.dtype)
        for run in self.runs:
            run.slots(own)[...] = run.among_all(in_slots)
        return own

    def put(self, in_slots: npt.NDArray[Any], own: npt.NDArray[Any]) -> None:
        """Put what :meth:`cut` would take into an array with an element for each slot."""
        for run in self.runs:
            run.among_all(in_slots)[...] = run.slots(own)

    def blocks(self, width: Callable[[int], int]) -> Iterator[Block]:
        """Yield some of the buckets at a time; `width`: bytes of one that is padded to a size."""
        # Buckets of one size are not copied. Where few have a size, what an operation of numpy
        # takes to begin is more than what it takes to go over slots that are not there.
        runs: list[Run] = []
        for run in self.runs:
            own = width(run.bucket_size)
            n_buckets = run.n_buckets + sum(one.n_buckets for one in runs)
            if runs and n_buckets * own > BYTES_AT_ONCE:
                yield Block(runs, slice(None))
                runs = []
            if run.n_buckets * own > BYTES_AT_ONCE:
                yield from (Block([run], here) for here in run.some(own))
            else:
                runs.append(run)
        if runs:
            yield Block(runs, slice(None))


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
    of_classes: bool = False  # Whether each class has a code; otherwise, each record has
    has_hidden: bool = False  # Whether the last code is that of suppressed cells
    # Whether one value holds all ranges, and a code says where in it each begins and ends: the end
    # in the lower four bytes, the beginning in the upper four, both counted from its least value.
    # The code of NULL is 0; a range without ends has 1 in the upper four.
    by_ends: bool = False
    # Whether a code only says who has a value, which is one of them, or none: those of types
    # without an equality, such as json
    tells_presence: bool = False

    @classmethod
    def read(cls, described: Sequence[Any]) -> Self:
        """Read what a layout says of a column; int() admits nothing but numbers to statements."""
        name, number, n_values, side, *more = described
        own: Side = 1 if side else 0
        return cls(str(name), int(number), int(n_values), own, *map(bool, more[:4]))

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """The type of its codes."""
        return np.dtype("<u8") if self.by_ends else code_type(self.n_values)

    @property
    def n_shown(self) -> int:
        """How many values there are but for that of suppressed cells."""
        return self.n_values - self.has_hidden

    def n_codes(self, chunk: Chunk) -> int:
        """Return how many codes the column has in a chunk."""
        return chunk.n_classes if self.of_classes else chunk.n_records

    def fits(self, codes: bytes | None, chunk: Chunk) -> bool:
        """Whether these are codes of values of the column, for each record of a chunk."""
        if codes is None or len(codes) != self.n_codes(chunk) * self.dtype.itemsize:
            return False
        most = 1 << 63 if self.by_ends else self.n_values
        return int(np.frombuffer(codes, self.dtype).max(initial=0)) < most


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
        columns = [StoredColumn.read(one) for one in stored["columns"]]
        return cls(
            values=quotes.identifier(schema, name + VALUES),
            codes=quotes.identifier(schema, name + CODES),
            column_no=column_no,
            code=code,
            chunk=chunk,
            bytes=in_bytes,
            columns={column.name: column for column in columns},
            chunks=_chunks(layout),
        )

    def of_column(self, name: str) -> str:
        """Write a relation with the values of a column."""
        return (
            f"(SELECT * FROM {self.values} AS a"
            f" WHERE a.{self.column_no} = {self.columns[name].number})"
        )

    @property
    def stored(self) -> Mapping[str, StoredColumn]:
        """The columns by their names, and the sizes of classes, if there are any, by `""`."""
        has_classes = any(chunk.n_classes for chunk in self.chunks)
        return {**self.columns, "": SIZES_OF_CLASSES} if has_classes else self.columns


SIZES_OF_CLASSES: Final = StoredColumn("", _SIZES, 1 << 32, of_classes=True)
"""The column with how many records each class has."""


def _chunks(layout: Mapping[str, Any]) -> list[Chunk]:
    stored = layout["store"]
    if "chunks" in stored:
        return [
            Chunk(number, int(n_records), (), int(n_classes))
            for number, (n_records, n_classes) in enumerate(stored["chunks"])
        ]
    sizes, firsts = (list(map(int, layout[one])) for one in ("sizes", "first_bucket_ids"))
    counts = np.diff(firsts, append=int(layout["n_buckets"]) + 1).tolist()
    return chunks_of_buckets(zip(sizes, counts, strict=True), int(stored["records"]))


T = TypeVar("T", covariant=True)


class ChunkReader(Protocol[T]):
    """Makes something of the codes of a chunk; it may be sent to where they are."""

    def of(self, chunk: Chunk, codes: Mapping[str, bytes], heartbeat: Callable[[], None]) -> T:
        """Read the codes of some columns, by their names; call the heartbeat now and then."""


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
        """Read the codes of some columns in a chunk.

        Raises VerificationError where they cannot be what was published.
        """
        codes, stored = self._read(chunk, names), self.tables.stored
        if len(codes) != len(names) or not all(
            stored[name].fits(own, chunk) for name, own in codes.items()
        ):
            raise VerificationError(
                "the codes of a publication are not those that were published",
                detail=self.tables.codes,
                hint="the tables were changed afterwards: publish again",
            )
        return codes

    def _read(self, chunk: Chunk, names: Sequence[str]) -> dict[str, bytes]:
        stored = self.tables.stored
        numbers = {stored[name].number: name for name in names}
        if not numbers:
            return {}
        t = self.tables
        rows = self.session.fetch(
            f"SELECT t.{t.column_no} AS number, t.{t.bytes} AS codes FROM {t.codes} AS t"
            f" WHERE t.{t.chunk} = {chunk.number}"
            f" AND t.{t.column_no} IN ({', '.join(map(str, numbers))})"
        )
        codes = {numbers[row["number"]]: row["codes"] for row in rows}
        return {name: codes[name] for name in names if name in codes}

    def values(self, name: str) -> str:
        """Write the query of a column's codes ``i`` and values ``v``."""
        t, own = self.tables, self.session.identifier(name)
        return f"SELECT v.{t.code} AS i, v.{own} AS v FROM {t.of_column(name)} AS v"

    def each(self, names: Sequence[str], of: ChunkReader[T]) -> Iterator[T]:
        """Yield what is read of the codes of each chunk."""
        for chunk in self.chunks:
            self.session.heartbeat()
            yield of.of(chunk, self.codes(chunk, names), self.session.heartbeat)

    def all_codes(self, names: Sequence[str]) -> dict[str, AnyIntArray]:
        """Read all codes of some columns, in the order of the chunks."""
        stored = self.tables.stored
        read = [self.codes(chunk, names) for chunk in self.chunks]
        return {
            name: np.frombuffer(b"".join(codes[name] for codes in read), stored[name].dtype)
            for name in names
        }

    def in_slots(self, name: str) -> AnyIntArray:
        """Read the code of a column for each slot of all buckets."""
        column = self.columns[name]
        everywhere = np.empty(sum(chunk.n_records for chunk in self.chunks), column.dtype)
        for chunk in self.chunks:
            chunk.put(everywhere, self.arrays(chunk, [name])[name])
        return everywhere

    def arrays(self, chunk: Chunk, names: Sequence[str]) -> dict[str, AnyIntArray]:
        """Read the codes of some columns in a chunk, of each record or class."""
        stored = self.tables.stored
        return {
            name: np.frombuffer(codes, stored[name].dtype)
            for name, codes in self._read(chunk, names).items()
        }


class StoreWriter:
    """Writes the store of a publication whose relations are staged."""

    def __init__(self, staging: StagedRelations, columns: Mapping[str, str], source: str) -> None:
        """Create the two tables; `columns` has SQL for each published column, from `source`."""
        session = staging.session
        self.session, self._staging = session, staging
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
        values, codes = (
            session.identifier(staging.schema, staging.name + suffix) for suffix in (VALUES, CODES)
        )
        self.columns: dict[str, StoredColumn] = {}
        self.tables = CodeTables(
            values, codes, own["column_no"], own["code"], own["chunk"], own["codes"],
            self.columns, [],
        )  # fmt: skip

    def write_values(self, column: StoredColumn, values: str, *bound: Value) -> None:
        """Write the values of a column: `values` is a query of ``code`` and ``value``."""
        session, tables = self.session, self.tables
        session.fetch(
            f"INSERT INTO {tables.values} ({tables.column_no}, {tables.code},"
            f" {session.identifier(column.name)})"
            f" SELECT {column.number}, v.code, v.value FROM ({values}) AS v ORDER BY v.code",
            *bound,
        )
        self.columns[column.name] = column

    def write_codes(self, column: StoredColumn, chunk: int, codes: AnyIntArray) -> None:
        """Write the codes of a column in a chunk."""
        self.session.fetch(
            f"INSERT INTO {self.tables.codes} VALUES ($1::int4, $2::int4, $3::bytea)",
            str(column.number),
            str(chunk),
            codes.astype(column.dtype).tobytes(),
        )

    def layout(self, chunks: Sequence[Chunk] | None = None) -> dict[str, Any]:
        """Return what the publication's layout says of the store.

        `chunks`: those of classes.
        """
        # Each question looks up some columns, or combinations of codes one by one.
        self._staging.analyze(VALUES, keys=[self._names["column_no"], self._names["code"]])
        described = {
            **self._names,
            "records": RECORDS_OF_CHUNK,
            "columns": [list(c) for c in self.columns.values()],
        }
        if chunks is not None:
            described["chunks"] = [[chunk.n_records, chunk.n_classes] for chunk in chunks]
        return described


def write_bucket_codes(
    staging: StagedRelations,
    tables: BucketTables,
    quasi_identifiers: Sequence[str],
    setting: BucketSetting,
    records: Iterable[RankedColumn],
    values: Iterable[RankedColumn],
) -> dict[str, Any]:
    """Write the store of buckets, given the codes of each side by the slots of all of them."""
    shown = {name: f"q.{staging.session.identifier(name)}" for name in quasi_identifiers}
    shown |= {name: f"s.{sql}" for name, sql in tables.sensitive.items()}
    writer = StoreWriter(staging, shown, f"{tables.qit} AS q, {tables.sat} AS s")
    chunks = chunks_of_buckets(setting.pairs, RECORDS_OF_CHUNK)
    of_side: tuple[Side, Side] = (0, 1)
    for side, columns in zip(of_side, (records, values), strict=True):
        for column in columns:
            stored = StoredColumn(column.name, len(writer.columns), column.n_values, side)
            writer.write_values(stored, f"SELECT code, value FROM {column.table} AS c")
            for chunk in chunks:
                writer.write_codes(stored, chunk.number, chunk.cut(column.codes))
    return writer.layout()


def byte_ranks(session: Session, values: str, value: str, code: str) -> CodeArray:
    """Return the place of each value in the order of bytes, by its code; NULL comes last."""
    row = fetch_one(
        session,
        f"SELECT string_agg(int4send(v.{code}), ''::bytea"
        f' ORDER BY v.{value} COLLATE pg_catalog."C", v.{code}) AS codes FROM {values} AS v',
    )
    return inverse_permutation(np.frombuffer(row["codes"], dtype=">i4").astype(np.int32))


HASHES: Final = {
    "smallint": "hashint2extended",
    "integer": "hashint4extended",
    "text": "hashtextextended",
    "character varying": "hashtextextended",
    "text[]": "hash_array_extended",
    "int4range": "hash_range_extended",
    "daterange": "hash_range_extended",
    "numrange": "hash_range_extended",
}
"""The functions of 64 bits by which the server hashes a type, so that equal values have equal ones.

It folds wider numbers and times into half their bits first, so some always share a hash: those of
their bytes are taken, or their codes are looked up. So they are where two values have the same hash
with every seed, such as ranges to infinity and to NaN.
"""


def hash_value(type_name: str, value: str, seed: int) -> str:
    """Write the hash of a value, given as SQL, of one of the types of `HASHES`."""
    hashed = f"{HASHES[type_name]}({value}, {seed})"
    if type_name == "text[]":  # its elements alone are hashed, whatever its dimensions
        hashed += f" # coalesce(hashtextextended(array_dims({value}), {~seed}), 0)"
    return hashed


_OF_BYTES: Final = {
    "bigint": "int8send",
    "timestamp without time zone": "timestamp_send",
    "timestamp with time zone": "timestamptz_send",
}
_OF_ROWS: Final = (
    "boolean", "date", "uuid", "bpchar", "real", "double precision", "numeric",
)  # fmt: skip
"""Types of which the server hashes a row of one value; codes of others are looked up."""


class StoreCheck:
    """Compares the store with QIT and SAT, whose rows are read once, for whoever counts them."""

    def __init__(
        self,
        session: Session,
        tables: BucketTables,
        codes: CodeTables,
        # The quasi-identifiers by which records take the slots of their bucket, and those of which
        # bytes are compared
        placed_by: Sequence[str],
        bytewise: Sequence[str],
    ) -> None:
        self._differing = count_loose_values(session, codes) + count_loose_chunks(session, codes)
        self.qit, self.sat = (
            SideCheck(
                session, tables, codes, side, placed_by, bytewise, is_sound=not self._differing
            )
            for side in (0, 1)
        )

    def check(self) -> Check:
        """Judge what was found, after all rows of both sides were added."""
        differing = self._differing
        if not differing:
            differing = sum(side.count_differences() for side in (self.qit, self.sat))
        return Check(
            "codes repeat QIT and SAT", "0 parts differ", f"{differing} differ",
            holds=differing == 0,
        )  # fmt: skip


def count_loose_values(
    session: Session, codes: CodeTables, key: Callable[[str], str] = "{}".format
) -> int:
    """Count the columns whose values are not distinct, in order, and each in a row of its own.

    `key`: writes what values, given as SQL, are put in order by.
    """
    own = {name: session.identifier(name) for name in codes.columns}
    everything = ", ".join(f"v.{sql}" for sql in own.values())
    differing = 0
    for name, column in codes.columns.items():
        stored = fetch_one(
            session,
            f"SELECT count(*) AS n, coalesce(max(place), 0) AS places, count(*) FILTER (WHERE"
            f" v.{codes.code} IS DISTINCT FROM place - 1 OR shown <> own OR is_hidden AND own > 0)"
            f" AS amiss FROM (SELECT v.{codes.code}, v.{codes.code} >= {column.n_shown}"
            f" AS is_hidden, dense_rank() OVER (ORDER BY v.{codes.code} >= {column.n_shown},"
            f" {key(f'v.{own[name]}')}) AS place,"
            f" num_nonnulls({everything}) AS shown, num_nonnulls(v.{own[name]}) AS own"
            f" FROM {codes.of_column(name)} AS v) AS v",
        )
        differing += (stored["n"], stored["places"], stored["amiss"]) != (*[column.n_values] * 2, 0)
    (row,) = session.fetch(f"SELECT count(*) AS n FROM {codes.values}")
    return differing + int(row["n"] != sum(column.n_values for column in codes.columns.values()))


def count_loose_chunks(session: Session, codes: CodeTables) -> int:
    """Count the rows of codes that are not there, or should not be, or have another length."""
    expected = {
        (column.number, chunk.number): column.n_codes(chunk) * column.dtype.itemsize
        for column in codes.stored.values()
        for chunk in codes.chunks
    }
    (row,) = session.fetch(f"SELECT count(*) AS n FROM {codes.codes}")
    if row["n"] != len(expected):
        return 1
    rows = session.fetch(
        f"SELECT c.{codes.column_no} AS number, c.{codes.chunk} AS chunk,"
        f" length(c.{codes.bytes}) AS length FROM {codes.codes} AS c"
    )
    stored = {(row["number"], row["chunk"]): row["length"] for row in rows}
    return sum(stored.get(place) != length for place, length in expected.items())


def _numbers_of_buckets(tables: BucketTables, run: Run) -> AnyIntArray:
    """Return the published numbers of a run's buckets."""
    before = 0
    for size, first, count in zip(
        tables.sizes, tables.first_bucket_ids, tables.buckets_of_sizes, strict=True
    ):
        if size == run.bucket_size:
            return first + run.place - before + np.arange(run.n_buckets)
        before += size * count
    raise KeyError(run.bucket_size)


class _Looked(NamedTuple):
    """A column whose codes are looked up, since the server cannot tell its values by hashes."""

    column: StoredColumn
    sql: str
    equals: str  # The operator of its type


class SideCheck:
    """One side of the store, and what the server makes of the rows of the table that it repeats."""

    def __init__(
        self,
        session: Session,
        tables: BucketTables,
        codes: CodeTables,
        side: Side,
        placed_by: Sequence[str],
        bytewise: Sequence[str],
        *,
        is_sound: bool,  # Whether the values can be compared
    ) -> None:
        import secrets  # with OpenSSL, which no question needs

        self._session, self._tables, self._codes = session, tables, codes
        self._columns: dict[str, StoredColumn] = {}
        self._looked: dict[str, _Looked] = {}
        self._start, self._total = np.uint64(secrets.randbits(64)), 0
        if not is_sound:
            return
        own = {name: column for name, column in codes.columns.items() if column.side == side}
        # In the order that decides where the rows of a bucket stand.
        self._columns = own if side else {name: own[name] for name in placed_by if name in own}
        self._columns |= own
        self._seeds = {name: secrets.randbits(62) for name in self._columns}
        oid = fetch_one(session, "SELECT to_regclass($1::text)::oid::text AS oid", codes.values)
        self._types = column_types(session, oid["oid"])
        self._hashes = self._of_values()
        self._ranks = {
            name: byte_ranks(session, codes.of_column(name), session.identifier(name), codes.code)
            for name in self._columns
            if name in bytewise
        }

    def sent(self, value: Callable[[str], str]) -> tuple[str, str]:
        """Write what the server is to send of a row's values, given as SQL, and joins for it."""
        hashed = [
            str(self._hash(name, value(name))) for name in self._columns if name not in self._looked
        ]
        sent, joins = [f"int8send({' # '.join(hashed) or '0'})"], ""
        for i, (name, column) in enumerate(self._looked.items()):
            own, null = value(name), column.column.n_values - 1
            joins += (
                f" LEFT JOIN {self._codes.values} AS v{i} ON v{i}.{column.sql} {column.equals}"
                f" {own} AND v{i}.{self._codes.column_no} = {column.column.number}"
            )
            sent.append(
                f"int4send(coalesce(v{i}.{self._codes.code},"
                f" CASE WHEN num_nulls({own}) = 1 THEN {null} ELSE -1 END))"
            )
        return " || ".join(sent), joins

    @property
    def fields(self) -> list[tuple[str, str]]:
        """What is sent of all columns, as fields of :meth:`add`."""
        return [("hash", ">u8"), *((f"code{i}", ">i4") for i in range(len(self._looked)))]

    def add(
        self, sent: npt.NDArray[np.void], buckets: AnyIntArray, counts: AnyIntArray | None = None
    ) -> None:
        """Add rows, each of one record or of so many; one may be sent for all of them."""
        hashes = sent["hash"].astype(np.uint64)
        for i, name in enumerate(self._looked):
            hashes ^= np.append(self._hashes[name], np.uint64(0))[sent[f"code{i}"]]
        mixed = self._mix(hashes, buckets)
        if counts is not None:
            mixed *= counts.astype(np.uint64)
        self._total += int(mixed.sum())

    def count_differences(self) -> int:
        """Count the chunks that are out of order, the values without a place, and the rest."""
        store, total, differing = Store(self._session, self._codes), 0, 0
        is_seen = {name: np.zeros(one.n_values, np.bool_) for name, one in self._columns.items()}
        for chunk in store.chunks:
            arrays = store.arrays(chunk, list(self._columns))
            if any(own.max() >= self._columns[name].n_values for name, own in arrays.items()):
                return 1
            for name, own in arrays.items():
                is_seen[name][own] = True
            differing += not self._is_in_order(chunk, arrays)
            total += self._sum_of_chunk(chunk, arrays)
        differing += sum(int(np.count_nonzero(~seen)) for seen in is_seen.values())
        return differing + ((total - self._total) % 2**64 != 0)

    def _is_in_order(self, chunk: Chunk, arrays: Mapping[str, AnyIntArray]) -> bool:
        """Tell whether the rows of each bucket ascend: in no other order do they tell nothing."""
        ranked = [
            self._ranks[name][own] if name in self._ranks else own for name, own in arrays.items()
        ]
        for run in chunk.runs:
            part = slice(run.first, run.first + run.bucket_size * run.n_buckets)
            is_equal = np.ones((run.bucket_size - 1, run.n_buckets), dtype=np.bool_)
            for own in ranked:
                slots = own[part].reshape(run.bucket_size, run.n_buckets)
                if (is_equal & (slots[:-1] > slots[1:])).any():
                    return False
                is_equal &= slots[:-1] == slots[1:]
        return True

    def _sum_of_chunk(self, chunk: Chunk, arrays: Mapping[str, AnyIntArray]) -> int:
        buckets = np.concatenate(
            [np.tile(_numbers_of_buckets(self._tables, run), run.bucket_size) for run in chunk.runs]
        )
        hashes = np.zeros(chunk.n_records, dtype=np.uint64)
        for name, own in arrays.items():
            hashes ^= self._hashes[name][own]
        return int(self._mix(hashes, buckets).sum())

    def _mix(self, hashes: WordArray, buckets: AnyIntArray) -> WordArray:
        return hash_numbers(hashes ^ hash_numbers(buckets.astype(np.uint64) ^ self._start))

    def _of_values(self) -> dict[str, WordArray]:
        """Return the hash of each value, and look up the columns where two have the same one."""
        session, codes, stored = self._session, self._codes, {}
        for name, column in self._columns.items():
            if (own := self._hash(name, f"v.{session.identifier(name)}")) is not None:
                row = fetch_one(
                    session,
                    f"SELECT string_agg(int8send({own}), ''::bytea ORDER BY v.{codes.code})"
                    f" AS hashes FROM {codes.of_column(name)} AS v",
                )
                hashes = np.frombuffer(row["hashes"], dtype=">u8").astype(np.uint64)
                if distinct(hashes).size == hashes.size:
                    stored[name] = hashes
                    continue
            equals = self._types[name].operator(session, "=")
            self._looked[name] = _Looked(column, session.identifier(name), equals)
            numbers = np.arange(column.n_values, dtype=np.uint64)
            stored[name] = hash_numbers(numbers ^ np.uint64(self._seeds[name]))
        return stored

    def _hash(self, name: str, value: str) -> str | None:
        """Write the hash of a value; None where the server cannot tell values by hashes."""
        type_name, seed = self._types[name].type_name, self._seeds[name]
        if type_name in HASHES:
            # Nobody can foresee a seed, so neither the hash of a value nor that of NULL.
            return f"coalesce({hash_value(type_name, value, seed)}, {seed})"
        if type_name in _OF_BYTES:
            value = f"{_OF_BYTES[type_name]}({value})"
        elif type_name not in _OF_ROWS:
            return None
        return f"hash_record_extended(ROW({value}), {seed})"
