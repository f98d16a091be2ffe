"""Comparing rows with the source, and writing them to files in an order that tells nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kanon_db.publications.results import Check
from kanon_db.spark.buckets.dealing import n_parts, part_of
from kanon_db.spark.chance import ORDER
from kanon_db.spark.environment import in_own_words
from kanon_db.spark.kind import SparkJob
from kanon_db.spark.ledger import digest
from kanon_db.spark.rows.cells import cell_of
from kanon_db.spark.rows.columns import other_columns
from kanon_db.spark.snapshot import RECORD
from kanon_db.spark.tables import folder_of, write_table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LEFT_OUT: Final = "left_out"
"""Whether a record has no published row."""

PATTERN: Final = "pattern"


def keep(job: SparkJob, recoded: DataFrame, name: str = "recoded") -> DataFrame:
    """Write recoded records to files, once: what follows reads the same ones again."""
    folder = job.staging.scratch(name)
    with in_own_words("records could not be recoded"):
        recoded.write.parquet(folder.path)
        return job.session.read.parquet(folder.path)


def compare_with_source(
    job: SparkJob, recoded: DataFrame, inside: Column, promise: str
) -> tuple[list[Check], int]:
    """Compare recoded records with the snapshot, one by one.

    Parameters
    ----------
    job : SparkJob
    recoded : DataFrame
        From files: ``record``, ``left_out``, the other columns, and cells by :func:`.cell_of`.
    inside : Column
        Whether a record's own values, under the snapshot's names, are in its cells.
    promise : str
        What the check of this is called.

    Returns
    -------
    checks : list of Check
    left_out : int
        How many records have no row.
    """
    from pyspark.sql import functions as f

    job.voice.step("comparing rows with the source")
    others = [job.snapshot.column(name) for name in other_columns(job)]
    there = recoded.select(
        f.col(RECORD).alias("its_record"), LEFT_OUT,
        *(column for column in recoded.columns if column.startswith("q") or column == PATTERN),
        *(f.col(other).alias(f"its_{other}") for other in others),
    )  # fmt: skip
    same = f.lit(True)
    for other in others:
        same = same & f.col(other).eqNullSafe(f.col(f"its_{other}"))
    is_shown = f.col(LEFT_OUT).eqNullSafe(False)
    joined = job.snapshot.frame.join(there, f.col(RECORD) == f.col("its_record"), "full")
    with in_own_words("rows could not be compared with the source"):
        (row,) = joined.agg(
            f.count_if(f.col(RECORD).isNull() | f.col("its_record").isNull()).alias("lost"),
            f.count("*").alias("pairs"),
            f.count_if(is_shown & ~inside).alias("outside"),
            f.count_if(is_shown & ~same).alias("others"),
            f.count_if(LEFT_OUT).alias("left_out"),
        ).collect()
    # Where none is lost, each record is in one pair at least: so many pairs are one of each.
    repeated = max(row["pairs"] - job.snapshot.n_records, 0)
    wrong = row["lost"] + repeated + row["others"]
    return [
        Check(
            promise,
            "0 records outside",
            f"{row['outside']} records outside",
            holds=row["outside"] == 0,
        ),
        Check(
            "every record of the source was recoded once, with its own other columns",
            "0 records differ",
            f"{wrong} records differ",
            holds=wrong == 0,
        ),
    ], int(row["left_out"])


def write_rows(
    job: SparkJob, recoded: DataFrame, layout: Mapping[str, Any]
) -> tuple[Check, DataFrame, str]:
    """Write the published rows, in the order of a random key of their own.

    Parameters
    ----------
    job : SparkJob
    recoded : DataFrame
        From files, as :func:`compare_with_source` has checked them.
    layout : mapping
        Of the publication.

    Returns
    -------
    check : Check
        That the files have just these rows.
    rows : DataFrame
        Read from them.
    checksum : str
        Of the rows.
    """
    from pyspark.sql import functions as f

    job.voice.step("writing the published rows")
    own = {cell["name"]: cell_of(i) for i, cell in enumerate(layout["quasi_identifiers"])}
    own |= {name: job.snapshot.column(name) for name in other_columns(job)}
    if layout.get("pattern") is not None:
        own[layout["pattern"]] = PATTERN
    published = [f.col(own[name]).alias(name) for name in layout["columns"]]
    parts, folder = n_parts(job.snapshot.n_records), job.staging.tables / folder_of("")
    with in_own_words("the published rows could not be written"):
        shown = recoded.where(~f.col(LEFT_OUT))
        ordered = shown.repartitionById(parts, part_of(ORDER, parts)).sortWithinPartitions(
            ORDER, RECORD
        )
        write_table(ordered.select(*published), folder)
        rows = job.session.read.parquet(folder.path)
        checksum = digest([rows])
        same = checksum == digest([shown.select(*published)])
    check = Check(
        "the files have the rows that were compared with the source",
        "the same checksum",
        f"{'the same' if same else 'another'} checksum",
        holds=same,
    )
    return check, rows, checksum
