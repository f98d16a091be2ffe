"""Random count queries with the true answers of a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.catalog.entries import Source
from kanon_db.metrics.count_errors import exact_counts
from kanon_db.metrics.workload import CountQuery, random_queries
from kanon_db.transfer.columns import ColumnType
from kanon_db.transfer.snapshot import Snapshot
from kanon_db.transfer.values import DistinctValues, distinct_values, read_codes

_MOST_CONDITIONS: Final = 3
"""On quasi-identifiers, beside that on the sensitive attribute."""


@dataclass(frozen=True, eq=False)
class Questions:
    """Random count queries on up to three quasi-identifiers, and the sensitive attribute.

    Attributes
    ----------
    columns : list of DistinctValues
        The quasi-identifiers.
    sensitive : DistinctValues or None
    queries : list of CountQuery
    actual : ndarray of int64, shape (n_queries,)
        How many records of the source match.
    """

    columns: list[DistinctValues]
    sensitive: DistinctValues | None
    queries: list[CountQuery]
    actual: IntArray

    @classmethod
    def draw(
        cls,
        n: int,
        snapshot: Snapshot,
        source: Source,
        types: Mapping[str, ColumnType],
        *,
        selectivity: Sequence[float],
        seed: int,
        pulse: Pulse,
    ) -> Self:
        """Draw n questions, and answer them from a snapshot of the source.

        Parameters
        ----------
        n : int
        snapshot : Snapshot
            With the quasi-identifiers, and the sensitive attribute if there is one.
        source : Source
        types : mapping of str to ColumnType
        selectivity : sequence of float
            Expected shares of matching records, of which each query draws one.
        seed : int
            The same seed draws the same questions to the same records.
        pulse : Pulse
        """
        columns = [distinct_values(snapshot, types[name]) for name in source.quasi_identifiers]
        codes = read_codes(snapshot, columns)
        sensitive, values = None, np.zeros(snapshot.n_records, dtype=np.int32)
        if source.sensitive is not None:
            sensitive = distinct_values(snapshot, types[source.sensitive])
            values = read_codes(snapshot, [sensitive])[:, 0]
        queries = random_queries(
            n,
            [len(column.labels) for column in columns],
            1 if sensitive is None else len(sensitive.labels),
            np.random.default_rng(seed),
            dimensionality=range(1, min(_MOST_CONDITIONS, len(columns)) + 1),
            selectivity=selectivity,
            pulse=pulse,
        )
        return cls(columns, sensitive, queries, exact_counts(codes, values, queries, pulse=pulse))
