"""Which method of generalization suits a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

_MOST_FOR_OPTIMUM = 30
_MOST_FOR_SEARCH = 100_000
_BLOCK = 20_000


@dataclass(frozen=True)
class Recommendation:
    """A method, and why.

    Parameters
    ----------
    method : {"optimal", "greedy_search"}
    block_size : int or None
        Records among which the search looks for the members of a class; None for all.
    reason : str
    """

    method: Literal["optimal", "greedy_search"]
    block_size: int | None
    reason: str


def recommend(n_records: int, n_attributes: int, k: int) -> Recommendation:
    """Choose by the size of the table.

    Parameters
    ----------
    n_records, n_attributes : int
    k : int

    Returns
    -------
    Recommendation

    Notes
    -----
    Deviation from [OB] Section 5, which advises Split & Carry for small k and few attributes, and
    Greedy Search otherwise: refined, the classes of Greedy Search lose least in all our
    measurements (docs/benchmarks.md).

    Examples
    --------
    >>> recommend(1_000_000, 8, 10).block_size
    20000
    """
    if n_records <= _MOST_FOR_OPTIMUM and k <= 3:
        return Recommendation(
            "optimal", None, f"{n_records} records and k = {k}: the optimum is within reach"
        )
    search = f"{n_records:,} records, {n_attributes} attributes, k = {k}: refined, its classes lose"
    if n_records <= _MOST_FOR_SEARCH:
        return Recommendation("greedy_search", None, f"{search} least")
    return Recommendation(
        "greedy_search", _BLOCK, f"{search} least, in blocks of {_BLOCK:,} sorted records"
    )
