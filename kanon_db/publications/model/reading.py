"""Reading a snapshot's columns as what a model is trained on."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import FloatArray
from kanon_db.errors import SchemaMismatchError
from kanon_db.session.protocol import fetch_one
from kanon_db.transfer.columns import ColumnType
from kanon_db.transfer.snapshot import Snapshot

_ARRAYS: Final = tuple(
    f"{element}[]"
    for element in ("smallint", "integer", "bigint", "numeric", "real", "double precision")
)
_MOST_BYTES: Final = 1 << 26
"""What is fetched at once."""


def is_array(column: ColumnType) -> bool:
    """Whether a column has arrays of numbers."""
    return column.type_name in _ARRAYS


def read_floats(snapshot: Snapshot, column: ColumnType) -> FloatArray:
    """Return the number of each record, shape (n_records,); NaN for NULL.

    Raises
    ------
    SchemaMismatchError
        When a value is infinite.
    """
    number = column.number(f"s.{snapshot.session.identifier(column.name)}")
    row = fetch_one(
        snapshot.session,
        f"SELECT string_agg(float8send(coalesce({number}, 'NaN')), ''::bytea"
        f" ORDER BY s.{snapshot.record}) AS numbers FROM {snapshot.table} AS s",
    )
    numbers = np.frombuffer(row["numbers"], dtype=">f8").astype(np.float64)
    if np.isinf(numbers).any():
        raise _refused(column, "a value is infinite")
    return numbers


def read_arrays(snapshot: Snapshot, column: ColumnType) -> npt.NDArray[np.float32]:
    """Return the numbers of each record's array, shape (n_records, length).

    Raises
    ------
    SchemaMismatchError
        When arrays differ in their length or dimensions, or have NULL, NaN or infinity.
    """
    session, name = snapshot.session, snapshot.session.identifier(column.name)
    found = fetch_one(
        session,
        f"SELECT min(coalesce(cardinality({name}), 0)) AS least, max(cardinality({name})) AS most,"
        f" min(array_ndims({name})) AS few, max(array_ndims({name})) AS many,"
        f" bool_or(num_nulls({name}) > 0) AS has_null FROM {snapshot.table}",
    )
    if found["has_null"]:
        raise _refused(column, "an array is NULL")
    if found["least"] != found["most"] or found["few"] != found["many"]:
        raise _refused(column, "arrays differ in their length")
    length, header = int(found["most"]), 12 + 8 * int(found["many"] or 0)
    if length == 0:
        raise _refused(column, "arrays are empty")
    # As the server sends arrays: the number of dimensions, flags and type, the dimensions, and
    # each element with its length before it.
    shape = np.dtype(
        [("header", f"V{header}"), ("elements", [("bytes", ">i4"), ("value", ">f4")], (length,))]
    )
    numbers = np.empty((snapshot.n_records, length), dtype=np.float32)
    step = max(1, _MOST_BYTES // shape.itemsize)
    for start in range(0, snapshot.n_records, step):
        row = fetch_one(
            session,
            f"SELECT string_agg(array_send({name}::float4[]), ''::bytea ORDER BY {snapshot.record})"
            f" AS arrays FROM {snapshot.table}"
            f" WHERE {snapshot.record} >= $1::int4 AND {snapshot.record} < $2::int4",
            str(start),
            str(start + step),
        )
        part = numbers[start : start + step]
        if len(row["arrays"]) != len(part) * shape.itemsize:  # a NULL has no bytes
            raise _refused(column, "an element of an array is NULL")
        part[:] = np.frombuffer(row["arrays"], dtype=shape)["elements"]["value"]
        session.heartbeat()
    if not np.isfinite(numbers).all():
        raise _refused(column, "an element of an array is no finite number")
    return numbers


def _refused(column: ColumnType, what: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        "a feature's values cannot be learned from",
        detail=f'column "{column.name}": {what}',
        hint="publish a model of a view that leaves such records out",
    )
