"""Publishing ranges and sets: what is published, what is refused."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import pytest

from tests.integration.parties import (
    Functions,
    Package,
    Parties,
    create_source,
    failed_checks,
    fetch,
    holds,
    sqlstate_of,
)
from tests.integration.row_checks import (
    PEOPLE,
    QUASI_IDENTIFIERS,
    QUICK,
    check_generalized,
    people,
)

__all__ = ["people"]

INVALID = "22023"


def test_refinement_never_loses_more(kanon: Functions | Package) -> None:
    plain = kanon.generalize("data.people", "plain", k=5, method="initial", refine=False)
    refined = kanon.generalize("data.people", "fine", k=5, method="initial", options=QUICK)
    assert refined["metrics"]["gcp"] < plain["metrics"]["gcp"]


def test_a_bound_is_proven_where_it_is_asked_for(kanon: Functions | Package) -> None:
    few = "data.people"
    plain = kanon.generalize(few, "unbounded", k=5, method="mondrian", refine=False)["metrics"]
    assert "gap" not in plain
    options = '{"bound_time": 2}'
    found = kanon.generalize(
        few, "bounded", k=5, method="mondrian", refine=False, options=options
    )["metrics"]  # fmt: skip
    assert found["gcp"] == plain["gcp"]
    assert 0 < found["lower_bound"] <= found["weighted_loss"]
    assert found["gap"] == pytest.approx(1 - found["lower_bound"] / found["weighted_loss"])


def test_one_numeric_quasi_identifier_has_an_optimum(parties: Parties) -> None:
    """Of more records than other tables may have; with `bound_time`, other methods are compared."""
    rows = [((i * i % 1999 + i) / 100, i % 3) for i in range(1500)]
    kanon = create_source(parties.publisher, "data.incomes", "income numeric, c int", rows)
    given = {"k": 5, "refine": False}
    best = kanon.generalize("data.incomes", "best_incomes", method="optimal", **given)
    cut = kanon.generalize(
        "data.incomes", "cut_incomes", method="mondrian", options='{"bound_time": 20}', **given
    )
    metrics = best["metrics"]
    assert metrics["gap"] == 0
    assert metrics["lower_bound"] == pytest.approx(metrics["weighted_loss"])
    assert cut["metrics"]["lower_bound"] == pytest.approx(metrics["lower_bound"])
    assert cut["metrics"]["weighted_loss"] > metrics["weighted_loss"]


def sick(members: Sequence[int]) -> Counter[str]:
    return Counter(PEOPLE[number][-1] for number in members)


@pytest.mark.long
def test_constraints(kanon: Functions | Package, parties: Parties) -> None:
    total = sick(range(len(PEOPLE)))

    def closeness(values: Counter[str]) -> Fraction:
        size = sum(values.values())
        return sum(
            abs(Fraction(values[v], size) - Fraction(n, len(PEOPLE))) for v, n in total.items()
        ) / Fraction(2)

    def entropy(values: Counter[str]) -> float:
        size = sum(values.values())
        return -sum(n / size * math.log(n / size) for n in values.values())

    checks = {
        '{"l": 3}': lambda values: len(values) >= 3,
        '{"entropy_l": 2.5}': lambda values: entropy(values) >= math.log(2.5) - 1e-9,
        '{"t": 0.25}': lambda values: closeness(values) <= Fraction(1, 4),
        '{"default": "1/3"}': lambda values: max(values.values()) * 3 <= sum(values.values()),
        '{"l": 2, "theta": 2}': lambda values: len(values) >= 2
        and all(Fraction(n, sum(values.values())) <= 2 * Fraction(total[v], len(PEOPLE))
                for v, n in values.items()),
    }  # fmt: skip
    last = '{"l": 2, "theta": 2}'
    # All by a quick method, and the last one by another.
    for constraints, method in [*((each, "mondrian") for each in checks), (last, "greedy_search")]:
        published = kanon.generalize(
            "data.people", "people", k=4, method=method, constraints=constraints,
            refine=method != "mondrian", options=QUICK, replace=True,
        )  # fmt: skip
        classes = check_generalized(
            parties.publisher, "data.people", "people", QUASI_IDENTIFIERS, 4
        )
        assert all(checks[constraints](sick(members)) for members in classes.values()), constraints
        verified = kanon.verify("people")
        assert all(good for *_, good in verified)
        assert len(verified) > 4
        assert "in each, which bounds inferences by readers who do not" in published["guarantee"]
        if constraints != last:
            check_broken(parties, constraints)


def check_broken(parties: Parties, constraints: str) -> None:
    """Verification finds a class of one sensitive value."""
    with parties.admin.transaction(force_rollback=True):
        fetch(
            parties.admin,
            "UPDATE published.people_row SET sick = 'disease 0' WHERE kanon_number IN"
            " (SELECT kanon_number FROM published.people_cel"
            "  WHERE num_nulls(age, sex, town, born) = 0 LIMIT 1)",
        )
        fetch(parties.admin, "REFRESH MATERIALIZED VIEW published.people")
        broken = failed_checks(parties.admin, "people")
    assert len(broken) == 2, constraints
    assert "the numbers of the cells are those of the rows" in broken


def test_ordered_closeness(parties: Parties) -> None:
    rows = [(i, i % 40, 1000 * (i * 7 % 10)) for i in range(200)]
    kanon = create_source(
        parties.publisher, "data.earners", "number int, age int, income int", rows,
        ["age"], "income", insensitive=["number"],
    )  # fmt: skip
    for distance in ("equal", "ordered"):
        kanon.generalize(
            "data.earners", distance, k=4, method="mondrian", refine=False,
            constraints=f'{{"t": 0.2, "distance": "{distance}"}}',
        )  # fmt: skip
        assert holds(parties.publisher, distance)
    classes = check_generalized(parties.publisher, "data.earners", "ordered", ["age"], 4)
    for members in classes.values():
        running, moved = Fraction(0), Fraction(0)
        values = Counter(rows[number][2] for number in members)
        for income in range(0, 10_000, 1000):
            running += Fraction(values[income], len(members)) - Fraction(1, 10)
            moved += abs(running) / 9
        assert moved <= Fraction(1, 5)


def test_suppression(parties: Parties) -> None:
    rows = [(i, 30 + i % 3) for i in range(60)] + [(60, 999), (61, -5)]
    kanon = create_source(
        parties.publisher, "data.odd", "number int, age int", rows, ["age"], None,
        insensitive=["number"],
    )  # fmt: skip
    whole = kanon.generalize("data.odd", "whole", k=5, options=QUICK)
    published = kanon.generalize("data.odd", "odd", k=5, max_suppressed="0.05", options=QUICK)
    suppressed = int(published["metrics"]["suppressed_records"])
    assert 1 <= suppressed <= 3
    assert published["guarantee"].endswith(f"{suppressed} records are left out")
    assert published["metrics"]["weighted_loss"] < whole["metrics"]["weighted_loss"]
    check_generalized(parties.publisher, "data.odd", "odd", ["age"], 5, suppressed=suppressed)
    assert holds(parties.publisher, "odd")
    # There is no sensitive attribute.
    refused = lambda: kanon.generalize("data.odd", "p", k=2, constraints='{"l": 2}')
    assert sqlstate_of(refused) == INVALID


def test_values_too_far_apart_for_a_range(parties: Parties) -> None:
    """Their distance is no double-precision number: they are sets, and lose what sets lose."""
    rows = [(sign * 1e308 * (1 + i / 100), f"x{i % 3}") for i in range(12) for sign in (-1, 1)]
    functions = create_source(parties.publisher, "data.far", "r float8, dx text", rows)
    notices: list[str] = []
    parties.publisher.add_notice_handler(lambda told: notices.append(told.message_primary or ""))
    row = functions.generalize("data.far", "far", k=4, method="mondrian")
    assert [told for told in notices if '"r"' in told and "its cells are sets" in told]
    # A class has 4 to 7 of 24 values.
    assert 3 / 23 <= row["metrics"]["gcp"] <= 6 / 23
