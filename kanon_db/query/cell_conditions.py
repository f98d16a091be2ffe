"""Writes what a published cell may stand for, and how likely a condition on it is, as SQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from kanon_db.query import expressions as ex
from kanon_db.query.expressions import Expression
from kanon_db.query.layout import ANYTHING, CellDescription
from kanon_db.query.sql import COLUMNS, Constants, Nested, Select, Steps, same, write

BEGINS: Final = 32

ANY_END: Final = 1 << BEGINS


# Conditions that cut a column's values into intervals, and how much of a range they cover.
#
# Numbers, dates (as days) and timestamps (as seconds) stand on one axis of numerics, where the set
# of values that meet a condition is a multirange.


_MOST_CHAINED = 50
_MOST_OPERATORS = 500  # statements repeat all intervals several times
_EVERYTHING = "nummultirange(numrange(NULL, NULL))"
_NOTHING = "nummultirange()"
_RANGES = {
    "<": "numrange(NULL, {0}, '()')", "<=": "numrange(NULL, {0}, '(]')",
    ">": "numrange({0}, NULL, '()')", ">=": "numrange({0}, NULL, '[)')",
    "=": "numrange({0}, {0}, '[]')",
}  # fmt: skip
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}


def multirange_of(condition: ex.Expression, column: ex.Type, constants: Constants) -> str | None:
    """Write the values that meet a condition as a multirange of numerics.

    Parameters
    ----------
    condition : Expression
    column : Type
        Of the column that the condition is on, which decides on the axis.
    constants : Constants

    Returns
    -------
    str or None
        None for a condition that is not made of comparisons of one column with constants.
    """
    match condition:
        case ex.And(parts) | ex.Or(parts):
            sets = [multirange_of(part, column, constants) for part in parts]
            sign = " * " if isinstance(condition, ex.And) else " + "
            known = [part for part in sets if part is not None]
            return _combine(sign, known) if len(known) == len(sets) else None
        case ex.Not(part):
            inside = multirange_of(part, column, constants)
            return None if inside is None else f"({_EVERYTHING} - {inside})"
        case ex.NullTest(ex.Column(), negated):
            return _EVERYTHING if negated else _NOTHING
        case ex.Comparison(operator, ex.Column(), ex.Constant() as constant):
            return _write_comparison(operator, constant, column, constants)
        case ex.Comparison(operator, ex.Constant() as constant, ex.Column()):
            return _write_comparison(_FLIPPED[operator], constant, column, constants)
        case ex.Membership(ex.Column(), items, negated, ex.Type() as type_) if (
            place := place_of(column, "m.v", type_)
        ) and (array := constants.array(items, type_)):
            equal = _RANGES["="].format(place)
            matching = f"(SELECT range_agg({equal}) FROM unnest({array}) AS m (v))"
            return f"({_EVERYTHING} - {matching})" if negated else matching
        case ex.Range(ex.Column()) | ex.Membership(ex.Column()):
            return multirange_of(ex.spell_out(condition), column, constants)
        case _:
            return None


def _combine(sign: str, parts: Sequence[str]) -> str:
    """Write many multiranges in groups of groups: each of a chain would hold all before it."""
    while len(parts) > _MOST_CHAINED:
        starts = range(0, len(parts), _MOST_CHAINED)
        parts = [f"({sign.join(parts[start : start + _MOST_CHAINED])})" for start in starts]
    return f"({sign.join(parts)})"


def _write_comparison(
    operator: str, constant: ex.Constant, column: ex.Type, constants: Constants
) -> str | None:
    place = place_of(column, constants.write(constant), constant.type)
    if place is None:
        return None
    if operator == "<>":
        return f"({_EVERYTHING} - nummultirange({_RANGES['='].format(place)}))"
    return f"nummultirange({_RANGES[operator].format(place)})"


def place_of(column: ex.Type, value: str, type_: ex.Type | None = None) -> str | None:
    """Write the place of a value on the axis of a column; None if it has none there.

    `column`: of the column. `type_`: of the value, if it is a constant's.
    """
    # PostgreSQL compares a floating-point number with others as such, where 0.1 is not 1/10. Its
    # shortest text is as good: texts of greater numbers stand for greater numerics.
    of = (type_ or column).name
    if column.category == "float":
        # The end of a range is the shortest text of a number, which has fewer digits of a real.
        exact = f"{value}::real" if of == "real" else value
        return f"{exact}::float8::text::numeric" if _is_number(type_ or column) else None
    if column.category in ex.NUMBERS:
        return f"{value}::numeric" if _is_number(type_ or column) else None
    match column.name, of:
        case "date", "date":
            return f"({value} - '2000-01-01'::date)::numeric"
        case "date", "timestamp without time zone":
            return f"(EXTRACT(epoch FROM {value} - '2000-01-01'::timestamp) / 86400)"
        case "timestamp without time zone", "date" | "timestamp without time zone":
            return f"EXTRACT(epoch FROM {value}::timestamp - '2000-01-01'::timestamp)"
        case "timestamp with time zone", _ if (type_ or column).category == "moment":
            return f"EXTRACT(epoch FROM {value}::timestamptz)"
    return None


def value_at(type_: ex.Type, place: str) -> str:
    """Write the value of a type at a place on its axis, a float8; the nearest one."""
    match type_.name:
        case "date":
            return f"('2000-01-01'::date + round({place})::int)"
        case "timestamp without time zone":
            return f"('2000-01-01'::timestamp + make_interval(secs => {place}))"
        case "timestamp with time zone":
            return f"to_timestamp({place})"
    return f"{place}::{type_.name}"


def ends_of(cell: CellDescription, sql: str) -> tuple[str, str]:
    """Write where on the axis a range begins and ends, as float8.

    A whole number takes the space from half a number below it to half a number above.
    """
    half = " - 0.5" if cell.is_discrete else ""
    low, high = (place_of(cell.column.type, f"{end}({sql})") for end in ("lower", "upper"))
    return f"(({low})::float8{half})", f"(({high})::float8{half})"


def _is_number(type_: ex.Type) -> bool:
    return type_.category in ex.NUMBERS


def share(cell: CellDescription, sql: str, covered_sql: str) -> tuple[str, str, str]:
    """Write which share of a range is covered, whether all of it is, and whether any of it.

    `cell`: one of kind ``range``. `sql`: the range; not NULL.
    """
    # `covered_sql`: what :func:`multirange_of` returned.
    range_ = on_axis(cell, sql)
    pieces = f"unnest({covered_sql} * nummultirange({range_})) AS piece"
    if cell.is_discrete:
        count = (
            "(SELECT coalesce(sum(greatest(CASE WHEN upper_inc(piece) THEN floor(upper(piece))"
            " ELSE ceil(upper(piece)) - 1 END - CASE WHEN lower_inc(piece)"
            " THEN ceil(lower(piece)) ELSE floor(lower(piece)) + 1 END + 1, 0)), 0)"
            f" FROM {pieces})"
        )
        size = f"(upper({range_}) - lower({range_}) + 1)"
        part = f"({count} / {size})::float8"
        return part, f"{part} = 1", f"{part} > 0"
    length = f"(SELECT coalesce(sum(upper(piece) - lower(piece)), 0) FROM {pieces})"
    size = f"(upper({range_}) - lower({range_}))"
    inside = f"({covered_sql} @> {range_})"
    return (
        f"CASE WHEN {size} = 0 THEN {inside}::int::float8 ELSE ({length} / {size})::float8 END",
        inside,
        f"({covered_sql} && {range_})",
    )


def can_cover(cell: CellDescription, condition: ex.Expression) -> bool:
    """Whether a condition on a cell's column cuts its values into intervals of their axis."""
    type_ = cell.column.type

    def fits(constant: ex.Constant) -> bool:
        return constant.text is not None and place_of(type_, "", constant.type) is not None

    if sum(bool(ex.children(part)) for part in ex.walk(condition)) > _MOST_OPERATORS:
        return False
    constants = (part for part in ex.walk(condition) if isinstance(part, ex.Constant))
    if place_of(type_, "") is None or not all(map(fits, constants)):
        return False
    return multirange_of(condition, type_, Constants()) is not None


