"""Defines a kind of publication on Spark, and verifies, measures, attacks and evaluates any.

Names, options, their validation and the risks come from the kind's declaration and from its `Kind`
in PostgreSQL; a `SparkKind` is how it is made of records on many machines. What reads a publication
uses its published files; attacks and evaluations run on the driver, on codes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field
from functools import cached_property
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, cast

import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.catalog.entries import Publication, Source, changed
from kanon_db.dataclasses import dataclass
from kanon_db.declaration import read_request
from kanon_db.errors import (
    InfeasibleError,
    InvalidParameterError,
    NotFoundError,
    SchemaMismatchError,
)
from kanon_db.operations import EvaluateRequest
from kanon_db.publications.examination import EVALUATING, accepted_checks
from kanon_db.publications.kind import MethodResult, Workload, Written
from kanon_db.publications.pipeline import require_protected
from kanon_db.publications.results import Attack, Check, CountAccuracy, Examination, Metric
from kanon_db.session.progress import Watcher
from kanon_db.spark._publication_folder import Folder, Manifest, StagingFolder
from kanon_db.spark._tables import (
    PublishedTables,
    SparkProgress,
    SparkSnapshot,
    TableSession,
    column_type,
    folder_of,
    open_frame,
    open_tables,
    text_of_column,
)
from kanon_db.spark.environment import failures_as_errors, own_session, quote_column, require_spark
from kanon_db.transfer.columns import ColumnType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType


# A kind of publication on Spark: what is particular to it, beside what it is in PostgreSQL.
#
# Names, options, their validation and the risks come from the kind's declaration and from its
# :class:`kanon_db.publications.kind.Kind`. Here is how it is made of records on many machines.


@dataclass(frozen=True, eq=False)
class SparkJob:
    """A publication in the making."""

    session: SparkSession  # Of our own; see :func:`~kanon_db.spark.environment.own_session`
    voice: SparkProgress
    request: Any  # The same as in PostgreSQL
    source: Source
    types: Mapping[str, ColumnType]
    staging: StagingFolder
    snapshot: SparkSnapshot
    counted: dict[str, Any] = field(default_factory=dict)  # Values of columns that were counted

    def pulse(self, seconds: float = inf) -> Pulse:
        """Return a heartbeat, with a time limit that starts now."""
        return Pulse(seconds, self.voice.heartbeat, self.voice.done)

    def limit(self, seconds: float) -> None:
        """Say that the search has a time limit, from now on."""
        self.voice.limit(seconds)

    def keep(self, records: DataFrame, name: str, failure: str) -> DataFrame:
        """Write records to files, once: what follows reads the same ones again."""
        folder = self.staging.scratch(name)
        with failures_as_errors(failure):
            records.write.parquet(folder.path)
            return self.session.read.parquet(folder.path)


@dataclass(frozen=True, eq=False)
class SparkResult:
    """What was found and written."""

    found: MethodResult  # The method that was used, and the proof of an exact one
    written: Written  # As in PostgreSQL


@dataclass(frozen=True, eq=False)
class SparkTarget:
    """A verified publication in files, with what it was made from: a `MeasuredPublication`."""

    session: TableSession  # Its tables are those of the publication
    publication: Publication
    source: DataFrame  # Scores what attackers guess, and answers what is asked of the publication

    def pulse(self) -> Pulse:
        """Return the driver's heartbeat."""
        return Pulse(heartbeat=self.session.heartbeat, on_done=self.session.done)

    def table(self, suffix: str) -> DataFrame:
        """Return a published table."""
        return self.session.tables.frames[self.publication.name + suffix]

    def published(self, suffix: str, columns: Sequence[str]) -> ReadColumns:
        """Read a published table."""
        return read_columns(self.table(suffix), columns, "the published table")

    def original(self, columns: Sequence[str]) -> ReadColumns:
        """Read the source, whose columns must have the types that they had."""
        for frame in self.session.tables.frames.values():
            require_same_types(frame, self.source, columns)
        return read_columns(self.source, columns, "the source")


