"""A source changes while it is published: its publications go on, and show nothing new."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from kanon_db.errors import InUseError
from tests.acceptance.commands import kanon as command
from tests.integration.parties import Functions, Parties, fetch, sqlstate_of, value

pytestmark = pytest.mark.usefixtures("nothing_left")

ROLES: dict[str, Any] = {"entity": "id", "identifiers": ["ssn"]}


@pytest.fixture
def published(parties: Parties) -> Functions:
    """A source of 60 people, published in one batch."""
    fetch(parties.admin, "DELETE FROM kanon.source")
    fetch(parties.publisher, "CREATE SCHEMA IF NOT EXISTS other")
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.moving, data.moved, other.moving")
    fetch(
        parties.publisher,
        "CREATE TABLE data.moving AS SELECT i AS id, 's' || i AS ssn, 20 + i % 9 AS age, 'p' || i"
        " AS note, 'd' || i % 4 AS ill FROM generate_series(1, 60) AS i",
    )
    functions = Functions(parties.publisher)
    functions.register("data.moving", ["age"], "ill", **ROLES)
    functions.call("publish_buckets", "data.moving", "moving_b", privacy='{"l": 2}')
    return functions


def more(parties: Parties, table: str, columns: str = "id, age, ill") -> None:
    """Let twenty more people come."""
    fetch(
        parties.publisher,
        f"INSERT INTO {table} ({columns}) SELECT 100 + i, 20 + i % 9, 'd' || i % 4"
        " FROM generate_series(1, 20) AS i",
    )


def release_of(parties: Parties) -> Any:
    return value(parties.admin, "SELECT release_id FROM kanon.release WHERE ended IS NULL")


CHANGES = {
    "a column without a role is dropped": ("ALTER TABLE data.moving DROP COLUMN note", ["ssn"]),
    "a column without a role is renamed": (
        "ALTER TABLE data.moving RENAME COLUMN note TO remark", ["ssn"],
    ),
    "an identifier is dropped": ("ALTER TABLE data.moving DROP COLUMN ssn", []),
    "an identifier is renamed": ("ALTER TABLE data.moving RENAME COLUMN ssn TO tin", ["tin"]),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.pitfall(74)
@pytest.mark.parametrize("change", CHANGES)
def test_less_is_collected_and_batches_go_on(
    parties: Parties, published: Functions, change: str
) -> None:
    statement, identifiers = CHANGES[change]
    before = release_of(parties)
    fetch(parties.publisher, statement)
    published.register("data.moving", ["age"], "ill", entity="id", identifiers=identifiers)
    more(parties, "data.moving")
    assert published.call("refresh", "moving_b")["added"] == 20
    assert release_of(parties) == before
    assert value(parties.publisher, "SELECT count(*) FROM published.moving_b_qit") == 80


SNEAKING = {
    "an identifier takes a role's name": (
        """ALTER TABLE data.moving RENAME COLUMN age TO years;
        ALTER TABLE data.moving RENAME COLUMN note TO old_note;
        ALTER TABLE data.moving RENAME COLUMN ssn TO age""", ["age"], {"entity": "id"},
    ),
    "a note takes the sensitive column's name": (
        """ALTER TABLE data.moving RENAME COLUMN ill TO disease;
        ALTER TABLE data.moving RENAME COLUMN note TO ill""", ["age"], ROLES,
    ),
    "a column is made again": (
        "ALTER TABLE data.moving DROP COLUMN age; ALTER TABLE data.moving ADD age int",
        ["age"], ROLES,
    ),
    "a new column gets a role": (
        "ALTER TABLE data.moving ADD COLUMN zip text; UPDATE data.moving SET zip = 'z'",
        ["age", "zip"], ROLES,
    ),
    "an identifier that is still there loses its role": ("SELECT 1", ["age"], {"entity": "id"}),
    "a column with a role is gone": (
        "ALTER TABLE data.moving DROP COLUMN age", ["note"], ROLES,
    ),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.pitfall(74)
@pytest.mark.parametrize("change", SNEAKING)
def test_what_was_not_published_does_not_get_in(
    parties: Parties, published: Functions, change: str
) -> None:
    statements, known, roles = SNEAKING[change]
    for statement in statements.split(";"):
        fetch(parties.publisher, statement)
    register = lambda: published.register("data.moving", known, "ill", **roles)
    assert sqlstate_of(register) == InUseError.sqlstate


MOVES = {
    "renamed": ("ALTER TABLE data.moving RENAME TO moved", "data.moved"),
    "in another schema": ("ALTER TABLE data.moving SET SCHEMA other", "other.moving"),
}


@pytest.mark.long
@pytest.mark.pitfall(74)
@pytest.mark.parametrize("is_registered", [False, True], ids=["refreshed", "registered"])
@pytest.mark.parametrize("move", MOVES)
def test_a_table_with_another_name_is_followed(
    parties: Parties, published: Functions, move: str, is_registered: bool
) -> None:
    statement, name = MOVES[move]
    before = release_of(parties)
    fetch(parties.publisher, statement)
    doctor = command("doctor", "--json", dsn=parties.dsn)
    assert f"it is called {name} by now" in doctor.stdout
    if is_registered:
        published.register(name, ["age"], "ill", **ROLES)
    more(parties, name)
    assert published.call("refresh", "moving_b")["added"] == 20
    assert release_of(parties) == before
    assert value(parties.admin, "SELECT count(*) FROM kanon.source") == 1
    assert value(parties.admin, "SELECT source FROM kanon.release WHERE ended IS NULL") == name
    assert "by now" not in command("doctor", dsn=parties.dsn).stdout


@pytest.mark.pitfall(74)
def test_another_table_of_the_old_name_is_not_the_renamed_one(
    parties: Parties, published: Functions
) -> None:
    """A table takes the place of another by names, as nightly loads do; names decide then."""
    fetch(parties.publisher, "ALTER TABLE data.moving RENAME TO moved")
    fetch(parties.publisher, "CREATE TABLE data.moving AS SELECT * FROM data.moved")
    more(parties, "data.moving")
    published.register("data.moving", ["age"], "ill", **ROLES)
    assert published.call("refresh", "moving_b")["added"] == 20


def test_a_source_that_is_gone_is_named_and_may_come_again(
    parties: Parties, published: Functions
) -> None:
    fetch(parties.publisher, "CREATE TABLE data.moved AS TABLE data.moving")
    fetch(parties.publisher, "DROP TABLE data.moving")
    with pytest.raises(psycopg.Error, match="does not exist any more") as refused:
        published.call("refresh", "moving_b")
    assert "register it again" in (refused.value.diag.message_hint or "")
    fetch(parties.publisher, "ALTER TABLE data.moved RENAME TO moving")
    published.register("data.moving", ["age"], "ill", **ROLES)
    more(parties, "data.moving")
    assert published.call("refresh", "moving_b")["added"] == 20
    published.call("drop_publication", "moving_b")


def test_hints_do_not_go_round_where_a_column_with_a_role_is_gone(
    parties: Parties, published: Functions
) -> None:
    """What is registered cannot change while it is published: renaming it back is what helps."""
    fetch(parties.publisher, "ALTER TABLE data.moving RENAME COLUMN age TO years")
    with pytest.raises(psycopg.Error, match="lost columns") as refused:
        published.call("refresh", "moving_b")
    assert "rename a column back" in (refused.value.diag.message_hint or "")
    fetch(parties.publisher, "ALTER TABLE data.moving RENAME COLUMN years TO age")
    assert published.call("refresh", "moving_b")["added"] == 0
    published.call("drop_publication", "moving_b")
