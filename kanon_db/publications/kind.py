"""Defines the steps of a kind of publication, and the job that the pipeline passes to them.

A kind reads and checks, calls the method that was asked for, writes and examines. What it answers
to random count queries (`Usefulness`) and how its records are grouped (`Partition`, `Classes`) let
kanon_db measure any kind in the same way.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field, replace
from fractions import Fraction
from math import inf
from types import ModuleType
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import numpy as np

from kanon_db.algorithms.bucketization.privacy import PrivacySpecification
from kanon_db.algorithms.ground.arrays import CodeArray, FloatArray, IntArray
from kanon_db.algorithms.ground.computation import Proof, Pulse
from kanon_db.catalog.entries import Publication, Source
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError
from kanon_db.metrics.count_queries import CountErrors, CountQuery, exact_counts, random_queries
from kanon_db.publications.guarantees import Guarantee, InferenceBound
from kanon_db.publications.publish_request import PublishRequest
from kanon_db.publications.relations import Note, StagedRelations
from kanon_db.publications.releases.entities import Entities
from kanon_db.publications.results import Attack, Check, CountAccuracy, Examination
from kanon_db.query.layout import CellDescription, Quotes
from kanon_db.randomness import SeededRandom
from kanon_db.session import Session
from kanon_db.transfer.allowance import Allowance, Needs
from kanon_db.transfer.columns import ColumnType, Relation
from kanon_db.transfer.snapshot import Records, Size, Snapshot, take_snapshot
from kanon_db.transfer.values import (
    DistinctValues,
    distinct_values,
    read_codes,
    read_integers,
    read_known_codes,
)


@dataclass(frozen=True)
class PublishedBuckets:
    """A publication of buckets; every name is quoted."""

    people: str  # a relation with a row for each record
    contents: str  # a relation with a row for each value in a bucket
    bucket: str  # columns: the bucket in both relations, the value and how often it occurs
    value: str
    count: str
    quasi_identifiers: Mapping[str, str]  # columns of `people`, by their names
    sensitive: str  # the name of the attribute that the values are of
    # The largest share that each value, by its text, may have, from how often it occurs.
    thresholds: Callable[[Sequence[str | None], IntArray], Sequence[Fraction]]


@dataclass(frozen=True)
class PublishedClasses:
    """A publication of rows, where those with the same cells are a class; no name is quoted."""

    schema: str
    publication: Publication
    sensitive: str | None
    # As of `PublishedBuckets`; 1 where nothing is promised. None if that is so of all values.
    thresholds: Callable[[Sequence[str | None], IntArray], Sequence[Fraction]] | None
    # The same, for each further sensitive attribute.
    also: Sequence[PublishedClasses] = ()

    @property
    def of_each(self) -> Sequence[PublishedClasses]:
        """The same rows, for each sensitive attribute."""
        return (self, *self.also)

    def seen_by(self, sensitive: str | None) -> PublishedClasses:
        """Return the rows with what is promised of an attribute; of the first one for others."""
        return next((one for one in self.also if one.sensitive == sensitive), self)

    @property
    def quasi_identifiers(self) -> list[str]:
        """The names of the quasi-identifiers."""
        return [cell["name"] for cell in self.publication.layout["quasi_identifiers"]]

    @property
    def others(self) -> Sequence[str]:
        """What the rows show besides quasi-identifiers."""
        return list(map(str, self.publication.layout["others"]))


@dataclass(frozen=True, eq=False)
class Usefulness:
    """Usefulness of a publication: its answers to counts, and its losses."""

    # Shape (n_queries,); what `estimate_count` answers, where ranges stand for values of the source
    answers: FloatArray
    # Shape (n_qi,); for each quasi-identifier: 0 if each row shows its value, 1 if no row shows
    # anything.
    losses: FloatArray


SELECTIVITY: Final = (0.01, 0.05, 0.1)
"""Expected shares of matching records, of which each random query draws one."""


@dataclass(frozen=True)
class Workload:
    """Random count queries, as the parameters of `evaluate_counts` describe them."""

    queries: int
    dimensionality: tuple[int, ...] | None = None
    selectivity: tuple[float, ...] = SELECTIVITY
    seed: int | None = None

    @classmethod
    def of(
        cls,
        queries: int,
        dimensionality: Sequence[int] | None,
        selectivity: Sequence[float] | None,
        seed: int | None,
    ) -> Self:
        """Fill in what the parameters leave open."""
        shares = SELECTIVITY if selectivity is None else tuple(map(float, selectivity))
        return cls(queries, None if dimensionality is None else tuple(dimensionality), shares, seed)


Answerer = Callable[[Sequence[Any], Any, Sequence[CountQuery]], FloatArray]
"""Answers queries by codes of the source's values, given these of each quasi-identifier and of a
sensitive attribute, or None."""


def compare_counts(
    target: MeasuredPublication,
    workload: Workload,
    quasi_identifiers: Sequence[str],
    sensitive: str | None,
    answer: Answerer,
) -> tuple[CountErrors, FloatArray]:
    """Draw random queries, and compare the answers of a publication with its source.

    Returns
    -------
    CountErrors
    ndarray of float64, shape (n_queries,)
        The expected selectivity of each query.
    """
    target.session.phase("reading the source")
    source = target.original([*quasi_identifiers, *([] if sensitive is None else [sensitive])])
    columns = [source.values(name) for name in quasi_identifiers]
    values = None if sensitive is None else source.values(sensitive)
    n_values = [len(column.labels) for column in columns]
    n_sensitive = 1 if values is None else len(values.labels)
    target.session.phase("drawing the queries")
    queries, dimensionality = workload.queries, workload.dimensionality
    largest = sorted(n_values, reverse=True)
    n_conditions = max(dimensionality or [len(largest)], default=0)
    # A byte for each value of a condition, twice: the publication's may be others.
    n_bytes = sum(largest[: max(n_conditions, 0)]) + n_sensitive
    source.hold(2 * queries * n_bytes, f"{queries:,} queries of {n_bytes:,} values")
    seed = secrets.randbits(128) if workload.seed is None else workload.seed
    chosen = random_queries(
        queries,
        n_values,
        n_sensitive,
        np.random.default_rng(seed),
        dimensionality=dimensionality or range(1, len(n_values) + 1),
        selectivity=workload.selectivity,
        pulse=target.pulse(),
    )
    target.session.phase("counting in the source")
    codes, own = source.codes(columns), np.zeros(source.n_records, dtype=np.int32)
    if values is not None:
        own = source.codes([values])[:, 0]
    actual = exact_counts(codes, own, chosen, pulse=target.pulse())
    source.drop()
    target.session.phase("estimating from the publication")
    errors = CountErrors(actual, answer(columns, values, chosen))
    for column in (*columns, *([] if values is None else [values])):
        column.drop()
    return errors, np.array([query.selectivity for query in chosen])


def accuracy_of(
    workload: Workload, errors: CountErrors, expected: FloatArray
) -> list[CountAccuracy]:
    """Summarize what :func:`compare_counts` has found, by selectivity and of all queries."""
    return [
        *(_accuracy(s, errors.select(expected == s)) for s in sorted(set(workload.selectivity))),
        _accuracy(None, errors),
    ]


def _accuracy(selectivity: float | None, errors: CountErrors) -> CountAccuracy:
    """Summarize the errors of some queries."""
    return CountAccuracy(
        selectivity, errors.actual.size, errors.n_undefined, errors.mean, errors.median
    )


_MOST_CONDITIONS: Final = 3
"""On quasi-identifiers, beside that on the sensitive attribute."""


@dataclass(frozen=True, eq=False)
class RandomQueries:
    """Random count queries on up to three quasi-identifiers, and the sensitive attribute."""

    columns: list[DistinctValues]  # the quasi-identifiers
    sensitive: DistinctValues | None
    queries: list[CountQuery]
    actual: IntArray  # shape (n_queries,); how many records of the source match

    @classmethod
    def draw(
        cls,
        n: int,
        snapshot: Snapshot,
        source: Source,
        types: Mapping[str, ColumnType],
        *,
        selectivity: Sequence[float],
        seed: int,  # the same seed draws the same questions to the same records
        pulse: Pulse,
    ) -> Self:
        """Draw n questions, and answer them from a snapshot of the source."""
        columns = [distinct_values(snapshot, types[name]) for name in source.quasi_identifiers]
        codes = read_codes(snapshot, columns)
        sensitive, values = None, np.zeros(snapshot.n_records, dtype=np.int32)
        if source.sensitive is not None:
            sensitive = distinct_values(snapshot, types[source.sensitive])
            values = read_codes(snapshot, [sensitive])[:, 0]
        queries = random_queries(
            n,
            [len(column.labels) for column in columns],
            1 if sensitive is None else len(sensitive.labels),
            np.random.default_rng(seed),
            dimensionality=range(1, min(_MOST_CONDITIONS, len(columns)) + 1),
            selectivity=selectivity,
            pulse=pulse,
        )
        return cls(columns, sensitive, queries, exact_counts(codes, values, queries, pulse=pulse))


# Bytes that publishing any kind needs, as measured (``python -m benchmarks forecast``).


def bytes_of_values(size: Size) -> float:
    """Forecast the memory that the values of quasi-identifiers take beside the rows.

    That is little where many records have the same ones.
    """
    return 250.0 * size.n_values


def bytes_of_texts(size: Size) -> float:
    """Forecast the memory that the rows themselves take in sorts, which spill to disk."""
    return min(0.3 * size.width * size.n_records, 64e6)


Request = TypeVar("Request", bound=PublishRequest)


@dataclass(frozen=True, eq=False)
class Job(Generic[Request]):
    """A publication in the making: what was asked for, and what has been read so far."""

    session: Session
    request: Request
    source: Source
    types: Mapping[str, ColumnType]  # all columns of the source, in their order
    staging: StagedRelations  # where the published relations are made
    # The columns that the kind asked for, and that of the entities: a copy of them, or of some
    # kinds (`Kind.takes_codes`) all their codes.
    records: Records
    room: Allowance  # how much memory and disk there is
    random: SeededRandom  # see `kanon_db.publications.pipeline`
    # Whom each record is about, if several can be about the same entity.
    entities: Entities | None = None

    @property
    def snapshot(self) -> Snapshot:
        """The records, of which the server has a copy."""
        assert isinstance(self.records, Snapshot)  # noqa: S101  # all but of kinds that take codes
        return self.records

    @property
    def schema(self) -> str:
        """The schema of published relations."""
        return self.staging.schema

    def pulse(self, seconds: float = inf) -> Pulse:
        """Return the session's heartbeat, with a time limit that starts now."""
        return Pulse(seconds, self.session.heartbeat, self.session.done)

    def limit(self, seconds: float) -> None:
        """Say that the search has a time limit, from now on."""
        self.session.limit(seconds)


