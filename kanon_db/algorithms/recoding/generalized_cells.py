"""Defines generalized cells, ranges and sets, and estimates how often each value occurs in them.

The estimate follows Turnbull (1976) from the cells of all records; see :func:`distribution_of_sets`
and :func:`distribution_of_ranges`. How far it is followed, :func:`trust` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final, NamedTuple, Self, TypeVar

import numpy as np

from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
    distinct,
    hash_numbers,
    order_of,
)
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
from kanon_db.dataclasses import dataclass

Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class Ranges:
    """The cells of a numeric attribute.

    Parameters
    ----------
    low, high : ndarray of int32, shape (n_cells,)
        Code of the smallest and of the largest number that is covered. Both are NULL's code where
        NULL alone is.
    tells_nothing : ndarray of bool, shape (n_cells,)
        Whether numbers and NULL are covered: then the cell is the whole domain.
    """

    low: CodeArray
    high: CodeArray
    tells_nothing: BoolArray

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return self.low.size

    def taken(self, some: slice | AnyIntArray) -> Ranges:
        """Return some of the cells, in the order of their places."""
        return Ranges(self.low[some], self.high[some], self.tells_nothing[some])


@dataclass(frozen=True, eq=False)
class Sets:
    """The cells of a categorical attribute.

    Parameters
    ----------
    codes : ndarray of int32, shape (total,)
        The distinct codes of each cell, ascending, cell after cell.
    ends : ndarray of int64, shape (n_cells,)
        Where the next cell begins.
    """

    codes: CodeArray
    ends: IntArray

    @classmethod
    def number(cls, members: Iterable[Iterable[Value]]) -> tuple[Self, list[Value]]:
        """Give the members of sets numbers, in the order in which they are met; return these, too.

        Examples
        --------
        >>> cells, values = Sets.number([["b", None], ["a", "b"]])
        >>> cells.codes.tolist(), cells.ends.tolist(), values
        ([0, 1, 2, 0], [2, 4], ['b', None, 'a'])
        """
        numbers: dict[Value, int] = {}
        codes = [[numbers.setdefault(value, len(numbers)) for value in own] for own in members]
        ends = np.cumsum([len(own) for own in codes], dtype=np.int64)
        return cls(np.array([*chain(*codes)], dtype=np.int32), ends), [*numbers]

    @property
    def sizes(self) -> IntArray:
        """Number of codes of each cell."""
        return np.diff(self.ends, prepend=0)

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return self.ends.size

    def taken(self, some: slice | AnyIntArray) -> Sets:
        """Return some of the cells, in the order of their places.

        Examples
        --------
        >>> cells = Sets(np.array([7, 8, 9], dtype=np.int32), np.array([1, 3]))
        >>> found = cells.taken(np.array([1, 0]))
        >>> found.codes.tolist(), found.ends.tolist()
        ([8, 9, 7], [2, 3])
        """
        if isinstance(some, slice):
            some = np.arange(*some.indices(self.n_cells))
        last = self.ends[some]
        sizes = last - np.where(some > 0, self.ends[some - 1], 0)
        ends = np.cumsum(sizes)
        places = np.arange(int(sizes.sum())) + np.repeat(last - ends, sizes)
        return Sets(self.codes[places], ends)


class NumberedCells(NamedTuple):
    """The cells of an attribute, many of which are equal.

    Parameters
    ----------
    cells : Ranges or Sets
        The distinct cells.
    numbers : ndarray of int, shape (n_cells,)
        The distinct cell that each cell equals; the narrowest signed type for ``cells.n_cells``.
    """

    cells: Ranges | Sets
    numbers: AnyIntArray

    @property
    def n_cells(self) -> int:
        """Number of cells, equal ones included."""
        return self.numbers.size

    def taken(self, some: slice | AnyIntArray) -> Ranges | Sets:
        """Return some of the cells, in the order of their places."""
        return self.cells.taken(self.numbers[some])


def cells_of_classes(
    microdata: Microdata, class_of_record: AnyIntArray, pulse: Pulse = UNLIMITED
) -> tuple[Ranges | Sets, ...]:
    """Generalize each equivalence class to what covers its records, as tightly as possible.

    Parameters
    ----------
    microdata : Microdata
    class_of_record : ndarray of int, shape (n_records,)
        Classes numbered from 0 without gaps; -1 for a suppressed record, which no cell covers.
    pulse : Pulse
        Only its heartbeat is used, before each attribute.

    Returns
    -------
    tuple of Ranges or Sets, length m
        Cells of each attribute: ranges of a numeric one, sets of a categorical one.

    Notes
    -----
    **Source:** [OB] Section 2.2. A numeric cell with NULLs and numbers tells nothing
    (:class:`~kanon_db.algorithms.recoding.microdata.Attribute`).

    Examples
    --------
    >>> age = Attribute(3, numbers=np.array([20.0, 40.0, np.nan]), lower=20, upper=40)
    >>> table = Microdata([[0, 1], [1, 0], [2, 1], [2, 1]], (age, Attribute(2)))
    >>> ages, jobs = cells_of_classes(table, np.array([0, 0, 1, 0]))
    >>> ages.low.tolist(), ages.high.tolist(), ages.tells_nothing.tolist()
    ([0, 2], [1, 2], [True, False])
    >>> jobs.codes.tolist(), jobs.ends.tolist()
    ([0, 1, 1], [2, 3])
    """
    order = order_of(class_of_record + 1, stable=True)
    order = order[np.count_nonzero(class_of_record < 0) :]
    classes = class_of_record[order].astype(np.int64)
    starts = np.flatnonzero(np.diff(classes, prepend=-1))
    result: list[Ranges | Sets] = []
    for j, attribute in enumerate(microdata.attributes):
        pulse.beat()
        codes = microdata.codes[order, j]
        if attribute.numbers is None:
            keys = distinct(classes * attribute.n_values + codes)
            owners, members = np.divmod(keys, attribute.n_values)
            ends = np.cumsum(np.bincount(owners, minlength=starts.size))
            result.append(Sets(members.astype(np.int32), ends))
        else:
            result.append(_ranges(attribute, codes, starts))
    return tuple(result)


def distinct_cells(cells: Ranges | Sets) -> NumberedCells:
    """Find the distinct cells of an attribute.

    Parameters
    ----------
    cells : Ranges or Sets
        The cells of an attribute; no set is empty.

    Returns
    -------
    NumberedCells
        Each of them once, in an order that follows from what they cover.

    Notes
    -----
    Sets are compared by sums of hashes of their codes. If different sets have the same sum, which
    is most unlikely, all cells are kept as they are.

    Examples
    --------
    >>> sets = Sets(np.array([1, 2, 0, 1, 2], dtype=np.int32), np.array([2, 3, 5]))
    >>> found, numbers = distinct_cells(sets)
    >>> numbers.tolist() in ([0, 1, 0], [1, 0, 1]), sorted(found.sizes.tolist())
    (True, [1, 2])
    """
    if isinstance(cells, Ranges):
        covered = (cells.low.astype(np.int64) << 32) | (cells.high.astype(np.int64) << 1)
        covered[cells.tells_nothing] = 1  # whatever its codes are
        first, numbers = _number_keys(covered)
        return NumberedCells(cells.taken(first), numbers)
    if not cells.n_cells:
        return NumberedCells(cells, _narrow(cells.ends))
    sizes = cells.sizes
    starts = cells.ends - sizes
    first, numbers = _number_keys(np.add.reduceat(hash_numbers(cells.codes), starts).view(np.int64))
    if not (sizes == sizes[first[numbers]]).all():
        return NumberedCells(cells, _narrow(np.arange(sizes.size)))
    # Compare the codes of each set with those of the first set of the same sum.
    places = np.arange(cells.codes.size) + np.repeat(starts[first[numbers]] - starts, sizes)
    if not (cells.codes == cells.codes[places]).all():
        return NumberedCells(cells, _narrow(np.arange(sizes.size)))
    return NumberedCells(cells.taken(first), numbers)


def join_cells(parts: Sequence[Ranges | Sets]) -> Ranges | Sets:
    """Put the cells of an attribute one after the other."""
    ranges = [part for part in parts if isinstance(part, Ranges)]
    if ranges:
        return Ranges(
            np.concatenate([part.low for part in ranges]),
            np.concatenate([part.high for part in ranges]),
            np.concatenate([part.tells_nothing for part in ranges]),
        )
    sets = [part for part in parts if isinstance(part, Sets)]
    sizes = np.concatenate([part.sizes for part in sets])
    return Sets(np.concatenate([part.codes for part in sets]), np.cumsum(sizes))


def _number_keys(keys: IntArray) -> tuple[IntArray, AnyIntArray]:
    """Give the distinct keys numbers in order; return where each is first, and all numbers."""
    order = np.argsort(keys)
    is_new = np.ones(keys.size, dtype=np.bool_)
    is_new[1:] = keys[order[1:]] != keys[order[:-1]]
    in_order = _narrow(np.cumsum(is_new) - 1)
    numbers = np.empty_like(in_order)
    numbers[order] = in_order
    return order[is_new], numbers


def _narrow(ascending: IntArray) -> AnyIntArray:
    """Take the narrowest signed type that holds all numbers, and one more than the last."""
    return ascending.astype(np.min_scalar_type(-2 - int(ascending[-1]) if ascending.size else -1))


def _ranges(attribute: Attribute, codes: CodeArray, starts: IntArray) -> Ranges:
    """Cover the codes of each class; the classes lie one after the other."""
    if not starts.size:
        return Ranges(codes, codes, np.zeros(0, dtype=np.bool_))
    assert attribute.numbers is not None  # noqa: S101  # for the type checker
    # NULL's code is the last one: it is the smallest where there is no number.
    low = np.minimum.reduceat(codes, starts)
    if not np.isnan(attribute.numbers).any():
        return Ranges(low, np.maximum.reduceat(codes, starts), np.zeros(starts.size, np.bool_))
    is_null = np.isnan(attribute.numbers)[codes]
    high = np.maximum.reduceat(np.where(is_null, np.int32(-1), codes), starts)
    with_null = np.logical_or.reduceat(is_null, starts)
    return Ranges(low, np.maximum(low, high), with_null & (high >= 0))


ITERATIONS: Final = 10

MOST_PARTS: Final = 2_000
"""Most intervals of a distribution; up to as many whole numbers get an interval each."""

_NARROW: Final = 1e-9
"""Width, relative to the numbers, of intervals that are not divided further."""

_LEAST: Final = 1e-12
"""Least probability of a value, so that sums of probabilities can distinguish it from 0."""


@dataclass(frozen=True, eq=False)
class NumberDistribution:
    """The distribution of a column's numbers over adjacent intervals, called parts."""

    # (n_parts + 1,): ascending. Where numbers are whole, they lie in the middle between two halves.
    edges: FloatArray
    shares: FloatArray  # (n_parts,): the share of all records in each part
    is_each: bool  # Whether each part is one whole number

    @property
    def middles(self) -> FloatArray:
        """The middle of each part."""
        middles: FloatArray = (self.edges[:-1] + self.edges[1:]) / 2
        return middles

    def parts_of(self, low: FloatArray, high: FloatArray) -> tuple[IntArray, IntArray]:
        """Return the first and the last part that each range covers, at least one."""
        n_parts, high = self.shares.size, _apart(low, high)
        first = np.clip(np.searchsorted(self.edges, low, side="right") - 1, 0, n_parts - 1)
        last = np.clip(np.searchsorted(self.edges, high, side="left") - 1, first, n_parts - 1)
        return first.astype(np.int64), last.astype(np.int64)


