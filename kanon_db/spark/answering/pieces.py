"""The pieces of an answer, calculated on the driver; see `kanon_db.answers.evidence_sql`.

PostgreSQL finds them with one statement (`kanon_db.answers.evidence_sql`). Its ranges are not
known to Spark, so that what they tell is calculated here; conditions and expressions on values are
tried by Spark, once for each distinct value or combination of values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, Protocol

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.answers.evidence import (
    Cells,
    Flags,
    Listing,
    Moments,
    NotReadError,
    TriedValues,
    Truths,
)
from kanon_db.answers.evidence_sql import MOST_COMBINED, Pieces, Unit
from kanon_db.query import expressions as ex
from kanon_db.query.layout import CellLayout, condition_of
from kanon_db.query.likelihoods import MOST_GROUPED, most_listed
from kanon_db.query.sql import Request, leaves
from kanon_db.spark.answering.cells import ColumnCells, Listed
from kanon_db.spark.answering.outcomes import outcomes


class Tries(Protocol):
    """Calculates with values as Spark does."""

    def flags(self, condition: ex.Expression, values: Mapping[str, Any]) -> tuple[Flags, Flags]:
        """Say where a condition is true, and where it is false.

        Parameters
        ----------
        condition : Expression
        values : mapping of str to pyarrow.Array
            Of each column that it mentions, side by side.
        """

    def numbers(self, expression: ex.Expression, values: Mapping[str, Any]) -> FloatArray:
        """Return the values of an expression; NaN for NULL."""

    def keys(
        self, expression: ex.Expression, values: Mapping[str, Any]
    ) -> tuple[IntArray, list[str]]:
        """Return the places of an expression's values in their order, and these as JSON."""


