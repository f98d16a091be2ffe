"""Loading a publication into PostgreSQL, where SQL answers from it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kanon_db.declaration import read_request
from kanon_db.publications.examination import changed
from kanon_db.publications.loaded import LoadRequest
from kanon_db.publications.loading import (
    Elsewhere,
    LoadedTable,
    load_publication,
    require_told,
)
from kanon_db.publications.results import Published
from kanon_db.session.progress import Watcher
from kanon_db.session.psycopg_session import PsycopgSession, open_connection
from kanon_db.spark.environment import in_own_words, own_session, require_spark, through_arrow
from kanon_db.spark.examination import check_files
from kanon_db.spark.files import Folder
from kanon_db.spark.manifest import Manifest
from kanon_db.spark.source import column_type
from kanon_db.spark.tables import folder_of, read_table

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import DataFrame, SparkSession


def load(
    session: SparkSession,
    target: str,
    connection: str | psycopg.Connection,
    given: Mapping[str, Any],
    *,
    on_progress: Watcher | None = None,
    on_warning: Callable[[str], None] | None = None,
) -> Published:
    """Load a publication into PostgreSQL; see :func:`kanon_db.spark.load`."""
    require_spark()
    own = own_session(session)
    folder = Folder(own, str(target))
    manifest = Manifest.of(folder)
    release = folder / manifest.release
    if not check_files(release, manifest).holds:
        raise changed(manifest.publication)
    described, request = manifest.publication, read_request(LoadRequest, given)
    tables = {}
    for suffix in require_told(described.kind, manifest.tables):
        frame = read_table(own, release / folder_of(suffix), manifest.tables[suffix])
        tables[suffix] = _loaded_table(frame)
    elsewhere = Elsewhere(described, tables, _columns(described.layout))
    with _opened(connection, on_progress, on_warning) as opened, opened.transaction():
        return load_publication(opened, elsewhere, request)


@contextmanager
def _opened(
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
    sensitive = layout.get("sensitive")
    published = list(layout.get("types", {})) or [*names, *([sensitive] if sensitive else [])]
    return {"quasi_identifiers": names, "sensitive": sensitive, "published": published}


def _loaded_table(frame: DataFrame) -> LoadedTable:
    """Describe a table as PostgreSQL is going to have it."""
    types = {
        field.name: column_type(field.name, field.dataType).type_name
        for field in frame.schema.fields
    }
    return LoadedTable(types, lambda: _csv(frame))


def _csv(frame: DataFrame) -> Iterator[bytes]:
    """Return rows as CSV, in blocks that the workers write; one partition is here at a time."""
    with in_own_words("the files could not be read"):
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
