"""Serves publications to language models, by the Model Context Protocol.

A model asks as the login does that the server has: one that can read publications and nothing else,
or the server does not start. Each call is a transaction that only reads.
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable
from typing import Any, Final

from kanon_db import __version__
from kanon_db.catalog.entries import published_schema
from kanon_db.declaration.shown import plain
from kanon_db.errors import KanonError, NotFoundError, PermissionDeniedError, ServerError
from kanon_db.interfaces.python import Kanon
from kanon_db.session.psycopg_session import PsycopgSession, open_connection
from kanon_db.wording import for_models

INSTRUCTIONS: Final = (
    "Answers counts, sums, averages and the like from anonymized publications; it has no rows of"
    " people. Begin with list_publications and describe_publication, then ask with SELECT queries."
    " Tell people the likely range beside an estimate: only the bounds are certain."
)

_TOO_MUCH: Final = """
SELECT format('it is %s', what) AS found, 'give the server a login of its own' AS remedy
FROM pg_roles, LATERAL (VALUES ('a superuser', rolsuper), ('allowed to bypass row security',
    rolbypassrls), ('allowed to create roles', rolcreaterole), ('allowed to create databases',
    rolcreatedb), ('allowed to replicate', rolreplication)) AS granted (what, is_so)
WHERE rolname = current_user AND is_so
UNION ALL
SELECT format('it is a member of %I', r.rolname),
    format('REVOKE %I FROM %I', r.rolname, current_user)
FROM pg_roles AS r
WHERE pg_has_role(current_user, r.oid, 'MEMBER') AND r.rolname <> current_user
  AND (r.rolname IN ('kanon_publisher', 'kanon_owner') OR r.rolname ~ '^pg_'
    -- its rights are taken by SET ROLE alone, and not looked at below
    OR NOT pg_has_role(current_user, r.oid, 'USAGE'))
UNION ALL
SELECT format('it may %s %I.%I', right_, n.nspname, c.relname),
    format('REVOKE %s ON %I.%I FROM %I, or from PUBLIC or the role that has it', right_, n.nspname,
        c.relname, current_user)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace,
    unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,TRIGGER}'::text[]) AS right_
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND n.nspname !~ '^pg_'
  AND n.nspname NOT IN ('kanon', 'information_schema')
  AND NOT (right_ = 'SELECT' AND n.nspname =
    (SELECT value FROM kanon.setting WHERE name = 'published_schema'))
  AND has_schema_privilege(n.oid, 'USAGE') AND (has_table_privilege(c.oid, right_)
    OR right_ IN ('SELECT', 'INSERT', 'UPDATE') AND has_any_column_privilege(c.oid, right_))
UNION ALL
SELECT format('it may create in schema %I', nspname),
    format('REVOKE CREATE ON SCHEMA %I FROM %I, or from PUBLIC or the role that has it', nspname,
        current_user)
FROM pg_namespace WHERE nspname !~ '^pg_' AND has_schema_privilege(oid, 'CREATE')
UNION ALL
SELECT 'it may create schemas', format('REVOKE CREATE ON DATABASE %I FROM %I, or from PUBLIC or the'
    ' role that has it', current_database(), current_user)
WHERE has_database_privilege(current_database(), 'CREATE')
UNION ALL
SELECT format('it may SELECT pg_catalog.%I', c.relname),
    format('REVOKE SELECT ON pg_catalog.%I FROM %I, or from PUBLIC or the role that has it',
        c.relname, current_user)
FROM pg_class AS c
WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind IN ('r', 'v')
  AND has_table_privilege(c.oid, 'SELECT') AND NOT EXISTS (
    SELECT FROM pg_init_privs AS i, aclexplode(i.initprivs) AS a
    WHERE i.classoid = 'pg_class'::regclass AND i.objoid = c.oid AND i.objsubid = 0
      AND a.grantee = 0 AND a.privilege_type = 'SELECT')
UNION ALL
SELECT format('it may execute %s, which has its owner''s rights', p.oid::regprocedure),
    format('REVOKE EXECUTE ON FUNCTION %s FROM %I, or from PUBLIC or the role that has it',
        p.oid::regprocedure, current_user)
FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
WHERE p.prosecdef AND n.nspname NOT IN ('kanon', 'pg_catalog')
  AND has_schema_privilege(n.oid, 'USAGE') AND has_function_privilege(p.oid, 'EXECUTE')
UNION ALL
SELECT format('it may read large object %s', l.oid),
    format('REVOKE ALL ON LARGE OBJECT %s FROM %I, or from PUBLIC or the role that has it', l.oid,
        current_user)
FROM pg_largeobject_metadata AS l
WHERE pg_has_role(current_user, l.lomowner, 'USAGE') OR EXISTS (SELECT FROM aclexplode(l.lomacl)
    AS a WHERE a.grantee = 0 OR pg_has_role(current_user, a.grantee, 'USAGE'))
