"""Finds the graph of least loss, by a mixed integer program ([FF] Section 4), for some ten records.

A minimum-cost flow ([FF] Section 8) finds the graph of the least sum of weights of edges instead.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from math import ceil, comb, isfinite
from typing import Literal, get_args

import numpy as np

from kanon_db.algorithms.freeform._generalization_graph import (
    FAR,
    NONE,
    CheapestCells,
    GrowingGraph,
    build,
    cell_units,
    find_cheapest,
    open_round,
    pair_units,
    refresh,
    search_for,
    units_lost,
)
from kanon_db.algorithms.freeform.matches import (
    FreeformMatches,
    as_assignments,
    name_after_originals,
)
from kanon_db.algorithms.freeform.matching_heuristics import hungarian, sort_greedy
from kanon_db.algorithms.ground.arrays import CodeArray, FloatArray, IntArray
from kanon_db.algorithms.ground.computation import UNLIMITED, Proof, Pulse, kernel
from kanon_db.algorithms.ground.solver import (
    HIGHS,
    LinearModel,
    new_solver,
    run,
    solve,
    solve_problem,
)
from kanon_db.algorithms.recoding.loss import Ncp
from kanon_db.algorithms.recoding.microdata import Microdata, check_k
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InfeasibleError, InvalidParameterError

MAX_MATCHES = 2**17
"""Most records times k."""

_ORIGINALS_PER_CALL = 64
_PRIMAL = 4  # highspy's number of the strategy


def min_cost_flow(ncp: Ncp, k: int, *, pulse: Pulse = UNLIMITED) -> CodeArray:
    """Find the k-regular graph with the least sum of weights of its edges. A baseline.

    The loss of a cell is not the sum of the weights of its edges, so only for k = 2 is this the
    optimum.

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
        As in :class:`~kanon_db.algorithms.freeform.matches.FreeformMatches`.

    Raises
    ------
    InvalidParameterError
        If records times k exceed :data:`MAX_MATCHES`.

    Notes
    -----
    **Source:** the baseline minCostFlow of [FF] Section 8: an edge weighs the NCP of a cell of its
    two records, in the complete graph. The linear program has whole-numbered vertices; HiGHS
    solves it over the lightest edges of each original, and edges of negative reduced cost are
    added until there are none. Dual values are rounded to units, so that the sum is within
    one unit for each edge of the least one (:class:`~kanon_db.algorithms.recoding.loss.Ncp`).

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
        new = np.setdiff1d(_lightest(graph, k, pulse, lighter=potential), program.edges)
    original, cell = np.divmod(program.taken, n)
    by_cell = np.argsort(cell, kind="stable")
    rows = np.empty((n, k), dtype=np.int64)
    rows[:, 0] = np.arange(n)
    rows[:, 1:] = original[by_cell].reshape(n, k - 1)
    return as_assignments(graph.record[rows[position]], pulse=pulse)


def _lightest(
    graph: GrowingGraph, k: int, pulse: Pulse, lighter: IntArray | None = None
) -> IntArray:
    """Find edges of least weight plus price of each original, as original times n plus cell."""
    n = graph.record.size
    search = search_for(min(k + 8, n), 1)
    cells = np.full((n, search.cells.size), NONE, dtype=np.int32)
    limit = np.full(n, FAR) if lighter is None else lighter
    for start in range(0, n, _ORIGINALS_PER_CALL):
        pulse.beat()
        _search(graph, search, start, min(start + _ORIGINALS_PER_CALL, n), cells, limit)
    original, place = np.nonzero(cells != NONE)
    return original * n + cells[original, place]


