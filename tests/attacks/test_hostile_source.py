"""Attacks by the owner of a source: code attached to it sees who reads it, and nobody else.

Whoever reads a table runs what its owner has attached to it, as with any SELECT. But only the one
who publishes reads it: neither the role that owns publications, nor anybody who verifies, measures,
asks or drops what was published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle, product

import pytest

from tests.integration.parties import (
    KINDS,
    Connection,
    Functions,
    Parties,
    create_table,
    drop_all,
    fetch,
    sqlstate_of,
    value,
)
from tests.profiles import long_but

PLAIN = "age int, town text, sick text"
PEOPLE = [(20 + i % 10, f"town {i % 4}", f"disease {i % 5}") for i in range(100)]

SPY = """CREATE FUNCTION evil.spy({}) RETURNS {} IMMUTABLE LANGUAGE plpgsql AS $$BEGIN
PERFORM pg_catalog.nextval('evil.runs');
PERFORM pg_catalog.set_config('evil.who', pg_catalog.concat(
    pg_catalog.current_setting('evil.who', true), ' ', current_user), false);
RETURN {}; END$$"""

HOSTILE = [
    "CREATE SEQUENCE evil.runs",  # which no rollback puts back
    "GRANT ALL ON SEQUENCE evil.runs TO PUBLIC",
    SPY.format("anyelement", "int", "1"),
    SPY.format("", "trigger", "NEW"),
    SPY.format("text", "text", "$1"),
    "CREATE DOMAIN evil.town AS text CHECK (evil.spy(VALUE::text) IS NOT NULL)",
    "ALTER TABLE evil.people ALTER town TYPE evil.town",
    "ALTER TABLE evil.people ADD made text GENERATED ALWAYS AS (evil.spy(sick)) STORED",
    "ALTER TABLE evil.people ALTER age SET DEFAULT evil.spy(1)",
    "ALTER TABLE evil.people ADD CHECK (evil.spy(age) = 1)",
    "CREATE INDEX ON evil.people ((age + evil.spy(1)))",
    "CREATE INDEX ON evil.people (age) WHERE evil.spy(1) = 1",
    "CREATE INDEX ON evil.people (evil.spy(sick))",
    "CREATE STATISTICS evil.spied ON (evil.spy(sick)), age FROM evil.people",
    (
        "CREATE TRIGGER spy BEFORE INSERT OR UPDATE OR DELETE ON evil.people"
        " FOR EACH ROW EXECUTE FUNCTION evil.spy()"
    ),
    "CREATE RULE spied AS ON UPDATE TO evil.people DO ALSO SELECT evil.spy(1)",
    "CREATE RULE spied_too AS ON DELETE TO evil.people DO ALSO SELECT evil.spy(1)",
    "ANALYZE evil.people",
    (
        "CREATE VIEW evil.seen AS SELECT age + evil.spy(age) - 1 AS age, town,"
        " evil.spy(sick) AS sick FROM evil.people"
    ),
    "CREATE TABLE evil.guarded AS SELECT age, town::text, sick FROM evil.people",
    "ALTER TABLE evil.guarded ENABLE ROW LEVEL SECURITY",
    "CREATE POLICY spied ON evil.guarded USING (evil.spy(sick) IS NOT NULL)",
]


@pytest.fixture(scope="module")
def hostile(parties: Parties) -> Parties:
    """A stranger's table to which code is attached in every way, and two more made of it."""
    stranger, publisher = parties.stranger.info.user, parties.publisher.info.user
    fetch(parties.admin, f"CREATE SCHEMA evil AUTHORIZATION {stranger}")
    create_table(parties.stranger, "evil.people", PLAIN, PEOPLE)
    for statement in HOSTILE:
        fetch(parties.stranger, statement)
    fetch(parties.stranger, "GRANT USAGE ON SCHEMA evil TO PUBLIC")
    fetch(parties.stranger, f"GRANT SELECT ON ALL TABLES IN SCHEMA evil TO {publisher}")
    return parties


