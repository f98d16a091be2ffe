"""The restricted master problem of column generation.

That is the linear relaxation of set partitioning over the classes generated so far. Columns and
rows are added as the search goes on, so that HiGHS is given them directly.
"""

from __future__ import annotations

from typing import NamedTuple

import highspy
import numba
import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.generalization.exact.candidate_classes import CandidateClasses, PairCuts
from kanon_db.algorithms.generalization.exact.distinct_records import DistinctRecords
from kanon_db.algorithms.ground.arrays import CodeArray, FloatArray, IntArray, SmallIntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.ground.solver import new_solver, run

_LEAST_VIOLATION = 0.02
_CUTS_PER_ROUND = 60
_MAX_FOUND = 20_000
_POSITIVE = 1e-7


class Duals(NamedTuple):
    """Dual values in units.

    Parameters
    ----------
    types : ndarray of int64, shape (t,)
        Of a record of each type.
    price : int
        Of a class, at least 0.
    cuts : PairCuts
        Inequalities with their prices.
    """

    types: IntArray
    price: int
    cuts: PairCuts

    def bound(self, copies: IntArray, most_classes: int) -> int:
        """Bound the loss of a partition from below, if no class has a reduced cost below 0.

        Parameters
        ----------
        copies : ndarray of int64, shape (t,)
        most_classes : int

        Returns
        -------
        int
        """
        return int(self.types @ copies) - self.price * most_classes - self.cuts.worth(copies)


