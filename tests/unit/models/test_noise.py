"""Noise on inputs is Laplace noise, and fresh each time."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest, laplace

from kanon_db.models._votes import noisy_inputs
from tests.unit.models.chance import RARELY


def test_it_is_laplace_noise() -> None:
    drawn = noisy_inputs(np.zeros(200_000, np.float32), 0.5)
    assert kstest(drawn.astype(np.float64), laplace(scale=0.5).cdf).pvalue > RARELY


def test_signs_and_neighbors_are_independent() -> None:
    drawn = noisy_inputs(np.zeros((2, 100_000), np.float32), 1.0)
    # Standard errors of a mean of signs, and of a correlation.
    assert abs(np.sign(drawn).mean()) < 6 / np.sqrt(200_000)
    assert abs(np.corrcoef(drawn)[0, 1]) < 6 / np.sqrt(100_000)
    assert abs(np.corrcoef(abs(drawn[0]), drawn[0] > 0)[0, 1]) < 6 / np.sqrt(100_000)


def test_it_is_added_to_the_input() -> None:
    inputs = np.full((3, 8, 8, 1), 1000.0, np.float32)
    drawn = noisy_inputs(inputs, 0.1)
    assert (drawn.shape, drawn.dtype) == (inputs.shape, np.float32)
    assert abs(drawn - 1000).max() < 0.1 * 23  # the largest that 31 bits can give
    assert (drawn != noisy_inputs(inputs, 0.1)).mean() > 0.9


@pytest.mark.parametrize("byte", [b"\0", b"\xff"])
def test_extreme_bytes_give_finite_noise(byte: bytes) -> None:
    class Extreme:
        def bytes(self, length: int) -> bytes:
            return byte * length

    assert np.isfinite(noisy_inputs(np.zeros(4, np.float32), 1.0, Extreme())).all()


def test_without_noise_inputs_stay() -> None:
    inputs = np.ones((2, 3), np.float32)
    assert noisy_inputs(inputs, 0.0) is inputs
