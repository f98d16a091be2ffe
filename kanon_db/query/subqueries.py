"""Writes what asks a subquery as a question over the publication, or as one over its answer.

A subquery that filters records is flattened. One that has groups is asked by a query that shows
them, or aggregates them; or it is answered first, where a condition or a join needs its groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from kanon_db.query.expressions import (
    Aggregate,
    And,
    Answered,
    Comparison,
    Distinct,
    Expression,
    GroupAggregate,
    ItemText,
    Literal,
    LookupText,
    Membership,
    Name,
    NullTest,
    Or,
    OrderText,
    QueryText,
    RelationText,
    WindowTotal,
    aggregate_name,
    has_aggregate,
    joined,
    refusal,
    replace_parts,
    walk,
)

MAX_PARTS: Final = 50_000
"""The most parts of all expressions that replace the columns of subqueries."""

WHOLE_ROWS: Final = "the select list has columns that GROUP BY does not name"
COLUMNS: Final = "write COUNT(*), or SELECT DISTINCT and the names of columns"
_OVER_GROUPS: Final = "what asks a query with groups can only name its columns, filter and order"


class PartsBudget:
    """Counts down from :data:`MAX_PARTS` while columns of subqueries are replaced."""

    def __init__(self) -> None:
        self._left = MAX_PARTS

    def take(self, n: int) -> None:
        """Spend parts before they are made; refuse the query when too few are left."""
        self._left -= n
        if self._left < 0:
            raise refusal(
                "the columns of a subquery become too long", hint="repeat their names less often"
            )


class FilteredRelation(NamedTuple):
    """A relation in FROM, as expressions and a condition over the publication."""

    publication: RelationText
    budget: PartsBudget  # For the expressions that replace its columns
    # The qualifiers of its columns in the outer query; empty for the publication itself
    alias: tuple[str, ...] = ()
    # The expression that each column stands for; None for columns of the publication
    columns: dict[str, Expression] | None = None
    where: Expression | None = None  # The condition on the publication's records
    # All columns that subqueries select, whether the query mentions them or not
    selected: tuple[Expression, ...] = ()
    groups: QueryText | None = None  # The query, if it has groups or aggregates
    lookups: tuple[LookupText, ...] = ()  # What is joined in it

    def over_publication(self, expression: Expression) -> Expression:
        """Rewrite an expression on these columns as one on the publication's columns."""
        # Raises UnsupportedQueryError when a name is none of these columns, or the result would be
        # too long.
        sizes: dict[Name, int] = {}
        for name in (part for part in walk(expression) if isinstance(part, Name)):
            if name not in sizes:
                sizes[name] = sum(1 for _ in walk(self._look_up(name)))
            self.budget.take(sizes[name])
        return replace_parts(
            expression, lambda part: self._look_up(part) if isinstance(part, Name) else None
        )

    def has(self, name: str) -> bool:
        """Whether the relation may have a column of this name."""
        return self.columns is None or name in self.columns

    def _look_up(self, name: Name) -> Expression:
        *qualifier, column = name.parts
        if self.lookups and not self.alias:
            return name  # found when the lookup tables are
        if qualifier and not (
            tuple(qualifier) == self.alias
            if self.alias
            else self.publication.answers_to(tuple(qualifier))
        ):
            raise refusal(
                "a column is qualified with a name that FROM does not have",
                hint="write only the column's name",
            )
        if self.columns is None and self.lookups:
            return Name((column,), position=name.position)
        if self.columns is None:
            own = self.publication.alias or self.publication.name
            return Name((own, column), position=name.position)
        if column not in self.columns:
            raise refusal(
                "the query names a column that its subquery does not have",
                hint="list the column in the subquery; strings need single quotes, not double"
                " quotes",
            )
        return self.columns[column]


def flatten_subquery(
    source: FilteredRelation, text: QueryText, items: Sequence[ItemText] | None
) -> FilteredRelation:
    """Return a subquery as expressions over the publication; `items` is None for ``*``."""
    source = source if source.alias else source._replace(lookups=text.lookups)
    condition = None if text.where is None else source.over_publication(text.where)
    parts = [part for part in (source.where, condition) if part is not None]
    columns = source.columns
    if items is not None:
        columns = {}
        for item in items:
            if isinstance(item.expression, Literal):
                raise refusal(
                    "a column of a subquery is a constant", hint="write the constant outside"
                )
            name = _name_of(item)
            if name in columns:
                raise refusal("two columns of a subquery have the same name", hint="use AS")
            columns[name] = source.over_publication(item.expression)
    aliases = [Name((item.alias,)) for item in text.items if item.alias]
    ordered = (
        source.over_publication(one.expression)
        for one in text.order
        if one.expression not in aliases and not isinstance(one.expression, Literal)
    )
    own = () if items is None else (columns or {}).values()
    selected = (*source.selected, *own, *ordered)
    return source._replace(columns=columns, where=joined(And, parts), selected=selected)


