"""The two sides of a bucketization, and which side each part of a query is on.

Side 0 are the records with their quasi-identifiers, side 1 the sensitive values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal as OneOf

from kanon_db.counting import expressions as ex
from kanon_db.counting.checking.query import Query
from kanon_db.counting.layout import BucketLayout

Side = OneOf[0, 1]
Sides = tuple[ex.Expression | None, ex.Expression | None]
"""A condition on records and one on sensitive values; None is no condition."""


def chosen_by(query: Query, aggregate: ex.Aggregate) -> ex.Expression | None:
    """Return what WHERE and an aggregate's FILTER ask of a record."""
    parts = [part for part in (query.where, aggregate.condition) if part is not None]
    return ex.joined(ex.And, parts)


def condition_of(query: Query, aggregate: ex.Aggregate) -> ex.Expression | None:
    """Return what a record must meet to be counted in an aggregate: NULLs are not."""
    chosen = chosen_by(query, aggregate)
    parts = [] if chosen is None else [chosen]
    if aggregate.operand is not None:
        parts.append(ex.NullTest(aggregate.operand, negated=True))
    return ex.joined(ex.And, parts)


def parts_of(condition: ex.Expression | None) -> tuple[ex.Expression, ...]:
    """Return the parts of a conjunction."""
    if condition is None:
        return ()
    return condition.parts if isinstance(condition, ex.And) else (condition,)


def side_of(expression: ex.Expression, layout: BucketLayout) -> Side | None:
    """Return the side that an expression depends on, None for both."""
    mentioned = ex.attributes(expression)
    if layout.sensitive.name not in mentioned:
        return 0
    return 1 if len(mentioned) == 1 else None


def sides_of(query: Query, aggregate: ex.Aggregate, layout: BucketLayout) -> set[Side | None]:
    """Return the sides of all that an aggregate depends on."""
    parts = [
        *parts_of(condition_of(query, aggregate)),
        *(key.expression for key in query.keys),
        *(() if aggregate.operand is None else (aggregate.operand,)),
    ]
    return {side_of(part, layout) for part in parts}


def by_side(
    parts: Sequence[ex.Expression], layout: BucketLayout
) -> tuple[list[ex.Expression], list[ex.Expression], list[ex.Expression]]:
    """Separate expressions into those on records, those on sensitive values, and the rest."""
    found: tuple[list[ex.Expression], list[ex.Expression], list[ex.Expression]] = ([], [], [])
    for part in parts:
        side = side_of(part, layout)
        found[2 if side is None else side].append(part)
    return found


def factors(condition: ex.Expression | None, layout: BucketLayout) -> Sides | None:
    """Split a conjunction by side; None where a part of it mentions both."""
    records, values, both = by_side(parts_of(condition), layout)
    return None if both else (ex.joined(ex.And, records), ex.joined(ex.And, values))


def disjoint_sides(
    query: Query, aggregate: ex.Aggregate, layout: BucketLayout
) -> tuple[ex.Expression, ex.Expression] | None:
    """Split a disjunction of conditions on one side each; None for anything else.

    Only for a count without groups: the count of the records that meet neither gives it.
    """
    condition = condition_of(query, aggregate)
    if query.keys or aggregate.function != "count" or not isinstance(condition, ex.Or):
        return None
    on_records, on_values, both = by_side(condition.parts, layout)
    records, values = ex.joined(ex.Or, on_records), ex.joined(ex.Or, on_values)
    return None if both or records is None or values is None else (records, values)
