"""Performs the calls of the SQL functions, inside the server or for a worker.

Heavier parts are imported by the call that needs them, so that a session's first estimate does not
have to wait for numpy.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final

import kanon_db.interfaces.backend  # noqa: F401  # before all others
from kanon_db.answers import QUESTIONS
from kanon_db.declaration import Operation
from kanon_db.errors import InvalidParameterError, KanonError
from kanon_db.interfaces.backend import with_stack
from kanon_db.session import Session
from kanon_db.session.plpy_session import PlpySession

_QUESTIONS: Final = {operation.name: operation for operation in QUESTIONS}

_write_json: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def operation_named(name: str) -> Operation:
    """Return an operation; only one that asks no question imports what all others declare."""
    if name in _QUESTIONS:
        return _QUESTIONS[name]
    from kanon_db.operations import operation_named as declared

    return declared(name)


@with_stack
def call(plpy: Any, name: str, arguments: str | None) -> str:
    """Perform an operation; return JSON with `value`, `rows` or `error`."""
    # The SQL function around this one raises the error as one of PostgreSQL's own, without any
    # trace of Python.
    try:
        return _reply(plpy, name, arguments)
    except KanonError as error:
        refused = error
    except Exception as error:  # noqa: BLE001  # the outermost frame: a bug's text may quote data
        refused = defect(error)
    return _refusal(refused)


@with_stack
def vote(plpy: Any, given: str, inputs: bytes | None) -> str:
    """Let a model's members vote, with the rights of their owner; return JSON as :func:`call`.

    `given`: A JSON object; see `kanon.owner_classify`.
    """
    from kanon_db.models.asking import answer_question

    try:
        return json.dumps(answer_question(PlpySession(plpy), json.loads(given), inputs))
    except KanonError as error:
        refused = error
    except Exception as error:  # noqa: BLE001  # as above
        refused = defect(error)
    return _refusal(refused)


def refusal(refused: KanonError) -> dict[str, str]:
    """Return an error as the SQL functions read it."""
    fields = {"message": refused.message, "sqlstate": refused.sqlstate}
    return fields | {key: text for key in ("detail", "hint") if (text := getattr(refused, key))}


def _refusal(refused: KanonError) -> str:
    return json.dumps({"error": refusal(refused)}, ensure_ascii=False)


def _reply(plpy: Any, name: str, arguments: str | None) -> str:
    operation = operation_named(name)
    request = operation.read(_read_given(arguments))
    # Errors are returned, not raised, so everything that was done before must be undone here.
    with nullcontext() if operation.is_stable else plpy.subtransaction():
        return _object(_members(operation, operation.perform(PlpySession(plpy), request)))


def reply(session: Session, name: str, arguments: str, said: Sequence[Any]) -> str:
    """Perform an operation, whose errors are raised, and return what it found as JSON.

    `name`: the name of the operation. `arguments`: its parameters as a JSON object.
    """
    # `said`: what the session was told while it ran, which is returned, too.
    operation = operation_named(name)
    found = operation.perform(session, operation.read(_read_given(arguments)))
    return _object({**_members(operation, found), "said": _json(said)})


def _members(operation: Operation, answer: Any) -> dict[str, str]:
    if operation.is_value:
        return {"value": _json(answer)}
    if not operation.result:
        return {}
    rows = [_row(operation, row) for row in (answer if operation.is_many else [answer])]
    return {"rows": f"[{', '.join(rows)}]"}


def _read_given(arguments: str | None) -> dict[str, Any]:
    try:
        given = None if arguments is None else json.loads(arguments, parse_float=str)
    except (ValueError, RecursionError):  # a number too long, or nested too deeply
        given = None
    if not isinstance(given, dict):
        raise InvalidParameterError("the arguments must be a JSON object of parameters")
    return given


def _row(operation: Operation, answer: Any) -> str:
    values = zip(operation.result, operation.row(answer), strict=True)
    return _object(
        {
            # JSON of the server's goes as it is: read, its numbers would be rounded.
            column.name: value if column.sql == "jsonb" and isinstance(value, str) else _json(value)
            for column, value in values
        }
    )


def _object(members: Mapping[str, str]) -> str:
    return f"{{{', '.join(f'{_json(name)}: {text}' for name, text in members.items())}}}"


def _json(value: Any) -> str:
    return _write_json(_finite(value))


def _finite(value: Any) -> Any:
    """Write numbers that JSON does not have as the text that PostgreSQL reads."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if hasattr(value, "item"):  # a numpy scalar
        value = value.item()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def defect(error: Exception) -> KanonError:
    """Make the error that a caller may see of a bug: where it is, without its text."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    where = "unknown place"
    if traceback is not None:
        code = traceback.tb_frame.f_code
        where = f"{code.co_qualname}, line {traceback.tb_lineno}"
    return KanonError(
        "kanon_db failed because of a bug",
        detail=f"{type(error).__name__} in {where}",
        hint="please report it; nothing was changed",
    )
