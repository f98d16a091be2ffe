"""Equivalence classes of records with generalized values: methods that find and improve them."""

from kanon_db.algorithms.generalization.greedy_classes import (
    Generalization,
    Recommendation,
    greedy_search,
    initial,
    k_member,
    one_of_each,
    recommend,
)
from kanon_db.algorithms.generalization.mondrian import (
    CutDomains,
    PartCut,
    PartTree,
    gap_cut,
    median_cut,
    mondrian,
)
from kanon_db.algorithms.generalization.optimal_classes import (
    OptimalGeneralization,
    optimal,
    prove_least_loss,
    split_carry,
)
from kanon_db.algorithms.generalization.postprocessing import enforce, refine, suppress

__all__ = [
    "CutDomains",
    "Generalization",
    "OptimalGeneralization",
    "PartCut",
    "PartTree",
    "Recommendation",
    "enforce",
    "gap_cut",
    "greedy_search",
    "initial",
    "k_member",
    "median_cut",
    "mondrian",
    "one_of_each",
    "optimal",
    "prove_least_loss",
    "recommend",
    "refine",
    "split_carry",
    "suppress",
]  # fmt: skip
