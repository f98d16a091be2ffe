"""What a model is trained on and asked about: features and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import AnyIntArray
from kanon_db.algorithms.models.features import Encoding, Feature, Kind
from kanon_db.algorithms.models.networks import Float32Array
from kanon_db.catalog.entries import Source
from kanon_db.errors import InfeasibleError, InvalidParameterError, SchemaMismatchError
from kanon_db.publications.kind import Job
from kanon_db.publications.model.layout import FEATURES
from kanon_db.publications.model.reading import is_array, read_arrays, read_floats
from kanon_db.publications.model.request import ModelRequest
from kanon_db.transfer.columns import ColumnType
from kanon_db.transfer.snapshot import Snapshot
from kanon_db.transfer.values import distinct_values, read_codes

_MOST_LABELS: Final = 1000
_ROWS_AT_ONCE: Final = 10_000
_CATEGORICAL: Final = "SBE"
"""`pg_type.typcategory` of texts, booleans and enumerations."""

_BOOLEANS: Final = {"t": "true", "f": "false"}
"""As JSON writes what the server writes."""


@dataclass(frozen=True)
class Labels:
    """The values of the label.

    Attributes
    ----------
    texts : list of str
        In the order of the classes.
    is_declared : bool
        Whether the publisher listed them.
    """

    texts: list[str]
    is_declared: bool


def chosen_columns(
    request: ModelRequest, source: Source, types: Mapping[str, ColumnType]
) -> list[str]:
    """Name the features, and then the label.

    Raises
    ------
    SchemaMismatchError
        When a column has a type that nothing is learned from.
    """
    features = request.features
    names = list(features) if features is not None else _others(request, source)
    for name in [*names, request.label]:
        if _kind_of(types[name], source, {}) == "array" and name == request.label:
            raise SchemaMismatchError("arrays are no labels", detail=f'column "{name}"')
    return [*names, request.label]


def _others(request: ModelRequest, source: Source) -> list[str]:
    return [name for name in source.published if name != request.label]


def check_columns(request: ModelRequest, source: Source) -> None:
    """Refuse columns that no publication shows, and a model without a feature.

    Raises
    ------
    InvalidParameterError
    """
    names = _others(request, source) if request.features is None else list(request.features)
    for name in [*names, request.label]:
        if name not in source.published:
            raise InvalidParameterError(
                "a model is made of columns that may be published",
                detail=f'"{name}" is no quasi-identifier, sensitive or insensitive column of'
                f" {source.relation}",
                hint=f"choose from {', '.join(source.published)}, or register the source with it",
            )
    if not names:
        raise InvalidParameterError(
            "a model needs a feature", detail=f"{source.relation} publishes the label only"
        )


def _kind_of(column: ColumnType, source: Source, described: Mapping[str, Any]) -> Kind:
    if is_array(column):
        return "array"
    numbers = column.type_category == "N" and column.number("") is not None
    if numbers and "values" not in described and not source.is_categorical(column.name):
        return "numeric"
    if numbers or column.type_category in _CATEGORICAL:
        return "categorical"
    raise SchemaMismatchError(
        "a model learns from numbers, texts, booleans, enumerations and arrays of numbers",
        detail=f'column "{column.name}" is {column.type_name}',
        hint="publish a model of a view that turns it into one of these",
    )


_PARTS: Final[Mapping[Kind, tuple[str, ...]]] = {
    "numeric": ("lower", "upper"),
    "categorical": ("values",),
    "array": ("lower", "upper", "shape"),
}
"""What may be said of a feature."""


@dataclass(frozen=True)
class _Declared:
    """What the publisher said of the features, as the encoding takes it."""

    kinds: dict[str, Kind]
    ranges: dict[str, tuple[float, float]]
    categories: dict[str, Sequence[str]]
    shapes: dict[str, Sequence[int]]


def _declared(job: Job[ModelRequest], names: Sequence[str]) -> _Declared:
    found = _Declared({}, {}, {}, {})
    for name in names:
        described = (job.request.features or {}).get(name, {})
        kind = found.kinds[name] = _kind_of(job.types[name], job.source, described)
        unknown = [part for part in described if part not in _PARTS[kind]]
        if unknown:
            raise InvalidParameterError(
                f"a feature is described by {', '.join(_PARTS[kind])}",
                detail=f'column "{name}" is {kind}',
            )
        if "lower" in described or "upper" in described:
            found.ranges[name] = _range(name, described)
        if "values" in described:
            found.categories[name] = _values(name, described["values"])
        if "shape" in described:
            found.shapes[name] = _shape(name, described["shape"])
    return found


def _range(name: str, described: Mapping[str, Any]) -> tuple[float, float]:
    bounds = [described.get(part) for part in ("lower", "upper")]
    if not all(isinstance(b, int | float) and not isinstance(b, bool) for b in bounds):
        raise InvalidParameterError(
            "a range has the numbers lower and upper", detail=f'column "{name}"'
        )
    lower, upper = float(bounds[0] or 0), float(bounds[1] or 0)
    if not lower < upper:
        raise InvalidParameterError(
            "the lower end of a range must be below the upper", detail=f'column "{name}"'
        )
    return lower, upper


def _values(name: str, given: Any) -> list[str]:
    allowed = str | int | bool | float
    if not isinstance(given, list) or not given or not all(isinstance(v, allowed) for v in given):
        raise InvalidParameterError(
            "values of a feature are a JSON list of texts, numbers or truth values",
            detail=f'column "{name}"',
        )
    texts = [str(v).lower() if isinstance(v, bool) else str(v) for v in given]
    if len(set(texts)) < len(texts):
        raise InvalidParameterError("a value is listed twice", detail=f'column "{name}"')
    return texts


def _shape(name: str, given: Any) -> list[int]:
    is_list = isinstance(given, list) and len(given) in (1, 2, 3)
    if not is_list or not all(isinstance(n, int) and 0 < n <= 10_000 for n in given):
        raise InvalidParameterError(
            "a shape is a JSON list of a length, or of height and width, and channels if several",
            detail=f'column "{name}"',
        )
    return [*given, 1] if len(given) == 2 else given


def read_inputs(job: Job[ModelRequest]) -> tuple[Float32Array, Encoding]:
    """Read the features, and decide how their values become inputs.

    Raises
    ------
    InvalidParameterError, SchemaMismatchError
        When a feature does not fit its column, or there is nothing to learn from one.
    InfeasibleError
        When there is no memory for the inputs.
    """
    *names, _ = chosen_columns(job.request, job.source, job.types)
    declared = _declared(job, names)
    columns = {
        name: read_column(job.snapshot, job.types[name], kind)
        for name, kind in declared.kinds.items()
    }
    job.session.step("encoding values")
    encoding = Encoding.fit(
        columns,
        declared.kinds,
        ranges=declared.ranges,
        categories=declared.categories,
        shapes=declared.shapes,
    )
    n = job.snapshot.n_records
    width = sum(feature.width for feature in encoding.features)
    job.snapshot.hold(4.0 * width * n, "inputs")
    inputs = np.empty((n, *encoding.shape), dtype=np.float32)
    for start in range(0, n, _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        inputs[part] = encoding.encode({name: values[part] for name, values in columns.items()})
        job.session.heartbeat()
    return inputs, encoding


def read_column(snapshot: Snapshot, column: ColumnType, kind: Kind) -> Any:
    """Return the value of each record, as encodings take them."""
    if kind == "array":
        return read_arrays(snapshot, column)
    if kind == "numeric":
        return read_floats(snapshot, column)
    return read_texts(snapshot, column)


def read_texts(snapshot: Snapshot, column: ColumnType) -> npt.NDArray[Any]:
    """Return the text of each record's value, as JSON has it; None for NULL."""
    values = distinct_values(snapshot, column)
    codes = read_codes(snapshot, [values])[:, 0]
    texts = np.array([_text(column, label) for label in values.labels], dtype=object)
    values.drop()
    return texts[codes]


