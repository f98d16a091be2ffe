from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from kanon_db.algorithms.recoding.loss import ExactLoss, simplest_fraction
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
from tests.unit.generalization.exhaustive import random_microdata, total_loss


@pytest.mark.parametrize("loss", ["ncp", "binary"])
def test_losses_are_those_of_the_definitions(loss: str) -> None:
    random = np.random.default_rng(1)
    for _ in range(20):
        microdata = random_microdata(random, 12, "n0cc", 4, "1 0.3 2.5 0.05")
        classes = random.integers(0, 4, size=12)
        exact = ExactLoss.of(microdata, loss)  # type: ignore[arg-type]
        assert exact.is_exact
        assert exact.total(classes) == total_loss(microdata, classes, loss)


def test_null_with_numbers_loses_everything_and_alone_nothing() -> None:
    age = Attribute(3, np.array([10.0, 20.0, np.nan]), 0, 100, weight=2)
    exact = ExactLoss.of(Microdata([[0], [2], [2], [2], [0], [1]], (age,)), "ncp")
    assert exact.total([0, 0, 1, 1, 2, 2]) == 2 * 2 + 0 + 2 * Fraction(2, 10)


def test_an_attribute_of_one_value_loses_nothing() -> None:
    attributes = (Attribute(1), Attribute(1, np.array([3.0]), 3, 3))
    for loss in ("ncp", "binary"):
        exact = ExactLoss.of(Microdata([[0, 0], [0, 0]], attributes), loss)  # type: ignore[arg-type]
        assert exact.total([0, 0]) == 0


def test_losses_too_fine_to_be_whole_are_rounded() -> None:
    numbers = np.sort(np.random.default_rng(2).random(50))
    microdata = Microdata(np.arange(50)[:, None], (Attribute(50, numbers, 0, 1),))
    exact = ExactLoss.of(microdata, "ncp")
    assert not exact.is_exact
    assert float(exact.total(np.zeros(50))) == pytest.approx(50 * (numbers[-1] - numbers[0]))


def test_simplest_fraction() -> None:
    assert simplest_fraction(12.35) == Fraction(247, 20)
    assert simplest_fraction(-2 / 7) == Fraction(-2, 7)
    assert simplest_fraction(1e-9) == Fraction(1e-9)
    assert float(simplest_fraction(0.1234567890123)) == 0.1234567890123


def test_no_records() -> None:
    microdata = Microdata(np.zeros((0, 1), dtype=np.int32), (Attribute(2),))
    assert ExactLoss.of(microdata, "ncp").total([]) == 0
