"""Trains the members of a model by each method, and measures them.

Membership is measured here, since which member was trained on whom is forgotten afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from fractions import Fraction
from importlib.util import find_spec
from typing import Final

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, FloatArray, IntArray
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.dataclasses import dataclass
from kanon_db.errors import ServerError
from kanon_db.models._network import Float32Array, Member, TrainingSettings, logits
from kanon_db.models._training import parts_of, train
from kanon_db.models._votes import (
    best_threshold,
    calibrate_scores,
    count_votes,
    discrete_gaussian,
    membership_rate,
)
from kanon_db.models.request import Budget, ModelRequest
from kanon_db.publications.kind import MethodResult
from kanon_db.publications.results import Check
from kanon_db.randomness import SecureRandom

MOST_MEASURED = 2000
"""Size of the random sample that is measured."""


def measure_members(
    members: Sequence[Member],
    inputs: Float32Array,
    labels: AnyIntArray,
    parts: IntArray | None,
    budget: Budget | None,
    random: SecureRandom,
    pulse: Pulse,
) -> dict[str, float]:
    """Measure a model on records of the source: accuracies, and the rates of membership guesses.

    `parts` (n_records,): the member that was trained on each record; None if all members were.
    """
    # If possible, `member_accuracy` is of members that were not trained on the record. For the
    # membership rates, which disjoint parts have, one of two ensembles has the member that was
    # trained on the person, the other has a member that was not in its place.
    n = len(labels)
    drawn = random.generator().choice(n, min(n, MOST_MEASURED), replace=False)
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
    accuracies = {"vote_accuracy": float((counts.argmax(axis=1) == labels).mean())}
    if parts is None:
        return {**accuracies, "member_accuracy": float(right.mean())}
    part = parts[drawn]
    is_own = np.arange(len(members))[:, None] == part
    accuracies["member_accuracy"] = float(right[~is_own].mean())
    if len(labels) >= 2 and len(members) > 1:
        accuracies |= _membership(right, margin, part, budget, random)
    return accuracies


def _membership(
    right: np.ndarray[tuple[int, int], np.dtype[np.bool_]],
    margin: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    part: AnyIntArray,
    budget: Budget | None,
    random: SecureRandom,
) -> dict[str, float]:
    n_members, n = right.shape
    people = np.arange(n)
    # One of the members that were not trained on the person, each with the same probability.
    stand_in = (part + random.generator().integers(1, n_members, n)) % n_members
    agreeing = right.sum(axis=0).astype(np.float64)
    inside = agreeing
    outside = agreeing - right[part, people] + right[stand_in, people]
    if budget is not None:
        noise = discrete_gaussian(Fraction(budget.noise) ** 2, 2 * n, random)
        inside, outside = inside + noise[:n], outside + noise[n:]
    reference = np.stack([np.delete(margin[:, i], part[i]) for i in people], axis=1)
    own = calibrate_scores(margin[part, people], reference)
    replaced = calibrate_scores(margin[stand_in, people], reference)
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


_EXTRA: Final = ("jax", "optax")
_ACCOUNTING: Final = "dp_accounting"


@dataclass(frozen=True, eq=False)
class TrainingData:
    """The data of the training."""

    inputs: Float32Array  # (n_records, *shape)
    labels: AnyIntArray  # (n_records,)
    classes: int
    # (n_records,): number of each record's person, where a person may have several records
    groups: AnyIntArray | None
    random: SecureRandom  # Randomness of parts, training and measures


@dataclass(frozen=True, eq=False)
class TrainedMembers:
    """The trained members, as bytes."""

    networks: list[bytes]
    records: list[int]  # The number of records that each member was trained on
    temperatures: list[float]
    checks: list[Check] = field(default_factory=list)  # Checks that need the source
    metrics: dict[str, float] = field(default_factory=dict)  # Metrics that need the source


def require_training_packages(*, with_budget: bool) -> None:
    """Refuse to train if the libraries of the training are not installed.

    Raises ServerError.
    """
    needed = [*_EXTRA, *([_ACCOUNTING] if with_budget else [])]
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise ServerError(
            "training a model needs packages that are not installed here",
            detail=", ".join(missing),
            hint="pip install 'kanon_db[models]' in the environment that publishes: the server's"
            " for SQL, your own for the command line and Python",
        )


def disjoint(data: TrainingData, request: ModelRequest, pulse: Pulse) -> MethodResult:
    """Train each member on its own part of the people."""
    parts = parts_of(len(data.labels), request.members, data.random.generator(), data.groups)
    return MethodResult(_train(data, request, pulse, parts))


def all(data: TrainingData, request: ModelRequest, pulse: Pulse) -> MethodResult:  # noqa: A001  # its name
    """Train each member on all people."""
    return MethodResult(_train(data, request, pulse, None))


def _train(
    data: TrainingData, request: ModelRequest, pulse: Pulse, parts: IntArray | None
) -> TrainedMembers:
    members: Sequence[Member] = list(
        train(
            data.inputs,
            data.labels,
            data.classes,
            members=request.members,
            parts=parts,
            people=None if data.groups is None else int(data.groups.max()) + 1,
            settings=TrainingSettings(steps=request.options.steps, descent=request.options.descent),
            generator=data.random.generator(),
            pulse=pulse,
        )
    )
    n = len(data.labels)
    sizes = [n] * len(members) if parts is None else np.bincount(parts).tolist()
    return TrainedMembers(
        [member.to_bytes() for member in members],
        sizes,
        [member.temperature for member in members],
        [] if parts is None else [_check_parts(data, parts, request.members)],
        measure_members(
            members, data.inputs, data.labels, parts, request.budget, data.random, pulse
        ),
    )


def _check_parts(data: TrainingData, parts: IntArray, n_parts: int) -> Check:
    """Check that nobody is in two parts."""
    owners = np.arange(len(parts)) if data.groups is None else data.groups
    pairs = np.unique(np.stack([owners, parts]), axis=1).shape[1]
    people = int(owners.max()) + 1
    return Check(
        "nobody is in the parts of two members",
        f"{people} people in {n_parts} parts",
        f"{pairs - people} are in another part, too",
        holds=pairs == people and int(parts.max()) < n_parts and int(parts.min()) >= 0,
    )