def on_axis(cell: CellDescription, sql: str) -> str:
    """Write the range of a cell on the axis of its column."""
    type_ = cell.column.type
    low, high = (place_of(type_, f"{end}({sql})") for end in ("lower", "upper"))
    if cell.is_discrete:
        return f"numrange({low}, {high} - 1, '[]')"
    if type_.category in ("moment", "float"):
        return f"numrange({low}, {high}, CASE WHEN upper_inc({sql}) THEN '[]' ELSE '[)' END)"
    return sql


# Labels of a hierarchy as the sets of values that they stand for, as SQL.
#
# The catalog keeps them as JSON: ``values``, in an order in which each label's values follow each
# other, and ``labels``, each with the places of its first and its last value, from 0. A value is
# the label of itself, and ``*`` that of anything, NULL too.


def texts(described: str) -> Select:
    """Write all values as one array, ``texts``.

    `described`: SQL of the JSON, as jsonb.
    """
    values = f"jsonb_array_elements_text({described} -> 'values')"
    return Select(
        {"texts": "array_agg(t.v ORDER BY t.i)"}, [f"{values} WITH ORDINALITY AS t (v, i)"]
    )


def labels(described: str) -> Select:
    """Write each ``label`` with the places of its ``first`` and its ``last`` value."""
    values = f"{described} -> 'values'"
    listed = [
        Select(
            {"label": "e.x ->> 0", "first": "(e.x ->> 1)::int", "last": "(e.x ->> 2)::int"},
            [f"jsonb_array_elements({described} -> 'labels') AS e (x)"],
        ),
        Select(
            {"label": "t.v", "first": "t.i::int - 1", "last": "t.i::int - 1"},
            [f"jsonb_array_elements_text({values}) WITH ORDINALITY AS t (v, i)"],
        ),
        Select(
            {"label": f"'{ANYTHING}'", "first": "0", "last": f"jsonb_array_length({values}) - 1"}
        ),
    ]
    return Select({name: f"l.{name}" for name in ("label", "first", "last")}, [Nested(listed, "l")])


