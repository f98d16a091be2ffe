"""The recipes of docs/howto/plain-sql.md give what the page shows."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest

import kanon_db

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "plain-sql.md"
TOLERANCE = 0.15
"""How far a figure may be from the one that is shown: publications are drawn at random."""

BOUNDS = ("lower_bound", "upper_bound")
"""Columns that depend more on what is drawn: a figure beside them lies between."""

Table = list[list[str]]


def recipes() -> list[tuple[str, str | None]]:
    """The page's SQL, each block with the output that follows it, if there is one."""
    found = re.findall(
        r"^```sql\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    return [(sql, shown or None) for sql, shown in found]


def shown_table(text: str) -> Table:
    """Read what psql prints: a line of names, a rule, and a line for each row."""
    names, _, *rows = text.splitlines()
    return [[cell.strip() for cell in line.split("|")] for line in (names, *rows)]


def is_close(found: str, shown: str) -> bool:
    """Whether a cell is as shown, or nearly so if it is a number."""
    try:
        one, other = Decimal(found), Decimal(shown)
    except ArithmeticError:
        return found == shown
    return abs(one - other) <= max(Decimal(5), Decimal(TOLERANCE) * abs(other))


@pytest.fixture
def fair(database: str, fair_csv: Path) -> str:
    with psycopg.connect(database, autocommit=True) as admin:  # draws what the page shows
        admin.execute("UPDATE kanon.draw_key SET key = sha256('plain-sql.md')")
    with kanon_db.connect(database) as kanon:
        kanon.load(fair_csv, "fair")
    return database


@pytest.mark.slow("publishes what the page shows")
def test_recipes_give_what_is_shown(fair: str) -> None:
    compared = 0
    # Only what makes something, and publishes, has no output.
    (without,) = [sql for sql, shown in recipes() if shown is None]
    assert "kanon.register_source" in without
    with psycopg.connect(fair, autocommit=True) as connection:
        for sql, shown in recipes():
            cursor = connection.execute("SELECT")
            for statement in filter(str.strip, sql.split(";\n")):
                cursor = connection.execute(statement.encode())
            if shown is None:
                continue
            named = [column.name for column in cursor.description or ()]
            found = [["" if v is None else _text(v) for v in row] for row in cursor.fetchall()]
            expected = shown_table(shown)
            assert named == expected[0]
            assert len(found) == len(expected) - 1, f"{sql}\n{found}"
            for row, line in zip(found, expected[1:], strict=True):
                cells = zip(named, row, line, strict=True)
                assert all(name in BOUNDS or is_close(*cell) for name, *cell in cells), (
                    f"{sql}\n{found}"
                )
            if named[-2:] == list(BOUNDS):
                assert _in_order(found)
            compared += 1
    assert compared > 10


def _in_order(found: Table) -> bool:
    """Whether the estimate is in its likely range, and that within the bounds."""
    ((people, low, high, least, most),) = ([float(cell) for cell in row] for row in found)
    return least <= low <= people <= high <= most


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "t" if value else "f"
    return str(value)
