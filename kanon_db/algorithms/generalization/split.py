"""Splitting large equivalence classes, which never loses more."""

from __future__ import annotations

import numpy as np

from kanon_db.algorithms.generalization.greedy_search import greedy_search
from kanon_db.algorithms.generalization.initial import classes_of_k
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.recoding.microdata import Microdata
from kanon_db.algorithms.recoding.ncp import Ncp


def split(
    microdata: Microdata, class_of_record: IntArray, k: int, *, pulse: Pulse = UNLIMITED
) -> IntArray:
    """Split each class of 2k records or more by Greedy Search.

    Parameters
    ----------
    microdata : Microdata
    class_of_record : ndarray of int64, shape (n_records,)
        Classes numbered from 0 without gaps.
    k : int
    pulse : Pulse
        Only its heartbeat is used.

    Returns
    -------
    ndarray of int64, shape (n_records,)
        Classes of k to 2k - 1 records, numbered from 0 without gaps.

    Notes
    -----
    Each part of a class loses at most what the class lost, so splitting never loses more ([OB]
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
        pulse.beat()
        members = order[starts[g] : starts[g + 1]]
        if losses[g]:
            part = Microdata(microdata.codes[members], microdata.attributes)
            parts = greedy_search(part, k, pulse=pulse).class_of_record
        else:
            parts = classes_of_k(members.size, k)
        result[members] = np.where(parts == 0, g, n_classes + parts - 1)
        n_classes += int(parts.max())
    return result
