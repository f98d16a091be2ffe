"""Answers against PostgreSQL's own reading of the same conditions, NULL and odd values included.

A query on one side must give what the source gives, or be refused; on both sides, what the formula
of [GB] 3.2 gives when PostgreSQL itself counts each bucket's records and values.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kanon_db
from kanon_db.answers.rewrite import _RowStatement
from tests.expected_counts import are_drawn, of_buckets, strength_of
from tests.integration.parties import (
    WAYS,
    Functions,
    Parties,
    create_source,
    fetch,
    hearing,
    sqlstate_of,
    value,
)
from tests.profiles import examples, long_but
from tests.rewritten import compared

COLUMNS: dict[str, tuple[str, list[object], list[str]]] = {
    # Type, values that occur, constants to compare with as SQL writes them.
    "small": ("smallint", [1, 2, -3, None], ["1", "-3", "0", "32768", "1.5"]),
    "whole": ("int", [1, 2, 10, -1, None], ["1", "+2", "-1", "99999999999", "1.0", "'10'"]),
    "big": ("bigint", [1, 2**62, None], ["1", "4611686018427387904", "4611686018427387905"]),
    "exact": ("numeric", ["1.0", "1.00", "0.1", "NaN", None], ["1", "0.1", "0.10", "'NaN'", "1e2"]),
    "real": ("real", ["0.1", "NaN", "-0", "1e30", None], ["0.1", "'NaN'", "0", "1e30"]),
    "double": ("float8", ["0.1", "Infinity", "0", None], ["0.1", "'Infinity'", "0", "'-0'"]),
    "words": ("text", ["", "a", "A", "é", "a'b", " a", None],
              ["''", "'a'", "'A'", "'a''b'", "' a'"]),
    "short": ("varchar(3)", ["", "a", "a ", None], ["'a'", "'a '", "''"]),
    "padded": ("char(3)", ["a", "ab", "", None], ["'a'", "'a '", "''", "'ab'"]),
    "flag": ("boolean", ["t", "f", None], ["true", "false", "'t'"]),
    "day": ("date", ["2020-02-29", "infinity", "1999-12-31", None],
            ["'2020-02-29'", "DATE '1999-12-31'", "'infinity'"]),
    "moment": ("timestamp", ["2020-02-29 12:00", "2020-02-29", None],
               ["'2020-02-29'", "TIMESTAMP '2020-02-29 12:00'"]),
    "instant": ("timestamptz", ["2020-02-29 12:00+00", "2020-02-29 14:00+02", None],
                ["'2020-02-29 12:00+00'", "'2020-02-29 13:00+01'"]),
    "length": ("interval", ["1 day", "24 hours", "1 mon", None], ["'1 day'", "'30 days'"]),
    "key": ("uuid", ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", None],
            ["'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'"]),
    "mood": ("types.mood", ["sad", "happy", None], ["'sad'", "'ok'"]),
    "host": ("inet", ["10.0.0.1", "10.0.0.0/8", None], ["'10.0.0.1'", "'10.0.0.1/32'"]),
}  # fmt: skip

COMPARISONS = ["=", "<>", "!=", "<", "<=", ">", ">="]


@pytest.fixture(scope="module", autouse=True)
def mood(parties: Parties) -> None:
    fetch(parties.publisher, "GRANT USAGE ON SCHEMA data TO kanon_analyst")
    fetch(parties.admin, "CREATE SCHEMA types")
    everybody = "kanon_owner, kanon_publisher, kanon_analyst"
    fetch(parties.admin, f"GRANT USAGE ON SCHEMA types TO {everybody}")
    fetch(parties.admin, "CREATE TYPE types.mood AS ENUM ('sad', 'ok', 'happy')")


def publish_typed(parties: Parties, column: str, name: str) -> None:
    """Publish values of a type: as quasi-identifier, and as sensitive attribute."""
    kind, values, _ = COLUMNS[column]
    rows = [(values[i % len(values)],) * 2 for i in range(20 * len(values))]
    columns = f"{column}_qi {kind}, {column}_sa {kind}"
    kanon = create_source(parties.publisher, f"data.{name}", columns, rows)
    kanon.publish(f"data.{name}", name, privacy='{"default": 0.75}')


def required(name: str, constants: list[str]) -> list[str]:
    """What is answered for every type."""
    first, last = constants[0], constants[-1]
    return [
        f"{name} IS NULL",
        f"{name} BETWEEN {first} AND {last}",
        *(f"{name} {operator} {first}" for operator in COMPARISONS),
    ]


def others(name: str, constants: list[str]) -> list[str]:
    return [
        *(
            f"{name} {operator} {constant}"
            for operator in COMPARISONS
            for constant in constants[1:]
        ),
        *(f"{constant} < {name}" for constant in constants),
        f"{name} IN ({', '.join(constants)})",
        f"{name} NOT IN ({', '.join(constants)})",
        f"{name} IN ({constants[0]}, NULL)",
        f"{name} NOT IN ({constants[0]}, NULL)",
        f"{name} = NULL",
        f"{name} NOT BETWEEN {constants[0]} AND {constants[-1]}",
        f"{name} BETWEEN {constants[-1]} AND {constants[0]}",
        f"NOT {name} IS NOT NULL",
        f"NOT {name} = {constants[0]}",
        f"NOT ({name} < {constants[0]} OR {name} IS NULL)",
        f"{name} = {constants[0]} OR NOT {name} = {constants[-1]}",
        f"{name} = 'no such value at all'",
        f"{name} = ''",
        f"{name} = 1",
        f"{name} > 'a'",
        f"{name} = true",
        f"{name} IS TRUE",
        name,
        f"NOT {name}",
        f"{name} = {name}",
        f"{name} IS DISTINCT FROM {constants[0]}",
        f"{name} LIKE 'a%'",
    ]


@pytest.mark.slow("many questions of each type")
@pytest.mark.parametrize("name", long_but({"exact", "day", "words"}, COLUMNS))
def test_as_postgresql_answers(parties: Parties, name: str) -> None:
    """Where PostgreSQL fails, it is refused; where it answers, the answer is the same, or none.

    What need not be answered is asked of one side or the other, by turns.
    """
    publish_typed(parties, name, name)
    kanon, constants = Functions(parties.analyst), COLUMNS[name][-1]
    for place, side in enumerate((f"{name}_qi", f"{name}_sa")):
        needed = required(side, constants)
        for number, condition in enumerate([*needed, *others(side, constants)[place::2]]):
            query = f"SELECT COUNT(*) FROM {name} WHERE {condition}"
            found: list[tuple[float, float, int, int]] = []
            refused = sqlstate_of(lambda: found.append(kanon.estimate(query)))
            if refused:
                assert refused == "0A000", query
                assert condition not in needed
                continue
            n = value(parties.publisher, f"SELECT count(*) FROM data.{name} WHERE {condition}")
            assert found == [(n, 0, n, n)], query
            if number % 5 == 0:
                assert fetch(parties.analyst, kanon.rewrite(query)) == [pytest.approx((n,))], query


def test_type_out_of_reach(parties: Parties) -> None:
    """Where an analyst may not use a column's type, that is what is said."""
    publish_typed(parties, "mood", "moods")
    fetch(parties.admin, "REVOKE USAGE ON SCHEMA types FROM kanon_analyst")
    kanon = Functions(parties.analyst)
    for side in ("mood_qi", "mood_sa"):
        query = f"SELECT COUNT(*) FROM moods WHERE {side}"
        assert sqlstate_of(lambda: kanon.estimate(f"{query} = 'sad'")) == "42501"
        assert kanon.estimate(f"{query} IS NULL")[0] == 20
    fetch(parties.admin, "GRANT USAGE ON SCHEMA types TO kanon_analyst")


