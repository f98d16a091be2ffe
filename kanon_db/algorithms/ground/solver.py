"""Runs the solver HiGHS, interruptibly, and large programs in a process of its own.

Small models are stated with PuLP and solved by :func:`solve_problem`. Large models, and those that
gain rows or columns as a search goes on, are arrays that HiGHS takes directly: PuLP needs a second
or more to state and hand over a hundred thousand constraints, one by one and without a beat.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from threading import Lock, RLock
from typing import NamedTuple

import highspy
import numpy as np
import pulp  # type: ignore[import-untyped]

from kanon_db.algorithms.ground._solver_process import SolverProcess
from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, FloatArray, IntArray
from kanon_db.algorithms.ground.computation import Pulse

_POLL_SECONDS = 0.005
_MOST_TERMS_HERE = 20_000
"""Most terms of a program that is solved in this process: phases of larger ones take seconds."""


class Solution(NamedTuple):
    """The result of a solver, in floating point."""

    values: FloatArray | None  # (n_variables,): the best solution; None if none was found
    lower_bound: float  # Bound on the objective, minus infinity if there is none
    is_infeasible: bool  # Whether the solver proved that there is no solution


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A mixed integer linear program to be minimized, as arrays."""

    costs: AnyIntArray | FloatArray  # (n_variables,): coefficients in the objective, and bounds
    lower: AnyIntArray
    upper: AnyIntArray
    is_whole: BoolArray  # (n_variables,): which variables must be whole numbers
    # (n_rows,): bounds on the sum of each row; infinite ones are none
    row_lower: AnyIntArray | FloatArray
    row_upper: AnyIntArray | FloatArray
    rows: IntArray  # (n_terms,): the row of each term, ascending, and its variable
    columns: IntArray
    coefficients: AnyIntArray  # (n_terms,)

    def load_solver(self, *, gap: float) -> highspy.Highs:
        """Give the model to a new solver."""
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = self.costs.size, self.row_lower.size
        lp.col_cost_ = self.costs.astype(np.float64)
        lp.col_lower_, lp.col_upper_ = self.lower.astype(np.float64), self.upper.astype(np.float64)
        kinds = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
        lp.integrality_ = [kinds[is_integer] for is_integer in self.is_whole.tolist()]
        lp.row_lower_ = self.row_lower.astype(np.float64)
        lp.row_upper_ = self.row_upper.astype(np.float64)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.searchsorted(self.rows, np.arange(self.row_lower.size + 1))
        lp.a_matrix_.index_ = self.columns
        lp.a_matrix_.value_ = self.coefficients.astype(np.float64)
        highs = new_solver(gap=gap)
        highs.passModel(lp)
        return highs


def new_solver(*, gap: float = 0.0) -> highspy.Highs:
    """Make a solver that is quiet and can be interrupted."""
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    # One thread: the server has other sessions.
    for option, value in (("output_flag", False), ("threads", 1), ("mip_rel_gap", 0.0)):
        highs.setOptionValue(option, value)
    highs.setOptionValue("mip_abs_gap", gap)
    highs.HandleUserInterrupt = True
    # highspy has one pair of locks for all solvers, although threads may each run their own.
    vars(highs).update(_Highs__solver_stopped=RLock(), _Highs__solver_started=Lock())
    return highs


def run(highs: highspy.Highs, pulse: Pulse) -> None:
    """Run the solver in a thread of its own, with beats in this one.

    The time limit is left to :func:`solve`: the duals of an interrupted program are of no use.
    """
    # New threads block signals, which the main thread must handle.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        thread = highs.startSolve()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        while not highs.wait(_POLL_SECONDS)[0]:
            pulse.beat()
    finally:
        highs.cancelSolve()  # type: ignore[no-untyped-call]
        thread.join()  # it ends a little later than the solver


def solve(highs: highspy.Highs, pulse: Pulse, start: list[float] | None = None) -> Solution:
    """Run the solver until it has the optimum, or time is over.

    Large programs are solved in a process of its own, which is killed when time is over.
    """
    if pulse.is_over:
        return Solution(None, -inf, is_infeasible=False)
    if pulse.seconds_left < inf:
        highs.setOptionValue("time_limit", max(pulse.seconds_left, 0.0))
    if highs.getNumNz() > _MOST_TERMS_HERE:
        # Without another process, the solver ends when it looks at the clock.
        with suppress(OSError):
            return _solve_elsewhere(highs, pulse, start)
    if start is not None:
        solution = highspy.HighsSolution()
        solution.col_value = start
        highs.setSolution(solution)
    run(highs, pulse)
    return Solution(
        values_of(highs),
        highs.getInfo().mip_dual_bound,
        highs.getModelStatus() == highspy.HighsModelStatus.kInfeasible,
    )


def _solve_elsewhere(highs: highspy.Highs, pulse: Pulse, start: list[float] | None) -> Solution:
    with SolverProcess(highs, start) as process:
        while not pulse.is_over and process.goes_on(_POLL_SECONDS):
            pulse.beat()
        return Solution(process.values, process.lower_bound, process.is_infeasible)


def values_of(highs: highspy.Highs) -> FloatArray | None:
    """Read the solution of a solver that has run."""
    if highs.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return None
    return np.array(highs.getSolution().col_value)


def solve_problem(problem: pulp.LpProblem, pulse: Pulse) -> Solution:
    """Solve a model stated with PuLP, from its variables' initial values if they have any.

    PuLP hands the model over but does not run it: it calls a solution optimal when time ran out.
    """
    problem.solverModel = new_solver()
    pulp.HiGHS().buildSolverModel(problem)
    variables = problem.variables()
    start = [variable.varValue for variable in variables]
    answer = solve(problem.solverModel, pulse, None if None in start else start)
    if answer.values is not None:
        for variable, value in zip(variables, answer.values.tolist(), strict=True):
            variable.varValue = value
    # HiGHS is not told of the constant in the objective.
    return answer._replace(lower_bound=answer.lower_bound + problem.objective.constant)
