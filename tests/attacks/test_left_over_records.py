"""Left-over records of greedy suppression: who they are follows from the quasi-identifiers alone.

Someone who knows everybody's quasi-identifiers runs the same algorithm, and so knows whose rows the
fully suppressed ones are; what else these rows show is theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kanon_db.algorithms.suppression import all_patterns, greedy
from kanon_db.errors import RiskError
from tests.integration.parties import (
    Connection,
    Functions,
    Package,
    Parties,
    create_source,
    fetch,
    sqlstate_of,
    value,
)

pytestmark = pytest.mark.usefixtures("nothing_left")

PEOPLE = [(20 + i % 3, "mf"[i % 2], f"d{i % 4}") for i in range(60)]
PEOPLE += [(97, "f", "rare"), (98, "m", "seldom")]
REASON = "both have agreed"


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    create_source(parties.publisher, "data.people", "age int, sex text, sick text", PEOPLE)


def found_by_algorithm(parties: Parties, name: str, k: int) -> dict[int, set[str]]:
    """Run the known algorithm on the known quasi-identifiers; the values of whom it leaves over.

    Returns
    -------
    dict of int to set of str
        By the number of the person, the sensitive values that rows like theirs show.
    """
    columns = [list(dict.fromkeys(column)) for column in zip(*PEOPLE, strict=True)][:2]
    codes = np.array(
        [[c.index(v) for c, v in zip(columns, row[:2], strict=True)] for row in PEOPLE]
    )
    left = np.flatnonzero(greedy(codes, all_patterns(2), k).pattern_of_record == -1).tolist()
    assert left == [60, 61]
    rows = fetch(parties.analyst, f"SELECT sick FROM published.{name} WHERE pattern = '**'")
    return {person: {sick for (sick,) in rows} for person in left}


def suppress(parties: Parties, **given: Any) -> dict[str, Any]:
    return Functions(parties.publisher).suppress("data.people", "p", k=3, **given)


@pytest.mark.pitfall(28)
def test_values_of_left_over_records_are_not_published(parties: Parties) -> None:
    """Someone who repeats the algorithm knows who they are, and finds none of their values."""
    guarantee = suppress(parties)["guarantee"]
    assert found_by_algorithm(parties, "p", 3) == {60: set(), 61: set()}
    assert not fetch(parties.analyst, "SELECT FROM published.p WHERE sick IN ('rare', 'seldom')")
    assert guarantee.endswith("2 left-over records are left out")
    checks = Functions(parties.analyst).verify("p")
    (line,) = [line for line in checks if "published once" in line[0]]
    assert (line[1], line[2]) == ("62 records, 2 left out", "60 published")


@pytest.mark.pitfall(28)
def test_left_over_records_that_join_are_k_alike(parties: Parties) -> None:
    """With `join`, every row looks like at least k, and everybody is published."""
    suppress(parties, options='{"left_over": "join"}')
    sizes = fetch(parties.analyst, "SELECT count(*) FROM published.p GROUP BY age, sex, pattern")
    assert min(size for (size,) in sizes) >= 3
    assert sum(size for (size,) in sizes) == len(PEOPLE)


@pytest.mark.pitfall(28)
def test_left_over_records_are_a_risk_that_must_be_accepted(parties: Parties) -> None:
    """With `publish`, they are refused until the risk is accepted by name, and named then.

    Whether or not any are left: else a refusal, or its absence, would depend on the data.
    """
    options = '{"left_over": "publish"}'
    for given in ({}, {"patterns": ["**"]}):
        publish = lambda: suppress(parties, options=options, **given)
        assert sqlstate_of(publish) == RiskError.sqlstate
    with pytest.raises(RiskError, match="left_over_records") as refused:
        Package(parties.publisher).kanon.publish_suppressed(
            "data.people", "p", k=3, options={"left_over": "publish"}
        )
    assert "finds out whose they are" in refused.value.detail
    accept = f'{{"left_over_records": "{REASON}"}}'
    guarantee = suppress(parties, options=options, accept=accept)["guarantee"]
    assert "2 left-over records are suppressed fully" in guarantee
    assert set().union(*found_by_algorithm(parties, "p", 3).values()) == {"rare", "seldom"}
    analyst = Functions(parties.analyst)
    (line,) = [line for line in analyst.verify("p") if "accepted risk" in line[0]]
    assert REASON in line[2]


@pytest.mark.pitfall(22)
def test_readers_do_not_see_metrics_of_records_that_are_left_out(parties: Parties) -> None:
    """A loss that includes them is shown to the publisher only."""
    metrics = suppress(parties)["metrics"]
    seen = Functions(parties.analyst).metrics("p")
    assert metrics.keys() - seen.keys() == {"usefulness_loss"}
    listed = value(parties.analyst, "SELECT metrics FROM kanon.publications")
    assert listed.keys() == seen.keys()
    assert (seen["records"], seen["suppressed_records"]) == (60, 2)


HIDDEN = {"one": 987654321, "other": 923456789}
OTHERS = [(1000 + i % 5, f"town {i % 3}", f"disease {i % 4}") for i in range(60)]
CLASSES = {"k": 4, "method": "mondrian", "refine": False, "max_suppressed": "0.02"}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "suppressed": ("publish_suppressed", {"k": 4}),
    "generalized": ("publish_generalized", CLASSES),
    "constraints": ("publish_generalized", {**CLASSES, "constraints": '{"l": 2}'}),
}
"""Methods that do the same each time, so that two publications can be compared."""

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


@pytest.mark.long
@pytest.mark.pitfall(22)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_told_depends_on_who_is_left_out(parties: Parties, kind: str) -> None:
    """The catalog, metrics, checks, rows, answers, explanations and statistics are the same.

    Two tables are the same but for the income of one person, who is left out of both publications.
    """
    function, given = KINDS[kind]
    told: dict[str, dict[str, object]] = {}
    publishers: dict[str, dict[str, float]] = {}
    for name, income in HIDDEN.items():
        rows = [*OTHERS, (income, "nowhere", "disease 1")]
        source = f"data.{name}_{kind}"
        columns = "income int, town text, sick text"
        kanon = create_source(parties.publisher, source, columns, rows)
        kanon.call(function, source, "p", **given)
        left = value(parties.analyst, "SELECT count(*) FROM published.p")
        assert left == len(OTHERS)  # the one is left out, and nobody else
        told[name] = {what: tell(parties.analyst) for what, tell in TOLD.items()}
        publishers[name] = kanon.metrics("p")
        kanon.drop("p")
    for what in TOLD:
        assert told["one"][what] == told["other"][what], what
    assert str(HIDDEN["one"])[:6] not in str(told)
    if kind != "suppressed":
        assert publishers["one"] != publishers["other"]  # what would have told it
