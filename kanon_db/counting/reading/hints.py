"""What to write instead of a word, or a function, that a count query cannot have."""

from __future__ import annotations

from typing import Final

_EXTRACT: Final = "write EXTRACT(YEAR FROM <column>), or date_trunc('month', <column>)"
_LOOKUP: Final = (
    "join a lookup table that has the result for each value, or compare with LIKE or ILIKE"
)
_MEANS: Final = (
    "ask for AVG(x) and AVG(x * x): AVG(x * x) - AVG(x) * AVG(x) is the variance of a population"
)
_ONE_BY_ONE: Final = "ask a query for each"
_ROUND: Final = "write CAST(x AS integer), which rounds, or a condition like x >= 1 AND x < 2"
_TODAY: Final = "write the date, as DATE '2024-01-31'"
_WITHOUT: Final = "leave it out: an answer only reads the publication"

HINTS: Final = {
    **dict.fromkeys(("any", "array", "some"), "write IN (...)"),
    "all": "leave ALL out, or compare with each value by AND",
    "collate": "leave it out: texts are compared as on the source",
    "cross": "write JOIN <schema>.<lookup table> ON a = b",
    **dict.fromkeys(("full", "natural", "right"), "write LEFT JOIN ... ON a = b, or USING (a)"),
    "isnull": "write IS NULL",
    "notnull": "write IS NOT NULL",
    "fetch": "write LIMIT",
    "similar": "write LIKE",
    **dict.fromkeys(("asymmetric", "symmetric"), "write BETWEEN with the lower value first"),
    "materialized": "leave it out",
    **dict.fromkeys(("for", "into", "lateral", "only", "tablesample"), _WITHOUT),
    **dict.fromkeys(("union", "intersect", "except"), _ONE_BY_ONE),
    **dict.fromkeys(
        ("exists", "select"),
        "write IN (1, 2, 3), or join a lookup table with the values that are meant",
    ),
    **dict.fromkeys(
        ("over", "window"),
        "write GROUP BY; shares of the whole are 100.0 * COUNT(*) FILTER (WHERE ...) / COUNT(*)",
    ),
    "overlaps": "write two comparisons, as in a <= DATE '2024-01-31' AND b >= DATE '2024-01-01'",
    **dict.fromkeys(("rollup", "cube", "grouping", "sets"), "ask a query for each GROUP BY"),
    "row": "compare column by column, with AND",
    "values": "write IN (...)",
    "operator": "write the operator alone",
    "filter": "write COUNT(*) FILTER (WHERE ...)",
    "within": "write percentile_cont(0.5) WITHIN GROUP (ORDER BY <column>)",
    "distinct": "write SELECT DISTINCT a, b, or COUNT(DISTINCT a)",
    "median": "write percentile_cont(0.5) WITHIN GROUP (ORDER BY <column>)",
    "mode": "write SELECT x, COUNT(*) ... GROUP BY x ORDER BY 2 DESC LIMIT 1",
    # functions
    **dict.fromkeys(("current_date", "current_timestamp", "localtimestamp", "now"), _TODAY),
    **dict.fromkeys(
        ("upper", "lower", "initcap", "trim", "btrim", "ltrim", "rtrim", "replace", "concat"),
        _LOOKUP,
    ),
    **dict.fromkeys(
        ("substring", "substr", "left", "split_part", "position", "strpos", "length"),
        "compare with LIKE, as in x LIKE 'ab%' or x LIKE '___', or join a lookup table",
    ),
    **dict.fromkeys(("regexp_match", "regexp_like", "regexp_replace"), "write LIKE or ILIKE"),
    **dict.fromkeys(("to_char", "make_date", "to_date"), _EXTRACT),
    **dict.fromkeys(("ceil", "ceiling", "floor", "trunc"), _ROUND),
    "width_bucket": "write CASE WHEN x < 10 THEN 1 WHEN x < 20 THEN 2 ELSE 3 END",
    "abs": "write CASE WHEN x < 0 THEN -x ELSE x END",
    "mod": "write x % 2",
    **dict.fromkeys(("power", "pow", "sqrt"), "write x * x; a root is compared by its square"),
    **dict.fromkeys(
        ("greatest", "least"), "write CASE WHEN a > b THEN a ELSE b END"
    ),
    **dict.fromkeys(
        ("stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp"), _MEANS
    ),
    **dict.fromkeys(
        ("bool_and", "bool_or", "every"),
        "write COUNT(*) FILTER (WHERE ...): its bounds say whether there is one",
    ),
    **dict.fromkeys(
        ("array_agg", "string_agg", "json_agg", "jsonb_agg"), "SELECT DISTINCT lists the values"
    ),
    **dict.fromkeys(
        ("rank", "dense_rank", "row_number", "ntile"), "write ORDER BY ... LIMIT"
    ),
}  # fmt: skip
