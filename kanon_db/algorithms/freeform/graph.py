"""The generalization graph while it is built: originals, their cells, and the matches so far."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kanon_db.algorithms.freeform.arrangement import BLOCK, side_by_side
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray, Integer, SmallWordArray
from kanon_db.algorithms.ground.compiled import innermost
from kanon_db.algorithms.recoding.ncp import Ncp

NONE = -1
"""Stands for a record where there is none."""

FAR = 2**62
"""More than any weight and price together: the price of a cell that is not available."""


class Graph(NamedTuple):
    """Originals, the cells they are recast to so far, and a tree of boxes around the cells.

    Positions number the records in an order in which close ones lie side by side. Original i and
    cell i belong to the same record. Cells are the first boxes; the others enclose those cells
    below them that are available (:mod:`~kanon_db.algorithms.freeform.box_tree`). It is one flat
    tuple, because compiled code that takes a tuple out of another one counts references to all its
    arrays.

    Parameters
    ----------
    record : ndarray of int64, shape (n,)
        Record at each position.
    cells_of : ndarray of int32, shape (n, k)
        Cells that cover each original, -1 for those to come.
    numbers : ndarray of int32, shape (n, p)
        Positions of the originals in the ranges of numeric attributes; NULL is at twice the range.
    bits : ndarray of int32, shape (n, q)
        Which bit of a set stands for an original's value of each categorical attribute.
    whole : ndarray of int32, shape (p,)
        Loss of a numeric cell that tells nothing.
    step : ndarray of int32, shape (q,)
        Loss of one more value of a categorical cell.
    low, high : ndarray of int32, shape (p, boxes)
        Ends of the boxes in numeric attributes.
    sets : ndarray of uint32, shape (words, boxes)
        Values of the boxes in categorical attributes, one bit each.
    lost : ndarray of int32, shape (boxes,)
        What boxes lose in numeric attributes.
    price : ndarray of int64, shape (boxes,)
        Added to what a cell costs; :data:`FAR` for a cell that is not available, because it has
        its match of this round. Of a box around others, the least price among them.
    starts : ndarray of int64, shape (levels,)
        Where each level of the tree begins among the boxes, at 0 the cells. Its last block is
        filled up with boxes in which no cell is available.
    largest : int
        More than any edge weighs.
    """

    record: IntArray
    cells_of: CodeArray
    numbers: CodeArray
    bits: CodeArray
    whole: CodeArray
    step: CodeArray
    low: CodeArray
    high: CodeArray
    sets: SmallWordArray
    lost: CodeArray
    price: IntArray
    starts: IntArray
    largest: int


def build(ncp: Ncp, k: int) -> Graph:
    """Start a graph: each record matches itself, and nothing else.

    Parameters
    ----------
    ncp : Ncp
    k : int
        Matches that each record is to have.

    Returns
    -------
    Graph
        With no cell available yet; see
        :func:`~kanon_db.algorithms.freeform.box_tree.open_round`.
    """
    record = side_by_side(ncp)
    values = ncp.values[record]
    n = record.size
    varies = (values != values[:1]).any(axis=0)  # no cell loses anything in the other attributes
    numeric, categorical = ncp.numeric & varies, ~ncp.numeric & varies
    numbers = np.ascontiguousarray(values[:, numeric])
    bits, n_words = _bits(values[:, categorical])
    starts, n_boxes = _levels(n)
    low = np.zeros((numbers.shape[1], n_boxes), dtype=np.int32)
    low[:, :n] = numbers.T
    sets = np.zeros((n_words, n_boxes), dtype=np.uint32)
    for column in bits.T:
        sets[column >> 5, np.arange(n)] |= np.uint32(1) << (column & 31).astype(np.uint32)
    cells_of = np.full((n, k), NONE, dtype=np.int32)
    cells_of[:, 0] = np.arange(n)
    return Graph(
        record,
        cells_of,
        numbers,
        bits,
        ncp.whole[numeric].astype(np.int32),
        ncp.step[categorical].astype(np.int32),
        low,
        low.copy(),
        sets,
        np.zeros(n_boxes, dtype=np.int32),
        np.full(n_boxes, FAR),
        starts,
        int(ncp.whole[ncp.numeric].sum()) + int(ncp.step[~ncp.numeric].sum()),
    )


def matches_of_records(graph: Graph) -> CodeArray:
    """Take the matches of a finished graph, in terms of records.

    Parameters
    ----------
    graph : Graph

    Returns
    -------
    ndarray of int32, shape (n, k)
    """
    matches = np.empty_like(graph.cells_of)
    for r, cells in enumerate(graph.cells_of.T):
        matches[graph.record[cells], r] = graph.record
    return matches


def _levels(n: int) -> tuple[IntArray, int]:
    """Find where the levels of a tree over n cells begin, and where the last one ends."""
    starts, end, size = [0], 0, n
    while True:
        n_blocks = max(-(-size // BLOCK), 1)
        end += n_blocks * BLOCK
        if n_blocks == 1:
            return np.array(starts), end
        starts.append(end)
        size = n_blocks


def _bits(values: CodeArray) -> tuple[CodeArray, int]:
    """Give each value of each attribute a bit; tell how many words there are of all bits."""
    bits = np.empty(values.shape, dtype=np.int32)
    n_bits = 0
    for j, column in enumerate(values.T):
        codes = np.unique(column, return_inverse=True)[1].reshape(-1)
        bits[:, j] = codes + n_bits
        n_bits += int(codes.max(initial=-1)) + 1
    return bits, -(-n_bits // 32)


@innermost
def is_matched(cells_of: CodeArray, original: Integer, cell: Integer, n_rounds: Integer) -> bool:
    """Tell whether the edge was taken in one of the rounds so far.

    Parameters
    ----------
    cells_of : ndarray of int32, shape (n, k)
        Of the graph.
    original, cell : int
        Positions.
    n_rounds : int

    Returns
    -------
    bool
    """
    for r in range(n_rounds):  # noqa: SIM110  # numba has no generators in any()
        if cells_of[original, r] == cell:
            return True
    return False
