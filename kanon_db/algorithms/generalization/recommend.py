"""Which method of generalization suits a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

_MOST_FOR_OPTIMUM = 30
_MOST_FOR_SEARCH = 100_000
_BLOCK = 20_000
_FEW_ATTRIBUTES, _SMALL_K = 2, 5


@dataclass(frozen=True)
class Recommendation:
    """A method, and why.

    Parameters
    ----------
    method : {"optimal", "greedy_search", "mondrian"}
    block_size : int or None
        Records among which the search looks for the members of a class; None for all.
    reason : str
    """

    method: Literal["optimal", "greedy_search", "mondrian"]
    block_size: int | None
    reason: str


def recommend(n_records: int, n_attributes: int, k: int, *, refined: bool = True) -> Recommendation:
    """Choose by the size of the table.

    Parameters
    ----------
    n_records, n_attributes : int
    k : int
    refined : bool
        Whether the classes are to be refined.

    Returns
    -------
    Recommendation

    Notes
    -----
    Deviation from [OB] Section 5, which advises Split & Carry for small k and few attributes, and
    Greedy Search otherwise. In our measurements (docs/benchmarks.md, the paper's figures) Split &
    Carry is better than Greedy Search in all cases for two attributes, where Mondrian, refined, is
    better still; from four attributes on that depends on the table, and Greedy Search takes a
    tenth of the time.

    Examples
    --------
    >>> recommend(1_000_000, 8, 10).block_size
    20000
    """
    if n_records <= _MOST_FOR_OPTIMUM and k <= 3:
        return Recommendation(
            "optimal", None, f"{n_records} records and k = {k}: the optimum is within reach"
        )
    table = f"{n_records:,} records, {n_attributes} attributes, k = {k}"
    if refined and n_attributes <= _FEW_ATTRIBUTES and k <= _SMALL_K:
        return Recommendation(
            "mondrian",
            None,
            f"{table}: after refinement, its classes lose least when there are few attributes",
        )
    search = f"{table}: its classes usually lose little for the time it takes"
    if n_records <= _MOST_FOR_SEARCH:
        return Recommendation("greedy_search", None, search)
    return Recommendation(
        "greedy_search", _BLOCK, f"{search}, in blocks of {_BLOCK:,} sorted records"
    )
