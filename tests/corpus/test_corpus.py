"""Every query of the corpus: answered as it should be, both ways, or refused for the reason."""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kanon_db.answers import estimates
from kanon_db.answers.estimates import open_query
from kanon_db.errors import KanonError
from kanon_db.session.psycopg_session import PsycopgSession
from tests.corpus.oracle import expected_counts, split
from tests.corpus.tables import COLUMNS, make_tables
from tests.integration.parties import (
    Functions,
    Parties,
    create_table,
    fetch,
    parties,
    sqlstate_of,
)
from tests.meaning.questions import FROM
from tests.meaning.verdict import ask
from tests.profiles import examples, long_but
from tests.rewritten import compared, statement_of

__all__ = ["parties"]


def read(file: str) -> list[list[str]]:
    """Read queries, each with what is expected of it."""
    lines = Path(__file__).with_name(file).read_text(encoding="utf-8").splitlines()
    return [line.rsplit(" -- ", 1) for line in lines]


ANSWERED, REFUSED = read("answered.sql"), read("refused.sql")
QUERIES = [query for query, _ in ANSWERED]
CUT = ("HAVING", "LIMIT", "OFFSET")
"""Groups are cut by their estimates."""


def has(query: str, *words: str) -> bool:
    return any(word in query for word in words)


@pytest.fixture(scope="module", autouse=True)
def tables(parties: Parties) -> None:
    make_tables(parties)


def test_the_corpus_is_large() -> None:
    assert len(ANSWERED) >= 100
    assert len(REFUSED) >= 50


KNOWN: dict[str, list[list[Any]]] = {}
"""Answers that an earlier test asked for."""


def answers(parties: Parties, query: str) -> list[list[Any]]:
    """Each group and aggregate: the group's values, estimate, standard error and bounds."""
    if query not in KNOWN:
        rows = fetch(
            parties.analyst,
            "SELECT group_key, estimate, std_error, lower_bound, upper_bound"
            " FROM kanon.estimate($1::text)",
            query,
        )
        KNOWN[query] = [[round(x, 6) if isinstance(x, float) else x for x in row] for row in rows]
    return KNOWN[query]


def assert_alike(query: str, found: list[list[Any]], wanted: list[list[Any]]) -> None:
    assert [row[0] for row in found] == [row[0] for row in wanted], query
    for one, other in zip(found, wanted, strict=True):
        for number, expected in zip(one[1:], other[1:], strict=True):
            close = None if expected is None else pytest.approx(expected, rel=1e-6, abs=1e-6)
            assert number == close, query


@pytest.mark.slow("the first of its module publishes; every question of the corpus")
def test_answered(parties: Parties) -> None:
    for query, expected in ANSWERED:
        assert_alike(query, answers(parties, query), json.loads(expected))


NO_COUNTS = ("SUM(", "AVG(", "(SELECT ", "/ COUNT(", "F(COUNT(", "MIN(", "MAX(", "percentile_")


def test_counts_follow_from_the_pairs(parties: Parties) -> None:
    """The estimate is that of a random matching; the bounds hold for every matching."""
    of_one_count = [
        query
        for query in QUERIES
        if not has(query, *NO_COUNTS) and not (has(query, "DISTINCT ") and not has(query, " IS "))
    ]
    assert len(of_one_count) > 100
    for query in of_one_count:
        expected = expected_counts(parties.publisher, query)
        found = {json.dumps(list(row[0].values())): row[1:] for row in in_order(parties, query)}
        assert found.keys() <= expected.keys(), query
        assert has(query, *CUT) or found.keys() == expected.keys(), query
        for key, (estimate, std_error, lower, upper) in found.items():
            wanted = expected[key]
            assert estimate == pytest.approx(wanted.estimate, rel=1e-6, abs=1e-6), query
            # Where both sides are asked, it allows for the correlation that a matching ignores.
            assert std_error >= min(wanted.std_error, (upper - lower) / 2) - 1e-6, query
            assert lower <= wanted.fewest <= wanted.most <= upper, query
            # Bounds are loose where both sides are in one comparison, or in both parts of an OR.
            if not has(query, " OR ", "CASE", "= (illness", "FROM (illness"):
                assert (lower, upper) == wanted[2:], query


