"""Greedy heuristic for pattern-guided k-anonymity ([PG] Section 2.3)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
)
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.suppression.patterns import PatternSet
from kanon_db.algorithms.suppression.row_types import EntitiesOfTypes, RowTypes
from kanon_db.errors import InfeasibleError, InvalidParameterError

_Sums: TypeAlias = npt.NDArray[np.uint32]

LEFT_OVER = -1
"""Stands for a pattern where a record is fully suppressed without k records like it."""


@dataclass(frozen=True, eq=False)
class Suppression:
    """Which pattern each record is suppressed by.

    Parameters
    ----------
    patterns : PatternSet
        Pattern vectors.
    pattern_of_record : ndarray of int64, shape (n_records,)
        Position of each record's pattern in ``patterns``, or -1: a left-over record, fully
        suppressed although fewer than k records, or entities, are left over.
    """

    patterns: PatternSet
    pattern_of_record: IntArray

    @property
    def n_left_over(self) -> int:
        """Number of left-over records."""
        return int((self.pattern_of_record == LEFT_OVER).sum())

    @property
    def suppressed(self) -> BoolArray:
        """Which cells are suppressed, shape (n_records, m)."""
        everything = np.ones((1, self.patterns.n_columns), dtype=np.bool_)
        return np.concatenate([self.patterns.stars, everything])[self.pattern_of_record]

    @property
    def n_suppressed(self) -> int:
        """Number of suppressed cells: s."""
        return int(np.append(self.patterns.n_stars, self.patterns.n_columns) @ self._n_records)

    @property
    def cost(self) -> Fraction:
        """Sum of the weights of the suppressed cells, without weights their number."""
        # Left-overs exist only where the all-star pattern, the last, is allowed.
        costs = np.append(self.patterns.costs, self.patterns.costs[-1])
        return Fraction(int(costs @ self._n_records), self.patterns.cost_unit)

    @property
    def _n_records(self) -> IntArray:
        """Number of records of each pattern, and of left-over ones."""
        n_patterns = len(self.patterns)
        return np.bincount(self.pattern_of_record % (n_patterns + 1), minlength=n_patterns + 1)


def greedy(
    codes: npt.ArrayLike,
    patterns: PatternSet,
    k: int,
    *,
    entities: AnyIntArray | None = None,
    pulse: Pulse = UNLIMITED,
) -> Suppression:
    """Suppress cells so that every combination of kept cells occurs at least k times.

    Takes the patterns one by one, cheapest first; each gets all records, of those that are left,
    that at least k of them agree on in the columns that it keeps. What remains in the end, fewer
    than k records, is fully suppressed.

    Parameters
    ----------
    codes : array_like of int, shape (n_records, m)
        One code for each quasi-identifier of each record; equal values have equal codes.
    patterns : PatternSet
        Allowed patterns of the m columns.
    k : int
        Fewest records that share what is kept of them, at least 1; fewest entities, if these are
        given.
    entities : ndarray of int, shape (n_records,), optional
        Whom each record is about, in [0, 2^31), if several can be about the same entity.
    pulse : Pulse
        Beaten before each pass over the records; what that raises ends the work.

    Returns
    -------
    Suppression

    Raises
    ------
    InfeasibleError
        If records are left over and the all-star pattern is not allowed.
    InvalidParameterError
        If ``k`` is less than 1, or ``codes`` and ``patterns`` do not match.

    Notes
    -----
    **Source:** [PG] Algorithm 1. "At least k" records, where the text of Section 2.3 says "more
    than k".

    Left-over records are exempt from k, so that the cost can fall below that of the exact optimum,
    whose fully suppressed records must be none or at least k. With none left over it is never
    below, and if the pattern without stars is allowed, the number of suppressed cells is at most
    m times the optimum (Theorem 4, which needs that pattern and all weights equal).

    Deviation: the paper has one record of each person. Where there are several, the k records that
    share what is kept of them must be of k entities, and so fewer than k entities are left over,
    possibly with more than k records. The bound on the optimum does not hold then.

    Cost: one pass over the row types that are left for each pattern. Each keeps a sum of random
    numbers for its cells, and patterns that share their first columns share partial sums. Row
    types are counted by the leading bits of the sum: where a count stays below k, so does that of
    every row type in it. The few others are compared exactly, so that collisions cost time, never
    privacy.

    Examples
    --------
    >>> from kanon_db.algorithms.suppression.patterns import parse_patterns
    >>> patterns = parse_patterns(["..", ".*", "**"], 2)
    >>> found = greedy([[2, 2], [1, 2], [2, 2], [1, 3], [3, 3]], patterns, 2)
    >>> found.pattern_of_record.tolist(), found.n_suppressed
    ([0, 1, 0, 1, -1], 4)
    """
    types = checked_types(codes, patterns, k)
    of_types = None
    if entities is not None:
        of_types = EntitiesOfTypes.of(types.type_of_record, entities)
    pattern_of_type = greedy_on_types(types, patterns, k, entities=of_types, pulse=pulse)
    n_left_over = int(types.counts[pattern_of_type == LEFT_OVER].sum())
    check_left_over(patterns, k, n_left_over, types.n_records)
    return Suppression(patterns, pattern_of_type[types.type_of_record])


def check_left_over(patterns: PatternSet, k: int, n_left_over: int, n_records: int) -> None:
    """Refuse left-over records where no pattern suppresses every cell.

    Raises
    ------
    InfeasibleError
    """
    if n_left_over and not patterns.suppresses_fully:
        raise InfeasibleError(
            "some records fit none of the patterns",
            detail=f"{n_left_over:,} of {n_records:,} records are left over with k = {k} and "
            f"{len(patterns):,} patterns, none of which suppresses every cell",
            hint="allow the pattern that suppresses every cell, or others with more stars, lower "
            "k, or try the method optimal",
        )


def checked_types(codes: npt.ArrayLike, patterns: PatternSet, k: int) -> RowTypes:
    """Find the row types of a table, after checking it against the other arguments.

    Parameters
    ----------
    codes : array_like of int, shape (n_records, m)
    patterns : PatternSet
    k : int

    Returns
    -------
    RowTypes

    Raises
    ------
    InvalidParameterError
        If ``k`` is less than 1, or ``codes`` and ``patterns`` do not match.
    """
    if k < 1:
        raise InvalidParameterError("k must be at least 1", detail=f"k = {k}")
    types = RowTypes.of(codes)
    if types.codes.shape[1] != patterns.n_columns:
        raise InvalidParameterError(
            "patterns must have one character for each quasi-identifier",
            detail=f"patterns: {patterns.n_columns}, quasi-identifiers: {types.codes.shape[1]}",
        )
    return types


def greedy_on_types(
    types: RowTypes,
    patterns: PatternSet,
    k: int,
    *,
    entities: EntitiesOfTypes | None = None,
    pulse: Pulse = UNLIMITED,
) -> IntArray:
    """Choose a pattern for each row type; see :func:`greedy`.

    Parameters
    ----------
    types : RowTypes
    patterns : PatternSet
    k : int
    entities : EntitiesOfTypes, optional
        Counted instead of records.
    pulse : Pulse

    Returns
    -------
    ndarray of int64, shape (t,)
        Position of the pattern, or -1: left over, whether or not full suppression is allowed.
    """
    pattern_of_type = np.full(types.counts.size, LEFT_OVER)
    left = np.arange(types.counts.size)
    # Row types may have entities in common: a group has at most as many as their counts add up to.
    counted = types.counts if entities is None else entities.counts
    counts = counted.astype(np.float64)  # as bincount adds them; exact below 2^53
    sums = _KeptSums(_random_cells(types.codes))
    n_types, n_records = left.size, int(counted.sum())
    for position, kept in enumerate(~patterns.stars):
        if n_records < k:
            break
        pulse.beat()
        if 4 * n_types < 3 * left.size:
            live = np.flatnonzero(counts)
            left, counts, sums = left[live], counts[live], _KeptSums(sums.cells[:, live])
        # Types assigned since then have count 0, so that they add to nothing.
        maybe = _in_large_buckets(sums.of(kept.tolist()), counts, k)
        if not maybe.size:
            continue
        group = types.alike(left[maybe], kept)
        if entities is None:
            sizes = np.bincount(group, counts[maybe])
        else:
            sizes = entities.of_groups(left[maybe], group)
        taken = maybe[sizes[group] >= k]
        pattern_of_type[left[taken]] = position
        n_types -= taken.size
        n_records -= int(counts[taken].sum())
        counts[taken] = 0
    return pattern_of_type


def _random_cells(codes: CodeArray) -> _Sums:
    """Replace each code by a random number, the same for equal codes of a column; shape (m, t)."""
    random = np.random.default_rng(1)  # the result does not depend on the numbers
    cells = np.empty(codes.shape[::-1], dtype=np.uint32)
    for row, column in zip(cells, codes.T, strict=True):
        n_codes = int(column.max(initial=0)) + 1
        row[:] = random.integers(2**32, size=n_codes, dtype=np.uint32)[column]
    return cells


class _KeptSums:
    """Sums of the kept cells of each row type, modulo 2^32; equal where these are equal."""

    def __init__(self, cells: _Sums) -> None:
        self.cells = cells
        self._kept: list[bool] = []
        # _partial[j] adds up the first j columns.
        self._partial = [np.zeros(cells.shape[1], dtype=np.uint32)]
        self._room = np.empty_like(cells)

    def of(self, kept: list[bool]) -> _Sums:
        """Sum, beginning at the first column that differs from the last call's."""
        same = 0
        while same < len(self._kept) and kept[same] == self._kept[same]:
            same += 1
        del self._partial[same + 1 :]
        for column in range(same, len(kept)):
            last = self._partial[-1]
            if kept[column]:
                last = np.add(last, self.cells[column], out=self._room[column])
            self._partial.append(last)
        self._kept = kept
        return self._partial[-1]


def _in_large_buckets(sums: _Sums, counts: FloatArray, k: int) -> IntArray:
    """Find the row types that share the leading bits of their sum with at least k records."""
    # At most a quarter of the buckets are in use, so that most hold the types of one sum.
    shift = np.uint32(max(30 - int(sums.size).bit_length(), 0))
    buckets = sums >> shift
    large = np.bincount(buckets, counts) >= k
    return np.flatnonzero(large[buckets] & (counts > 0))
