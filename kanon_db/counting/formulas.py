"""Estimates, errors and bounds over buckets, each formula as SQL and, beside it, in numpy.

A bucket has ``size`` records, of which ``q`` match on the quasi-identifiers, and ``s`` of its
sensitive values match. Which record has which value is hidden: every matching of them is as likely
as the others.

**Source:** [GB] section 3.2 for the estimate; docs/estimation.md for the rest.

SQL is given as the columns of a step, by name, from the columns of the step before. The numpy
twins serve the bitmaps; tests hold the two to the same numbers. numpy is imported where it is
used, so that statements are written without it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kanon_db.counting.answers import Estimated
from kanon_db.counting.regression import Matched

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kanon_db.algorithms.ground.arrays import FloatArray

    Counts: TypeAlias = list[NDArray[np.uint8] | NDArray[np.uint16]]
    """For each bucket size, the number of bits that each bucket of it has."""

FLAT: Final = 1e-9
"""How much of the matching values their uneven spread must exceed to tell us anything."""

# -- counts -----------------------------------------------------------------------------------

BUCKET_SHARE: Final = "(s / size::float8)"

COUNTS: Final = {
    "estimate": f"coalesce(sum(n * q * {BUCKET_SHARE}), 0)::float8",
    "variance": f"coalesce(sum(n * q * {BUCKET_SHARE} * (1 - {BUCKET_SHARE})"
    "\n      * (size - q) / greatest(size - 1, 1)), 0)::float8",
    "lower_bound": "coalesce(sum(n * greatest(q + s - size, 0)), 0)::int8",
    "upper_bound": "coalesce(sum(n * least(q, s)), 0)::int8",
    "c": "1::float8",
    **{name: f"max({name})" for name in ("n_q", "packed_q", "n_s", "packed_s")},
}
"""Sums over ``n`` buckets that are alike; see :func:`count_buckets`.

