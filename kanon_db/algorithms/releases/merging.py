"""Classes of rows as a partition of people: classes that somebody fits both of are one bucket."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, IntArray
from kanon_db.algorithms.releases.fitting import Fits
from kanon_db.algorithms.releases.placements import Release
from kanon_db.algorithms.releases.settling import settle


@dataclass(frozen=True, eq=False)
class Contents:
    """What classes hold.

    Parameters
    ----------
    class_of, value, count : ndarray of int64, shape (n_cells,)
        How often a value occurs in a class; by class, each pair once.
    n_classes : int
    """

    class_of: IntArray
    value: IntArray
    count: IntArray
    n_classes: int

    @classmethod
    def of(cls, class_of_row: AnyIntArray, value_of_row: AnyIntArray, n_classes: int) -> Contents:
        """Count the values of rows.

        Examples
        --------
        >>> found = Contents.of(np.array([0, 1, 0]), np.array([5, 5, 5]), 2)
        >>> found.class_of.tolist(), found.value.tolist(), found.count.tolist()
        ([0, 1], [5, 5], [2, 1])
        """
        width = int(value_of_row.max(initial=0)) + 1
        keys = np.sort(class_of_row.astype(np.int64) * width + value_of_row)
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        count = np.diff(starts, append=keys.size).astype(np.int64)
        return cls(keys[starts] // width, keys[starts] % width, count, n_classes)

    @property
    def first(self) -> IntArray:
        """Where the cells of each class begin."""
        numbers = np.bincount(self.class_of, minlength=self.n_classes)
        return np.append(0, np.cumsum(numbers)).astype(np.int64)

    @property
    def sizes(self) -> IntArray:
        """The rows of each class."""
        return np.bincount(self.class_of, self.count, self.n_classes).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Merged:
    """Classes that are put together.

    Parameters
    ----------
    release : Release
        Of the buckets whose people are known: as many fit them as they have rows.
    fits : Fits
        The classes that each tuple may be in.
    is_known : ndarray of bool, shape (n_tuples,)
        Whether a tuple's people are all in known buckets.
    is_open : ndarray of bool, shape (n_tuples,)
        Whether they may be in the release, or not.
    is_exact : bool
        Whether each bucket is one class, and nobody is open.
    """

    release: Release
    fits: Fits
    is_known: BoolArray
    is_open: BoolArray
    is_exact: bool


def merge(fits: Fits, people: AnyIntArray, linked: AnyIntArray, contents: Contents) -> Merged:
    """Put classes together until everybody fits one bucket only.

    Sound: if everybody who fits a bucket is in it, and nobody else, then these people have its
    rows. That is less than readers know, who see which of its classes somebody fits.

    Parameters
    ----------
    fits : Fits
        The classes that each tuple fits.
    people : ndarray of int, shape (n_tuples,)
        How many people of each tuple there are.
    linked : ndarray of int, shape (n_tuples,)
        The tuple by which they are found in other releases, which may show less of them. All of
        its people are in one bucket.
    contents : Contents

    Returns
    -------
    Merged
        A bucket that more people fit than it has rows tells of nobody for certain whether they are
        in it: some were left out, or came later. It is left out, as is one that fewer people fit.

    Notes
    -----
    Those who must be in a class are settled first (:func:`~.settling.settle`). Where somebody has
    left, what that says of others who could be in the same classes is not used.

    Examples
    --------
    >>> fits = Fits(np.array([0, 2, 4, 5]), np.array([0, 1, 0, 1, 2]))
    >>> contents = Contents.of(np.array([0, 1, 2, 2]), np.array([7, 8, 7, 8]), 3)
    >>> found = merge(fits, np.array([1, 1, 1]), np.arange(3), contents)
    >>> found.is_known.tolist(), found.is_open.tolist(), found.is_exact
    ([True, True, False], [False, False, True], False)
    >>> found.release.tuple_of.tolist(), found.release.bucket_of.tolist()
    ([0, 1], [0, 0])
    """
    n_tuples, n_classes = linked.size, contents.n_classes
    sizes = contents.sizes
    settled, has_left = settle(fits, people, sizes)
    before = components(n_classes, *_pairs(fits))
    is_doubtful = np.zeros(n_classes, dtype=np.bool_)
    is_doubtful[before[has_left]] = True
    is_doubtful = is_doubtful[before]

    is_somewhere = np.diff(settled.first) > 0
    own = np.full(n_tuples, -1, dtype=np.int64)
    own[is_somewhere] = settled.classes[settled.first[:-1][is_somewhere]]
    one, other = _pairs(settled)
    fine = components(n_classes, one, other)
    fitting = np.bincount(fine[own[is_somewhere]], people[is_somewhere], n_classes)
    rows = np.bincount(fine, sizes, n_classes)
    # By fine components, numbered by their first class: what one has too many is not made up for.
    is_full = (fitting == rows)[fine] & ~is_doubtful

    hub = np.full(int(linked.max(initial=-1)) + 1, -1, dtype=np.int64)
    hub[linked[is_somewhere]] = own[is_somewhere]
    links = hub[linked[is_somewhere]]
    whole = components(
        n_classes, np.concatenate([one, links]), np.concatenate([other, own[is_somewhere]])
    )
    is_lost = np.zeros(n_classes, dtype=np.bool_)
    is_lost[whole[~is_full]] = True
    elsewhere = hub[linked[~is_somewhere]]
    is_lost[whole[elsewhere[elsewhere >= 0]]] = True
    is_known = is_somewhere & ~is_lost[whole[own]]
    is_open = is_somewhere & ~is_known
    # Where somebody has left, nobody is known to be left out.
    fits_doubtful = np.zeros(n_tuples, dtype=np.bool_)
    fits_doubtful[fits.tuples[is_doubtful[fits.classes]]] = True
    is_open |= fits_doubtful & ~is_known

    numbers, dense = np.unique(whole, return_inverse=True)
    number = np.cumsum(~is_lost[numbers]) - 1
    placed, inverse = np.unique(linked[is_known], return_inverse=True)
    cells = ~is_lost[whole[contents.class_of]]
    width = int(contents.value.max(initial=0)) + 1
    keys = number[dense[contents.class_of[cells]]] * width + contents.value[cells]
    pairs, at = np.unique(keys, return_inverse=True)
    release = Release(
        placed,
        number[dense[hub[placed]]],
        np.bincount(inverse, people[is_known], placed.size).astype(np.int64),
        pairs // width,
        pairs % width,
        np.bincount(at, contents.count[cells], pairs.size).astype(np.int64),
    )
    is_exact = numbers.size == n_classes and not is_open.any() and not is_lost.any()
    return Merged(release, settled, is_known, is_open, is_exact)


def _pairs(fits: Fits) -> tuple[IntArray, IntArray]:
    """Return pairs of classes that a tuple fits both of; the first one stands for all."""
    some = np.diff(fits.first) > 0
    first = np.zeros(some.size, dtype=np.int64)
    first[some] = fits.classes[fits.first[:-1][some]]
    return first[fits.tuples], fits.classes


def components(n: int, one: AnyIntArray, other: AnyIntArray) -> IntArray:
    """Return the lowest number that each is connected with, by pairs that are.

    Examples
    --------
    >>> components(4, np.array([3, 1]), np.array([1, 3])).tolist()
    [0, 1, 2, 1]
    """
    return _roots(n, one.astype(np.int64), other.astype(np.int64))


@numba.njit(cache=True, nogil=True)
def _roots(n: int, one: IntArray, other: IntArray) -> IntArray:
    root = np.arange(n)
    for i in range(one.size):
        a, b = one[i], other[i]
        while root[a] != a:
            root[a] = root[root[a]]
            a = root[a]
        while root[b] != b:
            root[b] = root[root[b]]
            b = root[b]
        if a != b:
            root[max(a, b)] = min(a, b)
    for i in range(n):
        root[i] = root[root[i]]
    return root
