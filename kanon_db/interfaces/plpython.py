"""What the PL/Python functions call: one function for all operations.

Heavier parts are imported by the call that needs them, so that a session's first estimate does not
have to wait for numpy.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from kanon_db.declaration import Operation
from kanon_db.errors import KanonError
from kanon_db.operations import operations
from kanon_db.session.plpy_session import PlpySession


def _choose_cache() -> None:
    """Let numba, which insists on it, keep compiled code where the server's user may write.

    This is usually the user's home, but a service may have none. The working directory of a server
    process is its data directory, which nobody else can read.
    """
    if "NUMBA_CACHE_DIR" not in os.environ and not os.access(Path("~").expanduser(), os.W_OK):
        os.environ["NUMBA_CACHE_DIR"] = str(Path.cwd() / "kanon_db_cache")


_choose_cache()


def call(plpy: Any, name: str, arguments: str) -> str:
    """Perform an operation, and return what it found, or why it refused, as JSON.

    Parameters
    ----------
    plpy : module
        The module ``plpy`` of the PL/Python call.
    name : str
        The name of the operation.
    arguments : str
        Its parameters as a JSON object.

    Returns
    -------
    str
        A JSON object with ``value``, ``rows`` or ``error``. The SQL function around this one
        raises the error as one of PostgreSQL's own, without any trace of Python.
    """
    try:
        return json.dumps(_reply(plpy, name, arguments), ensure_ascii=False, allow_nan=False)
    except KanonError as error:
        refused = error
    except Exception as error:  # noqa: BLE001  # the outermost frame: a bug's text may quote data
        refused = _defect(error)
    fields = {"message": refused.message, "sqlstate": refused.sqlstate}
    fields |= {key: text for key in ("detail", "hint") if (text := getattr(refused, key))}
    return json.dumps({"error": fields}, ensure_ascii=False)


def _reply(plpy: Any, name: str, arguments: str) -> dict[str, Any]:
    operation = operations()[name]
    request = operation.read(json.loads(arguments, parse_float=str))
    # Errors are returned, not raised, so everything that was done before must be undone here.
    with nullcontext() if operation.is_stable else plpy.subtransaction():
        found = operation.perform(PlpySession(plpy), request)
    if operation.is_value:
        return {"value": found}
    if not operation.result:
        return {}
    return {"rows": [_row(operation, row) for row in (found if operation.is_many else [found])]}


def _row(operation: Operation, found: Any) -> dict[str, Any]:
    values = zip(operation.result, operation.row(found), strict=True)
    return {
        column.name: json.loads(value)
        if column.sql == "jsonb" and isinstance(value, str)
        else _finite(value)
        for column, value in values
    }


def _finite(value: Any) -> Any:
    """Write numbers that JSON does not have as the text that PostgreSQL reads."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if hasattr(value, "item"):  # a numpy scalar
        value = value.item()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _defect(error: Exception) -> KanonError:
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
