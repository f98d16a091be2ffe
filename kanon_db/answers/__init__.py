"""Answers queries from publications, with the caller's own rights.

`scope` looks up what a query's names mean, `plan` divides what is asked by sides, and `estimates`
answers it: from the codes of `buckets`, or of the cells of `rows`; `tries` asks the server what
holds for distinct values. `measures` answers MIN, MAX, percentiles and DISTINCT, and `rewrite`
writes an answer as one statement.

The operations that answer queries are declared here, apart from all others, which an analyst's
first call would have to wait for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from decimal import Decimal
from typing import Any, Final

from kanon_db.dataclasses import dataclass
from kanon_db.declaration import (
    EVERYBODY,
    TEXT,
    Operation,
    ParameterType,
    columns,
    parameter,
    refused,
    value,
)
from kanon_db.figures import FIGURES, FigureRule


def _read_values(given: Any, name: str) -> Mapping[str, Any] | Sequence[Any]:
    """Read the values of a query's parameters, with all digits of its numbers."""
    values = given
    if isinstance(given, str):
        with suppress(ValueError, RecursionError):
            values = json.loads(given, parse_float=Decimal)
    if not isinstance(values, Mapping | list | tuple):
        raise refused(name, "a JSON array or object")
    if isinstance(values, Mapping):
        return {str(key): _read_value(value) for key, value in values.items()}
    return [_read_value(value) for value in values]


def _read_value(value: Any) -> Any:
    """Read a value that Python passes: dates as texts, sets and arrays as lists."""
    if isinstance(value, date):
        return str(value)
    if hasattr(value, "tolist"):  # numpy's
        value = value.tolist()
    return [*map(_read_value, value)] if isinstance(value, set | list | tuple) else value


VALUES: Final = ParameterType(
    "jsonb", "str | Sequence[Any] | Mapping[str, Any]", _read_values, "JSON"
)
"""The type of the values of a query's parameters."""


@dataclass(frozen=True, kw_only=True)
class QueryRequest:
    """The text of a query, and what it is asked with."""

    query: str = parameter(
        TEXT, "A query, such as SELECT COUNT(*) FROM name WHERE age > 30.", is_positional=True
    )
    params: Mapping[str, Any] | Sequence[Any] | None = parameter(
        VALUES,
        "The values of its parameters: '[30, \"flu\"]' for $1 and $2 (or ?, %s),"
        " '{\"x\": 30}' for :x (or %(x)s). They are constants of the query, whatever they hold.",
        default=None,
        follows=1,
    )
    publication: str | None = parameter(
        TEXT,
        "The publication that answers it, where FROM names the publication's source.",
        default=None,
        follows=1,
    )


@dataclass(frozen=True, kw_only=True)
class EstimateRequest(QueryRequest):
    """The text of a query, and how its answer is shown."""

    figures: FigureRule | None = parameter(
        FIGURES,
        'The rule by which figures are shown, such as \'{"least": 6, "round": 5}\': counts are 0 or'
        " at least 6, rounded to 5, and there are no sums of fewer people. That of the publication"
        " holds, too.",
        default=None,
    )


_ESTIMATED: Final = {
    "estimate": "double precision",
    "std_error": "double precision",
    "lower_bound": "bigint",
    "upper_bound": "bigint",
    "likely_low": "double precision",
    "likely_high": "double precision",
}
_UNBOUNDED: Final = dict.fromkeys(_ESTIMATED, "double precision")
_VALUE_OF_A_QUERY: Final[dict[str, Any]] = {
    "request": QueryRequest,
    "audience": EVERYBODY,
    "is_stable": True,
}
_SHOWN: Final = {**_VALUE_OF_A_QUERY, "request": EstimateRequest}
_ROWS_OF_A_QUERY: Final[dict[str, Any]] = {**_VALUE_OF_A_QUERY, "is_many": True}

# A table, as in `kanon_db.operations`.
# fmt: off
QUESTIONS: Final = (
    Operation(
        "estimate_count", "estimate a COUNT query from a publication, with certain bounds",
        "kanon_db.answers.estimates:estimate_count", columns(**_ESTIMATED),
        row_class="kanon_db.query.formulas:Estimated", **_SHOWN,
    ),
    Operation(
        "estimate_counts", "estimate a COUNT query with GROUP BY, a row for each group",
        "kanon_db.answers.estimates:estimate_counts",
        columns(group_key="jsonb", **_ESTIMATED), is_many=True, **_SHOWN,
    ),
    Operation(
        "estimate",
        "estimate the aggregates of a query, a row for each group and aggregate",
        "kanon_db.answers.estimates:estimate",
        columns(group_key="jsonb", aggregate="text", **_UNBOUNDED), is_many=True,
        **_SHOWN,
    ),
    Operation(
        "explain_count", "say which parts of a query are exact, which are estimated, and how",
        "kanon_db.answers.estimates:explain_count",
        columns(part="text", description="text", accuracy="text", std_error="double precision"),
        **_ROWS_OF_A_QUERY,
    ),
    Operation(
        "rewrite_count", "the estimates of a query, as one readable SQL statement",
        "kanon_db.answers.estimates:rewrite_count", value("text"), **_VALUE_OF_A_QUERY,
    ),
)
# fmt: on
