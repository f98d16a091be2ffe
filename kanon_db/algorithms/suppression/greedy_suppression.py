"""Suppresses cells by the greedy heuristic of pattern-guided k-anonymity ([PG] Section 2.3).

Identical rows are merged into row types ([PG] Section 1). Left-over records can join the classes of
other records.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import chain
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
    distinct,
    numbered,
    sort_keys,
)
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse
from kanon_db.algorithms.suppression.pattern_vectors import PatternSet, Permuting
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InfeasibleError, InvalidParameterError

_MOST_CODES: Final = 2**31


@dataclass(frozen=True, eq=False)
class RowTypes:
    """The distinct rows of a table, with their multiplicities.

    Parameters
    ----------
    codes : ndarray of int32, shape (t, m)
        One row of each type, in lexicographic order. Codes of a column are consecutive from 0, and
        adjacent in memory.
    counts : ndarray of int64, shape (t,)
        Number of records of each type, at least 1.
    type_of_record : ndarray of int64, shape (n_records,)
        Position of each record's type.

    Examples
    --------
    >>> types = RowTypes.of([[7, 1], [3, 1], [7, 1]])
    >>> types.codes.tolist(), types.counts.tolist(), types.type_of_record.tolist()
    ([[0, 0], [1, 0]], [1, 2], [1, 0, 1])
    """

    codes: CodeArray
    counts: IntArray
    type_of_record: IntArray

    @classmethod
    def of(cls, codes: npt.ArrayLike) -> RowTypes:
        """Find the row types of a table.

        Parameters
        ----------
        codes : array_like of int, shape (n_records, m)
            One code for each quasi-identifier of each record; equal values have equal codes.

        Returns
        -------
        RowTypes

        Raises
        ------
        InvalidParameterError
            If ``codes`` is no such array, or has no column.
        """
        rows = np.asarray(codes)
        if rows.ndim != 2 or not rows.shape[1]:
            raise InvalidParameterError(
                "codes must hold one row for each record and one column for each quasi-identifier",
                detail=f"codes: shape {rows.shape}",
            )
        if not np.issubdtype(rows.dtype, np.integer):
            raise InvalidParameterError(
                "codes must be whole numbers", detail=f"codes: {rows.dtype}"
            )
        type_of_record = numbered(sort_keys(map(_from_zero, rows.T)))
        counts = np.bincount(type_of_record)
        member = np.empty(counts.size, dtype=np.int64)
        member[type_of_record] = np.arange(type_of_record.size)
        representatives = np.empty((rows.shape[1], counts.size), dtype=np.int32)
        for of_types, column in zip(representatives, rows.T, strict=True):
            of_types[:] = numbered(column[member])
        return cls(representatives.T, counts, type_of_record)

    @property
    def n_records(self) -> int:
        """Number of records of all types."""
        return self.type_of_record.size

    def alike(self, types: IntArray, kept: BoolArray) -> IntArray:
        """Give some types numbers; types that agree in the kept columns get the same one.

        Parameters
        ----------
        types : ndarray of int64, shape (q,)
        kept : ndarray of bool, shape (m,)

        Returns
        -------
        ndarray of int64, shape (q,)
            As :func:`identical_rows`.
        """
        if not kept.any():
            return np.zeros(types.size, dtype=np.int64)
        return numbered(sort_keys(self.codes[types, column] for column in np.flatnonzero(kept)))


@dataclass(frozen=True, eq=False)
class EntitiesOfTypes:
    """The entities of each row type, if several records can be about the same entity."""

    # (p,): the distinct pairs of a row type and an entity that one of its records is about
    types: IntArray
    entities: IntArray
    counts: IntArray  # (t,): entities of each row type, at least 1

    @classmethod
    def of(cls, type_of_record: IntArray, entities: AnyIntArray) -> EntitiesOfTypes:
        """Find the entities of each row type."""
        n_entities = int(entities.max(initial=0)) + 1
        pairs = distinct(type_of_record * n_entities + entities)
        types, entities_of_pairs = np.divmod(pairs, n_entities)
        return cls(types, entities_of_pairs, np.bincount(types))

    def of_groups(self, types: IntArray, group: IntArray) -> IntArray:
        """Count the entities of each group of row types."""
        group_of_type = np.full(self.counts.size, -1)
        group_of_type[types] = group
        group_of_pair = group_of_type[self.types]
        inside = group_of_pair >= 0
        entities = EntitiesOfTypes.of(group_of_pair[inside], self.entities[inside])
        return entities.counts


def _from_zero(column: AnyIntArray) -> AnyIntArray:
    """Return a column's codes as they are if they can be packed, or else numbered from 0."""
    if column.min(initial=0) < 0 or column.max(initial=0) >= _MOST_CODES:
        return numbered(column)
    return column


