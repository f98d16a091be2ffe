"""ROUND of what is calculated from aggregates, and what it does to bounds."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal, localcontext
from typing import Final

from kanon_db.counting.expressions import Expression

MOST_DIGITS: Final = 20
"""The most digits that ROUND may keep, or cut off before the decimal point."""

_NEAR: Final = 1e-9
_NEAR_SINGLE: Final = 2e-6
"""How far, relatively, a bound may be from PostgreSQL's own number, which has other digits; a sum
of `real` is added up in single precision."""


class Round(Expression):
    """``ROUND(operand, digits)``.

    Attributes
    ----------
    operand : Expression
    digits : int or None
        How many to keep after the decimal point; None in ``ROUND(operand)``.
    is_float : bool
        Whether PostgreSQL rounds a floating-point number, a half then to the even neighbour.
    is_rough : bool
        Whether something in it is calculated with floating-point numbers.
    """

    operand: Expression
    digits: int | None
    is_float: bool = False
    is_rough: bool = False

    @property
    def unit(self) -> float:
        """The distance between two results."""
        return float(10.0 ** -(self.digits or 0))

    def of(self, number: float) -> float:
        """Round a number as PostgreSQL does.

        Examples
        --------
        >>> half = Round(Expression(), 1)
        >>> half.of(0.25), half.of(-0.25), Round(Expression(), None, is_float=True).of(2.5)
        (0.3, -0.3, 2.0)
        """
        if not math.isfinite(number):
            return number
        with localcontext(prec=400):
            found = Decimal(repr(float(number))).quantize(
                Decimal(1).scaleb(-(self.digits or 0)),
                rounding=ROUND_HALF_EVEN if self.is_float else ROUND_HALF_UP,
            )
        return float(found)

    def between(self, low: float, high: float) -> tuple[float, float]:
        """Return between what the rounded number lies, if the number lies between these.

        Rounding keeps the order of numbers. A bound is moved away by what it may be off itself,
        which matters only next to a half.
        """
        near = _NEAR_SINGLE if self.is_rough else _NEAR
        return self.of(low - near * abs(low)), self.of(high + near * abs(high))