class SparkKind(ABC):
    """The steps that are particular to a kind."""

    suffixes: Sequence[str]
    """Of the tables that are published; each that there is has a folder in the staged tables."""

    shows_values: bool = False
    """Whether quasi-identifiers are published as they are."""

    protects_several: bool = False
    """Whether it protects several sensitive attributes of a source, not only one."""

    on_one_machine: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """Methods that stay on one machine: why, and what to do instead."""

    def refuse(self, request: Any, source: Source) -> None:
        """Refuse what must stay on one machine, with the reason and what to do instead."""
        require_protected(source, protects_several=self.protects_several)
        if request.method in self.on_one_machine:
            reason, hint = self.on_one_machine[request.method]
            raise InvalidParameterError(
                f"the method {request.method} is not made on Spark", detail=reason, hint=hint
            )

    @abstractmethod
    def make(self, job: SparkJob) -> SparkResult:
        """Find what to publish, and write the tables."""
        # Small things are decided on the driver, from counts; what is done for each record must be
        # the same when a task is run again. Chance comes from the snapshot's own columns, see
        # :mod:`~kanon_db.spark._tables`, or from the operating system on the driver.

    @abstractmethod
    def examine(
        self, tables: PublishedTables, publication: Publication, files_check: Any
    ) -> Examination:
        """Check and measure the published tables, using nothing else."""

    @abstractmethod
    def attack(self, target: SparkTarget) -> list[Attack]:
        """Play known attacks on the driver, as PostgreSQL plays them."""

    @abstractmethod
    def evaluate(self, target: SparkTarget, workload: Workload) -> list[CountAccuracy]:
        """Answer random count queries on the driver, and compare the answers with the source."""


KIND_MODULES: Final = {
    "buckets": "kanon_db.spark.kinds.bucket_kind",
    "generalized": "kanon_db.spark.kinds.generalized_kind",
    "suppressed": "kanon_db.spark.kinds.suppressed_kind",
    "freeform": "kanon_db.spark.kinds.freeform_kind",
}
"""The module of each kind; its ``KIND`` is a :class:`SparkKind`."""


def spark_kind(name: str) -> SparkKind:
    """Import a kind."""
    if name not in KIND_MODULES:
        raise NotFoundError(
            "publications of this kind are not made on Spark",
            detail=f'kind "{name}"',
            hint=f"publish it in PostgreSQL; on Spark there are {', '.join(KIND_MODULES)}",
        )
    return cast("SparkKind", import_module(KIND_MODULES[name]).KIND)


# Published and original records as codes, on one machine: what attacks and evaluations play with.
#
# Values are numbered in the order of their types, NULL last, as PostgreSQL numbers them; texts in
# that of their bytes.


MOST_RECORDS_ON_DRIVER: Final = 5_000_000
"""That are read onto the driver, whose memory must hold them."""


@dataclass(frozen=True, eq=False)
class NumberedColumn:
    """The distinct values of a column, in order: `ValuesInOrder`."""

    column: ColumnType
    array: Any
    session: SparkSession

    def __len__(self) -> int:
        return len(self.array)

    @cached_property
    def labels(self) -> list[str | None]:
        """The text of each value."""
        import pyarrow as pa
        from pyspark.sql import functions as f

        table = pa.table({"code": np.arange(len(self)), "value": self.array})
        with failures_as_errors("values could not be read"):
            label = text_of_column(f.col("value"), self.column).alias("label")
            written = self.session.createDataFrame(table).select("code", label).toArrow()
        texts: list[str | None] = written.sort_by("code").column("label").to_pylist()
        return texts

    def codes(self, column: Any) -> CodeArray:
        """Return the code of each value of a column; -1 for one that is not among them."""
        import pyarrow.compute as pc

        codes = pc.fill_null(pc.index_in(column, value_set=self.array), -1)
        return np.asarray(codes.to_numpy(), dtype=np.int32)

    def drop(self) -> None:
        """Leave them to Python's garbage collection."""