class FoundPieces:
    """:class:`~kanon_db.answers.evidence.PieceReader` of what is calculated.

    Parameters
    ----------
    pieces : Pieces
        What the pieces are called.
    request : Request
    layout : CellLayout
    columns : mapping of int to ColumnCells
    tries : Tries

    Raises
    ------
    NotReadError
        When there is too much to be listed or tried.
    """

    def __init__(
        self,
        pieces: Pieces,
        request: Request,
        layout: CellLayout,
        columns: Mapping[int, ColumnCells],
        tries: Tries,
    ) -> None:
        self._pieces, self._request, self._layout = pieces, request, layout
        self._columns, self._tries = columns, tries
        self._names = {place: name for name, place in pieces.places.items()}
        units = list(_units(pieces.unit))
        by_cell = chain.from_iterable(unit.by_cell.items() for unit in units)
        by_value = chain.from_iterable(unit.by_value.items() for unit in units)
        self._leaves = {name: leaf for leaf, (name, _) in by_cell}
        self._places = {name: place for unit in units for name, place in unit.by_cell.values()}
        self._leaves |= {name: leaf for leaf, (name, _) in by_value}
        self._compared = {name: (a, b) for unit in units for name, a, b in unit.compared.values()}
        self.cells: dict[int, Cells] = {}
        self.sizes = {place: own.n.size for place, own in columns.items()}
        for place in pieces.vague:
            own = columns[place]
            self.cells[place] = Cells(
                own.n.astype(np.float64), own.unknown, own.hidden, own.anything, own.anything
            )
        self._domains: dict[int, Any] = {
            place: own.values for place, own in columns.items() if own.cell.kind == "value"
        }
        self.lists: dict[int, Listing] = {}
        grouped = {place for places in pieces.keys for place in places}
        for unit in units:
            cells = [columns[place].cell for place in unit.spread]
            for place in unit.spread:
                is_grouped = unit is pieces.unit and place in grouped
                most = MOST_GROUPED if is_grouped else most_listed(cells, layout.n_rows)
                self.lists[place] = self._listing(place, most)
        self.n_values = self.sizes | {
            place: len(self._domains[place]) for place in self.lists
        }  # fmt: skip

    # -- conditions ---------------------------------------------------------------------------

    def outcomes(self, name: str) -> Truths:
        """Return what each cell of a column tells of a condition."""
        leaf, place = self._leaves[name], self._places[name]
        own = self._columns[place]

        def tried(values: Any) -> tuple[Flags, Flags]:
            return self._tries.flags(leaf, {self._names[place]: values})

        return outcomes(leaf, own, tried, self._layout.rarity)

    def tried_values(self, name: str, place: int) -> TriedValues:  # noqa: ARG002
        """Refuse: all cells have numbers here."""
        raise NotReadError

    def tried(self, name: str, places: Sequence[int]) -> Truths:
        """Return what each combination of values tells of a condition."""
        return Truths.known(*self._tries.flags(self._leaves[name], self._combined(places)))

    def ends(self, name: str) -> tuple[IntArray, IntArray, IntArray, IntArray, Flags, Flags]:
        """Return the places of the lower and upper ends of two columns' cells on their axis."""
        sides = [self._columns[place].keys for place in self._compared[name]]
        known = sorted({end for keys in sides for key in keys if key is not None for end in key
                        if end is not None})  # fmt: skip
        rank = {end: place for place, end in enumerate(known, start=1)}
        found = [
            np.array([0 if key is None else rank.get(key[end], 0) for key in keys], dtype=np.int64)
            for keys in sides
            for end in (0, 1)
        ]
        there = [np.array([key is not None for key in keys], dtype=np.bool_) for keys in sides]
        return found[0], found[1], found[2], found[3], there[0], there[1]

    # -- groups and sums ----------------------------------------------------------------------

    def key(self, name: str, places: Sequence[int]) -> tuple[IntArray, list[str]]:
        """Return the number of each combination's group value, and the values as JSON."""
        key = self._request.query.keys[int(name.removeprefix("g"))]
        return self._tries.keys(key.expression, self._combined(places))

    def numbers(self, name: str, places: Sequence[int]) -> FloatArray:  # noqa: ARG002
        """Return the number of each combination of values; NaN where there is none."""
        return self._tries.numbers(self._weighed, self._combined(places))

    def moments(self) -> Moments:
        """Return what is summed of each cell of a column."""
        summed = self._pieces.summed
        if summed is None or summed.moments is None:
            raise TypeError("nothing is summed")
        place = summed.moments
        own, n_cells = self._columns[place], self.sizes[place]
        listed = own.listed(most_listed([own.cell]))
        x = self._tries.numbers(self._weighed, {self._names[place]: listed.values})
        is_column = isinstance(self._weighed, ex.Column)
        least, most = listed.extremes(x) if is_column else (x[listed.value],) * 2
        is_wild = own.anything
        if not is_column:
            is_wild = np.bincount(listed.cell, listed.is_open, n_cells) > 0
        found = [_averaged(listed.cell, listed.w, x[listed.value], n_cells)]
        found.append(_averaged(listed.cell, listed.w, x[listed.value] ** 2, n_cells))
        is_there = ~np.isnan(x[listed.value])
        lowest, highest = np.full(n_cells, np.inf), np.full(n_cells, -np.inf)
        np.fmin.at(lowest, listed.cell[is_there], least[is_there])
        np.fmax.at(highest, listed.cell[is_there], most[is_there])
        found += [np.where(np.isfinite(ends), ends, np.nan) for ends in (lowest, highest)]
        if own.cell.mark is not None:
            value, w = self._kept(place, listed)
            x = x[value]
            none = np.zeros(value.size, dtype=np.int64)
            of_kept = [_averaged(none, w, x, 1)[0], _averaged(none, w, x * x, 1)[0],
                       _extreme(np.nanmin, x), _extreme(np.nanmax, x)]  # fmt: skip
            for column, one in zip(found, of_kept, strict=True):
                column[own.hidden] = one
            is_wild = is_wild | own.hidden
        return Moments(found[0], found[1], found[2], found[3], is_wild)

    @property
    def _weighed(self) -> ex.Expression:
        operand = self._request.aggregate.operand
        if operand is None:
            raise TypeError("nothing is summed")
        return operand

    # -- values -------------------------------------------------------------------------------

    def _listing(self, place: int, most: int) -> Listing:
        """List the values of a column's cells; of suppressed ones, those that are kept."""
        own = self._columns[place]
        listed = own.listed(most)
        cell, value, w, is_open = listed.cell, listed.value, listed.w, listed.is_open
        numbers = np.full(len(listed.values), np.nan)
        summed = self._pieces.summed
        is_own = summed is not None and summed.own == place
        if is_own:
            numbers = self._tries.numbers(own.cell.column, {self._names[place]: listed.values})
        least, most_ = listed.extremes(numbers)
        if own.hidden.any():
            kept, shares = self._kept(place, listed)
            hidden = np.flatnonzero(own.hidden)
            cell = np.append(cell, np.repeat(hidden, kept.size))
            value = np.append(value, np.tile(kept, hidden.size))
            w = np.append(w, np.tile(shares, hidden.size))
            is_open = np.append(is_open, np.ones(hidden.size * kept.size, dtype=np.bool_))
            extremes = np.tile(numbers[kept], hidden.size)
            least, most_ = np.append(least, extremes), np.append(most_, extremes)
            order = np.argsort(cell, kind="stable")
            cell, value, w, is_open = cell[order], value[order], w[order], is_open[order]
            least, most_ = least[order], most_[order]
        self._domains[place] = listed.values
        lengths = np.bincount(cell, minlength=own.n.size)
        return Listing(np.cumsum(lengths) - lengths, lengths, value, w, is_open, least, most_)

    def _kept(self, place: int, listed: Listed) -> tuple[IntArray, FloatArray]:
        """Return the values of cells that are kept, with their shares in those that are not."""
        own = self._columns[place]
        n = np.bincount(listed.value, own.n[listed.cell] * listed.w, len(listed.values))
        value = np.flatnonzero(np.bincount(listed.value, minlength=n.size))
        weight = n[value] ** self._layout.rarity
        return value, weight / weight.sum()

    def _combined(self, places: Sequence[int]) -> dict[str, Any]:
        """Combine the values of some columns, those of the last one first."""
        import pyarrow as pa

        sizes = [len(self._domains[place]) for place in places]
        n = int(np.prod(sizes, dtype=np.float64)) if places else 1
        if n > _most_combined(self._request):
            raise NotReadError
        found, number = {}, np.arange(n)
        for place, size in zip(reversed(places), reversed(sizes), strict=True):
            found[self._names[place]] = self._domains[place].take(pa.array(number % max(size, 1)))
            number = number // max(size, 1)
        return found


_FULL: Final = 8


def _most_combined(request: Request) -> int:
    """Return how many combinations of values are tried for each condition."""
    n_leaves = len(set(leaves(condition_of(request.query, request.aggregate))))
    return MOST_COMBINED * _FULL // max(n_leaves, _FULL)


def _units(unit: Unit) -> Iterator[Unit]:
    yield unit
    for part in unit.parts.values():
        yield from _units(part)


def _averaged(cell: IntArray, w: FloatArray, x: FloatArray, n_cells: int) -> FloatArray:
    """Average numbers over the values of cells; those that are not there do not count."""
    is_there = ~np.isnan(x)
    total = np.bincount(cell[is_there], w[is_there], n_cells)
    summed = np.bincount(cell[is_there], (w * x)[is_there], n_cells)
    found = np.full(n_cells, np.nan)
    np.divide(summed, total, out=found, where=total != 0)
    return found


def _extreme(of: Any, x: FloatArray) -> float:
    return float(of(x)) if not np.isnan(x).all() else float("nan")
