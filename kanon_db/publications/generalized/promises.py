"""What a generalized publication promises, in words."""

from __future__ import annotations

from collections.abc import Callable

from kanon_db.publications.generalized.request import GeneralizedRequest
from kanon_db.publications.waiting import CLAUSE
from kanon_db.session.protocol import Row


def guarantee(
    request: GeneralizedRequest,
    n_suppressed: int,
    exposure: Row | None,
    warn: Callable[[str], None],
    *,
    with_entities: bool = False,
) -> str:
    """Say what holds in each class, and for whom.

    Parameters
    ----------
    request : GeneralizedRequest
    n_suppressed : int
        Records that are left out.
    exposure : mapping or None
        How frequencies compare with thresholds, if there are any.
    warn : callable
        Called with a text where they bound nothing.
    with_entities : bool
        Whether it is known whom each record is about.
    """
    times = "times, for as many different people" if with_entities else "times"
    said = (
        f"{request.k}-anonymity: every combination of generalized quasi-identifiers occurs at"
        f" least {request.k} {times}"
    )
    constraints = request.constraints
    if constraints is not None:
        counting = ", counting people," if with_entities and constraints.privacy else ","
        said += (
            f", with {constraints} in each{counting} which bounds inferences by readers who do not"
            f" know how classes were formed{CLAUSE}"
        )
        if exposure is not None and exposure["unbounded"]:
            share = exposure["unbounded"] / exposure["records"]
            warn(f"the threshold is 1 for {share:.1%} of the records: no bound")
            said += f"; the threshold is 1 for {share:.1%} of the records"
    if n_suppressed:
        said += f"; {n_suppressed} records are left out"
    return said
