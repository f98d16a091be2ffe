"""Small networks: what they are made of, how they are kept, and what they answer, in numpy."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from kanon_db.errors import InvalidParameterError

Float32Array: TypeAlias = npt.NDArray[np.float32]
"""Inputs, parameters and outputs of networks."""

_MAGIC = b"kanon-net-1\n"
_LARGEST_SAME = 16
"""Images with a side below this get padding; otherwise nothing would be left after two poolings."""
_VALUES_AT_ONCE = 4_000_000  # of one layer's patches: 16 MB


@dataclass(frozen=True)
class Layer:
    """One layer of a network.

    Parameters
    ----------
    kind : {'convolution', 'pooling', 'dense', 'logits'}
        Convolutions are 3 x 3 with ReLU, poolings take the maximum of 2 x 2, dense layers have
        ReLU, and the last layer has none.
    units : int
        Filters of a convolution, outputs of a dense layer; 0 for a pooling.
    """

    kind: str
    units: int = 0


@dataclass(frozen=True)
class Architecture:
    """The layers of a network, and the shape of one input.

    Parameters
    ----------
    shape : tuple of int
        Inputs of a row, or height, width and channels of an image.
    layers : tuple of Layer
        The last one has as many units as there are classes.
    is_padded : bool
        Whether convolutions keep the size of the image.
    """

    shape: tuple[int, ...]
    layers: tuple[Layer, ...]
    is_padded: bool = False

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return self.layers[-1].units

    def parameter_shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of all parameters: weights and biases, layer by layer.

        Weights of a convolution are those of a dense layer on patches of 3 x 3 pixels.
        """
        found: list[tuple[int, ...]] = []
        shape = self.shape
        for layer in self.layers:
            n_inputs = 9 * shape[-1] if layer.kind == "convolution" else prod(shape)
            if layer.kind != "pooling":
                found += [(n_inputs, layer.units), (layer.units,)]
            shape = self._after(layer, shape)
        return found

    def sizes(self) -> list[int]:
        """Return how many outputs each layer has for one row."""
        found, shape = [], self.shape
        for layer in self.layers:
            shape = self._after(layer, shape)
            found.append(prod(shape))
        return found

    def patches(self) -> list[int]:
        """Return how many numbers the patches of each convolution have for one row."""
        found, shape = [], self.shape
        for layer in self.layers:
            after = self._after(layer, shape)
            if layer.kind == "convolution":
                found.append(9 * shape[-1] * after[0] * after[1])
            shape = after
        return found

    def multiplications(self) -> int:
        """Return how many multiplications the answer for one row takes."""
        n, shape = 0, self.shape
        for layer in self.layers:
            n_inputs = 9 * shape[-1] if layer.kind == "convolution" else prod(shape)
            shape = self._after(layer, shape)
            n += 0 if layer.kind == "pooling" else n_inputs * prod(shape)
        return n

    def _after(self, layer: Layer, shape: tuple[int, ...]) -> tuple[int, ...]:
        if layer.kind == "convolution":
            lost = 0 if self.is_padded else 2
            return (shape[0] - lost, shape[1] - lost, layer.units)
        if layer.kind == "pooling":
            return (shape[0] // 2, shape[1] // 2, shape[2])
        return (layer.units,)


def network_for(shape: Sequence[int], classes: int) -> Architecture:
    """Return the architecture for inputs of a shape.

    Parameters
    ----------
    shape : sequence of int
        Of one input: its length, or height, width and channels of an image.
    classes : int
        At least two.

    Returns
    -------
    Architecture

    Raises
    ------
    InvalidParameterError
        If there are fewer than two classes, or an image is smaller than 4 x 4.

    Notes
    -----
    **Source:** [TH] Table 4.1 for images: 32 filters and 200 units for one channel (MNIST), 64 and
    256 for several (CIFAR10), without padding, as in N. Carlini, D. Wagner, *Towards evaluating
    the robustness of neural networks*, S&P 2017. Of an image with a side below 16, nothing would
    be left: its convolutions keep the size, and have a quarter of the filters and half of the
    units. Rows get a perceptron of two layers of 64 and 32 units, which the thesis has not.

    Examples
    --------
    >>> network_for((28, 28, 1), 10).sizes()
    [21632, 18432, 4608, 3200, 2048, 512, 200, 200, 10]
    >>> network_for((8, 8, 1), 10).sizes()
    [512, 512, 128, 128, 128, 32, 100, 100, 10]
    >>> network_for((14,), 2).sizes()
    [64, 32, 2]
    """
    if classes < 2:
        raise InvalidParameterError(
            "a model needs two classes or more", detail=f"classes = {classes}"
        )
    if len(shape) == 1:
        return Architecture(
            tuple(shape), (Layer("dense", 64), Layer("dense", 32), Layer("logits", classes))
        )
    if min(shape[:2]) < 4:
        raise InvalidParameterError(
            "images must have at least 4 x 4 pixels", detail=f"{shape[0]} x {shape[1]}"
        )
    is_small = min(shape[:2]) < _LARGEST_SAME
    filters, units = (32, 200) if shape[2] == 1 else (64, 256)
    if is_small:
        filters, units = filters // 4, units // 2
    convolution, pooling = Layer("convolution", filters), Layer("pooling")
    dense = Layer("dense", units)
    layers = (
        convolution, convolution, pooling, convolution, convolution, pooling, dense, dense,
        Layer("logits", classes),
    )  # fmt: skip
    return Architecture(tuple(shape), layers, is_padded=is_small)


@dataclass(frozen=True)
class Member:
    """A trained network of an ensemble.

    Parameters
    ----------
    architecture : Architecture
    parameters : tuple of ndarray of float32
        In the order and of the shapes of :meth:`Architecture.parameter_shapes`.
    temperature : float
        Of the softmax in training.
    part : int
        The part of the source that it was trained on; -1 if on all of it.
    """

    architecture: Architecture
    parameters: tuple[Float32Array, ...]
    temperature: float = 1.0
    part: int = -1

    def to_bytes(self) -> bytes:
        """Return everything about the member as bytes, the same in every run and on any machine."""
        header = {
            "shape": self.architecture.shape,
            "layers": [asdict(layer) for layer in self.architecture.layers],
            "is_padded": self.architecture.is_padded,
            "temperature": self.temperature,
            "part": self.part,
        }
        parameters = b"".join(array.astype("<f4").tobytes() for array in self.parameters)
        return _MAGIC + json.dumps(header).encode() + b"\n" + parameters

    @classmethod
    def from_bytes(cls, content: bytes, digest: str | None = None) -> Member:
        """Read what :meth:`to_bytes` wrote.

        Parameters
        ----------
        content : bytes
        digest : str, optional
            What :func:`digest` said of it.

        Returns
        -------
        Member

        Raises
        ------
        InvalidParameterError
            If it is something else, or its digest differs.
        """
        if digest is not None and digest != digest_of(content):
            raise InvalidParameterError(
                "a member of a model has changed since it was trained",
                hint="publish the model again",
            )
        magic, header, values = content[: len(_MAGIC)], b"", np.empty(0, np.float32)
        try:
            end = content.index(b"\n", len(_MAGIC))
            header = content[len(_MAGIC) : end]
            values = np.frombuffer(content, dtype="<f4", offset=end + 1)
            read = json.loads(header)
            architecture = Architecture(
                tuple(read["shape"]),
                tuple(Layer(**layer) for layer in read["layers"]),
                read["is_padded"],
            )
            temperature, part = float(read["temperature"]), int(read["part"])
        except (ValueError, KeyError, TypeError):
            raise InvalidParameterError("these bytes are no member of a model") from None
        shapes = architecture.parameter_shapes()
        if magic != _MAGIC or values.size != sum(map(prod, shapes)):
            raise InvalidParameterError("these bytes are no member of a model")
        ends = np.cumsum([prod(shape) for shape in shapes])
        parameters = tuple(
            array.reshape(shape)
            for array, shape in zip(np.split(values, ends[:-1]), shapes, strict=True)
        )
        return cls(architecture, parameters, temperature, part)


def digest_of(content: bytes) -> str:
    """Return the SHA-256 of a member's bytes, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def logits(member: Member, inputs: Float32Array) -> Float32Array:
    """Return the outputs of the last layer, before any softmax.

    Parameters
    ----------
    member : Member
    inputs : ndarray of float32, shape (n_rows, *shape)

    Returns
    -------
    ndarray of float32, shape (n_rows, classes)

    Notes
    -----
    Goes through a few rows at a time, so that memory stays small.
    """
    most = max(*member.architecture.sizes(), *member.architecture.patches())
    step = max(1, _VALUES_AT_ONCE // most)
    found = np.empty((len(inputs), member.architecture.classes), dtype=np.float32)
    for start in range(0, len(inputs), step):
        found[start : start + step] = deque(_forward(member, inputs[start : start + step]), 1).pop()
    return found


def layer_outputs(member: Member, inputs: Float32Array) -> list[Float32Array]:
    """Return the outputs of every layer; the last ones are the logits.

    Parameters
    ----------
    member : Member
    inputs : ndarray of float32, shape (n_rows, *shape)

    Returns
    -------
    list of ndarray of float32, shape (n_rows, *shape of the layer)
        Nothing here is noisy: whoever answers questions gives noisy inputs
        (:func:`kanon_db.algorithms.models.noise.noisy`).
    """
    return list(_forward(member, inputs))


def probabilities(outputs: Float32Array, temperature: float = 1.0) -> Float32Array:
    """Return the softmax of logits at a temperature ([TH] 4.1.4).

    Parameters
    ----------
    outputs : ndarray of float32, shape (..., classes)
    temperature : float

    Returns
    -------
    ndarray of float32, shape (..., classes)
    """
    shifted = (outputs - outputs.max(axis=-1, keepdims=True)) / np.float32(temperature)
    powers = np.exp(shifted)
    found: Float32Array = powers / powers.sum(axis=-1, keepdims=True)
    return found


def _forward(member: Member, inputs: Float32Array) -> Iterator[Float32Array]:
    parameters = iter(member.parameters)
    values = np.ascontiguousarray(inputs, dtype=np.float32)
    for layer in member.architecture.layers:
        if layer.kind == "pooling":
            values = _pooled(values)
        else:
            if layer.kind == "convolution":
                values = _patches(values, is_padded=member.architecture.is_padded)
            else:
                values = values.reshape(len(values), -1)
            values = values @ next(parameters)
            values += next(parameters)
            if layer.kind != "logits":
                np.maximum(values, 0, out=values)
        yield values


def _patches(images: Float32Array, *, is_padded: bool) -> Float32Array:
    """Put the 3 x 3 neighborhood of each pixel side by side."""
    if is_padded:
        images = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    height, width = images.shape[1] - 2, images.shape[2] - 2
    return np.concatenate(
        [images[:, y : y + height, x : x + width] for y in range(3) for x in range(3)], axis=-1
    )


def _pooled(images: Float32Array) -> Float32Array:
    height, width = images.shape[1] // 2 * 2, images.shape[2] // 2 * 2
    rows = np.maximum(images[:, 0:height:2], images[:, 1:height:2])
    return np.maximum(rows[:, :, 0:width:2], rows[:, :, 1:width:2])
