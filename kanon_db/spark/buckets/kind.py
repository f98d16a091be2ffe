"""Publishing a bucketization from records on many machines; see the kind in PostgreSQL."""

from __future__ import annotations

from typing import Any, Final

from kanon_db.catalog.entries import Publication, Source
from kanon_db.errors import InfeasibleError, InvalidParameterError
from kanon_db.publications.buckets.bucket_relations import bucket_layout
from kanon_db.publications.buckets.kind import ValueProtection
from kanon_db.publications.buckets.methods import SensitiveValues
from kanon_db.publications.buckets.request import BucketRequest
from kanon_db.publications.kind import MethodResult, Workload, Written
from kanon_db.publications.results import Attack, Check, CountAccuracy, Examination
from kanon_db.query.layout import QIT, SAT, SHARES, BucketTables
from kanon_db.spark.buckets import assignments, playing
from kanon_db.spark.buckets.assignments import Assigned
from kanon_db.spark.buckets.composition import write_composition
from kanon_db.spark.buckets.examine import count_certain, examine_buckets
from kanon_db.spark.buckets.values import NumberedValues, numbered_values
from kanon_db.spark.buckets.writing import write_qit, write_sat
from kanon_db.spark.environment import in_own_words
from kanon_db.spark.kind import Made, Opened, SparkJob, SparkKind
from kanon_db.spark.tables import SCHEMA, Tables

_MOST_BUCKETS: Final = 2**28
"""Their numbers are a permutation, which every machine gets: a gigabyte."""

_REFUSED: Final = {
    "m_invariant": "who keeps which signature follows from a refresh, which is made in PostgreSQL",
}
"""Assignments that stay on one machine, and why."""


class Buckets(SparkKind):
    """The kind ``buckets``."""

    suffixes = (QIT, SAT, SHARES)
    shows_values = True

    def refuse(self, request: BucketRequest, source: Source) -> None:  # noqa: ARG002
        """Refuse assignments that stay on one machine."""
        if not hasattr(assignments, request.assignment):
            raise InvalidParameterError(
                f"the assignment {request.assignment} is not made on Spark",
                detail=_REFUSED.get(request.assignment, ""),
                hint="give assignment => 'random', or publish in PostgreSQL",
            )

    def make(self, job: SparkJob) -> Made:
        """Find a bucket setting, and the bucket of each record; write QIT and SAT."""
        values = numbered_values(job, str(job.source.sensitive))
        labels = values.labels()
        protection = ValueProtection.of(job.request, labels, values.counts)
        data = SensitiveValues(values.counts, protection.privacy, labels)
        found: MethodResult = getattr(assignments, job.request.assignment)(job, data, values)
        return Made(found, self._write(job, found.result, values, protection))

    def _write(
        self, job: SparkJob, assigned: Assigned, values: NumberedValues, protection: ValueProtection
    ) -> Written:
        setting = assigned.setting
        if setting.n_buckets > _MOST_BUCKETS:
            raise InfeasibleError(
                "there are too many buckets",
                detail=f"{setting.n_buckets:,}, of which {_MOST_BUCKETS:,} can be numbered",
                hint="publish parts of the source, such as regions, apart",
            )
        # Both tables are written from files, so that neither depends on how the other is made.
        folder = job.staging.scratch("assigned")
        with in_own_words("buckets could not be assigned"):
            assigned.frame.write.parquet(folder.path)
            frame = job.session.read.parquet(folder.path)
        layout = bucket_layout(job.source, setting)
        job.voice.step("writing the quasi-identifier table")
        write_qit(job, frame, layout)
        job.voice.step("writing the sensitive table")
        sat = write_sat(job, frame, values, layout, setting.n_buckets)
        is_random = job.request.assignment == "random" or assigned.cells == 1
        layout["assignment"] = "random" if is_random else job.request.assignment
        name = job.request.publication
        tables = Tables(job.session, {name + SAT: sat})
        names = BucketTables.of(tables, SCHEMA, name, layout)
        certain = count_certain(tables, names)
        layout["spectrum"] = write_composition(
            job, tables, names, values, is_random=layout["assignment"] == "random"
        )
        tables.drop()
        l = protection.l
        return Written(
            protection.guarantee(job.request, certain, job.voice),
            layout=layout,
            parameters={} if l is None else {"l": l},
            metrics={} if assigned.cells is None else {"cells": assigned.cells},
        )

    def examine(self, tables: Tables, publication: Publication, whole: Check) -> Examination:
        """See :func:`examine_buckets`."""
        return examine_buckets(tables, publication, whole)

    def attack(self, opened: Opened) -> list[Attack]:
        """See :func:`.playing.attack`."""
        return playing.attack(opened)

    def evaluate(self, opened: Opened, workload: Workload) -> list[CountAccuracy]:
        """See :func:`.playing.evaluate`."""
        return playing.evaluate(opened, workload)


KIND: Final[Any] = Buckets()
