"""One state of the source, in files: the records that are published, each with a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kanon_db.errors import SchemaMismatchError
from kanon_db.spark.chance import ORDER, RANK, drawn
from kanon_db.spark.environment import in_own_words
from kanon_db.spark.files import Folder
from kanon_db.spark.names import quoted
from kanon_db.spark.source import Microdata, PostgresTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORD: Final = "record"


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The columns that are published, and the entity, as they were read.

    Attributes
    ----------
    frame : DataFrame
        ``record`` (a number of its own), ``rank_key`` and ``order_key`` (see :mod:`.chance`), and
        the columns by :meth:`column`. It is read from files, so that each task that is run again
        reads the same.
    names : tuple of str
        The columns.
    n_records : int
    """

    frame: DataFrame
    names: tuple[str, ...]
    n_records: int

    def column(self, name: str) -> str:
        """Return what a column is called here, where names of the source could be in the way."""
        return f"c{self.names.index(name)}"


def take_snapshot(
    session: SparkSession, given: object, microdata: Microdata, columns: Sequence[str], to: Folder
) -> Snapshot:
    """Read the source once, and write it to a private folder.

    Parameters
    ----------
    session : SparkSession
        Reads what was written.
    given : object
        The source as the caller gave it.
    microdata : Microdata
    columns : sequence of str
    to : Folder

    Raises
    ------
    SchemaMismatchError
        When the source has another number of records when it is counted again.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType

    names = tuple(dict.fromkeys(columns))
    read = [f.monotonically_increasing_id().alias(RECORD)]
    for i, name in enumerate(names):
        column = f.col(quoted(name))
        if microdata.types[name].type_name == "text":
            column = column.cast(StringType())  # without a collation of its own
        read.append(column.alias(f"c{i}"))
    with in_own_words("the source could not be read, or not written to the staging folder"):
        drawn(microdata.frame.select(*read)).write.parquet(to.path)
        frame = session.read.parquet(to.path)
        n_records = frame.count()
        # Another transaction may have changed a table; a file or a data frame must not change.
        if not isinstance(given, PostgresTable):
            n_source = microdata.frame.count()
            if n_source != n_records:
                raise SchemaMismatchError(
                    "the source changes while it is read",
                    detail=f"{microdata.source.relation}: {n_source} records, of which"
                    f" {n_records} were read",
                    hint="a data frame must give the same rows each time: write it to files first",
                )
    return Snapshot(
        frame.select(RECORD, RANK, ORDER, *(f"c{i}" for i in range(len(names)))), names, n_records
    )
