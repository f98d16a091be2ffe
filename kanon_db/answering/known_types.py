"""What answering by classes needs of a publication, wherever it is found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
    from kanon_db.counting.read_pieces import PieceReader


class KnownTypes(Protocol):
    """The types of records that a request tells apart, and what each of their cells tells."""

    @property
    def read(self) -> PieceReader:
        """What each cell, and each value, tells."""

    def all(self) -> Iterator[tuple[dict[int, IntArray], FloatArray]]:
        """Return the numbers of the cells of some types, by the column, and their records."""
