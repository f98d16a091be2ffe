"""The steps of a kind of publication, which the pipeline runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from kanon_db.algorithms.ground.arrays import CodeArray
from kanon_db.algorithms.ground.proof import Proof
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.catalog.entries import Publication, Source
from kanon_db.counting.layout import Cell, Quotes
from kanon_db.errors import InvalidParameterError
from kanon_db.metrics.workload import CountQuery
from kanon_db.publications.job import Job
from kanon_db.publications.notes import Note
from kanon_db.publications.partition import Classes, Partition
from kanon_db.publications.results import Attack, Check, CountAccuracy, Examination
from kanon_db.publications.staging import Staging
from kanon_db.publications.usefulness import Usefulness, Workload
from kanon_db.session import Session
from kanon_db.transfer.columns import ColumnType
from kanon_db.transfer.records import Size
from kanon_db.transfer.room import Needs, Room
from kanon_db.transfer.values import DistinctValues


@dataclass(eq=False)
class Found:
    """What a method has found.

    Attributes
    ----------
    result : object
        What the kind writes: a bucket setting, classes, matches, a suppression.
    proof : Proof or None
        From an exact method: how far from the optimum the result can be.
    method : str or None
        The method that was used, if the one asked for chooses among others.
    """

    result: Any
    proof: Proof | None = None
    method: str | None = None

    def hand_over(self) -> Any:
        """Return the result for the last time: it may be as large as the source."""
        result, self.result = self.result, None
        return result


@dataclass(frozen=True, eq=False)
class Written:
    """What was written, and what can only be known while writing it.

    Attributes
    ----------
    guarantee : str
    layout : dict
        What the catalog keeps for the estimator and the verification.
    checks : sequence of Check
        The checks that need the source.
    metrics : dict of str to float
        The metrics that need the source.
    parameters : dict
        What the catalog keeps in addition to the parameters of the request.
    cells : dict of str to Cell
        Of rows: the published quasi-identifiers that have shares.
    matches : int or None
        Of rows: how many originals each cell covers, if it is not all of a class.
    signatures : ndarray of int32, shape (n_records,), or None
        The number of each record's signature, which the ledger keeps with a hash of its entity; 0
        where too few buckets have it.
    """

    guarantee: str
    layout: Mapping[str, Any] = field(default_factory=dict)
    checks: Sequence[Check] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    cells: Mapping[str, Cell] = field(default_factory=dict)
    matches: int | None = None
    signatures: CodeArray | None = None


@dataclass(frozen=True, eq=False)
class Renewed:
    """What was found for everybody who stays and everybody who came.

    Attributes
    ----------
    job : Job
        With a snapshot of those who are published.
    found : Found
        Its result is None if nobody is published.
    n_stay, n_new : int
        Records of each that are published.
    n_left_out : int
        Records of people who stay, and cannot be published any more.
    n_waiting : int
        New records that wait.
    """

    job: Job[Any]
    found: Found
    n_stay: int
    n_new: int
    n_left_out: int
    n_waiting: int


@dataclass(frozen=True, eq=False)
class Target:
    """A publication under attack, with its source.

    Attributes
    ----------
    session : Session
    publication : Publication
    source : Source
        Attacks read it to score guesses, and where the attacker knows its correlations.
    types : dict of str to ColumnType
        All columns of the source, in their order.
    schema : str
        The schema of published relations.
    room : Room
        How much memory and disk there is.
    """

    session: Session
    publication: Publication
    source: Source
    types: Mapping[str, ColumnType]
    schema: str
    room: Room

    def pulse(self) -> Pulse:
        """Return the session's heartbeat."""
        return Pulse(heartbeat=self.session.heartbeat, on_done=self.session.done)


