"""Counts from publications that leave records out: the bounds hold for the whole table."""

from __future__ import annotations

import pytest

from tests.integration.parties import (
    Functions,
    Parties,
    create_table,
    fetch,
    sqlstate_of,
    value,
)

PEOPLE = [(20 + i % 6, "mf"[i % 2], f"d{i % 4}", i % 5) for i in range(90)]
PEOPLE += [(95, "x", "d0", 1000), (97, "y", "d9", -1000)]
PUBLISHED = ["generalized", "suppressed"]


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    kanon = Functions(parties.publisher)
    columns = "age int, sex text, sick text, cost int"
    create_table(parties.publisher, "data.people", columns, PEOPLE)
    kanon.register("data.people", ["age", "sex"], "sick", insensitive=["cost"])
    left_out = [
        kanon.generalize(
            "data.people",
            "generalized",
            k=4,
            method="mondrian",
            refine=False,
            max_suppressed="0.03",
        ),
        kanon.suppress("data.people", "suppressed", k=4),
    ]
    assert [published["metrics"]["suppressed_records"] for published in left_out] == [2, 2]


@pytest.mark.parametrize("name", PUBLISHED)
def test_all_records_are_counted(parties: Parties, name: str) -> None:
    answer = Functions(parties.analyst).estimate(f"SELECT COUNT(*) FROM {name}")
    assert answer == (len(PEOPLE), 0, len(PEOPLE), len(PEOPLE))


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_record_that_is_left_out_is_as_likely_as_the_others(parties: Parties, name: str) -> None:
    kanon = Functions(parties.analyst)
    rows = value(parties.analyst, f"SELECT count(*) FROM published.{name} WHERE sick = 'd1'")
    estimate, *bounds = kanon.estimate(f"SELECT COUNT(*) FROM {name} WHERE sick = 'd1'")
    assert estimate == pytest.approx(rows * len(PEOPLE) / (len(PEOPLE) - 2))
    assert bounds[1:] == [rows, rows + 2]


@pytest.mark.parametrize("function", ["sum", "avg"])
@pytest.mark.parametrize("name", PUBLISHED)
def test_sums_of_records_that_are_left_out_have_no_bounds(
    parties: Parties, name: str, function: str
) -> None:
    """Their values could be anything."""
    ((estimate, error, lower, upper),) = fetch(
        parties.analyst,
        "SELECT estimate, std_error, lower_bound, upper_bound FROM kanon.estimate($1::text)",
        f"SELECT {function}(cost) FROM {name}",
    )
    published = value(parties.analyst, f"SELECT avg(cost)::float8 FROM published.{name}")
    assert estimate == pytest.approx(published * (len(PEOPLE) if function == "sum" else 1))
    assert error >= 0
    assert (lower, upper) == (None, None)


@pytest.mark.parametrize("name", PUBLISHED)
def test_explained(parties: Parties, name: str) -> None:
    rows = fetch(
        parties.analyst,
        "SELECT part, description, accuracy FROM kanon.explain_count($1::text)",
        f"SELECT COUNT(*) FROM {name} WHERE age > 22",
    )
    assert rows[0][1] == f"{name}: {name}, 92 records, 2 of them left out"
    (accuracy,) = [accuracy for part, _, accuracy in rows if part == "aggregate"]
    assert accuracy.endswith("; 2 records are left out")


@pytest.fixture(scope="module")
def with_nulls(parties: Parties) -> None:
    """Few NULLs, which have to share classes with numbers: their range is (,)."""
    rows = [(None if i % 5 == 0 else 20 + i, f"{i}.5", "ab"[i % 2]) for i in range(20)]
    create_table(parties.publisher, "data.nulls", "age int, size numeric, sick text", rows)
    kanon = Functions(parties.publisher)
    kanon.register("data.nulls", ["age"], "sick", insensitive=["size"])
    kanon.generalize("data.nulls", "nulls_generalized", k=6)
    kanon.freeform("data.nulls", "nulls_freeform", k=6)


@pytest.mark.parametrize("name", ["nulls_generalized", "nulls_freeform"])
def test_a_range_of_null_and_numbers_has_no_sum(
    parties: Parties, with_nulls: None, name: str
) -> None:
    query = f"SELECT SUM(age) FROM {name}"
    ((lower, upper),) = fetch(
        parties.analyst, "SELECT lower_bound, upper_bound FROM kanon.estimate($1::text)", query
    )
    assert (lower, upper) == (None, None)
    grouped = lambda: fetch(
        parties.analyst,
        "SELECT * FROM kanon.estimate($1::text)",
        f"SELECT age, COUNT(*) FROM {name} GROUP BY age",
    )
    assert sqlstate_of(grouped) == "0A000"
