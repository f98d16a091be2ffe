"""Publishes and verifies a bucketization [GB]: QIT, SAT and their weighted view.

Verification uses the published relations only, and shares nothing with the algorithms: buckets are
counted row by row, SQL compares frequencies with thresholds by cross-multiplying exact numbers, and
totals come from the published table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.bucketization.buckets import BucketContents
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy, PrivacySpecification
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, IntArray
from kanon_db.catalog.entries import Publication, Source, published_schema
from kanon_db.catalog.sources import require_sensitive
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError
from kanon_db.publications.buckets import assignment_methods
from kanon_db.publications.buckets._derived_tables import (
    write_batch,
    write_codes_and_weights,
    write_derived_tables,
)
from kanon_db.publications.buckets.assignment_methods import AssignedRecords, redraw_buckets
from kanon_db.publications.buckets.bucket_measurement import (
    answer_from_buckets,
    attack_buckets,
    evaluate_buckets,
    published_thresholds,
)
from kanon_db.publications.buckets.bucket_relations import (
    Strengths,
    Thresholds,
    bucket_layout,
    bucket_notes,
    check_strengths,
    check_weights,
    most_values,
    number_buckets,
    tables_of,
    write_qit,
    write_sat,
)
from kanon_db.publications.buckets.methods import ValueProtection
from kanon_db.publications.buckets.request import BucketRequest
from kanon_db.publications.codes import CodeTables, SideCheck, StoreCheck
from kanon_db.publications.guarantees import (
    buckets_in_words,
    check_exposure,
    measure_exposure,
    report_unbounded,
)
from kanon_db.publications.kind import (
    AttackTarget,
    Job,
    Kind,
    MethodResult,
    PublishedBuckets,
    RedrawnBuckets,
    Workload,
    Written,
    bytes_of_texts,
    measure_bounds,
)
from kanon_db.publications.relations import DecodedRows, Note, StagedRelations, check_relations
from kanon_db.publications.results import (
    Attack,
    Check,
    CountAccuracy,
    Examination,
    Remark,
    check_waiting,
)
from kanon_db.query.layout import CODES, QIT, SAT, SUFFIXES, VALUES, BucketTables, Quotes
from kanon_db.randomness import SecureRandom
from kanon_db.session import Session, fetch_one
from kanon_db.session.protocol import Row, run_with_helper, shared
from kanon_db.transfer.allowance import Allowance, Needs
from kanon_db.transfer.coded_columns import CodedRecords, most_bytes_read, read_few_values
from kanon_db.transfer.columns import (
    ColumnType,
    Relation,
    column_types,
    find_relation,
    fix_labels,
    label,
    parts_of,
)
from kanon_db.transfer.snapshot import Size
from kanon_db.transfer.values import (
    CodedColumn,
    DistinctCombinations,
    distinct_values,
    number_column,
    read_codes,
)


@dataclass(frozen=True)
class CountedBuckets:
    """The buckets of one table, counted from its rows."""

    records: int  # In all buckets
    differing: int  # Buckets whose size does not follow from their number
    unreadable: int  # Rows without a bucket or a count
    of_sizes: Mapping[int, int]  # The number of buckets of each size


@dataclass(frozen=True)
class BucketFindings:
    """Counts of QIT and SAT."""

    qit: CountedBuckets
    sat: CountedBuckets
    repeated: int  # Rows of the SAT for a bucket and values that have one already
    certain: int  # People of whom a sensitive value is certain: their bucket has no other one
    # Of each sensitive attribute; see :func:`~kanon_db.publications.guarantees.exposure_statement`
    exposures: Mapping[str, Mapping[str, Any]]

    def judged(
        self,
        n_buckets: int,
        parameters: Mapping[str, Any],
        records: int,
        relations: Check,
        further: Sequence[Check] = (),
    ) -> Examination:
        """Compare what was found with what was promised.

        Parameters
        ----------
        n_buckets : int
        parameters : mapping
            What the publisher asked for.
        records : int
            Number of records that the source had.
        relations : Check
            Whether the tables are those that were published.
        further : sequence of Check
            Checks of what follows from the tables, such as codes.
        """
        qit, sat, exposures = self.qit, self.sat, self.exposures
        is_one = len(exposures) == 1
        whose = {name: "" if is_one else f" of {name}" for name in exposures}
        sizes = sat.of_sizes
        loss = sum(n * (size - 1) ** 2 for size, n in sizes.items())
        checks = [
            relations,
            Check(
                "every record is published once",
                f"{records} records",
                f"{qit.records} in QIT, {sat.records} in SAT",
                holds=qit.records == sat.records == records,
            ),
            *(
                Check(
                    f"{table}: every bucket has the size that follows from its number",
                    f"{n_buckets} buckets, 0 differ",
                    f"{found.differing} differ, {found.unreadable} rows without a bucket or a"
                    " count",
                    holds=found.differing == found.unreadable == 0,
                )
                for table, found in (("QIT", qit), ("SAT", sat))
            ),
            Check(
                "SAT counts each"
                f" {'value' if is_one else 'combination of values'} of a bucket once",
                "0 rows violate it",
                f"{self.repeated} violate it",
                holds=self.repeated == 0,
            ),
            *(check_exposure("bucket", exposures[name], whose[name]) for name in exposures),
            *further,
        ]
        if "l" in parameters:
            checks += [
                Check(
                    f"l-diversity: frequency in bucket <= 1/l{whose[name]}",
                    f"l = {parameters['l']}",
                    f"{exposure['not_diverse']} pairs exceed it, largest frequency"
                    f" {exposure['frequency']:.6g}",
                    holds=exposure["not_diverse"] == 0,
                )
                for name, exposure in exposures.items()
            ]
        else:
            checks.append(
                Check(
                    "no bucket exceeds the largest size allowed",
                    f"at most {parameters['max_bucket_size']} records",
                    f"largest has {max(sizes, default=0)}",
                    holds=max(sizes, default=0) <= parameters["max_bucket_size"],
                )
            )
        checks.append(
            Remark(
                "people whose sensitive value is certain, in buckets of one value",
                "thresholds of 1 allow them",
                f"{self.certain} people",
            )
        )
        unbounded = 0.0
        if "l" not in parameters:
            for name, exposure in exposures.items():
                unbounded = max(unbounded, exposure["unbounded"] / max(exposure["records"], 1))
                checks.append(report_unbounded(exposure, whose[name]))
        checks.append(check_waiting(parameters))
        return Examination(
            checks,
            {
                "records": sat.records,
                "certain_records": self.certain,
                "unbounded_share": unbounded,
                "sensitive_values": sum(exposure["values"] for exposure in exposures.values()),
                "buckets": sum(sizes.values()),
                **{f"buckets_of_size_{size}": n for size, n in sizes.items()},
                "loss": loss,
                "msbs": loss / (sat.records - 1) if sat.records > 1 else 0.0,
                **{
                    metric: max(exposure[key] for exposure in exposures.values())
                    for metric, key in (
                        ("largest_frequency", "frequency"),
                        ("largest_frequency_ratio", "ratio"),
                    )
                },
            },
        )


def examine_buckets(
    session: Session,
    tables: BucketTables,
    parameters: Mapping[str, Any],
    *,
    records: int,
    codes: CodeTables,
    # The columns that order the records of a bucket, and those that do so by their bytes
    placed_by: Sequence[str],
    bytewise: Sequence[str],
    strengths: Strengths,
) -> Examination:
    """Check everything that a bucketization promises, and measure it, in any reader's session.

    If the relations are not those that were published, there are no metrics and no further checks.
    """
    view, *others = tables.relations
    relations = check_relations(
        session, "QIT and SAT are tables, and the view reads nothing else", view, others
    )
    if not relations.holds:
        return Examination([relations], {})
    likely = check_relations(
        session, "the view of weights reads nothing else", tables.likely, others
    )
    if not likely.holds:
        return Examination([relations, likely], {})
    further = [likely]
    session.step("checking the codes")
    store = StoreCheck(session, tables, codes, placed_by, bytewise)
    session.step("checking the sizes of buckets")
    qit = _count_qit(session, tables, store.qit)
    sat, profiles = _count_sat(session, tables, store.sat)
    privacy = PrivacySpecification.parse(json.dumps(parameters["privacy"]))
    session.step("checking the values of buckets")
    exposures = {
        name: measure_exposure(
            session,
            privacy.of_attribute(name, list(profiles)),
            "SELECT number, value, count, size, buckets FROM unnest($5::text[]::int4[], $6::text[],"
            " $7::text[]::numeric[], $8::text[]::numeric[], $9::text[]::int8[])"
            " AS p (number, value, count, size, buckets)",
            *profile.columns,
            l=str(parameters.get("l", 1)),
            by="number",
        )
        for name, profile in profiles.items()
    }
    certain = np.unique(np.concatenate([profile.certain for profile in profiles.values()]))
    n_certain = int(sat.sizes_of(certain).sum())
    session.step("checking the codes")
    further.append(store.check())
    if tables.weighted and further[-1].holds:
        session.step("checking the weights of values")
        further.append(check_weights(session, tables, codes, limits_of(parameters, tables)))
    if strengths and further[-1].holds:
        session.step("measuring how strongly values depend on quasi-identifiers")
        further.append(check_strengths(session, tables, codes, placed_by, strengths))
    found = BucketFindings(qit.counted, sat.counted, sat.repeated, n_certain, exposures)
    return found.judged(tables.n_buckets, parameters, records, relations, further)


_PAIR = np.dtype([("bucket", ">i4"), ("count", ">i4")])
_PAIRS_AT_ONCE: Final = 2**18  # looked at together, so that copies of them are small


class _Buckets:
    """The buckets of one table, counted from its rows."""

    def __init__(self, tables: BucketTables) -> None:
        self._sizes = np.zeros(tables.n_buckets + 1, dtype=np.int64)
        self._expected = np.repeat([0, *tables.sizes], [1, *tables.buckets_of_sizes])
        self.unreadable = 0
        self.repeated = 0

    def add(self, n_rows: int, bucket_ids: AnyIntArray, counts: AnyIntArray | None = None) -> None:
        """Count rows, of one record or `counts` each, and those without a bucket or a count."""
        known = (bucket_ids >= 1) & (bucket_ids < self._sizes.size)
        if counts is not None:
            known &= counts >= 1
            counts = counts[known]  # exact as floating-point numbers: at most 2^53 records
        self._sizes += np.bincount(bucket_ids[known], counts, self._sizes.size).astype(np.int64)
        self.unreadable += n_rows - int(np.count_nonzero(known))

    def sizes_of(self, bucket_ids: AnyIntArray) -> IntArray:
        """Return the records in some buckets."""
        known = bucket_ids[(bucket_ids >= 1) & (bucket_ids < self._sizes.size)]
        sizes: IntArray = self._sizes[known]
        return sizes

    @property
    def counted(self) -> CountedBuckets:
        """What was counted."""
        sizes, counts = np.unique(self._sizes[1:], return_counts=True)
        return CountedBuckets(
            records=int(self._sizes.sum()),
            differing=int((self._sizes != self._expected).sum()),
            unreadable=self.unreadable,
            of_sizes={int(size): int(n) for size, n in zip(sizes, counts, strict=True) if size},
        )


class _Profile:
    """In how many buckets of each size a value occurs how often."""

    def __init__(self, tables: BucketTables) -> None:
        self.columns: tuple[list[str | None], ...] = ([], [], [], [], [])
        """Number of the value, its text, how often, size of the bucket, and how many buckets."""
        self._certain: list[AnyIntArray] = []
        self._firsts = np.array(tables.first_bucket_ids)
        self._sizes = np.array([0, *tables.sizes])

    def add(self, rows: _Pairs) -> None:
        """Add rows."""
        width, most = self._sizes.size, 1 + int(rows.counts.max(initial=0))
        for start in range(0, rows.buckets.size, _PAIRS_AT_ONCE):
            some = slice(start, start + _PAIRS_AT_ONCE)
            buckets, counts, values = rows.buckets[some], rows.counts[some], rows.values[some]
            classes = np.searchsorted(self._firsts, buckets, side="right")
            self._certain.append(buckets[(classes > 0) & (counts == self._sizes[classes])])
            keys = (values.astype(np.int64) * most + counts) * width + classes
            for key, n in zip(*map(np.ndarray.tolist, np.unique_counts(keys)), strict=True):
                pair, size_class = divmod(key, width)
                value, count = divmod(pair, most)
                # A bucket below all numbers has no size.
                size = str(self._sizes[size_class]) if self._sizes[size_class] else None
                row = (rows.numbers[value], rows.labels[value], str(count), size, str(n))
                for column, text in zip(self.columns, row, strict=True):
                    column.append(text)

    @property
    def certain(self) -> AnyIntArray:
        """The buckets that have a single value."""
        return np.concatenate([np.empty(0, dtype=np.int32), *self._certain])


_MOST_SHARED = 2**22
"""Records of which all numbers are fetched at once."""

_MOST_AT_ONCE = 2**26
"""Rows whose numbers the server puts into one value, which may have a gigabyte."""


def _grouped_by(tables: BucketTables, *columns: str) -> str:
    """Group rows also by parts of the buckets, each of them in one, if there are many rows."""
    n_parts = -(-tables.n_records // _MOST_AT_ONCE)
    if n_parts > 1:
        columns += (f"s.bucket / {1 + tables.n_buckets // n_parts}",)
    return f" GROUP BY {', '.join(columns)}" if columns else ""


def _read_counts(session: Session, tables: BucketTables, statement: str) -> Iterator[list[Row]]:
    """Yield the rows of a statement, in batches: all read at once, or many one by one."""
    rows: Iterable[Row]
    if tables.n_records > _MOST_SHARED:
        rows = session.stream(1, statement)
    else:
        with shared(session):  # may make a parallel plan
            rows = session.fetch(statement)
    batch, n_pairs = list[Row](), 0
    for row in rows:
        batch.append(row)
        n_pairs += row["rows"]
        if n_pairs >= _PAIRS_AT_ONCE:
            yield batch
            batch, n_pairs = [], 0
    if batch:
        yield batch


def _count_qit(session: Session, tables: BucketTables, side: SideCheck) -> _Buckets:
    """Count the records of each bucket, and add each row to what the store is compared with."""
    found = _Buckets(tables)
    sent, joins = side.sent(lambda name: f"r.{session.identifier(name)}")
    fields = np.dtype([*side.fields, ("bucket", ">i4")])
    for part in parts_of(session, tables.qit, tables.n_records, "r"):
        with run_with_helper(session):
            row = fetch_one(
                session,
                "SELECT count(*) AS n, string_agg(s.sent, ''::bytea) AS rows FROM (SELECT"
                f" {sent} || int4send(r.{tables.bucket_id}) AS sent"
                f" FROM {tables.qit} AS r{joins} WHERE {part} OFFSET '0') AS s",
            )
        lines = np.frombuffer(row["rows"] or b"", dtype=fields)
        found.add(row["n"], lines["bucket"])
        side.add(lines, lines["bucket"])
    return found


def _count_sat(
    session: Session, tables: BucketTables, side: SideCheck
) -> tuple[_Buckets, dict[str, _Profile]]:
    """Count the rows of each bucket, and of each attribute the values in it.

    Rows are added to what the store is compared with.
    """
    found = _Buckets(tables)
    profiles = {name: _Profile(tables) for name in tables.sensitive}
    together = {name: f"value_{i}" for i, name in enumerate(tables.sensitive)}
    rows = ", ".join(f"{sql} AS {together[name]}" for name, sql in tables.sensitive.items())
    rows = f"SELECT {tables.bucket_id} AS bucket, {rows}, {tables.count} AS n FROM {tables.sat}"
    with fix_labels(session):
        for read in _read_pairs(session, tables, rows, together, side):
            found.add(read.n_rows, read.buckets, read.counts)
            found.repeated += read.n_repeated
            side.add(read.sent[read.values], read.buckets, read.counts)
            if len(profiles) == 1:
                profiles[next(iter(profiles))].add(read)
        for name, value in together.items() if len(profiles) > 1 else ():
            own = (
                f"SELECT bucket, {value}, least(sum(n), 2147483647)::int4 AS n"
                f" FROM ({rows}) AS r GROUP BY bucket, {value}"
            )
            for read in _read_pairs(session, tables, own, {name: value}):
                profiles[name].add(read)
    return found, profiles


class _Pairs(NamedTuple):
    """Rows of the SAT, all that have one of some combinations of values."""

    numbers: list[str]  # which tell combinations apart
    labels: list[str | None]  # the texts of values alone
    sent: npt.NDArray[np.void]  # of the values; see :meth:`SideCheck.sent`
    n_rows: int  # of which some may have no bucket or no count; of the others:
    values: CodeArray  # the place of the combination
    buckets: CodeArray
    counts: CodeArray

    @property
    def n_repeated(self) -> int:
        """How many have the bucket and the combination of another one before."""
        keys = self.buckets.astype(np.int64) * len(self.numbers) + self.values
        keys.sort()
        return int(np.count_nonzero(keys[1:] == keys[:-1]))


def _read_pairs(
    session: Session,
    tables: BucketTables,
    rows: str,
    columns: Mapping[str, str],
    side: SideCheck | None = None,
) -> Iterator[_Pairs]:
    """Yield the rows ``(bucket, …, n)`` of combinations of values, given by their columns."""
    named = [f"s.{column}" for column in columns.values()]
    values = ", ".join(named)
    shown = label(values) if len(columns) == 1 else "NULL::text"
    sent, joins, fields = "int8send(0)", "", [("nothing", ">i8")]
    if side is not None:
        (sent, joins), fields = side.sent(lambda name: f"s.{columns[name]}"), side.fields
    for batch in _read_counts(
        session,
        tables,
        # A prepared statement fails where the collation of its result has changed since.
        f'SELECT dense_rank() OVER (ORDER BY {values}) AS number, {shown} COLLATE "C" AS label,'
        f" s.rows, s.pairs, {sent} AS sent FROM (SELECT {values}, count(*) AS rows,"
        " string_agg(s.sent, ''::bytea) AS pairs FROM (SELECT r.*,"
        f" int4send(r.bucket) || int4send(r.n) AS sent FROM ({rows}) AS r OFFSET 0) AS s"
        f"{_grouped_by(tables, *named)}) AS s{joins}",
    ):
        texts = [row["pairs"] or b"" for row in batch]
        lengths = [len(text) // _PAIR.itemsize for text in texts]
        pairs = np.frombuffer(b"".join(texts), dtype=_PAIR)
        yield _Pairs(
            [str(row["number"]) for row in batch],
            [row["label"] for row in batch],
            np.frombuffer(b"".join(row["sent"] for row in batch), np.dtype(fields)),
            sum(row["rows"] for row in batch),
            np.repeat(np.arange(len(batch), dtype=np.int32), lengths),
            *(pairs[key].astype(np.int32) for key in ("bucket", "count")),
        )


@dataclass(frozen=True, eq=False)
class _Assignment:
    """The sensitive values as read, and the bucket of each record."""

    assigned: AssignedRecords
    columns: Mapping[str, CodedColumn]  # The quasi-identifiers with few values
    sensitive: DistinctCombinations  # The values of the sensitive attributes
    codes: CodeArray  # (n_records,): the codes of their combinations
    protection: ValueProtection


_COMBINED: Final = 240
"""Bytes for each record, while its combination of several sensitive values is found and dealt: of
1,000,000 records, 177 to 232 were measured."""


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
    protects_several = True

    def digested(self, layout: Mapping[str, Any]) -> Sequence[str]:  # noqa: ARG002
        """Name the codes, from which QIT and SAT follow."""
        return (VALUES, CODES)

    def prepare(self, request: BucketRequest, source: Source) -> None:
        """Refuse a source without a sensitive attribute, or whose people get other records."""
        require_sensitive(source, "buckets need a sensitive attribute")
        for name in source.all_sensitive:
            request.privacy.of_attribute(name, source.all_sensitive)
        if source.also_sensitive and request.assignment == "m_invariant":
            raise InvalidParameterError(
                "the assignment m_invariant protects one sensitive attribute",
                detail=f"{source.relation} was registered with {len(source.all_sensitive)}",
                hint="leave out the assignment, or give assignment => 'random'",
            )
        if request.assignment == "m_invariant" and not source.keeps_first:
            raise InvalidParameterError(
                "m_invariant buckets need a record of each person that later ones do not replace",
                detail=f"{source.relation}: each person is published with one record,"
                f" {source.kept_in_words}",
                hint="register the source with keep => 'first by COLUMN', without aggregates, or"
                " take another assignment",
            )

    def bounds_values(self, request: BucketRequest) -> bool:  # noqa: ARG002
        """Bound all of them."""
        return True

    def risks(self, request: BucketRequest) -> Sequence[str]:
        """Weights of any size say of some people what a learner finds out."""
        return ["uncapped_estimates"] if request.estimates == "uncapped" else []

    def columns(self, source: Source, types: Mapping[str, ColumnType]) -> list[str]:  # noqa: ARG002
        """Read only what is published."""
        return [*source.quasi_identifiers, *source.all_sensitive]

    def comparable(self, source: Source) -> Sequence[str]:
        """Name all published columns, since their values are counted."""
        return [*source.quasi_identifiers, *source.all_sensitive]

    def needs(
        self,
        request: BucketRequest,
        source: Source,
        types: Mapping[str, ColumnType],  # noqa: ARG002
        size: Size,
    ) -> Needs:
        """See :meth:`Kind.needs`; the search for cells keeps codes of all columns."""
        n_columns = len(source.all_sensitive) + len(source.quasi_identifiers)
        is_random = request.assignment == "random"
        fixed, record = (120e6, 80) if is_random else (140e6, 80 + 12 * n_columns)
        fixed += most_bytes_read(size.n_records, n_columns) + bytes_of_texts(size)
        if source.also_sensitive:
            record += _COMBINED
        if request.method == "optimal":
            fixed += 30_000 * request.max_bucket_size
        return Needs(fixed + record * size.n_records, (100 + 3.4 * size.width) * size.n_records)

    def search(self, job: Job[BucketRequest]) -> MethodResult:
        """Find a bucket setting, and the bucket of each record."""
        request = job.request
        columns, sensitive, codes = _read(job)
        protection = ValueProtection.of(
            request, dict(zip(job.source.all_sensitive, sensitive.columns, strict=True))
        )
        assign = getattr(assignment_methods, request.assignment)
        data, searched = protection.data_of(sensitive, codes)
        found: MethodResult = assign(job, data, searched, columns)
        result = _Assignment(found.result, columns, sensitive, codes, protection)
        return replace(found, result=result)

    def write(self, job: Job[BucketRequest], found: MethodResult) -> Written:
        """Write QIT, SAT, view, codes, and the weights of values."""
        session, source = job.session, job.source
        assignment: _Assignment = found.hand_over()
        setting, sensitive, codes = (
            assignment.assigned.setting, assignment.sensitive, assignment.codes,
        )  # fmt: skip
        random = job.random
        bucket_ids = number_buckets(setting, random)[assignment.assigned.slots]
        layout = bucket_layout(source, setting)
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
            columns = dict(zip(tables.quasi_identifiers, named, strict=True))
            DecodedRows(session, columns, {tables.bucket_id: bucket_ids}).write(staging, QIT, order)
        else:
            write_qit(staging, tables, job.snapshot, bucket_ids, order)
        contents = BucketContents.of(codes, bucket_ids, setting)
        certain = write_sat(staging, tables, sensitive, contents)
        staging.create_weighted_view(layout, QIT, SAT)
        cells = assignment.assigned.cells
        # Where all records are in one cell, buckets are drawn from the whole table.
        is_random = job.request.assignment in ("random", "m_invariant") or cells == 1
        layout["assignment"] = "random" if is_random else job.request.assignment
        l = assignment.protection.l
        parameters: dict[str, Any] = {} if l is None else {"l": l}
        wide = {
            name: number_column(job.snapshot, job.types[name])
            for name in source.quasi_identifiers
            if name not in assignment.columns
        }
        layout |= write_codes_and_weights(
            staging, tables, layout, assignment.columns, wide, sensitive, contents, bucket_ids,
            order, largest_weights(asked_for(job.request, parameters), tables), random,
        )  # fmt: skip
        sensitive.drop()
        for column in assignment.columns.values():
            column.values.drop()
        session.step("gathering statistics")
        staging.analyze(QIT, SAT)
        return Written(
            assignment.protection.guarantee(job.request, certain, session),
            layout=layout,
            parameters=parameters,
            metrics={} if cells is None else {"cells": cells},
            signatures=None if signed is None else signed.numbers,
        )

    def promise_in_words(self, target: AttackTarget, linked: str) -> str:  # noqa: ARG002
        """See :func:`.buckets_in_words`."""
        parameters, names = target.publication.parameters, target.publication.all_sensitive
        given = {"l": parameters["l"]} if "l" in parameters else parameters["privacy"]
        privacy = PrivacySpecification.parse(given)
        own = {name: privacy.of_attribute(name, names) for name in names}
        return buckets_in_words(measure_bounds(target, own))

    def renews(self, publication: Publication) -> bool:
        """Buckets that keep their signatures are drawn anew, without those who have left."""
        return publication.parameters.get("assignment") == "m_invariant"

    def renew(
        self, job: Job[BucketRequest], old: Publication, signature_of: CodeArray
    ) -> RedrawnBuckets:
        """See :func:`redraw_buckets`."""
        found = redraw_buckets(job, old, signature_of)
        if not found.job.records.n_records:
            return RedrawnBuckets(
                found.job, MethodResult(None), 0, 0, found.n_left_out, found.n_waiting
            )
        columns, sensitive, codes = _read(found.job)
        drawn = found.drawn
        assigned = AssignedRecords(drawn.setting, drawn.slots, signed=drawn.signed)
        l = int(old.parameters["l"])
        privacy = FPrimePrivacy((Fraction(1, l),) * len(sensitive.counts))
        lists = tuple(old.promise.get("lists", ()))
        protection = ValueProtection(found.job.source.all_sensitive, (privacy,), l, 0.0, lists)
        result = _Assignment(assigned, columns, sensitive, codes, protection)
        return RedrawnBuckets(
            found.job,
            MethodResult(result),
            found.n_stay,
            found.n_new,
            found.n_left_out,
            found.n_waiting,
        )

    def frozen(self, session: Session, publication: Publication, request: BucketRequest) -> Any:
        """Keep the thresholds of values that the first batch had; others get the least one."""
        privacy, tables = request.privacy, tables_of(session, publication)
        if not any(one.theta for one in (privacy, *privacy.attributes.values())):
            return replace(request, privacy=replace(privacy, may_be_absent=True))
        names = list(tables.sensitive)
        each = {
            name: _frozen(session, tables, column, privacy.of_attribute(name, names))
            for name, column in tables.sensitive.items()
        }
        given = each[names[0]] if len(names) == 1 else {"attributes": each}
        fixed = replace(PrivacySpecification.parse(json.dumps(given)), may_be_absent=True)
        return replace(request, privacy=fixed, given={**request.given, "privacy": given})

    def extend(
        self, job: Job[BucketRequest], old: Publication, batch: Written, whole: StagedRelations
    ) -> Written:
        """See :meth:`Kind.extend`: buckets of one size follow each other, the old ones first."""
        tables = BucketTables.of(job.session, job.schema, job.staging.name, batch.layout)
        return write_batch(
            job,
            old,
            batch,
            whole,
            largest_weights(asked_for(job.request, batch.parameters), tables),
        )

    def complete(
        self, staging: StagedRelations, publication: Publication, room: Allowance
    ) -> Mapping[str, Any]:
        """See :func:`write_derived_tables`."""
        tables = BucketTables.of(staging.session, staging.schema, staging.name, publication.layout)
        types = {}
        for suffix in self.told:
            named = Relation(staging.schema, staging.name + suffix)
            _, oid, _ = find_relation(staging.session, named.quoted(staging.session))
            types.update(column_types(staging.session, oid))
        layout = write_derived_tables(
            staging.session, staging, publication.layout, types, room, SecureRandom(),
            largest_weights(publication.parameters, tables),
        )  # fmt: skip
        # Files that state no strengths, such as Spark's, are answered with the same errors here.
        return layout if "strengths" in publication.layout else {**layout, "strengths": {}}

    def examine(
        self,
        session: Session,
        publication: Publication,
        *,
        is_new: bool = False,
    ) -> Examination:
        """See :func:`examine_buckets`."""
        return examine_buckets(
            session,
            tables_of(session, publication),
            publication.parameters,
            records=publication.records,
            codes=CodeTables.of(
                session, published_schema(session), publication.name, publication.layout
            ),
            placed_by=publication.layout["placed_by"],
            bytewise=publication.layout["bytewise"],
            # What was measured just now is not measured again.
            strengths={} if is_new else publication.layout.get("strengths", {}),
        )

    def partition(
        self, session: Session, schema: str, publication: Publication
    ) -> PublishedBuckets | None:
        """Read QIT and SAT; None if readers may have copies of other buckets of it."""
        if publication.parameters.get("renewals") or len(publication.all_sensitive) > 1:
            return None
        layout = publication.layout
        tables = BucketTables.of(session, schema, publication.name, layout)
        names = map(str, layout["quasi_identifiers"])
        (value,) = tables.sensitive.values()
        return PublishedBuckets(
            tables.qit, tables.sat, tables.bucket_id, value, tables.count,
            dict(zip(names, tables.quasi_identifiers, strict=True)), str(layout["sensitive"]),
            partial(
                published_thresholds, publication.parameters, str(layout["sensitive"]),
                publication.all_sensitive,
            ),
        )  # fmt: skip

    def notes(self, publication: Publication, quotes: Quotes) -> Mapping[str, Note]:
        """See :func:`bucket_notes`."""
        return bucket_notes(publication, quotes)

    def evaluate(self, target: AttackTarget, workload: Workload) -> Sequence[CountAccuracy]:
        """See :func:`evaluate_buckets`."""
        return evaluate_buckets(target, workload, partial(answer_from_buckets, target))

    def attack(self, target: AttackTarget) -> Sequence[Attack]:
        """See :func:`attack_buckets`."""
        return attack_buckets(target)


KIND: Final = Buckets()


def asked_for(request: BucketRequest, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides about weights, of a request, as the catalog will keep it."""
    return {
        "privacy": request.privacy.as_json(),
        "assignment": request.assignment,
        "estimates": request.estimates,
        **parameters,
    }


