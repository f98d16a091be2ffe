"""What publishing will need, said before anything is read; see "Limits" in docs/operation.md."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kanon_db.catalog.entries import Source
from kanon_db.errors import InfeasibleError
from kanon_db.publications.kind import Kind
from kanon_db.publications.request import PublishRequest
from kanon_db.session import Session
from kanon_db.transfer.columns import ColumnType
from kanon_db.transfer.records import Size
from kanon_db.transfer.room import Needs, Room
from kanon_db.transfer.snapshot import MAX_RECORDS, count_records, expected_size

_HASH: Final = 300
"""Bytes on disk for the hash of an entity: staged, sorted, and kept with its index."""


MOST_COLUMNS: Final = 400
"""Each column has statements of its own, which the server plans with all others in view, and a
quasi-identifier some temporary tables, which take locks: 1,000 rows of 1,549 quasi-identifiers had
not even found room for these after two minutes, and 400 take about as long."""


@dataclass(frozen=True)
class Forecast:
    """What a request will need, for any number of records.

    Attributes
    ----------
    kind : Kind
    request : PublishRequest
    source : Source
    types : dict of str to ColumnType
        All columns of the source.
    room : Room
    n_values : float
        How many values the quasi-identifiers have, as the server's planner expects.
    """

    kind: Kind
    request: PublishRequest
    source: Source
    types: Mapping[str, ColumnType]
    room: Room
    n_values: float

    def begin(self, session: Session, columns: Sequence[str]) -> int:
        """Say what publishing will need, by what the server's planner expects of the source.

        Returns
        -------
        int
            How many records there is room for, if they are as wide as expected.

        Raises
        ------
        InfeasibleError
            When there is too little, or more than :data:`MOST_COLUMNS`. The planner may be wrong
            about rows, so these are counted before.
        """
        relation = self.source.relation
        if len(columns) > MOST_COLUMNS:
            raise InfeasibleError(
                "the source has too many columns to publish",
                detail=f"{relation}: {len(columns):,} are to be read; the limit is {MOST_COLUMNS}",
                hint="give a role only to those that are needed, or publish parts through views",
            )
        size = expected_size(session, relation, columns)
        most = bisect_left(
            range(1, MAX_RECORDS + 1),
            True,
            key=lambda n: not self.room.holds(self._needs(replace(size, n_records=n))),
        )
        if size.n_records > most:
            size = replace(size, n_records=count_records(session, relation))
            self.require(size)
        session.tell(f"publishing {_rows(size)} needs some {self._needs(size)}")
        return most

    def require(self, size: Size) -> Needs:
        """Refuse what there is no room for.

        Returns
        -------
        Needs
            What there is room for.

        Raises
        ------
        InfeasibleError
        """
        if size.n_records > MAX_RECORDS:
            raise InfeasibleError(
                "the source has too many rows",
                detail=f"{self.source.relation} has {size.n_records:,}; the limit is"
                f" {MAX_RECORDS:,}",
                hint="publish a part of it, through a view",
            )
        needs = self._needs(size)
        self.room.require(
            needs,
            f"{self.source.relation}, {_rows(size)}",
            "publish fewer rows or columns, through a view, or by another method",
        )
        return needs

    def _needs(self, size: Size) -> Needs:
        most = len(self.source.quasi_identifiers) * size.n_records
        size = replace(size, n_values=min(self.n_values, most))
        needs = self.kind.needs(self.request, self.source, self.types, size)
        if self.source.entity is None:
            return needs
        return needs._replace(disk=needs.disk + _HASH * size.n_records)


def _rows(size: Size) -> str:
    return f"about {size.n_records:,} rows of {size.width:,.0f} bytes"
