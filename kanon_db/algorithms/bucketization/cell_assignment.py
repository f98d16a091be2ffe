"""Assigns records to random buckets inside cells of similar records.

The cuts that make the cells reveal nothing about the sensitive values; :func:`assign_in_cells` has
the proof.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final, Self, TypeAlias

import numpy as np

from kanon_db.algorithms.bucketization.bucket_assignment import (
    Allotment,
    Permuter,
    numbers_by_size,
    partition_records,
    round_robin,
)
from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.bucketization.joint_assignment import JointPlan, SensitiveCombinations
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    CodeArray,
    IntArray,
    narrow,
    order_of,
    sort_keys,
    taken,
)
from kanon_db.algorithms.ground.computation import (
    UNLIMITED,
    Pulse,
    in_threads,
    innermost,
    kernel,
    n_cores,
)
from kanon_db.dataclasses import dataclass


@dataclass(frozen=True)
class Cut:
    """A condition ``code <= last`` on one attribute."""

    attribute: int  # Its position
    last: int  # The last code on the lower side


@dataclass(frozen=True, eq=False)
class CutTree:
    """Binary tree of cuts; a record's cell follows from its quasi-identifiers alone."""

    # (n_places,): the cut at each node, from the root on; arbitrary at a node that is a cell
    attribute: CodeArray
    last: CodeArray
    # (n_places, 2): the nodes of the lower and of the upper side; a cell points to itself
    below: CodeArray
    cell: CodeArray  # (n_places,): the number of the cell; -1 at a node that is cut

    @classmethod
    def of(
        cls,
        cuts: Sequence[Cut | None],
        sides: Sequence[tuple[int, int]],
        numbers: Mapping[int, int],
    ) -> CutTree:
        """Make a tree of each node's cut, the nodes of its sides, and the numbers of cells."""
        return cls(
            np.array([0 if cut is None else cut.attribute for cut in cuts], dtype=np.int32),
            np.array([0 if cut is None else cut.last for cut in cuts], dtype=np.int32),
            np.array(
                [
                    (place, place) if cut is None else children
                    for place, (cut, children) in enumerate(zip(cuts, sides, strict=True))
                ],
                dtype=np.int32,
            ).reshape(-1, 2),
            np.array([numbers.get(place, -1) for place in range(len(cuts))], dtype=np.int32),
        )

    def cell_of(self, codes: CodeArray) -> CodeArray:
        """Find the cells of records, given codes of shape (n_records, n_qi)."""
        places = np.zeros(len(codes), dtype=np.int32)
        records = np.arange(len(codes))
        while (self.cell[places] < 0).any():
            is_upper = codes[records, self.attribute[places]] > self.last[places]
            places = self.below[places, is_upper.astype(np.int8)]
        cells: CodeArray = self.cell[places]
        return cells


_MOST_LOOKED_AT = 2**15
_MOST_COMPARED = 2**23  # records times attributes squared: some dozen milliseconds of work
_DIVIDED_AT_ONCE = 2**21


