"""A rewritten statement gives what the paper's estimator gives."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.integration.parties import Parties
from tests.meaning.questions import FROM, Questions
from tests.meaning.tables import TABLES, ways_of
from tests.profiles import examples, long_but
from tests.rewritten import compared

N_QUESTIONS = examples(20)
FAST = {(way, table) for table in TABLES for way in ("cells", "mondrian", "freeform", "suppressed")}
"""Buckets, ranges, values and stars; other ways of the same kinds write the same statements."""


@pytest.mark.parametrize(
    ("way", "table"), long_but(FAST, [(way, table) for table in TABLES for way in ways_of(table)])
)
def test_a_rewritten_statement_gives_the_estimate(parties: Parties, way: str, table: str) -> None:
    questions = Questions(parties.publisher, *TABLES[table], seed=15)
    outcomes: Counter[str] = Counter()
    faults = []
    for _ in range(N_QUESTIONS):
        query = questions.question().replace(FROM, f"{way}_{table}")
        outcome = compared(parties.analyst, query, seconds=1)
        if outcome in ("equal", "refused", "no statement", "too long"):
            outcomes[outcome] += 1
        else:
            faults.append(outcome)
    print(way, table, dict(outcomes))  # shown with -rP
    assert not faults, "\n".join([f"{len(faults)} beside {outcomes}", *faults])
