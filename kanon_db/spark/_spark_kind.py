"""Defines a kind of publication on Spark, and verifies, measures, attacks and evaluates any.

Names, options, their validation and the risks come from the kind's declaration and from its `Kind`
in PostgreSQL; a `SparkKind` is how it is made of records on many machines. What reads a publication
uses its published files; attacks and evaluations run on the driver, on codes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.catalog.entries import Publication, Source, changed
from kanon_db.declaration import read_request
from kanon_db.errors import InfeasibleError, NotFoundError, SchemaMismatchError
from kanon_db.operations import EvaluateRequest
from kanon_db.publications.examination import accepted_checks
from kanon_db.publications.kind import SELECTIVITY, MethodResult, Workload, Written
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
from kanon_db.spark.environment import failures_as_errors, own_session, quoted_column, require_spark
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
    """A publication in the making.

    Attributes
    ----------
    session : SparkSession
        Of our own; see :func:`~kanon_db.spark.environment.own_session`.
    voice : SparkProgress
    request : PublishRequest
        The same as in PostgreSQL.
    source : Source
    types : dict of str to ColumnType
    staging : StagingFolder
    snapshot : SparkSnapshot
    """

    session: SparkSession
    voice: SparkProgress
    request: Any
    source: Source
    types: Mapping[str, ColumnType]
    staging: StagingFolder
    snapshot: SparkSnapshot

    def pulse(self, seconds: float = inf) -> Pulse:
        """Return a heartbeat, with a time limit that starts now."""
        return Pulse(seconds, self.voice.heartbeat, self.voice.done)

    def limit(self, seconds: float) -> None:
        """Say that the search has a time limit, from now on."""
        self.voice.limit(seconds)


@dataclass(frozen=True, eq=False)
class SparkResult:
    """What was found and written.

    Attributes
    ----------
    found : Found
        The method that was used, and the proof of an exact one.
    written : Written
        As in PostgreSQL.
    """

    found: MethodResult
    written: Written


@dataclass(frozen=True, eq=False)
class SparkTarget:
    """A verified publication in files, with what it was made from.

    Attributes
    ----------
    listener : TableSession
        Its tables are those of the publication.
    publication : Publication
    source : DataFrame
        Scores what attackers guess, and answers what is asked of the publication.
    """

    listener: TableSession
    publication: Publication
    source: DataFrame

    @property
    def pulse(self) -> Pulse:
        """The driver's heartbeat."""
        return Pulse(heartbeat=self.listener.heartbeat, on_done=self.listener.done)

    def table(self, suffix: str) -> DataFrame:
        """Return a published table."""
        return self.listener.tables.frames[self.publication.name + suffix]


class SparkKind(ABC):
    """The steps that are particular to a kind."""

    suffixes: Sequence[str]
    """Of the tables that are published; each is written to its folder in the staged tables."""

    shows_values: bool = False
    """Whether quasi-identifiers are published as they are."""

    def refuse(self, request: Any, source: Source) -> None:  # noqa: B027  # nothing by default
        """Refuse what must stay on one machine, with the reason and what to do instead.

        Raises
        ------
        InvalidParameterError
        """

    @abstractmethod
    def make(self, job: SparkJob) -> SparkResult:
        """Find what to publish, and write the tables.

        Small things are decided on the driver, from counts; what is done for each record must be
        the same when a task is run again. Chance comes from the snapshot's own columns, see
        :mod:`~kanon_db.spark._tables`, or from the operating system on the driver.
        """

    @abstractmethod
    def examine(self, tables: PublishedTables, publication: Publication, whole: Any) -> Examination:
        """Check and measure the published tables, using nothing else.

        Parameters
        ----------
        tables : PublishedTables
        publication : Publication
        whole : Check
            Whether the files are those that the manifest names.
        """

    @abstractmethod
    def attack(self, opened: SparkTarget) -> list[Attack]:
        """Play known attacks on the driver, as PostgreSQL plays them."""

    @abstractmethod
    def evaluate(self, opened: SparkTarget, workload: Workload) -> list[CountAccuracy]:
        """Answer random count queries on the driver, and compare the answers with the source."""


# The kinds that are made on Spark: a room here for each, beside the room of its declaration.


KIND_MODULES: Final = {
    "buckets": "kanon_db.spark.kinds.bucket_kind",
    "generalized": "kanon_db.spark.kinds.generalized_kind",
    "suppressed": "kanon_db.spark.kinds.suppressed_kind",
    "freeform": "kanon_db.spark.kinds.freeform_kind",
}
"""The module of each kind; its ``KIND`` is a :class:`SparkKind`."""


