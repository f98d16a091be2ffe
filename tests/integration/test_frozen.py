"""What is frozen is as it was for each module, or made anew."""

from __future__ import annotations

import pytest

from tests.integration.frozen import parties
from tests.integration.parties import Functions, Parties, clear, create_people, fetch, state_of

__all__ = ["parties"]

CHANGES = (
    "UPDATE frozen.people SET age = age WHERE age = 1",
    "DELETE FROM frozen.drawn WHERE age = 20",
    "UPDATE published.drawn_est SET parts = parts",
    "REFRESH MATERIALIZED VIEW published.classes",
    "REVOKE SELECT ON published.people FROM kanon_analyst",
    "UPDATE kanon.publication SET layout = '{}' WHERE name = 'graph'",
    "DELETE FROM kanon.source WHERE relation_name = 'skewed'",
    "DROP TABLE frozen.people CASCADE",
)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed(parties: Parties, change: str) -> None:
    before = state_of(parties)
    with parties.admin.transaction(force_rollback=True):
        fetch(parties.admin, change)
        assert state_of(parties) != before
    assert state_of(parties) == before


def test_what_a_module_makes_beside_it_goes(parties: Parties) -> None:
    frozen = Functions(parties.publisher).publications()
    clear(parties, frozen)
    before = state_of(parties)
    fetch(parties.publisher, "CREATE SCHEMA data")
    create_people(parties.publisher).publish("data.people", "beside", privacy='{"l": 3}')
    Functions(parties.publisher).publish("frozen.people", "again", privacy='{"l": 4}')
    fetch(parties.admin, "CREATE SEQUENCE public.beside")
    clear(parties, frozen)
    assert Functions(parties.publisher).publications() == frozen
    assert state_of(parties) == before
    assert fetch(parties.analyst, "SELECT count(*) FROM published.people_qit") == [(300,)]
