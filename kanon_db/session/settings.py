"""Changes settings of the server for a few statements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from kanon_db.session.protocol import Session

_WORK_MEMORY: Final = "16MB"


@contextmanager
def settings(session: Session, values: Mapping[str, str]) -> Iterator[None]:
    """Run the block with other settings, given by name, and then restore the caller's."""
    rows = session.fetch(
        "SELECT name, current_setting(name) AS value FROM unnest($1::text[]) AS name", list(values)
    )
    _set(session, values)
    yield
    # After an error, the server itself restores them, with the rest of the transaction.
    _set(session, {row["name"]: row["value"] for row in rows})


def roomy(session: Session) -> AbstractContextManager[None]:
    """Run the block with enough memory to join a million rows with the cells of their classes.

    With the server's default of 4 MB for each sort or hash table, it would write them to disk. With
    a gigabyte, as a server may have, what publishing needs would not be what was forecast.
    """
    return settings(session, {"work_mem": _WORK_MEMORY, "hash_mem_multiplier": "2"})


def shared(session: Session) -> AbstractContextManager[None]:
    """Let other processes calculate all rows of a query, as far as the server has any to spare.

    By default its planner takes passing a row on for ten times as much work as reading it, and so
    leaves it to one process to calculate much for each row.
    """
    return settings(session, {"parallel_tuple_cost": "0"})


def patient(session: Session, limit: str) -> AbstractContextManager[None]:
    """Run the block without waiting for locks longer than the limit, or the caller's own one."""
    (found,) = session.fetch(
        "SELECT setting = '0' AS is_unlimited FROM pg_settings WHERE name = 'lock_timeout'"
    )
    return settings(session, {"lock_timeout": limit} if found["is_unlimited"] else {})


@contextmanager
def frugal(session: Session, n_bytes: int) -> Iterator[None]:
    """Run the block with at most so much memory for each sort or hash table.

    What a server is made for, with `work_mem` of a gigabyte, say, is not what one query may take.
    """
    (found,) = session.fetch(
        "SELECT pg_size_bytes(current_setting('work_mem')) > $1::int8 AS is_much", str(n_bytes)
    )
    less = {"work_mem": f"{max(64, n_bytes // 1024)}kB", "hash_mem_multiplier": "1"}
    with settings(session, less if found["is_much"] else {}):
        yield


@contextmanager
def grouping_by_hash(session: Session) -> Iterator[None]:
    """Run the block with GROUP BY by hashing, which spills to disk if memory does not suffice.

    The planner assumes that columns are independent. So it expects a group for each row, where
    there is only one for each class, and sorts, which takes two to three times as long.
    """
    with roomy(session), settings(session, {"enable_sort": "off"}):
        yield


@contextmanager
def joining_by_hash(session: Session) -> Iterator[None]:
    """Run the block with joins by hashing, as suits tables that the planner knows nothing of.

    It expects a thousand rows of each, and so many more after each join; it would sort them.
    """
    with roomy(session), settings(session, {"enable_mergejoin": "off"}):
        yield


@contextmanager
def helped(session: Session) -> Iterator[None]:
    """Run the block with one worker, where the server allows any, that joins what is written.

    Only the session itself writes. A second worker would have to wait for it; with one, it takes
    half as long. The planner takes handing a row over for more work than that of joining it.
    """
    (row,) = session.fetch(
        "SELECT least(1, current_setting('max_parallel_workers_per_gather')::int4)::text AS n"
    )
    few = {"parallel_tuple_cost": "0", "max_parallel_workers_per_gather": row["n"]}
    with settings(session, few):
        yield


def _set(session: Session, values: Mapping[str, str]) -> None:
    session.fetch(
        "SELECT set_config(name, value, true)"
        " FROM unnest($1::text[], $2::text[]) AS s (name, value)",
        list(values),
        list(values.values()),
    )
