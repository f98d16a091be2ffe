"""Measures how well a publication answers random count queries, compared with its source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kanon_db.catalog.entries import find_publication, published_schema, require_whole, source_of
from kanon_db.catalog.sources import open_source
from kanon_db.errors import InvalidParameterError
from kanon_db.publications.kind import AttackTarget, Workload
from kanon_db.publications.registry import kind_named
from kanon_db.publications.results import CountAccuracy
from kanon_db.session.protocol import Session
from kanon_db.transfer.allowance import Allowance

EVALUATING: Final = (
    "reading the source", "drawing the queries", "counting in the source",
    "estimating from the publication",
)  # fmt: skip


def evaluate_counts(
    session: Session,  # the session of a role that may read both
    name: str,  # the publication
    *,
    queries: int = 1000,  # how many queries, up to 100,000
    dimensionality: Sequence[int] | None = None,
    selectivity: Sequence[float] | None = None,
    seed: int | None = None,
) -> list[CountAccuracy]:
    """Answer random count queries from a bucketization and from its source, and compare them."""
    publication = find_publication(session, name)
    declared = kind_named(publication.kind)
    if declared.shape != "buckets":
        raise InvalidParameterError(
            "only buckets can be evaluated with count queries",
            detail=f'publication "{name}" is of the kind {publication.kind}',
        )
    require_whole(publication)
    session.plan(EVALUATING)
    source, types = open_source(session, source_of(session, name).quoted(session))
    target = AttackTarget(
        session, publication, source, types, published_schema(session), Allowance.of(session)
    )
    workload = Workload.of(queries, dimensionality, selectivity, seed)
    return list(declared.load().evaluate(target, workload))