``n_q`` is the sum of q over all buckets, ``packed_q`` that of q² / size; ``n_s``, ``packed_s`` are
those of s.
"""


def count_measures(n_records: int) -> dict[str, str]:
    """Return the SQL of what the error depends on, after :data:`COUNTS`."""
    return {
        "*": "*",
        "half_width": "(upper_bound - lower_bound) / 2::float8",
        "spread_s": f"packed_s - n_s * n_s / {n_records}",
        "share": f"n_q / {n_records}",
    }


def count_correlation(n_records: int, n_buckets: int) -> dict[str, str]:
    """Return the SQL of how records and values go together, after :func:`count_measures`."""
    return {
        "*": "*",
        "slope": f"(estimate - n_q * n_s / {n_records}) / nullif(spread_s, 0)",
        "within_q": f"(n_q - packed_q) / nullif({n_records - n_buckets} * share * (1 - share), 0)",
    }


SLOPE_DOUBT: Final = {
    "*": "*",
    "more": "0::float8",
    "doubt": f"CASE WHEN spread_s <= {FLAT} * n_s THEN 'Infinity' ELSE"
    "\n    ((n_s - packed_s) * within_q) ^ 2"
    "\n      * (slope ^ 2 + share * (1 - share) / nullif(spread_s, 0)) END",
}
"""How far off the slope could be, after :func:`count_correlation`; see :func:`count_buckets`."""


def count_buckets(records: Counts, values: Counts, sizes: Sequence[int]) -> tuple[Matched, float]:
    """Count over all buckets what q matching records and s matching values allow.

    Parameters
    ----------
    records, values : list of ndarray of uint8 or uint16, shape (n_buckets,)
        q and s of each bucket, for each bucket size.
    sizes : sequence of int

    Returns
    -------
    found : Matched
    doubt : float
        The square of what a slope of q on s would add.

    Notes
    -----
    In a bucket, q s / size records are expected to match both; their number is hypergeometric,
    with variance q (s / size) (1 - s / size) (size - q) / (size - 1), and lies between
    max(q + s - size, 0) and min(q, s).

    A real matching is not random. From bucket to bucket, the share of q follows that of s with
    some slope, by least squares weighted with the sizes; inside the buckets the same correlation
    would miss the sum of s (size - s) / size by the slope, and by the slope's own error, times
    how much of q's variance is inside the buckets. Where s is spread evenly, nothing is known of
    the slope. `kanon_db.counting.regression` has what is known of it where values are few.

    Buckets with the same q and s count together, in whole numbers, so that neither the order nor
    the number of buckets rounds anything.
    """
    import numpy as np

    estimate = variance = 0.0
    lower = upper = n_records = n_buckets = 0
    n_q = n_s = 0
    packed_q = packed_s = 0.0
    for size, in_records, in_values in zip(sizes, records, values, strict=True):
        pair = in_records.astype(np.int32) * (size + 1) + in_values
        n = np.bincount(pair, minlength=(size + 1) ** 2).reshape(size + 1, size + 1)
        n_buckets += pair.size
        n_records += pair.size * size
        q, s = np.nonzero(n)
        n = n[q, s]
        lower += int((n * np.maximum(q + s - size, 0)).sum())
        upper += int((n * np.minimum(q, s)).sum())
        estimate += int((n * q * s).sum()) / size
        n_q += int((n * q).sum())
        n_s += int((n * s).sum())
        packed_q += int((n * q * q).sum()) / size
        packed_s += int((n * s * s).sum()) / size
        if size > 1:
            spread = q * s * (size - q) * (size - s)
            variance += int((n * spread).sum()) / (size * size * (size - 1))
    spread_s = packed_s - n_s * n_s / n_records
    share = n_q / n_records
    found = Matched(estimate, variance, lower, upper)
    if spread_s <= FLAT * n_s:
        return found, math.inf
    slope = (estimate - n_q * n_s / n_records) / spread_s
    varies = (n_records - n_buckets) * share * (1 - share)
    within_q = (n_q - packed_q) / varies if varies else 0.0
    doubt = ((n_s - packed_s) * within_q) ** 2 * (slope**2 + share * (1 - share) / spread_s)
    return found, doubt


def all_but(n_records: int, neither: Estimated) -> Estimated:
    """Count the records that are not among those counted; beside :func:`all_but_answer`."""
    lower, upper = neither.lower_bound or 0, neither.upper_bound or 0
    estimate = n_records - (neither.estimate or 0)
    return Estimated(estimate, neither.std_error, n_records - upper, n_records - lower)


def all_but_answer(n_records: int) -> dict[str, str]:
    """Return the SQL of :func:`all_but`."""
    changed = {"estimate": "estimate", "lower_bound": "upper_bound", "upper_bound": "lower_bound"}
    rest = {name: f"{n_records} - {other}" for name, other in changed.items()}
    return {"estimate": "", "std_error": "std_error", **rest}


# -- sums and averages ------------------------------------------------------------------------


def weights(x: str, times: str) -> dict[str, str]:
    """Return the SQL of what ``n`` records, or values, of a bucket weigh; see :class:`Weighed`.

    Parameters
    ----------
    x : str
        The value to sum.
    times : str
        Multiplies by how often a row counts; empty where each counts once.
    """
    return {
        "sx": f"sum({x}{times})",
        "sxx": f"sum({x} * {x}{times})",
        "positive": f"sum(greatest({x}, 0){times})",
        "negative": f"sum(least({x}, 0){times})",
        "least_x": f"min({x})",
        "most_x": f"max({x})",
    }


class Weighed(NamedTuple):
    """What the matching records, or values, of each bucket of one size weigh.

    Attributes
    ----------
    n, x, squares, positive, negative : ndarray of float64, shape (n_buckets,)
        Their number, and the sums of their values, squares, positive and negative parts.
    least, most : ndarray of float64, shape (n_buckets,)
        Their extreme values; infinite where there is none.
    """

    n: FloatArray
    x: FloatArray
    squares: FloatArray
    positive: FloatArray
    negative: FloatArray
    least: FloatArray
    most: FloatArray


REACHED: Final = {"*": "*", "lo": "greatest(q + s - size, 0)", "hi": "least(q, s)"}
"""How many of the q are meant, at least and at most."""

_REST: Final = "(s - s * s / size) / greatest(size - 1, 1)"

BUCKET_SUMS: Final = {
    "t": "sx * s / size",
    "c": "q * s / size",
    "tt": f"(sxx - sx * sx / size) * {_REST}",
    "cc": f"(q - q * q / size) * {_REST}",
    "tc": f"(sx - sx * q / size) * {_REST}",
    "t_low": "greatest(negative, least(lo * least_x, hi * least_x),"
    " least(sx - (q - lo) * most_x, sx - (q - hi) * most_x))",
    "t_high": "least(positive, greatest(lo * most_x, hi * most_x),"
    " greatest(sx - (q - lo) * least_x, sx - (q - hi) * least_x))",
    "c_low": "lo",
    "c_high": "hi",
    "least_x": "least_x",
    "most_x": "most_x",
}
"""Each bucket's sum t and count c, with their variances, covariance and bounds.

