"""Reads what distinct cells tell of a query, and the types of records, as arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.answers.rows.evidence_sql import CellValueWriter, PieceWriter, WrittenPieces
from kanon_db.answers.rows.pieces import Pieces
from kanon_db.catalog.entries import Publication
from kanon_db.query import expressions as ex
from kanon_db.session.protocol import Row, Session, Value

Flags = NDArray[np.bool_]


class NotReadError(Exception):
    """There are more pieces than are read."""


class NotFiniteError(NotReadError):
    """There are numbers to sum that are not finite."""


_NUMBER: Final = [("is_null", "?"), ("is_odd", "?"), ("x", ">f8")]
_CELL: Final = [("u", ">f8"), ("n", ">i8"), ("hidden", "?"), ("anything", "?"), ("endless", "?")]
_LISTED: Final = [("i", ">i4"), ("j", ">i4"), ("w", ">f8"), ("is_open", "?")]
_SUMMED: Final = [*_LISTED, ("least", _NUMBER), ("most", _NUMBER)]
_OUTCOME: Final = [
    ("t", ">f8"), ("f", ">f8"), ("st", "?"), ("pt", "?"), ("sf", "?"), ("pf", "?"),
]  # fmt: skip
_TRIED: Final = [("true", "?"), ("false", "?")]
_TRUE: Final = 1
_FALSE: Final = 2
"""How a condition's truth is written; 0 is NULL."""
_END: Final = [("side", ">i4"), ("rank", ">i4"), ("is_known", "?")]
_MOMENTS: Final = [*((name, _NUMBER) for name in ("x", "xx", "least", "most")), ("is_wild", "?")]


@dataclass(frozen=True, eq=False)
class Truths:
    """What is known of a condition's truth: arrays of one shape, or of one element."""

    true: FloatArray  # Probabilities; what is missing to 1 is unknown
    false: FloatArray
    surely: Flags  # Whether it is true whatever the values are, and whether it is for some
    possibly: Flags
    surely_false: Flags  # The same of being false
    possibly_false: Flags

    def at(self, index: IntArray) -> Truths:
        """Take those at some places."""
        return Truths(*(getattr(self, name).take(index) for name in self.__match_args__))

    def opposite(self) -> Truths:
        """Swap true and false."""
        return Truths(
            self.false, self.true,
            self.surely_false, self.possibly_false, self.surely, self.possibly,
        )  # fmt: skip

    def told(self) -> Truths:
        """Return whether it is true: this is never unknown."""
        return Truths(
            self.true, 1 - self.true, self.surely, self.possibly, ~self.possibly, ~self.surely
        )

    def unknown(self) -> Truths:
        """Return whether it is unknown, which itself never is."""
        true = 1 - self.true - self.false
        surely = ~(self.possibly | self.possibly_false)
        possibly = ~(self.surely | self.surely_false)
        return Truths(true, 1 - true, surely, possibly, ~possibly, ~surely)

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


@dataclass(frozen=True, eq=False)
class Cells:
    """The distinct cells of a column."""

    n: FloatArray  # (n_cells,): records of each
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
    is_open: Flags
    least: FloatArray  # Of what each stands for, if the column is summed; NaN where there is none
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


class _Listings(dict[int, Listing]):
    """The columns whose values were listed; too many were not."""

    def __missing__(self, place: int) -> Listing:
        raise NotReadError


