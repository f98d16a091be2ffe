"""Subqueries in FROM that only name and filter, put into the query that selects from them.

What such a subquery calls a column stands for an expression over the publication; each mention of
it is replaced. Columns of the publication are qualified then, so that no alias can be meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from kanon_db.counting.expressions import (
    Aggregate,
    And,
    Expression,
    Literal,
    Name,
    joined,
    replaced,
    walk,
)
from kanon_db.counting.reading.query import ItemText, OrderText, QueryText, RelationText
from kanon_db.counting.refusals import refusal
from kanon_db.errors import UnsupportedQueryError

MAX_PARTS: Final = 50_000
"""The most parts of the expressions that the names of a query with subqueries are replaced by."""

ONLY: Final = "a subquery in FROM can only name columns and filter with WHERE"
_HINT: Final = (
    "write SELECT <columns> FROM <publication> WHERE ... there, and all else outside; the groups of"
    " a column are counted by COUNT(DISTINCT <column>)"
)


class Room:
    """What is left of :data:`MAX_PARTS`."""

    def __init__(self) -> None:
        self._left = MAX_PARTS

    def take(self, n: int) -> None:
        """Account for parts before they are made."""
        self._left -= n
        if self._left < 0:
            raise refusal(
                "the columns of a subquery become too long", hint="repeat their names less often"
            )


@dataclass(frozen=True, slots=True)
class Filtered:
    """What a relation in FROM stands for.

    Attributes
    ----------
    publication : RelationText
    room : Room
        For the parts of what its columns are replaced by.
    alias : tuple of str
        The names that qualify its columns outside; empty for the publication itself.
    columns : dict of str to Expression or None
        What its columns stand for; None for those of the publication.
    where : Expression or None
        The condition on the publication's records.
    selected : tuple of Expression
        All that subqueries select, whether the query mentions it or not.
    """

    publication: RelationText
    room: Room
    alias: tuple[str, ...] = ()
    columns: dict[str, Expression] | None = None
    where: Expression | None = None
    selected: tuple[Expression, ...] = ()

    def over_publication(self, expression: Expression) -> Expression:
        """Write an expression on these columns as one on the publication's.

        Raises
        ------
        UnsupportedQueryError
            For a name that is none of them, and where the result would be too long.
        """
        sizes: dict[Name, int] = {}
        for name in (part for part in walk(expression) if isinstance(part, Name)):
            if name not in sizes:
                sizes[name] = sum(1 for _ in walk(self._meant(name)))
            self.room.take(sizes[name])
        return replaced(
            expression, lambda part: self._meant(part) if isinstance(part, Name) else None
        )

    def has(self, name: str) -> bool:
        """Whether it may have a column of this name."""
        return self.columns is None or name in self.columns

    def _meant(self, name: Name) -> Expression:
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
            return Name((self.publication.alias or self.publication.name, column))
        if column not in self.columns:
            raise refusal(
                "the query names a column that its subquery does not have",
                hint="list the column in the subquery; strings need single quotes, not double"
                " quotes",
            )
        return self.columns[column]


def selected_from(
    source: Filtered, items: Sequence[ItemText] | None, where: Expression | None
) -> Filtered:
    """Return what a subquery stands for; `items` None is ``*``."""
    condition = None if where is None else source.over_publication(_plain(where))
    parts = [part for part in (source.where, condition) if part is not None]
    columns = source.columns
    if items is not None:
        columns = {}
        for item in items:
            name = _name_of(item)
            if name in columns:
                raise refusal("two columns of a subquery have the same name", hint="use AS")
            columns[name] = source.over_publication(_plain(item.expression))
    selected = source.selected if items is None else (*source.selected, *(columns or {}).values())
    return replace(source, columns=columns, where=joined(And, parts), selected=selected)


def beyond(position: int | None = None) -> UnsupportedQueryError:
    """Make the refusal of what only the outer query may have."""
    return refusal(ONLY, position, _HINT)


def flattened(text: QueryText, source: Filtered) -> QueryText:
    """Put what a query's relation stands for in its place."""
    if text.lookups:
        raise refusal(
            "a subquery cannot be joined", hint="join the lookup table to the publication itself"
        )
    over = source.over_publication
    items = tuple(
        ItemText(over(item.expression), item.alias or _own_name(item.expression))
        for item in text.items
    )
    named = {item.alias: new.expression for item, new in zip(text.items, items, strict=True)}

    def key(expression: Expression, *, by_alias: bool) -> Expression:
        """Follow a name as GROUP BY does, or ORDER BY, where an alias comes first."""
        found = expression
        match expression:
            case Name((name,)) if source.columns is None:
                return expression  # the publication's columns come first, or last: known later
            case Name((name,)) if name in named and (by_alias or not source.has(name)):
                if any(
                    item.alias == name and new.expression != named[name]
                    for item, new in zip(text.items, items, strict=True)
                ):
                    raise refusal("two items of the select list have the same name")
                found = named[name]
            case Literal("number"):
                return expression
            case _:
                found = over(expression)
        if isinstance(found, Literal):
            raise refusal("GROUP BY or ORDER BY contains a constant", hint="name columns")
        return found

    where = None if text.where is None else over(text.where)
    conditions = [part for part in (source.where, where) if part is not None]
    return text._replace(
        items=items,
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


def _own_name(expression: Expression) -> str | None:
    return expression.parts[-1] if isinstance(expression, Name) else None


def _name_of(item: ItemText) -> str:
    if isinstance(item.expression, Literal):
        raise refusal("a column of a subquery is a constant", hint="write the constant outside")
    name = item.alias or _own_name(item.expression)
    if name is None:
        raise refusal("a column of a subquery has no name", hint="name it with AS")
    return name


def _plain(expression: Expression) -> Expression:
    if any(isinstance(part, Aggregate) for part in walk(expression)):
        raise beyond()
    return expression
