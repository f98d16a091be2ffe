"""Publishes in the same steps for all kinds, and loads publications into PostgreSQL.

The steps are those of `kanon_db.publications.pipeline`. Roles of columns that are probably mistakes
are warned of, as `register_source` does.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from kanon_db.catalog.entries import Publication
from kanon_db.catalog.source_checks import MOST_RECORDS, warn_of_recurring, warn_of_values
from kanon_db.dataclasses import dataclass
from kanon_db.declaration import parameters_of, read_request
from kanon_db.errors import SchemaMismatchError, ServerError
from kanon_db.operations import RegisterRequest
from kanon_db.publications import KINDS
from kanon_db.publications.guarantees import warn_of_gap
from kanon_db.publications.lifecycle import (
    ForeignPublication,
    LoadedTable,
    load_publication,
    name_is_taken,
    require_loaded_tables,
)
from kanon_db.publications.pipeline import accept_request, described_result, verify_written
from kanon_db.publications.publish_request import COMBINED, LoadRequest
from kanon_db.publications.registry import DeclaredKind
from kanon_db.publications.releases.entities import entity_statement, require_one_record
from kanon_db.publications.results import Examination, Published
from kanon_db.query.layout import QIT, ROWS
from kanon_db.query.ranges import type_in_range
from kanon_db.session.progress import Watcher
from kanon_db.session.psycopg_session import PsycopgSession, open_connection
from kanon_db.spark._publication_folder import (
    Folder,
    FolderLedger,
    LedgerRelease,
    Manifest,
    StagingFolder,
    TableFiles,
    digest_of_table,
    parameters_text,
    release_named,
    staging_folder,
)
from kanon_db.spark._spark_kind import PublishedFolder, SparkJob, SparkKind, check_files, spark_kind
from kanon_db.spark._tables import (
    PublishedTables,
    SparkProgress,
    SparkSnapshot,
    SparkSource,
    column_type,
    fetch_one,
    folder_of,
    label_of,
    open_source,
    read_table,
    require_comparable,
    take_spark_snapshot,
    text_of_column,
)
from kanon_db.spark.environment import (
    failures_as_errors,
    own_session,
    quote_column,
    require_spark,
    through_arrow,
)

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import Column, DataFrame, SparkSession


_COLUMN: Final = "column"
_VALUE: Final = "value"
_TIMES: Final = "times"


def warn_of_roles(
    voice: SparkProgress, microdata: SparkSource, snapshot: SparkSnapshot, shown: Sequence[str]
) -> None:
    """Warn of roles that are probably mistakes: by the columns' names, and by their values."""
    # As many records as `register_source` looks at are looked at, and values are only counted:
    # those that are published in the snapshot, identifiers, which are not in it, in the source. An
    # entity has one record here, so that its records need not be taken together.
    insensitive = [name for name in microdata.source.insensitive if name in snapshot.names]
    published = dict.fromkeys((*shown, *insensitive))
    if published or microdata.source.identifiers:
        voice.step("looking for columns that identify people")
    shares = _shares_of_unique(snapshot.frame, {name: snapshot.column(name) for name in published})
    warn_of_values(voice.warn, shares, shown, insensitive)
    _warn_of_identifiers(voice, microdata)


def _warn_of_identifiers(voice: SparkProgress, microdata: SparkSource) -> None:
    """Warn of identifiers that recur; who publishes need not be able to read any."""
    source = microdata.source
    if source.entity is not None:
        return
    try:
        shares = _shares_of_unique(
            microdata.frame, {name: quote_column(name) for name in source.identifiers}
        )
    except ServerError:  # whose detail may quote data
        voice.warn(
            f"the identifiers of {source.relation} cannot be read, so it is not known whether"
            " several records have the same one"
        )
    else:
        warn_of_recurring(voice.warn, shares)


def _shares_of_unique(frame: DataFrame, columns: dict[str, str]) -> dict[str, float]:
    """Return which share of each column's values occur once; a column of NULLs only has none."""
    # All columns are counted by one job. Hashes of 64 bits stand for values: that two of a million
    # values have the same one happens once in 37 million times, and would change a share by 0.0002
    # %.
    from pyspark.sql import functions as f

    if not columns:
        return {}
    numbered: list[Column] = [
        f.struct(f.lit(i).alias(_COLUMN), _hash(f.col(column)).alias(_VALUE))
        for i, column in enumerate(columns.values())
    ]
    with failures_as_errors("values could not be counted"):
        counted = (
            frame.limit(MOST_RECORDS)
            .select(f.explode(f.array(*numbered)).alias("cell"))
            .select(f"cell.{_COLUMN}", f"cell.{_VALUE}")
            .where(f.col(_VALUE).isNotNull())
            .groupBy(_COLUMN, _VALUE)
            .agg(f.count("*").alias(_TIMES))
            .groupBy(_COLUMN)
            .agg((f.count_if(f.col(_TIMES) == 1) / f.sum(_TIMES)).alias("share"))
            .collect()
        )
    names = list(columns)
    return {names[row[_COLUMN]]: row["share"] for row in counted}