def _members(cells: Sets) -> tuple[IntArray, IntArray, IntArray]:
    """Return the size of each set, where its codes begin, and the set of each code."""
    sizes = cells.sizes
    return sizes, cells.ends - sizes, np.repeat(np.arange(sizes.size), sizes)


def distribution_of_sets(cells: Sets, records: IntArray, witnesses: FloatArray) -> FloatArray:
    """Estimate how often each value occurs in all sets, from the cells of all records.

    **Source:** Turnbull (1976), by expectation and maximization. Deviations: some values are known
    (*witnesses*), and the iteration ends early, after :data:`ITERATIONS`.
    """
    sizes, starts, owner = _members(cells)
    rest = records - witnesses * sizes
    n_values = int(cells.codes.max(initial=0)) + 1
    known = np.bincount(cells.codes, weights=witnesses[owner], minlength=n_values)
    p: FloatArray = np.full(n_values, 1 / n_values)
    for _ in range(ITERATIONS):
        inside = np.add.reduceat(p[cells.codes], starts)
        expected = np.bincount(cells.codes, weights=(rest / inside)[owner], minlength=n_values)
        p = np.maximum((known + p * expected) / records.sum(), _LEAST)
    return p


def distribution_of_ranges(
    # (n_cells,): the ends of the distinct ranges of a column; where numbers are whole, half a
    # number below the least and above the greatest
    low: FloatArray,
    high: FloatArray,
    records: IntArray,  # (n_cells,)
    # (n_cells,): how many records are known to lie at either end; at most half of the range's
    witnesses: FloatArray,
    *,
    is_whole: bool,  # Whether all numbers are whole
) -> NumberDistribution:
    """Estimate the distribution of numbers from the ranges in which they lie.

    The method and its source are those of :func:`distribution_of_sets`.
    """
    edges = np.unique(np.concatenate([low, _apart(low, high)]))
    is_each = is_whole and edges[-1] - edges[0] <= MOST_PARTS
    if is_each:
        edges = np.arange(edges[0], edges[-1] + 1)
    elif edges.size > MOST_PARTS + 1:
        edges = edges[np.linspace(0, edges.size - 1, MOST_PARTS + 1).round().astype(np.int64)]
    n_parts = edges.size - 1
    axis = NumberDistribution(edges, np.diff(edges) / (edges[-1] - edges[0]), is_each)
    first, last = axis.parts_of(low, high)
    known = np.bincount(first, weights=witnesses, minlength=n_parts)
    known += np.bincount(last, weights=witnesses, minlength=n_parts)
    rest = records - 2 * witnesses
    p = axis.shares
    for _ in range(ITERATIONS):
        upto = np.concatenate([[0.0], np.cumsum(p)])
        weight = rest / np.maximum(upto[last + 1] - upto[first], _LEAST)
        change = np.bincount(first, weights=weight, minlength=n_parts + 1)
        change -= np.bincount(last + 1, weights=weight, minlength=n_parts + 1)
        p = (known + p * np.maximum(np.cumsum(change)[:-1], 0)) / records.sum()
        p = np.maximum(p / p.sum(), _LEAST)
    p = p / p.sum()
    if is_each:
        return NumberDistribution(edges, p, is_each)
    return _divide_parts(edges, p, is_whole=is_whole)


