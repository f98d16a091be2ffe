"""The attacks that models are measured with do what their papers say."""

from __future__ import annotations

import gzip
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import model_data
from benchmarks.model_attacks import (
    ATTACK,
    attacked,
    perturbations,
    superimposed,
    together,
    with_noise,
)
from kanon_db.models._network import logits, network_for
from tests.unit.models.test_networks import member_of


def test_carlini_and_wagner_find_the_nearest_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a linear model it is known: the distance to the plane between two classes."""
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
    model = with_noise(jax.jit(lambda x: x), 0.3, draws=20)
    zeros = jnp.zeros((5, 4, 4, 1))
    first, second = np.asarray(model(zeros)), np.asarray(model(zeros))
    assert (first != second).all()
    # Laplace noise of scale b has the standard deviation sqrt(2) b; of a mean of 20, less.
    assert abs(np.concatenate([first, second])).max() < 8 * 0.3 * np.sqrt(2 / 20)
    assert with_noise(model, 0.0) is model


def test_all_members_together() -> None:
    members = [member_of(network_for((8, 8, 1), 4), seed) for seed in range(3)]
    x = np.random.default_rng(0).uniform(size=(5, 8, 8, 1)).astype(np.float32)
    expected = np.mean([logits(member, x) / 30 for member in members], axis=0)
    np.testing.assert_allclose(together(members)(jnp.asarray(x)), expected, rtol=1e-3, atol=1e-4)


def test_perturbations_are_relative() -> None:
    samples = np.full((2, 2, 2, 1), 0.5, np.float32)
    adversarial = samples.copy()
    adversarial[0, 0, 0, 0] += 0.25
    adversarial[1] = 0  # failed
    assert perturbations(adversarial, samples).tolist() == [0.25, np.inf]


def test_the_smallest_are_superimposed() -> None:
    sample = np.full((1, 2, 2, 1), 0.5, np.float32)
    adversarial = np.repeat(sample[None, :, None], 4, axis=0)
    for member, (pixel, change) in enumerate([(0, 0.4), (1, 0.1), (2, 0.2)]):
        adversarial[member, 0, 0].ravel()[pixel] += change
    adversarial[3] = 0  # failed
    found, members = superimposed(adversarial, sample, 2)
    assert members.ravel().tolist() == [1, 2]
    assert found.ravel().tolist() == pytest.approx([0.5, 0.6, 0.7, 0.5])
    # Pixels stay pixels, and a failed attack adds nothing.
    adversarial[0, 0, 0].ravel()[1] = 0.95
    found, _ = superimposed(adversarial, sample, 4)
    assert found.ravel().tolist() == pytest.approx([0.9, 1.0, 0.7, 0.5])


def test_files_of_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    for name, n in (("train", 6000), ("t10k", 10)):
        images = generator.integers(0, 256, (n, 3, 2), np.uint8)
        labels = generator.integers(0, 10, n).astype(np.uint8)
        header = b"\0\0\x08\x03" + np.array([n, 3, 2], ">u4").tobytes()
        (tmp_path / f"{name}-images-idx3-ubyte.gz").write_bytes(
            gzip.compress(header + images.tobytes())
        )
        (tmp_path / f"{name}-labels-idx1-ubyte").write_bytes(
            b"\0\0\x08\x01" + np.array([n], ">u4").tobytes() + labels.tobytes()
        )
    monkeypatch.setenv("KANON_MNIST", str(tmp_path))
    found = model_data.images.__wrapped__()
    assert found.name == "MNIST"
    assert [len(y) for _, y in (found.train, found.validation, found.test)] == [1000, 5000, 10]
    assert found.test[0].shape == (10, 3, 2, 1)
    assert found.test[0][3, 1, 0, 0] == np.float32(images[3, 1, 0] / np.float32(255))
    assert found.test[1].tolist() == labels.tolist()
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(b"something else")
    with pytest.raises(ValueError, match="no IDX file"):
        model_data.images.__wrapped__()
