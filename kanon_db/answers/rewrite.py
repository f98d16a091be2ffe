"""Writes the estimates of a query as one readable statement over what is published.

The statement is built as a sqlglot tree and printed by sqlglot, for PostgreSQL or for Spark. It
contains its constants with their types. Buckets are asked in plain SQL, by learned weights
(`_bucket_statement`) or by shares of buckets; the cells of rows by functions of `35_cells.sql`.

**Source:** the paper's estimates: buckets, [GB] section 3.2: the weight of a record and a value of
its bucket is the share of the bucket's records that have the value; rows, [FF] section 3: columns
are independent within a record.

**Deviations:** HAVING, and ORDER BY with LIMIT, round estimates to nine digits after the point,
since a sum of weights is not exact. docs/start/queries.md lists queries without such a statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import reduce
from math import floor
from typing import Final, Self
from typing import Literal as OneOf

from sqlglot import exp

from kanon_db.answers import _statement_nodes as nodes
from kanon_db.answers._bucket_statement import (
    BucketStatement,
    bucket_source,
    find_count_alone,
)
from kanon_db.answers._statement_nodes import FromClause, Node, WeightedAggregates
from kanon_db.answers.buckets.bucket_evidence import BucketEvidence, MostOfValues
from kanon_db.answers.likelihoods import (
    MISLED,
    MOST_GROUPED,
    TOGETHER,
    WHOLE,
    Block,
    JointCondition,
    arrange,
    find_summed_column,
)
from kanon_db.answers.rows.pieces import Pieces
from kanon_db.answers.scope import OpenQuery
from kanon_db.dataclasses import dataclass
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import Aggregate, Column, Expression, refusal
from kanon_db.query.layout import (
    LEAST_DOUBT,
    BucketLayout,
    CellDescription,
    CellLayout,
    RowView,
    condition_of,
    is_vague,
)
from kanon_db.query.ranges import (
    AXES,
    MOST_VALUES,
    can_cover,
    holds_anything,
    is_endless,
    place_of,
    type_of_ends,
    value_of_end,
)
from kanon_db.query.sql import Request, is_leaf, leaves

Dialect = OneOf["postgres", "spark"]


def _source(opened: OpenQuery, dialect: Dialect) -> FromClause:
    layout = opened.layout
    if isinstance(layout, CellLayout):
        return _row_source(opened, layout, dialect)[0]
    source = bucket_source(opened, layout, layout.tables.view)
    if dialect == "spark":  # the view has no schema there
        source.relation.set("db", None)
    return source


def _row_source(
    opened: OpenQuery, layout: CellLayout, dialect: Dialect, *, also_evenly: bool = False
) -> tuple[FromClause, dict[str, _SpreadCells]]:
    """Read the view of rows, joined with the values of cells, which are returned by column."""
    names = {name for part in opened.query.evaluated for name in ex.attributes(part)}
    vague = [cell for name, cell in layout.cells.items() if name in names and is_vague(cell)]
    if vague and dialect != "postgres":
        raise nodes.no_statement(
            "a list of the values of ranges, sets or suppressed cells on Spark"
        )
    taken = {"a", "c", "s", "v"}
    alias = ""
    if opened.lookups or vague:
        alias = nodes.unique(nodes.split_name(layout.view.view)[-1], taken)
    spread = {
        cell.column.name: _SpreadCells.of(opened, layout, cell, alias, taken, also_evenly)
        for cell in vague
    }

    def spell(column: Column) -> Node:
        if column.name in spread:
            return spread[column.name].value.copy()
        return nodes.column(column.name, alias)

    source = FromClause(nodes.relation(layout.view.view, alias), spell)
    if layout.left_out and layout.n_rows:
        source.scale = (layout.n_rows + layout.left_out, layout.n_rows)
    if spread:
        shares = [own.share for own in spread.values()]
        source.weight = reduce(lambda a, b: exp.Mul(this=a, expression=b), shares)
        source.joins += [join for own in spread.values() for join in own.joins]
        source.lists += [listed for own in spread.values() for listed in own.lists]
        _require_few(opened, layout.view, alias, list(spread.values()))
    nodes.join_lookups(source, dict(enumerate(opened.lookups)), taken)
    return source, spread


@dataclass(frozen=True)
class _SpreadCells:
    """The values that the cells of a column may stand for, joined to the rows of the view."""

    value: Node
    share: Node
    evenly: Node  # The share if all values of a cell are equally likely
    number: Node  # How many values the cell of a row has, where lists count them as ``n``
    unknown: Node  # The share of the records with the cell whose values are not known
    is_whole: bool  # Whether all values are listed, or one between each two constants
    open: list[Node]  # Each is true of cells that could be anything
    joins: list[Node]
    lists: list[tuple[str, Node]]  # In WITH, by name

    @classmethod
    def of(
        cls, opened: OpenQuery, layout: CellLayout, cell: CellDescription, alias: str,
        taken: set[str], also_evenly: bool,
    ) -> Self:  # fmt: skip
        """List the values of a column's cells; suppressed ones have those of all others."""
        name, one = cell.column.name, exp.Literal.number(1)
        value: Node = nodes.column(name, alias)
        share: Node = one
        evenly: Node = one
        number: Node = one
        unknown: Node = one
        is_whole = True
        open_: list[Node] = []
        joins: list[Node] = []
        lists: list[tuple[str, Node]] = []
        if cell.kind != "value":
            cells = nodes.unique(f"{name}_cells", taken)
            if cell.kind == "range":
                widest, has_anything = _require_ends(opened, layout, cell)
                most = _most_listed(opened, layout, cell)
                is_whole = cell.is_discrete and cell.shares != "of_parts"
                is_whole = is_whole and (most is None or widest <= most)
                if has_anything:
                    ends = [nodes.call(f"{end}_INF", value) for end in ("LOWER", "UPPER")]
                    open_.append(exp.Coalesce(this=exp.and_(*ends), expressions=[exp.false()]))
            if cell.shares is not None:
                known = exp.Coalesce(this=nodes.column("known", cells), expressions=[nodes.ZERO])
                unknown = one - known
            lists.append((cells, _values_of_cells(opened, layout, cell, also_evenly)))
            # NULL, and the range that has no ends, have no row there, and count as NULL.
            own = exp.EQ(this=nodes.column("cell", cells), expression=value)
            joins.append(exp.Join(this=exp.to_table(cells), side="LEFT", on=own))
            value = nodes.column("value", cells)
            is_learned = also_evenly and cell.shares is not None
            share, number, evenly = (
                exp.Coalesce(this=nodes.column(part, cells), expressions=[one])
                for part in ("share", "n", "evenly" if is_learned else "share")
            )
        if cell.mark is None:
            return cls(value, share, evenly, number, unknown, is_whole, open_, joins, lists)
        kept = nodes.unique(f"{name}_kept", taken)
        lists.append((kept, _values_of_kept(layout, cell, lists, also_evenly)))
        if cell.kind == "value":
            unknown = nodes.ZERO
        hidden = _is_hidden(layout, cell, alias)
        joins.append(exp.Join(this=exp.to_table(kept), side="LEFT", on=hidden))

        def choose(part: str, otherwise: Node) -> Node:
            return exp.Case(
                ifs=[exp.If(this=hidden.copy(), true=nodes.column(part, kept))], default=otherwise
            )

        value, share, evenly, number = (
            choose(part, own)
            for part, own in (
                ("value", value), ("share", share), ("evenly" if also_evenly else "share", evenly),
                ("n", number),
            )
        )  # fmt: skip
        if also_evenly:
            unknown = choose("unknown", unknown)
        open_.append(hidden)
        return cls(value, share, evenly, number, unknown, is_whole, open_, joins, lists)


