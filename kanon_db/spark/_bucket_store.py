"""Reads buckets in files as codes: each chunk of them is counted where Spark keeps it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, FloatArray, IntArray
from kanon_db.catalog.entries import Publication
from kanon_db.dataclasses import dataclass
from kanon_db.errors import SchemaMismatchError
from kanon_db.publications.buckets.learned_weights import RecordWeights, WeighedSlots
from kanon_db.publications.codes import (
    RECORDS_OF_CHUNK,
    Chunk,
    ChunkReader,
    StoredColumn,
    chunks_of_buckets,
)
from kanon_db.query import expressions as ex
from kanon_db.query.layout import QIT, SAT, SHARES, BucketLayout, BucketTables, Side, weight_field
from kanon_db.spark._spark_query import SparkQuery, SparkTries
from kanon_db.spark._tables import TableSession
from kanon_db.spark.environment import failures_as_errors, quiet, quote_column

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

T = TypeVar("T")

_CHUNK, _BUCKET, _COUNT, _PART = "kanon_chunk", "kanon_bucket", "kanon_count", "part"


class SparkBucketQuery(SparkQuery):
    """A query of buckets in files."""

    @cached_property
    def store(self) -> SparkStore:  # type: ignore[override]
        """The codes of the publication's slots."""
        layout = self.layout
        if not isinstance(layout, BucketLayout):
            raise TypeError("these are no buckets")
        named = [name for part in self.query.evaluated for name in ex.attributes(part)]
        names = [name for name in layout.columns if name in named]
        frames = cast("TableSession", self.session).tables.frames
        return SparkStore(frames, self.publication, layout.tables, names)

    def tries(self) -> SparkTries:
        """Return what asks Spark of distinct values."""
        session = cast("TableSession", self.session).tables.session
        return SparkTries(session, self._own_words, self.store.distinct)

    def weights(
        self,
        attribute: str,
        needed: BoolArray,
        n_groups: int,
        *,
        is_summed: bool,  # noqa: ARG002
    ) -> FieldWeights:
        """Return where the weights of some sensitive values are added up, by group of records."""
        fields = self.store.fields(attribute, np.flatnonzero(needed).tolist())
        return FieldWeights.of(fields, needed.size, n_groups)


@dataclass(frozen=True, eq=False)
class FieldWeights:
    """The weights of sensitive values for the records of each group, which have them in fields."""

    fields: Mapping[int, tuple[str, int]]  # By the values' codes: the field, and its parts of 1
    sums: RecordWeights

    @classmethod
    def of(
        cls, fields: Mapping[int, tuple[str, int]], n_values: int, n_groups: int
    ) -> FieldWeights:
        """Begin without a record."""
        n, of = np.zeros(n_groups), np.zeros((n_groups, n_values))
        return cls(fields, RecordWeights(n, of, n.copy(), of.copy()))

    def begin(self) -> FieldWeights:
        """Return another one without a record."""
        n_groups, n_values = self.sums.of_values.shape
        return self.of(self.fields, n_values, n_groups)

    def put(self, slots: WeighedSlots, group: AnyIntArray, x: FloatArray | None) -> None:
        """Enter the records of a chunk; a group beyond the last one is none."""
        sums, n_groups = self.sums, self.sums.n.size
        has = group < n_groups
        if x is not None:
            has &= ~np.isnan(x)
        own = group[has]

        def by_group(numbers: FloatArray | None) -> FloatArray:
            return np.bincount(own, numbers, n_groups).astype(np.float64)

        sums.n[:] += by_group(None)
        if x is not None:
            sums.x[:] += by_group(x[has])
        for code, (name, parts) in self.fields.items():
            weights = slots.levels(name)[has] / parts
            sums.of_values[:, code] += by_group(weights)
            if x is not None:
                sums.x_of_values[:, code] += by_group(weights * x[has])

    def __add__(self, other: FieldWeights) -> FieldWeights:
        """Add those of other chunks."""
        one, more = self.sums, other.sums
        sums = RecordWeights(
            one.n + more.n, one.of_values + more.of_values, one.x + more.x,
            one.x_of_values + more.x_of_values,
        )  # fmt: skip
        return FieldWeights(self.fields, sums)

    def weights(self) -> RecordWeights:
        """Return what all records weigh."""
        return self.sums


