"""Quasi-identifiers that are coarsened before the search: what is published, and what it tells."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.types.range import Range

from kanon_db.catalog.attributes import BINNED, UNITS
from kanon_db.publications.rows.recoded_cells import bin_of as bin_sql
from kanon_db.publications.rows.recoded_cells import element_of
from kanon_db.transfer.columns import ColumnType
from tests.integration.parties import (
    Functions,
    Parties,
    create_source,
    create_table,
    fetch,
    holds,
    sqlstate_of,
    value,
)
from tests.integration.row_checks import check_bounds
from tests.profiles import examples, long_but

INVALID, MISMATCH = "22023", "42804"
COLUMNS = {
    "age": "int", "hours": "smallint", "born": "date", "seen": "timestamp", "called": "timestamptz",
    "wage": "numeric", "height": "real", "ratio": "float8",
}  # fmt: skip
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "age": {"round": 7, "top": 70, "bottom": 20},
    "hours": {"top": 40},
    "born": {"round": "quarter", "top": "1990-02-01"},
    "seen": {"round": "hour", "bottom": "2020-01-03 12:00"},
    "called": {"round": "week"},
    "wage": {"round": 250, "top": 3000},
    "height": {"round": 0.5, "bottom": 155.1},
    "ratio": {"round": 2.5, "top": 11},
}
PEOPLE = [
    (
        i, 15 + i * 7 % 71 if i % 11 else None, i * 3 % 80, f"{1960 + i % 45}-0{1 + i % 9}-11",
        f"2020-01-0{1 + i % 9} {i % 24:02}:30", f"2021-03-{1 + i % 28:02} 12:00+01",
        f"{900 + i * 37 % 3000}.5{i % 10}", 150 + i * 13 % 400 / 10, (i * 31 % 400 - 200) / 7,
        "ab"[i % 2], f"ill {i % 5}",
    )
    for i in range(300)
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    typed = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())
    create_table(
        parties.publisher, "data.coarse", f"number int, {typed}, sex text, sick text", PEOPLE
    )


def register(parties: Parties, *columns: str, **attributes: dict[str, Any]) -> Functions:
    kanon = Functions(parties.publisher)
    for name in kanon.publications():
        kanon.drop(name)
    kanon.register(
        "data.coarse", columns, "sick", attributes=json.dumps(attributes), insensitive=["number"]
    )
    return kanon


def width_of(x: Any, width: str) -> tuple[Decimal, Decimal]:
    """The bin of a number, calculated in Python."""
    low = math.floor(Decimal(str(x)) / Decimal(width)) * Decimal(width)
    return low, low + Decimal(width)


def bin_of(column: str, x: Any) -> tuple[Any, Any]:
    """Where the bin of a value begins and ends; calculated in Python."""
    match column:
        case "age":
            low, high = width_of(x, "7")
            return (
                (None, 20) if x < 20 else (70, None) if x >= 70 else (max(low, 20), min(high, 70))
            )
        case "hours":
            return (40, None) if x >= 40 else (x, x + 1)
        case "born":
            first = x.replace(month=x.month - (x.month - 1) % 3, day=1)
            after = (first + timedelta(days=100)).replace(day=1)
            top = date(1990, 2, 1)
            return (top, None) if x >= top else (first, min(after, top))
        case "seen":
            bottom, hour = datetime(2020, 1, 3, 12), x.replace(minute=0)
            return (None, bottom) if x < bottom else (hour, hour + timedelta(hours=1))
        case "called":
            day = x.astimezone(UTC).replace(hour=0)
            monday = day - timedelta(days=day.weekday())
            return monday, monday + timedelta(days=7)
        case "wage":
            return (Decimal(3000), None) if x >= 3000 else width_of(x, "250")
        case "height":
            low, high = width_of(x, "0.5")
            bottom = Decimal("155.1")
            return (None, bottom) if Decimal(str(x)) < bottom else (max(low, bottom), high)
    low, high = width_of(x, "2.5")
    return (Decimal(11), None) if x >= 11 else (low, min(high, Decimal(11)))


def inside(cell: Any, low: Any, high: Any) -> bool:
    """Whether a cell has all of a bin."""
    return (cell.lower_inf or (low is not None and cell.lower <= low)) and (
        cell.upper_inf or (high is not None and cell.upper >= high)
    )


PAIRS = [*zip([*COLUMNS][::2], [*COLUMNS][1::2], strict=True)]


@pytest.mark.long
@pytest.mark.parametrize("columns", long_but([(PAIRS[0],)], [(pair,) for pair in PAIRS]))
def test_cells_are_made_of_bins(parties: Parties, columns: tuple[str, str]) -> None:
    """Whatever a cell covers, it begins where a bin begins, and ends where one ends."""
    kanon = register(parties, *columns, **{column: ATTRIBUTES[column] for column in columns})
    for kind in ("generalized", "freeform"):
        kanon.of_kind(kind, "data.coarse", kind)
        assert holds(parties.analyst, kind)
        for column in columns:
            rows = fetch(
                parties.publisher,
                f"SELECT s.{column}, c.{column} FROM data.coarse AS s JOIN published.{kind} AS c"
                " USING (number)",
            )
            assert len(rows) == len(PEOPLE)
            bins = {bin_of(column, x) for x, _ in rows if x is not None}
            lows, highs = {low for low, _ in bins}, {high for _, high in bins}
            for x, cell in rows:
                if x is None:
                    assert cell is None or (cell.lower_inf and cell.upper_inf)
                    continue
                assert isinstance(cell, Range)
                low, high = bin_of(column, x)
                assert inside(cell, low, high), (x, cell)
                assert cell.lower in lows | {None}
                assert cell.upper in highs | {None}
            assert len({str(cell) for _, cell in rows}) > 3
    assert kanon.attack(kind)


def test_ends_of_bins_are_certain(parties: Parties) -> None:
    """A single quasi-identifier whose bins all have k records is published bin by bin."""
    kanon = register(parties, "age", age={"round": 10, "top": 70, "bottom": 20})
    kanon.generalize("data.coarse", "coarse", k=2, method="mondrian")
    analyst = Functions(parties.analyst)
    cells = fetch(parties.analyst, "SELECT DISTINCT age FROM published.coarse ORDER BY 1")
    texts = [None if cell is None else (cell.lower, cell.upper) for (cell,) in cells]
    assert texts == [(None, 20), *((n, n + 10) for n in range(20, 70, 10)), (70, None), None]
    for where in ("age >= 70", "age < 20", "age BETWEEN 30 AND 39", "age IS NULL", "age >= 50"):
        truth = value(parties.publisher, f"SELECT count(*) FROM data.coarse WHERE {where}")
        estimate, error, lower, upper = analyst.estimate(
            f"SELECT COUNT(*) FROM coarse WHERE {where}"
        )
        assert (estimate, error, lower, upper) == (truth, 0, truth, truth), where
    _, _, lower, upper = analyst.estimate("SELECT COUNT(*) FROM coarse WHERE age >= 75")
    assert lower == 0
    assert upper == value(parties.publisher, "SELECT count(*) FROM data.coarse WHERE age >= 70")
    surely, possibly = fetch(
        parties.analyst,
        "SELECT count(*) FILTER (WHERE kanon.surely(age, '[60,)'::int4range)),"
        " count(*) FILTER (WHERE kanon.possibly(age, 95)) FROM published.coarse",
    )[0]
    assert surely == value(parties.publisher, "SELECT count(*) FROM data.coarse WHERE age >= 60")
    assert possibly == upper
    assert value(parties.analyst, "SELECT kanon.surely('[70,)'::int4range, 70)") is False
    assert value(parties.analyst, "SELECT kanon.surely('(,20)'::int4range, '(,20)')") is True
    assert value(parties.analyst, "SELECT kanon.surely('(,)'::int4range, '(,)')") is False


def test_batches_have_the_same_bins(parties: Parties) -> None:
    kanon = Functions(parties.publisher)
    create_source(
        parties.publisher, "data.grows", "id int, age int, sick text, came date", [],
        ["age"], "sick", arrival="came", attributes='{"age": {"round": 10, "top": 80}}',
    )  # fmt: skip
    insert = (
        "INSERT INTO data.grows SELECT i, 20 + (i * $1::int) % $2::int, 'ill ' || i % 4,"
        " date '2026-01-01' + $3::int FROM generate_series(1, 60) AS i"
    )
    fetch(parties.publisher, insert, 7, 70, 0)
    kanon.generalize("data.grows", "grows", k=3, method="mondrian")
    fetch(parties.publisher, insert, 3, 77, 1)
    assert kanon.call("refresh", "grows")["added"] == 60
    cells = fetch(parties.analyst, "SELECT DISTINCT age FROM published.grows")
    assert all(
        cell.lower % 10 == 0 and (cell.upper_inf or cell.upper % 10 == 0) for (cell,) in cells
    )
    assert holds(parties.analyst, "grows")
    check_bounds(parties, "grows", "age >= 80")
    with pytest.raises(psycopg.Error, match="live publications"):
        kanon.register("data.grows", ["age"], "sick", attributes='{"age": {"round": 5}}')


def test_other_kinds_refuse(parties: Parties) -> None:
    kanon = register(parties, "age", "sex", age={"round": 10})
    for kind in ("suppressed", "buckets"):
        with pytest.raises(psycopg.Error) as caught:
            kanon.of_kind(kind, "data.coarse", "coarse")
        assert caught.value.sqlstate == INVALID
        assert "data.coarse: age" in str(caught.value.diag.message_detail)
        assert "generalized" in str(caught.value.diag.message_hint)


def test_values_without_a_bin(parties: Parties) -> None:
    kanon = Functions(parties.publisher)
    for type_, extreme, attribute in (
        ("float8", "infinity", {"round": 5}),
        ("float8", "nan", {"top": 5}),
        ("numeric", "nan", {"round": 5}),
        ("date", "infinity", {"round": "month"}),
        ("date", "5874897-12-31", {"round": "month"}),
        ("timestamp", "294276-12-31 23:59", {"round": "year"}),
    ):
        fetch(
            parties.publisher,
            f"CREATE VIEW data.extreme AS SELECT '{extreme}'::{type_} AS x, 'a'::text AS sick"
            " FROM generate_series(1, 9)",
        )
        kanon.register("data.extreme", ["x"], "sick", attributes=json.dumps({"x": attribute}))
        publish = lambda: kanon.generalize("data.extreme", "extreme", k=3)
        assert sqlstate_of(publish) == MISMATCH, (type_, extreme)
        fetch(parties.publisher, "DROP VIEW data.extreme")


@pytest.mark.long
@pytest.mark.parametrize(
    ("type_", "values", "attribute"),
    [
        ("int", "(-2147483648), (2147483647), (0), (NULL)", {"round": 1000}),
        ("int", "(-2147483648), (2147483647), (0)", {"top": 2147483647}),
        ("bigint", "(-9223372036854775808), (9223372036854775807), (-1)", {"round": 7}),
        ("bigint", "(9007199254740993), (9007199254740992), (3)", {"round": 1}),
        ("smallint", "(-32768), (32767), (-7), (-8)", {"round": 1e15}),
        ("numeric", "(1e300), (-1e-300), (0), (-0.3)", {"round": 0.1}),
        ("float8", "(0.1 + 0.2), (0.3), (29.999999999999996), (-1e-300), (1e15)", {"round": 0.1}),
        ("float8", "(0.1), (0.1 + 1e-17), (0.2)", {"round": 1e-20}),
        ("real", "(171.9), (171.89), (16777216), (16777217)", {"round": 0.1, "top": 171.9}),
        ("date", "('4713-01-01 BC'), ('0001-01-01'), ('1999-12-31')", {"round": "week"}),
        ("timestamptz", "('2021-03-28 02:30+02'), ('2021-03-28 03:30+02')", {"round": "day"}),
        ("interval", "('1 mon'), ('30 days'), ('-1 year'), ('364 days')", {"round": 86400}),
        ("interval", "('1 year'), ('365 days'), ('360 days 1 us')", {"top": "360 days"}),
        ("interval", "('3000000 years'), ('-3000000 years'), ('0')", {"round": 1e15}),
        ("time", "('24:00'), ('23:59:59.999999'), ('00:00')", {"round": 3600, "top": "23:30"}),
        ("int", "(NULL), (NULL)", {"round": 5}),
    ],
)
def test_extreme_values_lie_in_their_bins(
    parties: Parties, type_: str, values: str, attribute: dict[str, Any]
) -> None:
    """Publishing checks each original value; answers at every value contain the truth."""
    kanon = Functions(parties.publisher)
    for name in kanon.publications():
        kanon.drop(name)
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.far")
    fetch(
        parties.publisher,
        f"CREATE TABLE data.far AS SELECT v::{type_} AS x, 'ill ' || i AS sick"
        f" FROM (VALUES {values}) AS given (v), generate_series(1, 2) AS i",
    )
    kanon.register("data.far", ["x"], "sick", attributes=json.dumps({"x": attribute}))
    kanon.generalize("data.far", "far", k=2, method="mondrian")
    assert holds(parties.analyst, "far")
    distinct = "SELECT DISTINCT x::text FROM data.far WHERE x IS NOT NULL"
    for (x,) in fetch(parties.publisher, distinct):
        for operator in ("=", "<", "<=", ">", ">="):
            check_bounds(parties, "far", f"x {operator} '{x}'")


def test_time_zones_do_not_matter(parties: Parties) -> None:
    """Bins of times with a zone are those of UTC, whatever the publisher's own zone is."""
    kanon = register(parties, "called", called={"round": "day"})
    found = set()
    days = "SELECT string_agg(DISTINCT extract(epoch FROM lower(called))::text, ' ')"
    for zone in ("UTC", "Asia/Tokyo"):
        fetch(parties.publisher, f"SET timezone = '{zone}'")
        kanon.generalize("data.coarse", "coarse", k=2, method="mondrian", replace=True)
        found.add(value(parties.publisher, f"{days} FROM published.coarse"))
    fetch(parties.publisher, "RESET timezone")
    assert len(found) == 1


