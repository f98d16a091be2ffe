"""Attacks on the ways in: mistyped, called from inside, shadowed, cut off, oddly encoded."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import kanon_db
from kanon_db.declaration import Operation
from kanon_db.declaration import value as value_of_type
from kanon_db.errors import InvalidParameterError, KanonError, ServerError
from kanon_db.installation.install import install
from kanon_db.interfaces import plpython
from kanon_db.operations import NoParameters
from tests.integration.parties import (
    Connection,
    Functions,
    Package,
    Parties,
    everything,
    fetch,
    holds,
    quoted,
    remains,
    value,
)

PACKAGE = Path(kanon_db.__file__).parent
PRIVACY = '{"l": 3}'


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    fetch(
        parties.publisher,
        "CREATE TABLE data.people AS SELECT i % 9 AS age, i % 5 AS sick,"
        " (ARRAY[12345678901234567890.1234567890123456789, 1.10, NULL, 'NaN'])[1 + i % 4] AS n,"
        " (ARRAY['a\"b', '{\"x\": 1}', NULL, 'é…$$%s', E'a\\\\b'])[1 + i / 12] AS t"
        " FROM generate_series(0, 59) AS i",
    )
    kanon = Functions(parties.publisher)
    kanon.register("data.people", ["age", "n", "t"], "sick")
    kanon.publish("data.people", "kept", privacy=PRIVACY)


def refusal(call: Callable[[], object]) -> tuple[str | None, str | None, str | None, str | None]:
    """SQLSTATE and words of a refusal, either way."""
    try:
        call()
    except KanonError as error:
        return error.sqlstate, error.message, error.detail or None, error.hint or None
    except psycopg.Error as error:
        told = error.diag
        assert len((told.context or "").splitlines()) == 1
        return told.sqlstate, told.message_primary, told.message_detail, told.message_hint
    raise AssertionError("nothing was refused")


# -- mistyped -------------------------------------------------------------------------------------

SLIPS: dict[str, Callable[[Functions | Package], object]] = {
    "description in a text": lambda k: k.register(
        "data.people", ["age"], "sick", attributes='{"age": "{\\"kind\\": \\"numeric\\"}"}'
    ),
    "option": lambda k: k.generalize("data.people", "x", k=3, options='{"time_limt": 3}'),
    "method": lambda k: k.publish("data.people", "x", privacy=PRIVACY, method="two_siz"),
    "null among readers": lambda k: k.publish(
        "data.people", "x", privacy=PRIVACY, readers=["kanon_analyst", None]
    ),
    "list for an object": lambda k: k.publish("data.people", "x", privacy="[]"),
    "dollars": lambda k: k.verify("$function$ $python$ $$ %s %% \\ ' \" é"),
    "ellipsis": lambda k: k.estimate(""),
}


def test_refused_in_the_same_words(parties: Parties) -> None:
    before = remains(parties.admin)
    for name, slip in SLIPS.items():
        found = refusal(lambda: slip(Functions(parties.publisher)))
        assert found == refusal(lambda: slip(Package(parties.publisher))), name
        assert found[0] != "KN000", name
    for no_text in ("\udcff", "a\0b"):  # bytes of a command line that are no UTF-8, and NUL
        with pytest.raises(InvalidParameterError):
            Package(parties.publisher).verify(no_text)
    assert remains(parties.admin) == before


# -- called from inside ---------------------------------------------------------------------------


def test_wrong_arguments_are_refused(parties: Parties) -> None:
    call = "SELECT kanon.python_verify($1::text::jsonb) -> 'error' ->> 'sqlstate'"
    deep = "[" * 2000 + "]" * 2000
    for name in ("9" * 5000, deep):
        assert value(parties.analyst, call, f'{{"name": {name}}}') == "22023"
    for arguments in (None, "null", "3", "[]", '["name"]', '"name"'):
        assert value(parties.analyst, call, arguments) == "22023", arguments


@pytest.mark.long
def test_direct_call_that_is_cancelled_is_undone(parties: Parties) -> None:
    """Half a replacement, in a transaction that goes on: the old publication is there."""
    before = remains(parties.admin)
    fetch(
        parties.admin,
        "CREATE FUNCTION public.wait() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN"
        " PERFORM pg_sleep(9); END$$; CREATE EVENT TRIGGER wait ON ddl_command_end"
        " WHEN TAG IN ('CREATE VIEW') EXECUTE FUNCTION public.wait()",
    )
    given = {"source": "data.people", "publication": "kept", "privacy": {"l": 2}, "replace": True}
    try:
        with parties.publisher.transaction():
            fetch(parties.publisher, "SET LOCAL statement_timeout = 900")
            call = "SELECT kanon.python_publish_buckets($1::text::jsonb)"
            assert value(parties.publisher, call, json.dumps(given))["error"]["sqlstate"] == "57014"
            fetch(parties.publisher, "SET LOCAL statement_timeout = 0")
            assert holds(parties.publisher, "kept")
        # The function for people raises the cancel, which no WHEN OTHERS takes.
        fetch(parties.publisher, "SET statement_timeout = 900")
        with pytest.raises(psycopg.errors.QueryCanceled) as caught:
            fetch(
                parties.publisher,
                "DO $$BEGIN PERFORM kanon.publish_buckets('data.people', 'other',"
                " privacy => '{\"l\": 2}'); EXCEPTION WHEN OTHERS THEN NULL; END$$",
            )
        assert caught.value.diag.message_primary == "canceling statement due to statement timeout"
    finally:
        fetch(parties.publisher, "RESET statement_timeout")
        fetch(parties.admin, "DROP EVENT TRIGGER wait")
    assert remains(parties.admin) == before


def unspeakable(_session: object) -> object:
    """An operation whose result is no JSON."""
    return object()


def test_what_cannot_be_answered_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    result = value_of_type("jsonb")
    operation = Operation("x", "x", f"{__name__}:unspeakable", result, request=NoParameters)
    monkeypatch.setattr(plpython, "operation_named", lambda _name: operation)
    server = mock.MagicMock()
    leave = server.subtransaction.return_value.__exit__
    leave.return_value = None
    reply = json.loads(plpython.call(server, "x", "{}"))
    assert reply["error"]["sqlstate"] == "KN000"
    assert leave.call_args.args[0] is TypeError  # which undoes it


# -- shadowed -------------------------------------------------------------------------------------

USED = {
    "jsonb_build_object": ["", "VARIADIC text[]", "text, text", "text, int4"],
    "jsonb_to_recordset": ["jsonb"],
    "python_estimate_count": ["jsonb"],
}
OPERATORS = ["?", "->", "->>"]


@pytest.mark.pitfall(2)
def test_look_alikes_of_what_the_functions_use(
    parties: Parties, connect_as: Callable[[str, str], Connection]
) -> None:
    """Functions and operators first on the path, when the functions are first compiled."""
    query = "SELECT COUNT(*) FROM kept WHERE age > 3"
    expected = Functions(parties.analyst).estimate(query)
    stranger = parties.stranger.info.user
    fetch(parties.admin, f"CREATE SCHEMA trap AUTHORIZATION {stranger}")
    fetch(parties.admin, "GRANT USAGE ON SCHEMA trap TO PUBLIC")
    raising = "LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'trapped'; END$$"
    for name, signatures in USED.items():
        for signature in signatures:
            fetch(parties.stranger,
                  f"CREATE FUNCTION trap.{name}({signature}) RETURNS jsonb {raising}")  # fmt: skip
    for operator in OPERATORS:
        function = f"trap.{quoted(operator)}"
        fetch(parties.stranger, f"CREATE FUNCTION {function}(jsonb, text) RETURNS text {raising}")
        fetch(parties.stranger, f"CREATE OPERATOR trap.{operator} (FUNCTION = {function},"
              " LEFTARG = jsonb, RIGHTARG = text)")  # fmt: skip
    with connect_as(parties.dsn, parties.analyst.info.user) as connection:
        fetch(connection, "SET search_path = trap, pg_catalog")
        with pytest.raises(psycopg.errors.RaiseException, match="trapped"):
            fetch(connection, "SELECT '{}'::jsonb -> 'error'::text")
        assert Functions(connection).estimate(query) == expected
        assert refusal(lambda: Functions(connection).estimate("SELECT"))[0] == "0A000"
        fetch(connection, "SET datestyle = 'German'")
        fetch(connection, "SET force_parallel_mode = on")
        assert Functions(connection).estimate(query) == expected
        keys = "SELECT group_key ->> 't' FROM kanon.estimate_counts($1::pg_catalog.text)"
        asked = r"SELECT COUNT(*) FROM kept WHERE t = 'a\b' GROUP BY t"
        fetch(connection, "SET search_path = pg_catalog")
        assert fetch(connection, keys, asked) == [("a\\b",)]
        fetch(connection, "SET standard_conforming_strings = off")
        assert Functions(connection).estimate(query) == expected


# -- results --------------------------------------------------------------------------------------


def test_keys_of_groups_are_as_published(parties: Parties) -> None:
    """No digit is lost on the way through JSON, and no text is read as anything else."""
    for column, function in product(("n", "t"), ("estimate_counts", "estimate")):
        found = fetch(
            parties.analyst,
            f"SELECT group_key::text, estimate FROM kanon.{function}($1::text) ORDER BY 1",
            f"SELECT {column}, COUNT(*) FROM kept GROUP BY {column}",
        )
        assert found == fetch(
            parties.analyst,
            f"SELECT jsonb_build_object('{column}', {column})::text, count(*)::float8"
            f" FROM published.kept_qit GROUP BY {column} ORDER BY 1",
        )


# -- a dry run ------------------------------------------------------------------------------------


def test_dry_replacement_leaves_nothing(parties: Parties) -> None:
    """Nothing in any catalog, and no lock that keeps readers waiting, before the end either."""
    kanon = Functions(parties.publisher)
    kanon.publish("data.people", "kept", privacy=PRIVACY, replace=True, dry_run=True)
    before = everything(parties.admin)
    locks = (
        "SELECT locktype, mode FROM pg_locks WHERE pid = $1::int4 AND (locktype = 'advisory'"
        " OR mode IN ('ShareLock', 'ShareRowExclusiveLock', 'AccessExclusiveLock'))"
    )
    for privacy in ('{"l": 2}', '{"l": 50}'):  # which is refused
        with parties.publisher.transaction():
            fetch(parties.publisher, "SAVEPOINT before")
            try:
                kanon.publish("data.people", "kept", privacy=privacy, replace=True, dry_run=True)
            except psycopg.Error:
                fetch(parties.publisher, "ROLLBACK TO before")
            assert fetch(parties.admin, locks, parties.publisher.info.backend_pid) == []
            assert everything(parties.admin) == before


# -- encodings ------------------------------------------------------------------------------------


ALLOWED = {"NAME,…", chr(0xD800), chr(0xDFFF)}
"""What the command line says of itself, and what is looked for."""


def test_words_are_ascii() -> None:
    """A message must reach clients, and leave databases, that do not know a character of it."""
    for path in PACKAGE.rglob("*.py"):
        # The command line prints to terminals; what signs files have is looked for.
        if "interfaces" in path.parts or path.name in ("csv_file.py", "csv_types.py"):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
        documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        words = [str(node.value) for node in constants if id(node) not in documented]
        assert [text for text in words if not text.isascii() and text not in ALLOWED] == [], path


def test_client_of_another_encoding(parties: Parties) -> None:
    """Statements are UTF-8; a connection string that says otherwise would change their names."""
    told = refusal(lambda: Functions(parties.analyst).estimate(""))
    fetch(parties.analyst, "SET client_encoding = 'LATIN1'")
    try:
        assert refusal(lambda: Functions(parties.analyst).estimate("")) == told
    finally:
        fetch(parties.analyst, "SET client_encoding = 'UTF8'")
    dsn = make_conninfo(parties.dsn, user=parties.publisher.info.user, client_encoding="LATIN1")
    with kanon_db.connect(dsn) as kanon:
        kanon.publish_buckets("data.people", "é", privacy=PRIVACY)
        assert kanon.verify("é")["holds"].all()
        assert "published.é" in remains(parties.admin)
        kanon.drop_publication("é")


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_database_of_another_encoding(cluster_dsn: str, encoding: str) -> None:
    """Where names would not stay what they are, nothing is installed."""
    name = f"kanon_test_{encoding.lower()}"
    dsn = make_conninfo(cluster_dsn, dbname=name)
    with psycopg.connect(cluster_dsn, autocommit=True) as server:
        fetch(server, f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
        try:
            if encoding == "LATIN1":
                with pytest.raises(ServerError, match="encoding"):
                    install(dsn)
                return
            install(dsn)
            with psycopg.connect(dsn, autocommit=True, client_encoding="UTF8") as connection:
                fetch(connection, "CREATE TABLE public.p AS SELECT 'é' || i % 3 AS é, i % 5 AS s"
                      " FROM generate_series(1, 60) AS i")  # fmt: skip
            with kanon_db.connect(dsn) as kanon:
                kanon.register_source("public.p", quasi_identifiers=["é"], sensitive="s")
                kanon.publish_buckets("public.p", "é", privacy=PRIVACY)
                assert kanon.verify("é")["holds"].all()
                found = kanon.count("SELECT é, COUNT(*) FROM é GROUP BY é")
                assert list(found["é"]) == ["é0", "é1", "é2"]
        finally:
            fetch(server, f"DROP DATABASE {name} WITH (FORCE)")


# -- installed again ------------------------------------------------------------------------------


def test_default_that_is_withdrawn(new_database: Callable[[], str]) -> None:
    """PostgreSQL removes no default from a function; views of the others stay."""
    dsn = new_database()
    with psycopg.connect(dsn, autocommit=True) as connection:
        fetch(connection, "CREATE VIEW public.told AS SELECT kanon.version()")
        definition = value(
            connection, "SELECT pg_get_functiondef('kanon.verify(text)'::regprocedure)"
        )
        fetch(connection, "DROP FUNCTION kanon.verify(text)")
        fetch(connection, definition.replace("verify(name text)", "verify(name text DEFAULT 'x')"))
        install(dsn)
        install(dsn)
        assert value(connection, "SELECT version FROM public.told") == kanon_db.__version__
        described: Any = value(
            connection, "SELECT pg_get_function_arguments('kanon.verify(text)'::regprocedure)"
        )
        assert "DEFAULT" not in described
