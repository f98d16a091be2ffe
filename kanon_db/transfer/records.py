"""What all ways to read a source have in common: how many records there are, and room for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from kanon_db.errors import InfeasibleError
from kanon_db.session.protocol import Session
from kanon_db.transfer.room import Room

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import IntArray


@dataclass(frozen=True)
class Size:
    """How much there is to read.

    Attributes
    ----------
    n_records : int
    width : float
        Bytes of a row of a table, its header included.
    n_values : float
        Distinct values of all columns that are to be numbered, together.
    """

    n_records: int
    width: float
    n_values: float = 0


@dataclass(frozen=True, kw_only=True)
class Records:
    """Records of a source, numbered from 0, all read by one statement.

    Attributes
    ----------
    session : Session
    n_records : int
    room : Room
    """

    session: Session
    n_records: int
    room: Room
    _held: list[float] = field(default_factory=list)

    def hold(self, n_bytes: float, what: str) -> None:
        """Refuse to take more memory for what is read than there is room for, all together.

        Raises
        ------
        InfeasibleError
        """
        self._held.append(n_bytes)
        self.room.require_memory(
            sum(self._held), what, "take fewer or shorter values, or fewer queries"
        )

    def in_order(self, order: IntArray) -> Self:
        """Give the records other numbers.

        Parameters
        ----------
        order : ndarray of int, shape (n_records,)
            A permutation: the old number of each new record.
        """
        raise NotImplementedError

    def drop(self) -> None:
        """Remove what the server keeps of them before the transaction ends."""


def require_rows(n_records: int, most: int, source: object) -> None:
    """Refuse a source without rows, or with more than may be read.

    Raises
    ------
    InfeasibleError
    """
    if n_records > most:
        raise InfeasibleError(
            "the source has too many rows",
            detail=f"{source} has more than {most:,} rows, which is all that may be read",
            hint="read a part of it, through a view; docs/operation.md says what limits it",
        )
    if n_records == 0:
        raise InfeasibleError("the source has no rows", detail=f"relation {source}")
