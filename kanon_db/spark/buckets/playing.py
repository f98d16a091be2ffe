"""QIT, SAT and the source as codes on the driver: attacked, and asked for counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.metrics.count_queries import CountQuery, exact_counts
from kanon_db.publications.buckets.bucket_measurement import (
    AttackedBuckets,
    CodedBuckets,
    ScoringSource,
    attack_read_buckets,
    bounds_of,
    estimate_bucket_counts,
    values_of,
)
from kanon_db.publications.kind import ComparedCounts, Workload, compare_counts
from kanon_db.publications.results import Attack, CountAccuracy
from kanon_db.query.layout import QIT, SAT
from kanon_db.spark.coded import (
    Numbered,
    ReadColumns,
    codes_of,
    read_columns,
    require_same_types,
)
from kanon_db.spark.kind import Opened


@dataclass(frozen=True, eq=False)
class _Read:
    """QIT, SAT and the source, as they were read."""

    names: list[str]
    sensitive: str
    bucket_id: str
    count: str
    qit: ReadColumns
    sat: ReadColumns
    source: ReadColumns

    @classmethod
    def of(cls, opened: Opened) -> Self:
        """Read all columns that are needed."""
        layout = opened.publication.layout
        names = [str(name) for name in layout["quasi_identifiers"]]
        sensitive, bucket, count = (str(layout[n]) for n in ("sensitive", "bucket_id", "count"))
        qit, sat = opened.table(QIT), opened.table(SAT)
        require_same_types(qit, opened.source, names)
        require_same_types(sat, opened.source, [sensitive])
        return cls(
            names, sensitive, bucket, count,
            read_columns(qit, [*names, bucket], "the quasi-identifier table"),
            read_columns(sat, [bucket, sensitive, count], "the sensitive table", [sensitive]),
            read_columns(opened.source, [*names, sensitive], "the source"),
        )  # fmt: skip

    def buckets(self, table: ReadColumns) -> IntArray:
        """Return numbers of buckets, from 0."""
        found: IntArray = table.numbers(self.bucket_id) - 1
        return found


def attack(opened: Opened) -> list[Attack]:
    """Play all attacks; see :func:`bucket_measurement.attack_buckets`."""
    read = _Read.of(opened)
    opened.listener.phase("playing")
    columns = [Numbered.of(read.qit.table[name]) for name in read.names]
    its = read.sat.table[read.sensitive]
    sensitive = Numbered.of(its)
    values = values_of(
        read.buckets(read.sat), sensitive.codes(its).astype(np.int64), read.sat.numbers(read.count)
    )
    labels = sensitive.labels(its, read.sat.labels[read.sensitive])
    published = AttackedBuckets(
        codes_of(columns, read.qit, read.names),
        read.buckets(read.qit),
        values,
        bounds_of(opened.publication, labels, values),
    )
    known = ScoringSource.of(
        published,
        codes_of(columns, read.source, read.names),
        sensitive.codes(read.source.table[read.sensitive]).astype(np.int64),
    )
    return attack_read_buckets(opened.listener, opened.pulse, published, known)


def evaluate(opened: Opened, workload: Workload) -> list[CountAccuracy]:
    """Compare counts; see :func:`bucket_measurement.evaluate_buckets`."""
    read = _Read.of(opened)
    opened.listener.phase("playing")
    columns = [Numbered.of(read.source.table[column]) for column in read.names]
    sensitive = Numbered.of(read.source.table[read.sensitive])

    def count(chosen: Sequence[CountQuery]) -> IntArray:
        codes = codes_of(columns, read.source, read.names)
        its = sensitive.codes(read.source.table[read.sensitive])
        return exact_counts(codes, its, chosen, pulse=opened.pulse)

    def estimate(chosen: Sequence[CountQuery]) -> FloatArray:
        codes = codes_of(columns, read.qit, read.names)
        sizes = np.array([len(column) for column in columns], dtype=np.int32)
        its = sensitive.codes(read.sat.table[read.sensitive])
        coded = CodedBuckets(
            read.buckets(read.qit).astype(np.int32),
            np.where(codes < 0, sizes, codes),  # values that the source no longer has
            read.buckets(read.sat).astype(np.int32),
            np.where(its < 0, np.int32(len(sensitive)), its),
            read.sat.numbers(read.count).astype(np.int32),
        )
        return estimate_bucket_counts(coded, chosen, opened.pulse)

    return compare_counts(
        workload,
        [len(column) for column in columns],
        len(sensitive),
        ComparedCounts(opened.listener.phase, lambda _bytes, _what: None, count, estimate),
        opened.pulse,
    )
