"""Every query of the corpus: answered as it should be, both ways, or refused for the reason."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kanon_db.answers import estimates
from kanon_db.errors import KanonError
from kanon_db.session.psycopg_session import PsycopgSession
from tests.corpus.oracle import expected_counts
from tests.corpus.tables import make_tables
from tests.integration.bucket_ways import keep_bitmaps
from tests.integration.parties import Functions, Parties, create_table, fetch, sqlstate_of
from tests.profiles import examples
from tests.rewritten import compared

FOLDER = Path(__file__).parent
ANSWERED = [
    tuple(line.rsplit(" -- ", 1))
    for line in (FOLDER / "answered.sql").read_text(encoding="utf-8").splitlines()
]
REFUSED = [
    tuple(line.rsplit(" -- ", 1))
    for line in (FOLDER / "refused.sql").read_text(encoding="utf-8").splitlines()
]


@pytest.fixture(scope="module", autouse=True)
def tables(parties: Parties) -> None:
    make_tables(parties)


def rounded(row: tuple[Any, ...]) -> list[Any]:
    return [round(x, 6) if isinstance(x, float) else x for x in row]


KNOWN: dict[str, list[list[Any]]] = {}
"""Answers that an earlier test asked for."""


def answers(parties: Parties, query: str) -> list[list[Any]]:
    """Each group and aggregate: the group's values, estimate, standard error and bounds."""
    if query not in KNOWN:
        KNOWN[query] = [
            rounded(row)
            for row in fetch(
                parties.analyst,
                "SELECT group_key, estimate, std_error, lower_bound, upper_bound"
                " FROM kanon.estimate($1::text)",
                query,
            )
        ]
    return KNOWN[query]


def assert_alike(found: list[list[Any]], wanted: list[list[Any]]) -> None:
    assert [row[0] for row in found] == [row[0] for row in wanted]
    for one, other in zip(found, wanted, strict=True):
        for number, expected in zip(one[1:], other[1:], strict=True):
            assert number == (
                None if expected is None else pytest.approx(expected, rel=1e-6, abs=1e-6)
            )


@pytest.mark.parametrize(("query", "expected"), ANSWERED)
def test_answered(
    parties: Parties, query: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = answers(parties, query)
    wanted = json.loads(expected)
    assert_alike(found, wanted)
    # The same without bitmaps, from what statements count and join.
    keep_bitmaps(monkeypatch, of_sensitive=False)
    session = PsycopgSession(parties.analyst)
    with session.transaction():
        answer = estimates.answer(session, query)
    without_bitmaps = [
        [json.loads(group.key), estimated.estimate, estimated.std_error, estimated.lower_bound,
         estimated.upper_bound]
        for group in answer.groups
        for place, _ in answer.shown
        for estimated in (group.estimates[place],)
    ]  # fmt: skip
    assert_alike(without_bitmaps, wanted)


@pytest.mark.parametrize(
    "query",  # those of one count, as the oracle reads them
    [
        query
        for query, _ in ANSWERED
        if not any(
            word in query
            for word in (
                "SUM(",
                "AVG(",
                "(SELECT ",
                "/ COUNT(",
                "F(COUNT(",
                "DISTINCT ",
                "MIN(",
                "MAX(",
                "percentile_",
            )
            if word != "DISTINCT " or " IS " not in query
        )  # not the oracle's
    ],
)
def test_counts_follow_from_the_pairs(parties: Parties, query: str) -> None:
    """The estimate is that of a random matching; the bounds hold for every matching."""
    expected = expected_counts(parties.publisher, query)
    found = {json.dumps(list(row[0].values())): row[1:] for row in in_order(parties, query)}
    is_cut = any(word in query for word in ("HAVING", "LIMIT", "OFFSET"))
    assert found.keys() <= expected.keys() if is_cut else found.keys() == expected.keys()
    for key, (estimate, std_error, lower, upper) in found.items():
        wanted = expected[key]
        assert estimate == pytest.approx(wanted.estimate, rel=1e-6, abs=1e-6)
        # Where both sides are asked, it allows for the correlation that a matching ignores.
        assert std_error >= min(wanted.std_error, (upper - lower) / 2) - 1e-6
        assert lower <= wanted.fewest <= wanted.most <= upper
        # Bounds are loose where both sides stand in one comparison, or in both parts of an OR.
        if not any(word in query for word in (" OR ", "CASE", "= (illness", "FROM (illness")):
            assert (lower, upper) == wanted[2:]


def in_order(parties: Parties, query: str) -> list[list[Any]]:
    """Answers with each group's values in the order of GROUP BY, which JSON objects lose."""
    from kanon_db.answers.scope import open_query

    session = PsycopgSession(parties.analyst)
    with session.transaction():
        names = [key.name for key in open_query(session, query).query.keys]
    return [[{name: row[0][name] for name in names}, *row[1:]] for row in answers(parties, query)]


@pytest.mark.parametrize("query", [query for query, _ in ANSWERED])
def test_bounds_hold_the_truth(parties: Parties, query: str) -> None:
    """The source's own answer lies within the bounds, and its groups are all there."""
    source = query.replace("published.", "").replace(" FROM ill", " FROM data.people AS ill")
    source = source.replace(" FROM paid", " FROM data.people AS paid")
    for name in ("ill", "paid"):
        source = source.replace(f"AS {name} AS ", "AS ")
    if any(word in query for word in ("HAVING", "LIMIT", "OFFSET")):
        pytest.skip("groups are cut by their estimates")
    with parties.publisher.cursor() as cursor:
        cursor.execute(source.encode())
        names = [column.name for column in cursor.description or ()]
        truth = cursor.fetchall()
    found: dict[str, list[list[Any]]] = {}
    for row in answers(parties, query):
        found.setdefault(json.dumps(row[0], sort_keys=True), []).append(row)
    n_aggregates = 0 if "SELECT DISTINCT" in query else len(next(iter(found.values())))
    names = names[: len(names) - n_aggregates]
    for row in truth:
        key = dict(zip(names, map(_plain, row[: len(names)]), strict=True))
        if "GROUP BY sex" in query and "sex" not in names:
            pytest.skip("the group is not in the select list")
        group = found[json.dumps(key, sort_keys=True)]
        assert n_aggregates or group[0][-1] >= 1
        for number, (*_, lower, upper) in zip(row[len(names) :], group, strict=n_aggregates > 0):
            assert number is None or lower - 1e-9 <= float(number) <= upper + 1e-9


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | str) else int(value)


