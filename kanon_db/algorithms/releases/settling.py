"""Who must be in which class: as many people fit a class as it has rows, so that they are in it."""

from __future__ import annotations

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, IntArray
from kanon_db.algorithms.releases.fitting import Fits


def settle(fits: Fits, people: AnyIntArray, sizes: AnyIntArray) -> tuple[Fits, BoolArray]:
    """Find the people who must be in a class, and take them out of others, until nothing changes.

    Sound while nobody of a class has left, even if others were left out or came later: rows are of
    people who fit them.

    Parameters
    ----------
    fits : Fits
        The classes that each tuple fits.
    people : ndarray of int, shape (n_tuples,)
        How many people of each tuple there are.
    sizes : ndarray of int, shape (n_classes,)
        The rows of each class.

    Returns
    -------
    Fits
        What is left. Whoever fits nothing any more is not in the release.
    ndarray of bool, shape (n_classes,)
        In which classes there are fewer people left than rows, so that somebody has left.

    Notes
    -----
    Cost: linear in the pairs of a tuple and a class.

    Examples
    --------
    Two people fit a class of two rows, so they are not in the other one, which others fit, too.

    >>> fits = Fits(np.array([0, 2, 4, 5, 6]), np.array([0, 1, 0, 1, 1, 1]))
    >>> found, _ = settle(fits, np.ones(4, np.int64), np.array([2, 2]))
    >>> found.first.tolist(), found.classes.tolist()
    ([0, 1, 2, 3, 4], [0, 0, 1, 1])
    """
    tuples = fits.tuples
    order = np.argsort(fits.classes, kind="stable")
    first_member = np.searchsorted(fits.classes[order], np.arange(sizes.size + 1))
    fitting = np.bincount(fits.classes, people[tuples], sizes.size).astype(np.int64)
    own = np.full(people.size, -1, dtype=np.int64)
    _settle(
        fits.first, fits.classes, first_member.astype(np.int64), tuples[order],
        people.astype(np.int64), sizes.astype(np.int64), fitting, own,
    )  # fmt: skip
    kept = (own[tuples] < 0) | (own[tuples] == fits.classes)
    numbers = np.bincount(tuples[kept], minlength=people.size)
    first = np.append(0, np.cumsum(numbers)).astype(np.int64)
    return Fits(first, fits.classes[kept]), fitting < sizes


@numba.njit(cache=True, nogil=True)
def _settle(
    first: IntArray,
    classes: IntArray,
    first_member: IntArray,
    member: IntArray,
    people: IntArray,
    sizes: IntArray,
    fitting: IntArray,
    own: IntArray,
) -> None:
    """Settle tuples in `own`, and count in `fitting` who is left for each class."""
    todo = np.empty(sizes.size, dtype=np.int64)
    n_todo = 0
    for c in range(sizes.size):
        if fitting[c] == sizes[c]:
            todo[n_todo] = c
            n_todo += 1
    done = 0
    while done < n_todo:
        c = todo[done]
        done += 1
        if fitting[c] != sizes[c]:
            continue
        for i in range(first_member[c], first_member[c + 1]):
            t = member[i]
            if own[t] >= 0:
                continue
            own[t] = c
            for j in range(first[t], first[t + 1]):
                d = classes[j]
                if d == c:
                    continue
                fitting[d] -= people[t]
                if fitting[d] == sizes[d] and n_todo < todo.size:
                    todo[n_todo] = d
                    n_todo += 1
