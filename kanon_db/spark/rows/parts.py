"""Cutting records into parts, each of which one machine works on; see :mod:`.generalization.parts`.

Where to cut is decided on the driver, level by level, from how many records of each part have each
value. Mondrian's own cuts give the classes that it has on one machine; for other methods, parts are
cut where few of their classes would lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kanon_db.algorithms.generalization import CutDomains, PartTree, gap_cut, median_cut
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.recoding import Constraint
from kanon_db.algorithms.recoding.microdata import Attribute
from kanon_db.spark.environment import in_own_words, through_arrow
from kanon_db.spark.kind import SparkJob
from kanon_db.spark.rows.columns import SENSITIVE, code_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

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
    """Cut records until parts are small.

    Parameters
    ----------
    job : SparkJob
    records : DataFrame
        As :func:`.coded_records` returns them.
    attributes : sequence of Attribute
    k : int
        Each part has at least 2k records.
    constraint : Constraint or None
        Has to hold for each part, since classes do not cross them. A cut that would violate it is
        not made.
    as_mondrian : bool
        Whether parts are cut as Mondrian would cut them.
    """
    find_cut = median_cut if as_mondrian else gap_cut
    tree = PartTree(job.snapshot.n_records)
    domains = CutDomains.of(attributes)
    wanted, parents = [0] if tree.sizes[0] > RECORDS_OF_PART else [], {0: 0}
    columns = [code_of(place) for place in range(len(attributes))]
    sizes = [attribute.n_values for attribute in attributes]
    if constraint is not None:
        columns.append(SENSITIVE)
        sizes.append(constraint.n_values)
    while wanted:
        job.voice.step("cutting the table into parts")
        pieces = _Pieces(tree, np.array(sorted(wanted)), columns, np.array(sizes))
        made: list[int] = []
        for node, counts in pieces.counted(records):
            job.voice.heartbeat()
            if (
                constraint is not None
                and node
                and not constraint.holds(counts.pop()[np.newaxis])[0]
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


def parted(records: DataFrame, tree: PartTree, n_attributes: int) -> tuple[DataFrame, int]:
    """Send the records of each part to a partition of their own; return how many these are."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import IntegerType, StructType

    leaves = tree.leaves
    columns = [code_of(place) for place in range(n_attributes)]
    context: Any = records.sparkSession.sparkContext
    known = context.broadcast((tree, np.array(leaves), columns))
    schema = StructType([*records.schema.fields]).add(PART, IntegerType(), nullable=False)
    with_part = through_arrow(records, numbering(known), schema)
    return with_part.repartitionById(len(leaves), f.col(PART)).drop(PART), len(leaves)


Batches = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


def numbering(known: Any) -> Batches:
    """Return the function that adds the number of its part to each record.

    Parameters
    ----------
    known : Broadcast
        Of the tree, its leaves, and the columns with codes.
    """

    def number(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        tree, leaves, columns = known.value
        part_of_node = np.zeros(len(tree.sizes), dtype=np.int32)
        part_of_node[leaves] = np.arange(leaves.size)
        for batch in batches:
            parts = part_of_node[tree.nodes_of(codes_in(batch, columns))]
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, pa.array(parts)], [*batch.schema.names, PART]
            )

    return number


def codes_in(batch: pa.RecordBatch | pa.Table, columns: Sequence[str]) -> Any:
    """Return the codes of records, shape (n, m)."""
    found = np.empty((batch.num_rows, len(columns)), dtype=np.int32)
    for place, name in enumerate(columns):
        found[:, place] = batch.column(name).to_numpy()
    return found


@dataclass(frozen=True, eq=False)
class _Pieces:
    """Parts whose values are to be counted.

    Attributes
    ----------
    tree : CutTree
    nodes : ndarray of int64
        Ascending.
    columns : list of str
    sizes : ndarray of int64
        The number of codes of each column.
    """

    tree: PartTree
    nodes: IntArray
    columns: list[str]
    sizes: IntArray

    def counted(self, records: DataFrame) -> Iterator[tuple[int, list[IntArray]]]:
        """Count how many records of each part have each code, column by column."""
        from pyspark.sql import functions as f
        from pyspark.sql.types import LongType, StructType

        context: Any = records.sparkSession.sparkContext
        known = context.broadcast(self)
        schema = StructType().add(_KEY, LongType()).add(_COUNT, LongType())
        with in_own_words("the values of parts could not be counted"):
            counts = through_arrow(records.select(*self.columns), counting(known), schema)
            found = counts.groupBy(_KEY).agg(f.sum(_COUNT).alias(_COUNT)).toArrow()
        keys, numbers = (found.column(name).to_numpy() for name in (_KEY, _COUNT))
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
        found = np.flatnonzero(counts)
        return found, counts[found]

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


def counting(known: Any) -> Batches:
    """Return the function that counts the codes of records in parts.

    Parameters
    ----------
    known : Broadcast
        Of :class:`_Pieces`.
    """

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        keys, counts = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        for batch in batches:
            found, n = known.value.occurring(batch)
            keys.append(found)
            counts.append(n)
        found, place = np.unique(np.concatenate(keys), return_inverse=True)
        n = np.bincount(place, np.concatenate(counts), minlength=found.size).astype(np.int64)
        yield pa.RecordBatch.from_arrays([pa.array(found), pa.array(n)], [_KEY, _COUNT])

    return count
