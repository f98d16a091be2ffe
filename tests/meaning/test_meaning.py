"""Certain bounds contain the truth, whatever is asked."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.integration.parties import Functions, Parties, fetch, sqlstate_of
from tests.meaning.questions import FROM, Questions
from tests.meaning.tables import (
    SCHEMA,
    TABLES,
    WITHOUT_SOME_VALUES,
    ways_of,
)
from tests.meaning.verdict import ask
from tests.profiles import examples

N_QUESTIONS = examples(40)


@pytest.mark.parametrize(
    ("way", "table"), [(way, table) for table in TABLES for way in ways_of(table)]
)
def test_certain_means_certain(parties: Parties, way: str, table: str) -> None:
    questions = Questions(parties.publisher, *TABLES[table], seed=15)
    outcomes: Counter[str] = Counter()
    faults = []
    for _ in range(N_QUESTIONS):
        found = ask(
            parties.analyst, parties.admin, f"{way}_{table}", f"{SCHEMA}.{table}",
            questions.question(), lists_all=way not in WITHOUT_SOME_VALUES,
        )  # fmt: skip
        outcomes[found.outcome] += 1
        faults += [f"{found.question}: {fault}" for fault in found.faults]
    assert not faults, "\n".join([f"{len(faults)} of {outcomes}", *faults[:20]])
    assert outcomes["answered"] > N_QUESTIONS / 6, outcomes  # some columns are all suppressed


ONCE_WRONG = (
    "SELECT grade, AVG(hours) FROM {publication} WHERE hours IS NOT NULL OR hours > 9 GROUP BY 1",
    "SELECT age, MIN(age) FROM {publication} WHERE sick > '' GROUP BY age",
    "SELECT grade, MIN(hours) FROM {publication} WHERE age < hours AND sick < region GROUP BY 1",
    "SELECT COUNT(*) FROM {publication} WHERE born <> TIMESTAMP '1988-07-28 06:30' AND age < hours",
)
"""Questions that failed, or took very long."""


@pytest.mark.parametrize("way", ways_of("mixed"))
@pytest.mark.parametrize("question", ONCE_WRONG)
def test_what_was_wrong(parties: Parties, way: str, question: str) -> None:
    found = ask(
        parties.analyst, parties.admin, f"{way}_mixed", f"{SCHEMA}.mixed", question,
        lists_all=way not in WITHOUT_SOME_VALUES,
    )  # fmt: skip
    assert found.faults == []


@pytest.mark.parametrize("way", ways_of("mixed"))
def test_deviations(parties: Parties, way: str) -> None:
    found = ask(
        parties.analyst, parties.admin, f"{way}_mixed", f"{SCHEMA}.mixed",
        "SELECT grade, stddev(hours), var_pop(wage), stddev_samp(age) FILTER (WHERE sick > 'c')"
        " FROM {publication} GROUP BY grade",
        lists_all=way not in WITHOUT_SOME_VALUES,
    )  # fmt: skip
    assert found.faults == []
    assert found.outcome != "refused"
    publication = f"{way}_mixed"

    def estimates(query: str) -> list[float | None]:
        found = fetch(parties.analyst, "SELECT estimate FROM kanon.estimate($1::text)", query)
        return [estimate for (estimate,) in found]

    listed = f"SELECT grade, stddev(hours) FROM {publication} GROUP BY grade"
    groups = estimates(listed)
    chosen = estimates(f"{listed} HAVING stddev(hours) >= 0 ORDER BY stddev(hours) DESC")
    assert chosen == sorted(filter(lambda one: one is not None, groups), reverse=True)
    assert sqlstate_of(lambda: Functions(parties.analyst).rewrite(listed)) == "0A000"
    distinct = f"SELECT variance(DISTINCT hours) FROM {publication}"
    assert sqlstate_of(lambda: estimates(distinct)) == "0A000"


EXACTLY_WRONG = (
    (
        "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY wage) FROM {publication}"
        " WHERE NOT ((wage IS NOT NULL AND zip NOT BETWEEN '013' AND '0034') AND level > '0.0')"
    ),
    (
        "SELECT percentile_disc(0.1) WITHIN GROUP (ORDER BY level) FROM {publication} WHERE NOT"
        " (CASE WHEN score > 0 THEN 1 ELSE 0 END = 1 AND level IS NOT NULL)"
    ),
    (
        "SELECT wage, zip, (SUM(level) - 1.5) / COUNT(*) FROM {publication}"
        " WHERE NOT ((code < 'c4') IS UNKNOWN AND level IS NOT NULL) GROUP BY wage, zip"
    ),
    (
        "SELECT AVG(CAST(level AS numeric)) FROM {publication} WHERE NOT (((score = 1) IS TRUE"
        " AND big IS NOT DISTINCT FROM 3000000037) AND (level IS NOT NULL"
        " AND (big > '3000000016')::int = 1) AND wage IN (4888.84, 1402, 2238.90))"
    ),
)
"""Questions that sum and compare a column of which cells are suppressed; they failed."""


@pytest.mark.parametrize("way", ["suppressed", "joined"])
@pytest.mark.parametrize("question", EXACTLY_WRONG)
def test_sums_of_what_is_compared(parties: Parties, way: str, question: str) -> None:
    found = ask(
        parties.analyst, parties.admin, f"{way}_exact", f"{SCHEMA}.exact", question,
        lists_all=False,
    )  # fmt: skip
    assert found.faults == []


@pytest.mark.parametrize("way", ["mondrian", "classes", "freeform"])
@pytest.mark.parametrize(
    "condition", ["NOT height < {}", "height < {}", "height > {}", "height = {}::real"]
)
def test_ends_of_ranges_of_reals(parties: Parties, way: str, condition: str) -> None:
    """171.9 is greater than the number of single precision that is written so."""
    ends = fetch(
        parties.admin,
        f"SELECT DISTINCT e FROM published.{way}_exact, unnest(ARRAY[lower(height), upper(height)])"
        " AS e WHERE e::real::float8 <> e::float8 ORDER BY e LIMIT 12",
    )
    assert len(ends) == 12
    for (end,) in ends:
        asked = f"SELECT cost, COUNT(*) FROM {FROM} WHERE {condition.format(end)} GROUP BY cost"
        found = ask(
            parties.analyst, parties.admin, f"{way}_exact", f"{SCHEMA}.exact", asked,
            lists_all=way not in WITHOUT_SOME_VALUES,
        )  # fmt: skip
        assert found.faults == []
