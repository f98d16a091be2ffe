"""What expressions are made of follows from their fields."""

from __future__ import annotations

import math
from copy import copy

import pytest

from kanon_db.answers.likelihoods import JointCondition
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import INTEGER, Expression, Rounded

A, B, C = (ex.Name((name,)) for name in "abc")
COLUMN = ex.Column("a", '"a"', INTEGER)
EXPRESSIONS: list[tuple[ex.Expression, tuple[ex.Expression, ...]]] = [
    (ex.Literal("number", "1"), ()),
    (A, ()),
    (ex.Constant("1", INTEGER), ()),
    (COLUMN, ()),
    (ex.KeyMatch(COLUMN), (COLUMN,)),
    (ex.Negative(A), (A,)),
    (ex.Arithmetic("+", A, B), (A, B)),
    (ex.DatePart("extract", "year", A), (A,)),
    (ex.Case(((A, B), (B, C)), None), (A, B, B, C)),
    (ex.Case(((A, B),), C), (A, B, C)),
    (ex.Rank(A, ("low", "high")), (A,)),
    (ex.Aggregate("count", None), ()),
    (ex.Aggregate("sum", A), (A,)),
    (ex.Aggregate("sum", A, B), (A, B)),
    (ex.Answered((A, B), 0), (A, B)),
    (ex.Statistic("corr", (A, B), (C, A)), (A, B, C, A)),
    (ex.Cast(A, "integer"), (A,)),
    (ex.Age(A, B), (A, B)),
    (ex.Coalesce((A, B, C)), (A, B, C)),
    (ex.NullIf(A, B), (A, B)),
    (ex.Call("||", (A, B)), (A, B)),
    (ex.Contained(A, "int4range", B, C, "[)"), (A, B, C)),
    (ex.AggregateList((A, B)), (A, B)),
    (ex.GroupMark(A), (A,)),
    (ex.WindowTotal(A), (A,)),  # type: ignore[arg-type]
    (Rounded(A, 2), (A,)),
    (ex.Comparison("=", A, B), (A, B)),
    (ex.Distinct(A, B, negated=True), (A, B)),
    (ex.Membership(A, (B, C), negated=True), (A, B, C)),
    (ex.Range(A, B, C, negated=True), (A, B, C)),
    (ex.Pattern(A, "~*", B), (A, B)),
    (ex.Pattern(A, "LIKE", B, C), (A, B, C)),
    (ex.NullTest(A, negated=True), (A,)),
    (ex.TruthTest(A, "true"), (A,)),
    (ex.And((A, B, C)), (A, B, C)),
    (ex.Or((A, B)), (A, B)),
    (ex.Not(A), (A,)),
    (JointCondition(A), (A,)),
]


def test_every_kind_is_here() -> None:
    kinds = {kind.__name__ for kind in ex.Expression.__subclasses__()}
    assert {type(expression).__name__ for expression, _ in EXPRESSIONS} == kinds


@pytest.mark.parametrize(("expression", "inside"), EXPRESSIONS)
def test_children(expression: ex.Expression, inside: tuple[ex.Expression, ...]) -> None:
    """Where all change, they change in their places; nothing else does."""
    assert expression.children == inside
    assert list(ex.walk(expression)) == [expression, *(part for i in inside for part in ex.walk(i))]
    assert ex.rebuilt(expression, lambda part: part) is expression
    changed = ex.rebuilt(expression, ex.Not)
    assert type(changed) is type(expression)
    assert changed.children == tuple(map(ex.Not, inside))
    assert ex.rebuilt(changed, lambda part: part.part) == expression


@pytest.mark.parametrize(("expression", "_"), EXPRESSIONS)
def test_copies_have_their_fields_alone(expression: ex.Expression, _: object) -> None:
    """A hash that was kept here would be another one in a process that reads the copy."""
    assert hash(expression) == hash(expression)
    copied = copy(expression)  # as pickles are made
    assert vars(copied).keys() == {*expression.__match_args__}
    assert copied == expression


def test_replaced_from_the_outside_in() -> None:
    asked = []

    def change(part: ex.Expression) -> ex.Expression | None:
        asked.append(part)
        return A if part == ex.Not(B) else None

    assert ex.replace_parts(ex.And((ex.Not(B), C)), change) == ex.And((A, C))
    assert asked == [ex.And((ex.Not(B), C)), ex.Not(B), C]


def test_spelled_out() -> None:
    between = ex.And((ex.Comparison(">=", A, B), ex.Comparison("<=", A, C)))
    assert ex.spell_out(ex.Range(A, B, C)) == between
    among = ex.Or((ex.Comparison("=", A, B), ex.Comparison("=", A, C)))
    assert ex.spell_out(ex.Membership(A, (B, C), negated=True)) == ex.Not(among)


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
