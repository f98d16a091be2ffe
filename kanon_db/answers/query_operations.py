"""Declares the operations that answer queries.

They stand apart from all others, since an analyst's first call waits for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kanon_db.declaration import EVERYBODY, TEXT, Operation, columns, parameter, value


@dataclass(frozen=True, kw_only=True)
class QueryRequest:
    """The text of a query."""

    query: str = parameter(
        TEXT, "A query, such as SELECT COUNT(*) FROM name WHERE age > 30.", is_positional=True
    )


_ESTIMATED: Final = {
    "estimate": "double precision",
    "std_error": "double precision",
    "lower_bound": "bigint",
    "upper_bound": "bigint",
}
_UNBOUNDED: Final = dict.fromkeys(_ESTIMATED, "double precision")
_VALUE_OF_A_QUERY: Final[dict[str, Any]] = {
    "request": QueryRequest,
    "audience": EVERYBODY,
    "is_stable": True,
}
_ROWS_OF_A_QUERY: Final[dict[str, Any]] = {**_VALUE_OF_A_QUERY, "is_many": True}

# A table, as in `kanon_db.operations`.
# fmt: off
QUESTIONS: Final = (
    Operation(
        "estimate_count", "estimate a COUNT query from a publication, with certain bounds",
        "kanon_db.answers.estimates:estimate_count", columns(**_ESTIMATED),
        row_class="kanon_db.query.formulas:Estimated", **_VALUE_OF_A_QUERY,
    ),
    Operation(
        "estimate_counts", "estimate a COUNT query with GROUP BY, a row for each group",
        "kanon_db.answers.estimates:estimate_counts",
        columns(group_key="jsonb", **_ESTIMATED), **_ROWS_OF_A_QUERY,
    ),
    Operation(
        "estimate",
        "estimate the aggregates of a query, a row for each group and aggregate",
        "kanon_db.answers.estimates:estimate",
        columns(group_key="jsonb", aggregate="text", **_UNBOUNDED), **_ROWS_OF_A_QUERY,
    ),
    Operation(
        "explain_count", "say which parts of a query are exact, which are estimated, and how",
        "kanon_db.answers.measures:explain_count",
        columns(part="text", description="text", accuracy="text", std_error="double precision"),
        **_ROWS_OF_A_QUERY,
    ),
    Operation(
        "rewrite_count", "the paper's estimate of a query, as one readable SQL statement",
        "kanon_db.answers.measures:rewrite_count", value("text"), **_VALUE_OF_A_QUERY,
    ),
)
# fmt: on
