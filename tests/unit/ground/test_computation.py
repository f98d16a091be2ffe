"""Exact numbers, proofs, time limits and the solver of linear programs."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pulp  # type: ignore[import-untyped]
import pytest

from kanon_db.algorithms.ground import computation as module
from kanon_db.algorithms.ground import solver
from kanon_db.algorithms.ground.arrays import shuffled
from kanon_db.algorithms.ground.computation import UNLIMITED, Proof, Pulse, kernel, load_numba
from kanon_db.algorithms.ground.exact_numbers import exact_number, exact_text, round_up
from kanon_db.algorithms.ground.solver import HIGHS, LinearModel, Solution, solve, solve_problem
from kanon_db.errors import InvalidParameterError


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("0.29", Fraction(29, 100)), (0.29, Fraction(29, 100)), (1e-7, Fraction(1, 10**7)),
        (8, Fraction(8)), ("2/6", Fraction(1, 3)), ("1e40", Fraction(10**40)),
    ],
)  # fmt: skip
def test_numbers_are_what_is_written(number: str | float, expected: Fraction) -> None:
    assert exact_number(number) == expected


@pytest.mark.parametrize(
    "number", [inf, -inf, nan, 1e41, True, "1e41", "1" * 41, "1/" + "3" * 200, "", "x"]
)
def test_refusals(number: str | float) -> None:
    with pytest.raises(InvalidParameterError, match="malformed or too long"):
        exact_number(number)


def test_an_integer_too_long_to_be_written() -> None:
    with pytest.raises(InvalidParameterError, match="malformed or too long"):
        exact_number(10**5000)


def test_a_denominator_of_0() -> None:
    with pytest.raises(InvalidParameterError, match="denominator 0"):
        exact_number("1/0")


@pytest.mark.parametrize(
    "text",
    ["0", "8", "100", "0.02", "-3.5", "1/3", "1e-40", "1e40", "0.0012e-40", "9" * 36 + "e-40"],
)
def test_what_is_written_is_read_again(text: str) -> None:
    number = exact_number(text)
    assert exact_number(exact_text(number)) == number


def test_short_decimals_stay_as_they_are() -> None:
    for text in ("0", "8", "100", "0.02", "12.5"):
        assert exact_text(exact_number(text)) == text


def test_rounding_up() -> None:
    assert round_up(Fraction(1, 3)) == "0.334"
    assert round_up(Fraction(12345)) == "12400"


def test_units() -> None:
    proof = Proof.of(10, 9, Fraction(1, 4))
    assert (proof.objective, proof.lower_bound) == (Fraction(5, 2), Fraction(9, 4))
    assert (proof.status, proof.is_optimal, proof.gap) == ("feasible", False, 0.1)


def test_a_bound_above_the_objective_proves_no_more_than_it() -> None:
    proof = Proof.of(10, 12)
    assert proof == Proof(Fraction(10), Fraction(10))
    assert (proof.status, proof.gap) == ("optimal", 0.0)


def test_nothing_to_lose() -> None:
    assert Proof.of(0, 0).gap == 0.0
    assert Proof.of(0, 0).is_optimal


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return now


def test_time_passes(clock: list[float]) -> None:
    pulse = Pulse(8.0)
    clock[0] += 2
    assert (pulse.seconds_left, pulse.spent, pulse.is_over) == (6, 0.25, False)
    clock[0] += 6
    assert (pulse.seconds_left, pulse.spent, pulse.is_over) == (0, 1, True)


def test_a_part_ends_no_later_than_the_whole(clock: list[float]) -> None:
    pulse = Pulse(8.0)
    clock[0] += 2
    assert pulse.within(3).seconds_left == 3
    assert pulse.within(7).seconds_left == 6
    assert pulse.until(0.5).seconds_left == 2
    assert pulse.until(1).seconds_left == 6
    clock[0] += 7
    late = pulse.within(1)
    assert late.is_over
    assert late.spent >= 1
    assert pulse.until(0.5).is_over


def test_without_a_limit(clock: list[float]) -> None:
    clock[0] += 1e9
    for pulse in (UNLIMITED, UNLIMITED.until(0.1), UNLIMITED.within(inf)):
        assert (pulse.seconds_left, pulse.spent, pulse.is_over) == (inf, 0, False)
    assert UNLIMITED.within(5).seconds_left == 5


def test_every_part_has_the_same_heart() -> None:
    beats = []
    pulse = Pulse(heartbeat=lambda: beats.append(1))
    pulse.beat()
    pulse.within(1).beat()
    pulse.until(0.5).beat()
    assert len(beats) == 3
    assert list(pulse.watched(range(2500))) == list(range(2500))
    assert len(beats) == 6


@pytest.fixture(params=["here", "elsewhere"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where programs are solved: in this process, or in one of their own."""
    monkeypatch.setattr(solver, "_MOST_TERMS_HERE", 0 if request.param == "elsewhere" else 10**9)
    return str(request.param)


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
    return solve(model.load_solver(gap=0.0), pulse)


