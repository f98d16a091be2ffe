"""Solvers leave nothing behind on disk: security pitfall 18.

A model is derived from data. PuLP's own way is to write it to a file in the temporary folder and to
start a solver's program on it; after a kill, the file stays.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

_SOLVE = """
import os, sys

def no_files_and_no_programs(event, arguments):
    flags = arguments[2] if event == "open" and isinstance(arguments[2], int) else 0
    if event.startswith(("tempfile.", "subprocess.", "os.posix_spawn", "os.fork")) or (
        flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    ):
        os.write(2, event.encode())
        os._exit(1)

import numpy as np
import pulp
from kanon_db.algorithms.ground import solver
from kanon_db.algorithms.ground.computation import Pulse

# Five equations with random coefficients, in 50 binary variables: far too many for seconds.
coefficients = np.random.default_rng(1).integers(1, 100, (5, 50))
right = coefficients.sum(axis=1) // 2
sys.addaudithook(no_files_and_no_programs)

def started():
    print("solving", flush=True)

pulse = Pulse(heartbeat=started)
if sys.argv[1] == "arrays":
    n = coefficients.shape[1]
    rows, columns = map(np.ravel, np.indices(coefficients.shape))
    model = solver.LinearModel(
        np.ones(n, dtype=np.int64), np.zeros(n, dtype=np.int64), np.ones(n, dtype=np.int64),
        np.ones(n, dtype=bool), right, right, rows, columns, coefficients.ravel(),
    )
    solver.solve(model.load_solver(gap=0.5), pulse)
else:
    problem = pulp.LpProblem("split", pulp.LpMinimize)
    variables = [problem.add_variable(f"x{i:02}", cat=pulp.LpBinary) for i in range(50)]
    problem.setObjective(pulp.lpSum(variables))
    for row, side in zip(coefficients.tolist(), right.tolist()):
        problem += pulp.LpAffineExpression(zip(variables, row)) == side
    solver.solve_problem(problem, pulse)
"""


@pytest.mark.pitfall(18)
@pytest.mark.parametrize("way", ["arrays", "pulp"])
def test_killed_solver_leaves_no_file(tmp_path: Path, way: str) -> None:
    """A process that is killed while it solves has written no file, and started no program."""
    places = {name: tmp_path / name for name in ("TMPDIR", "HOME", "cwd")}
    for place in places.values():
        place.mkdir()
    environment = {**os.environ, "TMPDIR": str(places["TMPDIR"]), "HOME": str(places["HOME"])}
    process = subprocess.Popen(
        [sys.executable, "-c", _SOLVE, way],
        cwd=places["cwd"],
        env=environment | {"PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        for _ in range(20):  # beats, between which the solver works
            assert process.stdout.readline() == "solving\n", process.stderr.read()
        written = [path for place in places.values() for path in place.rglob("*")]
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert written == []
    assert [path for place in places.values() for path in place.rglob("*")] == []
