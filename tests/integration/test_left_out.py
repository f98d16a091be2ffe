"""Counts from publications that leave records out: the bounds hold for the whole table."""

from __future__ import annotations

import pytest

from tests.integration.parties import (
    Functions,
    Parties,
    create_source,
    create_table,
    fetch,
    sqlstate_of,
    value,
)
from tests.rewritten import compared

PEOPLE = [(20 + i % 6, "mf"[i % 2], f"d{i % 4}", i % 5) for i in range(90)]
PEOPLE += [(95, "x", "d0", 1000), (97, "y", "d9", -1000)]
N = len(PEOPLE)
ESTIMATE = "SELECT estimate, std_error, lower_bound, upper_bound FROM kanon.estimate($1::text)"

each_kind = pytest.mark.parametrize("name", ["generalized", "suppressed"])


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    kanon = Functions(parties.publisher)
    columns = "age int, sex text, sick text, cost int"
    create_table(parties.publisher, "data.people", columns, PEOPLE)
    kanon.register("data.people", ["age", "sex"], "sick", insensitive=["cost"])
    given = {"k": 4, "max_suppressed": "0.03"}
    left_out = [
        kanon.of_kind("generalized", "data.people", "generalized", **given),
        kanon.suppress("data.people", "suppressed", k=4),
    ]
    assert [published["metrics"]["suppressed_records"] for published in left_out] == [2, 2]


@each_kind
def test_a_record_that_is_left_out_is_as_likely_as_the_others(parties: Parties, name: str) -> None:
    """All are counted; their numbers, which could be anything, leave sums without bounds."""
    kanon = Functions(parties.analyst)
    assert kanon.estimate(f"SELECT COUNT(*) FROM {name}") == (N, 0, N, N)
    rows = value(parties.analyst, f"SELECT count(*) FROM published.{name} WHERE sick = 'd1'")
    estimate, *bounds = kanon.estimate(f"SELECT COUNT(*) FROM {name} WHERE sick = 'd1'")
    assert estimate == pytest.approx(rows * N / (N - 2))
    assert bounds[1:] == [rows, rows + 2]
    average = value(parties.analyst, f"SELECT avg(cost)::float8 FROM published.{name}")
    for function, published in (("sum", average * N), ("avg", average)):
        query = f"SELECT {function}(cost) FROM {name}"
        ((estimate, error, lower, upper),) = fetch(parties.analyst, ESTIMATE, query)
        assert estimate == pytest.approx(published)
        assert error >= 0
        assert (lower, upper) == (None, None)


@each_kind
def test_nobody_expected_in_a_group_leaves_the_shares_of_others(
    parties: Parties, name: str
) -> None:
    """Who is left out may be in any group: its share is NULL, in the statement, too."""
    query = (
        f"SELECT sick, cost, 1.0 * COUNT(*) FILTER (WHERE age < 200) / COUNT(*) FROM {name}"
        " WHERE sick = 'd1' GROUP BY sick, cost"
    )
    shares = [share for share, *_ in fetch(parties.analyst, ESTIMATE, query)]
    assert 0 < shares.count(None) < len(shares)
    assert compared(parties.analyst, query) == "equal"


@each_kind
def test_explained(parties: Parties, name: str) -> None:
    rows = fetch(
        parties.analyst,
        "SELECT part, description, accuracy FROM kanon.explain_count($1::text)",
        f"SELECT COUNT(*) FROM {name} WHERE age > 22",
    )
    assert rows[0][1] == f"{name}: {name}, 92 records, 2 of them left out"
    (accuracy,) = [accuracy for part, _, accuracy in rows if part == "aggregate"]
    assert accuracy.endswith("; 2 records are left out")


def test_a_range_of_null_and_numbers_has_no_sum(parties: Parties) -> None:
    """Few NULLs have to share classes with numbers: their range is (,)."""
    rows = [(None if i % 5 == 0 else 20 + i, "ab"[i % 2]) for i in range(20)]
    kanon = create_source(parties.publisher, "data.nulls", "age int, sick text", rows)
    kanon.generalize("data.nulls", "nulls_generalized", k=6)
    kanon.freeform("data.nulls", "nulls_freeform", k=6)
    for name in ("nulls_generalized", "nulls_freeform"):
        ((*_, lower, upper),) = fetch(parties.analyst, ESTIMATE, f"SELECT SUM(age) FROM {name}")
        assert (lower, upper) == (None, None)
        grouped = f"SELECT age, COUNT(*) FROM {name} GROUP BY age"
        assert sqlstate_of(lambda: fetch(parties.analyst, ESTIMATE, grouped)) == "0A000"
