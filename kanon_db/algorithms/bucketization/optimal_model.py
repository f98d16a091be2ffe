"""The integer linear program of general bucket settings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.ground.solver import Answer, Model, solve


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
