"""Reads what distinct cells tell of a query as arrays, and evaluates conditions on coded rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.answers.evidence_sql import Pieces, Unit
from kanon_db.query import expressions as ex
from kanon_db.query.cell_conditions import ANY_END, BEGINS
from kanon_db.query.likelihoods import OTHERWISE
from kanon_db.query.sql import combined

if TYPE_CHECKING:
    from kanon_db.session.protocol import Row


# The pieces of one answer as arrays; see `kanon_db.answers.evidence_sql`.


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

    The attributes are those of :class:`kanon_db.query.sql.Likelihood`.
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


"""The lower bits of a range's code say where it ends, those from here on where it begins."""
"""The code of a range without ends, which may stand for NULL, too; that of NULL is 0."""


def are_ends(codes: IntArray, size: int) -> bool:
    """Whether codes, all below `size`, are of ranges that begin before they end, or of NULL."""
    low, high = codes >> BEGINS, codes & ((1 << BEGINS) - 1)
    is_range = (low < high) & (high < size >> BEGINS)
    return bool((is_range | (codes == 0) | (codes == ANY_END)).all())


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
        is_anything = codes[odd] == ANY_END
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


# What answers need to know of published cells beside counts, wherever it is found.


class KnownTypes(Protocol):
    """The types of records that a request tells apart, and what each of their cells tells."""

    @property
    def read(self) -> PieceReader:
        """What each cell, and each value, tells."""

    def all(self) -> Iterator[tuple[dict[int, IntArray], FloatArray]]:
        """Return the numbers of the cells of some types, by the column, and their records."""


class KnownColumn(Protocol):
    """The distinct cells of one column, by the numbers that :class:`KnownTypes` has of them."""

    def values(
        self,
        operand: ex.Expression,
        condition: ex.Expression,
        type_: ex.Type,
        most: int | None,
        *,
        is_numbered: bool,
    ) -> Sequence[Row]:
        """Return what values an expression on the column has in each cell.

        The rows, and the parameters, are those of
        :meth:`~kanon_db.answers.evidence_sql.CellSumWriter.values`; `is_numbered` says
        whether cells are asked for by their numbers, or by themselves.
        """

    def axis(self) -> Row | None:
        """Return the ``points`` and ``shares`` of the parts of an axis of ranges, if known."""

    def sure_cells(self, numbers: Sequence[int] | None, most: int) -> Sequence[Row]:
        """Return cells with these numbers, or of the records that surely count.

        The rows are those of
        :meth:`~kanon_db.answers.evidence_sql.SureCellWriter.sure_cells`.
        """


# Counting published records by the numbers of their cells.
#
# A type of records has the same cells in all columns that a query mentions. How likely its records
# are counted follows from what is known of each cell, as in the statement over types of records
# (`kanon_db.query.likelihoods`), of which this is the twin: tests hold the two to the same numbers.


_MOST_BYTES: Final = 40_000_000
"""What the combinations of values take that are looked at together."""

_ROW_BYTES: Final = 100
_PART_BYTES: Final = 30
"""What each takes, and beside that for each condition and each column."""

_DENSE: Final = 4
_FEW: Final = 1 << 16
"""So many combinations, beside as many times the number of types, have a place in an array each."""

_LARGEST: Final = 1 << 62

Codes = Mapping[int, IntArray]
"""The numbers of the cells of each type, by the number of the column."""


class _Arrays:
    """The algebra of arrays; see `kanon_db.query.sql`."""

    certain = Truths(
        np.ones(1), np.zeros(1), np.array([True]), np.array([True]), np.array([False]),
        np.array([False]),
    )  # fmt: skip

    def every(self, parts: Sequence[Truths]) -> Truths:
        true, false = parts[0].true, 1 - parts[0].false
        surely, possibly = parts[0].surely, parts[0].possibly
        surely_false, possibly_false = parts[0].surely_false, parts[0].possibly_false
        for part in parts[1:]:
            true, false = true * part.true, false * (1 - part.false)
            surely, possibly = surely & part.surely, possibly & part.possibly
            surely_false = surely_false | part.surely_false
            possibly_false = possibly_false | part.possibly_false
        return Truths(true, 1 - false, surely, possibly, surely_false, possibly_false)

    def opposite(self, part: Truths) -> Truths:
        return Truths(
            part.false, part.true,
            part.surely_false, part.possibly_false, part.surely, part.possibly,
        )  # fmt: skip

    def told(self, part: Truths) -> Truths:
        return Truths(
            part.true, 1 - part.true, part.surely, part.possibly, ~part.possibly, ~part.surely
        )

    def unknown(self, part: Truths) -> Truths:
        true = 1 - part.true - part.false
        surely = ~(part.possibly | part.possibly_false)
        possibly = ~(part.surely | part.surely_false)
        return Truths(true, 1 - true, surely, possibly, ~possibly, ~surely)