def _is_hidden(layout: CellLayout, cell: CellDescription, alias: str) -> Node:
    """Whether a row's cell is suppressed."""
    (pattern,), one = nodes.split_name(layout.view.pattern or ""), exp.Literal.number(1)
    mark = nodes.call("SUBSTR", nodes.column(pattern, alias), exp.Literal.number(cell.mark), one)
    return exp.EQ(this=mark, expression=exp.Literal.string("*"))


def _values_of_cells(
    opened: OpenQuery, layout: CellLayout, cell: CellDescription, also_evenly: bool
) -> Node:
    """List each distinct cell of a column with its values and their shares."""
    shown, listed = nodes.column(cell.column.name), nodes.column("cell", "c")
    cells = nodes.select((shown, "cell"))
    if cell.labels is not None:
        members = nodes.own_call(
            "values_of_label", shown, nodes.cast(exp.Literal.string(cell.labels), "jsonb")
        )
        cells = nodes.select((shown, "label"), (members, "cell"))
        listed = nodes.column("label", "c")
    cells = cells.distinct().from_(nodes.relation(layout.view.view))
    statement = exp.Select().from_(nodes.listing(cells, "c"))
    if cell.shares is not None:
        statement = statement.join(
            nodes.relation(layout.view.shares, "s"), on=_is_own(cell), join_type="left"
        )
    if cell.kind == "set":
        value: Node = _element(cell, nodes.column("value", "v"))
        given = [] if cell.shares is None else [nodes.column("shares", "s")]
        function = "values_of"
    else:
        inside, value = type_of_ends(cell), nodes.column("value", "v")
        if inside != cell.column.type.name:
            value = nodes.read(value_of_end(cell.column.type, "v.value"))
        cuts = _cuts(opened, cell)
        given = [
            nodes.cast(exp.Null() if cuts is None else exp.Array(expressions=cuts), f"{inside}[]")
        ]
        function = "numbers_of" if cell.is_discrete else "parts_of"
        if cell.shares is not None:
            is_axis = exp.Is(this=nodes.column("cell", "a"), expression=exp.Null())
            statement = statement.join(
                nodes.relation(layout.view.shares, "a"),
                on=exp.and_(_of_column(cell, "a"), is_axis),
                join_type="left",
            )
            own, points = nodes.column("own", "s"), nodes.cast(_cut_out("points"), f"{inside}[]")
            most = _most_listed(opened, layout, cell)
            if most is not None and cell.shares == "of_parts" and cell.is_discrete:
                width = exp.Sub(
                    this=nodes.call("UPPER", listed), expression=nodes.call("LOWER", listed)
                )
                is_wide = exp.GT(this=width, expression=exp.Literal.number(most))
                own = exp.Case(ifs=[exp.If(this=is_wide, true=own)])
            given += [own, points, _cut_out("shares"), nodes.column("known", "a")]
            given += [exp.Boolean(this=cell.shares == "of_each")] if cell.is_discrete else []
            given += [] if most is None else [exp.Literal.number(most)]
    own_cell = nodes.column("cell", "c")
    listed_values = nodes.own_call(function, own_cell, *given)
    shown = [(listed, "cell"), (value, "value"), (nodes.column("share", "v"), "share")]
    if also_evenly and cell.shares is not None:  # with learned shares, and with even ones
        shown.append((nodes.column("known", "s"), "known"))
        shown.append((nodes.column("evenly", "v"), "evenly"))
        even = nodes.own_call(function, own_cell, *([] if cell.kind == "set" else given[:1]))
        columns = nodes.column("value", "u"), nodes.column("share", "u")
        learned, evenly = (
            exp.Select(expressions=order).from_(nodes.listing(call, "u"))
            for call, order in (
                (listed_values, [*columns, exp.alias_(nodes.ZERO, "evenly")]),
                (even, [columns[0], nodes.ZERO, columns[1]]),
            )
        )
        listed_values = exp.Subquery(this=exp.union(learned, evenly, distinct=False))
    values = exp.Lateral(this=listed_values, alias=exp.TableAlias(this=nodes.identifier("v")))
    return statement.select(
        *(exp.Alias(this=node, alias=nodes.identifier(name)) for node, name in shown)
    ).join(exp.Join(this=values, kind="CROSS"))


