"""Reads columns as codes of their distinct values, and cuts records into parts.

A part has so many records that one machine works on it. How many combinations of values there are
is estimated from small sketches, since counting them would be one more pass over all records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.generalization import CutDomains, PartTree, gap_cut, median_cut
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, FloatArray, IntArray
from kanon_db.algorithms.recoding import Constraint
from kanon_db.algorithms.recoding.microdata import Attribute
from kanon_db.dataclasses import dataclass
from kanon_db.errors import (
    InfeasibleError,
    InvalidParameterError,
    KanonError,
    SchemaMismatchError,
    ServerError,
)
from kanon_db.spark._spark_kind import SparkJob
from kanon_db.spark._tables import ORDER_KEY, RANK_KEY, RECORD, text_of_column
from kanon_db.spark.environment import failures_as_errors, through_arrow
from kanon_db.transfer.columns import ColumnType

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType


VALUE: Final = "value"
CODE: Final = "code"
RECORDS: Final = "records"
BEFORE: Final = "before"

_MOST: Final = 2**22
"""Values whose texts and counts each machine can well keep."""


@dataclass(frozen=True, eq=False)
class ValueList:
    """The values of a column, in order, NULL last."""

    array: pa.Array  # (n_values,)
    labels: list[str | None]  # Their texts; None for NULL
    counts: IntArray  # (n_values,): records of each
    # (n_values,): of values that have numbers, times in seconds; NaN of NULL
    numbers: FloatArray | None

    def frame(self, session: SparkSession, type_: DataType) -> DataFrame:
        """Return ``code`` (from 0), ``value``, ``records``, and ``before``: of lower values."""
        import pyarrow as pa
        from pyspark.sql.types import StructType

        counts = self.counts
        codes, before = np.arange(counts.size, dtype=np.int32), np.cumsum(counts) - counts
        table = pa.table({CODE: codes, VALUE: self.array, RECORDS: counts, BEFORE: before})
        schema = StructType().add(CODE, "integer").add(VALUE, type_)
        schema.add(RECORDS, "long").add(BEFORE, "long")
        return session.createDataFrame(table, schema)


def number_of_value(value: Column, column: ColumnType) -> Column | None:
    """Return a value as a float, times in seconds; None for types without numbers."""
    from pyspark.sql import functions as f

    if column.type_category == "N":
        return value.cast("double")
    if column.type_name == "date":
        return f.unix_date(value).cast("double") * 86400.0
    if column.type_name.startswith("timestamp"):
        return value.cast("timestamp").cast("double")
    return None


def read_values(job: SparkJob, name: str) -> ValueList:
    """Count the distinct values of a column, once."""
    if name not in job.counted:
        job.counted[name] = _read_values(job, name)
    values: ValueList = job.counted[name]
    return values


def read_few_values(job: SparkJob, names: Sequence[str], most: int) -> dict[str, ValueList]:
    """Count the distinct values of those columns that have few."""
    from pyspark.sql import functions as f

    left = [name for name in names if name not in job.counted]
    few = set(job.counted)
    if left:
        sketched = [f.approx_count_distinct(job.snapshot.column(name)) for name in left]
        with failures_as_errors("values could not be counted"):
            (row,) = job.snapshot.frame.agg(*sketched).collect()
        few.update(name for name, n in zip(left, row, strict=True) if n <= 2 * most)
    lists = {name: read_values(job, name) for name in names if name in few}
    return {name: values for name, values in lists.items() if len(values.labels) <= most}


def _read_values(job: SparkJob, name: str) -> ValueList:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql import functions as f

    job.voice.step("counting values")
    value, column = f.col(job.snapshot.column(name)), job.types[name]
    as_number = number_of_value(value, column)
    with failures_as_errors("values could not be counted"):
        table = (
            job.snapshot.frame.groupBy(value)
            .agg(f.count("*").alias("records"))
            .select(
                value.alias("value"), text_of_column(value, column).alias("label"), "records",
                (f.lit(None).cast("double") if as_number is None else as_number).alias("number"),
            )
            .limit(_MOST + 1)
            .toArrow()
        )  # fmt: skip
    if table.num_rows > _MOST:
        raise InfeasibleError(
            "a column has too many distinct values for one machine",
            detail=f'column "{name}": more than {_MOST:,}',
            hint="coarsen it, or give it another role",
        )
    table = table.take(pc.sort_indices(table.column("value")))
    chunks = table.column("value").chunks
    return ValueList(
        pa.concat_arrays(chunks) if chunks else pa.array([], table.schema.field("value").type),
        table.column("label").to_pylist(),
        table.column("records").to_numpy().astype(np.int64),
        None if as_number is None else table.column("number").to_numpy().astype(np.float64),
    )


def with_codes(
    records: DataFrame, codes: Sequence[tuple[str, ValueList, str]], kept: list[str]
) -> DataFrame:
    """Add the codes of columns to records."""
    from pyspark.sql.types import IntegerType, StructType

    schema = StructType([records.schema[name] for name in kept])
    for _, _, name in codes:
        schema.add(name, IntegerType(), nullable=False)
    known = [(column, values.array) for column, values, _ in codes], kept, schema.names
    return through_arrow(records, number_values, schema, known)


def number_values(known: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give the values of columns their numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns, kept, names = known
    for batch in batches:
        found = []
        for name, values in columns:
            codes = pc.index_in(as_counted(batch.column(name)), value_set=values)
            if codes.null_count:
                raise ServerError("the records have changed while they were numbered")
            found.append(codes)
        yield pa.RecordBatch.from_arrays([*(batch.column(name) for name in kept), *found], names)


def as_counted(column: Any) -> Any:
    """Write what is equal in one way, as values are counted: -0 is 0."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_floating(column.type):
        return column
    return pc.add(column, pa.scalar(0, column.type))


