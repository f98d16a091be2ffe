"""Attacks on published rows: every change that breaks a promise is found, and named."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.integration.parties import (
    WHOLE,
    Functions,
    Parties,
    create_source,
    fetch,
    keep_cells_with_rows,
    make_whole,
)

VIEW = "the materialized view reads only the table of its rows"
COLUMNS = "the view has the published columns, and no identifier"
RECORDS = "every record is published once, or left out"
PATTERNS = "every row matches one of the patterns"
SHOWN = "every suppressed cell is NULL"
NUMBERS = "the numbers of the cells are those of the rows"
K_ANONYMITY = "k-anonymity: every combination of kept cells occurs k times"

ONE = "WHERE ctid = (SELECT min(ctid) FROM $rows WHERE pattern = '{}')"

# What is done to the rows before the view is refreshed, and the check that must name it.
ROWS: dict[str, tuple[str, str]] = {
    "a row is removed": (f"DELETE FROM $rows {ONE.format('..')}", RECORDS),
    "a row is added": (
        f"INSERT INTO $rows SELECT * FROM $rows {ONE.format('..')}",
        RECORDS,
    ),
    "everything is removed": ("DELETE FROM $rows", RECORDS),
    "a kept cell changes": (f"UPDATE $rows SET age = 99 {ONE.format('..')}", K_ANONYMITY),
    "a kept cell is lost": (f"UPDATE $rows SET age = NULL {ONE.format('..')}", K_ANONYMITY),
    "a suppressed cell is shown": (f"UPDATE $rows SET town = 'x' {ONE.format('.*')}", SHOWN),
    "a left-over record is shown": (f"UPDATE $rows SET age = 1 {ONE.format('**')}", SHOWN),
    "a mark disappears": (f"UPDATE $rows SET pattern = '..' {ONE.format('.*')}", K_ANONYMITY),
    "a pattern that is not allowed": (
        f"UPDATE $rows SET pattern = '*.', age = NULL {ONE.format('..')}",
        PATTERNS,
    ),
    "a pattern is lost": (f"UPDATE $rows SET pattern = NULL {ONE.format('..')}", PATTERNS),
    "a pattern is cut": (f"UPDATE $rows SET pattern = '.' {ONE.format('..')}", PATTERNS),
    "a pattern is no pattern": (f"UPDATE $rows SET pattern = '.?' {ONE.format('..')}", PATTERNS),
}

# What is done to rows and cells that are in two tables.
OF_TWO: dict[str, tuple[str, str]] = {
    "a row has other cells": (
        (
            "UPDATE $rows SET number = (SELECT number FROM $cells WHERE pattern = '..')"
            " WHERE number IN (SELECT number FROM $cells WHERE pattern = '**')"
        ),
        NUMBERS,
    ),
    "a row has no cells": (
        "UPDATE $rows SET number = NULL WHERE ctid = (SELECT min(ctid) FROM $rows)",
        RECORDS,
    ),
    "a row is removed": ("DELETE FROM $rows WHERE ctid = (SELECT min(ctid) FROM $rows)", RECORDS),
    "cells change": ("UPDATE $cells SET age = 99 WHERE pattern = '..'", NUMBERS),
    "cells are removed": ("DELETE FROM $cells WHERE pattern = '..'", RECORDS),
    "cells are there twice": (
        "INSERT INTO $cells SELECT * FROM $cells WHERE pattern = '..'",
        RECORDS,
    ),
    "suppressed cells are shown": ("UPDATE $cells SET town = 'x' WHERE pattern = '.*'", SHOWN),
    "a mark disappears": ("UPDATE $cells SET pattern = '..' WHERE pattern = '.*'", NUMBERS),
    "the cells hide some": ("ALTER TABLE $cells ENABLE ROW LEVEL SECURITY", VIEW),
}

DROP = "DROP MATERIALIZED VIEW $view"
AGAIN = f"{DROP}; CREATE MATERIALIZED VIEW $view AS SELECT"

# What is done to the relations themselves.
RELATIONS: dict[str, tuple[str, str]] = {
    "the view is gone": (DROP, WHOLE),
    "the view is a table": (f"{DROP}; CREATE TABLE $view AS SELECT * FROM $rows", VIEW),
    "the view is not materialized": (f"{DROP}; CREATE VIEW $view AS SELECT * FROM $rows", VIEW),
    "the view reads the source": (
        f"{AGAIN} age, town, sick, '..' AS pattern FROM data.people",
        VIEW,
    ),
    "the view calls a function": (
        f"{AGAIN} age, town, data.spy() AS sick, pattern FROM $rows",
        VIEW,
    ),
    "the rows hide some": ("ALTER TABLE $rows ENABLE ROW LEVEL SECURITY", VIEW),
    "the view has lost a column": (f"{AGAIN} age, town, pattern FROM $rows", COLUMNS),
    "the view has a column more": (
        f"{AGAIN} age, town, sick, pattern, 'name' AS name FROM $rows",
        COLUMNS,
    ),
    "columns exchange their names": (
        f"{AGAIN} age, sick AS town, town AS sick, pattern FROM $rows",
        SHOWN,
    ),
}


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    """Rows of all three patterns, left-over ones among them."""
    towns = ["a"] * 8 + [f"town {i}" for i in range(6)] + ["b"]
    ages = [30] * 8 + [40] * 6 + [99]
    rows = [(age, town, f"sick {age % 4}") for age, town in zip(ages, towns, strict=True)]
    fetch(parties.publisher, "CREATE FUNCTION data.spy() RETURNS text RETURN 'x'")
    kanon = create_source(
        parties.publisher,
        "data.people",
        "age int, town text, sick text",
        rows,
        ["age", "town"],
        "sick",
    )
    kanon.suppress(
        "data.people", "people", k=4, patterns=["..", ".*", "**"],
        options='{"left_over": "publish"}', accept='{"left_over_records": "it is a test"}',
    )  # fmt: skip
    patterns = "SELECT pattern, count(*) FROM published.people GROUP BY 1 ORDER BY 1"
    assert dict(fetch(parties.publisher, patterns)) == {"..": 8, ".*": 6, "**": 1}


@pytest.fixture
def owner(parties: Parties) -> Iterator[psycopg.Connection]:
    """A superuser, in a transaction that is rolled back."""
    with parties.admin.transaction(force_rollback=True):
        yield parties.admin


def tamper(owner: psycopg.Connection, statements: str) -> list[str]:
    """Run the statements; the checks that fail then."""
    names = {
        "$rows": "published.people_row", "$cells": "published.people_cel",
        "$view": "published.people",
    }  # fmt: skip
    for name, filled in names.items():
        statements = statements.replace(name, filled)
    for statement in statements.split("; "):
        fetch(owner, statement)
    make_whole(owner, "people", list(names.values()))
    return [check for check, _, _, holds in Functions(owner).verify("people") if not holds]


def test_untouched(owner: psycopg.Connection) -> None:
    assert tamper(owner, "REFRESH MATERIALIZED VIEW $view") == []


@pytest.mark.parametrize("case", ROWS)
def test_rows(owner: psycopg.Connection, case: str) -> None:
    statement, check = ROWS[case]
    keep_cells_with_rows(owner, "people")
    assert check in tamper(owner, f"{statement}; REFRESH MATERIALIZED VIEW $view")


@pytest.mark.parametrize("case", OF_TWO)
def test_rows_and_cells(owner: psycopg.Connection, case: str) -> None:
    statement, check = OF_TWO[case]
    assert check in tamper(owner, f"{statement}; REFRESH MATERIALIZED VIEW $view")


def test_rows_that_have_their_cells_hold(owner: psycopg.Connection) -> None:
    keep_cells_with_rows(owner, "people")
    assert tamper(owner, "REFRESH MATERIALIZED VIEW $view") == []


@pytest.mark.parametrize("case", RELATIONS)
def test_relations(owner: psycopg.Connection, case: str) -> None:
    statements, check = RELATIONS[case]
    keep_cells_with_rows(owner, "people")
    assert check in tamper(owner, statements)


def test_nothing_foreign_is_read(parties: Parties, owner: psycopg.Connection) -> None:
    """What stands in the view's place is not run when somebody verifies."""
    keep_cells_with_rows(owner, "people")
    fetch(owner, "CREATE TABLE data.seen (n int)")
    fetch(
        owner,
        "CREATE FUNCTION data.trap() RETURNS text LANGUAGE sql"
        " AS $$INSERT INTO data.seen VALUES (1) RETURNING 'x'$$",
    )
    statements = (
        "DROP MATERIALIZED VIEW $view; CREATE VIEW $view AS"
        " SELECT age, town, data.trap() AS sick, pattern FROM $rows"
    )
    assert tamper(owner, statements) == [VIEW]
    assert fetch(owner, "SELECT count(*) FROM data.seen") == [(0,)]


def test_metrics_of_what_is_gone(owner: psycopg.Connection) -> None:
    fetch(owner, "DROP MATERIALIZED VIEW published.people")
    with pytest.raises(psycopg.DatabaseError, match="have changed since they were published"):
        Functions(owner).metrics("people")
