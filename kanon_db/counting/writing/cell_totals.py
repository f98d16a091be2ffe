"""From the likelihoods of all types of records to an answer with its standard error, as SQL.

A record of a type is counted with a probability m. Were the errors of records independent, the
variance of a count would be the sum of m (1 - m). But where a distribution is a little off, it is
so for many records in the same direction: a part of their standard deviations adds up. The same
model, with x in place of 1, gives the errors of sums and averages, so that one quantity has one
error, however it is asked for. ``python -m benchmarks calibration`` measures how often the truth
lies within the errors; docs/estimation.md has the figures.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kanon_db.counting.formulas import EXTREMES
from kanon_db.counting.writing.writer import over

TOGETHER: Final = 0.18
"""Which part of the records' standard deviations adds up, of those whose values are not known."""

TOGETHER_EVENLY: Final = 0.5
"""The same, where all values of a cell are taken as equally likely."""

SUPPRESSED: Final = 0.2
"""The same, where cells are suppressed."""

_POSSIBLE: Final = "coalesce(sum(n) FILTER (WHERE pt), 0)"
_SURE: Final = "coalesce(sum(n) FILTER (WHERE st), 0)"


def count_answer(together: float, is_unknown: str) -> dict[str, str]:
    """Count all types together; the error is at most half the distance between the bounds.

    Parameters
    ----------
    together : float
    is_unknown : str
        Whether so little is known of a column that the error is just that.
    """
    error, widest = _error("m * (1 - m)", together), f"(({_POSSIBLE} - {_SURE}) / 2)"
    if is_unknown:
        error = f"CASE WHEN {is_unknown} THEN {widest} ELSE {error} END"
    return {
        "estimate": "coalesce(sum(n * m), 0)::float8",
        "std_error": f"least({error}, {widest})::float8",
        "lower_bound": f"{_SURE}::int8",
        "upper_bound": f"{_POSSIBLE}::int8",
    }


def left_out(number: int, *, is_sure: bool, is_summed: bool) -> dict[str, str]:
    """Write the type of the records that are left out: as likely as all others together."""
    share = "coalesce(sum(n * {}), 0) / (SELECT sum(n) FROM types)"
    found = {
        "n": f"{number}::float8", "u": "1::float8", "m": share.format("m"),
        "st": str(is_sure).lower(), "pt": "true",
    }  # fmt: skip
    if is_summed:
        found |= {"mx": share.format("mx"), "mxx": share.format("mxx"), "is_wild": "true"}
        found |= {"least_x": "min(least_x)", "most_x": "max(most_x)"}
    return found


def average_of_types(keys: Iterable[str]) -> str:
    """Write the average of x in each group."""
    window = over(keys)
    return f"sum(n * mx) {window} / nullif(sum(n * m) {window}, 0)"


def sum_totals(together: float, is_unknown: str) -> dict[str, str]:
    """Add up the sums and counts of types, with the error of the sum of x - a, if it is known."""
    error = _error("mxx - 2 * a * mx + a * a * m - (mx - a * m) ^ 2", together)
    return {
        "t": "sum(n * mx)",
        "c": "sum(n * m)",
        "error": f"CASE WHEN NOT ({is_unknown}) THEN {error} END" if is_unknown else error,
        "is_wild": "bool_or(is_wild)",
        "t_high": "sum(n * CASE WHEN st THEN most_x ELSE greatest(most_x, 0) END)",
        "t_low": "sum(n * CASE WHEN st THEN least_x ELSE least(least_x, 0) END)",
        "c_low": _SURE,
        "c_high": "sum(n)",
        **EXTREMES,
    }


def _error(variance: str, together: float) -> str:
    """Write the standard error of a total over types from the variance of one record."""
    squares = f"coalesce(sum(n * greatest({variance}, 0)), 0)"
    deviations = f"coalesce(sum(n * u * sqrt(greatest({variance}, 0))), 0)"
    return f"sqrt({squares} + ({together} * {deviations}) ^ 2)"