def sensitive_column(place: int) -> str:
    """Name the column with the codes of a sensitive attribute."""
    return f"s{place}"


def code_column(place: int) -> str:
    """Name the column with the codes of a quasi-identifier."""
    return f"k{place}"


@dataclass(frozen=True, eq=False)
class CodedQuasiIdentifier:
    """A quasi-identifier of the snapshot."""

    column: ColumnType
    source: str  # What the snapshot calls it
    type: DataType  # Spark's
    values: ValueList
    numbers: FloatArray | None  # (n_values,): of its values, NaN of NULL; None if it has no ranges

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


def read_quasi_identifiers(job: SparkJob, *, with_ranges: bool) -> tuple[CodedQuasiIdentifier, ...]:
    """Count the values of all quasi-identifiers."""
    columns = []
    for name in job.source.quasi_identifiers:
        source, column = job.snapshot.column(name), job.types[name]
        values = read_values(job, name)
        numbers = None if job.source.is_categorical(name) else _finite(values)
        read = CodedQuasiIdentifier(
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
        columns.append(read)
    return tuple(columns)


_INEXACT: Final = ("real", "double precision")


def attributes_of(
    job: SparkJob,
    columns: Sequence[CodedQuasiIdentifier],
    weights: Sequence[float | Fraction] | None,
) -> tuple[Attribute, ...]:
    """Describe the domains of quasi-identifiers, as the algorithms see them."""
    attributes = []
    for place, column in enumerate(columns):
        weight = 1.0 if weights is None else float(weights[place])
        n_values = len(column.values.labels)
        if column.range_type is None or column.numbers is None:
            attributes.append(Attribute(n_values, weight=weight))
            continue
        bounds = [*column.numbers, *_bounds(job, column)]
        attributes.append(
            Attribute(
                n_values, numbers=column.numbers, weight=weight,
                # Values outside widen the bounds, since they must be published, too.
                lower=float(np.nanmin(bounds)), upper=float(np.nanmax(bounds)),
            )
        )  # fmt: skip
    return tuple(attributes)


def write_coded_records(
    job: SparkJob,
    columns: Sequence[CodedQuasiIdentifier],
    sensitive: Mapping[str, ValueList] | None = None,
) -> DataFrame:
    """Write records with the codes of their quasi-identifiers, and all that is published of them.

    Codes are called by :func:`code_column`, those of `sensitive` by :func:`sensitive_column`.
    """
    job.voice.step("numbering quasi-identifiers")
    codes = [(c.source, c.values, code_column(place)) for place, c in enumerate(columns)]
    for place, (name, values) in enumerate((sensitive or {}).items()):
        codes.append((job.snapshot.column(name), values, sensitive_column(place)))
    columns_beside = [job.snapshot.column(name) for name in other_columns(job)]
    numbered = with_codes(job.snapshot.frame, codes, [RECORD, RANK_KEY, ORDER_KEY, *columns_beside])
    return job.keep(numbered, "coded", "quasi-identifiers could not be numbered")


def other_columns(job: SparkJob) -> list[str]:
    """Name the columns that are published as they are."""
    known = job.source.quasi_identifiers
    return [name for name in job.source.published if name not in known]


def _finite(values: ValueList) -> FloatArray | None:
    """Return the numbers of values; None without, or with an infinite one."""
    if values.numbers is None:
        return None
    known = np.array([label is not None for label in values.labels], dtype=np.bool_)
    return values.numbers if np.isfinite(values.numbers[known]).all() else None


def _bounds(job: SparkJob, column: CodedQuasiIdentifier) -> list[float]:
    """Return the registered bounds as numbers; a missing one is NaN."""
    from pyspark.sql import functions as f

    described = job.source.attributes.get(column.name, {})
    bounds = []
    for key in ("lower", "upper"):
        if described.get(key) is None:
            bounds.append(np.nan)
            continue
        value = number_of_value(f.lit(str(described[key])).cast(column.type), column.column)
        assert value is not None  # noqa: S101  # it has ranges
        try:
            with failures_as_errors("a bound could not be read"):
                (row,) = job.session.range(1).select(value.alias("bound")).collect()
        except KanonError:
            raise InvalidParameterError(
                f"{key} of an attribute is no value of its column",
                detail=f'column "{column.name}" of type {column.column.type_name}',
            ) from None
        bounds.append(float(row["bound"]))
    if bounds[0] > bounds[1]:
        raise InvalidParameterError(
            "lower must not exceed upper", detail=f'attributes of column "{column.name}"'
        )
    return bounds


# Cutting records into parts, each of which one machine works on; see :mod:`.generalization.parts`.
#
# Where to cut is decided on the driver, level by level, from how many records of each part have
# each value. Mondrian's own cuts give the classes that it has on one machine; for other methods,
# parts are cut where few of their classes would lie.


RECORDS_OF_PART: Final = 2**17
"""The most that are searched together, unless no cut is allowed."""

PART: Final = "part"
_KEY: Final = "key"
_COUNT: Final = "n"


def cut_into_parts(
    job: SparkJob,
    records: DataFrame,
    attributes: Sequence[Attribute],
    k: int,
    constraint: Constraint | None,
    *,
    as_mondrian: bool,
) -> PartTree:
    """Cut records until parts are small."""
    # A part has at least 2k records. Classes do not cross parts, so that a cut that would violate
    # the constraint in one of them is not made.
    find_cut = median_cut if as_mondrian else gap_cut
    tree = PartTree(job.snapshot.n_records)
    domains = CutDomains.of(attributes)
    wanted, parents = [0] if tree.sizes[0] > RECORDS_OF_PART else [], {0: 0}
    columns = [code_column(place) for place in range(len(attributes))]
    sizes = [attribute.n_values for attribute in attributes]
    for place, one in enumerate([] if constraint is None else constraint.each):
        columns.append(sensitive_column(place))
        sizes.append(one.n_values)
    while wanted:
        job.voice.step("cutting the table into parts")
        pieces = _CutParts(tree, np.array(sorted(wanted)), columns, np.array(sizes))
        made: list[int] = []
        for node, counts in pieces.counted(records):
            job.voice.heartbeat()
            if (
                constraint is not None
                and node
                and not constraint.holds(np.concatenate(counts[len(attributes) :])[np.newaxis])[0]
            ):
                tree.undo(parents[node])
                continue
            if tree.sizes[node] <= RECORDS_OF_PART:
                continue
            cut = find_cut(domains, counts[: len(attributes)], 2 * k)
            if cut is not None:
                sides = tree.cut(node, cut)
                parents.update(dict.fromkeys(sides, node))
                made += sides
        whole = set(tree.leaves)
        wanted = [
            node for node in made
            if node in whole
            and (constraint is not None or tree.sizes[node] > RECORDS_OF_PART)
        ]  # fmt: skip
    return tree


def with_parts(records: DataFrame, tree: PartTree, n_attributes: int) -> tuple[DataFrame, int]:
    """Send the records of each part to a partition of their own; return how many these are."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import IntegerType, StructType

    leaves = tree.leaves
    columns = [code_column(place) for place in range(n_attributes)]
    schema = StructType([*records.schema.fields]).add(PART, IntegerType(), nullable=False)
    with_part = through_arrow(records, number_parts, schema, (tree, np.array(leaves), columns))
    return with_part.repartitionById(len(leaves), f.col(PART)).drop(PART), len(leaves)


def number_parts(known: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add the number of its part to each record."""
    import pyarrow as pa

    tree, leaves, columns = known
    part_of_node = np.zeros(len(tree.sizes), dtype=np.int32)
    part_of_node[leaves] = np.arange(leaves.size)
    for batch in batches:
        parts = part_of_node[tree.nodes_of(codes_in(batch, columns))]
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, pa.array(parts)], [*batch.schema.names, PART]
        )


