"""Counts by weights that are learned from QIT and SAT, beside the paper's estimator.

Run from the root of the repository: ``python -m benchmarks weights``. The tables are looked for as
in :mod:`benchmarks.real_tables` and :mod:`benchmarks.calibration_tables`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from fractions import Fraction
from time import process_time
from typing import Final

import numpy as np
import pandas as pd

from benchmarks.calibration_tables import N_RECORDS, SAMPLE
from benchmarks.calibration_tables import TABLES as OTHERS
from benchmarks.cells import SEARCHES, in_cells
from benchmarks.harness import table
from benchmarks.real_tables import DATA, MAX_BUCKET_SIZE, TABLES, Microdata, read
from kanon_db.algorithms.bucketization.bucket_assignment import assign_randomly
from kanon_db.algorithms.bucketization.buckets import BucketedRecords
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy, PrivacySpecification
from kanon_db.algorithms.bucketization.two_size import two_size
from kanon_db.algorithms.bucketization.value_model import learn_levels
from kanon_db.algorithms.ground.arrays import CodeArray, FloatArray, IntArray
from kanon_db.metrics.count_queries import CountQuery, exact_counts

SPECIFICATIONS: Final = (
    '{"theta": 8, "base": 0.02}', '{"theta": 8, "base": 0.02, "cap": 0.5}', '{"l": 3}',
)  # fmt: skip
N_SEEDS: Final = 5
OTHER_NAMES: Final = ("ipums", "nmes", "brfss", "cps", "nursery", "thornton")
"""In the last, missing values count as a value."""


def main() -> str:
    """Return the results as Markdown."""
    rows = []
    for name in list(TABLES)[:3]:
        data = read(name)
        for text in SPECIFICATIONS:
            rows.append([name, f"`{text}`", *_row(data, text)])
            print(rows[-1], file=sys.stderr, flush=True)
    for other in (source for source in OTHERS if source.name in OTHER_NAMES):
        data = _read(other.file, other.quasi_identifiers, other.sensitive)
        rows.append([other.name, f"`{other.privacy}`", *_row(data, other.privacy)])
        print(rows[-1], file=sys.stderr, flush=True)
    heading = [
        "table", "privacy", "two_size, random", "random, capped", "uncapped", "multi_size, cells",
        "cells, capped", "uncapped", "worst, over the paper's on the same", "learning, CPU",
    ]  # fmt: skip
    return (
        "Mean relative error of 5,000 queries, s = 5 %, that nothing was chosen on: of the paper's"
        " estimator on buckets of two_size that are drawn at random, and of the others as parts of"
        f" it, medians of {N_SEEDS} publications with fixed seeds. *Worst* compares the capped and"
        " uncapped estimates of each publication with the paper's of the same.\n\n"
        + table(heading, rows)
    )


def _row(data: Microdata, specification: str) -> list[str]:
    labels = [str(i) for i in range(data.counts.size)]
    privacy = PrivacySpecification.parse(specification).thresholds(labels, data.counts)
    queries = data.queries()
    actual = exact_counts(data.qi_codes, data.sa_codes, queries)
    found = [_errors(data, privacy, queries, actual, seed) for seed in range(N_SEEDS)]
    each = np.array([errors for errors, _ in found])
    floor = each[:, :1]
    relative = np.median(each / floor, axis=0)
    worst = max(float((each[:, at + 1 : at + 3] / each[:, at : at + 1]).max()) for at in (0, 3))
    seconds = float(np.median([seconds for _, seconds in found]))
    return [
        f"{np.median(floor):.4f}",
        *(f"{one:.3f}" for one in relative[1:]),
        f"{worst:.3f}",
        f"{seconds:.1f} s",
    ]


def _errors(
    data: Microdata,
    privacy: FPrimePrivacy,
    queries: Sequence[CountQuery],
    actual: IntArray,
    seed: int,
) -> tuple[list[float], float]:
    """Return the errors of the paper's, capped and uncapped estimates, at random and in cells."""
    random = np.random.default_rng(seed)
    drawn = _drawn(data, privacy, random)
    gathered = in_cells(data, privacy, SEARCHES["multi_size"], seed).bucket_of_record
    errors, seconds = [], []
    for assigned in (drawn, gathered):
        records, codes = _bucketed(data, assigned, random)
        shares = records.shares.astype(np.float64)
        errors.append(error(codes, shares, queries, actual))
        for thresholds in (privacy.thresholds, [Fraction(1)] * data.counts.size):
            started = process_time()
            learned = learn_levels(records, thresholds, random)
            seconds.append(process_time() - started)
            weights = shares if learned is None else learned[0] / learned[1].parts
            errors.append(error(codes, weights, queries, actual))
    return errors, max(seconds)


def drawn_error(
    data: Microdata,
    privacy: FPrimePrivacy,
    queries: Sequence[CountQuery],
    actual: IntArray,
    seed: int,
) -> float:
    """Return the error of the paper's estimates from random buckets of two_size."""
    random = np.random.default_rng(seed)
    records, codes = _bucketed(data, _drawn(data, privacy, random), random)
    return error(codes, records.shares.astype(np.float64), queries, actual)


def _drawn(data: Microdata, privacy: FPrimePrivacy, random: np.random.Generator) -> CodeArray:
    setting = two_size(data.counts, privacy, MAX_BUCKET_SIZE)
    limits = privacy.occurrence_limits(setting.sizes)
    return assign_randomly(data.sa_codes, data.counts, limits, setting, random)


def _bucketed(
    data: Microdata, assigned: CodeArray, random: np.random.Generator
) -> tuple[BucketedRecords, CodeArray]:
    """Gather records by their buckets, with the codes of their quasi-identifiers."""
    buckets = np.unique(assigned, return_inverse=True)[1].astype(np.int32)
    by_value = np.argsort(data.sa_codes, kind="stable")
    values = data.sa_codes[by_value][np.argsort(buckets[by_value], kind="stable")]
    shuffled = random.permutation(buckets.size)
    codes = data.qi_codes[shuffled]
    records, order = BucketedRecords.of([*codes.T], buckets[shuffled], values, data.counts.size)
    return records, codes[order]


def error(
    codes: CodeArray, weights: FloatArray, queries: Sequence[CountQuery], actual: IntArray
) -> float:
    """Return the mean relative error of counts that add up weights, where there are records."""
    found = np.empty(len(queries))
    for at, query in enumerate(queries):
        matching = np.ones(len(codes), dtype=np.bool_)
        for a, chosen in query.quasi_identifiers.items():
            matching &= chosen[codes[:, a]]
        found[at] = weights[matching][:, query.sensitive].sum()
    counts = actual > 0
    return float(np.mean(np.abs(found - actual)[counts] / actual[counts]))


def _read(file: str, quasi_identifiers: Sequence[str], sensitive: str) -> Microdata:
    frame = pd.read_csv(DATA / f"{file}.csv.gz", keep_default_na=False)
    frame = frame.sample(min(N_RECORDS, len(frame)), random_state=SAMPLE)

    def coded(name: str) -> CodeArray:
        numbers = pd.to_numeric(frame[name], errors="coerce")
        values = numbers if numbers.notna().all() else frame[name]
        return np.unique(values, return_inverse=True)[1].astype(np.int32)

    codes = coded(sensitive)
    return Microdata(
        np.column_stack([coded(name) for name in quasi_identifiers]), codes, np.bincount(codes)
    )
