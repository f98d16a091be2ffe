"""The generalization graph while it is built: originals, their cells, and the matches so far."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from kanon_db.algorithms.freeform.arrangement import count_leaves, side_by_side
from kanon_db.algorithms.freeform.boxes import FAR, Boxes, Originals, take_in
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray, Integer
from kanon_db.algorithms.recoding.ncp import Ncp

NONE = -1
"""Stands for a record where there is none."""


class Graph(NamedTuple):
    """Originals, the cells they are recast to so far, and a tree of boxes around the cells.

    Positions number the records in an order in which close ones lie side by side. Original i and
    cell i belong to the same record.

    Parameters
    ----------
    record : ndarray of int64, shape (n,)
        Record at each position.
    matches : ndarray of int32, shape (n, k)
        Originals that each cell covers, -1 for those to come.
    originals : Originals
    cells : Boxes
    nodes : Boxes
        See :mod:`~kanon_db.algorithms.freeform.box_tree`.
    largest : int
        More than any edge weighs.
    """

    record: IntArray
    matches: CodeArray
    originals: Originals
    cells: Boxes
    nodes: Boxes
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
    cells = _no_boxes(n, numbers.shape[1], n_words)
    cells.low[:] = cells.high[:] = numbers
    for column in bits.T:
        cells.sets[np.arange(n), column >> 6] |= np.uint64(1) << (column & 63).astype(np.uint64)
    matches = np.full((n, k), NONE, dtype=np.int32)
    matches[:, 0] = np.arange(n)
    return Graph(
        record,
        matches,
        Originals(numbers, bits, ncp.whole[numeric], ncp.step[categorical]),
        cells,
        _no_boxes(2 * count_leaves(n), numbers.shape[1], n_words),
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
    matches = np.empty_like(graph.matches)
    matches[graph.record] = graph.record[graph.matches]
    return matches


def _no_boxes(n: int, n_numeric: int, n_words: int) -> Boxes:
    return Boxes(
        np.zeros((n, n_numeric), dtype=np.int32),
        np.zeros((n, n_numeric), dtype=np.int32),
        np.zeros((n, n_words), dtype=np.uint64),
        np.full(n, FAR),
    )


def _bits(values: CodeArray) -> tuple[CodeArray, int]:
    """Give each value of each attribute a bit; tell how many words there are of all bits."""
    bits = np.empty(values.shape, dtype=np.int32)
    n_bits = 0
    for j, column in enumerate(values.T):
        codes = np.unique(column, return_inverse=True)[1].reshape(-1)
        bits[:, j] = codes + n_bits
        n_bits += int(codes.max(initial=-1)) + 1
    return bits, -(-n_bits // 64)


@numba.njit(cache=True, nogil=True)
def is_matched(matches: CodeArray, original: Integer, cell: Integer, n_rounds: Integer) -> bool:
    """Tell whether the edge was taken in one of the rounds so far.

    Parameters
    ----------
    matches : ndarray of int32, shape (n, k)
        Of the graph.
    original, cell : int
        Positions.
    n_rounds : int

    Returns
    -------
    bool
    """
    for r in range(n_rounds):  # noqa: SIM110  # numba has no generators in any()
        if matches[cell, r] == original:
            return True
    return False


@numba.njit(cache=True, nogil=True)
def extend(graph: Graph, original_of_cell: IntArray, n_rounds: int) -> None:
    """End a round: let each cell cover the original that it is assigned.

    Parameters
    ----------
    graph : Graph
    original_of_cell : ndarray of int64, shape (n,)
        An assignment, in positions; -1 for cells without one.
    n_rounds : int
        Rounds before.
    """
    for cell in range(original_of_cell.size):
        graph.matches[cell, n_rounds] = original_of_cell[cell]
        if original_of_cell[cell] != NONE:
            take_in(graph.originals, original_of_cell[cell], graph.cells, cell)