_POINTS: Final = 100
"""Parts of a continuous range that are listed."""


def _most_listed(opened: OpenQuery, layout: CellLayout, cell: CellDescription) -> int | None:
    """Return how many values of a range the engine lists; None where a condition needs no list."""
    query, name = opened.query, cell.column.name
    is_listed = set()
    for measure in query.measures:
        aggregate = measure.aggregate
        arranged = arrange(query, aggregate, layout)
        if name in (
            *arranged.spread, *arranged.apart, find_summed_column(query, aggregate, layout)
        ):  # fmt: skip
            is_listed.add(True)
        elif name in ex.attributes(condition_of(query, aggregate)):
            is_listed.add(False)
    if len(is_listed) > 1 and cell.shares == "of_parts":
        raise refusal(
            "no single statement both compares a column of many numbers and lists its values",
            hint="ask for one aggregate at a time, or with kanon.estimate",
            detail=f'column "{name}"',
        )
    if True not in is_listed:
        return None
    is_grouped = any(name in ex.attributes(key.expression) for key in query.keys)
    if not cell.is_discrete:
        return _POINTS
    return MOST_GROUPED if is_grouped else MOST_VALUES


def _of_column(cell: CellDescription, alias: str) -> Node:
    """Whether a row of the table of shares is of a column."""
    name = exp.Literal.string(cell.column.name)
    return exp.EQ(this=nodes.column("attribute", alias), expression=name)


