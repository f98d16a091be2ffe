"""The integer linear program of pattern-guided k-anonymity, and the solver it is given to."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import highspy
import numpy as np
import numpy.typing as npt
import pulp  # type: ignore[import-untyped]

from kanon_db.algorithms.suppression.row_types import IntArray

_T = TypeVar("_T")

_POLL_SECONDS = 0.005
_ITEMS_PER_HEARTBEAT = 1000


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
        for i, limit in _watched(limits.tolist(), heartbeat)
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
    for _, (group, options) in _watched(_options_by(program.group), heartbeat):  # Eq. (8)
        terms = [(x[i], 1) for i in options]
        problem.addConstraint(_constraint(terms, pulp.LpConstraintEQ, program.counts[group]))
    for _, (j, options) in _watched(_options_by(program.instance), heartbeat):  # Eq. (7)
        terms = [(x[i], 1) for i in options]
        lacking = program.k - program.received[j]
        if j in u:
            terms.append((u[j], -program.k))
            lacking = 0
        if j in u or lacking > 0:
            problem.addConstraint(_constraint(terms, pulp.LpConstraintGE, lacking))
    for i, j in _watched(program.instance.tolist(), heartbeat):  # Eq. (6)
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


def _watched(items: list[_T], heartbeat: Callable[[], None]) -> Iterator[tuple[int, _T]]:
    """Enumerate, with a heartbeat every few milliseconds of light work."""
    for i, item in enumerate(items):
        if i % _ITEMS_PER_HEARTBEAT == 0:
            heartbeat()
        yield i, item


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


class _HiGHS(pulp.HiGHS):  # type: ignore[misc]  # PuLP has no types
    """HiGHS with a start, polled while it runs.

    PuLP's own class takes no start, adds rows and columns one by one, returns only when the
    solver has finished, and calls an interrupted solution optimal.
    """

    def __init__(
        self,
        start: dict[pulp.LpVariable, int],
        time_limit: float,
        heartbeat: Callable[[], None],
    ) -> None:
        # One thread: the server that this runs in has other work. Costs are whole numbers, so that
        # a gap of less than 1 is none.
        super().__init__(msg=False, timeLimit=time_limit, threads=1, gapRel=0.0, gapAbs=0.99)
        self._start = start
        self._heartbeat = heartbeat
        self._found = False
        self._status = highspy.HighsModelStatus.kNotset
        self._bound = -highspy.kHighsInf

    def buildSolverModel(self, lp: pulp.LpProblem) -> None:  # noqa: N802  # PuLP's name
        """Hand over the model as arrays."""
        variables, constraints = lp.variables(), lp.constraints()
        for index, variable in _watched(variables, self._heartbeat):
            variable.index = index
        starts, indices, values = [0], [], []
        for _, constraint in _watched(constraints, self._heartbeat):
            indices += [variable.index for variable in constraint]
            values += constraint.values()
            starts.append(len(indices))
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(variables), len(constraints)
        model.col_cost_ = np.array([lp.objective.get(variable, 0.0) for variable in variables])
        model.col_lower_ = np.array([variable.lowBound for variable in variables], dtype=float)
        model.col_upper_ = np.array([variable.upBound for variable in variables], dtype=float)
        model.integrality_ = [
            highspy.HighsVarType.kInteger
            if variable.cat == pulp.LpInteger
            else highspy.HighsVarType.kContinuous
            for variable in variables
        ]
        model.row_lower_ = _bounds([row.getLb() for row in constraints], -highspy.kHighsInf)
        model.row_upper_ = _bounds([row.getUb() for row in constraints], highspy.kHighsInf)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.array(starts)
        model.a_matrix_.index_ = np.array(indices)
        model.a_matrix_.value_ = np.array(values, dtype=float)
        lp.solverModel.passModel(model)

    def callSolver(self, lp: pulp.LpProblem) -> None:  # noqa: N802  # PuLP's name
        """Decide on the instances in use, then on the records that they get."""
        highs, variables = lp.solverModel, lp.variables()
        if self._start:
            start = highspy.HighsSolution()
            start.col_value = [float(self._start[variable]) for variable in variables]
            highs.setSolution(start)
        highs.HandleUserInterrupt = True
        self._run(highs)
        self._status = highs.getModelStatus()
        self._bound = highs.getInfo().mip_dual_bound
        if not _is_feasible(highs):
            return
        # With all u_jl fixed the rest is a transportation problem, solved in moments: the simplex
        # method ends in a vertex, where all x_ij are whole numbers.
        binary = [v.index for v in variables if v.cat == pulp.LpInteger]
        fixed = np.rint(np.array(highs.getSolution().col_value)[binary])
        highs.changeColsBounds(len(binary), np.array(binary, dtype=np.int32), fixed, fixed)
        for column in binary:
            highs.changeColIntegrality(column, highspy.HighsVarType.kContinuous)
        highs.setOptionValue("solver", "simplex")
        highs.setOptionValue("time_limit", highspy.kHighsInf)
        self._run(highs)
        self._found = _is_feasible(highs)

    def _run(self, highs: highspy.Highs) -> None:
        """Run in a thread of its own, and keep the heart beating in this one."""
        # Signals are for the thread that knows what to do about them: new threads block them.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            highs.startSolve()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            while not highs.wait(_POLL_SECONDS)[0]:
                self._heartbeat()
        finally:
            highs.cancelSolve()  # type: ignore[no-untyped-call]
            highs.wait()

    def findSolutionValues(self, lp: pulp.LpProblem) -> tuple[int, int]:  # noqa: N802
        """Set PuLP's values, where there are any."""
        values = lp.solverModel.getSolution().col_value
        for variable in lp.variables():
            variable.varValue = values[variable.index] if self._found else None
        if self._status == highspy.HighsModelStatus.kOptimal and self._found:
            return pulp.LpStatusOptimal, pulp.LpSolutionOptimal
        if self._found:
            return pulp.LpStatusNotSolved, pulp.LpSolutionIntegerFeasible
        return pulp.LpStatusNotSolved, pulp.LpSolutionNoSolutionFound

    def solved(self, flows: list[pulp.LpVariable]) -> Solved:
        """Tell what came out."""
        return Solved(
            np.rint([flow.varValue for flow in flows]).astype(np.int64) if self._found else None,
            self._bound,
            self._status == highspy.HighsModelStatus.kInfeasible,
        )


def _is_feasible(highs: highspy.Highs) -> bool:
    status = highs.getInfo().primal_solution_status
    return bool(status == highspy.SolutionStatus.kSolutionStatusFeasible)


def _bounds(bounds: list[float | None], infinity: float) -> npt.NDArray[np.float64]:
    return np.array([infinity if bound is None else bound for bound in bounds], dtype=float)
