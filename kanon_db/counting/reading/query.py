"""What a query says, before anything is known of the publication."""

from __future__ import annotations

from typing import NamedTuple

from kanon_db.counting.expressions import Expression, Name


class RelationText(NamedTuple):
    """A relation in FROM: as written, with the names that may qualify its columns.

    Attributes
    ----------
    schema : str or None
        None when the relation stands alone.
    name : str
    alias : str or None
        Hides the name.
    """

    schema: str | None
    name: str
    alias: str | None = None

    def answers_to(self, qualifier: tuple[str, ...]) -> bool:
        """Whether a column may be qualified like that."""
        if self.alias is not None:
            return qualifier == (self.alias,)
        return qualifier in ((self.name,), (self.schema, self.name))


class LookupText(NamedTuple):
    """``[LEFT] JOIN relation ON left = right``, or ``USING (name)``: then both are the name."""

    relation: RelationText
    left: Name
    right: Name
    is_outer: bool
    is_using: bool = False


class ItemText(NamedTuple):
    """An item of the select list."""

    expression: Expression
    alias: str | None = None


class OrderText(NamedTuple):
    """An item of ORDER BY; `nulls_first` as PostgreSQL has it where nothing is written."""

    expression: Expression
    is_descending: bool = False
    nulls_first: bool = False


class QueryText(NamedTuple):
    """A whole query: its clauses in their order; all that subqueries in FROM selected; DISTINCT."""

    items: tuple[ItemText, ...]
    publication: RelationText
    lookups: tuple[LookupText, ...] = ()
    where: Expression | None = None
    group: tuple[Expression, ...] = ()
    having: Expression | None = None
    order: tuple[OrderText, ...] = ()
    limit: int | None = None
    offset: int = 0
    selected: tuple[Expression, ...] = ()
    is_distinct: bool = False
