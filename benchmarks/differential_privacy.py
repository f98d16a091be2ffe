"""Buckets beside differential privacy: the same count queries on Adult, occupation sensitive.

The table is looked for in ``data/`` of the folder named by KANON_SHARED, or of ``../shared``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.cells import SEARCHES, in_cells
from benchmarks.harness import table
from benchmarks.noisy_counts import (
    counts_before_response,
    fitted_shares,
    gaussian_scale,
    geometric_noise,
    noisy_pairs,
    randomized_response,
    truth_probability,
    zcdp_budget,
)
from benchmarks.real_tables import (
    MAX_BUCKET_SIZE,
    N_QUERIES,
    TIME_LIMIT,
    Microdata,
    read,
    right_guesses,
)
from kanon_db.algorithms.bucketization.bucket_assignment import assign_randomly
from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.bucketization.multi_size import optimal
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.bucketization.two_size import two_size
from kanon_db.algorithms.ground.arrays import CodeArray, FloatArray, IntArray
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.metrics.count_queries import CountErrors, CountQuery, exact_counts
from kanon_db.publications.buckets.bucket_workload import count_errors

TABLE = "Adult, occupation"
THETAS = (8, 2)
EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
QUESTIONS = (1, 10, 100, 1000, 10_000)
MOST_QUESTIONS = 10**9
N_NOISES = 20
N_PUBLICATIONS = 3
PACKAGES = ("opendp[mbi]==0.16.0", "jax==0.10.2", "pandas==3.1.1")
_QUERIES_AT_ONCE = 200

Summary = tuple[float, float, float]
"""Mean, median and 95th percentile of the relative errors."""

Noise = Callable[[float, int, np.random.Generator], FloatArray]
"""What is added to the counts, given epsilon and the number of questions that share it."""


def main() -> str:
    """Return the results as Markdown."""
    data = read(TABLE)
    queries = data.queries()
    actual = exact_counts(data.qi_codes, data.sa_codes, queries)
    buckets, guesses = _measured_buckets(data, queries)
    noises = _noises(data.sa_codes.size)
    return "\n".join([
        _introduction(data, actual),
        _of_buckets(data, buckets, guesses),
        _of_questions(noises, actual, data.sa_codes.size),
        _break_even(noises, actual, data.sa_codes.size, buckets),
        _published_once(data, queries, actual, buckets),
    ])  # fmt: skip


def delta_of(n_records: int) -> float:
    """Return the delta of all mechanisms that need one, n^-1.1."""
    return float(n_records**-1.1)


def _introduction(data: Microdata, actual: IntArray) -> str:
    n_records = data.sa_codes.size
    low, middle, high = np.quantile(actual, [0.05, 0.5, 0.95]).astype(int).tolist()
    return (
        f"The {N_QUERIES:,} queries have conditions on "
        "quasi-identifiers and on the sensitive attribute, occupation. Errors are relative: mean "
        f"/ median / 95th percentile. {int((actual == 0).sum())} queries match no record; the true "
        f"counts are {low:,} / {middle:,} / {high:,} (5th percentile / median / 95th percentile). "
        f"δ is n^-1.1 = {delta_of(n_records):.1e}. [Buckets and differential "
        "privacy](../understand/differential-privacy.md) says what the figures mean and what"
        " they do not.\n"
    )


def _measured_buckets(
    data: Microdata, queries: Sequence[CountQuery]
) -> tuple[dict[str, Summary], dict[str, list[float]]]:
    """Errors of each bucketization, and how often guesses from it are right."""
    errors, guesses = {}, {}
    for name, publications in _bucketizations(data).items():
        errors[name] = _averaged(
            [
                _summary(count_errors(assigned, data.qi_codes, data.sa_codes, queries))
                for assigned in publications
            ]
        )
        right = [right_guesses(data, assigned) for assigned in publications]
        guesses[name] = np.mean(right, axis=0).tolist()
    return errors, guesses


def _bucketizations(data: Microdata) -> dict[str, list[CodeArray]]:
    """Publish buckets in the ways that hold against readers who know how they are made."""
    publications = {}
    for theta in THETAS:
        privacy = data.privacy(theta)
        best = optimal(data.counts, privacy, MAX_BUCKET_SIZE, pulse=Pulse(TIME_LIMIT))
        settings = {
            "two_size": two_size(data.counts, privacy, MAX_BUCKET_SIZE),
            "optimal": best.setting,
        }
        for name, setting in settings.items():
            publications[f"{name}, random, θ = {theta}"] = _at_random(data, privacy, setting)
        publications[f"multi_size, cells, θ = {theta}"] = [
            in_cells(data, privacy, SEARCHES["multi_size"], seed).bucket_of_record
            for seed in range(N_PUBLICATIONS)
        ]
    return publications


def _at_random(data: Microdata, privacy: FPrimePrivacy, setting: BucketSetting) -> list[CodeArray]:
    limits = privacy.occurrence_limits(setting.sizes)
    return [
        assign_randomly(
            data.sa_codes, data.counts, limits, setting, np.random.default_rng(seed)
        ).astype(np.int32)
        for seed in range(N_PUBLICATIONS)
    ]


def _noises(n_records: int) -> dict[str, Noise]:
    delta = delta_of(n_records)

    def laplace(epsilon: float, n_questions: int, generator: np.random.Generator) -> FloatArray:
        size = N_NOISES * N_QUERIES
        return geometric_noise(size, epsilon, n_questions, generator).astype(np.float64)

    def gaussian(epsilon: float, n_questions: int, generator: np.random.Generator) -> FloatArray:
        scale = gaussian_scale(zcdp_budget(epsilon, delta), n_questions)
        return np.rint(generator.normal(0, scale, N_NOISES * N_QUERIES))

    return {"Laplace, ε": laplace, "Gauss, (ε, δ)": gaussian}


def _noisy(noise: Noise, actual: IntArray, n_records: int, epsilon: float, n: int) -> Summary:
    """Answer each query as one of n questions; answers below 0 or above n_records are cut off."""
    drawn = noise(epsilon, n, np.random.default_rng(0)).reshape(N_NOISES, -1)
    return _averaged(
        [_summary(CountErrors(actual, np.clip(actual + row, 0, n_records))) for row in drawn]
    )


def _of_buckets(
    data: Microdata, buckets: dict[str, Summary], guesses: dict[str, list[float]]
) -> str:
    rows = [
        [name, _shown(found), *(f"{right:.3f}" for right in guesses[name])]
        for name, found in buckets.items()
    ]
    return (
        f"### Buckets\n\nThresholds min(1, θ f + 0.02), buckets of at most {MAX_BUCKET_SIZE}, for "
        f"any number of questions; averages of {N_PUBLICATIONS} publications with fixed seeds. "
        "*Right* is the share of all people whose true occupation is the one that a reader holds "
        "most probable: by the shares in the person's bucket alone, or by what naive Bayes learns "
        "from the publication (the deFinetti attack).\n\n"
        + table(["buckets", "error", "right by shares", "right by learning"], rows)
        + "\n"
        + _unbounded(data)
    )


def _unbounded(data: Microdata) -> str:
    """Say how many people the thresholds leave without a bound."""
    shares, highest = [], []
    for theta in THETAS:
        thresholds = np.array([float(f) for f in data.privacy(theta).thresholds])
        share = data.counts[thresholds == 1].sum() / data.counts.sum()
        shares.append(f"{share:.0%} at θ = {theta}")
        highest.append(f"{thresholds[thresholds < 1].max():.2f} at θ = {theta}")
    return (
        "People whose occupation has the threshold 1, so that nothing bounds what can be inferred "
        f"about it: {', '.join(shares)}. The highest of the other thresholds: "
        f"{', '.join(highest)}.\n"
    )


def _of_questions(noises: dict[str, Noise], actual: IntArray, n_records: int) -> str:
    rows = [
        [name, f"{epsilon:g}"]
        + [_shown(_noisy(noise, actual, n_records, epsilon, n)) for n in QUESTIONS]
        for name, noise in noises.items()
        for epsilon in EPSILONS
    ]
    return (
        "### A noisy answer to each question\n\nAll questions together share ε. *Laplace* is its "
        "form on whole numbers with basic composition; *Gauss* composes by zero-concentrated "
        "differential privacy. Answers below 0 or above the number of records, taken as known, are "
        f"cut off. {N_NOISES} draws of noise for each query, with a fixed seed.\n\n"
        + table(["noise", "ε", *(_questions(n) for n in QUESTIONS)], rows)
    )


def _break_even(
    noises: dict[str, Noise], actual: IntArray, n_records: int, buckets: dict[str, Summary]
) -> str:
    rows = []
    for name, (mean, *_) in buckets.items():
        for noise_name, noise in noises.items():
            cells = []
            for epsilon in EPSILONS:
                most = most_questions(
                    lambda n, noise=noise, epsilon=epsilon: (  # type: ignore[misc]
                        _noisy(noise, actual, n_records, epsilon, n)[0]
                    ),
                    mean,
                )
                cells.append(f"{most:,}")
            rows.append([name, noise_name, *cells])
    return (
        "Break-even: the largest number of questions for which the noisy answers' mean error is "
        "at most that of the buckets. With one question more, the buckets have the smaller "
        "mean error.\n\n" + table(["buckets", "noise", *map(_epsilon, EPSILONS)], rows)
    )


def most_questions(error_of: Callable[[int], float], limit: float) -> int:
    """Find the largest number of questions whose error is at most a limit, by bisection.

    The error must grow with the number. 0 if one question has a larger error;
    ``MOST_QUESTIONS`` if that many have not.
    """
    low, high = 0, MOST_QUESTIONS + 1
    while high - low > 1:
        # Doubling first: break-evens are usually far below the most.
        middle = min(2 * low + 1, (low + high) // 2)
        low, high = (middle, high) if error_of(middle) <= limit else (low, middle)
    return low


def _published_once(
    data: Microdata, queries: Sequence[CountQuery], actual: IntArray, buckets: dict[str, Summary]
) -> str:
    budgets = [zcdp_budget(epsilon, delta_of(data.sa_codes.size)) for epsilon in EPSILONS]
    synthetic: list[Summary | None] = [
        None if records is None else _summary(_errors(actual, exact_counts(*records, queries)))
        for records in _synthetic_tables(data, budgets)
    ]
    by_pairs, by_response, right = zip(
        *(_protecting_occupations(data, queries, actual, epsilon) for epsilon in EPSILONS),
        strict=True,
    )
    found: dict[str, Sequence[Summary | None]] = {
        "synthetic records": synthetic,
        "noisy pair counts": by_pairs,
        "randomized response": by_response,
    }
    protects = ("the whole record", "the occupation", "the occupation")
    even = [
        [bucket, *(_crossing(summaries, mean) for summaries in found.values())]
        for bucket, (mean, *_) in buckets.items()
    ]
    n_values = data.counts.size
    base_rate = data.counts.max() / data.counts.sum()
    return (
        "### Published once, for any number of questions\n\n"
        f"*Synthetic records*, (ε, δ), are drawn by AIM of OpenDP ({PACKAGES[0]}) from a graphical "
        "model of noisy marginals: one run for each ε, without a fixed seed, which OpenDP does not "
        "offer; it starts with 16 rounds, and models have at most 8 MB. "
        "*Noisy pair counts*, (ε, δ), and *randomized response*, ε, publish everybody's "
        "quasi-identifiers as they are, as buckets do, and protect the occupation only. The former "
        "adds Gaussian noise to the counts of each quasi-identifier's values with each occupation, "
        "and fits the probabilities of everybody's occupation to them; the latter replaces "
        f"occupations at random. Averages of {N_PUBLICATIONS} runs with fixed seeds.\n\n"
        + table(
            ["mechanism", "what is protected", *map(_epsilon, EPSILONS)],
            [
                [name, what, *map(_shown, summaries)]
                for (name, summaries), what in zip(found.items(), protects, strict=True)
            ],
        )
        + "\nBreak-even: the ε at which the mean error is that of the buckets, interpolated "
        "between the measured ones (on logarithmic scales).\n\n"
        + table(["buckets", *found], even)
        + "\nHow many occupations a reader gets right: those that the fit to noisy pair counts "
        "holds most probable, among all people, and those that randomized response publishes (the "
        f"most frequent occupation has a share of {base_rate:.3f}).\n\n"
        + table(
            ["right", *map(_epsilon, EPSILONS)],
            [
                ["most probable by noisy pair counts", *(f"{share:.3f}" for share in right)],
                [
                    "published by randomized response",
                    *(f"{truth_probability(epsilon, n_values):.3f}" for epsilon in EPSILONS),
                ],
            ],
        )
    )


def _protecting_occupations(
    data: Microdata, queries: Sequence[CountQuery], actual: IntArray, epsilon: float
) -> tuple[Summary, Summary, float]:
    """Errors of noisy pair counts and of randomized response; right guesses by the former."""
    n_values = data.counts.size
    rho = zcdp_budget(epsilon, delta_of(data.sa_codes.size))
    scale = gaussian_scale(rho, 2 * data.qi_codes.shape[1])
    pairs, responses, right = [], [], []
    for seed in range(N_PUBLICATIONS):
        generator = np.random.default_rng(seed)
        noisy = noisy_pairs(data.qi_codes, data.sa_codes, n_values, scale, generator)
        shares = fitted_shares(data.qi_codes, noisy, scale)
        pairs.append(_summary(_errors(actual, _expected_counts(data, queries, shares))))
        right.append(float((shares.argmax(axis=1) == data.sa_codes).mean()))
        answers = _from_responses(data, queries, epsilon, generator)
        responses.append(_summary(_errors(actual, answers)))
    return _averaged(pairs), _averaged(responses), float(np.mean(right))


def _from_responses(
    data: Microdata, queries: Sequence[CountQuery], epsilon: float, generator: np.random.Generator
) -> FloatArray:
    n_values = data.counts.size
    reported = randomized_response(data.sa_codes, n_values, epsilon, generator)
    any_value = [replace(query, sensitive=np.ones(n_values, dtype=np.bool_)) for query in queries]
    n_records = exact_counts(data.qi_codes, data.sa_codes, any_value)
    estimated = counts_before_response(
        exact_counts(data.qi_codes, reported, queries),
        n_records,
        np.array([query.sensitive.sum() for query in queries]),
        n_values,
        epsilon,
    )
    return np.clip(estimated, 0, n_records)


def _expected_counts(
    data: Microdata, queries: Sequence[CountQuery], shares: FloatArray
) -> FloatArray:
    """Add up the probabilities of a query's sensitive values over its records."""
    expected = []
    for start in range(0, len(queries), _QUERIES_AT_ONCE):
        some = queries[start : start + _QUERIES_AT_ONCE]
        masks = np.ones((len(some), data.sa_codes.size), dtype=np.bool_)
        for i, query in enumerate(some):
            for attribute, codes in query.quasi_identifiers.items():
                masks[i] &= codes[data.qi_codes[:, attribute]]
        sensitive = np.array([query.sensitive for query in some])
        expected.append(((masks.astype(np.float64) @ shares) * sensitive).sum(axis=1))
    return np.concatenate(expected)


