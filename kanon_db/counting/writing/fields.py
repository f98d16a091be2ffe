"""The bytes of a row of a piece, as SQL; `kanon_db.counting.read_pieces` reads them."""

from __future__ import annotations


def flag(sql: str) -> str:
    """Write whether something is true: a byte."""
    return f"boolsend(coalesce({sql}, false))"


def number(sql: str) -> str:
    """Write a number, after a byte: 1 if it is missing, 2 if it is no finite number."""
    value = f"({sql})::float8"
    odd = f"coalesce({value} IN ('NaN', 'Infinity', '-Infinity'), false)"
    return f"boolsend({value} IS NULL) || boolsend({odd}) || float8send(coalesce({value}, 0))"
