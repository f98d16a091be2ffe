"""How much of a range a condition covers, beside trying the condition for each of its values."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from kanon_db.publications.rows.cell_columns import Cells, Cover, RangeColumn, RangeEnds, Truths
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import Type
from kanon_db.query.layout import CellDescription
from kanon_db.spark._spark_query import AxisRegions
from kanon_db.transfer.tries import FALSE, TRUE, UNKNOWN

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


def outcomes(
    condition: ex.Expression, type_: Type, ranges: list[tuple[Any, Any]], at: list[Any] | None
) -> Truths:
    """Say what ranges tell; of continuous ones, `at` has the ends."""
    column = ex.Column("age", '"age"', type_)
    flags, n = np.zeros(len(ranges), dtype=np.bool_), np.ones(len(ranges))
    places = {end: place for place, end in enumerate(at)} if at else {}
    low, high = (np.array([places.get(pair[end], pair[end]) for pair in ranges], dtype=np.int64)
                 for end in (0, 1))  # fmt: skip
    known = None if at is None else np.array(at, dtype=np.float64)
    cell = CellDescription(column, "range", is_discrete=at is None)
    ends = RangeEnds(low, high, flags, flags, flags, known)
    cells = RangeColumn("age", cell, Cells(n, n, flags, flags, flags), ends, None)
    cut = AxisRegions(condition, type_).cut(at or [], None if at is None else type_)
    return Cover(cells, lambda: cut).inside()


@pytest.mark.parametrize(("condition", "is_met"), CONDITIONS)
def test_whole_numbers_are_counted(condition: ex.Expression, is_met: Callable[[Any], bool]) -> None:
    ranges = [(low, high) for low in range(-3, 13) for high in range(low, 13)]
    told = outcomes(condition, WHOLE, ranges, None)
    for i, (low, high) in enumerate(ranges):
        met = [is_met(value) for value in range(low, high + 1)]
        assert told.true[i] == pytest.approx(sum(met) / len(met))
        assert (told.surely[i], told.possibly[i]) == (all(met), any(met))


@pytest.mark.parametrize(("condition", "is_met"), CONDITIONS)
def test_lengths_are_measured(condition: ex.Expression, is_met: Callable[[Any], bool]) -> None:
    ends = [Decimal(i) / 2 for i in range(-2, 22, 3)]
    ranges = [(low, high) for low in ends for high in ends if low <= high]
    told = outcomes(condition, NUMERIC, ranges, ends)
    for i, (low, high) in enumerate(ranges):
        # Ends, and middles between points that conditions name: multiples of a quarter.
        n = int((high - low) * 8)
        steps = [Fraction(low) + Fraction(k, 8) for k in range(n + 1)]
        met = [is_met(value) for value in steps]
        length = np.mean(met[1::2]) if n else float(met[0])
        assert told.true[i] == pytest.approx(length)
        assert (told.surely[i], told.possibly[i]) == (all(met), any(met))


def test_small_ranges_keep_their_parts_beside_huge_ones() -> None:
    """Their lengths are not differences of sums that begin at the least number of all."""
    huge = Decimal(10) ** 19
    ranges = [(Decimal(3), Decimal(10)), (-huge, huge), (huge, huge + 1)]  # one double for both
    at = sorted({end for pair in ranges for end in pair})
    six_to_huge = ex.Range(AGE, constant("6.5"), constant("1e30"))
    for condition, part in ((ex.NullTest(AGE, negated=True), 1), (six_to_huge, 0.5)):
        told = outcomes(condition, NUMERIC, ranges, at)
        assert told.true.tolist() == pytest.approx([part, part, 1])
        assert told.surely.tolist() == [part == 1, part == 1, True]


def test_null_is_unknown_to_comparisons() -> None:
    older, missing = compared(">", "5"), ex.NullTest(AGE)
    for condition, truth in (
        (older, UNKNOWN), (missing, TRUE), (ex.Or((older, missing)), TRUE),
        (ex.And((older, ex.Not(missing))), FALSE), (ex.Not(older), UNKNOWN),
    ):  # fmt: skip
        assert AxisRegions(condition, WHOLE).cut([], None).null == truth


def test_what_is_beyond_all_whole_numbers_is_cut() -> None:
    cut = AxisRegions(compared(">", "1e30"), WHOLE).cut([], None)
    assert cut.first.tolist() == cut.last.tolist()
    assert cut.to_all
    assert not cut.from_all
