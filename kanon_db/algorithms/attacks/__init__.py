"""Known attacks on publications: what someone guesses from one, and how often they are right."""

from kanon_db.algorithms.attacks.beliefs import Beliefs, Guesses
from kanon_db.algorithms.attacks.bucket_candidates import BucketValues, Candidates, candidates_of
from kanon_db.algorithms.attacks.covering import Covering
from kanon_db.algorithms.attacks.downcoding import downcode
from kanon_db.algorithms.attacks.learner import learned_weights, weights_of_source
from kanon_db.algorithms.attacks.minimality import (
    ALL_ORDERS_OF,
    SweepOrder,
    name_rarest,
    sweep_orders,
)
from kanon_db.algorithms.attacks.row_candidates import PublishedRows, RowGuesses, guess_people
from kanon_db.algorithms.attacks.scoring import Achieved, Truth, achieved
from kanon_db.algorithms.attacks.unusual import unusual_records

__all__ = [
    "ALL_ORDERS_OF", "Achieved", "Beliefs", "BucketValues", "Candidates", "Covering", "Guesses",
    "PublishedRows", "RowGuesses", "SweepOrder", "Truth", "achieved", "candidates_of", "downcode",
    "guess_people", "learned_weights", "name_rarest", "sweep_orders", "unusual_records",
    "weights_of_source",
]  # fmt: skip
