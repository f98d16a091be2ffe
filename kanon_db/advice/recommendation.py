"""Tries candidates in savepoints, which are undone, and recommends the best of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, replace
from math import isnan
from typing import Any, Final

import numpy as np

from kanon_db.advice.identifying_columns import (
    MOST_BRIEF,
    MOST_DRAWN,
    MOST_TRIED,
    SourceCopy,
    copy_source,
)
from kanon_db.advice.publication_candidates import (
    PROTECTIONS,
    Candidate,
    ProtectionLevel,
    RankedCandidate,
    SharedTime,
    SourceTraits,
    TrialResult,
    TriedCandidate,
    candidates_for,
    publication_name,
    ranked,
    shell_command,
    sql_call,
    tried_in_time,
)
from kanon_db.algorithms.ground.arrays import FloatArray
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.answers.estimates import measure_usefulness
from kanon_db.catalog.entries import Source, published_schema
from kanon_db.catalog.sources import open_source, require_unchanged
from kanon_db.dataclasses import dataclass
from kanon_db.errors import (
    IneligibleError,
    InfeasibleError,
    InvalidParameterError,
    KanonError,
    SchemaMismatchError,
)
from kanon_db.metrics.count_queries import CountErrors
from kanon_db.publications.kind import SELECTIVITY, AttackTarget, Kind, RandomQueries
from kanon_db.publications.pipeline import stage
from kanon_db.publications.registry import kind_named
from kanon_db.publications.releases.ledger import check_readers, earlier_releases
from kanon_db.publications.results import Attack, is_attack
from kanon_db.session import Row, Session, undone
from kanon_db.session.protocol import Value
from kanon_db.transfer.allowance import Allowance
from kanon_db.transfer.values import distinct_values

N_QUERIES: Final = 300
_MOST_DRAWS: Final = 5
_SEED: Final = 1
"""The same questions for the same table."""


class TimeOverError(KanonError):
    """The time for advice is over."""


class TimedSession:
    """A session that ends a trial at a deadline, and keeps its messages to itself.

    The deadline is a reading of :func:`time.monotonic`.
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
        """Check for a cancel, and for the end of the time (`TimeOverError`)."""
        self._session.heartbeat()
        if time.monotonic() > self._deadline:
            raise TimeOverError("the time is over")

    def reporting(self) -> AbstractContextManager[None]:
        """Let the outer session report progress."""
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
        """Say nothing: the figures of the trial say it."""


@dataclass(eq=False)
class TrialGround:
    """The copy on which candidates are tried, with random count queries and their true answers."""

    copy: SourceCopy
    _asked: RandomQueries | None = None

    def ask(self, session: Session) -> RandomQueries:
        """Draw the questions, when they are first needed."""
        if self._asked is None:
            self._asked = RandomQueries.draw(
                N_QUERIES, self.copy.snapshot, self.copy.source, self.copy.types,
                selectivity=SELECTIVITY, seed=_SEED, pulse=Pulse(heartbeat=session.heartbeat),
            )  # fmt: skip
        return self._asked


