"""Which publications are worth trying for a purpose and a protection; knows no database.

The list is short: of each kind, the settings that were the best somewhere in the benchmarks
(docs/benchmarks.md). None of them takes a risk that would have to be accepted by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from kanon_db.advice.protections import Protection
from kanon_db.publications.waiting import CLAUSE

Protects = Literal["value", "row and value", "row"]
"""What is bounded: what is inferred about somebody, whose row it is, or both."""

ORDER: Final[Mapping[str, Sequence[Protects]]] = {
    "counts": ("value", "row and value", "row"),
    "rows": ("row and value", "row"),
    "both": ("row and value", "row", "value"),
}
"""For each purpose, what comes first: that which bounds what is inferred, where it serves."""

SEARCH_SECONDS: Final = 3
"""A search that goes on until its time is over gets so long in a trial."""


@dataclass(frozen=True)
class Microdata:
    """What candidates depend on.

    Attributes
    ----------
    sensitive : str or None
        The column to protect.
    counts : sequence of int
        How often each of its values occurs.
    has_entities : bool
        Whether several records can be about the same person.
    """

    sensitive: str | None
    counts: Sequence[int] = ()
    has_entities: bool = False


@dataclass(frozen=True)
class Candidate:
    """A publication that may be tried.

    Attributes
    ----------
    kind : str
    title : str
        What it is, in a few words.
    protects : {"value", "row and value", "row"}
    guarantee : str
        In one plain sentence.
    given : dict
        The parameters to publish with.
    trial : dict
        Those that differ in a trial.
    suffix : str
        For the name of the publication.
    is_drawn : bool
        Whether it is drawn at random, and quickly, so that it is worth drawing several times.
    """

    kind: str
    title: str
    protects: Protects
    guarantee: str
    given: Mapping[str, Any]
    suffix: str
    trial: Mapping[str, Any] = field(default_factory=dict)
    is_drawn: bool = False


def candidates_for(purpose: str, protection: Protection, data: Microdata) -> list[Candidate]:
    """List the candidates, the most promising ones first.

    Parameters
    ----------
    purpose : {"counts", "rows", "both"}
    protection : Protection
    data : Microdata
    """
    buckets, with_values, alone = [], [], []
    if data.sensitive is not None:
        with_values = [_with_values(protection, data)]
        if not data.has_entities:
            buckets = _buckets(protection, data)
    alone = _rows(protection, data)
    if purpose == "counts":
        return [*buckets, *with_values] if buckets else [*with_values, *alone]
    if purpose == "both":
        return [*with_values, *alone, *buckets[:1]]
    return [*with_values, *alone]


def _buckets(protection: Protection, data: Microdata) -> list[Candidate]:
    privacy = protection.privacy(data.counts)
    guarantee = (
        f"{_inferred(protection, privacy, data)}; the other columns are published as they are,"
        " so that people with unusual ones can be found"
    )
    return [
        Candidate(
            "buckets", title, "value", guarantee, {"privacy": privacy, **given}, "b", is_drawn=True
        )
        for title, given in (
            ("buckets of several sizes, of similar people", {"method": "multi_size"}),
            (
                "buckets of several sizes, of people from the whole table",
                {"method": "multi_size", "assignment": "random"},
            ),
            ("buckets of one or two sizes, of similar people", {}),
        )
    ]


def _with_values(protection: Protection, data: Microdata) -> Candidate:
    privacy = (protection.flat_privacy if data.has_entities else protection.privacy)(data.counts)
    return Candidate(
        "generalized",
        "rows with ranges and sets, groups with different values",
        "row and value",
        f"for readers who do not know how the groups were formed: {_linked(protection, data)}, and"
        f" {_inferred(protection, privacy, data)}",
        {"k": protection.k, "constraints": privacy},
        "k",
        {"options": {"time_limit": SEARCH_SECONDS}},
    )


def _rows(protection: Protection, data: Microdata) -> list[Candidate]:
    guarantee = f"{_linked(protection, data)}, also for readers who know everybody's"
    guarantee += " quasi-identifiers and the method"
    if data.sensitive is not None:
        guarantee += f"; what is inferred about {data.sensitive} has no bound"
    k = {"k": protection.k}
    found = [
        Candidate(
            "generalized", "rows with ranges and sets that groups share", "row", guarantee, k, "k",
            {"options": {"time_limit": SEARCH_SECONDS}},
        ),
        Candidate("suppressed", "rows with hidden cells", "row", guarantee, k, "p"),
    ]  # fmt: skip
    if not data.has_entities:
        # The search of all pairs takes longest, so it comes last.
        found.append(
            Candidate(
                "freeform", "rows with ranges and sets of their own", "row", guarantee, k, "f",
                {"options": {"refine": False}},
            )
        )  # fmt: skip
    return found


def _linked(protection: Protection, data: Microdata) -> str:
    if data.has_entities:
        return f"every group of rows that look alike is of at least {protection.k} people"
    return f"a published row is a given person's with a probability of at most 1/{protection.k}"


def _inferred(protection: Protection, privacy: Mapping[str, Any], data: Microdata) -> str:
    """Say what a privacy specification bounds."""
    most = privacy.get("cap", privacy.get("default"))
    text = most if isinstance(most, str) else f"{100 * most:g}%"
    said = f"nobody's {data.sensitive} is inferred with a probability above {text}"
    if protection.cap_for(data.counts) > protection.cap:
        said += (
            f" (not less, since {max(data.counts) / sum(data.counts):.0%} of the records have the"
            " same value)"
        )
    if "theta" in privacy:
        said += (
            f", nor above {privacy['theta']} times the value's share of the table plus"
            f" {privacy['base']:.0%}"
        )
    return f"{said}; what correlations with other columns tell is not covered{CLAUSE}"
