"""Adds up what is known of types of records, and answers one aggregate for each group.

`answers.likelihoods` says which errors of records add up, `cell_evidence` what each column decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.answers.likelihoods import WHOLE, error_of_sum
from kanon_db.answers.rows.cell_evidence import Effect, KnownTypes, is_unknown
from kanon_db.answers.rows.coded_rows import CountedRows, GroupMoments, TypeCounter, record_types
from kanon_db.answers.scope import OpenQuery
from kanon_db.answers.value_ranks import ExactValues
from kanon_db.dataclasses import dataclass
from kanon_db.publications.buckets.tallies import SumsByGroup
from kanon_db.query.formulas import (
    CANCELLED,
    NOTHING,
    Estimated,
    empty,
    limit_average,
    rounding,
    write_key,
)
from kanon_db.query.layout import CellLayout
from kanon_db.query.sql import Request


@dataclass(frozen=True, eq=False)
class _GroupSums:
    """Sums over the types of each group; arrays of shape (n_groups,)."""

    m: FloatArray  # The expected number of records, and the expected sums of x and its square
    mx: FloatArray
    mxx: FloatArray
    squares: FloatArray  # What standard errors follow from
    together: FloatArray
    sure: FloatArray  # Records that surely, and possibly, count
    possible: FloatArray
    low: FloatArray  # The bounds of the sum
    high: FloatArray

    @classmethod
    def empty(cls, n_groups: int) -> _GroupSums:
        return cls(*(np.zeros(n_groups) for _ in cls.__match_args__))

    def all(self) -> Iterator[FloatArray]:
        return (getattr(self, name) for name in self.__match_args__)


@dataclass(frozen=True, eq=False)
class _Doubts:
    """What the error of an answer follows from: a row for each type and group.

    The attributes are those of :class:`CountedRows`, and of its moments; without groups, `group` is
    None.
    """

    group: IntArray | None
    n: FloatArray
    m: FloatArray
    effects: list[Effect]
    x: FloatArray | None
    xx: FloatArray | None

    @classmethod
    def of(cls, counted: CountedRows, n_groups: int) -> _Doubts:
        group, x = None if n_groups == 1 else counted.group, counted.moments
        own = (None, None) if x is None else (x.x, x.xx)
        return cls(group, counted.n, counted.m, counted.effects, *own)

    @property
    def n_bytes(self) -> int:
        """What it takes."""
        return self.n.nbytes * (5 + sum(len(own.away) + len(own.variances) for own in self.effects))


class Totals:
    """Adds up all types of records in each group.

    Parameters
    ----------
    types : KnownTypes
    left_out : int
        Records without a row, of which nothing is known.
    room : int
        How many bytes may be kept until the averages are known.
    is_average : bool
    """

    def __init__(
        self,
        types: KnownTypes,
        left_out: int,
        room: int,
        *,
        is_average: bool,
    ) -> None:
        pieces = types.pieces
        self._is_unknown = is_unknown(types.read, pieces.marked)
        self._has_keys, self._is_summed = bool(pieces.keys), pieces.summed is not None
        self._is_sure = pieces.unit.condition is None and not pieces.keys
        self._dependent, self._n_blocks = pieces.least_unknown, len(pieces.blocks)
        self._left_out, self._is_average = left_out, is_average
        self._n_groups, self._n = 0, 0.0
        self._sums = _GroupSums.empty(0)
        # (n_blocks, n_groups): how far shares may be off, and are from even ones
        self._deviations, self._away = np.zeros((2, self._n_blocks, 0))
        self._is_seen, self._is_possible, self._is_wild = np.zeros((3, 0), dtype=np.bool_)
        self._least, self._most = np.zeros((2, 0))
        self._kept: list[_Doubts] | None = []
        self._room = room

    def grow(self, n_groups: int) -> None:
        """Make room for so many groups."""
        more = n_groups - self._n_groups
        if more <= 0:
            return
        self._n_groups = n_groups
        self._sums = _GroupSums(*(np.append(own, np.zeros(more)) for own in self._sums.all()))
        self._deviations, self._away = (
            np.pad(own, ((0, 0), (0, more))) for own in (self._deviations, self._away)
        )
        self._is_seen, self._is_possible, self._is_wild = (
            np.append(own, np.zeros(more, dtype=np.bool_))
            for own in (self._is_seen, self._is_possible, self._is_wild)
        )
        self._least = np.append(self._least, np.full(more, np.inf))
        self._most = np.append(self._most, np.full(more, -np.inf))

    def add_records(self, number: float) -> None:
        """Say how many records some types have, whether they count or not."""
        self._n += number

    def add(self, counted: CountedRows) -> None:
        """Add the records of some types."""
        self._is_seen[counted.group] = True
        self._is_possible[counted.group[counted.possibly]] = True
        c = self._choose(counted)
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

    def answers(self, again: Iterable[CountedRows] = ()) -> dict[int, Estimated]:
        """Answer for each group that may have records, by its number.

        `again`: all that was added, once more; it is read if there was no room to keep it.
        """
        s = self._sums
        average = np.divide(s.mx, s.m, out=np.zeros(self._n_groups), where=s.m > 0)
        if self._is_average:
            kept: Iterable[_Doubts] | None = self._kept
            if kept is None:
                kept = (_Doubts.of(self._choose(one), self._n_groups) for one in again)
            for doubts in kept:
                self._add_errors(doubts, average)
        if self._left_out:
            self._add_left_out(average)
        groups = np.flatnonzero(self._is_possible).tolist() if self._has_keys else [0]
        answer = self._sum_of if self._is_summed else self._count_of
        return {group: answer(group, float(average[group])) for group in groups}

    def _choose(self, counted: CountedRows) -> CountedRows:
        """Leave out what cannot count, unless others may be like it."""
        return counted if self._left_out else counted.of(counted.possibly)

    def _keep(self, doubts: _Doubts) -> None:
        """Keep what the errors of an average follow from, while there is room."""
        self._room -= doubts.n_bytes
        if self._room < 0:
            self._kept = None
        elif self._kept is not None:
            self._kept.append(doubts)

    def _sum(self, name: str, group: IntArray | None, values: FloatArray) -> None:
        self._add_to(getattr(self._sums, name), group, values)

    def _add_to(self, own: FloatArray, group: IntArray | None, values: FloatArray) -> None:
        if group is None or self._n_groups == 1:
            own += values.sum()
        else:
            own += np.bincount(group, values, self._n_groups)

    def _add_moments(self, c: CountedRows, x: GroupMoments) -> None:
        self._sum("mx", c.group, c.n * x.x)
        self._sum("mxx", c.group, c.n * x.xx)
        is_there = np.isfinite(x.least)
        least, most = np.where(is_there, x.least, 0.0), np.where(is_there, x.most, 0.0)
        self._sum("low", c.group, c.n * np.where(c.surely, least, np.minimum(least, 0)))
        self._sum("high", c.group, c.n * np.where(c.surely, most, np.maximum(most, 0)))
        np.minimum.at(self._least, c.group, x.least)
        np.maximum.at(self._most, c.group, x.most)
        self._is_wild[c.group[x.is_wild]] = True

    def _add_errors(self, d: _Doubts, average: FloatArray, dependent: float | None = None) -> None:
        """Add what the standard errors of sums of x - a, or of counts, follow from.

        `dependent`: which part of the deviations of records goes together in any case.
        """
        # Of 1, sums of shares are off by what is rounded, which is no error.
        variance, a = np.where(d.m > WHOLE, 0, d.m * (1 - d.m)), None
        if d.x is not None and d.xx is not None:
            a = average[0] if d.group is None else average[d.group]
            with np.errstate(over="ignore", invalid="ignore"):
                variance = d.xx - 2 * a * d.x + a * a * d.m - (d.x - a * d.m) ** 2
            # Of numbers whose squares are beyond double precision, only the bounds are known.
            is_known = np.isfinite(variance) & np.isfinite(d.xx)
            variance = np.where(variance > CANCELLED * d.xx, variance, 0)
            variance = np.where(is_known, variance, np.inf)
        variance = np.maximum(variance, 0)
        self._sum("squares", d.group, d.n * variance)
        least = self._dependent if dependent is None else dependent
        if least:
            self._sum("together", d.group, d.n * least * np.sqrt(variance))
        for number, effect in enumerate(d.effects):
            self._add_to(self._deviations[number], d.group, d.n * effect.deviation(a))
            self._add_to(self._away[number], d.group, d.n * effect.from_even(a))

    def _add_left_out(self, average: FloatArray) -> None:
        """Add the records that are left out, in each group: as likely as all others together."""
        s, groups = self._sums, np.flatnonzero(self._is_seen)
        n, share = groups.size, 1 / self._n
        moments = None
        if self._is_summed:
            moments = GroupMoments(
                s.mx[groups] * share, s.mxx[groups] * share,
                self._least[groups], self._most[groups], np.ones(n, dtype=np.bool_),
            )  # fmt: skip
        rows = CountedRows(
            groups, groups, np.full(n, float(self._left_out)), np.ones(n), s.m[groups] * share,
            [], np.full(n, self._is_sure), np.ones(n, dtype=np.bool_), moments,
        )  # fmt: skip
        self._is_possible[groups] = True
        self._sum("m", groups, rows.n * rows.m)
        self._sum("sure", groups, rows.n * rows.surely)
        self._sum("possible", groups, rows.n)
        doubts = _Doubts.of(rows, self._n_groups)
        average = average if self._is_average else np.zeros(self._n_groups)
        self._add_errors(doubts, average, dependent=1.0)
        if moments is not None:
            self._add_moments(rows, moments)

    def _error(self, group: int, widest: float) -> float:
        """Return the standard error of a sum, at most `widest`."""
        return error_of_sum(
            float(self._sums.squares[group]),
            math.hypot(self._sums.together[group], *self._deviations[:, group]),
            math.hypot(*self._away[:, group]),
            widest,
        )

    def _count_of(self, group: int, _average: float) -> Estimated:
        s = self._sums
        sure, possible = round(float(s.sure[group])), round(float(s.possible[group]))
        error = self._error(group, (possible - sure) / 2)
        return Estimated(float(s.m[group]), error, sure, possible)

    def _sum_of(self, group: int, average: float) -> Estimated:
        s = self._sums
        if not self._is_possible[group]:
            return NOTHING
        c = float(s.m[group])
        estimate: float | None = float(s.mx[group])
        low, high = float(s.low[group]), float(s.high[group])
        least, most = float(self._least[group]), float(self._most[group])
        lost = rounding(float(s.possible[group]), max(abs(least), abs(most)), low, high)
        added, rounded = (low, high), (low - lost, high + lost)
        if self._is_average:
            # Bounds are known also where no record is expected, though some may count.
            estimate = average if c > 0 else None
            number = float(s.sure[group]), float(s.possible[group])
            added, rounded = (
                limit_average(total, number, (least, most)) for total in (added, rounded)
            )
        low, high = rounded
        # What rounding alone may change is no error.
        widest = (added[1] - added[0]) / 2 * (c if self._is_average else 1)
        is_wild = bool(self._is_wild[group])
        error = None
        if not self._is_unknown and (c > 0 or not self._is_average):
            error = self._error(group, math.inf if is_wild else widest)
            error /= c if self._is_average else 1
        if is_wild:
            return Estimated(estimate, None if error == math.inf else error, None, None)
        if error is not None:
            error = max(min(error, (high - low) / 2), 0)
        return Estimated(estimate, error, low, high)


Answers = dict[str, tuple[tuple[int, ...], Estimated]]
"""The places of each group's values in their order, and its answer, by its key."""