@dataclass(frozen=True, eq=False)
class ReadColumns:
    """Columns of a table on the driver, as Arrow has them: `RecordCodes`."""

    table: Any
    types: Mapping[str, ColumnType]
    session: SparkSession

    @property
    def n_records(self) -> int:
        """How many records there are."""
        return int(self.table.num_rows)

    def values(self, column: str) -> NumberedColumn:
        """Return the distinct values of a column, in order."""
        return self.numbered(column, self.table[column])

    def numbered(self, column: str, values: Any) -> NumberedColumn:
        """Return some values of the type of a column, in order."""
        import pyarrow.compute as pc

        distinct = pc.unique(values)
        distinct = distinct.take(pc.sort_indices(distinct))  # NULL last
        return NumberedColumn(self.types[column], distinct, self.session)

    def codes(self, columns: Sequence[NumberedColumn]) -> CodeArray:
        """Return the codes of records, by values of these names, shape (n, m)."""
        codes = [one.codes(self.table[one.column.name]) for one in columns]
        return np.stack(codes, axis=1)

    def numbers(self, column: str) -> IntArray:
        """Return a column of numbers."""
        return np.asarray(self.table[column].to_numpy(), dtype=np.int64)

    def hold(self, n_bytes: float, what: str) -> None:
        """Hold anything: how many records there may be was asked before they were read."""

    def drop(self) -> None:
        """Leave them to Python's garbage collection."""


def read_columns(frame: DataFrame, columns: Sequence[str], what: str) -> ReadColumns:
    """Read columns of a table, which a message calls `what`, onto the driver."""
    # Raises `NotFoundError` where it has no such column, `InfeasibleError` for too many records.
    types = {field.name: field.dataType for field in frame.schema.fields}
    if missing := [column for column in columns if column not in types]:
        raise NotFoundError(
            "the source has lost columns", detail=f"{what} has no {', '.join(missing)}"
        )
    with failures_as_errors(f"{what} could not be read"):
        n_records = frame.count()
        if n_records > MOST_RECORDS_ON_DRIVER:
            raise InfeasibleError(
                "this is played on one machine, which cannot hold so many records",
                detail=f"{what}: {n_records:,} records,"
                f" of which {MOST_RECORDS_ON_DRIVER:,} are allowed",
                hint="publish a part of the source, such as a region, and try it on that",
            )
        own = [
            _one_zero(frame[quote_column(name)], types[name]).alias(f"c{i}")
            for i, name in enumerate(columns)
        ]
        table = frame.select(*own).toArrow().rename_columns(list(columns))
    described = {name: column_type(name, types[name]) for name in columns}
    return ReadColumns(table, described, frame.sparkSession)


def require_same_types(published: DataFrame, source: DataFrame, columns: Sequence[str]) -> None:
    """Refuse a source whose columns have other types than what was published of them."""
    from pyspark.sql.types import ArrayType, StructType

    shown, own = (
        {field.name: field.dataType for field in frame.schema.fields}
        for frame in (published, source)
    )
    for column in columns:
        type_ = shown.get(column)
        if isinstance(type_, ArrayType):
            continue  # a set has texts, whatever the type is
        if isinstance(type_, StructType):
            type_ = type_.fields[0].dataType  # of both ends
        if column in own and type_ not in (None, own[column]):
            raise SchemaMismatchError(
                "the source's columns have changed since it was published",
                detail=f'column "{column}" has another type',
            )


def _one_zero(value: Column, type_: DataType) -> Column:
    """Make -0.0 what it is equal to."""
    from pyspark.sql import functions as f

    if type_.typeName() not in ("float", "double"):
        return value
    return f.when(value == 0, f.lit(0).cast(type_)).otherwise(value)


