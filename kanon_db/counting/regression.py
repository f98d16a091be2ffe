"""What the composition of buckets tells of how records and values go together.

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
from typing import TYPE_CHECKING, Final, NamedTuple

from kanon_db.counting.answers import Estimated
from kanon_db.counting.layout import Assignment, Spectrum

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import FloatArray

MOST_CORRECTED: Final = 64
"""Of so many directions, what buckets tell of each is too rough to be added to an estimate (of 77
values, errors grew by a third); it is part of the error then."""


class Trust(NamedTuple):
    """What the composition of buckets is taken for, and how large errors are.

    Attributes
    ----------
    times : float
        By what the error of a random matching is multiplied.
    is_added : bool
        Whether what is missing in the estimate is added to it.
    doubted : float
        By what the error of what is missing is multiplied.
    missed : float
        Which part of what is missing is an error.
    """

    times: float
    is_added: bool = False
    doubted: float = 0.0
    missed: float = 0.0


_CORRECTED: Final = Trust(1.15, is_added=True, doubted=1.15)
_COMPOSED: Final[Mapping[Assignment, Trust]] = {
    "random": Trust(1.15, doubted=1.15, missed=1.15),
    "cells": Trust(1.5, missed=0.5),
    "local": Trust(0.9, missed=0.15),
}
_UNKNOWN: Final[Mapping[Assignment, Trust]] = {
    "random": Trust(2.3), "cells": Trust(2.2), "local": Trust(0.9),
}  # fmt: skip


def trust(assignment: Assignment, *, is_paper: bool, is_composed: bool = True) -> Trust:
    """Return how errors are made.

    Parameters
    ----------
    is_paper : bool
        Whether the paper's estimator answers.
    is_composed : bool
        Whether anything is known of what is missing: not of conditions on both sides at once.

    Notes
    -----
    The constants were chosen on three tables; ``python -m benchmarks calibration`` measures on
    others how often the truth lies within the errors. Buckets of records that were gathered differ
    for other reasons than chance, so that what they seem to tell is mostly not so inside them (on
    average, a sixth in cells and less than a tenth in local buckets): it is not added, but says how
    far off estimates may be.
    """
    if not is_composed:
        return _UNKNOWN[assignment]
    return _CORRECTED if assignment == "random" and not is_paper else _COMPOSED[assignment]


class Matched(NamedTuple):
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


def corrected(found: Matched, correction: tuple[float, float], trust: Trust) -> Estimated:
    """Correct an answer of the paper, or say how far off it may be; beside :func:`answer_sql`.

    Parameters
    ----------
    found : Matched
    correction : tuple of float
        What is missing, and the variance of that.
    trust : Trust
    """
    low, high, (more, doubt) = found.lower_bound, found.upper_bound, correction
    estimate = found.estimate
    if trust.is_added:
        estimate = min(max(estimate + more / found.number, low), high)
    miss = trust.times**2 * found.variance
    miss += trust.doubted**2 * doubt if trust.doubted else 0.0  # it may be infinite
    miss += (trust.missed * more) ** 2
    # Equal bounds may differ by what is rounded.
    error = min(math.sqrt(max(miss, 0)) / found.number, max(high - low, 0) / 2)
    return Estimated(estimate, error, low, high)


def answer_sql(trust: Trust, *, is_average: bool = False) -> dict[str, str]:
    """Return the SQL of an answer from estimate, variance, more, doubt and bounds.

    Parameters
    ----------
    trust : Trust
    is_average : bool
        Whether variance, more and doubt are those of a sum of c numbers.
    """
    low, high, per = "lower_bound", "upper_bound", " / nullif(c, 0)" if is_average else ""
    estimate = "estimate"
    if trust.is_added:
        estimate = f"least(greatest(estimate + more{per}, {low}), {high})"
    miss = f"{trust.times} ^ 2 * variance"
    miss += f" + {trust.doubted} ^ 2 * doubt" if trust.doubted else ""
    miss += f" + ({trust.missed} * more) ^ 2" if trust.missed else ""
    # Equal bounds may differ by what is rounded.
    error = f"least(sqrt(greatest({miss}, 0)){per}, ({high} - {low}) / 2::float8)"
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