def count_types(opened: OpenQuery, request: Request, layout: CellLayout) -> Answers:
    """Answer one aggregate from the types of records."""
    # Raises UnsupportedQueryError where there are too many groups, or too much to list or try.
    is_average = request.aggregate.function == "avg"
    most = opened.limits.n_answers if request.most is None else request.most - 1
    names = [key.name for key in opened.query.keys]
    with record_types(opened, request, layout) as types:
        counter = TypeCounter(types, opened.session.heartbeat, lists_all=bool(layout.left_out))
        totals = Totals(types, layout.left_out, opened.limits.kept, is_average=is_average)
        # One group alone is counted without numbers of groups.
        totals.grow(counter.n_groups if counter.has_few_groups else 2)
        for codes, n in types.all():
            totals.add_records(float(n.sum()))
            for counted in counter.counted(codes, n):
                totals.grow(counter.n_groups)
                totals.add(counted)
                opened.session.heartbeat()
                if names and totals.n_answers > most:
                    raise opened.limits.too_many()

        def again() -> Iterator[CountedRows]:
            for codes, n in types.all():
                for counted in counter.counted(codes, n):
                    opened.session.heartbeat()
                    yield counted

        answers: Answers = {}
        room = opened.limits.text
        for number, estimated in totals.answers(again()).items():
            ranks, values = counter.values(number)
            key = write_key(names, values)
            room -= len(key.encode())
            if room < 0:
                raise opened.limits.too_many()
            answers[key] = ranks, estimated
        return answers


def order_types(opened: OpenQuery, request: Request, layout: CellLayout) -> Answers:
    """Answer an aggregate that follows from the values that types of records have for certain."""
    names, measure = [key.name for key in opened.query.keys], request.aggregate
    with record_types(opened, request, layout, lists_values=True) as types:
        counter = TypeCounter(types, opened.session.heartbeat)
        values = ExactValues(counter.distinct_numbers, SumsByGroup(1))
        for codes, n in types.all():
            for chunk in counter.spread(codes, n):
                rank = np.searchsorted(values.values, chunk.x)
                values.add(chunk.group[chunk.pair], rank, chunk.expected)
                opened.session.heartbeat()
            if values.n_bytes > opened.limits.kept:
                raise opened.too_much()
        answers: Answers = {} if names else {"{}": ((), empty(measure))}
        for group, answer in values.aggregates(measure, has_nan=types.read.has_nan):
            ranks, texts = counter.values(group)
            answers[write_key(names, texts)] = ranks, answer
        return answers
