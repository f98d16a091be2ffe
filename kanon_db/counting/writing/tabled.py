"""Conditions on a column of whole numbers or days, tried once for each value that any cell has.

Ranges overlap: to try a condition for each value of each range takes far longer. How often it is
true and false up to a value is cumulated, so that each range takes two places of these.
"""

from __future__ import annotations

from typing import Final

from kanon_db.counting import expressions as ex
from kanon_db.counting.layout import Cell
from kanon_db.counting.writing.cell_values import MOST_VALUES, is_endless
from kanon_db.counting.writing.intervals import can_cover
from kanon_db.counting.writing.sql import Constants, write
from kanon_db.counting.writing.steps import Nested, Select, Steps

MOST_TABLED: Final = 100_000
"""The most values that are tried."""

_AS_LONG: Final = 20
"""So many values, at least, are tried while one range is cut into what comparisons cover of it."""


def tabled(
    steps: Steps, leaf: ex.Expression, constants: Constants, alias: str, place: int, cell: Cell
) -> tuple[Select, str] | None:
    """Cumulate how many values meet a condition, unless they are more than the ranges have.

    Parameters
    ----------
    steps : Steps
        Where to add this to.
    leaf : Expression
        A condition on one column.
    constants : Constants
    alias : str
        What this condition is called.
    place : int
        The column's number in this statement; ``d`` is a row of its cells.
    cell : Cell

    Returns
    -------
    tuple of Select and str, or None
        How likely the condition is in one range, and whether its values were tried; None where
        values are not whole, or one in no range might not be allowed.
    """
    if cell.kind != "range" or not cell.is_discrete or may_fail(leaf):
        return None
    sql = f"d.c{place}"
    listed = f"sum(least(upper({sql}) - lower({sql}), {MOST_VALUES}))"
    worth = f"{_AS_LONG} * count(*)" if can_cover(cell, leaf) else listed
    _add(steps, write(leaf, lambda _column: "z.v", constants), alias, place, cell, worth)
    return _of_one(alias, sql)


def may_fail(leaf: ex.Expression) -> bool:
    """Whether a condition divides by what depends on the value."""
    return any(
        isinstance(part, ex.Arithmetic)
        and part.operator in "/%"
        and not isinstance(part.right, ex.Constant)
        for part in ex.walk(leaf)
    )


def _add(steps: Steps, truth: str, alias: str, place: int, cell: Cell, worth: str) -> None:
    sql, type_ = f"d.c{place}", cell.column.type.name
    low, high = f"min(lower({sql}))", f"max(upper({sql}))"
    steps.add(
        f"values_{alias}",
        f"The least value of the cells c{place}, and their number; 0, if trying them takes longer.",
        Select(
            {
                "low": low,
                "n": f"CASE WHEN {high} - {low} <= least({worth}, {MOST_TABLED})"
                f" THEN {high} - {low} ELSE 0 END",
            },
            [f"cells{place} AS d"],
            [f"NOT {is_endless(sql)}"],
        ),
    )
    value = f"(r.low + i::{_step_of(type_)})::{type_}"
    tried = Nested(
        [
            Select(
                {"i": "i", "v": value}, [f"values_{alias} AS r, generate_series(0, r.n - 1) AS i"]
            )
        ],
        "z",
    )
    cumulated = {
        column: f"count(*) FILTER (WHERE {x}) OVER (ORDER BY i)"
        for column, x in (("t", "x"), ("f", "NOT x"))
    }
    steps.add(
        f"tabled_{alias}",
        f"For how many of them condition {alias} is true, and false, up to each.",
        Select(
            {column: f"array_agg({column} ORDER BY i)" for column in cumulated},
            [Nested([Select({"i": "i", **cumulated},
                            [Nested([Select({"i": "i", "x": truth}, [tried])], "x")])], "c")],
        ),
    )  # fmt: skip


def all_values(source: str, type_: str, most: int) -> list[Select]:
    """List NULL and the ``n`` values from ``low`` on, with their numbers from -1 on.

    Parameters
    ----------
    source : str
        It has one row.
    type_ : str
    most : int
        None is listed if they are more.
    """
    value = f"(r.low + i::{_step_of(type_)})::{type_}"
    each = f"{source} AS r, generate_series(0::int8, r.n - 1) AS i"
    return [
        Select({"i": "-1", "v": f"NULL::{type_}"}),
        Select({"i": "i", "v": value}, [each], [f"r.n <= {most}"]),
    ]


def _step_of(type_: str) -> str:
    return "int" if type_ in ("date", "smallint") else type_


def _of_one(alias: str, sql: str) -> tuple[Select, str]:
    first = f"(SELECT low FROM values_{alias})"
    at, until = f"(lower({sql}) - {first})::int", f"(upper({sql}) - {first})::int"
    width = f"(upper({sql}) - lower({sql}))"

    def number(column: str) -> str:
        upto = f"(SELECT {column} FROM tabled_{alias})"
        return f"({upto}[{until}] - coalesce({upto}[{at}], 0))"

    counted = Nested([Select({"t": number("t"), "f": number("f"), "n": width})], "k")
    found = {
        "t": "t / n::float8", "f": "f / n::float8",
        "st": "t = n", "pt": "t > 0", "sf": "f = n", "pf": "f > 0",
    }  # fmt: skip
    return Select(found, [counted]), f"(SELECT n FROM values_{alias}) > 0"
