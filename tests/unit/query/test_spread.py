"""Which columns are listed value by value, and which conditions apart from the others."""

from __future__ import annotations

import pytest

from kanon_db.query import expressions as ex
from kanon_db.query.expressions import Key, Query, Type
from kanon_db.query.layout import CellDescription, CellLayout, RowView
from kanon_db.query.likelihoods import Together, arranged
from kanon_db.query.sql import leaves

INTEGER, NUMERIC = Type("integer", "integer"), Type("numeric", "numeric")
NAMES = ("a", "b", "c", "d", "r", "x")
A, B, C, D, R, X = (ex.Column(name, name, NUMERIC if name == "r" else INTEGER) for name in NAMES)
LAYOUT = CellLayout(
    RowView("v", "rows", "shares", (), None, NAMES),
    {
        **{
            column.name: CellDescription(column, "range", is_discrete=column != R)
            for column in (A, B, C, D, R)
        },
        "x": CellDescription(X, "value"),
    },
)
"""Ranges, of which r is continuous; x is published as it is."""

NINE = ex.Constant("9", INTEGER)
COUNT = ex.Aggregate("count", None)


def less(left: ex.Expression, right: ex.Expression = NINE) -> ex.Expression:
    return ex.Comparison("<", left, right)


def both(*parts: ex.Expression) -> ex.Expression:
    return ex.And(parts)


def either(*parts: ex.Expression) -> ex.Expression:
    return ex.Or(parts)


@pytest.mark.parametrize(
    ("condition", "apart", "listed"),
    [
        (less(A), [], ""),
        (both(less(A), less(NINE, A)), [], ""),
        (less(A, B), [less(A, B)], "ab"),
        (less(X, ex.Negative(X)), [], ""),
        (both(less(A, B), less(C, D)), [less(A, B), less(C, D)], "abcd"),
        (both(less(A, B), less(X)), [less(A, B)], "ab"),
        (both(less(A, B), less(B, C)), [both(less(A, B), less(B, C))], "abc"),
        (both(less(A, B), less(A), less(C)), [both(less(A, B), less(A))], "ab"),
        (ex.Not(either(less(A, B), less(C, D))), [less(A, B), less(C, D)], "abcd"),
        (
            both(less(C), either(less(A), both(less(NINE, A), less(B)))),
            [either(less(A), both(less(NINE, A), less(B)))],
            "a",
        ),
        (both(less(R), either(less(NINE, R), less(A))), [], ""),
        (
            both(less(R, A), either(less(NINE, R), less(B))),
            [both(less(R, A), either(less(NINE, R), less(B)))],
            "ar",
        ),
    ],
)
def test_apart(condition: ex.Expression, apart: list[ex.Expression], listed: str) -> None:
    found = arranged(Query(condition, (), ()), COUNT, LAYOUT)
    marked = [leaf for leaf in leaves(found.condition) if isinstance(leaf, Together)]
    assert [leaf.condition for leaf in marked] == apart
    assert (found.spread, found.apart) == ([], list(listed))


def test_what_groups_need_is_not_apart() -> None:
    condition = both(less(A, B), less(C, D))
    found = arranged(Query(condition, (Key("b", B),), ()), COUNT, LAYOUT)
    assert found.condition == both(less(A, B), Together(less(C, D)))
    assert (found.spread, found.apart) == (["a", "b"], ["c", "d"])


def test_what_is_summed_is_not_apart() -> None:
    condition = both(less(A, B), less(C, D))
    found = arranged(Query(condition, (), ()), ex.Aggregate("sum", A), LAYOUT)
    assert (found.spread, found.apart) == (["a", "b"], ["c", "d"])
