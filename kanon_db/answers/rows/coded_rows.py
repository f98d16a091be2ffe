"""Evaluates conditions on types of records, and counts these in the groups of a query."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.answers.likelihoods import MOST_GROUPED, OTHERWISE, WHOLE, Block, Judgement, judge
from kanon_db.answers.rows.cell_evidence import (
    CellEvidence,
    Codes,
    Effect,
    KnownTypes,
    ListedColumn,
    Rows,
    combinations,
    distinct,
)
from kanon_db.answers.rows.pieces import Summed, Unit
from kanon_db.answers.scope import OpenQuery
from kanon_db.dataclasses import dataclass
from kanon_db.publications.rows.cell_columns import (
    MOST_LISTED,
    Flags,
    NotFiniteError,
    NotReadError,
    RangeColumn,
    Truths,
)
from kanon_db.query import expressions as ex
from kanon_db.query.formulas import not_finite, write_key
from kanon_db.query.layout import CellDescription, CellLayout
from kanon_db.query.sql import EVERYBODY, Request

# Counting published records by the numbers of their cells.
#
# A type of records has the same cells in all columns that a query mentions. How likely its records
# are counted follows from what is known of each cell. Conditions on one column follow from its
# cells; a type has a row for each combination of values of the columns that are listed.


_MOST_BYTES: Final = 40_000_000
"""What the combinations of values take that are looked at together."""

_ROW_BYTES: Final = 100
_PART_BYTES: Final = 30
"""What each takes, and beside that for each condition and each column."""


class Evaluator:
    """Finds how likely records of types are counted."""

    def __init__(self, read: CellEvidence, heartbeat: Callable[[], None] = lambda: None) -> None:
        self._read, self._heartbeat = read, heartbeat

    def chunks(self, unit: Unit, codes: Codes, n_types: int) -> Iterator[slice]:
        """Divide types into parts that do not have too many combinations of values.

        Raises NotReadError if those of one type are too many.
        """
        n_parts = len(unit.by_cell) + len(unit.by_value) + len(unit.parts) + len(codes)
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

    def judge(
        self,
        unit: Unit,
        codes: Codes,
        rows: Rows,
        also_open: Sequence[int] = (),
        block: Block = (),
    ) -> Judgement:
        """Find how likely a condition holds in each row; `block`: all leaves are in it, if any."""
        # `also_open`: listed columns of which all values are needed, too, for anything to be
        # certain.
        leaves: dict[ex.Expression, Judgement] = {}
        for leaf, place in unit.by_cell.items():
            known = self._read.outcomes(leaf).at(codes[place][rows.type_])
            leaves[leaf] = Judgement.of(known, block or unit.block_of(leaf))
        for leaf, places in unit.by_value.items():
            known = self._read.tried(leaf).at(self.combination(places, codes, rows))
            if leaf in unit.compared:
                known = self._compare_ends(leaf, unit.compared[leaf], known, codes, rows)
            leaves[leaf] = Judgement.of(known, block)
        for leaf, part in unit.parts.items():
            leaves[leaf] = self._part(part, codes).at(rows.type_)
        in_all = judge(unit.condition, leaves.__getitem__)
        is_open = self.open_(unit.open_, rows)
        for place in unit.tested:
            is_open = is_open | self._read.cells[place].anything[codes[place]][rows.type_]
        closed = ~(is_open | self.open_(also_open, rows))
        return replace(
            in_all,
            surely=in_all.surely & closed, possibly=in_all.possibly | is_open,
            surely_false=in_all.surely_false & closed,
            possibly_false=in_all.possibly_false | is_open,
        )  # fmt: skip

    def combination(self, places: Sequence[int], codes: Codes, rows: Rows) -> IntArray:
        """Give the combination of the values of some columns in each row a number."""
        numbers = np.zeros(rows.type_.size, dtype=np.int64)
        for place in places:
            if place in rows.at:
                value = self._read.lists[place].value[rows.at[place]]
            else:
                value = codes[place][rows.type_]
            numbers = numbers * self._read.n_values[place] + value
        met = self._read.met.get(tuple(places))
        return numbers if met is None else np.searchsorted(met, numbers)

    def open_(self, places: Sequence[int], rows: Rows) -> Flags:
        """Find where some of the values of listed columns are left out."""
        are_open = np.zeros(rows.type_.size, dtype=np.bool_)
        for place in places:
            if place in rows.at:
                are_open |= self._read.lists[place].is_open[rows.at[place]]
        return are_open

    def _compare_ends(
        self,
        leaf: ex.Expression,
        compared: tuple[int, ...],
        known: Truths,
        codes: Codes,
        rows: Rows,
    ) -> Truths:
        """Find what is certain of a comparison of two ranges from their ends."""
        if not isinstance(leaf, ex.Comparison):
            raise TypeError("two columns are compared")
        left, right = compared
        ends = self._read.ends(left, right)
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
            known.evenly, known.evenly_false,
        )  # fmt: skip

    def _part(self, part: Unit, codes: Codes) -> Judgement:
        """Find how likely a part of the condition is, once for each combination of its cells."""
        block = part.whole
        first, of_type = distinct(
            [codes[place] for place in part.places],
            [self._read.sizes[place] for place in part.places],
        )
        own = {place: codes[place][first] for place in part.places}
        truths = []
        for chunk in self.chunks(part, own, first.size):
            self._heartbeat()
            some = {place: numbers[chunk] for place, numbers in own.items()}
            n_types = chunk.stop - chunk.start
            rows = self.rows(part.spread, some, n_types)
            each = self.judge(part, some, rows, block=block)
            evenly = each.blocks[block].evenly if block in each.blocks else each.likely
            truths.append(
                Truths(
                    np.add.reduceat(rows.w * each.likely.true, rows.first),
                    np.add.reduceat(rows.w * each.likely.false, rows.first),
                    np.logical_and.reduceat(each.surely, rows.first),
                    np.logical_or.reduceat(each.possibly, rows.first),
                    np.logical_and.reduceat(each.surely_false, rows.first),
                    np.logical_or.reduceat(each.possibly_false, rows.first),
                    np.add.reduceat(rows.evenly * evenly.true, rows.first),
                    np.add.reduceat(rows.evenly * evenly.false, rows.first),
                )
            )
        return Judgement.of(Truths.joined(truths).at(of_type), block)


@dataclass(frozen=True, eq=False)
class GroupMoments:
    """What the records of types add to a sum: a row for each type and group."""

    x: FloatArray  # The expected values of what each adds, and of its square
    xx: FloatArray
    least: FloatArray  # Extreme values; infinite where there is none
    most: FloatArray
    is_wild: Flags  # Whether it could be anything

    def of(self, chosen: Flags) -> GroupMoments:
        """Return some of its rows."""
        return GroupMoments(*(getattr(self, name)[chosen] for name in self.__match_args__))


@dataclass(frozen=True, eq=False)
class CountedRows:
    """How likely the records of types are counted in groups: a row for each pair of the two."""

    type_: IntArray
    group: IntArray
    n: FloatArray  # The records of the type, and the share of them of which nothing is known
    u: FloatArray
    m: FloatArray  # How likely each is counted
    effects: list[Effect]  # What each block of columns decides, in the order of `Pieces.blocks`
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
            [effect.of(chosen) for effect in self.effects],
            self.surely[chosen], self.possibly[chosen], None if x is None else x.of(chosen),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Spread:
    """Between which values the records of types are, in groups, and which these may be."""

    # (n_pairs,): of each pair of a type and a group that may have records: between which values
    # these are, infinite where it could be anything, whether they surely count, how many they are,
    # and the share of them of which nothing is known
    group: IntArray
    least: FloatArray
    most: FloatArray
    surely: Flags
    n: FloatArray
    u: FloatArray
    # (n_values,): the pair, and how many of its records are expected to have a value, and to count
    pair: IntArray
    x: FloatArray
    expected: FloatArray


class _GroupNumbers:
    """Numbers groups: each combination of the values of all keys, or if these are many, as met."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes, self._numbers = sizes, dict[tuple[int, ...], int]()
        self._ranks: list[tuple[int, ...]] = []
        self.is_dense = math.prod(sizes) <= _MOST_DENSE
        self._n = math.prod(sizes) if self.is_dense else 0

    def __len__(self) -> int:
        return self._n if self.is_dense else len(self._ranks)

    def of_rows(self, ranks: Sequence[IntArray], n_rows: int) -> tuple[IntArray, int, IntArray]:
        """Give the groups of rows numbers of their own.

        group: ndarray of int64, shape (n_rows,). `first`: Of many groups, the first row of each.
        """
        if not self.is_dense:
            first, group = distinct(ranks, self._sizes)
            return group, first.size, first
        group = np.zeros(n_rows, dtype=np.int64)
        for own, size in zip(ranks, self._sizes, strict=True):
            group = group * size + own
        return group, self._n, group

    def numbers(self, ranks: Sequence[IntArray], chosen: Flags) -> IntArray:
        """Return the numbers of some of many groups; those that are not chosen get none, -1."""
        places = np.full(chosen.size, -1, dtype=np.int64)
        wanted = [own[chosen].tolist() for own in ranks]
        for at, key in zip(np.flatnonzero(chosen).tolist(), zip(*wanted, strict=True), strict=True):
            number = self._numbers.setdefault(key, len(self._ranks))
            if number == len(self._ranks):
                self._ranks.append(key)
            places[at] = number
        return places

    def ranks(self, group: int) -> tuple[int, ...]:
        """Return the places of a group's values in their order."""
        if not self.is_dense:
            return self._ranks[group]
        ranks = []
        for size in reversed(self._sizes):
            group, rank = divmod(group, size)
            ranks.append(rank)
        return tuple(reversed(ranks))