def _hash(value: Column) -> Column:
    """Return the hash of a value of any type, which its text stands for; NULL of NULL."""
    from pyspark.sql import functions as f

    return f.when(value.isNotNull(), f.xxhash64(value.cast("string")))


# Publishing, in the same steps for all kinds, as :mod:`kanon_db.publications.pipeline`.
#
# The request is validated, then the source is read once into a private folder, and published from
# there into tables that nobody else can read. These are verified; then they are moved to the
# target, and the manifest is written, last and in one step. If anything is refused or fails, no
# file remains.


PHASES: Final = ("reading the source", "searching", "verifying", "publishing")


def publish(
    session: SparkSession,
    source: Any,
    target: str,
    *,
    kind: str,
    source_name: str | None = None,
    on_progress: Watcher | None = None,
    on_warning: Callable[[str], None] | None = None,
    **given: Any,
) -> Published:
    """Publish a source, verified before anybody sees it; a dry run leaves nothing behind."""
    require_spark()
    started = time.perf_counter()
    run = _PublishingRun.of(
        session, kind, source, target, given, source_name, SparkProgress(on_progress, on_warning)
    )
    with staging_folder(run.target) as staging:
        return run.publish(staging, started)


@dataclass(frozen=True, eq=False)
class _PublishingRun:
    """What was asked for, and where it goes."""

    session: SparkSession
    voice: SparkProgress
    declared: DeclaredKind
    kind: SparkKind
    request: Any
    given: Any
    microdata: SparkSource
    target: Folder
    ledger: FolderLedger

    @classmethod
    def of(
        cls,
        session: SparkSession,
        name: str,
        source: Any,
        target: str,
        given: Mapping[str, Any],
        source_name: str | None,
        voice: SparkProgress,
    ) -> _PublishingRun:
        """Read the request, before anything else happens."""
        kind, declared, own = spark_kind(name), KINDS[name], own_session(session)
        folder = Folder(own, str(target))
        label = label_of(source, source_name)
        named = {item.name for item in parameters_of(RegisterRequest)}
        described = {item: value for item, value in given.items() if item in named}
        roles = read_request(RegisterRequest, {"source": label, **described})
        options = {item: value for item, value in given.items() if item not in named}
        request = read_request(
            declared.request, {"source": label, "publication": folder.name, **options}
        )
        return cls(
            own, voice, declared, kind, request, source,
            open_source(own, source, label, roles), folder, FolderLedger.beside(own, folder),
        )  # fmt: skip

    def publish(self, staging: StagingFolder, started: float) -> Published:
        """Read, make, verify and publish."""
        self.voice.plan(PHASES)
        self.voice.phase("reading the source")
        old = Manifest.find(self.target)
        if old is not None and not self.request.replace:
            raise name_is_taken(self.request.publication)
        if staging.left_by is not None and (
            old is None or old.release != release_named(staging.left_by)
        ):
            self.ledger.forget(staging.left_by)
        source, kind = self.microdata.source, self.declared.load()
        self.kind.refuse(self.request, source)
        histories = [COMBINED] if self.ledger.of_source(str(source.relation)) else []
        accepted = accept_request(self.voice, kind, self.request, source, histories)
        columns = kind.chosen(self.request, source, self.microdata.types)
        require_comparable(self.microdata, columns)
        snapshot = self._read(staging, columns)
        shown = source.quasi_identifiers if self.kind.shows_values else ()
        warn_of_roles(self.voice, self.microdata, snapshot, shown)
        self.voice.phase("searching")
        job = SparkJob(
            self.session, self.voice, self.request, source, self.microdata.types, staging, snapshot
        )  # fmt: skip
        made = self.kind.make(job)
        warn_of_gap(self.voice, self.request.method, made.found.proof)
        types = {name: {"type": self.microdata.types[name].type_name} for name in columns}
        sink = _FileSink(self.session, staging, self.kind, self.target.name, types)
        publication, examined = verify_written(
            self.voice, self.request, source, made.found, made.written, sink=sink,
            n_records=snapshot.n_records, parameters={"accept": accepted},
        )  # fmt: skip
        if not self.request.dry_run:
            self.voice.phase("publishing")
            self._enter(staging, sink.manifest(publication), sink.checksum(), columns, old)
        return described_result(publication, examined.metrics, started)

    def _read(self, staging: StagingFolder, columns: list[str]) -> SparkSnapshot:
        source = self.microdata.source
        entity = [] if source.entity is None else [source.entity]
        snapshot = take_spark_snapshot(
            self.session, self.given, self.microdata, [*columns, *entity], staging.snapshot
        )
        if source.entity is not None:
            self.voice.step("counting entities")
            tables = PublishedTables(self.session, {"snapshot": snapshot.frame})
            name = tables.identifier(snapshot.column(source.entity))
            survey = fetch_one(tables, entity_statement(name, tables.identifier("snapshot")))
            require_one_record(survey, source)
            tables.drop()
        return snapshot

    def _enter(
        self,
        staging: StagingFolder,
        manifest: Manifest,
        checksum: str,
        columns: list[str],
        old: Manifest | None,
    ) -> None:
        """Move the tables to the target, enter the release, and write the manifest."""
        publication = manifest.publication
        published = self.target / manifest.release
        line = LedgerRelease(
            staging.token, publication.name, publication.kind, publication.method,
            publication.source, columns, parameters_text(publication), publication.records,
            publication.guarantee, checksum, manifest.published_at,
            str(self.session.sparkContext.sparkUser()),
            None if old is None else old.release.removeprefix(release_named("")),
        )  # fmt: skip
        is_new = not self.target.exists()
        try:
            self.target.make()
            staging.tables.move(published)
            self.ledger.enter(line)
            manifest.write(self.target)
        except BaseException:
            published.remove()
            self.ledger.forget(staging.token)
            if is_new:
                self.target.remove()
            raise
        if old is not None:
            (self.target / old.release).remove()


