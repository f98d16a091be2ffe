"""Making what a transaction has done so far survive a crash, before the transaction ends."""

from __future__ import annotations

from typing import Final

from kanon_db.errors import ServerError
from kanon_db.session.protocol import Session, fetch_one

_EMITS_AND_FLUSHES: Final = 170000
"""The server's version from which a message in its log can be flushed with the statement."""


def flush(session: Session) -> None:
    """Write the server's log (WAL) to disk, with everything that is in it by now.

    PostgreSQL does so when a transaction commits. What a transaction does for good before, such as
    drawing from a sequence, a crash of the server can undo until then.

    Parameters
    ----------
    session : Session
        Inside the server.

    Raises
    ------
    ServerError
        When the server has no such function.

    Notes
    -----
    Before version 17, no function in SQL does it, so this calls the one in C that a commit calls.
    It is the last thing in the log that is flushed, a message of our own, so that nothing is asked
    of it that it could refuse.
    """
    version = fetch_one(session, "SELECT current_setting('server_version_num')::int4 AS n")["n"]
    if version >= _EMITS_AND_FLUSHES:
        session.fetch("SELECT pg_logical_emit_message(false, 'kanon_db', ''::text, true)")
        return
    row = fetch_one(
        session,
        "SELECT (pg_logical_emit_message(false, 'kanon_db', ''::text) - '0/0'::pg_lsn)::text AS n",
    )
    import ctypes  # a few milliseconds, which only questions under a budget have to wait for

    try:
        # The lock of the interpreter is kept: the server's code is not made for threads.
        write = ctypes.PyDLL(None).XLogFlush
    except AttributeError:
        raise ServerError(
            "the server cannot write its log before a transaction ends",
            detail="it has no function XLogFlush",
            hint="upgrade to PostgreSQL 17, which needs none",
        ) from None
    write.argtypes, write.restype = [ctypes.c_uint64], None
    write(int(row["n"]))
