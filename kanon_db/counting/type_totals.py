"""From the likelihoods of types of records to the answer for each group.

The numbers are those of the statement whose last steps are in
`kanon_db.counting.writing.cell_totals` and :func:`kanon_db.counting.formulas.sum_answer`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.counting.answers import NOTHING, Estimated
from kanon_db.counting.formulas import rounding
from kanon_db.counting.pieces import Pieces
from kanon_db.counting.read_pieces import PieceReader, is_unknown
from kanon_db.counting.type_groups import Counted, Moments


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums over the types of each group; arrays of shape (n_groups,).

    Attributes
    ----------
    m, mx, mxx : ndarray of float64
        The expected number of records, and the expected sums of x and its square.
    squares, deviations : ndarray of float64
        What standard errors follow from.
    sure, possible : ndarray of float64
        Records that surely, and possibly, count.
    low, high : ndarray of float64
        The bounds of the sum.
    """

    m: FloatArray
    mx: FloatArray
    mxx: FloatArray
    squares: FloatArray
    deviations: FloatArray
    sure: FloatArray
    possible: FloatArray
    low: FloatArray
    high: FloatArray

    @classmethod
    def empty(cls, n_groups: int) -> _Sums:
        return cls(*(np.zeros(n_groups) for _ in cls.__match_args__))


@dataclass(frozen=True, eq=False)
class _Doubts:
    """What the error of an answer follows from: a row for each type and group.

    The attributes are those of :class:`Counted`, and of its moments; without groups, `group` is
    None.
    """

    group: IntArray | None
    n: FloatArray
    u: FloatArray
    m: FloatArray
    x: FloatArray | None
    xx: FloatArray | None

    @classmethod
    def of(cls, counted: Counted, n_groups: int) -> _Doubts:
        group = None if n_groups == 1 else counted.group
        x = counted.moments
        own = (None, None) if x is None else (x.x, x.xx)
        return cls(group, counted.n, counted.u, counted.m, *own)