@dataclass(frozen=True, eq=False)
class _FileSink:
    """The files of a folder, not yet published: a `Sink`."""

    session: SparkSession
    staging: StagingFolder
    kind: SparkKind
    name: str
    types: Mapping[str, Any]

    @cached_property
    def tables(self) -> dict[str, TableFiles]:
        """The tables that were written, with their files, by their suffixes."""
        files = {}
        for suffix in self.kind.suffixes:
            folder = self.staging.tables / folder_of(suffix)
            if not folder.exists():  # where nothing was learned
                continue
            schema = self.session.read.parquet(folder.path).schema.json()
            files[suffix] = TableFiles(schema, tuple(folder.files()))
        return files

    def manifest(self, publication: Publication) -> Manifest:
        """Say what was written, and now."""
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        return Manifest(publication, release_named(self.staging.token), self.tables, now)

    def checksum(self) -> str:
        """Return a checksum of all tables; see :func:`.digest_of_table`."""
        return digest_of_table(list(self._frames().values()))

    def examine(self, publication: Publication) -> Examination:
        """Check and measure the files."""
        frames = {self.name + suffix: frame for suffix, frame in self._frames().items()}
        tables = PublishedTables(self.session, frames)
        try:
            files_check = check_files(self.staging.tables, self.manifest(publication))
            return self.kind.examine(tables, publication, files_check)
        finally:
            tables.drop()

    def _frames(self) -> dict[str, DataFrame]:
        return {
            suffix: read_table(self.session, self.staging.tables / folder_of(suffix), table)
            for suffix, table in self.tables.items()
        }


_SUFFIXES: Final = {"": ROWS}
"""What PostgreSQL calls a table that is called otherwise in files."""


def load(
    session: SparkSession,
    target: str,
    connection: str | psycopg.Connection,
    *,
    on_progress: Watcher | None = None,
    on_warning: Callable[[str], None] | None = None,
    **given: Any,
) -> Published:
    """Load a publication into PostgreSQL, where SQL answers from it."""
    published = PublishedFolder.of(session, target)
    published.require_verified()
    described, request = published.publication, read_request(LoadRequest, given)
    files, tables = published.manifest.tables, {}
    ranges = _ranges(described.layout)
    known = {_SUFFIXES.get(suffix, suffix): suffix for suffix in files}
    for suffix in map(known.__getitem__, require_loaded_tables(described.kind, known)):
        frame = read_table(published.session, published.release / folder_of(suffix), files[suffix])
        if suffix == QIT and described.layout.get("weighted"):
            frame = frame.drop(str(described.layout["weights"]))  # learned there
        tables[_SUFFIXES.get(suffix, suffix)] = _describe_table(frame, ranges)
    elsewhere = ForeignPublication(described, tables, _columns(described.layout))
    with _open_session(connection, on_progress, on_warning) as opened, opened.transaction():
        return load_publication(opened, elsewhere, request)


