"""The integer linear programs of pattern-guided k-anonymity, solved by HiGHS."""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, IntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.ground.solver import (
    Answer,
    Model,
    run,
    solve,
    solve_problem,
    values_of,
)
from kanon_db.algorithms.programs import pattern_program
from kanon_db.algorithms.suppression.patterns import PatternSet
from kanon_db.algorithms.suppression.row_types import RowTypes, identical_rows


@dataclass(frozen=True, eq=False)
class SuppressionProgram:
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


def solve_suppression(program: SuppressionProgram, start: IntArray | None, pulse: Pulse) -> Answer:
    """Solve a program by HiGHS.

    Parameters
    ----------
    program : SuppressionProgram
    start : ndarray of int64, shape (o,), optional
        A solution to start from.
    pulse : Pulse
        Beaten in the thread of the caller.

    Returns
    -------
    Answer
        Its values are the records sent by each option, rounded to whole numbers.
    """
    instances, place = np.unique(program.instance, return_inverse=True)
    # An instance that has records already is in use: its u_jl is 1.
    is_open = program.received[instances] == 0
    n_open = int(is_open.sum())
    # Costs are whole numbers, so that a gap of less than 1 is none.
    highs = _model(program, instances, place, is_open).handed_over(gap=0.99)
    values = None
    if start is not None:
        in_use = np.zeros(instances.size, dtype=np.int64)
        in_use[place[start > 0]] = 1
        values = np.append(in_use[is_open], start).tolist()
    answer = solve(highs, pulse, values)
    if answer.values is None:
        return answer
    # With all u_jl fixed the rest is a transportation problem, solved in moments: the simplex
    # method ends in a vertex, where all x_ij are whole numbers.
    fixed = np.rint(answer.values[:n_open])
    highs.changeColsBounds(n_open, np.arange(n_open, dtype=np.int32), fixed, fixed)
    for column in range(n_open):
        highs.changeColIntegrality(column, highspy.HighsVarType.kContinuous)
    highs.setOptionValue("solver", "simplex")
    highs.setOptionValue("time_limit", highspy.kHighsInf)
    run(highs, pulse)
    vertex = values_of(highs)
    return answer._replace(values=None if vertex is None else np.rint(vertex[n_open:]))


def _model(
    program: SuppressionProgram, instances: IntArray, place: IntArray, is_open: BoolArray
) -> Model:
    """State the program: the variables are the u_jl of open instances, then the x_ij."""
    limits = program.counts[program.group]
    n_open = int(is_open.sum())
    u = np.cumsum(is_open) - 1
    x = n_open + np.arange(limits.size)
    groups, group_row = np.unique(program.group, return_inverse=True)
    lacking = np.where(is_open, 0, program.k - program.received[instances])
    is_row = is_open | (lacking > 0)
    instance_row = groups.size + np.cumsum(is_row) - 1
    counted = np.flatnonzero(is_row[place])
    tied = np.flatnonzero(is_open[place])
    tied_row = groups.size + int(is_row.sum()) + np.arange(tied.size)
    # Row, variable and coefficient of each term.
    terms = [
        (group_row, x, np.ones_like(x)),  # Eq. (8)
        (instance_row[place[counted]], x[counted], np.ones_like(counted)),  # Eq. (7)
        (instance_row[is_open], u[is_open], np.full(n_open, -program.k)),
        (tied_row, x[tied], np.ones_like(tied)),  # Eq. (6)
        (tied_row, u[place[tied]], -limits[tied]),
    ]
    rows, columns, coefficients = (np.concatenate(parts) for parts in zip(*terms, strict=True))
    order = np.argsort(rows, kind="stable")
    counts, least = program.counts[groups], lacking[is_row]
    return Model(
        costs=np.append(np.zeros(n_open, dtype=np.int64), program.costs),  # Eq. (5)
        lower=np.zeros(n_open + x.size, dtype=np.int64),
        upper=np.append(np.ones(n_open, dtype=np.int64), limits),
        is_whole=np.arange(n_open + x.size) < n_open,
        row_lower=np.concatenate([counts, least, np.full(tied.size, -np.inf)]),
        row_upper=np.concatenate([counts, np.full(least.size, np.inf), np.zeros(tied.size)]),
        rows=rows[order],
        columns=columns[order],
        coefficients=coefficients[order],
    )


def solve_paper_program(types: RowTypes, patterns: PatternSet, k: int, pulse: Pulse) -> Answer:
    """Solve the paper's program by HiGHS.

    Parameters
    ----------
    types : RowTypes
        t of them.
    patterns : PatternSet
        p of them.
    k : int
    pulse : Pulse
        Beaten in the thread of the caller.

    Returns
    -------
    Answer
        Its values are the records of each row type and pattern, in whole numbers, row type by row
        type: shape (t * p,). There are none where the solver's break a constraint.

    Raises
    ------
    InvalidParameterError
        As :func:`~kanon_db.algorithms.programs.pattern_program`, which states the program.
    """
    stars, costs = patterns.stars, patterns.costs.tolist()
    program = pattern_program(types.codes, types.counts.tolist(), stars, costs, k)
    answer = solve_problem(program.problem, pulse)
    if answer.values is None:
        return answer
    x = program.whole_values("x")
    holds = (x >= 0).all() and (x.sum(axis=1) == types.counts).all()
    for sent, kept in zip(x.T, ~stars, strict=True):
        received = np.bincount(identical_rows(types.codes[:, kept]), sent)
        holds = holds and ((received == 0) | (received >= k)).all()
    return answer._replace(values=x.reshape(-1).astype(np.float64) if holds else None)
