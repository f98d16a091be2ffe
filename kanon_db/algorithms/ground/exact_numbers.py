"""Reads and writes numbers exactly as they are written, and rounds them outward."""

from __future__ import annotations

import json
import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, Inexact
from fractions import Fraction
from math import isfinite
from typing import Any

from kanon_db.errors import InvalidParameterError

# A number is written out before it is used, so its length bounds the work: 1e999999999 must not


_DECIMAL = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE](?P<exponent>[+-]?[0-9]+))?")
_FRACTION = re.compile(r"[0-9]+/[0-9]+")
_MAX_LENGTH = 40
_MAX_EXPONENT = 40
_MAX_JSON_LENGTH = 10_000_000
_MAX_DIGITS = 18  # of a whole number in JSON; longer ones stay texts
_MAX_FRACTION_LENGTH = 200  # more than any decimal number needs as a fraction


def exact_number(number: str | float) -> Fraction:
    """Read a number exactly as it is written.

    Parameters
    ----------
    number : str, int or float
        A short text such as 0.05, or a fraction such as 1/3. A float stands for its shortest
        text: 0.1 is one tenth.

    Returns
    -------
    Fraction

    Raises
    ------
    InvalidParameterError
        If it is no number, not finite, or too long.

    Examples
    --------
    >>> exact_number("0.29"), exact_number(0.1), exact_number("1/3")
    (Fraction(29, 100), Fraction(1, 10), Fraction(1, 3))
    """
    text = number if isinstance(number, str) else repr(number) if abs(number) <= 1e40 else ""
    match = _DECIMAL.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is not None and abs(int(match["exponent"] or 0)) <= _MAX_EXPONENT:
        return Fraction(text)
    if len(text) > _MAX_FRACTION_LENGTH or not _FRACTION.fullmatch(text):
        raise InvalidParameterError(
            "a number is malformed or too long",
            detail=f"at most {_MAX_LENGTH} characters, exponents up to {_MAX_EXPONENT}",
            hint='write a number such as 0.05, or a fraction such as "1/3"',
        )
    try:
        return Fraction(text)
    except ZeroDivisionError:
        raise InvalidParameterError("a fraction has the denominator 0") from None


def read_json(text: str, name: str, *, is_exact: bool = True) -> Any:
    """Read JSON so that no number is rounded."""
    if len(text) > _MAX_JSON_LENGTH:
        raise InvalidParameterError(
            f"{name} is too long", detail=f"{len(text):,} characters, limit {_MAX_JSON_LENGTH:,}"
        )

    def number(written: str) -> str | float:
        if is_exact and written not in ("NaN", "Infinity", "-Infinity"):
            return written
        if not isfinite(parsed := float(written)):
            raise InvalidParameterError(f"{name} has a number that is not finite")
        return parsed

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(document := dict(pairs)) < len(pairs):
            raise InvalidParameterError(
                f"{name} repeats a key", detail=f"{len(pairs) - len(document)} repeated keys"
            )
        return document

    try:
        return json.loads(
            text,
            parse_float=number,
            parse_int=lambda digits: int(digits) if len(digits) <= _MAX_DIGITS else digits,
            parse_constant=number,
            object_pairs_hook=distinct,
        )
    except json.JSONDecodeError as error:
        raise InvalidParameterError(
            f"{name} is not valid JSON",
            detail=f"line {error.lineno}, column {error.colno}",
            hint="write names and texts in double quotes, and true, false and null in small"
            ' letters, as in {"name": 4}',
        ) from None
    except RecursionError:
        raise InvalidParameterError(f"{name} is nested too deeply") from None


def exact_text(number: Fraction) -> str:
    """Write a number so that :func:`exact_number` reads the same one.

    Parameters
    ----------
    number : Fraction

    Returns
    -------
    str
        A decimal number if it is exact and short, otherwise a fraction.

    Examples
    --------
    >>> exact_text(Fraction(1, 50)), exact_text(Fraction(8)), exact_text(Fraction(1, 3))
    ('0.02', '8', '1/3')
    """
    numerator, denominator = number.as_integer_ratio()
    exactly = Context(prec=_MAX_LENGTH, traps=[Inexact])
    try:
        text = f"{exactly.divide(Decimal(numerator), Decimal(denominator)):f}"
    except Inexact:
        text = ""
    return text if 0 < len(text) <= _MAX_LENGTH else f"{numerator}/{denominator}"


def round_up(number: Fraction) -> str:
    """Write a number in decimals, rounded up to three significant digits."""
    return _round(number, ROUND_CEILING)


def round_down(number: Fraction) -> str:
    """Write a number in decimals, rounded down to three significant digits."""
    return _round(number, ROUND_FLOOR)


def _round(number: Fraction, rounding: str) -> str:
    context = Context(prec=3, rounding=rounding)
    quotient = context.divide(Decimal(number.numerator), Decimal(number.denominator))
    return f"{quotient.normalize():f}"
