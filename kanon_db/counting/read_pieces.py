"""The pieces of one answer as arrays; see `kanon_db.counting.pieces`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.counting.pieces import Pieces

Flags = NDArray[np.bool_]


class NotReadError(Exception):
    """There are more pieces than are read, or numbers that are not finite."""


_NUMBER: Final = [("is_null", "?"), ("is_odd", "?"), ("x", ">f8")]
_CELL: Final = [("u", ">f8"), ("n", ">i8"), ("hidden", "?"), ("anything", "?"), ("endless", "?")]
_LISTED: Final = [("i", ">i4"), ("j", ">i4"), ("w", ">f8"), ("is_open", "?")]
_SUMMED: Final = [*_LISTED, ("least", _NUMBER), ("most", _NUMBER)]
_OUTCOME: Final = [
    ("t", ">f8"), ("f", ">f8"), ("st", "?"), ("pt", "?"), ("sf", "?"), ("pf", "?"),
]  # fmt: skip
_TRIED: Final = [("true", "?"), ("false", "?")]
_END: Final = [("side", ">i4"), ("rank", ">i4"), ("is_known", "?")]
_MOMENTS: Final = [*((name, _NUMBER) for name in ("x", "xx", "least", "most")), ("is_wild", "?")]


@dataclass(frozen=True, eq=False)
class Truths:
    """What is known of a condition's truth: arrays of one shape, or of one element.

    The attributes are those of :class:`kanon_db.counting.writing.truth.Likelihood`.
    """

    true: FloatArray
    false: FloatArray
    surely: Flags
    possibly: Flags
    surely_false: Flags
    possibly_false: Flags

    def at(self, index: IntArray) -> Truths:
        """Take those at some places."""
        return Truths(*(getattr(self, name).take(index) for name in self.__match_args__))

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
        return cls(true.astype(np.float64), false.astype(np.float64), true, true, false, false)


BEGINS: Final = 32
"""The lower bits of a range's code say where it ends, those from here on where it begins."""

ANYTHING: Final = 1 << BEGINS
"""The code of a range without ends, which may stand for NULL, too; that of NULL is 0."""


def are_ends(codes: IntArray, size: int) -> bool:
    """Whether codes, all below `size`, are of ranges that begin before they end, or of NULL."""
    low, high = codes >> BEGINS, codes & ((1 << BEGINS) - 1)
    is_range = (low < high) & (high < size >> BEGINS)
    return bool((is_range | (codes == 0) | (codes == ANYTHING)).all())


@dataclass(frozen=True, eq=False)
class TriedValues:
    """For how many of the values up to each a condition is true, and false.

    Attributes
    ----------
    true, false : ndarray of int64, shape (n_values + 1,)
    of_null : tuple of bool
        The same of NULL.
    """

    true: IntArray
    false: IntArray
    of_null: tuple[bool, bool]

    def at(self, codes: IntArray) -> Truths:
        """Return what ranges tell, by their ends."""
        low, high = codes >> BEGINS, codes & ((1 << BEGINS) - 1)
        n = np.maximum(high - low, 1)
        true, false = (upto.take(high) - upto.take(low) for upto in (self.true, self.false))
        found = Truths(true / n, false / n, true == n, true > 0, false == n, false > 0)
        odd = np.flatnonzero(high == 0)
        is_anything = codes[odd] == ANYTHING
        for likely, surely, possibly, of_null in (
            (found.true, found.surely, found.possibly, self.of_null[0]),
            (found.false, found.surely_false, found.possibly_false, self.of_null[1]),
        ):
            likely[odd] = of_null
            surely[odd] = ~is_anything & of_null
            possibly[odd] = is_anything | of_null
        return found


@dataclass(frozen=True, eq=False)
class Cells:
    """The distinct cells of a column.

    Attributes
    ----------
    n : ndarray of float64, shape (n_cells,)
        Records of each.
    u : ndarray of float64
        The share of them whose value is not known.
    hidden, anything, endless : ndarray of bool
        Whether it is suppressed, could be anything, or has no end on one side.
    """

    n: FloatArray
    u: FloatArray
    hidden: Flags
    anything: Flags
    endless: Flags


