"""Runs the solver HiGHS, interruptibly, and large programs in a process of its own.

Small models are stated with PuLP and solved by :func:`solve_problem`. Large models, and those that
gain rows or columns as a search goes on, are arrays that HiGHS takes directly: PuLP needs a second
or more to state and hand over a hundred thousand constraints, one by one and without a beat.

HiGHS looks at the clock between its phases only, and some of these take many seconds for a large
program: presolve, the analytic center, and rounding. So that a deadline holds, and a cancel takes
effect at once, large programs are solved in a process that can be killed. They go through a pipe,
and solutions come back through another as they are found; nothing is written to disk. The process
ends with the one that started it.

Another solver of PuLP's, if one is named, runs in a process of its own, too, and in a folder of its
own, where it may write files. Both go with the process that started it.

Both packages, and what starts a process, are imported where a program is solved: most publications
need none.
"""

from __future__ import annotations

import io
import json
import os
import select
import signal
import struct
import sys
import threading
import time
from contextlib import suppress
from itertools import chain
from math import inf
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, FloatArray, IntArray
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError

if TYPE_CHECKING:
    import highspy
    import pulp  # type: ignore[import-untyped]

HIGHS: Final = "HiGHS"
"""The solver of all programs, unless another one is named for what is stated with PuLP."""

_TOLERANCE: Final = 1e-5
"""By how much a named solver's solution may break a constraint."""

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
        import highspy

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
    import highspy

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

    The time limit is left to the caller, who knows what an interrupted program is good for.
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
    import highspy

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
        has_told = process.values is not None or process.lower_bound > -inf
        if not (has_told or process.is_infeasible or pulse.is_over):
            raise ChildProcessError  # It ended without a word, as where it cannot import HiGHS.
        return Solution(process.values, process.lower_bound, process.is_infeasible)


def values_of(highs: highspy.Highs) -> FloatArray | None:
    """Read the solution of a solver that has run."""
    import highspy

    if highs.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return None
    return np.array(highs.getSolution().col_value)


def solve_problem(problem: pulp.LpProblem, pulse: Pulse, *, solver: str = HIGHS) -> Solution:
    """Solve a model stated with PuLP, from its variables' initial values if they have any.

    Another solver of PuLP's than HiGHS runs in a process of its own, and starts from no values.
    """
    import pulp

    variables = problem.variables()
    if solver == HIGHS:
        # PuLP hands the model over but does not run it: it calls a solution optimal when time ran
        # out.
        problem.solverModel = new_solver()
        pulp.HiGHS().buildSolverModel(problem)
        start = [variable.varValue for variable in variables]
        answer = solve(problem.solverModel, pulse, None if None in start else start)
        # HiGHS is not told of the constant in the objective.
        answer = answer._replace(lower_bound=answer.lower_bound + problem.objective.constant)
    else:
        answer = _solve_by_named(solver, problem, pulse)
    if answer.values is not None:
        for variable, value in zip(variables, answer.values.tolist(), strict=True):
            variable.varValue = value
    return answer


def check_solver(name: str) -> None:
    """Refuse a solver that PuLP does not know, or does not find here."""
    if name == HIGHS:
        return
    import pulp

    available = pulp.listSolvers(onlyAvailable=True)
    if name not in available:
        raise InvalidParameterError(
            "the solver is not available", hint=f"the solvers here are {', '.join(available)}"
        )


_LATE: Final = 0.5
"""Seconds that a named solver has after its time limit, to write what it has found."""


def _solve_by_named(name: str, problem: pulp.LpProblem, pulse: Pulse) -> Solution:
    """Have a solver of PuLP's solve a model, in a folder that nobody else reads and that goes."""
    from tempfile import TemporaryDirectory

    import pulp

    check_solver(name)
    if pulse.is_over:
        return Solution(None, -inf, is_infeasible=False)
    model, numbered = _number_names(problem)
    with TemporaryDirectory(prefix="kanon-solver-") as folder:
        question = {
            "solver": name, "folder": folder, "model": model,
            "seconds": pulse.seconds_left if pulse.seconds_left < inf else None,
        }  # fmt: skip
        with ChildProcess(json.dumps(question, default=float).encode(), _NAMED) as process:
            while pulse.seconds_left > -_LATE and process.goes_on(_POLL_SECONDS):
                pulse.beat()
            is_late, answer = pulse.seconds_left <= 0, bytes(process.answer)
    try:
        told = json.loads(answer)
    except ValueError:  # nothing, or not to its end
        if is_late:
            return Solution(None, -inf, is_infeasible=False)
        raise InvalidParameterError(
            "the solver ended without an answer", detail=f"solver {name}",
            hint=f"use another one; {HIGHS} is always there",
        ) from None  # fmt: skip
    if told["values"] is None:
        return Solution(None, -inf, is_infeasible=told["is_infeasible"] and not is_late)
    for variable in problem.variables():
        variable.varValue = told["values"][numbered[variable.name]]
    values = np.array([variable.varValue for variable in problem.variables()])
    # What a solver calls optimal when its time was over need not be.
    is_proven = told["is_optimal"] and not is_late
    bound = float(pulp.value(problem.objective) or 0) if is_proven else -inf
    return Solution(values, bound, is_infeasible=False)


