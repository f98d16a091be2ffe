"""Imports sqlglot without what only its plug-ins need: a session's first estimate waits for it.

sqlglot looks for plug-ins when it is asked for a dialect that it does not know, which never happens
here. To do so it imports `importlib.metadata`, and with that all that e-mail needs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

_METADATA: Final = "importlib.metadata"


@contextmanager
def _metadata_later() -> Iterator[None]:
    """Let whatever is imported in the block import `importlib.metadata` when it calls it."""
    if _METADATA in sys.modules:
        yield
        return
    later = ModuleType(_METADATA)
    later.entry_points = _entry_points  # type: ignore[attr-defined]
    sys.modules[_METADATA] = later
    try:
        yield
    finally:
        del sys.modules[_METADATA]


def _entry_points(**chosen: Any) -> Any:
    from importlib.metadata import entry_points

    return entry_points(**chosen)


with _metadata_later():
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import ParseError, SqlglotError

__all__ = ["ParseError", "SqlglotError", "exp", "sqlglot"]
