"""Known attacks on publications: what someone guesses from one, and how often they are right."""

from kanon_db.algorithms.attacks.attack_scores import (
    AttackScore,
    PairCounts,
    TrueValues,
    score_guesses,
    score_predicates,
    unusual_records,
)
from kanon_db.algorithms.attacks.bucket_beliefs import (
    ALL_ORDERS_OF,
    Beliefs,
    BucketCandidates,
    BucketValues,
    Guesses,
    SweepOrder,
    candidates_of,
    learn_weights,
    model_weights,
    name_rarest,
    sweep_orders,
    weights_of_source,
)
from kanon_db.algorithms.attacks.row_attacks import (
    PublishedRows,
    RowClasses,
    RowGuesses,
    downcode,
    guess_people,
    single_out,
)

__all__ = [
    "ALL_ORDERS_OF",
    "AttackScore",
    "Beliefs",
    "BucketCandidates",
    "BucketValues",
    "Guesses",
    "PairCounts",
    "PublishedRows",
    "RowClasses",
    "RowGuesses",
    "SweepOrder",
    "TrueValues",
    "candidates_of",
    "downcode",
    "guess_people",
    "learn_weights",
    "model_weights",
    "name_rarest",
    "score_guesses",
    "score_predicates",
    "single_out",
    "sweep_orders",
    "unusual_records",
    "weights_of_source",
]  # fmt: skip
