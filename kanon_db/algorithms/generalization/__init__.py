"""Equivalence classes of records with generalized values: methods that find and improve them."""

from kanon_db.algorithms.generalization.alike import one_of_each
from kanon_db.algorithms.generalization.enforce import enforce
from kanon_db.algorithms.generalization.greedy_search import greedy_search
from kanon_db.algorithms.generalization.initial import initial
from kanon_db.algorithms.generalization.k_member import k_member
from kanon_db.algorithms.generalization.mondrian import mondrian
from kanon_db.algorithms.generalization.optimal import OptimalGeneralization, optimal
from kanon_db.algorithms.generalization.parts import Cut, CutTree, Domains, best_cut, cut_at_gap
from kanon_db.algorithms.generalization.recommend import Recommendation, recommend
from kanon_db.algorithms.generalization.refine import refine
from kanon_db.algorithms.generalization.result import Generalization
from kanon_db.algorithms.generalization.split_carry import split_carry
from kanon_db.algorithms.generalization.suppress import suppress

__all__ = [
    "Cut", "CutTree", "Domains", "Generalization", "OptimalGeneralization", "Recommendation",
    "best_cut", "cut_at_gap", "enforce", "greedy_search", "initial", "k_member", "mondrian",
    "one_of_each", "optimal", "recommend", "refine", "split_carry", "suppress",
]  # fmt: skip