def in_order(parties: Parties, query: str) -> list[list[Any]]:
    """Answers with each group's values in the order of GROUP BY, which JSON objects lose."""
    session = PsycopgSession(parties.analyst)
    with session.transaction():
        names = [key.name for key in open_query(session, query).query.keys]
    return [[{name: row[0][name] for name in names}, *row[1:]] for row in answers(parties, query)]


def test_bounds_hold_the_truth(parties: Parties) -> None:
    """The source's own answer lies within the bounds, and its groups are all there."""
    n_compared = 0
    for query in QUERIES:
        source = query.replace("published.", "")
        for word in ("FROM", "JOIN"):
            source = source.replace(f" {word} ill", f" {word} data.people AS ill")
        source = source.replace(" FROM paid", " FROM data.people AS paid")
        for name in ("ill", "paid"):
            source = source.replace(f"AS {name} AS ", "AS ")
        if has(query, *CUT):
            continue
        with parties.publisher.cursor() as cursor:
            cursor.execute(source.encode())
            names = [column.name for column in cursor.description or ()]
            truth = cursor.fetchall()
        found: dict[str, list[list[Any]]] = {}
        for row in answers(parties, query):
            found.setdefault(json.dumps(row[0], sort_keys=True), []).append(row)
        n_aggregates = 0 if "SELECT DISTINCT" in query else len(next(iter(found.values())))
        names = names[: len(names) - n_aggregates]
        if "GROUP BY sex" in query and "sex" not in names:
            continue  # the group is not in the select list
        for row in truth:
            key = dict(zip(names, map(_plain, row[: len(names)]), strict=True))
            group = found[json.dumps(key, sort_keys=True)]
            assert n_aggregates or group[0][-1] >= 1, query
            numbers = zip(row[len(names) :], group, strict=n_aggregates > 0)
            for number, (*_, lower, upper) in numbers:
                assert number is None or lower - 1e-9 <= float(number) <= upper + 1e-9, query
        n_compared += 1
    assert n_compared > 150


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | str) else int(value)


@pytest.mark.pitfall(11)
def test_refused(parties: Parties) -> None:
    """Each query that cannot be answered is refused for its reason, with a hint."""
    session, kanon = PsycopgSession(parties.analyst), Functions(parties.analyst)
    for query, reason in REFUSED:
        with pytest.raises(KanonError) as refused, session.transaction():
            estimates.answer(session, query)
        assert reason in refused.value.message, query
        assert refused.value.hint, query
        assert sqlstate_of(lambda: kanon.estimate(query)) in ("0A000", "42704"), query


IMPORTED = """DO LANGUAGE plpython3u $$
import sys
late = ("sqlglot", "numba", "highspy", "pandas", "kanon_db.algorithms.bucketization")
plpy.info(", ".join(name for name in late if name in sys.modules))
$$"""


def test_only_rewriting_imports_a_second_grammar(parties: Parties) -> None:
    """A session's first answer waits for everything that is imported."""
    both = "SELECT COUNT(*) FROM ill WHERE age = 30 AND illness = 'flu'"
    with psycopg.connect(parties.dsn, autocommit=True) as session:
        told: list[tuple[str | None, str | None]] = []
        session.add_notice_handler(lambda one: told.append((one.severity, one.message_primary)))
        for function in ("estimate", "estimate_counts", "rewrite_count"):
            fetch(session, f"SELECT kanon.{function}($1::text)", both)
            fetch(session, IMPORTED)
    assert [message for severity, message in told if severity == "INFO"] == ["", "", "sqlglot"]


@pytest.mark.slow("plans every question of the corpus")
@pytest.mark.pitfall(8, 12)
def test_only_published_relations_and_lookups_are_read(parties: Parties) -> None:
    """The plan of each statement, run with the analyst's rights, names no other relation."""
    for query in QUERIES:
        assert planned(parties, query) <= PUBLISHED | (LOOKUPS if "JOIN" in query else set()), query


rewritten = functools.cache(statement_of)
"""The publications of the corpus stay as they are."""

PUBLISHED = {"ill_qit", "ill_sat", "paid_qit", "paid_sat"}
LOOKUPS = {"regions", "severity"}


def planned(parties: Parties, query: str) -> set[str]:
    """Name what the statement of the paper's estimate reads; nothing where there is none."""
    statement = rewritten(parties.analyst, query, "published")
    if statement is None:
        return set()
    ((plan,),) = fetch(parties.analyst, f"EXPLAIN (FORMAT JSON) {statement}")
    return _relations(plan)


