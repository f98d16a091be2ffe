"""Trains the members of an ensemble, on disjoint parts of the records or on all of them."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse
from kanon_db.errors import InfeasibleError, InvalidParameterError, ServerError
from kanon_db.models._network import (
    Architecture,
    Float32Array,
    Member,
    TrainingSettings,
    network_for,
)

TEMPERATURES = tuple(float(10 * i) for i in range(1, 51))
"""The temperatures of the thesis: 10, 20, … 500."""

_WORK_PER_CHUNK = 4e8  # multiplications between heartbeats: some hundredths of a second
_VALUES_AT_ONCE = 4e7  # numbers kept for the gradients of all members: 160 MB


def parts_of(
    n_records: int, n_parts: int, generator: np.random.Generator, groups: AnyIntArray | None = None
) -> IntArray:
    """Put each record into one of several disjoint parts at random; all of a person into one.

    `groups` (n_records,): the number of each record's person, from 0 without gaps.
    """
    # People are shuffled and dealt, so that the sizes of parts differ by one person at most, and
    # depend on nobody's values.
    owners = np.arange(n_records) if groups is None else groups
    n_people = int(owners.max(initial=-1)) + 1
    if n_people < n_parts:
        raise InvalidParameterError(
            "there are fewer people than disjoint parts",
            detail=f"{n_people} people, {n_parts} parts",
            hint="ask for fewer members, or train all of them on all records",
        )
    part_of_person = np.empty(n_people, dtype=np.int64)
    part_of_person[generator.permutation(n_people)] = np.arange(n_people) % n_parts
    return part_of_person[owners]


def train(
    inputs: Float32Array,
    labels: AnyIntArray,
    classes: int,
    *,
    members: int = 50,
    temperatures: Sequence[float] | None = None,
    parts: IntArray | None = None,
    people: int | None = None,
    settings: TrainingSettings | None = None,
    architecture: Architecture | None = None,
    generator: np.random.Generator | None = None,
    pulse: Pulse = UNLIMITED,
) -> Iterator[Member]:
    """Train the members of an ensemble; yield each as soon as it is trained.

    Shapes: `inputs` (n_records, *shape), `labels` (n_records,), `parts` (n_records,).
    """
    # [TH] 4.2.3 and 4.3.1: members differ in the temperature of their softmax, by default those of
    # the thesis, repeated, and, with disjoint parts, in their records: member i sees part i only.
    # Only the high temperature in training is taken from Defensive Distillation (N. Papernot et
    # al., S&P 2016): members learn from the true classes, not from a teacher's probabilities. The
    # answer is the largest logit, which no temperature changes. The size of batches depends on the
    # number of people, not of their records. Apart from it, a member sees only its own records and
    # its own random numbers: replacing one person by another changes one member only, however many
    # records either has.
    try:
        from kanon_db.models._descent import GradientDescent
    except ImportError:
        raise ServerError(
            "training needs JAX and optax",
            hint="pip install 'kanon_db[models]' in the environment that trains",
        ) from None
    settings = settings or TrainingSettings()
    architecture = architecture or network_for(inputs.shape[1:], classes)
    generator = generator or np.random.default_rng()
    heats = temperatures or [TEMPERATURES[i % len(TEMPERATURES)] for i in range(members)]
    everything = np.arange(len(labels))
    rows = [everything if parts is None else everything[parts == i] for i in range(members)]
    if empty := sum(not of_member.size for of_member in rows):
        raise InvalidParameterError("members have no records", detail=f"{empty} of {members}")
    # Nothing about a member may depend on the records of another part: not even its batches.
    people = len(labels) if people is None else people
    batch = min(settings.batch, max(1, people // (1 if parts is None else members)))
    kept = batch * sum([*architecture.sizes(), *architecture.patches()])
    at_once = int(_VALUES_AT_ONCE // kept) or 1
    work = 3 * batch * architecture.multiplications() * min(at_once, members)
    chunk = max(1, min(settings.steps, int(_WORK_PER_CHUNK / work)))
    with _signals_blocked():
        descent = GradientDescent(architecture, settings, inputs, labels)
    for start in range(0, members, at_once):
        group = range(start, min(start + at_once, members))
        deals = [_ShuffledBatches(rows[i], batch, generator) for i in group]
        with _signals_blocked():
            descent.start([heats[i] for i in group], generator)
        for first in range(0, settings.steps, chunk):
            n = min(chunk, settings.steps - first)
            picked = np.stack([deal.next(n) for deal in deals], axis=1)
            with _signals_blocked():
                descent.run(picked)
            pulse.done(start * settings.steps + (first + n) * len(group), settings.steps * members)
            if pulse.is_over:
                raise InfeasibleError(
                    "training takes longer than its time limit",
                    hint="allow more time, or ask for fewer members or steps",
                )
        for i, arrays in zip(group, descent.parameters(), strict=True):
            yield Member(architecture, arrays, heats[i], -1 if parts is None else i)


class _ShuffledBatches:
    """Deals the records of one member, shuffled anew each time that all were dealt."""

    def __init__(self, rows: IntArray, batch: int, generator: np.random.Generator) -> None:
        self._rows = rows
        self._batch = batch
        self._generator = generator
        self._left: IntArray = rows[:0]

    def next(self, n: int) -> IntArray:
        """Return the records of the next batches."""
        while self._left.size < n * self._batch:
            self._left = np.concatenate([self._left, self._generator.permutation(self._rows)])
        dealt, self._left = np.split(self._left, [n * self._batch])
        return dealt.reshape(n, self._batch)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Let JAX start its threads so that none of them gets the server's signals."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
