"""Compares rewritten statements with the engine's answers."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from kanon_db.answers import likelihoods
from kanon_db.answers.estimates import answer
from kanon_db.answers.rows import pieces
from kanon_db.errors import KanonError
from kanon_db.publications.rows import cell_columns
from kanon_db.session.psycopg_session import PsycopgSession
from tests.integration.parties import Connection, fetch

BESIDE = ("std_error", "lower_bound", "upper_bound", "likely_low", "likely_high")
"""What a statement shows beside a count that is alone."""

Figures = tuple[float | None, ...]
"""An estimate, and what is shown beside it."""

TOO_LONG = "57014"
"""What a statement is ended with that lists too many combinations of values."""


def engine_answers(connection: Connection, query: str, estimator: str) -> list[tuple[str, Figures]]:
    """Each group's key, its estimate and how far off that may be, aggregate by aggregate.

    The engine lists some values only of a wide range, and where the combinations of several ranges
    are many; here, the paper's estimator lists all, and the other as many as of a single range.
    """
    session = PsycopgSession(connection)
    with pytest.MonkeyPatch.context() as patch, session.transaction():
        if estimator == "paper":
            for module in (cell_columns, likelihoods):
                patch.setattr(module, "MOST_VALUES", 10**6)
        patch.setattr(pieces, "most_listed", lambda *_: likelihoods.MOST_VALUES)
        patch.setattr(likelihoods, "most_listed", lambda *_: likelihoods.MOST_VALUES)
        session.fetch(f"SET LOCAL kanon.estimator = '{estimator}'")
        session.fetch("SET LOCAL statement_timeout = '20s'")
        return [
            (row.group_key, (row.estimate, *(getattr(row, name) for name in BESIDE)))
            for row in answer(session, query).rows
        ]


def statement_of(connection: Connection, query: str, estimator: str = "published") -> str | None:
    """Rewrite a query; None where that is refused."""
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL kanon.estimator = '{estimator}'".encode())
            ((statement,),) = fetch(connection, "SELECT kanon.rewrite_count($1::text)", query)
    except psycopg.errors.FeatureNotSupported:
        return None
    return str(statement)


def compared(
    connection: Connection,
    query: str,
    seconds: int = 60,
    estimator: str = "published",
    rewrite: Callable[[Connection, str, str], str | None] = statement_of,
) -> str:
    """Run the rewritten statement, and compare it with the engine.

    Returns
    -------
    str
        ``equal``, ``refused`` (the query), ``no statement``, ``too long``, or what differs.
    """
    try:
        wanted = engine_answers(connection, query, estimator)
    except KanonError:
        return "refused"
    try:
        statement = rewrite(connection, query, estimator)
    except psycopg.Error as error:
        return f"{query}: {error}"
    if statement is None:
        return "no statement"
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL statement_timeout = '{seconds}s'".encode())
            cursor = connection.execute(statement.encode())
            names = [column.name for column in cursor.description or ()]
            n_beside = len(BESIDE) * (tuple(names[-len(BESIDE) :]) == BESIDE)
            found = cursor.fetchall()
    except psycopg.Error as error:
        if error.sqlstate == TOO_LONG:
            return "too long"
        return f"{query}: {error}\n{statement}"
    keys = list(dict.fromkeys(key for key, _ in wanted))
    n_shown = len(wanted) // max(len(keys), 1)
    if len(found) < len(keys):  # groups that may be there, but are not expected
        expected_keys = {key for key, figures in wanted if figures[0]}
        wanted = [row for row in wanted if row[0] in expected_keys]
        keys = [key for key in keys if key in expected_keys]
    if len(found) != len(keys):
        return f"{query}: {len(found)} groups, not {len(keys)}\n{statement}"
    shown = [row[len(row) - n_shown - n_beside :] for row in found]
    numbers = [None if x is None else float(x) for row in shown for x in row]
    expected = [x for _, figures in wanted for x in figures[: 1 + n_beside]]
    for number, wanted_number in zip(numbers, expected, strict=True):
        if number is None and wanted_number == 0:
            continue  # a sum of what may be there, but is not expected: NULL in SQL
        if number != (
            None
            if wanted_number is None
            else pytest.approx(float(wanted_number), rel=1e-9, abs=1e-9, nan_ok=True)
        ):
            return f"{query}: {number}, not {wanted_number}\n{statement}"
    return "equal"
