"""Reads what distinct cells tell of a query, and the types of records, as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.answers.rows.pieces import Pieces
from kanon_db.catalog.entries import Publication
from kanon_db.query import expressions as ex
from kanon_db.session.protocol import Row, Session, Value

if TYPE_CHECKING:
    from kanon_db.publications.codes import Store

Flags = NDArray[np.bool_]


class NotReadError(Exception):
    """There are more pieces than are read."""


class NotFiniteError(NotReadError):
    """There are numbers to sum that are not finite."""


@dataclass(frozen=True, eq=False)
class Truths:
    """What is known of a condition's truth: arrays of one shape, or of one element."""

    true: FloatArray  # Probabilities; what is missing to 1 is unknown
    false: FloatArray
    surely: Flags  # Whether it is true whatever the values are, and whether it is for some
    possibly: Flags
    surely_false: Flags  # The same of being false
    possibly_false: Flags
    evenly: FloatArray  # The probabilities of both if the values of each cell are equally likely
    evenly_false: FloatArray

    def at(self, index: IntArray) -> Truths:
        """Take those at some places."""
        return Truths(*(getattr(self, name).take(index) for name in self.__match_args__))

    def opposite(self) -> Truths:
        """Swap true and false."""
        return Truths(
            self.false, self.true,
            self.surely_false, self.possibly_false, self.surely, self.possibly,
            self.evenly_false, self.evenly,
        )  # fmt: skip

    def told(self) -> Truths:
        """Return whether it is true: this is never unknown."""
        return Truths(
            self.true, 1 - self.true, self.surely, self.possibly, ~self.possibly, ~self.surely,
            self.evenly, 1 - self.evenly,
        )  # fmt: skip

    def unknown(self) -> Truths:
        """Return whether it is unknown, which itself never is."""
        true = 1 - self.true - self.false
        surely = ~(self.possibly | self.possibly_false)
        possibly = ~(self.surely | self.surely_false)
        evenly = 1 - self.evenly - self.evenly_false
        return Truths(true, 1 - true, surely, possibly, ~possibly, ~surely, evenly, 1 - evenly)

    @classmethod
    def joined(cls, parts: Sequence[Truths]) -> Truths:
        """Put several after one another."""
        return cls(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in cls.__match_args__
            )
        )

    @classmethod
    def known(cls, true: Flags, false: Flags) -> Truths:
        """Return those of a condition that is true, false, or neither and so unknown."""
        likely = true.astype(np.float64), false.astype(np.float64)
        return cls(*likely, true, true, false, false, *likely)


@dataclass(frozen=True, eq=False)
class Cells:
    """The distinct cells of a column."""

    n: FloatArray  # (n_cells,): records of each; 1 where none is suppressed, so nobody asks
    u: FloatArray  # The share of them whose value is not known
    hidden: Flags  # Whether it is suppressed, could be anything, or has no end on one side
    anything: Flags
    endless: Flags


@dataclass(frozen=True, eq=False)
class Listing:
    """The values of each cell of a column, cell by cell."""

    starts: IntArray  # (n_cells,): of the values of each cell, in the other arrays
    lengths: IntArray
    value: IntArray  # (n_listed,): numbers of values
    w: FloatArray
    evenly: FloatArray  # The shares if all values of a cell are equally likely
    is_open: Flags
    least: FloatArray  # Of what each stands for, if the column is summed; NaN where there is none
    most: FloatArray


@dataclass(frozen=True, eq=False)
class Moments:
    """What is summed of the values of each cell, on average; NaN where there is nothing."""

    x: FloatArray
    evenly: FloatArray  # The same if all values of a cell are equally likely
    xx: FloatArray
    least: FloatArray
    most: FloatArray
    is_wild: Flags


class PieceReader(Protocol):
    """The pieces of one answer."""

    # By the number of the column: what is known of its distinct cells, the values that they may
    # stand for if these are listed, and how many cells there are
    cells: dict[int, Cells]
    lists: dict[int, Listing]
    sizes: dict[int, int]
    n_values: dict[int, int]  # How many values a column has that combinations are made of
    # By the numbers of columns, the combinations of their values that are known, ascending; without
    # them, all are
    met: dict[tuple[int, ...], IntArray]

    @property
    def has_nan(self) -> bool:
        """Whether some number that is ordered is NaN, which is taken for infinite."""

    def outcomes(self, leaf: ex.Expression, place: int) -> Truths:
        """Return what each cell of a column tells of a condition."""

    def tried(self, leaf: ex.Expression, places: Sequence[int]) -> Truths:
        """Return what each combination of values tells of a condition."""

    def ends(
        self, leaf: ex.Expression, one: int, other: int
    ) -> tuple[IntArray, IntArray, IntArray, IntArray, Flags, Flags]:
        """Return the places of the lower and upper ends of two columns' cells on their axis."""

    def key(self, number: int, places: Sequence[int]) -> tuple[IntArray, list[str]]:
        """Return the number of each combination's group value, and the values as JSON."""

    def numbers(self, places: Sequence[int]) -> FloatArray:
        """Return the number of each combination of values; NaN where there is none."""

    def moments(self) -> Moments:
        """Return what is summed of each cell of a column."""


def is_unknown(read: PieceReader, marked: Sequence[int]) -> bool:
    """Whether more than half of a column's cells are suppressed."""
    of = [read.cells[place] for place in marked]
    return any(one.n[one.hidden].sum() > one.n.sum() / 2 for one in of)


