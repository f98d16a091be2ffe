"""Compares rewritten statements with the engine's answers under the paper's estimator."""

from __future__ import annotations

import psycopg
import pytest

from kanon_db.answers import likelihoods
from kanon_db.answers.estimates import answer
from kanon_db.answers.rows import cell_columns
from kanon_db.errors import KanonError
from kanon_db.session.psycopg_session import PsycopgSession
from tests.integration.parties import Connection, fetch

TOO_LONG = "57014"
"""What a statement is ended with that lists too many combinations of values."""


def paper_answers(connection: Connection, query: str) -> list[tuple[str, float | None]]:
    """Each group's key and estimate under the paper's estimator, aggregate by aggregate.

    The engine lists some values only of a wide range, and where the combinations of several ranges
    are many; here all, as the statement does.
    """
    session = PsycopgSession(connection)
    with pytest.MonkeyPatch.context() as patch, session.transaction():
        for module in (cell_columns, likelihoods):
            patch.setattr(module, "MOST_VALUES", 10**6)
        patch.setattr(likelihoods, "_MOST_SPREAD", 10**15)
        session.fetch("SET LOCAL kanon.estimator = 'paper'")
        session.fetch("SET LOCAL statement_timeout = '20s'")
        return [(row.group_key, row.estimate) for row in answer(session, query).rows]


def compared(connection: Connection, query: str, seconds: int = 60) -> str:
    """Run the rewritten statement, and compare it with the engine.

    Returns
    -------
    str
        ``equal``, ``refused`` (the query), ``no statement``, ``too long``, or what differs.
    """
    try:
        wanted = paper_answers(connection, query)
    except KanonError:
        return "refused"
    try:
        ((statement,),) = fetch(connection, "SELECT kanon.rewrite_count($1::text)", query)
    except psycopg.Error as error:
        return "no statement" if error.sqlstate == "0A000" else f"{query}: {error}"
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL statement_timeout = '{seconds}s'".encode())
            found = connection.execute(statement.encode()).fetchall()
    except psycopg.Error as error:
        if error.sqlstate == TOO_LONG:
            return "too long"
        return f"{query}: {error}\n{statement}"
    keys = list(dict.fromkeys(key for key, _ in wanted))
    n_shown = len(wanted) // max(len(keys), 1)
    if len(found) < len(keys):  # groups that may be there, but are not expected
        expected_keys = {key for key, estimate in wanted if estimate}
        wanted = [row for row in wanted if row[0] in expected_keys]
        keys = [key for key in keys if key in expected_keys]
    if len(found) != len(keys):
        return f"{query}: {len(found)} groups, not {len(keys)}\n{statement}"
    shown = [row[len(row) - n_shown :] for row in found]
    numbers = [None if x is None else float(x) for row in shown for x in row]
    expected = [estimate for _, estimate in wanted]
    for number, estimate in zip(numbers, expected, strict=True):
        if number is None and estimate == 0:
            continue  # a sum of what may be there, but is not expected: NULL in SQL
        if number != (
            None if estimate is None else pytest.approx(estimate, rel=1e-9, abs=1e-9, nan_ok=True)
        ):
            return f"{query}: {number}, not {estimate}\n{statement}"
    return "equal"