UNION ALL
SELECT format('it may use foreign server %I', srvname), format('REVOKE USAGE ON FOREIGN SERVER %I'
    ' FROM %I, or from PUBLIC or the role that has it', srvname, current_user)
FROM pg_foreign_server WHERE has_server_privilege(oid, 'USAGE')
ORDER BY 1 LIMIT 1
"""


_COLUMNS: Final = """
SELECT a.attname::text AS name, format_type(a.atttypid, a.atttypmod) AS type
FROM pg_attribute AS a WHERE a.attrelid = to_regclass($1::text) AND a.attnum > 0
    AND NOT a.attisdropped ORDER BY a.attnum
"""


def require_reader(session: PsycopgSession) -> None:
    """Refuse a login that can read or change more than publications, and name the grant."""
    for row in session.fetch(_TOO_MUCH):
        raise PermissionDeniedError(
            "the login may do more than read publications",
            detail=str(row["found"]),
            hint=str(row["remedy"]),
        )


class AgentTools:
    """What a model may ask, over one connection."""

    def __init__(self, dsn: str) -> None:
        connection = open_connection(dsn)
        self._session = PsycopgSession(connection)
        try:
            with self._session.transaction():
                require_reader(self._session)
        except KanonError:
            connection.close()
            raise
        connection.execute("SET default_transaction_read_only = on")
        connection.execute("SET statement_timeout = '60s'")
        connection.commit()
        self._kanon = Kanon(self._session)

    def close(self) -> None:
        """Close the connection."""
        self._kanon.close()

    def list_publications(self) -> list[dict[str, Any]]:
        """List the publications that can be asked: name, kind, number of records, guarantee."""
        return [
            {name: one[name] for name in ("name", "kind", "rows", "guarantee")}
            for one in plain(self._kanon.publications())
        ]

    def describe_publication(self, name: str) -> dict[str, Any]:
        """Describe a publication: columns, what is promised of it, and questions to begin with."""
        described = next((one for one in self.list_publications() if one["name"] == name), None)
        if described is None:
            raise NotFoundError(
                "there is no such publication, or the login may not read it",
                hint="list_publications has those that it may read",
            )
        session = self._session
        with session.transaction():
            view = session.identifier(published_schema(session), name)
            columns = plain(session.fetch(_COLUMNS, view))
        own, examples = session.identifier(name), list[str]()
        for column in columns[:1]:  # A model has none, and answers no counts
            key = session.identifier(column["name"])
            examples = [
                f"SELECT COUNT(*) FROM {own}", f"SELECT {key}, COUNT(*) FROM {own} GROUP BY {key}"
            ]  # fmt: skip
        return {**described, "columns": columns, "examples": examples}

    def ask(self, query: str) -> dict[str, Any]:
        """Answer SELECT COUNT(*), SUM(x), ... FROM a publication, with bounds that are certain."""
        answer = self._kanon.count(query)
        return {"rows": plain(answer), "notes": answer.attrs["notes"]}

    def explain(self, query: str) -> list[dict[str, Any]]:
        """Say which parts of a query are exact, which are estimated, and how."""
        lines: list[dict[str, Any]] = plain(self._kanon.explain_count(query))
        return lines

    def draw(self, name: str, limit: int = 20) -> list[dict[str, Any]]:
        """Make up at most a hundred records that are like those of a publication."""
        drawn: list[dict[str, Any]] = plain(self._kanon.draw(name).head(max(0, min(limit, 100))))
        return drawn


def serve(dsn: str) -> None:
    """Serve over standard input and output, until the client leaves.

    `ServerError`: the extra ``mcp`` is not installed.
    """
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError:
        raise ServerError(
            "the server for language models needs a package that is not installed here",
            detail="mcp",
            hint="pip install 'kanon_db[mcp]'",
        ) from None
    tools, lock = AgentTools(dsn), threading.Lock()

    def guard(tool: Callable[..., Any]) -> Callable[..., str]:
        @functools.wraps(tool)
        def call(*args: Any, **given: Any) -> str:
            with lock:  # one connection
                try:
                    return json.dumps(tool(*args, **given), ensure_ascii=False)
                except KanonError as error:
                    texts = filter(None, (error.message, error.detail, for_models(error.hint)))
                    raise ToolError("\n".join(texts)) from None

        call.__annotations__ = {**tool.__annotations__, "return": "str"}
        return call

    server = MCPServer("kanon_db", instructions=INSTRUCTIONS, version=__version__)
    for tool in (
        tools.list_publications, tools.describe_publication, tools.ask, tools.explain, tools.draw,
    ):  # fmt: skip
        server.tool(structured_output=False)(guard(tool))
    server.run("stdio")
