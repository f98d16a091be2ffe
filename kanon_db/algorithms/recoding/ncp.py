"""Normalized certainty penalty in whole units: what the heuristics minimize."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import BoolArray, CodeArray, IntArray
from kanon_db.algorithms.ground.distinct import distinct
from kanon_db.algorithms.ground.sorting import order_of
from kanon_db.algorithms.recoding.exact_loss import NULL, ExactLoss, simplest_fraction
from kanon_db.algorithms.recoding.microdata import Microdata

_MAX_UNITS = 2**29  # loss of a record: positions, NULL's included, and their sums fit 32 bits


class Units(NamedTuple):
    """What an attribute loses, as compiled code reads it; see :class:`Ncp`.

    Parameters
    ----------
    numeric : ndarray of bool, shape (m,)
    whole, step : ndarray of int64, shape (m,)
    """

    numeric: BoolArray
    whole: IntArray
    step: IntArray


@dataclass(frozen=True, eq=False)
class Ncp:
    """The quasi-identifiers of records as positions and codes, and what generalizing them costs.

    A class loses ``min(highest - lowest, whole)`` in a numeric attribute, and ``step`` for each
    value but the first in a categorical one. That of a class is the sum over its attributes, and
    each of its records loses as much.

    Parameters
    ----------
    values : ndarray of int32, shape (n_records, m)
        Position in the range of a numeric attribute in units, NULL lying beyond it by a whole
        range; code of a categorical attribute.
    numeric : ndarray of bool, shape (m,)
    whole : ndarray of int64, shape (m,)
        Loss, in units, of a cell that tells nothing; of an attribute with one value, which always
        tells something, it may be 0.
    step : ndarray of int64, shape (m,)
        Loss, in units, of one more value in a set of a categorical attribute; 0 for a numeric one.
    unit : Fraction
        What one unit is, where 1 is the loss of a cell of weight 1 that tells nothing.
    of_suppressed : Fraction
        Loss, in units, of a suppressed record: the weight of all its cells.

    Notes
    -----
    **Source:** [FF] Eq. (1) and (2), [OB] Eq. (34) for the weights.

    Losses are exact wherever a record loses at most 2^29 units; that is so for whole numbers with
    ranges of some thousands. Else they are rounded down to as much; then ties may be taken for
    differences.

    A NULL lies one whole range above the upper bound. So a class that holds NULL and numbers has
    lost the whole range, and one of NULL alone nothing, by the rule for all other classes.
    """

    values: CodeArray
    numeric: BoolArray
    whole: IntArray
    step: IntArray
    unit: Fraction
    of_suppressed: Fraction

    @classmethod
    def of(cls, microdata: Microdata) -> Ncp:
        """Express the quasi-identifiers of a table in units of loss.

        Parameters
        ----------
        microdata : Microdata

        Returns
        -------
        Ncp
        """
        # Of each code, once: many records have it.
        exact = ExactLoss.of(microdata.every_code(), "ncp")
        n_values = np.array([attribute.n_values for attribute in microdata.attributes])
        whole = np.where(
            exact.numeric, exact.whole, exact.of_count[np.arange(n_values.size), n_values]
        )
        divisor = max(-(-int(whole.sum()) // _MAX_UNITS), 1)
        whole = whole // divisor
        step = np.where(exact.numeric, 0, whole // np.maximum(n_values - 1, 1))
        values = microdata.codes.copy()
        for j in np.flatnonzero(exact.numeric):
            position = exact.values[:, j]
            position = np.where(position == NULL, 2 * whole[j], position // divisor)
            values[:, j] = position.astype(np.int32)[values[:, j]]
        unit = exact.unit * divisor
        weights = [simplest_fraction(attribute.weight) for attribute in microdata.attributes]
        return cls(
            values,
            exact.numeric,
            whole,
            step,
            unit,
            sum(weights, Fraction(0)) / unit,
        )

    @property
    def units(self) -> Units:
        """The loss of each attribute, as compiled code reads it."""
        return Units(self.numeric, self.whole, self.step)

    def of_records(self, records: IntArray) -> Ncp:
        """Take some records, in some order.

        Parameters
        ----------
        records : ndarray of int64

        Returns
        -------
        Ncp
        """
        return replace(self, values=self.values[records])

    def of_classes(self, class_of_record: npt.ArrayLike) -> IntArray:
        """Loss, in units, of one record of each class.

        Parameters
        ----------
        class_of_record : array_like of int, shape (n_records,)
            Classes numbered from 0 without gaps; -1 for a suppressed record.

        Returns
        -------
        ndarray of int64, shape (n_classes,)
        """
        classes = np.asarray(class_of_record, dtype=np.int64)
        n_classes = int(classes.max(initial=-1)) + 1
        order = order_of(classes + 1, stable=True)
        order = order[np.searchsorted(classes[order], 0) :]
        starts = np.searchsorted(classes[order], np.arange(n_classes))
        losses = np.zeros(n_classes, dtype=np.int64)
        if not n_classes:
            return losses
        for j in range(self.numeric.size):
            values = self.values[order, j].astype(np.int64)
            if self.numeric[j]:
                ranges = np.maximum.reduceat(values, starts) - np.minimum.reduceat(values, starts)
                losses += np.minimum(ranges, self.whole[j])
            else:
                n_codes = int(values.max()) + 1
                sets = distinct(classes[order] * n_codes + values) // n_codes
                losses += self.step[j] * (np.bincount(sets, minlength=n_classes) - 1)
        return losses

    def total(self, class_of_record: npt.ArrayLike) -> Fraction:
        """Add up the loss of all records, suppressed ones included.

        Parameters
        ----------
        class_of_record : array_like of int, shape (n_records,)
            As in :meth:`of_classes`.

        Returns
        -------
        Fraction
            Sum over records and attributes of the loss times the attribute's weight; divided by
            both their numbers it is GCP.
        """
        classes = np.asarray(class_of_record, dtype=np.int64)
        sizes = np.bincount(classes + 1, minlength=1)
        kept = sizes[1:].astype(object) @ self.of_classes(classes).astype(object)
        return (int(kept or 0) + int(sizes[0]) * self.of_suppressed) * self.unit