@dataclass(eq=False)
class MethodResult:
    """The result of a method."""

    result: Any  # what the kind writes: a bucket setting, classes, matches, a suppression
    proof: Proof | None = None  # from an exact method: how far from the optimum the result can be
    method: str | None = None  # the method that was used, if the one asked for chooses among others

    def hand_over(self) -> Any:
        """Return the result for the last time: it may be as large as the source."""
        result, self.result = self.result, None
        return result


@dataclass(frozen=True, eq=False)
class Written:
    """A written publication, with facts that are known only while writing it."""

    guarantee: Guarantee
    # What the catalog keeps for the estimator and the verification.
    layout: Mapping[str, Any] = field(default_factory=dict)
    checks: Sequence[Check] = ()  # the checks that need the source
    metrics: Mapping[str, float] = field(default_factory=dict)  # the metrics that need the source
    # What the catalog keeps in addition to the parameters of the request.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    # Of rows: the published quasi-identifiers that have shares.
    cells: Mapping[str, CellDescription] = field(default_factory=dict)
    # Of rows: how many originals each cell covers, if it is not all of a class.
    matches: int | None = None
    # Shape (n_records,); the number of each record's signature, which the ledger keeps with a hash
    # of its entity; 0 where too few buckets have it.
    signatures: CodeArray | None = None


