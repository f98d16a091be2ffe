"""Improve classes by the best partition of some neighboring ones at a time."""

from __future__ import annotations

import numpy as np

from kanon_db.algorithms.generalization.exact.distinct_records import DistinctRecords
from kanon_db.algorithms.generalization.exact.set_partition import set_partition
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.recoding.exact_loss import ExactLoss

_GROUPS = (4, 6, 8)  # of k records in a neighborhood: the small ones first


def improve_neighborhoods(
    exact: ExactLoss,
    order: IntArray,
    class_of_record: IntArray,
    k: int,
    *,
    pulse: Pulse,
) -> IntArray:
    """Partition each class anew, together with those next to it, until that helps no more.

    Parameters
    ----------
    exact : ExactLoss
    order : ndarray of int64, shape (n_records,)
        Records in order, equal ones in a row.
    class_of_record : ndarray of int64, shape (n_records,)
        Classes of k to 2k - 1 records.
    k : int
        At least 2.
    pulse : Pulse
        Beaten every few milliseconds; no further class is tried when its time is over.

    Returns
    -------
    ndarray of int64, shape (n_records,)
        Classes that lose as much or less.

    Notes
    -----
    The neighbors of a class are those that lose least when joined with it.
    """
    rank = np.argsort(order)
    classes = [np.sort(rank[class_of_record == number]) for number in np.unique(class_of_record)]
    for n_groups in _GROUPS:
        _improve(exact, order, classes, k, n_groups * k, pulse)
    result = np.empty_like(class_of_record)
    for number, positions in enumerate(part for part in classes if part.size):
        result[order[positions]] = number
    return result


def _improve(
    exact: ExactLoss,
    order: IntArray,
    classes: list[IntArray],
    k: int,
    largest: int,
    pulse: Pulse,
) -> None:
    """Improve classes, which are of positions in the order, until that helps no more."""
    waiting = [i for i, positions in enumerate(classes) if positions.size]
    while waiting and not pulse.is_over:
        pulse.beat()
        center = waiting.pop(0)
        chosen = _neighborhood(exact, order, classes, center, largest)
        rows = np.sort(np.concatenate([classes[i] for i in chosen]))
        ends = np.cumsum([classes[i].size for i in chosen])
        before = order[np.concatenate([classes[i] for i in chosen])]
        upper = int(exact.of_classes(before, ends).sum())
        found = set_partition(DistinctRecords.of(exact, order[rows]), k, upper, pulse=pulse)
        if found.classes is None:
            continue
        numbers = found.classes.of_records()
        parts = [rows[numbers == number] for number in range(len(found.classes))]
        # The number of classes may change: the first ones take the old places.
        for i, part in zip(chosen, parts, strict=False):
            classes[i] = part
        changed = chosen[: len(parts)] + list(
            range(len(classes), len(classes) + len(parts) - len(chosen))
        )
        classes += parts[len(chosen) :]
        for i in chosen[len(parts) :]:
            classes[i] = classes[i][:0]
        waiting = [i for i in waiting if i not in chosen] + changed


def _neighborhood(
    exact: ExactLoss, order: IntArray, classes: list[IntArray], center: int, largest: int
) -> list[int]:
    """Choose a class and those that lose least when joined with it, up to so many records."""
    sizes = np.array([positions.size for positions in classes])
    others = np.flatnonzero(sizes)
    others = others[others != center]
    if not others.size:
        return [center]
    joined = [np.concatenate([classes[center], classes[i]]) for i in others]
    ends = np.cumsum(sizes[others] + sizes[center])
    losses = exact.of_classes(order[np.concatenate(joined)], ends)
    nearest = others[np.argsort(losses, kind="stable")]
    fitting = np.cumsum(sizes[nearest]) + sizes[center] <= largest
    return [center, *nearest[fitting].tolist()]
