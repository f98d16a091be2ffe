"""The search for optimal classes: which ones are worth a look, and which to take."""

from kanon_db.algorithms.generalization.exact.distinct_records import DistinctRecords
from kanon_db.algorithms.generalization.exact.neighborhoods import improve_neighborhoods
from kanon_db.algorithms.generalization.exact.pairwise import solve_pairwise
from kanon_db.algorithms.generalization.exact.set_partition import Partition, set_partition

__all__ = [
    "DistinctRecords", "Partition", "improve_neighborhoods", "set_partition", "solve_pairwise",
]  # fmt: skip
