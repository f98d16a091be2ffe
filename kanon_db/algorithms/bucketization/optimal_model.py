"""The integer linear program of general bucket settings, and the solver it is given to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import highspy
import numpy as np
import pulp  # type: ignore[import-untyped]

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.algorithms.ground.solver import HiGHS, watched


@dataclass(frozen=True, eq=False)
class Program:
    """Numbers of buckets of each size that hold all records, at the lowest loss.

    Parameters
    ----------
    sizes : ndarray of int64, shape (q,)
        Bucket sizes, at least one.
    n_records : int
        Records to hold.
    room : ndarray of int64, shape (c, q)
        Most records that one bucket of each size takes of a set of values, for c sets.
    needed : ndarray of int64, shape (c,)
        Records of each set.

    Notes
    -----
    **Source:** [GB] Section 6.1, without the v_ij; see
    :func:`kanon_db.algorithms.bucketization.optimal.optimal`.
    """

    sizes: IntArray
    n_records: int
    room: IntArray
    needed: IntArray

    @property
    def losses(self) -> IntArray:
        """Loss of one bucket of each size."""
        return (self.sizes - 1) ** 2


@dataclass(frozen=True, eq=False)
class Solved:
    """What the solver says, in its floating point numbers.

    Parameters
    ----------
    counts : ndarray of float64, shape (q,), or None
        Number of buckets of each size; None if no solution was found.
    lower_bound : float
        Bound on the loss beyond that of ``near``, minus infinity if there is none.
    infeasible : bool
        Whether there is no solution.
    seconds : float
        Time that the solver took.
    """

    counts: FloatArray | None
    lower_bound: float
    infeasible: bool
    seconds: float


def solve(
    program: Program,
    near: IntArray,
    start: IntArray | None,
    *,
    whole: bool,
    time_limit: float,
    heartbeat: Callable[[], None],
) -> Solved:
    """Solve a program by PuLP and HiGHS.

    Parameters
    ----------
    program : Program
    near : ndarray of int64, shape (q,)
        Any numbers of buckets. The solver works on the differences from them, so that the better
        they are, the fewer digits it needs, however many records there are.
    start : ndarray of int64, shape (q,), optional
        A solution to start from.
    whole : bool
        Whether the numbers of buckets must be whole.
    time_limit : float
        Seconds that the solver may take.
    heartbeat : callable
        Called every few milliseconds, in the thread of the caller; what it raises stops the
        solver.

    Returns
    -------
    Solved
    """
    problem = pulp.LpProblem("buckets", pulp.LpMinimize)
    category = pulp.LpInteger if whole else pulp.LpContinuous
    most = program.n_records // program.sizes
    # Nine digits: PuLP orders variables by name.
    b = [
        problem.add_variable(f"b{j:09}", -low, high, category)
        for j, (low, high) in enumerate(zip(near.tolist(), (most - near).tolist(), strict=True))
    ]
    problem.setObjective(_sum(b, program.losses))
    lacking = program.n_records - int(program.sizes @ near)
    problem.addConstraint(
        pulp.LpConstraint(_sum(b, program.sizes), pulp.LpConstraintEQ, rhs=lacking)
    )
    below = (program.needed - program.room @ near).tolist()
    for i, needed in watched(below, heartbeat):
        terms = _sum(b, program.room[i])
        problem.addConstraint(pulp.LpConstraint(terms, pulp.LpConstraintGE, rhs=needed))
    values = {} if start is None else dict(zip(b, (start - near).tolist(), strict=True))
    # Losses are whole numbers, so that a gap of less than 1 is none.
    solver = HiGHS(values, time_limit, heartbeat, gap=0.99)
    problem.solve(solver)
    counts: FloatArray | None = None
    if solver.found:
        counts = near.astype(np.float64) + np.array(
            [variable.varValue for variable in b], dtype=np.float64
        )
    highs: highspy.Highs = problem.solverModel
    return Solved(counts, solver.bound, solver.infeasible, highs.getRunTime())


def _sum(variables: list[pulp.LpVariable], coefficients: IntArray) -> pulp.LpAffineExpression:
    terms = zip(variables, coefficients.tolist(), strict=True)
    return pulp.LpAffineExpression([term for term in terms if term[1]])
