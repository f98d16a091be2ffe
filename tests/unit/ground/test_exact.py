from __future__ import annotations

from fractions import Fraction
from math import inf, nan

import pytest

from kanon_db.algorithms.ground.exact_numbers import exact_number, exact_text, rounded_up
from kanon_db.errors import InvalidParameterError


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("0.29", Fraction(29, 100)),
        (0.29, Fraction(29, 100)),
        (1e-7, Fraction(1, 10**7)),
        (8, Fraction(8)),
        ("2/6", Fraction(1, 3)),
        ("1e40", Fraction(10**40)),
    ],
)
def test_numbers_are_what_is_written(number: str | float, expected: Fraction) -> None:
    assert exact_number(number) == expected


@pytest.mark.parametrize(
    "number", [inf, -inf, nan, 1e41, True, "1e41", "1" * 41, "1/" + "3" * 200, "", "x"]
)
def test_refusals(number: str | float) -> None:
    with pytest.raises(InvalidParameterError, match="malformed or too long"):
        exact_number(number)


def test_an_integer_too_long_to_be_written() -> None:
    with pytest.raises(InvalidParameterError, match="malformed or too long"):
        exact_number(10**5000)


def test_a_denominator_of_0() -> None:
    with pytest.raises(InvalidParameterError, match="denominator 0"):
        exact_number("1/0")


@pytest.mark.parametrize(
    "text",
    ["0", "8", "100", "0.02", "-3.5", "1/3", "1e-40", "1e40", "0.0012e-40", "9" * 36 + "e-40"],
)
def test_what_is_written_is_read_again(text: str) -> None:
    number = exact_number(text)
    assert exact_number(exact_text(number)) == number


def test_short_decimals_stay_as_they_are() -> None:
    for text in ("0", "8", "100", "0.02", "12.5"):
        assert exact_text(exact_number(text)) == text


def test_rounding_up() -> None:
    assert rounded_up(Fraction(1, 3)) == "0.334"
    assert rounded_up(Fraction(12345)) == "12400"