def flatten_query(
    text: QueryText, source: FilteredRelation, items: Sequence[ItemText] | None
) -> QueryText:
    """Replace a query's relation by the publication, and its columns by expressions on that.

    `items` is None for ``*``.
    """
    if items is None and source.groups is None:
        raise refusal(WHOLE_ROWS, hint=COLUMNS)
    if not source.alias:
        return text
    if text.lookups:
        raise refusal(
            "a subquery cannot be joined", hint="join the lookup table to the publication itself"
        )
    parts = (*_list_parts(text), *text.group, text.having)
    is_over_groups = text.group or any(has_aggregate(part) for part in parts if part is not None)
    if items is None or (source.groups is not None and not is_over_groups):
        return _ask_groups(text, source, items)

    def over(expression: Expression) -> Expression:
        of_groups = expression if source.groups is None else replace_parts(expression, _over_groups)
        return source.over_publication(of_groups)

    shown = tuple(
        ItemText(over(item.expression), item.alias or own_name(item.expression)) for item in items
    )
    named = {item.alias: new.expression for item, new in zip(items, shown, strict=True)}

    def key(expression: Expression, *, by_alias: bool) -> Expression:
        """Resolve a name as GROUP BY does or, by alias first, as ORDER BY does."""
        replacement = expression
        match expression:
            case Name((name,)) if source.columns is None:
                return expression  # the publication's columns come first, or last: known later
            case Name((name,)) if name in named and (by_alias or not source.has(name)):
                if any(
                    item.alias == name and new.expression != named[name]
                    for item, new in zip(items, shown, strict=True)
                ):
                    raise refusal("two items of the select list have the same name")
                replacement = named[name]
            case Literal("number"):
                return expression
            case _:
                replacement = over(expression)
        if isinstance(replacement, Literal):
            raise refusal("GROUP BY or ORDER BY contains a constant", hint="name columns")
        return replacement

    where = None if text.where is None else over(text.where)
    conditions = [part for part in (source.where, where) if part is not None]
    flat_text = text._replace(
        items=shown,
        publication=source.publication,
        lookups=source.lookups,
        where=joined(And, conditions),
        group=tuple(key(expression, by_alias=False) for expression in text.group),
        having=None if text.having is None else over(text.having),
        order=tuple(
            OrderText(key(one.expression, by_alias=True), one.is_descending, one.nulls_first)
            for one in text.order
        ),
        selected=source.selected,
    )
    return flat_text if source.groups is None else _ask_over_groups(flat_text, source.groups)


def _over_groups(part: Expression) -> Expression | None:
    """Return the aggregate of groups that an aggregate in the query over them is."""
    if not isinstance(part, Aggregate):
        return None
    return GroupAggregate(*(getattr(part, name) for name in part.__match_args__))


def _ask_over_groups(outer: QueryText, groups: QueryText) -> QueryText:
    """Write a query that aggregates the groups of another: what chooses them is the outer's."""
    if groups.sets or groups.outer is not None or outer.sets:
        raise refusal(
            "the groups of several levels or sets are aggregated", hint="ask the subquery itself"
        )
    if not (groups.group or groups.is_distinct or any(map(has_aggregate, _list_parts(groups)))):
        raise refusal("a subquery cuts records that are in no order", hint="leave LIMIT out")
    if any(map(has_aggregate, outer.group)):
        raise refusal(
            "groups are grouped by an estimate",
            hint="ask the subquery itself, and group its answer",
        )
    if any(isinstance(part, WindowTotal) for one in outer.expressions for part in walk(one)):
        raise refusal(
            "the total of groups is aggregated", hint="ask for the groups and for the total"
        )
    of_records, of_groups = _split_where(outer.where)
    having = [] if groups.having is None else [groups.having]
    where = [] if groups.where is None else [groups.where]
    items = tuple(item.expression for item in groups.items)
    return groups._replace(
        where=joined(And, [*where, *of_records]),
        group=items if groups.is_distinct else groups.group,
        is_distinct=False,
        having=None,
        order=(),
        outer=outer._replace(where=joined(And, [*having, *of_groups])),
    )


def _split_where(condition: Expression | None) -> tuple[list[Expression], list[Expression]]:
    """Tell the conditions on the records of a subquery from those on its aggregates."""
    if condition is None:
        return [], []
    parts = condition.parts if isinstance(condition, And) else (condition,)
    of_groups = [part for part in parts if has_aggregate(part)]
    return [part for part in parts if part not in of_groups], of_groups


