"""How the time and memory of publishing grow: rows, columns, distinct values, k, patterns.

``python -m benchmarks --write curves`` also draws ``docs/figures/curves.svg``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import numpy as np
import psycopg

from benchmarks.harness import PrivateMemory, private_server, processor_seconds, table

FIGURES: Final = Path(__file__).parents[1] / "docs" / "figures"
ROWS: Final = "rows"
COLUMNS: Final = "columns"
VALUES: Final = "distinct values of a quasi-identifier"
K: Final = "k"
PATTERNS: Final = "patterns"
USUAL: Final[Mapping[str, int]] = {ROWS: 100_000, COLUMNS: 8, VALUES: 20, K: 10, PATTERNS: 128}
CURVES: Final[Mapping[str, Sequence[int]]] = {
    ROWS: (30_000, 100_000, 300_000, 1_000_000),
    COLUMNS: (2, 4, 8, 16),
    VALUES: (2, 20, 200, 2_000, 20_000),
    K: (2, 5, 10, 20, 50, 100),
    PATTERNS: (2, 8, 32, 128),
}
_BUCKETS: Final = "publish_buckets('public.{source}', '{source}_p', privacy => '{{\"l\": 5}}'"
_ROWS: Final = "('public.{source}', '{source}_p', k => {k}"


@dataclass(frozen=True)
class Kind:
    """A publication whose curves are drawn, and what else than the table it depends on."""

    call: str
    others: tuple[str, ...] = ()


KINDS: Final[Mapping[str, Kind]] = {
    "buckets, random": Kind(f"{_BUCKETS}, assignment => 'random')"),
    "buckets, cells": Kind(f"{_BUCKETS}, assignment => 'cells')"),
    "buckets, local": Kind(
        f"{_BUCKETS}, assignment => 'local',"
        ' accept => \'{{"uninformed_reader": "a benchmark"}}\')'
    ),
    "generalized, Mondrian": Kind(
        f"publish_generalized{_ROWS}, method => 'mondrian', refine => false)", (K,)
    ),
    "generalized, greedy_search": Kind(
        f"publish_generalized{_ROWS}, method => 'greedy_search', refine => false,"
        " options => '{{\"block_size\": 5000}}')",
        (K,),
    ),
    "suppressed": Kind(
        f"publish_suppressed{_ROWS}, patterns => '{{{{{{patterns}}}}}}')", (K, PATTERNS)
    ),
    "freeform": Kind(f"publish_freeform{_ROWS}, options => '{{{{\"refine\": false}}}}')", (K,)),
}


@dataclass(frozen=True)
class Point:
    """What one publication took.

    Attributes
    ----------
    seconds : float
    megabytes : float
        Private memory of the backend, above what it had before.
    """

    seconds: float
    megabytes: float


def main() -> str:
    """Return the results as Markdown, and draw the figure."""
    found: dict[tuple[str, str], dict[int, Point]] = {}
    with private_server() as dsn:
        for curve, numbers in CURVES.items():
            for number in numbers:
                at = {**USUAL, curve: number}
                _make(dsn, at)
                for name, kind in KINDS.items():
                    if curve in (ROWS, COLUMNS, VALUES, *kind.others):
                        found.setdefault((curve, name), {})[number] = _publish(dsn, kind, at)
    _draw(found)
    rows = [
        [name, curve, *(f"{point.seconds:.2f} s, {point.megabytes:.0f} MB, at {number:,}"
         for number, point in (min(points.items()), max(points.items()))),
         *_slopes(points)]
        for (curve, name), points in found.items()
    ]  # fmt: skip
    return (
        "Seconds are those that the backend and its threads compute, which other work on the"
        " machine changes by a tenth or two; one run each, after one of a small table. Unless it is"
        f" what varies, there are {USUAL[ROWS]:,} rows of {USUAL[COLUMNS]} whole numbers, of which"
        f" the quasi-identifiers have {USUAL[VALUES]} values each, k is {USUAL[K]}, and any cells"
        f" may be suppressed ({USUAL[PATTERNS]} patterns, of more than eight columns those that"
        " suppress least). Nothing is refined. Memory is that of the backend beside what it had"
        " before, without shared buffers. A slope of 1 means twice as much for twice as many;"
        " slopes are those of a line through all points, in logarithms.\n\n"
        + table(["publication", "of", "least", "most", "slope of time", "slope of memory"], rows)
        + "\n![Time and memory of publications](../figures/curves.svg)\n"
    )


def _make(dsn: str, at: Mapping[str, int]) -> None:
    """Make and register the table of a point."""
    names = [f"a{i}" for i in range(at[COLUMNS] - 1)]
    columns = ", ".join(f"floor(random() * {at[VALUES]})::int AS {name}" for name in names)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SELECT setseed(0.5)")
        connection.execute("DROP TABLE IF EXISTS people, few")
        connection.execute(
            f"CREATE TABLE people AS SELECT {columns}, floor(random() * 12)::int AS ill"
            f" FROM generate_series(1, {at[ROWS]})"
        )
        connection.execute("CREATE TABLE few AS SELECT * FROM people LIMIT 1000")
        connection.execute("VACUUM ANALYZE people, few")
        for source in ("people", "few"):
            connection.execute(
                f"SELECT kanon.register_source('public.{source}', '{{{','.join(names)}}}', 'ill')"
            )


def _publish(dsn: str, kind: Kind, at: Mapping[str, int]) -> Point:
    call = "SELECT kanon." + kind.call
    asked = {"k": at[K], "patterns": ",".join(_patterns(at[COLUMNS] - 1, at[PATTERNS]))}
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(call.format(source="few", **asked))  # imports
        connection.execute("SELECT kanon.drop_publication('few_p')")
        before = processor_seconds(connection.info.backend_pid)
        with PrivateMemory(connection.info.backend_pid) as memory:
            connection.execute(call.format(source="people", **asked))
        taken = processor_seconds(connection.info.backend_pid) - before
        connection.execute("SELECT kanon.drop_publication('people_p')")
        return Point(taken, memory.needed)


def _patterns(m: int, most: int) -> list[str]:
    """List patterns of m columns: those that suppress least, and the one that suppresses all."""
    chosen = (set(c) for n in range(m) for c in combinations(range(m), n))
    found = ["".join("*" if i in c else "." for i in range(m)) for c in chosen]
    return [*found[: most - 1], "*" * m]


def _slopes(points: Mapping[int, Point]) -> list[str]:
    x = np.log(list(points))
    both = [
        [point.seconds for point in points.values()],
        [max(point.megabytes, 1) for point in points.values()],
    ]
    return [f"{np.polyfit(x, np.log(y), 1)[0]:.2f}" for y in both]


def _draw(found: Mapping[tuple[str, str], Mapping[int, Point]]) -> None:
    plt = _pyplot()
    figure, axes = plt.subplots(2, len(CURVES), figsize=(16, 6), layout="constrained")
    colors = dict(zip(KINDS, plt.rcParams["axes.prop_cycle"].by_key()["color"], strict=False))
    for column, curve in enumerate(CURVES):
        for row, (label, what) in enumerate((("seconds", "seconds"), ("MB", "megabytes"))):
            axis = axes[row, column]
            for name in KINDS:
                points = found.get((curve, name), {})
                values = [getattr(point, what) for point in points.values()]
                axis.plot(list(points), values, marker="o", label=name, color=colors[name])
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.set_xlabel(curve)
            axis.grid(alpha=0.3)
            if column == 0:
                axis.set_ylabel(label)
    axes[0, 0].legend(frameon=False, fontsize="small")
    figure.savefig(FIGURES / "curves.svg", metadata={"Date": None})
    plt.close(figure)


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "kanon_db"  # the same results give the same file
    from matplotlib import pyplot as plt

    return plt


if __name__ == "__main__":
    print(main())
