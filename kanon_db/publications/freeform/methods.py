"""Finds matches: a function for each method, all with the same signature."""

from __future__ import annotations

from functools import partial
from typing import Any

from kanon_db.algorithms import freeform
from kanon_db.algorithms.ground.computation import Pulse, n_cores
from kanon_db.algorithms.recoding import Microdata
from kanon_db.metrics.information_loss import measure_freeform
from kanon_db.publications.freeform.request import FreeformRequest
from kanon_db.publications.guarantees import proof_of_published
from kanon_db.publications.kind import MethodResult


def optimal(data: Microdata, request: FreeformRequest, pulse: Pulse) -> MethodResult:
    """Find the matches that lose least of all; where that is not proven, the best of all methods.

    What was searched for is not always what is published: see :func:`.proof_of_published`.
    """
    is_symmetric = request.options.symmetric
    best = freeform.optimal(
        data,
        request.k,
        formulation=request.options.formulation,
        solver=request.options.solver,
        symmetric=is_symmetric,
        pulse=pulse.within(request.options.time_limit),
    )
    found: freeform.FreeformMatches = best
    least = _loss(data, found, pulse)
    proof = proof_of_published(best.proof, data, least, is_found=True)
    if proof is not None and proof.is_optimal:
        return MethodResult(found, proof)
    for heuristic in (sort_greedy,) if is_symmetric else (sort_greedy, greedy, hungarian):
        other = heuristic(data, request, pulse).result
        loss = _loss(data, other, pulse)
        if loss < least:
            found, least = other, loss
    proof = proof_of_published(best.proof, data, least, is_found=found is best)
    return MethodResult(found, proof)


def _loss(data: Microdata, found: freeform.FreeformMatches, pulse: Pulse) -> float:
    """Measure what is lost if these matches are published."""
    return measure_freeform(data, freeform.numbered_cells(data, found, pulse=pulse)).weighted_loss


def sort_greedy(data: Microdata, request: FreeformRequest, pulse: Pulse) -> MethodResult:
    """Take the lightest matches first."""
    if request.options.symmetric:
        return _partitioned(freeform.reciprocal, data, request, pulse)
    return _refined(freeform.sort_greedy, data, request, pulse)


def greedy(data: Microdata, request: FreeformRequest, pulse: Pulse) -> MethodResult:
    """Give each record its lightest match, in turn."""
    return _refined(freeform.greedy, data, request, pulse)


def hungarian(data: Microdata, request: FreeformRequest, pulse: Pulse) -> MethodResult:
    """Take the assignment with the least loss in each round."""
    return _refined(freeform.hungarian, data, request, pulse)


def min_cost_flow(data: Microdata, request: FreeformRequest, pulse: Pulse) -> MethodResult:
    """Find matches by a method of another paper, for comparison."""
    return _partitioned(freeform.min_cost_flow, data, request, pulse)


def ring(data: Microdata, request: FreeformRequest, pulse: Pulse) -> MethodResult:
    """Match small partitions in rings, for comparison."""
    return _partitioned(freeform.ring, data, request, pulse)


def k_concealment(data: Microdata, request: FreeformRequest, pulse: Pulse) -> MethodResult:
    """Find matches that give a weaker guarantee."""
    matches = freeform.k_concealment(data, request.k, pulse=pulse).matches
    return MethodResult(freeform.FreeformMatches.whole(matches))


def _refined(search: Any, data: Microdata, request: FreeformRequest, pulse: Pulse) -> MethodResult:
    improving = partial(search, improve=request.options.refine)
    return _partitioned(improving, data, request, pulse)


def _partitioned(
    search: freeform.Method, data: Microdata, request: FreeformRequest, pulse: Pulse
) -> MethodResult:
    found = freeform.partitioned(
        data,
        request.k,
        search,
        partition_size(request),
        workers=n_workers(request),
        pulse=pulse,
    )
    return MethodResult(found)


def partition_size(request: FreeformRequest) -> int:
    """Return how many records a partition has at least; below twice as many are in one."""
    return request.options.partition_size or freeform.PARTITION_SIZE


def n_workers(request: FreeformRequest) -> int:
    """Return how many partitions are searched at the same time."""
    return request.options.workers or n_cores()
