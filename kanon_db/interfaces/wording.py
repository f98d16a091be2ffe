"""Hints in the language of the caller.

Operations write them as SQL, such as ``replace => true`` or ``kanon.register_source``. A parameter
has the same name everywhere, so the command line and Python can say the same in their own words.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Final

from kanon_db.operations import operations

_ARGUMENT: Final = re.compile(
    r"\b(?P<name>[a-z_]+) => (?:'(?P<text>(?:[^']|'')*)'|(?P<word>\.\.\.|[\w.]*\w))"
)
_FUNCTION: Final = re.compile(r"\bkanon\.(?P<name>[a-z_]+)\b(?:\(\))?")
_PUBLICATIONS: Final = "TABLE kanon.publications"
_QUERY: Final = ("estimate", "estimate_count", "estimate_counts")
"""Functions that one command stands for."""

_FLAGS: Final = ("true", "false")


def for_shell(text: str) -> str:
    """Say it with options and commands.

    Examples
    --------
    >>> for_shell("choose another name, or pass replace => true")
    'choose another name, or pass --replace'
    >>> for_shell("describe it with kanon.register_source")
    'describe it with kanon register'
    >>> for_shell("delimiter => ';' or date_format => 'DD.MM.YYYY'")
    "--delimiter ';' or --date-format DD.MM.YYYY"
    """
    text = text.replace(_PUBLICATIONS, "kanon publications")
    return _ARGUMENT.sub(_option, _FUNCTION.sub(_command, text))


def for_python(text: str) -> str:
    r"""Say it with keyword arguments and methods.

    Examples
    --------
    >>> for_python("choose another name, or pass replace => true")
    'choose another name, or pass replace=True'
    >>> for_python("types => '{\"zip\": \"text\"}'")
    'types={"zip": "text"}'
    """
    return _ARGUMENT.sub(_keyword, text.replace(_PUBLICATIONS, "kanon.publications()"))


def _option(found: re.Match[str]) -> str:
    flag = found["name"].replace("_", "-")
    if found["text"] is not None:
        return f"--{flag} {shlex.quote(_unquoted(found['text']))}"
    if found["word"] in _FLAGS:
        return f"--{flag}" if found["word"] == "true" else f"--no-{flag}"
    return f"--{flag} {found['word']}"


def _command(found: re.Match[str]) -> str:
    name = found["name"]
    operation = operations().get(name)
    if name in _QUERY:
        return "kanon query"
    if operation is None or not operation.command:
        return found[0]
    return f"kanon {' '.join(operation.command)}"


def _keyword(found: re.Match[str]) -> str:
    if found["text"] is None:
        word = found["word"]
        return f"{found['name']}={word.capitalize() if word in _FLAGS else word}"
    text = _unquoted(found["text"])
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    shown = text if isinstance(value, dict | list) else json.dumps(text, ensure_ascii=False)
    return f"{found['name']}={shown}"


def _unquoted(literal: str) -> str:
    return literal.replace("''", "'")