_ARRAYS: Final = _Arrays()


@dataclass(frozen=True, eq=False)
class Rows:
    """The combinations of values that the cells of types may stand for.

    Attributes
    ----------
    type_ : ndarray of int64, shape (n_rows,)
        The type of each, ascending.
    w : ndarray of float64, shape (n_rows,)
        Its share of the type.
    at : dict of int to ndarray of int64
        Where its value is in the listing of each listed column.
    first : ndarray of int64, shape (n_types,)
        The first row of each type.
    """

    type_: IntArray
    w: FloatArray
    at: dict[int, IntArray]
    first: IntArray


class Evaluator:
    """Finds how likely records of types are counted."""

    def __init__(self, read: PieceReader, heartbeat: Callable[[], None] = lambda: None) -> None:
        self._read, self._heartbeat = read, heartbeat
        self._outcomes: dict[str, Truths] = {}
        self._of_values: dict[str, TriedValues] = {}

    def chunks(self, unit: Unit, codes: Codes, n_types: int) -> Iterator[slice]:
        """Divide types into parts that do not have too many combinations of values.

        Raises
        ------
        NotReadError
            If those of one type are too many.
        """
        n_parts = (
            len(unit.by_cell)
            + len(unit.by_ends)
            + len(unit.by_value)
            + len(unit.parts)
            + len(codes)
        )
        most = _MOST_BYTES // (_ROW_BYTES + _PART_BYTES * n_parts)
        lengths = np.ones(n_types)
        for place in unit.spread:
            lengths = lengths * self._read.lists[place].lengths[codes[place]]
        if lengths.max(initial=0) > most:
            raise NotReadError
        ends = np.cumsum(lengths)
        start = 0
        while start < n_types:
            done = ends[start - 1] if start else 0
            stop = int(np.searchsorted(ends, done + most, side="right"))
            yield slice(start, stop)
            start = stop

    def rows(self, spread: Sequence[int], codes: Codes, n_types: int) -> Rows:
        """List the combinations of values of some types."""
        return combinations({place: self._read.lists[place] for place in spread}, codes, n_types)

    def truths(self, unit: Unit, codes: Codes, rows: Rows, also_open: Sequence[int] = ()) -> Truths:
        """Find how likely a condition holds in each row.

        Parameters
        ----------
        also_open : sequence of int
            Listed columns of which all values are needed, too, for anything to be certain.
        """
        leaves: dict[ex.Expression, Truths] = {}
        for leaf, (name, place) in unit.by_cell.items():
            leaves[leaf] = self._of_cells(name).at(codes[place][rows.type_])
        for leaf, (name, place) in unit.by_ends.items():
            leaves[leaf] = self._of_ends(name, place).at(codes[place].take(rows.type_))
        for leaf, (name, places) in unit.by_value.items():
            known = self._tried(name, places).at(self.combination(places, codes, rows))
            if leaf in unit.compared:
                known = self._compared(leaf, unit.compared[leaf], known, codes, rows)
            leaves[leaf] = known
        for leaf, part in unit.parts.items():
            leaves[leaf] = self._part(part, codes).at(rows.type_)
        whole = combined(unit.condition, leaves.__getitem__, _ARRAYS)
        is_open = self.open_(unit.open_, rows)
        for place in unit.tested:
            is_open = is_open | self._read.cells[place].anything[codes[place]][rows.type_]
        closed = ~(is_open | self.open_(also_open, rows))
        return Truths(
            whole.true, whole.false,
            whole.surely & closed, whole.possibly | is_open,
            whole.surely_false & closed, whole.possibly_false | is_open,
        )  # fmt: skip

    def combination(self, places: Sequence[int], codes: Codes, rows: Rows) -> IntArray:
        """Give the combination of the values of some columns in each row a number."""
        found = np.zeros(rows.type_.size, dtype=np.int64)
        for place in places:
            if place in rows.at:
                value = self._read.lists[place].value[rows.at[place]]
            else:
                value = codes[place][rows.type_]
            found = found * self._read.n_values[place] + value
        return found

    def open_(self, places: Sequence[int], rows: Rows) -> Flags:
        """Find where some of the values of listed columns are left out."""
        found = np.zeros(rows.type_.size, dtype=np.bool_)
        for place in places:
            if place in rows.at:
                found |= self._read.lists[place].is_open[rows.at[place]]
        return found

    def _of_cells(self, name: str) -> Truths:
        if name not in self._outcomes:
            self._outcomes[name] = self._read.outcomes(name)
        return self._outcomes[name]

    def _of_ends(self, name: str, place: int) -> TriedValues:
        if name not in self._of_values:
            self._of_values[name] = self._read.tried_values(name, place)
        return self._of_values[name]

    def _tried(self, name: str, places: Sequence[int]) -> Truths:
        if name not in self._outcomes:
            self._outcomes[name] = self._read.tried(name, places)
        return self._outcomes[name]

    def _compared(
        self,
        leaf: ex.Expression,
        compared: tuple[str, int, int],
        known: Truths,
        codes: Codes,
        rows: Rows,
    ) -> Truths:
        """Find what is certain of a comparison of two ranges from their ends."""
        if not isinstance(leaf, ex.Comparison):
            raise TypeError("two columns are compared")
        name, left, right = compared
        ends = self._read.ends(name)
        a, b = codes[left], codes[right]
        a_low, a_high, b_low, b_high = ends[0][a], ends[1][a], ends[2][b], ends[3][b]
        is_known = ends[4][a] & ends[5][b]
        endless = self._read.cells[left].endless[a] | self._read.cells[right].endless[b]
        are_there = (a_low > 0) & (a_high > 0) & (b_low > 0) & (b_high > 0)
        possible = {
            "<": a_low < b_high, "<=": a_low <= b_high, ">": a_high > b_low, ">=": a_high >= b_low,
            "=": (a_low <= b_high) & (b_low <= a_high),
            "<>": ~((a_low == b_high) & (b_low == a_high)),
        }  # fmt: skip
        possibly, otherwise = (
            (is_known & (endless | (are_there & possible[operator])))[rows.type_]
            for operator in (leaf.operator, OTHERWISE[leaf.operator])
        )
        known_rows = is_known[rows.type_]
        return Truths(
            known.true, known.false,
            known_rows & ~otherwise, possibly, known_rows & ~possibly, otherwise,
        )  # fmt: skip

    def _part(self, part: Unit, codes: Codes) -> Truths:
        """Find how likely a part of the condition is, once for each combination of its cells."""
        first, of_type = distinct(
            [codes[place] for place in part.places],
            [self._read.sizes[place] for place in part.places],
        )
        own = {place: codes[place][first] for place in part.places}
        found = []
        for chunk in self.chunks(part, own, first.size):
            self._heartbeat()
            some = {place: numbers[chunk] for place, numbers in own.items()}
            n_types = chunk.stop - chunk.start
            rows = self.rows(part.spread, some, n_types)
            each = self.truths(part, some, rows)
            found.append(
                Truths(
                    np.add.reduceat(rows.w * each.true, rows.first),
                    np.add.reduceat(rows.w * each.false, rows.first),
                    np.logical_and.reduceat(each.surely, rows.first),
                    np.logical_or.reduceat(each.possibly, rows.first),
                    np.logical_and.reduceat(each.surely_false, rows.first),
                    np.logical_or.reduceat(each.possibly_false, rows.first),
                )
            )
        return Truths.joined(found).at(of_type)