def _relations(plan: Any) -> set[str]:
    if isinstance(plan, dict):
        own = {plan["Relation Name"]} if "Relation Name" in plan else set()
        return own.union(*map(_relations, plan.values()))
    return set().union(*map(_relations, plan)) if isinstance(plan, list) else set()


PIECES = [
    *"( ) , . ; * + - / % = <> and or not null true is in between like case when then else end"
    " group by having order limit join left on using select from where data.secret data.people"
    " published.paid_sat ill paid region age illness".split(),
    *("'x'", "1", "--", "/*", "$1", "::text", "pg_sleep(1)", "(SELECT 1)"),
]


@pytest.mark.pitfall(11)
@given(
    query=st.sampled_from(QUERIES),
    pieces=st.lists(st.tuples(st.sampled_from(PIECES), st.floats(0, 1), st.integers(0, 8)),
                    min_size=1, max_size=3),
)  # fmt: skip
@settings(
    max_examples=examples(200),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_mutated_queries_reach_nothing_else(
    parties: Parties, query: str, pieces: list[tuple[str, float, int]]
) -> None:
    """Whatever becomes of a query: a refusal with a reason, or a plan over what it may read."""
    for piece, place, cut in pieces:
        at = int(place * len(query))
        query = f"{query[:at]} {piece} {query[at + cut :]}"
    refused = sqlstate_of(lambda: answers(parties, query))
    assert refused in (None, "0A000", "42704"), query
    assert refused or planned(parties, query) <= PUBLISHED | LOOKUPS, query


@pytest.mark.slow("every question of the corpus, twice")
def test_a_rewritten_statement_gives_the_estimate(parties: Parties) -> None:
    """One statement over the view, without Python, gives what the paper's estimator gives."""
    outcomes = Counter(compared(parties.analyst, query, rewrite=rewritten) for query in QUERIES)
    print(outcomes)  # shown with -rP
    assert outcomes.keys() <= {"equal", "no statement"}, outcomes
    # MIN, MAX, percentiles and COUNT(DISTINCT ...) of what is not known.
    assert outcomes["equal"] >= 165


HOSTILE = [
    "'; DROP TABLE data.people; --",
    "a\n  b",
    "back\\slash",
    '"quoted" and `ticked`',
    "/* comment */ $1 :p {x}",
    "select",
    "value",
    "Gr\u00f6\u00dfe",
]


@pytest.mark.long
@pytest.mark.pitfall(8)
def test_hostile_names_and_constants_stay_what_they_are(parties: Parties) -> None:
    """In the statement, a name is a name and a constant a constant, whatever they hold."""
    names = [name.replace("\n", " ") for name in HOSTILE]  # others are not registered
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    rows = [(*(HOSTILE[(i + j) % 8] for j in range(8)), f"s{i % 4}") for i in range(40)]
    columns = ", ".join(f"{name} text" for name in quoted)
    create_table(parties.publisher, "data.hostile", f"{columns}, sick text", rows)
    functions = Functions(parties.publisher)
    functions.register("data.hostile", names, "sick")
    functions.call("publish_buckets", "data.hostile", "hostile_b", privacy='{"default": 0.5}')
    for name, constant in zip(quoted, HOSTILE, strict=True):
        literal = "'" + constant.replace("'", "''") + "'"
        where = f"WHERE {name} = {literal} AND sick <> {literal} OR {name} LIKE {literal}"
        for query in (
            f"SELECT COUNT(*) FROM hostile_b {where}",
            f"SELECT {name}, COUNT(*) AS {name} FROM hostile_b WHERE sick = 's1' GROUP BY {name}",
        ):
            outcome = compared(parties.analyst, query)
            assert outcome == "equal", outcome
    assert fetch(parties.publisher, "SELECT count(*) FROM data.people") == [(48,)]


KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "ranged": ("generalized", {"k": 3, "method": "mondrian"}),
    "matched": ("freeform", {"k": 3}),
    "starred": ("suppressed", {"k": 3}),
}
AGGREGATE = re.compile(r"\b(COUNT|SUM|AVG|MIN|MAX|percentile_\w+) ?\(")