_MOST_DENSE: Final = 1 << 16
"""The most combinations of the values of all keys that have numbers whether they are met or not."""


class TypeCounter:
    """Counts types of records in the groups of one request.

    Parameters
    ----------
    types : KnownTypes
    heartbeat : callable, optional
    lists_all : bool
        Whether groups that no record may be in are listed, too.

    Attributes
    ----------
    texts : list of list of str
        The values of each group key, as JSON, in their order.
    """

    def __init__(
        self,
        types: KnownTypes,
        heartbeat: Callable[[], None] = lambda: None,
        *,
        lists_all: bool = False,
    ) -> None:
        self._pieces, self._read, self._lists_all = types.pieces, types.read, lists_all
        self._evaluator = Evaluator(self._read, heartbeat)
        keys = [self._read.key(number) for number in range(len(types.pieces.keys))]
        self._ranks = [ranks for ranks, _ in keys]
        self.texts = [texts for _, texts in keys]
        self._groups = _GroupNumbers([len(texts) for texts in self.texts])
        self._values = self._moments = None
        if self._pieces.summed is not None:
            if self._pieces.summed.moments is None:
                self._values = self._read.numbers()
            else:
                self._moments = self._read.moments()
        self._places_of_keys = [places for _, places in self._pieces.keys]
        self._open_keys = [place for places in self._places_of_keys for place in places]

    @property
    def n_groups(self) -> int:
        """All combinations of the values of the keys; of many, those that were met so far."""
        return len(self._groups)

    @property
    def distinct_numbers(self) -> FloatArray:
        """The numbers that what is listed of values has, ascending."""
        if self._values is None:
            raise TypeError("no values are listed")
        numbers: FloatArray = np.unique(self._values)
        return numbers[~np.isnan(numbers)]

    @property
    def has_few_groups(self) -> bool:
        """Whether all combinations have numbers."""
        return self._groups.is_dense

    def values(self, group: int) -> tuple[tuple[int, ...], list[str]]:
        """Return the places of a group's values in their order, and the values as JSON."""
        ranks = self._groups.ranks(group)
        return ranks, [texts[rank] for texts, rank in zip(self.texts, ranks, strict=True)]

    def counted(self, codes: Codes, n: FloatArray) -> Iterator[CountedRows]:
        """Count types.

        `codes`: the number of each type's cell, by the number of the column.
        """
        # `n`: the records of each type.
        for chunk in self._evaluator.chunks(self._pieces.unit, codes, n.size):
            some = {place: numbers[chunk] for place, numbers in codes.items()}
            counted_rows = self._count_rows(some, n[chunk])
            yield replace(counted_rows, type_=counted_rows.type_ + chunk.start)

    def spread(self, codes: Codes, n: FloatArray) -> Iterator[Spread]:
        """List the values of what is summed; see :meth:`counted`."""
        summed = self._pieces.summed
        if summed is None or summed.moments is not None:
            raise TypeError("the values of what is summed are listed")
        for chunk in self._evaluator.chunks(self._pieces.unit, codes, n.size):
            some = {place: numbers[chunk] for place, numbers in codes.items()}
            rows, group, judged, possible, pairs, surely = self._likely(some, n[chunk].size)
            t = rows.w * judged.likely.true
            is_met = group >= 0
            x, _, _, least, most, is_wild = self._measure(summed, some, rows)
            type_ = pairs.first(rows.type_)
            ends = [
                joined(np.where(possible & ~np.isnan(own), own, without))
                for joined, own, without in (
                    (pairs.least, least, np.inf), (pairs.most, most, -np.inf)
                )
            ]  # fmt: skip
            is_open = pairs.any(is_wild & possible) | (ends[0] > ends[1])
            low, high = (
                np.where(is_open, far, end)
                for far, end in zip((-np.inf, np.inf), ends, strict=True)
            )
            there, shown = pairs.any(possible), possible & is_met & ~np.isnan(x)
            pair, number = pairs.of_rows(rows.type_.size), np.cumsum(there) - 1
            own_n, u = n[chunk][type_], self._least_known(some, type_)
            yield Spread(
                pairs.first(group)[there], low[there], high[there], surely[there], own_n[there],
                u[there], number[pair[shown]], x[shown], (n[chunk][rows.type_] * t)[shown],
            )  # fmt: skip

    def _likely(
        self, codes: Codes, n_types: int
    ) -> tuple[Rows, IntArray, Judgement, Flags, _RowsOfPairs, Flags]:
        """Find how likely each row counts, in which group, and which pairs surely do."""
        unit = self._pieces.unit
        rows = self._evaluator.rows(unit.spread, codes, n_types)
        judged = self._evaluator.judge(unit, codes, rows, self._open_keys)
        ranks = [
            own[self._evaluator.combination(places, codes, rows)]
            for own, places in zip(self._ranks, self._places_of_keys, strict=True)
        ]
        rows, judged, ranks = self._add_hidden_groups(codes, rows, judged, ranks)
        possible = np.broadcast_to(judged.possibly, rows.w.shape)
        group, n_groups, first = self._groups.of_rows(ranks, rows.type_.size)
        pairs = _RowsOfPairs.of(rows, group, n_groups)
        if not self._groups.is_dense:
            is_met = np.bincount(group[possible], minlength=n_groups) > 0
            group = self._groups.numbers([own[first] for own in ranks], is_met | self._lists_all)[
                group
            ]
        surely = pairs.all(np.broadcast_to(judged.surely, rows.w.shape))
        if self._ranks:
            surely = surely & (pairs.add(rows.w) > WHOLE)
        return rows, group, judged, possible, pairs, surely

    def _add_hidden_groups(
        self, codes: Codes, rows: Rows, judged: Judgement, ranks: list[IntArray]
    ) -> tuple[Rows, Judgement, list[IntArray]]:
        """Repeat rows of suppressed cells in each group that values not listed could lead to."""
        # A key of one column has each of its values for some listed value of it, but `x > y` may
        # be false for no listed x and this y.
        for number, (places, texts) in enumerate(
            zip(self._places_of_keys, self.texts, strict=True)
        ):
            hidden = np.zeros(rows.type_.size, dtype=np.bool_)
            for place in set(places) & set(self._pieces.marked) if len(places) > 1 else ():
                hidden |= self._read.cells[place].hidden[codes[place]][rows.type_]
            if not hidden.any():
                continue
            n = np.where(hidden, len(texts) + 1, 1)
            if n.sum() > MOST_LISTED:
                raise NotReadError
            at = np.repeat(np.arange(n.size), n)
            place_in_row = np.arange(at.size) - np.repeat(np.cumsum(n) - n, n)
            is_added = place_in_row > 0
            judged = judged.at(at)
            ranks = [own[at] for own in ranks]
            ranks[number] = np.where(is_added, place_in_row - 1, ranks[number])
            type_ = rows.type_[at]
            w, evenly = (np.where(is_added, 0.0, own[at]) for own in (rows.w, rows.evenly))
            listed = {place: own[at] for place, own in rows.at.items()}
            rows = Rows(type_, w, evenly, listed, np.flatnonzero(np.diff(type_, prepend=-1)))
        return rows, judged, ranks

    def _count_rows(self, codes: Codes, n: FloatArray) -> CountedRows:
        rows, group, judged, possible, pairs, surely = self._likely(codes, n.size)
        t, summed = rows.w * judged.likely.true, self._pieces.summed
        x, apart, moments = None, None, None
        if summed is not None:
            x, x_evenly, xx, least, most, is_wild = self._measure(summed, codes, rows)
            if np.isinf(x[possible]).any():
                raise NotFiniteError
            x, apart = np.nan_to_num(x), summed.moments
            xx = np.nan_to_num(xx, posinf=np.inf)
            moments = GroupMoments(
                pairs.add(t * x),
                pairs.add(np.multiply(t, xx, out=np.zeros_like(t), where=t > 0)),
                pairs.least(np.where(possible & ~np.isnan(least), least, np.inf)),
                pairs.most(np.where(possible & ~np.isnan(most), most, -np.inf)),
                pairs.any(is_wild),
            )
        m, type_, of_pair = pairs.add(t), pairs.first(rows.type_), pairs.first(group)
        effects = []
        for block in self._pieces.blocks:
            with np.errstate(over="ignore", invalid="ignore"):  # squares of the largest numbers
                if moments is not None and block == (apart,):
                    away = moments.x - pairs.add(t * np.nan_to_num(x_evenly))
                    effect = Effect.of_sum(away, moments.x, m * moments.xx)
                else:
                    effect = self._effect(block, rows, judged, pairs, x)
                    if x is not None and summed is not None and block == (summed.own,):
                        # What lies beyond a coded end varies more than the values that are listed.
                        beyond = np.nan_to_num(xx - x * x)
                        effect.variances[2] += pairs.add(t * np.maximum(beyond, 0))
                effects.append(effect.times(self._unknown(codes, type_, block) ** 2))
        return CountedRows(
            type_, of_pair, n[type_], self._least_known(codes, type_), m, effects, surely,
            pairs.any(possible), moments,
        ).of(of_pair >= 0)  # fmt: skip

    def _effect(
        self,
        block: Block,
        rows: Rows,
        judged: Judgement,
        pairs: _RowsOfPairs,
        x: FloatArray | None,
    ) -> Effect:
        """Find what a block of columns decides of a count, and of a sum of x."""
        likely, own = judged.likely.true, judged.blocks.get(block)

        def each(likely: FloatArray) -> list[FloatArray]:
            return [likely] if x is None else [likely, likely * x]

        def add(likely: FloatArray) -> FloatArray:
            return np.stack([pairs.add(numbers) for numbers in each(rows.w * likely)])

        if block[0] in rows.at:
            pair = pairs.of_rows(rows.type_.size)
            column = ListedColumn(block[0], self._read.lists, rows, pair)
            given = np.stack([column.expect(numbers) for numbers in each(likely)])
            return Effect.of_values(add(likely), given, column)
        if own is None:
            raise TypeError("a column that decides nothing")
        ends = add(own.least.true), add(own.most.true)
        return Effect.of_leaf(add(likely), add(own.evenly.true), ends)

    def _least_known(self, codes: Codes, type_: IntArray) -> FloatArray:
        """Return that of the column of which the least is known, at least by a dependence."""
        u = self._unknown(codes, type_, self._pieces.vague)
        return np.maximum(u, self._pieces.least_unknown)

    def _unknown(self, codes: Codes, type_: IntArray, places: Sequence[int]) -> FloatArray:
        """Return the share of the records of types of which nothing is known in some columns."""
        u = np.zeros(type_.size)
        for place in places:
            u = np.maximum(u, self._read.cells[place].u[codes[place][type_]])
        return u

    def _measure(
        self, summed: Summed, codes: Codes, rows: Rows
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, Flags]:
        """Return x, the same of equally likely values, its square, its extreme values.

        Last, whether it could be anything.
        """
        if summed.moments is not None:
            at = codes[summed.moments][rows.type_]
            m = self._moments
            if m is None:
                raise TypeError("nothing is summed")
            return m.x[at], m.evenly[at], m.xx[at], m.least[at], m.most[at], m.is_wild[at]
        if self._values is None:
            raise TypeError("nothing is summed")
        x = self._values[self._evaluator.combination(summed.values, codes, rows)]
        with np.errstate(over="ignore"):
            xx = x * x
        if summed.own is None:
            return x, x, xx, x, x, self._evaluator.open_(summed.open_, rows)
        listing, cells = self._read.lists[summed.own], self._read.cells[summed.own]
        at, cell = rows.at[summed.own], codes[summed.own][rows.type_]
        is_wild, endless = (cells.hidden | cells.endless)[cell], cells.endless[cell]
        if endless.any():  # of what lies beyond a coded end nothing is published
            ends = [
                *listing.least[np.isfinite(listing.least)],
                *listing.most[np.isfinite(listing.most)],
            ]
            half = np.ptp(ends) / 2 if ends else 0.0  # no cell may have an end
            with np.errstate(over="ignore"):
                xx = np.where(endless, xx + half * half, xx)
        return x, x, xx, listing.least[at], listing.most[at], is_wild