See :func:`sum_buckets`.
"""

EXTREMES: Final = {"least_x": "min(least_x)", "most_x": "max(most_x)"}
TOTALS: Final = {**{name: f"sum({name})" for name in BUCKET_SUMS}, **EXTREMES}
"""The same of all buckets together."""


_ROUNDING: Final = 2.0**-47
"""What adding up whole numbers loses of the sum of their absolute values, at most; some bits more
than usual."""

_OF_EACH, _AT_LEAST = 2.0**-52, 2.0**-40
"""The same of other numbers: each record rounds once more, and values and buckets do, too."""

_ALWAYS, _NEVER, _NOTICED = 2.0**53, 2.0**33, 1e-12
"""Sums of absolute values from which on bounds are always widened, and up to which those of whole
numbers never are; in between, where it is more than this part of the bounds. For less,
:func:`.in_doubles` widens all bounds of numbers that are not whole."""


def rounding(n: float, largest: float, low: float, high: float) -> float:
    """Return by how much the bounds of a sum are widened, since adding up rounds.

    Parameters
    ----------
    n : float
        How many are added up, at most.
    largest : float
        The largest absolute value of one.
    low, high : float
        The bounds as they were added up.
    """
    total = n * largest
    is_whole = all(number == math.trunc(number) for number in (total, low, high)
                   if math.isfinite(number))  # fmt: skip
    lost = total * (_ROUNDING if is_whole else n * _OF_EACH + _AT_LEAST)
    is_noticed = (total > _NEVER or not is_whole) and lost > _NOTICED * max(abs(low), abs(high))
    return lost if total > _ALWAYS or is_noticed else 0.0


def _rounding() -> str:
    """Return the SQL of :func:`rounding`."""
    total = "c_high * greatest(abs(least_x), abs(most_x))"
    is_whole = " AND ".join(f"{one} = trunc({one})" for one in (total, "t_low", "t_high"))
    lost = (
        f"({total} * CASE WHEN {is_whole} THEN {_ROUNDING!r}"
        f" ELSE c_high * {_OF_EACH!r} + {_AT_LEAST!r} END)"
    )
    return (
        f"CASE WHEN {total} > {_ALWAYS!r} OR (({total} > {_NEVER!r} OR NOT ({is_whole}))"
        f" AND {lost} > {_NOTICED!r} * greatest(abs(t_low), abs(t_high)))"
        f" THEN {lost} ELSE 0 END"
    )


def sum_answer(*, is_average: bool, certain: str = "", error: str = "") -> dict[str, str]:
    """Return the SQL of a sum, or an average, from totals as :data:`TOTALS` names them.

    Parameters
    ----------
    is_average : bool
    certain : str
        Condition under which there are bounds; empty for always.
    error : str
        The standard error, if it does not follow from these totals; it is cut to the bounds.

    Notes
    -----
    The twin is in :func:`sum_buckets`. An average is t / c, its error that of a ratio to first
    order: the root of tt - 2 (t / c) tc + (t / c)² cc, over c. It lies between the extreme values;
    where the count is certain, also between the sum's bounds, over the count.
    """
    lost = _rounding()
    estimate, low, high = "t", f"t_low - {lost}", f"t_high + {lost}"
    own_error = error or "CASE WHEN t IS NOT NULL THEN sqrt(greatest(tt, 0)) END"
    if is_average:
        estimate = "t / nullif(c, 0)"
        own_error = error or (
            f"sqrt(greatest(tt - 2 * {estimate} * tc + ({estimate}) ^ 2 * cc, 0)) / nullif(c, 0)"
        )
        low, high = (
            f"CASE WHEN c_low = c_high THEN greatest(least_x, least(most_x, ({total}) / c_low))"
            f" ELSE {end} END"
            for end, total in (("least_x", low), ("most_x", high))
        )
    if certain:
        low, high = (f"CASE WHEN {certain} THEN {bound} END" for bound in (low, high))
    if error:  # least() passes over bounds that are not there
        smaller = f"greatest(least({error}, ({high} - ({low})) / 2), 0)"
        own_error = f"CASE WHEN {error} IS NOT NULL THEN {smaller} END"
    return {"estimate": estimate, "std_error": own_error, "lower_bound": low, "upper_bound": high}


def matched_sum(*, is_average: bool) -> dict[str, str]:
    """Return the SQL of :func:`sum_buckets` from totals as :data:`TOTALS` names them."""
    answer = sum_answer(is_average=is_average)
    variance = (
        "tt - 2 * t / nullif(c, 0) * tc + (t / nullif(c, 0)) ^ 2 * cc" if is_average else "tt"
    )
    bounds = {name: answer[name] for name in ("lower_bound", "upper_bound")}
    return {"estimate": answer["estimate"], "variance": variance, **bounds, "c": "c"}


def sum_buckets(
    weighed: Sequence[Weighed], others: Counts, sizes: Sequence[int], *, is_average: bool
) -> Matched | None:
    """Sum, or average, over all buckets what x values and s matches of the other side allow.

    Parameters
    ----------
    weighed : sequence of Weighed
    others : list of ndarray of uint8 or uint16
        s of each bucket.
    sizes : sequence of int
    is_average : bool

    Returns
    -------
    Matched or None
        None where there is nothing to sum.

    Notes
    -----
    In a bucket, s of size records are drawn at random; for the q values of x, the expected sum is
    t = s sum(x) / size, their expected number c = q s / size, with the variances and the
    covariance of drawing without replacement. Between lo = max(q + s - size, 0) and
    hi = min(q, s) of the q are drawn; each bound of the sum is the extreme that so many can reach.
    """
    import numpy as np

    totals = np.zeros(9)
    least, most = math.inf, -math.inf
    for size, w, counts in zip(sizes, weighed, others, strict=True):
        at = (w.n > 0) & (counts > 0)
        q, x, low, high = w.n[at], w.x[at], w.least[at], w.most[at]
        if not q.size:
            continue
        s = counts[at].astype(np.float64)
        lo, hi = np.maximum(q + s - size, 0), np.minimum(q, s)
        rest = (s - s * s / size) / max(size - 1, 1)
        lowest = np.minimum(lo * low, hi * low)
        highest = np.maximum(lo * high, hi * high)
        at_least = np.minimum(x - (q - lo) * high, x - (q - hi) * high)
        at_most = np.maximum(x - (q - lo) * low, x - (q - hi) * low)
        lower = np.maximum.reduce([w.negative[at], lowest, at_least])
        upper = np.minimum.reduce([w.positive[at], highest, at_most])
        squares = w.squares[at]
        variances = ((squares - x * x / size) * rest, (q - q * q / size) * rest)
        covariance = (x - x * q / size) * rest
        parts = (x * s / size, q * s / size, *variances, covariance, lower, upper, lo, hi)
        totals += [float(part.sum()) for part in parts]
        least, most = min(least, float(low.min())), max(most, float(high.max()))
    return summed(totals.tolist(), (least, most), is_average=is_average)


def summed(
    totals: Sequence[float], extremes: tuple[float, float], *, is_average: bool
) -> Matched | None:
    """Return a sum, or an average, from totals in the order of :data:`TOTALS`.

    Returns
    -------
    Matched or None
        None where there is nothing to sum.
    """
    t, c, tt, cc, tc, t_low, t_high, c_low, c_high = totals
    least, most = extremes
    if c == 0:
        return None
    lost = rounding(c_high, max(abs(least), abs(most)), t_low, t_high)
    t_low, t_high = t_low - lost, t_high + lost
    if not is_average:
        return Matched(t, tt, t_low, t_high)
    mean = t / c
    if c_low == c_high:
        # Rounded, an average could lie beyond the values that it is of.
        least, most = (min(max(t / c_low, least), most) for t in (t_low, t_high))
    return Matched(mean, tt - 2 * mean * tc + mean * mean * cc, least, most, c)
