"""Hostile input by the hundred: every reply is an answer, or a refusal with a reason.

`python -m benchmarks hostile_input` does this with 100,000 queries and 2,000 sets of arguments, and
measures time and memory, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from itertools import islice

import psycopg
import pytest

from kanon_db.errors import DatabaseError, KanonError
from kanon_db.operations import operations
from tests.hostile_input.arguments import Arguments
from tests.hostile_input.entries import ways_in
from tests.hostile_input.runs import ask, call
from tests.hostile_input.tables import CANARY, NUMBER, make_tables
from tests.hostile_input.verdict import Verdict, listening
from tests.integration.parties import Parties, fetch
from tests.profiles import examples

SEED = 17  # by which nothing is recommended, which takes long
QUERY_SEED = 18  # by which 300 queries reach answers and all refusals
PATIENCE = 60  # seconds, after which a call is cancelled


@pytest.fixture(scope="module", autouse=True)
def tables(parties: Parties) -> None:
    make_tables(parties)


@pytest.mark.slow("hundreds of random texts")
def test_queries_are_answered_or_refused(parties: Parties) -> None:
    verdict = ask(parties, examples(300), QUERY_SEED, PATIENCE)
    assert verdict.defects == []
    # What is drawn reaches all that there is: answers, and all refusals.
    assert {outcome for _, outcome in verdict.outcomes} >= {"", "0A000", "42704"}


@pytest.mark.long
def test_arguments_are_taken_or_refused(parties: Parties) -> None:
    for verdict in call(parties, examples(60), SEED, PATIENCE):
        assert verdict.defects == []
        assert {outcome for _, outcome in verdict.outcomes} >= {"", "0A000", "22023", "42704"}


def test_every_operation_is_called_every_way(parties: Parties) -> None:
    drawn = list(islice(Arguments(SEED), 400))
    assert len({operation.name for operation, _ in drawn}) == len(operations())
    assert len(list(ways_in(parties, *drawn[0]))) == 4


def raised(error: Exception) -> None:
    raise error


SPEAKING = f"DO $$BEGIN RAISE NOTICE '{CANARY} a'; END$$"
TRACED = "DO LANGUAGE plpython3u $$raise KeyError$$"


@pytest.mark.parametrize(
    ("call", "sign"),
    [
        (lambda connection: fetch(connection, "SELECT 1 / 0"), "22012"),
        (lambda connection: fetch(connection, "SELECT pg_terminate_backend(pg_backend_pid())"),
         "57P01"),
        (lambda _: {}["x"], "KeyError"),
        (lambda _: raised(KanonError("kanon_db failed because of a bug")), "KN000"),
        (lambda _: raised(DatabaseError(f"{CANARY} a", sqlstate="0A000")), "data value"),
        (lambda _: raised(DatabaseError("x", sqlstate="0A000", hint=f"{NUMBER}")), "data value"),
        (lambda connection: fetch(connection, SPEAKING), "data value"),
        (lambda connection: fetch(connection, TRACED), "traceback"),
    ],
)  # fmt: skip
def test_a_defect_is_seen(
    parties: Parties,
    connect_as: Callable[[str, str], psycopg.Connection],
    call: Callable[[psycopg.Connection], object],
    sign: str,
) -> None:
    """The judge himself: what must not be, is found."""
    verdict = Verdict(frozenset({"0A000", "38000"}))
    connection = connect_as(parties.dsn, parties.admin.info.user)
    with contextlib.closing(connection), listening(connection, verdict):
        verdict.of("entry", "asked", lambda: call(connection))
    (defect,) = verdict.defects
    assert sign in defect
