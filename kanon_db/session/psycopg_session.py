"""Runs statements from outside the server, through psycopg."""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

import psycopg
from psycopg import pq, sql
from psycopg.rows import dict_row

from kanon_db.errors import (
    InvalidParameterError,
    PermissionDeniedError,
    ServerError,
    UndoneInterrupt,
)
from kanon_db.session.progress import PREFIX, ReportingSession, Watcher
from kanon_db.session.protocol import SETTINGS, Row, Session, Value, database_error

Listener = Callable[[str], None]

_OURS: Final = ("kanon", "kanon_queue")
"""The schemas whose functions, views and triggers statements call."""

# Everything is qualified, since this still runs with the caller's search path. It tells who asks of
# which schemas, whose rows change when they get another owner or other rights.
_SETTLE: Final = (
    "SELECT "
    + ", ".join(
        f"pg_catalog.set_config(${i}::pg_catalog.text, ${i + 1}::pg_catalog.text, true)"
        for i in range(1, 2 * len(SETTINGS), 2)
    )
    + ", pg_catalog.concat_ws(' ', CURRENT_USER, SESSION_USER,"
    " pg_catalog.current_setting('is_superuser'), (SELECT pg_catalog.string_agg("
    "pg_catalog.concat_ws(' ', n.oid, n.xmin), ' ') FROM pg_catalog.pg_namespace AS n"
    " WHERE n.nspname OPERATOR(pg_catalog.=) ANY"
    f" (${2 * len(SETTINGS) + 1}::pg_catalog.name[]))) AS asked"
)

_NO_DATE: Final = "a date lies outside of the years 1 to 9999, which Python's dates have"
_NO_TEXT: Final = "a text holds a NUL character, or is not valid Unicode"


