"""The methods of training the members of a model, both with the same signature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Final

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.models import Member
from kanon_db.algorithms.models.networks import Float32Array
from kanon_db.algorithms.models.training import Settings, parts_of, train
from kanon_db.errors import ServerError
from kanon_db.publications.kind import MethodResult
from kanon_db.publications.model.figures import figures_of
from kanon_db.publications.model.request import ModelRequest
from kanon_db.publications.results import Check
from kanon_db.randomness import SecureRandom

_EXTRA: Final = ("jax", "optax")
_ACCOUNTING: Final = "dp_accounting"


@dataclass(frozen=True, eq=False)
class Training:
    """What members are trained on.

    Attributes
    ----------
    inputs : ndarray of float32, shape (n_records, *shape)
    labels : ndarray of int, shape (n_records,)
    classes : int
    groups : ndarray of int, shape (n_records,), or None
        Whose record each is, where several can be about the same person.
    random : SecureRandom
        For parts, training, and figures.
    """

    inputs: Float32Array
    labels: AnyIntArray
    classes: int
    groups: AnyIntArray | None
    random: SecureRandom


@dataclass(frozen=True, eq=False)
class Trained:
    """The members, as they are kept.

    Attributes
    ----------
    networks : list of bytes
    records : list of int
        On how many records each was trained.
    temperatures : list of float
    checks : list of Check
        Those that need the source.
    metrics : dict of str to float
        Those that need the source.
    """

    networks: list[bytes]
    records: list[int]
    temperatures: list[float]
    checks: list[Check] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)


def require_extra(*, with_budget: bool) -> None:
    """Refuse to train where the libraries for it are not installed.

    Raises
    ------
    ServerError
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


def disjoint(data: Training, request: ModelRequest, pulse: Pulse) -> MethodResult:
    """Train each member on people of its own."""
    parts = parts_of(len(data.labels), request.members, data.random.generator(), data.groups)
    return MethodResult(_trained(data, request, pulse, parts))


def all(data: Training, request: ModelRequest, pulse: Pulse) -> MethodResult:  # noqa: A001  # its name
    """Train each member on all people."""
    return MethodResult(_trained(data, request, pulse, None))


def _trained(
    data: Training, request: ModelRequest, pulse: Pulse, parts: IntArray | None
) -> Trained:
    members: Sequence[Member] = list(
        train(
            data.inputs,
            data.labels,
            data.classes,
            members=request.members,
            parts=parts,
            people=None if data.groups is None else int(data.groups.max()) + 1,
            settings=Settings(steps=request.options.steps),
            generator=data.random.generator(),
            pulse=pulse,
        )
    )
    n = len(data.labels)
    sizes = [n] * len(members) if parts is None else np.bincount(parts).tolist()
    return Trained(
        [member.to_bytes() for member in members],
        sizes,
        [member.temperature for member in members],
        [] if parts is None else [_check_parts(data, parts, request.members)],
        figures_of(members, data.inputs, data.labels, parts, request.budget, data.random, pulse),
    )


def _check_parts(data: Training, parts: IntArray, n_parts: int) -> Check:
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
