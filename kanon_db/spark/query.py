"""A query of a publication in files: its statements are translated, and run by Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from decimal import Decimal
from typing import Any, Final

from kanon_db.answers.evidence import NotReadError
from kanon_db.answers.scope import OpenQuery
from kanon_db.errors import ServerError, UnsupportedQueryError
from kanon_db.query.expressions import refusal
from kanon_db.session.protocol import Row, Value

IN_POSTGRESQL: Final = "load the publication into PostgreSQL (kanon spark load), and ask there"


def only_in_postgresql() -> UnsupportedQueryError:
    """Make the refusal of what takes PostgreSQL's ranges, or more memory than the driver has."""
    return refusal(
        "this is answered by a statement over ranges and sets, which Spark cannot run",
        hint=IN_POSTGRESQL,
        detail="rows are asked here where conditions and groups have few enough values to try them"
        " one by one",
    )


@contextmanager
def read_or_refused() -> Iterator[None]:
    """Refuse what has too many values.

    Raises
    ------
    UnsupportedQueryError
    """
    try:
        yield
    except NotReadError:
        raise only_in_postgresql() from None


class SparkQuery(OpenQuery):
    """A query of a publication in files."""

    def frugal(self) -> AbstractContextManager[None]:
        """Leave memory to Spark's own settings."""
        return nullcontext()

    def fetch(self, statement: str, *values: Value) -> list[Row]:
        """Run a statement of this query; keys of groups are written as PostgreSQL does."""
        with self._own_words():
            rows = self.session.fetch(statement, *values)
        return [
            {**row, "group_key": group_key(row["group_key"])} if "group_key" in row else row
            for row in rows
        ]

    @contextmanager
    def _own_words(self) -> Iterator[None]:
        """Say in our own words why a statement of the query failed.

        Raises
        ------
        UnsupportedQueryError
            Where it is the query's fault.
        """
        try:
            yield
        except ServerError as error:
            what = error.detail.partition(".")[0]
            if what in _ARITHMETIC:
                raise refusal(
                    "the query's arithmetic fails on some value",
                    hint="exclude such values with CASE or another condition",
                    detail=what,
                ) from None
            if what.isupper() and what not in _FAILED:
                raise refusal(
                    "the query cannot be answered on Spark", hint=IN_POSTGRESQL, detail=what
                ) from None
            raise


_ARITHMETIC: Final = (
    "DIVIDE_BY_ZERO", "ARITHMETIC_OVERFLOW", "BINARY_ARITHMETIC_OVERFLOW", "CAST_OVERFLOW",
    "NUMERIC_VALUE_OUT_OF_RANGE", "DECIMAL_PRECISION_EXCEEDS_MAX_PRECISION",
)  # fmt: skip
_FAILED: Final = ("FAILED_READ_FILE", "INTERNAL_ERROR", "CONNECT", "JOB_CANCELLED")
"""Conditions of Spark that say nothing about the query."""


def group_key(text: str) -> str:
    """Write a group's key as jsonb does."""
    found = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    items = sorted(found.items(), key=lambda item: (len(item[0].encode()), item[0].encode()))
    return "{" + ", ".join(f"{plain(name)}: {plain(value)}" for name, value in items) + "}"


def value_of_key(text: str) -> str:
    """Write the only value of a group's key, as jsonb does."""
    (value,) = json.loads(text, parse_float=Decimal, parse_int=Decimal).values()
    return plain(value)


def plain(value: Any) -> str:
    """Write a value of a group's key as jsonb does."""
    return f"{value:f}" if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)
