"""Runs the solver HiGHS in a process of its own, which can be ended at any moment.

HiGHS looks at the clock between its phases only, and some of these take many seconds for a large
program: presolve, the analytic center, and rounding. So a deadline holds, and a cancel takes effect
at once, only where the whole process can be killed.

The program goes through a pipe, and solutions come back through another as they are found. Nothing
is written to disk. The process ends with the one that started it, of which it inherits no more than
the two pipes.
"""

from __future__ import annotations

import io
import os
import select
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final

import highspy
import numpy as np

_HEADER: Final = struct.Struct("<dd?q")  # bound, objective, whether infeasible, number of values
_OPTIONS: Final = ("mip_rel_gap", "mip_abs_gap", "time_limit")
_COLUMNS: Final = ("col_cost_", "col_lower_", "col_upper_", "row_lower_", "row_upper_")
_TERMS: Final = ("start_", "index_", "value_")


class SolverProcess:
    """A process that solves one program; it ends with the ``with`` block at the latest.

    Parameters
    ----------
    highs : Highs
        A solver with a program and options, which stays as it is.
    start : list of float, optional
        A first solution.

    Attributes
    ----------
    values : ndarray of float64, optional
        The best solution that has come back.
    lower_bound : float
        The last bound that has come back, minus infinity before.
    is_infeasible : bool
        Whether there is proven to be no solution.

    Raises
    ------
    OSError
        If no process can be started.
    """

    def __init__(self, highs: highspy.Highs, start: list[float] | None) -> None:
        self.values: Any = None
        self.lower_bound = -np.inf
        self.is_infeasible = False
        self._objective = np.inf
        self._answer = bytearray()
        self._process = subprocess.Popen(  # noqa: S603  # our own module
            [_interpreter(), "-P", __file__],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            bufsize=0, env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )  # fmt: skip
        self._to, self._by = (
            pipe.fileno() for pipe in (self._process.stdin, self._process.stdout) if pipe
        )
        os.set_blocking(self._to, False)
        program = _packed(highs, start)
        self._question = memoryview(struct.pack("<q", len(program)) + program)

    def __enter__(self) -> SolverProcess:
        return self

    def __exit__(self, *raised: object) -> None:
        self._process.kill()
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
            self._answer += read
            self._take()
            return bool(read)
        return True

    def _take(self) -> None:
        """Take over the solutions and bounds that have come back whole."""
        while len(self._answer) >= _HEADER.size:
            bound, objective, is_infeasible, n = _HEADER.unpack_from(self._answer)
            end = _HEADER.size + 8 * n
            if len(self._answer) < end:
                return
            self.lower_bound = max(self.lower_bound, bound)
            self.is_infeasible |= is_infeasible
            if n and objective <= self._objective:
                self._objective = objective
                self.values = np.frombuffer(bytes(self._answer[_HEADER.size : end]))
            del self._answer[:end]


def _interpreter() -> str:
    """Find the interpreter, which is not the program that runs where a server embeds it."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (Path(sys.executable or "none"), Path(sys.base_exec_prefix, "bin", name)):
        if path.name.startswith("python") and os.access(path, os.X_OK):
            return str(path)
    raise FileNotFoundError(name)


def _packed(highs: highspy.Highs, start: list[float] | None) -> bytes:
    """Write a program as bytes."""
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


def _unpacked(program: bytes) -> highspy.Highs:
    """Make a solver of a program that was written as bytes."""
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


def _serve() -> None:
    """Solve the program that comes in, and write each solution and bound that is found."""
    reader, writer = sys.stdin.buffer, sys.stdout.buffer
    (length,) = struct.unpack("<q", reader.read(8))
    highs = _unpacked(reader.read(length))

    def end_with_reader() -> None:
        reader.read()
        os._exit(1)

    threading.Thread(target=end_with_reader, daemon=True).start()
    told = -np.inf

    def tell(bound: float, objective: float, is_infeasible: bool, values: Any) -> None:
        nonlocal told
        told = bound
        sent = np.asarray(values, dtype=np.float64)
        writer.write(_HEADER.pack(bound, objective, is_infeasible, sent.size) + sent.tobytes())
        writer.flush()

    def tell_solution(event: Any) -> None:
        found = event.data_out
        tell(found.mip_dual_bound, found.objective_function_value, False, found.mip_solution)

    def tell_bound(event: Any) -> None:
        if event.data_out.mip_dual_bound > told:
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
    _serve()
