"""What kinds of rows have in common on Spark: they are attacked and asked on the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.metrics.count_queries import CountQuery, exact_counts
from kanon_db.publications import KINDS
from kanon_db.publications.kind import ComparedCounts, Workload, compare_counts
from kanon_db.publications.results import Attack, CountAccuracy
from kanon_db.publications.rows.published_rows import AttackedRows, estimate_row_counts
from kanon_db.publications.rows.row_kind import RowKind
from kanon_db.spark.coded import Numbered
from kanon_db.spark.kind import Opened, SparkKind
from kanon_db.spark.rows.published import ReadRows


@dataclass(frozen=True, eq=False)
class _Counted:
    """The sensitive values of the rows: their texts, and how often they occur."""

    labels: list[str | None]
    counts: IntArray


class SparkRows(SparkKind):
    """A kind that publishes rows."""

    suffixes = ("",)

    def attack(self, opened: Opened) -> list[Attack]:
        """Play all attacks; see :func:`published_rows.attack_read_rows`."""
        read = ReadRows.of(opened)
        opened.listener.phase("playing")
        sensitive, counted = read.numbered(), None
        rows = read.coded(sensitive)
        if sensitive is not None:
            counts = np.bincount(rows.values, minlength=len(sensitive)).astype(np.int64)
            counted = _Counted(read.labels(sensitive), counts)
        attacked = AttackedRows.of(
            rows, read.codes(), read.its_values(sensitive), read.n_codes, counted
        )
        kind = _in_postgresql(opened)
        return kind.play(opened.listener, opened.pulse, opened.publication, attacked)

    def evaluate(self, opened: Opened, workload: Workload) -> list[CountAccuracy]:
        """Compare the answers of :mod:`rows.published_rows` with the source."""
        read = ReadRows.of(opened)
        opened.listener.phase("playing")
        sensitive = None
        if read.sensitive is not None:
            sensitive = Numbered.of(read.source.table[read.sensitive])

        def count(chosen: Sequence[CountQuery]) -> IntArray:
            its = read.its_values(sensitive).astype(np.int32)
            return exact_counts(read.codes(), its, chosen, pulse=opened.pulse)

        def estimate(chosen: Sequence[CountQuery]) -> FloatArray:
            return estimate_row_counts(
                opened.publication, read.coded(sensitive), chosen, opened.pulse,
                shares_cells=_in_postgresql(opened).shares_cells,
            )  # fmt: skip

        return compare_counts(
            workload,
            read.n_codes,
            1 if sensitive is None else len(sensitive),
            ComparedCounts(opened.listener.phase, lambda _bytes, _what: None, count, estimate),
            opened.pulse,
        )


def _in_postgresql(opened: Opened) -> RowKind:
    """Return the kind that plays the same there."""
    return cast("RowKind", KINDS[opened.publication.kind].load())
