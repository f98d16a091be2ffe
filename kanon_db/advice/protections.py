"""How much protection there can be, in plain words, and the numbers that each word stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any, Final

_ROOM: Final = Fraction(5, 4)
"""How far the cap must lie above the most frequent value's share, so that buckets can be small."""

_STEPS: Final = 20
"""Caps are rounded up to multiples of one in so many."""


@dataclass(frozen=True)
class Protection:
    """A level of protection.

    Attributes
    ----------
    k : int
        How many people each published row could belong to.
    theta, base, cap : Fraction
        The threshold of a sensitive value with frequency f is min(cap, theta f + base).
    sentence : str
        The same, for people.
    """

    k: int
    theta: Fraction
    base: Fraction
    cap: Fraction
    sentence: str

    def cap_for(self, counts: Sequence[int]) -> Fraction:
        """Return the cap, raised where a value is too frequent for it.

        No publication can make anybody less sure of a value than its share of the table.

        Examples
        --------
        >>> [str(PROTECTIONS["standard"].cap_for(counts)) for counts in ([1] * 9, [6, 4], [97, 3])]
        ['1/3', '3/4', '197/200']
        """
        frequency = Fraction(max(counts), sum(counts))
        least = Fraction(ceil(frequency * _ROOM * _STEPS), _STEPS)
        return max(self.cap, least if least < 1 else (1 + frequency) / 2)

    def privacy(self, counts: Sequence[int]) -> dict[str, Any]:
        """Return the privacy specification, as JSON, for a table with these numbers of values."""
        return {
            "theta": _number(self.theta),
            "base": _number(self.base),
            "cap": _number(self.cap_for(counts)),
        }

    def flat_privacy(self, counts: Sequence[int]) -> dict[str, Any]:
        """Return one threshold for all values, where frequencies of records are not of people."""
        return {"default": _number(self.cap_for(counts))}


def _number(exact: Fraction) -> int | float | str:
    """Write a number so that it is read as the same: as a decimal where it has one."""
    if exact.denominator == 1:
        return exact.numerator
    decimal = float(exact)
    return decimal if Fraction(repr(decimal)) == exact else str(exact)


def _sentence(sure: str, k: int) -> str:
    return (
        f"nobody is more than {sure} sure of a person's sensitive value (unless it is too frequent"
        f" in the table for that), or a published row could be any of {k} people's; each candidate"
        " says which of the two it promises"
    )


PROTECTIONS: Final = {
    "basic": Protection(
        3, Fraction(8), Fraction("0.02"), Fraction("0.5"), _sentence("half", 3)
    ),
    "standard": Protection(
        5, Fraction(4), Fraction("0.02"), Fraction(1, 3), _sentence("one third", 5)
    ),
    "strict": Protection(
        10, Fraction(2), Fraction("0.02"), Fraction("0.2"), _sentence("one fifth", 10)
    ),
}  # fmt: skip
"""From the weakest on; see docs/choosing.md for where the numbers come from."""

PURPOSES: Final = {
    "counts": "analysts ask how many people have which properties",
    "rows": "analysts need a row for each person, for statistics of their own",
    "both": "rows, from which counts are asked as well",
}
