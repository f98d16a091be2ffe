from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from kanon_db.algorithms.recoding.loss import ExactLoss, simplest_fraction
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata


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