def by_pulp(least: int, constant: int = 0, solver: str = HIGHS) -> tuple[Solution, list[float]]:
    problem = pulp.LpProblem("weights", pulp.LpMinimize)
    things = [problem.add_variable(f"x{i}", cat=pulp.LpBinary) for i in range(4)]
    problem += pulp.LpAffineExpression(zip(things, COSTS, strict=True)) + constant
    problem += pulp.LpAffineExpression(zip(things, WEIGHTS, strict=True)) >= least
    for thing in things:
        thing.setInitialValue(1)
    answer = solve_problem(problem, UNLIMITED, solver=solver)
    return answer, [thing.varValue for thing in things]


@pytest.mark.usefixtures("place")
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


@pytest.mark.parametrize("name", [HIGHS, "PULP_CBC_CMD"])
def test_the_bound_contains_the_constant_of_the_objective(name: str) -> None:
    answer, values = by_pulp(LEAST, constant=-3, solver=name)
    assert answer.lower_bound == pytest.approx(8)
    assert answer.values is not None
    assert values == answer.values.tolist()
    assert np.array(values) @ COSTS == pytest.approx(11)
    assert by_pulp(11, solver=name)[0].is_infeasible


def test_only_solvers_that_are_there_are_named() -> None:
    for name in ("GUROBI", "/bin/sh", "", "highs"):
        with pytest.raises(InvalidParameterError, match="not available") as refused:
            by_pulp(LEAST, solver=name)
        assert "PULP_CBC_CMD, HiGHS" in refused.value.hint


def test_a_named_solver_ends_with_the_time() -> None:
    """What it says then is no proof."""
    random = np.random.default_rng(1)
    problem = pulp.LpProblem("split", pulp.LpMinimize)
    things = [problem.add_variable(f"x{i}", cat=pulp.LpBinary) for i in range(60)]
    problem += pulp.lpSum(things)
    for _ in range(5):
        weights = random.integers(1, 100, 60).tolist()
        problem += pulp.LpAffineExpression(zip(things, weights, strict=True)) == sum(weights) // 2
    pulse = Pulse(1.0)
    answer = solve_problem(problem, pulse, solver="PULP_CBC_CMD")
    assert -1 < pulse.seconds_left < 0.5
    assert answer.lower_bound == -np.inf
    assert not answer.is_infeasible


@pytest.mark.usefixtures("place")
def test_fractions_where_they_are_allowed() -> None:
    values = by_arrays(LEAST, whole=False).values
    assert values is not None
    assert values @ COSTS < 11


@pytest.mark.usefixtures("place")
def test_nothing_is_heavy_enough() -> None:
    assert by_arrays(11) == (None, by_arrays(11).lower_bound, True)
    answer, _ = by_pulp(11)
    assert answer.values is None
    assert answer.is_infeasible


def hard_model() -> LinearModel:
    """State a program that no solver ends within minutes."""
    random = np.random.default_rng(1)
    n = 400
    return LinearModel(
        costs=random.integers(50, 150, size=n), lower=np.zeros(n, dtype=np.int64),
        upper=np.ones(n, dtype=np.int64), is_whole=np.ones(n, dtype=np.bool_),
        row_lower=np.full(40, 9000), row_upper=np.full(40, np.inf),
        rows=np.repeat(np.arange(40), n), columns=np.tile(np.arange(n), 40),
        coefficients=random.integers(50, 150, size=40 * n),
    )  # fmt: skip


@pytest.mark.usefixtures("place")
def test_the_heartbeat_ends_the_solver() -> None:
    def stop() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        solve(hard_model().load_solver(gap=0.0), Pulse(heartbeat=stop))


@pytest.mark.usefixtures("place")
def test_what_was_found_by_the_deadline_comes_back() -> None:
    """The first solution is there from the beginning, and bounds come before the end."""
    answer = solve(hard_model().load_solver(gap=0.0), Pulse(2), [1.0] * 400)
    assert answer.values is not None
    assert 0 < answer.lower_bound <= hard_model().costs @ answer.values
    assert not answer.is_infeasible


def test_a_solver_that_does_not_look_at_the_clock_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf = tmp_path / "python"
    deaf.write_text("#!/bin/sh\nexec sleep 600\n")
    deaf.chmod(0o755)
    monkeypatch.setattr(solver, "_MOST_TERMS_HERE", 0)
    monkeypatch.setattr(solver.sys, "executable", str(deaf))
    started: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def watched(*arguments: Any, **named: Any) -> subprocess.Popen[bytes]:
        started.append(start(*arguments, **named))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", watched)
    answer = solve(hard_model().load_solver(gap=0.0), Pulse(0.2))
    assert (answer.values, answer.lower_bound, answer.is_infeasible) == (None, -np.inf, False)
    assert [process.returncode for process in started] == [-signal.SIGKILL]


def test_without_another_process_programs_are_solved_in_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(solver, "_MOST_TERMS_HERE", 0)
    monkeypatch.setattr(solver, "_interpreter", lambda: "/nowhere/python")
    assert by_arrays(LEAST).lower_bound == pytest.approx(11)


