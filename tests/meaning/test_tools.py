"""How much of what tools and analysts send is answered, with the truth in its bounds.

``pytest -rP tests/meaning/test_tools.py`` prints it.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from pathlib import Path

import pandas as pd
import psycopg
import pytest

from tests.integration.parties import Parties, create_source, fetch, parties
from tests.meaning.asked import read_questions
from tests.meaning.tables import EXACT
from tests.meaning.test_asked import faults_of, truth

__all__ = ["parties"]

N_RECORDS = 2_000
REFUSED = "0A000"
KNOWN = (
    "age", "workclass", "education", "education_num", "occupation", "race", "sex", "capital_gain",
    "hours_per_week", "native_country", "born", "seen",
)  # fmt: skip
COLUMNS = (
    "id int, age int, workclass text, education text, education_num int, occupation text,"
    " race text, sex text, capital_gain int, hours_per_week int, native_country text, born date,"
    " seen timestamp, income text"
)
LEAST_ANSWERED = {"adult_b": 393, "adult_k": 385}
"""How many questions are answered on each publication, at least."""

FOLLOWED = {
    "SELECT DISTINCT lists values": "SELECT DISTINCT education, income FROM adult",
    "write COUNT(*), or SELECT DISTINCT and the names of columns":
        "SELECT DISTINCT age, income FROM adult WHERE age > 60",
    "ask SELECT COUNT(*) FROM <publication>":
        "SELECT COUNT(*) FROM adult WHERE capital_gain + 1 > 1000",
    "write AVG(a * b) - AVG(a) * AVG(b) for the covariance":
        "SELECT AVG(age * hours_per_week) - AVG(age) * AVG(hours_per_week) AS c FROM adult",
    "ask SELECT AVG(...) FROM <publication> first": "SELECT COUNT(*) FROM adult WHERE age > 38.4",
    "write ORDER BY ... LIMIT":
        "SELECT education, COUNT(*) AS n FROM adult GROUP BY education ORDER BY 2 DESC LIMIT 5",
    "write COUNT(*) FILTER (WHERE x >= 10 AND x < 20) for each interval":
        "SELECT COUNT(*) FILTER (WHERE seen >= '2021-02-01' AND seen < '2021-03-01') FROM adult",
    "multiply by 1.0 first":
        "SELECT education, 1.0 * SUM(capital_gain) / COUNT(*) AS g FROM adult GROUP BY education",
    "SELECT DISTINCT lists the values": "SELECT DISTINCT sex, race FROM adult",
    "write x * x; a root is compared by its square": "SELECT COUNT(*) FROM adult WHERE age > 6 * 6",
    "write SUM(COUNT(*)) OVER ()":
        "SELECT sex, SUM(COUNT(*)) OVER () AS total FROM adult GROUP BY sex",
    "use the columns that it groups by; its estimates are what SELECT ... GROUP BY answers":
        "SELECT race, AVG(age) AS m FROM adult GROUP BY race",
    "ask a query for each": "SELECT COUNT(*) FROM adult WHERE sex = 'Male'",
    "write x LIKE 'ab%', or '%ab%'": "SELECT COUNT(*) FROM adult WHERE education LIKE 'B%'",
    "write its result, a number or a quoted text": "SELECT MAX(seen) AS m, 2024 AS y FROM adult",
    "write SELECT x, COUNT(*) ... GROUP BY x ORDER BY 2 DESC LIMIT 1":
        "SELECT education, COUNT(*) FROM adult GROUP BY education ORDER BY 2 DESC LIMIT 1",
    "write LIKE": "SELECT COUNT(*) FROM adult WHERE occupation LIKE 'Exec%'",
    "write COUNT(*) FILTER (WHERE ...): its bounds say whether there is one":
        "SELECT sex, COUNT(*) FILTER (WHERE age > 80) AS n FROM adult GROUP BY sex",
    "publish a view that joins their sources": "",  # it is no question
    "leave it out: an answer only reads the publication": "SELECT COUNT(*) AS n FROM adult AS a",
    "or compare with LIKE or ILIKE": "SELECT COUNT(*) FROM adult WHERE sex ILIKE 'male'",
    "its columns are age, ": "SELECT COUNT(CASE WHEN income = '>50K' THEN age END) AS n FROM adult",
    "compare each column that it groups by, with AND":
        "SELECT a.sex, COUNT(*) AS n FROM adult AS a JOIN (SELECT race, sex FROM adult GROUP BY"
        " 1, 2) AS t ON a.race = t.race AND a.sex = t.sex GROUP BY 1",
    "or write (a, b) IN ((1, 2), (3, 4))":
        "SELECT COUNT(*) FROM adult WHERE (sex, race) IN (('Male', 'White'), ('Female', 'Black'))",
    "combine conditions with AND, OR and NOT, using parentheses":
        "SELECT COUNT(*) FROM adult WHERE (workclass IS NULL) IS NOT TRUE",
    "ask it by itself first, and write its values":
        "SELECT COUNT(*) FROM adult WHERE education IN ('Bachelors', 'Masters')",
    "group by fewer columns, or ask for parts of them":
        "SELECT education_num, COUNT(*) FROM adult WHERE education_num >= 13 GROUP BY 1",
    "ask for each interval by itself":
        "SELECT COUNT(*) FILTER (WHERE age >= 65), COUNT(*) FILTER (WHERE age < 65) FROM adult",
}  # fmt: skip
"""What each hint says to write, of which a part is the key, as one would then write it."""

_IS_ANSWERED_FIRST = re.compile(r"IN \(SELECT|JOIN \(SELECT|JOIN top", re.IGNORECASE)
"""Which rows a subquery lists is estimated: of the question with these, bounds are certain."""

_IS_CHOSEN = re.compile(r"\bn >|HAVING", re.IGNORECASE)
"""Which groups meet a condition on their numbers is estimated, too."""


@pytest.fixture(scope="module")
def adult(parties: Parties, shared: Path) -> Parties:
    frame = pd.read_csv(shared / "data" / "adult_30162.csv.gz").head(N_RECORDS)
    rows = []
    for number, row in enumerate(frame.to_dict("records")):
        born = date(1999, 6, 30) - timedelta(365 * row["age"] + 89 * number % 365)
        seen = datetime(2021, 1, 1) + timedelta(hours=61 * number % 2900)
        own = [row[name.replace("_", "-")] for name in KNOWN[:-2]]
        own[KNOWN.index("occupation")] = row["occupation"] if number % 17 else None
        rows.append((number, *own, born, seen, row["salary-class"]))
    fetch(parties.publisher, f"CREATE SCHEMA {EXACT}")
    kanon = create_source(
        parties.publisher, f"{EXACT}.adult", COLUMNS, rows, KNOWN, "income", identifiers=["id"]
    )
    kanon.publish(f"{EXACT}.adult", "adult_b", privacy='{"default": 0.8}')
    kanon.generalize(f"{EXACT}.adult", "adult_k", k=3, method="mondrian")
    return parties


@pytest.fixture(scope="module")
def outcomes(adult: Parties) -> dict[str, dict[str, str]]:
    """What came of each question on each publication: nothing, a fault, or a refusal."""
    questions = [question for _, question in read_questions("tools.sql")]
    return {name: {q: outcome(adult, name, q) for q in questions} for name in LEAST_ANSWERED}


def outcome(parties: Parties, publication: str, question: str) -> str:
    """Tell what comes of a question."""
    try:
        truth(parties, question)
    except psycopg.Error as error:
        return f"not SQL: {error}"
    try:
        faults = faults_of(parties, publication, question, "adult")
    except psycopg.Error as error:
        return f"{error.sqlstate}: {error.diag.message_primary} | {error.diag.message_hint}"
    if publication == "adult_k" and _IS_ANSWERED_FIRST.search(question):
        return ""
    if _IS_CHOSEN.search(question):
        faults = [fault for fault in faults if not fault.endswith("is missing")]
    return "; ".join(faults)


@pytest.mark.long
@pytest.mark.parametrize("publication", LEAST_ANSWERED)
def test_most_are_answered_and_no_bound_is_missed(
    outcomes: dict[str, dict[str, str]], publication: str
) -> None:
    found = {q: told for q, told in outcomes[publication].items() if "not SQL" not in told}
    refused = {q: told for q, told in found.items() if told.startswith(f"{REFUSED}: ")}
    n_answered = len(found) - len(refused)
    print(f"{publication}: {n_answered} of {len(found)} are answered")
    print(*(f"{told}\n    {q}" for q, told in refused.items()), sep="\n")
    false = {q: told for q, told in found.items() if told and q not in refused}
    print(*false.items(), sep="\n")
    assert not false
    assert len(found) >= 430
    assert n_answered >= LEAST_ANSWERED[publication]
    assert [told for told in refused.values() if not any(hint in told for hint in FOLLOWED)] == []


@pytest.mark.long
@pytest.mark.parametrize("publication", LEAST_ANSWERED)
def test_what_a_hint_says_is_answered(adult: Parties, publication: str) -> None:
    assert {line: outcome(adult, publication, line) for line in FOLLOWED.values() if line} == {
        line: "" for line in FOLLOWED.values() if line
    }
