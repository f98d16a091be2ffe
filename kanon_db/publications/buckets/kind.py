"""Publishing a bucketization [GB]: QIT, SAT and their weighted view."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.bucketization.contents import Contents
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.bucketization.specification import PrivacySpecification
from kanon_db.algorithms.ground.arrays import CodeArray
from kanon_db.catalog.entries import Publication, Source
from kanon_db.catalog.sources import require_sensitive
from kanon_db.counting.layout import Quotes
from kanon_db.metrics.workload import CountQuery
from kanon_db.publications.buckets import assignments
from kanon_db.publications.buckets.answers import answer_from_buckets
from kanon_db.publications.buckets.assignments import Assigned
from kanon_db.publications.buckets.attack import attack_buckets
from kanon_db.publications.buckets.batches import extended
from kanon_db.publications.buckets.bitmaps import most_values, write_bitmaps
from kanon_db.publications.buckets.completing import completed
from kanon_db.publications.buckets.evaluation import evaluate_buckets
from kanon_db.publications.buckets.examine import examine_buckets
from kanon_db.publications.buckets.methods import SensitiveValues
from kanon_db.publications.buckets.notes import bucket_notes
from kanon_db.publications.buckets.protection import Protection
from kanon_db.publications.buckets.regression import write_composition
from kanon_db.publications.buckets.request import BucketRequest
from kanon_db.publications.buckets.tables import (
    QIT,
    SAT,
    SUFFIXES,
    BucketTables,
    layout_of,
    tables_of,
)
from kanon_db.publications.buckets.thresholds import published_thresholds
from kanon_db.publications.buckets.writing import (
    number_buckets,
    write_coded_qit,
    write_qit,
    write_sat,
)
from kanon_db.publications.job import Job
from kanon_db.publications.kind import Found, Kind, Renewed, Target, Written
from kanon_db.publications.needs import bytes_of_texts, bytes_of_values
from kanon_db.publications.notes import Note
from kanon_db.publications.partition import Partition
from kanon_db.publications.results import Attack, CountAccuracy, Examination
from kanon_db.publications.staging import Staging
from kanon_db.publications.usefulness import Usefulness, Workload
from kanon_db.randomness import SecureRandom
from kanon_db.session import Session
from kanon_db.transfer.coded import CodedRecords
from kanon_db.transfer.columns import ColumnType, Relation, column_types, find_relation
from kanon_db.transfer.few_values import most_bytes_read, read_few_values
from kanon_db.transfer.labels import fixed_labels, label
from kanon_db.transfer.records import Size
from kanon_db.transfer.room import Needs, Room
from kanon_db.transfer.values import CodedColumn, DistinctValues, distinct_values, read_codes


@dataclass(frozen=True, eq=False)
class _Assignment:
    """What was read of the sensitive values, and the bucket of each record.

    Attributes
    ----------
    assigned : Assigned
    columns : dict of str to CodedColumn
        The quasi-identifiers with few values.
    values : DistinctValues
    codes : ndarray of int32, shape (n_records,)
        Of the sensitive attribute.
    protection : Protection
    """

    assigned: Assigned
    columns: Mapping[str, CodedColumn]
    values: DistinctValues
    codes: CodeArray
    protection: Protection


class Buckets(Kind):
    """The kind ``buckets``.

    Notes
    -----
    **Source:** [GB] sections 3 to 5. The setting depends only on the values' counts, so the cost of
    finding it does not grow with the table; with cells, on the counts of each cell. The records of
    each value are shuffled, and dealt round robin to the buckets of a size (RRA, Lemma 2). Bucket
    numbers are a random permutation within each size, and the rows of the QIT are in another random
    order. All of this is drawn from the operating system's cryptographic source.
    """

    suffixes = SUFFIXES
    told = (QIT, SAT)
    takes_codes = True

    def digested(self, layout: Mapping[str, Any]) -> Sequence[str]:  # noqa: ARG002
        """Name QIT and SAT."""
        return (QIT, SAT)

    def prepare(self, request: BucketRequest, source: Source) -> None:  # noqa: ARG002
        """Refuse a source without a sensitive attribute, which buckets protect."""
        require_sensitive(source, "buckets need a sensitive attribute")

    def risks(self, request: BucketRequest) -> Sequence[str]:
        """Someone who knows how records are gathered finds the one that closes a bucket."""
        return ["uninformed_reader"] if request.assignment == "local" else []

    def columns(self, source: Source, types: Mapping[str, ColumnType]) -> list[str]:  # noqa: ARG002
        """Read only what is published."""
        return [*source.quasi_identifiers, str(source.sensitive)]

    def comparable(self, source: Source) -> Sequence[str]:
        """Name all published columns, since their values are counted."""
        return [*source.quasi_identifiers, str(source.sensitive)]

    def needs(
        self,
        request: BucketRequest,
        source: Source,
        types: Mapping[str, ColumnType],  # noqa: ARG002
        size: Size,
    ) -> Needs:
        """See :meth:`Kind.needs`; the search for cells keeps codes of all columns."""
        n_columns = 1 + len(source.quasi_identifiers)
        is_random = request.assignment == "random"
        fixed, record = (120e6, 80) if is_random else (140e6, 80 + 12 * n_columns)
        fixed += most_bytes_read(size.n_records, n_columns) + bytes_of_texts(size)
        if request.assignment == "local":
            fixed += 30e6 + bytes_of_values(size)
        if request.method == "optimal":
            fixed += 30_000 * request.max_bucket_size
        return Needs(fixed + record * size.n_records, (100 + 3.4 * size.width) * size.n_records)

    def search(self, job: Job[BucketRequest]) -> Found:
        """Find a bucket setting, and the bucket of each record."""
        request = job.request
        columns, values, codes = _read(job)
        protection = Protection.of(request, values.labels, values.counts)
        assign = getattr(assignments, request.assignment)
        data = SensitiveValues(values.counts, protection.privacy, values.labels)
        found: Found = assign(job, data, codes, columns)
        result = _Assignment(found.result, columns, values, codes, protection)
        return replace(found, result=result)

    def write(self, job: Job[BucketRequest], found: Found) -> Written:
        """Write QIT, SAT, view, bitmaps, and the composition of buckets."""
        session, source = job.session, job.source
        assignment: _Assignment = found.hand_over()
        setting, values, codes = assignment.assigned.setting, assignment.values, assignment.codes
        random = job.random
        bucket_ids = number_buckets(setting, random)[assignment.assigned.slots]
        layout = layout_of(source, setting)
        signed = assignment.assigned.signed
        if signed is not None:
            layout["signatures"] = signed.labels
        staging = job.staging
        tables = BucketTables.of(session, job.schema, staging.name, layout)
        # A new random order: in that of the assignment, records of one value follow each other.
        order = random.permutation(job.records.n_records)
        session.step("writing the quasi-identifier table")
        if isinstance(job.records, CodedRecords):
            named = [assignment.columns[name] for name in source.quasi_identifiers]
            write_coded_qit(staging, tables, named, bucket_ids, order)
        else:
            write_qit(staging, tables, job.snapshot, bucket_ids, order)
        contents = Contents.of(codes, bucket_ids, setting)
        certain = write_sat(staging, tables, values, contents)
        staging.create_weighted_view(layout, QIT, SAT)
        layout["with_bitmaps"] = write_bitmaps(
            staging, tables, layout, assignment.columns, values, contents, bucket_ids, order
        )
        cells = assignment.assigned.cells
        # Of records in one cell, buckets are drawn from the whole table.
        is_random = job.request.assignment in ("random", "m_invariant") or cells == 1
        layout["assignment"] = "random" if is_random else job.request.assignment
        layout["spectrum"] = write_composition(
            staging, tables, values, contents, is_random=is_random
        )
        for one in (values, *(column.values for column in assignment.columns.values())):
            one.drop()
        session.step("gathering statistics")
        staging.analyze(QIT, SAT)
        l = assignment.protection.l
        return Written(
            assignment.protection.guarantee(job.request, certain, session),
            layout=layout,
            parameters={} if l is None else {"l": l},
            metrics={} if cells is None else {"cells": cells},
            signatures=None if signed is None else signed.numbers,
        )

    def renews(self, publication: Publication) -> bool:
        """Buckets that keep their signatures are drawn anew, without those who have left."""
        return publication.parameters.get("assignment") == "m_invariant"

    def renew(self, job: Job[BucketRequest], old: Publication, signature_of: CodeArray) -> Renewed:
        """See :func:`redraw_buckets`."""
        from kanon_db.publications.buckets.invariance import redraw_buckets  # a compiler

        found = redraw_buckets(job, old, signature_of)
        if not found.job.records.n_records:
            return Renewed(found.job, Found(None), 0, 0, found.n_left_out, found.n_waiting)
        columns, values, codes = _read(found.job)
        drawn = found.drawn
        assigned = Assigned(drawn.setting, drawn.slots, signed=drawn.signed)
        l = int(old.parameters["l"])
        privacy = FPrimePrivacy((Fraction(1, l),) * len(values.labels))
        protection = Protection(privacy, l, 0.0)
        result = _Assignment(assigned, columns, values, codes, protection)
        return Renewed(
            found.job, Found(result), found.n_stay, found.n_new, found.n_left_out, found.n_waiting
        )

    def frozen(self, session: Session, publication: Publication, request: BucketRequest) -> Any:
        """Take the thresholds of values that the first batch had; of others, the least one."""
        privacy = replace(request.privacy, may_be_absent=True)
        if not privacy.theta:
            return replace(request, privacy=privacy)
        tables = tables_of(session, publication)
        with fixed_labels(session):
            rows = session.fetch(
                f"SELECT {label(f's.{tables.sensitive}')} AS value,"
                f" sum(s.{tables.count})::int8 AS n FROM {tables.sat} AS s GROUP BY 1 ORDER BY 1"
            )
        labels = [row["value"] for row in rows]
        found = privacy.thresholds(labels, [row["n"] for row in rows])
        thresholds = dict(zip(labels, found.thresholds, strict=True))
        null = thresholds.pop(None, None)
        given: dict[str, Any] = {"values": {k: str(v) for k, v in thresholds.items()}}
        others = [one for one in (privacy.base, privacy.default, privacy.cap) if one]
        if others:
            given["default"] = str(min(others))
        if null is not None:
            given["null"] = str(null)
        fixed = replace(PrivacySpecification.parse(json.dumps(given)), may_be_absent=True)
        return replace(request, privacy=fixed, given={**request.given, "privacy": given})

    def extend(
        self, job: Job[BucketRequest], old: Publication, batch: Written, whole: Staging
    ) -> Written:
        """See :meth:`Kind.extend`: buckets of one size follow each other, the old ones first."""
        return extended(job, old, batch, whole)

    def complete(self, staging: Staging, publication: Publication, room: Room) -> Mapping[str, Any]:
        """See :func:`completed`."""
        types = {}
        for suffix in self.told:
            named = Relation(staging.schema, staging.name + suffix)
            _, oid, _ = find_relation(staging.session, named.quoted(staging.session))
            types.update(column_types(staging.session, oid))
        return completed(staging.session, staging, publication.layout, types, room, SecureRandom())

    def examine(
        self, session: Session, publication: Publication, *, is_new: bool = False
    ) -> Examination:
        """See :func:`examine_buckets`; bitmaps that were just written are only sampled."""
        return examine_buckets(
            session,
            tables_of(session, publication),
            publication.parameters,
            records=publication.records,
            all_bitmaps=not is_new,
        )

    def partition(
        self, session: Session, schema: str, publication: Publication
    ) -> Partition | None:
        """Read QIT and SAT; None if readers may have copies of other buckets of it."""
        if publication.parameters.get("renewals"):
            return None
        layout = publication.layout
        tables = BucketTables.of(session, schema, publication.name, layout)
        names = map(str, layout["quasi_identifiers"])
        return Partition(
            tables.qit, tables.sat, tables.bucket_id, tables.sensitive, tables.count,
            dict(zip(names, tables.quasi_identifiers, strict=True)), str(layout["sensitive"]),
            partial(published_thresholds, publication.parameters),
        )  # fmt: skip

    def notes(self, publication: Publication, quotes: Quotes) -> Mapping[str, Note]:
        """See :func:`bucket_notes`."""
        return bucket_notes(publication, quotes)

    def evaluate(self, target: Target, workload: Workload) -> Sequence[CountAccuracy]:
        """See :func:`evaluate_buckets`."""
        return evaluate_buckets(target, workload)

    def usefulness(
        self,
        target: Target,
        columns: Sequence[DistinctValues],
        sensitive: DistinctValues | None,
        queries: Sequence[CountQuery],
    ) -> Usefulness:
        """See :func:`answer_from_buckets`; quasi-identifiers are published as they are."""
        assert sensitive is not None  # noqa: S101  # buckets have one
        answers = answer_from_buckets(target, columns, sensitive, queries)
        return Usefulness(answers, np.zeros(len(columns)))

    def attack(self, target: Target) -> Sequence[Attack]:
        """See :func:`attack_buckets`."""
        return attack_buckets(target)


KIND: Final = Buckets()


def _read(job: Job[Any]) -> tuple[dict[str, CodedColumn], DistinctValues, CodeArray]:
    """Read the quasi-identifiers with few values, and the sensitive attribute."""
    records, source = job.records, job.source
    sensitive = job.types[str(source.sensitive)]
    if isinstance(records, CodedRecords):
        columns = dict(records.columns)
    else:
        columns = read_few_values(
            job.snapshot,
            [*(job.types[name] for name in source.quasi_identifiers), sensitive],
            most_values(records.n_records),
        )
    found = columns.pop(sensitive.name, None)
    if found is not None:
        return columns, found.values, found.codes.astype(np.int32)
    values = distinct_values(job.snapshot, sensitive)
    return columns, values, read_codes(job.snapshot, [values])[:, 0]
