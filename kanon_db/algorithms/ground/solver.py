"""HiGHS, run so that it can be interrupted: directly, or for models made with PuLP."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from time import monotonic
from typing import TypeVar

import highspy
import numpy as np
import pulp  # type: ignore[import-untyped]

from kanon_db.algorithms.ground.arrays import FloatArray

_T = TypeVar("_T")

_POLL_SECONDS = 0.005
_ITEMS_PER_HEARTBEAT = 1000


class Deadline:
    """The end of a time limit.

    Parameters
    ----------
    seconds : float
        From now on; infinity for no limit.
    """

    def __init__(self, seconds: float) -> None:
        self._end = monotonic() + seconds

    def __call__(self) -> bool:
        """Tell whether the time is over."""
        return self.seconds_left <= 0

    @property
    def seconds_left(self) -> float:
        """Seconds until the end, negative after it."""
        return self._end - monotonic()


def run(highs: highspy.Highs, heartbeat: Callable[[], None]) -> None:
    """Run the solver in a thread of its own, and keep the heart beating in this one.

    Parameters
    ----------
    highs : highspy.Highs
        With ``HandleUserInterrupt`` set.
    heartbeat : callable
        Called every few milliseconds; what it raises stops the solver.
    """
    # Signals are for the thread that knows what to do about them: new threads block them.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        highs.startSolve()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        while not highs.wait(_POLL_SECONDS)[0]:
            heartbeat()
    finally:
        highs.cancelSolve()  # type: ignore[no-untyped-call]
        highs.wait()


def is_feasible(highs: highspy.Highs) -> bool:
    """Tell whether the solver has a solution.

    Parameters
    ----------
    highs : highspy.Highs

    Returns
    -------
    bool
    """
    status = highs.getInfo().primal_solution_status
    return bool(status == highspy.SolutionStatus.kSolutionStatusFeasible)


def watched(items: list[_T], heartbeat: Callable[[], None]) -> Iterator[tuple[int, _T]]:
    """Enumerate, with a heartbeat every few milliseconds of light work.

    Parameters
    ----------
    items : list
    heartbeat : callable

    Yields
    ------
    int
    object
    """
    for i, item in enumerate(items):
        if i % _ITEMS_PER_HEARTBEAT == 0:
            heartbeat()
        yield i, item


class HiGHS(pulp.HiGHS):  # type: ignore[misc]  # PuLP has no types
    """HiGHS for PuLP, with a start, polled while it runs.

    PuLP's own class takes no start, adds rows and columns one by one, returns only when the
    solver has finished, and calls an interrupted solution optimal.

    Parameters
    ----------
    start : dict of LpVariable to float
        A solution to start from; empty for none.
    time_limit : float
        Seconds that the solver may take.
    heartbeat : callable
        Called every few milliseconds, in the thread of the caller; what it raises stops the
        solver.
    gap : float
        Distance of objective and bound at which the solution counts as optimal.
    """

    def __init__(
        self,
        start: dict[pulp.LpVariable, float],
        time_limit: float,
        heartbeat: Callable[[], None],
        *,
        gap: float,
    ) -> None:
        # One thread: the server that this runs in has other work.
        super().__init__(msg=False, timeLimit=time_limit, threads=1, gapRel=0.0, gapAbs=gap)
        self._start = start
        self._heartbeat = heartbeat
        self._found = False
        self._status = highspy.HighsModelStatus.kNotset
        self._bound = -highspy.kHighsInf

    @property
    def found(self) -> bool:
        """Whether there is a solution."""
        return self._found

    @property
    def bound(self) -> float:
        """Lower bound on the objective, minus infinity if there is none."""
        return self._bound

    @property
    def infeasible(self) -> bool:
        """Whether there is no solution."""
        return self._status == highspy.HighsModelStatus.kInfeasible

    def buildSolverModel(self, lp: pulp.LpProblem) -> None:  # noqa: N802  # PuLP's name
        """Hand over the model as arrays."""
        variables, constraints = lp.variables(), lp.constraints()
        for index, variable in watched(variables, self._heartbeat):
            variable.index = index
        starts, indices, values = [0], [], []
        for _, constraint in watched(constraints, self._heartbeat):
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
        """Start from the start, and remember what came out."""
        highs, variables = lp.solverModel, lp.variables()
        if self._start:
            start = highspy.HighsSolution()
            start.col_value = [float(self._start[variable]) for variable in variables]
            highs.setSolution(start)
        highs.HandleUserInterrupt = True
        run(highs, self._heartbeat)
        self._status = highs.getModelStatus()
        self._bound = highs.getInfo().mip_dual_bound
        self._found = is_feasible(highs)

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


def _bounds(bounds: list[float | None], infinity: float) -> FloatArray:
    return np.array([infinity if bound is None else bound for bound in bounds], dtype=float)
