"""Real tables as codes, questions on them, and how often the best learner guesses right.

The tables are looked for in ``data/`` of the folder named by KANON_SHARED, or of ``../shared``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd

from kanon_db.algorithms.attacks import (
    BucketCandidates,
    BucketValues,
    candidates_of,
    learn_weights,
    model_weights,
)
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy, PrivacySpecification
from kanon_db.algorithms.ground.arrays import CodeArray, FloatArray, IntArray
from kanon_db.metrics.count_queries import (
    CountQuery,
    random_queries,
)

DATA = Path(os.environ.get("KANON_SHARED", Path(__file__).resolve().parents[2] / "shared"), "data")
TABLES = {
    "Adult, occupation": (
        "adult_30162.csv.gz",
        "age workclass education marital-status race sex native-country".split(),
        "occupation",
    ),
    "Adult, education": (
        "adult_30162.csv.gz",
        "age workclass marital-status occupation race sex native-country".split(),
        "education",
    ),
    "fars_occupants, state": (
        "fars_occupants.csv.gz",
        "age sex modelyr year airbag inimpact Restraint injury".split(),
        "state",
    ),
    "military, rank": ("military.csv.gz", "grade branch gender race hisp".split(), "rank"),
}
MAX_BUCKET_SIZE = 50
N_QUERIES = 5000
SELECTIVITY = 0.05
TIME_LIMIT = 20

BucketArray = CodeArray


@dataclass(frozen=True, eq=False)
class Microdata:
    """Codes of a table, with the number of records of each sensitive value."""

    qi_codes: CodeArray
    sa_codes: CodeArray
    counts: IntArray

    def privacy(self, theta: int) -> FPrimePrivacy:
        """Apply min(1, theta f_i + 0.02), the paper's rule."""
        spec = PrivacySpecification(theta=Fraction(theta), base=Fraction(1, 50))
        return spec.thresholds([str(i) for i in range(self.counts.size)], self.counts)

    def queries(self) -> list[CountQuery]:
        """Draw the workload, of every dimensionality; the same at each call."""
        n_codes = (self.qi_codes.max(axis=0) + 1).tolist()
        return random_queries(
            N_QUERIES,
            n_codes,
            self.counts.size,
            np.random.default_rng(1),
            dimensionality=range(1, len(n_codes) + 1),
            selectivity=[SELECTIVITY],
        )


def read(name: str) -> Microdata:
    """Read one of :data:`TABLES`."""
    file, quasi_identifiers, sensitive = TABLES[name]
    frame = pd.read_csv(DATA / file, keep_default_na=False)

    def codes(column: str) -> CodeArray:
        return np.unique(frame[column], return_inverse=True)[1].astype(np.int32)

    sa_codes = codes(sensitive)
    return Microdata(
        np.column_stack([codes(column) for column in quasi_identifiers]),
        sa_codes,
        np.bincount(sa_codes),
    )


def right_guesses(data: Microdata, buckets: BucketArray) -> tuple[float, float]:
    """Name every record's most probable value; return how often that is right.

    By the shares in the bucket, and by the best learner from the publication alone.
    """
    n_values = data.counts.size
    order = np.argsort(buckets, kind="stable")
    codes, buckets, truth = data.qi_codes[order], buckets[order], data.sa_codes[order]
    values = BucketValues.of(buckets, truth, n_values)
    candidates = candidates_of(buckets, values)
    learned = [learn_weights(codes, candidates, n_values)]
    random = np.random.default_rng(0)
    modelled = model_weights(codes, buckets, values, n_values, [random])
    learned += [] if modelled is None else [modelled]
    by_share, *by_learning = (
        float((candidates.value[_guesses(candidates, weights)] == truth).mean())
        for weights in (candidates.share, *learned)
    )
    return by_share, max(by_learning)


def _guesses(candidates: BucketCandidates, weights: FloatArray) -> IntArray:
    """Return the place of each record's candidate of the largest weight."""
    order = np.lexsort((weights, candidates.record))
    return order[np.flatnonzero(np.diff(candidates.record[order], append=-1))]
