"""Attacks on what was left out: nothing that a reader is told depends on its values.

Two tables are the same but for the income of one person, who is left out of both publications.
Whatever readers may read or call, they are told the same about both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.parties import Connection, Functions, Parties, create_source, fetch, value

pytestmark = pytest.mark.usefixtures("nothing_left")

HIDDEN = {"one": 987654321, "other": 923456789}
PEOPLE = [(1000 + i % 5, f"town {i % 3}", f"disease {i % 4}") for i in range(60)]
CLASSES = {"k": 4, "method": "mondrian", "refine": False, "max_suppressed": "0.02"}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "suppressed": ("publish_suppressed", {"k": 4}),
    "generalized": ("publish_generalized", CLASSES),
    "constraints": ("publish_generalized", {**CLASSES, "constraints": '{"l": 2}'}),
}
"""Methods that do the same each time, so that two publications can be compared."""


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    for name, income in HIDDEN.items():
        rows = [*PEOPLE, (income, "nowhere", "disease 1")]
        create_source(parties.publisher, f"data.{name}", "income int, town text, sick text", rows)


QUERIES = (
    "SELECT COUNT(*) FROM p WHERE income > 500000000",
    "SELECT COUNT(*) FROM p WHERE income > 950000000",
    "SELECT COUNT(*) FROM p WHERE town = 'nowhere'",
    "SELECT SUM(income), AVG(income), COUNT(*) FROM p",
)
TOLD: dict[str, Callable[[Connection], object]] = {
    "entry": lambda c: value(
        c,
        "SELECT to_jsonb(p) - 'publication_id' - 'published_at' - 'source'"
        " - 'seconds' FROM kanon.publications AS p",
    ),
    "metrics": lambda c: Functions(c).metrics("p"),
    "verify": lambda c: Functions(c).verify("p"),
    "rows": lambda c: sorted(map(str, fetch(c, "SELECT to_jsonb(p) FROM published.p AS p"))),
    "answers": lambda c: [
        fetch(c, "SELECT * FROM kanon.estimate($1::text)", query) for query in QUERIES
    ],
    "explanations": lambda c: [
        fetch(c, "SELECT part, description FROM kanon.explain_count($1::text)", query)
        for query in QUERIES[:3]
    ],
    "statistics": lambda c: fetch(
        c,
        "SELECT tablename, attname, n_distinct, null_frac, most_common_vals::text FROM pg_stats"
        " WHERE schemaname = 'published' ORDER BY 1, 2",
    ),
}


@pytest.mark.pitfall(22)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_told_depends_on_who_is_left_out(parties: Parties, kind: str) -> None:
    """The catalog, metrics, checks, rows, answers, explanations and statistics are the same."""
    function, given = KINDS[kind]
    told: dict[str, dict[str, object]] = {}
    publishers: dict[str, dict[str, float]] = {}
    for name in HIDDEN:
        kanon = Functions(parties.publisher)
        kanon.call(function, f"data.{name}", "p", **given)
        left = value(parties.analyst, "SELECT count(*) FROM published.p")
        assert left == len(PEOPLE)  # the one is left out, and nobody else
        told[name] = {what: tell(parties.analyst) for what, tell in TOLD.items()}
        publishers[name] = kanon.metrics("p")
        kanon.drop("p")
    for what in TOLD:
        assert told["one"][what] == told["other"][what], what
    assert str(HIDDEN["one"])[:6] not in str(told)
    if kind != "suppressed":
        assert publishers["one"] != publishers["other"]  # what would have told it
