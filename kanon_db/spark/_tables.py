"""Opens the source, its snapshot and published tables, and translates PostgreSQL's statements.

A source is read once, into files in which each record has a number and two random keys; there is no
``rand()``, since a task that is run again must find the same. `TableSession` is a session over the
tables of one publication: code that was written for PostgreSQL reads them through it.
"""

from __future__ import annotations

import json
import os
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import sqlglot
from sqlglot import exp

from kanon_db.catalog.attributes import COARSE
from kanon_db.catalog.entries import Source
from kanon_db.catalog.source_checks import check_roles, require_fitting
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError, NotFoundError, SchemaMismatchError
from kanon_db.operations import RegisterRequest
from kanon_db.session.progress import Progress, Reporter, Watcher
from kanon_db.session.protocol import Row, Value
from kanon_db.spark._publication_folder import Folder, Manifest, TableFiles
from kanon_db.spark.environment import (
    PostgresTable,
    failures_as_errors,
    quote_column,
    through_arrow,
)
from kanon_db.transfer.columns import ColumnType, Relation

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType


# Randomness for records that are spread over many machines.
#
# Each run draws a secret key from the operating system. What is random about a record is its keyed
# BLAKE2b (RFC 7693), of its number in the snapshot: whoever does not know the key cannot tell it
# from chance, and a task that is run again finds the same. ``rand()`` would give other numbers
# then, so that records are lost or published twice (SPARK-38160), and its generator is not
# cryptographic.
#
# The key is part of a function that Spark sends to workers. Plans, logs and the event log name the
# function and its columns, and have nothing of what is in it.


RANK_KEY: Final = "rank_key"
"""Decides which records share a bucket."""

ORDER_KEY: Final = "order_key"
"""Decides where a record stands in the published files: the order of ranks would tell buckets."""

_KEY_BYTES: Final = 32


def with_random_keys(frame: DataFrame) -> DataFrame:
    """Add two random numbers of 64 bits to records, whose own number is the first column."""
    # They are two halves of one hash, and independent. Two of n records have the same number with a
    # probability below n**2 / 2**65; which of these comes first is decided by their own number.
    from pyspark.sql.types import LongType, StructType

    schema = StructType([*frame.schema.fields])
    schema.add(RANK_KEY, LongType(), nullable=False).add(ORDER_KEY, LongType(), nullable=False)
    return through_arrow(frame, hashing_with_key(os.urandom(_KEY_BYTES)), schema)


Batches = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


