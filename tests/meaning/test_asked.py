"""What people and their tools ask is answered with the truth inside, or with the line to write."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from tests.integration.parties import Functions, Parties, fetch, parties, quoted, sqlstate_of
from tests.meaning.asked import ASKED, FIRST, HINTS, Asked, AskedFirst
from tests.meaning.tables import EXACT
from tests.profiles import long_but
from tests.rewritten import compared

__all__ = ["parties"]

N_RECORDS = 400
REFUSED = "0A000"
OF_SIXTY = 52
"""How many of sixty questions are answered, at least."""

_PEOPLE = f"""
CREATE TABLE {EXACT}.people AS
SELECT 18 + (i * 37) % 71 AS age, (ARRAY['f', 'm'])[1 + i % 2] AS sex,
  (ARRAY['asian', 'black', 'white', 'White ', NULL])[1 + (i / 3) % 5] AS race,
  round((15000 + (i * 7919) % 45000)::numeric, 2) AS income,
  DATE '1940-01-01' + (i * 131) % 20000 AS born,
  TIMESTAMP '2021-01-01' + (i * 17) % 300 * interval '12 hours' AS seen,
  (ARRAY['flu', 'Flu', 'asthma', 'cancer', 'none', NULL])[1 + (i * i + i / 7) % 6] AS dx
