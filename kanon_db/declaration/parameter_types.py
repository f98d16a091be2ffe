"""Defines the types of parameters: their names in SQL, and how a caller's value is read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from decimal import Decimal
from fractions import Fraction
from numbers import Integral
from typing import Any, Final

from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError

Reader = Callable[[Any, str], Any]
"""Takes a caller's value and the parameter's name; returns the value the operation works with."""

MAX_NAME_BYTES: Final = 63
"""PostgreSQL's limit; it would silently truncate longer names, so we refuse them."""


MAX_WEIGHT: Final = 1e9
"""The largest weight of a quasi-identifier; losses are computed in whole numbers."""

_MOST: Final = {"integer": 2**31 - 1, "bigint": 2**63 - 1}
"""The largest numbers of PostgreSQL's types."""


@dataclass(frozen=True)
class ParameterType:
    """A type of parameters.

    Attributes
    ----------
    sql : str
        PostgreSQL's name for it.
    python : str
        The annotation of what Python callers may pass.
    read : callable
    metavar : str or None
        What the command line's help calls a value.
    choices : mapping of str to str
        What each value means, if the values can be listed.
    options : type or None
        The declared options, if the value is an object with options.
    """

    sql: str
    python: str
    read: Reader
    metavar: str | None = None
    choices: Mapping[str, str] = field(default_factory=dict)
    options: type | None = None

    @property
    def is_json(self) -> bool:
        """Tell whether SQL and the command line pass JSON."""
        return self.sql == "jsonb"


def unknown(
    what: str, name: str, known: Collection[str], *, is_shown: bool = True
) -> InvalidParameterError:
    """Make the error for an unknown word; its hint has the most similar known one.

    A word that was passed as a value is not repeated.
    """
    from difflib import get_close_matches  # needed for a refusal only

    near = get_close_matches(name, known, n=1)
    plural = what if what.endswith("s") else f"{what}s"
    if not known:
        hint = f"there are no {plural} here"
    elif near:
        hint = f"did you mean {near[0]}? The {plural} here are {', '.join(known)}"
    else:
        hint = f"the {plural} here are {', '.join(known)}"
    detail = f'{what} "{name}"' if is_shown else ""
    return InvalidParameterError(f"the {what} is not known", detail=detail, hint=hint)


def refused(name: str, must: str) -> InvalidParameterError:
    """Make the error for a value that is not allowed."""
    return InvalidParameterError(f"{name} must be {must}")


def read_text(value: Any, name: str) -> str:
    """Accept text."""
    if not isinstance(value, str):
        raise refused(name, "a text")
    return value


def read_flag(value: Any, name: str) -> bool:
    """Accept true or false."""
    if not isinstance(value, bool):
        raise refused(name, "true or false")
    return value


def read_exact(value: Any, name: str) -> Fraction:
    """Accept a number, exactly as it is written; a Python float counts as its shortest text."""
    from kanon_db.algorithms.ground.exact_numbers import exact_number

    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal | Fraction):
        raise refused(name, "a number")
    number: Fraction = exact_number(value if isinstance(value, int) else str(value))
    return number


def read_bound(value: Any, name: str) -> str | float:
    """Accept a number or text, which the server will read as the column's type."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise refused(name, "a number, or the text of a date or time")
    return value


def elements(read: Reader) -> Reader:
    """Make the reader of a list from the reader of its elements."""

    def read_all(value: Any, name: str) -> tuple[Any, ...]:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
            raise refused(name, "a list")
        if any(element is None for element in value):
            raise InvalidParameterError(f"an element of {name} must not be NULL")
        return tuple(read(element, f"an element of {name}") for element in value)

    return read_all


def between(least: int, most: int) -> Reader:
    """Make the reader of a whole number within bounds."""
    bounds = f"a whole number of at least {least:,}"
    if most not in _MOST.values():
        bounds += f" and at most {most:,}"

    def read(value: Any, name: str) -> int:
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise refused(name, bounds)
        number = int(value)
        if not least <= number <= most:
            # A number of many digits is no help, and takes long to write.
            detail = f"{name} = {number}" if abs(number) <= _MOST["bigint"] else ""
            raise InvalidParameterError(f"{name} must be {bounds}", detail=detail)
        return number

    return read


def above(least: float, most: float) -> Reader:
    """Make the reader of a number in (least, most]."""

    def read(value: Any, name: str) -> float:
        try:
            number = float("nan") if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = float("nan")
        if not least < number <= most:
            raise refused(name, f"a number above {least:g} and at most {most:g}")
        return number

    return read


def decode_json(value: Any, name: str, *, is_exact: bool = True) -> Any:
    """Read JSON from text; anything that is not text, such as a Python dict, is left unchanged."""
    from kanon_db.algorithms.ground.exact_numbers import read_json

    return read_json(value, name, is_exact=is_exact) if isinstance(value, str) else value


def plain(value: Any) -> Any:
    """Return a caller's value as JSON for the catalog; numbers that are not whole become text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    return int(value) if isinstance(value, Integral) else str(value)


