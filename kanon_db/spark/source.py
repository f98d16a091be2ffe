"""What is published: Parquet, whatever else Spark can read, or a table of PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kanon_db.catalog.entries import Source
from kanon_db.catalog.source_checks import check_roles, require_fitting
from kanon_db.errors import InvalidParameterError, NotFoundError, SchemaMismatchError
from kanon_db.operations import RegisterRequest
from kanon_db.spark.environment import in_own_words
from kanon_db.transfer.columns import ColumnType, Relation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

ROLES: Final = (
    "quasi_identifiers", "sensitive", "identifiers", "attributes", "insensitive", "entity",
)  # fmt: skip
"""What is said of a source's columns, as to `register_source`: here, with each publication."""


@dataclass(frozen=True)
class PostgresTable:
    """A table or view of PostgreSQL, read over JDBC by one statement, which sees one state of it.

    Attributes
    ----------
    url : str
        Such as ``jdbc:postgresql://host/database?user=alice``. The password is best kept in
        ``~/.pgpass``, which the driver reads.
    table : str
        As SQL text, such as ``public.census``.
    """

    url: str
    table: str

    def __str__(self) -> str:
        """Write it for people and for the ledger, without what the URL may have of passwords."""
        return f"{self.url.partition('?')[0].rpartition('@')[2]} {self.table}"


class Place(Relation):
    """Where a source is, in place of a schema and a name."""

    def __str__(self) -> str:
        """Write it for people."""
        return self.name


@dataclass(frozen=True, eq=False)
class Microdata:
    """A source that can be read.

    Attributes
    ----------
    frame : DataFrame
    source : Source
        The roles of its columns.
    types : dict of str to ColumnType
        All columns, in their order, with PostgreSQL's names of their types.
    """

    frame: DataFrame
    source: Source
    types: Mapping[str, ColumnType]


def label_of(source: Any, name: str | None) -> str:
    """Say what a source is, for people and for the ledger.

    Raises
    ------
    InvalidParameterError
    """
    if name is not None:
        return name
    if isinstance(source, str | os.PathLike | PostgresTable):
        return str(source)
    if hasattr(source, "schema"):
        raise InvalidParameterError(
            "a data frame needs a name",
            detail="the ledger knows by it which releases are about the same people",
            hint="give source_name, the same for each release of these people",
        )
    raise InvalidParameterError(
        "source must be a path, a data frame or a PostgresTable",
        detail=f"it is of the type {type(source).__name__}",
    )


def open_microdata(
    session: SparkSession, source: Any, label: str, roles: RegisterRequest
) -> Microdata:
    """Open a source, and check the roles of its columns.

    Raises
    ------
    NotFoundError, InvalidParameterError
        As `register_source`.
    SchemaMismatchError
        When two columns have the same name.
    """
    frame = open_frame(session, source)
    types = {field.name: column_type(field.name, field.dataType) for field in frame.schema.fields}
    if len(types) < len(frame.schema.fields):
        raise SchemaMismatchError(
            "several columns have the same name", detail=label, hint="give each a name of its own"
        )
    described = Source(
        0, Place("", label), tuple(roles.quasi_identifiers), roles.sensitive,
        tuple(roles.identifiers), dict(roles.attributes or {}), tuple(types),
        tuple(roles.insensitive), roles.entity,
    )  # fmt: skip
    check_roles(described)
    for column, attribute in described.attributes.items():
        if column not in described.quasi_identifiers:
            raise InvalidParameterError(
                "attributes can only describe quasi-identifiers",
                detail=f'"{column}" is not one of {", ".join(described.quasi_identifiers)}',
            )
        require_fitting(types[column], attribute)
    return Microdata(frame, described, types)


def require_comparable(microdata: Microdata, columns: Sequence[str]) -> None:
    """Refuse columns whose values cannot be compared, or do not mean the same in PostgreSQL.

    Raises
    ------
    SchemaMismatchError
    """
    for name in columns:
        column = microdata.types[name]
        if not column.type_category:
            raise SchemaMismatchError(
                "a column's values cannot be compared",
                detail=f'column "{name}" of {microdata.source.relation}: its type is'
                f" {column.type_name}",
                hint="cast it, for example to string, or publish parts of it",
            )
    sensitive = microdata.source.sensitive
    if (
        sensitive is not None
        and sensitive in columns
        and microdata.types[sensitive].type_name in _INEXACT
    ):
        raise SchemaMismatchError(
            "the sensitive attribute has inexact numbers, which Spark and PostgreSQL write"
            " differently",
            detail=f'column "{sensitive}" of {microdata.source.relation}',
            hint="cast it to a decimal type or a string",
        )


def open_frame(session: SparkSession, source: Any) -> DataFrame:
    """Open a source, without reading its records.

    Raises
    ------
    NotFoundError, ServerError
    """
    if isinstance(source, PostgresTable):
        reader = session.read.format("jdbc").options(
            url=source.url, dbtable=source.table, driver="org.postgresql.Driver", fetchsize="10000"
        )
        with in_own_words("the table of PostgreSQL could not be opened"):
            return reader.load()
    if isinstance(source, str | os.PathLike):
        path = os.fspath(source)
        if not path:
            raise NotFoundError("there is no source at an empty path")
        with in_own_words("the source could not be opened"):
            return session.read.parquet(path)
    frame: DataFrame = source
    return frame


_TYPES: Final = {
    "string": ("text", "S"),
    "boolean": ("boolean", "B"),
    "tinyint": ("smallint", "N"),
    "smallint": ("smallint", "N"),
    "int": ("integer", "N"),
    "bigint": ("bigint", "N"),
    "float": ("real", "N"),
    "double": ("double precision", "N"),
    "date": ("date", "D"),
    "timestamp": ("timestamp with time zone", "D"),
    "timestamp_ntz": ("timestamp without time zone", "D"),
}
"""Spark's types, PostgreSQL's, and what category of types these are of."""

_INEXACT: Final = ("real", "double precision")


def column_type(name: str, type_: DataType) -> ColumnType:
    """Describe a column of Spark, by the type that it has in PostgreSQL."""
    spelt = type_.simpleString()
    if spelt.startswith("decimal("):
        found = ("numeric", "N")
    elif spelt.startswith(("char(", "varchar(", "string collate ")):
        found = _TYPES["string"]
    else:
        found = _TYPES.get(spelt, (spelt, ""))
    return ColumnType(name, *found, operator_schema=None, has_constant_input=True)