def _apart(low: FloatArray, high: FloatArray) -> FloatArray:
    """Raise the upper ends of single numbers a little, so that they become parts of their own."""
    apart: FloatArray = np.where(high > low, high, low + _NARROW * (1 + np.abs(low)))
    return apart


def _divide_parts(edges: FloatArray, p: FloatArray, *, is_whole: bool) -> NumberDistribution:
    """Divide parts evenly, into more intervals the more records they hold."""
    times = np.maximum(1, np.floor(p * (MOST_PARTS - p.size))).astype(np.int64)
    times[np.diff(edges) <= _NARROW * (1 + np.abs(edges[:-1])) * MOST_PARTS] = 1
    if is_whole:
        times = np.minimum(times, np.diff(edges).astype(np.int64))
    inside = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
    width = np.repeat(np.diff(edges), times)
    low = np.repeat(edges[:-1], times)
    step = inside * width / np.repeat(times, times)
    found = low + (np.floor(step) if is_whole else step)
    return NumberDistribution(
        np.append(found, edges[-1]), np.repeat(p / times, times), is_each=False
    )


_FOLLOWED: Final = 2 / 3
_MISLEADING: Final = 0.1
_MANY_ALIKE, _FEW_ALIKE = 0.3, 0.7  # different freeform rows, as a part of all
"""Chosen on the tables of ``benchmarks/calibration_tables.py`` that are there for it."""

