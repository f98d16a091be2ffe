"""Publishing freeform rows [FF]: each record matches k originals, and each original k records."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.freeform.assignments import Assignments, draw_assignments
from kanon_db.algorithms.freeform.greedy import greedy
from kanon_db.algorithms.freeform.hungarian import hungarian
from kanon_db.algorithms.freeform.k_concealment import k_concealment
from kanon_db.algorithms.freeform.min_cost_flow import min_cost_flow
from kanon_db.algorithms.freeform.optimal import optimal
from kanon_db.algorithms.freeform.partitions import PARTITION_SIZE, Method, partitioned
from kanon_db.algorithms.freeform.result import cells as cells_of_matches
from kanon_db.algorithms.freeform.ring import ring
from kanon_db.algorithms.freeform.sort_greedy import sort_greedy
from kanon_db.algorithms.freeform.symmetric import symmetric
from kanon_db.algorithms.freeform.verification import least_coverage, verify_matching
from kanon_db.algorithms.ground.arrays import CodeArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.recoding.cells import Ranges, Sets
from kanon_db.algorithms.recoding.microdata import Microdata
from kanon_db.catalog.entries import record_publication
from kanon_db.catalog.sources import open_source
from kanon_db.errors import InvalidParameterError
from kanon_db.metrics.freeform import measure
from kanon_db.publications.freeform.examine import check_cells, digest_rows, examine_freeform
from kanon_db.publications.options import (
    MAX_TIME_LIMIT,
    flag_option,
    number_option,
    parse_options,
    whole_option,
)
from kanon_db.publications.pipeline import (
    Check,
    Published,
    check_choice,
    require_checks,
    warn_of_other_publications,
)
from kanon_db.publications.rows.recoding import Recoding, start_recoding
from kanon_db.publications.rows.view import SUFFIXES, warn_of_unchanged_columns
from kanon_db.randomness import SecureRandom
from kanon_db.session.protocol import Session

_REFINED: Final = {
    "greedy": greedy,
    "sort_greedy": sort_greedy,
    "hungarian": hungarian,
}
_BASELINES: Final[Mapping[str, Method]] = {
    "min_cost_flow": min_cost_flow,
    "ring": ring,
}
METHODS: Final = ("optimal", *_REFINED, *_BASELINES, "k_concealment")
OPTIONS: Final = (
    "allow_weaker", "partition_size", "refine", "symmetric", "time_limit", "workers",
)  # fmt: skip

_MOST_WORKERS: Final = 64


@dataclass(frozen=True)
class _Options:
    """What the search may do."""

    partition_size: int | None
    refine: bool
    symmetric: bool
    allow_weaker: bool
    time_limit: float
    workers: int
    given: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str | None, method: str) -> _Options:
        given = parse_options(text, OPTIONS)
        options = cls(
            partition_size=whole_option(given, "partition_size", None),
            refine=flag_option(given, "refine", default=True),
            symmetric=flag_option(given, "symmetric"),
            allow_weaker=flag_option(given, "allow_weaker"),
            time_limit=number_option(given, "time_limit", 60.0, above=0.0, most=MAX_TIME_LIMIT),
            workers=whole_option(given, "workers", min(2, os.cpu_count() or 1)) or 1,
            given=given,
        )
        if options.workers > _MOST_WORKERS:
            raise InvalidParameterError(f"the option workers must be at most {_MOST_WORKERS}")
        if method == "k_concealment" and not options.allow_weaker:
            raise InvalidParameterError(
                "k_concealment is a weaker guarantee than k-anonymity",
                detail="the k possible matches of a record are not equally likely",
                hint='use sort_greedy; to publish all the same, pass {"allow_weaker": true}',
            )
        if options.symmetric and method not in ("sort_greedy", "optimal"):
            raise InvalidParameterError(
                "this method makes no symmetric graphs", hint="use sort_greedy or optimal"
            )
        if options.partition_size is not None and method in ("optimal", "k_concealment"):
            raise InvalidParameterError("this method knows no partitions")
        return options


@dataclass(frozen=True, eq=False)
class _Found:
    """A generalization graph, and metrics that tell how far from the optimum it can be."""

    matches: CodeArray
    proof: Mapping[str, float]


def publish_freeform(
    session: Session,
    source: str,
    name: str,
    *,
    k: int,
    method: str = "sort_greedy",
    weights: str | None = None,
    options: str | None = None,
    readers: Sequence[str] | None = None,
    replace: bool = False,
) -> Published:
    """Publish a source with cells of its own for each record, verified before it is visible.

    Parameters
    ----------
    session : Session
        In a transaction of the publishing role, which needs SELECT on the source.
    source : str
        A registered relation, as SQL text.
    name : str
        The publication: materialized view ``<name>``.
    k : int
        Originals that each published record matches, and published records that each original does.
    method : {"sort_greedy", "greedy", "hungarian", "optimal", "min_cost_flow", "ring", \
"k_concealment"}
        How the matches are found.
    weights : str, optional
        JSON, factor of the loss by quasi-identifier; those that the registration gave otherwise,
        or 1.
    options : str, optional
        JSON. ``partition_size``: records that are searched together; ``workers``: partitions
        searched at a time (2, if there are as many processors); ``refine``: whether the
        graph is made to lose less when the method has found it (true); ``symmetric``: whether
        matches are mutual; ``time_limit``: seconds, of the method optimal (60);
        ``allow_weaker``: publish by k_concealment, which is no k-anonymity.
    readers : sequence of str, optional
        Roles that may read the publication; ``kanon_analyst`` by default.
    replace : bool
        Replace a publication of this name in the same transaction.

    Returns
    -------
    Published

    Raises
    ------
    KanonError
        When anything is refused; the transaction must then be rolled back.

    Notes
    -----
    **Source:** [FF]; see the modules of :mod:`kanon_db.algorithms.freeform`. The other columns of
    each record are published with the cells that one of k disjoint assignments gives it: these are
    drawn anew at random, and one of them is chosen uniformly (Section 2.2), from the operating
    system's cryptographic source. So is the order of the rows. The graph is kept nowhere: who had
    it would know k candidates for each row, and who had the assignment every row's person.
    """
    started = time.perf_counter()
    check_choice("method", method, METHODS)
    chosen = _Options.parse(options, method)
    registered, types = open_source(session, source)
    recoding = start_recoding(
        session, registered, types, name, k=k, weights=weights, readers=readers, replace=replace
    )
    microdata = recoding.microdata
    session.step(f"matching records: {method}")
    found = _search(session, microdata, k, method, chosen)
    cells = cells_of_matches(microdata, found.matches)
    session.step("drawing the assignment")
    checks = _publish_rows(recoding, found.matches, k, cells, method)

    session.step("verifying")
    parameters = {
        "k": k,
        "weights": None if weights is None else json.loads(weights, parse_float=str),
        "options": dict(chosen.given),
        "readers": list(recoding.readers),
    }
    n_records = microdata.n_records
    layout = {**recoding.layout, "digest": digest_rows(session, recoding.view)}
    examined = examine_freeform(session, recoding.view, records=n_records, digest=layout["digest"])
    require_checks([*examined.checks, *checks])
    warn_of_unchanged_columns(session, recoding.layout)
    warn_of_other_publications(session, registered.relation, recoding.readers)
    measured = measure(microdata, cells)
    metrics = {
        **examined.metrics,
        "gcp": measured.gcp,
        "weighted_loss": measured.weighted_loss,
        **{
            f"loss_of_{column}": float(loss)
            for column, loss in zip(
                registered.quasi_identifiers, measured.loss_by_attribute, strict=True
            )
        },
        **found.proof,
    }
    guarantee = _guarantee(k, method, chosen)
    publication_id = record_publication(
        session,
        name=name,
        kind="freeform",
        method=method,
        source=registered,
        parameters=parameters,
        layout=layout,
        records=n_records,
        guarantee=guarantee,
        metrics=metrics,
        relations=[name + suffix for suffix in SUFFIXES],
    )
    return Published(
        publication_id=publication_id,
        name=name,
        guarantee=guarantee,
        records=n_records,
        metrics=metrics,
        seconds=time.perf_counter() - started,
    )


def _guarantee(k: int, method: str, options: _Options) -> str:
    if method == "k_concealment":
        return (
            f"{k}-concealment, which is weaker than k-anonymity: each record may be any of at least"
            f" {k} published ones, but not with the same probability"
        )
    guarantee = (
        f"k-anonymity with k = {k} by freeform generalization: each published record covers {k}"
        f" originals, each original is covered {k} times, and each of these is its own with"
        f" probability 1/{k}"
    )
    return guarantee + "; matches are mutual" * options.symmetric


def _search(
    session: Session, microdata: Microdata, k: int, method: str, options: _Options
) -> _Found:
    beat: Callable[[], None] = session.heartbeat
    pulse = Pulse(heartbeat=beat)
    if method == "optimal":
        best = optimal(
            microdata, k,
            symmetric=options.symmetric, pulse=Pulse(options.time_limit, beat),
        )  # fmt: skip
        if best.proof.status != "optimal":
            session.warn(
                "time ran out: the matches are not proven optimal, their loss may be up to"
                f" {best.proof.gap:.2%} above the optimum"
            )
        bound = float(best.proof.lower_bound)
        return _Found(best.matches, {"gap": best.proof.gap, "lower_bound": bound})
    if method == "k_concealment":
        return _Found(k_concealment(microdata, k, pulse=pulse).matches, {})
    if options.symmetric:
        search: Method = symmetric
    elif method in _REFINED:
        search = partial(_REFINED[method], improve=options.refine)
    else:
        search = _BASELINES[method]
    found = partitioned(
        microdata,
        k,
        search,
        options.partition_size or PARTITION_SIZE,
        workers=options.workers,
        pulse=pulse,
    )
    return _Found(found.matches, {})


def _publish_rows(
    recoding: Recoding,
    matches: CodeArray,
    k: int,
    cells: Sequence[Ranges | Sets],
    method: str,
) -> list[Check]:
    """Write cells and rows; check the graph, and each original value against all its cells."""
    n_records = matches.shape[0]
    if method == "k_concealment":
        # No assignment is more than one of many here, so each record keeps its own cells.
        drawn = Assignments(np.arange(n_records, dtype=np.int32)[np.newaxis], 0)
    else:
        drawn = draw_assignments(
            matches, SecureRandom(), pulse=Pulse(heartbeat=recoding.session.heartbeat)
        )
    table = recoding.write(cells, drawn.cells)
    recoding.session.step("checking each original value")
    outside = sum(
        recoding.count_outside(table, cell_of_original)
        for cell_of_original in drawn.cell_of_original
    )
    checks = [
        check_cells(recoding.session, recoding.view, table),
        Check(
            "every original value lies in all the cells that it matches",
            "0 records outside",
            f"{outside} outside, in {len(drawn.cell_of_original)} assignments",
            holds=outside == 0,
        ),
    ]
    recoding.finish(table)
    if method == "k_concealment":
        checks.append(_check_concealment(recoding, k, cells))
    else:
        checks.append(_check_graph(recoding, drawn, k, cells))
    return checks


def _check_graph(
    recoding: Recoding, drawn: Assignments, k: int, cells: Sequence[Ranges | Sets]
) -> Check:
    """Check the graph as it was drawn, not as it was found."""
    edges = np.empty(drawn.cell_of_original.T.shape, dtype=np.int32)
    for number, cell_of_original in enumerate(drawn.cell_of_original):
        edges[cell_of_original, number] = np.arange(cell_of_original.size)
    graph = verify_matching(
        edges, recoding.microdata, k, cells, pulse=Pulse(heartbeat=recoding.session.heartbeat)
    )
    return Check(
        "k-anonymity: every record has k matches on both sides",
        f"k = {k}",
        f"at least {graph.least_originals} and {graph.least_published}"
        f", {graph.n_outside} matches outside their cells",
        holds=graph.holds,
    )


def _check_concealment(recoding: Recoding, k: int, cells: Sequence[Ranges | Sets]) -> Check:
    published, originals = least_coverage(
        recoding.microdata, cells, pulse=Pulse(heartbeat=recoding.session.heartbeat)
    )
    return Check(
        "k-concealment: every record has k possible matches on both sides",
        f"k = {k}",
        f"at least {originals} and {published}",
        holds=min(published, originals) >= k,
    )
