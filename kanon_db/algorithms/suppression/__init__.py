"""Pattern-guided k-anonymity by suppression [PG]: which cells to suppress, of allowed patterns."""

from kanon_db.algorithms.suppression.greedy import (
    LEFT_OVER,
    Suppression,
    check_left_over,
    greedy,
    greedy_on_types,
)
from kanon_db.algorithms.suppression.left_over import classes_of, join_left_over
from kanon_db.algorithms.suppression.optimal import OptimalSuppression, optimal
from kanon_db.algorithms.suppression.patterns import (
    PatternSet,
    all_patterns,
    expand_rules,
    parse_patterns,
)
from kanon_db.algorithms.suppression.row_types import RowTypes
from kanon_db.algorithms.suppression.two_anonymity import two_anonymity

__all__ = [
    "LEFT_OVER", "OptimalSuppression", "PatternSet", "RowTypes", "Suppression", "all_patterns",
    "check_left_over", "classes_of", "expand_rules", "greedy", "greedy_on_types", "join_left_over",
    "optimal", "parse_patterns", "two_anonymity",
]  # fmt: skip
