"""What becomes of the records that the greedy heuristic leaves over."""

from __future__ import annotations

from itertools import chain
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray
from kanon_db.algorithms.ground.distinct import numbered
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.ground.sort_keys import sort_keys
from kanon_db.algorithms.suppression.greedy import LEFT_OVER, Suppression, checked_types
from kanon_db.errors import InfeasibleError


class Permuting(Protocol):
    """A source of random orders, such as numpy's Generator."""

    def permutation(self, n: int, /) -> AnyIntArray:
        """Return a uniformly random order of ``0 … n-1``."""


def join_left_over(
    codes: npt.ArrayLike,
    suppression: Suppression,
    k: int,
    random: Permuting,
    *,
    pulse: Pulse = UNLIMITED,
) -> Suppression:
    """Let the left-over records join others, so that each shares what is kept with k records.

    All left-over records get one pattern, in whose kept columns they agree. With them go records
    that agree there, too, from other classes, of which at least k records stay, or none. Of all
    ways to make such a group, one of least cost is chosen; which records of a class go is drawn at
    random.

    Parameters
    ----------
    codes : array_like of int, shape (n_records, m)
        One code for each quasi-identifier of each record; equal values have equal codes.
    suppression : Suppression
        What :func:`~kanon_db.algorithms.suppression.greedy.greedy` has found for the same codes
        and k.
    k : int
        Fewest records that share what is kept of them, at least 1.
    random : Permuting
        Draws the records that go.
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
    follows from the quasi-identifiers, so that anyone who knows these knows whose rows they are.

    No left-over record can join a class as it is: it would have been in it from the beginning. For
    the same reason, fewer records than are missing to k fit from classes whose patterns cost more
    than the group's. So it costs least to take just as many as are missing, the cheapest first, or
    else all of one class. That is the least for one group and the other records as they are;
    :func:`~kanon_db.algorithms.suppression.optimal.optimal` finds the least of all suppressions.

    Cost: one pass over the row types for each pattern in whose kept columns the left-over records
    agree, the cheapest first, until no later one can cost less.

    Examples
    --------
    >>> from kanon_db.algorithms.suppression.greedy import greedy
    >>> from kanon_db.algorithms.suppression.patterns import parse_patterns
    >>> rows = [[1, 1], [1, 1], [1, 1], [1, 2]]
    >>> found = greedy(rows, parse_patterns(["..", ".*", "**"], 2), 2)
    >>> found.pattern_of_record.tolist()
    [0, 0, 0, -1]
    >>> joined = join_left_over(rows, found, 2, np.random.default_rng(1))
    >>> sorted(joined.pattern_of_record[:3].tolist()), int(joined.pattern_of_record[3])
    ([0, 0, 1], 1)
    """
    patterns, n_left = suppression.patterns, suppression.n_left_over
    types = checked_types(codes, patterns, k)
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

    # As in the patterns' masks: the columns in which each type is like all left-over records.
    bits = 1 << np.arange(patterns.n_columns - 1, -1, -1, dtype=np.int64)
    one = types.codes[is_left][0]
    agreed = int((types.codes[is_left] == one).all(axis=0) @ bits)
    alike = (types.codes == one) @ bits
    least, position, taken = np.inf, -1, np.zeros_like(sizes)
    kept_columns = (~patterns.masks & bits.sum()).tolist()
    for number, (kept, cost) in enumerate(zip(kept_columns, patterns.costs.tolist(), strict=True)):
        if n_left * cost + missing * (cost - int(costs.max())) >= least:
            break
        if kept & ~agreed:
            continue
        pulse.beat()
        fits = ~is_left & (alike & kept == kept)
        n_fitting = np.bincount(class_of_type[fits], types.counts[fits], sizes.size)
        for given in _donors(cost - costs, n_fitting.astype(np.int64), sizes, k, missing):
            total = n_left * cost + int(given @ (cost - costs))
            if total < least:
                least, position, taken = total, number, given

    fits = ~is_left & (alike & kept_columns[position] == kept_columns[position])
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


def _donors(
    extra: IntArray, n_fitting: IntArray, sizes: IntArray, k: int, missing: int
) -> list[IntArray]:
    """Say how many records each class gives: as few as are missing, or one class gives all of its.

    Parameters
    ----------
    extra : ndarray of int64, shape (n_classes,)
        What one more record from each class costs.
    n_fitting, sizes : ndarray of int64, shape (n_classes,)
        How many of its records fit, and how many it has.

    Returns
    -------
    list of ndarray of int64, shape (n_classes,)
        The cheapest way of either kind, where there is one.
    """
    ways = []
    room = np.minimum(n_fitting, sizes - k)
    if room.sum() >= missing:
        order = np.argsort(extra, kind="stable")
        before = np.cumsum(room[order]) - room[order]
        few = np.empty_like(room)
        few[order] = np.clip(missing - before, 0, room[order])
        ways.append(few)
    whole = np.flatnonzero(n_fitting == sizes)
    if whole.size:
        giver = whole[np.argmin((extra * sizes)[whole])]
        ways.append(np.where(np.arange(sizes.size) == giver, sizes, 0))
    return ways


def _draw(records: IntArray, classes: IntArray, taken: IntArray, random: Permuting) -> IntArray:
    """Draw so many of each class's records."""
    order = random.permutation(records.size)
    order = order[np.argsort(classes[order], kind="stable")]
    first = np.searchsorted(classes[order], np.arange(taken.size))
    place = np.arange(order.size) - first[classes[order]]
    drawn: IntArray = records[order[place < taken[classes[order]]]]
    return drawn
