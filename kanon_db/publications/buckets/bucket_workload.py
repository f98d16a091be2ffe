"""Answers many count queries about buckets at once, from the codes of their slots.

Each is answered as a question on its own would be: from how many records, and how many values, of
each bucket match, and from what the matching records weigh.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.bucketization.buckets import BucketSetting, in_slots
from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    CodeArray,
    FloatArray,
    IntArray,
    unpack_levels,
)
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse, kernel
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError
from kanon_db.metrics.count_queries import CountErrors, CountQuery, exact_counts
from kanon_db.publications.buckets.learned_weights import (
    ChosenValues,
    RecordWeights,
    is_sound,
    read_weights,
)
from kanon_db.publications.buckets.tallies import (
    DependenceEffect,
    MatchedPairs,
    count_draws,
    judge_pairs,
    sum_slots,
)
from kanon_db.publications.codes import (
    Chunk,
    Run,
    Store,
    StoredColumn,
    chunks_of_buckets,
    code_type,
)
from kanon_db.query.layout import BucketTables

_AT_ONCE: Final = 64
"""Queries of which the matching slots are marked together."""


class SlotLevels(Protocol):
    """The levels of the weights of a sensitive attribute's values."""

    @property
    def parts(self) -> FloatArray:
        """(n_values,): what a level is divided by; infinite for a value without weights."""

    def of(self, chunk: Chunk, codes: Mapping[str, bytes]) -> npt.NDArray[np.uint8]:
        """Return those of the slots of a chunk, shape (n_slots, n_values)."""


@dataclass(frozen=True, eq=False)
class StoredLevels:
    """Levels that were read for the slots of all chunks."""

    levels: npt.NDArray[np.uint8]
    parts: FloatArray

    @classmethod
    def read(cls, store: Store, tables: BucketTables, name: str) -> StoredLevels | None:
        """Read those of an attribute; None where there are none, or they are not sound."""
        if name not in tables.weighted:
            return None
        n_values = store.columns[name].n_values
        levels = np.zeros((tables.n_records, n_values), np.uint8)
        parts = np.full(n_values, np.inf)
        for row in read_weights(store.session.stream, tables, store.tables, name):
            store.session.heartbeat()
            if not is_sound(row, tables.n_records):
                return None
            levels[:, row["code"]] = unpack_levels(row["weights"], tables.n_records)
            parts[row["code"]] = row["parts"]
        return cls(levels, parts)

    def of(self, chunk: Chunk, codes: Mapping[str, bytes]) -> npt.NDArray[np.uint8]:  # noqa: ARG002
        """Take those of a chunk."""
        return chunk.cut(self.levels)


@dataclass(frozen=True, eq=False)
class WorkloadTotals:
    """What buckets give for a workload; those of chunks are added."""

    pairs: FloatArray  # (4, n_queries): the sums of what :func:`.count_draws` returns
    n: FloatArray  # (n_queries,): the matching records
    levels: IntArray  # (n_queries, n_values): the sums of these records' levels

    def __add__(self, other: WorkloadTotals) -> WorkloadTotals:
        """Add what other buckets give."""
        return WorkloadTotals(
            self.pairs + other.pairs, self.n + other.n, self.levels + other.levels
        )


class _Tables(NamedTuple):
    """Which values of each column some queries match, shape (n_values, n_queries)."""

    records: Mapping[str, npt.NDArray[np.uint8]]  # Of columns without a condition, none
    values: npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class BucketWorkload:
    """Count queries by the codes of published values: counts a chunk, as a `ChunkReader`.

    The columns are the quasi-identifiers in the order of their numbers in the queries, and the
    sensitive attribute.
    """

    columns: Sequence[StoredColumn]
    queries: Sequence[CountQuery]
    levels: SlotLevels | None = None

    def begin(self) -> WorkloadTotals:
        """Return the totals of no bucket."""
        n = len(self.queries)
        n_values = 0 if self.levels is None else self.levels.parts.size
        return WorkloadTotals(np.zeros((4, n)), np.zeros(n), np.zeros((n, n_values), np.int64))

    def of(
        self, chunk: Chunk, codes: Mapping[str, bytes], heartbeat: Callable[[], None]
    ) -> WorkloadTotals:
        """Count the buckets of a chunk."""
        totals, sensitive = self.begin(), self.columns[-1].name
        own = {one.name: np.frombuffer(codes[one.name], one.dtype) for one in self.columns}
        levels = None if self.levels is None else self.levels.of(chunk, codes)
        for block in self._blocks():
            tables, here = self._mark(block), slice(block.start, block.stop)
            for run in chunk.runs:
                for some in run.some(run.bucket_size * len(block)):
                    heartbeat()
                    matching, q, s = _count(tables, own, sensitive, run, some)
                    totals.pairs[:, here] += count_draws(q, s, run.bucket_size).sum(axis=1)
                    totals.n[here] += q.sum(axis=0)
                    if levels is not None:
                        weighed = run.slots(levels)[:, some].reshape(-1, levels.shape[1])
                        marked = matching.reshape(-1, len(block))
                        _add_levels(marked, weighed, totals.levels[here])
        return totals

    def estimates(self, totals: WorkloadTotals) -> FloatArray:
        """Estimate each count as :func:`.judge_pairs` does, by weights where there are any."""
        weights, estimates = None, np.zeros(len(self.queries))
        if self.levels is not None:
            none = np.zeros(estimates.size), np.zeros((estimates.size, 0))
            weights = RecordWeights(totals.n, totals.levels / self.levels.parts, *none)
        for i, query in enumerate(self.queries):
            own = None
            if weights is not None:
                own = weights.of(slice(i, i + 1)).count(ChosenValues(query.sensitive, None))
            by_weights = None if own is None else float(own[0])
            pairs = MatchedPairs(*totals.pairs[:, i].tolist())
            estimates[i] = judge_pairs(pairs, DependenceEffect(0.0), by_weights=by_weights).estimate
        return estimates

    def _blocks(self) -> list[range]:
        n = len(self.queries)
        return [range(first, min(first + _AT_ONCE, n)) for first in range(0, n, _AT_ONCE)]

    def _mark(self, block: range) -> _Tables:
        *of_records, sensitive = self.columns
        records: dict[str, npt.NDArray[np.uint8]] = {}
        values = np.zeros((sensitive.n_values, len(block)), np.uint8)
        for at, i in enumerate(block):
            query = self.queries[i]
            values[:, at] = query.sensitive
            for a, matching in query.quasi_identifiers.items():
                column = of_records[a]
                shape = column.n_values, len(block)
                records.setdefault(column.name, np.ones(shape, np.uint8))[:, at] = matching
        return _Tables(records, values)


