"""Settings of the server that hold for a few statements only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from kanon_db.session.protocol import Session

_WORK_MEMORY: Final = "64MB"


@contextmanager
def settings(session: Session, values: Mapping[str, str]) -> Iterator[None]:
    """Run the block under other settings, by name; then put the caller's back."""
    rows = session.fetch(
        "SELECT name, current_setting(name) AS value FROM unnest($1::text[]) AS name",
        list(values),
    )
    _set(session, values)
    yield
    # After an error the server itself puts them back, with the rest of the transaction.
    _set(session, {row["name"]: row["value"] for row in rows})


def roomy(session: Session) -> AbstractContextManager[None]:
    """Run the block with enough memory to join a million rows with the cells of their classes.

    The server's default of 4 MB a sort or hash table makes it write them to disk.
    """
    (more,) = session.fetch(
        "SELECT pg_size_bytes(current_setting('work_mem')) < pg_size_bytes($1::text) AS needed",
        _WORK_MEMORY,
    )
    return settings(session, {"work_mem": _WORK_MEMORY} if more["needed"] else {})


@contextmanager
def grouping_by_hash(session: Session) -> Iterator[None]:
    """Run the block with GROUP BY on hash tables, which go to disk where memory ends.

    The planner takes columns to be independent, so it expects a group for each row where there is
    one for each class, and sorts: two to three times as long.
    """
    with roomy(session), settings(session, {"enable_sort": "off"}):
        yield


def _set(session: Session, values: Mapping[str, str]) -> None:
    session.fetch(
        "SELECT set_config(name, value, true)"
        " FROM unnest($1::text[], $2::text[]) AS s (name, value)",
        list(values),
        list(values.values()),
    )
