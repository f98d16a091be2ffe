"""What a dry run measures: a publication that was written and verified, before it is undone.

Answers to counts and attacks are those of `evaluate_counts` and `attack`, on the staged relations.
Everything runs with the rights of the publishing role, which reads the source in order to publish.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from kanon_db.errors import InfeasibleError, RiskError
from kanon_db.publications.kind import Kind, Target
from kanon_db.publications.releases.combining import RISK as COMBINED
from kanon_db.publications.risks import RISKS
from kanon_db.publications.usefulness import Workload

WORKLOAD: Final = Workload(1000, seed=1)
"""The questions that every dry run asks: the same ones for the same source."""


def measure_staged(
    kind: Kind, target: Target, accepted: Mapping[str, str], refusal: RiskError | None
) -> dict[str, Any]:
    """Measure a staged publication as its publisher could measure it afterwards.

    Parameters
    ----------
    kind : Kind
    target : Target
        The publication, under the name of its staged relations.
    accepted : mapping of str to str
        The known risks that it takes, with the reasons.
    refusal : RiskError or None
        Why publishing it to these readers would be refused.

    Returns
    -------
    dict
        Plain JSON: ``counts`` (rows of `evaluate_counts`, for buckets), ``attacks`` (rows of
        `attack`), ``risks``, and in ``not_measured`` the reasons for what is missing.
    """
    not_measured: dict[str, str] = {}

    def measured(name: str, rows: Callable[[], Sequence[Any]]) -> list[dict[str, Any]] | None:
        try:
            with target.session.savepoint():
                return [_plain(asdict(row)) for row in rows()]
        except InfeasibleError as error:
            # Reading may need more memory than publishing does, which is no reason to refuse.
            not_measured[name] = f"{error.message}: {error.detail}"
            target.session.warn(f"{name} were not measured: {error.message}")
            return None

    return {
        "counts": measured("counts", lambda: kind.evaluate(target, WORKLOAD)),
        "attacks": measured("attacks", lambda: kind.attack(target)),
        "risks": _risks(accepted, refusal),
        "not_measured": not_measured,
    }


def _risks(accepted: Mapping[str, str], refusal: RiskError | None) -> list[dict[str, Any]]:
    found = [
        {"risk": risk, "is_refused": False, "meaning": RISKS[risk], "accepted": reason}
        for risk, reason in accepted.items()
    ]
    if refusal is not None:
        found.append(
            {"risk": COMBINED, "is_refused": True, "meaning": refusal.detail, "accepted": None}
        )
    return found


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN: an average of nothing is missing."""
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in row.items()
    }
