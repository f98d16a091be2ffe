"""From a checked query to SQL over the published tables.

Every word of the statements is ours, every name was quoted by the server or the driver, and every
constant is a bound value: nothing of the analyst's text is run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kanon_db.counting.check import CountQuery
from kanon_db.counting.layout import BucketLayout, Column
from kanon_db.counting.predicate import (
    And,
    Comparison,
    Condition,
    Literal,
    Membership,
    Not,
    NullTest,
    Or,
    Predicate,
    Range,
)

_MAX_INT8: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL with its values: an array of texts, bound as ``$1`` where there are any."""

    text: str
    values: tuple[str, ...]


def rewrite(
    query: CountQuery,
    layout: BucketLayout,
    literal: Callable[[str], str] | None = None,
) -> Statement:
    """Write the statement that answers a query from QIT and SAT.

    It returns ``estimate, std_error, lower_bound, upper_bound`` in one row.

    Parameters
    ----------
    query : CountQuery
    layout : BucketLayout
    literal : callable, optional
        Quotes a value: the values are then part of the text, for people to read and run.

    Notes
    -----
    **Source:** estimate, [GB] section 3.2; bounds and hypergeometric variance, docs/estimation.md.
    """
    if query.sensitive is None:
        where = _Condition(query.quasi_identifiers, layout.quasi_identifiers, "q", literal)
        return Statement(_exact("count(*)", f"{layout.qit} AS q", where), where.values)
    sensitive = {layout.sensitive.name: layout.sensitive}
    if query.quasi_identifiers is None:
        where = _Condition(query.sensitive, sensitive, "s", literal)
        counted = f"coalesce(sum(s.{layout.count}), 0)"
        return Statement(_exact(counted, f"{layout.sat} AS s", where), where.values)
    left = _Condition(query.quasi_identifiers, layout.quasi_identifiers, "q", literal)
    right = _Condition(query.sensitive, sensitive, "s", literal, n_before=len(left.values))
    buckets = (
        f"SELECT q.{layout.bucket_id} AS bucket_id, count(*) AS q, m.s"
        f" FROM {layout.qit} AS q JOIN (SELECT s.{layout.bucket_id} AS bucket_id,"
        f" sum(s.{layout.count}) AS s FROM {layout.sat} AS s WHERE {right.sql}"
        f" GROUP BY s.{layout.bucket_id}) AS m ON m.bucket_id = q.{layout.bucket_id}"
        f" WHERE {left.sql} GROUP BY q.{layout.bucket_id}, m.s"
    )
    return Statement(_summed(buckets, layout), (*left.values, *right.values))


def _exact(counted: str, relation: str, where: _Condition) -> str:
    """Count on one side only: all four numbers agree."""
    return (
        "SELECT c.n::float8 AS estimate, 0::float8 AS std_error, c.n AS lower_bound,"
        f" c.n AS upper_bound FROM (SELECT {counted}::int8 AS n FROM {relation}"
        f" WHERE {where.sql}) AS c"
    )


def _summed(buckets: str, layout: BucketLayout) -> str:
    """Sum over buckets with q matching records and s matching values; equal ones count together."""
    share = "(s / size::float8)"
    return (
        f"SELECT coalesce(sum(n * q * {share}), 0)::float8 AS estimate,"
        f" sqrt(coalesce(sum(n * q * {share} * (1 - {share}) * (size - q)"
        " / greatest(size - 1, 1)), 0))::float8 AS std_error,"
        " coalesce(sum(n * greatest(q + s - size, 0)), 0)::int8 AS lower_bound,"
        " coalesce(sum(n * least(q, s)), 0)::int8 AS upper_bound"
        " FROM (SELECT q, s, size, count(*) AS n"
        f" FROM (SELECT q, s, {layout.size} AS size FROM ({buckets}) AS b) AS sized"
        " GROUP BY q, s, size) AS alike"
    )


