"""How the innermost loops are compiled: functions that run millions of times, and make no arrays.

They do without numba's runtime. It would count references to the arrays that they pass on, a dozen
in a tuple, which takes longer than to weigh 64 cells; whoever calls them from Python holds these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

_Function = TypeVar("_Function", bound=Callable[..., Any])

_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}


def innermost(function: _Function) -> _Function:
    """Compile a function for which Python's lock is let go."""
    return cast("_Function", numba.njit(**_OPTIONS)(function))


def inlined(function: _Function) -> _Function:
    """Compile a function as part of those that call it."""
    return cast("_Function", numba.njit(inline="always", **_OPTIONS)(function))
