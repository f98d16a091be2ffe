"""Answers from the coded rows of a publication, a block of rows at a time."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.answers.evidence import (
    Codes,
    CountedRows,
    Evaluator,
    Flags,
    GroupMoments,
    PieceReader,
    Rows,
    is_unknown,
)
from kanon_db.answers.evidence_sql import Pieces, PieceWriter, Summed, has_pieces
from kanon_db.answers.scope import OpenQuery
from kanon_db.answers.statements import refuse_continuous_groups
from kanon_db.catalog.entries import changed
from kanon_db.errors import UnsupportedQueryError
from kanon_db.query import expressions as ex
from kanon_db.query.formulas import NOTHING, Estimated, rounding
from kanon_db.query.layout import CellLayout, ClassTable
from kanon_db.query.sql import Request

if TYPE_CHECKING:
    from kanon_db.answers.evidence import ReadPieces


# The types of records in a publication's table of classes, read block by block.


Block = dict[str, bytes]
"""The numbers of each column, by its name; the sizes of classes have the name ``""``."""


def read_pieces(opened: OpenQuery, pieces: Pieces) -> ReadPieces:
    """Run the statement of the pieces.

    Raises
    ------
    NotReadError
        Also where arithmetic fails on values that no record has together.
    """
    from kanon_db.answers.evidence import NotReadError, ReadPieces

    try:
        with opened.session.savepoint():
            rows = opened.fetch(pieces.text, *pieces.bound)
    except UnsupportedQueryError:
        raise NotReadError from None
    parts = {row["piece"]: row["part"] for row in rows}
    return ReadPieces(pieces, parts, {row["piece"]: row["texts"] for row in rows})


class ClassBlocks:
    """:class:`~kanon_db.answers.evidence.KnownTypes` of a table of classes."""

    def __init__(self, opened: OpenQuery, layout: CellLayout, pieces: Pieces) -> None:
        if layout.classes is None:
            raise TypeError("there is no table of classes")
        self._opened, self._pieces = opened, pieces
        self._read = read_pieces(opened, pieces)
        self._classes: ClassTable = layout.classes
        self._of_classes = {
            name: place
            for name, place in pieces.places.items()
            if layout.cells[name].column.sql in layout.view.quasi_identifiers
        }
        self._of_rows = {
            name: place for name, place in pieces.places.items() if name not in self._of_classes
        }
        self._needs_all = bool(layout.left_out or pieces.marked)
        self._n_rows = layout.n_rows

    @property
    def read(self) -> ReadPieces:
        """What each cell, and each value, tells."""
        return self._read

    def all(self) -> Iterator[tuple[dict[int, IntArray], FloatArray]]:
        """Return the numbers of the cells of each type, by the column, and its records."""
        import numpy as np

        n_rows = 0
        for block in self._blocks():
            written = block.get("", b"")
            if not written or len(written) % 4:
                raise changed(self._opened.publication)
            sizes = np.frombuffer(written, dtype="<u4").astype(np.int64)
            codes = {
                place: self._numbers(block, name, place, sizes.size)
                for name, place in self._of_classes.items()
            }
            n = sizes.astype(np.float64)
            n_own = int(sizes.sum())
            n_rows += n_own
            if self._of_rows:
                codes_of_rows = {
                    place: self._numbers(block, name, place, n_own)
                    for name, place in self._of_rows.items()
                }
                class_of_row = np.repeat(np.arange(sizes.size), sizes)
                met = self._required(codes_of_rows)
                if met is not None:
                    class_of_row = class_of_row[met]
                    codes_of_rows = {p: numbers[met] for p, numbers in codes_of_rows.items()}
                codes = {place: numbers[class_of_row] for place, numbers in codes.items()}
                codes |= codes_of_rows
                n = np.ones(class_of_row.size)
            if n.size:
                yield self._together(codes, n)
        if n_rows != self._n_rows:
            raise changed(self._opened.publication)

    def _together(
        self, codes: dict[int, IntArray], n: FloatArray
    ) -> tuple[dict[int, IntArray], FloatArray]:
        """Count records with the same cells once, where there is more to do with each."""
        import numpy as np

        from kanon_db.answers.evidence import distinct

        unit = self._pieces.unit
        if not codes:
            return codes, np.array([n.sum()])
        is_single = len(codes) == 1 and not self._pieces.ended
        if not (unit.spread or unit.parts or is_single or self._of_rows):
            return codes, n
        first, number = distinct(list(codes.values()), [self._read.sizes[p] for p in codes])
        together = np.bincount(number, n, first.size).astype(np.float64, copy=False)
        return {place: numbers[first] for place, numbers in codes.items()}, together

    def _required(self, codes: dict[int, IntArray]) -> Any:
        """Find the rows that meet what only columns with known values decide; None for all."""
        condition = self._pieces.unit.condition
        if self._needs_all or condition is None:
            return None
        parts = condition.parts if isinstance(condition, ex.And) else (condition,)
        met = None
        for part in parts:
            name, places = self._pieces.unit.by_value.get(part, ("", []))
            if places and all(place in codes for place in places):
                number: Any = 0
                for place in places:
                    number = number * self._read.n_values[place] + codes[place]
                one = self._read.tried(name, places).surely[number]
                met = one if met is None else met & one
        return met

    def _numbers(self, block: Block, name: str, place: int, n: int) -> IntArray:
        import numpy as np

        from kanon_db.answers.evidence import are_ends

        written = block.get(name, b"")
        type_ = np.dtype("<i8" if place in self._pieces.ended else "<u2")
        if len(written) != type_.itemsize * n:
            raise changed(self._opened.publication)
        found = np.frombuffer(written, dtype=type_).astype(np.int64)
        if n and not 0 <= int(found.min()) <= int(found.max()) < self._read.sizes[place]:
            raise changed(self._opened.publication)
        if n and place in self._pieces.ended and not are_ends(found, self._read.sizes[place]):
            raise changed(self._opened.publication)
        return found

    def _blocks(self) -> Iterator[Block]:
        """Read the numbers of all columns that are needed, block by block."""
        own, names = self._classes, list(self._pieces.places)
        rows = self._opened.stream(
            1 + len(names),
            f"SELECT coalesce(t.{own.attribute}, '') AS attribute, t.{own.number} AS block,"
            f" t.{own.codes} AS codes FROM {own.table} AS t WHERE t.{own.codes} IS NOT NULL"
            f" AND (t.{own.attribute} IS NULL OR t.{own.attribute} = ANY ($1::text[]))"
            f" ORDER BY t.{own.number}",
            names,
        )
        for _, of_block in groupby(rows, key=lambda row: row["block"]):
            yield {str(row["attribute"]): row["codes"] for row in of_block}


# How likely the records of types are counted, in the groups of a query.


_WHOLE: Final = 0.999999999
"""Shares that add up to one, up to rounding."""


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

    def counted(self, codes: Codes, n: FloatArray) -> Iterator[CountedRows]:
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

    def _counted(self, codes: Codes, n: FloatArray) -> CountedRows:
        rows, group, t, possible, together, surely = self._likely(codes, n.size)
        moments = None
        if self._pieces.summed is not None:
            x, xx, least, most, is_wild = self._measured(self._pieces.summed, codes, rows)
            moments = GroupMoments(
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
        return CountedRows(
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


# From the likelihoods of types of records to the answer for each group.
#
# The numbers are those of the statement whose last steps are in
# `kanon_db.query.likelihoods` and :func:`kanon_db.query.formulas.sum_answer`.


@dataclass(frozen=True, eq=False)
class _GroupSums:
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
    def empty(cls, n_groups: int) -> _GroupSums:
        return cls(*(np.zeros(n_groups) for _ in cls.__match_args__))


@dataclass(frozen=True, eq=False)
class _Doubts:
    """What the error of an answer follows from: a row for each type and group.

    The attributes are those of :class:`CountedRows`, and of its moments; without groups, `group` is
    None.
    """

    group: IntArray | None
    n: FloatArray
    u: FloatArray
    m: FloatArray
    x: FloatArray | None
    xx: FloatArray | None

    @classmethod
    def of(cls, counted: CountedRows, n_groups: int) -> _Doubts:
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
        self._sums = _GroupSums.empty(n_groups)
        self._is_seen, self._is_possible, self._is_wild = np.zeros((3, n_groups), dtype=np.bool_)
        self._least = np.full(n_groups, np.inf)
        self._most = np.full(n_groups, -np.inf)
        self._kept: list[_Doubts] | None = []
        self._room = room

    def add_records(self, number: float) -> None:
        """Say how many records some types have, whether they count or not."""
        self._n += number

    def add(self, counted: CountedRows) -> None:
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

    def answers(self, again: Iterable[CountedRows] = ()) -> dict[int, Estimated]:
        """Answer for each group that may have records, by its number.

        Parameters
        ----------
        again : iterable of CountedRows
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

    def _chosen(self, counted: CountedRows) -> CountedRows:
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
            moments = GroupMoments(
                s.mx[groups] * share, s.mxx[groups] * share,
                self._least[groups], self._most[groups], np.ones(n, dtype=np.bool_),
            )  # fmt: skip
        others = CountedRows(
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


# Answering from a publication's table of classes; see `kanon_db.answers.evidence`.


Answers = dict[str, tuple[tuple[int, ...], Estimated]]
"""The places of each group's values in their order, and its answer, by its key."""

_GROUP_BYTES: Final = 160
"""What a combination of the values of all keys takes."""

_COLUMN_BYTES: Final = 5_000_000
"""What a column of a block takes, as it is read and as numbers, rounded up."""


def count_with_classes(opened: OpenQuery, request: Request) -> Answers | None:
    """Answer one aggregate from the table of classes; None if that is not possible.

    It is if no lookup table is joined, if all columns that are mentioned have numbers, and if the
    combinations of values that the query compares are not too many.

    Raises
    ------
    UnsupportedQueryError
        As the statement would be refused.
    """
    layout = opened.layout
    if not isinstance(layout, CellLayout) or not has_pieces(request, layout):
        return None
    from kanon_db.answers.evidence import NotReadError

    refuse_continuous_groups(opened.query, layout)
    try:
        return _answered(opened, request, layout)
    except NotReadError:
        return None


@dataclass(frozen=True, eq=False)
class OfCells:
    """How many records of each group have each cell of a column, if they count.

    Attributes
    ----------
    groups : list of str
        Their keys.
    expected, sure, possible : ndarray of float64, shape (n_groups, n_cells)
    unknown : ndarray of float64, shape (n_groups, n_cells)
        The share of them of which nothing is known.
    is_unknown : bool
        Whether most cells of a column are suppressed.
    together : float
        See `kanon_db.query.likelihoods`.
    """

    groups: list[str]
    expected: FloatArray
    sure: FloatArray
    possible: FloatArray
    unknown: FloatArray
    is_unknown: bool
    together: float


def count_cells_with_classes(
    opened: OpenQuery, request: Request, name: str, most: int
) -> OfCells | None:
    """Count the records with each cell of a column; None if that is not possible.

    Parameters
    ----------
    opened : OpenQuery
    request : Request
        A count, by conditions and groups that do not mention the column.
    name : str
        The column.
    most : int
        How many cells of all groups there may be.
    """
    layout = opened.layout
    if not isinstance(layout, CellLayout) or not has_pieces(request, layout, (name,)):
        return None
    from kanon_db.answers.evidence import NotReadError

    try:
        return _of_cells(opened, request, layout, name, most)
    except NotReadError:
        return None


def _of_cells(
    opened: OpenQuery, request: Request, layout: CellLayout, name: str, most: int
) -> OfCells | None:
    import numpy as np

    from kanon_db.answers.evidence import is_unknown

    pieces = PieceWriter(request, layout, (name,)).pieces()
    if not _has_room(opened, pieces):
        return None
    types = opened.known_types(request, layout, pieces)
    if types is None:
        types = ClassBlocks(opened, layout, pieces)
    read = types.read
    counter, place = TypeCounter(pieces, read, opened.session.heartbeat), pieces.places[name]
    n_cells = read.sizes[place]
    if counter.n_groups * n_cells > most:
        return None
    expected, sure, possible, unknown = np.zeros((4, counter.n_groups * n_cells))
    for codes, n in types.all():
        opened.session.heartbeat()
        for counted in counter.counted(codes, n):
            own = counted.of(counted.possibly)
            at = own.group * n_cells + codes[place][own.type_]
            expected += np.bincount(at, own.n * own.m, expected.size)
            sure += np.bincount(at, own.n * own.surely, expected.size)
            possible += np.bincount(at, own.n, expected.size)
            np.maximum.at(unknown, at, own.u)
            opened.session.heartbeat()
    shape = counter.n_groups, n_cells
    expected, sure, possible, unknown = (
        one.reshape(shape) for one in (expected, sure, possible, unknown)
    )
    there = np.flatnonzero(possible.any(axis=1))
    names = [key.name for key in request.query.keys]
    groups = [key_of_values(names, counter.values(group)[1]) for group in there.tolist()]
    return OfCells(
        groups, expected[there], sure[there], possible[there], unknown[there],
        is_unknown(read, pieces.marked), pieces.together,
    )  # fmt: skip


def sure_cells_with_classes(
    opened: OpenQuery, request: Request, name: str, most: int
) -> list[int] | None:
    """Return the numbers of a column's cells of which some records surely count.

    None if that is not possible; see :func:`count_cells_with_classes`.
    """
    found = count_cells_with_classes(opened, request, name, most)
    if found is None:
        return None
    (numbers,) = found.sure.sum(axis=0).nonzero()
    return [int(number) for number in numbers]


def _has_room(opened: OpenQuery, pieces: Pieces) -> bool:
    """Whether a block of all columns that are mentioned fits into the memory of a query."""
    return len(pieces.places) * _COLUMN_BYTES <= opened.limits.bitmaps


def _answered(opened: OpenQuery, request: Request, layout: CellLayout) -> Answers | None:

    pieces = PieceWriter(request, layout).pieces()
    if not _has_room(opened, pieces):
        return None
    types = opened.known_types(request, layout, pieces)
    if types is None:
        types = ClassBlocks(opened, layout, pieces)
    read = types.read
    counter = TypeCounter(pieces, read, opened.session.heartbeat)
    if counter.n_groups * _GROUP_BYTES > opened.limits.bitmaps:
        return None
    totals = Totals(
        pieces, read, counter.n_groups, layout.left_out, opened.limits.bitmaps,
        is_average=request.aggregate.function == "avg",
    )  # fmt: skip
    for codes, n in types.all():
        opened.session.heartbeat()
        totals.add_records(float(n.sum()))
        for counted in counter.counted(codes, n):
            totals.add(counted)
            opened.session.heartbeat()

    def again() -> Iterator[CountedRows]:
        for codes, n in types.all():
            for counted in counter.counted(codes, n):
                opened.session.heartbeat()
                yield counted

    names = [key.name for key in opened.query.keys]
    found: Answers = {}
    room = opened.limits.text
    most = opened.limits.n_answers if request.most is None else request.most - 1
    if opened.query.keys and totals.n_answers > most:
        raise opened.limits.too_many()
    for number, estimated in totals.answers(again()).items():
        ranks, values = counter.values(number)
        key = key_of_values(names, values)
        room -= len(key.encode())
        if room < 0:
            raise opened.limits.too_many()
        found[key] = ranks, estimated
    return found


def key_of_values(names: Sequence[str], values: Sequence[str]) -> str:
    """Write an object as the server writes a jsonb: by the lengths of names, and their bytes."""
    by_name = dict(zip(names, values, strict=True))
    ordered = sorted(by_name, key=lambda name: (len(name.encode()), name.encode()))
    written = (f"{json.dumps(name, ensure_ascii=False)}: {by_name[name]}" for name in ordered)
    return f"{{{', '.join(written)}}}"