def identical_rows(codes: AnyIntArray) -> IntArray:
    """Give each distinct row of a table a number, in lexicographic order.

    Codes are packed into one integer: equal numbers mean equal rows. As a rule, one sort.
    """
    if not codes.shape[1]:
        return np.zeros(codes.shape[0], dtype=np.int64)
    return numbered(sort_keys(codes.T))


_Sums: TypeAlias = npt.NDArray[np.uint32]

LEFT_OVER = -1
"""Stands in place of a pattern for a fully suppressed record without k - 1 others like it."""


@dataclass(frozen=True, eq=False)
class Suppression:
    """The pattern by which each record is suppressed.

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

    The patterns are applied one by one, cheapest first, each to every group of at least k remaining
    records that agree in the columns that it keeps. The fewer than k records that remain in the end
    are fully suppressed.

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
    **Source:** [PG] Algorithm 1. Groups have "at least k" records, where the text of Section 2.3
    says "more than k".

    Left-over records are exempt from k, so that the cost can fall below that of the exact optimum,
    which has either no fully suppressed records or at least k. Without left-over records it is
    never below, and if the pattern without stars is allowed, the number of suppressed cells is at
    most m times the optimum (Theorem 4, which needs that pattern and all weights equal).

    Deviation: the paper has one record for each person. If there are several, a group needs k
    entities instead of k records, and so fewer than k entities are left over, possibly with more
    than k records. The bound on the optimum does not hold then.

    Cost: one pass over the remaining row types for each pattern. A row type is hashed to the sum of
    random numbers for its kept cells; patterns with the same first columns share partial sums. Row
    types are counted by the leading bits of the sum: a count below k excludes all of them. The few
    others are compared exactly, so that collisions cost time, never privacy.

    Examples
    --------
    >>> from kanon_db.algorithms.suppression.pattern_vectors import parse_patterns
    >>> patterns = parse_patterns(["..", ".*", "**"], 2)
    >>> found = greedy([[2, 2], [1, 2], [2, 2], [1, 3], [3, 3]], patterns, 2)
    >>> found.pattern_of_record.tolist(), found.n_suppressed
    ([0, 1, 0, 1, -1], 4)
    """
    types = check_types(codes, patterns, k)
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


def check_types(codes: npt.ArrayLike, patterns: PatternSet, k: int) -> RowTypes:
    """Find the row types of a table, after checking it against the other arguments."""
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
    # Row types may share entities, so the sum of counts only bounds the entities of a group.
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
        # Types assigned since then have count 0, and add nothing.
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
        """Sum the kept cells, from the first column that differs from the last call on."""
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


