"""Measures information loss in whole units: exactly, or as the normalized certainty penalty.

:class:`ExactLoss` lets two losses compare exactly; :class:`Ncp` is what the heuristics minimize.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import lcm
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import (
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
    distinct,
    order_of,
)
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse, kernel
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
from kanon_db.dataclasses import dataclass

Loss = Literal["ncp", "binary"]

NULL = -1
"""Stands for the position of a NULL in a numeric attribute."""

_MAX_EXACT_UNITS = 2**40  # loss of a record, all attributes together
_MAX_DENOMINATOR = 10**6


@dataclass(frozen=True, eq=False)
class ExactLoss:
    """The quasi-identifiers of records, in units in which losses of classes are whole numbers.

    Parameters
    ----------
    values : ndarray of int64, shape (n_records, m)
        Position in the range of a numeric attribute in units, or -1: NULL; code of a categorical
        attribute.
    numeric : ndarray of bool, shape (m,)
    whole : ndarray of int64, shape (m,)
        Loss, in units, of a numeric value that tells nothing.
    of_count : ndarray of int64, shape (m, c)
        Loss, in units, of a set of c values of a categorical attribute, by c.
    unit : Fraction
        What one unit is, where 1 is the loss of a value that tells nothing, times its weight.
    is_exact : bool
        Whether the loss of each value is a whole number of units. Where these would have to be
        too small, it is rounded to the nearest, and only rounded losses compare exactly.

    Notes
    -----
    **Source:** [OB] Definition 4, Eq. (34), Section 2.5; [FF] Section 3 (NCP).

    A numeric attribute loses w (z - y) / (U - L). A set of c of the |H| values of a categorical
    one loses w (c - 1) / (|H| - 1) by ``ncp``. By ``binary`` it stands for |H| attributes with
    values 0 and 1, of weight w / |H| each, and loses w c / |H| if c is at least 2, else nothing.

    Numbers and weights are floating point numbers; each is taken as the simplest fraction that
    rounds to it: 0.2 as 1/5.
    """

    values: IntArray
    numeric: BoolArray
    whole: IntArray
    of_count: IntArray
    unit: Fraction
    is_exact: bool

    @classmethod
    def of(cls, microdata: Microdata, loss: Loss, *, pulse: Pulse = UNLIMITED) -> ExactLoss:
        """Find the largest unit of which every loss is a multiple, and express losses in it.

        Parameters
        ----------
        microdata : Microdata
        loss : {"ncp", "binary"}
        pulse : Pulse
            Only its heartbeat is used: fractions take seconds for a million distinct numbers.

        Returns
        -------
        ExactLoss
        """
        steps = [_steps(attribute, loss, pulse) for attribute in microdata.attributes]
        scale = lcm(*(column.denominator for column in steps))
        largest = sum(column.largest for column in steps)
        is_exact = scale * largest <= _MAX_EXACT_UNITS
        if not is_exact:
            scale = int(_MAX_EXACT_UNITS / max(largest, Fraction(1, _MAX_EXACT_UNITS)))
        units = [column.times(scale) for column in steps]
        numeric = np.array([attribute.is_numeric for attribute in microdata.attributes])
        of_count = np.zeros((numeric.size, max(map(len, units))), dtype=np.int64)
        values = microdata.codes.astype(np.int64)
        whole = np.zeros(numeric.size, dtype=np.int64)
        for j, (attribute, column) in enumerate(zip(microdata.attributes, units, strict=True)):
            whole[j] = column[-1]
            if attribute.numbers is None:
                of_count[j, : column.size] = column
            else:
                positions = np.where(np.isnan(attribute.numbers), NULL, column[:-1])
                values[:, j] = positions[values[:, j]]
        return cls(values, numeric, whole, of_count, Fraction(1, scale), is_exact)

    def of_classes(self, records: IntArray, ends: IntArray) -> IntArray:
        """Loss of classes in units, all records of each together.

        Parameters
        ----------
        records : ndarray of int64, shape (r,)
            Records, class by class.
        ends : ndarray of int64, shape (c,)
            Where the next class begins.

        Returns
        -------
        ndarray of int64, shape (c,)
        """
        losses = _losses(self.values[records], ends, self.numeric, self.whole, self.of_count)
        return losses * np.diff(ends, prepend=0)

    def lower(self, bound: int) -> int:
        """Lower a bound on rounded losses to one on the losses that they stand for.

        Parameters
        ----------
        bound : int
            In units.

        Returns
        -------
        int
            The bound itself, where losses are exact; each cell's is rounded by less than a unit.
        """
        return bound if self.is_exact else max(bound - self.values.size, 0)

    def units_of(self, class_of_record: npt.ArrayLike) -> int:
        """Add up the loss of all records in units.

        Parameters
        ----------
        class_of_record : array_like of int, shape (n_records,)

        Returns
        -------
        int
        """
        classes = np.asarray(class_of_record)
        order = np.argsort(classes, kind="stable")
        ends = np.append(np.flatnonzero(np.diff(classes[order])) + 1, order.size)
        if not order.size:
            return 0
        # A million records of 2**40 units each come close to 64 bits.
        return sum(self.of_classes(order, ends).tolist())

    def total(self, class_of_record: npt.ArrayLike) -> Fraction:
        """Add up the loss of all records.

        Parameters
        ----------
        class_of_record : array_like of int, shape (n_records,)

        Returns
        -------
        Fraction
            Sum over records and attributes, times the attributes' weights.
        """
        return self.units_of(class_of_record) * self.unit


class _Multiples(NamedTuple):
    """Losses at each code's number, and of the whole; or of each number of distinct values."""

    multiples: IntArray | npt.NDArray[np.object_]  # Whole numbers, or else fractions
    of: Fraction
    pulse: Pulse = UNLIMITED

    @property
    def denominator(self) -> int:
        """The least number whose product with each loss is whole."""
        if self.multiples.dtype == np.object_:
            return lcm(*((multiple * self.of).denominator for multiple in self._each))
        return (self._divisor * self.of).denominator

    @property
    def largest(self) -> Fraction:
        """The largest loss, whatever its sign."""
        if self.multiples.dtype == np.object_:
            return max(map(abs, self._each)) * self.of
        ends = [self.multiples.argmin(), self.multiples.argmax()]
        most: int = max(map(abs, self.multiples[ends].tolist()))
        return most * self.of

    def times(self, scale: int) -> IntArray:
        """Multiply, and round what is not whole."""
        factor = self.of * scale
        if self.multiples.dtype == np.object_:
            return np.array([round(multiple * factor) for multiple in self._each], np.int64)
        divisor = self._divisor
        if (divisor * factor).denominator == 1:
            units: IntArray = self.multiples // max(divisor, 1) * int(divisor * factor)
        else:
            units = np.rint(self.multiples * float(factor)).astype(np.int64)
        return units

    @property
    def _each(self) -> Iterator[Fraction]:
        return self.pulse.watched(self.multiples.tolist())

    @property
    def _divisor(self) -> int:
        return int(np.gcd.reduce(self.multiples))