@dataclass(frozen=True, eq=False)
class Listing:
    """The values of each cell of a column, cell by cell.

    Attributes
    ----------
    starts, lengths : ndarray of int64, shape (n_cells,)
        Of the values of each cell, in the other arrays.
    value : ndarray of int64, shape (n_listed,)
        Numbers of values.
    w : ndarray of float64
    is_open : ndarray of bool
    least, most : ndarray of float64
        Of what each stands for, if the column is summed; NaN where there is none.
    """

    starts: IntArray
    lengths: IntArray
    value: IntArray
    w: FloatArray
    is_open: Flags
    least: FloatArray
    most: FloatArray


@dataclass(frozen=True, eq=False)
class Moments:
    """What is summed of the values of each cell, on average; NaN where there is nothing."""

    x: FloatArray
    xx: FloatArray
    least: FloatArray
    most: FloatArray
    is_wild: Flags


class PieceReader(Protocol):
    """The pieces of one answer.

    Attributes
    ----------
    cells, lists, sizes : dict
        By the number of the column: what is known of its distinct cells, the values that they may
        stand for if these are listed, and how many cells there are.
    n_values : dict of int to int
        How many values a column has that combinations are made of.
    """

    cells: dict[int, Cells]
    lists: dict[int, Listing]
    sizes: dict[int, int]
    n_values: dict[int, int]

    def outcomes(self, name: str) -> Truths:
        """Return what each cell of a column tells of a condition."""

    def tried_values(self, name: str, place: int) -> TriedValues:
        """Return what the values of a column of which the ends are known tell of a condition."""

    def tried(self, name: str, places: Sequence[int]) -> Truths:
        """Return what each combination of values tells of a condition."""

    def ends(self, name: str) -> tuple[IntArray, IntArray, IntArray, IntArray, Flags, Flags]:
        """Return the places of the lower and upper ends of two columns' cells on their axis."""

    def key(self, name: str, places: Sequence[int]) -> tuple[IntArray, list[str]]:
        """Return the number of each combination's group value, and the values as JSON."""

    def numbers(self, name: str, places: Sequence[int]) -> FloatArray:
        """Return the number of each combination of values; NaN where there is none."""

    def moments(self) -> Moments:
        """Return what is summed of each cell of a column."""


def is_unknown(read: PieceReader, marked: Sequence[int]) -> bool:
    """Whether more than half of a column's cells are suppressed."""
    of = [read.cells[place] for place in marked]
    return any(one.n[one.hidden].sum() > one.n.sum() / 2 for one in of)