def members_of(label: str, alias: str, texts_sql: str) -> str:
    """Write the values of a label as an array.

    `alias`: A row of :func:`labels`, joined by the label, if it has one.
    """
    # `texts_sql`: the array of :func:`texts`. Only that of labels that occur is cut, which takes
    # long.
    nothing = f"CASE {label} WHEN '{ANYTHING}' THEN ARRAY[NULL::text] ELSE '{{}}' END"
    cut = f"({texts_sql})[{alias}.first + 1 : {alias}.last + 1]"
    return f"CASE WHEN num_nulls({label}) > 0 THEN ARRAY[NULL::text] ELSE {cut} || {nothing} END"


def check_described(described: object) -> str | None:
    """Return what the catalog has as JSON again; None if it is not what is described above."""
    if not isinstance(described, Mapping):
        return None
    values, spans = described.get("values"), described.get("labels")
    if not isinstance(values, list) or not isinstance(spans, list) or not values:
        return None
    if not all(_is_span(span, len(values)) for span in spans):
        return None
    texts = [*values, *(span[0] for span in spans), ANYTHING]
    if not all(isinstance(text, str) for text in texts) or len(set(texts)) < len(texts):
        return None
    return json.dumps({"values": values, "labels": spans}, ensure_ascii=False)


def _is_span(span: Any, n_values: int) -> bool:
    if not isinstance(span, list) or len(span) != 3:
        return False
    first, last = span[1:]
    return type(first) is type(last) is int and 0 <= first <= last < n_values


