"""Row types: identical rows taken together ([PG] Section 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, CodeArray, IntArray
from kanon_db.algorithms.ground.distinct import distinct, numbered
from kanon_db.algorithms.ground.sort_keys import sort_keys
from kanon_db.errors import InvalidParameterError

_MOST_CODES: Final = 2**31


@dataclass(frozen=True, eq=False)
class RowTypes:
    """The distinct rows of a table, with their multiplicities.

    Parameters
    ----------
    codes : ndarray of int32, shape (t, m)
        One row of each type, in lexicographic order. Codes of a column are consecutive from 0, and
        lie side by side.
    counts : ndarray of int64, shape (t,)
        Number of records of each type, at least 1.
    type_of_record : ndarray of int64, shape (n_records,)
        Position of each record's type.

    Examples
    --------
    >>> types = RowTypes.of([[7, 1], [3, 1], [7, 1]])
    >>> types.codes.tolist(), types.counts.tolist(), types.type_of_record.tolist()
    ([[0, 0], [1, 0]], [1, 2], [1, 0, 1])
    """

    codes: CodeArray
    counts: IntArray
    type_of_record: IntArray

    @classmethod
    def of(cls, codes: npt.ArrayLike) -> RowTypes:
        """Find the row types of a table.

        Parameters
        ----------
        codes : array_like of int, shape (n_records, m)
            One code for each quasi-identifier of each record; equal values have equal codes.

        Returns
        -------
        RowTypes

        Raises
        ------
        InvalidParameterError
            If ``codes`` is no such array, or has no column.
        """
        rows = np.asarray(codes)
        if rows.ndim != 2 or not rows.shape[1]:
            raise InvalidParameterError(
                "codes must hold one row for each record and one column for each quasi-identifier",
                detail=f"codes: shape {rows.shape}",
            )
        if not np.issubdtype(rows.dtype, np.integer):
            raise InvalidParameterError(
                "codes must be whole numbers", detail=f"codes: {rows.dtype}"
            )
        type_of_record = numbered(sort_keys(map(_from_zero, rows.T)))
        counts = np.bincount(type_of_record)
        member = np.empty(counts.size, dtype=np.int64)
        member[type_of_record] = np.arange(type_of_record.size)
        representatives = np.empty((rows.shape[1], counts.size), dtype=np.int32)
        for of_types, column in zip(representatives, rows.T, strict=True):
            of_types[:] = numbered(column[member])
        return cls(representatives.T, counts, type_of_record)

    @property
    def n_records(self) -> int:
        """Number of records of all types."""
        return self.type_of_record.size

    def alike(self, types: IntArray, kept: BoolArray) -> IntArray:
        """Give some types numbers, the same to those that agree in the kept columns.

        Parameters
        ----------
        types : ndarray of int64, shape (q,)
        kept : ndarray of bool, shape (m,)

        Returns
        -------
        ndarray of int64, shape (q,)
            As :func:`identical_rows`.
        """
        if not kept.any():
            return np.zeros(types.size, dtype=np.int64)
        return numbered(sort_keys(self.codes[types, column] for column in np.flatnonzero(kept)))


@dataclass(frozen=True, eq=False)
class EntitiesOfTypes:
    """Whom the records of each row type are about, where several can be about the same entity.

    Parameters
    ----------
    types, entities : ndarray of int64, shape (p,)
        The distinct pairs of a row type and an entity that one of its records is about.
    counts : ndarray of int64, shape (t,)
        Entities of each row type, at least 1.

    Examples
    --------
    >>> entities = EntitiesOfTypes.of(np.array([0, 1, 1, 1]), np.array([5, 5, 5, 3]))
    >>> entities.counts.tolist(), entities.of_groups(np.array([0, 1]), np.array([0, 0])).tolist()
    ([1, 2], [2])
    """

    types: IntArray
    entities: IntArray
    counts: IntArray

    @classmethod
    def of(cls, type_of_record: IntArray, entities: AnyIntArray) -> EntitiesOfTypes:
        """Find the entities of each row type.

        Parameters
        ----------
        type_of_record, entities : ndarray of int, shape (n_records,)
            Row types, numbered from 0 without gaps, and entities in [0, 2^31).
        """
        n_entities = int(entities.max(initial=0)) + 1
        pairs = distinct(type_of_record * n_entities + entities)
        types, entities_of_pairs = np.divmod(pairs, n_entities)
        return cls(types, entities_of_pairs, np.bincount(types))

    def of_groups(self, types: IntArray, group: IntArray) -> IntArray:
        """Count the entities of each group of row types.

        Parameters
        ----------
        types, group : ndarray of int64, shape (q,)
            Some row types, and the group of each, numbered from 0 without gaps.

        Returns
        -------
        ndarray of int64, shape (n_groups,)
        """
        group_of_type = np.full(self.counts.size, -1)
        group_of_type[types] = group
        group_of_pair = group_of_type[self.types]
        inside = group_of_pair >= 0
        found = EntitiesOfTypes.of(group_of_pair[inside], self.entities[inside])
        return found.counts


def _from_zero(column: AnyIntArray) -> AnyIntArray:
    """Return codes of a column that can be packed: as they are, or else numbered."""
    if column.min(initial=0) < 0 or column.max(initial=0) >= _MOST_CODES:
        return numbered(column)
    return column


def identical_rows(codes: AnyIntArray) -> IntArray:
    """Give each distinct row of a table a number, in lexicographic order.

    Parameters
    ----------
    codes : ndarray of int, shape (n_records, m)
        Codes in [0, 2^31). Without columns, all rows are identical.

    Returns
    -------
    ndarray of int64, shape (n_records,)
        Equal numbers for equal rows, consecutive from 0.

    Notes
    -----
    The codes of a row are packed into one integer, so that equal numbers mean equal rows, without
    collisions.
    Cost: one sort of n_records integers, as a rule.

    Examples
    --------
    >>> identical_rows(np.array([[5, 2], [0, 9], [5, 2]])).tolist()
    [1, 0, 1]
    """
    if not codes.shape[1]:
        return np.zeros(codes.shape[0], dtype=np.int64)
    return numbered(sort_keys(codes.T))
