"""Attacks of an analyst on the microdata, and on what only publishers may do."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import psycopg
import pytest

from tests.integration.parties import (
    Connection,
    Functions,
    Package,
    Parties,
    create_table,
    fetch,
    sqlstate_of,
    value,
)


@pytest.fixture(scope="module")
def published(parties: Parties) -> Parties:
    rows = [(f"name {i}", i % 90, "mf"[i % 2], f"disease {i % 5}") for i in range(300)]
    create_table(parties.publisher, "data.people", "name text, age int, sex text, sick text", rows)
    fetch(parties.publisher, "CREATE VIEW data.people_view AS SELECT * FROM data.people")
    kanon = Functions(parties.publisher)
    kanon.register("data.people", ["age", "sex"], "sick", identifiers=["name"])
    kanon.publish("data.people", "people", privacy='{"l": 3}')
    return parties


REFUSED = {
    "select": "SELECT * FROM data.people",
    "count": "SELECT count(*) FROM data.people",
    "one column": "SELECT age FROM data.people",
    "view": "SELECT * FROM data.people_view",
    "explain": "EXPLAIN SELECT * FROM data.people WHERE age = 3",
    "explain analyze": "EXPLAIN ANALYZE SELECT * FROM data.people",
    "explain generic": "EXPLAIN SELECT FROM published.people AS p, data.people AS q",
    "copy": "COPY data.people TO STDOUT",
    "copy query": "COPY (SELECT * FROM data.people) TO STDOUT",
    "copy to program": "COPY published.people TO PROGRAM 'cat'",
    "copy to file": "COPY published.people TO '/tmp/people'",
    "view of one's own": "CREATE TEMPORARY VIEW mine AS SELECT * FROM data.people;"
    " SELECT * FROM mine",
    "table of one's own": "CREATE TEMPORARY TABLE mine AS SELECT * FROM data.people",
    "lock": "BEGIN; LOCK TABLE data.people IN ACCESS SHARE MODE",
    "prepared": "PREPARE mine AS SELECT * FROM data.people; EXECUTE mine",
    "cursor": "BEGIN; DECLARE mine CURSOR FOR SELECT * FROM data.people; COMMIT",
    "subquery": "SELECT * FROM published.people WHERE age = (SELECT max(age) FROM data.people)",
    "row type": "SELECT (SELECT p FROM data.people AS p LIMIT 1)",
    "inheritance": "CREATE TEMPORARY TABLE mine () INHERITS (data.people)",
    "foreign key": "CREATE TEMPORARY TABLE mine (age int REFERENCES data.people (age))",
    "query_to_xml": "SELECT query_to_xml('SELECT * FROM data.people', true, true, '')",
    "sources": "SELECT * FROM kanon.source",
    "catalog": "SELECT * FROM kanon.publication",
    "catalog by update": "UPDATE kanon.publication SET name = name",
    "revision": "SELECT * FROM kanon.alembic_version",
    "insert": "INSERT INTO published.people_qit VALUES (1)",
    "update": "UPDATE published.people_sat SET count = 1",
    "errand": "INSERT INTO kanon.errand (task) VALUES ('drop')",
    "create": "CREATE TABLE published.mine ()",
    "role": "SET ROLE kanon_publisher",
    "register": "SELECT kanon.register_source('published.people', '{age}', 'sick')",
    "publish": "SELECT kanon.publish_buckets('published.people', 'mine', privacy => '{\"l\": 2}')",
    "drop": "SELECT kanon.drop_publication('people')",
    "python": "DO LANGUAGE plpython3u 'x = 1'",
    "python function": "CREATE FUNCTION pg_temp.mine() RETURNS int LANGUAGE plpython3u AS"
    " 'return 1'",
    "file": "SELECT pg_read_file('pg_hba.conf')",
    "program": "SELECT * FROM kanon.verify('people'), pg_ls_dir('.')",
}  # fmt: skip


def test_refused(published: Parties) -> None:
    for attack, statement in REFUSED.items():
        with pytest.raises(psycopg.Error) as caught:
            published.analyst.execute(statement.encode())
        fetch(published.analyst, "ROLLBACK")
        assert caught.value.sqlstate == "42501", attack
        assert "disease" not in str(caught.value)
    # The package has no rights of its own: the server refuses what it tries.
    kanon = Package(published.analyst)
    for call in (
        lambda: kanon.register("published.people", ["age"], "sick"),
        lambda: kanon.publish("data.people", "mine", privacy='{"l": 2}'),
        lambda: kanon.drop("people"),
    ):
        assert sqlstate_of(call) == "42501"
    assert "people" in Functions(published.publisher).publications()


def test_strangers_know_nothing(published: Parties) -> None:
    for statement in (
        "SELECT * FROM published.people",
        "SELECT * FROM published.people_qit",
        "SELECT * FROM kanon.publications",
        "SELECT kanon.version()",
        "SELECT * FROM kanon.estimate_count('SELECT COUNT(*) FROM people')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            fetch(published.stranger, statement)


def relations_in(plan: Any) -> set[str]:
    """Names of the relations that a plan reads, from EXPLAIN's JSON."""
    if isinstance(plan, list):
        return set().union(*map(relations_in, plan))
    if not isinstance(plan, dict):
        return set()
    found = set().union(*map(relations_in, plan.values()))
    if "Relation Name" in plan:
        found.add(f"{plan['Schema']}.{plan['Relation Name']}")
    return found