def group_relation(text: QueryText, budget: PartsBudget) -> FilteredRelation:
    """Return a query with groups or aggregates as a relation, whose columns are its items."""
    columns: dict[str, Expression] = {}
    for item in (text.outer or text).items:
        name = _name_of(item)
        if name in columns:
            raise refusal("two columns of a subquery have the same name", hint="use AS")
        columns[name] = item.expression
    return FilteredRelation(
        text.publication, budget, columns=columns, selected=text.selected, groups=text
    )


def _ask_groups(
    text: QueryText, source: FilteredRelation, items: Sequence[ItemText] | None
) -> QueryText:
    """Write a query that asks the groups of another as one: what it filters goes into HAVING."""
    groups = source.groups or text
    if groups.outer is not None:
        outer = _ask_groups(text, source._replace(groups=groups.outer), items)
        of_records, of_groups = _split_where(outer.where)
        chosen = [*of_records] if groups.where is None else [groups.where, *of_records]
        outer = outer._replace(where=joined(And, of_groups))
        return groups._replace(where=joined(And, chosen), outer=outer)
    over = source.over_publication
    inner = tuple(ItemText(part, name) for name, part in (source.columns or {}).items())
    listed = inner
    if items is not None:
        listed = tuple(
            ItemText(over(item.expression), item.alias or own_name(item.expression))
            for item in items
        )
    _require_plain_names(inner)
    is_cut = groups.limit is not None or groups.offset
    if text.is_distinct:
        raise refusal(_OVER_GROUPS, hint="leave DISTINCT out: groups are distinct")
    if is_cut and (text.where is not None or text.order or text.limit is not None or text.offset):
        raise refusal(
            "a subquery with LIMIT is filtered or ordered once more",
            hint="write one WHERE, one ORDER BY and one LIMIT, all outside",
        )
    where, having = groups.where, groups.having
    if text.where is not None:
        if groups.sets:
            raise refusal(_OVER_GROUPS, hint="write WHERE and HAVING in the subquery")
        if any(isinstance(part, WindowTotal) for item in inner for part in walk(item.expression)):
            raise refusal(
                "the total of groups is not supported where some are filtered",
                hint="leave the filter out, or ask for the groups and for the total",
            )
        of_records, of_groups = _split_where(over(text.where))
        where = joined(And, [part for part in (where, *of_records) if part is not None])
        having = joined(And, [part for part in (having, *of_groups) if part is not None])

    def key(one: OrderText) -> OrderText:
        match one.expression:
            case Literal("number", digits) if digits.isdecimal() and 0 < int(digits) <= len(listed):
                return one._replace(expression=listed[int(digits) - 1].expression)
            case Name((name,)) if name in (aliases := {of.alias: of.expression for of in listed}):
                return one._replace(expression=aliases[name])
        return one._replace(expression=over(one.expression))

    return groups._replace(
        items=listed,
        grouped=groups.grouped or groups.items,
        where=where,
        having=having,
        order=tuple(map(key, text.order)) or groups.order,
        limit=groups.limit if text.limit is None else text.limit,
        offset=text.offset or groups.offset,
    )


def _list_parts(text: QueryText) -> list[Expression]:
    parts = [*(item.expression for item in text.items), text.where]
    return [part for part in (*parts, *(one.expression for one in text.order)) if part is not None]


def _require_plain_names(items: Sequence[ItemText]) -> None:
    """Refuse a column that is named as another one that the subquery reads."""
    for item in items:
        own = Name((item.alias or "",))
        if any(
            part == own
            for one in items
            if one.expression != item.expression
            for part in walk(one.expression)
        ):
            raise refusal(
                "a column of a subquery is named as another that it reads",
                hint="give it another name with AS",
            )


def own_name(expression: Expression) -> str | None:
    """Return the name that a column has without AS."""
    return expression.parts[-1] if isinstance(expression, Name) else None


def _name_of(item: ItemText) -> str:
    name = item.alias or own_name(item.expression) or aggregate_name(item.expression)
    if name is None:
        raise refusal("a column of a subquery has no name", hint="name it with AS")
    return name


Rows: TypeAlias = Sequence[tuple[Expression | None, ...]]
"""The rows that a question is answered with; None for NULL."""


class AnsweredJoin(NamedTuple):
    """The groups of a subquery that is answered first, with how they are joined."""

    alias: tuple[str, ...]
    columns: dict[str, Expression | None]  # Over the publication; None for estimates
    among: Answered
    is_outer: bool