@kernel
def _search(
    graph: GrowingGraph,
    search: CheapestCells,
    start: int,
    end: int,
    cells: CodeArray,
    limit: IntArray,
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
        # Weights are scaled to at most 1 for the solver.
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
            # The last solution stays feasible, so primal simplex continues from it.
            self._highs.setOptionValue("simplex_strategy", _PRIMAL)
        self._highs.addCols(
            edges.size, weights / self._scale, np.zeros(edges.size), np.ones(edges.size),
            2 * edges.size, np.arange(0, 2 * edges.size, 2, dtype=np.int32),
            np.column_stack([original, self._n + cell]).ravel().astype(np.int32),
            np.ones(2 * edges.size),
        )  # fmt: skip
        self.edges = np.append(self.edges, edges)

    def solve(self, pulse: Pulse) -> tuple[IntArray, IntArray]:
        """Return the duals in units: prices of the cells, and the most each original may pay."""
        run(self._highs, pulse)
        duals = np.array(self._highs.getSolution().row_dual) * self._scale
        rounded = np.rint(duals).astype(np.int64)
        return -rounded[self._n :], rounded[: self._n]

    @property
    def taken(self) -> IntArray:
        """Edges of the solution."""
        return self.edges[np.rint(self._highs.getSolution().col_value).astype(np.bool_)]


Formulation = Literal["match_sets", "paper"]

MAX_COLUMNS = 2**16
"""Most sets of originals, of all cells together, that cells may cover: columns of the program."""

_TOLERANCE = 1e-6  # of the solver's bound, relative


@dataclass(frozen=True, eq=False)
class OptimalFreeform(FreeformMatches):
    """A generalization graph, and how close to the optimum it is known to be.

    Parameters
    ----------
    parts : sequence of MatchedPart
        One, of all records.
    proof : Proof
        Loss of all records, which is the sum of NCP over records and attributes, times the
        weights; and a bound on that of any graph.
    """

    proof: Proof


def optimal(
    microdata: Microdata,
    k: int,
    *,
    formulation: Formulation = "match_sets",
    solver: str = HIGHS,
    symmetric: bool = False,
    pulse: Pulse = UNLIMITED,
) -> OptimalFreeform:
    """Find the k-regular generalization graph of the least loss. For some ten records.

    Parameters
    ----------
    microdata : Microdata
    k : int
        Matches of each record, at least 1.
    formulation : {"match_sets", "paper"}
        The program to solve: one variable for each set of matches that a record can have, or the
        paper's, one for each pair of records.
    solver : str
        PuLP's name of the solver of the formulation ``paper``.
    symmetric : bool
        Whether the graph is to be reciprocal: records match each other or not at all. Not by the
        formulation ``paper``.
    pulse : Pulse
        Beaten every few milliseconds, in the thread of the caller; what that raises ends the
        work.

    Returns
    -------
    OptimalFreeform
        The best graph found, with the bound proven when the time ran out.

    Raises
    ------
    InfeasibleError
        If there are fewer than ``k`` records.
    InvalidParameterError
        If ``k`` is less than 1, the table is too large, ``formulation`` is unknown, or ``paper``
        and the graph is to be reciprocal or a numeric attribute holds NULL.

    Notes
    -----
    **Source:** [FF] Section 4, Eq. (4) to (11). The formulation ``paper`` is that program as it is:
    :func:`~kanon_db.algorithms.programs.graph_program`.

    HiGHS gets ``match_sets`` as arrays: PuLP would state it for seconds, deaf to a cancel.

    Deviations of ``match_sets``:

    - The model has a variable for each set of k - 1 other originals that a cell may cover, whose
      loss is known beforehand, not for each edge: a cell takes one set, and each original is
      covered k times. So ranges need no variables (Eq. (4) to (9)), and the relaxation is much
      tighter. Both models have the same solutions.
    - Each cell covers its own original: any k-regular graph contains an assignment, and naming
      the cells after it makes it the identity, at the same loss.

    Examples
    --------
    >>> from kanon_db.algorithms.recoding.microdata import Attribute
    >>> age = Attribute(4, numbers=np.array([20.0, 30, 50, 60]), lower=20, upper=60)
    >>> found = optimal(Microdata([[0], [1], [2], [3]], (age,)), 2)
    >>> found.proof.status, found.proof.objective, found.matches.tolist()
    ('optimal', Fraction(1, 1), [[0, 1], [1, 0], [2, 3], [3, 2]])
    """
    n = microdata.n_records
    check_k(k, n)
    _check(formulation, symmetric)
    n_columns = n * comb(n - 1, k - 1) if n else 0
    if formulation == "match_sets" and n_columns > MAX_COLUMNS:
        raise InvalidParameterError(
            "the table is too large for the method optimal",
            detail=f"{n:,} records, k = {k}: {n_columns:,} sets of k matches, limit = "
            f"{MAX_COLUMNS:,}",
            hint="use the method hungarian or sort_greedy",
        )
    ncp = Ncp.of(microdata, pulse=pulse)
    if not n or k in (1, n):
        matches = np.array([np.roll(np.arange(n), -r) for r in range(k)], dtype=np.int32).T
        matches = np.ascontiguousarray(matches.reshape(n, k))
        loss = units_lost(ncp, matches)
        return OptimalFreeform(FreeformMatches.whole(matches).parts, Proof.of(loss, loss, ncp.unit))
    if formulation == "paper":
        found = _solve_as_stated(microdata, ncp, k, hungarian(ncp, k, pulse=pulse), pulse, solver)
    else:
        start = None if symmetric else hungarian(ncp, k, pulse=pulse)
        found = _solve(ncp, k, start, symmetric, pulse)
    if ncp.is_exact:
        return found
    # Of a number, the difference of two rounded positions is too large by less than two units.
    least = max(found.proof.lower_bound - 2 * ncp.values.size * ncp.unit, Fraction(0))
    return replace(found, proof=replace(found.proof, lower_bound=least))


def _check(formulation: Formulation, symmetric: bool) -> None:
    if formulation not in get_args(Formulation):
        raise InvalidParameterError(
            "unknown formulation", hint=f"use one of {', '.join(get_args(Formulation))}"
        )
    if symmetric and formulation == "paper":
        raise InvalidParameterError(
            "the formulation paper cannot be combined with symmetric",
            detail="the paper's program has no constraint that matches are mutual",
            hint="leave out one of the two",
        )


def _model(matches: IntArray, losses: FloatArray, symmetric: bool) -> LinearModel:
    """State the program: a variable for each cell, the first of a row, and what it covers."""
    (n_columns, k), n = matches.shape, int(matches[-1, 0]) + 1
    column = np.repeat(np.arange(n_columns), k)
    cell, original = np.repeat(matches[:, 0], k), matches.reshape(-1)
    # Terms as row, variable, coefficient: each cell takes one set, each original is in k cells.
    terms = [
        (matches[:, 0], np.arange(n_columns), np.ones(n_columns, dtype=np.int64)),
        (n + original, column, np.ones_like(column)),
    ]
    right = np.repeat([1, k], n)
    if symmetric:
        other = cell != original
        low, high = np.minimum(cell, original)[other], np.maximum(cell, original)[other]
        pair = 2 * n + high * (high - 1) // 2 + low
        terms.append((pair, column[other], np.where(cell[other] == high, 1, -1)))
        right = np.append(right, np.zeros(n * (n - 1) // 2, dtype=np.int64))
    row, variable, coefficients = (np.concatenate(parts) for parts in zip(*terms, strict=True))
    order = np.argsort(row, kind="stable")
    return LinearModel(
        costs=losses,
        lower=np.zeros(n_columns, dtype=np.int64),
        upper=np.ones(n_columns, dtype=np.int64),
        is_whole=np.ones(n_columns, dtype=np.bool_),
        row_lower=right,
        row_upper=right,
        rows=row[order],
        columns=variable[order],
        coefficients=coefficients[order],
    )


def _solve(
    ncp: Ncp, k: int, start: CodeArray | None, symmetric: bool, pulse: Pulse
) -> OptimalFreeform:
    n = ncp.values.shape[0]
    subsets = list(combinations(range(n - 1), k - 1))
    of_others = np.array(subsets, dtype=np.int64).reshape(-1, k - 1)
    rows, losses = [], []
    for cell in range(n):
        pulse.beat()
        others = of_others + (of_others >= cell)
        rows.append(np.column_stack([np.full(len(subsets), cell), others]))
        losses.append(cell_units(ncp, rows[-1]))
    matches, units = np.concatenate(rows), np.concatenate(losses)
    values = None
    if start is not None:
        known = {(cell, *sorted({*row} - {cell})) for cell, row in enumerate(start.tolist())}
        values = [float((*row,) in known) for row in pulse.watched(matches.tolist())]
    scale = max(int(ncp.whole.max(initial=0)), 1)  # the solver is given losses around 1
    highs = _model(matches, units / scale, symmetric).load_solver(gap=0.0)
    answer = solve(highs, pulse, values)
    graphs = [] if start is None else [start]
    if answer.values is not None:
        graphs.append(as_assignments(matches[np.rint(answer.values) == 1]))
    if not graphs:
        raise InfeasibleError(
            "no reciprocal graph exists" if answer.is_infeasible else "no graph was found in time",
            detail=f"n_records = {n}, k = {k}, time_limit = {pulse.seconds:g} s",
            hint="n_records * (k - 1) must be even: choose another k"
            if answer.is_infeasible
            else "raise time_limit",
        )
    return _best(ncp, graphs, answer.lower_bound * scale)


def _solve_as_stated(
    microdata: Microdata, ncp: Ncp, k: int, start: CodeArray, pulse: Pulse, solver: str
) -> OptimalFreeform:
    """Solve the paper's program, in which a cell need not match its own original."""
    from kanon_db.algorithms.programs import graph_program

    program = graph_program(microdata, k)
    answer = solve_problem(program.problem, pulse, solver=solver)
    graphs = [start]
    if answer.values is not None:
        records, originals = np.nonzero(program.whole_values("x").T)
        if (np.bincount(records, minlength=microdata.n_records) == k).all():
            graphs.append(name_after_originals(originals.reshape(-1, k), pulse=pulse))
    return _best(ncp, graphs, answer.lower_bound / float(ncp.unit))


def _best(ncp: Ncp, graphs: list[CodeArray], least: float) -> OptimalFreeform:
    """Take the best of the graphs that were found, beside a lower bound by the solver."""
    totals = [units_lost(ncp, graph) for graph in graphs]
    total = min(totals)
    bound = 0
    if isfinite(least):
        bound = max(ceil(least - _TOLERANCE * total), 0)
        if least >= total * (1 - _TOLERANCE):
            bound = total
    best = FreeformMatches.whole(graphs[totals.index(total)])
    return OptimalFreeform(best.parts, Proof.of(total, bound, ncp.unit))
