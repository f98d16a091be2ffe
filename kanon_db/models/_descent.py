"""Trains several networks at once by gradient descent; no other module imports JAX and optax."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]

from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray
from kanon_db.models._network import RATES, Architecture, Float32Array

if TYPE_CHECKING:
    from kanon_db.models._network import TrainingSettings


def forward(
    architecture: Architecture,
    parameters: list[jax.Array],
    inputs: jax.Array,
    key: jax.Array | None = None,
    dropout: float = 0.0,
) -> jax.Array:
    """Return the logits of one network, as :func:`._network.logits`; a `key` draws the dropout."""
    # Convolutions are products of matrices of patches: side by side for many networks, XLA's own
    # convolutions are slow on CPUs. Without a key, nothing is left out.
    left = iter(parameters)
    values = inputs
    for layer in architecture.layers:
        if layer.kind == "pooling":
            values = _pool(values)
            continue
        if layer.kind == "convolution":
            values = _patches(values, is_padded=architecture.is_padded)
        else:
            values = values.reshape(values.shape[0], -1)
        values = values @ next(left) + next(left)
        if layer.kind != "logits":
            values = jax.nn.relu(values)
        if layer.kind == "dense" and key is not None and dropout:
            values *= jax.random.bernoulli(key, 1 - dropout, values.shape) / (1 - dropout)
            key = None
    return values


def _optimizer(settings: TrainingSettings) -> Any:
    def rate(step: int) -> float:
        return RATES[settings.descent] / (1 + settings.decay * step)

    if settings.descent == "momentum":
        return optax.sgd(rate, settings.momentum)
    return optax.adam(rate, b1=settings.momentum)


# Records are arguments, not constants: whoever trains again with as many compiles nothing.
@partial(jax.jit, static_argnames=("architecture", "settings"), donate_argnames="trained")
def _train(
    trained: tuple[list[jax.Array], Any, jax.Array],
    picked: jax.Array,
    temperatures: jax.Array,
    inputs: jax.Array,
    labels: jax.Array,
    *,
    architecture: Architecture,
    settings: TrainingSettings,
) -> tuple[list[jax.Array], Any, jax.Array]:
    """Take a step for each batch; parameters, optimizer's state, and key go in and come out."""
    dropout = settings.dropout if len(architecture.shape) == 3 else 0.0
    optimizer = _optimizer(settings)

    def loss(
        parameters: list[jax.Array], rows: jax.Array, temperature: jax.Array, key: jax.Array
    ) -> jax.Array:
        outputs = forward(architecture, parameters, inputs[rows], key, dropout)
        losses: jax.Array = optax.softmax_cross_entropy_with_integer_labels(
            outputs / temperature, labels[rows]
        )
        return losses.mean()

    def step(
        parameters: list[jax.Array],
        state: Any,
        rows: jax.Array,
        temperature: jax.Array,
        key: jax.Array,
    ) -> tuple[list[jax.Array], Any]:
        gradient = jax.grad(loss)(parameters, rows, temperature, key)
        updates, state = optimizer.update(gradient, state, parameters)
        return optax.apply_updates(parameters, updates), state

    def body(carried: Any, rows: jax.Array) -> tuple[Any, None]:
        parameters, state, key = carried
        key, *keys = jax.random.split(key, rows.shape[0] + 1)
        parameters, state = jax.vmap(step)(parameters, state, rows, temperatures, jnp.stack(keys))
        return (parameters, state, key), None

    return jax.lax.scan(body, trained, picked)[0]


class GradientDescent:
    """Trains a group of networks of one architecture, each on its own records.

    Shapes: `inputs` (n_records, *shape), `labels` (n_records,).
    """

    def __init__(
        self,
        architecture: Architecture,
        settings: TrainingSettings,
        inputs: Float32Array,
        labels: AnyIntArray,
    ) -> None:
        self._architecture, self._settings = architecture, settings
        # numpy converts numbers: JAX would compile that for each shape.
        self._inputs = jax.device_put(inputs.astype(np.float32))
        self._labels = jax.device_put(labels.astype(np.int32))
        self._trained: tuple[list[jax.Array], Any, jax.Array] = [], None, jax.random.key(0)
        self._temperatures = jax.device_put(np.ones(1, dtype=np.float32))

    def start(self, temperatures: list[float], generator: np.random.Generator) -> None:
        """Begin with new networks, one for each temperature, with random weights (He et al.)."""
        parameters = []
        for shape in self._architecture.parameter_shapes():
            widest = np.sqrt(6 / shape[0]) if len(shape) == 2 else 0.0
            drawn = generator.uniform(-widest, widest, (len(temperatures), *shape))
            parameters.append(jax.device_put(drawn.astype(np.float32)))
        state = jax.jit(jax.vmap(_optimizer(self._settings).init))(parameters)
        self._trained = parameters, state, jax.random.key(int(generator.integers(2**63)))
        self._temperatures = jax.device_put(np.array(temperatures, dtype=np.float32))

    def run(self, picked: IntArray) -> None:
        """Take a step for each batch: numbers of records, shape (n_steps, n_networks, batch)."""
        self._trained = _train(
            self._trained,
            jax.device_put(picked.astype(np.int32)),
            self._temperatures,
            self._inputs,
            self._labels,
            architecture=self._architecture,
            settings=self._settings,
        )
        self._trained[2].block_until_ready()

    def parameters(self) -> list[tuple[Float32Array, ...]]:
        """Return the parameters of each network."""
        arrays = [np.asarray(array) for array in self._trained[0]]
        return [tuple(array[i].copy() for array in arrays) for i in range(len(self._temperatures))]


def _patches(images: jax.Array, *, is_padded: bool) -> jax.Array:
    if is_padded:
        images = jnp.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    height, width = images.shape[1] - 2, images.shape[2] - 2
    return jnp.concatenate(
        [images[:, y : y + height, x : x + width] for y in range(3) for x in range(3)], axis=-1
    )


def _pool(images: jax.Array) -> jax.Array:
    height, width = images.shape[1] // 2 * 2, images.shape[2] // 2 * 2
    rows = jnp.maximum(images[:, 0:height:2], images[:, 1:height:2])
    return jnp.maximum(rows[:, :, 0:width:2], rows[:, :, 1:width:2])
