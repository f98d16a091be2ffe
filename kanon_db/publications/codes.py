"""The store of codes: its format, what writes it, what reads it, and what examines it.

``<name>_val`` has the distinct values of each published column, in the column's own type, in
PostgreSQL's order, NULL last: a code is a rank. ``<name>_cod`` has the codes, a chunk of whole
buckets or classes at a time, in as few bytes as the number of values takes, the lowest byte first.
Within a run of buckets of one size they are stored slot by slot, shape (bucket_size, n_buckets), so
that a bucket's sum takes a few additions of vectors.

The records of a bucket take its slots in the order of their quasi-identifiers, its values in the
order of their codes. So the store tells nothing that the other relations do not.

To compare it with them, the server hashes the rows of a table with seeds drawn anew, and the
distinct values with the same ones. What each row's hashes and its bucket make together is added up:
the order of rows does not matter, and nobody can foresee a sum that stays the same while a row
changes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, WordArray, hash_numbers
from kanon_db.catalog.names import free_column_name
from kanon_db.errors import VerificationError
from kanon_db.publications.relations import StagedRelations
from kanon_db.publications.results import Check
from kanon_db.query.layout import CODES, VALUES, BucketTables, Quotes, Side
from kanon_db.session import Session, fetch_one
from kanon_db.session.protocol import run_with_helper
from kanon_db.transfer.columns import column_types, inverse_permutation, parts_of
from kanon_db.transfer.values import RankedColumn

if TYPE_CHECKING:
    from kanon_db.algorithms.bucketization.buckets import BucketSetting

RECORDS_OF_CHUNK: Final = 1 << 20
"""Records of a chunk, about: it is read and counted at once."""

PAIRS_AT_ONCE: Final = 1 << 21
"""Pairs of a record and a value, or of groups of both, that are looked at together."""

_COLUMNS: Final = ("column_no", "code", "chunk", "codes")


class Run(NamedTuple):
    """Buckets of one size in a chunk."""

    bucket_size: int
    n_buckets: int
    first: int  # where they begin in the chunk
    # Where the first bucket's first slot is among those of all chunks, and how far its next one is
    place: int
    step: int

    def some(self, width: int) -> Iterator[slice]:
        """Yield some of the buckets at a time, each of which has `width` pairs."""
        at_once = max(1, PAIRS_AT_ONCE // width)
        for first in range(0, self.n_buckets, at_once):
            yield slice(first, first + at_once)


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

    def put(self, in_slots: npt.NDArray[Any], own: npt.NDArray[Any]) -> None:
        """Put what :meth:`cut` would take into an array with an element for each slot."""
        first = 0
        for run in self.runs:
            for start in range(run.place, run.place + run.bucket_size * run.step, run.step):
                in_slots[start : start + run.n_buckets] = own[first : first + run.n_buckets]
                first += run.n_buckets


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

    @classmethod
    def read(cls, described: Sequence[Any]) -> Self:
        """Read what a layout says of a column; int() admits nothing but numbers to statements."""
        name, number, n_values, side = described[:4]
        return cls(str(name), int(number), int(n_values), 1 if side else 0)

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """The type of its codes."""
        return code_type(self.n_values)

    def fits(self, codes: bytes | None, chunk: Chunk) -> bool:
        """Whether these are codes of values of the column, for each record of a chunk."""
        if codes is None or len(codes) != chunk.n_records * self.dtype.itemsize:
            return False
        return int(np.frombuffer(codes, self.dtype).max()) < self.n_values


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
        codes = self._read(chunk, names)
        if len(codes) != len(names) or not all(
            self.columns[name].fits(own, chunk) for name, own in codes.items()
        ):
            raise VerificationError(
                "the codes of a publication are not those that were published",
                detail=self.tables.codes,
                hint="the tables were changed afterwards: publish again",
            )
        return codes

    def _read(self, chunk: Chunk, names: Sequence[str]) -> dict[str, bytes]:
        numbers = {self.columns[name].number: name for name in names}
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
        t = self.tables
        return (
            f"SELECT t.{t.code} AS i, t.{self.session.identifier(name)} AS v FROM {t.values} AS t"
            f" WHERE t.{t.column_no} = {self.columns[name].number}"
        )

    def each(self, names: Sequence[str], of: ChunkReader[T]) -> Iterator[T]:
        """Yield what is read of the codes of each chunk."""
        for chunk in self.chunks:
            self.session.heartbeat()
            yield of.of(chunk, self.codes(chunk, names), self.session.heartbeat)

    def in_slots(self, name: str) -> AnyIntArray:
        """Read the code of a column for each slot of all buckets."""
        column = self.columns[name]
        everywhere = np.empty(sum(chunk.n_records for chunk in self.chunks), column.dtype)
        for chunk in self.chunks:
            chunk.put(everywhere, self.arrays(chunk, [name])[name])
        return everywhere

    def arrays(self, chunk: Chunk, names: Sequence[str]) -> dict[str, AnyIntArray]:
        """Read the codes of some columns in a chunk, shape (n_records,)."""
        return {
            name: np.frombuffer(codes, self.columns[name].dtype)
            for name, codes in self._read(chunk, names).items()
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

    def write(self, column: RankedColumn, side: Side, parts: Iterator[AnyIntArray]) -> None:
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
        return {
            **self._names,
            "records": RECORDS_OF_CHUNK,
            "columns": [list(c) for c in self._written],
        }

    def _relation(self, suffix: str) -> str:
        return self._session.identifier(self._staging.schema, self._staging.name + suffix)


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
            writer.write(column, side, (chunk.cut(column.codes) for chunk in chunks))
    return writer.layout()


def byte_ranks(session: Session, values: str, value: str, code: str) -> CodeArray:
    """Return the place of each value in the order of bytes, by its code; NULL comes last."""
    row = fetch_one(
        session,
        f"SELECT string_agg(int4send(v.{code}), ''::bytea"
        f' ORDER BY v.{value} COLLATE pg_catalog."C", v.{code}) AS codes FROM {values} AS v',
    )
    return inverse_permutation(np.frombuffer(row["codes"], dtype=">i4").astype(np.int32))


_HASHED: Final = (
    "{bool,int2,int4,int8,date,timestamp,timestamptz,uuid,text,varchar,bpchar,float4,float8,"
    "numeric}"
)
"""Types whose equal values have equal hashes on the server; codes of others are looked up."""


def check_bucket_codes(
    session: Session,
    tables: BucketTables,
    codes: CodeTables,
    placed_by: Sequence[str],
    bytewise: Sequence[str],
) -> Check:
    """Compare the store with QIT and SAT.

    `placed_by`, `bytewise`: the quasi-identifiers by which records take the slots of their bucket,
    and those of which bytes are compared.
    """
    session.step("checking the codes")
    differing = _count_loose_values(session, codes) + _count_loose_chunks(session, codes)
    if not differing:
        differing = sum(
            _SideCheck(session, tables, codes, side, placed_by, bytewise).count_differences()
            for side in (0, 1)
        )
    return Check(
        "codes repeat QIT and SAT", "0 parts differ", f"{differing} differ", holds=differing == 0
    )


def _count_loose_values(session: Session, codes: CodeTables) -> int:
    """Count the columns whose values are not distinct, in order, and each in a row of its own."""
    own = {name: session.identifier(name) for name in codes.columns}
    everything = ", ".join(f"v.{sql}" for sql in own.values())
    differing = 0
    for name, column in codes.columns.items():
        stored = fetch_one(
            session,
            f"SELECT count(*) AS n, coalesce(max(place), 0) AS places, count(*) FILTER (WHERE"
            f" v.{codes.code} + 1 IS DISTINCT FROM place OR shown <> own) AS amiss"
            f" FROM (SELECT v.{codes.code}, dense_rank() OVER (ORDER BY v.{own[name]}) AS place,"
            f" num_nonnulls({everything}) AS shown, num_nonnulls(v.{own[name]}) AS own"
            f" FROM {codes.values} AS v WHERE v.{codes.column_no} = {column.number}) AS v",
        )
        differing += (stored["n"], stored["places"], stored["amiss"]) != (*[column.n_values] * 2, 0)
    (row,) = session.fetch(f"SELECT count(*) AS n FROM {codes.values}")
    return differing + int(row["n"] != sum(column.n_values for column in codes.columns.values()))


def _count_loose_chunks(session: Session, codes: CodeTables) -> int:
    """Count the rows of codes that are not there, or should not be, or have another length."""
    expected = {
        (column.number, chunk.number): chunk.n_records * column.dtype.itemsize
        for column in codes.columns.values()
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


class _SideCheck:
    """One side of the store, and the table that it repeats."""

    def __init__(
        self,
        session: Session,
        tables: BucketTables,
        codes: CodeTables,
        side: Side,
        placed_by: Sequence[str],
        bytewise: Sequence[str],
    ) -> None:
        self._session, self._tables, self._codes, self._side = session, tables, codes, side
        own = {name: column for name, column in codes.columns.items() if column.side == side}
        # In the order that decides where the rows of a bucket stand.
        self._columns = own if side else {name: own[name] for name in placed_by if name in own}
        self._columns |= own
        self._relation = tables.sat if side else tables.qit
        self._seeds = {name: secrets.randbits(62) for name in self._columns}
        self._start = np.uint64(secrets.randbits(64))
        self._hashes = self._of_values()
        self._ranks = {
            name: byte_ranks(session, self._of_column(name), session.identifier(name), codes.code)
            for name in self._columns
            if name in bytewise
        }

    def count_differences(self) -> int:
        """Count the chunks that are out of order, the values without a place, and the rest."""
        store = Store(self._session, self._codes)
        total, differing = 0, 0
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
        return differing + (total % 2**64 != self._sum_of_relation())

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

    def _sum_of_relation(self) -> int:
        total = 0
        for hashes, buckets, counts in self._rows():
            total += int((self._mix(hashes, buckets) * counts.astype(np.uint64)).sum())
        return total % 2**64

    def _mix(self, hashes: WordArray, buckets: AnyIntArray) -> WordArray:
        return hash_numbers(hashes ^ hash_numbers(buckets.astype(np.uint64) ^ self._start))

    def _rows(self) -> Iterator[tuple[WordArray, AnyIntArray, AnyIntArray]]:
        """Read what the server makes of each row: its hash, its bucket, and how often it counts."""
        session, tables, codes = self._session, self._tables, self._codes
        hashed = [self._hash(name, "r") for name in self._columns if name not in self._looked]
        count = f"r.{tables.count}" if self._side else "1"
        sent = [f"int8send({' # '.join(hashed) or '0'})", f"int4send(r.{tables.bucket_id})"]
        sent.append(f"int4send({count})")
        joins = ""
        for i, column in enumerate(self._looked.values()):
            own = f"r.{column.sql}"
            joins += (
                f" LEFT JOIN {codes.values} AS v{i} ON v{i}.{column.sql} {column.equals} {own}"
                f" AND v{i}.{codes.column_no} = {column.column.number}"
            )
            null = column.column.n_values - 1
            sent.append(
                f"int4send(coalesce(v{i}.{codes.code},"
                f" CASE WHEN num_nulls({own}) = 1 THEN {null} ELSE -1 END))"
            )
        fields = [("hash", ">u8"), ("bucket", ">i4"), ("count", ">i4")]
        fields += [(f"code{i}", ">i4") for i in range(len(self._looked))]
        for part in parts_of(session, self._relation, tables.n_records, "r"):
            with run_with_helper(session):
                row = fetch_one(
                    session,
                    f"SELECT string_agg(s.sent, ''::bytea) AS rows FROM (SELECT"
                    f" {' || '.join(sent)} AS sent FROM {self._relation} AS r{joins}"
                    f" WHERE {part} OFFSET '0') AS s",
                )
            lines = np.frombuffer(row["rows"] or b"", dtype=np.dtype(fields))
            hashes = lines["hash"].astype(np.uint64)
            for i, name in enumerate(self._looked):
                hashes ^= np.append(self._hashes[name], np.uint64(0))[lines[f"code{i}"]]
            yield hashes, lines["bucket"], lines["count"]

    def _of_values(self) -> dict[str, WordArray]:
        """Return the hash of each value, and look up the columns where two have the same one."""
        session, codes = self._session, self._codes
        rows = session.fetch(
            "SELECT attname::text AS name FROM pg_attribute WHERE attrelid = to_regclass($1::text)"
            " AND atttypid = ANY ($2::text::regtype[])",
            codes.values,
            _HASHED,
        )
        known, stored = {row["name"] for row in rows}, {}
        oid = fetch_one(session, "SELECT to_regclass($1::text)::oid::text AS oid", codes.values)
        types = column_types(session, oid["oid"])
        self._looked: dict[str, _Looked] = {}
        for name, column in self._columns.items():
            if name in known:
                row = fetch_one(
                    session,
                    f"SELECT string_agg(int8send({self._hash(name, 'v')}), ''::bytea ORDER BY"
                    f" v.{codes.code}) AS hashes FROM {self._of_column(name)} AS v",
                )
                hashes = np.frombuffer(row["hashes"], dtype=">u8").astype(np.uint64)
                if np.unique(hashes).size == hashes.size:
                    stored[name] = hashes
                    continue
            equals = types[name].operator(session, "=")
            self._looked[name] = _Looked(column, session.identifier(name), equals)
            numbers = np.arange(column.n_values, dtype=np.uint64)
            stored[name] = hash_numbers(numbers ^ np.uint64(self._seeds[name]))
        return stored

    def _hash(self, name: str, alias: str) -> str:
        own = f"{alias}.{self._session.identifier(name)}"
        return f"hash_record_extended(ROW({own}), {self._seeds[name]})"

    def _of_column(self, name: str) -> str:
        codes = self._codes
        return (
            f"(SELECT * FROM {codes.values} AS a"
            f" WHERE a.{codes.column_no} = {self._columns[name].number})"
        )