FROM generate_series(1, {N_RECORDS}) AS i
"""
PUBLICATIONS = ("people_b", "people_k")
_LIMIT = re.compile(
    r"\s+(LIMIT \d+( OFFSET \d+)?|FETCH (FIRST|NEXT) \d+ ROWS ONLY);?\s*$", re.IGNORECASE
)


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    fetch(parties.publisher, f"CREATE SCHEMA {EXACT}")
    fetch(parties.publisher, _PEOPLE)
    known = ("age", "sex", "race", "income", "born", "seen")
    Functions(parties.publisher).register(f"{EXACT}.people", known, "dx")
    privacy = '{"default": 0.7, "null": 0.9}'
    call = Functions(parties.publisher).call
    call("publish_buckets", f"{EXACT}.people", "people_b", privacy=privacy)
    call("publish_generalized", f"{EXACT}.people", "people_k", k=4, method="mondrian")


def asked_of(publication: str, question: str, table: str = "people") -> str:
    """Name the publication, where it stands as a relation or qualifies a column."""
    return re.sub(rf"""(?<="){table}(?=")|(?<!["'])\b{table}\b(?![:'])""", publication, question)


def truth(parties: Parties, question: str) -> list[tuple[dict[str, Any], list[Any]]]:
    """Ask the source: each row as it is printed, and as Python reads its numbers."""
    asked = question.replace('"published"', f'"{EXACT}"').replace("published.", f"{EXACT}.")
    asked = _LIMIT.sub("", asked.replace('"db".', "").rstrip().removesuffix(";"))
    fetch(parties.admin, f"SET search_path = {EXACT}, pg_catalog")
    rows = fetch(parties.admin, f"SELECT row_to_json(q)::text FROM ({asked}\n) AS q")
    return [json.loads(row) for (row,) in rows]


def faults_of(
    parties: Parties, publication: str, question: str, table: str = "people"
) -> list[str]:
    """Ask a publication and its source, and say what is false."""
    answers = fetch(
        parties.analyst,
        "SELECT group_key::text, aggregate, estimate, lower_bound, upper_bound"
        " FROM kanon.estimate($1::text)",
        asked_of(publication, question, table).replace('"db"', quoted(parties.analyst.info.dbname)),
    )
    rows = truth(parties, question)
    names = set(json.loads(answers[0][0])) & set(rows[0]) if answers and rows else set()
    found: dict[str, list[tuple[Any, ...]]] = {}
    for written, *figures in answers:
        of_group = json.loads(written)
        found.setdefault(_key({name: of_group[name] for name in names}), []).append(tuple(figures))
    faults = [] if answers or not rows else ["no rows"]
    is_cut = bool(_LIMIT.search(question)) or "having" in question.lower()
    for row in rows:
        key = _key({name: value for name, value in row.items() if name in names})
        true: list[Any] = []
        for name, value in row.items():
            if name not in names:
                true += value if isinstance(value, list) else [value]
        if key not in found:
            if not is_cut and (any(true) or not true):
                faults.append(f"{key} is missing")
            continue
        if not true:  # values are listed
            faults += [f"{key} is there" for (_, _, _, high) in found[key] if high < 1]
            continue
        n = len(true)
        groups = [found[key][at : at + n] for at in range(0, len(found[key]), n)]
        assert all(len(group) == n for group in groups), (true, found[key])
        # Groups whose keys are not selected cannot be told apart.
        faults += min((_compare(key, true, group) for group in groups), key=len)
    return faults


def _compare(key: str, true: list[Any], answers: list[tuple[Any, ...]]) -> list[str]:
    """Say which answers of a group are false."""
    faults = []
    for printed, (aggregate, estimate, low, high) in zip(true, answers, strict=True):
        if printed is None:
            continue
        number = _seconds(printed) if isinstance(printed, str) else printed
        slack = 1e-6 * max(1.0, abs(number))
        if low is not None and low > number + slack:
            faults.append(f"{key} {aggregate}: at least {low}, but {number} is true")
        if high is not None and high < number - slack:
            faults.append(f"{key} {aggregate}: at most {high}, but {number} is true")
        if estimate is None:
            faults.append(f"{key} {aggregate}: no estimate of {number}")
    return faults


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp()


def _key(key: dict[str, Any]) -> str:
    def plain(value: Any) -> str:
        return f"{float(value):g}" if isinstance(value, int | float) else str(value)

    return json.dumps(sorted((name, plain(value)) for name, value in key.items()))


@pytest.mark.parametrize("publication", long_but({"people_b"}, PUBLICATIONS))
@pytest.mark.parametrize(
    "asked", ASKED + HINTS, ids=lambda asked: f"{asked.tool}: {asked.question[:60]}"
)
def test_a_question_is_answered_or_refused_with_the_line_to_write(
    parties: Parties, publication: str, asked: Asked
) -> None:
    if not asked.hint or (asked.is_of_ranges and publication == "people_b"):
        assert faults_of(parties, publication, asked.question) == []
        return
    with pytest.raises(psycopg.Error) as caught:
        faults_of(parties, publication, asked.question)
    assert caught.value.sqlstate == REFUSED
    assert asked.hint in (caught.value.diag.message_hint or "")
    for line in asked.instead:
        assert faults_of(parties, publication, line) == []


@pytest.mark.parametrize("publication", PUBLICATIONS)
@pytest.mark.parametrize("asked", FIRST, ids=lambda asked: asked.question[:40])
def test_a_subquery_is_answered_first(
    parties: Parties, publication: str, asked: AskedFirst
) -> None:
    """Its rows by the estimates stand in the question as constants, of which the truth is."""
    ask = "SELECT group_key::text, estimate, lower_bound, upper_bound FROM kanon.estimate($1)"

    def answers(question: str) -> list[tuple[Any, ...]]:
        return sorted(fetch(parties.analyst, ask, asked_of(publication, question)))

    own = [json.loads(key).values() for key, *_ in answers(asked.subquery)]
    values = [f"'{value}'" for (value,) in own if value is not None]
    meant = asked.meant.format(asked.condition.format(", ".join(values)))
    found = answers(asked.question.replace("{}", asked.subquery).replace("IN (SELECT", "IN(SELECT"))
    assert found == answers(meant) != []
    assert faults_of(parties, publication, meant) == []


@pytest.mark.parametrize("publication", PUBLICATIONS)
def test_null_in_a_row_of_a_subquery_is_unknown(parties: Parties, publication: str) -> None:
    rows = "SELECT sex, NULLIF(race, race) FROM people GROUP BY 1, 2"
    asked = f"SELECT COUNT(*) AS n FROM people WHERE (sex, race) NOT IN ({rows})"
    assert faults_of(parties, publication, asked) == []


PARAMETERS = (
    ("age > $2 AND dx = $1", ["flu", 30], "age > 30 AND dx = 'flu'"),
    ("age>? AND income<=?", [30, 30000.25], "age > 30 AND income <= 30000.25"),
    ("age-%s>%s AND dx=%s", [-3, 30, "flu"], "age - -3 > 30 AND dx = 'flu'"),
    ("race IN %(r)s AND age %2 = :n", {"r": ["asian", "black"], "n": 1},
     "race IN ('asian', 'black') AND age % 2 = 1"),
    ("race = ANY(:r) OR born>=:d::date", {"r": ["white"], "d": "1990-01-01"},
     "race = 'white' OR born >= DATE '1990-01-01'"),
    ("sex LIKE $1 OR (dx IS NULL) = $2", ["f%", True], "sex LIKE 'f%' OR (dx IS NULL) = TRUE"),
    ("coalesce(dx, $1) = 'x' OR age IN ($2, $2)", [None, 40],
     "coalesce(dx, NULL) = 'x' OR age = 40"),
)  # fmt: skip


@pytest.mark.parametrize(("condition", "values", "meant"), PARAMETERS)
def test_parameters_are_constants(
    parties: Parties, condition: str, values: Any, meant: str
) -> None:
    ask = "SELECT * FROM kanon.estimate($1, params => $2::text::jsonb)"
    count = "SELECT sex, COUNT(*), SUM(age) FROM people_b WHERE {} GROUP BY sex"
    found = fetch(parties.analyst, ask, count.format(condition), json.dumps(values))
    assert found == fetch(parties.analyst, ask, count.format(meant), None)


@pytest.mark.parametrize(
    ("condition", "values"),
    [
        ("age > $1", []), ("age > $2", [1]), ("age > $0", [1]), ("age > $1", [1, 2]),
        ("age > :x", {"y": 1}), ("age > :x", [1]), ("age > $1", {"x": 1}), ("age IN $1", [[]]),
        ("age > $1", [{"x": 1}]), ("age > $1", [[[1]]]), ("race = $1", ["\u0001" * 100_001]),
    ],
)  # fmt: skip
def test_parameters_without_a_value_are_refused(
    parties: Parties, condition: str, values: Any
) -> None:
    ask = "SELECT * FROM kanon.estimate($1, params => $2::text::jsonb)"
    query = f"SELECT COUNT(*) FROM people_b WHERE {condition}"
    assert sqlstate_of(lambda: fetch(parties.analyst, ask, query, json.dumps(values))) == REFUSED


OF_SOURCE = f"SELECT sex, COUNT(*) FROM {EXACT}.people WHERE people.dx = 'flu' GROUP BY sex"


def test_a_source_is_asked_through_its_publication(parties: Parties) -> None:
    """Who asks the table that they may not read is told which publication of it they may ask."""
    for query in (OF_SOURCE, OF_SOURCE.replace(f"{EXACT}.people", "people")):
        with pytest.raises(psycopg.Error) as caught:
            fetch(parties.analyst, "SELECT * FROM kanon.estimate($1)", query)
        hint = caught.value.diag.message_hint or ""
        assert caught.value.sqlstate == REFUSED
        assert all(f"{name}" in hint for name in PUBLICATIONS)
        first = re.search(r"publication => '(\w+)'", hint)
        assert first
        for name in {first[1], *PUBLICATIONS}:
            found = fetch(
                parties.analyst, "SELECT * FROM kanon.estimate($1, publication => $2)", query, name
            )
            own = asked_of(name, OF_SOURCE.replace(f"{EXACT}.", ""))
            assert found == fetch(parties.analyst, "SELECT * FROM kanon.estimate($1)", own)


def test_a_source_whose_publications_are_not_ones_own_is_as_one_that_is_not_there(
    parties: Parties,
) -> None:
    fetch(parties.publisher, f"CREATE TABLE {EXACT}.hidden AS TABLE {EXACT}.people")
    functions = Functions(parties.publisher)
    functions.register(f"{EXACT}.hidden", ("age", "sex"), "dx")
    privacy = '{"default": 0.7, "null": 0.9}'
    functions.call("publish_buckets", f"{EXACT}.hidden", "hidden_b", privacy=privacy, readers=[])

    def refusal(relation: str, publication: str | None) -> tuple[Any, ...]:
        with pytest.raises(psycopg.Error) as caught:
            fetch(
                parties.analyst, "SELECT * FROM kanon.estimate($1, publication => $2)",
                f"SELECT COUNT(*) FROM {relation}", publication,
            )  # fmt: skip
        told = caught.value.diag
        detail = (told.message_detail or "").replace(publication or relation, "it")
        return caught.value.sqlstate, told.message_primary, detail, told.message_hint

    for name in ("hidden", f"{EXACT}.hidden"):
        assert refusal(name, None) == refusal(name.replace("hidden", "nothing"), None)
        assert refusal(name, "hidden_b") == refusal(name, "nothing_b")
        assert refusal(name, "people_b") == refusal(name.replace("hidden", "nothing"), "people_b")


@pytest.mark.long
@pytest.mark.parametrize("estimator", ["published", "paper"])
@pytest.mark.parametrize("publication", PUBLICATIONS)
def test_statements_of_what_is_asked(parties: Parties, publication: str, estimator: str) -> None:
    """The statement of an answered question gives the engine's estimate, functions and all."""
    outcomes: Counter[str] = Counter()
    for asked in ASKED:
        question = asked_of(publication, asked.question)
        outcomes[compared(parties.analyst, question, 2, estimator)] += 1
    print(publication, dict(outcomes))  # shown with -rP
    assert outcomes.keys() <= {"equal", "refused", "no statement", "too long"}, outcomes
    assert outcomes["equal"] > len(ASKED) / 2


def test_most_questions_are_answered() -> None:
    tools = Counter(asked.tool for asked in ASKED)
    of_buckets = sum(not asked.hint or asked.is_of_ranges for asked in ASKED)
    of_ranges = sum(not asked.hint for asked in ASKED)
    print(f"of {len(ASKED)}, {of_buckets} are answered on buckets, {of_ranges} on rows")  # -rP
    assert of_buckets >= of_ranges >= len(ASKED) * OF_SIXTY / 60
    assert min(tools.values()) >= 10
    assert all(asked.instead for asked in ASKED + HINTS if asked.hint)
