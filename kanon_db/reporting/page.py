"""Writes a report as one HTML file that needs nothing else.

Its sentences are for people who have not read the papers. Each is about a property that a test
holds the code to; docs/understand/privacy.md names the proofs and the tests.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

import kanon_db
from kanon_db.errors import ServerError
from kanon_db.publications.results import WAITING_NOT_COVERED as WAITING
from kanon_db.publications.results import Attack, is_attack
from kanon_db.reporting.facts import Facts

KINDS: Final[Mapping[str, str]] = {
    "buckets": "Two tables. One has a row for each person, with the quasi-identifiers as they are"
    " and the number of a bucket. The other says how often each sensitive value occurs in each"
    " bucket. Which person of a bucket has which value is in neither.",
    "generalized": "A table with a row for each person. Quasi-identifiers are ranges or sets of"
    " values; people with the same ranges and sets are a class.",
    "freeform": "A table with a row for each person, whose quasi-identifiers are ranges or sets of"
    " values. Each row has ranges and sets of its own, which fit several people.",
    "suppressed": "A table with a row for each person. Some cells of quasi-identifiers are empty;"
    " the others are as they were.",
    "model": "Small networks that were trained on the rows. Readers see neither rows nor networks:"
    " they ask about a row of their own, and are told a label, and the share of networks that"
    " agree.",
}
"""What is published."""

_ALIKE: Final = "at least {k} people have every combination of quasi-identifiers that rows show"
_LINKED: Final = (
    ". Whoever knows a person's quasi-identifiers can say of no row that it is this person's with"
    " a probability above 1 in {k}"
)


def promise(kind: str, method: str, k: int | None, *, has_entities: bool) -> str:
    """Say in plain words what a publication promises.

    Parameters
    ----------
    kind, method : str
    k : int or None
        None for buckets.
    has_entities : bool
        Whether several rows may be about one person: then they are no k rows.
    """
    if kind == "buckets":
        return (
            "Whoever knows a person's quasi-identifiers, and that the person is in the table, finds"
            " the bucket, but not the value: no value of a bucket is more frequent in it than the"
            " threshold of that value allows."
        )
    if kind == "model":
        return (
            "Nobody but the publisher sees rows. How much answers tell of the people in the source"
            " is bounded by a budget, or by nothing; which of the two it is follows."
        )
    if kind == "freeform":
        if method == "k_concealment":
            return f"Each row fits at least {k} people, who need not be equally likely."
        return f"Each row fits at least {k} people, and each person {k} rows{_LINKED.format(k=k)}."
    if k is None:
        return ""
    alike = _ALIKE.format(k=k).capitalize()
    return f"{alike}{'' if has_entities else _LINKED.format(k=k)}."


ALWAYS: Final = (
    "that a person is in the table at all: the publication does not hide it",
    (
        "what several publications of the same people tell together, beyond what the section on"
        " releases says"
    ),
    (
        "what somebody knows, or learns, about how other columns go together with the hidden value;"
        " the table of attacks says how much that is for the attackers it lists, and no more"
    ),
)
"""What no guarantee covers."""

_ROWS: Final = (
    (
        "columns that are published as they are, the sensitive one among them: whoever finds a"
        " person's row reads them there"
    ),
)
NOT_COVERED: Final[Mapping[str, tuple[str, ...]]] = {
    "buckets": (
        (
            "quasi-identifiers: they are published as they are, so whoever knows a person's finds"
            " their row, and learns the bucket"
        ),
        f"{WAITING}: whoever knows that can be surer of a value than its bound says",
        *ALWAYS,
    ),
    "generalized": (
        (
            "the sensitive value, unless the guarantee names a constraint on it: if all people of a"
            " class have the same value, it is certain for each of them"
        ),
        *_ROWS,
        *ALWAYS,
    ),
    "freeform": (
        "the sensitive value: if all rows that fit a person have the same value, it is certain",
        "rows of others: whoever knows which row is somebody's can be certain of another's",
        *_ROWS,
        *ALWAYS,
    ),
    "suppressed": (
        (
            "the sensitive value: if all rows that look like a person's have the same value, it is"
            " certain"
        ),
        *_ROWS,
        *ALWAYS,
    ),
    "model": (
        (
            "what the model learned of everybody: it also tells the label of people who were never"
            " in the source, as well as it can"
        ),
        (
            "readers of several roles, and several people of one role, who put their answers"
            " together: of several roles, budgets add up"
        ),
        "inputs that were made to be answered wrongly: noise and votes make them rarer, no more",
        *ALWAYS[1:],
    ),
}
"""What the guarantee of each kind does not cover."""

ATTACKS: Final[Mapping[str, str]] = {
    "most frequent value": "guesses the most frequent value among those a person may have",
    "unusual people: most frequent value": "the same, only for people who are easy to find",
    "minimality": "knows that buckets may be closed as soon as they are allowed to be",
    "deFinetti": "learns from the publication which values go with which people",
    "surer than the bound: deFinetti": "the same, only for people of whom it is surer than allowed",
    "correlations of the source": "knows that already, from other people's true values",
    "homogeneity": "waits for people whose value is certain",
    "knows the value": "and guesses another sensitive value of the same person",
    "linking a row": "says which row is a person's",
    "unusual people: linking a row": "the same, only for people who are easy to find",
    "asking for a value": "asks the model for the label of people in the source",
    "membership: votes": "knows a person, and tells from the votes whether the person was in it",
    "membership: a member that was taken": "the same, from one of the networks itself",
    "downcoding": "guesses what a range or a set stands for",
}
"""What each attacker does; docs/understand/attacks.md has the details."""


_TEMPLATE: Final = "report.html"


def write_page(facts: Facts) -> str:
    """Write a report.

    Returns
    -------
    str
        HTML, with plots and style inside. Names, roles and reasons in it are escaped.

    Raises
    ------
    ServerError
        When the extra ``report`` is not installed.
    """
    try:
        import jinja2
        from markupsafe import Markup

        from kanon_db.reporting import _plots
    except ImportError:
        raise ServerError(
            "a report needs packages that are not installed here",
            detail="jinja2 and matplotlib",
            hint="pip install 'kanon_db[report]'",
        ) from None
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kanon_db.reporting", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": _percent, "number": _number, "exceeds": _exceeds}
    environment.filters["attacker"] = _attacker
    group = "bucket" if facts.kind == "buckets" else "class"
    drawn = {
        "attacks": _plots.attacks_plot(facts.attacks) if facts.attacks else "",
        "sizes": _plots.sizes_plot(facts.sizes, group) if facts.sizes else "",
        "losses": _plots.losses_plot(facts.losses) if any(facts.losses.values()) else "",
        "errors": _plots.errors_plot(facts.errors) if facts.errors else "",
    }
    return environment.get_template(_TEMPLATE).render(
        facts=facts,
        who="rows" if facts.has_entities else "people",
        group=group,
        groups="buckets" if group == "bucket" else "classes",
        what=KINDS.get(facts.kind, ""),
        promise=promise(
            facts.kind, facts.method, facts.parameters.get("k"), has_entities=facts.has_entities
        ),
        not_covered=NOT_COVERED.get(facts.kind, ALWAYS),
        which=f" of {facts.sensitive}" if facts.others else "",
        plots={name: Markup(svg) for name, svg in drawn.items()},  # noqa: S704  # our own
        parameters={name: _plain(value) for name, value in facts.parameters.items()},
        version=kanon_db.__version__,
    )


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _attacker(line: Attack) -> str:
    """Say what an attacker does, whichever sensitive attribute it is about."""
    return next((what for name, what in ATTACKS.items() if is_attack(line.attack, name)), "")


def _exceeds(line: Attack) -> bool:
    """Say whether an attack is right more often than its bound allows, beyond chance."""
    if line.rate is None or line.bound is None or not line.people:
        return False
    return line.rate > line.bound + 3 * math.sqrt(line.bound * (1 - line.bound) / line.people)


def _percent(share: float | None) -> str:
    """Round to what a reader needs; only zero is shown as zero."""
    if share is None:
        return "-"
    if 0 < share < 0.0001:
        return "< 0.01 %"
    if 0.9999 < share < 1:
        return "> 99.99 %"
    return f"{100 * share:.2f} %" if share < 0.1 else f"{100 * share:.1f} %"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
