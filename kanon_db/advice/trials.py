"""Trying a candidate: it is published, measured and attacked in a savepoint, which is undone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Final

import numpy as np

from kanon_db.advice.candidates import Candidate
from kanon_db.advice.copies import MOST_DRAWN, Copy
from kanon_db.advice.ranking import Measured, Tried
from kanon_db.algorithms.ground.arrays import FloatArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.catalog.entries import published_schema
from kanon_db.errors import (
    IneligibleError,
    InfeasibleError,
    InvalidParameterError,
    KanonError,
    SchemaMismatchError,
)
from kanon_db.metrics.count_errors import CountErrors
from kanon_db.publications.kind import Kind, Target
from kanon_db.publications.pipeline import stage
from kanon_db.publications.questions import Questions
from kanon_db.publications.registry import kind_named
from kanon_db.publications.results import Attack
from kanon_db.publications.usefulness import SELECTIVITY
from kanon_db.session import Row, Session, undone
from kanon_db.session.protocol import Value
from kanon_db.transfer.room import Room

N_QUERIES: Final = 300
_MOST_DRAWS: Final = 5
_SEED: Final = 1
"""The same questions for the same table."""


class TimeOverError(KanonError):
    """The time for advice is over."""


class TimedSession:
    """A session that ends a trial when its time is over, and keeps its messages to itself.

    Parameters
    ----------
    session : Session
    title : str
        What is tried.
    deadline : float
        By the clock of :func:`time.monotonic`.
    """

    def __init__(self, session: Session, title: str, deadline: float) -> None:
        self._session = session
        self._title = title
        self._deadline = deadline

    def fetch(self, statement: str, *values: Value) -> list[Row]:
        """Run one statement; see the protocol."""
        return self._session.fetch(statement, *values)

    def stream(self, n: int, statement: str, *values: Value) -> Iterator[Row]:
        """Run one statement; see the protocol."""
        return self._session.stream(n, statement, *values)

    def identifier(self, *parts: str) -> str:
        """Quote a name."""
        return self._session.identifier(*parts)

    def literal(self, value: str) -> str:
        """Quote a value."""
        return self._session.literal(value)

    def savepoint(self) -> AbstractContextManager[object]:
        """Undo what the block did if it raises."""
        return self._session.savepoint()

    def heartbeat(self) -> None:
        """Check for a cancel, and for the end of the time.

        Raises
        ------
        TimeOverError
        """
        self._session.heartbeat()
        if time.monotonic() > self._deadline:
            raise TimeOverError("the time is over")

    def reporting(self) -> AbstractContextManager[None]:
        """Let the session around it say how far it is."""
        return nullcontext()

    def plan(self, phases: Sequence[str]) -> None:
        """Say nothing: a trial is one phase of many."""

    def phase(self, name: str) -> None:
        """Say what is tried, and what is done of it."""
        self.step(name)

    def step(self, name: str) -> None:
        """Say what is tried, and what is done of it."""
        self._session.step(f"{self._title}: {name}")
        self.heartbeat()

    def limit(self, seconds: float) -> None:
        """Say nothing: the time of all trials together is limited, too."""

    def done(self, n: int, of: int) -> None:
        """Say how much of the step is done."""
        self._session.done(n, of)
        self.heartbeat()

    def tell(self, message: str) -> None:
        """Say nothing: what a trial needs does not matter."""

    def warn(self, message: str) -> None:
        """Say nothing: what is measured says it."""


@dataclass(frozen=True, eq=False)
class Ground:
    """What candidates are tried on: a copy, and random count queries with their true answers in it.

    Attributes
    ----------
    copy : Copy
    asked : Questions
    """

    copy: Copy
    asked: Questions

    @classmethod
    def of(cls, session: Session, copy: Copy) -> Ground:
        """Draw the questions."""
        asked = Questions.draw(
            N_QUERIES, copy.snapshot, copy.source, copy.types,
            selectivity=SELECTIVITY, seed=_SEED, pulse=Pulse(heartbeat=session.heartbeat),
        )  # fmt: skip
        return cls(copy, asked)


def try_candidate(
    session: Session, candidate: Candidate, small: Ground, large: Ground, deadline: float
) -> Tried:
    """Publish a candidate from copies of a source, measure and attack it, and undo all of it.

    Parameters
    ----------
    session : Session
    candidate : Candidate
    small : Ground
        Where it is searched and attacked.
    large : Ground
        Where one that is drawn quickly answers counts, several times if there are few records.
    deadline : float
        By the clock of :func:`time.monotonic`.
    """
    timed = TimedSession(session, candidate.title, deadline)
    ground = large if candidate.is_drawn else small
    n_draws = number_of_draws(ground.copy.n_records) if candidate.is_drawn else 1
    try:
        draws = [answer_counts(timed, candidate, ground) for _ in range(n_draws)]
        attacks = _attacks(timed, candidate, small.copy)
    except TimeOverError:
        return Tried(candidate, failure="not tried to its end: the time was over")
    except (
        IneligibleError, InfeasibleError, InvalidParameterError, SchemaMismatchError,
    ) as error:  # fmt: skip
        return Tried(candidate, failure=f"it is refused: {error.message}")
    losses = np.mean([draw.losses for draw in draws], axis=0).tolist()
    return Tried(
        candidate,
        Measured(
            certain_people=_certain(attacks),
            count_error=float(np.mean([draw.error for draw in draws])),
            losses=dict(zip(small.copy.source.quasi_identifiers, losses, strict=True)),
            attacks=[asdict(row) for row in attacks],
            seconds=float(np.mean([draw.seconds for draw in draws])),
            records=ground.copy.n_records,
            is_sample=small.copy.is_sample,
        ),
    )


def number_of_draws(n_records: int) -> int:
    """Return how often to draw: chance matters more in a small table, which takes less time.

    Examples
    --------
    >>> [number_of_draws(n) for n in (200, 20_000, 50_000)]
    [5, 3, 1]
    """
    return max(1, min(_MOST_DRAWS, MOST_DRAWN // n_records))


@dataclass(frozen=True, eq=False)
class Draw:
    """What was measured of one publication of a candidate.

    Attributes
    ----------
    error : float
        The median of |answer - count| / count; NaN if no record matches any query.
    losses : ndarray of float64, shape (n_qi,)
    seconds : float
        Of publishing.
    """

    error: float
    losses: FloatArray
    seconds: float


def answer_counts(session: Session, candidate: Candidate, ground: Ground) -> Draw:
    """Publish a candidate, answer the questions from it, and undo it."""
    with undone(session):
        started = time.monotonic()
        kind, target = _staged(session, candidate, ground.copy)
        seconds = time.monotonic() - started
        session.step("answering counts")
        asked = ground.asked
        useful = kind.usefulness(target, asked.columns, asked.sensitive, asked.queries)
        error = CountErrors(asked.actual, useful.answers).median
        return Draw(error, useful.losses, seconds)


def _attacks(session: Session, candidate: Candidate, copy: Copy) -> Sequence[Attack]:
    """Publish a candidate, attack it, and undo it."""
    with undone(session):
        kind, target = _staged(session, candidate, copy)
        return kind.attack(target)


def _staged(session: Session, candidate: Candidate, copy: Copy) -> tuple[Kind, Target]:
    session.heartbeat()
    declared = kind_named(candidate.kind)
    given = {**candidate.given, **candidate.trial}
    request = declared.operation.read(
        {"source": copy.source.relation.quoted(session), "publication": "tried", **given}
    )
    request = replace(request, is_tried=True)
    staged = stage(session, request, copy.source, copy.types, readers=())
    target = Target(
        session, staged.publication, copy.source, copy.types, published_schema(session),
        Room.of(session),
    )  # fmt: skip
    return declared.load(), target


def _certain(attacks: Sequence[Attack]) -> int | None:
    """Return how many people's value is certain, as the attack `homogeneity` says."""
    for row in attacks:
        if row.attack == "homogeneity" and row.rate is not None:
            return round(row.rate * row.people)
    return None