def _is_own(cell: CellDescription) -> Node:
    """Whether a row of the table of shares is that of a cell, whose text it has."""
    text, own, of_column = (
        nodes.column("cell", "s"),
        nodes.column("cell", "c"),
        _of_column(cell, "s"),
    )
    if cell.column.type.category != "moment":
        return exp.and_(
            of_column, exp.EQ(this=text, expression=nodes.cast(own, "text")), copy=False
        )
    # The text of a date depends on the session, and those of other columns are no dates.
    read = nodes.cast(text, AXES[cell.column.type.name].ranges[0])
    read = exp.Case(ifs=[exp.If(this=of_column, true=read)])
    return exp.EQ(this=read, expression=own)


def _cut_out(name: str) -> Node:
    """Cut the parts that a range covers out of an array of the table of shares."""
    covered = exp.Slice(this=nodes.column("first", "s"), expression=nodes.column("last", "s"))
    return exp.Bracket(this=nodes.column(name, "a"), expressions=[covered])


def _element(cell: CellDescription, text: Node) -> Node:
    """Read a text as a value of the source's type."""
    if not cell.element:
        return text
    if cell.element.startswith("::"):
        return nodes.cast(text, cell.element.removeprefix("::"))
    names = nodes.split_name(cell.element.removeprefix(" COLLATE "))
    collation = exp.Dot.build([nodes.identifier(name) for name in names])
    return exp.Collate(this=text, expression=collation)


def _values_of_kept(
    layout: CellLayout, cell: CellDescription, lists: Sequence[tuple[str, Node]], also_evenly: bool
) -> Node:
    """List the values of the cells that are kept, with their shares in those that are not."""
    # `also_evenly`: with what errors follow from, too, as `doubt_hidden` says it.
    value = nodes.column(cell.column.name, "r")
    number: Node = exp.Count(this=exp.Star())
    statement = exp.Select().from_(nodes.relation(layout.view.view, "r"))
    if lists:
        ((cells, _),) = lists
        own = exp.EQ(this=nodes.column("cell", cells), expression=value)
        statement = statement.join(exp.Join(this=exp.to_table(cells), on=own))
        value, number = nodes.column("value", cells), exp.Sum(this=nodes.column("share", cells))
    errors: list[tuple[Node, str]] = []
    if also_evenly:
        one, n_values = nodes.double(1), exp.Window(this=exp.Count(this=exp.Star()))
        rare = nodes.least(nodes.divide(nodes.double(layout.k), number.copy()), one)
        doubt = nodes.number(repr(LEAST_DOUBT)) + exp.Window(this=exp.Avg(this=rare))
        errors += [(nodes.divide(one, n_values), "evenly"), (nodes.least(doubt, one), "unknown")]
    if layout.rarity != 1:
        number = nodes.call("POWER", number, nodes.number(str(layout.rarity)))
    total = exp.Window(this=exp.Sum(this=number.copy()))
    share = exp.Div(typed=True, this=nodes.cast(number, "double precision"), expression=total)
    return (
        statement.select(
            exp.Alias(this=value, alias=nodes.identifier("value")),
            exp.Alias(this=share, alias=nodes.identifier("share")),
            *(exp.alias_(own, name) for own, name in errors),
        )
        .where(exp.Not(this=_is_hidden(layout, cell, "r")))
        .group_by(value.copy())
    )


def _conditions(opened: OpenQuery) -> Iterator[Expression]:
    query = opened.query
    conditions = [query.where, *(measure.aggregate.condition for measure in query.measures)]
    yield from (one for one in conditions if one is not None)


def _cuts(opened: OpenQuery, cell: CellDescription) -> list[Node] | None:
    """Return the constants that a column is only compared with; None for other uses."""
    name, constants = cell.column.name, []
    query = opened.query
    used: list[Expression] = [key.expression for key in query.keys]
    used += [one.aggregate.operand for one in query.measures if one.aggregate.operand is not None]
    if any(name in ex.attributes(part) for part in used):
        return None
    for condition in _conditions(opened):
        for leaf in leaves(condition):
            if name not in ex.attributes(leaf):
                continue
            if len(ex.attributes(leaf)) > 1 or not can_cover(cell, leaf):
                return None
            constants += [part for part in ex.walk(leaf) if isinstance(part, ex.Constant)]
    constants = list(dict.fromkeys(constants))
    if cell.column.type.category == "moment":
        return [nodes.cast(nodes.constant(one), cell.column.type.name) for one in constants]
    if not cell.is_discrete:
        is_number = cell.column.type.category in ex.NUMBERS
        return [
            nodes.cast(nodes.constant(one), "numeric") if is_number else _place(cell, one)
            for one in constants
        ]
    numbers = [Decimal(one.text) for one in constants if one.text is not None]
    places = {floor(number) for number in numbers if number.is_finite()}
    return [nodes.number(str(number)) for number in sorted(places) if abs(number) <= _MOST_WHOLE]


