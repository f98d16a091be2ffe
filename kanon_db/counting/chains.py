"""The order of the parts of AND and OR in statements."""

from __future__ import annotations

from kanon_db.counting.expressions import And, Expression, Or, attributes, joined


def by_attribute(condition: Expression) -> Expression:
    """Bring the parts of a chain that depend on one attribute together, so as to read it once."""
    if not isinstance(condition, And | Or):
        return condition
    grouped: dict[object, list[Expression]] = {}
    for number, part in enumerate(condition.parts):
        mentioned = attributes(part)
        grouped.setdefault(mentioned if len(mentioned) == 1 else number, []).append(part)
    kind = type(condition)
    parts = [one for group in grouped.values() if (one := joined(kind, group)) is not None]
    return parts[0] if len(parts) == 1 else kind(tuple(parts))
