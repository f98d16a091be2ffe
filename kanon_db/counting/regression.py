"""What the buckets of a random assignment tell of how records and values go together.

The estimate of the paper spreads a bucket's matching records evenly over its values. But where
buckets with more of some value have more matching records, the two go together, also inside the
buckets. Let r be, for each direction in which buckets differ (`Composition`), the paper's estimates
of how often each value goes with a match, less what would be expected if they were unrelated. If
theta is how much more often than on average each value goes with a match, r is normal with mean
``eigenvalue * theta`` and variance ``b * eigenvalue``, where b is how much the share of matches
varies from bucket to bucket. With a normal prior for theta, whose variance tau2 is that which r
itself shows, theta is r tau2 / (tau2 eigenvalue + b) (ridge regression), with variance
tau2 b / (tau2 eigenvalue + b). A question on some values y adds ``theta * (hidden y)`` to the
paper's estimate, and its error is that of a random matching, and that of theta.

All of it is linear in the number of matches, so sums of x have the same formulas.

SQL and its twin in numpy stand side by side; tests hold the two to the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kanon_db.counting.answers import Estimated
from kanon_db.counting.layout import Assignment, Spectrum

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import FloatArray

CALIBRATION: Final[Mapping[Assignment, float]] = {"random": 1.15, "cells": 2.2, "local": 0.9}
"""By what the errors of a random matching, and of theta, are multiplied for each assignment.

Buckets of records that were gathered say nothing of theta, since their own differences are larger;
inside a bucket they go together less. ``python -m benchmarks calibration`` measures how often the
truth lies within the errors.
"""

MOST_CORRECTED: Final = 64
"""Of so many directions, what buckets tell of each is too rough to be added to an estimate (of 77
values, errors grew by a third); it is part of the error then."""

UNCORRECTED: Final = 2.0
"""By what the error of a random matching is multiplied beside this, in buckets of a random
assignment, where nothing is known of theta: for sums and averages without a composition, and for
conditions on both sides at once."""


def times_of(assignment: Assignment, *, is_corrected: bool) -> float:
    """Return by what errors are multiplied.

    Parameters
    ----------
    is_corrected : bool
        Whether the error has a part for how records and values go together.
    """
    times = CALIBRATION[assignment]
    return times if is_corrected or assignment != "random" else times * UNCORRECTED


@dataclass(frozen=True, slots=True)
class Matched:
    """What a random matching gives.

    Attributes
    ----------
    estimate : float
    variance : float
        Of a count or a sum; of an average, of the sum of its `number` differences from it.
    lower_bound, upper_bound : float
    number : float
    """

    estimate: float
    variance: float
    lower_bound: float
    upper_bound: float
    number: float = 1.0


ROUNDS: Final = 3
"""How often tau2 is found, each time with the weights that the one before gives the directions.

