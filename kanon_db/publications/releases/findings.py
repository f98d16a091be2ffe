"""What checks of several releases found, and in which words it is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kanon_db.publications.releases.ledger import Earlier


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes
    ----------
    check : str
    result : {"exact", "sound", "estimate", "not measured"}
        Exact and sound results hold in every world; sound ones may miss something.
    releases : str
        The names of those that were set against each other.
    people : int or None
        For how many people a value exceeds its bound, or fewer than k rows are possible.
    certain : int or None
        How many people's values, or rows, are certain.
    share, bound : float or None
        The share of a value that exceeds its bound most, or comes closest to it, and the bound.
    holds : bool
        Whether nobody's value exceeds its bound.
    """

    check: str
    result: str
    releases: str
    people: int | None
    certain: int | None
    share: float | None
    bound: float | None
    holds: bool


def not_measured(reasons: Mapping[str, Sequence[Earlier]]) -> list[Finding]:
    """Say of which releases nothing was measured, once for each reason."""
    return [
        Finding(
            f"not measured: {why}", "not measured", names_of(releases), None, None, None, None,
            holds=False,
        )
        for why, releases in reasons.items()
    ]  # fmt: skip


def names_of(releases: Sequence[Earlier]) -> str:
    """List the names of releases, each once."""
    return ", ".join(dict.fromkeys(one.name for one in releases))


_MOST_NAMED: Final = 5


def shortened(names: Sequence[str]) -> str:
    """List a few names, and how many more there are."""
    more = len(names) - _MOST_NAMED
    listed = ", ".join(names[:_MOST_NAMED])
    return listed if more <= 0 else f"{listed} and {more} more roles"


ROWS: Final = "rows that may be somebody's"
VALUES: Final = "values that may be somebody's"


def said(findings: Sequence[Finding]) -> str:
    """Say what does not hold, a sentence for each finding."""
    return " ".join(_sentence(finding) for finding in findings if not finding.holds) or (
        "No check found anybody above a bound, but not everything that readers could find out is"
        " measured."
    )


def _sentence(finding: Finding) -> str:
    if finding.people is None:
        return f"{finding.releases}: {finding.check}."
    if finding.check.startswith(ROWS):
        return (
            f"{finding.check}: fewer than k for {finding.people:,} people, a single one for"
            f" {finding.certain:,} ({finding.result})."
        )
    return (
        f"{finding.check}: {finding.people:,} people above their bound, {finding.certain:,} certain"
        f" ({finding.result})."
    )