class Totals:
    """Adds up all types of records in each group.

    Parameters
    ----------
    pieces : Pieces
    read : PieceReader
    n_groups : int
    left_out : int
        Records without a row, of which nothing is known.
    room : int
        How many bytes may be kept until the averages are known.
    is_average : bool
    """

    def __init__(
        self,
        pieces: Pieces,
        read: PieceReader,
        n_groups: int,
        left_out: int,
        room: int,
        *,
        is_average: bool,
    ) -> None:
        self._together = pieces.together
        self._is_unknown = is_unknown(read, pieces.marked)
        self._has_keys, self._is_summed = bool(pieces.keys), pieces.summed is not None
        self._is_sure = pieces.unit.condition is None and not pieces.keys
        self._left_out, self._is_average = left_out, is_average
        self._n_groups, self._n = n_groups, 0.0
        self._sums = _Sums.empty(n_groups)
        self._is_seen, self._is_possible, self._is_wild = np.zeros((3, n_groups), dtype=np.bool_)
        self._least = np.full(n_groups, np.inf)
        self._most = np.full(n_groups, -np.inf)
        self._kept: list[_Doubts] | None = []
        self._room = room

    def add_records(self, number: float) -> None:
        """Say how many records some types have, whether they count or not."""
        self._n += number

    def add(self, counted: Counted) -> None:
        """Add the records of some types."""
        self._is_seen[counted.group] = True
        self._is_possible[counted.group[counted.possibly]] = True
        c = self._chosen(counted)
        self._sum("m", c.group, c.n * c.m)
        self._sum("sure", c.group, c.n * c.surely)
        self._sum("possible", c.group, c.n * c.possibly)
        doubts = _Doubts.of(c, self._n_groups)
        if self._is_average:
            self._keep(doubts)
        else:
            self._add_errors(doubts, np.zeros(self._n_groups))
        if c.moments is not None:
            self._add_moments(c, c.moments)

    @property
    def n_answers(self) -> int:
        """How many groups may have records."""
        # What is left out may be in each group that was seen.
        own = self._is_seen if self._left_out else self._is_possible
        return int(own.sum())

    def answers(self, again: Iterable[Counted] = ()) -> dict[int, Estimated]:
        """Answer for each group that may have records, by its number.

        Parameters
        ----------
        again : iterable of Counted
            All that was added, once more; it is read if there was no room to keep it.
        """
        s = self._sums
        average = np.divide(s.mx, s.m, out=np.zeros(self._n_groups), where=s.m > 0)
        if self._is_average:
            kept: Iterable[_Doubts] | None = self._kept
            if kept is None:
                kept = (_Doubts.of(self._chosen(one), self._n_groups) for one in again)
            for doubts in kept:
                self._add_errors(doubts, average)
        if self._left_out:
            self._add_left_out(average)
        groups = np.flatnonzero(self._is_possible).tolist() if self._has_keys else [0]
        answer = self._sum_of if self._is_summed else self._count_of
        return {group: answer(group, float(average[group])) for group in groups}

    def _chosen(self, counted: Counted) -> Counted:
        """Leave out what cannot count, unless others may be like it."""
        return counted if self._left_out else counted.of(counted.possibly)

    def _keep(self, doubts: _Doubts) -> None:
        """Keep what the errors of an average follow from, while there is room."""
        self._room -= (5 if doubts.group is None else 6) * 8 * doubts.n.size
        if self._room < 0:
            self._kept = None
        elif self._kept is not None:
            self._kept.append(doubts)

    def _sum(self, name: str, group: IntArray | None, values: FloatArray) -> None:
        own = getattr(self._sums, name)
        if group is None or self._n_groups == 1:
            own += values.sum()
        else:
            own += np.bincount(group, values, self._n_groups)

    def _add_moments(self, c: Counted, x: Moments) -> None:
        self._sum("mx", c.group, c.n * x.x)
        self._sum("mxx", c.group, c.n * x.xx)
        is_there = np.isfinite(x.least)
        least, most = np.where(is_there, x.least, 0.0), np.where(is_there, x.most, 0.0)
        self._sum("low", c.group, c.n * np.where(c.surely, least, np.minimum(least, 0)))
        self._sum("high", c.group, c.n * np.where(c.surely, most, np.maximum(most, 0)))
        np.minimum.at(self._least, c.group, x.least)
        np.maximum.at(self._most, c.group, x.most)
        self._is_wild[c.group[x.is_wild]] = True

    def _add_errors(self, d: _Doubts, average: FloatArray) -> None:
        """Add what the standard errors of sums of x - a, or of counts, follow from."""
        variance = d.m * (1 - d.m)
        if d.x is not None and d.xx is not None:
            a = average[0] if d.group is None else average[d.group]
            variance = d.xx - 2 * a * d.x + a * a * d.m - (d.x - a * d.m) ** 2
        variance = np.maximum(variance, 0)
        self._sum("squares", d.group, d.n * variance)
        self._sum("deviations", d.group, d.n * d.u * np.sqrt(variance))

    def _add_left_out(self, average: FloatArray) -> None:
        """Add the records that are left out, in each group: as likely as all others together."""
        s, groups = self._sums, np.flatnonzero(self._is_seen)
        n, share = groups.size, 1 / self._n
        moments = None
        if self._is_summed:
            moments = Moments(
                s.mx[groups] * share, s.mxx[groups] * share,
                self._least[groups], self._most[groups], np.ones(n, dtype=np.bool_),
            )  # fmt: skip
        others = Counted(
            groups, groups, np.full(n, float(self._left_out)), np.ones(n), s.m[groups] * share,
            np.full(n, self._is_sure), np.ones(n, dtype=np.bool_), moments,
        )  # fmt: skip
        self._is_possible[groups] = True
        self._sum("m", groups, others.n * others.m)
        self._sum("sure", groups, others.n * others.surely)
        self._sum("possible", groups, others.n)
        doubts = _Doubts.of(others, self._n_groups)
        self._add_errors(doubts, average if self._is_average else np.zeros(self._n_groups))
        if moments is not None:
            self._add_moments(others, moments)

    def _error(self, group: int) -> float:
        s = self._sums
        added = self._together * float(s.deviations[group])
        return math.sqrt(float(s.squares[group]) + added**2)

    def _count_of(self, group: int, _average: float) -> Estimated:
        s = self._sums
        sure, possible = round(float(s.sure[group])), round(float(s.possible[group]))
        widest = (possible - sure) / 2
        error = widest if self._is_unknown else min(self._error(group), widest)
        return Estimated(float(s.m[group]), error, sure, possible)

    def _sum_of(self, group: int, average: float) -> Estimated:
        s = self._sums
        if not self._is_possible[group]:
            return NOTHING
        c = float(s.m[group])
        estimate: float | None = float(s.mx[group])
        error = None if self._is_unknown else self._error(group)
        low, high = float(s.low[group]), float(s.high[group])
        least, most = float(self._least[group]), float(self._most[group])
        lost = rounding(float(s.possible[group]), max(abs(least), abs(most)), low, high)
        low, high = low - lost, high + lost
        if self._is_average:
            # Bounds are known also where no record is expected, though some may count.
            estimate = average if c > 0 else None
            error = None if error is None or c <= 0 else error / c
            if s.sure[group] == s.possible[group]:
                number = float(s.sure[group])
                low, high = (min(max(t / number, least), most) for t in (low, high))
            else:
                low, high = least, most
        if self._is_wild[group]:
            return Estimated(estimate, error, None, None)
        if error is not None:
            error = max(min(error, (high - low) / 2), 0)
        return Estimated(estimate, error, low, high)
