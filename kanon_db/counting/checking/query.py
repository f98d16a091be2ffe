"""A checked query: what it counts, for which records, in which groups, with types throughout."""

from __future__ import annotations

from typing import NamedTuple

from kanon_db.counting.expressions import Aggregate, Constant, Expression, walk


class Key(NamedTuple):
    """An expression that GROUP BY names, and the name that the answer gives it."""

    name: str
    expression: Expression


class Measure(NamedTuple):
    """An aggregate to estimate; one that only HAVING or ORDER BY mention is not shown."""

    label: str
    aggregate: Aggregate
    is_shown: bool = True


class Formula(NamedTuple):
    """What is calculated from aggregates, all of which are measures of the query."""

    label: str
    expression: Expression


class Order(NamedTuple):
    """An item of ORDER BY: the number of a key, or of a measure (formulas come after them)."""

    key: int | None
    measure: int | None
    is_descending: bool
    nulls_first: bool


class Query(NamedTuple):
    """A query that can be answered, with the types of all that is in it.

    The select list is that of the measures and formulas `listed`, formulas after all measures.
    What subqueries `selected` is part of what is evaluated where the query mentions it.
    """

    where: Expression | None
    keys: tuple[Key, ...]
    measures: tuple[Measure, ...]
    having: Expression | None = None
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int = 0
    selected: tuple[Expression, ...] = ()
    formulas: tuple[Formula, ...] = ()
    listed: tuple[int, ...] = ()

    @property
    def shown(self) -> list[tuple[int, Measure | Formula]]:
        """The measures and formulas of the select list, with their places among all."""
        everything: list[Measure | Formula] = [*self.measures, *self.formulas]
        return [(place, everything[place]) for place in self.listed]

    @property
    def is_one_count(self) -> bool:
        """Whether the select list shows one COUNT, and no other aggregate."""
        match self.shown:
            case [(_, Measure(aggregate=Aggregate("count" | "distinct")))]:
                return True
            case _:
                return False

    @property
    def shown_aggregates(self) -> list[Aggregate]:
        """The aggregates that the select list shows, or calculates from."""
        found = []
        for _, shown in self.shown:
            whole = shown.aggregate if isinstance(shown, Measure) else shown.expression
            found += [part for part in walk(whole) if isinstance(part, Aggregate)]
        return list(dict.fromkeys(found))

    @property
    def evaluated(self) -> list[Expression | None]:
        """What is evaluated for each record: its condition, groups, and what is summed."""
        found = [self.where, *(key.expression for key in self.keys)]
        aggregates = [measure.aggregate for measure in self.measures]
        return found + [part for one in aggregates for part in (one.operand, one.condition)]

    @property
    def constants(self) -> frozenset[Constant]:
        """The constants that are compared with, or part of what is grouped or summed."""
        read = (*self.evaluated, *self.selected)
        parts = (inner for part in read for inner in walk(part))
        return frozenset(inner for inner in parts if isinstance(inner, Constant))