_SEEN: Final = 4
"""A question divides the values of a cell into so many parts, or fewer."""


def trust(
    difference: FloatArray,  # (n_cells,): a chi-square, of learned shares from even ones
    # (n_cells,): of each cell, what its values have together of the column's distribution, how many
    # they are, and the part of its records that the distribution says something about
    inside: FloatArray,
    n_values: AnyIntArray,
    open_part: FloatArray,
    records: IntArray,
    n_classes: float,  # of freeform rows, one for k records
    different: float | None,  # the part of freeform rows that differ; None where classes do
) -> float:
    """Say how far cells follow what was learned; the rest is as the paper says."""
    # Unlike records are put together where they must be, so a cell has its rare values more often
    # than the column does: small differences between values mislead. What so few classes, drawn at
    # random, show of values that are equally likely is no difference.
    mixed = n_values > 1
    weights = records * mixed
    if not weights.any():
        return 0.0
    chance = (np.minimum(n_values, _SEEN) - 1) / np.maximum(n_classes * inside, _LEAST)
    seen = float(np.average((difference - 2 * chance) * open_part**2, weights=weights))
    followed: float = _FOLLOWED
    if different is not None:
        # Frequent values have rows of their own beside mixed ones, unless nearly all rows differ.
        followed *= min(max((different - _MANY_ALIKE) / (_FEW_ALIKE - _MANY_ALIKE), 0), 1)
    return followed * seen / (seen + _MISLEADING) if seen > 0 else 0.0


_OF_CLASSES, _OF_RECORDS, _ALWAYS = 0.9, 0.6, 0.4
"""Chosen as above."""


def _excuse(known: FloatArray, part: float, doubted: float) -> FloatArray:
    """Say of which share of a cell's records errors say nothing: more are off that follow more."""
    doubted *= _ALWAYS + (1 - _ALWAYS) * min(part / _FOLLOWED, 1)
    return np.asarray(1 - (1 - known) * doubted)


def _add_independent(squares: Any, sums: Any, weights: Any = 1.0) -> float:
    """Say what independent deviations add up to, at each place, as a part of their sums."""
    roots = np.sqrt(np.maximum(squares, 0)) * weights
    return float(roots.sum() / max(float((sums * weights).sum()), _LEAST))


MOST_CELLS: Final = 50_000
"""Most distinct cells of a column, or values in its sets; beyond, all values are equally likely."""

_LARGEST: Final = 2.0**51
"""Largest number with an exact half below it; beyond, all values are taken as equally likely."""