def _number_names(problem: pulp.LpProblem) -> tuple[dict[str, Any], dict[str, str]]:
    """Write a model whose names are numbers, which every format can have; with the variables'."""
    model = problem.toDict()
    model["objective"]["name"] = "objective"
    numbered = {one["name"]: f"x{number}" for number, one in enumerate(model["variables"])}
    for number, constraint in enumerate(model["constraints"]):
        constraint["name"] = f"c{number}"
    terms = [one["coefficients"] for one in (model["objective"], *model["constraints"])]
    for one in chain(model["variables"], *terms):
        one["name"] = numbered[one["name"]]
    return model, numbered


_HEADER: Final = struct.Struct("<dd?q")  # bound, objective, whether infeasible, number of values
_OPTIONS: Final = ("mip_rel_gap", "mip_abs_gap", "time_limit")
_COLUMNS: Final = ("col_cost_", "col_lower_", "col_upper_", "row_lower_", "row_upper_")
_TERMS: Final = ("start_", "index_", "value_")


class ChildProcess:
    """A process that is asked one thing, and ends with the block; OSError if none can start."""

    def __init__(self, question: bytes, *how: str) -> None:
        import subprocess

        self.answer = bytearray()
        self._process = subprocess.Popen(  # noqa: S603  # our own module
            [_interpreter(), "-P", "-m", "kanon_db.algorithms.ground.solver", *how],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            bufsize=0, env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )  # fmt: skip
        self._to, self._by = (
            pipe.fileno() for pipe in (self._process.stdin, self._process.stdout) if pipe
        )
        os.set_blocking(self._to, False)
        self._question = memoryview(struct.pack("<q", len(question)) + question)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # with what it has started
        self._process.communicate()

    def goes_on(self, seconds: float) -> bool:
        """Send and read what there is, for so long at most; tell whether the process goes on."""
        writable = [self._to] if self._question else []
        readable, writable, _ = select.select([self._by], writable, [], seconds)
        if writable:
            try:
                self._question = self._question[os.write(self._to, self._question) :]
            except BrokenPipeError:
                return False
        if readable:
            read = os.read(self._by, 2**20)
            self.answer += read
            self._take()
            return bool(read)
        return True

    def _take(self) -> None:
        """Take over what has come back whole."""


class SolverProcess(ChildProcess):
    """A process in which HiGHS solves one program."""

    def __init__(self, highs: highspy.Highs, start: list[float] | None) -> None:
        super().__init__(_pack_program(highs, start))
        self.values: Any = None
        self.lower_bound = -np.inf
        self.is_infeasible = False
        self._objective = np.inf

    def _take(self) -> None:
        """Take over the solutions and bounds that have come back whole."""
        while len(self.answer) >= _HEADER.size:
            bound, objective, is_infeasible, n = _HEADER.unpack_from(self.answer)
            end = _HEADER.size + 8 * n
            if len(self.answer) < end:
                return
            self.lower_bound = max(self.lower_bound, bound)
            self.is_infeasible |= is_infeasible
            if n and objective <= self._objective:
                self._objective = objective
                self.values = np.frombuffer(bytes(self.answer[_HEADER.size : end]))
            del self.answer[:end]


def _interpreter() -> str:
    """Find the interpreter, which is not the program that runs where a server embeds it."""
    from pathlib import Path

    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (Path(sys.executable or "none"), Path(sys.base_exec_prefix, "bin", name)):
        if path.name.startswith("python") and os.access(path, os.X_OK):
            return str(path)
    raise FileNotFoundError(name)


def _pack_program(highs: highspy.Highs, start: list[float] | None) -> bytes:
    """Write a program as bytes."""
    import highspy

    lp = highs.getLp()
    arrays: dict[str, Any] = {name: getattr(lp, name) for name in _COLUMNS}
    arrays |= {name: getattr(lp.a_matrix_, name) for name in _TERMS}
    arrays["format"] = int(lp.a_matrix_.format_)
    arrays["is_whole"] = [kind == highspy.HighsVarType.kInteger for kind in lp.integrality_]
    arrays["options"] = [highs.getOptionValue(name)[1] for name in _OPTIONS]
    arrays["first_solution"] = [] if start is None else start
    written = io.BytesIO()
    np.savez(written, **arrays)
    return written.getvalue()