class Kind(ABC):
    """A kind of publication: the steps that are particular to it, in the order of the pipeline."""

    suffixes: Sequence[str]
    """Of the published relations' names; readers query the first one, which may need the others."""
    closed: Collection[str] = ()
    """Suffixes of those that readers may not read."""

    told: Sequence[str] = ()
    """Suffixes of the tables from which all other relations can be written, if there are any."""
    counts_entities: bool = False
    """Whether it counts entities where several records are about one; otherwise it gets none."""
    takes_codes: bool = False
    """Whether it can do without a copy of the source, if all its columns are known by codes."""
    memory: Callable[[], AbstractContextManager[None]] = staticmethod(nullcontext)
    """What it searches and writes in: one that has many large arrays keeps none of their memory."""
    coarsens: bool = False
    """Whether it publishes bins of columns that are registered to be coarsened."""

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

    def require_shown(self, source: Source) -> None:
        """Refuse coarsened columns, unless the kind publishes their bins.

        Raises
        ------
        InvalidParameterError
        """
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
    def search(self, job: Job[Any]) -> Found:
        """Decide what to publish."""

    @abstractmethod
    def write(self, job: Job[Any], found: Found) -> Written:
        """Write the published relations."""

    @abstractmethod
    def examine(
        self, session: Session, publication: Publication, *, is_new: bool = False
    ) -> Examination:
        """Check and measure the published relations, using nothing else."""

    def notes(self, publication: Publication, quotes: Quotes) -> Mapping[str, Note]:  # noqa: ARG002
        """Say how to use each published relation, by its suffix, in comments that all can read."""
        return {}

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
        whole: Staging,  # noqa: ARG002
    ) -> Written:
        """Write a publication and a batch of new people as one.

        Parameters
        ----------
        job : Job
            Of the batch, which is staged.
        old : Publication
        batch : Written
        whole : Staging
            Where to write both together.

        Raises
        ------
        InvalidParameterError
            Where a kind has no batches.
        """
        raise InvalidParameterError(
            "publications of this kind cannot be refreshed", detail=f'publication "{old.name}"'
        )

    def complete(
        self,
        staging: Staging,  # noqa: ARG002
        publication: Publication,
        room: Room,  # noqa: ARG002
    ) -> Mapping[str, Any]:
        """Write all other relations from the staged tables that are :attr:`told`.

        Returns
        -------
        mapping
            The layout, with what it keeps of them.
        """
        raise InvalidParameterError(
            "publications of this kind cannot be loaded", detail=f"kind {publication.kind}"
        )

    def renews(self, publication: Publication) -> bool:  # noqa: ARG002  # batches by default
        """Whether a refresh publishes everybody anew, since people may have left."""
        return False

    def renew(
        self,
        job: Job[Any],  # noqa: ARG002
        old: Publication,
        signature_of: CodeArray,  # noqa: ARG002
    ) -> Renewed:
        """Decide what to publish of people who stay and people who came.

        Parameters
        ----------
        job : Job
            Of all of them.
        old : Publication
        signature_of : ndarray of int32, shape (n_records,)
            The number of the signature that somebody has in the publication; -1 for new people.

        Raises
        ------
        InvalidParameterError
            Where a kind has batches only.
        """
        raise InvalidParameterError(
            "people cannot leave publications of this kind", detail=f'publication "{old.name}"'
        )

    def partition(
        self,
        session: Session,  # noqa: ARG002
        schema: str,  # noqa: ARG002
        publication: Publication,  # noqa: ARG002
    ) -> Partition | Classes | None:
        """Say where to read who is in which bucket or class; None where it cannot be measured."""
        return None

    def evaluate(
        self,
        target: Target,  # noqa: ARG002
        workload: Workload,  # noqa: ARG002
    ) -> Sequence[CountAccuracy]:
        """Answer count queries from the published relations, and compare with the source."""
        return ()

    def usefulness(
        self,
        target: Target,
        columns: Sequence[DistinctValues],  # noqa: ARG002
        sensitive: DistinctValues | None,  # noqa: ARG002
        queries: Sequence[CountQuery],  # noqa: ARG002
    ) -> Usefulness:
        """Answer many count queries from the published relations, and say what each column loses.

        Parameters
        ----------
        target : Target
        columns : sequence of DistinctValues
            The quasi-identifiers' values in the source, by whose codes queries ask.
        sensitive : DistinctValues or None
            The same of the sensitive attribute; without one, all records have the code 0.
        queries : sequence of CountQuery

        Raises
        ------
        InvalidParameterError
            Where a kind answers no counts.
        """
        raise InvalidParameterError(
            "publications of this kind answer no counts",
            detail=f"kind {target.publication.kind}",
        )

    def attack(self, target: Target) -> Sequence[Attack]:  # noqa: ARG002  # none by default
        """Play known attacks against the published relations, whose checks all hold."""
        return ()
