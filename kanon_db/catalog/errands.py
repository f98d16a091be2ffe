"""Asking `kanon_owner` for what others may not do; see `25_errands.sql` and `26_questions.sql`."""

from __future__ import annotations

import json
from typing import Any, Final

from kanon_db.errors import BudgetError, DatabaseError, KanonError
from kanon_db.session.protocol import Session, fetch_one

OWNER: Final = "kanon_owner"
"""The role that published relations belong to, and that alone may write the catalog."""


def run_errand(session: Session, task: str, **given: Any) -> Any:
    """Have a task done with the rights of the owner of all publications.

    Parameters
    ----------
    session : Session
        The owner does the task for the session's current role.
    task : str
    **given
        What the task needs, as plain JSON.

    Returns
    -------
    object
        The task's answer.

    Raises
    ------
    DatabaseError
        With the SQLSTATE of the refusal.
    """
    row = fetch_one(
        session,
        "INSERT INTO kanon.errand (task, given) VALUES ($1::text, $2::text::jsonb)"
        " RETURNING answer::text AS answer",
        task,
        json.dumps(given, ensure_ascii=False),
    )
    return _read_answer(row["answer"], "kanon.errand")


def ask_model(session: Session, task: str, inputs: bytes | None = None, **given: Any) -> Any:
    """Ask a model, whose members only the owner of all publications may read.

    Parameters
    ----------
    session : Session
        The owner answers the session's current role, if it may read the publication.
    task : {"classify", "members"}
    inputs : bytes, optional
        What to classify.
    **given
        The publication's name, and what else the task needs, as plain JSON.

    Returns
    -------
    object
        The answer.

    Raises
    ------
    KanonError
        When the question is refused.
    """
    row = fetch_one(
        session,
        "INSERT INTO kanon.question (task, given, inputs)"
        " VALUES ($1::text, $2::text::jsonb, $3::bytea) RETURNING answer::text AS answer",
        task,
        json.dumps(given, ensure_ascii=False),
        inputs,
    )
    answer = _read_answer(row["answer"], "kanon.question")
    if "error" in answer:
        raise _refusal(**answer["error"])
    return answer


def _read_answer(answer: str | None, view: str) -> Any:
    """Read what a view's triggers have answered; without them, nothing was done."""
    if answer is None:
        raise DatabaseError(
            f"nothing was done: the triggers of {view} are switched off",
            sqlstate="55000",
            hint="SET session_replication_role = origin, and try again",
        )
    return json.loads(answer)


def _refusal(message: str, sqlstate: str, detail: str = "", hint: str = "") -> KanonError:
    """Make the error that the server's side of a question has returned."""
    if sqlstate == BudgetError.sqlstate:
        return BudgetError(message, detail=detail, hint=hint)
    return DatabaseError(message, sqlstate=sqlstate, detail=detail, hint=hint)
