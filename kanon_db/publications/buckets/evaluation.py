"""How well a bucketization answers random count queries, compared with its source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, FloatArray, IntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.counting.layout import QIT
from kanon_db.metrics.count_errors import estimated_counts, exact_counts
from kanon_db.metrics.workload import CountQuery
from kanon_db.publications.buckets.tables import BucketTables
from kanon_db.publications.kind import Target
from kanon_db.publications.results import CountAccuracy
from kanon_db.publications.usefulness import Compared, Workload, compare_counts
from kanon_db.session import Session, fetch_one
from kanon_db.transfer.columns import Relation
from kanon_db.transfer.snapshot import take_snapshot
from kanon_db.transfer.values import (
    DistinctValues,
    coalesced_codes,
    distinct_values,
    read_codes,
    read_integers,
    read_known_codes,
)


def evaluate_buckets(target: Target, workload: Workload) -> list[CountAccuracy]:
    """Answer random count queries from a bucketization and from its source, and compare them.

    Returns
    -------
    list of CountAccuracy
        One for each selectivity, then one for all queries.

    Notes
    -----
    **Source:** [GB] Sections 3.2 and 7.2; see :func:`~kanon_db.metrics.workload.random_queries`.
    The estimates are the paper's, computed from QIT and SAT. Those of `estimate_count` are these,
    corrected where buckets are random.
    """
    session, layout, types = target.session, target.publication.layout, target.types
    sensitive_column, columns = layout["sensitive"], layout["quasi_identifiers"]
    session.phase("reading the source")
    snapshot = take_snapshot(
        session, target.source.relation, [*columns, sensitive_column], target.room
    )
    values = [distinct_values(snapshot, types[column]) for column in columns]
    sensitive = distinct_values(snapshot, types[sensitive_column])

    def count(chosen: Sequence[CountQuery]) -> IntArray:
        codes = read_codes(snapshot, values), read_codes(snapshot, [sensitive])[:, 0]
        found = exact_counts(*codes, chosen, pulse=target.pulse())
        snapshot.drop()
        return found

    def estimate(chosen: Sequence[CountQuery]) -> FloatArray:
        found = estimate_counts(read_buckets(target, values, sensitive), chosen, target.pulse())
        for column in (*values, sensitive):
            column.drop()
        return found

    return compare_counts(
        workload,
        [len(column.labels) for column in values],
        len(sensitive.labels),
        Compared(session.phase, snapshot.hold, count, estimate),
        target.pulse(),
    )


@dataclass(frozen=True, eq=False)
class CodedBuckets:
    """QIT and SAT by the codes of the source's values; buckets are numbered from 0.

    Attributes
    ----------
    bucket_of_record : ndarray of int32, shape (n_records,)
    codes : ndarray of int32, shape (n_records, n_qi)
    buckets, values, counts : ndarray of int32, shape (n_rows,)
        The rows of the SAT.
    """

    bucket_of_record: CodeArray
    codes: CodeArray
    buckets: CodeArray
    values: CodeArray
    counts: CodeArray


def read_buckets(
    target: Target, values: Sequence[DistinctValues], sensitive: DistinctValues
) -> CodedBuckets:
    """Read QIT and SAT; a value that the source no longer has gets the code after the last one."""
    session, publication = target.session, target.publication
    tables = BucketTables.of(session, target.schema, publication.name, publication.layout)
    columns = [*publication.layout["quasi_identifiers"], publication.layout["bucket_id"]]
    qit = take_snapshot(
        session, Relation(target.schema, publication.name + QIT), columns, target.room
    )
    bucket_of_record = read_integers(qit, f"s.{tables.bucket_id}") - np.int32(1)
    codes = _known(read_known_codes(qit, values), values)
    qit.drop()
    sat_buckets, sat_codes, sat_counts = _read_sat(session, tables, sensitive)
    its_values = _known(sat_codes[:, np.newaxis], [sensitive])[:, 0]
    return CodedBuckets(bucket_of_record, codes, sat_buckets - np.int32(1), its_values, sat_counts)


def estimate_counts(read: CodedBuckets, queries: Sequence[CountQuery], pulse: Pulse) -> FloatArray:
    """Estimate from QIT and SAT, whose values have the same codes as in the source."""
    return estimated_counts(
        read.bucket_of_record,
        read.codes,
        read.buckets,
        read.values,
        read.counts,
        [with_unknown(query, pulse) for query in queries],
        pulse=pulse,
    )


def _known(codes: CodeArray, columns: Sequence[DistinctValues]) -> CodeArray:
    """Give values that the source no longer has a code of their own, which no query asks for."""
    n_values = np.array([len(values.labels) for values in columns], dtype=np.int32)
    return np.where(codes < 0, n_values, codes)


def with_unknown(query: CountQuery, pulse: Pulse) -> CountQuery:
    """Add the code of values that the source no longer has, which no query asks for."""
    pulse.beat()
    return CountQuery(
        {a: np.append(codes, False) for a, codes in query.quasi_identifiers.items()},
        np.append(query.sensitive, False),
        query.selectivity,
    )


def _read_sat(
    session: Session, tables: BucketTables, sensitive: DistinctValues
) -> tuple[CodeArray, CodeArray, CodeArray]:
    code = coalesced_codes(f"s.{tables.sensitive}", sensitive, "v")
    row = fetch_one(
        session,
        f"SELECT string_agg(int4send(s.{tables.bucket_id}) || int4send({code})"
        f" || int4send(s.{tables.count}), ''::bytea) AS numbers FROM {tables.sat} AS s"
        f" LEFT JOIN {sensitive.table} AS v"
        f" ON s.{tables.sensitive} {sensitive.column.operator(session, '=')} v.value",
    )
    numbers = np.frombuffer(row["numbers"], dtype=">i4").reshape(-1, 3).astype(np.int32)
    return numbers[:, 0], numbers[:, 1], numbers[:, 2]
