"""Writes statements: pairs of buckets, exact aggregates, and the values of an operand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kanon_db.query import expressions as ex
from kanon_db.query.cell_conditions import is_vague, labels, members_of, texts, values_of
from kanon_db.query.expressions import TEXT, Expression
from kanon_db.query.layout import (
    BucketLayout,
    CellDescription,
    CellLayout,
    Lookup,
    Side,
    by_side,
    parts_of,
    side_of,
)
from kanon_db.query.likelihoods import ExactWriter, most_listed
from kanon_db.query.sql import (
    Constants,
    Nested,
    Request,
    Select,
    Statement,
    Steps,
    count_in_buckets,
    join_relations,
    number_text,
    speller,
    write,
)

_ALIASES: Final = ("r", "v")

Features = dict[ex.Expression, str]
"""Expressions on one side, with the names of their columns."""


def join_pairs(
    condition: Expression | None,
    keys: Mapping[str, Expression],
    weighed: Expression | None,
    layout: BucketLayout,
    lookups: Sequence[Lookup],
) -> Statement:
    """Write the statement that joins the records of each bucket with its values."""
    # It returns the `keys`, ``bucket`` from 0, ``record`` and ``value`` (the numbers of what is
    # alike in all that both sides need), how many of each there are, and what is summed: ``x``,
    # where it ``has`` one.
    *on_sides, both = by_side(parts_of(condition), layout)
    constants, steps = Constants(), Steps()
    features: tuple[Features, Features] = ({}, {})
    for expression in (*both, *keys.values(), *([] if weighed is None else [weighed])):
        _collect(expression, layout, features)
    names: Features = {}
    side: Side
    for side in (0, 1):
        what, alias = ("record", "value")[side], _ALIASES[side]
        parts = {column: feature for feature, column in features[side].items()}
        where = ex.joined(ex.And, on_sides[side])
        lines = count_in_buckets(layout.tables, side, parts, where, None, lookups, constants)
        comment = f"The {what}s of each bucket; those lines in all that both sides need, together."
        steps.add(f"alike_{what}s", comment, lines)
        numbered_ = Select({"*": "*", "id": "row_number() OVER ()"}, [f"alike_{what}s"])
        steps.add(f"{what}_classes", "Each with a number.", numbered_)
        names |= {feature: f"{alias}.{column}" for feature, column in features[side].items()}

    def over(expression: Expression) -> str:
        return _over(expression, names, constants)

    columns = {name: over(key) for name, key in keys.items()}
    columns |= {"bucket": "r.bucket", "record": "r.id", "n_records": "r.n"}
    columns |= {"value": "v.id", "n_values": "v.n"}
    if weighed is not None:
        x = over(weighed)
        columns |= {"has": f"(({x}) IS NOT NULL)::int4", "x": f"({x})::float8"}
    source = ["record_classes AS r", "JOIN value_classes AS v ON v.bucket = r.bucket"]
    where_both = [f"({over(part)})" for part in both]
    steps.add("pairs", "Each pair that counts, if it is a real one.",
              Select(columns, source, where_both))  # fmt: skip
    return Statement(steps.write(), constants.bound)


def _collect(
    expression: Expression, layout: BucketLayout, features: tuple[Features, Features]
) -> None:
    """Name the largest parts of an expression that are on one side."""
    if not ex.attributes(expression):
        return
    side = side_of(expression, layout)
    if side is None:
        for inner in ex.children(expression):
            _collect(inner, layout, features)
    else:
        features[side].setdefault(expression, f"f{len(features[side])}")


def _over(expression: Expression, names: Features, constants: Constants) -> str:
    """Write an expression of which some parts are columns already."""

    def change(part: Expression) -> Expression | None:
        if part not in names:
            return None
        # A column's type decides on the operators; conditions and results need none.
        type_ = part.type if isinstance(part, ex.Column) else TEXT
        return ex.Column(names[part], names[part], type_)

    return write(ex.replace_parts(expression, change), lambda column: column.sql, constants)


def statement(request: Request, layout: CellLayout | BucketLayout) -> Statement:
    """Write the statement of an aggregate that is exact."""
    # It returns ``estimate, std_error, lower_bound, upper_bound``; for a query with GROUP BY a row
    # for each group that may have records, with ``group_key`` (JSON) and ``rank_0 …``, the places
    # of the group's values in their order, before them.
    exact = ExactWriter(request, layout)
    exact.exact()
    return exact.statement()


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
        selects = [_values_in_buckets(operand, request, layout, constants)]
    else:
        selects = _values_in_cells(operand, request, layout, constants)
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
            {"rung": number_text("v", type_.name), "place": "v::float8", "n": "n", "i": "i"},
            ["numbered"],
            [f"((i - 1) % {step} = 0 OR i = n)"],
        ),
    )
    return Statement(f"{steps.write()}\nORDER BY i", constants.bound)


def _values_in_buckets(
    operand: ex.Expression, request: Request, layout: BucketLayout, constants: Constants
) -> Select:
    tables, side = layout.tables, side_of(operand, layout)
    if side is not None:
        alias, relation = "qs"[side], tables.sat if side else tables.qit
        source = join_relations(relation, alias, [operand], request.lookups)
        return Select({"v": write(operand, speller(alias), constants)}, source)

    def spell(column: ex.Column) -> str:
        return speller("s" if column.name in layout.sensitive else "q")(column)

    own = {name: f"s.{column.sql}" for name, column in layout.sensitive.items()}
    relation, *lookups = join_relations(tables.qit, "q", [operand], request.lookups, own)
    bucket = tables.bucket_id
    pairs = f"JOIN {tables.sat} AS s ON s.{bucket} = q.{bucket}"
    return Select({"v": write(operand, spell, constants)}, [relation, pairs, *lookups])


def _values_in_cells(
    operand: ex.Expression, request: Request, layout: CellLayout, constants: Constants
) -> list[Select]:
    names = sorted(ex.attributes(operand))
    view, only = _distinct(layout, names[0], constants) if len(names) == 1 else (None, [])
    view = view or f"{layout.view.view} AS c"
    match operand:
        case ex.Column(lookup=None, name=name) if layout.cells[name].kind == "range":
            return _ends(layout.cells[name], view, only or _list_kept(layout, layout.cells[name]))
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
        where += [] if only else _list_kept(layout, cell)

    def spell(column: ex.Column) -> str:
        return values[column.name] if column.lookup is None else speller("c")(column)

    _, *lookups = join_relations(view, "c", [operand], request.lookups, values)
    return [Select({"v": write(operand, spell, constants)}, [*source, *lookups], where)]


def _distinct(layout: CellLayout, name: str, constants: Constants) -> tuple[str | None, list[str]]:
    """Read each cell of a column once, if its cells have numbers."""
    own, cell = layout.classes, layout.cells[name]
    if own is None or name not in own.columns:
        return None, []
    of_column = f"c.{own.attribute} = {constants.write(ex.Constant(name, TEXT))}"
    kept = [] if cell.mark is None else [f"NOT c.{own.hidden}"]
    return f"{own.table} AS c", [of_column, f"c.{own.codes} IS NULL", *kept]


def _list_kept(layout: CellLayout, cell: CellDescription) -> list[str]:
    if cell.mark is None:
        return []
    return [f"substr(c.{layout.view.pattern}, {cell.mark}, 1) <> '*'"]


def _ends(cell: CellDescription, view: str, where: list[str]) -> list[Select]:
    sql, type_ = f"c.{cell.column.sql}", cell.column.type.name
    upper = f"upper({sql}) - 1" if cell.is_discrete else f"upper({sql})"
    return [
        Select({"v": f"({end})::{type_}"}, [view], [*where, f"NOT {side}_inf({sql})"])
        for side, end in (("lower", f"lower({sql})"), ("upper", upper))
    ]
