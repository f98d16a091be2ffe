"""The exact call that publishes a candidate, in SQL and for the shell; knows no database."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from typing import Any, Final

from kanon_db.advice.candidates import Candidate

_LONGEST: Final = 40
"""Bytes of the table's name that a publication's name begins with."""


def publication_name(table: str, candidate: Candidate) -> str:
    """Make a name for the publication of a table.

    Examples
    --------
    >>> from kanon_db.advice.candidates import Candidate
    >>> publication_name("census", Candidate("buckets", "", "value", "", {}, "b"))
    'census_b'
    """
    kept = table.encode()[:_LONGEST].decode(errors="ignore")
    return f"{kept}_{candidate.suffix}"


def sql_call(source: str, name: str, candidate: Candidate, literal: Callable[[str], str]) -> str:
    """Write the call of the SQL function.

    Parameters
    ----------
    source : str
        The relation as SQL text.
    name : str
    candidate : Candidate
    literal : callable
        Quotes a text.
    """
    given = [
        f"{key} => {value if isinstance(value, int) else literal(_text(value))}"
        for key, value in candidate.given.items()
    ]
    arguments = ", ".join([literal(source), literal(name), *given])
    return f"SELECT * FROM kanon.publish_{candidate.kind}({arguments});"


def shell_command(source: str, name: str, candidate: Candidate) -> str:
    r"""Write the command, quoted for a POSIX shell.

    Examples
    --------
    >>> from kanon_db.advice.candidates import Candidate
    >>> one = Candidate("buckets", "", "value", "", {"privacy": {"l": 3}}, "b")
    >>> shell_command("public.census", "census_b", one)
    'kanon publish buckets public.census census_b --privacy \'{"l": 3}\''
    """
    words = ["kanon", "publish", candidate.kind, source, name]
    for key, value in candidate.given.items():
        words += [f"--{key.replace('_', '-')}", _text(value)]
    return shlex.join(words)


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, Mapping) else str(value)
