"""Attacks through lookup tables: whoever names one gets what its SELECT would give, no more."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from kanon_db.errors import KanonError
from tests.integration.frozen import parties
from tests.integration.parties import WAYS, Parties, fetch, sqlstate_of, value

__all__ = ["parties"]

QUERY = "SELECT COUNT(*) FROM people JOIN evil.{} AS l ON l.age = people.age WHERE l.label = 'a'"


@pytest.fixture(scope="module", autouse=True)
def lookups(parties: Parties) -> None:
    """A stranger's schema of tables that do harm where they can."""
    analyst = parties.analyst.info.user
    stranger = parties.stranger.info.user
    fetch(parties.admin, f"CREATE SCHEMA evil AUTHORIZATION {stranger}")
    for statement in (
        "CREATE TABLE evil.seen (who text, path text)",
        "GRANT INSERT, SELECT ON evil.seen TO PUBLIC",
        (
            "CREATE FUNCTION evil.spy(label text) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN"
            " IF label = 'canary' THEN RAISE EXCEPTION 'canary' USING ERRCODE = '42P01'; END IF;"
            " PERFORM set_config('evil.who', current_user || ' ' ||"
            " current_setting('search_path'), false); RETURN true; END$$"
        ),
        "CREATE TABLE evil.guarded (age int, label text)",
        "INSERT INTO evil.guarded SELECT i, 'a' FROM generate_series(0, 9) AS i",
        "ALTER TABLE evil.guarded ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY guard ON evil.guarded USING (evil.spy(label))",
        "CREATE TABLE evil.failing (LIKE evil.guarded)",
        "INSERT INTO evil.failing VALUES (1, 'canary')",
        "ALTER TABLE evil.failing ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY guard ON evil.failing USING (evil.spy(label))",
        "CREATE VIEW evil.view AS SELECT age, label FROM evil.guarded WHERE evil.spy(label)",
        "CREATE DOMAIN evil.years AS int CHECK (evil.spy(value::text))",
        "CREATE TABLE evil.in_domain (age evil.years, label text)",
        "INSERT INTO evil.in_domain SELECT i, 'a' FROM generate_series(0, 4) AS i",
        "CREATE TYPE evil.pair AS (a int, b int)",
        "CREATE TABLE evil.of_type (age int, label evil.pair)",
        "CREATE FUNCTION evil.same(int, int) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        "CREATE OPERATOR evil.= (FUNCTION = evil.same, LEFTARG = int, RIGHTARG = int)",
        "CREATE TABLE evil.closed (age int, label text)",
        "CREATE TABLE evil.half (age int, label text, secret text)",
        "INSERT INTO evil.half SELECT i, 'a', 'x' FROM generate_series(0, 4) AS i",
        f"GRANT SELECT (age, label) ON evil.half TO {analyst}",
        f"GRANT USAGE ON SCHEMA evil TO {analyst}",
        *(
            f"GRANT SELECT ON evil.{table} TO {analyst}"
            for table in ("guarded", "failing", "view", "in_domain", "of_type")
        ),
    ):
        fetch(parties.stranger, statement)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    return str(request.param)


@pytest.mark.long
@pytest.mark.pitfall(5)
def test_policies_run_as_the_caller(parties: Parties, way: str) -> None:
    """A policy of the table's owner sees the caller, as in the caller's own SELECT."""
    before = value(parties.analyst, "SELECT current_user")
    assert WAYS[way](parties.analyst).estimate(QUERY.format("guarded")) == (100, 0, 100, 100)
    who, path = value(parties.analyst, "SELECT current_setting('evil.who')").split(" ", 1)
    assert who == before == parties.analyst.info.user
    assert path == "pg_catalog, pg_temp"


@pytest.mark.long
@pytest.mark.pitfall(10)
def test_errors_of_policies_are_withheld(parties: Parties, way: str) -> None:
    with pytest.raises((KanonError, psycopg.Error)) as refused:
        WAYS[way](parties.analyst).estimate(QUERY.format("failing"))
    assert "canary" not in str(refused.value)
    assert "canary" not in str(getattr(refused.value, "detail", ""))


@pytest.mark.pitfall(6)
def test_checks_of_domains_do_not_run(parties: Parties, way: str) -> None:
    fetch(parties.analyst, "SELECT set_config('evil.who', 'nobody', false)")
    assert WAYS[way](parties.analyst).estimate(QUERY.format("in_domain"))[0] == 50
    assert value(parties.analyst, "SELECT current_setting('evil.who')") == "nobody"


@pytest.mark.pitfall(6)
def test_operators_are_the_servers(parties: Parties, way: str) -> None:
    """An operator of the stranger's, first on the caller's path, joins nothing."""
    fetch(parties.analyst, "SET search_path = evil, pg_catalog")
    try:
        answer = WAYS[way](parties.analyst).estimate(QUERY.format("in_domain"))
    finally:
        fetch(parties.analyst, "RESET search_path")
    assert answer == (50, 0, 50, 50)


def test_what_is_no_lookup_table(parties: Parties, way: str) -> None:
    """Views, columns of other types, our schemas and the server's; and what one may not read."""
    kanon = WAYS[way](parties.analyst)
    for table, sqlstate in (
        ("view", "0A000"), ("of_type", "0A000"),
        ("closed", "42704"), ("nothing", "42704"), ("spy", "42704"),
    ):  # fmt: skip
        assert sqlstate_of(lambda: kanon.estimate(QUERY.format(table))) == sqlstate, table
    assert kanon.estimate(QUERY.format("half"))[0] == 50
    other = QUERY.format("half").replace("label", "secret")
    assert sqlstate_of(lambda: kanon.estimate(other)) == "42501"
    for schema in ("published", "kanon", "pg_catalog", "information_schema"):
        query = f"SELECT COUNT(*) FROM people JOIN {schema}.people_qit AS l ON l.age = people.age"
        call = lambda: WAYS[way](parties.admin).estimate(query)
        assert sqlstate_of(call) == "0A000", schema
