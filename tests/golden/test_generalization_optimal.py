"""Initial classes, Split & Carry and the optimum against golden/generalize_*.json and [OB]."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from kanon_db.algorithms.generalization.greedy_classes import initial
from kanon_db.algorithms.generalization.optimal_classes import optimal, split_carry
from kanon_db.algorithms.recoding.loss import ExactLoss
from kanon_db.algorithms.recoding.microdata import Microdata, attribute_order, sort_order
from tests.generalization_plain import numeric_table

Golden = Callable[[str], Any]

# Ages of Tables 4b and 4c; the other columns follow from the classes.
TABLE_4B = {
    (20, 64): [0, 2, 15, 17], (25, 55): [1, 11, 12], (40, 53): [3, 4, 18],
    (49, 80): [5, 6, 8, 9], (59, 68): [7, 10, 16], (18, 42): [13, 14, 19],
}  # fmt: skip
TABLE_4C = {
    (64, 80): [0, 8, 10, 16], (29, 33): [1, 14, 15], (40, 42): [2, 3, 13, 18],
    (49, 53): [4, 6, 9], (55, 59): [5, 7, 11], (18, 25): [12, 17, 19],
}  # fmt: skip


@pytest.fixture(scope="module")
def fars(golden: Golden) -> Any:
    return golden("generalize_fars20")


def table_2a(fars: Any, *, weighted: bool = False) -> Microdata:
    weights = fars["weighted"]["W"] if weighted else None
    bounds = fars["bounds"]
    return numeric_table(fars["data"], weights, [*zip(bounds["L"], bounds["U"], strict=True)])


def classes(class_of_record: np.ndarray[Any, np.dtype[np.int64]]) -> list[list[int]]:
    numbers = range(int(class_of_record.max()) + 1)
    return sorted(np.flatnonzero(class_of_record == number).tolist() for number in numbers)


def test_sorted_by_variance(fars: Any) -> None:
    for weighted in (False, True):
        microdata = table_2a(fars, weighted=weighted)
        assert [fars["attrs"][j] for j in attribute_order(microdata)] == fars["attr_order"]
        assert sort_order(microdata).tolist() == fars["sorted_order_table2b"]


def test_initial_classes(fars: Any) -> None:
    microdata = table_2a(fars)
    found = initial(microdata, fars["k"]).class_of_record
    expected = fars["initial_feasible"]
    assert classes(found) == sorted(map(sorted, expected["classes"]))
    assert ExactLoss.of(microdata, "ncp").total(found) == Fraction(expected["loss"])


@pytest.mark.parametrize(("key", "ages"), [("optimum", TABLE_4B), ("optimum_weighted", TABLE_4C)])
def test_optimum_of_the_worked_example(
    fars: Any, key: str, ages: dict[tuple[int, int], list[int]]
) -> None:
    found = optimal(table_2a(fars, weighted=key == "optimum_weighted"), fars["k"])
    assert (found.proof.status, found.proof.gap) == ("optimal", 0)
    assert found.proof.objective == found.proof.lower_bound == Fraction(fars[key]["loss"])
    assert classes(found.class_of_record) == sorted(fars[key]["classes"]) == sorted(ages.values())
    age = np.array(fars["data"])[:, 0]
    assert {(age[one].min(), age[one].max()): one for one in classes(found.class_of_record)} == ages


def test_split_carry_of_the_worked_example(fars: Any) -> None:
    microdata = table_2a(fars)
    expected = fars["split_carry_S3_ksets_kset"]
    found = split_carry(microdata, fars["k"], s=3)
    assert found.sizes.tolist() == expected["sub_sizes"]
    assert classes(found.class_of_record) == sorted(expected["classes"])
    assert ExactLoss.of(microdata, "ncp").total(found.class_of_record) == Fraction(expected["loss"])


@pytest.mark.parametrize("formulation", ["set_partition", "paper"])
def test_patients(golden: Golden, formulation: str) -> None:
    patients = golden("generalize_patients")
    microdata = numeric_table(
        patients["data"], bounds=[*zip(patients["L"], patients["U"], strict=True)]
    )
    found = optimal(microdata, patients["k"], formulation=formulation)  # type: ignore[arg-type]
    assert (found.proof.status, found.proof.objective) == ("optimal", Fraction(patients["loss"]))
    assert classes(found.class_of_record) == patients["classes"]


def test_random_tables(golden: Golden) -> None:
    for case in golden("generalize_random"):
        microdata = numeric_table(case["x"], case["W"], [*zip(case["L"], case["U"], strict=True)])
        exact = ExactLoss.of(microdata, "ncp")
        assert sort_order(microdata).tolist() == case["sorted_order"], case["id"]
        first = initial(microdata, case["k"]).class_of_record
        assert exact.total(first) == Fraction(case["init_loss"]), case["id"]
        _, loss, sizes = case["split_carry_S2"]
        chain = split_carry(microdata, case["k"], s=2)
        assert chain.sizes.tolist() == sizes, case["id"]
        assert exact.total(chain.class_of_record) == Fraction(loss), case["id"]
        for formulation in ("set_partition", "paper"):
            found = optimal(microdata, case["k"], formulation=formulation)  # type: ignore[arg-type]
            assert found.proof.status == "optimal", case["id"]
            assert found.proof.objective == found.proof.lower_bound == Fraction(case["optimum"]), (
                case["id"]
            )