def largest_weights(parameters: Mapping[str, Any], tables: BucketTables) -> Thresholds | None:
    """Return what bounds the weights that are to be learned; None for none at all."""
    if parameters.get("estimates") == "paper":
        return None
    if parameters.get("estimates") == "uncapped":
        return lambda _name, labels, _counts: [Fraction(1)] * len(labels)
    return limits_of(parameters, tables)


def limits_of(parameters: Mapping[str, Any], tables: BucketTables) -> Thresholds | None:
    """Return the thresholds that weights keep, from what the catalog knows; None if they do not."""
    if parameters.get("estimates", "capped") != "capped":
        return None
    attributes = list(tables.sensitive)
    return lambda name, labels, counts: published_thresholds(
        parameters, name, attributes, labels, counts
    )


def _frozen(
    session: Session, tables: BucketTables, column: str, privacy: PrivacySpecification
) -> dict[str, Any]:
    """Write the thresholds of an attribute's published values; others get the least one."""
    if not privacy.theta:
        return privacy.as_json()
    with fix_labels(session):
        rows = session.fetch(
            f"SELECT {label(f's.{column}')} AS value, sum(s.{tables.count})::int8 AS n"
            f" FROM {tables.sat} AS s GROUP BY 1 ORDER BY 1"
        )
    labels = [row["value"] for row in rows]
    found = replace(privacy, may_be_absent=True).thresholds(labels, [row["n"] for row in rows])
    thresholds = dict(zip(labels, found.thresholds, strict=True))
    null = thresholds.pop(None, None)
    given: dict[str, Any] = {"values": {k: str(v) for k, v in thresholds.items()}}
    others = [one for one in (privacy.base, privacy.default, privacy.cap) if one]
    if others:
        given["default"] = str(min(others))
    if null is not None:
        given["null"] = str(null)
    return given


def _read(job: Job[Any]) -> tuple[dict[str, CodedColumn], DistinctCombinations, CodeArray]:
    """Read the quasi-identifiers with few values, and the sensitive attributes."""
    records, source = job.records, job.source
    sensitive = [job.types[name] for name in source.all_sensitive]
    if isinstance(records, CodedRecords):
        columns = dict(records.columns)
    else:
        columns = read_few_values(
            job.snapshot,
            [*(job.types[name] for name in source.quasi_identifiers), *sensitive],
            most_values(records.n_records),
        )
    known = {column.name: columns.pop(column.name, None) for column in sensitive}
    left = [column for column in sensitive if known[column.name] is None]
    if left:
        others = [distinct_values(job.snapshot, column) for column in left]
        for one, its_codes in zip(others, read_codes(job.snapshot, others).T, strict=True):
            known[one.column.name] = CodedColumn(one, its_codes)
    found = [one for one in known.values() if one is not None]
    return columns, *DistinctCombinations.of(
        [one.values for one in found], [one.codes for one in found]
    )