def combinations(lists: Mapping[int, Listing], codes: Codes, n_types: int) -> Rows:
    """List the combinations of the values that the cells of types may stand for.

    Parameters
    ----------
    lists : mapping of int to Listing
        By the number of the column.
    codes : mapping of int to ndarray of int64, shape (n_types,)
    n_types : int
    """
    each = np.arange(n_types)
    if not lists:
        return Rows(each, np.ones(n_types), {}, each)
    type_, w = each, np.ones(n_types)
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
        w *= listing.w.take(at[place])
    return Rows(type_, w, at, np.cumsum(total) - total)


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
            found, packed = np.unique(packed, return_inverse=True)
            size = found.size
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
class GroupMoments:
    """What the records of types add to a sum: a row for each type and group.

    Attributes
    ----------
    x, xx : ndarray of float64
        The expected values of what each adds, and of its square.
    least, most : ndarray of float64
        Extreme values; infinite where there is none.
    is_wild : ndarray of bool
        Whether it could be anything.
    """

    x: FloatArray
    xx: FloatArray
    least: FloatArray
    most: FloatArray
    is_wild: Flags


@dataclass(frozen=True, eq=False)
class CountedRows:
    """How likely the records of types are counted in groups: a row for each pair of the two.

    Attributes
    ----------
    type_, group : ndarray of int64
    n, u : ndarray of float64
        The records of the type, and the share of them of which nothing is known.
    m : ndarray of float64
        How likely each is counted.
    surely, possibly : ndarray of bool
    moments : GroupMoments or None
    """

    type_: IntArray
    group: IntArray
    n: FloatArray
    u: FloatArray
    m: FloatArray
    surely: Flags
    possibly: Flags
    moments: GroupMoments | None

    def of(self, chosen: Flags) -> CountedRows:
        """Return some of its rows."""
        if chosen.all():
            return self
        x = self.moments
        return CountedRows(
            self.type_[chosen], self.group[chosen], self.n[chosen], self.u[chosen], self.m[chosen],
            self.surely[chosen], self.possibly[chosen],
            None if x is None else GroupMoments(
                x.x[chosen], x.xx[chosen], x.least[chosen], x.most[chosen], x.is_wild[chosen]
            ),
        )  # fmt: skip
