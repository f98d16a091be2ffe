"""Counts the records below any value of an expression, from what its cells tell once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from kanon_db.algorithms.recoding.generalized_cells import fill_hidden
from kanon_db.answers.likelihoods import error_of_count
from kanon_db.answers.rows.cell_columns import Truths
from kanon_db.answers.rows.cell_evidence import CellValues, KnownTypes, ListedShares, is_unknown
from kanon_db.answers.rows.coded_rows import CellSums, TypeCounter, from_types, key_of_values
from kanon_db.answers.scope import OpenQuery
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import Measure, Query
from kanon_db.query.formulas import Estimated, common_spelling
from kanon_db.query.layout import CellLayout, condition_on, parts_of
from kanon_db.query.sql import Request

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import FloatArray, IntArray

MOST_SUMS: Final = 1_000_000
"""Groups times cells."""

_MOST_LISTED: Final = 200_000
"""Values that are listed of all cells together."""

_FEWEST_LISTED: Final = 5
_SHARE_BYTES: Final = 16
_FEWEST_KEPT: Final = 16
"""Boundaries whose shares are kept, at least."""

_ENTRY_BYTES: Final = 256
"""Memory of a value that a cell may stand for, with its number of records."""
_MOST_OF_A_CELL: Final = 1_000


@dataclass(frozen=True)
class _Split:
    """A condition, as what is on one column, and the rest."""

    column: str
    on_column: ex.Expression
    rest: ex.Expression | None
    is_plain: bool

    @classmethod
    def of(cls, query: Query, aggregate: ex.Aggregate) -> Self | None:
        """Split by the column that an aggregate is of; None if that is not possible."""
        operand = aggregate.operand
        if operand is None or len(ex.attributes(operand)) != 1:
            return None
        (column,) = ex.attributes(operand)
        parts = parts_of(condition_on(query, aggregate))
        own = [part for part in parts if ex.attributes(part) == {column}]
        rest = [part for part in parts if column not in ex.attributes(part)]
        has_lookup = any(
            one.lookup is not None for part in (operand, *own) for one in ex.columns(part)
        )
        in_keys = any(column in ex.attributes(key.expression) for key in query.keys)
        if has_lookup or in_keys or len(own) + len(rest) < len(parts):
            return None
        on_column = ex.joined(ex.And, [*own, ex.NullTest(operand, negated=True)])
        if on_column is None:
            raise TypeError("there is a condition at least")
        is_plain = isinstance(operand, ex.Column) and not own
        return cls(column, on_column, ex.joined(ex.And, rest), is_plain)


class ValueCounts:
    """The records of each group by the values of an expression.

    What is sure and possible follows from the least and the greatest value that a cell may stand
    for, and what is expected from the shares of the values in it.
    """

    def __init__(
        self,
        sums: CellSums,
        values: CellValues,
        types: KnownTypes,
        opened: OpenQuery,
        rarity: float,
        n: FloatArray,
    ) -> None:
        # `rarity`: see :class:`~kanon_db.query.layout.CellLayout`. `n`: how many records have each
        # cell, shape (n_cells,).
        self.sums, self.values, self.places = sums, values, values.places
        self.left_out = opened.publication.left_out
        # How many records there are for each one that is published
        self.scale = 1 + self.left_out / max(opened.publication.records - self.left_out, 1)
        self.together = types.pieces.together
        self.is_unknown = is_unknown(types.read, types.pieces.marked)
        self._fill = partial(fill_hidden, hidden=values.hidden, records=n, rarity=rarity)
        self._order = np.argsort(sums.group, kind="stable")
        self._ends = np.cumsum(np.bincount(sums.group, minlength=len(sums.groups)))
        self._keys = {common_spelling(key): number for number, key in enumerate(sums.groups)}
        self._whole = [
            (self._fill(values.truths.true), values.below),
            (self._fill(values.truths.evenly), values.below_evenly),
        ]
        at_once = max(opened.limits.kept // (_SHARE_BYTES * max(n.size, 1)), _FEWEST_KEPT)
        self.shares = lru_cache(at_once)(self._find_shares)

    def group(self, key: str) -> GroupOfCells:
        """Return a group by the common spelling of its key; it need not have published records."""
        number = self._keys.get(key)
        if number is None:
            return GroupOfCells(self, self._order[:0])
        start = int(self._ends[number - 1]) if number else 0
        return GroupOfCells(self, self._order[start : int(self._ends[number])])

    def _find_shares(self, boundary: int, is_above: bool) -> list[FloatArray]:
        """Find the share of each cell's records on one side of a boundary, whose value counts.

        Then the same if all values of a cell are equally likely.
        """
        is_included = boundary > 0
        number, of_both = float(self.places[max(boundary - 1, 0)]), []
        for every, share_below in self._whole:
            shares = self._fill(share_below(number, is_included=is_included))
            of_both.append(np.clip(every - shares, 0, 1) if is_above else shares)
        return of_both

    @classmethod
    def of(cls, opened: OpenQuery, aggregate: ex.Aggregate) -> ValueCounts:
        """Read what is needed, in one go."""
        layout, split = opened.layout, _Split.of(opened.query, aggregate)
        if not isinstance(layout, CellLayout):
            raise TypeError("these are no rows of cells")
        counted = None if split is None else cls._of_column(opened, aggregate, layout, split)
        return counted or cls._of_records(opened, aggregate, layout)

    @classmethod
    def _of_column(
        cls, opened: OpenQuery, aggregate: ex.Aggregate, layout: CellLayout, split: _Split
    ) -> ValueCounts | None:
        """Count the cells of the column that decides; None if all groups have too many of them."""
        keys, operand, name = opened.query.keys, aggregate.operand, split.column
        count = ex.Aggregate("count", None)
        query = Query(split.rest, keys, (Measure("", count),), listed=(0,))

        def counted(types: KnownTypes) -> ValueCounts | None:
            names = [key.name for key in keys]
            sums = CellSums.of_column(opened, types, name, names, MOST_SUMS)
            if sums is None or operand is None:
                return None
            cell, place = layout.cells[name], types.pieces.places[name]
            n_listed = _MOST_LISTED // max(types.read.sizes[place], 1)
            is_range = split.is_plain and cell.kind == "range" and cell.mark is None
            listed = None if is_range else min(max(n_listed, _FEWEST_LISTED), _MOST_OF_A_CELL)
            values = types.column(name).values(operand, split.on_column, listed)
            n = np.bincount(sums.cell, minlength=values.hidden.size).astype(np.float64)
            if place in types.read.cells:
                n = types.read.cells[place].n
            return cls(sums, values, types, opened, layout.rarity, n)

        return from_types(opened, Request(query, count, opened.lookups), layout, counted, (name,))

    @classmethod
    def _of_records(
        cls, opened: OpenQuery, aggregate: ex.Aggregate, layout: CellLayout
    ) -> ValueCounts:
        """List the values of each record, where cells of one column alone do not decide."""
        summed = replace(aggregate, function="sum", share=None)
        request = Request(opened.query, summed, opened.lookups)

        def counted(types: KnownTypes) -> ValueCounts:
            sums, values = _spread(opened, types, only_ends=_is_range(layout, aggregate))
            return cls(sums, values, types, opened, layout.rarity, sums.possible)

        return from_types(opened, request, layout, counted, lists_values=True)


class GroupOfCells:
    """Some of the sums; see :class:`~kanon_db.answers.value_ranks.RankedGroup`."""

    def __init__(self, counts: ValueCounts, own: IntArray) -> None:
        self._counts, sums = counts, counts.sums
        self._cell, self._expected = sums.cell[own], sums.expected[own]
        self._evenly = sums.evenly[own]
        self._possible, self._unknown = sums.possible[own], sums.unknown[own]
        self.places, values = counts.places, counts.values
        cell, truths = self._cell, values.truths
        surely, possibly = truths.surely & ~values.hidden, truths.possibly | values.hidden
        sure, possible = sums.sure[own] * surely[cell], self._possible * possibly[cell]
        # The boundaries that have the least, and the greatest, value of a cell below them
        least, most = (self._reach(end[cell]) for end in (values.least, values.most))
        boundaries = np.unique(np.concatenate([[0], least, most]))
        self.boundaries: IntArray = boundaries[boundaries <= self.places.size]
        (sure_upto, sure_all), (sure_least, _) = (self._add_up(sure, e) for e in (most, least))
        (upto, _), (possible_most, every) = (self._add_up(possible, e) for e in (least, most))
        self.bounds = np.stack(
            [
                sure_upto,
                upto + counts.left_out,
                sure_all - sure_least,
                every - possible_most + counts.left_out,
            ]
        )

    def _reach(self, ends: FloatArray) -> IntArray:
        """Return the boundary that has each end below it; one beyond all for infinite ones."""
        at = np.searchsorted(self.places, ends) + 1
        return np.where(np.isneginf(ends), 0, np.minimum(at, self.places.size + 1))

    def _add_up(self, n: FloatArray, reached: IntArray) -> tuple[FloatArray, float]:
        """Add up, for each boundary, what is below it, and all."""
        at = np.searchsorted(self.boundaries, reached)
        added: FloatArray = np.cumsum(np.bincount(at, n, self.boundaries.size + 1)).astype(
            np.float64
        )
        return added[:-1], float(added[-1])

    def count(self, boundary: int, *, is_above: bool = False) -> Estimated:
        """Count the records on one side of a boundary."""
        counts, n = self._counts, self._possible
        at = int(np.searchsorted(self.boundaries, boundary, "right")) - 1
        lower, upper = self.bounds[2 * is_above : 2 * is_above + 2, at].tolist()
        shares, evenly = counts.shares(boundary, is_above)
        expected = self._expected * shares[self._cell]
        away = float(expected.sum() - self._evenly @ evenly[self._cell])
        p = expected / np.maximum(n, 1e-12)
        variance = np.clip(p * (1 - p), 0, None)
        estimate = min(max(float(expected.sum()) * counts.scale, lower), upper)
        error = error_of_count(
            float(n @ variance),
            float(n * self._unknown @ np.sqrt(variance)) * counts.together,
            away,
            (upper - lower) / 2,
            is_unknown=counts.is_unknown,
        )
        return Estimated(estimate, error, round(lower), round(upper))


def _is_range(layout: CellLayout, aggregate: ex.Aggregate) -> bool:
    match aggregate.operand:
        case ex.Column(lookup=None, name=name):
            return layout.cells[name].kind == "range"
    return False


def _spread(
    opened: OpenQuery, types: KnownTypes, *, only_ends: bool
) -> tuple[CellSums, CellValues]:
    """Take the records of a group that lie between the same values as if they had one cell."""
    counter, names = (
        TypeCounter(types, opened.session.heartbeat),
        [k.name for k in opened.query.keys],
    )
    cells: dict[tuple[float, ...], int] = {}
    n_of, unknown = defaultdict[int, float](float), defaultdict[int, float](float)
    expected = defaultdict[tuple[int, float], float](float)
    for codes, n_records in types.all():
        for chunk in counter.spread(codes, n_records):
            columns = (chunk.group, chunk.least, chunk.most, chunk.surely)
            keys, number = np.unique(np.column_stack(columns), axis=0, return_inverse=True)
            own = np.array([cells.setdefault(tuple(key), len(cells)) for key in keys.tolist()])
            cell = own[number.reshape(-1)] if own.size else np.empty(0, dtype=np.int64)
            for (at,), records in _sum_by([cell], chunk.n):
                n_of[int(at)] += records
            for at, u in zip(cell.tolist(), chunk.u.tolist(), strict=True):
                unknown[at] = max(unknown[at], u)
            for (at, x), records in _sum_by([cell[chunk.pair], chunk.x], chunk.expected):
                expected[int(at), x] += records
            opened.session.heartbeat()
            if _ENTRY_BYTES * (len(expected) + len(cells)) > opened.limits.kept:
                raise opened.too_much()
    n_cells = len(cells)
    bounds = np.array(list(cells), dtype=np.float64).reshape(-1, 4)
    group_number, least, most, surely = bounds.T
    records_of = np.array([n_of[at] for at in range(n_cells)])
    listed = np.array(list(expected), dtype=np.float64).reshape(-1, 2)
    of_value, values_ = listed[:, 0].astype(np.int64), listed[:, 1]
    w = np.array(list(expected.values()), dtype=np.float64)
    met, group = np.unique(group_number.astype(np.int64), return_inverse=True)
    of_cells = np.bincount(of_value, w, n_cells).astype(np.float64)
    sums = CellSums(
        [key_of_values(names, counter.values(number)[1]) for number in met.tolist()],
        group, np.arange(n_cells), of_cells, of_cells,
        records_of * surely, records_of,
        np.array([unknown[at] for at in range(n_cells)]),
    )  # fmt: skip
    all_ = np.ones(n_cells, dtype=np.bool_)
    # The ends of ranges are enough: between these, values are on straight lines.
    there = np.concatenate([*([] if only_ends else [values_]), least, most])
    # Of values that several columns have together, only what was learned is kept.
    shares = ListedShares(of_value, values_, w, np.ones(n_cells))
    values = CellValues(
        Truths.known(all_, ~all_), ~all_, least, most, np.unique(there[np.isfinite(there)]),
        shares, shares,
    )  # fmt: skip
    return sums, values


def _sum_by(keys: Sequence[Any], n: FloatArray) -> Iterator[tuple[tuple[float, ...], float]]:
    """Sum numbers by the keys that they have in common."""
    distinct, place = np.unique(np.column_stack(keys), axis=0, return_inverse=True)
    sums = np.bincount(place.reshape(-1), n, len(distinct)).tolist()
    yield from zip(map(tuple, distinct.tolist()), sums, strict=True)