class RestrictedMaster:
    """Choose classes, or fractions of them, that hold every record once, at the least loss.

    Parameters
    ----------
    types : DistinctRecords
    k : int

    Notes
    -----
    It begins with one class for each type, dearer than any, that holds nothing but one record.
    There are at most n // k classes: without saying so, the linear program has n / k of them,
    which makes a difference where k does not divide a small n.
    """

    def __init__(self, types: DistinctRecords, k: int) -> None:
        n_types = types.copies.size
        self._copies = types.copies
        # Losses are around 1 for the solver.
        self._scale = 1 / max(types.largest_loss, 1)
        self._counts = np.eye(n_types, dtype=np.int16)
        self._cuts = np.zeros((0, 3), dtype=np.int64)
        self._known: set[bytes] = set()
        self._highs = highs = new_solver()
        nothing = np.zeros(0)
        copies = types.copies.astype(np.float64)
        highs.addRows(n_types, copies, copies, 0, _int32([0] * n_types), _int32([]), nothing)
        most_classes = float(int(types.copies.sum()) // k)
        highs.addRow(-highspy.kHighsInf, most_classes, 0, _int32([]), nothing)
        dearest = np.full(n_types, 2.0 * k)
        self._add_columns(dearest, np.arange(n_types), np.arange(n_types), np.ones(n_types))

    def __len__(self) -> int:
        return self._counts.shape[1] - self._copies.size

    def add(self, classes: CandidateClasses) -> bool:
        """Add classes to choose from.

        Parameters
        ----------
        classes : CandidateClasses

        Returns
        -------
        bool
            Whether there were any new ones. By the tolerances of the solver, the reduced cost of
            one that it has may seem to be below 0.
        """
        keys = [row.tobytes() for row in np.sort(classes.members, axis=1)]
        new = np.array([key not in self._known for key in keys], dtype=np.bool_)
        if not new.any():
            return False
        self._known.update(keys)
        classes = classes.take(new)
        n_types, n_classes = self._copies.size, len(classes)
        counts = np.zeros((n_types + 1, n_classes), dtype=np.int16)
        for member in classes.members.T:
            counts[member, np.arange(n_classes)] += 1
        counts = counts[:-1]
        ones = np.ones((1, n_classes), dtype=np.int16)
        rows = np.concatenate([counts, ones, counts[self._cuts].sum(axis=1) // 2])
        column, row = np.nonzero(rows.T)
        starts = np.searchsorted(column, np.arange(n_classes))
        self._add_columns(classes.losses * self._scale, starts, row, rows[row, column])
        self._counts = np.concatenate([self._counts, counts], axis=1)
        return True

    def solve(self, pulse: Pulse) -> Duals:
        """Solve the linear program to its end.

        Parameters
        ----------
        pulse : Pulse
            Beaten every few milliseconds.

        Returns
        -------
        Duals
        """
        run(self._highs, pulse)
        duals = np.array(self._highs.getSolution().row_dual) / self._scale
        whole = np.rint(duals).astype(np.int64)
        n_types = self._copies.size
        price, prices = np.split(np.maximum(-whole[n_types:], 0), [1])
        active = prices > 0
        cuts = PairCuts.of(self._cuts[active], prices[active], n_types)
        return Duals(whole[:n_types], int(price[0]), cuts)

    def add_cuts(self) -> bool:
        """Add the inequalities that the solution violates most; tell whether there are any."""
        chosen = np.array(self._highs.getSolution().col_value)
        positive = np.flatnonzero(chosen > _POSITIVE)
        counts = np.ascontiguousarray(self._counts[:, positive])
        found = np.zeros((_MAX_FOUND, 3), dtype=np.int64)
        violations = np.zeros(_MAX_FOUND)
        n = _separate(counts, chosen[positive], self._copies, found, violations)
        order = np.argsort(-violations[:n], kind="stable")
        # Many violated inequalities share types; those of a few of them are enough.
        uses = np.zeros(self._copies.size, dtype=np.int64)
        most = max(5, 6 * _CUTS_PER_ROUND // uses.size)
        added: list[IntArray] = []
        for members in found[order]:
            if (uses[members] < most).all() and len(added) < _CUTS_PER_ROUND:
                uses[members] += 1
                added.append(members)
        for members in added:
            pairs = self._counts[members].sum(axis=0) // 2
            columns = np.flatnonzero(pairs)
            self._highs.addRow(
                -highspy.kHighsInf,
                float(self._copies[members].sum() // 2),
                columns.size,
                _int32(columns),
                pairs[columns].astype(np.float64),
            )
        self._cuts = np.concatenate([self._cuts, np.array(added, dtype=np.int64).reshape(-1, 3)])
        return bool(added)

    def _add_columns(
        self,
        costs: npt.NDArray[np.floating],
        starts: IntArray,
        rows: IntArray,
        values: npt.NDArray[np.number],
    ) -> None:
        n = costs.size
        unlimited = np.full(n, highspy.kHighsInf)
        self._highs.addCols(
            n,
            costs.astype(np.float64),
            np.zeros(n),
            unlimited,
            rows.size,
            _int32(starts),
            _int32(rows),
            values.astype(np.float64),
        )


def _int32(values: npt.ArrayLike) -> CodeArray:
    return np.asarray(values, dtype=np.int32)


@numba.njit(cache=True, nogil=True)
def _separate(
    counts: SmallIntArray,
    chosen: FloatArray,
    copies: IntArray,
    found: IntArray,
    violations: FloatArray,
) -> int:
    """Find sets of three types with more pairs within the chosen classes than there can be."""
    n_types, n_classes = counts.shape
    together = np.zeros((n_types, n_types))
    for c in range(n_classes):
        for a in range(n_types):
            if counts[a, c] > 0:
                for b in range(n_types):
                    if b != a and counts[b, c] > 0:
                        together[a, b] += chosen[c]
    n = 0
    for a in range(n_types):
        for b in range(n_types):
            if together[a, b] == 0:
                continue
            for c in range(b + 1, n_types):
                # One of the three is with both others; it is a, the first such one.
                if together[a, c] == 0 or (together[b, c] > 0 and a > b):
                    continue
                n_records = copies[a] + copies[b] + copies[c]
                if n_records % 2 == 0:
                    continue
                violation = -float(n_records // 2)
                for i in range(n_classes):
                    violation += chosen[i] * ((counts[a, i] + counts[b, i] + counts[c, i]) // 2)
                if violation > _LEAST_VIOLATION and n < violations.size:
                    found[n, 0], found[n, 1], found[n, 2] = a, b, c
                    violations[n] = violation
                    n += 1
    return n
