"""The attacks that models are measured with do what their papers say."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.long


def test_carlini_and_wagner_find_the_nearest_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a linear model it is known: the distance to the plane between two classes."""
    from benchmarks.model_attacks import ATTACK, attacked

    monkeypatch.setitem(ATTACK, "binary_search_steps", 3)
    monkeypatch.setitem(ATTACK, "steps", 30)
    monkeypatch.setitem(ATTACK, "initial_const", 0.1)
    generator = np.random.default_rng(0)
    weights = generator.normal(size=(12, 2)).astype(np.float32)
    x = generator.uniform(0.4, 0.6, (8, 2, 2, 3)).astype(np.float32)
    gaps = x.reshape(8, -1) @ (weights[:, 0] - weights[:, 1])
    normal = np.linalg.norm(weights[:, 0] - weights[:, 1])
    found = attacked(
        lambda images: images.reshape(len(images), -1) @ weights, x, (gaps > 0).astype(np.int64)
    )
    distances = np.linalg.norm((found - x).reshape(8, -1), axis=1)
    assert (distances >= abs(gaps) / normal - 1e-4).all()
    np.testing.assert_allclose(distances, abs(gaps) / normal, rtol=0.2, atol=0.02)


def test_noise_is_fresh_and_averages() -> None:
    import jax
    import jax.numpy as jnp

    from benchmarks.model_attacks import with_noise

    model = with_noise(jax.jit(lambda x: x), 0.3, draws=20)
    zeros = jnp.zeros((5, 4, 4, 1))
    first, second = np.asarray(model(zeros)), np.asarray(model(zeros))
    assert (first != second).all()
    # Laplace noise of scale b has the standard deviation sqrt(2) b; of a mean of 20, less.
    assert abs(np.concatenate([first, second])).max() < 8 * 0.3 * np.sqrt(2 / 20)
    assert with_noise(model, 0.0) is model