def _unpack_program(program: bytes) -> highspy.Highs:
    """Make a solver of a program that was written as bytes."""
    import highspy

    with np.load(io.BytesIO(program)) as arrays:
        lp = highspy.HighsLp()
        for name in _COLUMNS:
            setattr(lp, name, arrays[name])
        lp.num_col_, lp.num_row_ = len(lp.col_cost_), len(lp.row_lower_)
        kinds = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
        lp.integrality_ = [kinds[is_whole] for is_whole in arrays["is_whole"].tolist()]
        lp.a_matrix_.format_ = highspy.MatrixFormat(int(arrays["format"]))
        for name in _TERMS:
            setattr(lp.a_matrix_, name, arrays[name])
        highs = highspy.Highs()  # type: ignore[no-untyped-call]
        for option, value in (("output_flag", False), ("threads", 1)):
            highs.setOptionValue(option, value)
        for option, value in zip(_OPTIONS, arrays["options"].tolist(), strict=True):
            highs.setOptionValue(option, value)
        highs.passModel(lp)
        if arrays["first_solution"].size:
            solution = highspy.HighsSolution()
            solution.col_value = arrays["first_solution"].tolist()
            highs.setSolution(solution)
    return highs


_NAMED: Final = "named"
"""The argument with which this module has a named solver solve a model."""


def _read_question() -> bytes:
    (length,) = struct.unpack("<q", sys.stdin.buffer.read(8))
    return sys.stdin.buffer.read(length)


def _serve_named() -> None:
    """Have a named solver solve the model that comes in, and write what it has found."""
    import inspect
    import shutil

    import pulp

    question = json.loads(_read_question())
    folder = question["folder"]
    answers = os.dup(sys.stdout.fileno())
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the solver
    # Relative, since PuLP splits the command of CBC at the spaces of a path.
    os.environ.update(dict.fromkeys(("TMPDIR", "TMP", "TEMP"), "."))
    os.chdir(folder)
    # Programs that are started do not have this handler: the signal ends them.
    signal.signal(signal.SIGTERM, lambda *_: None)

    def end_with_reader() -> None:
        sys.stdin.buffer.read()
        os.killpg(0, signal.SIGTERM)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=end_with_reader, daemon=True).start()
    _, problem = pulp.LpProblem.fromDict(question["model"])
    kind = type(pulp.getSolver(question["solver"], msg=False))
    most = question["seconds"]
    if most is not None and kind is pulp.GLPK_CMD:
        most = max(int(most), 1)  # It takes no other.
    solver = {"msg": False, "timeLimit": most}
    if "gapRel" in inspect.signature(kind.__init__).parameters:
        solver["gapRel"] = 0.0
    begin = time.monotonic()
    status = problem.solve(pulp.getSolver(question["solver"], **solver))
    # PuLP says "optimal" of what GLPK has when its time is over.
    has_ended = most is None or time.monotonic() - begin < most
    has_values = problem.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible)
    has_values = has_values and problem.valid(_TOLERANCE)
    answer = {
        "is_optimal": has_ended and problem.sol_status == pulp.LpSolutionOptimal,
        "is_infeasible": has_ended and status == pulp.LpStatusInfeasible,
        "values": {one.name: one.varValue or 0 for one in problem.variables()}
        if has_values
        else None,
    }
    with os.fdopen(answers, "wb") as writer:
        writer.write(json.dumps(answer).encode())


def _serve() -> None:
    """Solve the program that comes in, and write each solution and bound that is found."""
    import highspy

    reader, writer = sys.stdin.buffer, sys.stdout.buffer
    highs = _unpack_program(_read_question())

    def end_with_reader() -> None:
        reader.read()
        os._exit(1)

    threading.Thread(target=end_with_reader, daemon=True).start()
    last_bound = -np.inf

    def tell(bound: float, objective: float, is_infeasible: bool, values: Any) -> None:
        nonlocal last_bound
        last_bound = bound
        sent = np.asarray(values, dtype=np.float64)
        writer.write(_HEADER.pack(bound, objective, is_infeasible, sent.size) + sent.tobytes())
        writer.flush()

    def tell_solution(event: Any) -> None:
        output = event.data_out
        tell(output.mip_dual_bound, output.objective_function_value, False, output.mip_solution)

    def tell_bound(event: Any) -> None:
        if event.data_out.mip_dual_bound > last_bound:
            tell(event.data_out.mip_dual_bound, np.inf, False, [])

    highs.cbMipImprovingSolution.subscribe(tell_solution)
    highs.cbMipInterrupt.subscribe(tell_bound)
    highs.run()
    info, status = highs.getInfo(), highs.getModelStatus()
    is_feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    values = highs.getSolution().col_value if is_feasible else []
    is_infeasible = status == highspy.HighsModelStatus.kInfeasible
    tell(info.mip_dual_bound, info.objective_function_value, is_infeasible, values)


if __name__ == "__main__":
    # Python's own end would abort, since a thread reads: a dump of memory may be kept then.
    with suppress(Exception):
        _serve_named() if _NAMED in sys.argv else _serve()
    os._exit(0)
