"""What a suppressed publication promises, in words."""

from __future__ import annotations

from kanon_db.publications.suppressed.request import SuppressedRequest


def guarantee(request: SuppressedRequest, n_left_over: int, *, with_entities: bool = False) -> str:
    """Say what holds for every row, and what became of the left-over records.

    Parameters
    ----------
    request : SuppressedRequest
    n_left_over : int
    with_entities : bool
        Whether it is known whom each record is about.
    """
    times = "times, for as many different people" if with_entities else "times"
    said = (
        f"{request.k}-anonymity by suppression: every combination of kept quasi-identifiers"
        f" occurs at least {request.k} {times}"
    )
    if n_left_over:
        said += f"; {n_left_over} left-over records are "
        said += (
            "suppressed fully, and whoever knows the quasi-identifiers can tell whose they are"
            if request.options.left_over == "publish"
            else "left out"
        )
    return said