@dataclass(frozen=True, eq=False)
class _RowsOfPairs:
    """Rows of the same type and group, brought together."""

    starts: IntArray  # Where those of the next pair begin
    order: IntArray | None  # The order in which they follow one another; None for their own

    @classmethod
    def of(cls, rows: Rows, group: IntArray, n_groups: int) -> _RowsOfPairs:
        if n_groups == 1:
            return cls(rows.first, None)
        pair, order = rows.type_ * n_groups + group, None
        if (np.diff(pair) < 0).any():
            order = np.argsort(pair, kind="stable")
            pair = pair[order]
        return cls(np.flatnonzero(np.diff(pair, prepend=-1)), order)

    def first(self, values: IntArray) -> IntArray:
        firsts: IntArray = self._in_order(values)[self.starts]
        return firsts

    def of_rows(self, n_rows: int) -> IntArray:
        """Return the pair of each row."""
        number = np.repeat(np.arange(self.starts.size), np.diff(self.starts, append=n_rows))
        if self.order is None:
            return number
        pair = np.empty_like(number)
        pair[self.order] = number
        return pair

    def add(self, values: FloatArray) -> FloatArray:
        sums: FloatArray = self._of_each(np.add, values)
        return sums

    def least(self, values: FloatArray) -> FloatArray:
        minima: FloatArray = self._of_each(np.minimum, values)
        return minima

    def most(self, values: FloatArray) -> FloatArray:
        maxima: FloatArray = self._of_each(np.maximum, values)
        return maxima

    def all(self, values: Flags) -> Flags:
        found: Flags = self._of_each(np.logical_and, values)
        return found

    def any(self, values: Flags) -> Flags:
        found: Flags = self._of_each(np.logical_or, values)
        return found

    def _of_each(self, joined: np.ufunc, values: Any) -> Any:
        values = self._in_order(values)
        return values if values.size == self.starts.size else joined.reduceat(values, self.starts)

    def _in_order(self, values: Any) -> Any:
        return values if self.order is None else values[self.order]


