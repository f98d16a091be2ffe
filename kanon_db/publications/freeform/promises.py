"""What a freeform publication promises, in words."""

from __future__ import annotations

from kanon_db.publications.freeform.request import FreeformRequest
from kanon_db.publications.results import Check


def guarantee(request: FreeformRequest) -> str:
    """Say what holds for every row."""
    k = request.k
    if request.method == "k_concealment":
        return (
            f"{k}-concealment, which is weaker than k-anonymity: each record may be any of at least"
            f" {k} published ones, but not with the same probability: readers who know the method"
            " may be certain"
        )
    said = (
        f"k-anonymity with k = {k} by freeform generalization: each published record covers {k}"
        f" originals, each original is covered {k} times, and each of these is its own with"
        f" probability 1/{k}; whoever knows which record is somebody's can be certain of others'"
    )
    return said + "; matches are mutual, which does not change that" * request.options.symmetric


def check_graph(k: int, originals: int, published: int, outside: int, *, holds: bool) -> Check:
    """Judge what was counted of the graph of matches.

    Parameters
    ----------
    k : int
    originals, published : int
        Fewest that a record matches on either side.
    outside : int
        Matches outside their cells.
    holds : bool
    """
    return Check(
        "k-anonymity: every record has k matches on both sides",
        f"k = {k}",
        f"at least {originals} and {published}, {outside} matches outside their cells",
        holds=holds,
    )
