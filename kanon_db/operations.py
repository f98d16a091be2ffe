"""The operations, each declared once: the SQL functions, Python methods and commands follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import kanon_db
import kanon_db.publications.kinds  # registers them
from kanon_db.declaration import (
    EVERYBODY,
    NAMES,
    RELATION,
    TEXT,
    Operation,
    columns,
    json_object,
    numbers,
    parameter,
    value,
    whole,
    wholes,
)
from kanon_db.publications.registry import KINDS
from kanon_db.publications.suppressed.request import PatternsRequest
from kanon_db.session import Session


@dataclass(frozen=True, kw_only=True)
class NoParameters:
    """Parameters of an operation without any."""


@dataclass(frozen=True, kw_only=True)
class RegisterRequest:
    """Parameters of `register_source`."""

    source: str = parameter(
        RELATION,
        "A table, partitioned table, foreign table, view or materialized view, such as"
        " 'public.census'.",
        is_positional=True,
    )
    quasi_identifiers: tuple[str, ...] = parameter(
        NAMES, "Columns that others may know of a person."
    )
    sensitive: str | None = parameter(TEXT, "Column to protect.", default=None, metavar="NAME")
    identifiers: tuple[str, ...] = parameter(NAMES, "Columns never to publish.", default=())
    attributes: Mapping[str, Any] | None = parameter(
        json_object(dict, is_exact=False),
        "Kinds, bounds and weights of quasi-identifiers, such as"
        ' \'{"age": {"kind": "numeric", "lower": 0, "upper": 120, "weight": 0.4}}\'.',
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class NameRequest:
    """The name of a publication."""

    name: str = parameter(TEXT, "The publication.", is_positional=True)


@dataclass(frozen=True, kw_only=True)
class QueryRequest:
    """The text of a query."""

    query: str = parameter(
        TEXT, "Such as SELECT COUNT(*) FROM name WHERE age > 30.", is_positional=True
    )


@dataclass(frozen=True, kw_only=True)
class EvaluateRequest:
    """Parameters of `evaluate_counts`."""

    name: str = parameter(TEXT, "The publication: buckets.", is_positional=True)
    queries: int = parameter(whole(most=100_000), "How many queries.", default=1000)
    dimensionality: tuple[int, ...] | None = parameter(
        wholes(),
        "Numbers of quasi-identifiers with a condition, of which each query draws one; any number"
        " by default.",
        default=None,
    )
    selectivity: tuple[float, ...] | None = parameter(
        numbers(most=1),
        "Expected shares of matching records, of which each query draws one; 0.01, 0.05 and 0.1 by"
        " default.",
        default=None,
    )
    seed: int | None = parameter(
        whole(least=0, sql="bigint"), "The same seed draws the same queries.", default=None
    )


_ESTIMATED: Final = {
    "estimate": "double precision",
    "std_error": "double precision",
    "lower_bound": "bigint",
    "upper_bound": "bigint",
}
_UNBOUNDED: Final = dict.fromkeys(_ESTIMATED, "double precision")


def version(_session: Session) -> str:
    """Return the version of the package that the server runs."""
    return kanon_db.__version__


_OTHERS: Final = (
    Operation(
        name="version",
        request=NoParameters,
        help="version of kanon_db",
        function="kanon_db.operations:version",
        result=value("text"),
        audience=EVERYBODY,
        is_stable=True,
    ),
    Operation(
        name="register_source",
        request=RegisterRequest,
        help="describe microdata: quasi-identifiers, sensitive attribute, identifiers; returns its"
        " id",
        details="A source that is registered again gets the new description, unless it has"
        " publications.",
        function="kanon_db.catalog.sources:register_source",
        result=value("bigint"),
        command=("register",),
    ),
    Operation(
        name="suppression_patterns",
        request=PatternsRequest,
        help="the pattern vectors that a list or rules allow, in the order in which they are tried",
        function="kanon_db.publications.suppressed.patterns:suppression_patterns",
        result=columns(
            position="integer", pattern="text", suppressed="text[]", cost="double precision"
        ),
        is_many=True,
        is_stable=True,
        command=("patterns",),
    ),
    Operation(
        name="verify",
        request=NameRequest,
        help="check a publication from its published relations alone",
        function="kanon_db.publications.examination:verify",
        result=columns(check="text", bound="text", measured="text", holds="boolean"),
        is_many=True,
        audience=EVERYBODY,
        command=("verify",),
    ),
    Operation(
        name="metrics",
        request=NameRequest,
        help="measure a publication from its published relations",
        function="kanon_db.publications.examination:metrics",
        result=columns(metric="text", value="double precision"),
        is_many=True,
        audience=EVERYBODY,
        command=("metrics",),
    ),
    Operation(
        name="evaluate_counts",
        request=EvaluateRequest,
        help="relative errors of a bucketization's answers to random count queries, beside its"
        " source",
        function="kanon_db.answering.evaluation:evaluate_counts",
        result=columns(
            expected_selectivity="double precision",
            n_queries="bigint",
            undefined="bigint",
            mean_relative_error="double precision",
            median_relative_error="double precision",
        ),
        is_many=True,
        command=("evaluate",),
    ),
    Operation(
        name="drop_publication",
        request=NameRequest,
        help="drop a publication: its relations and its entry in the catalog",
        function="kanon_db.publications.lifecycle:drop_publication",
        command=("drop",),
    ),
    Operation(
        name="estimate_count",
        request=QueryRequest,
        help="estimate a COUNT query from a publication, with certain bounds",
        function="kanon_db.answering.estimates:estimate_count",
        result=columns(**_ESTIMATED),
        row_class="kanon_db.counting.answers:Estimated",
        audience=EVERYBODY,
        is_stable=True,
    ),
    Operation(
        name="estimate_counts",
        request=QueryRequest,
        help="estimate a COUNT query with GROUP BY, a row for each group",
        function="kanon_db.answering.estimates:estimate_counts",
        result=columns(group_key="jsonb", **_ESTIMATED),
        is_many=True,
        audience=EVERYBODY,
        is_stable=True,
    ),
    Operation(
        name="estimate",
        request=QueryRequest,
        help="estimate the counts, sums and averages of a query, a row for each group and"
        " aggregate",
        function="kanon_db.answering.estimates:estimate",
        result=columns(group_key="jsonb", aggregate="text", **_UNBOUNDED),
        is_many=True,
        audience=EVERYBODY,
        is_stable=True,
    ),
    Operation(
        name="explain_count",
        request=QueryRequest,
        help="say what of a query's answer is exact, what is estimated, and how",
        function="kanon_db.answering.estimates:explain_count",
        result=columns(
            part="text", description="text", accuracy="text", std_error="double precision"
        ),
        is_many=True,
        audience=EVERYBODY,
        is_stable=True,
    ),
    Operation(
        name="rewrite_count",
        request=QueryRequest,
        help="the SQL that answers a COUNT query, as text",
        function="kanon_db.answering.estimates:rewrite_count",
        result=value("text"),
        audience=EVERYBODY,
        is_stable=True,
    ),
)


def operations() -> dict[str, Operation]:
    """Return all operations by name, those of the registered kinds among them."""
    publishing = [kind.operation for kind in KINDS.values()]
    return {operation.name: operation for operation in (*_OTHERS, *publishing)}
