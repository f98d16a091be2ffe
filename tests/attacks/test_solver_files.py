"""Solvers leave nothing behind on disk: security pitfall 18.

A model is derived from data. PuLP's own way is to write it to a file in the temporary folder and to
start a solver's program on it; after a kill, the file stays. HiGHS needs no file; programs that are
named instead read one in a folder of its own, which nobody else may read and which goes with them.
"""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import numpy as np
import pulp  # type: ignore[import-untyped]
import pytest

from kanon_db.algorithms.ground import solver
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse
from kanon_db.algorithms.ground.solver import solve_problem
from kanon_db.algorithms.programs import bucket_program, class_program
from kanon_db.algorithms.recoding import Attribute, Microdata
from kanon_db.errors import InvalidParameterError

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
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse

# Five equations with random coefficients, in 50 binary variables: far too many for seconds.
coefficients = np.random.default_rng(1).integers(1, 100, (5, 50))
right = coefficients.sum(axis=1) // 2
if sys.argv[1] != "named":
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
    name = "PULP_CBC_CMD" if sys.argv[1] == "named" else solver.HIGHS
    solver.solve_problem(problem, pulse, solver=name)
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


def is_running(started_in: Path) -> bool:
    """Whether a process works in a folder, or in what was one."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(started_in) in str((process / "cwd").readlink()):
                return True
    return False


def wait_for(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, of this test alone."""
    place = tmp_path / "with a space"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.mark.pitfall(18)
def test_a_named_solver_that_is_killed_leaves_no_file(tmp_path: Path) -> None:
    """Its process removes its files, and ends, when the process that has asked it is gone."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SOLVE, "named"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
    )
    with process:
        wait_for(lambda: any(tmp_path.rglob("*.mps")))
        process.kill()
    wait_for(lambda: not any(tmp_path.iterdir()) and not is_running(tmp_path))


FORMAT = set(
    "*SENSE:Minimize BND BOUNDS BV COLUMNS ENDATA FR FX G E INTEND INTORG L LO MARK MARKER MI"
    " MODEL N NAME OBJ RANGES RHS ROWS UP e".split()
)
"""The words of MPS files."""


@pytest.mark.pitfall(18)
def test_a_named_solver_leaves_nothing(temporary: Path) -> None:
    """Its file has numbers for names, and nobody else may read it; in the end, it is gone."""
    seen: list[tuple[int, str]] = []

    def look() -> None:
        for model in temporary.rglob("*.mps"):
            with suppress(OSError):
                seen.append((model.parent.stat().st_mode & 0o777, model.read_text()))

    class StoppedError(Exception):
        """What a cancel raises."""

    def stop() -> None:
        look()
        if any(text.endswith("ENDATA\n") for _, text in seen):
            raise StoppedError

    age = Attribute(3, np.array([31.0, 47.0, 52.0]), 0, 100)
    problem = class_program(Microdata([[i % 3] for i in range(8)], (age,)), 3).problem
    solve_problem(problem, Pulse(heartbeat=look), solver="PULP_CBC_CMD")
    assert not any(temporary.iterdir())
    with pytest.raises(StoppedError):
        solve_problem(problem, Pulse(heartbeat=stop), solver="PULP_CBC_CMD")
    assert not any(temporary.iterdir())
    assert not is_running(temporary)
    assert {mode for mode, _ in seen} == {0o700}
    names = {word for _, text in seen for word in re.findall(r"[A-Za-z*][\w*:]*", text)}
    assert names <= FORMAT | {name for name in names if re.fullmatch(r"[XC]\d+", name)}


@pytest.fixture
def glpsol(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that PuLP takes for GLPK's, to be written."""
    program = temporary / "bin" / "glpsol"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return program


def small_program() -> pulp.LpProblem:
    return bucket_program([2, 3], [Fraction(7, 10), Fraction(1)], smallest=1, largest=2).problem


@pytest.mark.pitfall(18)
def test_a_solver_that_fails_leaves_nothing(temporary: Path, glpsol: Path) -> None:
    """What it has read are numbers and numbered names, in a format that allows no others."""
    glpsol.write_text('#!/bin/sh\ncp "$2" "$0.lp"\necho "$@" > "$0.asked"\nexit 1\n')
    program = small_program()
    program.objective.name = "5"  # as papers number it
    with pytest.raises(InvalidParameterError, match="ended without an answer"):
        solve_problem(program, Pulse(20.5), solver="GLPK_CMD")
    assert [path.name for path in temporary.iterdir()] == ["bin"]
    asked = glpsol.with_suffix(".asked").read_text().split()
    assert int(asked[asked.index("--tmlim") + 1]) in (19, 20)  # a whole number
    objective, constraints = glpsol.with_suffix(".lp").read_text().split("Subject To")
    name = re.compile(r"[^\s:]+(?=:)|[A-Za-z_]\w*")
    assert set(name.findall(objective)) == {"buckets", "Minimize", "objective", "x1"}
    names = name.findall(constraints)
    assert {re.sub(r"\d+", "", name) for name in names} <= {*"cx", "Bounds", "Generals", "End"}


@pytest.mark.parametrize(("found", "is_proven"), [("OPTIMAL", True), ("NON-OPTIMAL", False)])
def test_what_is_there_when_time_is_over_is_not_proven(
    glpsol: Path, found: str, is_proven: bool
) -> None:
    """PuLP calls it optimal, if GLPK has found it."""
    program = small_program()
    best = solve_problem(program, UNLIMITED).values
    assert best is not None
    values = list(enumerate(best.tolist(), start=1))
    shown = ["", "Rows: 0", f"Columns: {len(values)}", "", f"Status:     INTEGER {found}"]
    names = [f"{number} x{number - 1} *" for number, _ in values]
    glpsol.with_suffix(".out").write_text("\n".join([*shown, *"1234567", *names, ""]))
    solved = [f"s mip 0 0 {'o' if is_proven else 'f'} 0", *(f"j {n} {v:.0f}" for n, v in values)]
    glpsol.with_suffix(".sol").write_text("\n".join([*solved, "e", ""]))
    wait = "" if is_proven else 'sleep "$8"\n'
    glpsol.write_text(f'#!/bin/sh\n{wait}cp "$0.out" "$4"\ncp "$0.sol" "$6"\n')
    answer = solve_problem(program, Pulse(1.9), solver="GLPK_CMD")
    assert answer.values is not None
    assert answer.values.tolist() == best.tolist()
    assert (answer.lower_bound > -np.inf) == is_proven


@pytest.mark.pitfall(18)
def test_a_process_whose_solver_fails_does_not_abort(temporary: Path, glpsol: Path) -> None:
    """A dump of its memory would hold what the table holds."""
    glpsol.write_text("#!/bin/sh\nexit 1\n")
    model, _ = solver._number_names(small_program())
    question = json.dumps(
        {"solver": "GLPK_CMD", "folder": str(temporary), "model": model, "seconds": None}
    ).encode()
    process = subprocess.Popen(
        [sys.executable, "-m", "kanon_db.algorithms.ground.solver", "named"],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    with process:
        assert process.stdin is not None
        process.stdin.write(struct.pack("<q", len(question)) + question)
        process.stdin.flush()
        assert process.wait(timeout=60) == 0