def formula(parties: Parties, name: str, records: str, values: str) -> Sequence[float]:
    """Let PostgreSQL count each bucket's matches, and add up."""
    found = fetch(
        parties.admin,
        "SELECT size, matching, asked FROM (SELECT bucket_id, count(*) AS size,"
        f" count(*) FILTER (WHERE {records}) AS matching FROM published.{name}_qit GROUP BY 1) AS q"
        f" JOIN (SELECT bucket_id, coalesce(sum(count) FILTER (WHERE {values}), 0)::int8 AS asked"
        f" FROM published.{name}_sat GROUP BY 1) AS s USING (bucket_id)",
    )
    ((layout, parameters),) = fetch(
        parties.admin,
        "SELECT layout, parameters FROM kanon.publications WHERE name = $1::text", name,
    )  # fmt: skip
    strength = strength_of(layout["strengths"][layout["sensitive"]], records)
    return of_buckets(found, strength=strength, are_drawn_from_all=are_drawn(layout, parameters))


NUMBER = st.sampled_from(["-1", "0", "1", "2", "3.5"])
WORD = st.sampled_from(["''", "'a'", "'b'", "'c'", "'A'"])


def condition(column: str, constant: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """SQL over one column, or several joined: everything that one side may hold."""
    return st.one_of(
        st.builds("{} {} {}".format, st.just(column), st.sampled_from(COMPARISONS), constant),
        st.builds("{} IS NULL".format, st.just(column)),
        st.builds("{} IS NOT NULL".format, st.just(column)),
        st.builds(
            "{} IN ({})".format, st.just(column), st.lists(constant, min_size=1).map(", ".join)
        ),
        st.builds(
            "{} NOT IN ({})".format, st.just(column), st.lists(constant, min_size=1).map(", ".join)
        ),
        st.builds("{} BETWEEN {} AND {}".format, st.just(column), constant, constant),
    )


def combined(plain: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.recursive(
        plain,
        lambda inner: st.one_of(
            st.builds("({} AND {})".format, inner, inner),
            st.builds("({} OR {})".format, inner, inner),
            st.builds("NOT ({})".format, inner),
        ),
        max_leaves=6,
    )


RECORDS = combined(condition("age", NUMBER) | condition("sex", WORD))
VALUES = combined(condition("sick", WORD))


@pytest.fixture(scope="module", params=["anatomy", "two_size", "many values"])
def random_table(request: pytest.FixtureRequest, parties: Parties) -> str:
    """A table with NULLs everywhere; of many values, ages are too many to be learned from."""
    name = str(request.param).replace(" ", "_")
    distinct = 997 if name == "many_values" else 5
    rows = [
        (
            None if i % 11 == 3 else i * 7 % distinct - 1,
            [None, "", "a", "b"][i * i % 7 % 4],
            ["a", "b", "c", "", None][i * 5 % 13 % 5],
        )
        for i in range(997)
    ]
    columns = "age int, sex text, sick text"
    kanon = create_source(parties.publisher, f"data.{name}", columns, rows)
    method = "two_size" if name == "many_values" else name
    privacy = '{"theta": 2, "base": 0.1}'
    kanon.publish(f"data.{name}", name, privacy=privacy, method=method, estimates="paper")
    return name


@pytest.mark.long
@given(records=RECORDS, values=VALUES, way=st.sampled_from(list(WAYS)))
@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_formula(parties: Parties, random_table: str, records: str, values: str, way: str) -> None:
    query = f"SELECT COUNT(*) FROM {random_table} WHERE {records} AND {values}"
    answer = WAYS[way](parties.analyst).estimate(query)
    expected = formula(parties, random_table, records, values)
    assert answer == pytest.approx(expected, rel=1e-9, abs=1e-9)
    ((*shown, _, _),) = fetch(parties.analyst, Functions(parties.analyst).rewrite(query))
    assert tuple(shown) == pytest.approx(answer, rel=1e-9, abs=1e-9)
    truth = f"SELECT count(*) FROM data.{random_table} WHERE {records} AND {values}"
    assert answer[2] <= value(parties.publisher, truth) <= answer[3]


def test_columns_named_as_the_statements_name_theirs(parties: Parties) -> None:
    """A statement groups by its own columns, whatever those of the publication are called."""
    rows = [(i % 3, i % 4, "ab"[i % 2], i % 5) for i in range(240)]
    columns = "k0 int, f0 int, n text, k1 int"
    kanon = create_source(parties.publisher, "data.names", columns, rows)
    kanon.publish("data.names", "names", privacy='{"default": 0.75}')
    analyst = Functions(parties.analyst)
    one_sided = analyst.rewrite("SELECT f0, n, COUNT(*) FROM names GROUP BY f0, n")
    found = fetch(parties.analyst, one_sided)
    truth = fetch(parties.publisher, "SELECT f0, n, count(*) FROM data.names GROUP BY f0, n")
    assert sorted(found) == sorted(truth)
    for condition in ("k1 > 1", "(k0 = 1 OR k1 = 2)", "k1 = f0"):
        query = f"SELECT f0, COUNT(*) FROM names WHERE {condition} GROUP BY f0"
        assert compared(parties.analyst, query) == "equal"


def test_a_statement_tells_only_null_apart_where_values_have_no_equality(parties: Parties) -> None:
    rows = [(min(i, 50) % 7, "ab"[i % 2], [None, "{}"][i % 3 > 0], i % 4) for i in range(60)]
    columns = "age int, sex text, told json, sick int"
    kanon = create_source(
        parties.publisher, "data.told", columns, rows, ["age", "sex"], "sick", insensitive=["told"]
    )
    kanon.call("publish_suppressed", "data.told", "told", k=5)
    for condition in ("told IS NULL", "told IS NOT NULL OR sex = 'a'"):
        query = f"SELECT COUNT(*) FROM told WHERE age < 3 AND ({condition})"
        assert compared(parties.analyst, query) == "equal"


def test_statements_take_what_shares_are_rounded_by_for_no_error(parties: Parties) -> None:
    """Of records that are left out nothing is known, if all others are certain."""
    pieces = SimpleNamespace(blocks=[()], least_unknown=0.0)
    layout = SimpleNamespace(left_out=6)
    own: Any = SimpleNamespace(pieces=pieces, layout=layout, _vary=_RowStatement._vary)
    statement = _RowStatement._estimates(own).sql(dialect="postgres")
    certain = "0 AS squares, 0 AS together, 0 AS deviations_1, 0 AS away_1"
    bounds = "10 AS surely, 10 AS possibly"
    for m in ("10::float8", "10 - 1.8e-15::float8"):
        totals = f"SELECT {m} AS m, 10 AS records, {certain}, {bounds}"
        found = fetch(parties.analyst, f"WITH totals AS ({totals}) {statement}")
        assert [float(x) for x in found[0]] == pytest.approx([16, 3, 10, 16])


QUERY = (
    "SELECT town, COUNT(*) FROM ordered WHERE sick = 'flu' GROUP BY town"
    " ORDER BY COUNT(*) DESC LIMIT 2"
)


def test_a_notice_from_sql_and_python(parties: Parties) -> None:
    rows = [(f"town {i % 5}", ["flu", "cold", "cough"][i * i % 7 % 3]) for i in range(90)]
    kanon = create_source(parties.publisher, "data.ordered", "town text, sick text", rows)
    kanon.publish("data.ordered", "ordered", privacy='{"default": 0.7}')
    with hearing(parties.analyst) as heard:
        fetch(parties.analyst, "SELECT kanon.estimate_counts($1)", QUERY)
        fetch(parties.analyst, "SELECT kanon.estimate_counts($1)", QUERY.partition(" LIMIT")[0])
    untold = [one for one in heard if one.startswith("this publication does not tell count(*)")]
    heard = [one for one in heard if one not in untold]
    assert (len(heard), len(untold)) == (1, 2)
    assert heard[0].startswith("the order of the groups is uncertain")
    told: list[str] = []
    with kanon_db.connect(parties.dsn, on_notice=told.append) as opened:
        opened.count(QUERY)
    assert told == heard