class ReadPieces:
    """:class:`PieceReader` of what a statement has found.

    `parts`: each piece by its name. `texts`: those of groups. Raises NotReadError.
    """

    def __init__(
        self,
        written: WrittenPieces,
        parts: Mapping[str, bytes | None],
        texts: Mapping[str, Sequence[str] | None],
    ) -> None:
        self._written, self._parts, self._texts = written, parts, texts
        pieces = self._pieces = written.pieces
        self.cells: dict[int, Cells] = {}
        self.sizes: dict[int, int] = {}
        for place in pieces.places.values():
            if place in pieces.vague:
                self.cells[place] = self._cells(place)
                self.sizes[place] = self.cells[place].n.size
                continue
            (n_values,) = self._read(f"c{place}", [("n", ">i8")])["n"].tolist()
            self.sizes[place] = n_values
        listed = [place for place in pieces.vague if f"x{place}" in parts]
        summed = None if pieces.summed is None else pieces.summed.own
        self.lists: dict[int, Listing] = _Listings(
            (place, self._listing(place, is_summed=place == summed)) for place in listed
        )
        self.n_values = dict(self.sizes)
        for place, listing in self.lists.items():
            self.n_values[place] = int(listing.value.max(initial=-1)) + 1
        self.met = {places: self._combinations(places) for places in written.met}

    def outcomes(self, leaf: ex.Expression, place: int) -> Truths:  # noqa: ARG002
        """Return what each cell of a column tells of a condition."""
        read = self._read(self._written.names[leaf], _OUTCOME)
        return Truths(
            read["t"].astype(np.float64), read["f"].astype(np.float64),
            read["st"], read["pt"], read["sf"], read["pf"],
        )  # fmt: skip

    def tried(self, leaf: ex.Expression, places: Sequence[int]) -> Truths:
        """Return what each combination of values tells of a condition."""
        piece, at, n_conditions = self._written.tried[self._written.names[leaf]]
        truths = self._read(piece, [("x", ">i2", (n_conditions,))])["x"][:, at]
        self._require(truths.size, places)
        return Truths.known(truths == _TRUE, truths == _FALSE)

    def ends(
        self,
        leaf: ex.Expression,
        one: int,  # noqa: ARG002
        other: int,  # noqa: ARG002
    ) -> tuple[IntArray, IntArray, IntArray, IntArray, Flags, Flags]:
        """Return the places of the lower and upper ends of two columns' cells on their axis.

        0 is no place. The last two say which cells are there.
        """
        read = self._read(f"{self._written.names[leaf]}_ends", _END)
        sides = [read[read["side"] == side].reshape(-1, 2) for side in (0, 1)]
        ranks = [side["rank"].astype(np.int64) for side in sides]
        known = [side["is_known"][:, 0] for side in sides]
        return ranks[0][:, 0], ranks[0][:, 1], ranks[1][:, 0], ranks[1][:, 1], known[0], known[1]

    def key(self, number: int, places: Sequence[int]) -> tuple[IntArray, list[str]]:
        """Return the number of each combination's group value, and the values as JSON."""
        ranks = self._read(f"g{number}", [("r", ">i4")])["r"].astype(np.int64)
        self._require(ranks.size, places)
        texts = self._texts[f"g{number}_texts"]
        if texts is None and ranks.size:
            raise NotReadError
        return ranks, list(texts or [])

    def numbers(self, places: Sequence[int]) -> FloatArray:
        """Return the number of each combination of values; NaN where there is none."""
        read = self._read("values", _NUMBER)
        self._require(read.size, places)
        return self._numbers(read)

    def moments(self) -> Moments:
        """Return what is summed of each cell of a column."""
        read = self._read("moments", _MOMENTS)
        x, xx, least, most = (self._numbers(read[name]) for name in ("x", "xx", "least", "most"))
        return Moments(x, xx, least, most, read["is_wild"])

    def _combinations(self, places: tuple[int, ...]) -> IntArray:
        name = f"met{'_'.join(map(str, places))}"
        if math.prod(self.n_values[place] for place in places) > _LARGEST:
            raise NotReadError
        number = np.zeros(1, dtype=np.int64)
        read = self._read(name, [(f"j{place}", ">i4") for place in places])
        for place in places:
            number = number * self.n_values[place] + read[f"j{place}"].astype(np.int64)
        return number

    def _require(self, n: int, places: Sequence[int]) -> None:
        met = self.met.get(tuple(places))
        wanted = math.prod(self.n_values[place] for place in places) if met is None else met.size
        if n != wanted:
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
            self._numbers(read["least"]) if is_summed else none,
            self._numbers(read["most"]) if is_summed else none,
        )

    def _read(self, name: str, fields: Any) -> NDArray[np.void]:
        part = self._parts.get(name)
        if part is None:
            raise NotReadError
        return np.frombuffer(part, dtype=np.dtype(fields))

    def _numbers(self, read: NDArray[np.void]) -> FloatArray:
        """Return numbers, NaN where there is none; the server puts what is no number last."""
        x = read["x"].astype(np.float64)
        if read["is_odd"].any():
            if not self._pieces.lists_values:
                raise NotFiniteError
            x[np.isnan(x)] = np.inf
        numbers: FloatArray = np.where(read["is_null"], np.nan, x)
        return numbers


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


