"""Pattern-guided k-anonymity by suppression [PG]: which cells to suppress, of allowed patterns."""

from kanon_db.algorithms.suppression.greedy_suppression import (
    LEFT_OVER,
    RowTypes,
    Suppression,
    check_left_over,
    classes_of,
    greedy,
    greedy_on_types,
    join_left_over,
)
from kanon_db.algorithms.suppression.optimal_suppression import (
    OptimalSuppression,
    optimal,
)
from kanon_db.algorithms.suppression.pattern_vectors import (
    PatternSet,
    all_patterns,
    expand_rules,
    parse_patterns,
)
from kanon_db.algorithms.suppression.two_anonymity import two_anonymity

__all__ = [
    "LEFT_OVER", "OptimalSuppression", "PatternSet", "RowTypes", "Suppression", "all_patterns",
    "check_left_over", "classes_of", "expand_rules", "greedy", "greedy_on_types", "join_left_over",
    "optimal", "parse_patterns", "two_anonymity",
]  # fmt: skip