At first as if theta were nothing, so mostly by the directions that vary most; a third time is near
the greatest likelihood. It is a moment estimator of several steps (DerSimonian and Kacker,
Contemporary Clinical Trials 28, 2007), whose mean is known to be 0.
"""


def signal(over: str, *, is_first: bool) -> str:
    """Return the SQL of tau2 from r, b and the eigenvalues ev, of one group each.

    It is no less than its own standard error, so that the error of theta is not lost.

    Parameters
    ----------
    over : str
        The window of a group.
    is_first : bool
        Whether there is no tau2 yet.
    """
    if is_first:
        squares = f"sum(ev ^ 2) {over}"
        shown = f"sum(r * r - b * ev) {over} / {squares}"
        least = f"sqrt(2 * sum((b * ev) ^ 2) {over}) / {squares}"
        return f"greatest({shown}, {least})"
    weight = "(tau2 + b) / nullif(tau2 * ev + b, 0)"
    squares = f"nullif(sum((ev * {weight}) ^ 2) {over}, 0)"
    shown = f"sum((r * r - b * ev) * ({weight}) ^ 2) {over} / {squares}"
    least = f"sqrt(2 * sum((b * ev * ({weight}) ^ 2) ^ 2) {over}) / {squares}"
    return f"coalesce(greatest({shown}, {least}), 0)"


REGRESSED: Final = {
    "more": "sum(l * r * tau2 / nullif(tau2 * ev + b, 0))",
    "doubt": "sum(l * l * tau2 * b / nullif(tau2 * ev + b, 0))",
}
"""What to add to the estimate, and the variance of that, from the levels l of a question."""


def regress(
    along: FloatArray, total: float, b: float, levels: FloatArray, spectrum: Spectrum
) -> tuple[float, float]:
    """Return what to add to an estimate, and the variance of that.

    Parameters
    ----------
    along : ndarray of float64, shape (n_directions,)
        The paper's estimates of each value, along the directions.
    total : float
        Of what matches.
    b : float
        See :func:`between`.
    levels : ndarray of float64, shape (n_directions,)
        What is hidden of the question's values.
    """
    import numpy as np

    ev = np.array(spectrum.eigenvalues)
    r = along - total * np.array(spectrum.expected)
    weight = np.ones_like(ev)
    for _ in range(ROUNDS):
        squares = float(((ev * weight) ** 2).sum())
        least = math.sqrt(2 * float(((b * ev * weight**2) ** 2).sum())) / squares
        tau2 = max(float(((r * r - b * ev) * weight**2).sum()) / squares, least)
        if tau2 == 0 and b == 0:
            return 0.0, 0.0
        weight = (tau2 + b) / (tau2 * ev + b)
    weight = tau2 * ev + b
    return float((levels * r * tau2 / weight).sum()), float(
        (levels * levels * tau2 * b / weight).sum()
    )


def between(packed: float, total: float, n_records: int, n_buckets: int) -> float:
    """How much the share of matches varies from bucket to bucket; beside :func:`between_sql`.

    Parameters
    ----------
    packed : float
        The sum of squares of what matches in a bucket, over its size.
    total : float
        Of what matches.
    """
    return max(packed - total * total / n_records, 0) / max(n_buckets - 1, 1)


def between_sql(packed: str, totals: str, n_records: int, n_buckets: int) -> str:
    """Return the SQL of :func:`between`, or of a covariance; `totals` is a product of two."""
    return f"({packed} - {totals} / {n_records}) / {max(n_buckets - 1, 1)}"


def corrected(
    found: Matched, correction: tuple[float, float], *, is_paper: bool, times: float
) -> Estimated:
    """Correct an answer of the paper, or say how far off it may be; beside :func:`answer_sql`.

    Parameters
    ----------
    found : Matched
    correction : tuple of float
        What to add, and the variance of that.
    is_paper : bool
        Whether it is not added, but is part of the error.
    times : float
        See :func:`times_of`.
    """
    low, high, (more, doubt) = found.lower_bound, found.upper_bound, correction
    estimate = found.estimate
    if not is_paper:
        estimate = min(max(estimate + more / found.number, low), high)
    miss = found.variance + doubt + (more * more if is_paper else 0)
    # Equal bounds may differ by what is rounded.
    error = min(times * math.sqrt(max(miss, 0)) / found.number, max(high - low, 0) / 2)
    return Estimated(estimate, error, low, high)


def answer_sql(*, is_paper: bool, times: float, is_average: bool = False) -> dict[str, str]:
    """Return the SQL of an answer from estimate, variance, more, doubt and bounds.

    Parameters
    ----------
    is_average : bool
        Whether variance, more and doubt are those of a sum of c numbers.
    """
    low, high, per = "lower_bound", "upper_bound", " / nullif(c, 0)" if is_average else ""
    estimate, miss = f"least(greatest(estimate + more{per}, {low}), {high})", "variance + doubt"
    if is_paper:
        estimate, miss = "estimate", f"{miss} + more * more"
    # Equal bounds may differ by what is rounded.
    error = f"least({times} * sqrt(greatest({miss}, 0)){per}, ({high} - {low}) / 2::float8)"
    error = f"greatest({error}, 0)"
    return {
        # least() and greatest() pass over what is not there.
        "estimate": f"(CASE WHEN estimate IS NOT NULL THEN {estimate} END)::float8",
        "std_error": f"(CASE WHEN estimate IS NOT NULL THEN {error} END)::float8",
        "lower_bound": low,
        "upper_bound": high,
    }


def calibrated_sql(times: float) -> dict[str, str]:
    """Return the SQL of an answer whose error is multiplied, and at most half the bounds' width."""
    error = f"least({times} * std_error, (upper_bound - lower_bound) / 2::float8)"
    error = f"greatest({error}, 0)"
    return {
        "estimate": "estimate",
        "std_error": f"(CASE WHEN std_error IS NOT NULL THEN {error} END)::float8",
        "lower_bound": "lower_bound",
        "upper_bound": "upper_bound",
    }
