"""Which classes of published rows somebody fits, for everybody at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numba
import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, IntArray, Integer
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.recoding.cells import Ranges, Sets
from kanon_db.algorithms.releases.candidates import in_steps

MOST_PAIRS: Final = 20_000_000
"""Pairs of a combination of quasi-identifiers and a class that are kept at a time."""

_LEAF: Final = 8
_BITS: Final = 64

_MaskArray = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Fits:
    """The classes that each tuple fits.

    Parameters
    ----------
    first : ndarray of int64, shape (n_tuples + 1,)
        Where those of each tuple begin.
    classes : ndarray of int64, shape (n_pairs,)
    """

    first: IntArray
    classes: IntArray

    @property
    def tuples(self) -> IntArray:
        """The tuple of each pair."""
        return np.repeat(np.arange(self.first.size - 1), np.diff(self.first))


@dataclass(frozen=True, eq=False)
class Boxes:
    """Cells as codes. All shapes but that of `members` are (n_classes, n_qi).

    Parameters
    ----------
    low, high : ndarray of int64
        The smallest and the greatest code that a cell covers.
    mask : ndarray of uint64
        Of a set, the remainders by 64 of its codes, as bits; all bits of a range.
    first, last : ndarray of int64
        Where the codes of a set begin and end in `members`; 0 and -1 of a range.
    members : ndarray of int64
    """

    low: IntArray
    high: IntArray
    mask: _MaskArray
    first: IntArray
    last: IntArray
    members: IntArray


@dataclass(frozen=True, eq=False)
class _Tree:
    """Nodes in depth-first order; a leaf has the classes from `start` to `end` of `order`."""

    low: IntArray
    high: IntArray
    mask: _MaskArray
    skip: IntArray
    start: IntArray
    end: IntArray
    order: IntArray


def fits_of(
    codes: CodeArray,
    cells: Sequence[Ranges | Sets],
    cell_of_class: AnyIntArray,
    n_codes: Sequence[int],
    pulse: Pulse = UNLIMITED,
    *,
    most: int = MOST_PAIRS,
) -> Fits | None:
    """Find the classes whose cells cover each tuple.

    Parameters
    ----------
    codes : ndarray of int32, shape (n_tuples, n_qi)
        Quasi-identifiers.
    cells : sequence of Ranges or Sets
        The distinct cells of each quasi-identifier.
    cell_of_class : ndarray of int, shape (n_classes, n_qi)
        Which of them each class has.
    n_codes : sequence of int
        How many values each quasi-identifier has.
    pulse : Pulse
    most : int
        Pairs to keep.

    Returns
    -------
    Fits or None
        None if there are more pairs.

    Notes
    -----
    A tree of boxes: each node has the smallest range of codes that covers its classes' cells, and
    the remainders by 64 of the codes in them, which tells sets apart. There is a tree for each set
    of quasi-identifiers that classes do not show. Cost: where classes do not overlap, a path in
    each tree for each tuple.

    Examples
    --------
    >>> ages = Ranges(np.array([0, 1]), np.array([1, 2]), np.array([False, False]))
    >>> found = fits_of(np.array([[0], [1], [2]], np.int32), [ages], np.array([[0], [1]]), [3])
    >>> found.first.tolist(), found.classes.tolist()
    ([0, 1, 3, 4], [0, 0, 1, 1])
    """
    boxes = boxes_of(cells, cell_of_class, n_codes)
    tree = _tree(boxes, np.array(n_codes), pulse)
    number = np.zeros(codes.shape[0] + 1, dtype=np.int64)
    nothing = np.zeros(0, dtype=np.int64)

    def walked(first: IntArray, found: IntArray) -> None:
        for begin, end in in_steps(codes.shape[0], pulse):
            _walk(
                begin, end, codes, tree.low, tree.high, tree.mask, tree.skip, tree.start, tree.end,
                tree.order, boxes.low, boxes.high, boxes.first, boxes.last, boxes.members,
                number, first, found,
            )  # fmt: skip

    walked(nothing, nothing)
    first = np.cumsum(np.append(0, number[:-1]))
    if first[-1] > most:
        return None
    classes = np.empty(int(first[-1]), dtype=np.int64)
    walked(first, classes)
    return Fits(first, classes)


def boxes_of(
    cells: Sequence[Ranges | Sets], cell_of_class: AnyIntArray, n_codes: Sequence[int]
) -> Boxes:
    """Write the cells of classes as codes; see :func:`fits_of`."""
    shape = cell_of_class.shape
    low, high = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    mask = np.full(shape, np.iinfo(np.uint64).max, dtype=np.uint64)
    first, last = np.zeros(shape, dtype=np.int64), np.full(shape, -1, dtype=np.int64)
    members: list[IntArray] = []
    offset = 0
    for a, (its_cells, n) in enumerate(zip(cells, n_codes, strict=True)):
        its = cell_of_class[:, a]
        if isinstance(its_cells, Ranges):
            low[:, a] = np.where(its_cells.tells_nothing, 0, its_cells.low)[its]
            high[:, a] = np.where(its_cells.tells_nothing, n - 1, its_cells.high)[its]
            continue
        begins = its_cells.ends - its_cells.sizes
        some = its_cells.sizes > 0
        ends = np.zeros((2, some.size), dtype=np.int64)
        ends[1] = -1  # an empty set covers nothing
        ends[0, some] = its_cells.codes[begins[some]]
        ends[1, some] = its_cells.codes[its_cells.ends[some] - 1]
        masks = np.zeros(some.size, dtype=np.uint64)
        owners = np.repeat(np.arange(some.size), its_cells.sizes)
        bits = np.left_shift(np.uint64(1), (its_cells.codes % _BITS).astype(np.uint64))
        np.bitwise_or.at(masks, owners, bits)
        low[:, a], high[:, a] = ends[:, its]
        mask[:, a] = masks[its]
        first[:, a], last[:, a] = begins[its] + offset, its_cells.ends[its] + offset
        members.append(its_cells.codes.astype(np.int64))
        offset += its_cells.codes.size
    joined = np.concatenate([*members, np.zeros(0, dtype=np.int64)])
    return Boxes(low, high, mask, first, last, joined)


def _tree(boxes: Boxes, n_codes: AnyIntArray, pulse: Pulse) -> _Tree:
    """Divide classes in two again and again, where their cells are the furthest apart."""
    hidden = (boxes.low == 0) & (boxes.high == n_codes - 1)
    alike = hidden @ (np.int64(1) << np.arange(hidden.shape[1], dtype=np.int64) % (_BITS - 2))
    order = np.argsort(alike, kind="stable")
    centers = (boxes.low + boxes.high) / n_codes
    low, high, mask = [], [], []
    skip: list[int] = []
    start: list[int] = []
    end: list[int] = []
    steps = np.flatnonzero(np.diff(alike[order], prepend=-1, append=-1))
    # What is left to do: a part of `order`, or None to close a node.
    todo: list[tuple[int, int] | int] = []
    todo += [(int(a), int(b)) for a, b in pairwise(steps)][::-1]
    while todo:
        part = todo.pop()
        if isinstance(part, int):
            skip[part] = len(skip)
            continue
        pulse.beat()
        begin, stop = part
        own = order[begin:stop]
        node = len(skip)
        low.append(boxes.low[own].min(axis=0))
        high.append(boxes.high[own].max(axis=0))
        mask.append(np.bitwise_or.reduce(boxes.mask[own], axis=0))
        skip.append(node + 1)
        is_leaf = stop - begin <= _LEAF
        start.append(begin if is_leaf else 0)
        end.append(stop if is_leaf else 0)
        if is_leaf:
            continue
        its = centers[own]
        widest = int((its.max(axis=0) - its.min(axis=0)).argmax())
        middle = (stop - begin) // 2
        order[begin:stop] = own[np.argpartition(its[:, widest], middle)]
        todo += [node, (begin + middle, stop), (begin, begin + middle)]
    width = hidden.shape[1]
    return _Tree(
        np.array(low, dtype=np.int64).reshape(-1, width),
        np.array(high, dtype=np.int64).reshape(-1, width),
        np.array(mask, dtype=np.uint64).reshape(-1, width),
        np.array(skip, dtype=np.int64),
        np.array(start, dtype=np.int64),
        np.array(end, dtype=np.int64),
        order,
    )


@numba.njit(cache=True, nogil=True)
def _walk(
    begin: Integer,
    stop: Integer,
    codes: CodeArray,
    node_low: IntArray,
    node_high: IntArray,
    node_mask: _MaskArray,
    skip: IntArray,
    start: IntArray,
    end: IntArray,
    order: IntArray,
    low: IntArray,
    high: IntArray,
    first_member: IntArray,
    last_member: IntArray,
    members: IntArray,
    number: IntArray,
    first: IntArray,
    found: IntArray,
) -> None:
    """Count the classes that tuples fit, or keep them where `first` says where they begin."""
    n_qi = codes.shape[1]
    for t in range(begin, stop):
        n, node = 0, 0
        while node < skip.size:
            reaches = True
            for a in range(n_qi):
                code = codes[t, a]
                bit = np.uint64(1) << np.uint64(code % 64)
                if (
                    code < node_low[node, a]
                    or code > node_high[node, a]
                    or node_mask[node, a] & bit == 0
                ):
                    reaches = False
                    break
            if not reaches:
                node = skip[node]
                continue
            for j in range(start[node], end[node]):
                c = order[j]
                covers = True
                for a in range(n_qi):
                    code = codes[t, a]
                    if code < low[c, a] or code > high[c, a]:
                        covers = False
                        break
                    if last_member[c, a] >= 0:
                        l, r = first_member[c, a], last_member[c, a]
                        while l < r:
                            m = (l + r) // 2
                            if members[m] < code:
                                l = m + 1
                            else:
                                r = m
                        if l == last_member[c, a] or members[l] != code:
                            covers = False
                            break
                if covers:
                    if first.size:
                        found[first[t] + n] = c
                    n += 1
            node += 1
        number[t] = n
