"""Orders of attributes and records that keep similar records close ([OB] Section 2.3)."""

from __future__ import annotations

import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, CodeArray, IntArray
from kanon_db.algorithms.ground.sort_keys import sort_keys
from kanon_db.algorithms.ground.sorting import order_of
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata


def attribute_order(microdata: Microdata) -> IntArray:
    """Order the attributes by ascending weighted variance.

    Parameters
    ----------
    microdata : Microdata

    Returns
    -------
    ndarray of int64, shape (m,)
        Positions of the attributes; of equal variances, the first attribute comes first.

    Notes
    -----
    **Source:** [OB] Section 2.3 and Eq. (36), wVar = Var / w^2. The variance is that of the
    numbers as they are; that of categorical attributes is of their codes. NULLs are left out.
    """
    variances = [
        _variance(np.bincount(codes, minlength=attribute.n_values), attribute) / attribute.weight**2
        for codes, attribute in zip(microdata.codes.T, microdata.attributes, strict=True)
    ]
    return np.argsort(variances, kind="stable")


def _variance(counts: IntArray, attribute: Attribute) -> float:
    numbers = attribute.numbers
    if numbers is None:
        numbers = np.arange(attribute.n_values, dtype=np.float64)
    known = ~np.isnan(numbers) & (counts > 0)
    if not known.any():
        return 0.0
    mean = np.average(numbers[known], weights=counts[known])
    return float(np.average((numbers[known] - mean) ** 2, weights=counts[known]))


def sort_order(microdata: Microdata) -> IntArray:
    """Sort the records by the attribute of least variance, then by the next one, and so on.

    Parameters
    ----------
    microdata : Microdata

    Returns
    -------
    ndarray of int64, shape (n_records,)
        Records in order; equal ones stay in the order that they come in.

    Notes
    -----
    **Source:** [OB] Section 2.3, Table 2b. Values are compared by their codes, whose order is
    that of the type, NULL last.

    Examples
    --------
    >>> age = Attribute(3, numbers=np.array([20.0, 40.0, 60.0]), lower=20, upper=60)
    >>> sex = Attribute(2)
    >>> sort_order(Microdata([[2, 1], [0, 1], [1, 0]], (age, sex)))
    array([2, 1, 0])
    """
    columns = microdata.codes.T[attribute_order(microdata)]
    return order_of(sort_keys(list(columns)), stable=True)


def is_first_of_equal(values: CodeArray) -> BoolArray:
    """Tell which rows differ from the row before them.

    Parameters
    ----------
    values : ndarray of int32, shape (n, m)

    Returns
    -------
    ndarray of bool, shape (n,)
    """
    is_first = np.ones(values.shape[0], dtype=np.bool_)
    is_first[1:] = (values[1:] != values[:-1]).any(axis=1)
    return is_first
