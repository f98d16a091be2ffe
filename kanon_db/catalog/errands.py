"""Asking `kanon_owner` to do what publishers themselves may not; see ``sql/25_errands.sql``."""

from __future__ import annotations

import json
from typing import Any, Final

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
    return None if row["answer"] is None else json.loads(row["answer"])
