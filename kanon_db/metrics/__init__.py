"""What a publication is worth: loss of information, and errors of count queries.

:mod:`.generalization` and :mod:`.freeform` each have a function ``measure`` for their kind of
publication. Errors of count queries are calculated in :mod:`.count_errors`, which is not imported
here: it brings a compiler along.
"""

from kanon_db.metrics.suppression import output_row_types, suppression_count, usefulness_loss
from kanon_db.metrics.workload import CountQuery, random_queries

__all__ = [
    "CountQuery", "output_row_types", "random_queries", "suppression_count", "usefulness_loss",
]  # fmt: skip
