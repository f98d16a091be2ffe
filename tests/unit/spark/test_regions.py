"""How much of a range a condition covers, beside trying the condition for each of its values."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from kanon_db.query import expressions as ex
from kanon_db.query.expressions import Type
from kanon_db.spark._cell_values import AxisRegions

WHOLE, NUMERIC = Type("integer", "integer"), Type("numeric", "numeric")
AGE = ex.Column("age", '"age"', WHOLE)


def constant(text: str) -> ex.Constant:
    return ex.Constant(text, NUMERIC)


def compared(sign: ex.ComparisonOperator, text: str) -> ex.Expression:
    return ex.Comparison(sign, AGE, constant(text))


CONDITIONS = [
    (compared("<", "5"), lambda v: v < 5),
    (compared(">=", "4.5"), lambda v: v >= 4.5),
    (ex.Comparison("<", constant("3"), AGE), lambda v: v > 3),
    (ex.And((compared(">", "2"), compared("<>", "7"))), lambda v: v > 2 and v != 7),
    (ex.Or((compared("=", "2"), ex.Not(compared("<=", "8.25")))), lambda v: v == 2 or v > 8.25),
    (ex.Range(AGE, constant("3"), constant("6.5"), negated=True), lambda v: not 3 <= v <= 6.5),
    (ex.Membership(AGE, tuple(map(constant, "139"))), lambda v: v in (1, 3, 9)),
    (ex.Membership(AGE, tuple(map(constant, "14")), negated=True), lambda v: v not in (1, 4)),
    (ex.NullTest(AGE), lambda _: False),
]


@pytest.mark.parametrize(("condition", "is_met"), CONDITIONS)
def test_whole_numbers_are_counted(condition: ex.Expression, is_met: object) -> None:
    assert callable(is_met)
    ranges = [(low, high) for low in range(-3, 13) for high in range(low, 13)]
    lows, highs = zip(*ranges, strict=True)
    part, is_whole, some = AxisRegions(condition, WHOLE).shares(lows, highs, is_discrete=True)
    for i, (low, high) in enumerate(ranges):
        met = [is_met(value) for value in range(low, high + 1)]
        assert part[i] == pytest.approx(sum(met) / len(met))
        assert (is_whole[i], some[i]) == (all(met), any(met))


@pytest.mark.parametrize(("condition", "is_met"), CONDITIONS)
def test_lengths_are_measured(condition: ex.Expression, is_met: object) -> None:
    assert callable(is_met)
    ends = [Decimal(i) / 2 for i in range(-2, 22, 3)]
    ranges = [(low, high) for low in ends for high in ends if low <= high]
    lows, highs = zip(*ranges, strict=True)
    part, is_whole, some = AxisRegions(condition, NUMERIC).shares(lows, highs, is_discrete=False)
    for i, (low, high) in enumerate(ranges):
        # Ends, and middles between points that conditions name: multiples of a quarter.
        n = int((high - low) * 8)
        steps = [Fraction(low) + Fraction(k, 8) for k in range(n + 1)]
        met = [is_met(value) for value in steps]
        length = np.mean(met[1::2]) if n else float(met[0])
        assert part[i] == pytest.approx(length)
        assert (is_whole[i], some[i]) == (all(met), any(met))


def test_null_is_unknown_to_comparisons() -> None:
    older, missing = compared(">", "5"), ex.NullTest(AGE)
    assert AxisRegions(older, WHOLE).of_null is None
    assert AxisRegions(missing, WHOLE).of_null is True
    assert AxisRegions(ex.Or((older, missing)), WHOLE).of_null is True
    assert AxisRegions(ex.And((older, ex.Not(missing))), WHOLE).of_null is False
    true, false = AxisRegions(ex.Not(older), WHOLE).truths([None, 5, 6])
    assert true.tolist() == [False, True, False]
    assert false.tolist() == [False, False, True]