def try_candidate(
    session: Session, candidate: Candidate, small: TrialGround, large: TrialGround, deadline: float,
    *, is_brief: bool = False,
) -> TriedCandidate:  # fmt: skip
    """Publish a candidate from copies of a source, measure and attack it, and undo all of it.

    It is searched and attacked on the `small` ground; a quick one answers counts on `large`.
    """
    timed = TimedSession(session, candidate.title, deadline)
    ground = large if candidate.is_drawn else small
    several = candidate.is_drawn and not is_brief
    n_draws = number_of_draws(ground.copy.n_records) if several else 1
    try:
        first, attacks = _published(timed, candidate, ground, is_attacked=ground is small)
        draws = [first]
        if ground is not small:
            attacks = _attacks(timed, candidate, small.copy)
        with suppress(TimeOverError):
            while len(draws) < n_draws:
                draws.append(answer_counts(timed, candidate, ground))
    except TimeOverError:
        return TriedCandidate(
            candidate,
            failure="not tried to its end: its share of the time was over",
            is_unfinished=True,
        )
    except (
        IneligibleError, InfeasibleError, InvalidParameterError, SchemaMismatchError,
    ) as error:  # fmt: skip
        return TriedCandidate(candidate, failure=f"it is refused: {error.message}")
    losses = np.mean([draw.losses for draw in draws], axis=0).tolist()
    return TriedCandidate(
        candidate,
        TrialResult(
            certain_people=_certain(attacks),
            count_error=float(np.mean([draw.error for draw in draws])),
            losses=dict(zip(small.copy.source.quasi_identifiers, losses, strict=True)),
            attacks=[asdict(row) for row in attacks],
            seconds=float(np.mean([draw.seconds for draw in draws])),
            records=ground.copy.n_records,
            is_sample=small.copy.is_sample,
            is_brief=is_brief,
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
    """The figures measured of one publication of a candidate."""

    error: float  # The median of |answer - count| / count; NaN if no record matches any query
    losses: FloatArray  # (n_qi,)
    seconds: float  # Of publishing


def answer_counts(session: Session, candidate: Candidate, ground: TrialGround) -> Draw:
    """Publish a candidate, answer the questions from it, and undo it."""
    return _published(session, candidate, ground, is_attacked=False)[0]


def _published(
    session: Session, candidate: Candidate, ground: TrialGround, *, is_attacked: bool
) -> tuple[Draw, Sequence[Attack]]:
    """Publish a candidate, answer the questions from it, attack it if asked to, and undo it."""
    asked = ground.ask(session)
    with undone(session):
        started = time.monotonic()
        kind, target = _stage_candidate(session, candidate, ground.copy)
        seconds = time.monotonic() - started
        session.step("answering counts")
        useful = measure_usefulness(target, asked)
        error = CountErrors(asked.actual, useful.answers).median
        attacks = kind.attack(target) if is_attacked else ()
        return Draw(error, useful.losses, seconds), attacks


def _attacks(session: Session, candidate: Candidate, copy: SourceCopy) -> Sequence[Attack]:
    """Publish a candidate, attack it, and undo it."""
    with undone(session):
        kind, target = _stage_candidate(session, candidate, copy)
        return kind.attack(target)


def _stage_candidate(
    session: Session, candidate: Candidate, copy: SourceCopy
) -> tuple[Kind, AttackTarget]:
    session.heartbeat()
    declared = kind_named(candidate.kind)
    given = {**candidate.given, **candidate.trial}
    request = declared.operation.read(
        {"source": copy.source.relation.quoted(session), "publication": "tried", **given}
    )
    request = replace(request, is_tried=True)
    staged = stage(session, request, copy.source, copy.types, readers=())
    target = AttackTarget(
        session, staged.publication, copy.source, copy.types, published_schema(session),
        Allowance.of(session),
    )  # fmt: skip
    return declared.load(), target


def _certain(attacks: Sequence[Attack]) -> int | None:
    """Return how many people's value is certain, as the attack `homogeneity` says.

    Of several sensitive attributes, the one counts of which most values are.
    """
    found = [
        round(row.rate * row.people)
        for row in attacks
        if is_attack(row.attack, "homogeneity") and row.rate is not None
    ]
    return max(found, default=None)


TIME_LIMIT: Final = 60.0

_TRYING: Final = 0.95
"""The share of the time in which candidates are tried: some steps end a little later."""

_MORE: Final = 4
"""Times the time that is suggested where it did not suffice."""

_MOST: Final = 86_400
"""Seconds that may be suggested."""


@dataclass(frozen=True)
class RecommendedPublication:
    """A candidate: what it promises, what it is good for, and how to publish it."""

    place: int | None  # From 1 on; None for what is not recommended
    candidate: str  # What it is, in a few words
    guarantee: str  # In a plain sentence
    # How many of those it was tried on have a sensitive value that is certain; None if there is no
    # sensitive attribute
    certain_people: int | None
    # Half of 300 random counts are off by no more than this share of the true count
    count_error: float | None
    loss: float | None  # The mean of the columns' losses
    loss_by_column: Mapping[str, float] | None  # From 0 (all values are shown) to 1 (nothing is)
    attack_rate: float | None  # How often the best attack is right
    attacks: list[Mapping[str, Any]] | None  # The rows of `attack`
    seconds: float | None  # What publishing took, of the records that it was tried on
    tried_on: int  # How many records counts were answered from, and how many the source has
    records: int
    objection: str | None  # Why it is not recommended
    sql: str  # What publishes it
    command: str


def recommend(
    session: Session,
    source: str,
    *,
    purpose: str = "counts",
    protection: str = "standard",
    time_limit: float = TIME_LIMIT,
) -> list[RecommendedPublication]:
    """Try what could be published of a source, and compare the candidates; nothing is published.

    Parameters
    ----------
    session : Session
        A session of a role that could publish the source.
    source : str
        A registered relation.
    purpose : {"counts", "rows", "both"}
    protection : {"basic", "standard", "strict"}
    time_limit : float
        Seconds, which the candidates share, and after which this ends: nothing is tried longer.

    Returns
    -------
    list of Recommended
        The best first; what is not recommended comes last. After a KeyboardInterrupt, of what was
        tried until then, if anything of it can be recommended.

    Raises
    ------
    NotFoundError
        When the source is not registered.
    PermissionDeniedError
        When the role cannot read all of it.
    InvalidParameterError
        When the time does not suffice to read the source.
    """
    with undone(session):
        return _recommend(session, source, purpose, PROTECTIONS[protection], time_limit)


def _recommend(
    session: Session, source: str, purpose: str, protection: ProtectionLevel, seconds: float
) -> list[RecommendedPublication]:
    shared = SharedTime(_TRYING * seconds)
    described, _ = open_source(session, source)
    try:
        copies = _copy_samples(session, described, shared.until(1))
        grounds = {id(copy): TrialGround(copy) for copy in copies}
        large, small, brief = (grounds[id(copy)] for copy in copies)
        data = what_is_protected(large, has_entities=large.copy.has_entities(session))
    except TimeOverError:
        raise InvalidParameterError(
            "the time does not suffice to read the source",
            detail=f"time_limit = {seconds:g} s, and nothing was tried",
            hint="give it more, such as time_limit => 60",
        ) from None
    n_source = small.copy.n_source
    if small.copy.is_sample:
        session.tell(
            f"the source has {n_source:,} records, so candidates are tried on random samples"
            f" of some {MOST_TRIED:,}, and buckets answer counts about some {MOST_DRAWN:,}: errors"
            " and losses of the whole table are as a rule smaller"
        )
    candidates = candidates_for(purpose, protection, data)
    order = sorted(candidates, key=lambda one: one.cost)
    session.plan([_FIRST, *(one.title for one in order)])

    def attempt(candidate: Candidate, deadline: float, is_brief: bool) -> TriedCandidate:
        if is_brief:
            if not found.tried:
                session.phase(_FIRST)
            session.step(f"{candidate.title}: on a small sample")
            return try_candidate(session, candidate, brief, brief, deadline, is_brief=True)
        session.phase(candidate.title)
        session.limit(deadline - shared.clock())
        return try_candidate(session, candidate, small, large, deadline)

    found = _Found(session, described, small, purpose, {})
    try:
        for result in tried_in_time(candidates, attempt, shared):
            found.add(result)
        found.warn_of_time(candidates, seconds)
    except KeyboardInterrupt:
        if found.best is None:
            raise
        session.warn("stopped: this is recommended of what was tried until then")
    _warn_of_releases(session, described)
    tried = [
        found.tried.get(one.title, TriedCandidate(one, failure="not tried: it was stopped before"))
        for one in candidates
    ]
    return [_shown(session, described, small, one) for one in ranked(tried, purpose)]


@dataclass(eq=False)
class _Found:
    """The results of the trials until now, of which the caller is told the best."""

    session: Session
    source: Source
    small: TrialGround
    purpose: str
    tried: dict[str, TriedCandidate]  # By the candidate's title
    best: RankedCandidate | None = None

    def add(self, tried: TriedCandidate) -> None:
        """Take a result; whoever cancels the operation has then been told the best so far."""
        title = tried.candidate.title
        if not (tried.is_unfinished and title in self.tried):
            self.tried[title] = tried
        first = ranked(list(self.tried.values()), self.purpose)[0]
        if first.place is None:
            self.best = None
        elif self.best is None or first.tried is not self.best.tried:
            self.best = first
            shown = _shown(self.session, self.source, self.small, first)
            call = shown.sql.removeprefix(_SELECT).removesuffix(";")
            self.session.tell(
                f"best so far, tried on {shown.tried_on:,} of {shown.records:,} records:"
                f" {shown.candidate}: {call}"
            )

    def warn_of_time(self, candidates: Sequence[Candidate], seconds: float) -> None:
        """Say which candidates had too little time, and how they get more."""
        few, none = [], []
        for one in candidates:
            tried = self.tried.get(one.title)
            if tried is None or tried.is_unfinished:
                none.append(one.title)
            elif tried.measured is not None and tried.measured.is_brief:
                few.append(one.title)
        said = [
            f"{what}: {'; '.join(titles)}"
            for what, titles in (
                ("tried only briefly", few), ("not tried to the end", none),
            )
            if titles
        ]  # fmt: skip
        if said:
            more = min(_MOST, max(int(TIME_LIMIT), round(_MORE * seconds)))
            self.session.warn(
                f"the time did not suffice for all candidates ({'. '.join(said)}); pass"
                f" time_limit => {more} to give them more"
            )


def _copy_samples(session: Session, source: Source, deadline: float) -> list[SourceCopy]:
    """Copy samples of a source, the largest first; where two are the whole table, they are one."""
    timed, room = TimedSession(session, "reading the source", deadline), Allowance.of(session)
    whole = copy_source(timed, source, room, MOST_DRAWN)
    require_unchanged(session, source)
    timed.heartbeat()
    return [whole, *(whole.sampled(timed, room, most) for most in (MOST_TRIED, MOST_BRIEF))]


_SELECT: Final = "SELECT * FROM "

_FIRST: Final = "a first candidate on a small sample"


def what_is_protected(ground: TrialGround, *, has_entities: bool) -> SourceTraits:
    """Return what candidates depend on."""
    copy = ground.copy
    counts = {
        name: distinct_values(copy.snapshot, copy.types[name]).counts.tolist()
        for name in copy.source.all_sensitive
    }
    return SourceTraits(counts, has_entities)


def _warn_of_releases(session: Session, source: Source) -> None:
    """Say that none of the candidates can be published without a word, where that is so."""
    readers = check_readers(session, None, published_schema(session))
    earlier = earlier_releases(session, source.source_id, readers)
    if earlier:
        names = ", ".join(dict.fromkeys(one.name for one in earlier))
        session.warn(
            f"the same readers could read other releases of this source ({names}): what you publish"
            " for them is refused if both tell more, unless you accept the risk combined_releases"
            " (dry_run => true says whether); for another group of readers, add"
            " readers => '{team}', a role of theirs in kanon_user"
        )


def _shown(
    session: Session, source: Source, small: TrialGround, one: RankedCandidate
) -> RecommendedPublication:
    candidate, measured = one.tried.candidate, one.tried.measured
    name = publication_name(source.relation.name, candidate)
    # With the fewest quotes: the search path has no other schema than the server's own.
    (row,) = session.fetch(
        "SELECT to_regclass($1::text)::text AS name", source.relation.quoted(session)
    )
    text = row["name"]
    worst = None if measured is None else measured.worst_attack
    return RecommendedPublication(
        place=one.place,
        candidate=candidate.title,
        guarantee=candidate.guarantee,
        certain_people=None if measured is None else measured.certain_people,
        count_error=None
        if measured is None or isnan(measured.count_error)
        else measured.count_error,
        loss=None if measured is None else measured.loss,
        loss_by_column=None if measured is None else measured.losses,
        attack_rate=None if worst is None else worst["rate"],
        attacks=None if measured is None else list(measured.attacks),
        seconds=None if measured is None else measured.seconds,
        tried_on=small.copy.n_records if measured is None else measured.records,
        records=small.copy.n_source,
        objection=one.objection,
        sql=f"{_SELECT}{sql_call(text, name, candidate, session.literal)};",
        command=shell_command(text, name, candidate),
    )