def test_refusals_say_what_to_type(parties: Parties) -> None:
    for attribute, hint in (
        ({"round": "secret"}, "units are year, quarter, month, week, day, hour"),
        ({"rund": 5}, "round"),
        ({"round": 2.5}, "such as 5"),
        ({"round": "month"}, '{"round": 5}'),
    ):
        with pytest.raises(psycopg.Error) as caught:
            register(parties, "age", age=attribute)
        assert hint in str(caught.value.diag.message_hint)
        assert "secret" not in str(caught.value)
    for moving in ("now", "today", "Tomorrow 10:00", "yesterday"):
        with pytest.raises(psycopg.Error, match="must not depend on when it is read") as caught:
            register(parties, "seen", seen={"top": moving})
        assert caught.value.sqlstate == INVALID


def test_bins_do_not_tell_decimals(parties: Parties) -> None:
    """The scale of one person's value is not in the ends of the bin."""
    rows = [(61234.567 if i == 7 else 1000 * (i % 60), f"ill {i % 5}") for i in range(300)]
    kanon = create_source(
        parties.publisher, "data.decimals", "wage float8, sick text", rows,
        attributes='{"wage": {"round": 5000}}',
    )  # fmt: skip
    kanon.generalize("data.decimals", "decimals", k=20, method="mondrian", readers=[])
    texts = fetch(parties.publisher, "SELECT DISTINCT wage::text FROM published.decimals")
    assert not any("." in text for (text,) in texts)


