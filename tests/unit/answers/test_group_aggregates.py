"""Aggregates over groups hold in every world that the bounds of the groups leave open."""

from __future__ import annotations

from itertools import product
from math import inf

import pytest

from kanon_db.answers._group_aggregates import aggregate_groups
from kanon_db.query._bind import Scope
from kanon_db.query.check import check
from kanon_db.query.expressions import INTEGER, Column, Query, RelationText
from kanon_db.query.formulas import Estimated, Group
from kanon_db.query.parse import parse_query

COLUMNS = {name: Column(name, f'"{name}"', INTEGER) for name in ("a", "b")}
AGGREGATES = ("COUNT(*)", "SUM(n)", "AVG(n)", "MAX(n)", "MIN(n)", "SUM(10 - n)", "AVG(2 * n)")
BOUNDS = (
    ((1, 3), (2, 2), (0, 4)),
    ((0, 2), (0, 1), (0, 3)),
    ((5, 9), (0, 6), (3, 3)),
    ((0, 1), (0, 0), (0, 0)),
    ((2, 2), (3, 3), (4, 4)),
)
WHERE = ("", " WHERE n > 2", " WHERE n < 3 OR n > 5", " WHERE NOT n = 2")


def read(question: str) -> Query:
    return check(parse_query(question), [Scope(RelationText("published", "t"), COLUMNS)])


def worth(function: str, counts: list[int]) -> float | None:
    """Calculate in one world."""
    values = {"10 - n": [10 - n for n in counts], "2 * n": [2 * n for n in counts]}
    name, _, operand = function.removesuffix(")").partition("(")
    numbers = values.get(operand, counts)
    if name == "COUNT":
        return len(numbers)
    if not numbers:
        return None
    return {"SUM": sum, "MAX": max, "MIN": min}.get(name, lambda all_: sum(all_) / len(all_))(
        numbers
    )


def meets(where: str, n: int) -> bool:
    return {"": True, WHERE[1]: n > 2, WHERE[2]: n < 3 or n > 5, WHERE[3]: n != 2}[where]


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("bounds", BOUNDS)
def test_bounds_hold_in_all_worlds(bounds: tuple[tuple[int, int], ...], where: str) -> None:
    listed = ", ".join(AGGREGATES)
    inner = "(SELECT a, COUNT(*) AS n FROM t GROUP BY a) AS g"
    query = read(f"SELECT {listed} FROM {inner}{where}")
    groups = [
        Group(f'{{"a": {i}}}', (i,), (Estimated((low + high) / 2, 0.5, low, high),))
        for i, (low, high) in enumerate(bounds)
    ]
    (answer,) = aggregate_groups(groups, query)
    worlds = list(product(*(range(low, high + 1) for low, high in bounds)))
    for place, function in enumerate(AGGREGATES):
        told = answer.estimates[place]
        low = -inf if told.lower_bound is None else told.lower_bound
        high = inf if told.upper_bound is None else told.upper_bound
        found = [worth(function, [n for n in one if n and meets(where, n)]) for one in worlds]
        known = [number for number in found if number is not None]
        assert all(low - 1e-9 <= number <= high + 1e-9 for number in known), function
        if function in ("COUNT(*)", "SUM(n)", "MAX(n)") and not where and known:
            assert max(known) == pytest.approx(high)  # and no wider than that
        if told.estimate is not None:
            assert low <= told.estimate <= high


def test_missing_groups_leave_bounds_open() -> None:
    query = read(
        "SELECT COUNT(*), SUM(n), MAX(n), MIN(n) FROM (SELECT a, COUNT(*) n FROM t GROUP BY a) g"
    )
    group = Group('{"a": 1}', (0,), (Estimated(3, 0, 3, 3),))
    (answer,) = aggregate_groups([group], query, n_missing=7)
    ends = [(one.lower_bound, one.upper_bound) for one in answer.estimates]
    assert ends == [(1, 8), (None, None), (3, None), (None, 3)]
