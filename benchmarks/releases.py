"""Several releases of the same people: what is certain, and what measuring costs.

Run from the root of the repository: ``python -m benchmarks releases``. The tables are looked for as
in :mod:`benchmarks.real_tables`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from multiprocessing import get_context
from time import process_time

import numpy as np

from benchmarks.census_like import OCC_SHARES, counts_of
from benchmarks.harness import peak_memory, table
from benchmarks.real_tables import TABLES, read
from kanon_db.algorithms.bucketization.bucket_assignment import assign_randomly
from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.bucketization.two_size import anatomy
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, IntArray
from kanon_db.algorithms.releases import (
    NEW,
    BucketRelease,
    ReleaseMeasures,
    measure_releases,
    refresh,
)

N_RECORDS = 1_000_000
N_PEOPLE = 20_190
L = 3
BUCKET_SIZE = 50
N_RELEASES = 3
SHARE_GONE = 0.01
"""The share of the people who are missing in each release, at random."""


@dataclass(frozen=True)
class Shape:
    """People, how many of them are alike, and the buckets of each release."""

    name: str
    alike: int
    size: int


SHAPES = (
    Shape("l = 3, everybody unique", 1, L),
    Shape("l = 3, four alike", 4, L),
    Shape(f"size {BUCKET_SIZE}, everybody unique", 1, BUCKET_SIZE),
    Shape(f"size {BUCKET_SIZE}, 300 alike", 300, BUCKET_SIZE),
)


def main() -> str:
    """Return the results as Markdown."""
    return "\n".join([replacements(), costs(), refreshes()])


def _in_buckets(codes: CodeArray, size: int, random: np.random.Generator) -> CodeArray:
    """Assign at random, to Anatomy's buckets or to those of one size."""
    counts = np.bincount(codes)
    if size == L:
        setting = anatomy(counts, L)
        limits = np.ones((counts.size, setting.sizes.size), dtype=np.int64)
    else:
        n_buckets, rest = divmod(codes.size, size)
        sizes, numbers = ([size], [n_buckets]) if not rest else (
            [size, size + 1], [n_buckets - rest, rest]
        )  # fmt: skip
        setting = BucketSetting.of(sizes, numbers)
        limits = FPrimePrivacy(_bounds(codes, size)).occurrence_limits(setting.sizes)
    return assign_randomly(codes, counts, limits, setting, random)


def _bounds(codes: AnyIntArray, size: int) -> tuple[Fraction, ...]:
    counts = np.bincount(codes)
    if size == L:
        return (Fraction(1, L),) * counts.size
    return tuple(
        min(Fraction(1), 2 * Fraction(count, codes.size) + Fraction(1, 50))
        for count in counts.tolist()
    )


def replacements() -> str:
    """Publish a table again and again with the same parameters, everybody unique."""
    rows: list[Sequence[object]] = []
    for name in TABLES:
        data = read(name)
        random = np.random.default_rng(0)
        codes = data.sa_codes[random.permutation(data.sa_codes.size)[:N_PEOPLE]]
        counts = np.bincount(codes)
        if counts.max() * L > codes.size:
            continue
        tuples = np.arange(codes.size)
        arrays = [BucketRelease.of(tuples, _in_buckets(codes, L, random), codes) for _ in range(3)]
        for n in (2, 3):
            found = measure_releases(arrays[:n], codes.size, _bounds(codes, L))
            rows.append([
                name, f"{codes.size:,}", n - 1,
                f"{found.check('candidates').certain:,}",
            ])  # fmt: skip
    return f"### Replaced with the same parameters, l = {L}, everybody unique\n\n" + table(
        ["table", "people", "replaced", "certain by intersection"],
        rows,
    )  # fmt: skip


def costs() -> str:
    """Measure three releases of a million people."""
    rows = []
    for shape in SHAPES:
        with get_context("spawn").Pool(1) as pool:
            took, memory, found = pool.apply(_measured, (shape,))
        rows.append([
            shape.name, f"{took:.0f}", f"{memory:,.0f}",
            f"{found.check('candidates').certain:,}",
        ])  # fmt: skip
    return (
        f"### {N_RELEASES} releases of {N_RECORDS:,} people, of whom {SHARE_GONE:.0%} are missing "
        "in each\n\n"
        + table(
            ["buckets", "CPU seconds", "peak MB", "certain by intersection"],
            rows,
        )
    )  # fmt: skip


def _measured(shape: Shape) -> tuple[float, float, ReleaseMeasures]:
    random = np.random.default_rng(1)
    codes = _census_codes(random)
    n_tuples = N_RECORDS // shape.alike
    tuples = np.arange(N_RECORDS) % n_tuples
    rank = np.arange(N_RECORDS) // n_tuples
    arrays = []
    for _ in range(N_RELEASES):
        buckets = _in_buckets(codes, shape.size, random)
        # Of people who are alike, the last one is missing.
        missing = random.random(n_tuples) < SHARE_GONE * shape.alike
        here = np.flatnonzero(~(missing[tuples] & (rank == shape.alike - 1)))
        arrays.append(BucketRelease.of(tuples[here], buckets[here], codes[here]))
    bounds = _bounds(codes, shape.size)
    measure_releases([one_of(arrays[0])] * 2, 1, bounds)  # compiled, or read from the cache
    started = process_time()
    found = measure_releases(arrays, n_tuples, bounds)
    return process_time() - started, peak_memory(os.getpid()), found


def one_of(release: BucketRelease) -> BucketRelease:
    """Return a release of a single person with a single value."""
    one = np.ones(1, dtype=release.count.dtype)
    zero = np.zeros(1, dtype=release.count.dtype)
    return BucketRelease(zero, zero, one, zero, zero, one)


def _census_codes(random: np.random.Generator) -> CodeArray:
    counts = counts_of(OCC_SHARES, N_RECORDS)
    codes: CodeArray = random.permutation(
        np.repeat(np.arange(counts.size, dtype=np.int32), counts)
    )  # fmt: skip
    return codes


def refreshes() -> str:
    """Refresh Anatomy's buckets under m-invariance, with a tenth of the people replaced."""
    random = np.random.default_rng(2)
    codes = _census_codes(random)
    rows = []
    for counterfeits in (False, True):
        here = np.arange(N_RECORDS * 9 // 10)
        last: IntArray = np.full(N_RECORDS, NEW)
        signatures: tuple[tuple[int, ...], ...] = ()
        for number in range(3):
            started = process_time()
            found = refresh(
                codes[here], last[here], signatures, L, random, counterfeits=counterfeits
            )  # fmt: skip
            took = process_time() - started
            published = here[~found.waits]
            last[published] = found.signature_of_bucket[found.bucket_of[~found.waits]]
            signatures = found.signatures
            rows.append([
                "yes" if counterfeits else "no", number + 1, f"{published.size:,}",
                f"{int(found.waits.sum()):,}", f"{found.counterfeit_value.size:,}",
                f"{len(signatures):,}", f"{took:.1f}",
            ])  # fmt: skip
            gone = random.random(here.size) < 0.1
            others = np.setdiff1d(np.arange(N_RECORDS), here)
            here = np.sort(np.concatenate([here[~gone], random.permutation(others)[: gone.sum()]]))
    return (
        f"### m-invariance, m = {L}: {N_RECORDS * 9 // 10:,} people, of whom a tenth is replaced "
        "each time\n\n"
        + table(
            ["counterfeits", "release", "published", "wait", "counterfeits", "signatures",
             "CPU seconds"],
            rows,
        )
    )  # fmt: skip
