"""The initial feasible solution ([OB] Section 2.3): records in an order that keeps them close."""

from __future__ import annotations

import numpy as np

from kanon_db.algorithms.generalization.result import Generalization
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
from kanon_db.errors import InfeasibleError, InvalidParameterError


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
    >>> from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
    >>> age = Attribute(3, numbers=np.array([20.0, 40.0, 60.0]), lower=20, upper=60)
    >>> sex = Attribute(2)
    >>> sort_order(Microdata([[2, 1], [0, 1], [1, 0]], (age, sex)))
    array([2, 1, 0])
    """
    return np.lexsort(microdata.codes.T[attribute_order(microdata)[::-1]])


def initial(microdata: Microdata, k: int) -> Generalization:
    """Group k records after the other, in sorted order; the last class takes what is left over.

    Parameters
    ----------
    microdata : Microdata
    k : int
        Fewest records of a class, at least 1.

    Returns
    -------
    Generalization
        Classes numbered in sorted order.

    Raises
    ------
    InfeasibleError
        If there are fewer than ``k`` records.
    InvalidParameterError
        If ``k`` is less than 1.

    Notes
    -----
    **Source:** [OB] Section 2.3; left-over records as in its Appendix C.
    """
    check_k(k, microdata.n_records)
    class_of_record = np.empty(microdata.n_records, dtype=np.int64)
    class_of_record[sort_order(microdata)] = classes_of_k(microdata.n_records, k)
    return Generalization(class_of_record)


def classes_of_k(n_records: int, k: int) -> IntArray:
    """Put k records after the other into a class, up to 2k - 1 into the last.

    Parameters
    ----------
    n_records, k : int

    Returns
    -------
    ndarray of int64, shape (n_records,)
    """
    return np.minimum(np.arange(n_records) // k, max(n_records // k - 1, 0))


def check_k(k: int, n_records: int) -> None:
    """Refuse a number of records that no class, or not even one class, can have.

    Parameters
    ----------
    k, n_records : int

    Raises
    ------
    InfeasibleError
        If there are records, but fewer than ``k``.
    InvalidParameterError
        If ``k`` is less than 1.
    """
    if k < 1:
        raise InvalidParameterError("k must be at least 1", detail=f"k = {k}")
    if 0 < n_records < k:
        raise InfeasibleError(
            "k must not exceed the number of records",
            detail=f"k = {k}, n_records = {n_records}",
            hint="lower k, or add records",
        )
