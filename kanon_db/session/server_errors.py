"""What we may repeat of an error that PostgreSQL reports.

A server's message may quote data: `invalid input syntax for type integer: "HIV"`, or a DETAIL
with a whole row. We pass on the primary message only for SQLSTATE classes whose messages name
objects and limits, and never DETAIL, HINT or CONTEXT.
"""

from __future__ import annotations

from typing import Final

from kanon_db.errors import DatabaseError

_CLASSES_WITHOUT_DATA: Final = frozenset(
    {
        "08",  # connection
        "0A",  # feature not supported
        "25",  # transaction state
        "28",  # authorization
        "3D",  # database name
        "3F",  # schema name
        "40",  # rollback, deadlock
        "42",  # syntax, names, privileges
        "53",  # resources: disk full, out of memory
        "54",  # limits
        "55",  # object state
        "57",  # canceled, shut down
        "58",  # system
    }
)

_OWN_WORDS: Final = {
    "40": "the transaction conflicts with another one",
    "53": "the server lacks disk space, memory or another resource",
    "54": "a limit of the server is exceeded",
    "57": "the statement was canceled",
}

_READ_ONLY: Final = "25006"
INSUFFICIENT_PRIVILEGE: Final = "42501"
UNDEFINED_FUNCTION: Final = "42883"
DEPENDENT_OBJECTS: Final = "2BP01"
DUPLICATE_TABLE: Final = "42P07"
LOCK_NOT_AVAILABLE: Final = "55P03"
DATA_EXCEPTION_CLASS: Final = "22"


def database_error(sqlstate: str | None, primary: str | None) -> DatabaseError:
    """Make the error that a caller may see, from the server's SQLSTATE and primary message."""
    state = sqlstate or "XX000"
    if primary and state != _READ_ONLY and state[:2] in _CLASSES_WITHOUT_DATA:
        return DatabaseError(primary.strip().splitlines()[0], sqlstate=state)
    return withheld(state)


def withheld(sqlstate: str) -> DatabaseError:
    """Make an error without any of the server's words.

    It is for statements that run other people's functions over data, as views do: these may raise
    anything with any SQLSTATE, and casts to ``regclass`` quote a value in a message of class 42.
    """
    if sqlstate == _READ_ONLY:
        return DatabaseError(
            "the transaction is read-only",
            sqlstate=sqlstate,
            detail="this operation writes, if only temporary tables",
            hint="call it in a READ WRITE transaction, on a server that is no standby",
        )
    return DatabaseError(
        _OWN_WORDS.get(sqlstate[:2], "the server refused a statement"),
        sqlstate=sqlstate,
        detail=f"SQLSTATE {sqlstate}; the server's own message is withheld, because it may quote"
        " data",
    )
