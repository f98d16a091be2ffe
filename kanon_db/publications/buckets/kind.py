"""Publishing a bucketization [GB]: QIT, SAT and their weighted view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kanon_db.algorithms.bucketization.random_assignment import assign_randomly
from kanon_db.algorithms.bucketization.specification import check_eligible
from kanon_db.algorithms.ground.arrays import CodeArray
from kanon_db.catalog.entries import Publication, Source
from kanon_db.catalog.sources import require_sensitive
from kanon_db.publications.buckets import methods
from kanon_db.publications.buckets.attack import attack_buckets
from kanon_db.publications.buckets.bitmaps import write_bitmaps
from kanon_db.publications.buckets.examine import count_certain, examine_buckets
from kanon_db.publications.buckets.methods import Plan, SensitiveValues, plan_of
from kanon_db.publications.buckets.request import BucketRequest
from kanon_db.publications.buckets.tables import SUFFIXES, BucketTables, layout_of, tables_of
from kanon_db.publications.buckets.writing import number_buckets, write_qit, write_sat, write_view
from kanon_db.publications.exposure import share_unbounded
from kanon_db.publications.kind import Found, Job, Kind, Target, Written, run_method
from kanon_db.publications.results import Attack, Examination
from kanon_db.randomness import SecureRandom
from kanon_db.session import Session
from kanon_db.transfer.columns import ColumnType
from kanon_db.transfer.snapshot import DistinctValues, distinct_values, read_codes


@dataclass(frozen=True, eq=False)
class _Assignment:
    """A bucket setting, and the bucket of each record: numbered by size, from 0."""

    plan: Plan
    slots: CodeArray
    values: DistinctValues
    codes: CodeArray
    unbounded: float


class Buckets(Kind):
    """The kind ``buckets``.

    Notes
    -----
    **Source:** [GB] sections 3 to 5. The setting depends only on the values' counts, so the cost of
    finding it does not grow with the table. The records of each value are shuffled, and dealt round
    robin to the buckets of a size (RRA, Lemma 2). Bucket numbers are a random permutation within
    each size, and the rows of the QIT are in another random order. All of this is drawn from the
    operating system's cryptographic source.
    """

    suffixes = SUFFIXES

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

    def search(self, job: Job[BucketRequest]) -> Found:
        """Find a bucket setting, and the bucket of each record."""
        request, snapshot = job.request, job.snapshot
        values = distinct_values(snapshot, job.types[str(job.source.sensitive)])
        codes = read_codes(snapshot, [values])[:, 0]
        check_eligible(request.privacy, values.labels, values.counts)
        privacy = request.privacy.thresholds(values.labels, values.counts)
        unbounded = share_unbounded(privacy, values.counts)
        data = SensitiveValues(values.labels, values.counts, privacy)
        if request.assignment == "local":
            plan, slots = _assign_locally(job, data, codes)
            return Found(_Assignment(plan, slots, values, codes, unbounded), method="local")
        job.session.step("searching the bucket setting")
        found = run_method(methods, job, data)
        plan = found.result
        job.session.step("assigning records to buckets")
        slots = assign_randomly(codes, values.counts, plan.limits, plan.setting, SecureRandom())
        return Found(_Assignment(plan, slots, values, codes, unbounded), found.proof)

    def write(self, job: Job[BucketRequest], found: Found) -> Written:
        """Write QIT, SAT, view and bitmaps."""
        session, snapshot, source = job.session, job.snapshot, job.source
        assigned: _Assignment = found.result
        plan, values, codes = assigned.plan, assigned.values, assigned.codes
        random = SecureRandom()
        bucket_ids = number_buckets(plan.setting, random)[assigned.slots]
        layout = layout_of(source, plan.setting)
        tables = BucketTables.of(session, job.schema, job.request.publication, layout)
        # A new random order: in that of the assignment, records of one value follow each other.
        order = random.permutation(snapshot.n_records)
        write_qit(tables, snapshot, bucket_ids, order)
        write_sat(tables, snapshot, values, codes, bucket_ids)
        write_view(tables, session)
        layout["with_bitmaps"] = write_bitmaps(
            tables, snapshot, values, source.quasi_identifiers, str(source.sensitive), codes,
            bucket_ids, plan.setting, order,
        )  # fmt: skip
        values.drop()
        session.step("gathering statistics")
        session.fetch(f"ANALYZE {tables.qit}, {tables.sat}")
        certain = count_certain(session, tables)
        unbounded = assigned.unbounded if plan.l is None else 0.0
        if unbounded:
            session.warn(f"the threshold is 1 for {unbounded:.1%} of the records: no bound")
        if certain:
            session.warn(f"the value of {certain} people is certain: their buckets have no other")
        return Written(
            _guarantee(job.request, plan, certain, unbounded),
            tables.relations,
            layout=layout,
            parameters={} if plan.l is None else {"l": plan.l},
            metrics={"unbounded_share": unbounded},
        )

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

    def attack(self, target: Target) -> Sequence[Attack]:
        """See :func:`attack_buckets`."""
        return attack_buckets(target)


KIND: Final = Buckets()


def _assign_locally(
    job: Job[BucketRequest], data: SensitiveValues, codes: CodeArray
) -> tuple[Plan, CodeArray]:
    """Put records with similar quasi-identifiers into the same bucket."""
    from kanon_db.algorithms.bucketization.local_assignment import assign_locally  # a compiler

    columns = [
        distinct_values(job.snapshot, job.types[name]) for name in job.source.quasi_identifiers
    ]
    qi_codes = read_codes(job.snapshot, columns)
    for column in columns:
        column.drop()
    job.session.step("gathering similar records")
    found = assign_locally(
        qi_codes, codes, data.privacy, job.request.max_bucket_size, SecureRandom(),
        pulse=job.pulse(),
    )  # fmt: skip
    return plan_of(data, found.setting), found.bucket_of_record


def _guarantee(request: BucketRequest, plan: Plan, certain: int, unbounded: float) -> str:
    if plan.l is not None:
        return (
            f"{plan.l}-diversity: no person's sensitive value can be inferred with a probability"
            f" above 1/{plan.l}"
        )
    guarantee = (
        "F'-privacy: no person's sensitive value can be inferred with a probability above the"
        f" threshold of that value ({request.privacy.describe()})"
    )
    if request.assignment == "local":
        guarantee += ", by readers who do not know how records were put into buckets"
    if unbounded:
        guarantee += f"; the threshold is 1 for {unbounded:.1%} of the records"
    if certain:
        guarantee += f"; the value of {certain} people is certain"
    return guarantee