def codes_in(batch: pa.RecordBatch | pa.Table, columns: Sequence[str]) -> Any:
    """Return the codes of records, shape (n, m)."""
    codes = np.empty((batch.num_rows, len(columns)), dtype=np.int32)
    for place, name in enumerate(columns):
        codes[:, place] = batch.column(name).to_numpy()
    return codes


@dataclass(frozen=True, eq=False)
class _CutParts:
    """Parts whose values are to be counted."""

    tree: PartTree
    nodes: IntArray  # Ascending
    columns: list[str]
    sizes: IntArray  # The number of codes of each column

    def counted(self, records: DataFrame) -> Iterator[tuple[int, list[IntArray]]]:
        """Count how many records of each part have each code, column by column."""
        from pyspark.sql import functions as f
        from pyspark.sql.types import LongType, StructType

        schema = StructType().add(_KEY, LongType()).add(_COUNT, LongType())
        with failures_as_errors("the values of parts could not be counted"):
            counts = through_arrow(records.select(*self.columns), count_cuts, schema, self)
            sums = counts.groupBy(_KEY).agg(f.sum(_COUNT).alias(_COUNT)).toArrow()
        keys, numbers = (sums.column(name).to_numpy() for name in (_KEY, _COUNT))
        order = np.argsort(keys)
        keys, numbers = keys[order], numbers[order]
        total = int(self.sizes.sum())
        starts = np.searchsorted(keys, total * np.arange(self.nodes.size + 1))
        for i, node in enumerate(self.nodes.tolist()):
            inside = slice(starts[i], starts[i + 1])
            dense = np.zeros(total, dtype=np.int64)
            dense[keys[inside] - total * i] = numbers[inside]
            yield node, np.split(dense, np.cumsum(self.sizes)[:-1])

    def occurring(self, batch: pa.RecordBatch) -> tuple[IntArray, IntArray]:
        """Return the keys that records have, and how many have each."""
        keys, n_keys = self._keys(batch), int(self.nodes.size * self.sizes.sum())
        if n_keys > max(keys.size, 1):
            return np.unique(keys, return_counts=True)
        counts = np.bincount(keys, minlength=n_keys)
        present = np.flatnonzero(counts)
        return present, counts[present]

    def _keys(self, batch: pa.RecordBatch) -> IntArray:
        """Return a number for each record of a counted part and each of its codes."""
        codes = codes_in(batch, self.columns)
        nodes = self.tree.nodes_of(codes)
        place = np.minimum(np.searchsorted(self.nodes, nodes), self.nodes.size - 1)
        inside = self.nodes[place] == nodes
        first = np.cumsum(self.sizes) - self.sizes
        keys: IntArray = (
            place[inside, np.newaxis] * self.sizes.sum() + first + codes[inside]
        ).ravel()
        return keys