def _synthetic_tables(
    data: Microdata, budgets: Sequence[float]
) -> list[tuple[CodeArray, CodeArray] | None]:
    """Let OpenDP draw a table within each budget; None if it cannot be installed, or fails."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = folder / "env" / "bin" / "python"
        commands = (
            [sys.executable, "-m", "venv", folder / "env"],
            [python, "-m", "pip", "install", "-q", *PACKAGES],
        )
        if any(subprocess.run(c, capture_output=True, check=False).returncode for c in commands):
            return [None] * len(budgets)
        source = folder / "codes.npy"
        np.save(source, np.column_stack([data.qi_codes, data.sa_codes]))
        script = Path(__file__).with_name("differential_privacy_peer.py")

        def drawn(rho: float) -> tuple[CodeArray, CodeArray] | None:
            target = folder / f"{rho}.npy"
            done = subprocess.run(
                [str(python), script, str(rho), source, target], capture_output=True, check=False
            )
            if done.returncode:
                print(done.stderr.decode()[-2000:], file=sys.stderr)
                return None
            codes = np.load(target)
            return np.ascontiguousarray(codes[:, :-1]), np.ascontiguousarray(codes[:, -1])

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(drawn, budgets))


def _crossing(summaries: Sequence[Summary | None], limit: float) -> str:
    """Find the first epsilon at which falling mean errors reach a limit."""
    measured = [
        (epsilon, summary[0])
        for epsilon, summary in zip(EPSILONS, summaries, strict=True)
        if summary is not None
    ]
    if not measured:
        return "not measured"
    if measured[0][1] <= limit:
        return f"below {measured[0][0]:g}"
    for (left, above), (right, below) in pairwise(measured):
        if below <= limit:
            way = np.log(above / limit) / np.log(above / below)
            return f"{left * (right / left) ** way:.2g}"
    return f"none (largest ε measured: {measured[-1][0]:g})"


def _errors(actual: IntArray, estimated: IntArray | FloatArray) -> CountErrors:
    return CountErrors(actual, estimated.astype(np.float64))


def _summary(errors: CountErrors) -> Summary:
    defined = errors.relative[errors.actual > 0]
    return errors.mean, errors.median, float(np.quantile(defined, 0.95))


def _averaged(summaries: Sequence[Summary]) -> Summary:
    mean, median, high = np.mean(summaries, axis=0).tolist()
    return mean, median, high


def _shown(summary: Summary | None) -> str:
    if summary is None:
        return "not measured"
    return " / ".join(map(_rounded, summary))


def _rounded(error: float) -> str:
    if error >= 100:
        return f"{error:,.0f}"
    return f"{error:.3f}" if error >= 0.01 else f"{error:.4f}"


def _epsilon(epsilon: float) -> str:
    return f"ε = {epsilon:g}"


def _questions(n: int) -> str:
    return f"{n:,} question{'s' if n > 1 else ''}"


if __name__ == "__main__":
    print(main())
