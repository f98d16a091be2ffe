"""Counts the records below any value of an expression, from what its cells tell once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from kanon_db.algorithms.recoding.generalized_cells import fill_hidden
from kanon_db.answers.likelihoods import error_of_sum
from kanon_db.answers.rows.cell_evidence import (
    CellValues,
    FilledShares,
    KnownTypes,
    ListedShares,
    SharesBelow,
)
from kanon_db.answers.rows.coded_rows import (
    CellSums,
    TypeCounter,
    record_types,
)
from kanon_db.answers.scope import OpenQuery
from kanon_db.dataclasses import dataclass
from kanon_db.publications.rows.cell_columns import Cells, Truths
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import Measure, Query
from kanon_db.query.formulas import Estimated, common_spelling, write_key
from kanon_db.query.layout import CellLayout, condition_on, parts_of
from kanon_db.query.sql import Request

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import FloatArray, IntArray

_MOST_LISTED: Final = 200_000
"""Values that are listed of all cells together."""

_FEWEST_LISTED: Final = 5

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
    """The records of some groups by the values of an expression.

    What is sure and possible follows from the least and the greatest value that a cell may stand
    for, and what is expected from the shares of the values in it.
    """

    def __init__(self, values: _ColumnShares, sums: CellSums, opened: OpenQuery) -> None:
        self.sums, self.values, self.places = sums, values, values.places
        self.left_out = opened.publication.left_out
        # How many records there are for each one that is published
        self.scale = 1 + self.left_out / max(opened.publication.records - self.left_out, 1)
        self._ends = np.cumsum(np.bincount(sums.group, minlength=len(sums.groups)))
        self._keys = {common_spelling(key): number for number, key in enumerate(sums.groups)}

    @property
    def keys(self) -> Collection[str]:
        """The common spellings of the groups' keys."""
        return self._keys.keys()

    def group(self, key: str) -> GroupOfCells:
        """Return a group by the common spelling of its key; it need not have published records."""
        number = self._keys.get(key)
        if number is None:
            return GroupOfCells(self, slice(0, 0))
        start = int(self._ends[number - 1]) if number else 0
        return GroupOfCells(self, slice(start, int(self._ends[number])))

    @classmethod
    def blocks(cls, opened: OpenQuery, aggregate: ex.Aggregate) -> Iterator[ValueCounts]:
        """Read what is needed, of as many groups at a time as memory holds; once at least."""
        layout, split = opened.layout, _Split.of(opened.query, aggregate)
        if not isinstance(layout, CellLayout):
            raise TypeError("these are no rows of cells")
        is_read = False
        for counts in () if split is None else cls._of_column(opened, aggregate, layout, split):
            is_read = True
            yield counts
        if not is_read:
            yield cls._of_records(opened, aggregate, layout)

    @classmethod
    def _of_column(
        cls, opened: OpenQuery, aggregate: ex.Aggregate, layout: CellLayout, split: _Split
    ) -> Iterator[ValueCounts]:
        """Count the cells of the column that decides; nothing if a group has too many of them."""
        keys, operand, name = opened.query.keys, aggregate.operand, split.column
        if operand is None:
            raise TypeError("the values of something are counted")
        count = ex.Aggregate("count", None)
        query = Query(split.rest, keys, (Measure("", count),), listed=(0,))
        request = Request(query, count, opened.lookups)
        cell, shares = layout.cells[name], None
        is_range = split.is_plain and cell.kind == "range" and cell.mark is None
        with record_types(opened, request, layout, (name,)) as types:
            for sums in CellSums.blocks(opened, types, name, [key.name for key in keys]):
                if shares is None:
                    place = types.pieces.places[name]
                    n = _MOST_LISTED // max(types.read.sizes[place], 1)
                    listed = None if is_range else min(max(n, _FEWEST_LISTED), _MOST_OF_A_CELL)
                    values = types.column(name).values(operand, split.on_column, listed)
                    shares = _ColumnShares(values, types.read.cells.get(place), layout.rarity)
                yield cls(shares, sums, opened)

    @classmethod
    def _of_records(
        cls, opened: OpenQuery, aggregate: ex.Aggregate, layout: CellLayout
    ) -> ValueCounts:
        """List the values of each record, where cells of one column alone do not decide."""
        summed = replace(aggregate, function="sum", share=None)
        request = Request(opened.query, summed, opened.lookups)
        with record_types(opened, request, layout, lists_values=True) as types:
            sums, values = _spread(opened, types, only_ends=_is_range(layout, aggregate))
            return cls(_ColumnShares(values, None, layout.rarity), sums, opened)