def test_bottom_ends_before_its_bound(parties: Parties) -> None:
    kanon = register(parties, "age", "born", age={"bottom": 20}, born={"bottom": "1970-01-01"})
    kanon.generalize("data.coarse", "coarse", k=2, method="mondrian", readers=[])
    for name, bound in (("age", 20), ("born", "1970-01-01")):
        ends = fetch(
            parties.publisher,
            f"SELECT DISTINCT upper({name})::text FROM published.coarse WHERE lower_inf({name})"
            f" AND NOT upper_inf({name})",
        )
        assert (str(bound),) in ends
    kanon = register(parties, "age", age={"bottom": 20})
    kanon.generalize("data.coarse", "coarse", k=2, method="mondrian", readers=[])
    row = kanon.estimate("SELECT count(*) FROM coarse WHERE age < 20")
    truth = value(parties.publisher, "SELECT count(*) FROM data.coarse WHERE age < 20")
    assert row[2:] == (truth, truth)


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
    "time without time zone": st.times(),
    "interval": st.timedeltas(timedelta(-40000), timedelta(40000)),
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
        is_moment = type_.startswith(("date", "timestamp"))
        described["round"] = draw(st.sampled_from(units) if is_moment else widths)
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
    low, high = bin_sql(column, described, "e.x")
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
