"""Checks names of publications, columns and roles."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from kanon_db.declaration import MAX_NAME_BYTES, TEXT, ParameterType
from kanon_db.errors import InvalidNameError

_LONGEST_SUFFIX: Final = "_qit"

HIDING: Final = (
    r"[\u0001-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e"
    r"\u2060-\u2064\u2066-\u206f\ufeff]"
)
"""Control characters, those that turn text around, and those that do not show."""

_HIDING: Final = re.compile(HIDING)


def is_plain(name: str) -> bool:
    """Tell whether a name shows all its characters, as ``kanon.is_plain()`` does."""
    return _HIDING.search(name) is None


def require_plain(what: str, name: str) -> None:
    """Refuse a name that does not show what it is, for whatever has a name."""
    if not is_plain(name):
        raise InvalidNameError(
            f"{what} has control characters in its name, or characters that turn text around",
            detail=f"name {json.dumps(name)}",
            hint="give it another name",
        )


def _read_publication_name(value: Any, parameter: str) -> str:
    """Read a publication's name, to which the suffixes of its relations can be added.

    Other names, such as empty or too long ones, raise `InvalidNameError`.
    """
    name: str = TEXT.read(value, parameter)
    limit = MAX_NAME_BYTES - len(_LONGEST_SUFFIX)
    if not name:
        raise InvalidNameError("a publication needs a name", hint="give a name like census_b")
    if "\0" in name:
        raise InvalidNameError("a publication's name contains a NUL character")
    if any("\ud800" <= character <= "\udfff" for character in name):
        raise InvalidNameError("a publication's name contains a lone surrogate, half a character")
    require_plain("a publication", name)
    if (n_bytes := len(name.encode())) > limit:
        raise InvalidNameError(
            "a publication's name is too long",
            detail=f"it has {n_bytes} bytes; {limit} are allowed, since the names of its tables"
            f" end in {_LONGEST_SUFFIX}, and PostgreSQL names have at most {MAX_NAME_BYTES} bytes",
            hint="choose a shorter name",
        )
    return name


PUBLICATION: Final[ParameterType] = replace(TEXT, read=_read_publication_name)
"""The type of a parameter that names a new publication."""


def free_column_name(wanted: str, taken: Iterable[str]) -> str:
    """Return `wanted` or, if it is taken, ``kanon_<wanted>`` (with underscores added if needed).

    A source may well have its own column called ``weight`` or ``count``.
    """
    names = set(taken)
    candidate = wanted if wanted not in names else f"kanon_{wanted}"
    while candidate in names:
        candidate += "_"
    return candidate