class KnownTypes(Protocol):
    """The types of records that a request tells apart, and what each of their cells tells."""

    @property
    def pieces(self) -> Pieces:
        """What the pieces mean."""

    @property
    def read(self) -> PieceReader:
        """What each cell, and each value, tells."""

    def all(self) -> Iterator[tuple[dict[int, IntArray], FloatArray]]:
        """Return the numbers of the cells of some types, by the column, and their records."""

    def column(self, name: str) -> KnownColumn:
        """Return what is known of the cells of one column."""


class SharesBelow(Protocol):
    """Of each cell, the share of its records whose value counts and is below a number."""

    def __call__(self, number: float, *, is_included: bool) -> FloatArray:
        """Return the shares; `is_included` counts the number itself, too."""


@dataclass(frozen=True, eq=False)
class CellValues:
    """What numbers an expression on a column has in each of its cells, where a condition holds.

    Numbers are those of double precision, whose order is PostgreSQL's: NaN is infinite.
    """

    truths: Truths  # Of the condition, which leaves NULLs out
    hidden: Flags
    least: FloatArray  # Infinite where it could be anything
    most: FloatArray
    places: FloatArray  # All finite ones that there are, ascending
    below: SharesBelow
    below_evenly: SharesBelow  # The same if all values of a cell are equally likely


class KnownColumn(Protocol):
    """The distinct cells of one column, by their numbers."""

    def values(
        self, operand: ex.Expression, condition: ex.Expression, most: int | None
    ) -> CellValues:
        """Say what numbers an expression on the column has in each cell, where a condition holds.

        `most`: how many values of a wide range are listed; None for the ends of ranges only.
        """

    def n_apart(self, cells: IntArray) -> int:
        """Return of how many of some cells no two have a value in common."""


_DENSE: Final = 4
_FEW: Final = 1 << 16
"""So many combinations, beside as many times the number of types, have a place in an array each."""

LARGEST: Final = 1 << 62

Codes = Mapping[int, IntArray]
"""The numbers of the cells of each type, by the number of the column."""


def distinct(codes: Sequence[IntArray], sizes: Sequence[int]) -> tuple[IntArray, IntArray]:
    """Find the distinct combinations of numbers.

    Parameters
    ----------
    codes : sequence of ndarray of int, shape (n,)
    sizes : sequence of int
        What the numbers of each are below.

    Returns
    -------
    first : ndarray of int64, shape (n_distinct,)
        Where each combination occurs.
    number : ndarray of int64, shape (n,)
        The number of each combination.
    """
    packed, size = np.zeros(codes[0].size, dtype=np.int64), 1
    for numbers, one in zip(codes, sizes, strict=True):
        if size * one > LARGEST:
            numbers_met, packed = np.unique(packed, return_inverse=True)
            size = numbers_met.size
        packed, size = packed * one + numbers, size * one
    if size > _DENSE * packed.size + _FEW:
        _, first, number = np.unique(packed, return_index=True, return_inverse=True)
        return first, number
    place = np.full(size, -1, dtype=np.int64)
    place[packed] = np.arange(packed.size)
    present = np.flatnonzero(place >= 0)
    first = place[present]
    place[present] = np.arange(present.size)
    return first, place[packed]


@dataclass(frozen=True, eq=False)
class Rows:
    """The combinations of values that the cells of types may stand for."""

    type_: IntArray  # (n_rows,): the type of each, ascending
    w: FloatArray  # (n_rows,): its share of the type, and that if all values are equally likely
    evenly: FloatArray
    at: dict[int, IntArray]  # Where its value is in the listing of each listed column
    first: IntArray  # (n_types,): the first row of each type


def combinations(lists: Mapping[int, Listing], codes: Codes, n_types: int) -> Rows:
    """List the combinations of the values that the cells of types may stand for.

    `lists`: by the number of the column.
    """
    # `codes`: mapping of int to ndarray of int64, shape (n_types,).
    each = np.arange(n_types)
    if not lists:
        return Rows(each, np.ones(n_types), np.ones(n_types), {}, each)
    type_, w, evenly = each, np.ones(n_types), np.ones(n_types)
    at: dict[int, IntArray] = {}
    total = np.ones(n_types, dtype=np.int64)
    for place, listing in lists.items():  # each row so far once for each value of the next column
        cell = codes[place]
        length = listing.lengths[cell]
        total = total * length
        start = listing.starts[cell]
        if at:
            length, start = length[type_], start[type_]
        ends = np.cumsum(length)
        at = {other: np.repeat(numbers, length) for other, numbers in at.items()}
        at[place] = np.arange(ends[-1] if ends.size else 0)
        at[place] += np.repeat(start - (ends - length), length)
        type_, w = np.repeat(type_, length), np.repeat(w, length)
        evenly = np.repeat(evenly, length)
        w *= listing.w.take(at[place])
        evenly *= listing.evenly.take(at[place])
    return Rows(type_, w, evenly, at, np.cumsum(total) - total)


class StatementRunner(Protocol):
    """What reads published relations for a query."""

    @property
    def session(self) -> Session:
        """Runs statements."""

    @property
    def publication(self) -> Publication:
        """What is read."""

    @property
    def store(self) -> Store:
        """The codes of its cells."""

    def fetch(self, statement: str, *values: Value) -> list[Row]:
        """Run a statement."""

    def stream(self, n: int, statement: str, *values: Value) -> Iterator[Row]:
        """Run a statement, and keep only `n` of its rows at a time."""
