"""What a publication is worth and what it gives away: information loss, count errors, risks."""

from kanon_db.metrics.count_queries import CountQuery, random_queries
from kanon_db.metrics.disclosure_risk import (
    ReidentificationRisk,
    journalist_risk,
    marketer_risk,
    prosecutor_risk,
    uniqueness,
)
from kanon_db.metrics.information_loss import (
    output_row_types,
    suppression_count,
    usefulness_loss,
)

__all__ = [
    "CountQuery", "ReidentificationRisk", "journalist_risk", "marketer_risk", "output_row_types",
    "prosecutor_risk", "random_queries", "suppression_count", "uniqueness", "usefulness_loss",
]  # fmt: skip