@pytest.fixture(scope="module")
def source(parties: Parties) -> Functions:
    """The people of the corpus, to be published as rows."""
    fetch(parties.publisher, "CREATE TABLE data.rows AS TABLE data.people")
    fetch(parties.publisher, "CREATE SCHEMA truth")
    kanon = Functions(parties.publisher)
    kanon.register("data.rows", [*COLUMNS], "illness", insensitive=["cost"])
    return kanon


@pytest.fixture(scope="module", params=long_but([*KINDS][:1], KINDS))
def name(request: pytest.FixtureRequest, parties: Parties, source: Functions) -> str:
    """A publication of rows of each kind, and a view of the same name."""
    kind, options = KINDS[request.param]
    source.call(f"publish_{kind}", "data.rows", request.param, **options)
    fetch(parties.publisher, f"CREATE VIEW truth.{request.param} AS SELECT * FROM data.rows")
    return str(request.param)


def is_one_figure(query: str) -> bool:
    """Whether a query asks for one figure of each group, and shows what the groups are."""
    *keys, last = split(query.partition(" FROM ")[0])
    grouped = split(query.partition(" GROUP BY ")[2].partition(" ORDER BY ")[0])
    return (
        not has(query, *CUT)
        and len(AGGREGATE.findall(last)) == 1
        and not any(map(AGGREGATE.search, keys))
        and len(keys) == len(grouped)
    )


def asked_of(name: str, queries: list[str]) -> Iterator[str]:
    """Ask a publication of rows what was to be asked of buckets."""
    for query in queries:
        moved = re.sub(r"\bFROM (published\.)?(ill|paid)\b", f"FROM {FROM}", query)
        yield re.sub(r"\b(published\.)?(ill|paid)\.", f"{name}.", moved)


@pytest.mark.slow("the first of its module publishes; every question of the corpus")
@pytest.mark.pitfall(48)
def test_bounds_hold_the_truth_of_rows(parties: Parties, name: str) -> None:
    """Questions of the corpus, of rows of each kind."""
    outcomes: Counter[str] = Counter()
    faults = []
    queries = [query for query in QUERIES if is_one_figure(query)]
    assert len(queries) > 100
    for query in asked_of(name, queries):
        found = ask(
            parties.analyst, parties.admin, name, f"truth.{name}", query,
            lists_all=name != "starred",
        )  # fmt: skip
        outcomes[found.outcome] += 1
        faults += [f"{query}: {fault}" for fault in found.faults]
    assert not faults, "\n".join([f"{len(faults)} of {outcomes}", *faults[:20]])
    assert outcomes["answered"] > 0.8 * len(queries), outcomes


@pytest.mark.slow("questions of the corpus, twice")
def test_a_rewritten_statement_gives_the_estimate_of_rows(parties: Parties, name: str) -> None:
    """Of a count that is alone, the error and the bounds, too."""
    queries = [query for query in QUERIES if "COUNT(" in query and "GROUP BY" not in query]
    outcomes: Counter[str] = Counter()
    for query in asked_of(name, queries[::12]):
        outcomes[compared(parties.analyst, query.replace(FROM, name), 5)] += 1
    print(name, outcomes)  # shown with -rP
    assert outcomes.keys() <= {"equal", "refused", "no statement"}, outcomes
    assert outcomes["equal"] >= 8
    for condition in (
        "age > 30",
        "sex = 'f' OR NOT age BETWEEN 20 AND 30",
        "zip = 2 AND illness = 'flu'",
    ):
        one = f"SELECT COUNT(*) FROM {name} WHERE {condition}"
        assert "likely_low" in Functions(parties.analyst).rewrite(one), condition


@pytest.mark.long
@pytest.mark.pitfall(11)
def test_refused_of_rows(parties: Parties, name: str) -> None:
    """What cannot be asked of buckets for its form cannot be asked of rows."""
    kanon = Functions(parties.analyst)
    # Whether arithmetic fails depends on which values are not suppressed.
    forms = [query for query, why in REFUSED if why != "arithmetic fails"]
    asked = [query.replace(FROM, name) for query in asked_of(name, forms)]
    ended = {query: sqlstate_of(lambda: kanon.estimate(query)) for query in asked}
    assert {query for query, state in ended.items() if state not in ("0A000", "42704")} == set()
