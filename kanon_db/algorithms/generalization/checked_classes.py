"""Checking classes that were given, before they are changed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.recoding.constraints import Constraint
from kanon_db.algorithms.recoding.microdata import Microdata, check_k
from kanon_db.errors import InvalidParameterError


def checked_classes(
    microdata: Microdata,
    class_of_record: npt.ArrayLike,
    k: int,
    constraint: Constraint | None = None,
) -> IntArray:
    """Check classes, and number them anew.

    Parameters
    ----------
    microdata : Microdata
    class_of_record : array_like of int, shape (n_records,)
        Classes; -1 for a suppressed record.
    k : int
    constraint : Constraint, optional

    Returns
    -------
    ndarray of int64, shape (n_records,)
        Classes numbered from 0 without gaps, -1 for a suppressed record.

    Raises
    ------
    InfeasibleError
        If there are records, but fewer than ``k``.
    InvalidParameterError
        If ``k`` is less than 1, there is not one class for each record, a class has fewer than k
        records, or the constraint does not hold for it.
    """
    check_k(k, microdata.n_records)
    classes = np.array(class_of_record, dtype=np.int64)
    if classes.shape != (microdata.n_records,) or (classes < -1).any():
        raise InvalidParameterError(
            "each record must have a class number, or -1",
            detail=f"classes: shape {classes.shape}, records: {microdata.n_records}",
        )
    published = classes >= 0
    classes[published] = np.unique(classes[published], return_inverse=True)[1]
    n_small = int((np.bincount(classes[published]) < k).sum())
    if n_small:
        raise InvalidParameterError(
            "each class must have at least k records",
            detail=f"{n_small:,} classes have fewer than k = {k}",
        )
    if constraint is not None:
        constraint.check_matches(microdata.n_records)
        n_broken = int((~constraint.holds_for(classes)).sum())
        if n_broken:
            raise InvalidParameterError(
                "the constraint must hold for each class",
                detail=f"{n_broken:,} classes violate it",
                hint="enforce it first",
            )
    return classes
