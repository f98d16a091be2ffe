"""Assignment in cells: random buckets of neighbors, safe against who knows the algorithm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from kanon_db.algorithms.bucketization.assignment import Allotment, partition_records, round_robin
from kanon_db.algorithms.bucketization.cell_cuts import Cell, Cutter, Tightened, fewest_of_cell
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.bucketization.random_assignment import Permuter
from kanon_db.algorithms.bucketization.setting import BucketSetting
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.ground.sort_keys import sort_keys
from kanon_db.algorithms.ground.sorting import order_of

Search: TypeAlias = Callable[[IntArray, FPrimePrivacy], BucketSetting]
"""Finds a bucket setting from the number of records of each value, and their thresholds."""


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
    thresholds, as :class:`.Room` tells from their histograms. There are two ways to allow a cut:

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
    # Neighbors lie next to each other in memory from here on; which of equal ones is first decides
    # nothing.
    order = order_of(sort_keys(list(qi_codes.T)))
    pulse.beat()
    qi_codes, sa_codes = qi_codes[order], sa_codes[order]
    least = fewest_of_cell(sa_codes.size, least)
    cutter = Cutter(qi_codes, sa_codes, tightened, max_bucket_size, random, least, pulse)
    cells = cutter.cells()
    n_values = len(tightened(Fraction(1)).thresholds)
    setting, allotment = allot_cells(cells, search, n_values, pulse=pulse)
    groups = np.empty(sa_codes.size, dtype=np.int32)
    for number, cell in enumerate(cells):
        groups[cell.records] = number
    cell_of_record = np.empty_like(groups)
    cell_of_record[order] = groups
    groups = groups.astype(np.int64) * n_values + sa_codes
    # Records of the same value in the same cell come in random order.
    shuffled = random.permutation(sa_codes.size)
    pulse.beat()
    shuffled = shuffled[order_of(groups[shuffled], stable=True)]
    pulse.beat()
    return CellAssignment(
        allotment.dealt_to(order[shuffled]),
        setting,
        cell_of_record,
        tuple(cell.factor for cell in cells),
    )


@dataclass(frozen=True, eq=False)
class SettledCell:
    """The buckets of a cell.

    Attributes
    ----------
    values : ndarray of int64, shape (m',)
        The sensitive values that it has.
    counts : ndarray of int64, shape (m',)
        Records of each.
    limits : ndarray of int64, shape (m', q)
        Most occurrences of each in a bucket of each size.
    setting : BucketSetting
    """

    values: IntArray
    counts: IntArray
    limits: IntArray
    setting: BucketSetting

    @classmethod
    def of(cls, cell: Cell, search: Search) -> SettledCell:
        """Find the setting of a cell."""
        values = np.flatnonzero(cell.counts)
        counts, thresholds = cell.counts[values], cell.room.privacy
        if values.size < len(thresholds.thresholds):
            thresholds = FPrimePrivacy(tuple(thresholds.thresholds[i] for i in values))
        setting = search(counts, thresholds)
        return cls(values, counts, thresholds.occurrence_limits(setting.sizes), setting)


def allot_cells(
    cells: Sequence[Cell], search: Search, n_values: int, *, pulse: Pulse = UNLIMITED
) -> tuple[BucketSetting, Allotment]:
    """Say to which bucket each record of each cell goes, by its rank.

    Parameters
    ----------
    cells : sequence of Cell
    search : callable
        As for :func:`assign_in_cells`.
    n_values : int
        m.
    pulse : Pulse

    Returns
    -------
    setting : BucketSetting
        Of all cells; buckets are numbered by size, from 0.
    allotment : Allotment
        Its values are ``cell * n_values + value``; ranks are those among the records of a value
        in its cell. Whoever draws them uniformly assigns records as :func:`assign_in_cells` does.

    Raises
    ------
    IneligibleError, InfeasibleError
        As ``search``.
    """
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
    return (
        BucketSetting(*np.unique(sizes, return_counts=True)),
        Allotment(
            *(
                np.concatenate([getattr(allotment, field.name) for allotment in allotments])
                for field in fields(Allotment)
            )
        ),
    )


def numbers_by_size(sizes: IntArray) -> CodeArray:
    """Return the number of each bucket by size, from 0; those of one size stay in their order."""
    numbers = np.empty(sizes.size, dtype=np.int32)
    numbers[np.argsort(sizes, kind="stable")] = np.arange(sizes.size, dtype=np.int32)
    return numbers
