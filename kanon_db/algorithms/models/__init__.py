"""Models that answer by vote: encodings, networks, their training, noise, votes and budgets.

[TH] chapter 4. Answering needs numpy only; :mod:`.training` and :mod:`.accounting` need the extra
``models``, and import it when they are called.
"""

from kanon_db.algorithms.models.features import Encoding
from kanon_db.algorithms.models.membership import (
    best_threshold,
    calibrated_scores,
    highest_rate,
    membership_rate,
)
from kanon_db.algorithms.models.networks import (
    Architecture,
    Layer,
    Member,
    digest_of,
    layer_outputs,
    logits,
    network_for,
    probabilities,
)
from kanon_db.algorithms.models.noise import noisy
from kanon_db.algorithms.models.voting import Votes, count_votes, noisy_vote, vote

__all__ = [
    "Architecture", "Encoding", "Layer", "Member", "Votes", "best_threshold", "calibrated_scores",
    "count_votes", "digest_of", "highest_rate", "layer_outputs", "logits", "membership_rate",
    "network_for", "noisy", "noisy_vote", "probabilities", "vote",
]  # fmt: skip