@pytest.fixture
def kanon(hostile: Parties) -> Iterator[Functions]:
    yield Functions(hostile.publisher)
    drop_all(hostile)


def seen_by(connection: Connection, call: Callable[[], object]) -> set[str]:
    """As whom the attached code ran during a call that succeeds, in that session."""
    fetch(connection, "SELECT set_config('evil.who', '', false)")
    call()
    return set(value(connection, "SELECT current_setting('evil.who')").split())


def refused_unseen(parties: Parties, call: Callable[[], object]) -> None:
    """The call is refused for want of rights, before any attached code has run."""
    runs = "SELECT last_value FROM evil.runs"
    before = value(parties.admin, runs)
    assert sqlstate_of(call) == "42501"
    assert value(parties.admin, runs) == before


@pytest.mark.pitfall(5, 21)
@pytest.mark.parametrize(("source", "kind"), long_but(
    [("evil.people", "buckets"), *zip(cycle(["evil.seen", "evil.people"]), KINDS)],
    product(["evil.people", "evil.seen"], KINDS),
))  # fmt: skip
def test_attached_code_runs_as_the_publisher_alone(
    hostile: Parties, kanon: Functions, source: str, kind: str
) -> None:
    """Rules, triggers, domains, generated columns, indexes, statistics, views."""
    publisher = hostile.publisher.info.user
    kanon.register(source, ["age", "town"], "sick")
    publish = lambda: kanon.of_kind(kind, source, "p")
    seen = seen_by(hostile.publisher, publish)
    assert seen <= {publisher}
    if source == "evil.seen":
        assert seen  # the code is able to run
    assert seen_by(hostile.publisher, lambda: kanon.attack("p")) <= {publisher}
    refused_unseen(hostile, lambda: Functions(hostile.admin).attack("p"))
    again = lambda: kanon.of_kind(kind, source, "p", replace=True)
    assert seen_by(hostile.publisher, again) <= {publisher}
    query = "SELECT COUNT(*) FROM p WHERE age > 22 AND sick = 'disease 1'"
    for connection in (hostile.publisher, hostile.analyst, hostile.admin):
        asker = Functions(connection)
        for call in (
            lambda: asker.verify("p"), lambda: asker.metrics("p"),
            lambda: asker.estimate(query), lambda: asker.rewrite(query),
            lambda: fetch(connection, "SELECT * FROM kanon.explain_count($1::text)", query),
            lambda: fetch(connection, "SELECT * FROM published.p"),
        ):  # fmt: skip
            assert seen_by(connection, call) == set()
    assert seen_by(hostile.admin, lambda: Functions(hostile.admin).drop("p")) == set()


@pytest.mark.pitfall(5)
def test_a_policy_is_not_run_with_other_rights(hostile: Parties, kanon: Functions) -> None:
    """Rows that a policy could hide are not published, and the policy is not even asked."""
    kanon.register("evil.guarded", ["age", "town"], "sick")
    for kind in KINDS:
        publish = lambda: kanon.of_kind(kind, "evil.guarded", "p")
        refused_unseen(hostile, publish)


@pytest.mark.pitfall(5, 21)
def test_a_superuser_is_kept_from_it(hostile: Parties) -> None:
    """Registering such a table is refused before anything of it is read."""
    kanon = Functions(hostile.admin)
    for source in ("evil.people", "evil.seen", "evil.guarded"):
        refused_unseen(hostile, lambda: kanon.register(source, ["age", "town"], "sick"))


@pytest.mark.pitfall(5)
def test_the_attached_code_would_run(hostile: Parties) -> None:
    """The tests above could not fail otherwise: a superuser who reads by hand does run it."""
    admin = hostile.admin.info.user
    for statement in (
        "SELECT FROM evil.people WHERE age = 1",
        "SELECT age FROM evil.seen",
        "UPDATE evil.people SET age = age WHERE age = 21",
        "SELECT 'town'::evil.town",
    ):
        assert admin in seen_by(hostile.admin, lambda: fetch(hostile.admin, statement))