@contextmanager
def record_types(
    opened: OpenQuery,
    request: Request,
    layout: CellLayout,
    also: Sequence[str] = (),
    *,
    lists_values: bool = False,
) -> Iterator[KnownTypes]:
    """Read the types of records; refuse what has too much to be listed or tried.

    Raises UnsupportedQueryError.
    """
    # Also refused: sums of numbers that are not finite, and arithmetic that fails.
    try:
        yield opened.known_types(request, layout, also, lists_values=lists_values)
    except NotFiniteError:
        raise not_finite() from None
    except NotReadError:
        raise opened.too_much() from None


def is_wide(opened: OpenQuery, layout: CellLayout, cell: CellDescription) -> bool:
    """Whether a range of a column of whole numbers has too many values to list, or lacks an end."""
    name = cell.column.name
    with record_types(opened, EVERYBODY, layout, [name]) as types:
        own = types.column(name).cells
        return isinstance(own, RangeColumn) and own.ends.exceed(MOST_GROUPED)


_SUM_BYTES: Final = 48
"""What the sums of a group and a cell take."""


@dataclass(frozen=True, eq=False)
class CellSums:
    """How many records of some groups have each distinct cell, and count: (n_sums,) arrays."""

    groups: list[str]  # Their keys
    group: IntArray  # Ascending
    cell: IntArray
    # Whether they count for all that is not about the column; of `unknown`, the share of which
    # nothing is known
    expected: FloatArray
    evenly: FloatArray  # How many are expected if all values of a cell are equally likely
    sure: FloatArray
    possible: FloatArray
    unknown: FloatArray

    @classmethod
    def blocks(
        cls, opened: OpenQuery, types: KnownTypes, name: str, names: Sequence[str]
    ) -> Iterator[CellSums]:
        """Count the records with each cell of a column, of as many groups at a time as fit.

        None if one group may have too many cells. Conditions and groups do not mention the column.
        """
        # `names`: those of the keys.
        counter, place = TypeCounter(types, opened.session.heartbeat), types.pieces.places[name]
        n_cells, most = max(types.read.sizes[place], 1), opened.limits.kept // _SUM_BYTES
        sums = _SumsOfGroups(0, n_cells, most)
        while n_cells <= most:
            for codes, n in types.all():
                for counted in counter.counted(codes, n):
                    sums.add(counted.of(counted.possibly), codes[place])
                    opened.session.heartbeat()
            met, group, cell, of_each = sums.read()
            keys = [write_key(names, counter.values(number)[1]) for number in met.tolist()]
            yield cls(keys, group, cell, *of_each)
            if sums.end is None:
                return
            sums = _SumsOfGroups(sums.end, n_cells, most)


