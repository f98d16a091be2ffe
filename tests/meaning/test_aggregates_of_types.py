"""Every aggregate over every type, on every kind of publication: bounds contain the truth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from tests.integration.parties import Functions, Parties, fetch, parties
from tests.meaning.tables import EXACT, SCHEMA, make_schemas

__all__ = ["parties"]

N_RECORDS = 90

NUMBERS = {
    "small": "(i * 7 % 13)::smallint",
    "int_": "i * 7 % 13 * 1000 - 2000",
    "big": "3000000000 + i * 5 % 11::int8",
    "exact": "round(i * 7 % 13 * 0.37, 2)",
    "single": "((ARRAY[0.1, 0.2, 0.3, 0.7, 1.1, 2.3])[1 + i * 5 % 6])::real",
    "double_": "(i * 7 % 13)::float8 / 10",
}
FLOATS = {
    "single_nan": "CASE WHEN i % 9 = 0 THEN real 'NaN' ELSE (i % 4 * 0.1)::real END",
    "double_inf": "CASE WHEN i % 9 = 0 THEN float8 '-Infinity' ELSE i % 4 * 0.1 END",
}
OTHERS = {
    "day": "date '2020-01-01' + i * 7 % 13",
    "moment": "timestamp '2020-01-01' + i * 7 % 13 * interval '5 hours'",
    "instant": "timestamptz '2020-01-01 12:00+00' + i * 7 % 13 * interval '5 hours'",
    "span": "i * 7 % 13 * interval '5 hours'",
    "hour": "time '01:00' + i * 7 % 13 * interval '1 hour'",
    "word": "'w' || i * 7 % 13",
    "code": "('c' || i * 7 % 13)::char(5)",
    "flag": "i * 7 % 13 > 5",
    "grade": f"(ARRAY['low', 'middle', 'high'])[1 + i * 7 % 3]::{SCHEMA}.grade",
    "id": "md5((i * 7 % 13)::text)::uuid",
    "address": "inet '10.0.0.0' + i * 7 % 13",
    "raw": "decode(md5((i * 7 % 13)::text), 'hex')",
    "doc": "jsonb_build_object('n', i * 7 % 13)",
}
MOMENTS = ("day", "moment", "instant")
COLUMNS = {**NUMBERS, **FLOATS, **OTHERS}

OF_ALL = (
    "COUNT({0})", "COUNT(DISTINCT {0})", "COUNT({0}) FILTER (WHERE {0} IS NOT NULL AND age > 3)",
)  # fmt: skip
OF_NUMBERS = (
    *OF_ALL, "MIN({0})", "MAX({0}) FILTER (WHERE ill > 'd1')",
    "percentile_disc(0.25) WITHIN GROUP (ORDER BY {0})",
    "percentile_cont(0.6) WITHIN GROUP (ORDER BY {0})",
)  # fmt: skip
SUMS = ("SUM({0})", "AVG({0}) FILTER (WHERE age < 4)", "stddev({0})", "var_pop({0})")
REFUSED = ("mode() WITHIN GROUP (ORDER BY {0})", "string_agg({0}::text, ',')")

WAYS: dict[str, dict[str, Any]] = {
    "buckets": {"privacy": '{"default": 0.7}'},
    "generalized": {"k": 5, "method": "mondrian", "refine": False},
    "freeform": {"k": 5, "options": '{"refine": false}'},
    "suppressed": {"k": 5},
}
OF_CELLS = {
    "generalized": ("age", "single", "exact", "int_", "day"),
    "freeform": ("age", "single_nan", "double_", "big", "moment"),
    "suppressed": ("age",),
    "buckets": ("age", *COLUMNS),
}
"""The quasi-identifiers: of rows, all other columns are as in the source."""


@pytest.fixture(scope="module", autouse=True)
def publications(parties: Parties) -> None:
    make_schemas(parties.publisher)
    listed = ", ".join(f"{value} AS {name}" for name, value in COLUMNS.items())
    kanon = Functions(parties.publisher)
    for way, given in WAYS.items():
        source = f"{SCHEMA}.types_{way}"
        fetch(
            parties.publisher,
            f"CREATE TABLE {source} AS SELECT i % 3 AS age, 'd' || i % 4 AS ill, {listed}"
            f" FROM generate_series(1, {N_RECORDS}) AS i",
        )
        known = OF_CELLS[way]
        others = [name for name in COLUMNS if name not in known]
        kanon.register(source, known, "ill", insensitive=others)
        kanon.call(f"publish_{way}", source, f"types_{way}_p", **given)


def aggregates_of(column: str) -> tuple[str, ...]:
    forms = OF_ALL if column in OTHERS else OF_NUMBERS
    if column in MOMENTS:
        forms = (*forms, "MIN({0})", "MAX({0}) FILTER (WHERE ill > 'd1')")
    return tuple(form.format(column) for form in (*forms, *(SUMS if column in NUMBERS else ())))


def is_moment(aggregate: str) -> bool:
    return aggregate.startswith(tuple(f"M{name}({of})" for name in ("IN", "AX") for of in MOMENTS))


def bounds_of(parties: Parties, question: str) -> list[tuple[Any, ...]]:
    figures = "aggregate, estimate, lower_bound, upper_bound"
    return fetch(parties.analyst, f"SELECT {figures} FROM kanon.estimate($1)", question)


def truths_of(parties: Parties, aggregates: Sequence[str], relation: str) -> list[float | None]:
    """Ask the source; numbers of single precision are read as what they are, dates as seconds."""
    fetch(parties.admin, f"SET search_path = {EXACT}, pg_catalog")
    listed = ", ".join(
        f"({f'extract(epoch FROM {one})' if is_moment(one) else one})::float8" for one in aggregates
    )
    (row,) = fetch(parties.admin, f"SELECT {listed} FROM {relation}")
    return list(row)


def faults_of(parties: Parties, way: str, column: str, condition: str) -> list[str]:
    """Ask all aggregates of a column at once, of the publication and of the source."""
    aggregates = aggregates_of(column)
    where = f"WHERE {condition}"
    answers = bounds_of(parties, f"SELECT {', '.join(aggregates)} FROM types_{way}_p {where}")
    truths = truths_of(parties, aggregates, f"{SCHEMA}.types_{way} {where}")
    faults = []
    for (name, estimate, low, high), true in zip(answers, truths, strict=True):
        slack = 0.0 if true is None or not math.isfinite(true) else 1e-9 * max(1.0, abs(true))
        if true is None or math.isnan(true):
            continue
        if (low is not None and low > true + slack) or (high is not None and high < true - slack):
            faults.append(f"{name}: {low} to {high}, but {true} is true")
        if estimate is None and name.startswith("count"):
            faults.append(f"{name}: no estimate")
    return faults


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_bounds_contain_the_truth(parties: Parties, way: str) -> None:
    faults = {}
    for column in COLUMNS:
        source = f"{SCHEMA}.types_{way}"
        constants = fetch(
            parties.admin, f"SELECT DISTINCT {column}::text FROM {source} ORDER BY 1 LIMIT 3"
        )
        compared = " OR ".join(f"{column} = '{text}'" for (text,) in constants[1:])
        for condition in (f"age > 2 OR {compared}", f"ill = 'd1' OR {compared}"):
            if found := faults_of(parties, way, column, condition):
                faults[column, condition] = found
    assert faults == {}


@pytest.mark.long
@pytest.mark.parametrize("way", ["buckets", "generalized", "suppressed"])
def test_what_is_published_as_it_is_has_exact_answers(parties: Parties, way: str) -> None:
    for column in COLUMNS:
        if way != "buckets" and column in OF_CELLS[way]:
            continue
        wide = []
        asked = f"SELECT {', '.join(aggregates_of(column)[:2])} FROM types_{way}_p"
        if column in NUMBERS:
            asked = f"SELECT MIN({column}), SUM({column}), AVG({column}) FROM types_{way}_p"
        for name, estimate, low, high in bounds_of(parties, asked):
            if high - low > 1e-9 * max(1.0, abs(estimate)):
                wide.append((name, low, high))
        assert wide == [], column


@pytest.mark.parametrize("way", ["buckets", "generalized"])
def test_what_has_no_answer_is_refused(parties: Parties, way: str) -> None:
    """Sums of what is not finite, or no number, MIN of the latter, and other aggregates."""
    asked = [form.format(column) for column in FLOATS for form in SUMS[:1]]
    asked += [f"SUM({column})" for column in OTHERS]
    asked += [f"MIN({column})" for column in OTHERS if column not in MOMENTS]
    asked += [form.format("word") for form in REFUSED]
    for aggregate in asked:
        with pytest.raises(psycopg.Error) as refused:
            bounds_of(parties, f"SELECT {aggregate} FROM types_{way}_p")
        assert (refused.value.sqlstate, bool(refused.value.diag.message_hint)) == ("0A000", True)


ONCE_WRONG = (
    "MIN(single)", "percentile_disc(0.25) WITHIN GROUP (ORDER BY single)", "MAX(single)",
    "percentile_cont(0.9) WITHIN GROUP (ORDER BY single)",
)  # fmt: skip
"""A text such as 0.2 is another number as `real` than in double precision."""


@pytest.mark.parametrize("way", WAYS)
def test_percentiles_of_reals_where_conditions_join_columns(parties: Parties, way: str) -> None:
    for condition in ("age > 1 OR single > 0.5", "NOT (single < 0.3 AND age = 2)"):
        asked = f"SELECT {', '.join(ONCE_WRONG)} FROM types_{way}_p WHERE {condition}"
        truths = truths_of(parties, ONCE_WRONG, f"{SCHEMA}.types_{way} WHERE {condition}")
        for (_, _, low, high), true in zip(bounds_of(parties, asked), truths, strict=True):
            assert true is not None
            assert low is None or low <= true + 1e-9, asked
            assert high is None or high >= true - 1e-9, asked


NOT_FINITE = {
    "MIN(double_inf)": -math.inf, "MAX(double_inf)": 0.3, "COUNT(DISTINCT double_inf)": 5,
    "percentile_disc(0.05) WITHIN GROUP (ORDER BY double_inf)": -math.inf,
    "percentile_cont(0.112) WITHIN GROUP (ORDER BY double_inf)": None,
    "MAX(-double_inf)": math.inf,
    "percentile_disc(0.95) WITHIN GROUP (ORDER BY -double_inf)": math.inf,
    "percentile_cont(0.888) WITHIN GROUP (ORDER BY -double_inf)": math.inf,
    "MIN(single_nan)": 0, "MAX(single_nan)": None, "COUNT(DISTINCT single_nan)": 5,
    "percentile_disc(0.95) WITHIN GROUP (ORDER BY single_nan)": None,
}  # fmt: skip
"""What is exact of values that are not finite; None where a result is, or may be, NaN."""


@pytest.mark.parametrize("way", ["buckets", "generalized"])
def test_no_number_is_told_where_it_is_none(parties: Parties, way: str) -> None:
    answers = bounds_of(parties, f"SELECT {', '.join(NOT_FINITE)} FROM types_{way}_p")
    truths = truths_of(parties, list(NOT_FINITE), f"{SCHEMA}.types_{way}")
    for (name, estimate, low, high), wanted, true in zip(
        answers, NOT_FINITE.values(), truths, strict=True
    ):
        if wanted is None:
            assert true is not None
            assert math.isnan(true), name
            assert (estimate, low, high) == (None, None, None), name
        else:
            assert estimate == pytest.approx(true), name
            assert estimate == pytest.approx(wanted), name
            assert low <= wanted <= high, name
