"""[GB] Figures 3 to 7: privacy, bucket sizes, errors and runtime of every method.

Tables in ``data/`` of the folder named by KANON_SHARED, or of ``../shared``; the paper's CENSUS,
which nobody may pass on, is drawn at random in its shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.census_like import EDU_SHARES, OCC_SHARES, counts_of, split
from benchmarks.harness import table
from benchmarks.local_assignment import TABLES, Microdata, read
from kanon_db.algorithms.bucketization.bucket_assignment import assign_randomly
from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.bucketization.local_assignment import assign_locally
from kanon_db.algorithms.bucketization.multi_size import multi_size, optimal
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy, PrivacySpecification
from kanon_db.algorithms.bucketization.two_size import anatomy, two_size
from kanon_db.algorithms.ground.arrays import CodeArray, FloatArray, IntArray
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.errors import KanonError
from kanon_db.metrics.count_queries import count_errors

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
THETAS = (2, 4, 8, 16, 32)
METHODS = ("anatomy", "two_size", "multi_size", "optimal", "local")
MAX_BUCKET_SIZE = 50
TIME_LIMIT = 20
N_QUERIES = 1000
_CENSUS_RECORDS = 300_000
_CENSUS_VALUES = (76, 2, 14, 6, 9, 50, 20)  # of its quasi-identifiers

Codes = CodeArray
Answers = Mapping[str, Sequence[float]]


def main() -> str:
    """Return the results as Markdown, and draw the figures."""
    FIGURES.mkdir(exist_ok=True)
    parts = []
    for name, data in _tables():
        parts.append(_by_theta(name, data))
    parts += [_by_records(), _by_values()]
    return "\n".join(parts)


def _tables() -> list[tuple[str, Microdata]]:
    return [
        *((name, read(name)) for name in TABLES),
        ("CENSUS-like, OCC", census(OCC_SHARES)),
        ("CENSUS-like, EDU", census(EDU_SHARES)),
    ]


def census(shares: FloatArray, n_records: int = _CENSUS_RECORDS) -> Microdata:
    """Draw a table whose attributes all depend a little on one hidden number of each record."""
    generator = np.random.default_rng(7)
    hidden = generator.standard_normal(n_records)

    def ranks() -> IntArray:
        return np.argsort(np.argsort(0.5 * hidden + generator.standard_normal(n_records)))

    columns = [(ranks() * n // n_records).astype(np.int32) for n in _CENSUS_VALUES]
    counts = counts_of(shares, n_records)
    values = np.repeat(np.arange(counts.size, dtype=np.int32), counts)
    # The order of the values has nothing to do with their frequency.
    sa_codes = generator.permutation(counts.size).astype(np.int32)[values[ranks()]]
    return Microdata(np.column_stack(columns), sa_codes, np.bincount(sa_codes))


def _assigned(method: str, data: Microdata, privacy: FPrimePrivacy) -> tuple[float, Codes]:
    """MSBS, and the bucket of each record."""
    random = np.random.default_rng(0)
    if method == "local":
        found = assign_locally(data.qi_codes, data.sa_codes, privacy, MAX_BUCKET_SIZE, random)
        return found.setting.msbs, found.bucket_of_record.astype(np.int32)
    if method == "anatomy":
        setting = anatomy(data.counts, privacy.corresponding_l())
        limits = np.ones((data.counts.size, setting.sizes.size), dtype=np.int64)
    else:
        setting = _SEARCHES[method](data.counts, privacy)
        limits = privacy.occurrence_limits(setting.sizes)
    buckets = assign_randomly(data.sa_codes, data.counts, limits, setting, random)
    return setting.msbs, buckets


_SEARCHES: dict[str, Callable[[IntArray, FPrimePrivacy], BucketSetting]] = {
    "two_size": lambda counts, privacy: two_size(counts, privacy, MAX_BUCKET_SIZE),
    "multi_size": lambda counts, privacy: multi_size(counts, privacy, MAX_BUCKET_SIZE),
    "optimal": lambda counts, privacy: (
        optimal(counts, privacy, MAX_BUCKET_SIZE, pulse=Pulse(TIME_LIMIT)).setting
    ),
}


def _by_theta(name: str, data: Microdata) -> str:
    """Figures 3 to 5: the corresponding l, MSBS and relative errors against theta."""
    queries = data.queries()[:N_QUERIES]
    rows = []
    msbs: dict[str, list[float]] = {method: [] for method in METHODS}
    errors: dict[str, list[float]] = {method: [] for method in METHODS}
    for theta in THETAS:
        privacy = data.privacy(theta)
        cells = []
        for method in METHODS:
            try:
                size, buckets = _assigned(method, data, privacy)
            except KanonError:
                msbs[method].append(np.nan)
                errors[method].append(np.nan)
                cells += ["none", ""]
                continue
            found = count_errors(buckets, data.qi_codes, data.sa_codes, queries)
            msbs[method].append(size)
            errors[method].append(found.mean)
            cells += [f"{size:.2f}", f"{found.mean:.4f}"]
        rows.append([theta, privacy.corresponding_l(), *cells])
    _draw(name, {"MSBS": msbs, "mean relative error": errors})
    heading = ["θ", "l"] + [text for method in METHODS for text in (f"{method}: MSBS", "error")]
    return (
        f"### {name}: {data.sa_codes.size:,} records, {data.counts.size} sensitive values\n\n"
        f"![{name}](../figures/{_file(name)})\n\n" + table(heading, rows)
    )


def _file(name: str) -> str:
    return f"bucketization-{name.lower().replace(', ', '-').replace(' ', '-')}.svg"


def _draw(name: str, panels: Mapping[str, Answers]) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = name  # the same figure gives the same file
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(panels), figsize=(9, 3.2), layout="constrained")
    for axis, (title, lines) in zip(axes, panels.items(), strict=True):
        for method, values in lines.items():
            axis.plot(THETAS, values, marker="o", markersize=3, label=method)
        axis.set(xscale="log", yscale="log", xlabel="θ", title=title, xticks=THETAS)
        axis.set_xticklabels(map(str, THETAS))
    axes[0].legend(fontsize="small")
    figure.suptitle(name)
    figure.savefig(FIGURES / _file(name), metadata={"Date": None})
    plt.close(figure)


def _milliseconds(search: Callable[[], object]) -> str:
    started = perf_counter()
    try:
        search()
    except KanonError:
        return "none"
    return f"{1000 * (perf_counter() - started):.1f}"


def _timed(counts: IntArray) -> list[str]:
    """Milliseconds of each search, and of the pruning that the paper compares."""
    spec = PrivacySpecification.parse('{"theta": 8, "base": 0.02}')
    privacy = spec.thresholds([str(i) for i in range(counts.size)], counts)
    return [
        _milliseconds(lambda: anatomy(counts, privacy.corresponding_l())),
        *(
            _milliseconds(lambda pruning=pruning: two_size(  # type: ignore[misc]
                counts, privacy, MAX_BUCKET_SIZE, pruning=pruning
            ))
            for pruning in ("full", "loss", "none")
        ),
        *(
            _milliseconds(lambda method=method: _SEARCHES[method](counts, privacy))  # type: ignore[misc]
            for method in ("multi_size", "optimal")
        ),
    ]  # fmt: skip


_SEARCH_HEADING = [
    "anatomy", "two_size, full pruning", "loss pruning", "no pruning", "multi_size", "optimal",
]  # fmt: skip


def _by_records() -> str:
    """Figure 6: runtime against the number of records."""
    rows = [
        [name, f"{n:,}", *_timed(counts_of(shares, n))]
        for name, shares in (("OCC-like", OCC_SHARES), ("EDU-like", EDU_SHARES))
        for n in (100_000, 200_000, 300_000, 400_000, 500_000)
    ]
    return "### Search time in ms against the number of records, θ = 8\n\n" + table(
        ["table", "records", *_SEARCH_HEADING], rows
    )


def _by_values() -> str:
    """Figure 7: runtime against the number of sensitive values."""
    generator = np.random.default_rng(1)
    counts = counts_of(OCC_SHARES, 500_000)
    rows = []
    for factor in (1, 2, 4, 8, 16, 32, 64):
        finer = split(counts, factor, generator)
        rows.append([f"{finer.size:,}", *_timed(finer)])
    return (
        "### Search time in ms against the number of sensitive values, 500,000 records, θ = 8\n\n"
        + table(["values", *_SEARCH_HEADING], rows)
    )
