"""Buckets are answered from bitmaps, and from what statements count and join: the same."""

from __future__ import annotations

import pytest

from kanon_db.answers.estimates import answer
from kanon_db.errors import KanonError
from kanon_db.session.psycopg_session import PsycopgSession
from tests.integration.bucket_ways import keep_bitmaps
from tests.integration.parties import Connection, Parties
from tests.meaning.questions import FROM, Questions
from tests.meaning.tables import TABLES, WAYS, ways_of
from tests.profiles import examples

N_QUESTIONS = examples(20)
OF_BUCKETS = [
    (way, table) for table in TABLES for way in ways_of(table) if WAYS[way][0] == "buckets"
]

Answers = dict[tuple[str, str], tuple[float | None, ...]]


def asked(connection: Connection, question: str) -> Answers | str:
    """The estimate and the bounds of each group and aggregate, or what a refusal says."""
    session = PsycopgSession(connection)
    try:
        with session.transaction():
            session.fetch("SET LOCAL statement_timeout = '60s'")
            session.fetch("SET LOCAL kanon.estimator = 'paper'")
            rows = answer(session, question).rows
    except KanonError as error:
        return error.message
    return {
        (row.group_key, row.aggregate): (row.estimate, row.lower_bound, row.upper_bound)
        for row in rows
    }


@pytest.mark.parametrize(("way", "table"), OF_BUCKETS)
def test_answers_do_not_depend_on_bitmaps(parties: Parties, way: str, table: str) -> None:
    questions = Questions(parties.publisher, *TABLES[table], seed=31)
    n_answered = 0
    for _ in range(N_QUESTIONS):
        question = questions.question().replace(FROM, f"{way}_{table}")
        found = asked(parties.analyst, question)
        with pytest.MonkeyPatch.context() as patch:
            keep_bitmaps(patch, of_sensitive=False)
            without = asked(parties.analyst, question)
        if isinstance(found, str) or isinstance(without, str):
            assert found == without, question
            continue
        n_answered += 1
        assert found.keys() == without.keys(), question
        for key, numbers in found.items():
            for number, other in zip(numbers, without[key], strict=True):
                wanted = None if other is None else pytest.approx(other, rel=1e-6, abs=1e-6)
                assert number == wanted, (question, key)
    assert n_answered > N_QUESTIONS / 6
