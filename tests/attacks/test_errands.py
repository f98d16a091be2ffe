"""Attacks on what the owner of publications is told: every value of another's is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kanon_db.catalog.errands import run_errand
from kanon_db.errors import DatabaseError
from kanon_db.session.psycopg_session import PsycopgSession
from tests.attacks.test_owner import (
    DENIED,
    ENTRY,
    errand,
    published,
    source_of,
    spied,
    staged,
    stranger,
)
from tests.integration.parties import Connection, Parties, create_table, fetch, sqlstate_of, value

__all__ = ["published", "spied", "stranger"]


@pytest.fixture
def own_source(published: Parties, stranger: Connection) -> dict[str, object]:
    """A source that the stranger may publish."""
    user = stranger.info.user
    fetch(published.admin, f"CREATE SCHEMA IF NOT EXISTS s_{user} AUTHORIZATION {user}")
    create_table(stranger, f"s_{user}.own", "q int, s text", [(1, "a")])
    relation = value(stranger, "SELECT $1::text::regclass::oid::text", f"s_{user}.own")
    errand(
        stranger, "register", relation=relation, quasi_identifiers=["q"], sensitive="s",
        identifiers=[], attributes={}, insensitive=[],
    )  # fmt: skip
    ((source_id, at),) = fetch(
        stranger, "SELECT source_id, registered_at::text FROM kanon.source"
        " WHERE schema_name = $1::text", f"s_{user}",
    )  # fmt: skip
    return {"source_id": source_id, "registered_at": at}


def kept(parties: Parties) -> list[object]:
    tables = ("publication", "release", "release_key", "release_entity", "source")
    return [
        fetch(parties.admin, f"SELECT to_jsonb(t)::text FROM kanon.{table} AS t ORDER BY 1")
        for table in tables
    ]


@pytest.mark.pitfall(34)
def test_34_a_release_is_not_taken_over(
    published: Parties, stranger: Connection, own_source: dict[str, object]
) -> None:
    """Only who published a publication refreshes it, and only under its name."""
    before = kept(published)
    for name in ("people", "rows"):
        theirs = value(
            published.admin,
            "SELECT publication_id FROM kanon.publication WHERE name = $1::text",
            name,
        )
        given = {**ENTRY, **own_source, "prefix": staged(stranger), "name": "evil"}
        call = lambda: errand(stranger, "publish", **{**given, "refreshes": theirs})
        assert sqlstate_of(call) == DENIED
    given = {**ENTRY, **own_source, "prefix": staged(stranger), "name": "evil", "suffixes": []}
    assert sqlstate_of(lambda: errand(stranger, "publish", **given)) == DENIED
    other = {**ENTRY, **source_of(published.publisher), "prefix": staged(stranger), "name": "evil"}
    assert sqlstate_of(lambda: errand(stranger, "publish", **other)) == DENIED
    assert kept(published) == before


@pytest.mark.pitfall(34)
@pytest.mark.parametrize("character", ["\x1b", "\n", "\x07", "\u202e", "\u2066", "\u200f"])
def test_34_a_name_hides_nothing(
    stranger: Connection, own_source: dict[str, object], character: str
) -> None:
    """Control characters, and those that turn text around, are in no name."""
    given = {**ENTRY, **own_source, "prefix": staged(stranger), "name": f"a{character}b"}
    assert sqlstate_of(lambda: errand(stranger, "publish", **given)) == "42602"


@pytest.mark.pitfall(35)
def test_35_a_view_does_not_lend_its_table(
    published: Parties, stranger: Connection, own_source: dict[str, object]
) -> None:
    """A view over a table that its maker may not read is not a source."""
    user = stranger.info.user
    fetch(published.admin, "GRANT USAGE ON SCHEMA data TO PUBLIC")
    fetch(stranger, f"CREATE VIEW s_{user}.over AS SELECT age AS q, 's' AS s FROM data.people")
    relation = value(stranger, "SELECT $1::text::regclass::oid::text", f"s_{user}.over")
    given = {
        "relation": relation, "quasi_identifiers": ["q"], "sensitive": "s", "identifiers": [],
        "attributes": {}, "insensitive": [],
    }  # fmt: skip
    assert sqlstate_of(lambda: errand(stranger, "register", **given)) == DENIED


@pytest.mark.pitfall(37)
def test_37_triggers_that_are_switched_off(
    published: Parties, connect_as: Callable[[str, str], Connection]
) -> None:
    """Without triggers, an errand is an error and not a success."""
    with published.admin.transaction(force_rollback=True):
        fetch(published.admin, "SET LOCAL session_replication_role = replica")
        with pytest.raises(DatabaseError, match="switched off"):
            run_errand(PsycopgSession(published.admin), "drop", name="people")