class KnownColumn(Protocol):
    """The distinct cells of one column, by their numbers."""

    def values(
        self,
        operand: ex.Expression,
        condition: ex.Expression,
        type_: ex.Type,
        most: int | None,
    ) -> Sequence[Row]:
        """Return what values an expression on the column has in each cell.

        The rows, and the parameters, are those of
        :meth:`~kanon_db.answers.rows.evidence_sql.CellValueWriter.values`.
        """

    def axis(self) -> Row | None:
        """Return the ``points`` and ``shares`` of the parts of an axis of ranges, if known."""

    def cells(self, numbers: Sequence[int]) -> Sequence[Row]:
        """Return cells; see `CellValueWriter.cells_of`."""


_DENSE: Final = 4
_FEW: Final = 1 << 16
"""So many combinations, beside as many times the number of types, have a place in an array each."""

_LARGEST: Final = 1 << 62

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
        if size * one > _LARGEST:
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


class StatementRunner(Protocol):
    """What reads published relations for a query."""

    @property
    def session(self) -> Session:
        """Runs statements."""

    @property
    def publication(self) -> Publication:
        """What is read."""

    def fetch(self, statement: str, *values: Value) -> list[Row]:
        """Run a statement."""

    def stream(self, n: int, statement: str, *values: Value) -> Iterator[Row]:
        """Run a statement, and keep only `n` of its rows at a time."""


class ListedTypes:
    """:class:`KnownTypes` of a view whose cells a statement numbers."""

    def __init__(self, runner: StatementRunner, writer: PieceWriter) -> None:
        self._asked, self._writer = runner, writer
        written = writer.pieces()
        rows = runner.fetch(written.text, *written.bound)
        if not any(row["piece"] == "types" for row in rows):
            raise NotReadError
        self._parts = {row["piece"]: row["part"] for row in rows}
        texts = {row["piece"]: row["texts"] for row in rows}
        self.pieces: Pieces = written.pieces
        self.read: PieceReader = ReadPieces(written, self._parts, texts)

    def all(self) -> Iterator[tuple[dict[int, IntArray], FloatArray]]:
        """Return the numbers of the cells of each type, by the column, and its records."""
        places = self.pieces.places.values()
        fields = [*((str(place), ">i4") for place in places), ("n", ">f8")]
        types = np.frombuffer(self._parts["types"], dtype=np.dtype(fields))
        for first in range(0, types.size, _TYPES_AT_ONCE):
            some = types[first : first + _TYPES_AT_ONCE]
            codes = {place: some[str(place)].astype(np.int64) for place in places}
            if some["n"].any():
                yield codes, some["n"].astype(np.float64)

    def column(self, name: str) -> KnownColumn:
        """Return what is known of the cells of one column."""
        return WrittenColumn(self._asked, self._writer, name)


_TYPES_AT_ONCE: Final = 1 << 16


@dataclass(frozen=True)
class WrittenColumn:
    """:class:`KnownColumn` of published relations."""

    asked: StatementRunner
    types: PieceWriter
    name: str

    def values(
        self,
        operand: ex.Expression,
        condition: ex.Expression,
        type_: ex.Type,
        most: int | None,
    ) -> Sequence[Row]:
        """Return what values an expression on the column has in each cell."""
        writer = CellValueWriter(self.types, self.name)
        written = writer.values(operand, condition, type_.name, most)
        return self.asked.fetch(written.text, *written.bound)

    def axis(self) -> Row | None:
        """Return the ``points`` and ``shares`` of the parts of an axis of ranges, if known."""
        layout = self.types.layout
        cell = layout.cells[self.name]
        if cell.shares is None:
            return None
        is_real = cell.column.type.name == "real"
        points = "s.points::real[]::float8[]::text[]" if is_real else "s.points"
        (axis,) = self.asked.fetch(
            f"SELECT {points} AS points, s.shares FROM {layout.view.shares} AS s"
            " WHERE s.attribute = $1::text AND s.cell IS NULL",
            self.name,
        )
        return axis

    def cells(self, numbers: Sequence[int]) -> Sequence[Row]:
        """Return cells with these numbers."""
        written = CellValueWriter(self.types, self.name).cells_of(numbers)
        return self.asked.fetch(written.text, *written.bound)