@dataclass(frozen=True, eq=False)
class RedrawnBuckets:
    """The buckets of everybody who stays and everybody who came."""

    job: Job[Any]  # with a snapshot of those who are published
    found: MethodResult  # its result is None if nobody is published
    n_stay: int  # records of both that are published
    n_new: int
    n_left_out: int  # records of people who stay, and cannot be published any more
    n_waiting: int  # new records that wait


class ValuesInOrder(Protocol):
    """The distinct values of a column, in the order of their type, NULL last."""

    @property
    def labels(self) -> list[str | None]:
        """Their texts; None for NULL."""

    def drop(self) -> None:
        """Forget them."""


class RecordCodes(Protocol):
    """The records of a relation, read at once, as codes of the values of its columns."""

    @property
    def n_records(self) -> int:
        """How many they are."""

    def values(self, column: str) -> Any:
        """Return the values of a column, as :class:`ValuesInOrder`."""

    def codes(self, columns: Sequence[Any]) -> CodeArray:
        """Return codes by the values of columns, shape (n, m); -1 for what is none of these.

        The values may be those of another relation, whose columns have the same names and types.
        """

    def numbers(self, column: str) -> IntArray:
        """Return a column of whole numbers."""

    def hold(self, n_bytes: float, what: str) -> None:
        """Refuse what needs too much memory beside what was read."""

    def drop(self) -> None:
        """Forget what was read."""


