"""The optimal generalization graph: a mixed integer program ([FF] Section 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import ceil, comb, isfinite
from typing import Literal

import numpy as np
import pulp  # type: ignore[import-untyped]

from kanon_db.algorithms.freeform.assignments import as_assignments
from kanon_db.algorithms.freeform.graph import cell_units, units_lost
from kanon_db.algorithms.freeform.hungarian import hungarian
from kanon_db.algorithms.freeform.result import Freeform
from kanon_db.algorithms.ground.arrays import CodeArray
from kanon_db.algorithms.ground.pulse import no_heartbeat
from kanon_db.algorithms.ground.solver import HiGHS, watched
from kanon_db.algorithms.recoding.microdata import Microdata, check_k
from kanon_db.algorithms.recoding.ncp import Ncp
from kanon_db.errors import InfeasibleError, InvalidParameterError

MAX_COLUMNS = 2**16
"""Most sets of originals that cells may cover, those of all cells together."""

Status = Literal["optimal", "feasible"]

_TOLERANCE = 1e-6  # of the solver's bound, relative


@dataclass(frozen=True, eq=False)
class OptimalFreeform(Freeform):
    """A generalization graph, and how close to the optimum it is known to be.

    Parameters
    ----------
    matches : ndarray of int32, shape (n_records, k)
    status : {"optimal", "feasible"}
        Whether the graph is proven to be optimal; if not, time ran out.
    objective : Fraction
        Loss of all records: the sum of NCP over records and attributes, times the weights.
    lower_bound : Fraction
        Proven lower bound on the loss of any graph.
    """

    status: Status
    objective: Fraction
    lower_bound: Fraction

    @property
    def gap(self) -> float:
        """Distance from the lower bound relative to the objective, in the range 0 to 1."""
        loss = self.objective
        return float((loss - self.lower_bound) / loss) if loss else 0.0


def optimal(
    microdata: Microdata,
    k: int,
    *,
    symmetric: bool = False,
    time_limit: float = 60.0,
    heartbeat: Callable[[], None] = no_heartbeat,
) -> OptimalFreeform:
    """Find the k-regular generalization graph of the least loss. For some ten records.

    Parameters
    ----------
    microdata : Microdata
    k : int
        Matches of each record, at least 1.
    symmetric : bool
        Whether the graph is to be reciprocal: records match each other or not at all.
    time_limit : float
        Seconds that the solver may take.
    heartbeat : callable
        Called every few milliseconds, in the thread of the caller; what it raises ends the work.

    Returns
    -------
    OptimalFreeform
        The best graph found, with the bound proven when the time ran out.

    Raises
    ------
    InfeasibleError
        If there are fewer than ``k`` records.
    InvalidParameterError
        If ``k`` is less than 1, ``time_limit`` is not above 0, or the table is too large.

    Notes
    -----
    **Source:** [FF] Eq. (4) to (11). Deviations:

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
    >>> found.status, found.objective, found.matches.tolist()
    ('optimal', Fraction(1, 1), [[0, 1], [1, 0], [2, 3], [3, 2]])
    """
    n = microdata.n_records
    check_k(k, n)
    n_columns = n * comb(n - 1, k - 1) if n else 0
    if n_columns > MAX_COLUMNS:
        raise InvalidParameterError(
            "the table is too large for the method optimal",
            detail=f"{n:,} records, k = {k}: {n_columns:,} sets of k matches, limited to "
            f"{MAX_COLUMNS:,}",
            hint="use the method hungarian or sort_greedy",
        )
    if not time_limit > 0:
        raise InvalidParameterError(
            "time_limit must be above 0", detail=f"time_limit = {time_limit}"
        )
    ncp = Ncp.of(microdata)
    if not n or k in (1, n):
        matches = np.array([np.roll(np.arange(n), -r) for r in range(k)], dtype=np.int32).T
        matches = np.ascontiguousarray(matches.reshape(n, k))
        loss = units_lost(ncp, matches)
        return OptimalFreeform(matches, "optimal", loss * ncp.unit, loss * ncp.unit)
    start = None if symmetric else hungarian(ncp, k, heartbeat=heartbeat)
    return _solve(ncp, k, start, symmetric, time_limit, heartbeat)


def _solve(
    ncp: Ncp,
    k: int,
    start: CodeArray | None,
    symmetric: bool,
    time_limit: float,
    heartbeat: Callable[[], None],
) -> OptimalFreeform:
    n = ncp.values.shape[0]
    subsets = list(combinations(range(n - 1), k - 1))
    of_others = np.array(subsets, dtype=np.int64).reshape(-1, k - 1)
    problem = pulp.LpProblem("freeform", pulp.LpMinimize)
    covered: list[list[list[pulp.LpVariable]]] = [[[] for _ in range(n)] for _ in range(n)]
    rows, losses, columns = [], [], []
    for cell in range(n):
        heartbeat()
        others = of_others + (of_others >= cell)
        of_cell = np.column_stack([np.full(len(subsets), cell), others])
        rows.append(of_cell)
        losses.append(cell_units(ncp, of_cell))
        for number, originals in watched(others.tolist(), heartbeat):
            column = problem.add_variable(f"y{cell:05}{number:09}", cat=pulp.LpBinary)
            columns.append(column)
            for original in (cell, *originals):
                covered[cell][original].append(column)
    matches, units = np.concatenate(rows), np.concatenate(losses)
    scale = max(int(ncp.whole.max(initial=0)), 1)  # the solver is given losses around 1
    problem.setObjective(
        pulp.LpAffineExpression(zip(columns, (units / scale).tolist(), strict=True))
    )
    for record in range(n):
        heartbeat()
        _require(problem, covered[record][record], [], 1)
        cells = [column for cell in range(n) for column in covered[cell][record]]
        _require(problem, cells, [], k)
        if symmetric:
            for other in range(record):
                _require(problem, covered[record][other], covered[other][record], 0)
    values = {}
    if start is not None:
        taken = np.zeros(len(columns), dtype=np.bool_)
        place = {row.tobytes(): number for number, row in enumerate(matches)}
        for cell in range(n):
            row = np.array([cell, *sorted(set(start[cell].tolist()) - {cell})], dtype=np.int64)
            taken[place[row.tobytes()]] = True
        values = dict(zip(columns, taken.astype(float).tolist(), strict=True))
    solver = HiGHS(values, time_limit, heartbeat, gap=0.0)
    problem.solve(solver)
    found = [] if start is None else [start]
    if solver.found:
        chosen = [round(column.varValue) == 1 for column in columns]
        found.append(as_assignments(matches[chosen]))
    if not found:
        raise InfeasibleError(
            "no reciprocal graph exists" if solver.infeasible else "no graph was found in time",
            detail=f"n_records = {n}, k = {k}, time_limit = {time_limit:g} s",
            hint="n_records * (k - 1) must be even: take another k"
            if solver.infeasible
            else "allow more time",
        )
    totals = [units_lost(ncp, graph) for graph in found]
    total = min(totals)
    bound = 0
    if isfinite(solver.bound):
        bound = min(max(ceil(solver.bound * scale - _TOLERANCE * total), 0), total)
        if solver.bound * scale >= total * (1 - _TOLERANCE):
            bound = total
    return OptimalFreeform(
        found[totals.index(total)],
        "optimal" if bound == total else "feasible",
        total * ncp.unit,
        bound * ncp.unit,
    )


def _require(
    problem: pulp.LpProblem,
    columns: list[pulp.LpVariable],
    others: list[pulp.LpVariable],
    right: int,
) -> None:
    """Let the sum of some columns exceed that of others by so many."""
    terms = [(column, 1) for column in columns] + [(column, -1) for column in others]
    problem.addConstraint(
        pulp.LpConstraint(pulp.LpAffineExpression(terms), pulp.LpConstraintEQ, rhs=right)
    )
