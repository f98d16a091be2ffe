"""Freeform generalization against golden/freeform_*.json and [FF] Table 1."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from kanon_db.algorithms.freeform._generalization_graph import units_lost
from kanon_db.algorithms.freeform.matches import cells
from kanon_db.algorithms.freeform.matching_checks import verify_matching
from kanon_db.algorithms.freeform.matching_heuristics import greedy, hungarian, sort_greedy
from kanon_db.algorithms.freeform.optimal_graph import optimal
from kanon_db.algorithms.recoding.loss import Ncp
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
from kanon_db.metrics.information_loss import measure_freeform
from tests.unit.freeform.plain import run

Golden = Callable[[str], Any]


@pytest.fixture(scope="module")
def cases(golden: Golden) -> list[Any]:
    return [golden("freeform_table1"), *golden("freeform_random")]


def microdata(case: Any) -> Microdata:
    rows = case.get("rows") or case["data"]
    columns, attributes = [], []
    kinds = case.get("kinds") or ["num"] * len(rows[0])
    for kind, column in zip(kinds, zip(*rows, strict=True), strict=True):
        values, codes = np.unique(np.array(column), return_inverse=True)
        columns.append(codes)
        if kind == "num":
            numbers = values.astype(np.float64)
            attributes.append(Attribute(values.size, numbers, numbers[0], numbers[-1]))
        else:
            attributes.append(Attribute(values.size))
    return Microdata(np.column_stack(columns), tuple(attributes))


def gcp(table: Microdata, matches: Any) -> Fraction:
    ncp = Ncp.of(table)
    return units_lost(ncp, np.asarray(matches)) * ncp.unit / table.codes.size


def test_losses_of_the_recorded_solutions(cases: list[Any]) -> None:
    for case in cases:
        table = microdata(case)
        for method in ("greedy", "sortgreedy", "hungarian", "opt_self", "opt_charged"):
            expected = Fraction(case[method]["gcp"])
            match = np.array(case[method]["match"])
            assert gcp(table, match) == expected
            assert measure_freeform(table, cells(table, match)).gcp == pytest.approx(
                float(expected)
            )


def test_table_1_as_printed(golden: Golden) -> None:
    case = golden("freeform_table1")
    table, match = microdata(case), np.array(case["paper_match"])
    assert gcp(table, match) == Fraction(149, 372)
    age, salary = cells(table, match)
    ages, salaries = table.attributes[0].numbers, table.attributes[1].numbers
    assert ages is not None
    assert salaries is not None
    assert ages[age.low].tolist() == [53, 53, 28, 28, 40, 28, 39, 40]  # type: ignore[union-attr]
    assert ages[age.high].tolist() == [59, 59, 39, 41, 59, 39, 41, 57]  # type: ignore[union-attr]
    assert salaries[salary.high].tolist() == [34, 34, 59, 59, 35, 59, 47, 35]  # type: ignore[union-attr]
    assert verify_matching(match, table, 3, (age, salary)).holds


def test_greedy_as_recorded(cases: list[Any]) -> None:
    """Ties are rare in these tables, and the algorithms as printed are determined but for them."""
    for case in cases:
        table = microdata(case)
        for method, key in ((greedy, "greedy"), (sort_greedy, "sortgreedy")):
            found = run(method, table, case["k"], improve=False)
            assert gcp(table, found) == Fraction(case[key]["gcp"])


def test_hungarian_finds_the_optimum_of_table_1(golden: Golden) -> None:
    case = golden("freeform_table1")
    table = microdata(case)
    assert gcp(table, run(hungarian, table, 3)) == Fraction(3455, 9672)


def test_optimum(cases: list[Any]) -> None:
    for case in cases:
        table = microdata(case)
        found = optimal(table, case["k"])
        assert found.proof.status == "optimal"
        assert gcp(table, found.matches) == Fraction(case["opt_self"]["gcp"])
        assert (
            found.proof.objective
            == found.proof.lower_bound
            == gcp(table, found.matches) * table.codes.size
        )
