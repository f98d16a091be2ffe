"""The values at which the number of records below a value can change, in their order."""

from __future__ import annotations

from typing import Final

from kanon_db.counting import expressions as ex
from kanon_db.counting.checking.types import TEXT
from kanon_db.counting.layout import BucketLayout, Cell, CellLayout
from kanon_db.counting.sides import side_of
from kanon_db.counting.writing.cell_values import is_vague, values_of
from kanon_db.counting.writing.joins import joined, speller
from kanon_db.counting.writing.labels import labels, members_of, texts
from kanon_db.counting.writing.spread import most_listed
from kanon_db.counting.writing.sql import Constants, Statement, write
from kanon_db.counting.writing.steps import Nested, Select, Steps
from kanon_db.counting.writing.writer import Request

MOST_RUNGS: Final = 4096
"""The most values that one statement returns: of more, some at equal distances."""


def rungs(
    request: Request,
    layout: BucketLayout | CellLayout,
    above: str | None = None,
    below: str | None = None,
) -> Statement:
    """Write the values that an aggregate's operand may have.

    Of a column of ranges, these are their ends; of an expression on ranges, some of its values.

    Parameters
    ----------
    request : Request
    layout : BucketLayout or CellLayout
    above, below : str, optional
        Only values between these, both included.

    Returns
    -------
    Statement
        Rows of ``rung`` (text) and ``place`` (double precision), ascending, and ``n``, how many
        there are in all.
    """
    operand, type_ = request.aggregate.operand, request.aggregate.type
    if operand is None or type_ is None:
        raise TypeError("the values of an operand are asked for")
    steps, constants = Steps(), Constants(request.literal)
    if isinstance(layout, BucketLayout):
        selects = [_over_buckets(operand, request, layout, constants)]
    else:
        selects = _over_cells(operand, request, layout, constants)
    steps.add("possible", "The values that there may be.", *selects)
    limits = ["p.v IS NOT NULL"]
    for sign, end in ((">=", above), ("<=", below)):
        if end is not None:
            limits.append(f"p.v {sign} {constants.write(ex.Constant(end, type_))}")
    steps.add(
        "numbered",
        "Each of them once, in their order.",
        Select(
            {
                "v": "d.v",
                "i": "row_number() OVER (ORDER BY d.v)",
                "n": "count(*) OVER ()",
            },
            [Nested([Select({"v": "p.v"}, ["possible AS p"], limits, ["1"])], "d")],
        ),
    )
    step = f"((n - 2) / {MOST_RUNGS} + 1)"
    steps.add(
        "rungs",
        f"No more than about {MOST_RUNGS}, with the first and the last.",
        Select(
            {"rung": f"(v::{type_.name})::text", "place": "v::float8", "n": "n", "i": "i"},
            ["numbered"],
            [f"((i - 1) % {step} = 0 OR i = n)"],
        ),
    )
    return Statement(f"{steps.write()}\nORDER BY i", constants.bound)


def _over_buckets(
    operand: ex.Expression, request: Request, layout: BucketLayout, constants: Constants
) -> Select:
    tables, side = layout.tables, side_of(operand, layout)
    if side is not None:
        alias, relation = "qs"[side], tables.sat if side else tables.qit
        source = joined(relation, alias, [operand], request.lookups)
        return Select({"v": write(operand, speller(alias), constants)}, source)
    sensitive = layout.sensitive

    def spell(column: ex.Column) -> str:
        return speller("s" if column.name == sensitive.name else "q")(column)

    relation, *lookups = joined(
        tables.qit, "q", [operand], request.lookups, {sensitive.name: f"s.{sensitive.sql}"}
    )
    bucket = tables.bucket_id
    pairs = f"JOIN {tables.sat} AS s ON s.{bucket} = q.{bucket}"
    return Select({"v": write(operand, spell, constants)}, [relation, pairs, *lookups])


def _over_cells(
    operand: ex.Expression, request: Request, layout: CellLayout, constants: Constants
) -> list[Select]:
    names = sorted(ex.attributes(operand))
    view, only = _distinct(layout, names[0], constants) if len(names) == 1 else (None, [])
    view = view or f"{layout.view.view} AS c"
    match operand:
        case ex.Column(lookup=None, name=name) if layout.cells[name].kind == "range":
            return _ends(layout.cells[name], view, only or _kept(layout, layout.cells[name]))
    vague = [name for name in names if is_vague(layout.cells[name])]
    listed = most_listed(layout.cells[name] for name in vague)
    values = {name: f"c.{layout.cells[name].column.sql}" for name in names}
    source: list[str | Nested] = [view]
    where = [*only]
    for place, name in enumerate(vague):
        cell = layout.cells[name]
        shown = f"c.{cell.column.sql}"
        if cell.labels is not None:
            json = f"{constants.write(ex.Constant(cell.labels, TEXT))}::jsonb"
            its = labels(json).write()
            source.append(f"LEFT JOIN ({its}) AS l{place} ON l{place}.label = {shown}")
            shown = members_of(shown, f"l{place}", texts(json).write())
        inner = values_of(cell, shown, listed)
        source.append(Nested(inner, f"x{place}", "CROSS JOIN LATERAL"))
        values[name] = f"x{place}.v"
        where += [] if only else _kept(layout, cell)

    def spell(column: ex.Column) -> str:
        return values[column.name] if column.lookup is None else speller("c")(column)

    _, *lookups = joined(view, "c", [operand], request.lookups, values)
    return [Select({"v": write(operand, spell, constants)}, [*source, *lookups], where)]


def _distinct(layout: CellLayout, name: str, constants: Constants) -> tuple[str | None, list[str]]:
    """Read each cell of a column once, if its cells have numbers."""
    own, cell = layout.classes, layout.cells[name]
    if own is None or name not in own.columns:
        return None, []
    of_column = f"c.{own.attribute} = {constants.write(ex.Constant(name, TEXT))}"
    kept = [] if cell.mark is None else [f"NOT c.{own.hidden}"]
    return f"{own.table} AS c", [of_column, f"c.{own.codes} IS NULL", *kept]


def _kept(layout: CellLayout, cell: Cell) -> list[str]:
    if cell.mark is None:
        return []
    return [f"substr(c.{layout.view.pattern}, {cell.mark}, 1) <> '*'"]


def _ends(cell: Cell, view: str, where: list[str]) -> list[Select]:
    sql, type_ = f"c.{cell.column.sql}", cell.column.type.name
    upper = f"upper({sql}) - 1" if cell.is_discrete else f"upper({sql})"
    return [
        Select({"v": f"({end})::{type_}"}, [view], [*where, f"NOT {side}_inf({sql})"])
        for side, end in (("lower", f"lower({sql})"), ("upper", upper))
    ]
