"""A publication in the making, as it is passed from step to step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.catalog.entries import Source
from kanon_db.publications.entities import Entities
from kanon_db.publications.request import PublishRequest
from kanon_db.publications.staging import Staging
from kanon_db.randomness import SeededRandom
from kanon_db.session import Session
from kanon_db.transfer.columns import ColumnType
from kanon_db.transfer.records import Records
from kanon_db.transfer.room import Room
from kanon_db.transfer.snapshot import Snapshot

Request = TypeVar("Request", bound=PublishRequest)


@dataclass(frozen=True, eq=False)
class Job(Generic[Request]):
    """A publication in the making: what was asked for, and what has been read so far.

    Attributes
    ----------
    session : Session
    request : PublishRequest
    source : Source
    types : dict of str to ColumnType
        All columns of the source, in their order.
    staging : Staging
        Where the published relations are made.
    records : Records
        The columns that the kind asked for, and that of the entities: a copy of them, or of some
        kinds (:attr:`Kind.takes_codes`) all their codes.
    room : Room
        How much memory and disk there is.
    random : SeededRandom
        See :mod:`kanon_db.publications.drawing`.
    entities : Entities or None
        Whom each record is about, if several can be about the same entity.
    """

    session: Session
    request: Request
    source: Source
    types: Mapping[str, ColumnType]
    staging: Staging
    records: Records
    room: Room
    random: SeededRandom
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
