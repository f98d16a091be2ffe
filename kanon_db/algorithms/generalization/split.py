"""Splitting large equivalence classes, which never loses more."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.generalization.greedy_search import greedy_search
from kanon_db.algorithms.generalization.initial import check_k, classes_of_k
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.pulse import no_heartbeat
from kanon_db.algorithms.recoding.constraints import Constraint
from kanon_db.algorithms.recoding.microdata import Microdata
from kanon_db.algorithms.recoding.ncp import Ncp
from kanon_db.errors import InvalidParameterError


def split(
    microdata: Microdata,
    class_of_record: IntArray,
    k: int,
    *,
    heartbeat: Callable[[], None] = no_heartbeat,
) -> IntArray:
    """Split each class of 2k records or more by Greedy Search.

    Parameters
    ----------
    microdata : Microdata
    class_of_record : ndarray of int64, shape (n_records,)
        Classes numbered from 0 without gaps.
    k : int
    heartbeat : callable

    Returns
    -------
    ndarray of int64, shape (n_records,)
        Classes of k to 2k - 1 records, numbered from 0 without gaps.

    Notes
    -----
    Each part of a class loses at most what the class did, so splitting never loses more ([OB]
    Section 2.2 leaves this to the solver).
    """
    sizes = np.bincount(class_of_record)
    large = np.flatnonzero(sizes >= 2 * k)
    if not large.size:
        return class_of_record
    losses = Ncp.of(microdata).of_classes(class_of_record)
    order = np.argsort(class_of_record, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)])
    result = class_of_record.copy()
    n_classes = sizes.size
    for g in large.tolist():
        heartbeat()
        members = order[starts[g] : starts[g + 1]]
        if losses[g]:
            part = Microdata(microdata.codes[members], microdata.attributes)
            parts = greedy_search(part, k, heartbeat=heartbeat).class_of_record
        else:
            parts = classes_of_k(members.size, k)
        result[members] = np.where(parts == 0, g, n_classes + parts - 1)
        n_classes += int(parts.max())
    return result


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
            "each record must have a class, or -1",
            detail=f"classes: shape {classes.shape}, records: {microdata.n_records}",
        )
    published = classes >= 0
    classes[published] = np.unique(classes[published], return_inverse=True)[1]
    n_small = int((np.bincount(classes[published]) < k).sum())
    if n_small:
        raise InvalidParameterError(
            "each class must have at least k records",
            detail=f"{n_small:,} classes have fewer, k = {k}",
        )
    if constraint is not None:
        constraint.check_matches(microdata.n_records)
        n_broken = int((~constraint.holds_for(classes)).sum())
        if n_broken:
            raise InvalidParameterError(
                "the constraint must hold for each class",
                detail=f"{n_broken:,} classes break it",
                hint="enforce it first",
            )
    return classes