def read_object(value: Any, name: str, *, is_exact: bool = True) -> Mapping[str, Any]:
    """Take a JSON object."""
    items = decode_json(value, name, is_exact=is_exact)
    if not isinstance(items, Mapping) or not all(isinstance(key, str) for key in items):
        raise refused(name, "a JSON object")
    return items


def _read_weights(value: Any, name: str) -> dict[str, Fraction]:
    weights = {
        key: read_exact(weight, "a weight") for key, weight in read_object(value, name).items()
    }
    if not all(0 < weight <= MAX_WEIGHT for weight in weights.values()):
        raise refused("a weight", f"a number above 0 and at most {MAX_WEIGHT:g}")
    return weights


def _read_share(value: Any, name: str) -> Fraction:
    share = read_exact(value, name)
    if not 0 <= share <= 1:
        raise refused(name, "a number in [0, 1]")
    return share


TEXT: Final = ParameterType("text", "str", read_text)
RELATION: Final = ParameterType("regclass", "str", read_text)
FLAG: Final = ParameterType("boolean", "bool", read_flag)
NAMES: Final = ParameterType("text[]", "Sequence[str]", elements(read_text), "NAME,…")
SHARE: Final = ParameterType("numeric", "float | Decimal | str", _read_share, "SHARE")
WEIGHTS: Final = ParameterType("jsonb", "str | Mapping[str, Any]", _read_weights, "JSON")
BOUND: Final = ParameterType("text", "str | float", read_bound)
"""A bound of a domain: a number, or a date or time as text."""

SECONDS: Final = ParameterType("double precision", "float", above(0.0, 86_400.0), "SECONDS")
"""At most a day, which catches typing errors."""


def whole(
    *, least: int = 1, most: int | None = None, sql: str = "integer", metavar: str | None = None
) -> ParameterType:
    """Return the type of whole numbers within bounds."""
    return ParameterType(sql, "int", between(least, most or _MOST[sql]), metavar)


def wholes() -> ParameterType:
    """Return the type of lists of whole numbers above 0."""
    return ParameterType("integer[]", "Sequence[int]", elements(between(1, _MOST["integer"])))


def number(*, most: float) -> ParameterType:
    """Return the type of numbers above 0."""
    return ParameterType("double precision", "float", above(0.0, most))


def numbers(*, most: float) -> ParameterType:
    """Return the type of lists of numbers above 0."""
    return ParameterType("double precision[]", "Sequence[float]", elements(above(0.0, most)))


def pair() -> ParameterType:
    """Return the type of two whole numbers."""
    read = elements(between(1, _MOST["integer"]))

    def read_pair(value: Any, name: str) -> tuple[int, int]:
        if not isinstance(value, Sequence) or len(value) != 2:
            raise refused(name, "a list of two whole numbers")
        first, second = read(value, name)
        return first, second

    return ParameterType("integer[]", "Sequence[int]", read_pair)


def choice(what: str, instead: Mapping[str, str] | None = None, /, **choices: str) -> ParameterType:
    """Return the type of one of plural words, each with what it means.

    `what` is what an error message calls them, `instead` the hints for words that are none of them.
    """

    def read(value: Any, name: str) -> str:
        if read_text(value, name) not in choices:
            error = unknown(what, value, list(choices), is_shown=False)
            if instead and value in instead:
                error.hint = instead[value]
            if value[:1] in ("{", "["):  # what belongs to another parameter
                error.hint += f"; name parameters, such as {name} => '{next(iter(choices))}'"
            raise error
        return str(value)

    return ParameterType("text", "str", read, None, choices)


def json_object(
    read: Callable[[Mapping[str, Any]], Any], *, is_exact: bool = True
) -> ParameterType:
    """Return the type of a value that is read from a JSON object, with exact numbers or doubles."""
    return ParameterType(
        "jsonb",
        "str | Mapping[str, Any]",
        lambda value, name: read(read_object(value, name, is_exact=is_exact)),
        "JSON",
    )


def json_list(*, is_exact: bool = True) -> ParameterType:
    """Return the type of JSON lists, whose elements the operation itself reads."""

    def read(value: Any, name: str) -> list[Any]:
        if not isinstance(elements := decode_json(value, name, is_exact=is_exact), list):
            raise refused(name, "a JSON list")
        return elements

    return ParameterType("jsonb", "str | Sequence[Any]", read, "JSON")
