"""Minimum-cost flow: the k-regular graph with the least sum of weights of its edges ([FF] 8)."""

from __future__ import annotations

import numba
import numpy as np

from kanon_db.algorithms.freeform.assignments import as_assignments
from kanon_db.algorithms.freeform.box_tree import open_round, refresh
from kanon_db.algorithms.freeform.descent import Search, find_cheapest, search_for
from kanon_db.algorithms.freeform.graph import FAR, NONE, Graph, build
from kanon_db.algorithms.freeform.losses import pair_units
from kanon_db.algorithms.freeform.sort_greedy import sort_greedy
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.ground.solver import new_solver, run
from kanon_db.algorithms.recoding.ncp import Ncp
from kanon_db.errors import InvalidParameterError

MAX_MATCHES = 2**17
"""Most records times k."""

_ORIGINALS_PER_CALL = 64
_PRIMAL = 4  # highspy's number of the strategy


def min_cost_flow(ncp: Ncp, k: int, *, pulse: Pulse = UNLIMITED) -> CodeArray:
    """Find the graph whose edges weigh least, each one by itself. A baseline.

    The loss of a cell is not the sum of what its matches would cost one by one, so this is no
    optimum but for k = 2.

    Parameters
    ----------
    ncp : Ncp
    k : int
        Matches of each record, from 1 to the number of records.
    pulse : Pulse
        Beaten every few milliseconds; what a beat raises ends the work.

    Returns
    -------
    ndarray of int32, shape (n, k)
        As in :class:`~kanon_db.algorithms.freeform.result.Freeform`.

    Raises
    ------
    InvalidParameterError
        If records times k exceed :data:`MAX_MATCHES`.

    Notes
    -----
    **Source:** the baseline minCostFlow of [FF] Section 8: an edge weighs the NCP of a cell of its
    two records, in the complete graph. The linear program has whole-numbered vertices; HiGHS
    solves it over the lightest edges of each original, and those of lower reduced cost than 0
    are added until there are none. Dual values are rounded to units, so that the sum is within
    one unit for each edge of the least one (:class:`~kanon_db.algorithms.recoding.ncp.Ncp`).

    Examples
    --------
    >>> from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
    >>> age = Attribute(4, numbers=np.array([20.0, 30, 50, 60]), lower=20, upper=60)
    >>> table = Microdata([[0], [1], [2], [3]], (age,))
    >>> min_cost_flow(Ncp.of(table), 2).tolist()
    [[0, 1], [1, 0], [2, 3], [3, 2]]
    """
    n = ncp.values.shape[0]
    if n * k > MAX_MATCHES:
        raise InvalidParameterError(
            "too many matches for the method min_cost_flow",
            detail=f"{n:,} records, k = {k}; the limit for records times k is {MAX_MATCHES:,}",
            hint="use the method sort_greedy, or a smaller partition_size",
        )
    if k == 1:
        return np.arange(n, dtype=np.int32)[:, np.newaxis]
    graph = build(ncp, k)
    open_round(graph)
    position = np.argsort(graph.record)
    first = position[sort_greedy(ncp, k, improve=False, pulse=pulse)[graph.record, 1:]]
    cell = np.repeat(np.arange(n), k - 1)
    edges = np.union1d(first.ravel() * n + cell, _lightest(graph, k, pulse))
    program = _Program(ncp.of_records(graph.record), k)
    new = edges
    while new.size:
        program.add(new)
        graph.price[:n], potential = program.solve(pulse)
        refresh(graph)
        new = np.setdiff1d(_lightest(graph, k, pulse, below=potential), program.edges)
    original, cell = np.divmod(program.taken, n)
    by_cell = np.argsort(cell, kind="stable")
    rows = np.empty((n, k), dtype=np.int64)
    rows[:, 0] = np.arange(n)
    rows[:, 1:] = original[by_cell].reshape(n, k - 1)
    return as_assignments(graph.record[rows[position]], pulse=pulse)


def _lightest(graph: Graph, k: int, pulse: Pulse, below: IntArray | None = None) -> IntArray:
    """Find edges of least weight plus price of each original, as original times n plus cell."""
    n = graph.record.size
    search = search_for(min(k + 8, n), 1)
    cells = np.full((n, search.cells.size), NONE, dtype=np.int32)
    limit = np.full(n, FAR) if below is None else below
    for start in range(0, n, _ORIGINALS_PER_CALL):
        pulse.beat()
        _search(graph, search, start, min(start + _ORIGINALS_PER_CALL, n), cells, limit)
    original, place = np.nonzero(cells != NONE)
    return original * n + cells[original, place]


@numba.njit(cache=True, nogil=True)
def _search(
    graph: Graph, search: Search, start: int, end: int, cells: CodeArray, limit: IntArray
) -> None:
    for original in range(start, end):
        find_cheapest(graph, search, original, -FAR)
        for place in range(search.costs.size):
            if search.costs[place] < limit[original]:
                cells[original, place] = search.cells[place]


class _Program:
    """The linear program over the edges so far, an edge being original times n plus cell."""

    def __init__(self, ncp: Ncp, k: int) -> None:
        self._n = n = ncp.values.shape[0]
        self.edges = np.empty(0, dtype=np.int64)
        self._ncp = ncp
        # The solver is given weights up to 1.
        self._scale = max(int(ncp.whole[ncp.numeric].sum() + ncp.step.sum()), 1)
        self._highs = highs = new_solver()
        highs.setOptionValue("solver", "simplex")
        degrees = np.full(2 * n, k - 1.0)
        none = np.zeros(0, dtype=np.int32)
        highs.addRows(2 * n, degrees, degrees, 0, np.zeros(2 * n, np.int32), none, np.zeros(0))

    def add(self, edges: IntArray) -> None:
        """Add edges, each of capacity 1."""
        original, cell = np.divmod(edges, self._n)
        weights = pair_units(self._ncp, original, cell)
        if self.edges.size:
            # The last solution remains feasible: primal simplex goes on from it.
            self._highs.setOptionValue("simplex_strategy", _PRIMAL)
        self._highs.addCols(
            edges.size, weights / self._scale, np.zeros(edges.size), np.ones(edges.size),
            2 * edges.size, np.arange(0, 2 * edges.size, 2, dtype=np.int32),
            np.column_stack([original, self._n + cell]).ravel().astype(np.int32),
            np.ones(2 * edges.size),
        )  # fmt: skip
        self.edges = np.append(self.edges, edges)

    def solve(self, pulse: Pulse) -> tuple[IntArray, IntArray]:
        """Find prices of the cells, and what each original may pay at most, in units."""
        run(self._highs, pulse)
        duals = np.array(self._highs.getSolution().row_dual) * self._scale
        whole = np.rint(duals).astype(np.int64)
        return -whole[self._n :], whole[: self._n]

    @property
    def taken(self) -> IntArray:
        """Edges of the solution."""
        return self.edges[np.rint(self._highs.getSolution().col_value).astype(np.bool_)]
