"""Distinct records, and what a class of them loses."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, IntArray
from kanon_db.algorithms.recoding.exact_loss import NULL, ExactLoss

_BITS = 64


class DistinctRecords(NamedTuple):
    """Distinct records and how often each occurs; the fields are those of ExactLoss.

    Parameters
    ----------
    values : ndarray of int64, shape (t, m)
    copies : ndarray of int64, shape (t,)
        Records of each type.
    numeric : ndarray of bool, shape (m,)
    whole : ndarray of int64, shape (m,)
    of_count : ndarray of int64, shape (m, c)
    """

    values: IntArray
    copies: IntArray
    numeric: BoolArray
    whole: IntArray
    of_count: IntArray

    @classmethod
    def of(cls, loss: ExactLoss, records: IntArray) -> DistinctRecords:
        """Find the distinct ones of some records.

        Parameters
        ----------
        loss : ExactLoss
        records : ndarray of int64, shape (r,)
            Equal records in a row: the first ``copies[0]`` are of the first type, and so on.

        Returns
        -------
        DistinctRecords
        """
        values = loss.values[records]
        first = np.flatnonzero(np.append(True, (values[1:] != values[:-1]).any(axis=1)))
        copies = np.diff(first, append=records.size)
        values = values[first]
        if loss.of_count.shape[1] > _BITS:
            values = _dense(values, loss.numeric)
        return cls(values, copies, loss.numeric, loss.whole, loss.of_count)

    def take(self, order: IntArray) -> DistinctRecords:
        """Return these types in this order."""
        return self._replace(values=self.values[order], copies=self.copies[order])

    def scaled(self, factor: int) -> DistinctRecords:
        """Return the same types with losses in units smaller by a factor."""
        positions = self.numeric & (self.values != NULL)
        values = np.where(positions, self.values * factor, self.values)
        whole, of_count = self.whole * factor, self.of_count * factor
        return self._replace(values=values, whole=whole, of_count=of_count)

    @property
    def largest_loss(self) -> int:
        """Loss of one record that tells nothing."""
        return int(np.where(self.numeric, self.whole, self.of_count.max(axis=1)).sum())


def _dense(values: IntArray, numeric: BoolArray) -> IntArray:
    """Give the categories that occur numbers from 0, so that bit sets of them are short."""
    dense = values.copy()
    for j in np.flatnonzero(~numeric):
        dense[:, j] = np.unique(values[:, j], return_inverse=True)[1].reshape(-1)
    return dense


@numba.njit(cache=True, nogil=True)
def loss_of_pair(types: DistinctRecords, t: int, u: int) -> int:
    """Loss of a record of type t in a class with one of type u.

    Parameters
    ----------
    types : DistinctRecords
    t, u : int

    Returns
    -------
    int
    """
    loss = 0
    for j in range(types.numeric.size):
        a, b = types.values[t, j], types.values[u, j]
        if not types.numeric[j]:
            loss += types.of_count[j, 1 if a == b else 2]
        elif a != b:
            loss += types.whole[j] if a == NULL or b == NULL else abs(a - b)
    return loss
