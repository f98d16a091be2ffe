"""Measures how easily records are found again, from the sizes of their classes alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from kanon_db.algorithms.ground.arrays import FloatArray
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError


@dataclass(frozen=True)
class ReidentificationRisk:
    """How likely it is that somebody who looks for a record picks the right one.

    Parameters
    ----------
    highest : float
        Of the record that is found most easily, in [0, 1].
    average : float
        The mean over all records.
    at_risk : float
        Share of the records that are found with a probability of more than 1/k.
    """

    highest: float
    average: float
    at_risk: float


def prosecutor_risk(
    sizes: ArrayLike, *, k: float, times: ArrayLike | None = None
) -> ReidentificationRisk:
    """Measure the risk from someone who looks for a person known to be in the table.

    The chance to pick the right one of the f records of a class is 1/f.

    Parameters
    ----------
    sizes : array of numbers, shape (n_classes,)
        How many records (or people) are alike in all quasi-identifiers: f, at least 1.
    k : float
        Records in classes of fewer are at risk.
    times : array of numbers, shape (n_classes,), optional
        How many classes each of `sizes` stands for, as in a histogram; 1 by default.

    Returns
    -------
    ReidentificationRisk
        All 0 if there are no records.

    Raises
    ------
    InvalidParameterError
        If a size is below 1, or the arrays do not fit each other.

    Notes
    -----
    **Source:** K. El Emam, *Guide to the De-Identification of Personal Health Information*, CRC
    Press 2013, Chapter 16: pR_b, pR_c and pR_a. ISO/IEC 27559:2022 asks for the same figures of
    equivalence classes, the highest for public releases and the average for known recipients.

    Examples
    --------
    >>> prosecutor_risk([1, 4, 5], k=5)
    ReidentificationRisk(highest=1.0, average=0.3, at_risk=0.5)
    """
    return journalist_risk(sizes, sizes, k=k, times=times)


def journalist_risk(
    sizes: ArrayLike, population: ArrayLike, *, k: float, times: ArrayLike | None = None
) -> ReidentificationRisk:
    """Measure the risk from someone who picks any record and looks for it in the population.

    The table is a sample, and nobody knows who is in it. The F people of the population who are
    alike in all quasi-identifiers are confused with each other, so that the chance is 1/F. Where
    all F are at least k, the table is k-mapped.

    Parameters
    ----------
    sizes : array of numbers, shape (n_classes,)
        Records of each class in the table, f.
    population : array of numbers, shape (n_classes,)
        People of each class in the population, F, at least f each.
    k : float
        Records in classes of fewer people of the population are at risk.
    times : array of numbers, shape (n_classes,), optional
        As for :func:`prosecutor_risk`.

    Returns
    -------
    ReidentificationRisk
        All 0 if there are no records.

    Raises
    ------
    InvalidParameterError
        As :func:`prosecutor_risk`, and if a class has more records than people.

    Notes
    -----
    **Source:** El Emam 2013, Chapter 16: jR_b, jR_c and jR_a. The average is the greater one of
    classes / sum of F (from the population to the table) and of sum of (f / F) / n (from the table
    to the population); F is of the classes that the table has. k-map: L. Sweeney, *k-anonymity: a
    model for protecting privacy*, 2002.

    Examples
    --------
    >>> journalist_risk([2, 2], [4, 8], k=5)
    ReidentificationRisk(highest=0.25, average=0.1875, at_risk=0.5)
    """
    f, people, n = _classes(sizes, population, times)
    n_records = float(f @ n)
    if not n_records:
        return ReidentificationRisk(0.0, 0.0, 0.0)
    from_population = float(n.sum()) / float(people @ n)
    return ReidentificationRisk(
        highest=1 / float(people[n > 0].min()),
        average=max(from_population, float(f / people @ n) / n_records),
        at_risk=float(f[people < k] @ n[people < k]) / n_records,
    )


def marketer_risk(
    sizes: ArrayLike, population: ArrayLike | None = None, *, times: ArrayLike | None = None
) -> float:
    """Return the share of the records that are expected to be linked rightly, all of them at once.

    Someone links the whole table to a list of the population, and picks one person of each class at
    random.

    Parameters
    ----------
    sizes : array of numbers, shape (n_classes,)
        Records of each class in the table, f.
    population : array of numbers, shape (n_classes,), optional
        People of each class on the list, F; by default those in the table, and nobody else.
    times : array of numbers, shape (n_classes,), optional
        As for :func:`prosecutor_risk`.

    Raises
    ------
    InvalidParameterError
        As :func:`journalist_risk`.

    Notes
    -----
    **Source:** El Emam 2013, Chapter 16: mR_1 = classes / n, and mR_2 = sum of (f / F) / n; F. K.
    Dankar, K. El Emam, *A method for evaluating marketer re-identification risk*, EDBT 2010.

    Examples
    --------
    >>> marketer_risk([1, 4, 5])
    0.3
    >>> marketer_risk([2, 2], [4, 8])
    0.1875
    """
    f, people, n = _classes(sizes, sizes if population is None else population, times)
    n_records = float(f @ n)
    return float(f / people @ n) / n_records if n_records else 0.0


def uniqueness(sizes: ArrayLike, *, times: ArrayLike | None = None) -> float:
    """Return the share of the records that nobody else's look like: those alone in their class.

    Of a sample, these are the sample uniques; who is unique in the population is among them.

    Examples
    --------
    >>> uniqueness([1, 4, 5])
    0.1
    >>> uniqueness([1, 2], times=[2, 4])
    0.2
    """
    f, _, n = _classes(sizes, sizes, times)
    n_records = float(f @ n)
    return float(n[f == 1].sum()) / n_records if n_records else 0.0


def _classes(
    sizes: ArrayLike, population: ArrayLike, times: ArrayLike | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    f = np.asarray(sizes, dtype=np.float64).reshape(-1)
    people = np.asarray(population, dtype=np.float64).reshape(-1)
    n = np.ones_like(f) if times is None else np.asarray(times, dtype=np.float64).reshape(-1)
    if not f.shape == people.shape == n.shape:
        raise InvalidParameterError(
            "every class needs one size, one size in the population, and one number of times",
            detail=f"{f.size}, {people.size} and {n.size}",
        )
    # Written so that NaN is refused, too.
    if not (np.all(f >= 1) and np.all(n >= 0)):
        raise InvalidParameterError("a class has at least one record, and occurs 0 times or more")
    if not np.all(people >= f):
        raise InvalidParameterError(
            "a class has at least as many people in the population as in the table",
            detail=f"{int((~(people >= f)).sum())} of {f.size} classes have fewer",
        )
    return f, people, n
