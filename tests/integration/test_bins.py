"""The bins of random values, as PostgreSQL calculates them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kanon_db.catalog.attributes import BINNED, UNITS
from kanon_db.publications.rows.recoded_cells import bin_of, element_of
from kanon_db.transfer.columns import ColumnType
from tests.integration.parties import Parties, fetch
from tests.profiles import examples

_VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "integer": st.integers(-(2**31), 2**31 - 1) | st.integers(-200, 200),
    "bigint": st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200),
    "numeric": st.decimals(-(10**9), 10**9, allow_nan=False, places=3),
    "real": st.floats(-1e6, 1e6, width=32),
    "double precision": st.floats(-1e12, 1e12) | st.integers(-50, 50).map(lambda i: i / 10),
    "date": st.dates(date(1, 1, 8), date(9998, 1, 1)),
    "timestamp without time zone": st.datetimes(datetime(1, 1, 8), datetime(9998, 1, 1)),
    "timestamp with time zone": st.datetimes(datetime(1, 1, 8), datetime(9998, 1, 1)),
}


@st.composite
def coarsened(draw: st.DrawFn) -> tuple[str, list[str], dict[str, Any]]:
    """A type, values of it, and how they are coarsened."""
    type_ = draw(st.sampled_from(sorted(_VALUES)))
    values = _VALUES[type_]
    described: dict[str, Any] = {}
    ends = sorted((draw(values), draw(values)))
    for key, end in zip(("bottom", "top"), ends, strict=True):
        if draw(st.booleans()):
            described[key] = str(end)
    if not described or draw(st.booleans()):
        whole = type_ in ("smallint", "integer", "bigint")
        widths = st.integers(1, 10**6) if whole else st.floats(1e-3, 1e6)
        units = [unit for unit in UNITS if (type_, unit) != ("date", "hour")]
        is_time = type_.startswith(("date", "time"))
        described["round"] = draw(st.sampled_from(units) if is_time else widths)
    found = draw(st.lists(values, min_size=1, max_size=30))
    return type_, [str(value) for value in found + ends], described


@settings(max_examples=examples(100))
@given(case=coarsened())
def test_every_value_lies_in_its_bin(
    parties: Parties, case: tuple[str, list[str], dict[str, Any]]
) -> None:
    """And bins do not overlap: two values are in one, or one bin ends before the other begins."""
    type_, values, described = case
    column = ColumnType("x", type_, "N", None, has_constant_input=True)
    low, high = bin_of(column, described, "e.x")
    given_keys = [key for key in BINNED if key in described]
    bound = [str(described[key]) for key in given_keys if described[key] not in UNITS]
    is_closed = str("round" not in described).lower()
    rows = fetch(
        parties.publisher,
        f"SELECT DISTINCT e.x >= b.low IS FALSE OR (e.x < b.high OR e.x = b.high AND {is_closed})"
        " IS FALSE AS is_outside, lead(b.low) OVER w IS NOT NULL AND coalesce("
        " NOT (lead(b.low) OVER w >= b.high OR (lead(b.low) OVER w, lead(b.high) OVER w)"
        " IS NOT DISTINCT FROM (b.low, b.high)), true) AS overlaps"
        f" FROM (SELECT {element_of(column, 'v')} AS x FROM"
        f" unnest(${len(bound) + 1}::text[]::{type_}[]) AS v) AS e"
        f" CROSS JOIN LATERAL (SELECT {low} AS low, {high} AS high) AS b"
        " WINDOW w AS (ORDER BY b.low NULLS FIRST, b.high NULLS LAST)",
        *bound,
        values,
    )
    assert rows == [(False, False)]
