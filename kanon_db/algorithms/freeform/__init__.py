"""Freeform generalization: k-anonymity by k disjoint perfect matchings. Arrays in, matches out."""

from kanon_db.algorithms.freeform.improvement import improve_matches, ring
from kanon_db.algorithms.freeform.k_concealment import Concealment, k_concealment
from kanon_db.algorithms.freeform.matches import (
    PARTITION_SIZE,
    Assignments,
    FreeformMatches,
    MatchedPart,
    Method,
    cells,
    check_partition_size,
    draw_assignments,
    numbered_cells,
    partitioned,
    segment_starts,
)
from kanon_db.algorithms.freeform.matching_checks import (
    MatchingChecks,
    least_coverage,
    verify_matching,
)
from kanon_db.algorithms.freeform.matching_heuristics import (
    greedy,
    hungarian,
    reciprocal,
    sort_greedy,
)
from kanon_db.algorithms.freeform.optimal_graph import OptimalFreeform, min_cost_flow, optimal

__all__ = [
    "PARTITION_SIZE",
    "Assignments",
    "Concealment",
    "FreeformMatches",
    "MatchedPart",
    "MatchingChecks",
    "Method",
    "OptimalFreeform",
    "cells",
    "check_partition_size",
    "draw_assignments",
    "greedy",
    "hungarian",
    "improve_matches",
    "k_concealment",
    "least_coverage",
    "min_cost_flow",
    "numbered_cells",
    "optimal",
    "partitioned",
    "reciprocal",
    "ring",
    "segment_starts",
    "sort_greedy",
    "verify_matching",
]