@dataclass(frozen=True, eq=False)
class FieldLevels:
    """The levels of weights that are read with the codes: `SlotLevels`."""

    fields: Mapping[int, tuple[str, int]]  # As of :class:`FieldWeights`
    n_values: int

    @property
    def parts(self) -> FloatArray:
        """What levels are divided by."""
        parts = np.full(self.n_values, np.inf)
        for code, (_, own) in self.fields.items():
            parts[code] = own
        return parts

    def of(self, chunk: Chunk, codes: Mapping[str, bytes]) -> npt.NDArray[np.uint8]:
        """Take those of a chunk."""
        levels = np.zeros((chunk.n_records, self.n_values), np.uint8)
        for code, (name, _) in self.fields.items():
            levels[:, code] = np.frombuffer(codes[name], np.uint8)
        return levels


@dataclass(eq=False)
class SparkStore:
    """Reads codes as :class:`~kanon_db.publications.codes.Store` does."""

    frames: Mapping[str, DataFrame]  # By the names of the tables
    publication: Publication
    tables: BucketTables
    names: Sequence[str]  # The columns that are read, in the order of the publication
    _distinct: dict[str, pa.Array] = field(default_factory=dict)
    _fields: dict[str, None] = field(default_factory=dict)

    @cached_property
    def columns(self) -> Mapping[str, StoredColumn]:
        """The columns that are read."""
        return {
            name: StoredColumn(name, number, len(self.distinct(name)), self._side(name))
            for number, name in enumerate(self.names)
        }

    @cached_property
    def chunks(self) -> Sequence[Chunk]:
        """The chunks, in their order."""
        tables = self.tables
        setting = zip(tables.sizes, tables.buckets_of_sizes, strict=True)
        return chunks_of_buckets(setting, RECORDS_OF_CHUNK)

    def values(self, name: str) -> str:  # noqa: ARG002
        """Return nothing: Spark has the values of a column (`distinct`)."""
        return ""

    def distinct(self, name: str) -> pa.Array:
        """Return the distinct values of a column in their order, NULL last."""
        import pyarrow.compute as pc

        if name not in self._distinct:
            with failures_as_errors("values could not be read"), quiet():
                values = (
                    self._frame(self._side(name)).select(quote_column(name)).distinct().toArrow()
                )
            column = values.column(0).combine_chunks()
            self._distinct[name] = column.take(pc.sort_indices(column))
        return self._distinct[name]

    def fields(self, attribute: str, needed: Sequence[int]) -> dict[int, tuple[str, int]]:
        """Return the fields of QIT that have the weights of some values, by these values' codes."""
        import pyarrow.compute as pc

        described = self.publication.layout
        names = [
            quote_column(str(n)) for n in (attribute, described["weights"], described["parts"])
        ]
        with failures_as_errors("weights could not be read"), quiet():
            learned = self.frames[self.publication.name + SHARES].select(*names).toArrow()
        values = learned.column(0).combine_chunks().cast(self.distinct(attribute).type)
        codes = pc.index_in(values, value_set=self.distinct(attribute)).to_pylist()
        found = {
            code: (weight_field(place), parts)
            for code, place, parts in zip(
                codes, learned.column(1).to_pylist(), learned.column(2).to_pylist(), strict=True
            )
            if code in needed
        }
        self._fields |= dict.fromkeys(name for name, _ in found.values())
        return found

    def each(self, names: Sequence[str], of: ChunkReader[T]) -> Iterator[T]:
        """Yield what is read of the codes of each chunk, where these are."""
        if not names:
            yield from (of.of(chunk, {}, _beat) for chunk in self.chunks)
            return
        distinct = {name: self.distinct(name) for name in names}
        fields = [name for name in self._fields if any(self.columns[one].side for one in names)]
        reader = ChunkOfRows(self.chunks, self.columns, distinct, tuple(fields), self._firsts, of)
        sides = [[n for n in names if self.columns[n].side == side] for side in (0, 1)]
        records, values = (
            self._group_by_chunk(side, own, fields) for side, own in enumerate(sides)
        )

        def read(records: pa.Table, values: pa.Table) -> pa.Table:
            # Of a method, Spark counts `self`, too, and would give the key of each group.
            return reader.read(records, values)

        with failures_as_errors("buckets could not be counted"), quiet():
            parts = records.cogroup(values).applyInArrow(read, f"{_PART} binary").toArrow()
        for part in parts.column(0):
            yield pickle.loads(part.as_py())  # noqa: S301 - written by our own function

    @cached_property
    def _firsts(self) -> list[int]:
        """The number of each chunk's first bucket."""
        numbers = np.cumsum([0, *(sum(run.n_buckets for run in c.runs) for c in self.chunks)])
        firsts: list[int] = (numbers[:-1] + self.tables.first_bucket_ids[0]).tolist()
        return firsts

    def _side(self, name: str) -> Side:
        return 1 if name in self.tables.sensitive else 0

    def _frame(self, side: Side) -> DataFrame:
        return self.frames[self.publication.name + (SAT if side else QIT)]

    def _group_by_chunk(self, side: int, names: Sequence[str], fields: Sequence[str]) -> Any:
        """Return the rows of one table by the chunk of their bucket."""
        from pyspark.sql import functions as f

        described = self.publication.layout
        bucket = f.col(quote_column(str(described["bucket_id"])))
        starts = f.array(*map(f.lit, self._firsts))
        chunk = f.size(f.filter(starts, lambda first: first <= bucket)) - 1
        shown: list[Column] = [chunk.alias(_CHUNK), bucket.alias(_BUCKET)]
        if side:
            count = f.col(quote_column(str(described["count"])))
            shown.append(count.cast("long").alias(_COUNT))
        else:
            weights = quote_column(str(described.get("weights")))
            shown += [f.col(f"{weights}.{quote_column(name)}").alias(name) for name in fields]
        shown += [f.col(quote_column(name)) for name in names]
        return self._frame(cast("Side", side)).select(*shown).groupBy(_CHUNK)