def _place(cell: CellDescription, constant: ex.Constant) -> Node:
    """Write where a constant stands on the axis of ranges whose ends are numbers."""
    written = nodes.constant(constant).sql(dialect="postgres")
    return nodes.read(place_of(cell.column.type, written, constant.type) or "NULL")


_MOST_WHOLE: Final = 2**31 - 2
"""At constants beyond it, no column of whole numbers is cut, whatever its type."""


def _require_ends(
    opened: OpenQuery, layout: CellLayout, cell: CellDescription
) -> tuple[float, bool]:
    """Refuse ranges with one end only, of which a condition counts a half; others count as it.

    Returns how many values the widest has, if these can be counted, and whether one has no ends.
    """
    name = cell.column.name
    column = f"c.{cell.column.sql}"
    anything = holds_anything(column)
    width = f"max(upper({column}) - lower({column}))::float8" if cell.is_discrete else "0"
    (row,) = opened.fetch(
        f"SELECT coalesce(bool_or({is_endless(column)} AND NOT {anything}), false) AS has_endless,"
        f" coalesce(bool_or({anything}), false) AS has_anything, coalesce({width}, 0) AS width"
        f" FROM {layout.view.view} AS c"
    )
    if _cuts(opened, cell) is None:
        _refuse_many(row["width"])
    is_mentioned = any(name in ex.attributes(condition) for condition in _conditions(opened))
    if row["has_endless"] and (is_mentioned or not cell.is_discrete):
        raise nodes.no_statement("an answer from ranges without an end", f'column "{name}"')
    return row["width"], row["has_anything"]


_MOST_LISTED: Final = 10_000_000
"""Combinations of values that a statement may list: a server takes some seconds for them."""


def _require_few(
    opened: OpenQuery, view: RowView, alias: str, columns: Sequence[_SpreadCells]
) -> None:
    """Refuse a statement that would list too many combinations of the values of cells."""
    number = reduce(
        lambda a, b: exp.Mul(this=a, expression=b),
        (nodes.cast(column.number, "double precision") for column in columns),
    )
    statement = nodes.select((exp.Sum(this=number), "n")).from_(nodes.relation(view.view, alias))
    for column in columns:
        for join, (name, listed) in zip(column.joins, column.lists, strict=True):
            counted = nodes.select((exp.Count(this=exp.Star()), "n")).from_(exp.to_table(name))
            if "cell" in listed.named_selects:
                counted = counted.select("cell").group_by("cell")
            condition = join.args["on"].copy()
            statement = statement.join(nodes.listing(counted, name), on=condition, join_type="left")
            statement = statement.with_(nodes.identifier(name), as_=listed.copy())
    (row,) = opened.fetch(statement.sql(dialect="postgres"))
    _refuse_many(row["n"] or 0)


def _refuse_many(n: float) -> None:
    if n > _MOST_LISTED:
        detail = f"{n:.0f}, of {_MOST_LISTED:,} that are allowed"
        raise nodes.no_statement("an answer from so many combinations of values", detail)


class _UnboundedError(Exception):
    """A condition whose truth is not told by that of its leaves."""