class PsycopgSession(ReportingSession):
    """:class:`~kanon_db.session.protocol.Session` over one psycopg connection.

    :meth:`transaction` around each operation fixes the settings and makes it atomic.
    """

    def __init__(
        self,
        connection: psycopg.Connection,
        on_progress: Watcher | None = None,
        on_warning: Listener | None = None,
        on_notice: Listener | None = None,
    ) -> None:
        super().__init__(on_progress)
        self.connection = connection
        self._on_warning = on_warning
        self._on_notice = on_notice
        self._trusted = ""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block in one transaction, under the settings that statements rely on.

        Checks first, once per role and schemas, whose code would run: see :func:`require_trusted`.
        """
        with self.translate_errors(), self.connection.transaction():
            (settled,) = self._fetch(_SETTLE, *itertools.chain(*SETTINGS.items()), list(_OURS))
            try:
                if settled["asked"] != self._trusted:
                    require_trusted(self, *_OURS)
                    self._trusted = settled["asked"]
                yield
            except KeyboardInterrupt:
                raise UndoneInterrupt from None

    def qualified(self, relation: str) -> str:
        """Find a relation with the connection's own search path, so outside of a transaction."""
        rows = self._fetch(
            "SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) AS name"
            " FROM pg_catalog.pg_class AS c"
            " JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace"
            " WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1::pg_catalog.text)",
            relation,
        )
        return str(rows[0]["name"]) if rows else relation

    def fetch(self, statement: str, *values: Value) -> list[Row]:
        """Run one statement; see the protocol."""
        self._require_transaction()
        return self._fetch(statement, *values)

    def _require_transaction(self) -> None:
        """Refuse a statement that could run with any search path, or before anybody has looked."""
        if self.connection.info.transaction_status is pq.TransactionStatus.IDLE:
            raise AssertionError("statements belong in PsycopgSession.transaction()")

    def _fetch(self, statement: str, *values: Value) -> list[Row]:
        with (
            self.translate_errors(),
            psycopg.RawCursor(self.connection, row_factory=dict_row) as cursor,
        ):
            # The text consists only of quoted identifiers and of our own words.
            cursor.execute(statement.encode(), values or None)
            return [] if cursor.description is None else list(cursor.fetchall())

    def stream(self, n: int, statement: str, *values: Value) -> Iterator[Row]:
        """Run one statement through a cursor of the server; see the protocol."""
        self._require_transaction()
        name = f"kanon_{secrets.token_hex(8)}"
        with (
            self.translate_errors(),
            _close_after(
                psycopg.RawServerCursor(self.connection, name, row_factory=dict_row)
            ) as cursor,
        ):
            cursor.execute(statement.encode(), values)
            while rows := cursor.fetchmany(n):
                yield from rows

    def copy(self, statement: str, blocks: Iterable[bytes]) -> None:
        """Run ``COPY ... FROM STDIN`` with data that comes in blocks."""
        self._require_transaction()
        with (
            self.translate_errors(),
            psycopg.RawCursor(self.connection) as cursor,
            cursor.copy(statement.encode()) as copy,
        ):
            for block in blocks:
                copy.write(block)
                self.heartbeat()

    def copied(self, statement: str) -> Iterator[bytes]:
        """Run ``COPY ... TO STDOUT``, and yield the rows; meanwhile nothing else can be run."""
        self._require_transaction()
        self._is_wanted, wanted = False, self._is_wanted
        try:
            with (
                self.translate_errors(),
                psycopg.RawCursor(self.connection) as cursor,
                cursor.copy(statement.encode()) as copy,
            ):
                yield from map(bytes, copy)  # libpq gives one row at a time
        finally:
            self._is_wanted = wanted

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Translate errors that the driver raises within the block; see `server_errors`."""
        try:
            yield
        except UnicodeEncodeError:
            raise InvalidParameterError(_NO_TEXT) from None
        except psycopg.Error as error:
            if isinstance(error, psycopg.DataError) and error.sqlstate is None:  # the driver's own
                is_date = str(error).startswith(("date too", "timestamp too"))
                raise InvalidParameterError(_NO_DATE if is_date else _NO_TEXT) from None
            raise database_error(error.sqlstate, error.diag.message_primary) from None

    def identifier(self, *parts: str) -> str:
        """Quote a name, or several joined by dots."""
        return sql.Identifier(*parts).as_string(self.connection)

    def literal(self, value: str) -> str:
        """Quote a value."""
        return sql.Literal(value).as_string(self.connection)

    def savepoint(self) -> AbstractContextManager[object]:
        """Run the block in a savepoint."""
        return self.connection.transaction()

    def tell(self, message: str) -> None:
        """Pass the message to the listener."""
        if self._on_notice:
            self._on_notice(message)

    def warn(self, message: str) -> None:
        """Pass the warning to the listener."""
        if self._on_warning:
            self._on_warning(message)


NOT_ADOPTED: Final = "drop or rename it; kanon_db does not adopt foreign objects"

# Whoever can become a superuser may be made to by any code. The objects of the owner of
# publications, which nobody can become, are as good as those of whoever could: its members.
_UNTRUSTED: Final = """
WITH caller AS (
    SELECT u.oid, EXISTS (
        SELECT FROM pg_roles AS s WHERE s.rolsuper AND (pg_has_role(current_user, s.oid, 'MEMBER')
            OR pg_has_role(session_user, s.oid, 'MEMBER'))) AS is_superuser
    FROM pg_roles AS u WHERE u.rolname = current_user
), ours AS (
    SELECT n.oid, n.nspname::text AS name, n.nspowner AS owner FROM pg_namespace AS n
    WHERE n.nspname = ANY ($1::text[])
), objects AS (
    SELECT n.name, s.refobjid AS owner FROM ours AS n
    JOIN pg_depend AS d ON d.refclassid = 'pg_namespace'::regclass AND d.refobjid = n.oid
    JOIN pg_shdepend AS s ON s.classid = d.classid AND s.objid = d.objid AND s.deptype = 'o'
        AND s.dbid = (SELECT b.oid FROM pg_database AS b WHERE b.datname = current_database())
)
SELECT f.rank, f.name AS schema, r.rolname::text AS owner, r.rolcreaterole AS is_administrator
FROM (
    SELECT 1 AS rank, name, owner FROM ours
    UNION ALL
    SELECT 2, o.name, o.owner FROM objects AS o JOIN pg_roles AS r ON r.oid = o.owner
    WHERE r.rolname <> 'kanon_owner' OR r.rolcanlogin
    UNION ALL
    SELECT 3, o.name, m.member FROM objects AS o JOIN pg_roles AS r ON r.oid = o.owner
    JOIN pg_auth_members AS m ON m.roleid = r.oid WHERE r.rolname = 'kanon_owner'
) AS f
JOIN pg_roles AS r ON r.oid = f.owner CROSS JOIN caller AS u
WHERE NOT (r.rolsuper OR NOT u.is_superuser AND (r.oid = u.oid OR r.rolcreaterole
    AND r.oid = (SELECT n.owner FROM ours AS n WHERE n.name = 'kanon')))
