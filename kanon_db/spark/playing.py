"""Attacks on a publication in files, and how well it answers counts: played on the driver.

Both need the source, which scores guesses and answers. Only codes of values are kept, and all of
them: what reads parts of the records would say nothing about the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, FloatArray, IntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.catalog.entries import Publication
from kanon_db.counting.layout import QIT, SAT
from kanon_db.declaration import read_request
from kanon_db.errors import InvalidParameterError
from kanon_db.metrics.count_errors import exact_counts
from kanon_db.metrics.workload import CountQuery
from kanon_db.operations import EvaluateRequest
from kanon_db.publications.buckets.attack import (
    Published,
    SourceKnown,
    bounds_of,
    play_attacks,
    values_of,
)
from kanon_db.publications.buckets.evaluation import (
    CodedBuckets,
    Compared,
    compare_counts,
    estimate_counts,
)
from kanon_db.publications.examination import changed
from kanon_db.publications.results import Attack, CountAccuracy
from kanon_db.publications.usefulness import SELECTIVITY, Workload
from kanon_db.session.progress import Watcher
from kanon_db.spark.coded import Numbered, ReadColumns, read_columns, require_same_types
from kanon_db.spark.environment import own_session, require_spark
from kanon_db.spark.examination import check_files
from kanon_db.spark.files import Folder
from kanon_db.spark.kinds import spark_kind
from kanon_db.spark.manifest import Manifest
from kanon_db.spark.reading import TableSession
from kanon_db.spark.source import open_frame
from kanon_db.spark.tables import opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, eq=False)
class _Both:
    """QIT, SAT and the source, as they were read."""

    listener: TableSession
    publication: Publication
    qit: ReadColumns
    sat: ReadColumns
    source: ReadColumns

    @property
    def names(self) -> list[str]:
        """The quasi-identifiers."""
        return [str(name) for name in self.publication.layout["quasi_identifiers"]]

    def name(self, of: str) -> str:
        """Return the name of another column."""
        return str(self.publication.layout[of])

    @property
    def pulse(self) -> Pulse:
        """The driver's heartbeat."""
        return Pulse(heartbeat=self.listener.heartbeat, on_done=self.listener.done)


def attack(
    session: SparkSession,
    target: str,
    source: Any,
    *,
    on_progress: Watcher | None = None,
    on_warning: Callable[[str], None] | None = None,
) -> list[Attack]:
    """Play known attacks; see :func:`kanon_db.spark.attack`."""
    with _read(session, target, source, on_progress, on_warning) as both:
        columns = [Numbered.of(both.qit.table[name]) for name in both.names]
        its = both.sat.table[both.name("sensitive")]
        sensitive = Numbered.of(its)
        values = values_of(
            both.sat.numbers(both.name("bucket_id")) - 1,
            sensitive.codes(its).astype(np.int64),
            both.sat.numbers(both.name("count")),
        )
        labels = sensitive.labels(its, both.sat.labels[both.name("sensitive")])
        published = Published(
            _codes(columns, both.qit, both.names),
            both.qit.numbers(both.name("bucket_id")) - 1,
            values,
            bounds_of(both.publication, labels, values),
        )
        known = SourceKnown.of(
            published,
            _codes(columns, both.source, both.names),
            sensitive.codes(both.source.table[both.name("sensitive")]).astype(np.int64),
        )
        return play_attacks(both.listener, both.pulse, published, known)


def evaluate_counts(
    session: SparkSession,
    target: str,
    source: Any,
    given: Mapping[str, Any],
    *,
    on_progress: Watcher | None = None,
    on_warning: Callable[[str], None] | None = None,
) -> list[CountAccuracy]:
    """Compare random counts with the source; see :func:`kanon_db.spark.evaluate_counts`."""
    request = read_request(EvaluateRequest, {"name": "", **given})
    dimensionality = request.dimensionality
    workload = Workload(
        request.queries,
        None if dimensionality is None else tuple(dimensionality),
        SELECTIVITY if request.selectivity is None else tuple(map(float, request.selectivity)),
        request.seed,
    )
    with _read(session, target, source, on_progress, on_warning) as both:
        name = both.name("sensitive")
        columns = [Numbered.of(both.source.table[column]) for column in both.names]
        sensitive = Numbered.of(both.source.table[name])

        def count(chosen: Sequence[CountQuery]) -> IntArray:
            codes = _codes(columns, both.source, both.names)
            its = sensitive.codes(both.source.table[name])
            return exact_counts(codes, its, chosen, pulse=both.pulse)

        def estimate(chosen: Sequence[CountQuery]) -> FloatArray:
            codes = _codes(columns, both.qit, both.names)
            sizes = np.array([len(column) for column in columns], dtype=np.int32)
            its = sensitive.codes(both.sat.table[name])
            read = CodedBuckets(
                (both.qit.numbers(both.name("bucket_id")) - 1).astype(np.int32),
                np.where(codes < 0, sizes, codes),  # values that the source no longer has
                (both.sat.numbers(both.name("bucket_id")) - 1).astype(np.int32),
                np.where(its < 0, np.int32(len(sensitive)), its),
                both.sat.numbers(both.name("count")).astype(np.int32),
            )
            return estimate_counts(read, chosen, both.pulse)

        return compare_counts(
            workload,
            [len(column) for column in columns],
            len(sensitive),
            Compared(both.listener.phase, lambda _bytes, _what: None, count, estimate),
            both.pulse,
        )


@contextmanager
def _read(
    session: SparkSession,
    target: str,
    source: Any,
    on_progress: Watcher | None,
    on_warning: Callable[[str], None] | None,
) -> Iterator[_Both]:
    """Verify a publication, and read it and its source onto the driver."""
    require_spark()
    own = own_session(session)
    folder = Folder(own, str(target))
    manifest = Manifest.of(folder)
    publication = manifest.publication
    if publication.kind != "buckets":
        raise InvalidParameterError(
            "only buckets are played with on Spark",
            detail=f"kind {publication.kind}",
            hint="publish it in PostgreSQL, which attacks rows, too",
        )
    whole = check_files(folder / manifest.release, manifest)
    if not whole.holds:
        raise changed(publication)
    with opened(own, folder, manifest) as tables:
        listener = TableSession(tables, on_progress, on_warning)
        listener.plan(["verifying", "reading the source", "playing"])
        listener.phase("verifying")
        examined = spark_kind(publication.kind).examine(tables, publication, whole)
        if not all(check.holds for check in examined.checks):
            raise changed(publication)
        listener.phase("reading the source")
        layout = publication.layout
        names, sensitive = list(map(str, layout["quasi_identifiers"])), str(layout["sensitive"])
        qit, sat = (tables.frames[publication.name + suffix] for suffix in (QIT, SAT))
        frame = open_frame(own, source)
        require_same_types(qit, frame, names)
        require_same_types(sat, frame, [sensitive])
        bucket, count = str(layout["bucket_id"]), str(layout["count"])
        both = _Both(
            listener,
            publication,
            read_columns(qit, [*names, bucket], "the quasi-identifier table"),
            read_columns(sat, [bucket, sensitive, count], "the sensitive table", [sensitive]),
            read_columns(frame, [*names, sensitive], "the source"),
        )
        listener.phase("playing")
        yield both


def _codes(columns: Sequence[Numbered], read: ReadColumns, names: Sequence[str]) -> CodeArray:
    pairs = zip(columns, names, strict=True)
    return np.stack([column.codes(read.table[name]) for column, name in pairs], axis=1)
