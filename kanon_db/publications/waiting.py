"""What refusals and waiting tell, which no bound on values covers.

Publishing is refused, and new people wait, because of the values that there are. Whoever knows who
was in the source at that time learns something of their values, and can be surer of them than the
bound, once they are published with others. Who waited is not recorded: it would tell readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kanon_db.publications.results import Check

NOT_COVERED: Final = "what it tells that publishing was refused, or that people had to wait"
"""What a guarantee about values leaves out."""

CLAUSE: Final = f"; {NOT_COVERED}, is not covered"
"""The same, at the end of a guarantee."""

WARNING: Final = (
    "people wait, not being enough or having too few different values: whoever knows of it can be"
    " surer of these than the guarantee says, once they are published; refresh when there are"
    " clearly enough"
)
"""For publishers."""


def check_waiting(parameters: Mapping[str, Any]) -> Check:
    """Say in a verification what is not covered, and how often people can have waited.

    Parameters
    ----------
    parameters : mapping
        Of the publication, as in the catalog.
    """
    states = int(parameters.get("batches", 1)) + int(parameters.get("renewals", 0))
    return Check(
        f"not covered: {NOT_COVERED}",
        "readers do not know of it",
        "published once" if states == 1 else f"published {states - 1} times more since the first",
        holds=True,
    )
