"""Attacks of an analyst on the microdata, and on what only publishers may do."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import psycopg
import pytest

from tests.integration.frozen import ROWS, parties
from tests.integration.parties import (
    Connection,
    Functions,
    Package,
    Parties,
    create_people,
    fetch,
    sqlstate_of,
    value,
)

__all__ = ["parties"]


@pytest.fixture(scope="module", autouse=True)
def view(parties: Parties) -> None:
    fetch(parties.publisher, "CREATE VIEW data.people_view AS SELECT * FROM frozen.people")


REFUSED = {
    "select": "SELECT * FROM frozen.people",
    "count": "SELECT count(*) FROM frozen.people",
    "one column": "SELECT age FROM frozen.people",
    "view": "SELECT * FROM data.people_view",
    "explain": "EXPLAIN SELECT * FROM frozen.people WHERE age = 3",
    "explain analyze": "EXPLAIN ANALYZE SELECT * FROM frozen.people",
    "explain generic": "EXPLAIN SELECT FROM published.people AS p, frozen.people AS q",
    "copy": "COPY frozen.people TO STDOUT",
    "copy query": "COPY (SELECT * FROM frozen.people) TO STDOUT",
    "copy to program": "COPY published.people TO PROGRAM 'cat'",
    "copy to file": "COPY published.people TO '/tmp/people'",
    "view of one's own": "CREATE TEMPORARY VIEW mine AS SELECT * FROM frozen.people;"
    " SELECT * FROM mine",
    "table of one's own": "CREATE TEMPORARY TABLE mine AS SELECT * FROM frozen.people",
    "lock": "BEGIN; LOCK TABLE frozen.people IN ACCESS SHARE MODE",
    "prepared": "PREPARE mine AS SELECT * FROM frozen.people; EXECUTE mine",
    "cursor": "BEGIN; DECLARE mine CURSOR FOR SELECT * FROM frozen.people; COMMIT",
    "subquery": "SELECT * FROM published.people WHERE age = (SELECT max(age) FROM frozen.people)",
    "row type": "SELECT (SELECT p FROM frozen.people AS p LIMIT 1)",
    "inheritance": "CREATE TEMPORARY TABLE mine () INHERITS (frozen.people)",
    "foreign key": "CREATE TEMPORARY TABLE mine (age int REFERENCES frozen.people (age))",
    "query_to_xml": "SELECT query_to_xml('SELECT * FROM frozen.people', true, true, '')",
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


def test_refused(parties: Parties) -> None:
    for attack, statement in REFUSED.items():
        with pytest.raises(psycopg.Error) as caught:
            parties.analyst.execute(statement.encode())
        fetch(parties.analyst, "ROLLBACK")
        assert caught.value.sqlstate == "42501", attack
        assert "disease" not in str(caught.value)
    # The package has no rights of its own: the server refuses what it tries.
    kanon = Package(parties.analyst)
    for call in (
        lambda: kanon.register("published.people", ["age"], "sick"),
        lambda: kanon.publish("frozen.people", "mine", privacy='{"l": 2}'),
        lambda: kanon.drop("people"),
    ):
        assert sqlstate_of(call) == "42501"
    assert "people" in Functions(parties.publisher).publications()


def test_strangers_know_nothing(parties: Parties) -> None:
    for statement in (
        "SELECT * FROM published.people",
        "SELECT * FROM published.people_qit",
        "SELECT * FROM kanon.publications",
        "SELECT kanon.version()",
        "SELECT * FROM kanon.estimate_count('SELECT COUNT(*) FROM people')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            fetch(parties.stranger, statement)


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
def test_explain_reads_published_relations(parties: Parties) -> None:
    """EXPLAIN ANALYZE of published tables, with conditions, reads nothing else."""
    for suffix, condition in product(
        ("", "_qit", "_sat", "_val"), ("", " WHERE sick = 'disease 1'", " WHERE sick IS NULL")
    ):
        where = " WHERE age > 13" if suffix == "_qit" and condition else condition
        read = read_by(parties.analyst, f"SELECT * FROM published.people{suffix}{where}")
        assert {name.rsplit("_", 1)[0] for name in read} == {"published.people"}, (suffix, where)


@pytest.mark.pitfall(8)
def test_explain_of_a_rewritten_query(parties: Parties) -> None:
    """EXPLAIN ANALYZE of what an estimate counts reads the published tables.

    Among them how their values go together, which follows from the SAT.
    """
    allowed = {f"published.people_{suffix}" for suffix in ("qit", "sat", "est")}
    for condition in (
        "age > 13", "sick = 'disease 1'", "age > 13 AND sick <> 'disease 1'", "sex IN ('m')"
    ):  # fmt: skip
        query = f"SELECT COUNT(*) FROM people WHERE {condition}"
        rewritten = Functions(parties.analyst).rewrite(query)
        assert read_by(parties.analyst, rewritten) <= allowed, condition


@pytest.mark.pitfall(8)
def test_explain_of_rows_reads_their_view(parties: Parties) -> None:
    """Neither the source, nor the table of rows that the view is made from.

    How often values occur in cells, which the statement reads beside it, follows from the view.
    """
    for name, condition in product(ROWS, ("sick = 'disease 1'", "sick IS NULL", "sex IS NOT NULL")):
        statement = f"SELECT * FROM published.{name} WHERE {condition}"
        query = f"SELECT COUNT(*) FROM {name} WHERE {condition}"
        for explained in (statement, Functions(parties.analyst).rewrite(query)):
            read = read_by(parties.analyst, explained) - {f"published.{name}_est"}
            assert read == {f"published.{name}"}, explained


@pytest.mark.pitfall(12)
def test_the_same_question_has_the_same_answer(
    parties: Parties, connect_as: Callable[[str, str], Connection]
) -> None:
    """Asked again, by others, and after the source has changed: nothing can be averaged out."""
    with connect_as(parties.dsn, parties.analyst.info.user) as connection:
        fetch(connection, "SELECT setseed(0.5)")
        for name in ("people", *ROWS):
            query = f"SELECT COUNT(*) FROM {name} WHERE age > 13 AND sick = 'disease 2'"
            answer = Functions(parties.analyst).estimate(query)
            with parties.publisher.transaction(force_rollback=True):
                fetch(parties.publisher, "DELETE FROM frozen.people WHERE sick = 'disease 2'")
                assert Functions(parties.publisher).estimate(query) == answer, name
            assert [Functions(connection).estimate(query) for _ in range(3)] == [answer] * 3, name


def test_statements_of_others(parties: Parties) -> None:
    """What a publisher runs shows to no analyst."""
    query = "SELECT query FROM pg_stat_activity WHERE pid = $1::int4"
    seen = value(parties.analyst, query, parties.publisher.info.backend_pid)
    assert seen == "<insufficient privilege>"


@pytest.mark.pitfall(12)
def test_answers_need_no_source(parties: Parties) -> None:
    """Without the microdata, everything that analysts may ask is answered as before."""
    create_people(parties.publisher).publish("data.people", "remaining", privacy='{"l": 3}')
    query = "SELECT COUNT(*) FROM remaining WHERE age > 13 AND sick = 'disease 2'"
    kanon = Functions(parties.analyst)
    answers = lambda: (kanon.estimate(query), kanon.verify("remaining"), kanon.metrics("remaining"))
    before = answers()
    fetch(parties.publisher, "DROP SCHEMA data CASCADE")
    fetch(parties.admin, "DELETE FROM kanon.source WHERE schema_name = 'data'")
    assert answers() == before