def best_cut(
    codes: AnyIntArray, records: CodeArray, least: int, weights: IntArray | None = None
) -> Cut | None:
    """Find the cut that reduces the disagreement of all attributes most.

    By Gini impurity (Breiman et al. 1984, chapter 4), sampled if large; depends on codes alone.
    """
    most = min(_MOST_LOOKED_AT, max(1, _MOST_COMPARED // codes.shape[1] ** 2))
    if weights is None:
        stride = -(-records.size // most)
        among = np.ascontiguousarray(records[::stride])
    else:
        ends = np.cumsum(weights[records])
        stride = -(-int(ends[-1]) // most)
        among = records[np.searchsorted(ends, np.arange(0, ends[-1], stride), side="right")]
    least = max(1, least // stride)
    if among.size < 2 * least:
        return None
    looked_at = np.empty((codes.shape[1], among.size), dtype=np.int32)
    lowest, n_codes = np.empty((2, codes.shape[1]), dtype=np.int64)
    _sample(codes, among, looked_at, lowest, n_codes)
    # Codes are few in a small set, however far apart they are.
    kept = {}
    for a in np.flatnonzero(n_codes > 2 * among.size).tolist():
        kept[a], looked_at[a] = np.unique(looked_at[a], return_inverse=True)
        n_codes[a] = kept[a].size
    attribute, last = _best_cut(looked_at, n_codes, least)
    if attribute < 0:
        return None
    return Cut(attribute, int(lowest[attribute] + kept.get(attribute, range(last + 1))[last]))


def divided(
    qi_codes: AnyIntArray,
    sa_codes: AnyIntArray,
    records: CodeArray,
    cut: Cut,
    n_values: int,
    weights: IntArray | None = None,
    pulse: Pulse = UNLIMITED,
) -> tuple[CodeArray, CodeArray, IntArray]:
    """Divide records by a cut, and count the sensitive values on both sides."""
    divided_records = np.empty_like(records)
    counts = np.zeros((2, n_values), dtype=np.int64)
    n_lower = 0
    for start in range(0, records.size, _DIVIDED_AT_ONCE):
        pulse.beat()
        n_lower = _divide(
            qi_codes, cut.attribute, cut.last, sa_codes, records, weights,
            start, min(start + _DIVIDED_AT_ONCE, records.size), n_lower, divided_records, counts,
        )  # fmt: skip
    return divided_records[:n_lower].copy(), divided_records[n_lower:][::-1].copy(), counts


@kernel
def _divide(
    qi_codes: AnyIntArray, attribute: int, last: int, sa_codes: AnyIntArray, records: CodeArray,
    weights: IntArray | None, start: int, end: int, n_lower: int, divided_records: CodeArray,
    counts: IntArray,
) -> int:  # fmt: skip
    """Put lower records at the front and upper ones at the back; return how many are lower."""
    for i in range(start, end):
        record = records[i]
        is_upper = int(qi_codes[record, attribute] > last)
        # Each record is written at both ends, and only one end advances: no branch to mispredict.
        divided_records[n_lower] = record
        divided_records[records.size - 1 - i + n_lower] = record
        n_lower += 1 - is_upper
        counts[is_upper, sa_codes[record]] += 1 if weights is None else weights[record]
    return n_lower


@innermost
def _sample(
    codes: AnyIntArray, records: CodeArray, looked_at: CodeArray, lowest: IntArray,
    n_codes: IntArray,
) -> None:  # fmt: skip
    """Sample records: set their codes above the lowest, the lowest, and the ranges of codes."""
    # The codes of a record lie next to each other, and are read once.
    for i in range(records.size):
        for a in range(codes.shape[1]):
            looked_at[a, i] = codes[records[i], a]
    for a in range(codes.shape[1]):
        low = high = looked_at[a, 0]
        for i in range(records.size):
            low, high = min(low, looked_at[a, i]), max(high, looked_at[a, i])
        lowest[a] = low
        n_codes[a] = np.int64(high) - low + 1
        for i in range(records.size):
            looked_at[a, i] -= low


def _best_cut(codes: CodeArray, n_codes: IntArray, least: int) -> tuple[int, int]:
    """Weigh all cuts of all attributes, given codes of shape (n_qi, n).

    Attributes of one code are left out: they add as much to what is divided as to the sides.
    """
    # What it calls are plain loops, since what numpy does to arrays takes seconds to compile.
    n = codes.shape[1]
    first = np.append(0, np.cumsum(n_codes))  # where the codes of each attribute begin
    totals, squares, lower, shared = np.zeros((4, first[-1]), dtype=np.int64)
    combined = np.zeros(n, dtype=np.int64)
    table, order = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int64)
    best = np.full(2, -1, dtype=np.int64)
    _weigh_cuts(
        codes, n_codes, first, least, totals, combined, table, order, lower, squares, shared, best
    )
    return int(best[0]), int(best[1])


@innermost
def _weigh_cuts(
    codes: CodeArray, n_codes: IntArray, first: IntArray, least: int, totals: IntArray,
    combined: IntArray, table: CodeArray, order: IntArray, lower: IntArray,
    lower_squares: IntArray, shared: IntArray, best: IntArray,
) -> None:  # fmt: skip
    """Set the attribute, and its last lower code, of the best cut; arrays to add to are zeros."""
    # One loop does all of it: a new process takes some milliseconds to load each.
    for a in range(n_codes.size):
        if n_codes[a] > 1:
            for i in range(combined.size):
                totals[first[a] + codes[a, i]] += 1
            for i in range(combined.size):
                combined[i] += totals[first[a] + codes[a, i]]
    _square_lower(codes, n_codes, first, totals, table, order, lower, lower_squares)
    n = combined.size
    squares = 0
    for place in range(totals.size):
        squares += totals[place] * totals[place]  # a power would be a function of numba's
    best_fall = 0.0
    for a in range(n_codes.size):
        if n_codes[a] == 1:
            continue
        for i in range(n):
            shared[first[a] + codes[a, i]] += combined[i]
        n_lower = 0
        n_shared = 0
        for place in range(first[a], first[a + 1] - 1):
            n_lower += totals[place]
            n_shared += shared[place]
            if totals[place] == 0 or n_lower < least or n - n_lower < least:
                continue
            # Where c of all t records with a code are below, (t - c)² = t² - 2 t c + c².
            upper_squares = squares - 2 * n_shared + lower_squares[place]
            fall = lower_squares[place] / n_lower + upper_squares / (n - n_lower) - squares / n
            if fall > best_fall * (1 + 1e-12):
                best_fall = fall
                best[0], best[1] = a, place - first[a]


@innermost
def _square_lower(
    codes: CodeArray, n_codes: IntArray, first: IntArray, totals: IntArray, table: CodeArray,
    order: IntArray, lower: IntArray, squares: IntArray,
) -> None:  # fmt: skip
    """Set, for a cut at each code, the sum of squared counts of all codes below it.

    For two attributes with few codes it follows from a table of their pairs, in one step a record.
    """
    for a in range(n_codes.size):
        if n_codes[a] == 1:
            continue
        n_squared = 0
        has_wide = False
        for place in range(first[a], first[a + 1]):
            n_squared += totals[place] * totals[place]
            squares[place] += n_squared
        for b in range(n_codes.size):
            if b == a or n_codes[b] == 1:
                continue
            if n_codes[a] * n_codes[b] > codes.shape[1]:
                has_wide = True
            elif b < a:
                _add_of_pairs(codes, n_codes, first, a, b, table, lower, squares)
        if has_wide:
            _add_of_records(codes, n_codes, first, a, totals, order, lower, squares)


@innermost
def _add_of_pairs(
    codes: CodeArray, n_codes: IntArray, first: IntArray, a: int, b: int, table: CodeArray,
    lower: IntArray, squares: IntArray,
) -> None:  # fmt: skip
    """Add the squared counts of either attribute's codes below each code of the other."""
    for cell in range(n_codes[a] * n_codes[b]):
        table[cell] = 0
    for i in range(codes.shape[1]):
        table[codes[a, i] * n_codes[b] + codes[b, i]] += 1
    for turn in range(2):
        one, other = (a, b) if turn == 0 else (b, a)
        row, column = (n_codes[b], 1) if turn == 0 else (1, n_codes[b])
        for there in range(n_codes[other]):
            lower[there] = 0
        for code in range(n_codes[one]):
            for there in range(n_codes[other]):
                lower[there] += table[code * row + there * column]
                squares[first[one] + code] += lower[there] * lower[there]


@innermost
def _add_of_records(
    codes: CodeArray, n_codes: IntArray, first: IntArray, a: int, totals: IntArray,
    order: IntArray, lower: IntArray, squares: IntArray,
) -> None:  # fmt: skip
    """Add the same of attributes whose tables of pairs would have more cells than records."""
    # Counting sort: the records of a code end where its place in `lower` has come to.
    n_before = 0
    for place in range(first[a], first[a + 1]):
        lower[place] = n_before
        n_before += totals[place]
    for i in range(order.size):
        place = first[a] + codes[a, i]
        order[lower[place]] = i
        lower[place] += 1
    for place in range(lower.size):
        lower[place] = 0
    below = 0
    begin = 0
    for place in range(first[a], first[a + 1]):
        end = begin + totals[place]
        for b in range(n_codes.size):
            if b != a and n_codes[b] > 1 and n_codes[a] * n_codes[b] > order.size:
                for k in range(begin, end):
                    there = first[b] + codes[b, order[k]]
                    below += 2 * lower[there] + 1  # (c + 1)² = c² + 2 c + 1
                    lower[there] += 1
        begin = end
        squares[place] += below


Tightened: TypeAlias = Callable[[Fraction], FPrimePrivacy]
"""Maps the factor by which the odds of a guess may have been raised to tightened thresholds."""

_FACTORS: Final = tuple(map(Fraction, ("3/2", "5/4", "9/8", "17/16")))
"""Tried in this order: with a larger factor, fewer cuts with slack are declined."""

_MOST_CELLS: Final = 1500
"""Each side of a cut has at least 1 / this of all records, since each cell costs a search."""

_MOST_UNEVEN: Final = 10
"""Each side of a cut that may be declined has at least 1 / this of the cell's records."""

_FEWEST_IN_THREADS: Final = 2**15
"""From this number of records on, two threads search for cuts."""

_NOT_AT_RISK: Final = 2**60


def fewest_records_of_cell(n_records: int, least: int = 50) -> int:
    """Return the fewest records on either side of a cut of a table."""
    return max(least, n_records // _MOST_CELLS)


class CellRoom:
    """How many records of each value fit into the buckets of a cell, whatever the others are."""

    # Dealt round robin to B buckets, no bucket gets more than ceil(o / B) of the o records of a
    # value; so B times the limit of the smaller size always fits ([GB] Lemma 2), also for two
    # attributes (equal_buckets). Values of several attributes follow each other, each counted.

    def __init__(self, privacy: FPrimePrivacy, max_bucket_size: int, n_attributes: int = 1) -> None:
        self.privacy = privacy
        self._max_bucket_size = max_bucket_size
        self._n_attributes = n_attributes

    def n_records(self, counts: IntArray) -> int:
        """Return how many records have these counts of values."""
        return int(counts.sum()) // self._n_attributes

    def of(self, n_records: int) -> IntArray:
        """Return the room for each value, of shape (choices of B, m)."""
        fewest = -(-n_records // self._max_bucket_size)
        choices = {fewest, fewest + 1, fewest + 2, fewest * 5 // 4, fewest * 3 // 2, fewest * 2}
        n_buckets = np.array([[b] for b in sorted(choices) if b <= n_records])
        sizes = n_records // n_buckets
        limits = self.privacy.occurrence_limits(sizes[:, 0]).T
        # A threshold of 1 allows a bucket of either size to hold nothing else.
        room: IntArray = np.where(limits == sizes, n_records, limits * n_buckets)
        return room

    def holds(self, counts: IntArray) -> bool:
        """Tell whether a cell with these counts can be put into buckets."""
        return bool((counts <= self.of(self.n_records(counts))).all(axis=1).any())

    def slack(self, side: IntArray, cell: IntArray) -> int:
        """Return how many more records of any value at risk one side of a cell could hold.

        It is negative if the side cannot be bucketized, and above every count if it always can.
        """
        n_records = self.n_records(side)
        room = self.of(n_records)
        at_risk = np.minimum(cell, n_records) > room
        slack: IntArray = np.where(at_risk, room - side, _NOT_AT_RISK).min(axis=1)
        return int(slack.max())


@dataclass(frozen=True, eq=False)
class CutCell:
    """A cell, and the thresholds that hold in it."""

    records: CodeArray  # Its rows, in the order of their quasi-identifiers
    counts: IntArray  # (m,): records of each value
    factor: Fraction  # By how much its thresholds are tightened
    room: CellRoom

    @property
    def n_records(self) -> int:
        """Number of records."""
        return self.room.n_records(self.counts)


@dataclass(frozen=True, eq=False)
class CellDivision:
    """A cut of a cell, and the cells on its lower and its upper side."""

    cut: Cut
    sides: tuple[CutCell, CutCell]


class CellCutter:
    """Cuts a table, whose records are in the order of their quasi-identifiers, into cells."""

    def __init__(
        self,
        qi_codes: AnyIntArray,
        sa_codes: AnyIntArray,
        tightened: Tightened,
        max_bucket_size: int,
        random: Permuter,
        least: int,  # Fewest records on either side of a cut
        pulse: Pulse,
        weights: IntArray | None = None,
        # (n_codes, n_attributes): where a code is a combination, its values, as positions in the
        # thresholds; otherwise, a code is such a position
        values: IntArray | None = None,
    ) -> None:
        self._qi_codes = qi_codes
        self._sa_codes = sa_codes
        self._values = values
        self._weights = weights
        self._tightened = tightened
        self._max_bucket_size = max_bucket_size
        self._random = random
        self._pulse = pulse
        self._least = least
        self._rooms: dict[Fraction, CellRoom] = {}
        self._found: list[Cut | None] = []
        self._sides: list[tuple[int, int]] = []

    def cells(self) -> list[CutCell]:
        """Return the cells that are not cut any more."""
        waiting = [(self._grow(), self._whole())] if self._sa_codes.size else []
        done: dict[int, CutCell] = {}
        while waiting:
            divisions = self._first_divisions([cell for _, cell in waiting])
            level, waiting = zip(waiting, divisions, strict=True), []
            for (place, cell), first in level:
                self._pulse.beat()
                tightened, division = self._cut(cell, first)
                if division is None:
                    done[place] = tightened
                else:
                    self._found[place] = division.cut
                    self._sides[place] = (self._grow(), self._grow())
                    waiting += zip(self._sides[place], division.sides, strict=True)
        self._numbers = {place: number for number, place in enumerate(done)}
        return list(done.values())

    def tree(self) -> CutTree:
        """Return the cuts that were made, by which the cell of any record can be found."""
        return CutTree.of(self._found, self._sides, self._numbers)

    def _grow(self) -> int:
        """Add a place to the tree."""
        self._found.append(None)
        self._sides.append((-1, -1))
        return len(self._found) - 1

    def _whole(self) -> CutCell:
        room = self._room(Fraction(1))
        if self._weights is None:
            counts = np.bincount(self._sa_codes, minlength=self._n_codes)
        else:
            counts = np.zeros(self._n_codes, dtype=np.int64)
            np.add.at(counts, self._sa_codes, self._weights)
        records = np.arange(self._sa_codes.size, dtype=np.int32)
        return CutCell(records, self._of_values(counts), Fraction(1), room)

    @property
    def _n_codes(self) -> int:
        if self._values is None:
            return len(self._room(Fraction(1)).privacy.thresholds)
        return len(self._values)

    def _of_values(self, counts: IntArray) -> IntArray:
        """Count the values that records with these codes have."""
        if self._values is None:
            return counts
        m = len(self._room(Fraction(1)).privacy.thresholds)
        each = np.repeat(counts, self._values.shape[1])
        return np.bincount(self._values.ravel(), each, m).astype(np.int64)

    def _room(self, factor: Fraction) -> CellRoom:
        if factor not in self._rooms:
            n_attributes = 1 if self._values is None else self._values.shape[1]
            self._rooms[factor] = CellRoom(
                self._tightened(factor), self._max_bucket_size, n_attributes
            )
        return self._rooms[factor]

    def _division(self, cell: CutCell, least: int, pulse: Pulse) -> CellDivision | None:
        """Return the best cut of a cell with enough records on both sides, if any."""
        pulse.beat()
        cut = best_cut(self._qi_codes, cell.records, least, self._weights)
        if cut is None:
            return None
        lower, upper, counts = divided(
            self._qi_codes, self._sa_codes, cell.records, cut, self._n_codes, self._weights,
            pulse,
        )  # fmt: skip
        below, above = map(self._of_values, counts)
        return CellDivision(
            cut,
            (replace(cell, records=lower, counts=below),
             replace(cell, records=upper, counts=above)),
        )  # fmt: skip

    def _first_divisions(self, cells: Sequence[CutCell]) -> list[CellDivision | None]:
        """Return the first division of each cell, if any."""

        def of(cell: CutCell, pulse: Pulse) -> CellDivision | None:
            return self._division(cell, self._least, pulse)

        if sum(cell.records.size for cell in cells) < _FEWEST_IN_THREADS:
            return [of(cell, self._pulse) for cell in cells]
        return in_threads(of, cells, n_cores(), self._pulse.of_part())

    def _cut(
        self, cell: CutCell, division: CellDivision | None
    ) -> tuple[CutCell, CellDivision | None]:
        """Return a cell, tightened by as much as cuts were declined, and its division, if any."""
        least = self._least
        while division is not None:
            sides = division.sides
            slack = min(cell.room.slack(side.counts, cell.counts) for side in sides)
            if slack >= _NOT_AT_RISK:
                break
            smaller = min(side.n_records for side in sides)
            is_even = smaller * _MOST_UNEVEN >= cell.n_records
            factor = self._usable_factor(cell) if is_even else None
            if factor is not None:
                if slack >= 0 and not self._declines(factor, slack):
                    break
                factor *= cell.factor
                cell = replace(cell, factor=factor, room=self._room(factor))
            # The next cut is more even: what lies on its smaller side has more room.
            least = max(least, smaller) * 4 // 3 + 1
            division = self._division(cell, least, self._pulse)
        return cell, division

    def _usable_factor(self, cell: CutCell) -> Fraction | None:
        """Return the first factor by which the thresholds of a cell can be tightened."""
        for factor in _FACTORS:
            if self._room(cell.factor * factor).holds(cell.counts):
                return factor
        return None

    def _declines(self, factor: Fraction, slack: int) -> bool:
        """Draw, with the probability factor^-(slack + 1), exactly."""
        return all(
            self._random.permutation(factor.numerator)[0] < factor.denominator
            for _ in range(slack + 1)
        )


Search: TypeAlias = Callable[[IntArray, FPrimePrivacy], BucketSetting]
"""Finds a bucket setting from the number of records of each value, and their thresholds."""


@dataclass(frozen=True, eq=False)
class CellAssignment:
    """A bucket for each record, and the cells that no bucket crosses."""

    # (n_records,): 0-based bucket numbers; buckets of smaller sizes come first
    bucket_of_record: CodeArray
    setting: BucketSetting  # How many buckets of which size there are in all cells
    cell_of_record: CodeArray
    # For each cell, the factor by which declined cuts can have raised the odds of a guess. Its
    # buckets keep thresholds that are tightened by as much.
    tightening: tuple[Fraction, ...]


def assign_in_cells(
    qi_codes: AnyIntArray,
    sa_codes: AnyIntArray,
    tightened: Tightened,
    max_bucket_size: int,
    search: Search,
    random: Permuter,
    *,
    least: int = 50,
    settle: Callable[..., object] = lambda *_: None,
    pulse: Pulse = UNLIMITED,
) -> CellAssignment:
    """Cut the table into cells of similar records, and assign at random inside each.

    Every record finds a place. Someone who knows the algorithm, all quasi-identifiers and the
    publication, and thinks every microdata that it may come from equally likely, infers no value
    with a probability above its threshold: see Notes.

    Parameters
    ----------
    qi_codes : ndarray of int, shape (n_records, n_qi)
        Quasi-identifiers as codes from 0; codes of ordered types in the type's order.
    sa_codes : ndarray of int, shape (n_records,)
        Position of each record's sensitive value in the thresholds.
    tightened : callable
        Returns the thresholds of the m sensitive values for a factor of at least 1: at most
        those of :meth:`.FPrimePrivacy.tightened`, which they usually are. They follow from the
        histogram of the table.
    max_bucket_size : int
        M', the most records in a bucket.
    search : callable
        Finds the setting of a cell from its counts (all above 0) and its thresholds. It must find
        one if one of at most two neighboring sizes up to ``max_bucket_size`` is valid.
    random : Permuter
        Source of randomness.
    least : int
        Fewest records on either side of a cut, at least 1; one in 1,500 of the table if that is
        more, which bounds the time.
    settle : callable
        Is told the cells, and what is allotted to the buckets of each, before records are drawn.
    pulse : Pulse
        Beaten every few dozen milliseconds of work; what it raises ends the assignment.

    Returns
    -------
    CellAssignment
        A single cell, as with random assignment, where no cut is allowed.

    Raises
    ------
    IneligibleError, InfeasibleError
        As ``search`` for the whole table: whether it is refused follows from its histogram.

    Notes
    -----
    **Source:** our own. That cells are made from quasi-identifiers follows Mondrian (K. LeFevre et
    al., ICDE 2006); that the decisions must not depend on what they hide is the lesson of the
    minimality attack (R. Wong et al., VLDB 2007), and of X. Xiao, Y. Tao, N. Koudas, *Transparent
    anonymization*, TODS 2010.

    Cells are cut in two, from the whole table on, by :func:`.best_cut`, which sees
    quasi-identifiers alone. A cell *can be cut* if both sides can be put into buckets under its
    thresholds, as :class:`.CellRoom` tells from their histograms. A cut is allowed in two cases:

    1. Both sides could be put into buckets *whatever* records of the cell lie there. That follows
       from the cell's own histogram.
    2. Otherwise the cut is *declined* with the probability F^-(s + 1), where s is the slack: how
       many more records of a value the tighter side could hold; if s < 0, always. Then another,
       more even cut is looked for. All thresholds inside the cell are from then on tightened by F,
       see :meth:`.FPrimePrivacy.tightened`; a factor F is used only if the cell can be put into
       buckets under these. If there is none, and if one side has fewer than a tenth of the
       records, the cut is passed over, whatever the slack: that tells nothing, and a few records
       are not worth that all others may be tightened.

    **Theorem.** Let all microdata that are consistent with the publication be equally likely
    before. Then the probability that a record of the bucket g has the value x, given the
    publication and the algorithm, is at most f'_x.

    *Proof.* Fix the cells and the buckets, as sets of records and multisets of values. From them
    follow the histograms of all cells and of all cells that were cut; so also which cuts were
    looked at, which were allowed by 1 or passed over, the slack of each cut that was made, and with
    it the probability that it was made. Settings follow from the histograms (of a search that ran
    out of time, also from the speed of the machine), and given these, which of the records go where
    is drawn uniformly. All this is the same in every microdata D that
    is consistent with the publication. What is not the same is the probability w(D) with which the
    declined cuts were declined: a product of F^-max(0, s(D) + 1) over the declined cuts of cells
    that contain g. Swapping the values of two records of g changes the slack of a cut by at most
    1: each count of a side changes by at most 1, and which values are at risk follows from the
    cell's histogram. So it changes w(D) by at most the product T of these factors. Let c be the
    number of records in g with the value x, P the set of the D in which the record r has it, and
    N the others. Each D in P is one swap away from |g| - c microdata in N, each in N from c in P;
    hence (|g| - c) w(P) <= T c w(N): the odds are at most T times c / (|g| - c). Thresholds were
    tightened by T. So the odds of x are at most f'_x / (1 - f'_x). Without declined cuts T is 1,
    and the probability is c / |g| exactly. ∎

    The records are looked at in an order that follows from their quasi-identifiers, so that the
    order of the source, which may depend on anything, decides nothing.

    Examples
    --------
    >>> from kanon_db.algorithms.bucketization.two_size import two_size
    >>> qi_codes = np.repeat(np.arange(4, dtype=np.int32), 100)[:, np.newaxis]
    >>> sa_codes = np.tile(np.arange(20, dtype=np.int32), 20)
    >>> found = assign_in_cells(
    ...     qi_codes, sa_codes, FPrimePrivacy((Fraction(1, 2),) * 20).tightened, 10,
    ...     lambda counts, privacy: two_size(counts, privacy, 10), np.random.default_rng(0),
    ... )  # fmt: skip
    >>> found.setting.pairs, len(found.tightening)
    (((2, 200),), 4)
    """
    n_values = len(tightened(Fraction(1)).thresholds)
    table = _CutTable.of(qi_codes, sa_codes, tightened, max_bucket_size, random, least, pulse)
    setting, allotment = allot_cells(table.cells, search, n_values, pulse=pulse)
    settle(table.groups, *allotment.arrays)
    buckets = allotment.deal_to(table.shuffle(n_values, random, pulse))
    factors = tuple(cell.factor for cell in table.cells)
    return CellAssignment(buckets, setting, table.cell_of_record, factors)


@dataclass(frozen=True, eq=False)
class _CutTable:
    """Records in the order of their quasi-identifiers, and their cells."""

    order: AnyIntArray  # (n_records,): the places of the records in the source
    codes: AnyIntArray  # (n_records,): of their sensitive values
    groups: CodeArray  # (n_records,): the numbers of their cells
    cells: list[CutCell]

    @classmethod
    def of(
        cls, qi_codes: AnyIntArray, codes: AnyIntArray, tightened: Tightened, max_bucket_size: int,
        random: Permuter, least: int, pulse: Pulse, values: IntArray | None = None,
    ) -> Self:  # fmt: skip
        """Cut a table into cells, in an order that does not depend on how they were cut."""
        # Neighbors lie next to each other in memory from here on, in as few bytes as their codes
        # need; which of equal ones is first decides nothing.
        order = narrow(order_of(sort_keys(list(qi_codes.T))))
        pulse.beat()
        codes = narrow(codes)[order]
        cutter = CellCutter(
            narrow(qi_codes)[order], codes, tightened, max_bucket_size, random,
            fewest_records_of_cell(codes.size, least), pulse, values=values,
        )  # fmt: skip
        cells = sorted(cutter.cells(), key=lambda cell: int(cell.records.min()))
        groups = np.empty(codes.size, dtype=np.int32)
        for number, cell in enumerate(cells):
            groups[cell.records] = number
        return cls(order, codes, groups, cells)

    def shuffle(self, n_codes: int, random: Permuter, pulse: Pulse) -> AnyIntArray:
        """Return the records' places by cell and code, at random among the same."""
        is_long = len(self.cells) * n_codes > np.iinfo(np.int32).max
        groups: AnyIntArray = self.groups.astype(np.int64) if is_long else self.groups
        keys: AnyIntArray = groups * n_codes + self.codes
        shuffled = random.permutation(keys.size)
        pulse.beat()
        by_key = order_of(taken(keys, shuffled), stable=True)
        pulse.beat()
        return taken(self.order, taken(shuffled, by_key))

    @property
    def cell_of_record(self) -> CodeArray:
        """The number of each record's cell, in the order of the source."""
        cells = np.empty_like(self.groups)
        cells[self.order] = self.groups
        return cells


JointSearch: TypeAlias = Callable[[SensitiveCombinations], JointPlan]
"""Finds buckets for a cell's records, from how many have each combination, and thresholds."""


def assign_jointly_in_cells(
    qi_codes: AnyIntArray,
    codes: AnyIntArray,
    values: IntArray,
    tightened: Callable[[Fraction], tuple[FPrimePrivacy, ...]],
    max_bucket_size: int,
    search: JointSearch,
    random: Permuter,
    *,
    least: int = 50,
    settle: Callable[..., object] = lambda *_: None,
    pulse: Pulse = UNLIMITED,
) -> CellAssignment:
    """Cut the table into cells, and assign at random inside each, for several attributes at once.

    Parameters
    ----------
    qi_codes, max_bucket_size, random, least, settle, pulse
        As of :func:`assign_in_cells`.
    codes : ndarray of int, shape (n_records,)
        The combination of each record's sensitive values.
    values : ndarray of int64, shape (n_codes, n_attributes)
        The code of each attribute's value in each combination.
    tightened : callable
        Returns the thresholds of each attribute's values; see :func:`assign_in_cells`.
    search : callable
        Finds the buckets of a cell.

    Raises
    ------
    InfeasibleError
        As ``search``. Of two attributes, it finds buckets for each cell, since :class:`CellRoom`
        tells that there are buckets of neighboring sizes; of more, it may find none for some cell.

    Notes
    -----
    **Theorem.** As of :func:`assign_in_cells`, for the values of each attribute.

    *Proof.* What is decided follows from the histograms of the cells' combinations, as there; also
    that buckets are found. Swapping the combinations of two records changes each count of a side,
    of the values of any attribute, by at most 1, so the slack, which is a least one of all
    attributes, by at most 1. So w(D) changes by a factor of at most T. Let P be the set of
    the consistent microdata in which the record has the value x of one attribute, and N the others:
    as there, each D in P is one swap away from |g| - c in N, each in N from c in P. ∎
    """
    n_values = [len(privacy.thresholds) for privacy in tightened(Fraction(1))]
    offsets = np.cumsum([0, *n_values[:-1]])

    def of_all(factor: Fraction) -> FPrimePrivacy:
        return FPrimePrivacy(
            tuple(threshold for privacy in tightened(factor) for threshold in privacy.thresholds)
        )

    table = _CutTable.of(
        qi_codes, codes, of_all, max_bucket_size, random, least, pulse, values=values + offsets
    )
    plans = []
    for cell in table.cells:
        pulse.beat()
        counts = np.bincount(table.codes[cell.records], minlength=len(values))
        data = SensitiveCombinations(counts, values, tightened(cell.factor)).having(counts)
        plans.append(search(data))
    sizes = [np.repeat(plan.setting.sizes, plan.setting.counts) for plan in plans]
    numbers = numbers_by_size(np.concatenate([np.empty(0, dtype=np.int64), *sizes]))
    firsts = np.cumsum([0, *(own.size for own in sizes)])
    dealt = [np.empty(0, dtype=np.int32)]
    dealt += [plan.buckets + first for plan, first in zip(plans, firsts[:-1], strict=True)]
    of_ranks = numbers[np.concatenate(dealt)]
    settle(table.groups, of_ranks)
    buckets = np.empty(codes.size, dtype=np.int32)
    buckets[table.shuffle(len(values), random, pulse)] = of_ranks
    return CellAssignment(
        buckets,
        BucketSetting.of(*np.unique(np.concatenate(sizes), return_counts=True))
        if sizes
        else BucketSetting.of([], []),
        table.cell_of_record,
        tuple(cell.factor for cell in table.cells),
    )


@dataclass(frozen=True, eq=False)
class SettledCell:
    """The buckets of a cell."""

    values: IntArray  # (m',): the sensitive values that it has
    counts: IntArray  # (m',): records of each
    limits: IntArray  # (m', q): most occurrences of each in a bucket of each size
    setting: BucketSetting

    @classmethod
    def of(cls, cell: CutCell, search: Search) -> SettledCell:
        """Find the setting of a cell."""
        values = np.flatnonzero(cell.counts)
        counts, thresholds = cell.counts[values], cell.room.privacy
        if values.size < len(thresholds.thresholds):
            thresholds = thresholds.of_values(values)
        setting = search(counts, thresholds)
        return cls(values, counts, thresholds.occurrence_limits(setting.sizes), setting)


def allot_cells(
    cells: Sequence[CutCell], search: Search, n_values: int, *, pulse: Pulse = UNLIMITED
) -> tuple[BucketSetting, Allotment]:
    """Allot the records of each cell to buckets, by their ranks."""
    settled = []
    for cell in cells:
        pulse.beat()
        settled.append(SettledCell.of(cell, search))
    firsts = np.cumsum([0, *(own.setting.n_buckets for own in settled)])
    if not settled:
        return BucketSetting.of([], []), round_robin(np.zeros((0, 0)), BucketSetting.of([], []))
    sizes = np.concatenate([np.repeat(own.setting.sizes, own.setting.counts) for own in settled])
    numbers = numbers_by_size(sizes)
    allotments = []
    for number, (own, first) in enumerate(zip(settled, firsts[:-1].tolist(), strict=True)):
        allotment = round_robin(partition_records(own.counts, own.limits, own.setting), own.setting)
        # The buckets of one size in a cell follow each other in the whole table, too.
        allotments.append(
            replace(
                allotment,
                value=number * n_values + own.values[allotment.value],
                first_bucket=numbers[first + allotment.first_bucket].astype(np.int64),
            )
        )
    columns = zip(*(allotment.arrays for allotment in allotments), strict=True)
    return (
        BucketSetting(*np.unique(sizes, return_counts=True)),
        Allotment(*map(np.concatenate, columns)),
    )
