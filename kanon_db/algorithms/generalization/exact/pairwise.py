"""The mixed integer linear program of [OB]: a binary variable for each pair of records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pulp  # type: ignore[import-untyped]

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.ground.solver import add_constraint, solve_problem
from kanon_db.algorithms.recoding.exact_loss import NULL, ExactLoss, Loss
from kanon_db.errors import InvalidParameterError

MAX_CELLS = 2**15
"""Most pairs of records times columns, categories counted as columns."""


@dataclass(frozen=True, eq=False)
class _Column:
    """Numbers that are generalized to ranges [y, z], at a loss of high z - low y."""

    values: IntArray
    low: float
    high: float


def solve_pairwise(
    exact: ExactLoss,
    loss: Loss,
    k: int,
    start: IntArray,
    pulse: Pulse,
) -> tuple[IntArray | None, float]:
    """Solve the paper's model, stated with PuLP, by HiGHS.

    Parameters
    ----------
    exact : ExactLoss
    loss : {"ncp", "binary"}
        What ``exact`` was made for.
    k : int
    start : ndarray of int64, shape (n_records,)
        Classes to start from.
    pulse : Pulse
        Beaten every few milliseconds, in the thread of the caller.

    Returns
    -------
    class_of_record : ndarray of int64, shape (n_records,), or None
        None if no solution was found.
    lower_bound : float
        Bound on the loss in units, minus infinity if there is none.

    Raises
    ------
    InvalidParameterError
        If pairs of records times columns exceed :data:`MAX_CELLS`, or a numeric attribute holds
        NULL.

    Notes
    -----
    **Source:** [OB] Eq. (21) to (32). Deviations:

    - L <= y <= x <= z <= U, which the printed model lacks and without which all losses are 0.
    - The y and z need not be whole: where they are as narrow as can be, they are values of x.
    - A categorical attribute has one column of 0 and 1 for each category (Section 2.5). By the
      loss ``ncp``, each category that a set holds costs alike, and the first one nothing.
    """
    columns, constant = _columns(exact, loss)
    n = exact.values.shape[0]
    n_cells = n * (n - 1) // 2 * len(columns)
    if n_cells > MAX_CELLS:
        raise InvalidParameterError(
            "the table is too large for the formulation bigm",
            detail=f"{n:,} records, {len(columns):,} columns; the limit for pairs of records times "
            f"columns is {MAX_CELLS:,}",
            hint="use the formulation set_partition",
        )
    problem = pulp.LpProblem("generalization", pulp.LpMinimize)
    pairs = [(i, l) for i in range(n) for l in range(i + 1, n)]
    v = {
        pair: problem.add_variable(f"v{number:09}", cat=pulp.LpBinary)
        for number, pair in enumerate(pairs)
    }
    for (i, l), are_equivalent in v.items():
        are_equivalent.setInitialValue(int(start[i] == start[l]))
    # The solver is given losses around 1.
    scale = 1 / max(int(exact.whole.max(initial=0)), int(exact.of_count.max(initial=0)), 1)
    objective = []
    for j, column in enumerate(columns):
        x = column.values
        for side, cost in (("y", -column.low), ("z", column.high)):
            bounds = [(x.min(), one) if side == "y" else (one, x.max()) for one in x]
            ends = [
                problem.add_variable(f"{side}{j:04}{i:05}", int(low), int(high))
                for i, (low, high) in enumerate(bounds)
            ]
            objective += [(end, cost * scale) for end in ends]
            for i, l in pairs:
                # Eq. (29) to (32), within the bounds of the column's values.
                width = int(max(x[i], x[l]) - x.min() if side == "y" else x.max() - min(x[i], x[l]))
                for sign in (1, -1):  # Eq. (22) to (25)
                    terms = [(ends[i], sign), (ends[l], -sign), (v[i, l], width)]
                    add_constraint(problem, terms, pulp.LpConstraintLE, width)
            for i, end in enumerate(ends):
                members = x[start == start[i]]
                end.setInitialValue(int(members.min() if side == "y" else members.max()))
    for i in range(n):  # Eq. (26)
        terms = [(v[min(i, l), max(i, l)], 1) for l in range(n) if l != i]
        add_constraint(problem, terms, pulp.LpConstraintGE, k - 1)
    problem.setObjective(pulp.LpAffineExpression(objective))
    answer = solve_problem(problem, pulse)
    classes = None
    if answer.values is not None:
        classes = _components(n, [pair for pair in pairs if round(v[pair].varValue)])
    return classes, answer.lower_bound / scale + n * constant


def _columns(exact: ExactLoss, loss: Loss) -> tuple[list[_Column], int]:
    """Columns of numbers, a category being one of 0 and 1; and what to add for each record."""
    columns, constant = [], 0
    for j, values in enumerate(exact.values.T):
        categories = np.unique(values)
        if exact.numeric[j]:
            if (values == NULL).any():
                raise InvalidParameterError(
                    "the formulation bigm cannot handle NULL in numeric columns",
                    detail=f"attribute {j + 1} of {exact.numeric.size}",
                    hint="use the formulation set_partition",
                )
            columns.append(_Column(values, 1.0, 1.0))
        elif categories.size > 1:
            of_two = int(exact.of_count[j, 2])
            if loss == "ncp":
                constant -= of_two
            low, high = (0.0, of_two) if loss == "ncp" else (of_two / 2, of_two / 2)
            columns += [_Column((values == one).astype(np.int64), low, high) for one in categories]
    return columns, constant


def _components(n: int, pairs: list[tuple[int, int]]) -> IntArray:
    """Put the records that are equivalent, directly or indirectly, into one class."""
    label = np.arange(n)
    for i, l in pairs:
        label[label == label[l]] = label[i]
    return np.unique(label, return_inverse=True)[1].reshape(-1)