def count_cuts(known: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the codes of records in parts."""
    import pyarrow as pa

    keys, counts = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for batch in batches:
        present, n = known.occurring(batch)
        keys.append(present)
        counts.append(n)
    present, place = np.unique(np.concatenate(keys), return_inverse=True)
    n = np.bincount(place, np.concatenate(counts), minlength=present.size).astype(np.int64)
    yield pa.RecordBatch.from_arrays([pa.array(present), pa.array(n)], [_KEY, _COUNT])


# How many combinations the values of some columns have, about, and those of groups of values.
#
# The smallest hashes of the combinations tell: of n that are spread evenly, the k-th smallest is
# expected at k / n (Z. Bar-Yossef et al., *Counting distinct elements in a data stream*, RANDOM
# 2002, with the unbiased k - 1 in place of k). One pass over the records finds all of them.


MOST_BITS: Final = 12
"""Of the number of a group: the finest groups have one in 4,096 of the records."""

CHOICES: Final[tuple[int | None, ...]] = (None, *range(MOST_BITS, 0, -1))
"""The bits of the numbers of groups, from the finest on; None for values of their own."""

_KEPT: Final = 1024
"""Hashes: a standard error of 3 %."""

_CHOICE: Final = "choice"
_HASH: Final = "hash"

_HashWords: TypeAlias = npt.NDArray[np.uint64]


def groups_of(counts: IntArray, bits: int) -> CodeArray:
    """Return the group of each value: about as many records in each, in the order of values."""
    before = np.cumsum(counts) - counts
    shares = [(n << bits) // max(1, int(counts.sum())) for n in before.tolist()]
    return np.array(shares, dtype=np.int32)


def count_combinations(
    coded: DataFrame, names: Sequence[str], finest: Sequence[CodeArray]
) -> list[float]:
    """Count, about, the combinations of groups of each of :data:`CHOICES`."""
    from pyspark.sql.types import IntegerType, LongType, StructType

    schema = StructType().add(_CHOICE, IntegerType()).add(_HASH, LongType())
    random = np.random.default_rng()
    tables = [random.integers(2**64, size=1 << MOST_BITS, dtype=np.uint64) for _ in names]
    known = list(names), list(finest), tables
    with failures_as_errors("combinations could not be counted"):
        sketches = through_arrow(coded.select(*names), sketch, schema, known).toArrow()
    choice = sketches.column(_CHOICE).to_numpy()
    hashes = sketches.column(_HASH).to_numpy().astype(np.int64).view(np.uint64)
    return [estimated(smallest(hashes[choice == i])) for i in range(len(CHOICES))]


def sketch(known: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Find the smallest hashes of each choice."""
    import pyarrow as pa

    names, finest, tables = known
    kept = [np.empty(0, dtype=np.uint64) for _ in CHOICES]
    for batch in batches:
        codes = [batch.column(name).to_numpy() for name in names]
        groups = [own[code] for own, code in zip(finest, codes, strict=True)]
        for i, bits in enumerate(CHOICES):
            hashes = np.zeros(batch.num_rows, dtype=np.uint64)
            for code, group, table in zip(codes, groups, tables, strict=True):
                if bits is None:
                    hashes ^= scramble(code.astype(np.uint64) + table[0])
                else:
                    hashes ^= table[group >> (MOST_BITS - bits)]
            if kept[i].size == _KEPT:
                hashes = hashes[hashes < kept[i][-1]]
            kept[i] = smallest(np.concatenate([kept[i], hashes]))
    choice = np.repeat(np.arange(len(CHOICES), dtype=np.int32), [one.size for one in kept])
    arrays = [pa.array(choice), pa.array(np.concatenate(kept).view(np.int64))]
    yield pa.RecordBatch.from_arrays(arrays, [_CHOICE, _HASH])


def scramble(numbers: _HashWords) -> _HashWords:
    """Spread numbers evenly: the last step of SplitMix64 (G. Steele et al., OOPSLA 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def smallest(hashes: _HashWords) -> _HashWords:
    """Return the smallest distinct hashes, ascending."""
    return np.unique(hashes)[:_KEPT]


def estimated(hashes: _HashWords) -> float:
    """Return how many combinations there are, from the smallest hashes of all."""
    if hashes.size < _KEPT:
        return float(hashes.size)
    return (_KEPT - 1) / (float(hashes[-1]) / 2**64)


def group_codes(known: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Replace codes by the groups of values."""
    import pyarrow as pa

    names, groups = known
    for batch in batches:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        for name, own in zip(names, groups, strict=True):
            columns[name] = pa.array(own[_numbers(batch, name)])
        yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _numbers(batch: pa.RecordBatch, name: str) -> AnyIntArray:
    numbers: AnyIntArray = batch.column(name).to_numpy()
    return numbers
