"""The histogram of the quasi-identifiers of records on many machines, with their sensitive values.

From it, the driver cuts the table into cells, by the very decisions that it makes in PostgreSQL.
Where quasi-identifiers have too many combinations for the driver, neighboring values of each
attribute are taken together, about as many records in each group, until they have few enough. Then
there are cuts between groups only. Groups follow from the quasi-identifiers alone, so that cells
tell no more than they do without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kanon_db.algorithms.bucketization.cell_assignment import CutTree
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray, sort_keys
from kanon_db.spark.buckets.combinations import (
    CHOICES,
    MOST_BITS,
    count_combinations,
    grouping,
    groups_of,
)
from kanon_db.spark.buckets.values import CODE, RECORDS, NumberedValues, numbered_values
from kanon_db.spark.environment import in_own_words, through_arrow
from kanon_db.spark.kind import SparkJob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOST_NUMBERS: Final = 2**25
"""Of the histogram: its rows times its columns; some hundred megabytes, and a few seconds."""


@dataclass(frozen=True, eq=False)
class Histogram:
    """How often each combination of quasi-identifiers has each sensitive value.

    Attributes
    ----------
    qi_codes : ndarray of int32, shape (n_rows, n_qi)
        In their order; codes of values, or numbers of their groups.
    sa_codes : ndarray of int32, shape (n_rows,)
    weights : ndarray of int64, shape (n_rows,)
        Records of each row.
    last_codes : list of (ndarray of int32 or None)
        For each attribute whose values are in groups, the last code up to each group.
    """

    qi_codes: CodeArray
    sa_codes: CodeArray
    weights: IntArray
    last_codes: list[CodeArray | None]

    def in_codes(self, tree: CutTree) -> CutTree:
        """Return cuts between groups as cuts between codes."""
        last = tree.last.copy()
        for attribute, codes in enumerate(self.last_codes):
            if codes is not None:
                own = tree.attribute == attribute
                last[own] = codes[last[own]]
        return CutTree(tree.attribute, last, tree.below, tree.cell)


@dataclass(frozen=True, eq=False)
class QuasiIdentifiers:
    """The quasi-identifiers of a snapshot as numbers.

    Attributes
    ----------
    values : list of NumberedValues
    """

    values: Sequence[NumberedValues]

    @classmethod
    def of(cls, job: SparkJob) -> QuasiIdentifiers:
        """Count and number the values of each."""
        return cls([numbered_values(job, name) for name in job.source.quasi_identifiers])

    @property
    def names(self) -> list[str]:
        """The columns of codes in :meth:`coded`."""
        return [f"q{i}" for i in range(len(self.values))]

    def coded(self, job: SparkJob, records: DataFrame) -> DataFrame:
        """Add the codes of all quasi-identifiers, and keep the records in files."""
        job.voice.step("numbering quasi-identifiers")
        for name, values in zip(self.names, self.values, strict=True):
            records = values.coded(records, name)
        folder = job.staging.scratch("numbered")
        with in_own_words("quasi-identifiers could not be numbered"):
            records.write.parquet(folder.path)
            return job.session.read.parquet(folder.path)

    def histogram(self, job: SparkJob, coded: DataFrame, n_values: int) -> Histogram:
        """Count the records with their codes and that of their value.

        Parameters
        ----------
        job : SparkJob
        coded : DataFrame
            With ``code``, and the codes of all quasi-identifiers.
        n_values : int
            Of the sensitive attribute.
        """
        from pyspark.sql import functions as f

        job.voice.step("counting combinations of quasi-identifiers")
        bits = self._bits(job.snapshot.n_records, coded, n_values)
        counted = coded.select(*self.names, CODE)
        last_codes: list[CodeArray | None] = [None for _ in self.values]
        if bits is not None:
            groups = [groups_of(one.counts, bits) for one in self.values]
            last_codes = [_last_codes(own, bits) for own in groups]
            context: Any = job.session.sparkContext
            known = context.broadcast((self.names, groups))
            counted = through_arrow(counted, grouping(known), counted.schema)
        with in_own_words("combinations of quasi-identifiers could not be counted"):
            found = counted.groupBy(*self.names, CODE).agg(f.count("*").alias(RECORDS)).toArrow()
        qi_codes = np.column_stack(
            [found.column(name).to_numpy().astype(np.int32) for name in self.names]
        )
        order = np.argsort(sort_keys(list(qi_codes.T)), kind="stable")
        return Histogram(
            qi_codes[order],
            found.column(CODE).to_numpy().astype(np.int32)[order],
            found.column(RECORDS).to_numpy().astype(np.int64)[order],
            last_codes,
        )

    def _bits(self, n_records: int, coded: DataFrame, n_values: int) -> int | None:
        """Choose how fine groups are; None if values need not be taken together.

        It follows from the quasi-identifiers, and from how many sensitive values there are.
        """

        def fits(combinations: float) -> bool:
            rows = min(n_records, combinations * n_values)
            return rows * (len(self.values) + 2) <= _MOST_NUMBERS

        if fits(float(np.prod([float(one.counts.size) for one in self.values]))):
            return None
        finest = [groups_of(one.counts, MOST_BITS) for one in self.values]
        counts = count_combinations(coded, self.names, finest)
        return next((bits for bits, n in zip(CHOICES, counts, strict=True) if fits(n)), 0)


def _last_codes(groups: CodeArray, bits: int) -> CodeArray:
    """Return, for each group, the last code that is in it or in one before it."""
    found = np.searchsorted(groups, np.arange(1 << bits), side="right") - 1
    return found.astype(np.int32)
