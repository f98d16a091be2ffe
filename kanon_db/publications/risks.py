"""Known risks: a publication that takes one is refused until the publisher accepts it by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kanon_db.declaration import json_object, unknown
from kanon_db.errors import InvalidParameterError, RiskError

RISKS: Final[Mapping[str, str]] = {
    "uninformed_reader": "the bound holds only against readers who do not know how records were"
    " put into buckets",
    "left_over_records": "fewer than k records that match nobody else are published: anyone who"
    " knows the quasi-identifiers finds out whose they are",
    "model_without_budget": "nothing bounds what a model tells about the people it was trained on:"
    " readers may find out who was in the source, and their values",
    "combined_releases": "readers can set releases of the same people against each other, which"
    " can tell more than each of them allows",
}
"""What each risk means."""


_LONGEST: Final = 1000


def _is_reason(text: str) -> bool:
    """Readers see it in their terminal: nothing that is invisible or moves the cursor."""
    return len(text) <= _LONGEST and text.isprintable() and any(map(str.isalnum, text))


def _read_accepted(given: Mapping[str, Any]) -> dict[str, str]:
    for name, reason in given.items():
        if name not in RISKS:
            raise unknown("risk", name, list(RISKS))
        if not (isinstance(reason, str) and _is_reason(reason)):
            raise InvalidParameterError(
                "a risk is accepted with a reason", detail=f'risk "{name}"',
                hint=f'write {{"{name}": "why this is acceptable here"}}: one line of at most'
                f" {_LONGEST:,} characters",
            )  # fmt: skip
    return dict(given)


ACCEPTED: Final = json_object(_read_accepted)
"""The type of a parameter that accepts risks, each with a reason."""


def accepted_risks(accepted: Mapping[str, str], taken: Sequence[str]) -> dict[str, str]:
    """Return the reasons for the risks that a publication takes.

    Raises
    ------
    RiskError
        For the first one that is not accepted.
    """
    for name in taken:
        if name not in accepted:
            raise RiskError(
                f"a known risk is not accepted: {name}",
                detail=RISKS[name],
                hint="to publish all the same, say why: accept =>"
                f""" '{{"{name}": "why this is acceptable"}}'""",
            )
    return {name: accepted[name] for name in taken}
