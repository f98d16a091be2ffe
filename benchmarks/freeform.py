"""Freeform generalization: GCP, time and memory; [FF] Figures 6 to 10 on other tables.

Data are looked for in ``data/`` of the folder named by KANON_SHARED, or of ``../shared``.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.harness import table
from kanon_db.algorithms.freeform.improvement import improve_matches, ring
from kanon_db.algorithms.freeform.k_concealment import k_concealment
from kanon_db.algorithms.freeform.matches import (
    PARTITION_SIZE,
    Method,
    cells,
    draw_assignments,
    partitioned,
)
from kanon_db.algorithms.freeform.matching_heuristics import (
    greedy,
    hungarian,
    reciprocal,
    sort_greedy,
)
from kanon_db.algorithms.freeform.optimal_graph import min_cost_flow, optimal
from kanon_db.algorithms.generalization.greedy_classes import greedy_search
from kanon_db.algorithms.generalization.postprocessing import refine
from kanon_db.algorithms.ground.arrays import CodeArray
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse
from kanon_db.algorithms.recoding.loss import Ncp
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
from kanon_db.metrics.information_loss import measure_classes, measure_freeform

DATA = Path(os.environ.get("KANON_SHARED", Path(__file__).resolve().parents[2] / "shared"), "data")
IPUMS = ("ipums1980.csv.gz", "age sex race hispanic marstat educrec classwk yrsusa", "nccccncn")
ADULT = (
    "adult_full.csv.gz",
    "age workclass education marital-status occupation race sex native-country",
    "nccccccc",
)
FARS = ("fars_occupants.csv.gz", "age sex state modelyr year airbag inimpact Restraint", "nccnnccc")
MILITARY = ("military.csv.gz", "grade branch gender race hisp rank", "cccccn")
SOURCES = {"ipums1980": IPUMS, "Adult": ADULT}
METHODS: dict[str, Method] = {
    "ring": ring,
    "greedy": greedy,
    "sort_greedy": sort_greedy,
    "hungarian": hungarian,
}
PAPER: dict[str, Method] = {  # without improvement
    "greedy": partial(greedy, improve=False),
    "sort_greedy": partial(sort_greedy, improve=False),
    "hungarian": partial(hungarian, improve=False),
}
WHOLE = 2**30
MAX_MATCHES_OF_HUNGARIAN = 100_000  # records times k; above, in partitions
LEAST_SECONDS = 10.0


def main() -> str:
    """Return the results as Markdown."""
    return "\n".join(
        [_homogeneous(), _partitions(), _small(), _by_k(), _by_dimension(), _by_size(), _at_scale()]
    )


def microdata(source: tuple[str, str, str], n_records: int, d: int = 8) -> Microdata:
    """Read a random sample; bounds and domains are those of the whole table."""
    name, columns, kinds = source
    frame = pd.read_csv(DATA / name, keep_default_na=False)
    sample = frame.index.to_numpy()
    if n_records < len(frame):
        sample = np.random.default_rng(2).choice(len(frame), n_records, replace=False)
    codes, attributes = [], []
    for column, kind in list(zip(columns.split(), kinds, strict=True))[:d]:
        values, of_record = np.unique(frame[column].to_numpy(), return_inverse=True)
        codes.append(of_record[sample])
        if kind == "c":
            attributes.append(Attribute(values.size))
        else:
            numbers = values.astype(np.float64)
            attributes.append(Attribute(values.size, numbers, numbers[0], numbers[-1]))
    return Microdata(np.column_stack(codes), tuple(attributes))


def _gcp(data: Microdata, matches: CodeArray) -> float:
    return measure_freeform(data, cells(data, matches)).gcp


def _run(data: Microdata, k: int, method: Method, size: int = WHOLE) -> tuple[float, float]:
    """GCP and seconds of one run."""
    started = time.perf_counter()
    found = partitioned(data, k, method, size).matches
    return _gcp(data, found), time.perf_counter() - started


def _warm() -> None:
    """Compile before anything is timed."""
    data = microdata(IPUMS, 100)
    for method in (*METHODS.values(), reciprocal, min_cost_flow):
        partitioned(data, 3, method, WHOLE)
    k_concealment(data, 3)
    _refined(data, 3, 0.1)


def _refined(data: Microdata, k: int, seconds: float) -> float:
    """GCP of the best homogeneous method: Greedy Search, refined for so many seconds."""
    classes = greedy_search(data, k).class_of_record
    refined = refine(
        data, classes, k, random=np.random.default_rng(1), effort=10**9,
        pulse=Pulse(seconds),
    ).class_of_record  # fmt: skip
    return measure_classes(data, refined).gcp


def _homogeneous() -> str:
    _warm()
    rows = []
    for name, source in SOURCES.items():
        for n_records in (1000, 10_000):
            data = microdata(source, n_records)
            ncp = Ncp.of(data)
            for k in (5, 10, 50):
                plain = measure_classes(data, greedy_search(data, k).class_of_record).gcp
                row: list[object] = []
                longest = LEAST_SECONDS
                for method in ("sort_greedy", "hungarian"):
                    if method == "hungarian" and n_records * k > MAX_MATCHES_OF_HUNGARIAN:
                        as_printed, _ = _run(data, k, PAPER[method], PARTITION_SIZE)
                        gcp, taken = _run(data, k, METHODS[method], PARTITION_SIZE)
                    else:
                        started = time.perf_counter()
                        printed = PAPER[method](ncp, k, pulse=UNLIMITED)
                        found = improve_matches(ncp, printed)
                        taken = time.perf_counter() - started
                        as_printed, gcp = _gcp(data, printed), _gcp(data, found)
                    row += [f"{as_printed:.4f}", gcp, f"{taken:.0f} s"]
                    longest = max(longest, taken)
                rival = _refined(data, k, longest)
                row = [
                    f"{cell:.4f} ({100 * (cell / rival - 1):+.1f} %)"
                    if isinstance(cell, float)
                    else cell
                    for cell in row
                ]
                rows.append([name, f"{n_records:,}", k, f"{plain:.4f}", f"{rival:.4f}", *row])
                print(rows[-1], file=sys.stderr, flush=True)
    return (
        "The GCP compared with that of the best homogeneous method of this project, which is "
        "Greedy Search and then `refine` for as long as the slower of the two freeform methods "
        f"took, but at least {LEAST_SECONDS:.0f} s. The difference from it is in parentheses. One "
        "run in one process, without partitions except for hungarian at 10,000 records and k = 50, "
        f"where partitions had {PARTITION_SIZE:,} records. Figure numbers are those of Doka et al. "
        "(2015).\n\n"
        + table(
            [
                "table", "records", "k", "greedy_search", "... refined",
                "sort_greedy as printed", "sort_greedy", "time",
                "hungarian as printed", "hungarian", "time",
            ],
            rows,
        )
        + f"\nPeak memory so far: {_peak_memory():.0f} MB.\n"
    )  # fmt: skip


def _partitions() -> str:
    """[FF] Figure 6, and what a whole table of 10,000 records takes."""
    rows = []
    methods = {f"{name} as printed": core for name, core in PAPER.items()}
    methods["sort_greedy"] = sort_greedy
    for name, source in SOURCES.items():
        data = microdata(source, 10_000)
        for size in (100, 250, 500, 1000, 2000, 10_000):
            row: list[object] = [name, f"{size:,}"]
            for core in methods.values():
                gcp, taken = _run(data, 10, core, size)
                row.append(f"{gcp:.4f} ({taken:.1f} s)")
            rows.append(row)
            print(rows[-1], file=sys.stderr, flush=True)
    return (
        "Partitions (Figure 6): 10,000 records, k = 10; the GCP, and the time of all partitions "
        "one after the other.\n\n" + table(["table", "size", *methods], rows)
    )


def _small() -> str:
    """[FF] Figure 7: the share of the way from k-concealment to the optimum."""
    n_samples = 20
    methods = METHODS | {"min_cost_flow": min_cost_flow}
    rows = []
    for table_name, source in SOURCES.items():
        whole = microdata(source, WHOLE)
        random = np.random.default_rng(1)
        for k in (2, 3, 4, 5):
            gcps: dict[str, list[float]] = {name: [] for name in ("k-c", "optimal", *methods)}
            for _ in range(n_samples):
                sample = random.choice(whole.n_records, 14, replace=False)
                data = Microdata(whole.codes[sample], whole.attributes)
                gcps["k-c"].append(_gcp(data, k_concealment(data, k).matches))
                gcps["optimal"].append(_gcp(data, optimal(data, k).matches))
                for name, core in methods.items():
                    gcps[name].append(_run(data, k, core)[0])
            means = {name: float(np.mean(values)) for name, values in gcps.items()}
            way = means["k-c"] - means["optimal"]
            shares = [f"{(means['k-c'] - means[name]) / way:.2f}" for name in methods]
            rows.append([table_name, k, f"{means['k-c']:.4f}", f"{means['optimal']:.4f}", *shares])
    return (
        f"Near the optimum (Figure 7): means over {n_samples} samples of 14 records; the GCP of "
        "k-concealment and of the optimum, and which part of the way from the former to the latter "
        "each method goes.\n\n" + table(["table", "k", "k-concealment", "optimal", *methods], rows)
    )


def _by_k() -> str:
    methods = METHODS | {"symmetric": reciprocal, "min_cost_flow": min_cost_flow}
    rows = []
    for name, source in SOURCES.items():
        data = microdata(source, 1000)
        for k in (10, 30, 50, 100):
            row: list[object] = [name, k, f"{_gcp(data, k_concealment(data, k).matches):.4f}"]
            for core in methods.values():
                if core is min_cost_flow and k > 10:  # minutes, and no better
                    row.append("")
                    continue
                gcp, taken = _run(data, k, core)
                row.append(f"{gcp:.4f} ({taken:.1f} s)")
            rows.append(row)
            print(rows[-1], file=sys.stderr, flush=True)
    return "k (Figure 8): 1,000 records.\n\n" + table(
        ["table", "k", "k-concealment", *methods], rows
    )


def _by_dimension() -> str:
    rows = []
    for name, source in SOURCES.items():
        for d in (2, 4, 6, 8):
            data = microdata(source, 2000, d)
            gcps = [_run(data, 30, core)[0] for core in METHODS.values()]
            rows.append([name, d, *(f"{gcp:.4f}" for gcp in gcps)])
    return "Dimensions (Figure 9): 2,000 records, k = 30.\n\n" + table(
        ["table", "attributes", *METHODS], rows
    )


def _by_size() -> str:
    rows = []
    for name, source in SOURCES.items():
        for n_records in (1000, 4000, 16_000):
            data = microdata(source, n_records)
            row: list[object] = [name, f"{n_records:,}"]
            for core in METHODS.values():
                gcp, taken = _run(data, 15, core, 2000)
                row.append(f"{gcp:.4f} ({taken:.0f} s)")
            rows.append(row)
    return "Size (Figure 10): k = 15, partitions of 2,000.\n\n" + table(
        ["table", "records", *METHODS], rows
    )


def _at_scale() -> str:
    rows = []
    cases: list[tuple[str, tuple[str, str, str], int, str]] = [
        ("fars_occupants", FARS, 100_000, "sort_greedy"),
        ("military", MILITARY, 1_000_000, "sort_greedy"),
    ]
    for name, source, n_records, method in cases:
        data = microdata(source, n_records)
        started = time.perf_counter()
        found = partitioned(data, 10, METHODS[method], workers=2)
        taken = time.perf_counter() - started
        drawing = _seconds(lambda found=found: draw_assignments(found, np.random.default_rng()))  # type: ignore[misc]
        rows.append(
            [name, f"{n_records:,}", method, f"{_gcp(data, found):.4f}", f"{taken:.0f} s",
             f"{drawing:.1f} s", f"{_peak_memory():.0f} MB"]
        )  # fmt: skip
    return "Large tables: k = 10, partitions of 2,000, two threads.\n\n" + table(
        ["table", "records", "method", "GCP", "time", "drawing the assignments", "peak memory"],
        rows,
    )


def _seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _peak_memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    print(main())
