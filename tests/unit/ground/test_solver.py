from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pulp  # type: ignore[import-untyped]
import pytest

from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse
from kanon_db.algorithms.ground.solver import LinearModel, Solution, solve, solve_problem

COSTS, WEIGHTS, LEAST = [5, 4, 3, 7], [2, 3, 1, 4], 6


def by_arrays(least: int, *, whole: bool = True, pulse: Pulse = UNLIMITED) -> Solution:
    """Least cost of things that weigh so much together."""
    model = LinearModel(
        costs=np.array(COSTS),
        lower=np.zeros(4, dtype=np.int64),
        upper=np.ones(4, dtype=np.int64),
        is_whole=np.full(4, whole),
        row_lower=np.array([least]),
        row_upper=np.array([np.inf]),
        rows=np.zeros(4, dtype=np.int64),
        columns=np.arange(4),
        coefficients=np.array(WEIGHTS),
    )
    return solve(model.handed_over(gap=0.0), pulse)


def by_pulp(least: int, constant: int = 0) -> tuple[Solution, list[float]]:
    problem = pulp.LpProblem("weights", pulp.LpMinimize)
    things = [problem.add_variable(f"x{i}", cat=pulp.LpBinary) for i in range(4)]
    problem += pulp.LpAffineExpression(zip(things, COSTS, strict=True)) + constant
    problem += pulp.LpAffineExpression(zip(things, WEIGHTS, strict=True)) >= least
    for thing in things:
        thing.setInitialValue(1)
    return solve_problem(problem, UNLIMITED), [thing.varValue for thing in things]


def test_arrays_and_pulp_state_the_same() -> None:
    by_array, (stated, values) = by_arrays(LEAST), by_pulp(LEAST)
    assert by_array.values is not None
    assert stated.values is not None
    assert values == stated.values.tolist()
    for chosen in (by_array.values, stated.values):
        assert chosen @ WEIGHTS >= LEAST
        assert chosen @ COSTS == pytest.approx(11)
    assert by_array.lower_bound == pytest.approx(11)
    assert stated.lower_bound == pytest.approx(11)


def test_the_bound_contains_the_constant_of_the_objective() -> None:
    answer, _ = by_pulp(LEAST, constant=-3)
    assert answer.lower_bound == pytest.approx(8)


def test_fractions_where_they_are_allowed() -> None:
    values = by_arrays(LEAST, whole=False).values
    assert values is not None
    assert values @ COSTS < 11


def test_nothing_is_heavy_enough() -> None:
    assert by_arrays(11) == (None, by_arrays(11).lower_bound, True)
    answer, _ = by_pulp(11)
    assert answer.values is None
    assert answer.is_infeasible


def test_the_heartbeat_ends_the_solver() -> None:
    def stop() -> None:
        raise InterruptedError

    random = np.random.default_rng(1)
    n = 400
    model = LinearModel(
        costs=random.integers(50, 150, size=n), lower=np.zeros(n, dtype=np.int64),
        upper=np.ones(n, dtype=np.int64), is_whole=np.ones(n, dtype=np.bool_),
        row_lower=np.full(40, 9000), row_upper=np.full(40, np.inf),
        rows=np.repeat(np.arange(40), n), columns=np.tile(np.arange(n), 40),
        coefficients=random.integers(50, 150, size=40 * n),
    )  # fmt: skip
    with pytest.raises(InterruptedError):
        solve(model.handed_over(gap=0.0), Pulse(heartbeat=stop))


def test_solvers_run_side_by_side() -> None:
    """Partitions are searched by several threads, each with a solver of its own."""

    def solve_often(_: int) -> list[float]:
        return [float(by_arrays(LEAST).lower_bound) for _ in range(30)]

    with ThreadPoolExecutor(4) as workers:
        for bounds in workers.map(solve_often, range(4)):
            assert bounds == pytest.approx([11] * 30)
