"""Types are written so that PostgreSQL reads the same ones."""

from __future__ import annotations

import pglast
import pytest
from pglast import ast
from sqlglot import exp

from kanon_db.answers._statement_nodes import cast

NAMES = (
    "bigint", "bit varying", "boolean", "bpchar", "bytea", "character varying", "cidr", "date",
    "double precision", "inet", "integer", "interval", "json", "jsonb", "macaddr", "macaddr8",
    "money", "name", "numeric", "oid", "pg_lsn", "real", "regclass", "smallint", "text",
    "time with time zone", "time without time zone", "timestamp with time zone",
    "timestamp without time zone", "tsvector", "uuid", "xml", '"bit"', '"char"', "data.grade",
)  # fmt: skip
"""As `format_type` writes types without modifiers."""


def read(sql: str) -> tuple[list[str], object, bool]:
    """How PostgreSQL reads the type of a cast: its name, modifiers, and whether it is an array."""
    statement = pglast.parse_sql(f"SELECT {sql}")[0].stmt
    type_ = statement.targetList[0].val.typeName
    names = [part.sval for part in type_.names if isinstance(part, ast.String)]
    return names, type_.typmods, type_.arrayBounds is not None


@pytest.mark.parametrize("name", [*NAMES, *(f"{name}[]" for name in NAMES)])
def test_a_cast_is_to_the_type_that_is_named(name: str) -> None:
    written = cast(exp.Null(), name).sql(dialect="postgres")
    names, *rest = read(written)
    expected, *others = read(f"CAST(NULL AS {name})")
    assert (names[-1].replace("bit varying", "varbit"), rest) == (expected[-1], others)
