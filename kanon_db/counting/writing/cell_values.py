"""What a cell may stand for, and how likely a condition on it is, as SQL.

**Source:** a range counts by the part of it that meets the condition, [FF] section 3; the rest is
in docs/estimation.md.
"""

from __future__ import annotations

from typing import Final

from kanon_db.counting.expressions import Expression
from kanon_db.counting.layout import Cell
from kanon_db.counting.writing.intervals import can_cover, covered, share
from kanon_db.counting.writing.sql import Constants, write
from kanon_db.counting.writing.steps import Nested, Select
from kanon_db.counting.writing.truth import COLUMNS
from kanon_db.counting.writing.writer import same

MOST_VALUES: Final = 1000
"""The most values of a discrete range that are listed; wider ones give so many, evenly spaced."""

_POINTS: Final = 100
"""How many points of a continuous range are tried where its condition is no comparison."""


def is_vague(cell: Cell) -> bool:
    """Whether a cell may stand for several values."""
    return cell.kind != "value" or cell.mark is not None


def holds_anything(sql: str) -> str:
    """Write whether a range says nothing: NULL and values lie in it together."""
    return f"coalesce(lower_inf({sql}), false)"


def values_of(cell: Cell, sql: str, most: int = MOST_VALUES) -> list[Select]:
    """Write the values that a cell may stand for, with shares.

    Parameters
    ----------
    cell : Cell
    sql : str
        The cell.
    most : int
        Values of a discrete range that are listed.

    Returns
    -------
    list of Select
        A row for each value: ``v``, its share ``w``, ``is_open`` where other values are left out,
        and the ``least`` and ``most`` of what it stands for.
    """
    match cell.kind:
        case "value":
            return [_value(sql, sql, sql)]
        case "set":
            elements = f"coalesce({sql}, ARRAY[NULL::text])"
            w = f"1 / cardinality({elements})::float8"
            v = f"v{cell.element}"
            return [_value(v, v, v, w, source=f"unnest({elements}) AS v")]
    null = f"NULL::{cell.column.type.name}"
    listed = (
        _whole_values(cell, sql, most)
        if cell.is_discrete
        else _points(cell, sql, min(most, _POINTS))
    )
    return [
        *listed,
        _value(null, null, null, where=f"{sql} IS NULL"),
        _value(null, null, null, is_open="true", where=holds_anything(sql)),
    ]


def _value(
    v: str, least: str, most: str, w: str = "1::float8", *,
    is_open: str = "false", source: str = "", where: str = "",
) -> Select:  # fmt: skip
    return Select(
        {"v": v, "w": w, "is_open": is_open, "least": least, "most": most},
        [source] if source else [],
        [where] if where else [],
    )


def _whole_values(cell: Cell, sql: str, most: int) -> list[Select]:
    """List a discrete range; of one that is too wide, the middles of parts of equal width."""
    type_ = cell.column.type.name
    low, high = f"lower({sql})", f"upper({sql})"
    width = f"({high} - {low})"
    n = f"least({width}, {most})"
    at = f"CASE WHEN {width} <= {most} THEN i ELSE (2 * i + 1) * {width} / (2 * {most}) END"
    step = "int" if type_ in ("date", "smallint") else type_
    return [
        _value(
            f"({low} + ({at})::{step})::{type_}", f"{low}::{type_}", f"({high} - 1)::{type_}",
            f"(1 / {n}::float8)", is_open=f"{width} > {most}",
            source=f"generate_series(0, {n}::int8 - 1) AS i",
            where=f"{sql} IS NOT NULL AND NOT {holds_anything(sql)}",
        )
    ]  # fmt: skip


def _points(cell: Cell, sql: str, n: int) -> list[Select]:
    """List points of a continuous range; one that holds a single value gives that."""
    type_ = cell.column.type.name
    low, high = f"lower({sql})", f"upper({sql})"
    part = f"((i + 0.5) / {n})"
    if cell.column.type.category == "moment":
        part += "::float8"
    least, most = f"{low}::{type_}", f"{high}::{type_}"
    return [
        _value(
            f"({low} + ({high} - {low}) * {part})::{type_}", least, most,
            f"1 / {n}::float8",
            is_open="true", source=f"generate_series(0, {n - 1}) AS i",
            where=f"{low} < {high}",
        ),
        _value(least, least, least, where=f"{low} = {high}"),
    ]  # fmt: skip


def known(condition: str) -> Select:
    """Write the likelihood of a condition on known values."""
    true, false = "x IS TRUE", "x IS FALSE"
    truth = (f"({true})::int::float8", f"({false})::int::float8", true, true, false, false)
    return Select(dict(zip(COLUMNS, truth, strict=True)), [Nested([Select({"x": condition})], "z")])


def of_cell(leaf: Expression, cell: Cell, sql: str, constants: Constants) -> list[Select]:
    """Write the likelihood of a condition from one cell that is not suppressed.

    Parameters
    ----------
    leaf : Expression
        A condition on the cell's column only.
    cell : Cell
    sql : str
        The cell.
    constants : Constants

    Returns
    -------
    list of Select
        One row, of the columns of :data:`~kanon_db.counting.writing.truth.COLUMNS`.
    """

    def spelled(value: str) -> str:
        return write(leaf, lambda _column: value, constants)

    if cell.kind == "value":
        return [known(spelled(sql))]
    if cell.kind == "range" and can_cover(cell, leaf):
        part, whole, some = share(cell, sql, covered(leaf, cell.column.type, constants) or "")
        null = known(spelled(f"NULL::{cell.column.type.name}"))
        return [
            Select(
                {**same("t"), "f": "1 - t", **same("st", "pt"), "sf": "NOT pt", "pf": "NOT st"},
                [Nested([Select({"t": part, "st": whole, "pt": some})], "s")],
                [f"{sql} IS NOT NULL", f"NOT {holds_anything(sql)}"],
            ),
            Select(same(*COLUMNS), [Nested([null], "z")], [f"{sql} IS NULL"]),
            Select(
                {**same("t", "f"), "st": "false", "pt": "true", "sf": "false", "pf": "true"},
                [Nested([null], "z")],
                [holds_anything(sql)],
            ),
        ]
    truth = (
        "coalesce(sum(w) FILTER (WHERE x), 0)",
        "coalesce(sum(w) FILTER (WHERE NOT x), 0)",
        "bool_and(x IS TRUE AND NOT is_open)",
        "bool_or(x IS TRUE OR is_open)",
        "bool_and(x IS FALSE AND NOT is_open)",
        "bool_or(x IS FALSE OR is_open)",
    )
    each = Select({"x": spelled("y.v"), "w": "y.w", "is_open": "y.is_open"},
                  [Nested(values_of(cell, sql), "y")])  # fmt: skip
    return [Select(dict(zip(COLUMNS, truth, strict=True)), [Nested([each], "z")])]
