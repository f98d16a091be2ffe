"""What a cell may stand for, and how likely a condition on it is, as SQL.

**Source:** a range counts by the part of it that meets the condition, [FF] section 3; the rest is
in docs/estimation.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from kanon_db.counting.expressions import Expression
from kanon_db.counting.layout import Cell
from kanon_db.counting.writing.intervals import can_cover, covered, on_axis, share
from kanon_db.counting.writing.likely import Likely
from kanon_db.counting.writing.sql import Constants, write
from kanon_db.counting.writing.steps import Nested, Select
from kanon_db.counting.writing.truth import COLUMNS
from kanon_db.counting.writing.writer import same

MOST_VALUES: Final = 1000
"""The most values of a discrete range that are listed; wider ones give so many, evenly spaced."""

_UNSURE: Final = {**same("t", "f"), "st": "false", "pt": "true", "sf": "false", "pf": "true"}
"""A condition that holds for some values of a cell, and perhaps not for others."""

_POINTS: Final = 100
"""How many points of a continuous range are tried where its condition is no comparison."""


def is_vague(cell: Cell) -> bool:
    """Whether a cell may stand for several values."""
    return cell.kind != "value" or cell.mark is not None


def holds_anything(sql: str) -> str:
    """Write whether a range says nothing: NULL and values lie in it together."""
    return f"coalesce(lower_inf({sql}) AND upper_inf({sql}), false)"


def is_endless(sql: str) -> str:
    """Write whether a range has no end on one side at least, so that it cannot be divided."""
    return f"coalesce(lower_inf({sql}) OR upper_inf({sql}), false)"


def _only_end(cell: Cell, sql: str) -> str:
    """Write the end that an endless range has; NULL if it says nothing."""
    low, high = ends(cell, sql)
    return f"CASE WHEN NOT lower_inf({sql}) THEN {low} WHEN NOT upper_inf({sql}) THEN {high} END"


def values_of(
    cell: Cell, sql: str, most: int = MOST_VALUES, likely: Likely | None = None
) -> list[Select]:
    """Write the values that a cell may stand for, with shares.

    Parameters
    ----------
    cell : Cell
    sql : str
        The cell.
    most : int
        Values of a discrete range that are listed.
    likely : Likely, optional
        Without it, all values are equally likely.

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
            v, source = f"v{cell.element}", f"unnest({elements}) AS v"
            if likely is not None:
                w, source = f"coalesce(s, {w})", f"unnest({elements}, {likely.shares}) AS u (v, s)"
            return [_value(v, v, v, w, source=source)]
    null, end = f"NULL::{cell.column.type.name}", _only_end(cell, sql)
    return [
        *_inside(cell, sql, most, likely),
        _value(null, null, null, where=f"{sql} IS NULL"),
        _value(
            end,
            f"CASE WHEN NOT lower_inf({sql}) THEN {end} END",
            f"CASE WHEN NOT upper_inf({sql}) THEN {end} END",
            is_open="true",
            where=is_endless(sql),
        ),
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


def _inside(cell: Cell, sql: str, most: int, likely: Likely | None) -> list[Select]:
    """List the values of a range with numbers."""
    most = most if cell.is_discrete else min(most, _POINTS)
    if not cell.is_discrete:
        evenly = _points(cell, sql, most)
    elif likely is not None and cell.shares == "of_each":
        evenly = _whole_values(cell, sql, most, likely)
    else:
        evenly = _whole_values(cell, sql, most)
    if likely is None:
        return evenly
    is_wide = f"upper({sql}) - lower({sql}) > {most}" if cell.is_discrete else "true"
    return [
        *(
            replace(select, where=[*select.where, f"({likely.own} IS NULL OR NOT {is_wide})"])
            for select in evenly
        ),
        *_parts(cell, sql, most, likely, is_wide),
    ]


def _whole_values(cell: Cell, sql: str, most: int, likely: Likely | None = None) -> list[Select]:
    """List a discrete range; of one that is too wide, the middles of parts of equal width."""
    type_ = cell.column.type.name
    low, high = f"lower({sql})", f"upper({sql})"
    width = f"({high} - {low})"
    n = f"least({width}, {most})"
    at = f"CASE WHEN {width} <= {most} THEN i ELSE (2 * i + 1) * {width} / (2 * {most}) END"
    step = "int" if type_ in ("date", "smallint") else type_
    w = f"(1 / {n}::float8)"
    if likely is not None:
        part = f"({likely.first} + i)::int4"
        rest = f"(1 - 2 * {likely.own}) * {likely.inside(part, part)} / {likely.base}"
        w = f"coalesce({likely.own} * ((i = 0)::int + (i = {n} - 1)::int) + {rest}, {w})"
    return [
        _value(
            f"({low} + ({at})::{step})::{type_}", f"{low}::{type_}", f"({high} - 1)::{type_}",
            w, is_open=f"{width} > {most}",
            source=f"generate_series(0, {n}::int8 - 1) AS i",
            where=f"{sql} IS NOT NULL AND NOT {is_endless(sql)}",
        )
    ]  # fmt: skip


def _parts(cell: Cell, sql: str, most: int, likely: Likely, is_wide: str) -> list[Select]:
    """List both ends of a wide range, and a value of each of its parts, which are not too many."""
    low, high = ends(cell, sql)
    n_parts = f"({likely.last} - {likely.first} + 1)"
    n = f"least({n_parts}, {most})"
    first, last = (
        f"({likely.first} + (i + {k}) * {n_parts} / {n}{'' if not k else ' - 1'})" for k in (0, 1)
    )
    share_of = f"coalesce({likely.inside(first, last)} / {likely.base}, 1 / {n}::float8)"
    rest = f"(1 - 2 * {likely.own}) * {share_of}"
    # Its own ends may lie within the first and the last part.
    value = f"greatest({low}, least({high}, {likely.points}[({first} + {last}) / 2]))"
    where = f"{likely.own} IS NOT NULL AND {is_wide} AND {low} < {high}"
    inner = [
        _value(value, low, high, rest, is_open="true",
               source=f"generate_series(0, {n} - 1) AS i", where=where),
        *(_value(end, low, high, likely.own, is_open="true", where=where) for end in (low, high)),
    ]  # fmt: skip
    if not cell.is_discrete:
        single = f"{likely.own} IS NOT NULL AND {low} = {high}"
        inner.append(_value(low, low, low, where=single))
    return inner


def ends(cell: Cell, sql: str) -> tuple[str, str]:
    """Write the least and the greatest value of a range."""
    type_ = cell.column.type.name
    last = f"(upper({sql}) - 1)" if cell.is_discrete else f"upper({sql})"
    return f"lower({sql})::{type_}", f"{last}::{type_}"


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


def of_cell(
    leaf: Expression,
    cell: Cell,
    sql: str,
    constants: Constants,
    likely: Likely | None = None,
    matched: tuple[str, str] = ("", ""),
    tabled: tuple[Select, str] | None = None,
) -> list[Select]:
    """Write the likelihood of a condition from one cell that is not suppressed.

    Parameters
    ----------
    leaf : Expression
        A condition on the cell's column only.
    cell : Cell
    sql : str
        The cell.
    constants : Constants
    likely : Likely, optional
        Without it, all values are equally likely.
    matched : tuple of str
        Where the cell is a range: like ``likely.upto``, of the values for which the condition is
        true, and of those for which it is false.
    tabled : tuple of Select and str, optional
        Of a range, what :func:`~kanon_db.counting.writing.tabled.tabled` returned.

    Returns
    -------
    list of Select
        One row, of the columns of :data:`~kanon_db.counting.writing.truth.COLUMNS`.
    """

    def spelled(value: str) -> str:
        return write(leaf, lambda _column: value, constants)

    if cell.kind == "value":
        return [known(spelled(sql))]
    if cell.kind == "set":
        return [_listed(values_of(cell, sql, likely=likely), spelled)]
    if can_cover(cell, leaf):
        covered_sql = covered(leaf, cell.column.type, constants) or ""
        part, whole, some = share(cell, sql, covered_sql)
        truth = Select({"t": part, "st": whole, "pt": some})
        given = {**same("t"), "f": "1 - t", **same("st", "pt"), "sf": "NOT pt", "pf": "NOT st"}
        inside = [Select(given, [Nested([truth], "s")])]
        null = known(spelled(f"NULL::{cell.column.type.name}"))
        endless = _of_endless(cell, sql, covered_sql)
    else:
        # One row, also where there are no values: what leaves it out comes after.
        inside = [
            Select(
                same(*COLUMNS),
                [Nested([_listed(_inside(cell, sql, MOST_VALUES, None), spelled)], "z")],
            )
        ]
        null = known(spelled(f"NULL::{cell.column.type.name}"))
        endless = Select(_UNSURE, [Nested([known(spelled(_only_end(cell, sql)))], "z")])
    if tabled is not None:
        tried, is_tried = tabled
        (untried,) = inside
        inside = [replace(tried, where=[is_tried]), replace(untried, where=[f"NOT ({is_tried})"])]
    if likely is not None:
        low, high = (f"({spelled(end)})" for end in ends(cell, sql))
        shares = [
            f"{likely.own} * ((z.low IS {truth})::int + (z.high IS {truth})::int)"
            f" + (1 - 2 * {likely.own}) * {likely.inside(likely.first, likely.last, upto)}"
            f" / {likely.base}"
            for truth, upto in zip(("TRUE", "FALSE"), matched, strict=True)
        ]
        # What is certain is so for each value, while the axis has parts that lie in it by half.
        told = {
            column: f"CASE WHEN y.s{column} THEN 1 WHEN y.p{column}"
            f" THEN greatest(least(coalesce({of_shares}, y.{column}), 1), 0) ELSE 0 END"
            for column, of_shares in zip(("t", "f"), shares, strict=True)
        }
        both = Nested([Select({"low": low, "high": high})], "z", "CROSS JOIN LATERAL")
        inside = [Select({**told, **same("st", "pt", "sf", "pf")}, [Nested(inside, "y"), both])]
    return [
        replace(each, where=[*each.where, f"{sql} IS NOT NULL", f"NOT {is_endless(sql)}"])
        for each in inside
    ] + [
        Select(same(*COLUMNS), [Nested([null], "z")], [f"{sql} IS NULL"]),
        Select(_UNSURE, [Nested([null], "z")], [holds_anything(sql)]),
        replace(endless, where=[is_endless(sql), f"NOT {holds_anything(sql)}"]),
    ]


def _of_endless(cell: Cell, sql: str, covered_sql: str) -> Select:
    """Write how likely an endless range is covered: half of it, where it is covered by a part."""
    range_ = on_axis(cell, sql)
    inside, some = f"({covered_sql} @> {range_})", f"({covered_sql} && {range_})"
    given = {"t": f"(CASE WHEN {inside} THEN 1 WHEN {some} THEN 0.5 ELSE 0 END)::float8",
             "st": inside, "pt": some}  # fmt: skip
    found = {**same("t"), "f": "1 - t", **same("st", "pt"), "sf": "NOT pt", "pf": "NOT st"}
    return Select(found, [Nested([Select(given)], "s")])


def _listed(values: list[Select], spelled: Callable[[str], str]) -> Select:
    """Write the likelihood of a condition from the values that a cell may stand for."""
    truth = (
        "coalesce(sum(w) FILTER (WHERE x), 0)",
        "coalesce(sum(w) FILTER (WHERE NOT x), 0)",
        "bool_and(x IS TRUE AND NOT is_open)",
        "bool_or(x IS TRUE OR is_open)",
        "bool_and(x IS FALSE AND NOT is_open)",
        "bool_or(x IS FALSE OR is_open)",
    )
    each = Select({"x": spelled("y.v"), "w": "y.w", "is_open": "y.is_open"}, [Nested(values, "y")])
    return Select(dict(zip(COLUMNS, truth, strict=True)), [Nested([each], "z")])