@dataclass(frozen=True, slots=True)
class Likely:
    """SQL of what the table of shares tells of one cell, NULL where it has nothing."""

    shares: str = ""  # Of a set's values, an array; of all parts of the axis of ranges
    first: str = ""  # The parts that a range covers, and the share that either end has on its own
    last: str = ""
    own: str = ""
    points: str = ""  # A value of each part of the axis, and the share of all records up to its end
    upto: str = ""

    def inside(self, first: str, last: str, upto: str = "") -> str:
        """Write the share of all records from one part of the axis to another."""
        upto = upto or self.upto
        return f"({upto}[{last}] - coalesce({upto}[{first} - 1], 0))"

    @property
    def base(self) -> str:
        """The share of all records in the parts that the range covers."""
        return f"nullif({self.inside(self.first, self.last)}, 0)"

    @classmethod
    def of(cls, alias: str, place: int) -> Self:
        """Name the columns of the rows with an alias, and those of the axis."""
        return cls(
            shares=f"{alias}.shares{place}",
            first=f"{alias}.first{place}",
            last=f"{alias}.last{place}",
            own=f"{alias}.own{place}",
            points=f"(SELECT points FROM axis{place})",
            upto=f"(SELECT upto FROM axis{place})",
        )


def add_axis(steps: Steps, table: str, attribute: str, place: int, type_: str) -> None:
    """List the parts of a column's axis, and gather what statements look up in arrays.

    `table`: that of shares. `attribute`: the column's name, as SQL of a text.
    """
    # `place`: the column's number in this statement.
    # `type_`: of its values.
    unnested = f"{table} AS s, unnest(s.points, s.shares) WITH ORDINALITY AS u (v, p, i)"
    steps.add(
        f"parts{place}",
        f"Parts of the numbers in the ranges c{place}, with the share of all records in each.",
        Select(
            {"i": "u.i", "v": f"u.v::{type_}", "p": "u.p"},
            [unnested],
            [f"s.attribute = {attribute}", "s.cell IS NULL"],
        ),
    )
    cumulated = {"v": "v", "i": "i", "upto": "sum(p) OVER (ORDER BY i)"}
    steps.add(
        f"axis{place}",
        "Their values and cumulated shares.",
        Select(
            {"points": "array_agg(v ORDER BY i)", "upto": "array_agg(upto ORDER BY i)"},
            [Nested([Select(cumulated, [f"parts{place}"])], "p")],
        ),
    )


def add_matched(steps: Steps, truth: str, alias: str, place: int) -> tuple[str, str]:
    """Cumulate the shares of the parts of an axis whose values meet a condition.

    Parameters
    ----------
    truth : str
        The condition on ``p.v``.
    alias : str
        What this condition is called.
    place : int

    Returns
    -------
    tuple of str
        Arrays like :attr:`Likely.upto`: where the condition is true, and where it is false.
    """
    tested = Select({"i": "p.i", "p": "p.p", "x": truth}, [f"parts{place} AS p"])
    cumulated = {
        column: f"coalesce(sum(p) FILTER (WHERE {x}) OVER (ORDER BY i), 0)"
        for column, x in (("t", "x"), ("f", "NOT x"))
    }
    steps.add(
        f"matched_{alias}",
        f"The share of all records up to each part where condition {alias} is true, and false.",
        Select(
            {column: f"array_agg({column} ORDER BY i)" for column in cumulated},
            [Nested([Select({"i": "i", **cumulated}, [Nested([tested], "p")])], "c")],
        ),
    )
    return f"(SELECT t FROM matched_{alias})", f"(SELECT f FROM matched_{alias})"


# What a cell may stand for, and how likely a condition on it is, as SQL.
#
# **Source:** a range counts by the part of it that meets the condition, [FF] section 3; the rest
# is
# in docs/understand/estimation.md.


MOST_VALUES: Final = 1000
"""The most values of a discrete range that are listed; wider ones give so many, evenly spaced."""

_UNSURE: Final = {**same("t", "f"), "st": "false", "pt": "true", "sf": "false", "pf": "true"}
"""A condition that holds for some values of a cell, and perhaps not for others."""

_POINTS: Final = 100
"""How many points of a continuous range are tried where its condition is no comparison."""


def holds_anything(sql: str) -> str:
    """Write whether a range says nothing: NULL and values lie in it together."""
    return f"coalesce(lower_inf({sql}) AND upper_inf({sql}), false)"


