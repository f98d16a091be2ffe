"""Pattern-guided k-anonymity by suppression [PG]: which cells to suppress, of allowed patterns."""

from kanon_db.algorithms.suppression.greedy import Suppression, greedy
from kanon_db.algorithms.suppression.optimal import OptimalSuppression, optimal
from kanon_db.algorithms.suppression.patterns import (
    PatternSet,
    all_patterns,
    expand_rules,
    parse_patterns,
)
from kanon_db.algorithms.suppression.two_anonymity import two_anonymity

__all__ = [
    "OptimalSuppression",
    "PatternSet",
    "Suppression",
    "all_patterns",
    "expand_rules",
    "greedy",
    "optimal",
    "parse_patterns",
    "two_anonymity",
]
