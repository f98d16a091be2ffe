"""Local assignment: errors of count queries, runtime, and what an attack gains.

Run from the root of the repository: ``python -m benchmarks.local_assignment``. The tables are
looked for in ``data/`` of the folder named by KANON_SHARED, or of ``../shared``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks.harness import seconds, table
from kanon_db.algorithms.attacks import (
    BucketCandidates,
    BucketValues,
    candidates_of,
    learned_weights,
    modelled_weights,
    unusual_records,
    weights_of_source,
)
from kanon_db.algorithms.bucketization.bucket_assignment import assign_randomly
from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.bucketization.local_assignment import assign_locally
from kanon_db.algorithms.bucketization.multi_size import optimal
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy, PrivacySpecification
from kanon_db.algorithms.bucketization.two_size import two_size
from kanon_db.algorithms.ground.arrays import BoolArray, CodeArray, FloatArray, IntArray
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.metrics.count_queries import (
    CountErrors,
    CountQuery,
    estimated_counts,
    exact_counts,
    random_queries,
)
from kanon_db.randomness import SecureRandom

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
THETAS = (8, 2, 32)
MAX_BUCKET_SIZE = 50
N_QUERIES = 5000
SELECTIVITY = 0.05
TIME_LIMIT = 20
N_ROWS = 1_000_000
_OCCUPATIONS = (3721, 9, 4030, 3992, 989, 1350, 1966, 3212, 143, 4038, 644, 3584, 912, 1572)

BucketArray = CodeArray


def main() -> str:
    """Return the results as Markdown."""
    return "\n".join([error_table(), runtime_table(), attack_table()])


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


def publications(data: Microdata, privacy: FPrimePrivacy) -> dict[str, BucketArray]:
    """Assign the records under the same thresholds in three ways."""

    def at_random(setting: BucketSetting) -> BucketArray:
        limits = privacy.occurrence_limits(setting.sizes)
        random = np.random.default_rng(0)
        return assign_randomly(data.sa_codes, data.counts, limits, setting, random)

    best = optimal(data.counts, privacy, MAX_BUCKET_SIZE, pulse=Pulse(TIME_LIMIT))
    return {
        "two_size": at_random(two_size(data.counts, privacy, MAX_BUCKET_SIZE)),
        "optimal": at_random(best.setting),
        "local": _locally(data, privacy),
    }


def error_table() -> str:
    """Compare mean relative errors of the same queries."""
    rows = []
    for name in TABLES:
        data = read(name)
        queries = data.queries()
        actual = exact_counts(data.qi_codes, data.sa_codes, queries)
        for theta in THETAS:
            errors = {
                method: CountErrors(actual, _estimates(data, buckets, queries))
                for method, buckets in publications(data, data.privacy(theta)).items()
            }
            local = errors["local"]
            rows.append(
                [name, theta]
                + [f"{answers.mean:.4f} ({answers.median:.4f})" for answers in errors.values()]
                + [f"{local.mean / errors[method].mean:.3f}" for method in ("two_size", "optimal")]
                + [local.n_undefined]
            )
    heading = ["table", "theta", "two_size, random", "optimal, random", "local"]
    ratios = ["local / two_size", "local / optimal", "act = 0"]
    return f"Mean (median) relative error of {N_QUERIES:,} queries, s = {SELECTIVITY}:\n\n" + table(
        heading + ratios, rows
    )


def runtime_table() -> str:
    """Time the assignment of the rows of benchmarks/publication.py."""
    generator = np.random.default_rng(0)
    shapes = [(1.5, 72), (3, 7), (2, 16), (2, 7), (4, 5), (1, 2), (6, 41)]
    columns = [np.floor(generator.random(N_ROWS) ** power * n) for power, n in shapes]
    shares = np.array(_OCCUPATIONS) / sum(_OCCUPATIONS)
    sa_codes = generator.choice(shares.size, N_ROWS, p=shares).astype(np.int32)
    data = Microdata(np.column_stack(columns).astype(np.int32), sa_codes, np.bincount(sa_codes))
    beats: list[float] = []
    privacy = data.privacy(8)
    _locally(data, privacy)  # compiles
    used: list[float] = []

    def assign() -> None:
        started = process_time()
        assign_locally(
            data.qi_codes,
            data.sa_codes,
            privacy,
            MAX_BUCKET_SIZE,
            SecureRandom(),
            pulse=Pulse(heartbeat=lambda: beats.append(perf_counter())),
        )
        used.append(process_time() - started)

    taken = seconds(assign, runs=3)
    pause = float(np.quantile(np.diff(beats), 0.95))
    return table(
        [f"{N_ROWS:,} records, 8 columns, theta 8", "median of 3"],
        [
            ["`assign_locally`", f"{taken:.1f} s"],
            ["its processor time", f"{sorted(used)[1]:.1f} s"],
            ["95 % of the pauses between heartbeats, at most", f"{1000 * pause:.0f} ms"],
        ],
    )


def attack_table(names: Sequence[str] = ("Adult, occupation", "Adult, education")) -> str:
    """Guess each record's value within its bucket, with and without a classifier."""
    rows = []
    for name in names:
        data = read(name)
        for theta in THETAS:
            privacy = data.privacy(theta)
            bound = np.array([float(f) for f in privacy.thresholds])
            for method, buckets in publications(data, privacy).items():
                rows += [[name, theta, method, *row] for row in _attack(data, buckets, bound)]
    return (
        "Guesses that name a protected value (f' < 1), and how often they are right; the average"
        " share of the guessed value in the bucket; the average f'; right guesses by value, the"
        " worst against its f'; protected records that are guessed:\n\n"
        + table(
            "table | theta | method | attack | guesses | right | share | f' | worst | found".split(
                " | "
            ),
            rows,
        )
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
    learned = [learned_weights(codes, candidates, n_values)]
    random = np.random.default_rng(0)
    modelled = modelled_weights(codes, buckets, values, n_values, random)
    learned += [] if modelled is None else [modelled]
    by_share, *by_learning = (
        float((candidates.value[_guesses(candidates, weights)] == truth).mean())
        for weights in (candidates.share, *learned)
    )
    return by_share, max(by_learning)


def _estimates(data: Microdata, buckets: BucketArray, queries: Sequence[CountQuery]) -> FloatArray:
    ones = np.ones(buckets.size, dtype=np.int64)
    return estimated_counts(buckets, data.qi_codes, buckets, data.sa_codes, ones, queries)


def _locally(data: Microdata, privacy: FPrimePrivacy) -> BucketArray:
    random = np.random.default_rng(0)
    return assign_locally(
        data.qi_codes, data.sa_codes, privacy, MAX_BUCKET_SIZE, random
    ).bucket_of_record


def _attack(data: Microdata, buckets: BucketArray, bound: FloatArray) -> list[list[object]]:
    candidates = candidates_of(buckets, BucketValues.of(buckets, data.sa_codes, bound.size))
    everyone = np.ones(buckets.size, dtype=np.bool_)
    return [
        [attack, *_hits(data.sa_codes, candidates, weights, bound, among)]
        for attack, weights, among in (
            ("most frequent", candidates.share, everyone),
            ("most frequent, unusual records", candidates.share, unusual_records(data.qi_codes)),
            (
                "naive Bayes",
                learned_weights(data.qi_codes, candidates, bound.size),
                everyone,
            ),
            (
                "naive Bayes of the source",
                weights_of_source(
                    data.qi_codes, candidates, data.qi_codes, data.sa_codes, bound.size
                ),
                everyone,
            ),
        )
    ]


def _guesses(candidates: BucketCandidates, weights: FloatArray) -> IntArray:
    """Return the place of each record's candidate of the largest weight."""
    order = np.lexsort((weights, candidates.record))
    return order[np.flatnonzero(np.diff(candidates.record[order], append=-1))]


def _hits(
    sa_codes: CodeArray,
    candidates: BucketCandidates,
    weights: FloatArray,
    bound: FloatArray,
    among: BoolArray,
) -> list[object]:
    guess = _guesses(candidates, weights)
    value, share = candidates.value[guess], candidates.share[guess]
    right = value == sa_codes
    protected = bound < 1
    chosen = protected[value] & among
    named = np.bincount(value[chosen], minlength=bound.size)
    hits = np.bincount(value[chosen & right], minlength=bound.size)
    often = named >= 30  # a rate of fewer guesses says nothing
    worst = np.divide(hits, named * bound, out=np.zeros(bound.size), where=often)
    i = int(worst.argmax())
    return [
        f"{int(chosen.sum()):,}",
        _mean(right[chosen]),
        _mean(share[chosen]),
        _mean(bound[value[chosen]]),
        f"{hits[i] / named[i]:.3f} of {bound[i]:.3f}" if often.any() else "-",
        _mean((right & chosen)[protected[sa_codes] & among]),
    ]


def _mean(values: npt.NDArray[np.generic]) -> str:
    return f"{values.astype(np.float64).mean():.3f}" if values.size else "-"


if __name__ == "__main__":
    print(main())