def spark_kind(name: str) -> SparkKind:
    """Import a kind.

    Raises
    ------
    NotFoundError
        When it is not made on Spark.
    """
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
class ReadColumns:
    """Columns of a table on the driver, as Arrow has them.

    Attributes
    ----------
    table : pyarrow.Table
    labels : mapping of str to pyarrow.ChunkedArray
        The texts of values, where they were asked for.
    """

    table: Any
    labels: Mapping[str, Any]

    def numbers(self, name: str) -> IntArray:
        """Return a column of numbers."""
        return np.asarray(self.table[name].to_numpy(), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class NumberedColumn:
    """The distinct values of a column, in order.

    Attributes
    ----------
    values : pyarrow.Array
    """

    values: Any

    @classmethod
    def of(cls, column: Any) -> NumberedColumn:
        """Return the distinct values of a column, in order."""
        import pyarrow.compute as pc

        distinct = pc.unique(column)
        return cls(distinct.take(pc.sort_indices(distinct)))  # NULL last

    def __len__(self) -> int:
        return len(self.values)

    def codes(self, column: Any) -> CodeArray:
        """Return the code of each value of a column; -1 for one that is not among them."""
        import pyarrow.compute as pc

        found = pc.fill_null(pc.index_in(column, value_set=self.values), -1)
        return np.asarray(found.to_numpy(), dtype=np.int32)

    def labels(self, column: Any, texts: Any) -> list[str | None]:
        """Return the text of each value, from a column and its texts."""
        found: list[str | None] = [None] * len(self)
        codes, first = np.unique(self.codes(column), return_index=True)
        for code, text in zip(codes.tolist(), texts.take(first).to_pylist(), strict=True):
            found[code] = text
        return found


def read_columns(
    frame: DataFrame, columns: Sequence[str], what: str, labelled: Sequence[str] = ()
) -> ReadColumns:
    """Read columns of a table onto the driver.

    Parameters
    ----------
    frame : DataFrame
    columns : sequence of str
    what : str
        What the table is called.
    labelled : sequence of str
        Those whose values' texts are wanted, too.

    Raises
    ------
    NotFoundError
        When it has no such column.
    InfeasibleError
        When it has too many records.
    """
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
        texts = [
            text_of_column(frame[quoted_column(name)], column_type(name, types[name])).alias(
                f"label_{i}"
            )
            for i, name in enumerate(labelled)
        ]
        own = [
            _one_zero(frame[quoted_column(name)], types[name]).alias(f"c{i}")
            for i, name in enumerate(columns)
        ]
        table = frame.select(*own, *texts).toArrow()
    found = {name: table[f"label_{i}"] for i, name in enumerate(labelled)}
    return ReadColumns(table.select(range(len(columns))).rename_columns(list(columns)), found)


def require_same_types(published: DataFrame, source: DataFrame, columns: Sequence[str]) -> None:
    """Refuse a source whose columns have other types than what was published of them.

    Raises
    ------
    SchemaMismatchError
    """
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
        if column in own and type_ != own[column]:
            raise SchemaMismatchError(
                "the source's columns have changed since it was published",
                detail=f'column "{column}" has another type',
            )


def codes_of(
    columns: Sequence[NumberedColumn], read: ReadColumns, names: Sequence[str]
) -> CodeArray:
    """Return the codes of the values of some columns, shape (n, m)."""
    pairs = zip(columns, names, strict=True)
    return np.stack([column.codes(read.table[name]) for column, name in pairs], axis=1)


def _one_zero(value: Column, type_: DataType) -> Column:
    """Make -0.0 what it is equal to."""
    from pyspark.sql import functions as f

    if type_.typeName() not in ("float", "double"):
        return value
    return f.when(value == 0, f.lit(0).cast(type_)).otherwise(value)


# Verifying and measuring a publication of any kind, from its files alone.


def verify(session: SparkSession, target: str) -> list[Check]:
    """Check a publication, using only its published files, and all of them.

    Raises
    ------
    NotFoundError
        When there is no publication.
    """
    manifest, examined = _examined(session, target)
    return examined.checks + accepted_checks(manifest.publication)


def metrics(session: SparkSession, target: str) -> list[Metric]:
    """Measure a publication from its published files.

    Raises
    ------
    NotFoundError
        When there is no publication.
    VerificationError
        When its files are gone, or have been replaced by others.
    """
    from kanon_db.catalog.entries import changed

    manifest, examined = _examined(session, target)
    if not examined.metrics:
        raise changed(manifest.publication)
    measured = examined.metrics
    found = {**measured, **manifest.publication.metrics, **measured}
    return [Metric(name, value) for name, value in found.items()]


def _examined(session: SparkSession, target: str) -> tuple[Manifest, Examination]:
    require_spark()
    own = own_session(session)
    folder = Folder(own, str(target))
    manifest = Manifest.of(folder)
    whole = check_files(folder / manifest.release, manifest)
    if not whole.holds:
        return manifest, Examination([whole], {})
    with open_tables(own, folder, manifest) as tables:
        kind = spark_kind(manifest.publication.kind)
        return manifest, kind.examine(tables, manifest.publication, whole)


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
    with _opened_with_source(session, target, source, on_progress, on_warning) as (kind, both):
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
    dimensionality = request.dimensionality
    workload = Workload(
        request.queries,
        None if dimensionality is None else tuple(dimensionality),
        SELECTIVITY if request.selectivity is None else tuple(map(float, request.selectivity)),
        request.seed,
    )
    with _opened_with_source(session, target, source, on_progress, on_warning) as (kind, both):
        return kind.evaluate(both, workload)


@contextmanager
def _opened_with_source(
    session: SparkSession,
    target: str,
    source: Any,
    on_progress: Watcher | None,
    on_warning: Callable[[str], None] | None,
) -> Iterator[tuple[SparkKind, SparkTarget]]:
    """Verify a publication, and open it with its source."""
    require_spark()
    own = own_session(session)
    folder = Folder(own, str(target))
    manifest = Manifest.of(folder)
    publication = manifest.publication
    kind = spark_kind(publication.kind)
    whole = check_files(folder / manifest.release, manifest)
    if not whole.holds:
        raise changed(publication)
    with open_tables(own, folder, manifest) as tables:
        listener = TableSession(tables, on_progress, on_warning)
        listener.plan(["verifying", "reading the source", "playing"])
        listener.phase("verifying")
        examined = kind.examine(tables, publication, whole)
        if not all(check.holds for check in examined.checks):
            raise changed(publication)
        listener.phase("reading the source")
        yield kind, SparkTarget(listener, publication, open_frame(own, source))
