"""Numbers taken exactly as they are written."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Context, Decimal, Inexact
from fractions import Fraction

from kanon_db.errors import InvalidParameterError

# A number is written out before it is used, so its length bounds the work: 1e999999999 must not
# become an integer of a billion digits.
_DECIMAL = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE](?P<exponent>[+-]?[0-9]+))?")
_FRACTION = re.compile(r"[0-9]+/[0-9]+")
_MAX_LENGTH = 40
_MAX_EXPONENT = 40
_MAX_FRACTION_LENGTH = 200  # more than any decimal number needs as a fraction


def exact_number(number: str | float) -> Fraction:
    """Read a number exactly as it is written.

    Parameters
    ----------
    number : str, int or float
        A text such as 0.05, or a fraction such as 1/3; short, lest it take all memory. A float is
        what its shortest text says: 0.1 is one tenth.

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
            "a number is malformed or overlong",
            detail=f"at most {_MAX_LENGTH} characters, exponents up to {_MAX_EXPONENT}",
            hint='write a number such as 0.05, or a fraction such as "1/3"',
        )
    try:
        return Fraction(text)
    except ZeroDivisionError:
        raise InvalidParameterError("a fraction has the denominator 0") from None


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


def rounded_up(number: Fraction) -> str:
    """Write a number in decimals, rounded up to three significant digits.

    Parameters
    ----------
    number : Fraction

    Returns
    -------
    str

    Examples
    --------
    >>> rounded_up(Fraction(1, 3))
    '0.334'
    """
    up = Context(prec=3, rounding=ROUND_CEILING)
    quotient = up.divide(Decimal(number.numerator), Decimal(number.denominator))
    return f"{quotient.normalize():f}"
