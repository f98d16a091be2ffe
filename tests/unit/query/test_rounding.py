"""ROUND rounds as PostgreSQL does, and its bounds hold."""

from __future__ import annotations

import math

import pytest

from kanon_db.query.expressions import Expression, Rounded

X = Expression()


@pytest.mark.parametrize(
    ("digits", "is_float", "number", "expected"),
    [
        (1, False, 0.25, 0.3), (1, False, -0.25, -0.3), (None, True, 2.5, 2.0),
        (None, True, 3.5, 4.0), (-1, False, 15.0, 20.0), (0, False, 2.5, 3.0),
        (20, False, 1e300, 1e300), (-20, False, 7.0, 0.0), (2, False, math.inf, math.inf),
    ],
)  # fmt: skip
def test_rounds_as_postgresql(
    digits: int | None, is_float: bool, number: float, expected: float
) -> None:
    assert Rounded(X, digits, is_float).of(number) == expected


def test_a_bound_next_to_a_half_is_moved_away() -> None:
    assert Rounded(X, 0).between(2.4999999999, 3.5000000001) == (2, 4)
    assert Rounded(X, 0).between(2.5000000001, 3.4999999999) == (2, 4)
    assert Rounded(X, 0).between(2.6, 3.4) == (3, 3)
    assert Rounded(X, 0).between(-math.inf, math.inf) == (-math.inf, math.inf)
