"""How many combinations the values of some columns have, about, and those of groups of values.

The smallest hashes of the combinations tell: of n that are spread evenly, the k-th smallest is
expected at k / n (Z. Bar-Yossef et al., *Counting distinct elements in a data stream*, RANDOM 2002,
with the unbiased k - 1 in place of k). One pass over the records finds all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, IntArray
from kanon_db.spark.environment import in_own_words, through_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

MOST_BITS: Final = 12
"""Of the number of a group: the finest groups have one in 4,096 of the records."""

CHOICES: Final[tuple[int | None, ...]] = (None, *range(MOST_BITS, 0, -1))
"""The bits of the numbers of groups, from the finest on; None for values of their own."""

_KEPT: Final = 1024
"""Hashes: a standard error of 3 %."""

_CHOICE: Final = "choice"
_HASH: Final = "hash"

_Words: TypeAlias = npt.NDArray[np.uint64]
Batches: TypeAlias = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


def groups_of(counts: IntArray, bits: int) -> CodeArray:
    """Return the group of each value: about as many records in each, in the order of values.

    Parameters
    ----------
    counts : ndarray of int64, shape (n_values,)
        Records of each value.
    bits : int
        There are at most 2^bits groups. Those of fewer bits are unions of these.
    """
    before = np.cumsum(counts) - counts
    shares = [(n << bits) // max(1, int(counts.sum())) for n in before.tolist()]
    return np.array(shares, dtype=np.int32)


def count_combinations(
    coded: DataFrame, names: Sequence[str], finest: Sequence[CodeArray]
) -> list[float]:
    """Count, about, the combinations of groups of each of :data:`CHOICES`.

    Parameters
    ----------
    coded : DataFrame
        From files.
    names : sequence of str
        Its columns of codes.
    finest : sequence of ndarray of int32
        The groups of :data:`MOST_BITS` of each column's values.

    Returns
    -------
    list of float
        Of each choice; exact where they are fewer than 1,024.
    """
    from pyspark.sql.types import IntegerType, LongType, StructType

    context: Any = coded.sparkSession.sparkContext
    schema = StructType().add(_CHOICE, IntegerType()).add(_HASH, LongType())
    random = np.random.default_rng()
    tables = [random.integers(2**64, size=1 << MOST_BITS, dtype=np.uint64) for _ in names]
    known = context.broadcast((list(names), list(finest), tables))
    with in_own_words("combinations could not be counted"):
        found = through_arrow(coded.select(*names), sketching(known), schema).toArrow()
    choice = found.column(_CHOICE).to_numpy()
    hashes = found.column(_HASH).to_numpy().astype(np.int64).view(np.uint64)
    return [estimated(smallest(hashes[choice == i])) for i in range(len(CHOICES))]


def sketching(known: Any) -> Batches:
    """Return the function that finds the smallest hashes of each choice.

    Parameters
    ----------
    known : Broadcast
        Of the columns, the finest groups of their values, and a random number for each group.
    """

    def sketch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        names, finest, tables = known.value
        kept = [np.empty(0, dtype=np.uint64) for _ in CHOICES]
        for batch in batches:
            codes = [batch.column(name).to_numpy() for name in names]
            groups = [own[code] for own, code in zip(finest, codes, strict=True)]
            for i, bits in enumerate(CHOICES):
                hashes = np.zeros(batch.num_rows, dtype=np.uint64)
                for code, group, table in zip(codes, groups, tables, strict=True):
                    if bits is None:
                        hashes ^= scrambled(code.astype(np.uint64) + table[0])
                    else:
                        hashes ^= table[group >> (MOST_BITS - bits)]
                if kept[i].size == _KEPT:
                    hashes = hashes[hashes < kept[i][-1]]
                kept[i] = smallest(np.concatenate([kept[i], hashes]))
        choice = np.repeat(np.arange(len(CHOICES), dtype=np.int32), [one.size for one in kept])
        arrays = [pa.array(choice), pa.array(np.concatenate(kept).view(np.int64))]
        yield pa.RecordBatch.from_arrays(arrays, [_CHOICE, _HASH])

    return sketch


def scrambled(numbers: _Words) -> _Words:
    """Spread numbers evenly: the last step of SplitMix64 (G. Steele et al., OOPSLA 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def smallest(hashes: _Words) -> _Words:
    """Return the smallest distinct hashes, ascending."""
    return np.unique(hashes)[:_KEPT]


def estimated(hashes: _Words) -> float:
    """Return how many combinations there are, from the smallest hashes of all."""
    if hashes.size < _KEPT:
        return float(hashes.size)
    return (_KEPT - 1) / (float(hashes[-1]) / 2**64)


def grouping(known: Any) -> Batches:
    """Return the function that replaces codes by the groups of values.

    Parameters
    ----------
    known : Broadcast
        Of the columns, and the group of each of their values.
    """

    def group(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        names, groups = known.value
        for batch in batches:
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            for name, own in zip(names, groups, strict=True):
                columns[name] = pa.array(own[_numbers(batch, name)])
            yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    return group


def _numbers(batch: pa.RecordBatch, name: str) -> AnyIntArray:
    found: AnyIntArray = batch.column(name).to_numpy()
    return found
