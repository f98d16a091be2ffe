"""What a publication is worth: loss of information, and errors of count queries."""

from kanon_db.metrics.count_queries import CountQuery, random_queries
from kanon_db.metrics.information_loss import (
    output_row_types,
    suppression_count,
    usefulness_loss,
)

__all__ = [
    "CountQuery", "output_row_types", "random_queries", "suppression_count", "usefulness_loss",
]  # fmt: skip
