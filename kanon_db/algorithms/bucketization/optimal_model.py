"""The integer linear programs of general bucket settings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.ground.solver import Answer, Model, solve, solve_problem
from kanon_db.algorithms.programs import bucket_program


@dataclass(frozen=True, eq=False)
class SettingProgram:
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


def solve_setting(
    program: SettingProgram, near: IntArray, start: IntArray | None, *, whole: bool, pulse: Pulse
) -> Answer:
    """Solve a program by HiGHS.

    Parameters
    ----------
    program : SettingProgram
    near : ndarray of int64, shape (q,)
        Any numbers of buckets. The solver works on the differences from them, so that the better
        they are, the fewer digits it needs, however many records there are.
    start : ndarray of int64, shape (q,), optional
        A solution to start from.
    whole : bool
        Whether the numbers of buckets must be whole.
    pulse : Pulse
        Beaten in the thread of the caller.

    Returns
    -------
    Answer
        Its values are the numbers of buckets of each size; its bound is on the loss beyond that
        of ``near``.
    """
    terms = np.vstack([program.sizes, program.room])
    lacking = np.append(program.n_records, program.needed) - terms @ near
    rows, columns = np.nonzero(terms)
    most = lacking.astype(np.float64)
    most[1:] = np.inf  # all records are held exactly once, and those of a set at least once
    model = Model(
        costs=(program.sizes - 1) ** 2,
        lower=-near,
        upper=program.n_records // program.sizes - near,
        is_whole=np.full(near.size, whole),
        row_lower=lacking,
        row_upper=most,
        rows=rows,
        columns=columns,
        coefficients=terms[rows, columns],
    )
    # Losses are whole numbers, so that a gap of less than 1 is none.
    highs = model.handed_over(gap=0.99)
    answer = solve(highs, pulse, None if start is None else (start - near).tolist())
    return answer if answer.values is None else answer._replace(values=near + answer.values)


def solve_paper_program(
    counts: IntArray, privacy: FPrimePrivacy, sizes: IntArray, pulse: Pulse
) -> Answer:
    """Solve the paper's program by HiGHS.

    Parameters
    ----------
    counts : ndarray of int64, shape (m,)
        Records of each value.
    privacy : FPrimePrivacy
    sizes : ndarray of int64, shape (q,)
        Bucket sizes, consecutive.
    pulse : Pulse
        Beaten in the thread of the caller.

    Returns
    -------
    Answer
        Its values are the numbers of buckets of each size. There are none where the solver's, as
        whole numbers, break a constraint.

    Raises
    ------
    InvalidParameterError
        As :func:`~kanon_db.algorithms.programs.bucket_program`, which states the program.
    """
    smallest, largest = int(sizes[0]), int(sizes[-1])
    program = bucket_program(counts.tolist(), privacy.thresholds, smallest, largest)
    answer = solve_problem(program.problem, pulse)
    if answer.values is None:
        return answer
    b, v = program.whole_values("b"), program.whole_values("v")
    holds = (
        (b >= 0).all()
        and (v >= 0).all()
        and (v.sum(axis=1) == counts).all()
        and (v.sum(axis=0) == sizes * b).all()
        and (v <= privacy.occurrence_limits(sizes) * b).all()
    )
    return answer._replace(values=b.astype(np.float64) if holds else None)
