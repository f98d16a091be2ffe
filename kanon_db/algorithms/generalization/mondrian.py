"""Cuts a table in two at medians, recursively: Mondrian (LeFevre et al. 2006).

A table too large for one machine is cut into parts by counts alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Literal, NamedTuple, Self, get_args

import numpy as np

from kanon_db.algorithms.generalization.greedy_classes import Generalization
from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    BoolArray,
    CodeArray,
    IntArray,
    Integer,
    narrow,
)
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse, in_threads, kernel
from kanon_db.algorithms.recoding.loss import Ncp, Units
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata, check_k
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError

MedianCut = Literal["strict", "relaxed"]

_VALUES_PER_CALL = 2**20  # looked at between two heartbeats: some milliseconds
_FEWEST_IN_THREADS = 100_000  # records


def mondrian(
    microdata: Microdata,
    k: int,
    *,
    cut: MedianCut = "strict",
    workers: int = 1,
    pulse: Pulse = UNLIMITED,
) -> Generalization:
    """Cut the table in two, and each part again, while parts keep at least k records.

    A part is cut at the median of the attribute in which it loses most; where that would leave
    fewer than ``k`` records on one side, at that of the next attribute. A part that cannot be cut
    in any attribute becomes a class.

    Parameters
    ----------
    microdata : Microdata
    k : int
        Fewest records of a class, at least 1.
    cut : {"strict", "relaxed"}
        Whether all records with the median value go to the same side, or as many of them to the
        lower side as it takes to halve the part, so that classes overlap there.
    workers : int
        Threads that cut large tables; the classes do not depend on it.
    pulse : Pulse
        Only its heartbeat is used.

    Returns
    -------
    Generalization
        Classes numbered from the lower to the upper sides.

    Raises
    ------
    InfeasibleError
        If there are fewer than ``k`` records.
    InvalidParameterError
        If ``k`` is less than 1, or ``cut`` is unknown.

    Notes
    -----
    **Source:** LeFevre, DeWitt and Ramakrishnan: Mondrian multidimensional k-anonymity, 2006,
    Section 4; the baseline of [OB] Section 4. There a strict cut leaves the median on the lower
    side. Here it goes to the upper side if that halves the part better, or if only that is
    allowed: where most records share one of the last categories, the paper's rule ends at once.

    The width of a part in an attribute is its weighted NCP; of equal widths, the first attribute
    counts. Categories are in the order of their codes, without hierarchies, and NULL is the last.

    Cost: one pass over the records for each level of cuts, about log2(n_records / k).

    Examples
    --------
    >>> from kanon_db.algorithms.recoding.microdata import Attribute
    >>> age = Attribute(5, numbers=np.array([20.0, 30, 31, 52, 60]), lower=20, upper=60)
    >>> mondrian(Microdata([[0], [2], [4], [1], [3]], (age,)), 2).class_of_record.tolist()
    [0, 0, 1, 0, 1]
    """
    check_k(k, microdata.n_records)
    if cut not in get_args(MedianCut):
        raise InvalidParameterError("the kind of cut is unknown", hint="use strict or relaxed")
    n_records = microdata.n_records
    n_values = np.array([attribute.n_values for attribute in microdata.attributes])
    offsets = np.cumsum(n_values) - n_values
    of_codes = Ncp.of(microdata.every_code(), pulse=pulse)
    positions = np.concatenate([of_codes.values[:n, j] for j, n in enumerate(n_values)])
    table = _CodedTable(of_codes.units, offsets, positions)
    state = _Parts(
        narrow(microdata.codes).T.copy(),  # of one attribute, anything else would be no copy
        np.arange(n_records, dtype=np.int32),
        np.empty(n_records, dtype=np.int64),
        np.zeros((n_records // max(k, 1) + 2, 2), dtype=np.int64),
        np.empty(n_records, dtype=np.int32),
        np.empty(n_records, dtype=np.bool_),
    )

    def run(part: tuple[int, int], pulse: Pulse) -> int:
        own = state._replace(stack=np.zeros_like(state.stack))
        return _cut_all(table, own, [part], k, cut == "relaxed", pulse)

    # Cut a large table until each thread has a part of its own.
    parts = [(0, n_records)] if n_records else []
    while 0 < len(parts) < workers and n_records >= _FEWEST_IN_THREADS:
        largest = max(range(len(parts)), key=lambda i: parts[i][1] - parts[i][0])
        found = _cut_once(table, state, parts[largest], k, cut == "relaxed")
        if len(found) < 2:
            break
        parts[largest : largest + 1] = found
    if len(parts) < 2:
        _cut_all(table, state, parts, k, cut == "relaxed", pulse)
        return Generalization(state.class_of_record)
    n_before = 0
    for (start, end), n_classes in zip(parts, in_threads(run, parts, workers, pulse), strict=True):
        state.class_of_record[state.order[start:end]] += n_before
        n_before += n_classes
    return Generalization(state.class_of_record)


def _cut_once(
    table: _CodedTable, state: _Parts, part: tuple[int, int], k: int, is_relaxed: bool
) -> list[tuple[int, int]]:
    """Cut a part in two; return both sides, or nothing if it cannot be cut."""
    state.stack[0] = part
    n_parts, n_classes = _cut_parts(table, state, 1, 0, k, is_relaxed, 1)
    return [] if n_classes else [(int(a), int(b)) for a, b in state.stack[:n_parts][::-1]]


def _cut_all(
    table: _CodedTable,
    state: _Parts,
    parts: list[tuple[int, int]],
    k: int,
    is_relaxed: bool,
    pulse: Pulse,
) -> int:
    """Cut parts until they are classes; return how many there are."""
    n_parts: Integer = len(parts)
    n_classes: Integer = 0
    state.stack[:n_parts] = np.array(parts, dtype=np.int64).reshape(-1, 2)
    while n_parts:
        # What comes before the part that is cut next is done.
        pulse.done(int(state.stack[n_parts - 1, 0]), state.order.size)
        n_parts, n_classes = _cut_parts(
            table, state, n_parts, n_classes, k, is_relaxed, _VALUES_PER_CALL
        )
    return int(n_classes)


class _CodedTable(NamedTuple):
    """The attributes of a table, as compiled code reads them."""

    units: Units
    offsets: IntArray  # (m,): where the codes of each attribute begin among those of all
    positions: CodeArray  # Position in units of each code of a numeric attribute


class _Parts(NamedTuple):
    """The parts into which the records have been cut.

    Codes move with their records, so that those of a part are adjacent.
    """

    codes: AnyIntArray  # (m, n_records)
    order: CodeArray  # (n_records,): records, part by part, in the order of ``codes``
    class_of_record: IntArray
    stack: IntArray  # (n, 2): parts still to be cut: where each begins and ends in ``order``
    upper: CodeArray
    is_lower: BoolArray  # (n_records,): working memory for a part, at the places of its own records


class _Extent(NamedTuple):
    """The range of a part in each attribute."""

    low: IntArray  # (m,): least and greatest code
    high: IntArray
    width: IntArray  # (m,): loss in units
    seen_in: IntArray  # The last part in which each code of a categorical attribute was seen


@kernel
def _cut_parts(
    table: _CodedTable,
    parts: _Parts,
    n_parts: Integer,
    n_classes: Integer,
    k: Integer,
    is_relaxed: bool,
    n_values: Integer,
) -> tuple[Integer, Integer]:
    """Cut parts, the last first, for a number of values; those without a cut become classes."""
    m = table.offsets.size
    low, high = np.empty(m, dtype=np.int64), np.empty(m, dtype=np.int64)
    width = np.empty(m, dtype=np.int64)
    spread = _Extent(low, high, width, np.full(table.positions.size, -1, dtype=np.int64))
    n_looked_at, number = 0, 0
    while n_parts and n_looked_at < n_values:
        n_parts -= 1
        number += 1
        start, end = parts.stack[n_parts, 0], parts.stack[n_parts, 1]
        size = end - start
        n_lower: Integer = 0
        if size >= 2 * k:
            _measure(table, parts.codes, start, end, spread, number)
            n_looked_at += size * table.offsets.size
            while n_lower == 0:
                widest = 0
                for j in range(1, m):
                    if width[j] > width[widest]:
                        widest = j
                if width[widest] <= 0:
                    break
                n_lower = _find_lower(
                    parts.codes[widest, start:end], parts.is_lower[start:end],
                    low[widest], high[widest], k, is_relaxed,
                )  # fmt: skip
                n_looked_at += size
                width[widest] = 0
        if n_lower:
            for j in range(table.offsets.size):
                _put_lower_first(parts, parts.codes[j], start, end)
            _put_lower_first(parts, parts.order, start, end)
            n_looked_at += size * table.offsets.size
            # The lower side is to be cut next.
            parts.stack[n_parts, 0] = parts.stack[n_parts + 1, 1] = start + n_lower
            parts.stack[n_parts, 1], parts.stack[n_parts + 1, 0] = end, start
            n_parts += 2
        else:
            for i in range(start, end):
                parts.class_of_record[parts.order[i]] = n_classes
            n_classes += 1
    return n_parts, n_classes


@kernel
def _put_lower_first(parts: _Parts, values: AnyIntArray, start: Integer, end: Integer) -> None:
    """Move the values of the lower side to the front; both sides keep their order."""
    n_lower, n_upper = start, start
    for i in range(start, end):
        # Branch-free: a branch would be mispredicted every other time.
        value, is_lower = values[i], np.int64(parts.is_lower[i])
        parts.upper[n_upper] = value
        values[n_lower] = value
        n_lower += is_lower
        n_upper += 1 - is_lower
    for i in range(start, n_upper):
        values[n_lower] = parts.upper[i]
        n_lower += 1


@kernel
def _measure(
    table: _CodedTable, codes: AnyIntArray, start: Integer, end: Integer, spread: _Extent,
    number: Integer,
) -> None:  # fmt: skip
    """Measure the range of a part; ``number`` marks the codes seen in it."""
    units, width = table.units, spread.width
    for j in range(width.size):
        offset = table.offsets[j]
        low = high = codes[j, start]
        for code in codes[j, start:end]:  # variables, not array items, are compared in vectors
            low, high = min(low, code), max(high, code)
        spread.low[j], spread.high[j] = low, high
        if units.numeric[j]:
            span = np.int64(table.positions[offset + high]) - table.positions[offset + low]
            width[j] = min(span, units.whole[j])
            continue
        n_values = 0
        for code in codes[j, start:end]:
            if spread.seen_in[offset + code] != number:
                spread.seen_in[offset + code] = number
                n_values += 1
        width[j] = units.step[j] * (n_values - 1)


@kernel
def _find_lower(
    codes: AnyIntArray,
    is_lower: BoolArray,
    low: Integer,
    high: Integer,
    k: Integer,
    is_relaxed: bool,
) -> Integer:
    """Find the lower side of a part, and return its number of records; 0 if no cut is allowed."""
    size = codes.size
    half = (size + 1) // 2
    median: Integer
    n_below: Integer
    n_median: Integer
    n_taken: Integer
    if high - low < 4 * size:
        counts = np.zeros(high - low + 1, dtype=np.int64)
        for code in codes:
            counts[code - low] += 1
        median, n_below = low, 0
        while n_below + counts[median - low] < half:
            n_below += int(counts[median - low])
            median += 1
        n_median = int(counts[median - low])
    else:
        # Sorting would compile for longer than all else here. This takes a look at all codes for
        # each digit of the range.
        median, most = low, high
        while median < most:
            middle = median + (most - median) // 2
            n_upto: Integer = 0
            for code in codes:
                n_upto += np.int64(code <= middle)
            if n_upto < half:
                median = middle + 1
            else:
                most = middle
        n_below, n_median = 0, 0
        for code in codes:
            n_below += np.int64(code < median)
            n_median += np.int64(code == median)
    # The number of records with the median value that go to the lower side.
    n_taken = half - n_below
    if not is_relaxed:
        n_taken = n_median
        below_allowed = n_below >= k and size - n_below >= k
        at_allowed = size - n_below - n_median >= k
        if below_allowed and (not at_allowed or half - n_below < n_below + n_median - half):
            n_taken = 0
    n_lower = n_below + n_taken
    if n_lower < k or size - n_lower < k:
        return 0
    for i in range(size):
        takes = codes[i] == median and n_taken > 0
        n_taken -= int(takes)
        is_lower[i] = codes[i] < median or takes
    return n_lower


NO_CUT = -1

_FEWEST = 8
"""Each side of a cut at a gap has at least this fraction, 1 in ``_FEWEST``, of the records."""


@dataclass(frozen=True)
class PartCut:
    """Where a part is cut in two.

    Attributes
    ----------
    attribute : int
    last : int
        The largest code of the lower side.
    n_lower : int
        Records of the lower side.
    """

    attribute: int
    last: int
    n_lower: int


class PartTree:
    """Which part each record is in, by the cuts that were made.

    Attributes
    ----------
    sizes : list of int
        Records of each node; the first one is the whole table.

    Examples
    --------
    >>> tree = PartTree(5)
    >>> tree.cut(0, PartCut(0, 2, 3))
    (1, 2)
    >>> tree.nodes_of(np.array([[4, 0], [2, 1], [1, 1]])).tolist(), tree.leaves
    ([2, 1, 1], [1, 2])
    """

    def __init__(self, n_records: int) -> None:
        self.sizes = [n_records]
        self._attribute = [NO_CUT]
        self._last = [0]
        self._lower = [0]

    def cut(self, node: int, cut: PartCut) -> tuple[int, int]:
        """Cut a part in two, and return both sides."""
        lower = len(self.sizes)
        self._attribute[node], self._last[node], self._lower[node] = cut.attribute, cut.last, lower
        self.sizes += [cut.n_lower, self.sizes[node] - cut.n_lower]
        for known, value in ((self._attribute, NO_CUT), (self._last, 0), (self._lower, 0)):
            known += [value, value]
        return lower, lower + 1

    def undo(self, node: int) -> None:
        """Undo the cut of a part whose sides are not cut; the numbers of the sides stay unused."""
        self._attribute[node] = NO_CUT

    @property
    def leaves(self) -> list[int]:
        """The parts that are not cut, from the lower to the upper sides."""
        found, stack = [], [0]
        while stack:
            node = stack.pop()
            if self._attribute[node] == NO_CUT:
                found.append(node)
            else:
                stack += [self._lower[node] + 1, self._lower[node]]
        return found

    def nodes_of(self, codes: AnyIntArray) -> IntArray:
        """Return the part of each record.

        Parameters
        ----------
        codes : ndarray of int, shape (n, m)

        Returns
        -------
        ndarray of int64, shape (n,)
        """
        attribute, last, lower = map(np.array, (self._attribute, self._last, self._lower))
        nodes = np.zeros(codes.shape[0], dtype=np.int64)
        while True:
            inside = np.flatnonzero(attribute[nodes] != NO_CUT)
            if not inside.size:
                return nodes
            at = nodes[inside]
            is_upper = codes[inside, attribute[at]] > last[at]
            nodes[inside] = lower[at] + is_upper


@dataclass(frozen=True, eq=False)
class CutDomains:
    """The domains of the attributes, as cuts depend on them.

    Attributes
    ----------
    units : Units
    positions : list of ndarray of int64
        Position in units of each code, attribute by attribute.
    """

    units: Units
    positions: Sequence[IntArray]

    @classmethod
    def of(cls, attributes: Sequence[Attribute]) -> Self:
        """Express domains in units of loss."""
        n_values = [attribute.n_values for attribute in attributes]
        codes = np.minimum(np.arange(max(n_values))[:, np.newaxis], np.array(n_values) - 1)
        ncp = Ncp.of(Microdata(codes.astype(np.int32), tuple(attributes)))
        return cls(ncp.units, [ncp.values[:n, j].astype(np.int64) for j, n in enumerate(n_values)])

    def gaps(self, j: int, there: IntArray) -> IntArray:
        """Return the least loss of a class that spans each two neighboring values.

        Parameters
        ----------
        j : int
            The attribute.
        there : ndarray of int64, shape (n,)
            Codes that occur, ascending.

        Returns
        -------
        ndarray of int64, shape (n - 1,)
        """
        apart: IntArray = np.full(there.size - 1, self.units.step[j], dtype=np.int64)
        if self.units.numeric[j]:
            apart = np.minimum(np.diff(self.positions[j][there]), self.units.whole[j])
        return apart

    def widths(self, counts: Sequence[IntArray]) -> IntArray:
        """Return the loss of a part in each attribute, given its numbers of records by code."""
        found = np.zeros(len(self.positions), dtype=np.int64)
        for j, (positions, its_counts) in enumerate(zip(self.positions, counts, strict=True)):
            there = np.flatnonzero(its_counts)
            if self.units.numeric[j]:
                span = positions[there[-1]] - positions[there[0]]
                found[j] = min(span, self.units.whole[j])
            else:
                found[j] = self.units.step[j] * (there.size - 1)
        return found


def median_cut(domains: CutDomains, counts: Sequence[IntArray], k: int) -> PartCut | None:
    """Cut a part where :func:`.mondrian` does; None if no cut leaves k records on both sides.

    Parameters
    ----------
    domains : CutDomains
    counts : sequence of ndarray of int64, shape (n_values,)
        How many records of the part have each code, attribute by attribute.
    k : int

    Notes
    -----
    **Source:** that of :func:`~kanon_db.algorithms.generalization.mondrian.mondrian`, whose strict
    cuts depend on these counts alone: a table that is cut by this until nothing can be cut has the
    same classes.

    Examples
    --------
    >>> age = Attribute(5, numbers=np.array([20.0, 30, 31, 52, 60]), lower=20, upper=60)
    >>> median_cut(CutDomains.of([age]), [np.array([1, 1, 1, 1, 1])], 2)
    PartCut(attribute=0, last=2, n_lower=3)
    """
    widths = domains.widths(counts)
    while widths.max() > 0:
        widest = int(np.argmax(widths))
        found = _cut_at_median(counts[widest], k)
        if found is not None:
            return PartCut(widest, *found)
        widths[widest] = 0
    return None


def gap_cut(domains: CutDomains, counts: Sequence[IntArray], k: int) -> PartCut | None:
    """Cut a part at the widest gap between neighboring values, or else near the median.

    Parameters
    ----------
    domains : CutDomains
    counts : sequence of ndarray of int64, shape (n_values,)
        As in :func:`median_cut`.
    k : int
        Fewest records on either side. Each side also has at least an eighth of the records, so that
        few cuts make small parts; if that is impossible, the cut is that of :func:`median_cut`.

    Notes
    -----
    A method that grows classes from close records builds few across such a gap, so that searching
    each side by itself misses few; a cut at the median of an attribute with many values splits
    many. The gain is measured under "What parts cost" in docs/howto/spark.md.

    Examples
    --------
    >>> age = Attribute(5, numbers=np.array([20.0, 30, 31, 52, 60]), lower=20, upper=60)
    >>> gap_cut(CutDomains.of([age]), [np.array([1, 1, 1, 1, 1])], 1)
    PartCut(attribute=0, last=2, n_lower=3)
    >>> sex = Attribute(2)
    >>> gap_cut(CutDomains.of([age, sex]), [np.array([1, 1, 1, 1, 1]), np.array([4, 1])], 1)
    PartCut(attribute=1, last=0, n_lower=4)
    """
    size = int(counts[0].sum())
    least, found = max(k, -(-size // _FEWEST)), []
    for j, its_counts in enumerate(counts):
        there = np.flatnonzero(its_counts)
        n_lower = np.cumsum(its_counts[there])[:-1]
        of_smaller, gaps = np.minimum(n_lower, size - n_lower), domains.gaps(j, there)
        found += [
            (gaps[i], of_smaller[i], PartCut(j, int(there[i]), int(n_lower[i])))
            for i in np.flatnonzero(of_smaller >= least)
        ]
    if not found:
        return median_cut(domains, counts, k)
    return max(found, key=itemgetter(0, 1))[2]


def _cut_at_median(counts: IntArray, k: int) -> tuple[int, int] | None:
    """Return the last code of the lower side, and how many records that has."""
    below = np.cumsum(counts)
    size = int(below[-1])
    half = (size + 1) // 2
    median = int(np.searchsorted(below, half))
    n_with = int(below[median])
    n_below = n_with - int(counts[median])
    below_allowed = n_below >= k and size - n_below >= k
    if below_allowed and (size - n_with < k or half - n_below < n_with - half):
        return median - 1, n_below
    return (median, n_with) if size - n_with >= k else None
