"""Finds which classes of published rows somebody fits, and merges classes into buckets.

Two classes that one person fits become one bucket, so that rows are measured as buckets are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    BoolArray,
    CodeArray,
    IntArray,
    Integer,
    components,
)
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse, kernel
from kanon_db.algorithms.recoding.generalized_cells import Ranges, Sets
from kanon_db.algorithms.releases.bucket_releases import BucketRelease, in_steps
from kanon_db.dataclasses import dataclass

MOST_PAIRS: Final = 20_000_000
"""Most pairs of a combination of quasi-identifiers and a class in memory."""

_LEAF: Final = 8
_BITS: Final = 64

_MaskArray = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class ClassFits:
    """The classes that each tuple fits."""

    first: IntArray  # (n_tuples + 1,): where the classes of each tuple begin
    classes: IntArray  # (n_pairs,)

    @property
    def tuples(self) -> IntArray:
        """The tuple of each pair."""
        return np.repeat(np.arange(self.first.size - 1), np.diff(self.first))


@dataclass(frozen=True, eq=False)
class CellBoxes:
    """Cells as codes. All shapes but that of `members` are (n_classes, n_qi)."""

    low: IntArray  # The smallest and the greatest code that a cell covers
    high: IntArray
    mask: _MaskArray  # For a set, the bits of its codes modulo 64; all bits for a range
    first: IntArray  # Where the codes of a set begin and end in `members`; 0 and -1 for a range
    last: IntArray
    members: IntArray


@dataclass(frozen=True, eq=False)
class _Tree:
    """Nodes in depth-first order; one without children has the classes `order[start:end]`."""

    low: IntArray
    high: IntArray
    mask: _MaskArray
    skip: IntArray
    start: IntArray
    end: IntArray
    order: IntArray


def fits_of(
    codes: CodeArray,  # (n_tuples, n_qi): quasi-identifiers
    cells: Sequence[Ranges | Sets],  # The distinct cells of each quasi-identifier
    cell_of_class: AnyIntArray,  # (n_classes, n_qi): the cell that each class has
    n_codes: Sequence[int],  # Number of values of each quasi-identifier
    pulse: Pulse = UNLIMITED,
    *,
    most: int = MOST_PAIRS,  # Most pairs to keep
) -> ClassFits | None:
    """Find the classes whose cells cover each tuple.

    A tree of boxes for each set of suppressed columns (mod 64). None for more than ``most`` pairs.
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
    return ClassFits(first, classes)


def boxes_of(
    cells: Sequence[Ranges | Sets], cell_of_class: AnyIntArray, n_codes: Sequence[int]
) -> CellBoxes:
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
    return CellBoxes(low, high, mask, first, last, joined)


def _tree(boxes: CellBoxes, n_codes: AnyIntArray, pulse: Pulse) -> _Tree:
    """Divide classes in two recursively, where their cells are furthest apart."""
    hidden = (boxes.low == 0) & (boxes.high == n_codes - 1)
    masks = hidden @ (np.int64(1) << np.arange(hidden.shape[1], dtype=np.int64) % (_BITS - 2))
    order = np.argsort(masks, kind="stable")
    centers = (boxes.low + boxes.high) / n_codes
    low, high, mask = [], [], []
    skip: list[int] = []
    start: list[int] = []
    end: list[int] = []
    steps = np.flatnonzero(np.diff(masks[order], prepend=-1, append=-1))
    # A stack: a part of `order` to divide, or None to close a node.
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


@kernel
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
    classes: IntArray,
) -> None:
    """Count the classes that tuples fit, or list them from the places in `first` on."""
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
                        classes[first[t] + n] = c
                    n += 1
            node += 1
        number[t] = n


def are_within(inner: CellBoxes, outer: CellBoxes, outer_of: IntArray) -> bool:
    """Tell whether the cells of each class lie within those of its counterpart."""
    return bool(
        _are_within(
            inner.low, inner.high, inner.first, inner.last, inner.members,
            outer.low, outer.high, outer.first, outer.last, outer.members, outer_of,
        )
    )  # fmt: skip


@kernel
def _are_within(
    low: IntArray,
    high: IntArray,
    first: IntArray,
    last: IntArray,
    members: IntArray,
    outer_low: IntArray,
    outer_high: IntArray,
    outer_first: IntArray,
    outer_last: IntArray,
    outer_members: IntArray,
    outer_of: IntArray,
) -> bool:
    for c in range(outer_of.size):
        d = outer_of[c]
        for a in range(low.shape[1]):
            if low[c, a] < outer_low[d, a] or high[c, a] > outer_high[d, a]:
                return False
            if outer_last[d, a] < 0:
                continue
            its = outer_members[outer_first[d, a] : outer_last[d, a]]
            if last[c, a] < 0:
                between = np.searchsorted(its, high[c, a] + 1) - np.searchsorted(its, low[c, a])
                if between != high[c, a] - low[c, a] + 1:
                    return False
                continue
            j = 0
            for i in range(first[c, a], last[c, a]):
                while j < its.size and its[j] < members[i]:
                    j += 1
                if j == its.size or its[j] != members[i]:
                    return False
    return True


def settle(fits: ClassFits, people: AnyIntArray, sizes: AnyIntArray) -> tuple[ClassFits, BoolArray]:
    """Find people who must be in a class, and remove them from others, until nothing changes.

    Sound while nobody left: as many fit as rows. Returns the classes left, and those with leavers.
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
    return ClassFits(first, fits.classes[kept]), fitting < sizes


@kernel
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
    """Settle tuples in `own`, and count the people left for each class in `fitting`."""
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


@dataclass(frozen=True, eq=False)
class ClassContents:
    """The values in each class."""

    class_of: IntArray  # (n_cells,): how often a value occurs in a class; by class, each pair once
    value: IntArray
    count: IntArray
    n_classes: int

    @classmethod
    def of(
        cls, class_of_row: AnyIntArray, value_of_row: AnyIntArray, n_classes: int
    ) -> ClassContents:
        """Count the values of rows."""
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
class MergedClasses:
    """Classes merged into buckets."""

    # The buckets whose people are known, since as many fit them as they have rows
    release: BucketRelease
    is_open: BoolArray  # (n_tuples,): whether a tuple's people may or may not be in the release
    is_exact: bool  # Whether each bucket is one class, and nobody is open


def merge(
    fits: ClassFits, people: AnyIntArray, linked: AnyIntArray, contents: ClassContents
) -> MergedClasses:
    """Merge classes into buckets until everybody fits a single bucket.

    Buckets with more or fewer people than rows are omitted; the others' people have their rows.
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
    # By fine components, so that a surplus in one does not offset a deficit in another.
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
    # If somebody has left, nobody is known to be left out.
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
    release = BucketRelease(
        placed,
        number[dense[hub[placed]]],
        np.bincount(inverse, people[is_known], placed.size).astype(np.int64),
        pairs // width,
        pairs % width,
        np.bincount(at, contents.count[cells], pairs.size).astype(np.int64),
    )
    is_exact = numbers.size == n_classes and not is_open.any() and not is_lost.any()
    return MergedClasses(release, is_open, is_exact)


def _pairs(fits: ClassFits) -> tuple[IntArray, IntArray]:
    """Return pairs of classes that one tuple fits, each with the first class of the tuple."""
    some = np.diff(fits.first) > 0
    first = np.zeros(some.size, dtype=np.int64)
    first[some] = fits.classes[fits.first[:-1][some]]
    return first[fits.tuples], fits.classes
