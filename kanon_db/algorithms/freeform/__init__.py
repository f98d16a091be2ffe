"""Freeform generalization: k-anonymity by k disjoint perfect matchings. Arrays in, matches out."""

from kanon_db.algorithms.freeform.assignments import Assignments, draw_assignments
from kanon_db.algorithms.freeform.greedy import greedy
from kanon_db.algorithms.freeform.hungarian import hungarian
from kanon_db.algorithms.freeform.improvement import improved_matches
from kanon_db.algorithms.freeform.k_concealment import Concealment, k_concealment
from kanon_db.algorithms.freeform.min_cost_flow import min_cost_flow
from kanon_db.algorithms.freeform.optimal import OptimalFreeform, optimal
from kanon_db.algorithms.freeform.partitions import (
    PARTITION_SIZE,
    Method,
    check_partition_size,
    partitioned,
    segment_starts,
)
from kanon_db.algorithms.freeform.result import Freeform, Part, cells, numbered_cells
from kanon_db.algorithms.freeform.ring import ring
from kanon_db.algorithms.freeform.sort_greedy import sort_greedy
from kanon_db.algorithms.freeform.symmetric import symmetric
from kanon_db.algorithms.freeform.verification import (
    MatchingChecks,
    least_coverage,
    verify_matching,
)

__all__ = [
    "PARTITION_SIZE",
    "Assignments",
    "Concealment",
    "Freeform",
    "MatchingChecks",
    "Method",
    "OptimalFreeform",
    "Part",
    "cells",
    "check_partition_size",
    "draw_assignments",
    "greedy",
    "hungarian",
    "improved_matches",
    "k_concealment",
    "least_coverage",
    "min_cost_flow",
    "numbered_cells",
    "optimal",
    "partitioned",
    "ring",
    "segment_starts",
    "sort_greedy",
    "symmetric",
    "verify_matching",
]
