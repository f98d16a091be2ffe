"""Encodes rows as inputs of small networks, and calculates the networks' outputs, in numpy."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from math import prod
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError

Float32Array: TypeAlias = npt.NDArray[np.float32]
"""Inputs, parameters and outputs of networks."""

_MAGIC = b"kanon-net-1\n"
_LARGEST_PADDED = 16
"""Images with a shorter side get padding; nothing would be left of them after two poolings."""
_VALUES_AT_ONCE = 4_000_000  # of one layer's patches: 16 MB


@dataclass(frozen=True)
class Layer:
    """One layer of a network."""

    # Convolutions are 3 x 3 with ReLU, poolings take the maximum of 2 x 2, dense layers have ReLU,
    # and the last layer has none
    kind: str
    units: int = 0  # Filters of a convolution, outputs of a dense layer; 0 for a pooling


@dataclass(frozen=True)
class Architecture:
    """The layers of a network, and the shape of one input."""

    shape: tuple[int, ...]  # Inputs of a row, or height, width and channels of an image
    layers: tuple[Layer, ...]  # The last one has as many units as there are classes
    is_padded: bool = False  # Whether convolutions keep the size of the image

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self.layers[-1].units

    def parameter_shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of all parameters: weights and biases, layer by layer.

        Weights of a convolution are those of a dense layer on patches of 3 x 3 pixels.
        """
        shapes: list[tuple[int, ...]] = []
        shape = self.shape
        for layer in self.layers:
            n_inputs = 9 * shape[-1] if layer.kind == "convolution" else prod(shape)
            if layer.kind != "pooling":
                shapes += [(n_inputs, layer.units), (layer.units,)]
            shape = self._after(layer, shape)
        return shapes

    def sizes(self) -> list[int]:
        """Return the number of outputs of each layer for one row."""
        counts, shape = [], self.shape
        for layer in self.layers:
            shape = self._after(layer, shape)
            counts.append(prod(shape))
        return counts

    def patches(self) -> list[int]:
        """Return the number of values in the patches of each convolution for one row."""
        counts, shape = [], self.shape
        for layer in self.layers:
            after = self._after(layer, shape)
            if layer.kind == "convolution":
                counts.append(9 * shape[-1] * after[0] * after[1])
            shape = after
        return counts

    def multiplications(self) -> int:
        """Return the number of multiplications that one row takes."""
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
    """Return the architecture for inputs of a shape: a length, or height, width and channels."""
    # [TH] Table 4.1 for images: 32 filters and 200 units for one channel (MNIST), 64 and 256 for
    # several (CIFAR10), without padding, as in N. Carlini, D. Wagner, Towards evaluating the
    # robustness of neural networks, S&P 2017. Two deviations: nothing would be left of an image
    # with a side below 16, so its convolutions keep the size, with a quarter of the filters and
    # half of the units; and rows get a perceptron of two layers of 64 and 32 units.
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
    is_small = min(shape[:2]) < _LARGEST_PADDED
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
    """A trained network of an ensemble."""

    architecture: Architecture
    # In the order and of the shapes of :meth:`Architecture.parameter_shapes`
    parameters: tuple[Float32Array, ...]
    temperature: float = 1.0  # Temperature of the softmax in training
    part: int = -1  # The part of the source that it was trained on; -1 if on all of it

    def to_bytes(self) -> bytes:
        """Return the whole member as bytes, which are the same in every run and on any machine."""
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

        Raises InvalidParameterError if the content is no member, or its digest differs.
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

    Inputs (n_rows, *shape), outputs (n_rows, classes); a few rows at a time, to save memory.
    """
    most = max(*member.architecture.sizes(), *member.architecture.patches())
    step = max(1, _VALUES_AT_ONCE // most)
    outputs = np.empty((len(inputs), member.architecture.classes), dtype=np.float32)
    for start in range(0, len(inputs), step):
        outputs[start : start + step] = deque(
            _forward(member, inputs[start : start + step]), 1
        ).pop()
    return outputs


def probabilities(outputs: Float32Array, temperature: float = 1.0) -> Float32Array:
    """Return the softmax of logits at a temperature ([TH] 4.1.4).

    Shapes: `outputs` (..., classes), returned (..., classes).
    """
    shifted = (outputs - outputs.max(axis=-1, keepdims=True)) / np.float32(temperature)
    powers = np.exp(shifted)
    normalized: Float32Array = powers / powers.sum(axis=-1, keepdims=True)
    return normalized


def _forward(member: Member, inputs: Float32Array) -> Iterator[Float32Array]:
    parameters = iter(member.parameters)
    values = np.ascontiguousarray(inputs, dtype=np.float32)
    for layer in member.architecture.layers:
        if layer.kind == "pooling":
            values = _pool_images(values)
        else:
            if layer.kind == "convolution":
                values = _patches_of_images(values, is_padded=member.architecture.is_padded)
            else:
                values = values.reshape(len(values), -1)
            values = values @ next(parameters)
            values += next(parameters)
            if layer.kind != "logits":
                np.maximum(values, 0, out=values)
        yield values


def _patches_of_images(images: Float32Array, *, is_padded: bool) -> Float32Array:
    """Put the 3 x 3 neighborhood of each pixel side by side."""
    if is_padded:
        images = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    height, width = images.shape[1] - 2, images.shape[2] - 2
    return np.concatenate(
        [images[:, y : y + height, x : x + width] for y in range(3) for x in range(3)], axis=-1
    )


def _pool_images(images: Float32Array) -> Float32Array:
    height, width = images.shape[1] // 2 * 2, images.shape[2] // 2 * 2
    rows = np.maximum(images[:, 0:height:2], images[:, 1:height:2])
    return np.maximum(rows[:, :, 0:width:2], rows[:, :, 1:width:2])


FeatureKind: TypeAlias = Literal["numeric", "categorical", "array"]

FeatureColumns: TypeAlias = Mapping[str, Sequence[Any] | npt.NDArray[Any]]
"""The values of each column; None for a missing value."""

MOST_CATEGORIES = 100
_SPREADS = 3.0  # a fitted range is the mean and three standard deviations to each side
_FEATURE_KINDS = ("numeric", "categorical", "array")


@dataclass(frozen=True)
class Feature:
    """Encodes the values of one column as inputs."""

    name: str
    kind: FeatureKind
    # Range of numbers; values beyond it are cut off. Columns of numbers become -1 to 1, arrays 0 to
    # 1.
    low: float = 0.0
    high: float = 1.0
    categories: tuple[str, ...] = ()  # Categories with an input of their own
    shape: tuple[int, ...] = ()  # Shape of an array: its length, or height, width and channels
    # Whether the publisher declared the range or the categories; otherwise people's values decided
    # them
    is_declared: bool = False

    @property
    def width(self) -> int:
        """The number of inputs of the column."""
        if self.kind == "numeric":
            return 2
        return len(self.categories) + 2 if self.kind == "categorical" else int(np.prod(self.shape))

    def encode(self, values: Sequence[Any] | npt.NDArray[Any]) -> Float32Array:
        """Return the inputs, float32 of shape (n_rows, width)."""
        inputs = np.zeros((len(values), self.width), dtype=np.float32)
        if self.kind == "categorical":
            places = {category: i for i, category in enumerate(self.categories)}
            other, missing = self.width - 2, self.width - 1
            at = [missing if v is None else places.get(_text(v), other) for v in values]
            inputs[np.arange(len(values)), at] = 1.0
        elif self.kind == "numeric":
            numbers = _numbers(values)
            scaled = self._scale(numbers) * 2 - 1
            inputs[:, 0] = np.where(np.isnan(numbers), 0.0, scaled)
            inputs[:, 1] = np.isnan(numbers)
        else:
            for row, value in zip(inputs, values, strict=True):
                row[:] = np.nan_to_num(self._scale(self._pixels(value)), nan=0.0)
        return inputs

    def _scale(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Map the range to 0 to 1, and cut off numbers beyond it."""
        scaled: npt.NDArray[np.float64] = (numbers - self.low) / ((self.high - self.low) or 1.0)
        return np.clip(scaled, 0.0, 1.0)

    def _pixels(self, value: Any) -> npt.NDArray[np.float64]:
        if value is None:
            return np.full(self.width, np.nan)
        numbers = np.asarray(value, dtype=np.float64).ravel()
        if numbers.size != self.width:
            raise InvalidParameterError(
                "an array has another length than those that the model knows",
                detail=f"column {self.name}: {numbers.size} numbers, expected {self.width}",
            )
        return numbers


