"""Cutting a table into cells of similar records, by decisions that do not tell their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np

from kanon_db.algorithms.bucketization.cut_tree import Cut, CutTree
from kanon_db.algorithms.bucketization.cuts import best_cut
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.bucketization.random_assignment import Permuter
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.ground.threads import in_threads, n_cores

Tightened: TypeAlias = Callable[[Fraction], FPrimePrivacy]
"""Returns the thresholds for a factor by which the odds of a guess may have been raised."""

_FACTORS: Final = tuple(map(Fraction, ("3/2", "5/4", "9/8", "17/16")))
"""A large factor declines fewer cuts that have slack; the first one that can be used is taken."""

_MOST_CELLS: Final = 1500
"""One in so many records is the least on either side of a cut: each cell costs a search."""

_MOST_UNEVEN: Final = 10
"""One in so many records of a cell must lie on either side of a cut that is not sure."""

_FEWEST_IN_THREADS: Final = 2**15
"""Records whose cells are looked at by two threads."""

_NOT_AT_RISK: Final = 2**60


def fewest_of_cell(n_records: int, least: int = 50) -> int:
    """Return the fewest records on either side of a cut of a table."""
    return max(least, n_records // _MOST_CELLS)


class Room:
    """How many records of each value surely find a place in a cell, whatever the others are.

    Dealt round robin, value by value, to B buckets, n records make buckets of floor(n / B) or
    ceil(n / B), and no bucket gets more than ceil(o / B) of the o records of a value. So B times
    the limit of the smaller size has room, [GB] Lemma 2.
    """

    def __init__(self, privacy: FPrimePrivacy, max_bucket_size: int) -> None:
        self.privacy = privacy
        self._max_bucket_size = max_bucket_size
        self._limits: dict[int, IntArray] = {}

    def of(self, n_records: int) -> IntArray:
        """Return the room for each value, of shape (choices of B, m)."""
        fewest = -(-n_records // self._max_bucket_size)
        choices = {fewest, fewest + 1, fewest + 2, fewest * 5 // 4, fewest * 3 // 2, fewest * 2}
        return np.array([self._in(b, n_records) for b in sorted(choices) if b <= n_records])

    def holds(self, counts: IntArray) -> bool:
        """Tell whether a cell with these counts can be put into buckets."""
        return bool((counts <= self.of(int(counts.sum()))).all(axis=1).any())

    def slack(self, side: IntArray, cell: IntArray) -> int:
        """Tell how many records of any value that is at risk a side of a cell could hold more.

        Negative if the side cannot be put into buckets; above every count if it always can.
        """
        n_records = int(side.sum())
        room = self.of(n_records)
        at_risk = np.minimum(cell, n_records) > room
        slack: IntArray = np.where(at_risk, room - side, _NOT_AT_RISK).min(axis=1)
        return int(slack.max())

    def _in(self, n_buckets: int, n_records: int) -> IntArray:
        size = n_records // n_buckets
        if size not in self._limits:
            self._limits[size] = self.privacy.occurrence_limits([size])[:, 0]
        limits = self._limits[size]
        # A threshold of 1 allows a bucket of either size to hold nothing else.
        return np.where(limits == size, n_records, limits * n_buckets)


@dataclass(frozen=True, eq=False)
class Cell:
    """A cell, and the thresholds that hold in it.

    Attributes
    ----------
    records : ndarray of int64
        Its rows, in the order of their quasi-identifiers.
    counts : ndarray of int64, shape (m,)
        Records of each value.
    factor : Fraction
        By how much its thresholds are tightened.
    room : Room
    """

    records: IntArray
    counts: IntArray
    factor: Fraction
    room: Room

    @property
    def n_records(self) -> int:
        """Number of records."""
        return int(self.counts.sum())


class Cutter:
    """Cuts a table, whose records are in the order of their quasi-identifiers, into cells.

    Parameters
    ----------
    qi_codes, sa_codes, tightened, max_bucket_size, random
        As for :func:`~kanon_db.algorithms.bucketization.cells.assign_in_cells`.
    least : int
        Fewest records on either side of a cut.
    pulse : Pulse
    weights : ndarray of int64, shape (n_rows,), optional
        How many records each row stands for, which all lie in the same cell; one by default. The
        decisions are those that would be made of the records themselves.
    """

    def __init__(
        self,
        qi_codes: CodeArray,
        sa_codes: CodeArray,
        tightened: Tightened,
        max_bucket_size: int,
        random: Permuter,
        least: int,
        pulse: Pulse,
        weights: IntArray | None = None,
    ) -> None:
        self._qi_codes = qi_codes
        self._sa_codes = sa_codes
        self._weights = weights
        self._tightened = tightened
        self._max_bucket_size = max_bucket_size
        self._random = random
        self._pulse = pulse
        self._least = least
        self._rooms: dict[Fraction, Room] = {}
        self._found: list[Cut | None] = []
        self._sides: list[tuple[int, int]] = []

    def cells(self) -> list[Cell]:
        """Return the cells that are not cut any more."""
        records = np.arange(self._sa_codes.size)
        waiting = [(self._grown(), self._cell(records, Fraction(1)))] if records.size else []
        done: dict[int, Cell] = {}
        while waiting:
            cuts = self._best_cuts([cell for _, cell in waiting])
            level, waiting = zip(waiting, cuts, strict=True), []
            for (place, cell), first in level:
                self._pulse.beat()
                tightened, cut, sides = self._cut(cell, first)
                if cut is None:
                    done[place] = tightened
                else:
                    self._found[place] = cut
                    self._sides[place] = (self._grown(), self._grown())
                    waiting += zip(self._sides[place], sides, strict=True)
        self._numbers = {place: number for number, place in enumerate(done)}
        return list(done.values())

    def tree(self) -> CutTree:
        """Return the cuts that were made, by which the cell of any record can be found."""
        return CutTree.of(self._found, self._sides, self._numbers)

    def _grown(self) -> int:
        """Add a place to the tree."""
        self._found.append(None)
        self._sides.append((-1, -1))
        return len(self._found) - 1

    def _cell(self, records: IntArray, factor: Fraction) -> Cell:
        room = self._room(factor)
        m = len(room.privacy.thresholds)
        codes = self._sa_codes[records]
        if self._weights is None:
            counts = np.bincount(codes, minlength=m)
        else:
            counts = np.zeros(m, dtype=np.int64)
            np.add.at(counts, codes, self._weights[records])
        return Cell(records, counts, factor, room)

    def _room(self, factor: Fraction) -> Room:
        if factor not in self._rooms:
            self._rooms[factor] = Room(self._tightened(factor), self._max_bucket_size)
        return self._rooms[factor]

    def _best_cuts(self, cells: Sequence[Cell]) -> list[Cut | None]:
        """Return the first cut of each cell that is looked at, if any."""

        def of(some: Sequence[Cell], pulse: Pulse) -> list[Cut | None]:
            cuts = []
            for cell in some:
                pulse.beat()
                cuts.append(best_cut(self._qi_codes, cell.records, self._least, self._weights))
            return cuts

        if sum(cell.records.size for cell in cells) < _FEWEST_IN_THREADS:
            return of(cells, self._pulse)
        cuts: list[Cut | None] = [None] * len(cells)
        halves = cells[::2], cells[1::2]
        cuts[::2], cuts[1::2] = in_threads(of, halves, n_cores(), self._pulse.of_part())
        return cuts

    def _cut(self, cell: Cell, cut: Cut | None) -> tuple[Cell, Cut | None, list[Cell]]:
        """Return a cell, tightened by as much as cuts were declined; its cut and sides, if any."""
        least = self._least
        while cut is not None:
            is_lower = cut.holds(self._qi_codes, cell.records)
            sides = [self._cell(cell.records[side], cell.factor) for side in (is_lower, ~is_lower)]
            slack = min(cell.room.slack(side.counts, cell.counts) for side in sides)
            if slack >= _NOT_AT_RISK:
                return cell, cut, sides
            smaller = min(side.n_records for side in sides)
            is_even = smaller * _MOST_UNEVEN >= cell.n_records
            factor = self._usable_factor(cell) if is_even else None
            if factor is not None:
                if slack >= 0 and not self._declines(factor, slack):
                    return cell, cut, sides
                cell = self._cell(cell.records, cell.factor * factor)
            # The next cut is more even: what lies on its smaller side has more room.
            least = max(least, smaller) * 4 // 3 + 1
            self._pulse.beat()
            cut = best_cut(self._qi_codes, cell.records, least, self._weights)
        return cell, None, []

    def _usable_factor(self, cell: Cell) -> Fraction | None:
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