def is_endless(sql: str) -> str:
    """Write whether a range has no end on one side at least, so that it cannot be divided."""
    return f"coalesce(lower_inf({sql}) OR upper_inf({sql}), false)"


def _only_end(cell: CellDescription, sql: str) -> str:
    """Write the end that an endless range has; NULL if it says nothing."""
    low, high = ends(cell, sql)
    return f"CASE WHEN NOT lower_inf({sql}) THEN {low} WHEN NOT upper_inf({sql}) THEN {high} END"


def values_of(
    cell: CellDescription, sql: str, most: int = MOST_VALUES, likely: Likely | None = None
) -> list[Select]:
    """Write the values that a cell may stand for, with shares.

    Parameters
    ----------
    cell : CellDescription
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


def _inside(cell: CellDescription, sql: str, most: int, likely: Likely | None) -> list[Select]:
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


def _whole_values(
    cell: CellDescription, sql: str, most: int, likely: Likely | None = None
) -> list[Select]:
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
    v = f"({low} + ({at})::{step})::{type_}"
    least, most_ = (
        f"CASE WHEN {width} <= {most} THEN {v} ELSE ({end})::{type_} END"
        for end in (low, f"{high} - 1")
    )
    return [
        _value(
            v, least, most_,
            w, is_open=f"{width} > {most}",
            source=f"generate_series(0, {n}::int8 - 1) AS i",
            where=f"{sql} IS NOT NULL AND NOT {is_endless(sql)}",
        )
    ]  # fmt: skip


def _parts(
    cell: CellDescription, sql: str, most: int, likely: Likely, is_wide: str
) -> list[Select]:
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


def ends(cell: CellDescription, sql: str) -> tuple[str, str]:
    """Write the least and the greatest value of a range."""
    type_ = cell.column.type.name
    last = f"(upper({sql}) - 1)" if cell.is_discrete else f"upper({sql})"
    return f"lower({sql})::{type_}", f"{last}::{type_}"


def _points(cell: CellDescription, sql: str, n: int) -> list[Select]:
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


def weigh_known(condition: str) -> Select:
    """Write the likelihood of a condition on known values."""
    true, false = "x IS TRUE", "x IS FALSE"
    truth = (f"({true})::int::float8", f"({false})::int::float8", true, true, false, false)
    return Select(dict(zip(COLUMNS, truth, strict=True)), [Nested([Select({"x": condition})], "z")])


def of_cell(
    leaf: Expression,
    cell: CellDescription,
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
    cell : CellDescription
    sql : str
        The cell.
    constants : Constants
    likely : Likely, optional
        Without it, all values are equally likely.
    matched : tuple of str
        Where the cell is a range: like ``likely.upto``, of the values for which the condition is
        true, and of those for which it is false.
    tabled : tuple of Select and str, optional
        Of a range, what :func:`~kanon_db.query.cell_conditions.cumulate` returned.

    Returns
    -------
    list of Select
        One row, of the columns of :data:`~kanon_db.query.sql.COLUMNS`.
    """

    def spelled(value: str) -> str:
        return write(leaf, lambda _column: value, constants)

    if cell.kind == "value":
        return [weigh_known(spelled(sql))]
    if cell.kind == "set":
        return [_weigh_listed(values_of(cell, sql, likely=likely), spelled)]
    if can_cover(cell, leaf):
        covered_sql = multirange_of(leaf, cell.column.type, constants) or ""
        part, surely, some = share(cell, sql, covered_sql)
        truth = Select({"t": part, "st": surely, "pt": some})
        given = {**same("t"), "f": "1 - t", **same("st", "pt"), "sf": "NOT pt", "pf": "NOT st"}
        inside = [Select(given, [Nested([truth], "s")])]
        null = weigh_known(spelled(f"NULL::{cell.column.type.name}"))
        endless = _of_endless(cell, sql, covered_sql)
    else:
        # One row, also where there are no values: what leaves it out comes after.
        inside = [
            Select(
                same(*COLUMNS),
                [Nested([_weigh_listed(_inside(cell, sql, MOST_VALUES, None), spelled)], "z")],
            )
        ]
        null = weigh_known(spelled(f"NULL::{cell.column.type.name}"))
        endless = Select(_UNSURE, [Nested([weigh_known(spelled(_only_end(cell, sql)))], "z")])
    if tabled is not None:
        tested, is_tried = tabled
        (untried,) = inside
        inside = [
            replace(tested, where=[is_tried]),
            replace(untried, where=[f"NOT ({is_tried})"]),
        ]
    if likely is not None:
        low, high = (f"({spelled(end)})" for end in ends(cell, sql))
        shares = [
            f"{likely.own} * ((z.low IS {truth})::int + (z.high IS {truth})::int)"
            f" + (1 - 2 * {likely.own}) * {likely.inside(likely.first, likely.last, upto)}"
            f" / {likely.base}"
            for truth, upto in zip(("TRUE", "FALSE"), matched, strict=True)
        ]
        # What is certain is so for each value, while the axis has parts that lie in it by half.
        columns = {
            column: f"CASE WHEN y.s{column} THEN 1 WHEN y.p{column}"
            f" THEN greatest(least(coalesce({of_shares}, y.{column}), 1), 0) ELSE 0 END"
            for column, of_shares in zip(("t", "f"), shares, strict=True)
        }
        both = Nested([Select({"low": low, "high": high})], "z", "CROSS JOIN LATERAL")
        inside = [Select({**columns, **same("st", "pt", "sf", "pf")}, [Nested(inside, "y"), both])]
    return [
        replace(each, where=[*each.where, f"{sql} IS NOT NULL", f"NOT {is_endless(sql)}"])
        for each in inside
    ] + [
        Select(same(*COLUMNS), [Nested([null], "z")], [f"{sql} IS NULL"]),
        Select(_UNSURE, [Nested([null], "z")], [holds_anything(sql)]),
        replace(endless, where=[is_endless(sql), f"NOT {holds_anything(sql)}"]),
    ]


