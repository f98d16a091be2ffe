"""Writing FROM clauses: a published relation with the lookup tables that a query joins to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kanon_db.counting.expressions import Column, Distinct, Expression, columns
from kanon_db.counting.layout import Lookup
from kanon_db.counting.writing.sql import Constants, Spelling, write


def speller(alias: str) -> Spelling:
    """Name the publication's columns by their relation's alias, lookup columns by their table's."""

    def spell(column: Column) -> str:
        where = alias if column.lookup is None else f"l{column.lookup}"
        return f"{where}.{column.sql}"

    return spell


def same_value(column: Column, one: str, other: str) -> str:
    """Write whether two pieces of SQL have the same value of a column's type, or are both NULL."""
    left, right = (replace(column, sql=sql) for sql in (one, other))
    return write(Distinct(left, right, negated=True), lambda part: part.sql, Constants())


def joined(
    relation: str,
    alias: str,
    expressions: Sequence[Expression | None],
    lookups: Sequence[Lookup],
    on: Mapping[str, str] | None = None,
) -> list[str]:
    """Write a relation with the lookup tables that the expressions need.

    Parameters
    ----------
    relation, alias : str
    expressions : sequence of Expression
    lookups : sequence of Lookup
    on : mapping of str to str, optional
        SQL of a publication's columns where they are not ``alias.column``.

    Returns
    -------
    list of str
        The relation, then each join.

    Notes
    -----
    Every join is an outer one, so that it neither loses nor repeats a record: what an inner join
    asks is a condition of its own (:class:`~kanon_db.counting.expressions.Matched`).
    """
    found = [f"{relation} AS {alias}"]
    numbers = {column.lookup for expression in expressions for column in columns(expression)}
    for number in sorted(number for number in numbers if number is not None):
        lookup = lookups[number]
        own = (on or {}).get(lookup.on.name, f"{alias}.{lookup.on.sql}")
        table = f"l{number}"
        found.append(f"LEFT JOIN {lookup.relation} AS {table} ON {table}.{lookup.key.sql} = {own}")
    return found