@pytest.mark.pitfall(11)
@pytest.mark.parametrize(("query", "reason"), REFUSED)
def test_refused(parties: Parties, query: str, reason: str) -> None:
    """Each query that cannot be answered is refused for its reason, with a hint."""
    session = PsycopgSession(parties.analyst)
    with pytest.raises(KanonError) as refused, session.transaction():
        estimates.answer(session, query)
    assert reason in refused.value.message
    assert refused.value.hint
    by_function = sqlstate_of(lambda: Functions(parties.analyst).estimate(query))
    assert by_function in ("0A000", "42704")


@pytest.mark.pitfall(8, 12)
@pytest.mark.parametrize("query", [query for query, _ in ANSWERED])
def test_only_published_relations_and_lookups_are_read(parties: Parties, query: str) -> None:
    """The plan of each statement, run with the analyst's rights, names no other relation."""
    allowed = {"ill_qit", "ill_sat", "paid_qit", "paid_sat"}
    if "JOIN" in query:
        allowed |= {"regions", "severity"}
    for statement in rewritten(parties, query):
        ((plan,),) = fetch(parties.analyst, f"EXPLAIN (FORMAT JSON) {statement}")
        assert _relations(plan) <= allowed


def rewritten(parties: Parties, query: str) -> list[str]:
    """The statement that gives the paper's estimate, if there is one."""
    found: list[str] = []
    refused = sqlstate_of(lambda: found.append(Functions(parties.analyst).rewrite(query)))
    assert refused in (None, "0A000")
    return found


def _relations(plan: Any) -> set[str]:
    if isinstance(plan, dict):
        own = {plan["Relation Name"]} if "Relation Name" in plan else set()
        return own.union(*map(_relations, plan.values()))
    return set().union(*map(_relations, plan)) if isinstance(plan, list) else set()


def test_the_corpus_is_large() -> None:
    assert len(ANSWERED) >= 100
    assert len(REFUSED) >= 50


PIECES = [
    *"( ) , . ; * + - / % = <> and or not null true is in between like case when then else end"
    " group by having order limit join left on using select from where data.secret data.people"
    " published.paid_sat ill paid region age illness".split(),
    *("'x'", "1", "--", "/*", "$1", "::text", "pg_sleep(1)", "(SELECT 1)"),
]


@pytest.mark.pitfall(11)
@given(
    query=st.sampled_from([query for query, _ in ANSWERED]),
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
    for statement in [] if refused else rewritten(parties, query):
        ((plan,),) = fetch(parties.analyst, f"EXPLAIN (FORMAT JSON) {statement}")
        assert _relations(plan) <= {"ill_qit", "ill_sat", "paid_qit", "paid_sat", "regions",
                                    "severity"}  # fmt: skip


def test_a_rewritten_statement_gives_the_estimate(parties: Parties) -> None:
    """One statement over the view, without Python, gives what the paper's estimator gives."""
    outcomes = Counter(compared(parties.analyst, query) for query, _ in ANSWERED)
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
