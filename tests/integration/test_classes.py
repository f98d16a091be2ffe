"""The numbers of the cells of published rows: they follow from the rows, and answer for them."""

from __future__ import annotations

import random
from itertools import chain
from typing import Any

import psycopg
import pytest

from kanon_db.publications.rows import cell_codes
from tests.integration.parties import (
    Functions,
    Package,
    Parties,
    create_source,
    fetch,
    keep_cells_with_rows,
    value,
)

N_RECORDS = 300
CHECK = "the numbers of the cells are those of the rows"
KINDS = {"classes": "generalized", "graph": "freeform", "stars": "suppressed"}
QUESTIONS = (
    "SELECT COUNT(*) FROM {} WHERE age > 30 AND sick = 'flu'",
    "SELECT job, AVG(age) FROM {} GROUP BY job",
    "SELECT COUNT(*) FROM {} WHERE job = 'cook' OR ward > 2",
)


@pytest.fixture(scope="module", autouse=True)
def published(parties: Parties) -> None:
    draw = random.Random(16)  # noqa: S311  # made-up data
    rows = [
        (
            None if draw.random() < 0.1 else 20 + int(40 * draw.random() ** 3),
            draw.choices(["nurse", "clerk", "cook", None], [20, 5, 2, 1])[0],
            draw.randrange(5),
            draw.choice(["flu", "cold", None]),
            "{}" if draw.random() < 0.5 else '{"a": 1}',
        )
        for _ in range(N_RECORDS)
    ]
    columns = "age int, job text, ward int, sick text, note json"
    kanon = create_source(
        parties.publisher, "data.ill", columns, rows, ["age", "job"], "sick",
        insensitive=["ward", "note"],
    )  # fmt: skip
    for name, kind in KINDS.items():
        kanon.of_kind(kind, "data.ill", name, k=4)


def asked(parties: Parties, name: str, question: str) -> list[Any]:
    return fetch(parties.analyst, "SELECT * FROM kanon.estimate($1::text)", question.format(name))


def holds(parties: Parties, name: str) -> bool:
    return bool({row[0]: row[3] for row in Functions(parties.admin).verify(name)}[CHECK])


@pytest.mark.long
@pytest.mark.parametrize("name", KINDS)
def test_they_do_not_depend_on_the_order_of_rows(parties: Parties, name: str) -> None:
    """They tell nothing that the rows do not: written anew in another order, the same."""
    # By readers, who need not be able to make temporary tables.
    with parties.analyst.transaction(force_rollback=True):
        parties.analyst.execute("SET TRANSACTION READ ONLY")
        assert all(good for *_, good in Functions(parties.analyst).verify(name))
    with parties.admin.transaction(force_rollback=True):
        keep_cells_with_rows(parties.admin, name)
        fetch(parties.admin, f"CREATE TEMP TABLE t ON COMMIT DROP AS TABLE published.{name}_row")
        fetch(parties.admin, f"DELETE FROM published.{name}_row")
        fetch(
            parties.admin,
            f"INSERT INTO published.{name}_row SELECT * FROM t ORDER BY ward, note::text, age",
        )
        fetch(parties.admin, f"REFRESH MATERIALIZED VIEW published.{name}")
        assert holds(parties, name)


OF = (
    "WHERE column_no = (SELECT min(column_no) FROM published.{{0}}_val WHERE {} IS NOT NULL)".format
)
CHANGES = (
    f"UPDATE published.{{0}}_cod SET codes = set_byte(codes, 0, 255) {OF('ward')}",
    f"UPDATE published.{{0}}_cod SET codes = substr(codes, 2) {OF('age')}",
    "UPDATE published.{0}_val SET sick = 'cold' WHERE sick = 'flu'",
    f"UPDATE published.{{0}}_val SET code = code + 1 {OF('job')} AND code > 0",
    f"DELETE FROM published.{{0}}_val {OF('age')} AND code = 1",
    "INSERT INTO published.{0}_cod VALUES (-1, 7, '\\x01000000')",
    "UPDATE published.{0}_cod SET codes = set_byte(codes, 1, 1) WHERE column_no = -1",
    "DELETE FROM published.{0}_cod WHERE column_no = -1",
)
UNREADABLE = (
    "UPDATE published.{0}_cod SET codes = substr(codes, 3)",
    "UPDATE published.{0}_cod SET codes = set_byte(codes, 1, 255)",
    f"DELETE FROM published.{{0}}_cod {OF('age')}",
    "DELETE FROM published.{0}_cod",
)


@pytest.mark.long
@pytest.mark.pitfall(4)
@pytest.mark.parametrize("name", KINDS)
def test_changes_are_found(parties: Parties, name: str) -> None:
    """And what cannot be read is refused."""
    for change in CHANGES:
        with parties.admin.transaction(force_rollback=True):
            fetch(parties.admin, change.format(name))
            assert not holds(parties, name), change
    both = "SELECT COUNT(*) FROM {} WHERE age > 30 AND ward = 1"
    for change in UNREADABLE:
        with parties.admin.transaction(force_rollback=True):
            fetch(parties.admin, change.format(name))
            with pytest.raises(psycopg.Error, match=r"those that were published|have changed"):
                fetch(parties.admin, "SELECT * FROM kanon.estimate($1::text)", both.format(name))


@pytest.mark.parametrize("name", KINDS)
def test_whoever_may_not_read_them_is_answered_from_the_view(parties: Parties, name: str) -> None:
    """As where a publication of before, without numbers, was published again."""
    wanted = [asked(parties, name, question) for question in QUESTIONS]
    fetch(parties.admin, f"REVOKE SELECT ON published.{name}_cod FROM kanon_analyst")
    try:
        found = [asked(parties, name, question) for question in QUESTIONS]
        readable = f"SELECT has_table_privilege('published.{name}_cod', 'SELECT')"
        assert not value(parties.analyst, readable)
    finally:
        fetch(parties.admin, f"GRANT SELECT ON published.{name}_cod TO kanon_analyst")
    for one, other in zip(chain(*found), chain(*wanted), strict=True):
        assert one[:2] == other[:2]
        numbers = [[-1 if x is None else x for x in row[2:]] for row in (one, other)]
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-6, abs=1e-6)


@pytest.mark.long
def test_columns_without_numbers(parties: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    """Types without an equality have none, nor have columns with too many cells.

    Questions that mention them are answered from the view.
    """
    numbered = (
        "SELECT jsonb_agg(c -> 0) FROM kanon.publication,"
        " jsonb_array_elements(layout -> 'store' -> 'columns') AS c WHERE name = $1"
        " AND NOT (c -> 6)::boolean"  # known by the ends of ranges
    )
    for name in KINDS:
        assert sorted(value(parties.admin, numbered, name)) == ["age", "job", "sick", "ward"]
    monkeypatch.setattr(cell_codes, "MOST_NUMBERED", 3)
    for kind in ("generalize", "freeform", "suppress"):
        getattr(Package(parties.publisher), kind)("data.ill", kind, k=4)
        layout = value(parties.admin, numbered, kind)
        assert "age" not in layout
        assert "sick" in layout
        assert all(good for *_, good in Package(parties.publisher).verify(kind))
        (row,) = asked(parties, kind, "SELECT COUNT(*) FROM {} WHERE age > 0 OR age IS NULL")
        assert row[2] == pytest.approx(N_RECORDS)