def _of_endless(cell: CellDescription, sql: str, covered_sql: str) -> Select:
    """Write how likely an endless range is covered: half of it, where it is covered by a part."""
    range_ = on_axis(cell, sql)
    inside, some = f"({covered_sql} @> {range_})", f"({covered_sql} && {range_})"
    given = {"t": f"(CASE WHEN {inside} THEN 1 WHEN {some} THEN 0.5 ELSE 0 END)::float8",
             "st": inside, "pt": some}  # fmt: skip
    columns = {**same("t"), "f": "1 - t", **same("st", "pt"), "sf": "NOT pt", "pf": "NOT st"}
    return Select(columns, [Nested([Select(given)], "s")])


def _weigh_listed(values: list[Select], spelled: Callable[[str], str]) -> Select:
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


# Conditions on a column of whole numbers or days, tried once for each value that any cell has.
#
# Ranges overlap: to try a condition for each value of each range takes far longer. How often it is
# true and false up to a value is cumulated, so that each range takes two places of these.


MOST_TABLED: Final = 100_000
"""The most values that are tried."""

_AS_LONG: Final = 20
"""So many values, at least, are tried while one range is cut into what comparisons cover of it."""


def cumulate(
    steps: Steps,
    leaf: ex.Expression,
    constants: Constants,
    alias: str,
    place: int,
    cell: CellDescription,
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
    cell : CellDescription

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


def _add(
    steps: Steps, truth: str, alias: str, place: int, cell: CellDescription, worth: str
) -> None:
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
    checks = Nested(
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
                            [Nested([Select({"i": "i", "x": truth}, [checks])], "x")])], "c")],
        ),
    )  # fmt: skip


def all_values(source: str, type_: str, most: int) -> list[Select]:
    """List NULL and the ``n`` values from ``low`` on, with their numbers from -1 on.

    `source`: it has one row. `most`: none is listed if they are more.
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
    columns = {
        "t": "t / n::float8", "f": "f / n::float8",
        "st": "t = n", "pt": "t > 0", "sf": "f = n", "pf": "f > 0",
    }  # fmt: skip
    return Select(columns, [counted]), f"(SELECT n FROM values_{alias}) > 0"