def _steps(attribute: Attribute, loss: Loss, pulse: Pulse) -> _Multiples:
    """Return the losses of one attribute's values."""
    weight = simplest_fraction(attribute.weight)
    if attribute.numbers is None:
        size, counts = attribute.n_values, np.arange(attribute.n_values + 1)
        if loss == "ncp":
            return _Multiples(np.maximum(counts - 1, 0), weight / max(size - 1, 1))
        return _Multiples(np.where(counts > 1, counts, 0), weight / max(size, 1))
    if attribute.upper <= attribute.lower:
        return _Multiples(np.append(np.zeros(attribute.n_values, np.int64), 1), weight)
    distances = _distances(attribute.numbers, attribute.lower, attribute.upper, pulse)
    return _Multiples(distances, weight / Fraction(*distances[-1:].tolist()), pulse)


def _distances(
    numbers: FloatArray, lower: float, upper: float, pulse: Pulse
) -> IntArray | npt.NDArray[np.object_]:
    """Measure each number from the lower bound, and the upper bound last; in any unit."""
    points = np.concatenate([numbers, [upper, lower]])
    points[np.isnan(points)] = lower
    largest = abs(points).max()
    # Millions of numbers of few digits would take minutes as fractions. Up to this limit, no other
    # fraction of small denominator is as near to a number as the decimal that rounds to it.
    for unit in (1, 10, 100, 1000):
        if largest * unit * (1 if unit == 1 else _MAX_DENOMINATOR) >= 2**52:
            break
        nearest = np.rint(points * unit)
        if (nearest / unit == points).all():
            offsets: IntArray = (nearest[:-1] - nearest[-1]).astype(np.int64)
            return offsets
    fractions = [simplest_fraction(number) for number in pulse.watched(points.tolist())]
    first = fractions.pop()
    distances = np.empty(len(fractions), dtype=np.object_)
    distances[:] = [fraction - first for fraction in pulse.watched(fractions)]
    return distances