ORDER BY f.rank, f.name, r.rolname LIMIT 1
"""


def require_trusted(session: Session, *schemas: str) -> None:
    """Make sure that schemas, where they exist, are of roles whose code the session may run."""
    # These are superusers and, unless the session's role is one or could become one, that role
    # itself and the administrator who has installed kanon_db. The owner of an object can change it,
    # even after CREATE OR REPLACE, and somebody else's view or function can run with the rights of
    # whoever reads or calls it.
    rows = session.fetch(_UNTRUSTED, list(schemas))
    if not rows:
        return
    row = rows[0]
    schema, owner = row["schema"], f'role "{row["owner"]}"'
    if row["rank"] == 1 and row["is_administrator"]:
        raise PermissionDeniedError(
            "kanon_db was installed by a role that is no superuser, whose code a superuser does not"
            " run",
            detail=f'schema "{schema}" is owned by {owner}',
            hint=f"connect as {row['owner']}",
        )
    if row["rank"] == 1:
        raise PermissionDeniedError(
            "a schema of this name belongs to somebody else",
            detail=f'schema "{schema}" is owned by {owner}',
            hint=NOT_ADOPTED,
        )
    if row["rank"] == 3 or row["owner"] == "kanon_owner":
        raise PermissionDeniedError(
            "somebody can become the role that owns publications",
            detail='role "kanon_owner" '
            + (f"has the member {owner}" if row["rank"] == 3 else "can log in"),
            hint="ALTER ROLE kanon_owner NOLOGIN, and REVOKE it from its members",
        )
    raise PermissionDeniedError(
        f"the schema {schema} contains objects of somebody else",
        detail=f"functions, relations or types are owned by {owner}",
        hint=NOT_ADOPTED,
    )


def open_connection(dsn: str) -> psycopg.Connection:
    """Connect in autocommit mode, so that each operation has its own transaction."""
    address = _ADDRESS.match(dsn)
    if address is not None and "@" in address["host"]:
        # The driver would ask the network for a host that is the end of the password.
        raise ServerError("the connection string cannot be read", hint=_ENCODE)
    try:
        # Statements are sent as UTF-8, whatever the database or the environment would choose; and
        # none is prepared, since a pooler may send the next transaction to another server process.
        return psycopg.connect(
            dsn, autocommit=True, application_name=PREFIX, client_encoding="UTF8",
            prepare_threshold=None,
        )  # fmt: skip
    except (psycopg.ProgrammingError, UnicodeEncodeError):
        raise ServerError(
            "the connection string cannot be read",
            hint="write it as postgresql://user@host/database or host=... dbname=... user=...",
        ) from None
    except psycopg.OperationalError as error:
        raise ServerError(
            "cannot connect to the server",
            detail=_reason(dsn, str(error)),
            hint="check the connection string; `kanon local start` starts a private server, which"
            " commands use where neither --dsn nor KANON_DSN names another",
        ) from None


_ADDRESS: Final = re.compile(r"postgres(?:ql)?://(?:[^/@]*@)?(?P<host>[^/?]*)")
"""The beginning of a connection URI, as libpq reads it."""

_ENCODE: Final = (
    "in a URI, write @ in a user's name or password as %40, / as %2F, : as %3A and % as %25"
)


def _reason(dsn: str, text: str) -> str:
    """Return the first line of libpq's reason, unless it could quote a part of the password."""
    # libpq names the host, the port, the user and the database, never the password. But it mistakes
    # parts of a password with an unencoded slash for these.
    address = _ADDRESS.match(dsn)
    if address is not None and "@" in dsn[address.end() :]:
        return f"if the user's name or the password has special characters: {_ENCODE}"
    return text.strip().splitlines()[0] if text.strip() else ""


@contextmanager
def _close_after(cursor: psycopg.RawServerCursor[Row]) -> Iterator[psycopg.RawServerCursor[Row]]:
    """Close the cursor after the block, also where the connection breaks while it closes."""
    try:
        yield cursor
    finally:
        try:
            cursor.close()
        except psycopg.Error:
            cursor.close()  # without the server this time: the driver has seen that it is gone
            raise
