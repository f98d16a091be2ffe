"""Random tables, publications and questions: nothing crashes, and what is certain is certain."""

from __future__ import annotations

import pytest

from tests.fuzz.runs import Findings, run_scenario, smallest
from tests.fuzz.scenarios import draw_scenario
from tests.integration.parties import Parties, parties
from tests.meaning.tables import make_schemas
from tests.profiles import examples

__all__ = ["parties"]

SCENARIOS = examples(12) // 4
"""Two in the short run, thirty in the long one."""
FIRST_SEED = 7


@pytest.fixture(scope="module", autouse=True)
def schemas(parties: Parties) -> None:
    make_schemas(parties.publisher)


def test_questions_of_every_type(parties: Parties) -> None:
    """The command ``python -m tests.fuzz`` asks as many as it is told to."""
    findings = Findings()
    for seed in range(FIRST_SEED, FIRST_SEED + SCENARIOS):
        run_scenario(parties.publisher, parties.analyst, parties.admin, seed, findings)
    assert findings.faults == [], "\n\n".join(findings.faults[:3])
    assert findings.outcomes["answered"] > findings.n_questions / 2 > 0


def test_a_seed_gives_the_same_scenario_and_a_fault_becomes_small() -> None:
    assert draw_scenario(5) == draw_scenario(5) != draw_scenario(6)
    asked = "SELECT a, COUNT(*) FROM {publication} WHERE (a > 1 AND b = 2) OR NOT c < 3 GROUP BY a"
    small = smallest(asked, lambda question: "b = 2" in question)
    assert small == "SELECT a, COUNT(*) FROM {publication} WHERE b = 2 GROUP BY a"
