"""Cutting a table into cells of similar records, by decisions that do not tell their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np

from kanon_db.algorithms.bucketization.cut_tree import Cut, CutTree
from kanon_db.algorithms.bucketization.cuts import best_cut, divided
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


@dataclass(frozen=True, eq=False)
class Division:
    """A cut of a cell, and the cells on its lower and its upper side."""

    cut: Cut
    sides: tuple[Cell, Cell]


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
        waiting = [(self._grown(), self._whole())] if self._sa_codes.size else []
        done: dict[int, Cell] = {}
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
                    self._sides[place] = (self._grown(), self._grown())
                    waiting += zip(self._sides[place], division.sides, strict=True)
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

    def _whole(self) -> Cell:
        room = self._room(Fraction(1))
        m = len(room.privacy.thresholds)
        if self._weights is None:
            counts = np.bincount(self._sa_codes, minlength=m)
        else:
            counts = np.zeros(m, dtype=np.int64)
            np.add.at(counts, self._sa_codes, self._weights)
        return Cell(np.arange(self._sa_codes.size), counts, Fraction(1), room)

    def _room(self, factor: Fraction) -> Room:
        if factor not in self._rooms:
            self._rooms[factor] = Room(self._tightened(factor), self._max_bucket_size)
        return self._rooms[factor]

    def _division(self, cell: Cell, least: int, pulse: Pulse) -> Division | None:
        """Return the best cut of a cell with enough records on both sides, if any."""
        pulse.beat()
        cut = best_cut(self._qi_codes, cell.records, least, self._weights)
        if cut is None:
            return None
        lower, upper, counts = divided(
            self._qi_codes, self._sa_codes, cell.records, cut, cell.counts.size, self._weights,
            pulse,
        )  # fmt: skip
        return Division(
            cut,
            (replace(cell, records=lower, counts=counts[0]),
             replace(cell, records=upper, counts=counts[1])),
        )  # fmt: skip

    def _first_divisions(self, cells: Sequence[Cell]) -> list[Division | None]:
        """Return the first division of each cell that is looked at, if any."""

        def of(cell: Cell, pulse: Pulse) -> Division | None:
            return self._division(cell, self._least, pulse)

        if sum(cell.records.size for cell in cells) < _FEWEST_IN_THREADS:
            return [of(cell, self._pulse) for cell in cells]
        return in_threads(of, cells, n_cores(), self._pulse.of_part())

    def _cut(self, cell: Cell, division: Division | None) -> tuple[Cell, Division | None]:
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
