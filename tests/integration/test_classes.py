"""The numbers of the cells of published rows: they follow from the rows, and answer for them."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from kanon_db.publications.rows import distinct_cells
from tests.integration.frozen import parties
from tests.integration.parties import (
    Functions,
    Package,
    Parties,
    create_source,
    fetch,
    keep_cells_with_rows,
    value,
)

__all__ = ["parties"]

CHECK = "the numbers of the cells are those of the rows"
NAMES = ("classes", "graph", "stars")
ESTIMATE = "SELECT * FROM kanon.estimate($1::text)"
QUESTIONS = (
    "SELECT COUNT(*) FROM {} WHERE age > 30 AND sick = 'flu'",
    "SELECT job, AVG(age) FROM {} GROUP BY job",
    "SELECT COUNT(*) FROM {} WHERE job = 'cook' OR ward > 2",
)


def asked(parties: Parties, name: str, question: str) -> list[Any]:
    return fetch(parties.analyst, ESTIMATE, question.format(name))


def holds(parties: Parties, name: str) -> bool:
    return bool({row[0]: row[3] for row in Functions(parties.admin).verify(name)}[CHECK])


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
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
    f"UPDATE published.{{0}}_val SET code = -code {OF('job')} AND code > 0",
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
    *(f"DELETE FROM published.{{0}}_val {OF(name)} AND code = 1" for name in ("age", "ward")),
)


@pytest.mark.long
@pytest.mark.pitfall(4)
@pytest.mark.parametrize("name", NAMES)
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
                fetch(parties.admin, ESTIMATE, both.format(name))


@pytest.mark.parametrize("name", NAMES)
def test_whoever_may_not_read_them_is_refused(parties: Parties, name: str) -> None:
    with parties.admin.transaction(force_rollback=True):
        fetch(parties.admin, f"REVOKE SELECT ON published.{name}_cod FROM kanon_analyst")
        fetch(parties.admin, f'SET LOCAL ROLE "{parties.analyst.info.user}"')
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            fetch(parties.admin, ESTIMATE, QUESTIONS[0].format(name))


@pytest.mark.parametrize("name", NAMES)
def test_types_without_an_equality_tell_who_has_a_value(parties: Parties, name: str) -> None:
    for condition in ("note IS NULL", "note IS NOT NULL AND sick = 'flu'"):
        (row,) = asked(parties, name, f"SELECT COUNT(*) FROM {{}} WHERE {condition}")
        count = f"SELECT COUNT(*) FROM published.{name} WHERE {condition}"
        assert row[2] == value(parties.admin, count)
    assert holds(parties, name)


@pytest.mark.pitfall(4)
def test_values_of_records_that_are_left_out_are_not_in_the_store(parties: Parties) -> None:
    """Nor is how they write a value that others have."""
    rows = [
        (20, "a", f"{1 + i % 2}.50", '{"b": 1}', f"note {i}") if i else (99, "z", "1.5", "[]", "x")
        for i in range(20)
    ]
    kanon = create_source(
        parties.publisher, "data.apart", "age int, job text, wage numeric, note json, text text",
        rows, ["age", "job"], None, insensitive=["wage", "note", "text"],
    )  # fmt: skip
    for most in (5_000, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(distinct_cells, "_MOST_IN_SAMPLE", most)
            package = Package(parties.publisher)
            package.generalize(
                "data.apart", "apart", k=5, max_suppressed="0.05", method="mondrian", refine=False,
                replace=True,
            )  # fmt: skip
        assert value(parties.admin, "SELECT count(*) FROM published.apart") == 19
        for column in ("wage", "note", "text"):
            shown = f"SELECT {column}::text FROM published.apart"
            left = f"SELECT {column}::text FROM published.apart_val EXCEPT {shown}"
            assert fetch(parties.admin, f"{left} EXCEPT SELECT NULL") == [], (column, most)
        assert holds(parties, "apart")
    kanon.drop("apart")


@pytest.mark.parametrize("name", ["classes", "stars"])
def test_columns_without_codes_are_refused(parties: Parties, name: str) -> None:
    """As earlier versions left those with many values: the other columns are answered."""
    (wanted,) = asked(parties, name, QUESTIONS[0])
    with parties.admin.transaction(force_rollback=True):
        fetch(
            parties.admin,
            "UPDATE kanon.publication SET layout = jsonb_set(layout, '{store,columns}', (SELECT"
            " jsonb_agg(c) FROM jsonb_array_elements(layout -> 'store' -> 'columns') AS c"
            " WHERE c ->> 0 <> 'ward')) WHERE name = $1::text",
            name,
        )
        assert [wanted] == fetch(parties.admin, ESTIMATE, QUESTIONS[0].format(name))
        assert not holds(parties, name)
        fetch(parties.admin, f'SET LOCAL ROLE "{parties.publisher.info.user}"')
        question = f"SELECT COUNT(*) FROM {name} WHERE ward > 2"
        for asking, given in ((ESTIMATE, question), ("SELECT kanon.draw($1::text)", name)):
            with (
                pytest.raises(psycopg.Error, match="without codes of some columns") as refused,
                parties.admin.transaction(),
            ):
                fetch(parties.admin, asking, given)
            assert refused.value.diag.message_detail == f'publication "{name}": ward', asking
            assert "publish again" in str(refused.value.diag.message_hint)
        # What is attacked is verified first.
        with pytest.raises(psycopg.Error, match="changed since they were published") as refused:
            fetch(parties.admin, "SELECT kanon.attack($1::text)", name)
    assert "publish again" in str(refused.value.diag.message_hint)