@contextmanager
def _open_session(
    connection: str | psycopg.Connection,
    on_progress: Watcher | None,
    on_warning: Callable[[str], None] | None,
) -> Iterator[PsycopgSession]:
    """Open a session, and close the connection if it was opened here."""
    warn = on_warning or (lambda text: warnings.warn(text, stacklevel=3))
    if not isinstance(connection, str):
        yield PsycopgSession(connection, on_progress, warn)
        return
    own = open_connection(connection)
    try:
        yield PsycopgSession(own, on_progress, warn)
    finally:
        own.close()


def _columns(layout: Mapping[str, Any]) -> dict[str, Any]:
    """Say which columns of the source are shown, as the ledger keeps it."""
    cells = layout["quasi_identifiers"]
    names = [cell if isinstance(cell, str) else cell["name"] for cell in cells]
    sensitive, also_sensitive = layout.get("sensitive"), layout.get("also_sensitive")
    published = list(layout.get("types", {})) or [*names, *([sensitive] if sensitive else [])]
    also = {"also_sensitive": also_sensitive} if also_sensitive else {}
    return {"quasi_identifiers": names, "sensitive": sensitive, **also, "published": published}


def _ranges(layout: Mapping[str, Any]) -> dict[str, str]:
    """Return the types of ranges, by column; only such as there are, since they become SQL."""
    cells = [cell for cell in layout["quasi_identifiers"] if not isinstance(cell, str)]
    types = {str(cell["name"]): str(cell.get("range_type")) for cell in cells}
    return {name: type_ for name, type_ in types.items() if type_in_range(type_, None) is not None}


def _describe_table(frame: DataFrame, ranges: Mapping[str, str]) -> LoadedTable:
    """Describe a table as PostgreSQL is going to have it."""
    from pyspark.sql import functions as f

    types: dict[str, str] = {}
    columns: list[Column] = []
    for field in frame.schema.fields:
        name, column = field.name, f.col(quote_column(field.name))
        if name in ranges:
            types[name], column = ranges[name], _as_range(column, field.dataType)
        elif field.dataType.simpleString() == "array<string>":
            types[name], column = "text[]", _as_array(column)
        else:
            postgres_type = column_type(name, field.dataType)
            if not postgres_type.type_category:
                raise SchemaMismatchError(
                    "a column has a type that PostgreSQL does not have",
                    detail=f'column "{name}"',
                    hint="cast it in the source, for example to string, and publish again",
                )
            types[name] = postgres_type.type_name
        columns.append(column.alias(f"c{len(columns)}"))  # Arrow's functions take no odd names
    shown = frame.select(*columns)
    return LoadedTable(types, lambda: _csv(shown))


def _as_range(cell: Column, type_: Any) -> Column:
    """Write a range as PostgreSQL reads it: both ends belong to it."""
    from pyspark.sql import functions as f

    own = column_type("", type_["lower"].dataType)
    low, high = (
        f.coalesce(text_of_column(cell[end], own), f.lit("")) for end in ("lower", "upper")
    )
    return f.when(cell.isNotNull(), f.concat(f.lit("["), low, f.lit(","), high, f.lit("]")))


def _as_array(cell: Column) -> Column:
    """Write a set as PostgreSQL reads it."""
    from pyspark.sql import functions as f

    def element(text: Column) -> Column:
        escaped = f.regexp_replace(text, r'(["\\])', r"\\$1")
        return f.coalesce(f.concat(f.lit('"'), escaped, f.lit('"')), f.lit("NULL"))

    texts = f.array_join(f.transform(cell, element), ",")
    return f.concat(f.lit("{"), texts, f.lit("}"))


def _csv(frame: DataFrame) -> Iterator[bytes]:
    """Return rows as CSV, in blocks that the workers write; one partition is here at a time."""
    with failures_as_errors("the files could not be read"):
        for row in through_arrow(frame, _as_csv, "block binary").toLocalIterator():
            yield bytes(row["block"])


def _as_csv(batches: Iterator[Any]) -> Iterator[Any]:
    """Write batches of Arrow as CSV, on the workers."""
    import pyarrow as pa
    from pyarrow import csv

    how = csv.WriteOptions(include_header=False, quoting_style="all_valid")
    for batch in batches:
        written = pa.BufferOutputStream()
        csv.write_csv(batch, written, how)
        block = pa.array([written.getvalue().to_pybytes()], pa.binary())
        yield pa.RecordBatch.from_arrays([block], ["block"])
