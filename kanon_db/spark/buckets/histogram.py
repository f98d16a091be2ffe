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
from typing import TYPE_CHECKING, Final

import numpy as np

from kanon_db.algorithms.bucketization.cut_tree import CutTree
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.ground.sort_keys import sort_keys
from kanon_db.spark.buckets.values import BEFORE, CODE, RECORDS, NumberedValues, numbered_values
from kanon_db.spark.environment import in_own_words
from kanon_db.spark.kind import SparkJob

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_MOST_NUMBERS: Final = 2**25
"""Of the histogram: its rows times its columns; some hundred megabytes, and a few seconds."""

_MOST_BITS: Final = 12
"""Of the number of a group: the finest groups have one in 4,096 of the records."""


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

    def coded(self, records: DataFrame) -> DataFrame:
        """Add the codes of all quasi-identifiers."""
        return self._numbered(records, CODE, self.names)

    def histogram(self, job: SparkJob, coded: DataFrame, n_values: int) -> Histogram:
        """Count the records with their codes and that of their value.

        Parameters
        ----------
        job : SparkJob
        coded : DataFrame
            With ``code``.
        n_values : int
            Of the sensitive attribute.
        """
        from pyspark.sql import functions as f

        job.voice.step("counting combinations of quasi-identifiers")
        bits = self._bits(job.snapshot.n_records, coded, n_values)
        if bits is None:
            counted = self.coded(coded)
            columns: list[Column] = [f.col(name) for name in self.names]
            last_codes: list[CodeArray | None] = [None for _ in self.values]
        else:
            counted = self._numbered(coded, BEFORE, self._places)
            columns = self._groups(job.snapshot.n_records, bits)
            last_codes = [_last_codes(one.counts, bits) for one in self.values]
        keys = [column.alias(name) for column, name in zip(columns, self.names, strict=True)]
        with in_own_words("combinations of quasi-identifiers could not be counted"):
            found = counted.groupBy(*keys, CODE).agg(f.count("*").alias(RECORDS)).toArrow()
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
        from pyspark.sql import functions as f

        def fits(combinations: float) -> bool:
            rows = min(n_records, combinations * n_values)
            return rows * (len(self.values) + 2) <= _MOST_NUMBERS

        if fits(float(np.prod([float(one.counts.size) for one in self.values]))):
            return None
        placed = self.coded(self._numbered(coded, BEFORE, self._places))
        choices: list[int | None] = [None, *range(_MOST_BITS, 0, -1)]
        counts = []
        for bits in choices:
            columns = map(f.col, self.names) if bits is None else self._groups(n_records, bits)
            counts.append(f.approx_count_distinct(f.xxhash64(*columns)).alias(f"n{bits}"))
        with in_own_words("combinations of quasi-identifiers could not be counted"):
            (found,) = placed.agg(*counts).collect()
        return next((bits for bits, n in zip(choices, found, strict=True) if fits(n)), 0)

    @property
    def _places(self) -> list[str]:
        """Columns that say how many records have a lower value."""
        return [f"p{i}" for i in range(len(self.values))]

    def _numbered(self, records: DataFrame, number: str, names: Sequence[str]) -> DataFrame:
        for name, values in zip(names, self.values, strict=True):
            records = values.coded(records, name, number)
        return records

    def _groups(self, n_records: int, bits: int) -> list[Column]:
        from pyspark.sql import functions as f

        return [f.expr(f"int({place} * {1 << bits}L div {n_records}L)") for place in self._places]


def _last_codes(counts: IntArray, bits: int) -> CodeArray:
    """Return, for each group, the last code that is in it or in one before it."""
    before = np.cumsum(counts) - counts
    groups = (before << bits) // max(1, int(counts.sum()))
    found = np.searchsorted(groups, np.arange(1 << bits), side="right") - 1
    return found.astype(np.int32)
