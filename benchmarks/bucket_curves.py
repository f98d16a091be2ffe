"""How the time and memory of publishing buckets grow: rows, columns, distinct values.

``python -m benchmarks --write bucket_curves`` also draws ``docs/figures/bucket_curves.svg``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import psycopg

from benchmarks.harness import PrivateMemory, private_server, table

FIGURES: Final = Path(__file__).parents[1] / "docs" / "figures"
ASSIGNMENTS: Final = ("random", "cells")
PRIVACY: Final = '{"l": 5}'
N_ROWS: Final = 300_000
N_COLUMNS: Final = 8
N_VALUES: Final = 20
CURVES: Final[Mapping[str, Sequence[int]]] = {
    "rows": (30_000, 100_000, 300_000, 1_000_000),
    "columns": (2, 4, 8, 16, 32),
    "distinct values of a quasi-identifier": (2, 20, 200, 2_000, 20_000, 200_000),
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
                _make(dsn, curve, number)
                for assignment in ASSIGNMENTS:
                    found.setdefault((curve, assignment), {})[number] = _publish(dsn, assignment)
    _draw(found)
    rows = [
        [assignment, curve, *(f"{point.seconds:.2f} s, {point.megabytes:.0f} MB, at {number:,}"
         for number, point in (min(points.items()), max(points.items()))),
         *_slopes(points)]
        for (curve, assignment), points in found.items()
    ]  # fmt: skip
    return (
        "Seconds are those that the backend computes, which other work on the machine changes"
        " by a tenth or two; one run each, after one of a small table. Unless it is what"
        f" varies, there are {N_ROWS:,} rows of {N_COLUMNS} whole numbers, of which the"
        f" quasi-identifiers have {N_VALUES} values each. Memory is that of the backend beside"
        " what it had before, without shared buffers. A slope of 1 means twice as much for twice"
        " as many; slopes are those of a line through all points, in logarithms.\n\n"
        + table(["assignment", "of", "least", "most", "slope of time", "slope of memory"], rows)
        + "\n![Time and memory of buckets](figures/bucket_curves.svg)\n"
    )


def _make(dsn: str, curve: str, number: int) -> None:
    """Make and register the table of a point."""
    n_rows, n_columns, n_values = (
        number if curve == name else usual
        for name, usual in zip(CURVES, (N_ROWS, N_COLUMNS, N_VALUES), strict=True)
    )
    names = [f"a{i}" for i in range(n_columns - 1)]
    columns = ", ".join(f"floor(random() * {n_values})::int AS {name}" for name in names)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SELECT setseed(0.5)")
        connection.execute("DROP TABLE IF EXISTS people")
        connection.execute(
            f"CREATE TABLE people AS SELECT {columns}, floor(random() * 12)::int AS ill"
            f" FROM generate_series(1, {n_rows})"
        )
        connection.execute("VACUUM ANALYZE people")
        connection.execute(
            f"SELECT kanon.register_source('public.people', '{{{','.join(names)}}}', 'ill')"
        )
        connection.execute("DROP TABLE IF EXISTS few")
        connection.execute("CREATE TABLE few AS SELECT * FROM people LIMIT 1000")
        connection.execute(
            f"SELECT kanon.register_source('public.few', '{{{','.join(names)}}}', 'ill')"
        )


def _publish(dsn: str, assignment: str) -> Point:
    with psycopg.connect(dsn, autocommit=True) as connection:
        call = (
            "SELECT kanon.publish_buckets('public.{0}', '{0}_b', assignment => '{1}',"
            " privacy => '{2}')"
        )
        drop = "SELECT kanon.drop_publication('{}_b')"
        connection.execute(call.format("few", assignment, PRIVACY))  # imports
        connection.execute(drop.format("few"))
        before = _processor_seconds(connection.info.backend_pid)
        with PrivateMemory(connection.info.backend_pid) as memory:
            connection.execute(call.format("people", assignment, PRIVACY))
        taken = _processor_seconds(connection.info.backend_pid) - before
        connection.execute(drop.format("people"))
        return Point(taken, memory.needed)


def _processor_seconds(pid: int) -> float:
    """Return how long a process has computed, for itself or in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _slopes(points: Mapping[int, Point]) -> list[str]:
    x = np.log(list(points))
    both = [[p.seconds for p in points.values()], [p.megabytes for p in points.values()]]
    return [f"{np.polyfit(x, np.log(y), 1)[0]:.2f}" for y in both]


def _draw(found: Mapping[tuple[str, str], Mapping[int, Point]]) -> None:
    plt = _pyplot()
    figure, axes = plt.subplots(2, len(CURVES), figsize=(11, 5), layout="constrained")
    for column, curve in enumerate(CURVES):
        for row, (label, what) in enumerate((("seconds", "seconds"), ("MB", "megabytes"))):
            axis = axes[row, column]
            for assignment in ASSIGNMENTS:
                points = found[curve, assignment]
                values = [getattr(point, what) for point in points.values()]
                axis.plot(list(points), values, marker="o", label=assignment)
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.set_xlabel(curve)
            axis.grid(alpha=0.3)
            if column == 0:
                axis.set_ylabel(label)
    axes[0, 0].legend(frameon=False)
    figure.savefig(FIGURES / "bucket_curves.svg", metadata={"Date": None})
    plt.close(figure)


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "kanon_db"  # the same results give the same file
    from matplotlib import pyplot as plt

    return plt


if __name__ == "__main__":
    print(main())
