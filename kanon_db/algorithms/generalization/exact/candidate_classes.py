"""Classes to choose from, and inequalities on which of them go together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, IntArray

NO_LIMIT = 2**62
"""A loss or reduced cost above any other."""


@dataclass(frozen=True, eq=False)
class CandidateClasses:
    """Classes of records, by the types of these.

    Parameters
    ----------
    members : ndarray of int64, shape (c, 2k - 1)
        Types of each class, once for each record, filled up with -1.
    sizes : ndarray of int64, shape (c,)
    losses : ndarray of int64, shape (c,)
        Loss of all records of the class in units.
    """

    members: IntArray
    sizes: IntArray
    losses: IntArray

    def __len__(self) -> int:
        return self.sizes.size

    def take(self, which: IntArray | BoolArray) -> CandidateClasses:
        """Return some of these classes."""
        return CandidateClasses(self.members[which], self.sizes[which], self.losses[which])

    def of_records(self) -> IntArray:
        """Tell the class of each record, type by type, of classes that hold each record once."""
        members = self.members.reshape(-1)
        class_of_member = np.repeat(np.arange(len(self)), self.members.shape[1])
        is_record = members >= 0
        order = np.argsort(members[is_record], kind="stable")
        return class_of_member[is_record][order]


class PairCuts(NamedTuple):
    """Sets of types, of whose records not all pairs can be within classes.

    A class with c records of a set holds c // 2 pairs of it, and all classes together at most
    half of the set's records.

    Parameters
    ----------
    members : ndarray of int64, shape (s, 3)
        Types of each set.
    prices : ndarray of int64, shape (s,)
        What a pair costs, in units, at least 0.
    starts : ndarray of int64, shape (t + 1,)
    of_type : ndarray of int64, shape (3 s,)
        Sets of type i are ``of_type[starts[i] : starts[i + 1]]``.

    Notes
    -----
    **Source:** subset-row inequalities of three rows (Jepsen, Petersen, Spoorendonk, Pisinger
    2008), valid by rounding half the sum of the rows.
    """

    members: IntArray
    prices: IntArray
    starts: IntArray
    of_type: IntArray

    @classmethod
    def of(cls, members: IntArray, prices: IntArray, n_types: int) -> PairCuts:
        """Index the sets by their types."""
        flat = members.reshape(-1)
        order = np.argsort(flat, kind="stable")
        starts = np.searchsorted(flat[order], np.arange(n_types + 1))
        return cls(members, prices, starts, order // max(members.shape[1], 1))

    def worth(self, copies: IntArray) -> int:
        """Add up the prices of all pairs that there can be."""
        return int(self.prices @ (copies[self.members].sum(axis=1) // 2))

    @classmethod
    def none(cls, n_types: int) -> PairCuts:
        """No sets at all."""
        return cls.of(np.zeros((0, 3), dtype=np.int64), np.zeros(0, dtype=np.int64), n_types)