def _beat() -> None:
    """Do nothing: Spark itself can be cancelled."""


@dataclass(frozen=True, eq=False)
class ChunkOfRows:
    """Makes codes of the rows of a chunk, on whatever machine has them."""

    chunks: Sequence[Chunk]
    columns: Mapping[str, StoredColumn]
    distinct: Mapping[str, Any]
    fields: tuple[str, ...]
    firsts: Sequence[int]
    of: Any

    def read(self, records: pa.Table, values: pa.Table) -> pa.Table:
        """Read the rows of both tables."""
        import pyarrow as pa

        (number,) = {
            *records.column(_CHUNK).to_pylist()[:1],
            *values.column(_CHUNK).to_pylist()[:1],
        }
        chunk = self.chunks[number]
        codes: dict[str, bytes] = {}
        for table in (records, values):
            buckets = table.column(_BUCKET).to_numpy()
            order = np.argsort(buckets, kind="stable")
            if _COUNT in table.column_names:
                order = np.repeat(order, table.column(_COUNT).to_numpy()[order])
            at = order[_slots_of(chunk, order.size)]
            for name in table.column_names:
                if name in self.fields:
                    levels = table.column(name).to_numpy().astype(np.uint8)
                    codes[name] = levels[at].tobytes()
                elif name in self.distinct:
                    codes[name] = self._codes(name, table.column(name))[at].tobytes()
        totals = pickle.dumps(self.of.of(chunk, codes, _beat))
        return pa.table({_PART: pa.array([totals], pa.binary())})

    def _codes(self, name: str, column: Any) -> AnyIntArray:
        import pyarrow.compute as pc

        values = column.combine_chunks().cast(self.distinct[name].type)
        codes: AnyIntArray = pc.index_in(values, value_set=self.distinct[name]).to_numpy()
        return codes.astype(self.columns[name].dtype)


def _slots_of(chunk: Chunk, n_rows: int) -> IntArray:
    """Return which row each slot has, given rows bucket by bucket."""
    if n_rows != chunk.n_records:
        raise SchemaMismatchError("the files of a publication do not have its buckets")
    rows = np.arange(chunk.n_records)
    return np.concatenate(
        [
            rows[run.first : run.first + run.bucket_size * run.n_buckets]
            .reshape(run.n_buckets, run.bucket_size)
            .T.ravel()
            for run in chunk.runs
        ]
    )
