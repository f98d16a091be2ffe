"""What the text of a statement holds."""

from __future__ import annotations

import re

import pytest

from kanon_db.answers.statements import joined_pairs, statement
from kanon_db.errors import UnsupportedQueryError
from kanon_db.query._bind import Scope
from kanon_db.query.check import check
from kanon_db.query.expressions import INTEGER, NUMERIC, TEXT, Column, RelationText
from kanon_db.query.layout import (
    BucketLayout,
    CellDescription,
    CellLayout,
    RowView,
    chosen_by,
)
from kanon_db.query.parse import parse_query
from kanon_db.query.sql import Request, Statement
from tests.unit.query.layouts import bucket_tables

AGE, ILLNESS = Column("age", '"age"', INTEGER), Column("illness", '"illness"', TEXT)
HEIGHT, SEX = Column("height", '"height"', NUMERIC), Column("sex", '"sex"', TEXT)
BUCKETS = BucketLayout(bucket_tables([2, 3], [4, 1]), {"age": AGE, "sex": SEX}, ILLNESS)
CELLS = CellLayout(
    RowView('"published"."t"', '"published"."t_row"', "", ('"age"',), '"pattern"', ("age",)),
    {
        "age": CellDescription(AGE, "range"),
        "height": CellDescription(HEIGHT, "range", is_discrete=False),
        "sex": CellDescription(SEX, "value", mark=1),
        "illness": CellDescription(ILLNESS, "value"),
    },
)


def written(
    text: str, layout: BucketLayout | CellLayout = BUCKETS, *, shown: bool = False
) -> Statement:
    query = check(parse_query(text), [Scope(RelationText("published", "t"), layout.columns)])
    literal = (lambda value: f"<{value}>") if shown else None
    aggregate = query.measures[0].aggregate
    if isinstance(layout, CellLayout):
        return statement(Request(query, aggregate, (), literal), layout)
    keys = {f"k{i}": key.expression for i, key in enumerate(query.keys)}
    return joined_pairs(chosen_by(query, aggregate), keys, aggregate.operand, layout, ())


@pytest.mark.parametrize("layout", [BUCKETS, CELLS])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT COUNT(*) FROM t WHERE age > 77117 AND illness = 'canary'",
        "SELECT sex, AVG(age + 77117) FROM t WHERE age = 77117 OR illness = 'canary' GROUP BY sex",
        "SELECT sex AS \"canary\", COUNT(*) FROM t WHERE sex IN ('canary', '77117') GROUP BY sex",
    ],
)
def test_constants_are_bound(query: str, layout: BucketLayout | CellLayout) -> None:
    """Nothing that the analyst wrote is part of the text, unless it is to be shown."""
    found = written(query, layout)
    assert "77117" not in found.text
    assert "canary" not in found.text
    for constant in ("77117", "canary"):
        assert any(constant == value or constant in value for value in found.bound)
    if layout == BUCKETS:
        return
    shown = written(query, layout, shown=True)
    assert "<77117>" in shown.text
    assert "<canary>" in shown.text
    assert shown.bound == ()


def test_every_step_says_what_it_does() -> None:
    for layout in (BUCKETS, CELLS):
        found = written("SELECT sex, SUM(age) FROM t WHERE illness = 'x' GROUP BY sex", layout)
        assert found.text.isascii()
        lines = found.text.splitlines()
        for number, line in enumerate(lines):
            if re.fullmatch(r"\w+ AS \(|SELECT.*", line):
                assert lines[number - 1].startswith("-- ")


def test_what_is_spread() -> None:
    def spread(query: str) -> bool:
        return "is_open" in written(query, CELLS).text.split("likelihoods AS")[0]

    assert not spread("SELECT COUNT(*) FROM t WHERE age > 7 AND sex = 'x'")
    assert spread("SELECT COUNT(*) FROM t WHERE age > height")
    assert spread("SELECT SUM(age) FROM t")
    assert spread("SELECT COUNT(*) FROM t WHERE (age > 7 AND sex = 'x') OR age < 3")


def test_continuous_ranges_are_not_grouped() -> None:
    with pytest.raises(UnsupportedQueryError, match="continuous ranges") as refused:
        written("SELECT height, COUNT(*) FROM t GROUP BY height", CELLS)
    assert refused.value.detail == 'column "height"'