def hashing_with_key(key: bytes) -> Batches:
    """Return the function that hashes the first column of batches, with a key."""

    def draw(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            numbers = batch.column(0).to_numpy().astype("<i8").tobytes()
            hashes = b"".join(
                blake2b(numbers[i : i + 8], digest_size=16, key=key).digest()
                for i in range(0, len(numbers), 8)
            )
            halves = np.frombuffer(hashes, dtype="<i8").reshape(-1, 2)
            arrays = [*batch.columns, *(pa.array(np.ascontiguousarray(h)) for h in halves.T)]
            yield pa.RecordBatch.from_arrays(arrays, [*batch.schema.names, RANK_KEY, ORDER_KEY])

    return draw


def text_of_column(value: Column, column: ColumnType) -> Column:
    """Return a column's text; NULL for NULL. Inexact numbers have none that both agree on."""
    from pyspark.sql import functions as f

    text = value.cast("string")
    if column.type_name == "boolean":
        return f.when(value, "t").when(~value, "f")
    if column.type_name == "timestamp with time zone":
        return f.concat(text, f.lit("+00"))  # the session's time zone is UTC
    return text


class SourcePath(Relation):
    """Where a source is, in place of a schema and a name."""

    def __str__(self) -> str:
        """Write it for people."""
        return self.name


@dataclass(frozen=True, eq=False)
class SparkSource:
    """A source that can be read."""

    frame: DataFrame
    source: Source  # The roles of its columns
    # All columns, in their order, with PostgreSQL's names of their types
    types: Mapping[str, ColumnType]


def label_of(source: Any, name: str | None) -> str:
    """Say what a source is, for people and for the ledger."""
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


def open_source(
    session: SparkSession, source: Any, label: str, roles: RegisterRequest
) -> SparkSource:
    """Open a source, and check the roles of its columns."""
    frame = open_frame(session, source)
    types = {field.name: column_type(field.name, field.dataType) for field in frame.schema.fields}
    if len(types) < len(frame.schema.fields):
        raise SchemaMismatchError(
            "several columns have the same name", detail=label, hint="give each a name of its own"
        )
    described = Source(
        0, SourcePath("", label), tuple(roles.quasi_identifiers), roles.sensitive,
        tuple(roles.identifiers), dict(roles.attributes or {}), tuple(types),
        tuple(roles.insensitive), roles.entity, also_sensitive=tuple(roles.also_sensitive),
    )  # fmt: skip
    check_roles(described)
    for column, attribute in described.attributes.items():
        if column not in described.quasi_identifiers:
            raise InvalidParameterError(
                "attributes can only describe quasi-identifiers",
                detail=f'"{column}" is not one of {", ".join(described.quasi_identifiers)}',
            )
        if any(key in attribute for key in (*COARSE, "prefix")):
            raise InvalidParameterError(
                "quasi-identifiers are not coarsened on Spark",
                detail=f"{label}: {column}; PostgreSQL does so, in its own types",
                hint="coarsen them in the source, as in a data frame, or publish in PostgreSQL",
            )
        require_fitting(types[column], attribute)
    return SparkSource(frame, described, types)


def require_comparable(microdata: SparkSource, columns: Sequence[str]) -> None:
    """Refuse columns whose values cannot be compared, or do not mean the same in PostgreSQL."""
    for name in columns:
        column = microdata.types[name]
        if not column.type_category:
            raise SchemaMismatchError(
                "a column's values cannot be compared",
                detail=f'column "{name}" of {microdata.source.relation}: its type is'
                f" {column.type_name}",
                hint="cast it, for example to string, or publish parts of it",
            )
    for sensitive in microdata.source.all_sensitive:
        if sensitive in columns and microdata.types[sensitive].type_name in _INEXACT:
            raise SchemaMismatchError(
                "the sensitive attribute has inexact numbers, which Spark and PostgreSQL write"
                " differently",
                detail=f'column "{sensitive}" of {microdata.source.relation}',
                hint="cast it to a decimal type or a string",
            )


def open_frame(session: SparkSession, source: Any) -> DataFrame:
    """Open a source, without reading its records."""
    if isinstance(source, PostgresTable):
        reader = session.read.format("jdbc").options(
            url=source.url, dbtable=source.table, driver="org.postgresql.Driver", fetchsize="10000"
        )
        with failures_as_errors("the table of PostgreSQL could not be opened"):
            return reader.load()
    if isinstance(source, str | os.PathLike):
        path = os.fspath(source)
        if not path:
            raise NotFoundError("there is no source at an empty path")
        with failures_as_errors("the source could not be opened"):
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
        postgres_type = ("numeric", "N")
    elif spelt.startswith(("char(", "varchar(", "string collate ")):
        postgres_type = _TYPES["string"]
    else:
        postgres_type = _TYPES.get(spelt, (spelt, ""))
    return ColumnType(name, *postgres_type, operator_schema=None, has_constant_input=True)


RECORD: Final = "record"


@dataclass(frozen=True, eq=False)
class SparkSnapshot:
    """The columns that are published, and the entity, as they were read."""

    # ``record`` (a number of its own), ``rank_key`` and ``order_key`` (see :mod:`.chance`), and the
    # columns by :meth:`column`. It is read from files, so that each task that is run again reads
    # the same.
    frame: DataFrame
    names: tuple[str, ...]  # The columns
    n_records: int

    def column(self, name: str) -> str:
        """Return what a column is called here, where names of the source could be in the way."""
        return f"c{self.names.index(name)}"


def take_spark_snapshot(
    session: SparkSession, given: object, microdata: SparkSource, columns: Sequence[str], to: Folder
) -> SparkSnapshot:
    """Read the source once, and write it to a private folder."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType

    names = tuple(dict.fromkeys(columns))
    read = [f.monotonically_increasing_id().alias(RECORD)]
    for i, name in enumerate(names):
        column = f.col(quote_column(name))
        if microdata.types[name].type_name == "text":
            column = column.cast(StringType())  # without a collation of its own
        read.append(column.alias(f"c{i}"))
    with failures_as_errors("the source could not be read, or not written to the staging folder"):
        with_random_keys(microdata.frame.select(*read)).write.parquet(to.path)
        frame = session.read.parquet(to.path)
        n_records = frame.count()
        # Another transaction may have changed a table; a file or a data frame must not change.
        if not isinstance(given, PostgresTable):
            n_source = microdata.frame.count()
            if n_source != n_records:
                raise SchemaMismatchError(
                    "the source changes while it is read",
                    detail=f"{microdata.source.relation}: {n_source} records, of which"
                    f" {n_records} were read",
                    hint="a data frame must give the same rows each time: write it to files first",
                )
    return SparkSnapshot(
        frame.select(RECORD, RANK_KEY, ORDER_KEY, *(f"c{i}" for i in range(len(names)))),
        names,
        n_records,
    )


# PostgreSQL's statements in Spark's SQL.
#
# Statements are written once, for PostgreSQL. sqlglot translates them; what it does not know of
# both is added here. What is left over is refused by Spark, and never answered wrongly: its session
# has ANSI rules, under which what overflows is an error.


_LARGEST: Final = 38
"""Digits that Spark's decimals have."""

BoundValue: TypeAlias = str | Sequence[str | None] | None
"""A text, or an array of texts."""


def spark_sql(
    statement: str, relations: Mapping[str, str], values: Sequence[BoundValue] = ()
) -> str:
    """Translate a statement.

    Parameters
    ----------
    statement : str
        Its values are ``$1 … $n``; in the result, ``:p1 … :pn``. Arrays are bound as JSON.
    relations : mapping of str to str
        What Spark calls the relations that the statement may read, by their names.
    values : sequence
        What ``$1 … $n`` are: only how many digits those have that are cast to numeric matters.

    Raises
    ------
    KeyError
        For any other relation.

    Examples
    --------
    >>> spark_sql('SELECT count(*)::int8 AS n FROM "x_qit" AS q WHERE num_nulls(q.a) = 0'
    ...           " AND q.b > $1::int8", {"x_qit": "t1"})
    'SELECT CAST(COUNT(*) AS BIGINT) AS n FROM `t1` AS q WHERE CAST(q.a IS NULL AS INT) = 0 AND \
q.b > CAST(:p1 AS BIGINT)'
    >>> spark_sql("SELECT * FROM unnest($1::text[]) AS u (x)", {})
    "SELECT * FROM (SELECT INLINE(ARRAYS_ZIP(CAST(FROM_JSON(:p1, 'array<string>') AS \
ARRAY<STRING>)))) AS u(x)"
    >>> spark_sql("SELECT (ARRAY[3, 4])[width_bucket(b, ARRAY[1, 9])] AS size", {})
    'SELECT GET(ARRAY(3, 4), SIZE(FILTER(ARRAY(1, 9), f -> f <= b)) + -1) AS size'
    >>> spark_sql("SELECT a > $1::text::numeric FROM x", {"x": "t1"}, ["10.25"])
    'SELECT a > CAST(CAST(:p1 AS STRING) AS DECIMAL(4, 2)) FROM `t1`'
    >>> spark_sql("SELECT sum(n) FILTER (WHERE a) OVER () FROM x", {"x": "t1"})
    'SELECT SUM(CASE WHEN a THEN n END) OVER () FROM `t1`'
    >>> spark_sql("SELECT d.d FROM x AS c CROSS JOIN unnest(c.a) WITH ORDINALITY AS d (d, k)",
    ...           {"x": "t1"})
    'SELECT d.d FROM `t1` AS c CROSS JOIN LATERAL (SELECT pos AS k, col AS d FROM \
(SELECT POSEXPLODE(c.a))) AS d'
    """
    tree = sqlglot.parse_one(statement, read="postgres")
    _number_elements(tree)
    _size_decimals(tree, values)
    named = {cte.alias for cte in tree.find_all(exp.CTE)}
    for table in list(tree.find_all(exp.Table)):
        if table.name not in named:
            table.set("this", exp.to_identifier(relations[table.name], quoted=True))
            table.set("db", None)
    for kind, translate in _TRANSLATIONS.items():
        for node in list(tree.find_all(kind)):
            translation = translate(node)
            if translation is not node:
                node.replace(translation)
    return tree.sql(dialect="spark")


def _size_decimals(tree: Any, values: Sequence[BoundValue]) -> None:
    """Give decimals that values are cast to the digits that these have, unless they are whole."""
    for node in tree.find_all(exp.Cast):
        given = node.this
        while isinstance(given, exp.Cast | exp.Paren):
            given = given.this
        decimals = [one for one in node.to.find_all(exp.DataType) if one.this == exp.DType.DECIMAL]
        if not (values and decimals and isinstance(given, exp.Parameter)):
            continue
        value = values[int(given.name) - 1]
        texts = [value] if value is None or isinstance(value, str) else value
        parts = [text.lstrip("-").partition(".") for text in texts if text is not None]
        scale = max((len(part[2]) for part in parts), default=0)
        if not scale:
            continue
        digits = max(len(part[0]) for part in parts) + scale
        sized = exp.DataType.build(f"DECIMAL({min(digits, _LARGEST)}, {scale})", dialect="spark")
        decimals[-1].replace(sized)


def _number_elements(tree: Any) -> None:
    """Unnest arrays with the places of their elements, from 0: only their order is used."""
    for node in list(tree.find_all(exp.Unnest)):
        alias = node.args.get("alias")
        if not node.args.get("offset"):
            continue
        if alias is None:  # of the FROM clause's item around it
            raise TypeError("elements are numbered under a name")
        *names, place = [column.name for column in alias.columns] + _offset_name(node)
        first = node.expressions[0]
        elements = [exp.alias_(exp.column("pos"), place)] + [
            exp.alias_(
                exp.column("col") if i == 0 else exp.Anonymous(
                    this="GET", expressions=[one.copy(), exp.column("pos")]
                ),
                name,
            )
            for i, (name, one) in enumerate(zip(names, node.expressions, strict=True))
        ]  # fmt: skip
        exploded = exp.Select(
            expressions=[exp.Anonymous(this="POSEXPLODE", expressions=[first.copy()])]
        ).subquery()
        inner = exp.Select(expressions=elements).from_(exploded)
        numbered: exp.Expression = inner.subquery(alias.this.name)
        if first.find(exp.Column) is not None:  # of what stands before it
            numbered = exp.Lateral(
                this=inner.subquery(), alias=exp.TableAlias(this=exp.to_identifier(alias.this.name))
            )
        node.replace(numbered)


def _offset_name(node: exp.Expression) -> list[str]:
    offset = node.args["offset"]
    return [offset.name] if isinstance(offset, exp.Expression) else []


def _rewrite_filter(node: exp.Expression) -> exp.Expression:
    """Aggregate only some rows: Spark's windows know no FILTER."""
    aggregate: exp.Expression = node.this.copy()
    condition = node.expression.this
    inner = aggregate.this
    if isinstance(inner, exp.Star):
        inner = exp.Literal.number(1)
    aggregate.set("this", exp.Case(ifs=[exp.If(this=condition.copy(), true=inner.copy())]))
    return aggregate


def _window(node: exp.Expression) -> exp.Expression:
    """Give rows numbers that differ, where they may have any."""
    if isinstance(node.this, exp.RowNumber) and not node.args.get("order"):
        return exp.Anonymous(this="MONOTONICALLY_INCREASING_ID")
    return node


def _member(node: exp.Expression) -> exp.Expression:
    """Compare with any element of an array."""
    if isinstance(node.expression, exp.Any):
        array = node.expression.this.unnest()
        return exp.Anonymous(this="ARRAY_CONTAINS", expressions=[array, node.this])
    return node


def _value(node: exp.Expression) -> exp.Expression:
    return exp.Placeholder(this=f"p{node.name}")


def _type(node: exp.Expression) -> exp.Expression:
    """Give numeric all of the digits that there are; whole numbers are compared in it."""
    if node.this == exp.DType.DECIMAL and not node.expressions:
        return exp.DataType.build(f"DECIMAL({_LARGEST}, 0)", dialect="spark")
    return node


def _parse_array(node: exp.Expression) -> exp.Expression:
    """Read an array from JSON: as an array of literals, long ones would take long to plan."""
    to = node.args["to"]
    if isinstance(node.this, exp.Parameter) and to.this == exp.DType.ARRAY:
        shape = exp.Literal.string("array<string>")
        read = exp.Anonymous(this="FROM_JSON", expressions=[node.this, shape])
        return exp.Cast(this=read, to=to)
    return node


def _rows(node: exp.Expression) -> exp.Expression:
    """Unnest several arrays side by side."""
    zipped = exp.Anonymous(
        this="INLINE",
        expressions=[exp.Anonymous(this="ARRAYS_ZIP", expressions=node.expressions)],
    )
    return exp.Subquery(this=exp.Select(expressions=[zipped]), alias=node.args["alias"])


def _function(node: exp.Expression) -> exp.Expression:
    name, given = str(node.this).lower(), node.expressions
    if name == "num_nulls":
        nulls = [
            exp.Cast(this=exp.Is(this=one, expression=exp.Null()), to=exp.DataType.build("INT"))
            for one in given
        ]
        return nulls[0] if len(nulls) == 1 else sum(nulls[1:], start=nulls[0])
    if name == "jsonb_build_object":
        return _object(given)
    if name == "to_jsonb":  # the object's only value is read from it afterwards
        return _object([exp.Literal.string("k"), *given])
    return node


def _object(given: list[exp.Expression]) -> exp.Expression:
    """Write an object as JSON, whose NULLs are kept."""
    options = exp.Anonymous(
        this="MAP",
        expressions=[exp.Literal.string("ignoreNullFields"), exp.Literal.string("false")],
    )
    fields = exp.Anonymous(this="NAMED_STRUCT", expressions=given)
    return exp.Anonymous(this="TO_JSON", expressions=[fields, options])


def _format(node: exp.Expression) -> exp.Expression:
    """Write a value as text: ``format('%s', value)``."""
    return exp.Cast(this=node.expressions[0], to=exp.DataType.build("STRING", dialect="spark"))


def _place(node: exp.Expression) -> exp.Expression:
    """Count the thresholds that a number has reached; they ascend."""
    reached = exp.Lambda(
        this=exp.LTE(this=exp.column("f"), expression=node.this),
        expressions=[exp.to_identifier("f")],
    )
    kept = exp.Anonymous(this="FILTER", expressions=[node.args["threshold"], reached])
    return exp.Anonymous(this="SIZE", expressions=[kept])


def _element(node: exp.Expression) -> exp.Expression:
    """Take an element of an array, or NULL where there is none; sqlglot counts from 0."""
    return exp.Anonymous(this="GET", expressions=[node.this.unnest(), *node.expressions])


_TRANSLATIONS: Final = {
    exp.Cast: _parse_array,
    exp.Parameter: _value,
    exp.DataType: _type,
    exp.Unnest: _rows,
    exp.Bracket: _element,
    exp.WidthBucket: _place,
    exp.Format: _format,
    exp.Anonymous: _function,
    exp.Filter: _rewrite_filter,
    exp.Window: _window,
    exp.EQ: _member,
}
"""In this order."""


SCHEMA = "published"
"""What statements call the schema of the tables; it makes no difference here."""


class PublishedTables:
    """Named tables of one session.

    `frames`: the tables by their names.
    """

    def __init__(self, session: SparkSession, frames: Mapping[str, DataFrame]) -> None:
        self.session = session
        self.frames = frames
        self._views: dict[str, str] = {}
        for name, frame in frames.items():
            self.add(name, frame)

    def add(self, name: str, frame: DataFrame) -> None:
        """Let statements read another table by its name."""
        self._views[name] = f"kanon_{secrets.token_hex(8)}"
        frame.createOrReplaceTempView(self._views[name])

    def fetch(self, statement: str, *values: str | Sequence[str | None] | None) -> list[Row]:
        """Run a statement of PostgreSQL, and return its rows."""
        with failures_as_errors("a statement could not be run"):
            return [row.asDict() for row in self.select(statement, *values).collect()]

    def select(self, statement: str, *values: str | Sequence[str | None] | None) -> DataFrame:
        """Return the rows of a statement as a data frame; see :meth:`fetch`."""
        text = spark_sql(statement, self._views, values)
        bound = {
            f"p{i}": value if value is None or isinstance(value, str) else json.dumps(list(value))
            for i, value in enumerate(values, start=1)
        }
        with failures_as_errors("a statement could not be run"):
            return self.session.sql(text, args=bound)

    def identifier(self, *parts: str) -> str:
        """Quote a name as PostgreSQL does; statements are translated afterwards."""
        return ".".join('"' + part.replace('"', '""') + '"' for part in parts)

    def drop(self) -> None:
        """Forget the tables."""
        for view in self._views.values():
            self.session.catalog.dropTempView(view)


def read_table(session: SparkSession, folder: Folder, table: TableFiles) -> DataFrame:
    """Read exactly the files that a manifest names."""
    from pyspark.sql.types import StructType

    schema = StructType.fromJson(json.loads(table.schema))
    paths = [(folder / file.name).path for file in table.files]
    if not paths:
        return session.createDataFrame([], schema)
    return session.read.schema(schema).parquet(*paths)


def write_table(frame: DataFrame, folder: Folder) -> None:
    """Write rows in their order, a file for each partition, and nothing else."""
    frame.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(
        folder.path
    )


@contextmanager
def open_tables(
    session: SparkSession, target: Folder, manifest: Manifest
) -> Iterator[PublishedTables]:
    """Open the tables of a publication, by its name and their suffixes."""
    name, release = manifest.publication.name, target / manifest.release
    tables = PublishedTables(
        session,
        {
            name + suffix: read_table(session, release / folder_of(suffix), table)
            for suffix, table in manifest.tables.items()
        },
    )
    try:
        yield tables
    finally:
        tables.drop()


def folder_of(suffix: str) -> str:
    """Name the folder of a table in its release."""
    return suffix.removeprefix("_") or "rows"


def fetch_one(
    tables: PublishedTables, statement: str, *values: str | Sequence[str | None] | None
) -> Any:
    """Run a statement that returns exactly one row."""
    (row,) = tables.fetch(statement, *values)
    return row


def _ignore(_progress: Progress) -> None:
    """Show nothing."""


class SparkProgress(Reporter):
    """Passes on what a run says; without `on_warning`, Python's own warnings have its warnings."""

    def __init__(
        self, on_progress: Watcher | None = None, on_warning: Callable[[str], None] | None = None
    ) -> None:
        super().__init__(on_progress or _ignore)
        self._on_warning = on_warning

    def warn(self, message: str) -> None:
        """Warn of something that does not stop the run."""
        if self._on_warning is None:
            warnings.warn(message, stacklevel=2)
        else:
            self._on_warning(message)


class TableSession(SparkProgress):
    """:class:`~kanon_db.session.protocol.Session` that reads, and writes nothing.

    `on_progress, on_warning`: see :class:`SparkProgress`.
    """

    def __init__(
        self,
        tables: PublishedTables,
        on_progress: Watcher | None = None,
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(on_progress, on_warning)
        self.tables = tables

    def fetch(self, statement: str, *values: Value) -> list[Row]:
        """Run a statement; see :meth:`PublishedTables.fetch`."""
        texts = [value.decode() if isinstance(value, bytes) else value for value in values]
        return self.tables.fetch(statement, *texts)

    def stream(self, n: int, statement: str, *values: Value) -> Iterator[Row]:  # noqa: ARG002
        """Run a statement, and return its rows one by one."""
        yield from self.fetch(statement, *values)

    def identifier(self, *parts: str) -> str:
        """Quote a name; see :meth:`PublishedTables.identifier`."""
        return self.tables.identifier(*parts)

    def literal(self, value: str) -> str:
        """Quote a value as PostgreSQL does; statements are translated afterwards."""
        return "'" + value.replace("'", "''") + "'"

    def savepoint(self) -> AbstractContextManager[object]:
        """Undo nothing: nothing is written."""
        return nullcontext()

    def reporting(self) -> AbstractContextManager[None]:
        """Report to the watcher."""
        return nullcontext()

    def tell(self, message: str) -> None:
        """Pass on what is worth knowing."""
        self.warn(message)
