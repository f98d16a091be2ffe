"""Asks the questions of a scenario, and makes what fails small."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
import sqlglot
from sqlglot import exp

from kanon_db.answers.estimates import answer
from kanon_db.errors import KanonError
from kanon_db.session.psycopg_session import PsycopgSession
from tests.fuzz.scenarios import INCOMPARABLE, Scenario, draw_scenario, forget, make
from tests.integration.parties import Connection, fetch
from tests.meaning.questions import FROM, FunctionQuestions, Questions
from tests.meaning.verdict import Verdict, ask
from tests.rewritten import compared

QUESTIONS: Final = 25
"""Questions of one scenario."""

_ALSO_IN_PYTHON: Final = 8
_ALSO_AS_STATEMENT: Final = 6
"""One question in so many is asked in Python, too, and as one statement."""


@dataclass
class Findings:
    """What came of the questions so far."""

    outcomes: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    @property
    def n_questions(self) -> int:
        return sum(self.outcomes.values())


class FuzzQuestions(FunctionQuestions):
    """The grammar of `tests.meaning`, with deviations, and functions in some of the questions."""

    def aggregate(self) -> str:
        numbers = [name for name in self._names if self._kinds[name] == "number"]
        if numbers and self.often(0.3):
            name = self.one(numbers)
            forms = [f"{one}({name})" for one in ("SUM", "AVG", "MIN", "MAX", "stddev", "var_pop")]
            form = self.one([*forms, self.percentile(name), self.percentile(name)])
            chosen = f" FILTER (WHERE {self.condition(1)})" if self.often(0.2) else ""
            return form + chosen
        return super().aggregate()

    def condition(self, depth: int) -> str:
        if depth and self.often(0.3):
            parts = [self.leaf(self.one([*self._names, self._sensitive])) for _ in range(2)]
            return f"({' OR '.join(parts)})"
        return super().condition(depth)

    def leaf(self, name: str) -> str:
        if self._kinds[name] == INCOMPARABLE:
            return f"{name} IS {self.one(['', 'NOT '])}NULL"
        if self._kinds[name] in ("text", "other", "enum") and self.often(0.05):
            return f"{name} = {self.constant(name)}"
        return super().leaf(name)

    def question(self) -> str:
        kinds = {self._kinds[name] for name in (*self._names, self._sensitive)}
        with_functions = kinds & {"number", "text", "moment"} and self.often(0.15)
        return super().question() if with_functions else Questions.question(self)


def questions_of(publisher: Connection, scenario: Scenario) -> Iterator[str]:
    """Draw questions about a scenario's table."""
    questions = FuzzQuestions(publisher, scenario.table, scenario.sensitive, seed=scenario.seed)
    while True:
        yield questions.question()


def judge(
    analyst: Connection, admin: Connection, scenario: Scenario, question: str, number: int
) -> Verdict:
    """Ask the publication and its source; and some questions in Python, and as a statement."""
    verdict = ask(
        analyst, admin, scenario.name, scenario.truth, question, lists_all=scenario.lists_all
    )
    if verdict.outcome == "answered" and number % _ALSO_IN_PYTHON == 0:
        verdict.faults.extend(_both_ways(analyst, question.replace(FROM, scenario.name)))
    is_plain = not any(word in question for word in ("GROUP BY", "/", "ROUND(", "DISTINCT"))
    if verdict.outcome == "answered" and is_plain and number % _ALSO_AS_STATEMENT == 1:
        outcome = compared(analyst, question.replace(FROM, scenario.name), seconds=2)
        if outcome not in ("equal", "refused", "no statement", "too long"):
            verdict.faults.append(outcome)
    return verdict


def _both_ways(analyst: Connection, question: str) -> list[str]:
    figures = "group_key::text, estimate, std_error, lower_bound, upper_bound"
    by_sql = fetch(analyst, f"SELECT {figures} FROM kanon.estimate($1)", question)
    session = PsycopgSession(analyst)
    try:
        with session.transaction():
            rows = answer(session, question).rows
    except KanonError as error:
        return [f"Python refuses it: {error}"]
    in_python = [
        (row.group_key, row.estimate, row.std_error, row.lower_bound, row.upper_bound)
        for row in rows
    ]
    if len(by_sql) != len(in_python):
        return [f"{len(by_sql)} rows in SQL, {len(in_python)} in Python"]
    for one, other in zip(by_sql, in_python, strict=True):
        if json.loads(one[0]) != json.loads(other[0]) or not all(map(_same, one[1:], other[1:])):
            return [f"SQL and Python differ: {one}, {other}"]
    return []


def _same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    a, b = float(one), float(other)
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) or (math.isnan(a) and math.isnan(b))


def run_scenario(
    publisher: Connection, analyst: Connection, admin: Connection, seed: int, findings: Findings,
    tell: Callable[[str], None] = lambda _: None,
) -> None:  # fmt: skip
    """Make a scenario, ask its questions, and describe what fails, made small."""
    scenario = draw_scenario(seed)
    try:
        refused = make(publisher, scenario)
        if refused is not None:
            findings.kinds[f"{scenario.kind} refused: {refused}"] += 1
            return
        findings.kinds[scenario.kind] += 1
        questions = questions_of(publisher, scenario)
        for number in range(QUESTIONS):
            question = next(questions)
            verdict = judge(analyst, admin, scenario, question, number)
            findings.outcomes[verdict.outcome] += 1
            if verdict.faults:

                def fails(other: str, number: int = number) -> bool:
                    return bool(judge(analyst, admin, scenario, other, number).faults)

                small = smallest(question, fails)
                faults = judge(analyst, admin, scenario, small, number).faults
                told = f"{scenario.described()}\n{small}\n" + "\n".join(faults[:3])
                findings.faults.append(told)
                tell(told)
    except psycopg.Error as error:
        told = f"{scenario.described()}\n{error} {error.diag.message_detail}"
        findings.faults.append(told)
        tell(told)
    finally:
        forget(publisher, scenario)


_PARTS: Final = ("where", "group", "having", "joins", "order", "limit", "filter")


def smallest(question: str, fails: Callable[[str], bool], most: int = 60) -> str:
    """Take parts out of a question for as long as it fails."""
    for _ in range(most):
        smaller = next((one for one in _smaller(question) if fails(one)), None)
        if smaller is None:
            return question
        question = smaller
    return question


def _smaller(question: str) -> Iterator[str]:
    """Yield the question without one part, or with a part of a condition in place of all of it."""
    text = question.replace(FROM, "publication_")
    tree = sqlglot.parse_one(text, dialect="postgres")

    def written(changed: exp.Expression) -> str:
        return changed.sql(dialect="postgres").replace("publication_", FROM)

    if tree.args.get("where"):
        without = tree.copy()
        without.set("where", None)
        yield written(without)
    for number, node in enumerate(tree.walk()):
        replacements: list[exp.Expression] = []
        if isinstance(node, exp.And | exp.Or):
            replacements = [node.left, node.right]
        elif isinstance(node, exp.Not | exp.Paren | exp.Filter):
            replacements = [node.this]
        for replacement in replacements:
            changed = tree.copy()
            place = list(changed.walk())[number]
            place.replace(replacement.copy())
            yield written(changed)
