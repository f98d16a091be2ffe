"""What a model is right about, and what it tells of who was in the source, measured in training.

Which member was trained on whom is known then, and forgotten afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, FloatArray, IntArray
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.models import (
    Member,
    best_threshold,
    calibrated_scores,
    count_votes,
    logits,
    membership_rate,
)
from kanon_db.algorithms.models.discrete_gaussian import discrete_gaussian
from kanon_db.algorithms.models.networks import Float32Array
from kanon_db.publications.model.request import Budget
from kanon_db.randomness import SecureRandom

MOST_PEOPLE = 2000
"""Records that are looked at, drawn at random."""


def figures_of(
    members: Sequence[Member],
    inputs: Float32Array,
    labels: AnyIntArray,
    parts: IntArray | None,
    budget: Budget | None,
    random: SecureRandom,
    pulse: Pulse,
) -> dict[str, float]:
    """Measure a model on records of the source.

    Parameters
    ----------
    members : sequence of Member
    inputs : ndarray of float32, shape (n_records, *shape)
    labels : ndarray of int, shape (n_records,)
    parts : ndarray of int64, shape (n_records,), or None
        Which member was trained on each record; None if all were on all.
    budget : Budget or None
    random : SecureRandom
    pulse : Pulse

    Returns
    -------
    dict of str to float
        ``vote_accuracy`` and ``member_accuracy`` (of members that were not trained on the record,
        where there are such). Of disjoint parts also how often somebody's presence is guessed, in
        ``membership_rate_of_votes`` and ``membership_rate_of_a_member``: of two ensembles, one has
        the member that was trained on the person, and in the other a member that was not stands in
        its place.
    """
    n = len(labels)
    drawn = random.generator().choice(n, min(n, MOST_PEOPLE), replace=False)
    labels, inputs = labels[drawn], inputs[drawn]
    margins, chosen = [], []
    for member in members:
        pulse.beat()
        outputs = logits(member, inputs).astype(np.float64)
        chosen.append(outputs.argmax(axis=1))
        own = outputs[np.arange(len(labels)), labels]
        outputs[np.arange(len(labels)), labels] = -np.inf
        margins.append(own - outputs.max(axis=1))
    votes, margin = np.stack(chosen), np.stack(margins)
    right = votes == labels
    counts = count_votes(votes, members[0].architecture.classes)
    found = {"vote_accuracy": float((counts.argmax(axis=1) == labels).mean())}
    if parts is None:
        return {**found, "member_accuracy": float(right.mean())}
    part = parts[drawn]
    is_own = np.arange(len(members))[:, None] == part
    found["member_accuracy"] = float(right[~is_own].mean())
    if len(labels) >= 2 and len(members) > 1:
        found |= _membership(right, margin, part, budget, random)
    return found


def _membership(
    right: np.ndarray[tuple[int, int], np.dtype[np.bool_]],
    margin: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    part: AnyIntArray,
    budget: Budget | None,
    random: SecureRandom,
) -> dict[str, float]:
    n_members, n = right.shape
    people = np.arange(n)
    # A member that was not trained on the person, each with the same probability.
    stand_in = (part + random.generator().integers(1, n_members, n)) % n_members
    agreeing = right.sum(axis=0).astype(np.float64)
    inside = agreeing
    outside = agreeing - right[part, people] + right[stand_in, people]
    if budget is not None:
        noise = discrete_gaussian(Fraction(budget.noise) ** 2, 2 * n, random)
        inside, outside = inside + noise[:n], outside + noise[n:]
    others = np.stack([np.delete(margin[:, i], part[i]) for i in people], axis=1)
    own = calibrated_scores(margin[part, people], others)
    replaced = calibrated_scores(margin[stand_in, people], others)
    return {
        "membership_rate_of_votes": _rate(inside, outside),
        "membership_rate_of_a_member": _rate(own, replaced),
        "membership_people": float(n // 2),
    }


def _rate(inside: FloatArray, outside: FloatArray) -> float:
    """Learn a threshold from half of the people, and guess about the others."""
    half = len(inside) // 2
    threshold = best_threshold(inside[:half], outside[:half])
    return membership_rate(inside[half:], outside[half:], threshold)