class MeasuredPublication(Protocol):
    """A verified publication with its source, both of which can be read."""

    @property
    def session(self) -> Any:
        """Hears of phases and steps."""

    @property
    def publication(self) -> Publication:
        """Its entry in the catalog."""

    def pulse(self) -> Pulse:
        """Return the session's heartbeat."""

    def published(self, suffix: str, columns: Sequence[str]) -> RecordCodes:
        """Read a published relation."""

    def original(self, columns: Sequence[str]) -> RecordCodes:
        """Read the source."""


@dataclass(frozen=True, eq=False)
class SnapshotCodes:
    """:class:`RecordCodes` of a snapshot."""

    snapshot: Snapshot
    types: Mapping[str, ColumnType]
    _own: list[DistinctValues] = field(default_factory=list)

    @property
    def n_records(self) -> int:
        """How many records there are."""
        return self.snapshot.n_records

    def values(self, column: str) -> DistinctValues:
        """See :func:`.distinct_values`."""
        self._own.append(distinct_values(self.snapshot, self.types[column]))
        return self._own[-1]

    def codes(self, columns: Sequence[DistinctValues]) -> CodeArray:
        """See :func:`.read_codes`, and :func:`.read_known_codes` for values of others."""
        are_own = all(any(one is own for own in self._own) for one in columns)
        return (read_codes if are_own else read_known_codes)(self.snapshot, columns)

    def numbers(self, column: str) -> IntArray:
        """See :func:`.read_integers`."""
        name = self.snapshot.session.identifier(column)
        return read_integers(self.snapshot, f"s.{name}").astype(np.int64)

    def hold(self, n_bytes: float, what: str) -> None:
        """See :meth:`.Records.hold`."""
        self.snapshot.hold(n_bytes, what)

    def drop(self) -> None:
        """Remove the copy."""
        self.snapshot.drop()


@dataclass(frozen=True, eq=False)
class AttackTarget:
    """A publication under attack, with its source: see :class:`MeasuredPublication`."""

    session: Session
    publication: Publication
    # Attacks read it to score guesses, and where the attacker knows its correlations.
    source: Source
    types: Mapping[str, ColumnType]  # all columns of the source, in their order
    schema: str  # the schema of published relations
    room: Allowance  # how much memory and disk there is

    def pulse(self) -> Pulse:
        """Return the session's heartbeat."""
        return Pulse(heartbeat=self.session.heartbeat, on_done=self.session.done)

    def published(self, suffix: str, columns: Sequence[str]) -> SnapshotCodes:
        """Copy a published relation."""
        return self._copied(Relation(self.schema, self.publication.name + suffix), columns)

    def original(self, columns: Sequence[str]) -> SnapshotCodes:
        """Copy the source."""
        return self._copied(self.source.relation, columns)

    def _copied(self, relation: Relation, columns: Sequence[str]) -> SnapshotCodes:
        return SnapshotCodes(take_snapshot(self.session, relation, columns, self.room), self.types)


def measure_bounds(
    target: AttackTarget, privacies: Mapping[str, PrivacySpecification]
) -> dict[str, InferenceBound]:
    """Apply thresholds to the values that the source has of each sensitive attribute."""
    snapshot = take_snapshot(target.session, target.source.relation, list(privacies), target.room)
    bounds = {}
    for name, privacy in privacies.items():
        values = distinct_values(snapshot, target.types[name])
        is_general = replace(privacy, null=None).has_general_rules if privacy.values else True
        # Values that came since are nobody's in the publication.
        covered = [
            (text, count)
            for text, count in zip(values.labels, values.counts.tolist(), strict=True)
            if is_general or text in privacy.values or (text is None and privacy.null is not None)
        ]
        bounds[name] = InferenceBound.of(
            replace(privacy, may_be_absent=True), [text for text, _ in covered],
            [count for _, count in covered],
        )  # fmt: skip
        values.drop()
    snapshot.drop()
    return bounds


