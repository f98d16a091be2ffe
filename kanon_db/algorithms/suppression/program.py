"""The integer linear program of pattern-guided k-anonymity, and the solver it is given to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import highspy
import numpy as np
import pulp  # type: ignore[import-untyped]

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.solver import HiGHS, is_feasible, run, watched


@dataclass(frozen=True, eq=False)
class Program:
    """Records of groups are sent to instances of patterns, each of which gets none or at least k.

    An option is a pair of group and instance.

    Parameters
    ----------
    group, instance : ndarray of int64, shape (o,)
        The two sides of each option, at least one.
    costs : ndarray of int64, shape (o,)
        Cost of sending one record.
    counts : ndarray of int64, shape (g,)
        Records of each group.
    received : ndarray of int64, shape (i,)
        Records that each instance has already.
    k : int
        Fewest records of an instance in use.

    Notes
    -----
    **Source:** [PG] Section 2.2, Eq. (5) to (8); deviations: see
    :func:`kanon_db.algorithms.suppression.optimal.optimal`.
    """

    group: IntArray
    instance: IntArray
    costs: IntArray
    counts: IntArray
    received: IntArray
    k: int


@dataclass(frozen=True, eq=False)
class Solved:
    """What the solver says, in its floating point numbers.

    Parameters
    ----------
    flows : ndarray of int64, shape (o,), or None
        Records sent by each option, rounded; None if no solution was found.
    lower_bound : float
        Bound on the cost, minus infinity if there is none.
    infeasible : bool
        Whether there is no solution.
    """

    flows: IntArray | None
    lower_bound: float
    infeasible: bool


def solve(
    program: Program,
    start: IntArray | None,
    *,
    time_limit: float,
    heartbeat: Callable[[], None],
) -> Solved:
    """Solve a program by PuLP and HiGHS.

    Parameters
    ----------
    program : Program
    start : ndarray of int64, shape (o,), optional
        A solution to start from.
    time_limit : float
        Seconds that the solver may take.
    heartbeat : callable
        Called every few milliseconds, in the thread of the caller; what it raises stops the
        solver.

    Returns
    -------
    Solved
    """
    limits = program.counts[program.group]
    problem = pulp.LpProblem("suppression", pulp.LpMinimize)
    # Nine digits: PuLP orders variables by name.
    x = [
        problem.add_variable(f"x{i:09}", 0, limit)
        for i, limit in watched(limits.tolist(), heartbeat)
    ]
    # An instance that has records already is in use: its u_jl is 1.
    u = {
        j: problem.add_variable(f"u{j:09}", cat=pulp.LpBinary)
        for j in np.unique(program.instance).tolist()
        if not program.received[j]
    }
    problem.setObjective(  # Eq. (5)
        pulp.LpAffineExpression(list(zip(x, program.costs.tolist(), strict=True)))
    )
    for _, (group, options) in watched(_options_by(program.group), heartbeat):  # Eq. (8)
        terms = [(x[i], 1) for i in options]
        problem.addConstraint(_constraint(terms, pulp.LpConstraintEQ, program.counts[group]))
    for _, (j, options) in watched(_options_by(program.instance), heartbeat):  # Eq. (7)
        terms = [(x[i], 1) for i in options]
        lacking = program.k - program.received[j]
        if j in u:
            terms.append((u[j], -program.k))
            lacking = 0
        if j in u or lacking > 0:
            problem.addConstraint(_constraint(terms, pulp.LpConstraintGE, lacking))
    for i, j in watched(program.instance.tolist(), heartbeat):  # Eq. (6)
        if j in u:
            terms = [(x[i], 1), (u[j], -int(limits[i]))]
            problem.addConstraint(_constraint(terms, pulp.LpConstraintLE, 0))
    values: dict[pulp.LpVariable, int] = {}
    if start is not None:
        in_use = set(program.instance[start > 0].tolist())
        values |= zip(x, start.tolist(), strict=True)
        values |= {variable: int(j in in_use) for j, variable in u.items()}
    solver = _HiGHS(values, time_limit, heartbeat)
    problem.solve(solver)
    return solver.solved(x)


def _options_by(side: IntArray) -> list[tuple[int, list[int]]]:
    """Options of each group, or of each instance."""
    order = np.argsort(side, kind="stable")
    keys, starts = np.unique(side[order], return_index=True)
    parts = np.split(order, starts[1:])
    return [(key, part.tolist()) for key, part in zip(keys.tolist(), parts, strict=True)]


def _constraint(
    terms: list[tuple[pulp.LpVariable, int]], sense: int, right: int
) -> pulp.LpConstraint:
    return pulp.LpConstraint(pulp.LpAffineExpression(terms), sense, rhs=int(right))


class _HiGHS(HiGHS):
    """Solves in two steps: the instances in use, then the records that they get."""

    def __init__(
        self,
        start: dict[pulp.LpVariable, int],
        time_limit: float,
        heartbeat: Callable[[], None],
    ) -> None:
        # Costs are whole numbers, so that a gap of less than 1 is none.
        super().__init__(dict(start), time_limit, heartbeat, gap=0.99)

    def callSolver(self, lp: pulp.LpProblem) -> None:  # noqa: N802  # PuLP's name
        """Decide on the instances in use, then on the records that they get."""
        super().callSolver(lp)
        if not self._found:
            return
        # With all u_jl fixed the rest is a transportation problem, solved in moments: the simplex
        # method ends in a vertex, where all x_ij are whole numbers.
        highs = lp.solverModel
        binary = [v.index for v in lp.variables() if v.cat == pulp.LpInteger]
        fixed = np.rint(np.array(highs.getSolution().col_value)[binary])
        highs.changeColsBounds(len(binary), np.array(binary, dtype=np.int32), fixed, fixed)
        for column in binary:
            highs.changeColIntegrality(column, highspy.HighsVarType.kContinuous)
        highs.setOptionValue("solver", "simplex")
        highs.setOptionValue("time_limit", highspy.kHighsInf)
        run(highs, self._heartbeat)
        self._found = is_feasible(highs)

    def solved(self, flows: list[pulp.LpVariable]) -> Solved:
        """Tell what came out."""
        return Solved(
            np.rint([flow.varValue for flow in flows]).astype(np.int64) if self._found else None,
            self.bound,
            self.infeasible,
        )
