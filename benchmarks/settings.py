"""Compare the searches for bucket settings: two sizes, several, and the proven optimum.

Run from the root of the repository: ``python -m benchmarks.settings`` ([GB] Sections 7.2.1 and
7.3). Prints Markdown tables; each time covers one search, from counts and thresholds to setting.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from time import perf_counter
from typing import TypeVar

import numpy as np

from benchmarks.census_like import EDU_SHARES, OCC_SHARES, counts_of, split
from benchmarks.harness import table
from kanon_db.algorithms.bucketization.bucket_assignment import partition_records
from kanon_db.algorithms.bucketization.multi_size import multi_size, optimal
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy, PrivacySpecification
from kanon_db.algorithms.bucketization.two_size import two_size
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.computation import Pulse

MAX_BUCKET_SIZE = 50
TIME_LIMIT = 60
THETAS = (2, 4, 8, 16, 32)
ADULT_OCCUPATION = (3721, 9, 4030, 3992, 989, 1350, 1966, 3212, 143, 4038, 644, 3584, 912, 1572)
"""Records of each occupation in the 30,162 complete records of Adult."""

_T = TypeVar("_T")


def main() -> str:
    """Return the results as Markdown."""
    return "\n".join([_losses(), _scale()])


def thresholds_of(counts: IntArray, theta: int) -> FPrimePrivacy:
    """Apply min(1, theta f_i + 0.02), the paper's rule."""
    spec = PrivacySpecification.parse(f'{{"theta": {theta}, "base": 0.02}}')
    return spec.thresholds([str(i) for i in range(counts.size)], counts)


def personal_thresholds(counts: IntArray, generator: np.random.Generator) -> FPrimePrivacy:
    """Draw a threshold of its own for each value, from its frequency + 1/40 up, most low."""
    n_records = int(counts.sum())
    own = generator.integers(1, 10**6, size=counts.size)
    return FPrimePrivacy(
        tuple(
            min(Fraction(1), Fraction(count, n_records) + Fraction(1, 40) + Fraction(x, 10**6) ** 3)
            for count, x in zip(counts.tolist(), own.tolist(), strict=True)
        )
    )


def timed(action: Callable[[], _T]) -> tuple[_T, float]:
    """Run an action once; return its result and the seconds that it took."""
    started = perf_counter()
    result = action()
    return result, perf_counter() - started


def _losses() -> str:
    tables = {
        "OCC-like, 500,000 records": counts_of(OCC_SHARES, 500_000),
        "EDU-like, 500,000 records": counts_of(EDU_SHARES, 500_000),
        "Adult, occupation": np.array(ADULT_OCCUPATION),
    }
    rows = []
    for name, counts in tables.items():
        for theta in THETAS:
            privacy = thresholds_of(counts, theta)
            two = two_size(counts, privacy, MAX_BUCKET_SIZE)
            multi = multi_size(counts, privacy, MAX_BUCKET_SIZE)
            best = optimal(counts, privacy, MAX_BUCKET_SIZE, pulse=Pulse(TIME_LIMIT))
            least = best.proof.objective
            rows.append(
                [name, theta, f"{two.msbs:.3f}", f"{multi.msbs:.3f}", f"{best.setting.msbs:.3f}",
                 f"{two.loss / least:.2f} : {multi.loss / least:.3f} : 1", best.proof.status]
            )  # fmt: skip
    return (
        f"Thresholds min(1, θ f + 0.02), M' = {MAX_BUCKET_SIZE}; MSBS, and losses relative to the "
        "optimum.\n\n"
        + table(
            ["table", "θ", "two_size", "multi_size", "optimal", "ratio of losses", "status"], rows
        )
    )


def _scale() -> str:
    generator = np.random.default_rng(64)
    occ = counts_of(OCC_SHARES, 500_000)
    many = split(occ, 64, generator)
    personal = generator.integers(20, 400, size=5000)
    instances = [
        ("OCC-like, θ = 8", occ, thresholds_of(occ, 8), "≤ 10 s"),
        ("OCC-like split by 64, θ = 8", many, thresholds_of(many, 8), "≤ 120 s"),
        ("OCC-like split by 64, θ = 64", many, thresholds_of(many, 64), ""),
        ("5,000 personal thresholds", personal, personal_thresholds(personal, generator), ""),
    ]
    rows = []
    for name, counts, privacy, target in instances:
        _, two_seconds = timed(lambda: two_size(counts, privacy, MAX_BUCKET_SIZE))  # noqa: B023
        _, multi_seconds = timed(lambda: multi_size(counts, privacy, MAX_BUCKET_SIZE))  # noqa: B023
        best, seconds = timed(
            lambda: optimal(counts, privacy, MAX_BUCKET_SIZE, pulse=Pulse(TIME_LIMIT))  # noqa: B023
        )
        limits = privacy.occurrence_limits(best.setting.sizes)
        _, partition_seconds = timed(
            lambda: partition_records(counts, limits, best.setting)  # noqa: B023
        )
        rows.append(
            [name, f"{counts.sum():,}", f"{counts.size:,}", f"{1000 * two_seconds:.0f} ms",
             f"{multi_seconds:.1f} s", f"{seconds:.1f} s", target, f"{best.proof.gap:.1e}",
             f"{1000 * partition_seconds:.0f} ms, {best.setting.sizes.size} sizes"]
        )  # fmt: skip
    return (
        f"Time of one run; `optimal` on one thread, time limit of the solver {TIME_LIMIT} s.\n\n"
        + table(
            ["table", "records", "values", "two_size", "multi_size", "optimal", "target", "gap",
             "partition of the optimum"],
            rows,
        )
    )  # fmt: skip


if __name__ == "__main__":
    print(main())