class _SumsOfGroups:
    """Sums by group and cell, of the first groups that there is room for."""

    def __init__(self, first: int, n_cells: int, most: int) -> None:
        # `first`: the first group; `most`: sums that there is room for, those of a group at least.
        self._first, self._n_cells, self._most = first, n_cells, most
        self.end: int | None = None  # The first group that there is no room for
        # What is added and not yet summed: numbers of groups and cells, and of each the numbers
        # that are summed, and last the one of which the greatest counts
        self._parts: list[tuple[IntArray, FloatArray]] = []
        self._n_added = self._n_summed = 0

    def add(self, counted: CountedRows, cells: IntArray) -> None:
        """Add types of records, by their cells."""
        number = counted.group * self._n_cells + cells[counted.type_]
        n = counted.n
        parts = np.stack([
            n * counted.m, n * (counted.m - sum(effect.away[0] for effect in counted.effects)),
            n * counted.surely, n, counted.u,
        ])  # fmt: skip
        fits = number >= self._first * self._n_cells
        if self.end is not None:
            fits &= number < self.end * self._n_cells
        self._parts.append((number[fits], parts[:, fits]))
        self._n_added += int(fits.sum())
        if self._n_added > self._n_summed:  # so that each is summed a few times at most
            self._sum()

    def read(self) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
        """Return the groups, and of each sum its place among these, its cell and what is summed."""
        self._sum()
        ((number, parts),) = self._parts or [(np.empty(0, np.int64), np.empty((5, 0)))]
        of_sum, cell = np.divmod(number, self._n_cells)
        met, group = np.unique(of_sum, return_inverse=True)
        return met, group, cell, parts

    def _sum(self) -> None:
        if not self._parts:
            return
        number = np.concatenate([own for own, _ in self._parts])
        parts = np.concatenate([own for _, own in self._parts], axis=1)
        least = int(number.min(initial=0))
        first, at = distinct([number - least], [int(number.max(initial=0)) - least + 1])
        number = number[first]
        greatest = np.zeros(number.size)
        np.maximum.at(greatest, at, parts[-1])
        parts = np.stack([*(np.bincount(at, own, number.size) for own in parts[:-1]), greatest])
        if number.size > self._most:
            self.end = int(number[self._most]) // self._n_cells
            n_kept = int(np.searchsorted(number, self.end * self._n_cells))
            number, parts = number[:n_kept].copy(), parts[:, :n_kept].copy()
        self._parts, self._n_added, self._n_summed = [(number, parts)], 0, number.size
