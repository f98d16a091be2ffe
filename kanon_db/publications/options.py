"""Parameters that come as JSON objects: options of a method, weights of quasi-identifiers."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from kanon_db.catalog.entries import Source
from kanon_db.errors import InvalidParameterError

MAX_TIME_LIMIT = 86_400.0
"""Seconds, a day: an upper bound that keeps typing errors out."""


def parse_object(text: str | None, parameter: str) -> dict[str, Any]:
    """Read a JSON object; none given is an empty one. Numbers with a fraction stay texts.

    Raises
    ------
    InvalidParameterError
    """
    if text is None:
        return {}
    try:
        # As text: a weight of 0.1 is one tenth, which no double is.
        found = json.loads(text, parse_float=str)
    except (ValueError, RecursionError):
        raise InvalidParameterError(f"{parameter} is not readable JSON") from None
    if not isinstance(found, dict):
        raise InvalidParameterError(f"{parameter} must be a JSON object")
    return found


def parse_options(text: str | None, known: Collection[str]) -> dict[str, Any]:
    """Read the options of a method.

    Raises
    ------
    InvalidParameterError
        When there are others than those known.
    """
    options = parse_object(text, "options")
    for name in options:
        if name not in known:
            raise InvalidParameterError(
                "an option is not known",
                detail=f'option "{name}"',
                hint=f"the options here are {', '.join(sorted(known))}"
                if known
                else "this method has no options",
            )
    return options


def number_option(
    options: Mapping[str, Any], name: str, default: float, *, above: float, most: float
) -> float:
    """Return an option that is a number in (above, most].

    Raises
    ------
    InvalidParameterError
    """
    value = options.get(name, default)
    try:
        number = float("nan") if isinstance(value, bool) or value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not above < number <= most:
        raise InvalidParameterError(
            f"the option {name} must be a number above {above:g} and at most {most:g}"
        )
    return number


def whole_option(
    options: Mapping[str, Any], name: str, default: int | None, *, least: int = 1
) -> int | None:
    """Return an option that is a whole number.

    Raises
    ------
    InvalidParameterError
    """
    value = options.get(name, default)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidParameterError(f"the option {name} must be a whole number of at least {least}")
    return value


def flag_option(options: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    """Return an option that is true or false.

    Raises
    ------
    InvalidParameterError
    """
    value = options.get(name, default)
    if not isinstance(value, bool):
        raise InvalidParameterError(f"the option {name} must be true or false")
    return value


def attribute_weights(source: Source, text: str | None) -> list[int | float | str] | None:
    """Return the weight of each quasi-identifier; None where all count alike.

    Parameters
    ----------
    source : Source
        What was registered holds for attributes that the text does not name.
    text : str or None
        JSON, weights by quasi-identifier.

    Raises
    ------
    InvalidParameterError
        When it names another column, or the weight is no number.
    """
    given = parse_object(text, "weights")
    for column, weight in given.items():
        if column not in source.quasi_identifiers:
            raise InvalidParameterError(
                "weights are for quasi-identifiers only",
                detail=f'"{column}" is not one of {", ".join(source.quasi_identifiers)}',
            )
        if isinstance(weight, bool) or not isinstance(weight, int | str):
            raise InvalidParameterError("a weight is a number above 0", detail=f'of "{column}"')
    weights = [
        given.get(column, source.attributes.get(column, {}).get("weight", 1))
        for column in source.quasi_identifiers
    ]
    return None if all(weight == 1 for weight in weights) else weights