def simplest_fraction(number: float) -> Fraction:
    """Return the fraction of small denominator that a floating point number stands for."""
    exact = Fraction(number)
    simple = exact.limit_denominator(_MAX_DENOMINATOR)
    return simple if float(simple) == number else exact


@kernel
def _losses(
    values: IntArray,
    ends: IntArray,
    numeric: BoolArray,
    whole: IntArray,
    of_count: IntArray,
) -> IntArray:
    """Loss, in units, of one record of each class; records lie class by class."""
    losses = np.zeros(ends.size, dtype=np.int64)
    seen = np.empty(of_count.shape[1], dtype=np.int64)
    for j in range(numeric.size):
        seen[:] = -1
        start = 0
        for g in range(ends.size):
            if numeric[j]:
                losses[g] += _numeric_loss(values[start : ends[g], j], whole[j])
            else:
                n_distinct = 0
                for i in range(start, ends[g]):
                    if seen[values[i, j]] != g:
                        seen[values[i, j]] = g
                        n_distinct += 1
                losses[g] += of_count[j, n_distinct]
            start = ends[g]
    return losses


@kernel
def _numeric_loss(positions: IntArray, whole: int) -> int:
    smallest = largest = positions[0]
    for position in positions:
        smallest, largest = min(smallest, position), max(largest, position)
    if smallest != NULL:
        return int(largest - smallest)
    return whole if largest != NULL else 0


_MAX_UNITS = 2**29  # loss of a record: positions, NULL's included, and their sums fit 32 bits


class Units(NamedTuple):
    """Losses of the attributes, as compiled code reads them; see :class:`Ncp`."""

    numeric: BoolArray  # (m,)
    whole: IntArray  # (m,)
    step: IntArray


@dataclass(frozen=True, eq=False)
class Ncp:
    """The quasi-identifiers of records as positions and codes, and the loss of generalizing them.

    A class loses ``min(highest - lowest, whole)`` in a numeric attribute, and ``step`` for each
    value but the first in a categorical one. The loss of a class is the sum over its attributes;
    each of its records loses as much.

    Parameters
    ----------
    values : ndarray of int32, shape (n_records, m)
        Position in the range of a numeric attribute in units, NULL lying beyond it by a whole
        range; code of a categorical attribute.
    numeric : ndarray of bool, shape (m,)
    whole : ndarray of int64, shape (m,)
        Loss, in units, of a cell that covers the whole domain; it may be 0 for an attribute with
        one value.
    step : ndarray of int64, shape (m,)
        Loss, in units, of one more value in a set of a categorical attribute; 0 for a numeric one.
    unit : Fraction
        What one unit is, where 1 is the loss of a cell of weight 1 that tells nothing.
    of_suppressed : Fraction
        Loss, in units, of a suppressed record: the weight of all its cells.
    is_exact : bool
        Whether losses are exact.

    Notes
    -----
    **Source:** [FF] Eq. (1) and (2), [OB] Eq. (34) for the weights.

    Losses are exact if no record loses more than 2^29 units, as for whole numbers with ranges of
    some thousands. Otherwise they are rounded down to that many units, and ties may look like
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
    is_exact: bool

    @classmethod
    def of(cls, microdata: Microdata, *, pulse: Pulse = UNLIMITED) -> Ncp:
        """Express the quasi-identifiers of a table in units of loss.

        Parameters
        ----------
        microdata : Microdata
        pulse : Pulse
            Only its heartbeat is used, as in :meth:`ExactLoss.of`.

        Returns
        -------
        Ncp
        """
        # Computed once for each code, which many records have.
        exact = ExactLoss.of(microdata.every_code(), "ncp", pulse=pulse)
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
            exact.is_exact and divisor == 1,
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
