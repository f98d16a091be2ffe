"""How well a bucketization answers random count queries, compared with its source."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, FloatArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.catalog.entries import (
    Publication,
    find_publication,
    published_schema,
    source_of,
)
from kanon_db.catalog.sources import open_source
from kanon_db.errors import InvalidParameterError
from kanon_db.metrics.count_errors import CountErrors, estimated_counts, exact_counts
from kanon_db.metrics.workload import CountQuery, random_queries
from kanon_db.publications.buckets.tables import SUFFIXES, BucketTables, tables_of
from kanon_db.publications.examination import require_whole
from kanon_db.publications.registry import kind_named
from kanon_db.session.protocol import Session, fetch_one
from kanon_db.transfer.columns import Relation
from kanon_db.transfer.room import Room
from kanon_db.transfer.snapshot import take_snapshot
from kanon_db.transfer.values import (
    DistinctValues,
    coalesced_codes,
    distinct_values,
    read_codes,
    read_integers,
    read_known_codes,
)

SELECTIVITY: Final = (0.01, 0.05, 0.1)


@dataclass(frozen=True)
class CountAccuracy:
    """Errors of the answers to random count queries.

    Attributes
    ----------
    expected_selectivity : float or None
        Share of matching records to expect if attributes were uniform and independent; None for
        all queries together.
    n_queries : int
    undefined : int
        The number of queries that no record matches. Their relative errors are undefined, and left
        out.
    mean_relative_error, median_relative_error : float
        Mean and median of |estimate - count| / count; NaN if all of them are undefined.
    """

    expected_selectivity: float | None
    n_queries: int
    undefined: int
    mean_relative_error: float
    median_relative_error: float

    @classmethod
    def of(cls, selectivity: float | None, errors: CountErrors) -> CountAccuracy:
        """Summarize the errors of some queries."""
        return cls(selectivity, errors.actual.size, errors.n_undefined, errors.mean, errors.median)


def evaluate_counts(
    session: Session,
    name: str,
    *,
    queries: int = 1000,
    dimensionality: Sequence[int] | None = None,
    selectivity: Sequence[float] | None = None,
    seed: int | None = None,
) -> list[CountAccuracy]:
    """Answer random count queries from a bucketization and from its source, and compare them.

    Parameters
    ----------
    session : Session
        The session of a role that may read both.
    name : str
        The publication.
    queries : int
        How many queries, up to 100,000.
    dimensionality : sequence of int, optional
        Each query draws one of these numbers, and has conditions on as many quasi-identifiers; by
        default any number.
    selectivity : sequence of float, optional
        Each query draws one of these expected selectivities, which lie in (0, 1]; by default 0.01,
        0.05 and 0.1.
    seed : int, optional
        At least 0. The same seed draws the same queries for the same source.

    Returns
    -------
    list of CountAccuracy
        One for each selectivity, then one for all queries.

    Raises
    ------
    NotFoundError
        When there is no such publication, or its source is gone.
    InvalidParameterError
        When it is not a bucketization, or a parameter is outside its range.
    PermissionDeniedError
        When the role cannot read all of the source.

    Notes
    -----
    **Source:** [GB] Sections 3.2 and 7.2; see :func:`~kanon_db.metrics.workload.random_queries`.
    The estimates are the paper's, computed from QIT and SAT. Those of `estimate_count` are these,
    corrected where buckets are random.
    """
    publication = find_publication(session, name)
    if kind_named(publication.kind).shape != "buckets":
        raise InvalidParameterError(
            "only buckets can be evaluated with count queries",
            detail=f'publication "{name}" is of the kind {publication.kind}',
        )
    require_whole(publication)
    shares = SELECTIVITY if selectivity is None else tuple(map(float, selectivity))
    registered, types = open_source(session, source_of(session, name).quoted(session))
    sensitive_column = publication.layout["sensitive"]
    columns = publication.layout["quasi_identifiers"]
    room = Room.of(session)
    snapshot = take_snapshot(session, registered.relation, [*columns, sensitive_column], room)
    values = [distinct_values(snapshot, types[column]) for column in columns]
    sensitive = distinct_values(snapshot, types[sensitive_column])
    pulse = Pulse(heartbeat=session.heartbeat)
    session.step("drawing the queries")
    n_values = sorted((len(column.labels) for column in values), reverse=True)
    n_conditions = max(dimensionality or [len(values)], default=0)
    # A byte for each value of a condition, twice: the publication's may be others.
    n_bytes = sum(n_values[: max(n_conditions, 0)]) + len(sensitive.labels)
    snapshot.hold(2 * queries * n_bytes, f"{queries:,} queries of {n_bytes:,} values")
    chosen = random_queries(
        queries,
        [len(column.labels) for column in values],
        len(sensitive.labels),
        np.random.default_rng(secrets.randbits(128) if seed is None else seed),
        dimensionality=dimensionality or range(1, len(values) + 1),
        selectivity=shares,
        pulse=pulse,
    )
    session.step("counting in the source")
    actual = exact_counts(
        read_codes(snapshot, values),
        read_codes(snapshot, [sensitive])[:, 0],
        chosen,
        pulse=pulse,
    )
    snapshot.drop()
    session.step("estimating from the publication")
    estimated = _estimates(session, publication, room, values, sensitive, chosen)
    for column in (*values, sensitive):
        column.drop()
    errors = CountErrors(actual, estimated)
    expected = np.array([query.selectivity for query in chosen])
    return [
        *(CountAccuracy.of(s, errors.select(expected == s)) for s in sorted(set(shares))),
        CountAccuracy.of(None, errors),
    ]


def _estimates(
    session: Session,
    publication: Publication,
    room: Room,
    values: Sequence[DistinctValues],
    sensitive: DistinctValues,
    queries: Sequence[CountQuery],
) -> FloatArray:
    """Estimate from QIT and SAT, whose values get the same codes as in the source."""
    tables = tables_of(session, publication)
    qit_name = publication.name + SUFFIXES[1]
    columns = [*publication.layout["quasi_identifiers"], publication.layout["bucket_id"]]
    qit = take_snapshot(session, Relation(published_schema(session), qit_name), columns, room)
    buckets = read_integers(qit, f"s.{tables.bucket_id}")
    codes = _known(read_known_codes(qit, values), values)
    qit.drop()
    sat_buckets, sat_codes, sat_counts = _read_sat(session, tables, sensitive)
    pulse = Pulse(heartbeat=session.heartbeat)
    return estimated_counts(
        buckets,
        codes,
        sat_buckets,
        _known(sat_codes[:, np.newaxis], [sensitive])[:, 0],
        sat_counts,
        [_with_unknown(query, pulse) for query in queries],
        pulse=pulse,
    )


def _known(codes: CodeArray, columns: Sequence[DistinctValues]) -> CodeArray:
    """Give values that the source no longer has a code of their own, which no query asks for."""
    n_values = np.array([len(values.labels) for values in columns], dtype=np.int32)
    return np.where(codes < 0, n_values, codes)


def _with_unknown(query: CountQuery, pulse: Pulse) -> CountQuery:
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
