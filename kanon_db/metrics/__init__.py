"""What a publication is worth: loss of information, and errors of count queries.

:mod:`.generalization` and :mod:`.freeform` each have a function ``measure`` for their kind of
publication. Errors of count queries are calculated in :mod:`.count_errors`, which is not imported
here: it brings a compiler along.
"""

from kanon_db.metrics.loss import bucket_size_loss, mean_squared_bucket_size
from kanon_db.metrics.suppression import output_row_types, suppression_count, usefulness_loss
from kanon_db.metrics.workload import CountQuery, random_queries

__all__ = [
    "CountQuery",
    "bucket_size_loss",
    "mean_squared_bucket_size",
    "output_row_types",
    "random_queries",
    "suppression_count",
    "usefulness_loss",
]