class ReadPieces:
    """:class:`PieceReader` of what a statement has found.

    Parameters
    ----------
    pieces : Pieces
    parts : mapping of str to bytes
        Each piece by its name.
    texts : mapping of str to list of str
        Those of groups.

    Raises
    ------
    NotReadError
    """

    def __init__(
        self,
        pieces: Pieces,
        parts: Mapping[str, bytes | None],
        texts: Mapping[str, Sequence[str] | None],
    ) -> None:
        self._parts = parts
        self._texts = texts
        self.cells: dict[int, Cells] = {}
        self.sizes: dict[int, int] = {}
        for place in pieces.places.values():
            if place in pieces.vague:
                self.cells[place] = self._cells(place)
                self.sizes[place] = self.cells[place].n.size
            elif place in pieces.ended:
                (n_values,) = self._read(f"c{place}", [("n", ">i8")])["n"].tolist()
                self.sizes[place] = (n_values + 1) << BEGINS
            else:
                self.sizes[place] = self._read(f"c{place}", [("n", ">i8")]).size
        listed = [place for place in pieces.vague if f"x{place}" in parts]
        summed = None if pieces.summed is None else pieces.summed.own
        self.lists = {place: self._listing(place, is_summed=place == summed) for place in listed}
        self.n_values = dict(self.sizes)
        for place, listing in self.lists.items():
            self.n_values[place] = int(listing.value.max(initial=-1)) + 1

    def outcomes(self, name: str) -> Truths:
        """Return what each cell of a column tells of a condition."""
        read = self._read(name, _OUTCOME)
        return Truths(
            read["t"].astype(np.float64), read["f"].astype(np.float64),
            read["st"], read["pt"], read["sf"], read["pf"],
        )  # fmt: skip

    def tried_values(self, name: str, place: int) -> TriedValues:
        """Return what the values of a column of which the ends are known tell of a condition."""
        read = self._read(name, _TRIED)
        if read.size != self.sizes[place] >> BEGINS:
            raise NotReadError
        true, false = (
            np.concatenate([[0], np.cumsum(read[truth][1:], dtype=np.int64)])
            for truth in ("true", "false")
        )
        return TriedValues(true, false, (bool(read["true"][0]), bool(read["false"][0])))

    def tried(self, name: str, places: Sequence[int]) -> Truths:
        """Return what each combination of values tells of a condition."""
        read = self._read(name, _TRIED)
        self._require(read.size, places)
        return Truths.known(read["true"], read["false"])

    def ends(self, name: str) -> tuple[IntArray, IntArray, IntArray, IntArray, Flags, Flags]:
        """Return the places of the lower and upper ends of two columns' cells on their axis.

        0 is no place. The last two say which cells are there.
        """
        read = self._read(name, _END)
        sides = [read[read["side"] == side].reshape(-1, 2) for side in (0, 1)]
        ranks = [side["rank"].astype(np.int64) for side in sides]
        known = [side["is_known"][:, 0] for side in sides]
        one, other = ranks
        return one[:, 0], one[:, 1], other[:, 0], other[:, 1], known[0], known[1]

    def key(self, name: str, places: Sequence[int]) -> tuple[IntArray, list[str]]:
        """Return the number of each combination's group value, and the values as JSON."""
        ranks = self._read(name, [("r", ">i4")])["r"].astype(np.int64)
        self._require(ranks.size, places)
        texts = self._texts[f"{name}_texts"]
        if texts is None and ranks.size:
            raise NotReadError
        return ranks, list(texts or [])

    def numbers(self, name: str, places: Sequence[int]) -> FloatArray:
        """Return the number of each combination of values; NaN where there is none."""
        read = self._read(name, _NUMBER)
        self._require(read.size, places)
        return _numbers(read)

    def moments(self) -> Moments:
        """Return what is summed of each cell of a column."""
        read = self._read("moments", _MOMENTS)
        x, xx, least, most = (_numbers(read[name]) for name in ("x", "xx", "least", "most"))
        return Moments(x, xx, least, most, read["is_wild"])

    def _require(self, n: int, places: Sequence[int]) -> None:
        if n != np.prod([self.n_values[place] for place in places], dtype=np.int64):
            raise NotReadError

    def _cells(self, place: int) -> Cells:
        read = self._read(f"c{place}", _CELL)
        flags = (read[name] for name in ("hidden", "anything", "endless"))
        return Cells(read["n"].astype(np.float64), read["u"].astype(np.float64), *flags)

    def _listing(self, place: int, *, is_summed: bool) -> Listing:
        read = self._read(f"x{place}", _SUMMED if is_summed else _LISTED)
        none = np.empty(0)
        lengths = np.bincount(read["i"], minlength=self.sizes[place])
        return Listing(
            np.cumsum(lengths) - lengths,
            lengths,
            read["j"].astype(np.int64),
            read["w"].astype(np.float64),
            read["is_open"],
            _numbers(read["least"]) if is_summed else none,
            _numbers(read["most"]) if is_summed else none,
        )

    def _read(self, name: str, fields: Any) -> NDArray[np.void]:
        part = self._parts.get(name)
        if part is None:
            raise NotReadError
        return np.frombuffer(part, dtype=np.dtype(fields))


def _numbers(read: NDArray[np.void]) -> FloatArray:
    if read["is_odd"].any():
        raise NotReadError
    found: FloatArray = np.where(read["is_null"], np.nan, read["x"].astype(np.float64))
    return found