def _text(column: ColumnType, label: str | None) -> str | None:
    """Return a value as JSON has it."""
    if column.type_name == "boolean" and label is not None:
        return _BOOLEANS[label]
    return label


def read_labels(job: Job[ModelRequest]) -> tuple[Labels, AnyIntArray]:
    """Read what the model is to tell of each record, as numbers of classes.

    Raises
    ------
    InvalidParameterError
        When some records have no label, or one that is not listed.
    InfeasibleError
        When there are too many labels, or one only.
    """
    column = job.types[job.request.label]
    values = distinct_values(job.snapshot, column)
    if None in values.labels:
        raise InvalidParameterError(
            "some records have no label",
            detail=f'column "{column.name}" is NULL in {values.counts[-1]:,} records',
            hint="publish a model of a view that leaves them out",
        )
    texts = [str(_text(column, label)) for label in values.labels]
    listed = list(job.request.labels or texts)
    if not 2 <= len(listed) <= _MOST_LABELS:
        raise InfeasibleError(
            f"a model tells between 2 and {_MOST_LABELS:,} labels apart",
            detail=f'column "{column.name}": {len(listed):,}',
        )
    if len(set(listed)) < len(listed) or not set(texts) <= set(listed):
        raise InvalidParameterError(
            "labels must list every value of the label once",
            detail=f'column "{column.name}": {len(set(texts) - set(listed))} of {len(texts)} values'
            " are not listed",
        )
    places = {text: place for place, text in enumerate(listed)}
    place_of = np.array([places[text] for text in texts], dtype=np.int32)
    codes = place_of[read_codes(job.snapshot, [values])[:, 0]]
    values.drop()
    return Labels(listed, is_declared=job.request.labels is not None), codes


def describe(job: Job[ModelRequest], encoding: Encoding, labels: Labels) -> None:
    """Write the table that says what may be asked, and what is answered."""
    rows = [_described(feature) for feature in encoding.features]
    rows.append((job.request.label, "label", "categorical", None, None, None, labels.texts))
    columns = ("column_name text", "role text", "kind text", "lower float8", "upper float8",
               "length int4", "labels text[]")  # fmt: skip
    select = " UNION ALL ".join(
        "SELECT "
        + ", ".join(
            f"${len(columns) * place + number}::{type_} AS {name}"
            for number, (name, type_) in enumerate((column.split() for column in columns), start=1)
        )
        + f", {place} AS place"
        for place in range(len(rows))
    )
    job.staging.fill_table(
        FEATURES,
        f"SELECT column_name, role, kind, lower, upper, length, labels FROM ({select}) AS described"
        " ORDER BY place",
        *(value for row in rows for value in row),
    )


def _described(feature: Feature) -> tuple[Any, ...]:
    is_number = feature.kind != "categorical"
    return (
        feature.name,
        "feature",
        feature.kind,
        repr(feature.low) if is_number else None,
        repr(feature.high) if is_number else None,
        str(feature.width) if feature.kind == "array" else None,
        None if is_number else list(feature.categories),
    )
