"""Writes subqueries in FROM as expressions and conditions over the publication itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kanon_db.query.expressions import (
    And,
    Expression,
    ItemText,
    Literal,
    Name,
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
_GROUPS_COUNTED: Final = (
    "ask the subquery itself; the groups of a column are counted by COUNT(DISTINCT <column>)"
)


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
        if qualifier and not (
            tuple(qualifier) == self.alias
            if self.alias
            else self.publication.answers_to(tuple(qualifier))
        ):
            raise refusal(
                "a column is qualified with a name that FROM does not have",
                hint="write only the column's name",
            )
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
    source: FilteredRelation, items: Sequence[ItemText] | None, where: Expression | None
) -> FilteredRelation:
    """Return a subquery as expressions over the publication; `items` is None for ``*``."""
    condition = None if where is None else source.over_publication(where)
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
    selected = source.selected if items is None else (*source.selected, *(columns or {}).values())
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
    if source.groups is not None or items is None:
        return _ask_groups(text, source, items)
    over = source.over_publication
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
    return text._replace(
        items=shown,
        publication=source.publication,
        where=joined(And, conditions),
        group=tuple(key(expression, by_alias=False) for expression in text.group),
        having=None if text.having is None else over(text.having),
        order=tuple(
            OrderText(key(one.expression, by_alias=True), one.is_descending, one.nulls_first)
            for one in text.order
        ),
        selected=source.selected,
    )


def group_relation(text: QueryText, budget: PartsBudget) -> FilteredRelation:
    """Return a query with groups or aggregates as a relation, whose columns are its items."""
    columns: dict[str, Expression] = {}
    for item in text.items:
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
    if text.group or text.having is not None or any(map(has_aggregate, _asked(text))):
        raise refusal(_OVER_GROUPS, hint=_GROUPS_COUNTED)
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
        if any(isinstance(part, WindowTotal) for item in inner for part in walk(item.expression)):
            raise refusal(
                "the total of groups is not supported where some are filtered",
                hint="leave the filter out, or ask for the groups and for the total",
            )
        condition = over(text.where)
        parts = condition.parts if isinstance(condition, And) else (condition,)
        of_groups = [part for part in parts if has_aggregate(part)]
        of_records = [part for part in parts if not has_aggregate(part)]
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


def _asked(text: QueryText) -> list[Expression]:
    parts = [*(item.expression for item in text.items), text.where]
    return [part for part in (*parts, *(one.expression for one in text.order)) if part is not None]


def _require_plain_names(items: Sequence[ItemText]) -> None:
    """Refuse a column that is named as another one that the subquery reads."""
    for item in items:
        own = Name((item.alias or "",))
        others = (other.expression for other in items if other.expression != item.expression)
        if any(part == own for other in others for part in walk(other)):
            raise refusal(
                "a column of a subquery is named as another that it reads",
                hint="give it another name with AS",
            )


def own_name(expression: Expression) -> str | None:
    """Return the name of a column that AS does not name, if it is a column or an aggregate."""
    return expression.parts[-1] if isinstance(expression, Name) else aggregate_name(expression)


def _name_of(item: ItemText) -> str:
    name = item.alias or own_name(item.expression)
    if name is None:
        raise refusal("a column of a subquery has no name", hint="name it with AS")
    return name
