"""Every way in: a call of an operation with given arguments, by each of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from click.testing import CliRunner

from kanon_db.declaration import Operation, Parameter
from kanon_db.errors import DatabaseError
from kanon_db.interfaces import cli
from kanon_db.interfaces.python import Kanon
from kanon_db.session.psycopg_session import PsycopgSession
from tests.hostile_input.arguments import as_json
from tests.integration.parties import Parties, fetch, quoted, value

REFUSED: Final = {
    "0A000": "outside what is answered",
    "22003": "a number is out of range for its type (PostgreSQL, before the call)",
    "22023": "an argument is malformed or out of range",
    "22P02": "a text is not of its type (PostgreSQL, before the call)",
    "22P05": "a character that the type cannot hold (PostgreSQL, before the call)",
    "42501": "the role lacks a right",
    "3F000": "there is no such schema (PostgreSQL, before the call)",
    "42601": "a text is no name (PostgreSQL, before the call)",
    "42602": "a name is malformed",
    "42704": "there is no such object",
    "42710": "a name is taken",
    "42804": "a type does not allow it",
    "42883": "there is no such parameter (PostgreSQL, before the call)",
    "42P01": "there is no such relation (PostgreSQL, before the call)",
    "54001": "JSON is nested too deeply (PostgreSQL, before the call)",
    "55006": "something else depends on it",
    "57014": "cancelled: statement_timeout",
    "KN001": "no publication can satisfy the specification",
    "KN002": "none was found within the limits",
    "KN005": "a risk is not accepted",
    "usage": "the command line says how it is used",
}
"""How a call may be refused: SQLSTATEs, with what they mean."""

Ways = Iterator[tuple[str, Callable[[], object]]]


class UsageError(DatabaseError):
    """The command line refused to understand."""


def ways_in(parties: Parties, operation: Operation, given: Mapping[str, Any]) -> Ways:
    """Give each way in its name and the call."""
    yield "SQL function", lambda: by_function(parties, operation, given)
    yield "kanon.python_…", lambda: by_json(parties, operation, given)
    yield "Python", lambda: by_method(parties, operation, given)
    yield "command line", lambda: by_command(parties, operation, given)


def by_function(parties: Parties, operation: Operation, given: Mapping[str, Any]) -> None:
    """Call the SQL function that people call."""
    declared = {item.name: item for item in operation.parameters}
    types = [declared[name].type.sql if name in declared else "text" for name in given]
    arguments = ", ".join(
        f"{quoted(name or '_')} => ${i}::text::{type_}"
        for i, (name, type_) in enumerate(zip(given, types, strict=True), start=1)
    )
    texts = [_as_value(item, type_) for item, type_ in zip(given.values(), types, strict=True)]
    fetch(parties.publisher, f"SELECT * FROM kanon.{operation.name}({arguments})", *texts)


def by_json(parties: Parties, operation: Operation, given: Mapping[str, Any]) -> None:
    """Call the inner function, with anything that is JSON."""
    call = f"SELECT kanon.python_{operation.name}($1::text::jsonb)"
    reply = value(parties.publisher, call, _as_text(given))
    if "error" in reply:
        told = reply["error"]
        raise DatabaseError(
            told["message"], sqlstate=told["sqlstate"], detail=told.get("detail", ""),
            hint=told.get("hint", ""),
        )  # fmt: skip


def by_method(parties: Parties, operation: Operation, given: Mapping[str, Any]) -> None:
    """Call the method, or, with names that Python would refuse, what it calls."""
    kanon = Kanon(PsycopgSession(parties.publisher))
    declared = {item.name for item in operation.parameters}
    required = {item.name for item in operation.parameters if item.is_required}
    if required <= given.keys() <= declared:
        getattr(kanon, operation.name)(**given)
    else:
        kanon.perform(operation.name, given)


def by_command(parties: Parties, operation: Operation, given: Mapping[str, Any]) -> None:
    """Run the command, in this process."""
    words = list(operation.command) or ["version" if operation.name == "version" else "query"]
    words.append("--json")
    for item in operation.parameters:
        if item.name in given:
            words += _as_words(item, given[item.name])
    words += [f"--{name}" for name in given if name not in {p.name for p in operation.parameters}]
    dsn = parties.dsn_of("publisher")
    ended = CliRunner().invoke(cli.main, words, env={"KANON_DSN": dsn})
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    if ended.exit_code == 2:
        raise UsageError(ended.output, sqlstate="usage")
    if ended.exit_code == 1:
        told = json.loads(ended.stdout).get("error")
        if told is not None:
            raise DatabaseError(told.pop("message"), **told)


def _as_words(item: Parameter, given: Any) -> list[str]:
    """What a person would write for an argument."""
    if item.is_positional:
        return [_as_text(given)]
    flag = f"--{item.name.replace('_', '-')}"
    if given is None:
        return []
    if item.type.sql == "boolean":
        return [flag] if given else []
    if isinstance(given, list) and item.type.sql.endswith("[]"):
        return [word for element in given for word in (flag, _as_text(element))]
    return [flag, _as_text(given)]


def _as_value(given: Any, type_: str) -> str | None:
    """A value as the text of a type, or as whatever it would be taken for."""
    if given is None:
        return None
    if isinstance(given, list) and type_.endswith("[]"):
        inner = ("NULL" if element is None else as_json(_as_text(element)) for element in given)
        return f"{{{','.join(inner)}}}"
    return _as_text(given)


def _as_text(given: Any) -> str:
    """A text as it is, without what the driver would refuse to send; all else as JSON."""
    text = given if isinstance(given, str) else as_json(given)
    return text.replace("\0", "\\0").encode(errors="replace").decode()
