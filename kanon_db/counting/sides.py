"""What of a query is on a bucketization's quasi-identifiers, what on its sensitive attribute.

Side 0 are the records with their quasi-identifiers, side 1 the sensitive values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal as OneOf

from kanon_db.counting.checking.query import Query
from kanon_db.counting.expressions import (
    Aggregate,
    And,
    Expression,
    NullTest,
    Or,
    attributes,
    conjoin,
    disjoin,
)
from kanon_db.counting.layout import BucketLayout

Side = OneOf[0, 1]
Sides = tuple[Expression | None, Expression | None]
"""A condition on records and one on sensitive values; None is no condition."""


def condition_of(query: Query, aggregate: Aggregate) -> Expression | None:
    """Return what a record must meet to be counted in an aggregate: NULLs are not."""
    parts = [] if query.where is None else [query.where]
    if aggregate.operand is not None:
        parts.append(NullTest(aggregate.operand, negated=True))
    return conjoin(parts)


def parts_of(condition: Expression | None) -> tuple[Expression, ...]:
    """Return the parts of a conjunction."""
    if condition is None:
        return ()
    return condition.parts if isinstance(condition, And) else (condition,)


def side_of(expression: Expression, layout: BucketLayout) -> Side | None:
    """Return the side that an expression depends on, None for both."""
    mentioned = attributes(expression)
    if layout.sensitive.name not in mentioned:
        return 0
    return 1 if len(mentioned) == 1 else None


def sides_of(query: Query, aggregate: Aggregate, layout: BucketLayout) -> set[Side | None]:
    """Return the sides of all that an aggregate depends on."""
    parts = [
        *parts_of(condition_of(query, aggregate)),
        *(key.expression for key in query.keys),
        *(() if aggregate.operand is None else (aggregate.operand,)),
    ]
    return {side_of(part, layout) for part in parts}


def by_side(
    parts: Sequence[Expression], layout: BucketLayout
) -> tuple[list[Expression], list[Expression], list[Expression]]:
    """Separate expressions into those on records, those on sensitive values, and the rest."""
    found: tuple[list[Expression], list[Expression], list[Expression]] = ([], [], [])
    for part in parts:
        side = side_of(part, layout)
        found[2 if side is None else side].append(part)
    return found


def factors(condition: Expression | None, layout: BucketLayout) -> Sides | None:
    """Split a conjunction by side; None where a part of it mentions both."""
    records, values, both = by_side(parts_of(condition), layout)
    return None if both else (conjoin(records), conjoin(values))


def disjoint_sides(
    query: Query, aggregate: Aggregate, layout: BucketLayout
) -> tuple[Expression, Expression] | None:
    """Split a disjunction of conditions on one side each; None for anything else.

    Only for a count without groups: the count of the records that meet neither gives it.
    """
    condition = condition_of(query, aggregate)
    if query.keys or aggregate.function != "count" or not isinstance(condition, Or):
        return None
    on_records, on_values, both = by_side(condition.parts, layout)
    records, values = disjoin(on_records), disjoin(on_values)
    return None if both or records is None or values is None else (records, values)
