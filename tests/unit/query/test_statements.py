"""What the text of a statement holds."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from typing import Any, NamedTuple

import pytest

from kanon_db.answers.likelihoods import JointCondition, arrange
from kanon_db.answers.rows.stored_types import StoredTypes
from kanon_db.errors import VerificationError
from kanon_db.publications.codes import StoredColumn
from kanon_db.query import expressions as ex
from kanon_db.query._bind import Scope
from kanon_db.query.check import check
from kanon_db.query.expressions import (
    INTEGER,
    NUMERIC,
    TEXT,
    Column,
    Key,
    Query,
    RelationText,
    Type,
)
from kanon_db.query.layout import (
    CellDescription,
    CellLayout,
    RowView,
)
from kanon_db.query.parse import parse_query
from kanon_db.query.sql import Request, leaves

AGE, ILLNESS = Column("age", '"age"', INTEGER), Column("illness", '"illness"', TEXT)
HEIGHT, SEX = Column("height", '"height"', NUMERIC), Column("sex", '"sex"', TEXT)
CELLS = CellLayout(
    RowView('"published"."t"', '"published"."t_row"', "", ('"age"',), '"pattern"', ("age",)),
    {
        "age": CellDescription(AGE, "range"),
        "height": CellDescription(HEIGHT, "range", is_discrete=False),
        "sex": CellDescription(SEX, "value", mark=1),
        "illness": CellDescription(ILLNESS, "value"),
    },
)


class Statement(NamedTuple):
    text: str
    bound: tuple[Any, ...]


class EmptyServer:
    """Keeps the statements that it is asked; its relations have no rows, and its store no codes."""

    def __init__(self, layout: CellLayout) -> None:
        self.asked: list[Statement] = []
        self.known_cells: dict[str, Any] = {}
        self.store = self
        self.columns = {name: StoredColumn(name, 0, 0, of_classes=True) for name in layout.cells}
        self.chunks: list[Any] = []

    def values(self, name: str) -> str:
        return f"SELECT i, v FROM {name}"

    def fetch(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        self.asked.append(Statement(statement, values))
        return [defaultdict(lambda: None)]

    def changed(self) -> VerificationError:
        return VerificationError("the published relations have changed")


def written(text: str, layout: CellLayout = CELLS) -> Statement:
    query = check(parse_query(text), [Scope(RelationText("published", "t"), layout.columns)])
    aggregate = query.measures[0].aggregate
    server: Any = EmptyServer(layout)
    with contextlib.suppress(VerificationError):  # combinations are asked for, and none come
        StoredTypes(server, Request(query, aggregate, ()), layout, (), 1, lists_values=False)
    texts, values = zip(*server.asked, strict=True)
    return Statement("\n".join(texts), sum(values, ()))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT COUNT(*) FROM t WHERE age > 77117 AND illness = 'canary'",
        "SELECT sex, AVG(age + 77117) FROM t WHERE age = 77117 OR illness = 'canary' GROUP BY sex",
        "SELECT sex AS \"canary\", COUNT(*) FROM t WHERE sex IN ('canary', '77117') GROUP BY sex",
    ],
)
def test_constants_are_bound(query: str) -> None:
    """Nothing that the analyst wrote is part of the text."""
    found = written(query)
    assert "77117" not in found.text
    assert "canary" not in found.text
    for constant in ("77117", "canary"):
        assert any(constant == value or constant in value for value in found.bound)


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
    found = arrange(Query(condition, (), ()), COUNT, LAYOUT)
    marked = [leaf for leaf in leaves(found.condition) if isinstance(leaf, JointCondition)]
    assert [leaf.condition for leaf in marked] == apart
    assert (found.spread, found.apart) == ([], list(listed))


def test_what_groups_need_is_not_apart() -> None:
    condition = both(less(A, B), less(C, D))
    found = arrange(Query(condition, (Key("b", B),), ()), COUNT, LAYOUT)
    assert found.condition == both(less(A, B), JointCondition(less(C, D)))
    assert (found.spread, found.apart) == (["a", "b"], ["c", "d"])


def test_what_is_summed_is_not_apart() -> None:
    condition = both(less(A, B), less(C, D))
    found = arrange(Query(condition, (), ()), ex.Aggregate("sum", A), LAYOUT)
    assert (found.spread, found.apart) == (["a", "b"], ["c", "d"])
