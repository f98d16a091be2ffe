"""Types of records are stored in the table of classes, or listed from the view: the same."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kanon_db.answers import evidence, scope
from kanon_db.answers.estimates import AnswerRow, answer
from kanon_db.answers.measures import Totals
from kanon_db.errors import KanonError
from kanon_db.session.psycopg_session import PsycopgSession
from tests.integration.parties import Parties
from tests.meaning.questions import FROM, Questions
from tests.meaning.tables import TABLES, WAYS, ways_of
from tests.profiles import examples

SEARCHED = ("min", "max", "percentile")
N_QUESTIONS = examples(12)
OF_ROWS = [(way, table) for table in TABLES for way in ways_of(table) if WAYS[way][0] != "buckets"]


class BothWays:
    """Answers questions, with the table of classes and without."""

    def __init__(self, parties: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
        self._connection = parties.analyst
        self._session = PsycopgSession(parties.analyst)
        self._patch = monkeypatch
        self.counted: Counter[bool] = Counter()

    def ask(self, question: str) -> list[list[AnswerRow] | str]:
        """Return both answers, or what the refusals say."""
        with self._patch.context() as patch:
            for kind in (evidence.StoredTypes, evidence.ListedTypes):
                patch.setattr(kind, "all", self._watched(kind.all, kind is evidence.StoredTypes))
            found = [self._ask(question)]
        with self._patch.context() as patch:
            patch.setattr(scope, "_class_table", lambda *_: None)
            found.append(self._ask(question))
        return found

    def _watched(self, of_types: Callable[[Any], Any], is_stored: bool) -> Callable[[Any], Any]:
        def watched(types: Any) -> Any:
            self.counted[is_stored] += 1
            return of_types(types)

        return watched

    def _ask(self, question: str) -> list[AnswerRow] | str:
        try:
            with self._session.transaction():
                self._session.fetch("SET LOCAL statement_timeout = '60s'")
                return answer(self._session, question).rows
        except KanonError as error:
            return error.message


def differing(one: list[AnswerRow] | str, other: list[AnswerRow] | str) -> str | None:
    if isinstance(one, str) or isinstance(other, str):
        return None if one == other else f"{one} / {other}"
    if [(row.group_key, row.aggregate) for row in one] != [
        (row.group_key, row.aggregate) for row in other
    ]:
        return f"{len(one)} and {len(other)} groups, or in another order"
    for row, wanted in zip(one, other, strict=True):
        for name in ("estimate", "std_error", "lower_bound", "upper_bound"):
            found, expected = getattr(row, name), getattr(wanted, name)
            if (found is None) != (expected is None):
                return f"{row.aggregate}, {name}: {found} / {expected}"
            # Extremes are searched for, from the first group on; groups have no order.
            if found is None or (name == "std_error" and row.aggregate.startswith(SEARCHED)):
                continue
            # Errors are roots of differences, of numbers as large as the squares of values.
            slack = 1e-4 + 1e-8 * abs(row.estimate or 0) if name == "std_error" else 1e-6
            if not math.isclose(found, expected, rel_tol=1e-6, abs_tol=slack):
                return f"{row.aggregate}, {name}: {found} / {expected}"
    return None


@pytest.fixture
def both(parties: Parties, monkeypatch: pytest.MonkeyPatch) -> BothWays:
    return BothWays(parties, monkeypatch)


@pytest.mark.parametrize(("way", "table"), OF_ROWS)
def test_both_ways_give_the_same_answers(
    both: BothWays, parties: Parties, way: str, table: str
) -> None:
    questions = Questions(parties.publisher, *TABLES[table], seed=29)
    faults = []
    for _ in range(N_QUESTIONS):
        question = questions.question().replace(FROM, f"{way}_{table}")
        fault = differing(*both.ask(question))
        if fault is not None:
            faults.append(f"{question}: {fault}")
    assert not faults, "\n".join(faults[:20])
    assert both.counted[True] >= both.counted[False], both.counted


@pytest.mark.parametrize("way", ["mondrian", "classes", "freeform", "suppressed"])
def test_averages_for_which_there_is_no_room(
    both: BothWays, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """What their errors follow from is counted once more, where it cannot be kept."""
    monkeypatch.setattr(Totals, "_keep", lambda self, _: setattr(self, "_kept", None))
    question = f"SELECT region, AVG(hours) FROM {way}_mixed WHERE age > 30 GROUP BY region"
    assert differing(*both.ask(question)) is None
    assert both.counted[True] > 0