def keys_of(text: QueryText) -> set[Expression]:
    """Return what a subquery groups by, with numbers and names looked up in its select list."""
    items = text.grouped or text.items
    named = {item.alias: item.expression for item in items}
    keys = set[Expression]()
    for one in [item.expression for item in items] if text.is_distinct else text.group:
        match one:
            case Literal("number", digits) if digits.isdecimal() and 0 < int(digits) <= len(items):
                keys.add(items[int(digits) - 1].expression)
            case Name((name,)):
                keys.add(named.get(name, one))
            case _:
                keys.add(one)
    return keys


def split_join(
    condition: Expression, groups: FilteredRelation
) -> tuple[list[tuple[Expression, str]], bool]:
    """Return the pairs of what is compared and a column of groups; none if it is something else."""
    # Beside them: whether NULL is as NULL.
    pairs = []
    parts = condition.parts if isinstance(condition, And) else (condition,)
    for part in parts:
        match part:
            case Comparison("=", left, right):
                sides = [(left, right), (right, left)]
            case Distinct(left, right, True):
                sides = [(left, right), (right, left)]
            case _:
                return [], False
        own = [
            (bool(one.parts[:-1]), operand, one.parts[-1])
            for operand, one in sides
            if isinstance(one, Name)
            and one.parts[:-1] in ((), groups.alias)
            and groups.has(one.parts[-1])
        ]
        if not own:
            return [], False
        _, operand, name = max(own, key=lambda pair: pair[0])  # a qualified name is its own
        pairs.append((operand, name))
    kinds = {type(part) for part in parts}
    return (pairs, Distinct in kinds) if len(kinds) == 1 else ([], False)


def with_answers(text: QueryText, joins: Sequence[AnsweredJoin]) -> QueryText:
    """Put what the columns of joined groups stand for in their places."""

    def look_up(part: Expression) -> Expression | None:
        if not isinstance(part, Name):
            return None
        *qualifier, name = part.parts
        for join in joins:
            if tuple(qualifier) == join.alias or (not qualifier and name in join.columns):
                column = join.columns.get(name)
                if column is None:
                    raise refusal(
                        "a column of a joined subquery is an estimate, or is not there",
                        hint="use the columns that it groups by; its estimates are what"
                        " SELECT ... GROUP BY answers by itself",
                    )
                return column
        return None

    def over(part: Expression) -> Expression:
        return replace_parts(part, look_up)

    aliases = [(Name((item.alias,))) for item in text.items if item.alias]
    conditions = [join.among for join in joins if not join.is_outer]
    where = [] if text.where is None else [over(text.where)]
    return text._replace(
        items=tuple(
            ItemText(over(item.expression), item.alias or own_name(item.expression))
            for item in text.items
        ),
        where=joined(And, [*conditions, *where]),
        group=tuple(map(over, text.group)),
        having=None if text.having is None else over(text.having),
        order=tuple(
            one if one.expression in aliases else one._replace(expression=over(one.expression))
            for one in text.order
        ),
    )


def settle(text: QueryText, answer: Callable[[QueryText], Rows]) -> tuple[QueryText, int]:
    """Answer the questions of a query, and put their rows in their places; count these."""
    if not text.questions:
        return text, 0
    lists: list[Rows] = []
    for question in text.questions:
        lists.append(answer(_with_constants(question, lists)))
    return _with_constants(text, lists), sum(map(len, lists))


def _with_constants(text: QueryText, lists: Sequence[Rows]) -> QueryText:
    """Put the rows that questions are answered with in the places of the questions."""

    def change(part: Expression) -> Expression | None:
        if not isinstance(part, Answered):
            return None
        operands = [replace_parts(operand, change) for operand in part.operands]
        return _among(operands, lists[part.question], is_distinct=part.is_distinct)

    return text.change(lambda part: replace_parts(part, change))._replace(questions=())


def _among(operands: Sequence[Expression], rows: Rows, *, is_distinct: bool) -> Expression:
    """Write the condition that values are among the rows of an answer."""

    def is_null(operand: Expression) -> Expression:
        return NullTest(operand) if is_distinct else Literal("null", "")

    parts: list[Expression] = []
    if len(operands) == 1:
        (operand,) = operands
        values = tuple(value for (value,) in rows if value is not None)
        if values:
            parts.append(Membership(operand, values))
        if len(values) < len(rows):
            parts.append(is_null(operand))
    else:
        for row in rows:
            tests = [
                is_null(operand) if value is None else Comparison("=", operand, value)
                for operand, value in zip(operands, row, strict=True)
            ]
            parts += [] if (test := joined(And, tests)) is None else [test]
    return joined(Or, parts) or Literal("boolean", "false")
