"""Loading a publication into PostgreSQL, where SQL answers from it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from kanon_db.catalog.entries import changed
from kanon_db.declaration import read_request
from kanon_db.errors import SchemaMismatchError
from kanon_db.publications.lifecycle import (
    ForeignPublication,
    LoadedTable,
    load_publication,
    require_loaded_tables,
)
from kanon_db.publications.publish_request import LoadRequest
from kanon_db.publications.results import Published
from kanon_db.query.expressions import type_in_range
from kanon_db.query.layout import ROWS
from kanon_db.session.progress import Watcher
from kanon_db.session.psycopg_session import PsycopgSession, open_connection
from kanon_db.spark.environment import in_own_words, own_session, require_spark, through_arrow
from kanon_db.spark.examination import check_files
from kanon_db.spark.files import Folder
from kanon_db.spark.kinds import spark_kind
from kanon_db.spark.labels import label
from kanon_db.spark.manifest import Manifest
from kanon_db.spark.names import quoted
from kanon_db.spark.source import column_type
from kanon_db.spark.tables import folder_of, opened, read_table

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import Column, DataFrame, SparkSession


_SUFFIXES: Final = {"": ROWS}
"""What PostgreSQL calls a table that is called otherwise in files."""


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
    _require_verified(own, folder, manifest)
    described, request = manifest.publication, read_request(LoadRequest, given)
    tables = {}
    ranges = _ranges(described.layout)
    known = {_SUFFIXES.get(suffix, suffix): suffix for suffix in manifest.tables}
    for suffix in map(known.__getitem__, require_loaded_tables(described.kind, known)):
        frame = read_table(own, release / folder_of(suffix), manifest.tables[suffix])
        tables[_SUFFIXES.get(suffix, suffix)] = _loaded_table(frame, ranges)
    elsewhere = ForeignPublication(described, tables, _columns(described.layout))
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


def _require_verified(session: SparkSession, folder: Folder, manifest: Manifest) -> None:
    """Refuse files that are not those that were published, or do not keep their promises."""
    whole = check_files(folder / manifest.release, manifest)
    if whole.holds:
        with opened(session, folder, manifest) as tables:
            kind = spark_kind(manifest.publication.kind)
            examined = kind.examine(tables, manifest.publication, whole)
        if all(check.holds for check in examined.checks):
            return
    raise changed(manifest.publication)


def _ranges(layout: Mapping[str, Any]) -> dict[str, str]:
    """Return the types of ranges, by column; only such as there are, since they become SQL."""
    cells = [cell for cell in layout["quasi_identifiers"] if not isinstance(cell, str)]
    found = {str(cell["name"]): str(cell.get("range_type")) for cell in cells}
    return {name: type_ for name, type_ in found.items() if type_in_range(type_, None) is not None}


def _loaded_table(frame: DataFrame, ranges: Mapping[str, str]) -> LoadedTable:
    """Describe a table as PostgreSQL is going to have it."""
    from pyspark.sql import functions as f

    types: dict[str, str] = {}
    columns: list[Column] = []
    for field in frame.schema.fields:
        name, column = field.name, f.col(quoted(field.name))
        if name in ranges:
            types[name], column = ranges[name], _as_range(column, field.dataType)
        elif field.dataType.simpleString() == "array<string>":
            types[name], column = "text[]", _as_array(column)
        else:
            found = column_type(name, field.dataType)
            if not found.type_category:
                raise SchemaMismatchError(
                    "a column has a type that PostgreSQL does not have",
                    detail=f'column "{name}"',
                    hint="cast it in the source, for example to string, and publish again",
                )
            types[name] = found.type_name
        columns.append(column.alias(f"c{len(columns)}"))  # Arrow's functions take no odd names
    shown = frame.select(*columns)
    return LoadedTable(types, lambda: _csv(shown))


def _as_range(cell: Column, type_: Any) -> Column:
    """Write a range as PostgreSQL reads it: both ends belong to it."""
    from pyspark.sql import functions as f

    own = column_type("", type_["lower"].dataType)
    low, high = (f.coalesce(label(cell[end], own), f.lit("")) for end in ("lower", "upper"))
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