def read_by(analyst: Connection, statement: str) -> set[str]:
    """The relations that a statement reads, by EXPLAIN ANALYZE."""
    plan = value(analyst, f"EXPLAIN (ANALYZE, VERBOSE, FORMAT JSON) {statement}")
    return relations_in(plan)


@pytest.mark.pitfall(8)
def test_explain_reads_published_relations(published: Parties) -> None:
    """EXPLAIN ANALYZE of published tables, with conditions, reads nothing else."""
    for suffix, condition in product(
        ("", "_qit", "_sat", "_val"), ("", " WHERE sick = 'disease 1'", " WHERE sick IS NULL")
    ):
        where = " WHERE age > 30" if suffix == "_qit" and condition else condition
        read = read_by(published.analyst, f"SELECT * FROM published.people{suffix}{where}")
        assert {name.rsplit("_", 1)[0] for name in read} == {"published.people"}, (suffix, where)


@pytest.mark.pitfall(8)
def test_explain_of_a_rewritten_query(published: Parties) -> None:
    """EXPLAIN ANALYZE of what an estimate counts reads the published tables.

    Among them how their values go together, which follows from the SAT.
    """
    allowed = {f"published.people_{suffix}" for suffix in ("qit", "sat", "est")}
    for condition in (
        "age > 30", "sick = 'disease 1'", "age > 30 AND sick <> 'disease 1'", "sex IN ('m')"
    ):  # fmt: skip
        query = f"SELECT COUNT(*) FROM people WHERE {condition}"
        rewritten = Functions(published.analyst).rewrite(query)
        assert read_by(published.analyst, rewritten) <= allowed, condition


ROWS = {"ranged": "generalized", "matched": "freeform", "partly": "suppressed"}


@pytest.fixture(scope="module")
def rows(published: Parties) -> Parties:
    """The people as rows of each kind."""
    for name, kind in ROWS.items():
        Functions(published.publisher).of_kind(kind, "data.people", name)
    return published


@pytest.mark.pitfall(8)
def test_explain_of_rows_reads_their_view(rows: Parties) -> None:
    """Neither the source, nor the table of rows that the view is made from.

    How often values occur in cells, which the statement reads beside it, follows from the view.
    """
    for name, condition in product(ROWS, ("sick = 'disease 1'", "sick IS NULL", "sex IS NOT NULL")):
        statement = f"SELECT * FROM published.{name} WHERE {condition}"
        query = f"SELECT COUNT(*) FROM {name} WHERE {condition}"
        for explained in (statement, Functions(rows.analyst).rewrite(query)):
            read = read_by(rows.analyst, explained) - {f"published.{name}_est"}
            assert read == {f"published.{name}"}, explained


@pytest.mark.pitfall(12)
def test_the_same_question_has_the_same_answer(
    rows: Parties, connect_as: Callable[[str, str], Connection]
) -> None:
    """Asked again, by others, and after the source has changed: nothing can be averaged out."""
    with connect_as(rows.dsn, rows.analyst.info.user) as connection:
        fetch(connection, "SELECT setseed(0.5)")
        for name in ("people", *ROWS):
            query = f"SELECT COUNT(*) FROM {name} WHERE age > 30 AND sick = 'disease 2'"
            answer = Functions(rows.analyst).estimate(query)
            with rows.publisher.transaction(force_rollback=True):
                fetch(rows.publisher, "DELETE FROM data.people WHERE sick = 'disease 2'")
                assert Functions(rows.publisher).estimate(query) == answer, name
            assert [Functions(connection).estimate(query) for _ in range(3)] == [answer] * 3, name


def test_statements_of_others(published: Parties) -> None:
    """What a publisher runs shows to no analyst."""
    query = "SELECT query FROM pg_stat_activity WHERE pid = $1::int4"
    seen = value(published.analyst, query, published.publisher.info.backend_pid)
    assert seen == "<insufficient privilege>"


@pytest.mark.pitfall(12)
def test_answers_need_no_source(published: Parties) -> None:
    """Without the microdata, everything that analysts may ask is answered as before."""
    query = "SELECT COUNT(*) FROM people WHERE age > 30 AND sick = 'disease 2'"
    analyst = Functions(published.analyst)
    answers = lambda: (analyst.estimate(query), analyst.verify("people"), analyst.metrics("people"))
    before = answers()
    fetch(published.publisher, "DROP SCHEMA data CASCADE")
    fetch(published.admin, "DELETE FROM kanon.source")
    assert answers() == before
