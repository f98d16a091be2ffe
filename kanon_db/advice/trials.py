"""Trying a candidate: it is published, measured and attacked in a savepoint, which is undone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from kanon_db.advice.candidates import Candidate
from kanon_db.advice.copies import Copy
from kanon_db.advice.ranking import Measured, Tried
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.catalog.entries import published_schema
from kanon_db.errors import (
    IneligibleError,
    InfeasibleError,
    InvalidParameterError,
    KanonError,
    SchemaMismatchError,
)
from kanon_db.metrics.count_errors import CountErrors, exact_counts
from kanon_db.metrics.workload import CountQuery, random_queries
from kanon_db.publications.kind import Target
from kanon_db.publications.pipeline import stage
from kanon_db.publications.registry import kind_named
from kanon_db.publications.results import Attack
from kanon_db.publications.usefulness import SELECTIVITY
from kanon_db.session import Row, Session, undone
from kanon_db.session.protocol import Value
from kanon_db.transfer.room import Room
from kanon_db.transfer.values import DistinctValues, distinct_values, read_codes

N_QUERIES: Final = 300
_MOST_CONDITIONS: Final = 3
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

    def step(self, name: str) -> None:
        """Say what is tried, and what is done of it."""
        self._session.step(f"{self._title}: {name}")
        self.heartbeat()

    def tell(self, message: str) -> None:
        """Say nothing: what a trial needs does not matter."""

    def warn(self, message: str) -> None:
        """Say nothing: what is measured says it."""


@dataclass(frozen=True, eq=False)
class Questions:
    """Random count queries with their true answers in what candidates are tried on.

    Attributes
    ----------
    columns : list of DistinctValues
    sensitive : DistinctValues or None
    queries : list of CountQuery
    actual : ndarray of int64, shape (n_queries,)
    """

    columns: list[DistinctValues]
    sensitive: DistinctValues | None
    queries: list[CountQuery]
    actual: IntArray

    @classmethod
    def of(cls, session: Session, copy: Copy) -> Questions:
        """Draw the questions: on up to three quasi-identifiers, and the sensitive attribute."""
        snapshot, source = copy.snapshot, copy.source
        columns = [distinct_values(snapshot, copy.types[c]) for c in source.quasi_identifiers]
        codes = read_codes(snapshot, columns)
        sensitive, values = None, np.zeros(snapshot.n_records, dtype=np.int32)
        if source.sensitive is not None:
            sensitive = distinct_values(snapshot, copy.types[source.sensitive])
            values = read_codes(snapshot, [sensitive])[:, 0]
        pulse = Pulse(heartbeat=session.heartbeat)
        queries = random_queries(
            N_QUERIES,
            [len(column.labels) for column in columns],
            1 if sensitive is None else len(sensitive.labels),
            np.random.default_rng(_SEED),
            dimensionality=range(1, min(_MOST_CONDITIONS, len(columns)) + 1),
            selectivity=SELECTIVITY,
            pulse=pulse,
        )
        return cls(columns, sensitive, queries, exact_counts(codes, values, queries, pulse=pulse))


def try_candidate(
    session: Session,
    candidate: Candidate,
    copy: Copy,
    questions: Questions,
    deadline: float,
    *,
    is_attacked: bool = True,
) -> Tried:
    """Publish a candidate from a copy, measure and attack it, and undo all of it.

    Parameters
    ----------
    session : Session
    candidate : Candidate
    copy : Copy
    questions : Questions
    deadline : float
        By the clock of :func:`time.monotonic`.
    is_attacked : bool
        Whether to play attacks, which takes most of the time.
    """
    timed = TimedSession(session, candidate.title, deadline)
    try:
        with undone(session):
            return Tried(candidate, _measured(timed, candidate, copy, questions, is_attacked))
    except TimeOverError:
        return Tried(candidate, failure="not tried to its end: the time was over")
    except (
        IneligibleError, InfeasibleError, InvalidParameterError, SchemaMismatchError,
    ) as error:  # fmt: skip
        return Tried(candidate, failure=f"it is refused: {error.message}")


def _measured(
    session: Session, candidate: Candidate, copy: Copy, questions: Questions, is_attacked: bool
) -> Measured:
    session.heartbeat()
    started = time.monotonic()
    declared = kind_named(candidate.kind)
    given = {**candidate.given, **candidate.trial}
    request = declared.operation.read(
        {"source": copy.source.relation.quoted(session), "publication": "tried", **given}
    )
    staged = stage(session, request, copy.source, copy.types, readers=())
    seconds = time.monotonic() - started
    kind = declared.load()
    target = Target(
        session, staged.publication, copy.source, copy.types, published_schema(session),
        Room.of(session),
    )  # fmt: skip
    session.step("answering counts")
    useful = kind.usefulness(target, questions.columns, questions.sensitive, questions.queries)
    attacks = kind.attack(target) if is_attacked else []
    return Measured(
        guarantee=staged.publication.guarantee,
        certain_people=_certain(attacks),
        count_error=CountErrors(questions.actual, useful.answers).median,
        losses=dict(zip(copy.source.quasi_identifiers, useful.losses.tolist(), strict=True)),
        attacks=[asdict(row) for row in attacks],
        seconds=seconds,
    )


def _certain(attacks: Sequence[Attack]) -> int | None:
    """Return how many people's value is certain, as the attack `homogeneity` says."""
    for row in attacks:
        if row.attack == "homogeneity" and row.rate is not None:
            return round(row.rate * row.people)
    return None