@pytest.mark.long
def test_solvers_run_side_by_side() -> None:
    """Partitions are searched by several threads, each with a solver of its own."""

    def solve_often(_: int) -> list[float]:
        return [float(by_arrays(LEAST).lower_bound) for _ in range(30)]

    with ThreadPoolExecutor(4) as workers:
        for bounds in workers.map(solve_often, range(4)):
            assert bounds == pytest.approx([11] * 30)


KERNEL = """
from typing import NamedTuple
from kanon_db.algorithms.ground.computation import kernel
class Pair(NamedTuple):
    a: int
    b: int
@kernel
def added(pair):
    return pair.a + pair.b
print(added(Pair(1, 2)), len(added._cache._cache_file._load_index()))
"""


def test_what_an_older_state_has_compiled_is_compiled_again(tmp_path: Path) -> None:
    """Also where its arguments are of a class that is gone."""
    module = tmp_path / "kernels.py"
    for text in (KERNEL, KERNEL.replace("Pair", "Couple")):
        module.write_text(text)
        done = subprocess.run(
            [sys.executable, "-c", "import kernels"], cwd=tmp_path, capture_output=True, text=True
        )
        assert (done.stdout, done.stderr) == ("3 1\n", "")


FIRST_KERNEL = """
import os, sys
from kanon_db.algorithms.ground.arrays import shuffled
shuffled(1 << 14, os.urandom)
print("numba" in sys.modules)
shuffled(1 << 15, os.urandom)
from numba.core.entrypoints import _already_initialized as are_extensions_loaded
late = ("scipy", "cffi", "numba.np.linalg")
print([name for name in late if name in sys.modules], are_extensions_loaded)
import scipy.linalg
"""


def test_the_first_kernel_loads_neither_scipy_nor_what_compiles() -> None:
    """If it is compiled, nor what extends numba; scipy is still there, for whoever imports it.

    Few places are shuffled without.
    """
    shuffled(1 << 15, os.urandom)  # so that it is compiled
    done = subprocess.run([sys.executable, "-c", FIRST_KERNEL], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n[] False\n", "")


USER = """
import sys
import kernels
from numba.core import config
from numba.core.typing import cffi_utils
print(int(config.OPT), cffi_utils.SUPPORTED, "scipy" in sys.modules)
from numba.core.entrypoints import _already_initialized as are_extensions_loaded
print(are_extensions_loaded)
"""


def test_who_uses_numba_too_has_their_settings_and_cffi(tmp_path: Path) -> None:
    pytest.importorskip("cffi")
    (tmp_path / "kernels.py").write_text(KERNEL)
    (tmp_path / ".numba_config.yaml").write_text("opt: '1'\n")
    done = subprocess.run(
        [sys.executable, "-c", USER], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("3 1\n1 True False\nTrue\n", "")


def _added(one: int, other: int) -> int:
    return one + other


@pytest.mark.parametrize("files", ["*.nbi", "*.nbc"])
def test_what_a_crash_has_left_of_compiled_code_is_compiled_again(
    files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without being written to the disk, new files are empty, short or zeros."""
    load_numba()
    from numba.core import config

    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    assert kernel(_added)(1, 2) == 3
    (file,) = tmp_path.rglob(files)
    whole = file.read_bytes()
    for left in (b"", whole[:1], whole[: len(whole) // 2], bytes(len(whole))):
        file.write_bytes(left)
        assert kernel(_added)(1, 2) == 3
        loaded: Any = kernel(_added)
        assert loaded(1, 2) == 3
        assert sum(loaded.stats.cache_hits.values()) == 1


def test_what_cannot_be_read_of_compiled_code_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an index that another user wrote in a folder of both; here, a folder is in its place."""
    load_numba()
    from numba.core import config

    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    assert kernel(_added)(1, 2) == 3
    (index,) = tmp_path.rglob("*.nbi")
    index.unlink()
    index.mkdir()
    assert kernel(_added)(1, 2) == 3


def _product(one: int, other: int) -> int:
    return one * other


@pytest.mark.parametrize("unwritten", ["_save_index", "_save_data"])
def test_what_a_full_disk_does_not_keep_is_compiled_again(
    unwritten: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where an older state, of another function, has left a file of the same name."""
    load_numba()
    from numba.core import caching, config

    def fail(*_given: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    assert (kernel(_added)(1, 2), kernel(_product)(1, 2)) == (3, 2)
    added, product = (next(tmp_path.rglob(f"*{name}*.nbc")) for name in ("_added", "_product"))
    product.replace(added)
    next(tmp_path.rglob("*_added*.nbi")).unlink()
    with monkeypatch.context() as full:
        full.setattr(caching.IndexDataCacheFile, unwritten, fail)
        assert kernel(_added)(1, 2) == 3
    for n_loaded in (0, 1):
        again: Any = kernel(_added)
        assert (again(1, 2), sum(again.stats.cache_hits.values())) == (3, n_loaded)


def test_without_a_folder_to_write_each_process_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of an account without a home."""
    load_numba()
    from numba.core.caching import FunctionCache

    monkeypatch.setattr(FunctionCache._impl_class, "_locator_classes", [])
    assert kernel(_added)(1, 2) == 3
