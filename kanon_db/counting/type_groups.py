"""How likely the records of types are counted, in the groups of a query."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.counting.pieces import Pieces, Summed
from kanon_db.counting.read_pieces import Flags, PieceReader
from kanon_db.counting.type_counts import Codes, Evaluator, Rows

_WHOLE: Final = 0.999999999
"""Shares that add up to one, up to rounding."""


@dataclass(frozen=True, eq=False)
class Moments:
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
class Counted:
    """How likely the records of types are counted in groups: a row for each pair of the two.

    Attributes
    ----------
    type_, group : ndarray of int64
    n, u : ndarray of float64
        The records of the type, and the share of them of which nothing is known.
    m : ndarray of float64
        How likely each is counted.
    surely, possibly : ndarray of bool
    moments : Moments or None
    """

    type_: IntArray
    group: IntArray
    n: FloatArray
    u: FloatArray
    m: FloatArray
    surely: Flags
    possibly: Flags
    moments: Moments | None

    def of(self, chosen: Flags) -> Counted:
        """Return some of its rows."""
        if chosen.all():
            return self
        x = self.moments
        return Counted(
            self.type_[chosen], self.group[chosen], self.n[chosen], self.u[chosen], self.m[chosen],
            self.surely[chosen], self.possibly[chosen],
            None if x is None else Moments(
                x.x[chosen], x.xx[chosen], x.least[chosen], x.most[chosen], x.is_wild[chosen]
            ),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Spread:
    """The values that the records of types may have, and between which they are, in groups.

    Attributes
    ----------
    group, x, expected : ndarray, shape (n_values,)
        How many records are expected to have a value, and to count.
    of_group, least, most, surely, n : ndarray, shape (n_pairs,)
        Of each pair of a type and a group that may have records: between which values these are,
        NaN where it could be anything, whether they surely count, and how many they are.
    """

    group: IntArray
    x: FloatArray
    expected: FloatArray
    of_group: IntArray
    least: FloatArray
    most: FloatArray
    surely: Flags
    n: FloatArray


class TypeCounter:
    """Counts types of records in the groups of one request.

    Parameters
    ----------
    pieces : Pieces
    read : PieceReader
    heartbeat : callable, optional

    Attributes
    ----------
    texts : list of list of str
        The values of each group key, as JSON, in their order.
    n_groups : int
        Combinations of them.
    """

    def __init__(
        self, pieces: Pieces, read: PieceReader, heartbeat: Callable[[], None] = lambda: None
    ) -> None:
        self._pieces, self._read = pieces, read
        self._evaluator = Evaluator(read, heartbeat)
        keys = [read.key(f"g{i}", places) for i, places in enumerate(pieces.keys)]
        self._ranks = [ranks for ranks, _ in keys]
        self.texts = [texts for _, texts in keys]
        self.n_groups = math.prod(map(len, self.texts))
        self._values = self._moments = None
        if pieces.summed is not None:
            if pieces.summed.moments is None:
                self._values = read.numbers("values", pieces.summed.values)
            else:
                self._moments = read.moments()
        self._open_keys = [place for places in pieces.keys for place in places]

    def values(self, group: int) -> tuple[tuple[int, ...], list[str]]:
        """Return the places of a group's values in their order, and the values as JSON."""
        ranks = []
        for texts in reversed(self.texts):
            group, rank = divmod(group, len(texts))
            ranks.append(rank)
        ranks.reverse()
        values = [texts[rank] for texts, rank in zip(self.texts, ranks, strict=True)]
        return tuple(ranks), values

    def counted(self, codes: Codes, n: FloatArray) -> Iterator[Counted]:
        """Count types.

        Parameters
        ----------
        codes : mapping of int to ndarray of int64, shape (n_types,)
            The number of each type's cell, by the number of the column.
        n : ndarray of float64, shape (n_types,)
            The records of each type.
        """
        for chunk in self._evaluator.chunks(self._pieces.unit, codes, n.size):
            some = {place: numbers[chunk] for place, numbers in codes.items()}
            found = self._counted(some, n[chunk])
            yield replace(found, type_=found.type_ + chunk.start)

    def spread(self, codes: Codes, n: FloatArray) -> Iterator[Spread]:
        """List the values of what is summed; see :meth:`counted`."""
        summed = self._pieces.summed
        if summed is None or summed.moments is not None:
            raise TypeError("the values of what is summed are listed")
        for chunk in self._evaluator.chunks(self._pieces.unit, codes, n.size):
            some = {place: numbers[chunk] for place, numbers in codes.items()}
            rows, group, t, possible, together, surely = self._likely(some, n[chunk].size)
            x, _, least, most, is_wild = self._measured(summed, some, rows)
            type_ = together.first(rows.type_)
            ends = [
                joined(np.where(possible & ~np.isnan(own), own, without))
                for joined, own, without in (
                    (together.least, least, np.inf), (together.most, most, -np.inf)
                )
            ]  # fmt: skip
            is_open = together.any(is_wild & possible) | ~np.isfinite(ends[0])
            low, high = (np.where(is_open, np.nan, end) for end in ends)
            there, shown = together.any(possible), possible & ~np.isnan(x)
            own_group, own_n = together.first(group), n[chunk][type_]
            yield Spread(
                group[shown], x[shown], (n[chunk][rows.type_] * t)[shown],
                own_group[there], low[there], high[there], surely[there], own_n[there],
            )  # fmt: skip

    def _likely(
        self, codes: Codes, n_types: int
    ) -> tuple[Rows, IntArray, FloatArray, Flags, _Together, Flags]:
        """Find how likely each row counts, in which group, and which pairs surely do."""
        unit = self._pieces.unit
        rows = self._evaluator.rows(unit.spread, codes, n_types)
        truths = self._evaluator.truths(unit, codes, rows, self._open_keys)
        group = np.zeros(rows.type_.size, dtype=np.int64)
        for ranks, texts, places in zip(self._ranks, self.texts, self._pieces.keys, strict=True):
            own = ranks[self._evaluator.combination(places, codes, rows)]
            group = group * len(texts) + own
        together = _Together.of(rows, group, self.n_groups)
        t = rows.w * truths.true
        surely = together.all(np.broadcast_to(truths.surely, t.shape))
        possible = np.broadcast_to(truths.possibly, t.shape)
        if self._ranks:
            surely = surely & (together.add(rows.w) > _WHOLE)
        return rows, group, t, possible, together, surely

    def _counted(self, codes: Codes, n: FloatArray) -> Counted:
        rows, group, t, possible, together, surely = self._likely(codes, n.size)
        moments = None
        if self._pieces.summed is not None:
            x, xx, least, most, is_wild = self._measured(self._pieces.summed, codes, rows)
            moments = Moments(
                together.add(t * np.nan_to_num(x)),
                together.add(t * np.nan_to_num(xx)),
                together.least(np.where(possible & ~np.isnan(least), least, np.inf)),
                together.most(np.where(possible & ~np.isnan(most), most, -np.inf)),
                together.any(is_wild),
            )
        type_ = together.first(rows.type_)
        # Of ranges that are too many to have numbers, no shares are known.
        u = np.full(n.size, 1.0 if self._pieces.ended else 0.0)
        for place in self._pieces.vague:
            u = np.maximum(u, self._read.cells[place].u[codes[place]])
        return Counted(
            type_, together.first(group), n[type_], u[type_], together.add(t), surely,
            together.any(possible), moments,
        )  # fmt: skip

    def _measured(
        self, summed: Summed, codes: Codes, rows: Rows
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, Flags]:
        """Return x, its square, its extreme values, and whether it could be anything."""
        if summed.moments is not None:
            at = codes[summed.moments][rows.type_]
            m = self._moments
            if m is None:
                raise TypeError("nothing is summed")
            return m.x[at], m.xx[at], m.least[at], m.most[at], m.is_wild[at]
        if self._values is None:
            raise TypeError("nothing is summed")
        x = self._values[self._evaluator.combination(summed.values, codes, rows)]
        if summed.own is None:
            return x, x * x, x, x, self._evaluator.open_(summed.open_, rows)
        listing, cells = self._read.lists[summed.own], self._read.cells[summed.own]
        at, cell = rows.at[summed.own], codes[summed.own][rows.type_]
        is_wild, endless = (cells.hidden | cells.endless)[cell], cells.endless[cell]
        xx = x * x
        if endless.any():  # of what lies beyond a coded end nothing is published
            ends = [
                *listing.least[np.isfinite(listing.least)],
                *listing.most[np.isfinite(listing.most)],
            ]
            xx = xx + endless * (np.ptp(ends) / 2) ** 2
        return x, xx, listing.least[at], listing.most[at], is_wild


@dataclass(frozen=True, eq=False)
class _Together:
    """Rows of the same type and group, brought together.

    Attributes
    ----------
    starts : ndarray of int64
        Where those of the next pair begin.
    order : ndarray of int64, or None
        The order in which they follow one another; None for their own.
    """

    starts: IntArray
    order: IntArray | None

    @classmethod
    def of(cls, rows: Rows, group: IntArray, n_groups: int) -> _Together:
        if n_groups == 1:
            return cls(rows.first, None)
        pair, order = rows.type_ * n_groups + group, None
        if (np.diff(pair) < 0).any():
            order = np.argsort(pair, kind="stable")
            pair = pair[order]
        return cls(np.flatnonzero(np.diff(pair, prepend=-1)), order)

    def first(self, values: IntArray) -> IntArray:
        found: IntArray = self._in_order(values)[self.starts]
        return found

    def add(self, values: FloatArray) -> FloatArray:
        found: FloatArray = self._of_each(np.add, values)
        return found

    def least(self, values: FloatArray) -> FloatArray:
        found: FloatArray = self._of_each(np.minimum, values)
        return found

    def most(self, values: FloatArray) -> FloatArray:
        found: FloatArray = self._of_each(np.maximum, values)
        return found

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
