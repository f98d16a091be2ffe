"""What a plan says of a query, before anything is read."""

from __future__ import annotations

import pytest

from kanon_db.answers.plan import Plan
from kanon_db.query._bind import Scope
from kanon_db.query.check import check
from kanon_db.query.expressions import INTEGER, TEXT, Column, Not, Query, RelationText, attributes
from kanon_db.query.layout import BucketLayout, CellDescription, CellLayout, RowView
from kanon_db.query.parse import parse_query
from tests.unit.query.layouts import bucket_tables

AGE, HOURS = Column("age", '"age"', INTEGER), Column("hours", '"hours"', INTEGER)
SEX, ILLNESS = Column("sex", '"sex"', TEXT), Column("illness", '"illness"', TEXT)
REGION = Column("region", '"region"', TEXT, 0, "sex")
BUCKETS = BucketLayout(
    bucket_tables([2, 3], [4, 1]), {"age": AGE, "hours": HOURS, "sex": SEX}, {"illness": ILLNESS}
)
CELLS = CellLayout(
    RowView("", "", "", (), None, ()),
    {
        "age": CellDescription(AGE, "range"),
        "hours": CellDescription(HOURS, "range"),
        "sex": CellDescription(SEX, "set"),
        "illness": CellDescription(ILLNESS, "value"),
    },
)


def plan(text: str, layout: BucketLayout | CellLayout = BUCKETS) -> Plan:
    scopes = [
        Scope(RelationText("published", "t"), layout.columns),
        Scope(RelationText("geo", "regions", "r"), {"region": REGION}),
    ]
    query: Query = check(parse_query(text), scopes)
    return Plan.of(query, query.measures[0].aggregate, layout)


@pytest.mark.parametrize(
    ("rest", "shape"),
    [
        ("", "exact"),
        ("WHERE age > 30 AND sex = 'f'", "exact"),
        ("WHERE r.region = 'North' AND sex = 'f'", "exact"),  # a lookup is on its column's side
        ("WHERE illness = 'Flu'", "exact"),
        ("WHERE age > 30 AND illness = 'Flu'", "apart"),
        ("WHERE age = 1 OR illness = 'Flu'", "either"),
        ("WHERE age = 1 OR sex = 'f' OR illness IN ('Flu', 'x')", "either"),
        ("WHERE NOT (age = 1 AND illness = 'Flu')", "pairs"),
        ("WHERE age = 1 AND (age = 2 OR illness = 'Flu')", "pairs"),
        ("WHERE age = 1 OR sex = illness", "pairs"),
        ("WHERE sex = illness", "pairs"),
    ],
)
def test_shapes_of_counts_in_buckets(rest: str, shape: str) -> None:
    assert plan(f"SELECT COUNT(*) FROM t {rest}").shape == shape


@pytest.mark.parametrize(
    ("query", "shape", "columns"),
    [
        ("SELECT sex, COUNT(*) FROM t GROUP BY sex", "exact", ("sex",)),
        ("SELECT illness, AVG(age) FROM t GROUP BY illness", "apart", ("age", "illness")),
        ("SELECT SUM(age) FROM t WHERE hours > 1", "exact", ("age", "hours")),
        ("SELECT sex, COUNT(illness) FROM t GROUP BY sex", "apart", ("sex", "illness")),
        # Groups, or sums, are of those who meet one: nothing follows from those who meet neither.
        ("SELECT sex, COUNT(*) FROM t WHERE age = 1 OR illness = 'x' GROUP BY sex", "pairs",
         ("age", "sex", "illness")),
        ("SELECT SUM(age) FROM t WHERE age = 1 OR illness = 'x'", "pairs", ("age", "illness")),
        ("SELECT sex = illness AS same, COUNT(*) FROM t GROUP BY same", "pairs",
         ("sex", "illness")),
        ("SELECT MAX(age) FROM t WHERE illness = 'x'", "apart", ("age", "illness")),
        ("SELECT COUNT(DISTINCT illness) FROM t", "exact", ("illness",)),
    ],
)  # fmt: skip
def test_shapes_of_aggregates_and_groups(query: str, shape: str, columns: tuple[str, ...]) -> None:
    made = plan(query)
    assert (made.shape, made.columns) == (shape, columns)
    assert made.describe().endswith(f"; columns: {', '.join(columns)}")


def test_the_parts_go_to_their_sides() -> None:
    made = plan(
        "SELECT COUNT(*) FROM t WHERE illness <> 'Flu' AND (age = 1 OR sex = 'f')"
        " AND illness <> 'x' AND (age = 2 OR illness = 'y' OR hours = 3)"
    )
    assert attributes(made.records) == {"age", "sex"}
    assert made.values is not None
    assert len(made.values.parts) == 2  # type: ignore[attr-defined]
    assert [len(leaves) for leaves in made.leaves] == [1, 1, 0]
    assert [attributes(leaf) for leaf in made.leaves.records] == [{"age", "hours"}]


def test_who_meets_neither_is_what_is_counted() -> None:
    made = plan("SELECT COUNT(*) FROM t WHERE age = 1 OR illness = 'Flu'")
    assert (attributes(made.records), attributes(made.values)) == ({"age"}, {"illness"})
    assert made.pairs == ()
    assert not isinstance(made.records, Not)  # NULL is not true either


def test_what_is_summed_has_a_side() -> None:
    summed = plan("SELECT illness, SUM(age) FROM t WHERE age > 3 GROUP BY illness")
    assert (summed.number, summed.has_number_on(0), summed.has_number_on(1)) == (AGE, True, False)
    assert attributes(summed.records) == {"age"}
    assert "IS NOT NULL" not in repr(summed.records)
    assert [key.number for key in summed.keys_of(1)] == [0]
    assert plan("SELECT COUNT(illness) FROM t").number is None
    ordered = plan("SELECT MAX(age) FROM t WHERE illness = 'Flu'")
    assert (ordered.summed, ordered.ranked, ordered.has_number_on(0)) == (None, AGE, True)
    assert plan("SELECT COUNT(illness) FROM t").only_side == 1


@pytest.mark.parametrize(
    ("query", "shape", "spread"),
    [
        ("SELECT COUNT(*) FROM t WHERE illness = 'x'", "exact", ()),
        ("SELECT COUNT(*) FROM t WHERE age > 3 AND illness = 'x'", "apart", ()),
        ("SELECT COUNT(*) FROM t WHERE age > 3 OR sex = 'f'", "apart", ()),
        ("SELECT SUM(age) FROM t WHERE sex = 'f'", "apart", ()),
        ("SELECT SUM(age) FROM t WHERE age > 30", "pairs", ("age",)),
        ("SELECT sex, COUNT(*) FROM t WHERE age > 3 GROUP BY sex", "pairs", ("sex",)),
        ("SELECT COUNT(*) FROM t WHERE age > hours AND sex = 'f'", "pairs", ()),
    ],
)
def test_shapes_of_rows(query: str, shape: str, spread: tuple[str, ...]) -> None:
    made = plan(query, CELLS)
    assert (made.shape, made.spread) == (shape, spread)
    left_out = plan(query, CELLS._replace(left_out=1))
    assert left_out.shape == ("apart" if shape == "exact" else shape)


def test_conditions_on_rows() -> None:
    made = plan("SELECT COUNT(*) FROM t WHERE age > hours AND sex = 'f' AND illness = 'x'", CELLS)
    assert attributes(made.records) == {"illness"}
    assert attributes(made.values) == {"sex"}
    assert [attributes(part) for part in made.pairs] == [{"age", "hours"}]