def join_left_over(
    codes: npt.ArrayLike,
    suppression: Suppression,
    k: int,
    random: Permuting,
    *,
    pulse: Pulse = UNLIMITED,
) -> Suppression:
    """Join the left-over records with others to a class of at least k records.

    All left-over records get one pattern, in whose kept columns they agree. Records of other
    classes that agree there, too, join them; such a class keeps at least k records, or none. The
    cheapest such group is chosen; which records of a class join is drawn at random.

    Parameters
    ----------
    codes : array_like of int, shape (n_records, m)
        One code for each quasi-identifier of each record; equal values have equal codes.
    suppression : Suppression
        What :func:`~kanon_db.algorithms.suppression.greedy_suppression.greedy` has found for the
        same codes and k.
    k : int
        Fewest records that share what is kept of them, at least 1.
    random : Permuting
        Draws the records that join.
    pulse : Pulse
        Beaten before each pattern; what that raises ends the work.

    Returns
    -------
    Suppression
        None of its records is left over.

    Raises
    ------
    InfeasibleError
        If there are records, but fewer than ``k``.

    Notes
    -----
    **Source:** our own, in place of the exemption in [PG] Algorithm 1: which records are left over
    follows from the quasi-identifiers, so anyone who knows these knows whose rows they are.

    No left-over record fits an existing class: it would have been in it from the beginning. For the
    same reason, classes whose patterns cost more than the group's have fewer fitting records than
    the group lacks. So it is cheapest to take exactly the missing number, the cheapest first, or
    else all of one class. That is the optimum for one group with the other records unchanged;
    :func:`~kanon_db.algorithms.suppression.optimal_suppression.optimal` finds the optimum of all
    suppressions.

    Cost: one pass over the row types for each pattern in whose kept columns the left-over records
    agree, the cheapest first, until no later one can cost less.

    Examples
    --------
    >>> from kanon_db.algorithms.suppression.pattern_vectors import parse_patterns
    >>> rows = [[1, 1], [1, 1], [1, 1], [1, 2]]
    >>> found = greedy(rows, parse_patterns(["..", ".*", "**"], 2), 2)
    >>> found.pattern_of_record.tolist()
    [0, 0, 0, -1]
    >>> joined = join_left_over(rows, found, 2, np.random.default_rng(1))
    >>> sorted(joined.pattern_of_record[:3].tolist()), int(joined.pattern_of_record[3])
    ([0, 0, 1], 1)
    """
    patterns, n_left = suppression.patterns, suppression.n_left_over
    types = check_types(codes, patterns, k)
    if not n_left:
        return suppression
    if types.n_records < k:
        raise InfeasibleError(
            "there are fewer than k records", detail=f"k = {k}, n_records = {types.n_records}"
        )
    missing = k - n_left
    pattern_of_type = np.empty_like(types.counts)
    pattern_of_type[types.type_of_record] = suppression.pattern_of_record
    is_left = pattern_of_type == LEFT_OVER
    class_of_type = np.full_like(pattern_of_type, -1)
    class_of_type[~is_left] = classes_of(
        types.codes[~is_left], suppression, pattern_of_type[~is_left]
    )
    sizes = np.bincount(class_of_type[~is_left], types.counts[~is_left]).astype(np.int64)
    costs = np.empty_like(sizes)  # of suppressing one record, in each class
    costs[class_of_type[~is_left]] = patterns.costs[pattern_of_type[~is_left]]

    # Bit masks, as for patterns: the columns in which each type equals all left-over records.
    bits = 1 << np.arange(patterns.n_columns - 1, -1, -1, dtype=np.int64)
    one = types.codes[is_left][0]
    agreed = int((types.codes[is_left] == one).all(axis=0) @ bits)
    agreeing = (types.codes == one) @ bits
    least, position, taken = np.inf, -1, np.zeros_like(sizes)
    kept_columns = (~patterns.masks & bits.sum()).tolist()
    for number, (kept, cost) in enumerate(zip(kept_columns, patterns.costs.tolist(), strict=True)):
        if n_left * cost + missing * (cost - int(costs.max())) >= least:
            break
        if kept & ~agreed:
            continue
        pulse.beat()
        fits = ~is_left & (agreeing & kept == kept)
        n_fitting = np.bincount(class_of_type[fits], types.counts[fits], sizes.size)
        for given in donations(cost - costs, n_fitting.astype(np.int64), sizes, k, missing):
            total = n_left * cost + int(given @ (cost - costs))
            if total < least:
                least, position, taken = total, number, given

    fits = ~is_left & (agreeing & kept_columns[position] == kept_columns[position])
    fitting = np.flatnonzero(fits[types.type_of_record])
    joining = _draw(fitting, class_of_type[types.type_of_record[fitting]], taken, random)
    pattern_of_record = suppression.pattern_of_record.copy()
    pattern_of_record[is_left[types.type_of_record]] = position
    pattern_of_record[joining] = position
    return Suppression(patterns, pattern_of_record)


def classes_of(
    codes: AnyIntArray, suppression: Suppression, pattern_of_row: AnyIntArray
) -> IntArray:
    """Give each class, the rows with the same pattern and the same kept values, a number from 0.

    Parameters
    ----------
    codes : ndarray of int, shape (n, m)
        Codes from 0 on.
    suppression : Suppression
        It has the patterns.
    pattern_of_row : ndarray of int, shape (n,)
        Position of each row's pattern.

    Returns
    -------
    ndarray of int64, shape (n,)
    """
    shown = (
        np.where(stars[pattern_of_row], 0, column + np.int64(1))
        for stars, column in zip(suppression.patterns.stars.T, codes.T, strict=True)
    )
    return numbered(sort_keys(chain([pattern_of_row], shown)))


def donations(
    extra: IntArray, n_fitting: IntArray, sizes: IntArray, k: int, missing: int
) -> list[IntArray]:
    """Return how many records each class gives: the missing ones together, or one class all."""
    choices = []
    room = np.minimum(n_fitting, sizes - k)
    if room.sum() >= missing:
        order = np.argsort(extra, kind="stable")
        before = np.cumsum(room[order]) - room[order]
        few = np.empty_like(room)
        few[order] = np.clip(missing - before, 0, room[order])
        choices.append(few)
    whole = np.flatnonzero(n_fitting == sizes)
    if whole.size:
        giver = whole[np.argmin((extra * sizes)[whole])]
        choices.append(np.where(np.arange(sizes.size) == giver, sizes, 0))
    return choices


def _draw(records: IntArray, classes: IntArray, taken: IntArray, random: Permuting) -> IntArray:
    """Draw a number of records from each class."""
    order = random.permutation(records.size)
    order = order[np.argsort(classes[order], kind="stable")]
    first = np.searchsorted(classes[order], np.arange(taken.size))
    place = np.arange(order.size) - first[classes[order]]
    drawn: IntArray = records[order[place < taken[classes[order]]]]
    return drawn