@dataclass(frozen=True, eq=False)
class PublishedFolder:
    """A publication in files, which may have changed since it was published."""

    session: SparkSession  # Of our own
    folder: Folder
    manifest: Manifest

    @classmethod
    def of(cls, session: SparkSession, target: str) -> Self:
        """Read its manifest."""
        require_spark()
        own = own_session(session)
        folder = Folder(own, str(target))
        return cls(own, folder, Manifest.of(folder))

    @property
    def publication(self) -> Publication:
        """What the manifest says of it."""
        return self.manifest.publication

    @property
    def release(self) -> Folder:
        """Where its tables are."""
        return self.folder / self.manifest.release

    @cached_property
    def files_check(self) -> Check:
        """See :func:`check_files`."""
        return check_files(self.release, self.manifest)

    def require_files(self) -> None:
        """Refuse other files than those that were published."""
        if not self.files_check.holds:
            raise changed(self.publication)

    def open(self) -> AbstractContextManager[PublishedTables]:
        """Open its tables."""
        return open_tables(self.session, self.folder, self.manifest)

    def examine(self) -> Examination:
        """Check and measure it, using only its published files, and all of them."""
        if not self.files_check.holds:
            return Examination([self.files_check], {})
        kind = spark_kind(self.publication.kind)
        with self.open() as tables:
            return kind.examine(tables, self.publication, self.files_check)

    def require_verified(self) -> None:
        """Refuse files that are not those that were published, or do not keep their promises."""
        if not all(check.holds for check in self.examine().checks):
            raise changed(self.publication)


def verify(session: SparkSession, target: str) -> list[Check]:
    """Check a publication, using only its published files, and all of them."""
    published = PublishedFolder.of(session, target)
    return published.examine().checks + accepted_checks(published.publication)


def metrics(session: SparkSession, target: str) -> list[Metric]:
    """Measure a publication from its published files."""
    published = PublishedFolder.of(session, target)
    measured = published.examine().metrics
    if not measured:
        raise changed(published.publication)
    values = {**measured, **published.publication.metrics, **measured}
    return [Metric(name, value) for name, value in values.items()]


def check_files(release: Folder, manifest: Manifest) -> Check:
    """Check that the files of a release are those that its manifest names, by name and size."""
    differing = 0
    for suffix, table in manifest.tables.items():
        differing += len(set(table.files) ^ set((release / folder_of(suffix)).files()))
    n_files = sum(len(table.files) for table in manifest.tables.values())
    return Check(
        "the files are those that were published, and no others",
        f"{n_files} files, 0 differ",
        f"{differing} differ",
        holds=differing == 0,
    )


# Attacks on a publication in files, and how well it answers counts: played on the driver.
#
# Both need the source, which scores guesses and answers. Only codes of values are kept, and all of
# them: what reads parts of the records would say nothing about the others.


def attack(
    session: SparkSession,
    target: str,
    source: Any,
    *,
    on_progress: Watcher | None = None,
    on_warning: Callable[[str], None] | None = None,
) -> list[Attack]:
    """Play known attacks on the driver; the source scores the guesses."""
    heard = on_progress, on_warning, ["attacking"]
    with _open_with_source(session, target, source, *heard) as (kind, both):
        both.session.phase("attacking")
        return kind.attack(both)


def evaluate_counts(
    session: SparkSession,
    target: str,
    source: Any,
    *,
    on_progress: Watcher | None = None,
    on_warning: Callable[[str], None] | None = None,
    **given: Any,
) -> list[CountAccuracy]:
    """Compare a publication's answers to random count queries with the source, on the driver."""
    request = read_request(EvaluateRequest, {"name": "", **given})
    workload = Workload.of(
        request.queries, request.dimensionality, request.selectivity, request.seed
    )
    heard = on_progress, on_warning, EVALUATING
    with _open_with_source(session, target, source, *heard) as (kind, both):
        return kind.evaluate(both, workload)


@contextmanager
def _open_with_source(
    session: SparkSession,
    target: str,
    source: Any,
    on_progress: Watcher | None,
    on_warning: Callable[[str], None] | None,
    phases: Sequence[str],
) -> Iterator[tuple[SparkKind, SparkTarget]]:
    """Verify a publication, and open it with its source."""
    published = PublishedFolder.of(session, target)
    publication = published.publication
    kind = spark_kind(publication.kind)
    published.require_files()
    with published.open() as tables:
        listener = TableSession(tables, on_progress, on_warning)
        listener.plan(["verifying", *phases])
        listener.phase("verifying")
        published.require_verified()
        yield kind, SparkTarget(listener, publication, open_frame(published.session, source))