def condition_statement(condition: Condition, column: Column, alias: str) -> Statement:
    """Write a condition on one column; its values are the array ``$2``."""
    written = _Condition(condition, {column.name: column}, alias, array="$2")
    return Statement(written.sql, written.values)


class _Condition:
    """One side's predicate as SQL.

    Attributes
    ----------
    sql : str
    values : tuple of str
        The constants, in the order of their places in the array.
    """

    def __init__(
        self,
        predicate: Predicate | None,
        columns: Mapping[str, Column],
        alias: str,
        literal: Callable[[str], str] | None = None,
        n_before: int = 0,
        array: str = "$1",
    ) -> None:
        self._columns = columns
        self._alias = alias
        self._literal = literal
        self._n_before = n_before
        self._array = array
        self._values: list[str] = []
        self.sql = "true" if predicate is None else self._write(predicate)
        self.values = tuple(self._values)

    def _write(self, predicate: Predicate) -> str:
        match predicate:
            case And(parts):
                return " AND ".join(f"({self._write(part)})" for part in parts)
            case Or(parts):
                return " OR ".join(f"({self._write(part)})" for part in parts)
            case Not(part):
                return f"NOT ({self._write(part)})"
            case NullTest(name, negated):
                return f"{self._name(name)} IS {'NOT ' if negated else ''}NULL"
            case Comparison(name, operator, literal):
                return self._compare(name, operator, literal)
            case Range(name, low, high, negated):
                inside = f"{self._compare(name, '>=', low)} AND {self._compare(name, '<=', high)}"
                return f"NOT ({inside})" if negated else inside
            case Membership(name, literals, negated):
                return self._member(name, literals, negated=negated)

    def _member(self, name: str, literals: tuple[Literal, ...], *, negated: bool) -> str:
        column = self._columns[name]
        if column.operator_schema is None:
            # PostgreSQL takes the constants of IN (not of =) for the column's own float type.
            own_type = column.type_name if column.category == "float" else None
            listed = ", ".join(self._value(column, literal, own_type) for literal in literals)
            return f"{self._name(name)} {'NOT IN' if negated else 'IN'} ({listed})"
        # IN would look its operator up by name, in pg_catalog.
        either = " OR ".join(self._compare(name, "=", literal) for literal in literals)
        return f"NOT ({either})" if negated else f"({either})"

    def _compare(self, name: str, operator: str, literal: Literal) -> str:
        column = self._columns[name]
        if column.operator_schema is not None:
            operator = f"OPERATOR({column.operator_schema}.{operator})"
        return f"{self._name(name)} {operator} {self._value(column, literal)}"

    def _name(self, name: str) -> str:
        return f"{self._alias}.{self._columns[name].sql}"

    def _value(self, column: Column, literal: Literal, own_type: str | None = None) -> str:
        self._values.append(literal.text)
        type_name, is_constant = sent_type(column, literal)
        type_name = own_type or type_name
        if self._literal is not None:
            return f"{self._literal(literal.text)}::{type_name}"
        value = f"({self._array}::text[])[{self._n_before + len(self._values)}]::{type_name}"
        # Read once, not for each row, where the planner cannot do that by itself.
        return value if is_constant else f"(SELECT {value})"


def sent_type(column: Column, literal: Literal) -> tuple[str, bool]:
    """Return the type a constant is sent as, and whether its text input is immutable.

    As PostgreSQL: a number keeps its own type, so that ``age > 30.5`` is no error; a quoted
    constant takes the column's.
    """
    match literal.kind:
        case "number" if column.category == "float":
            return "float8", True
        case "number":
            digits = literal.text.lstrip("-")
            fits = digits.isdecimal() and len(digits) < 20 and int(digits) <= _MAX_INT8
            return ("int8" if fits and column.category == "integer" else "numeric"), True
        case "boolean":
            return "bool", True
        case "date" | "timestamp":
            return literal.kind, False
        case "string":
            return column.type_name, column.has_constant_input
