from __future__ import annotations

import importlib
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.generalization.postprocessing import refine
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.recoding.changing_classes import Constraint
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
from kanon_db.errors import IneligibleError, InvalidParameterError

VALUES = np.array([0, 0, 1, 1, 2, 2])


def test_each_constraint_by_itself_and_together() -> None:
    def holds(counts: list[list[int]], **options: Any) -> list[bool]:
        return Constraint(VALUES, 3, **options).holds(counts).tolist()

    assert holds([[1, 1, 1], [5, 5, 0]], l=3) == [True, False]
    for l in (2, 3):  # the entropy of equal shares is that of their number
        assert holds([[7, 7, 7], [3, 3, 0]], entropy_l=Fraction(l)) == [True, l == 2]
    both = {"l": 2, "t": Fraction(1, 4)}
    assert holds([[2, 1, 0], [1, 1, 1], [3, 0, 0]], **both) == [False, True, False]
    # In floating point 0.29 * 100 is below 29.
    privacy = FPrimePrivacy((Fraction(29, 100), Fraction(1), Fraction(1)))
    counts = [[29, 71, 0], [30, 70, 0], [28, 71, 1]]
    assert holds(counts, f_prime=privacy) == [True, False, True]
    # Shares (1/2, 1/2, 0) against (1/3, 1/3, 1/3): equal distance 1/3, ordered (1/6 + 1/3) / 2.
    for distance, limit in (("equal", Fraction(1, 3)), ("ordered", Fraction(1, 4))):
        assert holds([[1, 1, 0]], t=limit, distance=distance) == [True]
        below = limit - Fraction(1, 10**6)
        assert holds([[1, 1, 0]], t=below, distance=distance) == [False]


