"""Pattern-guided k-anonymity by suppression [PG]: which cells to suppress, of allowed patterns."""

from kanon_db.algorithms.suppression.greedy import LEFT_OVER, Suppression, greedy
from kanon_db.algorithms.suppression.left_over import classes_of, join_left_over
from kanon_db.algorithms.suppression.optimal import OptimalSuppression, optimal
from kanon_db.algorithms.suppression.patterns import (
    PatternSet,
    all_patterns,
    expand_rules,
    parse_patterns,
)
from kanon_db.algorithms.suppression.two_anonymity import two_anonymity

__all__ = [
    "LEFT_OVER", "OptimalSuppression", "PatternSet", "Suppression", "all_patterns", "classes_of",
    "expand_rules", "greedy", "join_left_over", "optimal", "parse_patterns", "two_anonymity",
]  # fmt: skip