class _ColumnShares:
    """What the cells of a column tell of values, for all groups."""

    def __init__(self, values: CellValues, cells: Cells | None, rarity: float) -> None:
        # `cells`: those of the column, if some may be suppressed; `rarity`: see
        # :class:`~kanon_db.query.layout.CellLayout`.
        self.places, truths, hidden = values.places, values.truths, values.hidden
        self.surely, self.possibly = truths.surely & ~hidden, truths.possibly | hidden
        # The boundaries that have the least, and the greatest, value of each cell below them
        self.least, self.most = self._reach(values.least), self._reach(values.most)
        self.every, self.below = truths.true, values.below
        self.every_evenly, self.below_evenly = truths.evenly, values.below_evenly
        if cells is not None and hidden.any():
            n, evenly = cells.n, 0.0
            self.every = fill_hidden(self.every, hidden, n, rarity)
            self.every_evenly = fill_hidden(self.every_evenly, hidden, n, evenly)
            self.below = FilledShares.of_column(self.below, hidden, n, rarity)
            self.below_evenly = FilledShares.of_column(self.below_evenly, hidden, n, evenly)

    def _reach(self, ends: FloatArray) -> IntArray:
        """Return the boundary that has each end below it; one beyond all for infinite ones."""
        at = np.searchsorted(self.places, ends) + 1
        return np.where(np.isneginf(ends), 0, np.minimum(at, self.places.size + 1))


class GroupOfCells:
    """Some of the sums; see :class:`~kanon_db.answers.value_ranks.RankedGroup`."""

    def __init__(self, counts: ValueCounts, own: slice) -> None:
        self._counts, sums, of_column = counts, counts.sums, counts.values
        self._cell, self._expected = sums.cell[own], sums.expected[own]
        self._evenly = sums.evenly[own]
        self._possible, self._unknown = sums.possible[own], sums.unknown[own]
        self.places, cell = counts.places, self._cell
        sure = sums.sure[own] * of_column.surely[cell]
        possible = self._possible * of_column.possibly[cell]
        least, most = of_column.least[cell], of_column.most[cell]
        self.has_least = bool((possible[least == 0] > 0).any())
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
        self._below = of_column.below.of(cell)
        self.expect = cache(self._expect)  # which is asked for the same ones again and again

    def _add_up(self, n: FloatArray, reached: IntArray) -> tuple[FloatArray, float]:
        """Add up, for each boundary, what is below it, and all."""
        at = np.searchsorted(self.boundaries, reached)
        added: FloatArray = np.cumsum(np.bincount(at, n, self.boundaries.size + 1)).astype(
            np.float64
        )
        return added[:-1], float(added[-1])

    def _expect(self, boundary: int, *, is_above: bool = False) -> float:
        """Return how many records are expected on one side of a boundary."""
        lower, upper = self._limits(boundary, is_above=is_above)
        every = self._counts.values.every
        shares = self._shares(self._below, every, boundary, is_above=is_above)
        return min(max(float(self._expected @ shares) * self._counts.scale, lower), upper)

    def count(self, boundary: int, *, is_above: bool = False) -> Estimated:
        """Count the records on one side of a boundary."""
        of_column, n = self._counts.values, self._possible
        lower, upper = self._limits(boundary, is_above=is_above)
        shares, evenly = (
            self._shares(own, every, boundary, is_above=is_above)
            for own, every in (
                (self._below, of_column.every),
                (self._below_evenly, of_column.every_evenly),
            )
        )
        expected = self._expected * shares
        away = float(expected.sum() - self._evenly @ evenly)
        p = expected / np.maximum(n, 1e-12)
        variance = np.clip(p * (1 - p), 0, None)
        error = error_of_sum(
            float(n @ variance),
            float(n * self._unknown @ np.sqrt(variance)),
            away,
            (upper - lower) / 2,
        )
        estimate = self.expect(boundary, is_above=is_above)
        return Estimated(estimate, error, round(lower), round(upper))

    @cached_property
    def _below_evenly(self) -> SharesBelow:
        return self._counts.values.below_evenly.of(self._cell)

    def _limits(self, boundary: int, *, is_above: bool) -> tuple[float, float]:
        """Return at least and at most how many records are on one side of a boundary."""
        at = int(np.searchsorted(self.boundaries, boundary, "right")) - 1
        lower, upper = self.bounds[2 * is_above : 2 * is_above + 2, at].tolist()
        return lower, upper

    def _shares(
        self, shares_below: SharesBelow, every: FloatArray, boundary: int, *, is_above: bool
    ) -> FloatArray:
        """Find the share of each cell's records on one side of a boundary, whose value counts."""
        number = float(self.places[max(boundary - 1, 0)])
        shares = shares_below(number, is_included=boundary > 0)
        return np.clip(every[self._cell] - shares, 0, 1) if is_above else shares


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
    cell = np.argsort(group, kind="stable")  # they were met chunk by chunk
    sums = CellSums(
        [write_key(names, counter.values(number)[1]) for number in met.tolist()],
        group[cell], cell, of_cells[cell], of_cells[cell],
        (records_of * surely)[cell], records_of[cell],
        np.array([unknown[at] for at in cell.tolist()]),
    )  # fmt: skip
    all_ = np.ones(n_cells, dtype=np.bool_)
    # The ends of ranges are enough: between these, values are on straight lines.
    there = np.concatenate([*([] if only_ends else [values_]), least, most])
    # Of values that several columns have together, only what was learned is kept.
    shares = ListedShares.weigh(of_value, values_, w, np.ones(n_cells))
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