@dataclass(frozen=True)
class _RowStatement:
    """Writes the estimate of a count of rows that is alone, with its error and its bounds.

    Records with the same cells are looked at once: how likely they count, surely, and possibly.
    """

    opened: OpenQuery
    layout: CellLayout
    source: FromClause
    spread: Mapping[str, _SpreadCells]
    pieces: Pieces

    @classmethod
    def of(cls, opened: OpenQuery, layout: CellLayout) -> Node | None:
        """Build the statement of a count that is alone; None if listed values do not bound it."""
        query = opened.query
        number = find_count_alone(opened)
        if number is None or query.keys or query.having or query.limit is not None or query.offset:
            return None
        source, spread = _row_source(opened, layout, "postgres", also_evenly=True)
        if not spread or not all(one.is_whole for one in spread.values()):
            return None
        aggregate = query.measures[number].aggregate
        pieces = Pieces.of(Request(query, aggregate, opened.lookups), layout)
        if max(len(pieces.unit.spread), len(pieces.unit.listed_leaves)) > 1:
            return None
        try:
            return cls(opened, layout, source, spread, pieces)._tree(condition_of(query, aggregate))
        except _UnboundedError:
            return None

    def _tree(self, condition: Expression | None) -> Node:
        types = self._types(condition)
        lists = [*self.source.lists, ("types", types), ("judged", self._judge_types(condition))]
        lists += [("totals", self._totals()), ("estimates", self._estimates())]
        ((_, shown),) = self.opened.query.shown
        columns = [(nodes.column("estimate"), shown.label)]
        columns += nodes.show_error(nodes.column("estimate"))
        return nodes.with_lists(nodes.select(*columns).from_("estimates"), lists)

    @property
    def _alias(self) -> str:
        return str(self.source.relation.alias)

    @property
    def _number(self) -> str:
        """Name the number of records with the same cells, unlike any column."""
        return nodes.unique("n", {*self.layout.view.columns, self.layout.view.number or ""})

    def _columns(self, condition: Expression | None) -> list[str]:
        """Name the columns of the view that tell records apart."""
        names = [name for name in self.layout.cells if name in ex.attributes(condition)]
        pattern = self.layout.view.pattern
        return names if pattern is None else [*names, *nodes.split_name(pattern)]

    def _types(self, condition: Expression | None) -> Node:
        """Count the records that have the same cells."""
        names = self._columns(condition)
        number = (exp.Count(this=exp.Star()), self._number)
        statement = nodes.select(*((self._told_apart(name), name) for name in names), number)
        statement = statement.from_(nodes.relation(self.layout.view.view))
        return statement.group_by(*nodes.places(len(names)))

    def _told_apart(self, name: str) -> Node:
        """Write what records are grouped by: of a type without equality, whether it is NULL."""
        column = nodes.column(name)
        cell = self.layout.cells.get(name)
        if cell is None or cell.column.type.is_grouped:
            return column
        is_known = exp.Not(this=exp.Is(this=column, expression=exp.Null()))
        return exp.Nullif(this=is_known, expression=exp.false())

    def _judge_types(self, condition: Expression | None) -> Node:
        """Say of the records with the same cells how likely they count, surely, and possibly."""
        n = nodes.column(self._number, self._alias)
        columns: list[tuple[Node, str]] = [
            (n, "n"), (self._expect(self.source.weight, self.source.tree(condition)), "p"),
            (self._holds(exp.LogicalAnd, condition, surely=True), "surely"),
            (self._holds(exp.LogicalOr, condition, surely=False), "possibly"),
        ]  # fmt: skip
        for number, block in enumerate(self.pieces.blocks, 1):
            own = self._judge_block(condition, block)
            columns += [(node, f"{name}_{number}") for node, name in own]
        types = replace(
            self.source, relation=exp.Table(
                this=nodes.identifier("types"),
                alias=exp.TableAlias(this=nodes.identifier(self._alias)),
            ),
        )  # fmt: skip
        keys = [nodes.column(name, self._alias) for name in self._columns(condition)]
        return types.select(*columns).group_by(*keys, n)

    def _judge_block(
        self, condition: Expression | None, block: Block
    ) -> Iterator[tuple[Node, str]]:
        """Say how likely records count by other shares of a block's values, and what is unknown."""
        names = [name for name, place in self.pieces.places.items() if place in block]
        own = [self.spread[name] for name in names]
        weights = (one.evenly if name in names else one.share for name, one in self.spread.items())
        weight = reduce(lambda a, b: exp.Mul(this=a, expression=b), weights)
        yield self._expect(weight, self.source.tree(condition)), "evenly"
        divided = self.pieces.unit.condition
        for name, is_most in (("most", True), ("least", False)):
            tree = None if divided is None else self._suppose(divided, block, is_most)
            yield self._expect(self.source.weight, tree), name
        yield exp.Max(this=reduce(nodes.greatest, (one.unknown for one in own))), "unknown"

    def _expect(self, weight: Node, is_met: Node | None) -> Node:
        """Add up the weights of the combinations of values that meet a condition."""
        added = nodes.filter_rows(exp.Sum(this=weight.copy()), is_met)
        return exp.Coalesce(this=added, expressions=[nodes.ZERO])

    def _suppose(self, condition: Expression, block: Block, is_most: bool) -> Node:
        """Write a condition as if the columns of a block had the values that meet it, or not."""
        if is_leaf(condition):
            unit = self.pieces.unit
            is_listed = block == tuple(unit.spread) and condition in unit.listed_leaves
            if is_listed or unit.block_of(condition) == block:
                return exp.Boolean(this=is_most)
            if isinstance(condition, JointCondition):
                condition = condition.condition
            return self.source.tree(condition)
        match ex.by_attribute(condition):
            case ex.And(parts):
                return exp.and_(*(self._suppose(part, block, is_most) for part in parts))
            case ex.Or(parts):
                return exp.or_(*(self._suppose(part, block, is_most) for part in parts))
            case ex.Not(part):
                return exp.not_(self._suppose(part, block, not is_most))
        raise _UnboundedError

    def _holds(self, every: type, condition: Expression | None, *, surely: bool) -> Node:
        if condition is None:
            return exp.true()
        truth = exp.Coalesce(this=self._judge(condition, surely), expressions=[exp.false()])
        return every(this=truth)

    def _judge(self, condition: Expression, surely: bool) -> Node:
        """Write whether a condition surely, or possibly, holds: cells could be anything."""
        if is_leaf(condition):
            truth = self.source.tree(condition)
            names = ex.attributes(condition) & self.spread.keys()
            is_open = [one.copy() for name in sorted(names) for one in self.spread[name].open]
            if not is_open:
                return truth
            if surely:
                return exp.and_(truth, exp.not_(exp.or_(*is_open)))
            return exp.or_(truth, *is_open)
        match ex.by_attribute(condition):
            case ex.And(parts):
                return exp.and_(*(self._judge(part, surely) for part in parts))
            case ex.Or(parts):
                return exp.or_(*(self._judge(part, surely) for part in parts))
            case ex.Not(part):
                return exp.not_(self._judge(part, not surely))
        raise _UnboundedError

    def _totals(self) -> Node:
        """Add up what is said of all records."""
        n, p = nodes.column("n"), nodes.column("p")
        surely, possibly = nodes.column("surely"), nodes.column("possibly")
        # What is certain has no error: of 1, sums of shares are off by what is rounded.
        is_doubtful = exp.and_(possibly, exp.not_(surely))
        variance = self._vary(p, nodes.ZERO, nodes.number("1"))
        sums: list[tuple[str, Node, Node | None]] = [
            ("records", n, None), ("m", n * p, None), ("squares", n * variance, is_doubtful),
            ("together", n * exp.Sqrt(this=variance), is_doubtful),
            ("surely", n, surely), ("possibly", n, possibly),
        ]  # fmt: skip
        for number in range(1, len(self.pieces.blocks) + 1):
            evenly, most, least, unknown = (
                nodes.column(f"{name}_{number}") for name in ("evenly", "most", "least", "unknown")
            )
            deviation = unknown * exp.Sqrt(this=self._vary(p, least, most))
            sums.append((f"deviations_{number}", n * deviation, is_doubtful))
            sums.append((f"away_{number}", n * exp.Paren(this=p - evenly), None))
        columns = []
        for name, own, condition in sums:
            total = nodes.filter_rows(exp.Sum(this=own), condition)
            columns.append((exp.Coalesce(this=total, expressions=[nodes.ZERO]), name))
        return nodes.select(*columns).from_("judged")

    @staticmethod
    def _vary(p: Node, least: Node, most: Node) -> Node:
        """Write the most that a number from `least` to `most` can vary whose mean is p."""
        is_whole = exp.GT(this=p, expression=nodes.number(repr(WHOLE)) * most)
        variance = exp.Paren(this=p - least) * exp.Paren(this=most - p)
        return exp.Case(
            ifs=[exp.If(this=is_whole, true=nodes.ZERO)],
            default=nodes.greatest(variance, nodes.ZERO),
        )

    def _estimates(self) -> Node:
        """Say how far off the estimate may be."""
        # As `rows.type_totals.Totals` says it, those who are left out included.
        estimate, left_out = nodes.column("m"), self.layout.left_out
        squares, common = nodes.column("squares"), nodes.column("together")
        lower, upper = nodes.column("surely"), nodes.column("possibly")
        common = nodes.number(repr(self.pieces.least_unknown)) * common
        if left_out:
            number = nodes.number(str(left_out))
            mean = exp.Paren(this=nodes.divide(nodes.column("m"), nodes.column("records")))
            variance = self._vary(mean, nodes.ZERO, nodes.number("1"))
            estimate = estimate + number * mean
            squares = squares + number * variance
            common = common + number * exp.Sqrt(this=variance)
            upper = upper + number
        numbers = range(1, len(self.pieces.blocks) + 1)
        deviations = [common, *(nodes.column(f"deviations_{one}") for one in numbers)]
        away = [nodes.column(f"away_{one}") for one in numbers]
        added = nodes.number(repr(TOGETHER**2)) * exp.Paren(this=_add_squares(deviations))
        misled = nodes.number(repr(MISLED**2)) * exp.Paren(this=_add_squares(away))
        widest = nodes.divide(upper - lower, exp.Literal.number("2.0"))
        likely = exp.Nullif(this=squares + added, expression=nodes.ZERO)
        error: Node = exp.Sqrt(this=likely + misled)
        error = nodes.least(exp.Coalesce(this=error, expressions=[widest]), widest)
        columns = [
            (estimate, "estimate"), (error, "std_error"),
            (nodes.cast(lower, "bigint"), "lower_bound"),
            (nodes.cast(upper, "bigint"), "upper_bound"),
        ]  # fmt: skip
        return nodes.select(*columns).from_("totals")


