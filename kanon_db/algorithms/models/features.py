"""From columns to the inputs of networks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.models.networks import Float32Array
from kanon_db.errors import InvalidParameterError

Kind: TypeAlias = Literal["numeric", "categorical", "array"]

Columns: TypeAlias = Mapping[str, Sequence[Any] | npt.NDArray[Any]]
"""Values of each column, None where they are missing."""

MOST_CATEGORIES = 100
_SPREADS = 3.0  # a fitted range is the mean and three standard deviations to each side
_KINDS = ("numeric", "categorical", "array")


@dataclass(frozen=True)
class Feature:
    """How the values of one column become inputs.

    Parameters
    ----------
    name : str
    kind : {'numeric', 'categorical', 'array'}
    low, high : float
        Of numbers: values beyond are taken for these. Columns of numbers become -1 to 1, arrays
        0 to 1.
    categories : tuple of str
        Those with an input of their own.
    shape : tuple of int
        Of an array: its length, or height, width and channels.
    is_declared : bool
        Whether the publisher declared range or categories; otherwise they were learned from
        people's values.
    """

    name: str
    kind: Kind
    low: float = 0.0
    high: float = 1.0
    categories: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    is_declared: bool = False

    @property
    def width(self) -> int:
        """How many inputs the column becomes."""
        if self.kind == "numeric":
            return 2
        return len(self.categories) + 2 if self.kind == "categorical" else int(np.prod(self.shape))

    def encode(self, values: Sequence[Any] | npt.NDArray[Any]) -> Float32Array:
        """Return the inputs, float32 of shape (n_rows, width)."""
        found = np.zeros((len(values), self.width), dtype=np.float32)
        if self.kind == "categorical":
            places = {category: i for i, category in enumerate(self.categories)}
            other, missing = self.width - 2, self.width - 1
            at = [missing if v is None else places.get(_text(v), other) for v in values]
            found[np.arange(len(values)), at] = 1.0
        elif self.kind == "numeric":
            numbers = _numbers(values)
            scaled = self._scaled(numbers) * 2 - 1
            found[:, 0] = np.where(np.isnan(numbers), 0.0, scaled)
            found[:, 1] = np.isnan(numbers)
        else:
            for row, value in zip(found, values, strict=True):
                row[:] = np.nan_to_num(self._scaled(self._pixels(value)), nan=0.0)
        return found

    def _scaled(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Map low and high to 0 and 1, and cut off what lies beyond."""
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
    """How rows become inputs of a model.

    Parameters
    ----------
    features : tuple of Feature
        In the order of the inputs.

    Notes
    -----
    Means, ranges and categories that are fitted are themselves information about people: a range
    can show the one highest income, a category that somebody has it. All members share the
    encoding, so that a budget for votes promises nothing about what is fitted. Declare ranges and
    categories, as one would tell them to anybody; :attr:`is_declared` says whether all are.
    """

    features: tuple[Feature, ...]

    @classmethod
    def fit(
        cls,
        columns: Columns,
        kinds: Mapping[str, Kind],
        *,
        ranges: Mapping[str, tuple[float, float]] | None = None,
        categories: Mapping[str, Sequence[str]] | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
    ) -> Encoding:
        """Decide how columns become inputs.

        Parameters
        ----------
        columns : mapping
            Values of each column; read only where nothing is declared.
        kinds : mapping
            'numeric', 'categorical' or 'array' for each column to use, in this order.
        ranges : mapping, optional
            Lowest and highest number of columns; otherwise, of numeric ones, the mean and three
            standard deviations to each side (cut at the lowest and highest), and the lowest and
            highest number of arrays.
        categories : mapping, optional
            Of columns; otherwise the 100 most frequent ones.
        shapes : mapping, optional
            Of arrays: a length, or height, width and channels; otherwise the first array's length.

        Returns
        -------
        Encoding

        Raises
        ------
        InvalidParameterError
            If a kind is unknown, a range is empty, or nothing can be learned from a column.
        """
        ranges, categories, shapes = ranges or {}, categories or {}, shapes or {}
        features = []
        for name, kind in kinds.items():
            values = columns.get(name, ())
            if kind not in _KINDS:
                raise InvalidParameterError(
                    "a feature has an unknown kind",
                    detail=f"column {name}",
                    hint=f"choose one of {', '.join(_KINDS)}",
                )
            if kind == "categorical":
                found = categories.get(name)
                features.append(
                    Feature(
                        name,
                        kind,
                        categories=tuple(_frequent(values) if found is None else found),
                        is_declared=found is not None,
                    )
                )
                continue
            shape = tuple(shapes.get(name, ())) if kind == "array" else ()
            if kind == "array" and not shape:
                shape = (_length(name, values),)
            low, high = ranges[name] if name in ranges else _fitted_range(name, kind, values)
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
        """Whether all ranges, categories and shapes were declared, and none learned."""
        return all(feature.is_declared for feature in self.features)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input: of an image if that is the only feature, else a length."""
        if len(self.features) == 1 and len(self.features[0].shape) == 3:
            return self.features[0].shape
        return (sum(feature.width for feature in self.features),)

    def encode(self, columns: Columns) -> Float32Array:
        """Encode rows.

        Parameters
        ----------
        columns : mapping
            Values of every feature, as many of each.

        Returns
        -------
        ndarray of float32, shape (n_rows, *shape)

        Raises
        ------
        InvalidParameterError
            If a column is missing, or has values of another kind; no value is repeated.
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
    """Name a category: as it is, or as JSON writes it, so that true is the same everywhere."""
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


def _fitted_range(
    name: str, kind: Kind, values: Sequence[Any] | npt.NDArray[Any]
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