class Kind(ABC):
    """A kind of publication: the steps that are particular to it, in the order of the pipeline."""

    suffixes: Sequence[str]
    """Endings of the relations' names; readers query the first one, which may need the others."""
    closed: Collection[str] = ()
    """Suffixes of the relations that readers may not read."""

    told: Sequence[str] = ()
    """Suffixes of the tables from which all other relations can be written, if there are any."""
    counts_entities: bool = False
    """Whether it counts entities where several records are about one; otherwise it gets none."""
    takes_codes: bool = False
    """Whether it can do without a copy of the source, if all its columns are known by codes."""
    protects_several: bool = False
    """Whether it protects several sensitive attributes of a source, not only one."""
    memory: Callable[[], AbstractContextManager[None]] = staticmethod(nullcontext)
    """Context for searching and writing; with many large arrays, it gives their memory back."""
    coarsens: bool = False
    """Whether it publishes bins of columns that are registered to be coarsened."""

    is_slow_if_wide: bool = False
    """Whether each quasi-identifier has statements of its own that read rows with all others."""
    not_compared: str = ""
    """Why releases without a partition are not set against others, if there is more to say."""

    def made(self, layout: Mapping[str, Any]) -> Sequence[str]:  # noqa: ARG002  # all by default
        """Name the suffixes of the relations that a publication has."""
        return self.suffixes

    def digested(self, layout: Mapping[str, Any]) -> Sequence[str]:  # noqa: ARG002
        """Name the suffixes of those from which all others follow: the ledger keeps a checksum."""
        return ("",)

    def prepare(self, request: Any, source: Source) -> None:  # noqa: B027  # nothing by default
        """Refuse what does not fit the source's description, before anything is read."""

    def risks(self, request: Any) -> Sequence[str]:  # noqa: ARG002  # none by default
        """Name the known risks that a request takes."""
        return ()

    def bounds_values(self, request: Any) -> bool:  # noqa: ARG002  # none by default
        """Tell whether it bounds how surely a sensitive value is inferred."""
        return False

    def in_order(self, source: Source) -> Source:
        """Return the source as it is searched; in the order of names, where none is published."""
        return source

    def require_shown(self, source: Source) -> None:
        """Refuse coarsened columns, unless the kind publishes their bins."""
        if source.coarsened and not self.coarsens:
            raise InvalidParameterError(
                "publications of this kind show quasi-identifiers as they are, not coarsened",
                detail=f"{source.relation}: {', '.join(source.coarsened)}",
                hint="publish generalized or freeform rows, or register a view that coarsens them",
            )

    @abstractmethod
    def columns(self, source: Source, types: Mapping[str, ColumnType]) -> list[str]:
        """Name the columns of the source that publishing reads."""

    def chosen(self, request: Any, source: Source, types: Mapping[str, ColumnType]) -> list[str]:  # noqa: ARG002
        """Name the columns that a request needs; all, unless requests choose among them."""
        return self.columns(source, types)

    def comparable(self, source: Source) -> Sequence[str]:
        """Name the columns whose types must have an equality and an order."""
        return source.quasi_identifiers

    @abstractmethod
    def needs(
        self, request: Any, source: Source, types: Mapping[str, ColumnType], size: Size
    ) -> Needs:
        """Forecast what publishing needs, and more of it for more records.

        The figures are measured: ``python -m benchmarks forecast`` compares them.
        """

    @abstractmethod
    def search(self, job: Job[Any]) -> MethodResult:
        """Decide what to publish."""

    @abstractmethod
    def write(self, job: Job[Any], found: MethodResult) -> Written:
        """Write the published relations."""

    @abstractmethod
    def examine(
        self, session: Session, publication: Publication, *, is_new: bool = False
    ) -> Examination:
        """Check and measure the published relations, using nothing else."""

    def notes(self, publication: Publication, quotes: Quotes) -> Mapping[str, Note]:  # noqa: ARG002
        """Say how to use each published relation, by its suffix, in comments that all can read."""
        return {}

    def all_notes(self, publication: Publication, quotes: Quotes) -> Mapping[str, Note]:
        """Return the notes, with which record of each person there is."""
        notes, kept = dict(self.notes(publication, quotes)), publication.kept_note
        if kept is not None and (note := notes.get("")):
            notes[""] = replace(note, use=f"{note.use} {kept[0].upper()}{kept[1:]}.")
        return notes

    def frozen(self, session: Session, publication: Publication, request: Any) -> Any:  # noqa: ARG002
        """Return the request for a batch of new people, under the same guarantee.

        What depends on how frequent values are is taken as it was.
        """
        return request

    def extend(
        self,
        job: Job[Any],  # noqa: ARG002
        old: Publication,
        batch: Written,  # noqa: ARG002
        whole: StagedRelations,  # noqa: ARG002
    ) -> Written:
        """Write a publication and a batch of new people as one."""
        raise InvalidParameterError(
            "publications of this kind cannot be refreshed", detail=f'publication "{old.name}"'
        )

    def complete(
        self,
        staging: StagedRelations,  # noqa: ARG002
        publication: Publication,
        room: Allowance,  # noqa: ARG002
    ) -> Mapping[str, Any]:
        """Write all other relations from the staged tables that are :attr:`told`."""
        raise InvalidParameterError(
            "publications of this kind cannot be loaded", detail=f"kind {publication.kind}"
        )

    def renews(self, publication: Publication) -> bool:  # noqa: ARG002  # batches by default
        """Tell whether a refresh publishes everybody anew, since people may have left."""
        return False

    def renew(
        self,
        job: Job[Any],  # noqa: ARG002
        old: Publication,
        signature_of: CodeArray,  # noqa: ARG002
    ) -> RedrawnBuckets:
        """Decide what to publish of people who stay and people who came.

        Parameters
        ----------
        job : Job
            The job that publishes all of them.
        old : Publication
        signature_of : ndarray of int32, shape (n_records,)
            The number of the signature that somebody has in the publication; -1 for new people.

        Raises
        ------
        InvalidParameterError
            Where a kind has batches only.

        `signature_of`, shape (n_records,), is the number of the signature that somebody has in the
        publication; -1 for new people.
        """
        raise InvalidParameterError(
            "people cannot leave publications of this kind", detail=f'publication "{old.name}"'
        )

    def promise_in_words(self, target: AttackTarget, linked: str) -> str:  # noqa: ARG002
        """Say what a publication promises, as `recommend` does; `linked` is what k promises."""
        return target.publication.guarantee

    def partition(
        self,
        session: Session,  # noqa: ARG002
        schema: str,  # noqa: ARG002
        publication: Publication,  # noqa: ARG002
    ) -> PublishedBuckets | PublishedClasses | None:
        """Say where to read who is in which bucket or class; None where it cannot be measured."""
        return None

    def evaluate(
        self,
        target: AttackTarget,  # noqa: ARG002
        workload: Workload,  # noqa: ARG002
    ) -> Sequence[CountAccuracy]:
        """Answer count queries from the published relations, and compare with the source."""
        return ()

    def attack(self, target: AttackTarget) -> Sequence[Attack]:  # noqa: ARG002  # none by default
        """Play known attacks against the published relations, whose checks all hold."""
        return ()


class SearchJob(Protocol):
    """The part of a job that calling a method needs."""

    @property
    def request(self) -> Any:
        """The request."""

    def pulse(self, seconds: float = inf) -> Pulse:
        """Return a heartbeat, with a time limit that starts now."""

    def limit(self, seconds: float) -> None:
        """Say that the search has a time limit, from now on."""


def run_method(
    methods: ModuleType, job: SearchJob, data: Any, pulse: Pulse | None = None, method: str = ""
) -> MethodResult:
    """Call the function of the method that is asked for.

    `methods` has a function named like each method: ``method(data, request, pulse) ->
    MethodResult``; a pulse is given if the kind has one time limit for all of its methods.
    """
    request, pulse = job.request, pulse or job.pulse()
    has_limit = "time_limit" in request.options_of_method
    seconds = min(pulse.seconds_left, request.options.time_limit if has_limit else inf)
    if seconds < inf:
        job.limit(seconds)
    search = getattr(methods, method or request.method)
    found: MethodResult = search(data, request, pulse)
    return found
