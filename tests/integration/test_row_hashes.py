"""Rows that differ from the table of their numbers are found, whatever the types of their cells."""

from __future__ import annotations

import random

import pytest

from kanon_db.publications.rows import class_table
from tests.integration.parties import (
    Functions,
    Package,
    Parties,
    create_table,
    fetch,
    keep_cells_with_rows,
    value,
)

CHECK = "the numbers of the cells are those of the rows"
NAMES = ("ranges", "stars")
CELLS = {
    "age": "int", "born": "date", "wage": "numeric", "job": "text", "code": "bigint",
    "ratio": "float8",
}  # fmt: skip
OTHERS = {
    "small": "smallint", "town": "varchar", "big": "bigint", "is_new": "boolean",
    "seen": "timestamp", "share": "float8", "sick": "text",
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def published(parties: Parties) -> None:
    draw = random.Random(7)  # noqa: S311  # made-up data

    def maybe(drawn: object) -> object:
        return None if draw.random() < 0.1 else drawn

    rows = [
        tuple(
            maybe(drawn)
            for drawn in (
                20 + draw.randrange(9), f"2000-01-0{1 + draw.randrange(9)}",
                f"{draw.randrange(9)}.{'0' * draw.randrange(3)}", f"job {draw.randrange(4)}",
                # The server folds the halves of such numbers into the same hash.
                draw.choice([1, 2**32]),
                # All of these, as ends of a range, have the same hash.
                draw.choice([0, 1, 2, "-Infinity", "Infinity", "NaN"]),
                draw.randrange(3), f"town {draw.randrange(3)}",
                draw.choice([1, 2**32]), draw.random() < 0.5,
                f"2001-01-01 0{draw.randrange(3)}:00", draw.randrange(3), f"{draw.randrange(3)}",
            )
        )
        for _ in range(200)
    ]  # fmt: skip
    columns = CELLS | OTHERS
    create_table(
        parties.publisher, "data.sorts", ", ".join(f"{c} {t}" for c, t in columns.items()), rows
    )
    kanon = Functions(parties.publisher)
    kanon.register(
        "data.sorts", list(CELLS), "sick", insensitive=[c for c in OTHERS if c != "sick"]
    )
    kanon.generalize("data.sorts", "ranges", k=4, method="mondrian", refine=False)
    kanon.suppress("data.sorts", "stars", k=2)


def holds(parties: Parties, name: str) -> bool:
    return bool({row[0]: row[3] for row in Functions(parties.admin).verify(name)}[CHECK])


@pytest.mark.pitfall(4)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("column", [*CELLS, *OTHERS])
def test_cells_that_change_places_are_found(parties: Parties, name: str, column: str) -> None:
    """All columns have the same cells as before, and all rows but two are the same."""
    with parties.admin.transaction(force_rollback=True):
        keep_cells_with_rows(parties.admin, name)
        rows = f"published.{name}_row"
        one = value(parties.admin, f"SELECT min(ctid)::text FROM {rows}")
        other = value(
            parties.admin,
            f"SELECT max(r.ctid)::text FROM {rows} AS r, {rows} AS o"
            f" WHERE o.ctid = $1::tid AND r.{column} IS DISTINCT FROM o.{column}",
            one,
        )
        fetch(
            parties.admin,
            f"UPDATE {rows} AS r SET {column} = o.{column} FROM {rows} AS o"
            " WHERE r.ctid = ANY ($1::tid[]) AND o.ctid = ANY ($1::tid[]) AND r.ctid <> o.ctid",
            [one, other],
        )
        fetch(parties.admin, f"REFRESH MATERIALIZED VIEW published.{name}")
        alike = value(
            parties.admin,
            f"SELECT (count(*) = 0) FROM ((TABLE published.{name} EXCEPT ALL"
            f" TABLE published.before_{name})) AS d",
        )
        assert holds(parties, name) == alike


@pytest.fixture(scope="module", autouse=True)
def before(parties: Parties, published: None) -> None:
    for name in NAMES:
        fetch(parties.admin, f"CREATE TABLE published.before_{name} AS TABLE published.{name}")


@pytest.mark.parametrize("name", NAMES)
def test_a_cell_that_is_listed_twice_is_found(parties: Parties, name: str) -> None:
    """Half of the rows with a value have another number, of the same value."""
    table = f"published.{name}_cls"
    with parties.admin.transaction(force_rollback=True):
        n = value(parties.admin, f"SELECT max(number) FROM {table} WHERE attribute = 'town'")
        last = value(
            parties.admin,
            f"SELECT town FROM {table} WHERE attribute = 'town' AND number = $1::int4", n,
        )  # fmt: skip
        assert last is None  # NULL comes last
        fetch(
            parties.admin,
            f"UPDATE {table} SET town = NULL WHERE attribute = 'town' AND number = $1::int4 - 1", n,
        )  # fmt: skip
        assert not holds(parties, name)


def test_no_two_numbers_that_are_hashed_always_have_the_same_hash(parties: Parties) -> None:
    """As some of those whose types are looked up have."""
    folded = "SELECT hashint8extended(1, 5) = hashint8extended(4294967296, 5)"
    assert value(parties.admin, folded)
    assert "bigint" not in class_table._HASHES
    assert not {"timestamp without time zone", "int8range", "tsrange"} & set(class_table._HASHES)


def test_rows_are_summed_up_a_part_at_a_time(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_table, "_ROWS_AT_ONCE", 7)
    for name in NAMES:
        assert {row[0]: row[3] for row in Package(parties.admin).verify(name)}[CHECK]
