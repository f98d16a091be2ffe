"""The initial feasible solution ([OB] Section 2.3): classes of neighbors in sorted order."""

from __future__ import annotations

import numpy as np

from kanon_db.algorithms.generalization.result import Generalization
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.recoding.microdata import Microdata, check_k
from kanon_db.algorithms.recoding.order import sort_order


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