def _count(
    tables: _Tables, codes: Mapping[str, AnyIntArray], sensitive: str, run: Run, here: slice
) -> tuple[npt.NDArray[np.uint8], FloatArray, FloatArray]:
    """Mark the records that match each query, shape (size, n_buckets, n_queries), and count.

    Returns the marks, and the matching records and values of each bucket, (n_buckets, n_queries).
    """
    of_values = run.slots(codes[sensitive])[:, here]
    matching = np.ones((*of_values.shape, tables.values.shape[1]), np.uint8)
    for name, table in tables.records.items():
        matching &= table.take(run.slots(codes[name])[:, here], axis=0)
    q, s = sum_slots(matching), sum_slots(tables.values.take(of_values, axis=0))
    return matching, q.astype(np.float64), s.astype(np.float64)


@kernel
def _add_levels(
    marked: npt.NDArray[np.uint8], levels: npt.NDArray[np.uint8], sums: IntArray
) -> None:
    """Add the levels of each slot, (n_slots, n_values), to the sums of the queries it matches."""
    for slot in range(marked.shape[0]):
        for query in range(marked.shape[1]):
            if marked[slot, query]:
                for value in range(levels.shape[1]):
                    sums[query, value] += levels[slot, value]


def recode(queries: Sequence[CountQuery], places: Sequence[AnyIntArray]) -> list[CountQuery]:
    """Ask by other codes, of which `places` say what each is among those of before; -1 for none."""
    *of_records, sensitive = places

    def own(matching: npt.NDArray[np.bool_], at: AnyIntArray) -> npt.NDArray[np.bool_]:
        return np.append(matching, False)[at]

    return [
        CountQuery(
            {a: own(matching, of_records[a]) for a, matching in query.quasi_identifiers.items()},
            own(query.sensitive, sensitive), query.selectivity,
        )
        for query in queries
    ]  # fmt: skip


def count_errors(
    # (n_records,): any whole numbers of at least 0, best without gaps
    bucket_of_record: AnyIntArray,
    qi_codes: CodeArray,  # (n_records, n_qi)
    sa_codes: CodeArray,
    queries: Sequence[CountQuery],
    *,
    pulse: Pulse = UNLIMITED,
) -> CountErrors:
    """Answer queries from microdata and, as the paper does, from their bucketization.

    **Source:** [GB] Sections 3.2 and 7.2.
    """
    if bucket_of_record.shape != sa_codes.shape:
        raise InvalidParameterError("each record needs one bucket")
    actual = exact_counts(qi_codes, sa_codes, queries, pulse=pulse)
    pulse.beat()
    sizes = np.bincount(bucket_of_record)
    of_record = sizes[bucket_of_record]
    counts = np.bincount(sizes)[1:]
    setting = BucketSetting.of(np.arange(1, counts.size + 1), counts)
    slots = in_slots(np.lexsort((bucket_of_record, of_record)), setting)
    columns, codes = [], {}
    for number, column in enumerate((*qi_codes.T, sa_codes)):
        masks = [
            query.quasi_identifiers.get(number) if number < qi_codes.shape[1] else query.sensitive
            for query in queries
        ]
        n_values = max([int(column.max(initial=0)) + 1, *(m.size for m in masks if m is not None)])
        stored = StoredColumn(str(number), number, n_values)
        columns.append(stored)
        codes[stored.name] = column[slots].astype(code_type(n_values)).tobytes()
    workload = BucketWorkload(columns, queries)
    totals = workload.begin()
    for chunk in chunks_of_buckets(setting.pairs, max(sa_codes.size, 1)):
        totals = totals + workload.of(chunk, codes, pulse.beat)
    return CountErrors(actual, workload.estimates(totals))
