"""Certain bounds contain the truth, whatever is asked; and all ways to an answer give the same."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from kanon_db.answers.estimates import AnswerRow, answer
from kanon_db.answers.rows import stored_types
from kanon_db.answers.rows.type_totals import Totals
from kanon_db.errors import KanonError
from kanon_db.session.psycopg_session import PsycopgSession
from tests.integration.parties import Functions, Parties, fetch, parties, sqlstate_of
from tests.meaning.questions import FROM, FunctionQuestions, Questions
from tests.meaning.tables import (
    SCHEMA,
    TABLES,
    WAYS,
    WITHOUT_SOME_VALUES,
    make_tables,
    publish,
    ways_of,
)
from tests.meaning.verdict import Verdict, ask
from tests.profiles import examples, long_but
from tests.rewritten import compared

__all__ = ["parties"]

N_RECORDS = 250
N_QUESTIONS = examples(40)

PAIRS = [(way, table) for table in TABLES for way in ways_of(table)]
OF_KINDS = ("cells", "mondrian", "freeform", "suppressed")
FAST = {pair for pair in PAIRS if pair[0] in OF_KINDS} | {
    ("random", "mixed"), ("random", "exact"), ("classes", "exact"), ("joined", "exact"),
}  # fmt: skip
"""Each kind of every table, and each way of one; other ways of the same kinds answer alike."""
REWRITTEN = {
    ("cells", "mixed"), ("mondrian", "exact"), ("mondrian", "coarse"), ("freeform", "labelled"),
    ("suppressed", "sparse"),
}  # fmt: skip
"""Buckets, ranges, bins, labels and stars."""

of_kinds = pytest.mark.parametrize("way", long_but(OF_KINDS, ways_of("mixed")))
of_tables = pytest.mark.parametrize(("way", "table"), long_but(FAST, PAIRS))


@pytest.fixture(scope="module", autouse=True)
def tables(parties: Parties) -> None:
    fetch(parties.admin, "CREATE EXTENSION citext SCHEMA public")
    make_tables(parties.publisher, N_RECORDS)


def drawn(parties: Parties, way: str, table: str, seed: int) -> list[str]:
    """Publish a table, and draw questions about it."""
    publish(parties.publisher, way, table)
    questions = Questions(parties.publisher, *TABLES[table], seed=seed)
    return [questions.question() for _ in range(N_QUESTIONS)]


FUNCTIONS = [(way, table) for way in OF_KINDS for table in ("mixed", "exact")]


@pytest.mark.parametrize(("way", "table"), long_but(FUNCTIONS[::3], FUNCTIONS))
def test_functions_of_values(parties: Parties, way: str, table: str) -> None:
    """They are calculated for each value that a cell may stand for, as on the source."""
    publish(parties.publisher, way, table)
    questions = FunctionQuestions(parties.publisher, *TABLES[table], seed=43)
    outcomes: Counter[str] = Counter()
    faults = []
    for _ in range(N_QUESTIONS):
        found = judged(parties, way, table, questions.question())
        outcomes[found.outcome] += 1
        faults += [f"{found.question}: {fault}" for fault in found.faults]
    print(way, table, dict(outcomes))  # shown with -rP
    assert not faults, "\n".join([f"{len(faults)} of {outcomes}", *faults[:20]])
    assert outcomes["answered"] > N_QUESTIONS / 6, outcomes  # some columns are all suppressed


def judged(parties: Parties, way: str, table: str, question: str) -> Verdict:
    """Ask a publication and its source."""
    publish(parties.publisher, way, table)
    return ask(
        parties.analyst, parties.admin, f"{way}_{table}", f"{SCHEMA}.{table}", question,
        lists_all=way not in WITHOUT_SOME_VALUES,
    )  # fmt: skip


@of_tables
def test_certain_means_certain(parties: Parties, way: str, table: str) -> None:
    outcomes: Counter[str] = Counter()
    faults = []
    for question in drawn(parties, way, table, seed=15):
        found = judged(parties, way, table, question)
        outcomes[found.outcome] += 1
        faults += [f"{found.question}: {fault}" for fault in found.faults]
    assert not faults, "\n".join([f"{len(faults)} of {outcomes}", *faults[:20]])
    assert outcomes["answered"] > N_QUESTIONS / 6, outcomes  # some columns are all suppressed


ONCE_WRONG = (
    "SELECT grade, AVG(hours) FROM {publication} WHERE hours IS NOT NULL OR hours > 9 GROUP BY 1",
    "SELECT age, MIN(age) FROM {publication} WHERE sick > '' GROUP BY age",
    "SELECT grade, MIN(hours) FROM {publication} WHERE age < hours AND sick < region GROUP BY 1",
    "SELECT COUNT(*) FROM {publication} WHERE born <> TIMESTAMP '1988-07-28 06:30' AND age < hours",
    "SELECT corr(0, length(region)) FROM {publication} WHERE region > 'region a'",
)
"""Questions that failed, or took very long."""

STATISTICS = (
    "stddev(hours)", "var_pop(age)", "stddev_samp(age) FILTER (WHERE sick > 'c')",
    "corr(hours, age)", "corr(age, CASE WHEN sick > 'illness 4' THEN hours ELSE 3 END)",
)  # fmt: skip


@of_kinds
def test_what_was_wrong(parties: Parties, way: str) -> None:
    for question in ONCE_WRONG:
        assert judged(parties, way, "mixed", question).faults == []


@of_kinds
def test_statistics(parties: Parties, way: str) -> None:
    for statistic in STATISTICS:
        asked = f"SELECT grade, {statistic} FROM {FROM} GROUP BY grade"
        found = judged(parties, way, "mixed", asked)
        assert (found.outcome, found.faults) == ("answered", [])

    def estimates(query: str) -> list[float | None]:
        found = fetch(parties.analyst, "SELECT estimate FROM kanon.estimate($1::text)", query)
        return [estimate for (estimate,) in found]

    listed = f"SELECT grade, stddev(hours) FROM {way}_mixed GROUP BY grade"
    groups = estimates(listed)
    chosen = estimates(f"{listed} HAVING stddev(hours) >= 0 ORDER BY stddev(hours) DESC")
    assert chosen == sorted(filter(lambda one: one is not None, groups), reverse=True)
    assert sqlstate_of(lambda: Functions(parties.analyst).rewrite(listed)) == "0A000"
    distinct = f"SELECT variance(DISTINCT hours) FROM {way}_mixed"
    assert sqlstate_of(lambda: estimates(distinct)) == "0A000"


EXACTLY_WRONG = (
    (
        "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY wage) FROM {publication}"
        " WHERE NOT ((wage IS NOT NULL AND zip NOT BETWEEN '013' AND '0034') AND level > '0.0')"
    ),
    (
        "SELECT percentile_disc(0.1) WITHIN GROUP (ORDER BY level) FROM {publication} WHERE NOT"
        " (CASE WHEN score > 0 THEN 1 ELSE 0 END = 1 AND level IS NOT NULL)"
    ),
    (
        "SELECT wage, zip, (SUM(level) - 1.5) / COUNT(*) FROM {publication}"
        " WHERE NOT ((code < 'c4') IS UNKNOWN AND level IS NOT NULL) GROUP BY wage, zip"
    ),
    (
        "SELECT AVG(CAST(level AS numeric)) FROM {publication} WHERE NOT (((score = 1) IS TRUE"
        " AND big IS NOT DISTINCT FROM 3000000037) AND (level IS NOT NULL"
        " AND (big > '3000000016')::int = 1) AND wage IN (4888.84, 1402, 2238.90))"
    ),
)
"""Questions that sum and compare a column of which cells are suppressed; they failed."""


def test_sums_of_what_is_compared(parties: Parties) -> None:
    for way in ("suppressed", "joined"):
        for question in EXACTLY_WRONG:
            assert judged(parties, way, "exact", question).faults == [], way


@pytest.mark.long
@pytest.mark.parametrize("way", ["mondrian", "classes", "freeform"])
def test_ends_of_ranges_of_reals(parties: Parties, way: str) -> None:
    """171.9 is greater than the number of single precision that is written so."""
    publish(parties.publisher, way, "exact")
    ends = fetch(
        parties.admin,
        f"SELECT DISTINCT e FROM published.{way}_exact, unnest(ARRAY[lower(height), upper(height)])"
        " AS e WHERE e::real::float8 <> e::float8 ORDER BY e LIMIT 12",
    )
    assert len(ends) == 12
    for condition in ("NOT height < {}", "height < {}", "height > {}", "height = {}::real"):
        for (end,) in ends[::3]:
            asked = f"SELECT cost, COUNT(*) FROM {FROM} WHERE {condition.format(end)} GROUP BY cost"
            assert judged(parties, way, "exact", asked).faults == []


@pytest.mark.parametrize(("way", "table"), long_but(REWRITTEN, PAIRS))
def test_a_rewritten_statement_gives_the_estimate(parties: Parties, way: str, table: str) -> None:
    outcomes: Counter[str] = Counter()
    for question in drawn(parties, way, table, seed=15):
        outcomes[
            compared(parties.analyst, question.replace(FROM, f"{way}_{table}"), seconds=1)
        ] += 1
    print(way, table, dict(outcomes))  # shown with -rP
    assert outcomes.keys() <= {"equal", "refused", "no statement", "too long"}, outcomes


Answers = list[AnswerRow] | str


def answered(parties: Parties, question: str, *settings: str) -> Answers:
    """Answer from this process, or say why not."""
    session = PsycopgSession(parties.analyst)
    try:
        with session.transaction():
            for setting in ("statement_timeout = '60s'", *settings):
                session.fetch(f"SET LOCAL {setting}")
            return answer(session, question).rows
    except KanonError as error:
        return error.message


def differing(one: Answers, other: Answers, *names: str) -> str | None:
    """Say in which of the figures two answers differ."""
    if isinstance(one, str) or isinstance(other, str):
        return None if one == other else f"{one} / {other}"
    places = [[(row.group_key, row.aggregate) for row in rows] for rows in (one, other)]
    if places[0] != places[1]:
        return f"{len(one)} and {len(other)} groups, or in another order"
    for row, wanted in zip(one, other, strict=True):
        for name in names:
            found, expected = getattr(row, name), getattr(wanted, name)
            if (found is None) != (expected is None):
                return f"{row.aggregate}, {name}: {found} / {expected}"
            # Extremes are searched for, from the first group on; groups have no order.
            is_searched = row.aggregate.startswith(("min", "max", "percentile"))
            if found is None or (name == "std_error" and is_searched):
                continue
            # Errors are roots of differences, of numbers as large as the squares of values.
            slack = 1e-4 + 1e-8 * abs(row.estimate or 0) if name == "std_error" else 1e-6
            if not math.isclose(found, expected, rel_tol=1e-6, abs_tol=slack):
                return f"{row.aggregate}, {name}: {found} / {expected}"
    return None


FIGURES = ("estimate", "lower_bound", "upper_bound")


@pytest.mark.parametrize(
    ("way", "table"),
    long_but(
        {("mondrian", "mixed"), ("suppressed", "exact")},
        [pair for pair in PAIRS if WAYS[pair[0]][0] != "buckets"],
    ),
)
def test_many_values_are_answered_as_few(
    parties: Parties, way: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values are tried where they are met, conditions chunk by chunk, and chunks are divided."""
    asked = [one.replace(FROM, f"{way}_{table}") for one in drawn(parties, way, table, seed=29)]
    wanted = [answered(parties, question) for question in asked]
    for name, limit in (("_FEW", 1), ("MOST_COMBINED", 1), ("_COLUMN_BYTES", 1 << 40)):
        monkeypatch.setattr(stored_types, name, limit)
    faults = {}
    for question, expected in zip(asked, wanted, strict=True):
        fault = differing(answered(parties, question), expected, *FIGURES, "std_error")
        if fault is not None:
            faults[question] = fault
    assert faults == {}


def test_averages_for_which_there_is_no_room(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What their errors follow from is counted once more, where it cannot be kept."""
    for way in OF_KINDS[1:]:
        publish(parties.publisher, way, "mixed")
        question = f"SELECT region, AVG(hours) FROM {way}_mixed WHERE age > 30 GROUP BY region"
        wanted = answered(parties, question)
        with monkeypatch.context() as patch:
            patch.setattr(Totals, "_keep", lambda self, _: setattr(self, "_kept", None))
            found = answered(parties, question)
        assert differing(found, wanted, *FIGURES, "std_error") is None, way