@dataclass(frozen=True, eq=False)
class SetDistributions:
    """How often each value occurs in each distinct set of a column."""

    # (total,): fraction of the cell's records with each value, by cell and value
    shares: FloatArray
    known: FloatArray  # (n_cells,): fraction of each cell's records that `_excuse` says

    @classmethod
    def of(
        cls, cells: Sets, records: IntArray, witnesses: FloatArray, *, is_tight: bool,
        different: float | None,  # As of `trust`
    ) -> SetDistributions | None:  # fmt: skip
        """Estimate the distribution within each cell; None if there are too many values."""
        if not records.size or cells.codes.size > MOST_CELLS:
            return None
        sizes, starts, owner = _members(cells)
        sure = np.minimum(witnesses, records / sizes) * is_tight
        p = distribution_of_sets(cells, records, sure)[cells.codes]
        inside, known = np.add.reduceat(p, starts), sure * sizes / records
        even = 1 / sizes[owner]
        learned = p / inside[owner]
        difference: FloatArray = np.add.reduceat((learned - even) ** 2, starts) * sizes
        n_classes = float(witnesses.sum())
        part = trust(difference, inside, sizes, 1 - known, records, n_classes, different)
        # Witnesses, of whom each value has as many, lie evenly.
        shares = even + (part * (1 - known))[owner] * (learned - even)
        # The shares of each set are off by themselves.
        off = (records * (1 - known))[owner] * np.sqrt(np.maximum(shares * (1 - shares), 0))
        squares, sums = (np.bincount(cells.codes, weights=x) for x in (off**2, off))
        doubted = _OF_CLASSES if different is None else _OF_RECORDS
        return cls(shares, _excuse(known, part, doubted * _add_independent(squares, sums)))


_Even = Callable[[IntArray, FloatArray], FloatArray]


@dataclass(frozen=True, eq=False)
class Axis:
    """How often values occur in the ranges of a column; see the table of shares."""

    is_each: bool  # Whether each part is one value
    upto: FloatArray  # (n_parts + 1,): the share of all records below each part
    points: Any  # (n_parts,): a value of each part: a whole number, or a coordinate
    first: IntArray  # (n_cells,): the parts that each range covers, and the share of either end
    last: IntArray
    own: FloatArray  # NaN where nothing is known
    trust: float  # The part of what lies between the ends that follows the shares; see `trust`

    def of(self, cells: IntArray) -> Axis:
        """Return the same of some ranges."""
        return replace(self, first=self.first[cells], last=self.last[cells], own=self.own[cells])

    def inside(self, first: Any, last: Any) -> FloatArray:
        """Return the shares of all records from some parts to others."""
        shares: FloatArray = self.upto[last + 1] - self.upto[first]
        return shares

    def parts(self, cells: IntArray, start: IntArray, end: IntArray) -> FloatArray:
        """Return what lies from some parts to others, of what a range has between its ends.

        `cells`: the range of each; where nothing is learned of it, all lies evenly.
        """
        first, last = self.first[cells], self.last[cells]
        base, at = self.inside(first, last), np.asarray(self.points, dtype=np.float64)
        width = at[last] - at[first] + self.is_each
        # Each reaches half the way to its neighbors, or is one value.
        low = (at[np.maximum(start - 1, first)] + at[start]) / 2
        high = (at[end] + at[np.minimum(end + 1, last)]) / 2
        if self.is_each:
            low, high = at[start], at[end] + 1
        even = np.divide(high - low, width, out=np.ones(base.size), where=width > 0)
        learned = np.divide(self.inside(start, end), base, out=even.copy(), where=base != 0)
        shares: FloatArray = self.trust * learned + (1 - self.trust) * even
        return shares

    def average(
        self, low: FloatArray, high: FloatArray, power: int, otherwise: FloatArray
    ) -> FloatArray:
        """Return the average power of what each range has between its ends; `low`, `high`: these.

        `otherwise`: if all lie evenly.
        """
        points, shares = np.asarray(self.points, dtype=np.float64), np.diff(self.upto)
        upto = np.append(0.0, np.cumsum(shares * points**power))
        total = upto[self.last + 1] - upto[self.first]
        for part, is_own in ((self.first, True), (self.last, self.last != self.first)):
            within = np.clip(points[part], low, high) ** power  # parts may reach beyond an end
            total += is_own * shares[part] * (within - points[part] ** power)
        base = self.inside(self.first, self.last)
        learned = np.divide(total, base, out=otherwise.copy(), where=base != 0)
        averages: FloatArray = self.trust * learned + (1 - self.trust) * otherwise
        return averages

    def share(
        self, points: BoolArray, at_low: BoolArray, at_high: BoolArray, otherwise: FloatArray
    ) -> FloatArray:
        """Return which share of each range's records has a value that counts.

        Given whether those at the points and the ends do; `otherwise`: if all lie evenly.
        """
        upto = np.append(0.0, np.cumsum(np.diff(self.upto) * points))
        base, ends = self.inside(self.first, self.last), at_low.astype(np.int64) + at_high
        has_share = ~np.isnan(self.own) & (base != 0)
        met, part = upto[self.last + 1] - upto[self.first], np.zeros(base.size)
        np.divide(met, base, out=part, where=has_share)
        part = self.trust * part + (1 - self.trust) * otherwise
        shares: FloatArray = np.where(
            has_share, self.own * ends + (1 - 2 * self.own) * part, otherwise
        )
        return shares

    def places(self, cells: IntArray, levels: FloatArray, even: _Even) -> FloatArray:
        """Return where records lie that are in some ranges, and at levels from 0 to 1 of these.

        The lower end of a range is -inf, the upper one inf. `even`: where they lie that lie evenly.
        """
        first, last, own = self.first[cells], self.last[cells], self.own[cells]
        base = self.inside(first, last)
        inner = np.divide(levels - own, 1 - 2 * own, out=np.zeros(own.size), where=own < 1 / 2)
        is_known = ~np.isnan(own) & (base != 0)
        is_learned = is_known & (inner < self.trust)
        at = np.where(is_learned, inner / max(self.trust, _LEAST), 0.0)
        part = np.searchsorted(self.upto, self.upto[first] + at * base, "right") - 1
        rest = np.clip((inner - self.trust) / max(1 - self.trust, _LEAST), 0, 1)
        places: FloatArray = np.where(
            is_learned,
            np.asarray(self.points, dtype=np.float64)[np.clip(part, first, last)],
            even(cells, np.where(is_known, rest, levels)),
        )
        places[is_known & (levels < own)] = -np.inf
        places[is_known & (levels >= 1 - own)] = np.inf
        return places


