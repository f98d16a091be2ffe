"""A kind of publication on Spark: what is particular to it, beside what it is in PostgreSQL.

Names, options, their validation and the risks come from the kind's declaration and from its
:class:`kanon_db.publications.kind.Kind`. Here is how it is made of records on many machines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.catalog.entries import Publication, Source
from kanon_db.publications.kind import MethodResult, Workload, Written
from kanon_db.publications.results import Attack, CountAccuracy, Examination
from kanon_db.spark.reading import TableSession
from kanon_db.spark.snapshot import Snapshot
from kanon_db.spark.staging import Staging
from kanon_db.spark.tables import Tables
from kanon_db.spark.voice import Voice
from kanon_db.transfer.columns import ColumnType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, eq=False)
class SparkJob:
    """A publication in the making.

    Attributes
    ----------
    session : SparkSession
        Of our own; see :func:`~kanon_db.spark.environment.own_session`.
    voice : Voice
    request : PublishRequest
        The same as in PostgreSQL.
    source : Source
    types : dict of str to ColumnType
    staging : Staging
    snapshot : Snapshot
    """

    session: SparkSession
    voice: Voice
    request: Any
    source: Source
    types: Mapping[str, ColumnType]
    staging: Staging
    snapshot: Snapshot

    def pulse(self, seconds: float = inf) -> Pulse:
        """Return a heartbeat, with a time limit that starts now."""
        return Pulse(seconds, self.voice.heartbeat, self.voice.done)

    def limit(self, seconds: float) -> None:
        """Say that the search has a time limit, from now on."""
        self.voice.limit(seconds)


@dataclass(frozen=True, eq=False)
class Made:
    """What was found and written.

    Attributes
    ----------
    found : Found
        The method that was used, and the proof of an exact one.
    written : Written
        As in PostgreSQL.
    """

    found: MethodResult
    written: Written


@dataclass(frozen=True, eq=False)
class Opened:
    """A verified publication in files, with what it was made from.

    Attributes
    ----------
    listener : TableSession
        Its tables are those of the publication.
    publication : Publication
    source : DataFrame
        Scores what attackers guess, and answers what is asked of the publication.
    """

    listener: TableSession
    publication: Publication
    source: DataFrame

    @property
    def pulse(self) -> Pulse:
        """The driver's heartbeat."""
        return Pulse(heartbeat=self.listener.heartbeat, on_done=self.listener.done)

    def table(self, suffix: str) -> DataFrame:
        """Return a published table."""
        return self.listener.tables.frames[self.publication.name + suffix]


class SparkKind(ABC):
    """The steps that are particular to a kind."""

    suffixes: Sequence[str]
    """Of the tables that are published; each is written to its folder in the staged tables."""

    shows_values: bool = False
    """Whether quasi-identifiers are published as they are."""

    def refuse(self, request: Any, source: Source) -> None:  # noqa: B027  # nothing by default
        """Refuse what must stay on one machine, with the reason and what to do instead.

        Raises
        ------
        InvalidParameterError
        """

    @abstractmethod
    def make(self, job: SparkJob) -> Made:
        """Find what to publish, and write the tables.

        Small things are decided on the driver, from counts; what is done for each record must be
        the same when a task is run again. Chance comes from the snapshot's own columns, see
        :mod:`~kanon_db.spark.chance`, or from the operating system on the driver.
        """

    @abstractmethod
    def examine(self, tables: Tables, publication: Publication, whole: Any) -> Examination:
        """Check and measure the published tables, using nothing else.

        Parameters
        ----------
        tables : Tables
        publication : Publication
        whole : Check
            Whether the files are those that the manifest names.
        """

    @abstractmethod
    def attack(self, opened: Opened) -> list[Attack]:
        """Play known attacks on the driver, as PostgreSQL plays them."""

    @abstractmethod
    def evaluate(self, opened: Opened, workload: Workload) -> list[CountAccuracy]:
        """Answer random count queries on the driver, and compare the answers with the source."""
