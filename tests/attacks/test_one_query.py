"""One query cannot take the server: what it needs is bounded before it is done."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kanon_db.answers.scope import Limits
from kanon_db.errors import UnsupportedQueryError
from kanon_db.query._lexemes import MAX_LEXEMES
from kanon_db.query.expressions import MAX_PATTERN
from kanon_db.query.parse import MAX_ITEMS, MAX_OPERATORS, MAX_PATTERNS, parse_query
from kanon_db.session.psycopg_session import PsycopgSession
from kanon_db.transfer.snapshot import MOST_BYTES
from tests.integration.parties import (
    Connection,
    Functions,
    Parties,
    create_source,
    create_table,
    fetch,
    value,
)

N_RECORDS = 2_000
COUNT = "SELECT COUNT(*) FROM typed WHERE"
GROUPED = "SELECT age, region, sick, COUNT(*) FROM typed GROUP BY age, region, sick"
SUMMED = "SELECT age, region, SUM(size) FROM typed WHERE sick <> 'd0' GROUP BY age, region"
ONE_SIDED = "SELECT age, region, COUNT(*) FROM typed GROUP BY age, region"


@pytest.fixture(scope="module", autouse=True)
def typed(parties: Parties) -> None:
    fetch(parties.publisher, "CREATE TYPE data.grade AS ENUM ('low', 'high')")
    columns = "age int, region text, size real, day date, grade data.grade, sick text"
    rows = [
        (i * 7 % 40, f"r{i % 11}", i % 9 / 10, f"2020-01-{1 + i % 28:02}", ("low", "high")[i % 2],
         f"d{i * 3 % 13 % 7}")
        for i in range(N_RECORDS)
    ]  # fmt: skip
    create_table(parties.publisher, "data.typed", columns, rows)
    fetch(parties.publisher, "GRANT USAGE ON SCHEMA data TO kanon_analyst")
    kanon = Functions(parties.publisher)
    kanon.register("data.typed", ["age", "region", "size", "day", "grade"], "sick")
    kanon.publish("data.typed", "typed", privacy='{"l": 3}')
    kanon.generalize("data.typed", "ranged", k=5, method="mondrian")


@contextlib.contextmanager
def memory(parties: Parties, amount: str) -> Iterator[None]:
    """Give each query so much memory: too little, and no bitmaps of groups are kept."""
    fetch(parties.admin, "INSERT INTO kanon.setting VALUES ('query_memory', $1)", amount)
    yield
    fetch(parties.admin, "DELETE FROM kanon.setting WHERE name = 'query_memory'")


def answers(connection: Connection, query: str) -> dict[tuple[str, ...], Any]:
    rows = fetch(
        connection,
        "SELECT group_key::jsonb, estimate, std_error, lower_bound, upper_bound"
        " FROM kanon.estimate($1)",
        query,
    )
    return {tuple(map(str, key.values())): numbers for key, *numbers in rows}


# -- lists ------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_list_of_constants_compares_as_in(parties: Parties) -> None:
    """One array for all constants of a type means what PostgreSQL means by IN."""
    for condition in (
        "age IN (1, 2.0, 3.5, 99999999999)", "age NOT IN (1, 2.0, 3.5)", "age IN (1, age)",
        "size IN (0.1, 0.2, 16777217)", "size NOT IN (0.1, 3)", "size + size IN (0.2, 0.4)",
        "region IN ('r1', 'r2', 'it''s', '{a,b}', 'NULL', '')",
        "day IN ('2020-01-02', '2020-01-03')",
        "day IN (DATE '2020-01-02 23:00', TIMESTAMP '2020-01-03 01:00')",
        "day NOT IN (TIMESTAMP '2020-01-02 00:00', '2020-01-04')",
        "grade IN ('low', 'high')", "grade NOT IN ('low', 'low')",
    ):  # fmt: skip
        for where in (condition, f"{condition} AND age < 30"):
            exact = value(parties.publisher, f"SELECT count(*) FROM data.typed WHERE {where}")
            estimated = Functions(parties.analyst).estimate(f"{COUNT} {where}")
            assert estimated == (exact, 0, exact, exact), where


@pytest.mark.long
@pytest.mark.pitfall(25)
def test_fourteen_thousand_constants_are_one_array(parties: Parties) -> None:
    """Each of them once copied the array of all, 3.6 GB, or all ranges before it, in six copies."""
    kanon = Functions(parties.analyst)
    listed = ", ".join(map(str, range(14_000)))
    query = f"{COUNT} age IN ({listed}) AND sick IN ('d0', 'd1', 'd2', 'd3', 'd4')"
    _, _, lower, upper = kanon.estimate(query)
    exact = "SELECT count(*) FROM data.typed WHERE sick < 'd5'"
    assert lower <= value(parties.publisher, exact) <= upper
    chained = " OR ".join(f"age = {n}" for n in range(2_000))
    for condition, n in (
        (f"age IN ({listed})", N_RECORDS), (f"age NOT IN ({listed})", 0), (chained, N_RECORDS)
    ):  # fmt: skip
        found = kanon.estimate(f"SELECT COUNT(*) FROM ranged WHERE {condition}")
        assert found == pytest.approx((n, 0, n, n), abs=1e-3)


def pairs(pair: str, n: int) -> str:
    return " AND ".join(f"({pair.format(i)})" for i in range(n))


@pytest.mark.long
@pytest.mark.pitfall(25)
@pytest.mark.parametrize(
    ("pair", "n", "too_many"),
    [("age <> {0} OR region <> 'x{0}'", 400, 600), ("size > {0} OR age = {0}", 30, 60)],
)
def test_many_pairs_of_conditions_on_cells(
    parties: Parties, pair: str, n: int, too_many: int
) -> None:
    """The planner copied the whole condition for each of them: 9 GB for 100 pairs."""
    ask = "SELECT COUNT(*) FROM ranged WHERE"
    with psycopg.connect(parties.dsn, autocommit=True) as connection:
        kanon = Functions(connection)
        kanon.estimate(f"{ask} age = 1 OR region = 'r1'")
        before = most_memory(connection)
        _, _, lower, upper = kanon.estimate(f"{ask} {pairs(pair, n)}")
        assert most_memory(connection) - before < 200 << 10
    exact = f"SELECT count(*) FROM data.typed WHERE {pairs(pair, n)}"
    assert lower <= value(parties.publisher, exact) <= upper
    more = f"{ask} {pairs(pair, too_many)}"
    refused(lambda: Functions(parties.analyst).estimate(more), "too many conditions")


def most_memory(connection: Connection) -> int:
    """The most memory that a backend has had, in kB."""
    status = Path(f"/proc/{connection.info.backend_pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def refused(call: Callable[[], object], reason: str) -> None:
    """What is asked is outside of what is answered, and a hint says what to do."""
    with pytest.raises(psycopg.errors.FeatureNotSupported, match=reason) as error:
        call()
    assert error.value.diag.message_hint


# -- texts ------------------------------------------------------------------------------------


def most_patterns() -> list[str]:
    """The most that may be asked of one text."""
    pattern = f"%{'a' * (MAX_PATTERN - 2)}b"
    n = MAX_PATTERNS // (MAX_PATTERN + 20)
    return [f"text LIKE '{pattern[:-1]}{chr(ord('b') + i)}'" for i in range(n)]


WHENS = f"{'CASE ' * 20}a{' WHEN 1 THEN 2 WHEN 2 THEN 1 END' * 20}"
GROWING = {
    f"{COUNT} age IN ({','.join('1' * MAX_LEXEMES)})": "too long",
    f"{COUNT} {' OR '.join(['a+b=1'] * (MAX_OPERATORS // 2))}": "operators",
    f"SELECT {','.join(['COUNT(*)'] * (MAX_ITEMS + 1))} FROM typed": "items",
    f"SELECT COUNT(*) FROM typed GROUP BY {','.join('a' * (MAX_ITEMS + 1))}": "items",
    f"{COUNT} {'(' * 30}a{' BETWEEN false AND true)' * 30}": "operators",
    f"{COUNT} {'(' * 30}a{' IS DISTINCT FROM true)' * 30}": "operators",
    f"{COUNT} {'(' * 30}a = 1 AND b = 2{' IS UNKNOWN)' * 30}": "operators",
    f"{COUNT} {WHENS} = 1": "each WHEN repeats it",
    f"SELECT COUNT({WHENS}) FROM typed": "each WHEN repeats it",
    f"{COUNT} a LIKE '{'%' * (MAX_PATTERN + 1)}'": "a pattern has more",
    f"{COUNT} {' OR '.join([*most_patterns(), *most_patterns()])}": "patterns of LIKE",
    f"{COUNT} a ILIKE 'a'" + " OR a ILIKE 'a'" * 500: "patterns of LIKE",
}


@pytest.mark.long
@pytest.mark.pitfall(25)
def test_a_text_that_would_grow_is_refused_before_work() -> None:
    """What is written twice doubles at each level: thirty of them would be a billion."""
    for text, reason in GROWING.items():
        with pytest.raises(UnsupportedQueryError, match=reason) as error:
            parse_query(text)
        assert error.value.hint, reason


def test_more_aggregates_than_statements_may_run_are_refused(parties: Parties) -> None:
    """Each aggregate reads all records, also one that only HAVING mentions."""
    sums = [f"SUM(age + {i})" for i in range(60)]
    having = " AND ".join(f"{one} > 1" for one in sums)
    for query in (
        f"SELECT {', '.join(sums)} FROM typed", f"SELECT COUNT(*) FROM typed HAVING {having}"
    ):  # fmt: skip
        refused(lambda query=query: answers(parties.analyst, query), "aggregates")


@pytest.mark.pitfall(25)
def test_parsing_hears_a_cancel() -> None:
    """Reading a text can be cancelled at any of its steps."""

    for moment in range(4):
        left = [moment]

        def heartbeat(left: list[int] = left) -> None:
            if not left[0]:
                raise InterruptedError
            left[0] -= 1

        with pytest.raises(InterruptedError):
            parse_query("SELECT COUNT(*) FROM t WHERE a = 1", heartbeat=heartbeat)


@pytest.mark.pitfall(25)
def test_a_query_hears_its_timeout(parties: Parties) -> None:
    """Lists, groups and sums end with `statement_timeout`."""
    listed = f"{COUNT} age IN ({', '.join(map(str, range(15_000)))})"
    for query in (listed, GROUPED, SUMMED, ONE_SIDED):
        with parties.analyst.transaction(force_rollback=True):
            fetch(parties.analyst, "SET LOCAL statement_timeout = 5")
            with pytest.raises(psycopg.errors.QueryCanceled):
                answers(parties.analyst, query)


# -- long texts -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long(parties: Parties) -> None:
    """Texts of the most bytes that can be published; nothing compresses."""
    lines = [(i, "a" * MOST_BYTES, f"d{i % 3}") for i in range(3)]
    create_source(parties.publisher, "data.long", "age int, text text, sick text", lines)
    Functions(parties.publisher).publish("data.long", "long", privacy='{"l": 3}')
    Functions(parties.publisher).generalize(
        "data.long", "long_ranged", k=3, method="mondrian", refine=False
    )
    create_table(
        parties.publisher, "data.regions", "region text, story text, note text",
        [("r1", "a" * (MOST_BYTES + 1), "a" * MOST_BYTES), ("r2", "a", None)],
    )  # fmt: skip
    fetch(parties.publisher, "GRANT SELECT ON data.regions TO kanon_analyst")


@pytest.mark.pitfall(25)
@pytest.mark.usefixtures("long")
def test_long_texts_do_not_outlast_a_timeout(parties: Parties) -> None:
    """PostgreSQL looks for a cancel only after it is done with a row: that takes half a second."""
    compared = (f"text {'<>'[i % 2]}= 'a{i}'" for i in range(MAX_OPERATORS // 2 - 10))
    for condition in (" OR ".join(most_patterns()), " AND ".join(compared)):
        with parties.analyst.transaction(force_rollback=True):
            fetch(parties.analyst, "SET LOCAL statement_timeout = 50")
            started = time.monotonic()
            with pytest.raises(psycopg.errors.QueryCanceled):
                answers(parties.analyst, f"SELECT COUNT(*) FROM long WHERE {condition}")
            assert time.monotonic() - started < 3  # 3 texts of half a second, on a busy machine


@pytest.mark.pitfall(25)
@pytest.mark.usefixtures("long")
def test_longer_texts_of_lookup_tables_are_refused(parties: Parties) -> None:
    """Of 20 MB, say: a single LIKE took minutes, and nothing but a kill ended it."""
    kanon = Functions(parties.analyst)
    joined = "SELECT COUNT(*) FROM typed JOIN data.regions USING (region) WHERE"
    for condition in ("story LIKE 'b%'", "story < 'b' AND age > 3", "story = sick"):
        refused(lambda one=condition: kanon.estimate(f"{joined} {one}"), "more than 50,000")
    assert kanon.estimate(f"{joined} note LIKE 'a%'")[0] > 0


@pytest.mark.usefixtures("long")
def test_like_compares_texts_up_to_there(parties: Parties) -> None:
    for publication in ("long", "long_ranged"):
        query = f"SELECT COUNT(*) FROM {publication} WHERE"
        assert Functions(parties.analyst).estimate(f"{query} text LIKE 'a%a'")[0] == 3
        assert Functions(parties.analyst).estimate(f"{query} text NOT ILIKE 'A%A'")[0] == 0


# -- groups -----------------------------------------------------------------------------------


def test_groups_beyond_the_memory_are_counted_by_the_statement(parties: Parties) -> None:
    """Rows x groups / 8 bytes were 80 GB for a million records."""
    for query in (SUMMED, ONE_SIDED):
        wanted = answers(parties.analyst, query)
        with memory(parties, "2 MB"):
            assert len(wanted) <= Limits(2 << 20).n_answers
            found = answers(parties.analyst, query)
        assert found.keys() == wanted.keys()
        for key, numbers in found.items():
            assert numbers == pytest.approx(wanted[key], abs=1e-6)


@pytest.mark.pitfall(25)
def test_more_groups_than_the_memory_holds_are_refused(parties: Parties) -> None:
    """Whatever asks for them, with a hint; and statements that are too long to show."""
    of_any = [(query, "estimate") for query in (GROUPED, SUMMED, ONE_SIDED)]
    others = (GROUPED, "explain_count"), (ONE_SIDED, "estimate_counts")
    with memory(parties, "250 kB"):
        for query, function in (*of_any, *others):
            ask = f"SELECT * FROM kanon.{function}($1)"
            refused(lambda a=ask, q=query: fetch(parties.analyst, a, q), "more groups")
        query = f"{COUNT} age IN ({', '.join(map(str, range(2_000)))}) AND sick = 'd1'"
        refused(lambda: Functions(parties.analyst).rewrite(query), "too long to show")


def test_work_mem_of_the_server_is_not_what_a_query_may_take(parties: Parties) -> None:
    """It is lowered while the query runs, never raised, and then as it was."""
    with parties.analyst.transaction(force_rollback=True):
        for setting in ("1GB", "64kB"):
            fetch(parties.analyst, f"SET LOCAL work_mem = '{setting}'")
            answers(parties.analyst, "SELECT AVG(age), COUNT(*) FROM typed WHERE sick = 'd1'")
            assert value(parties.analyst, "SHOW work_mem") == setting


def test_only_an_administrator_decides_on_the_memory(parties: Parties) -> None:
    """A setting of the session would be the analyst's to change."""
    for party in (parties.analyst, parties.publisher, parties.stranger):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            fetch(party, "INSERT INTO kanon.setting VALUES ('query_memory', '1 TB')")
    session = PsycopgSession(parties.analyst)
    with session.transaction():
        fetch(parties.analyst, "SET LOCAL kanon.query_memory = '1 TB'")
        assert Limits.of(session).memory == 200 << 20


def test_answers_in_order(parties: Parties) -> None:
    """The groups come one at a time, and still in the order of their values."""
    rows = fetch(parties.analyst, "SELECT group_key FROM kanon.estimate_counts($1)", ONE_SIDED)
    keys = [(key["age"], key["region"]) for (key,) in rows]
    assert keys == sorted(keys)