@dataclass(frozen=True)
class Encoding:
    """Encodes rows as inputs of a model."""

    # Fitted ranges and categories tell about people: a range can show the highest income, a
    # category that somebody has it. All members share the encoding, so a budget for votes does not
    # cover what is fitted.

    features: tuple[Feature, ...]  # In the order of the inputs

    @classmethod
    def fit(
        cls,
        columns: FeatureColumns,
        kinds: Mapping[str, FeatureKind],
        *,
        ranges: Mapping[str, tuple[float, float]] | None = None,
        categories: Mapping[str, Sequence[str]] | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
    ) -> Encoding:
        """Make the encoding of the columns that `kinds` names, and fit what is not declared."""
        # By default a numeric column has the mean and three standard deviations to each side (cut
        # at the lowest and highest number), an array its lowest and highest number and the length
        # of the first one, and a categorical column its 100 most frequent categories.
        ranges, categories, shapes = ranges or {}, categories or {}, shapes or {}
        features = []
        for name, kind in kinds.items():
            values = columns.get(name, ())
            if kind not in _FEATURE_KINDS:
                raise InvalidParameterError(
                    "a feature has an unknown kind",
                    detail=f"column {name}",
                    hint=f"choose one of {', '.join(_FEATURE_KINDS)}",
                )
            if kind == "categorical":
                declared = categories.get(name)
                features.append(
                    Feature(
                        name,
                        kind,
                        categories=tuple(_frequent(values) if declared is None else declared),
                        is_declared=declared is not None,
                    )
                )
                continue
            shape = tuple(shapes.get(name, ())) if kind == "array" else ()
            if kind == "array" and not shape:
                shape = (_length(name, values),)
            low, high = ranges[name] if name in ranges else _fit_range(name, kind, values)
            if not (np.isfinite([low, high]).all() and low <= high):
                raise InvalidParameterError("a range is empty", detail=f"column {name}")
            is_declared = name in ranges and (kind == "numeric" or name in shapes)
            features.append(
                Feature(name, kind, float(low), float(high), (), shape, is_declared=is_declared)
            )
        if not features:
            raise InvalidParameterError("a model needs a feature")
        return cls(tuple(features))

    @property
    def is_declared(self) -> bool:
        """Whether all ranges, categories and shapes were declared."""
        return all(feature.is_declared for feature in self.features)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input: that of an image if it is the only feature, else a length."""
        if len(self.features) == 1 and len(self.features[0].shape) == 3:
            return self.features[0].shape
        return (sum(feature.width for feature in self.features),)

    def encode(self, columns: FeatureColumns) -> Float32Array:
        """Encode rows.

        Returns (n_rows, *shape). Raises InvalidParameterError, which repeats no value.
        """
        missing = [feature.name for feature in self.features if feature.name not in columns]
        if missing:
            raise InvalidParameterError(
                "features are missing", detail=f"columns {', '.join(missing)}"
            )
        lengths = {len(columns[feature.name]) for feature in self.features}
        if len(lengths) > 1:
            raise InvalidParameterError("features must have as many values each")
        blocks = []
        for feature in self.features:
            try:
                blocks.append(feature.encode(columns[feature.name]))
            except (ValueError, TypeError, OverflowError):
                raise InvalidParameterError(
                    "a feature has a value of another kind",
                    detail=f"column {feature.name} is {feature.kind}",
                ) from None
        return np.concatenate(blocks, axis=1).reshape(-1, *self.shape)

    def to_json(self) -> str:
        """Write the encoding as JSON."""
        return json.dumps({"features": [asdict(feature) for feature in self.features]})

    @classmethod
    def from_json(cls, text: str) -> Encoding:
        """Read what :meth:`to_json` wrote."""
        features = []
        for item in json.loads(text)["features"]:
            lists = {"categories": tuple(item["categories"]), "shape": tuple(item["shape"])}
            features.append(Feature(**{**item, **lists}))
        return cls(tuple(features))


def _text(value: Any) -> str:
    """Return the text of a category; values other than texts are written as JSON."""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    return str(value)


def _numbers(values: Sequence[Any] | npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    return np.array([np.nan if v is None else float(v) for v in values], dtype=np.float64)


def _frequent(values: Sequence[Any] | npt.NDArray[Any]) -> list[str]:
    counts = Counter(_text(value) for value in values if value is not None)
    most = sorted(counts, key=lambda text: (-counts[text], text))[:MOST_CATEGORIES]
    return sorted(most)


def _length(name: str, values: Sequence[Any] | npt.NDArray[Any]) -> int:
    for value in values:
        if value is not None:
            return int(np.asarray(value).size)
    raise InvalidParameterError("an array feature has no arrays", detail=f"column {name}")


def _fit_range(
    name: str, kind: FeatureKind, values: Sequence[Any] | npt.NDArray[Any]
) -> tuple[float, float]:
    if kind == "array":
        arrays = [
            np.asarray(value, dtype=np.float64).ravel() for value in values if value is not None
        ]
        numbers = np.concatenate(arrays) if arrays else np.empty(0)
    else:
        numbers = _numbers(values)
    numbers = numbers[np.isfinite(numbers)]
    if not numbers.size:
        raise InvalidParameterError("a feature has no numbers", detail=f"column {name}")
    low, high = float(numbers.min()), float(numbers.max())
    if kind == "array":
        return low, high
    middle, spread = float(numbers.mean()), float(numbers.std())
    return max(low, middle - _SPREADS * spread), min(high, middle + _SPREADS * spread)


Descent = Literal["adam", "momentum"]
"""How members learn: by Adam (D. Kingma, J. Ba 2015), or by descent with momentum, as in [TH]."""

RATES: Final[Mapping[Descent, float]] = {"adam": 0.002, "momentum": 0.01}


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of the training of members: but for Adam, those of [TH] Table 4.2."""

    # A temperature T divides the gradient by T: Adam is indifferent to its scale, and descent with
    # momentum is slow where T is high. The table's 3,000 epochs are 27,000 steps a member.

    steps: int = 1500  # Batches that each member sees
    batch: int = 128
    descent: Descent = "adam"
    decay: float = 1e-6  # The rate of step i is that of RATES / (1 + decay * i)
    momentum: float = 0.9
    # Share of the outputs of an image's first dense layer that a step leaves out; 0 for rows
    dropout: float = 0.5
