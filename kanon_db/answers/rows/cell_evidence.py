"""Finds what the cells of rows, and combinations of their values, tell of a question."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.answers.rows.cell_columns import KnownCells, Listed, Outcome, ValueColumn
from kanon_db.answers.rows.evidence import (
    LARGEST,
    Cells,
    Codes,
    Listing,
    Moments,
    NotReadError,
    Truths,
    combinations,
    distinct,
)
from kanon_db.answers.rows.pieces import Pieces, Unit
from kanon_db.answers.tries import FALSE, TRUE, Combinations, Domain, Ranked, Tries
from kanon_db.query import expressions as ex

MOST_COMBINED: Final = 200_000
"""Combinations of values for which a condition is tried; less where there are many conditions."""

_OF_RECORDS: Final = 5
"""So many times as many, where only those that records may have are tried."""

_LISTED_AGAIN: Final = 10
"""So many times as many may be the same."""

_FULL: Final = 8
"""So many conditions may have as many each."""


class CellEvidence:
    """:class:`~kanon_db.answers.rows.evidence.PieceReader` of what the server has tried.

    Raises NotReadError when there is too much to be listed or tried.
    """

    def __init__(
        self,
        pieces: Pieces,
        columns: Mapping[int, KnownCells],
        tries: Tries,
        ends: Callable[[int, int], tuple[Any, ...]],
        types: Callable[[Sequence[int]], Codes],
        *,
        has_types: bool = False,
    ) -> None:
        # `types`: finds the numbers of the cells that records have together in some columns.
        # `has_types`: whether they are known already; otherwise all combinations are tried, unless
        # these are too many, or a calculation may fail on some.
        self._pieces, self._columns, self._tries = pieces, columns, tries
        self._ends, self._types, self._has_types = ends, types, has_types
        self._names = {place: name for name, place in pieces.places.items()}
        self.cells: dict[int, Cells] = {place: columns[place].cells for place in pieces.vague}
        self.sizes = {place: own.cells.n.size for place, own in columns.items()}
        self._listed: dict[int, Listed] = {}
        self._combinations: dict[tuple[int, ...], Combinations] = {}
        units = [*pieces.unit.all()]
        for place, most in pieces.most_listed.items():
            self._listed[place] = columns[place].listed(most)
        self._domains: dict[int, Domain] = {
            place: own.domain
            for place, own in columns.items()
            if isinstance(own, ValueColumn) and place not in self._listed
        } | {place: listed.domain for place, listed in self._listed.items()}
        self.n_values = self.sizes | {place: own.n for place, own in self._domains.items()}
        self.lists = {
            place: _listing(own, self.sizes[place]) for place, own in self._listed.items()
        }
        self.met: dict[tuple[int, ...], IntArray] = {}
        self._outcomes = self._want_outcomes(units)
        self._truths = {
            leaf: tries.want_truth(leaf, self._combined(places))
            for unit in units
            for leaf, places in unit.by_value.items()
        }
        self._keys = [tries.want_key(key, self._combined(places)) for key, places in pieces.keys]
        self._numbers, self._moments = self._want_sums()
        tries.ask()
        if pieces.summed is not None and pieces.summed.own is not None:
            self._add_ends(pieces.summed.own)

    def _want_outcomes(self, units: Sequence[Unit]) -> dict[ex.Expression, Outcome]:
        return {
            leaf: self._columns[place].outcome(leaf, self._tries)
            for unit in units
            for leaf, place in unit.by_cell.items()
        }

    def _want_sums(self) -> tuple[Any, Any]:
        summed, numbers, moments = self._pieces.summed, None, None
        self._own_numbers: Callable[[], FloatArray] | None = None
        if summed is None:
            return None, None
        if summed.moments is None:
            want = self._tries.want_rank if summed.is_ranked else self._tries.want_number
            numbers = want(summed.expression, self._combined(summed.values))
        else:
            from kanon_db.answers.likelihoods import most_listed

            place = summed.moments
            own = self._columns[place]
            cell = getattr(own, "cell", None)
            listed = own.listed(most_listed([] if cell is None else [cell]))
            of = Combinations({self._names[place]: listed.domain})
            moments = listed, self._tries.want_number(summed.expression, of)
        if summed.own is not None:
            of = Combinations({self._names[summed.own]: self._domains[summed.own]})
            self._own_numbers = self._tries.want_number(summed.expression, of)
        return numbers, moments

    def _combined(self, places: Sequence[int]) -> Combinations:
        key = tuple(places)
        if key not in self._combinations:
            of = Combinations({self._names[p]: self._domains[p] for p in key})
            few = MOST_COMBINED * _FULL // max(self._pieces.n_leaves, _FULL)
            if len(key) > 1 and (self._has_types or self._pieces.may_fail or of.n > few):
                most = MOST_COMBINED * _OF_RECORDS
                of = replace(of, numbers=self._find_met(key, self._types(key), most))
            if of.n > few * _OF_RECORDS:
                raise NotReadError
            self._combinations[key] = of
        return self._combinations[key]

    def _find_met(self, places: tuple[int, ...], types: Codes, most: int) -> IntArray:
        """Find the combinations of the values of some columns that records may have."""
        sizes = [self.n_values[place] for place in places]
        if prod(sizes) > LARGEST:
            raise NotReadError
        first, _ = distinct([types[place] for place in places], [self.sizes[p] for p in places])
        codes = {place: types[place][first] for place in places}
        lists = {place: self.lists[place] for place in places if place in self.lists}
        n_listed = np.ones(first.size)
        for place, listing in lists.items():
            n_listed = n_listed * listing.lengths[codes[place]]
        if n_listed.sum() > most * _LISTED_AGAIN:
            raise NotReadError
        rows = combinations(lists, codes, first.size)
        values = [
            lists[place].value[rows.at[place]] if place in lists else codes[place][rows.type_]
            for place in places
        ]
        number = np.zeros(1, dtype=np.int64)
        for value, size in zip(values, sizes, strict=True):
            number = number * size + value
        self.met[places] = np.unique(number)
        shape = [max(size, 1) for size in sizes]
        return np.column_stack(np.unravel_index(self.met[places], shape))

    def outcomes(self, leaf: ex.Expression, place: int) -> Truths:  # noqa: ARG002
        """Return what each cell of a column tells of a condition."""
        return self._outcomes[leaf]()

    def tried(self, leaf: ex.Expression, places: Sequence[int]) -> Truths:  # noqa: ARG002
        """Return what each combination of values tells of a condition."""
        truth = self._truths[leaf]()
        return Truths.known(truth == TRUE, truth == FALSE)

    def ends(self, leaf: ex.Expression, one: int, other: int) -> tuple[Any, ...]:  # noqa: ARG002
        """Return the places of the lower and upper ends of two columns' cells on their axis."""
        return self._ends(one, other)

    def key(self, number: int, places: Sequence[int]) -> tuple[IntArray, list[str]]:  # noqa: ARG002
        """Return the number of each combination's group value, and the values as JSON."""
        ranked: Ranked = self._keys[number]()
        if ranked.texts is None:
            raise NotReadError
        return ranked.ranks, list(ranked.texts)

    def numbers(self, places: Sequence[int]) -> FloatArray:  # noqa: ARG002
        """Return the number of each combination of values; NaN where there is none."""
        numbers: FloatArray = self._numbers()
        return numbers

    def moments(self) -> Moments:
        """Return what is summed of each cell of a column."""
        summed = self._pieces.summed
        if summed is None or summed.moments is None:
            raise TypeError("nothing is summed")
        place, (listed, asked) = summed.moments, self._moments
        cells, x = self._columns[place].cells, asked()
        is_column = isinstance(summed.expression, ex.Column)
        own = x[listed.value]
        least, most = listed.extremes(x) if is_column else (own, own)
        n_cells = cells.n.size
        is_wild = cells.endless
        if not is_column:
            is_wild = np.bincount(listed.cell, listed.is_open, n_cells) > 0
        xx = _average(listed, own**2, n_cells)
        if cells.endless.any():  # of what lies beyond a coded end nothing is published
            known = own[np.isfinite(own)]
            half = np.ptp(known) / 2 if known.size else 0.0
            xx = np.where(cells.endless, xx + half**2, xx)
        ends = []
        for function, end, empty in ((np.fmin, least, np.inf), (np.fmax, most, -np.inf)):
            of_cell, there = np.full(n_cells, empty), ~np.isnan(own)
            function.at(of_cell, listed.cell[there], end[there])
            ends.append(np.where(np.isfinite(of_cell), of_cell, np.nan))
        is_infinite = np.bincount(listed.cell, np.isinf(own), n_cells) > 0
        mean = np.where(is_infinite, np.inf, _average(listed, own, n_cells))
        return Moments(mean, xx, ends[0], ends[1], is_wild | cells.hidden)

    def _add_ends(self, place: int) -> None:
        """Add the ends of what each value of a column that is summed itself stands for."""
        if self._own_numbers is None:
            raise TypeError("the numbers of its values were asked for")
        listed, numbers = self._listed[place], self._own_numbers()
        least, most = listed.extremes(numbers)
        hidden = self._columns[place].cells.hidden[listed.cell]
        if hidden.any():
            own = numbers[listed.value]
            least, most = np.where(hidden, own, least), np.where(hidden, own, most)
        self.lists[place] = replace(self.lists[place], least=least, most=most)


def _listing(listed: Listed, n_cells: int) -> Listing:
    lengths, none = np.bincount(listed.cell, minlength=n_cells), np.empty(0)
    return Listing(
        np.cumsum(lengths) - lengths, lengths, listed.value, listed.w, listed.is_open, none, none
    )


def _average(listed: Listed, x: FloatArray, n_cells: int) -> FloatArray:
    """Average numbers over the values of cells; those that are not there do not count."""
    there = ~np.isnan(x)
    total = np.bincount(listed.cell[there], listed.w[there], n_cells)
    summed = np.bincount(listed.cell[there], (listed.w * x)[there], n_cells)
    means = np.full(n_cells, np.nan)
    np.divide(summed, total, out=means, where=total != 0)
    return means
