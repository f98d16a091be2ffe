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
LEAST_ANSWERED = {"adult_b": 380, "adult_k": 340}
"""How many questions are answered on each publication, at least."""

_IS_ANSWERED_FIRST = re.compile(r"IN \(SELECT|JOIN \(SELECT|JOIN top", re.IGNORECASE)
"""Which rows a subquery lists is estimated: of the question with these, bounds are certain."""

_IS_CHOSEN = re.compile(r"\bn >|HAVING", re.IGNORECASE)
"""Which groups meet a condition on their numbers is estimated, too."""


def questions() -> list[tuple[str, str]]:
    """Read each question with the tool that sends it."""
    tool, found = "", []
    for line in Path(__file__).with_name("tools.sql").read_text(encoding="utf-8").splitlines()[1:]:
        if line.startswith("-- "):
            tool = line[3:]
        else:
            found.append((tool, line))
    return found


@pytest.fixture(scope="module")
def outcomes(parties: Parties, shared: Path) -> dict[str, dict[str, str]]:
    """What came of each question on each publication: nothing, a fault, or a refusal."""
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
    return {name: {q: outcome(parties, name, q) for _, q in questions()} for name in LEAST_ANSWERED}


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
    assert all(told.rpartition("| ")[2] not in ("", "None") for told in refused.values())