def _add_squares(numbers: Sequence[Node]) -> Node:
    squares = (nodes.call("POWER", one, exp.Literal.number(2)) for one in numbers)
    return reduce(lambda a, b: a + b, squares)


def _bucket_statement(opened: OpenQuery, layout: BucketLayout) -> Node | None:
    """Build the statement of what follows from both sides of each bucket; None for others."""
    most: Sequence[list[MostOfValues] | None] = [None] * len(opened.plans)
    if layout.tables.weighted:
        most = BucketEvidence(opened, layout, opened.store).find_most(opened.plans)
    is_weighed = any(one is not None for one in most)
    if is_weighed and not layout.tables.is_likely:
        if layout.is_paper:
            return None
        raise refusal(
            "the weights of one of several sensitive attributes are in no view",
            hint="ask with kanon.estimate; or SET kanon.estimator = 'paper', and the"
            " statement gives the shares of buckets",
        )
    if find_count_alone(opened) is None and (layout.is_paper or not is_weighed):
        return None
    return BucketStatement(opened, layout, most, statement_tree).tree()


def statement_tree(opened: OpenQuery, dialect: Dialect = "postgres") -> Node:
    """Build the statement that gives the estimates of a query."""
    query, layout = opened.query, opened.layout
    if query.sets:
        raise nodes.no_statement("several sets of GROUP BY")
    if query.outer is not None:
        raise nodes.no_statement("an answer from groups of groups")
    if isinstance(layout, BucketLayout) and dialect == "postgres":
        statement = _bucket_statement(opened, layout)
        if statement is not None:
            return statement
    if isinstance(layout, CellLayout) and dialect == "postgres":
        statement = _RowStatement.of(opened, layout)
        if statement is not None:
            return statement
    source = _source(opened, dialect)
    nodes.require_weighted(opened, source)
    where = source.tree(query.where)
    # Every group that has a row may have a record that is left out.
    is_apart = bool(query.keys and source.scale)
    written = WeightedAggregates(source, where if is_apart else None, bool(query.keys))

    def write_aggregate(expression: Expression) -> Node | None:
        if isinstance(expression, Column):
            return source.spell(expression)
        return written.of(expression) if isinstance(expression, Aggregate) else None

    keys = [(source.tree(key.expression), key.name) for key in query.keys]
    statement = source.select(*keys, *nodes.select_aggregates(query, write_aggregate))
    if where is not None and not is_apart:
        statement = statement.where(where)
    if query.keys:
        statement = statement.group_by(*nodes.places(len(query.keys)))
    if query.having is not None:
        statement = statement.having(nodes.tree(query.having, nodes.rounding(write_aggregate)))
    return nodes.with_lists(
        nodes.in_order(statement, query, nodes.rounding(write_aggregate)), source.lists
    )


def rewritten(opened: OpenQuery, dialect: Dialect = "postgres") -> str:
    """Print the statement that gives the estimates of a query, unless it is refused."""
    statement = statement_tree(opened, dialect)
    # Laid out, the lines of a name or a constant would be indented, too.
    texts = (str(node.this) for node in statement.find_all(exp.Identifier, exp.Literal))
    is_laid_out = not any(character in text for text in texts for character in "\n\r")
    text: str = statement.sql(dialect=dialect, pretty=is_laid_out)
    if len(text) > opened.limits.text:
        raise refusal(
            "the statement of the query is too long to show",
            hint="ask for fewer aggregates at a time, or use shorter lists",
            detail=f"{opened.limits.text} characters are allowed",
        )
    return text
