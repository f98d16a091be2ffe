"""Writing a report as one HTML file that needs nothing else."""

from __future__ import annotations

import json
import math
from typing import Any, Final

import kanon_db
from kanon_db.errors import ServerError
from kanon_db.publications.results import Attack
from kanon_db.reporting.facts import Facts
from kanon_db.reporting.words import ALWAYS, ATTACKS, KINDS, NOT_COVERED, promise

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

        from kanon_db.reporting import plots
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
    group = "bucket" if facts.kind == "buckets" else "class"
    drawn = {
        "attacks": plots.attacks_plot(facts.attacks) if facts.attacks else "",
        "sizes": plots.sizes_plot(facts.sizes, group) if facts.sizes else "",
        "losses": plots.losses_plot(facts.losses) if any(facts.losses.values()) else "",
        "errors": plots.errors_plot(facts.errors) if facts.errors else "",
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
        attackers=ATTACKS,
        plots={name: Markup(svg) for name, svg in drawn.items()},  # noqa: S704  # our own
        parameters={name: _plain(value) for name, value in facts.parameters.items()},
        version=kanon_db.__version__,
    )


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _exceeds(line: Attack) -> bool:
    """Say whether an attack is right more often than its bound allows, beyond chance."""
    if line.rate is None or line.bound is None or not line.people:
        return False
    return line.rate > line.bound + 3 * math.sqrt(line.bound * (1 - line.bound) / line.people)


def _percent(share: float | None) -> str:
    """Round to what a reader needs; what is not zero is not shown as such."""
    if share is None:
        return "-"
    if 0 < share < 0.0001:
        return "< 0.01 %"
    if 0.9999 < share < 1:
        return "> 99.99 %"
    return f"{100 * share:.2f} %" if share < 0.1 else f"{100 * share:.1f} %"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
