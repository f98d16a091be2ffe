"""Assignment in cells: random buckets of neighbors, safe against who knows the algorithm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np

from kanon_db.algorithms.bucketization.cuts import best_cut
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.bucketization.random_assignment import Permuter, assign_randomly
from kanon_db.algorithms.bucketization.setting import BucketSetting
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.ground.sort_keys import sort_keys

Search: TypeAlias = Callable[[IntArray, FPrimePrivacy], BucketSetting]
"""Finds a bucket setting from the number of records of each value, and their thresholds."""

Tightened: TypeAlias = Callable[[Fraction], FPrimePrivacy]
"""Returns the thresholds for a factor by which the odds of a guess may have been raised."""

_FACTORS: Final = tuple(map(Fraction, ("3/2", "5/4", "9/8", "17/16")))
"""A large factor declines fewer cuts that have slack; the first one that can be used is taken."""

_MOST_CELLS: Final = 1500
"""One in so many records is the least on either side of a cut: each cell costs a search."""

_MOST_UNEVEN: Final = 10
"""One in so many records of a cell must lie on either side of a cut that is not sure."""

_NOT_AT_RISK: Final = 2**60


@dataclass(frozen=True, eq=False)
class CellAssignment:
    """A bucket for each record, and the cells that no bucket crosses.

    Parameters
    ----------
    bucket_of_record : ndarray of int32, shape (n_records,)
        0-based bucket numbers; buckets of smaller sizes come first.
    setting : BucketSetting
        How many buckets of which size there are in all cells.
    cell_of_record : ndarray of int32, shape (n_records,)
    tightening : tuple of Fraction
        For each cell, the factor by which declined cuts can have raised the odds of a guess.
        Its buckets keep thresholds that are tightened by as much.
    """

    bucket_of_record: CodeArray
    setting: BucketSetting
    cell_of_record: CodeArray
    tightening: tuple[Fraction, ...]


def assign_in_cells(
    qi_codes: CodeArray,
    sa_codes: CodeArray,
    tightened: Tightened,
    max_bucket_size: int,
    search: Search,
    random: Permuter,
    *,
    least: int = 50,
    pulse: Pulse = UNLIMITED,
) -> CellAssignment:
    """Cut the table into cells of similar records, and assign at random inside each.

    Every record finds a place. Someone who knows the algorithm, all quasi-identifiers and the
    publication, and thinks every microdata that it may come from equally likely, infers no value
    with a probability above its threshold: see Notes.

    Parameters
    ----------
    qi_codes : ndarray of int32, shape (n_records, n_qi)
        Quasi-identifiers as codes from 0; codes of ordered types in the type's order.
    sa_codes : ndarray of int32, shape (n_records,)
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
    thresholds, as :class:`_Room` tells from their histograms. There are two ways to allow a cut:

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
    least = max(least, sa_codes.size // _MOST_CELLS)
    # Neighbors lie next to each other in memory from here on.
    order = np.argsort(sort_keys(list(qi_codes.T)), kind="stable")
    qi_codes, sa_codes = qi_codes[order], sa_codes[order]
    cutter = _Cutter(qi_codes, sa_codes, tightened, max_bucket_size, random, least, pulse)
    bucket_of_record = np.empty(sa_codes.size, dtype=np.int32)
    cell_of_record = np.empty(sa_codes.size, dtype=np.int32)
    tightening: list[Fraction] = []
    n_buckets = 0
    for cell in cutter.cells():
        pulse.beat()
        values, codes, counts = np.unique(
            sa_codes[cell.records], return_inverse=True, return_counts=True
        )
        thresholds = cell.room.privacy
        if values.size < len(thresholds.thresholds):
            thresholds = FPrimePrivacy(tuple(thresholds.thresholds[i] for i in values))
        setting = search(counts, thresholds)
        bucket_of_record[order[cell.records]] = n_buckets + assign_randomly(
            codes.astype(np.int32),
            counts,
            thresholds.occurrence_limits(setting.sizes),
            setting,
            random,
        )
        n_buckets += setting.n_buckets
        cell_of_record[order[cell.records]] = len(tightening)
        tightening.append(cell.factor)
    sizes = np.bincount(bucket_of_record, minlength=n_buckets)
    number = np.empty(n_buckets, dtype=np.int32)
    number[np.argsort(sizes, kind="stable")] = np.arange(n_buckets, dtype=np.int32)
    return CellAssignment(
        number[bucket_of_record],
        BucketSetting(*np.unique(sizes, return_counts=True)),
        cell_of_record,
        tuple(tightening),
    )


class _Room:
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
class _Cell:
    """Some records in the order of their quasi-identifiers, and the thresholds that hold here."""

    records: IntArray
    counts: IntArray
    factor: Fraction
    room: _Room


class _Cutter:
    """Cuts a table, whose records are in the order of their quasi-identifiers, into cells."""

    def __init__(
        self,
        qi_codes: CodeArray,
        sa_codes: CodeArray,
        tightened: Tightened,
        max_bucket_size: int,
        random: Permuter,
        least: int,
        pulse: Pulse,
    ) -> None:
        self._qi_codes = qi_codes
        self._sa_codes = sa_codes
        self._tightened = tightened
        self._max_bucket_size = max_bucket_size
        self._random = random
        self._pulse = pulse
        self._least = least
        self._rooms: dict[Fraction, _Room] = {}

    def cells(self) -> list[_Cell]:
        """Return the cells that are not cut any more."""
        records = np.arange(self._sa_codes.size)
        waiting = [self._cell(records, Fraction(1))] if records.size else []
        done = []
        while waiting:
            self._pulse.beat()
            cell = waiting.pop()
            cell, sides = self._cut(cell)
            if sides:
                waiting += sides
            else:
                done.append(cell)
        return done

    def _cell(self, records: IntArray, factor: Fraction) -> _Cell:
        room = self._room(factor)
        counts = np.bincount(self._sa_codes[records], minlength=len(room.privacy.thresholds))
        return _Cell(records, counts, factor, room)

    def _room(self, factor: Fraction) -> _Room:
        if factor not in self._rooms:
            self._rooms[factor] = _Room(self._tightened(factor), self._max_bucket_size)
        return self._rooms[factor]

    def _cut(self, cell: _Cell) -> tuple[_Cell, list[_Cell]]:
        """Return a cell, tightened by as much as cuts were declined, and its sides if it is cut."""
        least = self._least
        while cut := best_cut(self._qi_codes, cell.records, least):
            self._pulse.beat()
            is_lower = cut.holds(self._qi_codes, cell.records)
            sides = [self._cell(cell.records[side], cell.factor) for side in (is_lower, ~is_lower)]
            slack = min(cell.room.slack(side.counts, cell.counts) for side in sides)
            if slack >= _NOT_AT_RISK:
                return cell, sides
            smaller = min(side.records.size for side in sides)
            is_even = smaller * _MOST_UNEVEN >= cell.records.size
            factor = self._usable_factor(cell) if is_even else None
            if factor is not None:
                if slack >= 0 and not self._declines(factor, slack):
                    return cell, sides
                cell = self._cell(cell.records, cell.factor * factor)
            # The next cut is more even: what lies on its smaller side has more room.
            least = max(least, smaller) * 4 // 3 + 1
        return cell, []

    def _usable_factor(self, cell: _Cell) -> Fraction | None:
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
