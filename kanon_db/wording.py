"""Rewrites hints for the caller: as options and commands, as Python, or as tools of a model.

Operations write them as SQL, such as ``replace => true`` or ``kanon.register_source``. A parameter
has the same name everywhere, so the command line and Python can say the same in their own words.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kanon_db.errors import KanonError
from kanon_db.operations import operations

_VALUE: Final = r"'(?:[^']|'')*'|\.\.\.|\u2026|[\w.]*\w"
_ARGUMENT: Final = re.compile(rf"\b(?P<name>[a-z_]+) => (?P<value>{_VALUE})")
_FUNCTION: Final = re.compile(
    rf"\bkanon\.(?P<name>[a-z_]+)\b"
    rf"(?:\((?P<given>(?:(?:[a-z_]+ => )?(?:{_VALUE})(?:, )?)*)\))?"
)
_PUBLICATIONS: Final = "TABLE kanon.publications"
_QUERY: Final = ("estimate", "estimate_count", "estimate_counts")
"""Functions that one command stands for."""

_TOOLS: Final = {"explain_count": "explain", "draw": "draw"}
"""The tools of a language model that are functions by another name."""

_FLAGS: Final = ("true", "false")


def for_shell(text: str) -> str:
    """Say it with options and commands.

    Examples
    --------
    >>> for_shell("choose another name, or pass replace => true")
    'choose another name, or pass --replace'
    >>> for_shell("describe it with kanon.register_source")
    'describe it with kanon register'
    >>> for_shell("kanon.drop_publication('fair_b')")
    'kanon drop fair_b'
    >>> for_shell("kanon.register_source('fair', quasi_identifiers => '{age}')")
    'kanon register fair --quasi-identifiers age'
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
    >>> for_python("types => '{\"zip\": \"text\"}' or readers => '{alice,bob}'")
    'types={"zip": "text"} or readers=["alice", "bob"]'
    """
    return _ARGUMENT.sub(_keyword, text.replace(_PUBLICATIONS, "kanon.publications()"))


def for_models(text: str) -> str:
    """Say it to a language model, which has the tools of `kanon mcp`."""
    text = re.sub(rf",? or pass {_ARGUMENT.pattern}", "", text)
    return _FUNCTION.sub(_tool, text.replace(_PUBLICATIONS, "list_publications"))


@contextmanager
def explained() -> Iterator[None]:
    """Show, where nobody catches an error of the block, also its detail and its hint."""
    try:
        yield
    except KanonError as error:
        if not hasattr(error, "__notes__"):  # a call within another one has explained it
            if error.detail:
                error.add_note(f"detail: {error.detail}")
            if error.hint:
                error.add_note(f"hint: {for_python(error.hint)}")
        raise


def _option(found: re.Match[str]) -> str:
    flag, value = found["name"].replace("_", "-"), found["value"]
    if value in _FLAGS:
        return f"--{flag}" if value == "true" else f"--no-{flag}"
    return f"--{flag} {_word(value)}"


def _word(value: str) -> str:
    """Write a value as a word of a command; of lists, their elements, separated by commas."""
    if not value.startswith("'"):
        return value
    text = _unquoted(value)
    names = _names(text)
    return shlex.quote(text) if names is None else ",".join(map(shlex.quote, names))


def _command(found: re.Match[str]) -> str:
    name, given = found["name"], found["given"]
    operation = operations().get(name)
    if name in _QUERY:
        words = ["kanon", "query"]
    elif operation is None or not operation.command:
        return found[0]
    else:
        words = ["kanon", *operation.command]
    for argument in re.findall(rf"(?:[a-z_]+ => )?(?:{_VALUE})", given or ""):
        words.append(argument if " => " in argument else _word(argument))
    return " ".join(words)


def _tool(match: re.Match[str]) -> str:
    name = match["name"]
    return "ask" if name in _QUERY else _TOOLS.get(name, match[0])


def _keyword(found: re.Match[str]) -> str:
    name, value = found["name"], found["value"]
    if not value.startswith("'"):
        return f"{name}={value.capitalize() if value in _FLAGS else value}"
    text = _unquoted(value)
    if _is_document(text):
        return f"{name}={text}"
    names = _names(text)
    return f"{name}={json.dumps(text if names is None else names, ensure_ascii=False)}"


def _names(text: str) -> list[str] | None:
    """Return the elements of a list such as ``{alice,bob}``, or None if it is no list."""
    is_list = text.startswith("{") and text.endswith("}") and not _is_document(text)
    return text[1:-1].split(",") if is_list else None


def _is_document(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except ValueError:
        return False


def _unquoted(literal: str) -> str:
    return literal[1:-1].replace("''", "'")