def test_a_constraint_that_even_one_class_breaks_is_refused() -> None:
    with pytest.raises(IneligibleError, match="no equivalence classes can satisfy") as caught:
        Constraint(VALUES, 4, l=4).check_eligible()
    assert (
        "even a single class of all 6 records, with 3 distinct sensitive values"
        in caught.value.detail
    )
    Constraint(VALUES, 3, l=3).check_eligible()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"l": 0}, "l must be at least 1"),
        ({"entropy_l": Fraction(1, 2)}, "entropy_l must be at least 1"),
        ({"t": Fraction(3, 2)}, r"t must lie in \[0, 1\]"),
        ({"t": Fraction(1, 10**18)}, "t has too large a denominator"),
        ({"distance": "hierarchical"}, "distance must be equal or ordered"),
        ({"f_prime": FPrimePrivacy((Fraction(1),))}, "one for each sensitive value"),
        (
            {"f_prime": FPrimePrivacy((Fraction(1), Fraction(1), Fraction(1, 2**62)))},
            "a privacy threshold has too large a denominator",
        ),
    ],
)
def test_refusals(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        Constraint(VALUES, 3, **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="valid code"):
        Constraint(VALUES, 2)


def test_refine_refuses_classes_that_break_the_constraint() -> None:
    table = Microdata(VALUES.reshape(-1, 1), (Attribute(3),))
    random = np.random.default_rng(0)
    with pytest.raises(InvalidParameterError, match="must hold for each class") as caught:
        refine(table, VALUES, 2, random=random, constraint=Constraint(VALUES, 3, l=2))
    assert caught.value.detail == "3 classes violate it"
    with pytest.raises(InvalidParameterError, match="must have a sensitive value"):
        refine(table, VALUES, 2, random=random, constraint=Constraint(VALUES[:3], 3, l=1))


def test_an_entity_counts_once_for_each_of_its_values() -> None:
    # Entity 0 has value 0 in three records; entities 1 and 2 have value 1 in one.
    entities, values = np.array([0, 0, 0, 1, 2]), np.array([0, 0, 0, 1, 1])
    third = FPrimePrivacy((Fraction(1, 3), Fraction(1)))
    constraint = Constraint(values, 2, f_prime=third, entities=entities, least_entities=3)
    assert constraint.holds_for([0, 0, 0, 0, 0]).tolist() == [True]
    assert constraint.holds_for([0, 1, 1, 0, 0]).tolist() == [True, False]
    assert constraint.restricted_to(np.array([0, 3, 4])).holds_for([0, 0, 0]).all()
    assert not constraint.restricted_to(np.array([0, 1, 3])).holds_for([0, 0, 0]).any()


@pytest.mark.parametrize(
    "given",
    [{"entropy_l": Fraction(2)}, {"t": Fraction(1, 2)}, {"least_entities": 0},
     {"entities": VALUES[:3]}, {"entities": None}],
)  # fmt: skip
def test_entities_are_counted_for_all_or_not_at_all(given: dict[str, object]) -> None:
    whole = {"entities": VALUES, "least_entities": 2, **given}
    with pytest.raises(InvalidParameterError):
        Constraint(VALUES, 3, **whole)  # type: ignore[arg-type]


def test_each_attribute_has_rules_of_its_own() -> None:
    """A class may fulfil those on one attribute, and not those on another."""
    other = np.array([0, 1, 0, 1, 0, 1])

    def holds(classes: list[int], first: dict[str, Any], second: dict[str, Any]) -> list[bool]:
        also = Constraint(other, 2, **second)
        return Constraint(VALUES, 3, **first, also=(also,)).holds_for(classes).tolist()

    classes = [0, 1, 0, 1, 0, 1]
    assert holds(classes, {"l": 3}, {}) == [True, True]
    assert holds(classes, {}, {"l": 2}) == [False, False]
    assert holds([0, 0, 0, 1, 1, 1], {"l": 2}, {"l": 2}) == [True, True]
    assert holds([0, 0, 1, 1, 1, 1], {"l": 2}, {"l": 2}) == [False, True]
    half = FPrimePrivacy((Fraction(1, 2), Fraction(1)))
    assert holds([0, 1, 0, 0, 0, 1], {}, {"f_prime": half}) == [False, True]
    assert holds([0, 1, 0, 0, 0, 1], {"f_prime": FPrimePrivacy((Fraction(1),) * 3)}, {}) == [
        True, True,
    ]  # fmt: skip
    constraint = Constraint(VALUES, 3, l=2, also=(Constraint(other, 2, l=2, missing=1),))
    assert constraint.rules.missing.tolist() == [-1, 4]
    with pytest.raises(IneligibleError, match="sensitive attributes") as caught:
        constraint.check_eligible()
    assert "with 3 and 1 distinct sensitive values" in caught.value.detail
    assert constraint.restricted_to(np.array([0, 2, 3])).also[0].codes.tolist() == [0, 0, 1]
    for wrong in ((Constraint(other[:2], 2),), (replace(constraint, l=1),)):
        with pytest.raises(InvalidParameterError, match="of the same records"):
            Constraint(VALUES, 3, also=wrong)
    with pytest.raises(InvalidParameterError, match="count records"):
        Constraint(
            VALUES, 3, entities=VALUES, least_entities=2,
            also=(Constraint(other, 2, t=Fraction(1, 2)),),
        )  # fmt: skip


def test_uniting_beats_between_unions(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call united classes until the constraint held: with rare values, for seconds."""
    enforcing = importlib.import_module("kanon_db.algorithms.generalization.postprocessing")
    monkeypatch.setattr(enforcing, "_COUNTS_PER_CALL", 1)
    n = 400
    microdata = Microdata(np.arange(n)[:, np.newaxis], (Attribute(n, np.arange(n), 0, n - 1),))
    sensitive = Constraint(np.where(np.arange(n) == n - 1, 1, 0), 2, l=2)
    beats: list[None] = []
    pulse = Pulse(heartbeat=lambda: beats.append(None))
    found = enforcing.enforce(microdata, np.arange(n) // 2, 2, sensitive, pulse=pulse)
    assert found.class_of_record.max() == 0
    assert len(beats) >= 199  # as many unions
