"""Classes by the mixed integer linear program of [OB]: a variable for each pair of records."""

from __future__ import annotations

import numpy as np

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.ground.solver import solve_problem
from kanon_db.algorithms.programs import class_program
from kanon_db.algorithms.recoding.exact_loss import Loss
from kanon_db.algorithms.recoding.microdata import Microdata


def solve_pairwise(
    microdata: Microdata,
    loss: Loss,
    k: int,
    start: IntArray,
    pulse: Pulse,
) -> tuple[IntArray | None, float]:
    """Solve the paper's program by HiGHS.

    Parameters
    ----------
    microdata : Microdata
    loss : {"ncp", "binary"}
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
        Bound on the loss, minus infinity if there is none.

    Raises
    ------
    InvalidParameterError
        As :func:`~kanon_db.algorithms.programs.class_program`, which states the program.
    """
    program = class_program(microdata, k, loss=loss, start=start)
    answer = solve_problem(program.problem, pulse)
    if answer.values is None:
        return None, answer.lower_bound
    equivalent = np.argwhere(program.whole_values("v"))
    return _components(microdata.n_records, equivalent.tolist()), answer.lower_bound


def _components(n: int, pairs: list[list[int]]) -> IntArray:
    """Put the records that are equivalent, directly or indirectly, into one class."""
    label = np.arange(n)
    for i, l in pairs:
        label[label == label[l]] = label[i]
    return np.unique(label, return_inverse=True)[1].reshape(-1)
