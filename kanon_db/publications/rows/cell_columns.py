"""Says what the distinct cells of a column stand for, and what each tells of a condition.

A cell is a value, a set of values, or a range; values have numbers, and the server says for which
of them a condition is true.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.algorithms.recoding.generalized_cells import Axis, fill_hidden
from kanon_db.dataclasses import dataclass
from kanon_db.query import expressions as ex
from kanon_db.query.layout import LEAST_DOUBT, CellDescription
from kanon_db.query.ranges import MOST_VALUES, can_cover, divides
from kanon_db.transfer.tries import (
    FALSE,
    TRUE,
    AxisCut,
    Combinations,
    ContinuousValues,
    Domain,
    Tries,
    Truth,
    WholeValues,
)  # fmt: skip

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


Outcome = Callable[[], Truths]
"""What each cell tells of a condition, once the server was asked."""


@dataclass(frozen=True, eq=False)
class Listed:
    """The values that cells stand for, cell by cell."""

    domain: Domain
    cell: IntArray  # (n_listed,): the numbers of cells, ascending, and of values
    value: IntArray
    w: FloatArray  # The share of each among its cell's
    is_open: Flags  # Whether there are others in its place
    # Of ranges, what it stands for; NaN where that has no end, or it stands for itself alone
    least: FloatArray
    most: FloatArray
    is_range: bool = False
    numbers: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Of ranges of whole numbers, those of the domain, but for NULL, which is last."""
    own_evenly: FloatArray | None = None  # The shares if all values are equally likely, where known

    @property
    def evenly(self) -> FloatArray:
        """The shares of values if all of a cell are equally likely."""
        return self.w if self.own_evenly is None else self.own_evenly

    def extremes(self, numbers: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the least and the greatest number that each stands for.

        `numbers`: those of the values.
        """
        own = numbers[self.value]
        if not self.is_range:
            return own, own
        return self.least, self.most

    def truths(self, truth: Any, n_cells: int) -> Truths:
        """Add up what the values of each cell tell."""
        n = np.bincount(self.cell, minlength=n_cells)

        def told(wanted: int) -> tuple[FloatArray, Flags, Flags, FloatArray]:
            own = truth[self.value] == wanted
            likely, evenly = (
                np.bincount(self.cell, w * own, n_cells).astype(np.float64, copy=False)
                for w in (self.w, self.evenly)
            )
            n_sure = np.bincount(self.cell, own & ~self.is_open, n_cells)
            possibly = np.bincount(self.cell, own | self.is_open, n_cells) > 0
            return likely, n_sure == n, possibly, evenly

        (t, st, pt, et), (f, sf, pf, ef) = told(TRUE), told(FALSE)
        return Truths(t, f, st, pt, sf, pf, et, ef)

    def with_hidden(self, hidden: Flags, kept: tuple[IntArray, FloatArray]) -> Listed:
        """Let suppressed cells stand for all values that are kept."""
        value, w = kept
        cells, n = np.flatnonzero(hidden), value.size
        own = ~hidden[self.cell]
        none = np.full(cells.size * n, np.nan)
        order = np.argsort(
            cell := np.concatenate([self.cell[own], np.repeat(cells, n)]), kind="stable"
        )

        def joined(kept_: Any, more: Any) -> Any:
            return np.concatenate([kept_[own], more])[order]

        return replace(
            self, cell=cell[order],
            value=joined(self.value, np.tile(value, cells.size)),
            w=joined(self.w, np.tile(w, cells.size)),
            own_evenly=joined(self.evenly, np.full(none.size, 1 / max(n, 1))),
            is_open=joined(self.is_open, np.ones(none.size, dtype=np.bool_)),
            least=joined(self.least, none), most=joined(self.most, none),
        )  # fmt: skip


class KnownCells(Protocol):
    """The distinct cells of a column."""

    @property
    def cells(self) -> Cells:
        """How many records have each, and what is not known of them."""

    @property
    def domain(self) -> Domain:
        """The values that combinations are made of, where these are not listed."""

    def outcome(self, leaf: ex.Expression, tries: Tries) -> Outcome:
        """Ask what each cell tells of a condition on the column."""

    def listed(self, most: int) -> Listed:
        """List the values of each; of ranges with more than `most` values, so many."""


@dataclass(frozen=True, eq=False)
class ValueColumn:
    """Cells that are values; some may be suppressed."""

    name: str
    cells: Cells
    domain: Domain  # A value for each cell
    rarity: float

    def outcome(self, leaf: ex.Expression, tries: Tries) -> Outcome:
        """Ask what each cell tells."""
        truth = tries.want_truth(leaf, Combinations({self.name: self.domain}))
        return lambda: self.truths(truth())

    def truths(self, truth: Truth) -> Truths:
        """Say what each cell tells of a condition, by its truth for each value."""
        return _hide(Truths.known(truth == TRUE, truth == FALSE), self.cells, self.rarity)

    def listed(self, most: int) -> Listed:  # noqa: ARG002
        """List the value of each."""
        n = self.cells.n.size
        each, none = np.arange(n), np.full(n, np.nan)
        truths = Listed(
            self.domain, each, each, np.ones(n), np.zeros(n, dtype=np.bool_), none, none
        )
        return _list_hidden(truths, self.cells, self.rarity)


@dataclass(frozen=True, eq=False)
class SetColumn:
    """Cells that are sets of values."""

    name: str
    cells: Cells
    domain: Domain
    of_cell: IntArray  # (n_members,): the cell of each member, ascending, and its value
    members: IntArray
    w: FloatArray
    rarity: float

    def outcome(self, leaf: ex.Expression, tries: Tries) -> Outcome:
        """Ask what each cell tells."""
        truth = tries.want_truth(leaf, Combinations({self.name: self.domain}))
        return lambda: self.truths(truth())

    def truths(self, truth: Truth) -> Truths:
        """Say what each cell tells of a condition, by its truth for each value."""
        truths = self._members.truths(truth, self.cells.n.size)
        return _hide(truths, self.cells, self.rarity)

    def listed(self, most: int) -> Listed:  # noqa: ARG002
        """List the members of each."""
        return _list_hidden(self._members, self.cells, self.rarity)

    @cached_property
    def _members(self) -> Listed:
        n = self.members.size
        none = np.full(n, np.nan)
        is_open = np.zeros(n, dtype=np.bool_)
        sizes = np.bincount(self.of_cell, minlength=self.cells.n.size)
        return Listed(
            self.domain, self.of_cell, self.members, self.w, is_open, none, none,
            own_evenly=1 / sizes[self.of_cell],
        )  # fmt: skip


def _hide(truths: Truths, cells: Cells, rarity: float) -> Truths:
    """Let suppressed cells meet the condition as those do that are kept, the rarer the more."""
    hidden = cells.hidden
    if not hidden.any():
        return truths
    true, false = (
        fill_hidden(likely, hidden, cells.n, rarity) for likely in (truths.true, truths.false)
    )
    return Truths(
        true, false,
        truths.surely & ~hidden, truths.possibly | hidden,
        truths.surely_false & ~hidden, truths.possibly_false | hidden,
        *(
            fill_hidden(likely, hidden, cells.n, 0.0)
            for likely in (truths.evenly, truths.evenly_false)
        ),
    )  # fmt: skip


def doubt_hidden(hidden: Flags, records: FloatArray, k: int) -> FloatArray:
    """Return the share u of each suppressed cell's records of which nothing is known; 0 of others.

    The less often values are kept, the more others may have been suppressed wherever they occur.
    """
    n = records[~hidden & (records > 0)]
    rare = float(np.minimum(k / n, 1).mean()) if n.size else 1.0
    return np.where(hidden, min(LEAST_DOUBT + rare, 1), 0.0)


def kept_values(listed: Listed, cells: Cells, rarity: float) -> tuple[IntArray, FloatArray]:
    """Return the values of the cells that are kept, with their shares in those that are not."""
    own = ~cells.hidden[listed.cell]
    value, cell = listed.value[own], listed.cell[own]
    n = np.bincount(value, cells.n[cell] * listed.w[own], listed.domain.n)
    there = np.flatnonzero(np.bincount(value, minlength=n.size))
    weight = n[there] ** rarity
    return there, weight / weight.sum()


def _list_hidden(listed: Listed, cells: Cells, rarity: float) -> Listed:
    hidden = cells.hidden
    return (
        listed.with_hidden(hidden, kept_values(listed, cells, rarity)) if hidden.any() else listed
    )


MOST_TABLED: Final = 100_000
"""The most values of whole numbers, or days, for each of which a condition is tried."""

_POINTS: Final = 100
"""How many points of a continuous range are listed."""


@dataclass(frozen=True, eq=False)
class RangeEnds:
    """Where ranges begin and end; both belong to them."""

    # (n_cells,): whole numbers, or where the ends of continuous ranges are in `at`; arbitrary where
    # there is none
    low: IntArray
    high: IntArray
    is_null: Flags
    from_all: Flags  # Whether it has no lower, or no upper end
    to_all: Flags
    # Of continuous ranges, the coordinates of all ends in their order, and these as values
    at: FloatArray | None = None
    values: Domain | None = None

    @cached_property
    def inside(self) -> IntArray:
        """The ranges with both ends."""
        return np.flatnonzero(~(self.is_null | self.from_all | self.to_all))

    @property
    def anything(self) -> Flags:
        """The ranges without ends."""
        return self.from_all & self.to_all

    @property
    def endless(self) -> Flags:
        """The ranges without one of the ends."""
        return self.from_all | self.to_all

    def exceed(self, most: int) -> bool:
        """Whether some range of whole numbers has more values than so many, or lacks an end."""
        n_values = self.high[self.inside] - self.low[self.inside] + 1
        return bool(self.endless.any() or n_values.max(initial=0) > most)

    def coordinates(self, codes: IntArray) -> FloatArray:
        """Return the numbers of ends."""
        if self.at is None:
            return codes.astype(np.float64)
        return self.at[codes] if self.at.size else np.full(codes.shape, np.nan)


@dataclass(frozen=True, eq=False)
class RangeColumn:
    """Cells that are ranges."""

    name: str
    cell: CellDescription
    cells: Cells
    ends: RangeEnds
    axis: Axis | None
    _listings: dict[int, Listed] = field(default_factory=dict)

    @property
    def domain(self) -> Domain:
        """Ranges are listed where their values are combined."""
        raise NotReadError

    def outcome(self, leaf: ex.Expression, tries: Tries) -> Outcome:
        """Ask what each cell tells."""
        known: Cover | _Tried
        if can_cover(self.cell, leaf):
            known = Cover.asked(leaf, self, tries)
        else:
            known = _Tried.asked(leaf, self, tries)
        return lambda: self.truths(known)

    def truths(self, known: Cover | _Tried) -> Truths:
        """Say what each cell tells of a condition, by where it is true."""
        ends = self.ends
        n, inside = self.cells.n.size, ends.inside
        is_true, is_false = (np.full(n, known.null == wanted) for wanted in (TRUE, FALSE))
        t, f = is_true.astype(np.float64), is_false.astype(np.float64)
        truths = Truths(
            t, f, is_true, is_true.copy(), is_false, is_false.copy(), t.copy(), f.copy()
        )
        likely = self._shared(known.inside(), known)
        for name in Truths.__match_args__:
            getattr(truths, name)[inside] = getattr(likely, name)
        if ends.endless.any():
            self._add_endless(truths, known)
        return truths

    def _add_endless(self, truths: Truths, known: Cover | _Tried) -> None:
        """Say what ranges without an end tell; of those without any, as of NULL, nothing surely."""
        ends = self.ends
        half = np.flatnonzero(ends.endless & ~ends.anything)
        truths.surely[ends.anything] = truths.surely_false[ends.anything] = False
        truths.possibly[ends.anything] = truths.possibly_false[ends.anything] = True
        if half.size:
            likely = known.half(half)
            for name in Truths.__match_args__:
                getattr(truths, name)[half] = getattr(likely, name)

    def _shared(self, even: Truths, known: Cover | _Tried) -> Truths:
        """Put the shares of the parts of the axis that meet the condition in place of even ones."""
        # What is certain is so for each value, while the axis has parts that lie in it by half.
        inside = self.ends.inside
        if self.axis is None or not inside.size:
            return even
        axis, shares = self.axis.of(inside), []
        low, high, points = (
            known.at_ends(self.ends.low[inside]),
            known.at_ends(self.ends.high[inside]),
            known.at_points(),
        )
        for wanted, even_, surely, possibly in (
            (TRUE, even.true, even.surely, even.possibly),
            (FALSE, even.false, even.surely_false, even.possibly_false),
        ):
            share = axis.share(points == wanted, low == wanted, high == wanted, even_)
            shares.append(np.where(surely, 1.0, np.where(possibly, np.clip(share, 0, 1), 0.0)))
        return replace(even, true=shares[0], false=shares[1])

    def places(self, others: Sequence[float] = ()) -> ContinuousValues:
        """Return the ends of continuous ranges, and the values at the axis's points, and others."""
        points = [] if self.axis is None else self.axis.points.tolist()
        return ContinuousValues(self.cell.column.type, self.ends.values, (*points, *others))

    def listed(self, most: int) -> Listed:
        """List the values of each."""
        if most not in self._listings:
            self._listings[most] = _RangeLister(self, most).listed()
        return self._listings[most]

    def try_wide(self, leaf: ex.Expression, tries: Tries) -> Callable[[], Truths]:
        """Ask what ranges with two ends that differ tell: a block of them at a time."""
        truths: list[Truths] = []

        def want(cells: IntArray, listed: Listed) -> Callable[[], Truths]:
            truth = tries.want_truth(leaf, Combinations({self.name: listed.domain}))
            return lambda: listed.truths(truth(), self.cells.n.size).at(cells)

        first, *later = self._blocks
        last = want(first, self._first_block)
        for cells in later:
            tries.ask()
            truths.append(last())
            last = want(cells, _RangeLister(self, MOST_VALUES, cells=cells).listed())
        return lambda: Truths.joined([*truths, last()])

    @cached_property
    def _blocks(self) -> list[IntArray]:
        """The ranges whose ends differ, as many at a time as values of them are tried at once."""
        low, high = self.ends.low[self.ends.inside], self.ends.high[self.ends.inside]
        wide = self.ends.inside[low < high]
        if self.ends.at is None:
            n = np.minimum((high - low)[low < high] + 1, MOST_VALUES)
        else:
            n = np.full(wide.size, _POINTS)
        if n.sum() > MOST_LISTED:
            raise NotReadError
        block = np.cumsum(n) // _TRIED_AT_ONCE
        return np.split(wide, np.flatnonzero(np.diff(block)) + 1)

    @cached_property
    def _first_block(self) -> Listed:
        """The values of the first block, which are listed once for all conditions."""
        return _RangeLister(self, MOST_VALUES, cells=self._blocks[0]).listed()

    def listed_runs(self, expressions: Sequence[ex.Expression], tries: Tries) -> Listed | None:
        """List runs of values for which all expressions are the same, each as its first value.

        None if they are too many to try all, or not whole numbers.
        """
        low, high = (end[self.ends.inside] for end in (self.ends.low, self.ends.high))
        if self.ends.at is not None or not low.size or high.max() - low.min() >= MOST_TABLED:
            return None
        numbers = np.arange(low.min(), high.max() + 1)
        of = Combinations({self.name: WholeValues(self.cell.column.type, numbers)})
        ranks = [tries.want_rank(expression, of) for expression in expressions]
        tries.ask()
        changes = np.zeros(numbers.size - 1, dtype=np.bool_)
        for rank in ranks:
            of_value = np.nan_to_num(rank()[:-1], nan=-1)  # NULL is last
            changes |= np.diff(of_value) != 0
        starts = numbers[np.append(True, changes)]
        return _RangeLister(self, 0, starts=starts).listed()


class Cover:
    """Which part of each range an axis is cut into meets a condition."""

    # The pieces of the axis where it is true, ascending: whole numbers from `_first` to `_last`, or
    # coordinates; and, for each end of continuous ranges, how many pieces lie below it, and whether
    # it lies in one.

    def __init__(self, column: RangeColumn, answer: Callable[[], AxisCut]) -> None:
        self._column, self._answer = column, answer

    @classmethod
    def asked(cls, leaf: ex.Expression, column: RangeColumn, tries: Tries) -> Cover:
        """Ask where a condition cuts the axis."""
        of = None if column.ends.at is None else column.places()
        return cls(column, tries.want_cut(leaf, column.cell.column, of))

    @cached_property
    def _pieces(self) -> tuple[Any, Any]:
        read = self._answer()
        return read.first, read.last

    @property
    def null(self) -> int:
        """The condition's truth for NULL."""
        return int(self._answer().null)

    def _regions(self, codes: IntArray) -> tuple[IntArray, Flags]:
        """Return how many pieces lie below some ends, and whether these lie in one."""
        if self._column.ends.at is not None:
            return self._answer().n_below[codes], self._answer().is_inside[codes]
        return self._regions_of_numbers(codes)

    def _regions_of_numbers(self, numbers: Any) -> tuple[IntArray, Flags]:
        first, last = self._pieces
        n_below = np.searchsorted(last, numbers, "left")
        if not first.size:
            return n_below, np.zeros(n_below.shape, dtype=np.bool_)
        is_inside = (n_below < first.size) & (first[np.minimum(n_below, first.size - 1)] <= numbers)
        return n_below, is_inside

    def at_ends(self, codes: IntArray) -> Any:
        """Return the truth for ends of ranges."""
        return np.where(self._regions(codes)[1], TRUE, FALSE)

    def at_points(self) -> Any:
        """Return the truth for the points of the axis."""
        axis = self._column.axis
        if axis is None:
            raise TypeError("the column has no axis")
        if self._column.ends.at is not None:
            return np.where(self._answer().is_inside[self._column.ends.at.size :], TRUE, FALSE)
        return np.where(self._regions_of_numbers(axis.points)[1], TRUE, FALSE)

    def inside(self) -> Truths:
        """Say what ranges with both ends tell, all of whose values are equally likely."""
        ends = self._column.ends
        low, high = ends.low[ends.inside], ends.high[ends.inside]
        below_low, low_in = self._regions(low)
        below_high, high_in = self._regions(high)
        n_met = below_high + high_in - below_low
        if ends.at is None:
            size = high - low + 1
            covered = self._measure(low, high, size, below_low, below_high, high_in)
            part, is_whole, some = covered / size, covered == size, covered > 0
        else:
            at_low, at_high = ends.at[low], ends.at[high]
            is_whole, some = low_in & high_in & (below_low == below_high), n_met > 0
            with np.errstate(invalid="ignore", divide="ignore"):
                width = at_high - at_low
                part = self._measure(at_low, at_high, width, below_low, below_high, high_in) / width
            part = np.where(np.isfinite(part), np.clip(part, 0, 1), 0.5 * some)
            part = np.where(is_whole, 1.0, part)
        return Truths(part, 1 - part, is_whole, some, ~some, ~is_whole, part, 1 - part)

    def _measure(
        self, low: Any, high: Any, size: Any, below_low: IntArray, below_high: IntArray,
        high_in: Flags,
    ) -> Any:  # fmt: skip
        """Return how much of ranges of some sizes is covered; of whole numbers, how many are."""
        first, last = self._pieces
        if not first.size:
            return np.zeros(low.shape)
        more = int(self._column.ends.at is None)
        at, to = (np.minimum(n_below, first.size - 1) for n_below in (below_low, below_high))
        of_low = np.minimum(last[at], high) - np.maximum(first[at], low) + more
        of_low = np.where(below_low < first.size, np.maximum(of_low, 0), 0)
        # A piece between the ends of a range is no longer: others would take a sum's last digits.
        sizes, widest = last - first + more, size[np.isfinite(size)].max(initial=0)
        sums = np.append(0, np.cumsum(np.where(sizes <= widest, sizes, 0)))
        others = sums[below_high] - sums[at + 1] + np.where(high_in, high - first[to] + more, 0)
        return of_low + np.where(below_low < below_high, others, 0)

    def half(self, cells: IntArray) -> Truths:
        """Say what ranges with one end tell: half, where a part of it meets the condition."""
        ends, (first, last) = self._column.ends, self._pieces
        has_low = ~ends.from_all[cells]
        n_below, is_in = self._regions(np.where(has_low, ends.low[cells], ends.high[cells]))
        answer = self._answer()
        to_all = is_in & answer.to_all & (n_below == first.size - 1)
        from_all = is_in & answer.from_all & (n_below == 0)
        inside = np.where(has_low, to_all, from_all)
        some = np.where(has_low, n_below < last.size, n_below + is_in > 0)
        part = np.where(inside, 1.0, np.where(some, 0.5, 0.0))
        return Truths(part, 1 - part, inside, some, ~some, ~inside, part, 1 - part)


class _Tried:
    """For which values of ranges a condition is true, where it does not cut their axis."""

    def __init__(
        self,
        column: RangeColumn,
        truth: Callable[[], Any],
        code: Callable[[IntArray], IntArray],
        points: IntArray,
        wide: Callable[[], Truths] | None,
    ) -> None:
        # `wide`: what ranges tell whose ends differ; None if all of their values have a truth.
        self._column, self._truth, self._code = column, truth, code
        self._points, self._wide = points, wide

    @classmethod
    def asked(cls, leaf: ex.Expression, column: RangeColumn, tries: Tries) -> _Tried:
        """Try all values from the least to the greatest, or if they are too many, some."""
        ends, axis, type_ = column.ends, column.axis, column.cell.column.type
        if ends.at is not None:
            points = ends.at.size + np.arange(0 if axis is None else axis.points.size)
            of = Combinations({column.name: column.places()})
            truth, wide = tries.want_truth(leaf, of), column.try_wide(leaf, tries)
            return cls(column, truth, lambda codes: codes, points, wide)
        there = np.concatenate([ends.low[~ends.is_null & ~ends.from_all],
                                ends.high[~ends.is_null & ~ends.to_all]])  # fmt: skip
        own_points = np.empty(0, dtype=np.int64) if axis is None else axis.points
        numbers = np.unique(np.concatenate([there, own_points]))
        is_tabled = not divides(leaf) and numbers.size and numbers[-1] - numbers[0] < MOST_TABLED
        if is_tabled:
            numbers = np.arange(numbers[0], numbers[-1] + 1)
        of = Combinations({column.name: WholeValues(type_, numbers)})
        truth = tries.want_truth(leaf, of)

        def code(codes: IntArray) -> IntArray:
            return np.searchsorted(numbers, codes)

        of_wide = None if is_tabled else column.try_wide(leaf, tries)
        return cls(column, truth, code, code(own_points), of_wide)

    @property
    def null(self) -> int:
        return int(self._truth()[-1])

    def at_ends(self, codes: IntArray) -> Any:
        return self._truth()[self._code(codes)]

    def at_points(self) -> Any:
        return self._truth()[self._points]

    def inside(self) -> Truths:
        ends, truth = self._column.ends, self._truth()
        low, high = ends.low[ends.inside], ends.high[ends.inside]
        if self._wide is not None:
            at, is_wide, wide = self.at_ends(low), low < high, self._wide()
            place = np.where(is_wide, low.size + np.cumsum(is_wide) - 1, np.arange(low.size))
            return Truths.joined([Truths.known(at == TRUE, at == FALSE), wide]).at(place)
        low, high = self._code(low), self._code(high)
        n = high - low + 1
        true, false = (
            upto[high + 1] - upto[low]
            for upto in (np.append(0, np.cumsum(truth == wanted)) for wanted in (TRUE, FALSE))
        )
        likely = true / n, false / n
        return Truths(*likely, true == n, true > 0, false == n, false > 0, *likely)

    def half(self, cells: IntArray) -> Truths:
        """Say what ranges with one end tell: what this end does, and nothing surely."""
        ends = self._column.ends
        at = self.at_ends(np.where(ends.from_all[cells], ends.high[cells], ends.low[cells]))
        yes, no = np.ones(cells.size, dtype=np.bool_), np.zeros(cells.size, dtype=np.bool_)
        likely = (at == TRUE).astype(np.float64), (at == FALSE).astype(np.float64)
        return Truths(*likely, no, yes, no, yes, *likely)


class _RangeLister:
    """Lists the values of ranges: all, or some of each."""

    def __init__(
        self, column: RangeColumn, most: int, *,
        starts: IntArray | None = None, cells: IntArray | None = None,
    ) -> None:  # fmt: skip
        # `starts`: the first values of runs that are listed as one, of whole numbers; `cells`: the
        # only ranges that are listed, whose ends differ, and whose values are equally likely
        self._column, self._ends, self._most = column, column.ends, most
        self._starts, self._cells = starts, cells
        self._axis = column.axis if cells is None else None
        self._is_discrete = column.ends.at is None
        # Of each value: its cell, a number or a place among continuous values, its share, whether
        # there are others, and its share if all are equally likely; NULL has no number
        self._rows: list[tuple[IntArray, Any, FloatArray, Flags, FloatArray]] = []
        self._null: list[tuple[IntArray, bool]] = []
        self._others = np.empty(0)  # continuous values that are no ends or points

    def listed(self) -> Listed:
        """List them."""
        ends, most = self._ends, self._most
        if self._cells is not None:
            if self._is_discrete:
                self._add_whole(self._cells, np.full(self._cells.size, np.nan))
            else:
                self._add_points(self._cells)
            return self._joined()
        self._null.append((np.flatnonzero(ends.is_null), False))
        self._null.append((np.flatnonzero(ends.anything), True))
        half = np.flatnonzero(ends.endless & ~ends.anything)
        self._add(half, np.where(ends.from_all[half], ends.high[half], ends.low[half]),
                  np.ones(half.size), is_open=True)  # fmt: skip
        inside, width = ends.inside, ends.high[ends.inside] - ends.low[ends.inside] + 1
        own = np.full(inside.size, np.nan)
        if self._axis is not None:
            own = self._axis.own[inside]
        by_parts = np.zeros(inside.size, dtype=np.bool_)
        if self._starts is not None:
            self._add_runs(inside, own, self._starts)
        elif self._is_discrete:
            by_parts = ~np.isnan(own) & (width > most)
            self._add_whole(inside[~by_parts], own[~by_parts])
        else:
            is_one = width == 1
            self._add(inside[is_one], ends.low[inside[is_one]], np.ones(int(is_one.sum())))
            by_parts = ~np.isnan(own) & ~is_one
            self._add_points(inside[~by_parts & ~is_one])
        if by_parts.any() and self._axis is not None:
            self._add_parts(inside[by_parts], self._axis)
        return self._joined()

    def _add(
        self, cell: IntArray, value: Any, w: FloatArray, *, is_open: Any = False,
        evenly: FloatArray | None = None,
    ) -> None:  # fmt: skip
        are_open = np.broadcast_to(np.asarray(is_open), cell.shape)
        self._rows.append((cell, value, w, are_open, w if evenly is None else evenly))

    def _each(self, n: IntArray) -> tuple[IntArray, IntArray]:
        """Repeat cells as often as they have values; return their places, and numbers of these."""
        if n.sum() > MOST_LISTED:
            raise NotReadError
        at = np.repeat(np.arange(n.size), n)
        return at, np.arange(at.size) - np.repeat(np.cumsum(n) - n, n)

    def _add_whole(self, cells: IntArray, own: FloatArray) -> None:
        """List whole numbers; of a range that is too wide, the middles of parts of equal width."""
        ends, most, axis = self._ends, self._most, self._axis
        width = ends.high[cells] - ends.low[cells] + 1
        n = np.minimum(width, most)
        at, i = self._each(n)
        whole, rest = np.divmod(width[at], 2 * most)
        step = np.where(
            width[at] <= most, i, (2 * i + 1) * whole + (2 * i + 1) * rest // (2 * most)
        )
        w = evenly = 1 / n[at]
        if axis is not None and axis.is_each:
            of_end, part = own[at], np.minimum(axis.first[cells][at] + i, axis.upto.size - 2)
            at_end = (i == 0).astype(int) + (i == n[at] - 1)
            shared = of_end * at_end + (1 - 2 * of_end) * axis.parts(cells[at], part, part)
            w = np.where(np.isnan(of_end), w, shared)
        is_open = (width > most)[at]
        self._add(cells[at], ends.low[cells][at] + step, w, is_open=is_open, evenly=evenly)

    def _add_runs(self, cells: IntArray, own: FloatArray, starts: IntArray) -> None:
        """List what each range has of each run, as likely as its values together."""
        low, high, axis = self._ends.low[cells], self._ends.high[cells], self._axis
        first = np.searchsorted(starts, low, "right") - 1
        n = np.searchsorted(starts, high, "right") - first
        at, i = self._each(n)
        run = first[at] + i
        start = np.maximum(starts[run], low[at])
        end = np.where(i == n[at] - 1, high[at], starts[np.minimum(run + 1, starts.size - 1)] - 1)
        w = evenly = (end - start + 1) / (high - low + 1)[at]
        if axis is not None and axis.is_each:
            last = axis.upto.size - 2
            parts = (
                np.minimum(axis.first[cells[at]] + place - low[at], last) for place in (start, end)
            )
            at_end = (i == 0).astype(int) + (i == n[at] - 1)
            shared = own[at] * at_end + (1 - 2 * own[at]) * axis.parts(cells[at], *parts)
            w = np.where(np.isnan(own[at]), w, shared)
        self._add(cells[at], starts[run], w, evenly=evenly)

    def _add_points(self, cells: IntArray) -> None:
        """List points of continuous ranges at equal distances."""
        n = min(self._most, _POINTS)
        at, i = self._each(np.full(cells.size, n, dtype=np.int64))
        low, high = (
            self._written(self._ends.coordinates(end[cells]))
            for end in (self._ends.low, self._ends.high)
        )
        low, high = low[at], high[at]
        self._others = low + (high - low) * ((i + 0.5) / n)
        first = self._column.places().n - 1 if self._cells is None else 0
        self._add(cells[at], first + np.arange(at.size), np.full(at.size, 1 / n), is_open=True)

    def _add_parts(self, cells: IntArray, axis: Axis) -> None:
        """List both ends of each range, and a value of each of its parts, if they are not many."""
        ends, most = self._ends, self._most if self._is_discrete else min(self._most, _POINTS)
        first, last, own = axis.first[cells], axis.last[cells], axis.own[cells]
        n_parts = last - first + 1
        n = np.minimum(n_parts, most)
        at, i = self._each(n)
        start = first[at] + i * n_parts[at] // n[at]
        end = first[at] + (i + 1) * n_parts[at] // n[at] - 1
        written = replace(axis, points=self._written(axis.points))
        share = written.parts(cells[at], start, end)
        middle = (start + end + 2) // 2 - 1  # counted from 1, as the points are
        low, high = ends.low[cells], ends.high[cells]
        if ends.at is None:
            value = np.clip(axis.points[middle], low[at], high[at])
        else:
            point = axis.points[middle]
            value = np.where(
                point <= ends.at[low[at]], low[at],
                np.where(point >= ends.at[high[at]], high[at], ends.at.size + middle),
            )  # fmt: skip
        self._add(cells[at], value, (1 - 2 * own[at]) * share, is_open=True)
        for own_end in (low, high):
            self._add(cells, own_end, own, is_open=True)

    def _written(self, coordinates: Any) -> Any:
        """Return the numbers that published texts have: those of float4 are the shortest."""
        is_short = self._column.cell.column.type.name == "real"
        return _shortest(coordinates) if is_short else coordinates

    def _joined(self) -> Listed:
        ends, column = self._ends, self._column
        cell, value, w, is_open, evenly = (
            np.concatenate(part) for part in zip(*self._rows, strict=True)
        )
        numbers = np.empty(0, dtype=np.int64)
        if self._is_discrete:
            numbers, value = np.unique(value, return_inverse=True)
            domain: Domain = WholeValues(column.cell.column.type, numbers)
        elif self._cells is not None:
            domain = ContinuousValues(column.cell.column.type, None, self._others.tolist())
        else:
            domain = column.places(self._others.tolist())
        for cells, is_anything in self._null:
            cell = np.concatenate([cell, cells])
            value = np.concatenate([value, np.full(cells.size, domain.n - 1)])
            w, evenly = (np.concatenate([own, np.ones(cells.size)]) for own in (w, evenly))
            is_open = np.concatenate([is_open, np.full(cells.size, is_anything)])
        if cell.size > MOST_LISTED:
            raise NotReadError
        order = np.argsort(cell, kind="stable")
        cell = cell[order]
        least, most = (
            np.where(
                (is_endless | ends.is_null)[cell],
                np.nan,
                as_doubles(ends.coordinates(codes[cell]), column.cell.column.type),
            )
            for is_endless, codes in ((ends.from_all, ends.low), (ends.to_all, ends.high))
        )
        if numbers.size:  # what stands for itself alone
            own = numbers[np.minimum(value[order], numbers.size - 1)].astype(np.float64)
            alone = ~is_open[order] & ~ends.is_null[cell]
            least, most = (np.where(alone, own, end) for end in (least, most))
        return Listed(
            domain, cell, value[order], w[order], is_open[order], least, most,
            is_range=True, numbers=numbers, own_evenly=evenly[order],
        )  # fmt: skip


MOST_LISTED: Final = 2_000_000
"""Values that are listed of all cells of a column."""

_TRIED_AT_ONCE: Final = 50_000
"""Values of ranges for which a condition is tried at once: some 20 MB."""


def as_doubles(numbers: FloatArray, type_: ex.Type) -> FloatArray:
    """Return the double precision of values from their places on the axis: a real has more digits.

    >>> as_doubles(np.array([22.6]), ex.Type("real", "float")).tolist()
    [22.600000381469727]
    """
    is_real = type_.name == "real"
    return numbers.astype(np.float32).astype(np.float64) if is_real else numbers


def _shortest(numbers: FloatArray) -> FloatArray:
    """Return the numbers that the fewest digits of single precision stand for."""
    return np.array([float(str(one)) for one in numbers.astype(np.float32)], dtype=np.float64)