def fill_hidden(
    shares: FloatArray, hidden: BoolArray, records: AnyIntArray | FloatArray, rarity: float
) -> FloatArray:
    """Put, in place of the shares of suppressed cells, the mean of those that are kept.

    Each is weighted by a power of its number of records: see :data:`~kanon_db.query.layout.RARITY`.
    """
    if not hidden.any():  # which is asked of every value that a percentile may be
        return shares
    kept = np.where(hidden, 0.0, np.asarray(records, np.float64) ** rarity)
    total = kept.sum()
    filled: FloatArray = np.where(hidden, kept @ shares / total if total else 0.0, shares)
    return filled


def spread_levels(cells: IntArray, random: np.random.Generator) -> FloatArray:
    """Draw a level from 0 to 1 for each record, so that those of each cell are evenly apart.

    Then each value of a cell is drawn as often as its share says, but for one record.
    """
    n_cells = int(cells.max(initial=-1)) + 1
    order = random.permutation(cells.size)
    order = order[np.argsort(cells[order], kind="stable")]
    sizes = np.bincount(cells, minlength=n_cells)
    rank = np.arange(cells.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    levels = np.empty(cells.size)
    levels[order] = (rank + random.random(n_cells)[cells[order]]) / sizes[cells[order]]
    return levels


def even_places(
    low: FloatArray, high: FloatArray, cells: IntArray, levels: FloatArray
) -> FloatArray:
    """Return where records lie that are at some levels of ranges; -inf, inf: ends without a place.

    Half of those in a range without an end (NaN) lie beyond all ends there are, as estimated.
    """
    ends = np.concatenate([low, high])
    ends = ends[np.isfinite(ends)]
    least, most = ends.min(initial=np.inf), ends.max(initial=-np.inf)
    no_low, no_high = (
        np.isnan(one) & ~np.isnan(other) for one, other in ((low, high), (high, low))
    )
    start, end = np.where(no_low, least, low)[cells], np.where(no_high, most, high)[cells]
    part = np.where(no_low[cells], 2 * levels - 1, np.where(no_high[cells], 2 * levels, levels))
    places: FloatArray = start + part * (end - start)
    places[no_low[cells] & (part < 0)] = least - 1 / 2
    places[no_high[cells] & (part >= 1)] = most + 1 / 2
    # All in a range that ends with the last end lie beyond it.
    places[no_low[cells] & (end <= least)] = least - 1 / 2
    places[no_high[cells] & (start >= most)] = most + 1 / 2
    return np.where(np.isfinite(places), places, np.where(levels < 1 / 2, -np.inf, np.inf))


def draw_members(
    ends: IntArray, shares: FloatArray, cells: IntArray, levels: FloatArray
) -> IntArray:
    """Return the places of the members that are at some levels of their sets.

    Sets follow each other, up to their `ends`; `shares` are those of their members.
    """
    upto, starts = np.append(0.0, np.cumsum(shares)), np.append(0, ends[:-1])
    first, last = starts[cells], ends[cells] - 1
    wanted = upto[first] + levels * (upto[last + 1] - upto[first])
    drawn: IntArray = np.clip(np.searchsorted(upto, wanted, "right") - 1, first, last)
    return drawn


@dataclass(frozen=True, eq=False)
class RangeDistributions:
    """How the numbers of a column are distributed, and which part of that each range covers."""

    axis: NumberDistribution
    # (n_cells,): the first and the last part of ``axis`` that each range covers, from 0
    first: IntArray
    last: IntArray
    own: FloatArray  # (n_cells,): fraction of its records taken to be at either end, as known
    is_each: bool  # Whether each part is one value of the column
    trust: float  # As of `Axis`
    known: FloatArray  # As of `SetDistributions`

    @classmethod
    def of(
        cls,
        low: FloatArray,
        high: FloatArray,
        records: IntArray,
        witnesses: FloatArray,
        *,
        is_tight: bool,
        different: float | None,  # As of `trust`
        is_discrete: bool,  # Whether all values are whole numbers
    ) -> RangeDistributions | None:
        """Find the distribution of a column's numbers; None if they are not exact enough."""
        if not records.size or max(np.abs(low).max(), np.abs(high).max()) > _LARGEST:
            return None
        sure = np.minimum(witnesses, records / 2) * is_tight
        is_whole, is_at_whole = is_discrete, all((x == np.floor(x)).all() for x in (low, high))
        if is_tight and not is_whole and is_at_whole:
            # Whole numbers of another type: what lies between them does not occur.
            is_whole, low, high = True, low - 0.5, high + 0.5
        axis = distribution_of_ranges(low, high, records, sure, is_whole=is_whole)
        first, last = axis.parts_of(low, high)
        own = sure / records
        width = np.diff(axis.edges)
        of_parts = (axis.shares, width, axis.shares**2 / width)
        cumulated = (np.append(0.0, np.cumsum(parts)) for parts in of_parts)
        shares, widths, squares = (upto[last + 1] - upto[first] for upto in cumulated)
        difference = squares * widths / shares**2 - 1
        part = trust(
            difference, shares, last - first + 1, 1 - 2 * own, records, float(witnesses.sum()),
            different,
        )  # fmt: skip
        is_each = axis.is_each and is_discrete
        if axis.is_each and not is_discrete:
            part = 1.0  # Numbers that lie evenly in a continuous range are never whole.
        # Where a range's records lie evenly as a whole, those between known ends do not.
        own = part * own
        # The shares of each range are off by themselves, in the records on one side of a cut.
        off, n = records * (1 - 2 * own), axis.shares.size
        squares, sums = (
            np.cumsum(np.bincount(first, x, n) - np.bincount(last, x, n)) for x in (off**2, off)
        )
        # Of continuous numbers, no table tells how far cells are off by themselves.
        doubted = _OF_CLASSES if different is None else _OF_RECORDS
        doubted = doubted * _add_independent(squares, sums, axis.shares) if is_whole else 1.0
        return cls(axis, first, last, own, is_each, part, _excuse(2 * own, part, doubted))

    def on(self, points: Any) -> Axis:
        """Return it with a value of each part."""
        upto = np.append(0.0, np.cumsum(self.axis.shares))
        return Axis(self.is_each, upto, points, self.first, self.last, self.own, self.trust)


class RowClasses:
    """Classes of rows with the same cells.

    Parameters
    ----------
    cells : sequence of Ranges or Sets
        The distinct cells of each quasi-identifier.
    cell_of_class : ndarray of int, shape (n_classes, n_qi)
        Which of them each class has.
    n_codes : sequence of int
        How many values each quasi-identifier has.
    """

    def __init__(
        self, cells: Sequence[Ranges | Sets], cell_of_class: AnyIntArray, n_codes: Sequence[int]
    ) -> None:
        self.cells = cells
        self.cell_of_class = cell_of_class
        self.n_codes = n_codes
        self._low_high = [
            ends_of(c, n)[:, cell_of_class[:, a]] if isinstance(c, Ranges) else None
            for a, (c, n) in enumerate(zip(cells, n_codes, strict=True))
        ]
        self._cells_of_code = [_invert(c, n) for c, n in zip(cells, n_codes, strict=True)]
        width = [_mean_size(c, n) / n for c, n in zip(cells, n_codes, strict=True)]
        self._narrowest_first = np.argsort(width, kind="stable").tolist()

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return int(self.cell_of_class.shape[0])

    def classes_of(self, codes: AnyIntArray) -> IntArray:
        """Return the classes whose cells cover a person, ascending.

        Parameters
        ----------
        codes : ndarray of int, shape (n_qi,)
            The person's quasi-identifiers.
        """
        chosen: IntArray | slice = slice(None)
        for attribute in self._narrowest_first:
            code, ends = int(codes[attribute]), self._low_high[attribute]
            if ends is not None:
                inside = (ends[0, chosen] <= code) & (code <= ends[1, chosen])
            else:
                has = self._having(attribute, code)
                inside = has[self.cell_of_class[chosen, attribute]]
            kept = np.flatnonzero(inside)
            chosen = kept if isinstance(chosen, slice) else chosen[kept]
        return chosen if not isinstance(chosen, slice) else np.arange(self.n_classes)

    def overlapping(self, number: int) -> IntArray:
        """Return the classes that share a value with a class in each attribute, ascending."""
        chosen: IntArray | slice = slice(None)
        for attribute in self._narrowest_first:
            cells, ends = self.cells[attribute], self._low_high[attribute]
            if ends is not None:
                (low, high), (first, last) = ends[:, chosen], ends[:, number]
                meets = (low <= last) & (first <= high)
            else:
                assert isinstance(cells, Sets)  # noqa: S101  # for the type checker
                has = self.values_of(number, attribute)[cells.codes]
                n_shared = np.diff(np.append(0, np.cumsum(has))[cells.ends], prepend=0)
                meets = n_shared[self.cell_of_class[chosen, attribute]] > 0
            kept = np.flatnonzero(meets)
            chosen = kept if isinstance(chosen, slice) else chosen[kept]
        return chosen if not isinstance(chosen, slice) else np.arange(self.n_classes)

    def cover(self, attribute: int, codes: IntArray, classes: IntArray) -> BoolArray:
        """Tell which of some ascending codes classes cover, shape (n_codes, n_classes)."""
        ends = self._low_high[attribute]
        if ends is not None:
            low, high = ends[:, classes]
            inside: BoolArray = (low <= codes[:, np.newaxis]) & (codes[:, np.newaxis] <= high)
            return inside
        cells = self.cells[attribute]
        assert isinstance(cells, Sets)  # noqa: S101  # for the type checker
        own = cells.taken(self.cell_of_class[classes, attribute])
        owner, place = (
            np.repeat(np.arange(classes.size), own.sizes),
            np.searchsorted(codes, own.codes),
        )
        is_among = codes[np.minimum(place, codes.size - 1)] == own.codes
        covered = np.zeros((codes.size, classes.size), dtype=np.bool_)
        covered[place[is_among], owner[is_among]] = True
        return covered

    def people_of(self, number: int, codes: CodeArray) -> IntArray:
        """Return the people whom the cells of a class cover, ascending.

        Parameters
        ----------
        number : int
            The class.
        codes : ndarray of int32, shape (n_people, n_qi)
            The people's quasi-identifiers.
        """
        chosen: IntArray | slice = slice(None)
        for attribute in self._narrowest_first:
            column, ends = codes[chosen, attribute], self._low_high[attribute]
            if ends is not None:
                inside = (ends[0, number] <= column) & (column <= ends[1, number])
            else:
                inside = self.values_of(number, attribute)[column]
            kept = np.flatnonzero(inside)
            chosen = kept if isinstance(chosen, slice) else chosen[kept]
        return chosen if not isinstance(chosen, slice) else np.arange(codes.shape[0])

    def values_of(self, number: int, attribute: int) -> BoolArray:
        """Return which values of an attribute the cell of a class covers, shape (n_codes,)."""
        covered = np.zeros(self.n_codes[attribute], dtype=np.bool_)
        cells, cell = self.cells[attribute], int(self.cell_of_class[number, attribute])
        if isinstance(cells, Sets):
            start = int(cells.ends[cell - 1]) if cell else 0
            covered[cells.codes[start : cells.ends[cell]]] = True
        else:
            ends = self._low_high[attribute]
            assert ends is not None  # noqa: S101  # for the type checker
            covered[ends[0, number] : ends[1, number] + 1] = True
        return covered

    def widths_of(self, attribute: int) -> IntArray:
        """Return how many values of an attribute the cell of each class covers."""
        cells, cell = self.cells[attribute], self.cell_of_class[:, attribute]
        if isinstance(cells, Sets):
            sizes: IntArray = cells.sizes[cell]
            return sizes
        ends = self._low_high[attribute]
        assert ends is not None  # noqa: S101  # for the type checker
        widths: IntArray = np.maximum(ends[1] - ends[0] + 1, 0)
        return widths

    def _having(self, attribute: int, code: int) -> BoolArray:
        inverted = self._cells_of_code[attribute]
        cells = self.cells[attribute]
        assert inverted is not None  # noqa: S101  # for the type checker
        assert isinstance(cells, Sets)  # noqa: S101  # the same
        starts, members = inverted
        has = np.zeros(cells.ends.size, dtype=np.bool_)
        has[members[starts[code] : starts[code + 1]]] = True
        return has


def ends_of(cells: Ranges, n_codes: int) -> IntArray:
    """Return the first and the last code of each range, shape (2, n_cells)."""
    low = np.where(cells.tells_nothing, 0, cells.low)
    return np.stack([low, np.where(cells.tells_nothing, n_codes - 1, cells.high)]).astype(np.int64)


def _invert(cells: Ranges | Sets, n_codes: int) -> tuple[IntArray, IntArray] | None:
    """Return the sets that have each code: where they begin, and the sets."""
    if isinstance(cells, Ranges):
        return None
    order = np.argsort(cells.codes, kind="stable")
    owners = np.repeat(np.arange(cells.ends.size), cells.sizes)
    return np.searchsorted(cells.codes[order], np.arange(n_codes + 1)), owners[order]


def _mean_size(cells: Ranges | Sets, n_codes: int) -> float:
    if isinstance(cells, Sets):
        return float(cells.sizes.mean()) if cells.ends.size else 0.0
    low, high = ends_of(cells, n_codes)
    return float((high - low + 1).mean()) if low.size else 0.0
