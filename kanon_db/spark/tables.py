"""Tables in files, which the statements that are written for PostgreSQL can read."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kanon_db.session.protocol import Row
from kanon_db.spark.dialect import spark_sql
from kanon_db.spark.environment import in_own_words
from kanon_db.spark.files import Folder
from kanon_db.spark.manifest import Manifest, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "published"
"""What statements call the schema of the tables; it makes no difference here."""


class Tables:
    """Named tables of one session.

    Parameters
    ----------
    session : SparkSession
    frames : mapping of str to DataFrame
        The tables by their names.
    """

    def __init__(self, session: SparkSession, frames: Mapping[str, DataFrame]) -> None:
        self.session = session
        self.frames = frames
        self._views = {name: f"kanon_{secrets.token_hex(8)}" for name in frames}
        for name, view in self._views.items():
            frames[name].createOrReplaceTempView(view)

    def fetch(self, statement: str, *values: str | Sequence[str | None] | None) -> list[Row]:
        """Run a statement of PostgreSQL, and return its rows.

        Parameters
        ----------
        statement : str
            It may read these tables only.
        *values
            What ``$1 ... $n`` are: texts, or arrays of them, which the statement casts.
        """
        with in_own_words("a statement could not be run"):
            return [row.asDict() for row in self.select(statement, *values).collect()]

    def select(self, statement: str, *values: str | Sequence[str | None] | None) -> DataFrame:
        """Return the rows of a statement as a data frame; see :meth:`fetch`."""
        text = spark_sql(statement, self._views, values)
        bound = {
            f"p{i}": value if value is None or isinstance(value, str) else json.dumps(list(value))
            for i, value in enumerate(values, start=1)
        }
        with in_own_words("a statement could not be run"):
            return self.session.sql(text, args=bound)

    def identifier(self, *parts: str) -> str:
        """Quote a name as PostgreSQL does; statements are translated afterwards."""
        return ".".join('"' + part.replace('"', '""') + '"' for part in parts)

    def drop(self) -> None:
        """Forget the tables."""
        for view in self._views.values():
            self.session.catalog.dropTempView(view)


def read_table(session: SparkSession, folder: Folder, table: Table) -> DataFrame:
    """Read exactly the files that a manifest names."""
    from pyspark.sql.types import StructType

    schema = StructType.fromJson(json.loads(table.schema))
    paths = [(folder / file.name).path for file in table.files]
    if not paths:
        return session.createDataFrame([], schema)
    return session.read.schema(schema).parquet(*paths)


def write_table(frame: DataFrame, folder: Folder) -> None:
    """Write rows in their order, a file for each partition, and nothing else."""
    frame.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(
        folder.path
    )


@contextmanager
def opened(session: SparkSession, target: Folder, manifest: Manifest) -> Iterator[Tables]:
    """Open the tables of a publication, by its name and their suffixes."""
    name, release = manifest.publication.name, target / manifest.release
    tables = Tables(
        session,
        {
            name + suffix: read_table(session, release / folder_of(suffix), table)
            for suffix, table in manifest.tables.items()
        },
    )
    try:
        yield tables
    finally:
        tables.drop()


def folder_of(suffix: str) -> str:
    """Name the folder of a table in its release."""
    return suffix.removeprefix("_") or "rows"


def fetch_one(tables: Tables, statement: str, *values: str | Sequence[str | None] | None) -> Any:
    """Run a statement that returns exactly one row."""
    (row,) = tables.fetch(statement, *values)
    return row
