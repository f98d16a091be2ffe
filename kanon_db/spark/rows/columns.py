"""Quasi-identifiers as codes: what algorithms know of their domains, and records in codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray
from kanon_db.algorithms.recoding.microdata import Attribute
from kanon_db.errors import InvalidParameterError, KanonError, SchemaMismatchError
from kanon_db.spark.chance import ORDER, RANK
from kanon_db.spark.environment import in_own_words
from kanon_db.spark.kind import SparkJob
from kanon_db.spark.rows.values import Values, coded, number, read_values
from kanon_db.spark.snapshot import RECORD
from kanon_db.transfer.columns import ColumnType

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

SENSITIVE: Final = "s"
"""The code of the sensitive value."""


def code_of(place: int) -> str:
    """Name the column with the codes of a quasi-identifier."""
    return f"k{place}"


@dataclass(frozen=True, eq=False)
class QuasiIdentifier:
    """A quasi-identifier of the snapshot.

    Attributes
    ----------
    column : ColumnType
    source : str
        What the snapshot calls it.
    type : DataType
        Spark's.
    values : Values
    numbers : ndarray of float64, shape (n_values,), or None
        Of its values, NaN of NULL; None if it has no ranges.
    """

    column: ColumnType
    source: str
    type: DataType
    values: Values
    numbers: FloatArray | None

    @property
    def name(self) -> str:
        """Its name."""
        return self.column.name

    @property
    def range_type(self) -> str | None:
        """The type of its ranges in PostgreSQL; None if its cells are sets of texts."""
        if self.numbers is None or np.isnan(self.numbers).all():
            return None
        return self.column.range_type(float(np.nanmax(self.numbers)))

    @property
    def cell(self) -> str:
        """What the layout calls its kind of cells."""
        return "set" if self.range_type is None else "range"

    @property
    def described(self) -> dict[str, str]:
        """What the layout says of its cells beside their kind: what they are in PostgreSQL."""
        if self.range_type is None:
            return {}
        return {"range_type": self.range_type}

    def ends(self) -> pa.Array:
        """Return what its cells are made of: its values, or their texts in sets."""
        import pyarrow as pa

        if self.range_type is None:
            return pa.array(self.values.labels, pa.string())
        return self.values.array


def read_quasi_identifiers(job: SparkJob, *, with_ranges: bool) -> tuple[QuasiIdentifier, ...]:
    """Count the values of all quasi-identifiers.

    Parameters
    ----------
    job : SparkJob
    with_ranges : bool
        Whether values are published in ranges and sets, rather than as they are.

    Raises
    ------
    InfeasibleError
        When one has too many values.
    SchemaMismatchError
        When sets would have texts of inexact numbers.
    """
    found = []
    for name in job.source.quasi_identifiers:
        source, column = job.snapshot.column(name), job.types[name]
        values = read_values(job, name)
        numbers = None if job.source.is_categorical(name) else _finite(values)
        read = QuasiIdentifier(
            column, source, job.snapshot.frame.schema[source].dataType, values, numbers
        )
        if with_ranges and read.cell == "set" and column.type_name in _INEXACT:
            raise SchemaMismatchError(
                "a quasi-identifier has inexact numbers in sets, which Spark and PostgreSQL write"
                " differently",
                detail=f'column "{name}" of {job.source.relation}',
                hint="leave out infinite values and NaN, register it as numeric, or cast it to a"
                " decimal type",
            )
        found.append(read)
    return tuple(found)


_INEXACT: Final = ("real", "double precision")


def attributes_of(
    job: SparkJob, columns: Sequence[QuasiIdentifier], weights: Sequence[float | Fraction] | None
) -> tuple[Attribute, ...]:
    """Describe the domains of quasi-identifiers, as the algorithms see them."""
    found = []
    for place, column in enumerate(columns):
        weight = 1.0 if weights is None else float(weights[place])
        n_values = len(column.values.labels)
        if column.range_type is None or column.numbers is None:
            found.append(Attribute(n_values, weight=weight))
            continue
        bounds = [*column.numbers, *_bounds(job, column)]
        found.append(
            Attribute(
                n_values, numbers=column.numbers, weight=weight,
                # Values outside widen the bounds, since they must be published, too.
                lower=float(np.nanmin(bounds)), upper=float(np.nanmax(bounds)),
            )
        )  # fmt: skip
    return tuple(found)


def coded_records(
    job: SparkJob,
    columns: Sequence[QuasiIdentifier],
    sensitive: Values | None = None,
) -> DataFrame:
    """Write records with the codes of their quasi-identifiers, and all that is published of them.

    Parameters
    ----------
    job : SparkJob
    columns : sequence of QuasiIdentifier
    sensitive : Values, optional
        Adds :data:`SENSITIVE`.

    Returns
    -------
    DataFrame
        From files: ``record``, ``rank_key``, ``order_key``, the other columns as the snapshot has
        them, and codes by :func:`code_of`.
    """
    job.voice.step("numbering quasi-identifiers")
    codes = [(c.source, c.values, code_of(place)) for place, c in enumerate(columns)]
    if sensitive is not None:
        codes.append((job.snapshot.column(str(job.source.sensitive)), sensitive, SENSITIVE))
    others = [job.snapshot.column(name) for name in other_columns(job)]
    folder = job.staging.scratch("coded")
    with in_own_words("quasi-identifiers could not be numbered"):
        numbered = coded(job.snapshot.frame, codes, [RECORD, RANK, ORDER, *others])
        numbered.write.parquet(folder.path)
        return job.session.read.parquet(folder.path)


def other_columns(job: SparkJob) -> list[str]:
    """Name the columns that are published as they are."""
    known = job.source.quasi_identifiers
    return [name for name in job.source.published if name not in known]


def _finite(values: Values) -> FloatArray | None:
    """Return the numbers of values; None without, or with an infinite one."""
    if values.numbers is None:
        return None
    known = np.array([label is not None for label in values.labels], dtype=np.bool_)
    return values.numbers if np.isfinite(values.numbers[known]).all() else None


def _bounds(job: SparkJob, column: QuasiIdentifier) -> list[float]:
    """Return the registered bounds as numbers; a missing one is NaN.

    Raises
    ------
    InvalidParameterError
        When a bound is no value of the column's type, or they are in another order.
    """
    from pyspark.sql import functions as f

    described = job.source.attributes.get(column.name, {})
    found = []
    for key in ("lower", "upper"):
        if described.get(key) is None:
            found.append(np.nan)
            continue
        value = number(f.lit(str(described[key])).cast(column.type), column.column)
        assert value is not None  # noqa: S101  # it has ranges
        try:
            with in_own_words("a bound could not be read"):
                (row,) = job.session.range(1).select(value.alias("bound")).collect()
        except KanonError:
            raise InvalidParameterError(
                f"{key} of an attribute is no value of its column",
                detail=f'column "{column.name}" of type {column.column.type_name}',
            ) from None
        found.append(float(row["bound"]))
    if found[0] > found[1]:
        raise InvalidParameterError(
            "lower must not exceed upper", detail=f'attributes of column "{column.name}"'
        )
    return found
