"""Cutting records on many machines into cells: found on the driver, from their histogram."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kanon_db.algorithms.bucketization.cell_assignment import CutTree
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.randomness import SecureRandom
from kanon_db.spark.buckets.dealing import PART, SLICE, Slices
from kanon_db.spark.buckets.histogram import QuasiIdentifiers
from kanon_db.spark.chance import RANK
from kanon_db.spark.environment import in_own_words, through_arrow
from kanon_db.spark.kind import SparkJob

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from kanon_db.algorithms.bucketization.cell_assignment import CutCell, Tightened

CELL: Final = "cell"


@dataclass(frozen=True, eq=False)
class CutRecords:
    """Cells, and the records that are in them.

    Attributes
    ----------
    cells : list of Cell
    frame : DataFrame
        The snapshot's columns, the code of the sensitive value, and those of quasi-identifiers.
    names : list of str
        The columns of the latter.
    tree : CutTree
        By which the cell of a record is found.
    """

    cells: list[CutCell]
    frame: DataFrame
    names: list[str]
    tree: CutTree

    def placed(self, job: SparkJob, slices: Slices) -> DataFrame:
        """Put the slice and the part of each record in place of quasi-identifiers' codes.

        Records are read more than once afterwards, and kept in files.
        """
        folder = job.staging.scratch("placed")
        with in_own_words("records could not be put into cells"):
            self._located(slices).drop(*self.names).write.parquet(folder.path)
            return job.session.read.parquet(folder.path)

    def in_cells(self) -> DataFrame:
        """Add the cell of each record."""
        return self._located(None)

    def _located(self, slices: Slices | None) -> DataFrame:
        from pyspark.sql.types import IntegerType, StructType

        schema = StructType([*self.frame.schema.fields])
        for name in (CELL,) if slices is None else (SLICE, PART):
            schema.add(name, IntegerType(), nullable=False)
        context: Any = self.frame.sparkSession.sparkContext
        known = context.broadcast((self.tree, slices))
        return through_arrow(self.frame, locating(known, self.names), schema)


def cut(
    job: SparkJob,
    coded: DataFrame,
    n_values: int,
    tightened: Tightened,
    max_bucket_size: int,
    pulse: Pulse,
    *,
    least: int = 50,
) -> CutRecords:
    """Cut the records into cells, as :func:`.assign_in_cells` does.

    Parameters
    ----------
    job : SparkJob
    coded : DataFrame
        The snapshot with ``code``; at least one record.
    n_values, tightened, max_bucket_size, pulse, least
        As there.
    """
    from kanon_db.algorithms.bucketization.cell_assignment import (  # a compiler
        CellCutter,
        fewest_records_of_cell,
    )

    quasi_identifiers = QuasiIdentifiers.of(job)
    coded = quasi_identifiers.coded(job, coded)
    found = quasi_identifiers.histogram(job, coded, n_values)
    job.voice.step("cutting the table into cells")
    cutter = CellCutter(
        found.qi_codes, found.sa_codes, tightened, max_bucket_size, SecureRandom(),
        fewest_records_of_cell(job.snapshot.n_records, least), pulse, found.weights,
    )  # fmt: skip
    cells = cutter.cells()
    return CutRecords(
        cells,
        coded,
        quasi_identifiers.names,
        found.in_codes(cutter.tree()),
    )


Batches = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


def locating(known: Any, names: Sequence[str]) -> Batches:
    """Return the function that finds the cells of records, or their slices and parts.

    Parameters
    ----------
    known : Broadcast
        Of the tree of cuts, and the slices, if these are wanted.
    names : sequence of str
        The columns of the quasi-identifiers' codes.
    """

    def locate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        tree, slices = known.value
        for batch in batches:
            codes = np.column_stack([batch.column(name).to_numpy() for name in names])
            cells = tree.cell_of(codes)
            if slices is None:
                added = {CELL: cells}
            else:
                own = slices.of_keys(cells, batch.column(RANK).to_numpy())
                added = {SLICE: own.astype(np.int32), PART: slices.part[own]}
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, *map(pa.array, added.values())], [*batch.schema.names, *added]
            )

    return locate
