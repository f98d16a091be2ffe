"""Rows from a table to a verified publication, against a plain shuffled copy: time, memory, steps.

The tables are those of `round_trip`, of integers and of texts, and so are the floors. What the
round trip took before is in `BEFORE`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import psycopg

from benchmarks.harness import private_server, table
from benchmarks.round_trip import N_RECORDS, RUNS, TABLES, Measured, floor, make_tables, measured

K: Final = 10


@dataclass(frozen=True)
class Call:
    """A call, the ratio to the plain copy that is its target, and with which tables, how often."""

    statement: str
    target: float | None
    runs: int = RUNS
    tables: tuple[str, ...] = TABLES


def _publishing(function: str, options: str) -> str:
    return (
        f"SELECT kanon.{function}('public.{{table}}', '{{table}}_r', k => {K},"
        f" replace => true{options})"
    )


CALLS: Final[Mapping[str, Call]] = {
    "Mondrian": Call(
        _publishing("publish_generalized", ", method => 'mondrian', refine => false"), 6
    ),
    "Mondrian, verify": Call("SELECT * FROM kanon.verify('{table}_r')", None),
    "suppressed": Call(_publishing("publish_suppressed", ""), 5),
    "suppressed, verify": Call("SELECT * FROM kanon.verify('{table}_r')", None),
    "greedy_search in blocks": Call(
        _publishing(
            "publish_generalized",
            ", method => 'greedy_search', refine => false, options => '{{\"block_size\": 5000}}'",
        ),
        20,
        runs=1,
        tables=("census",),
    ),
    "freeform, sort_greedy, not refined": Call(
        _publishing(
            "publish_freeform", ", method => 'sort_greedy', options => '{{\"refine\": false}}'"
        ),
        40,
        runs=1,
    ),
}

BEFORE_FLOORS: Final = {"census": 0.99, "census_numbers": 0.69}

BEFORE: Final[Mapping[tuple[str, str], tuple[float, float, Mapping[str, float]]]] = {
    ("Mondrian", "census"): (
        17.48,
        910,
        {
            "reading the source": 0.72,
            "counting values": 0.86,
            "reading values": 0.88,
            "searching classes: mondrian": 0.77,
            "writing": 0.49,
            "writing the cells": 0.82,
            "writing the published rows": 3.73,
            "materializing the view": 2.00,
            "numbering the cells of the rows": 3.00,
            "finding the shares of values in cells": 0.23,
            "gathering statistics": 0.33,
            "verifying": 1.94,
            "publishing": 1.09,
        },
    ),
    ("Mondrian", "census_numbers"): (
        10.85,
        587,
        {
            "reading the source": 0.45,
            "counting values": 0.72,
            "reading values": 0.86,
            "searching classes: mondrian": 0.82,
            "writing": 0.49,
            "writing the cells": 0.51,
            "writing the published rows": 1.63,
            "materializing the view": 1.03,
            "numbering the cells of the rows": 1.75,
            "finding the shares of values in cells": 0.15,
            "gathering statistics": 0.15,
            "verifying": 1.41,
            "publishing": 0.63,
        },
    ),
    ("suppressed", "census"): (
        10.16,
        607,
        {
            "reading the source": 0.77,
            "counting values": 0.88,
            "reading values": 0.89,
            "choosing patterns": 0.41,
            "writing": 0.01,
            "writing the classes": 0.25,
            "writing the published rows": 1.58,
            "materializing the view": 0.82,
            "numbering the cells of the rows": 1.37,
            "gathering statistics": 0.15,
            "verifying": 2.32,
            "publishing": 0.43,
        },
    ),
    ("suppressed", "census_numbers"): (
        8.82,
        577,
        {
            "reading the source": 0.54,
            "counting values": 0.76,
            "reading values": 0.78,
            "choosing patterns": 0.60,
            "writing": 0.01,
            "writing the classes": 0.49,
            "writing the published rows": 1.42,
            "materializing the view": 0.77,
            "numbering the cells of the rows": 1.17,
            "gathering statistics": 0.10,
            "verifying": 1.64,
            "publishing": 0.36,
        },
    ),
    ("freeform, sort_greedy, not refined", "census"): (221.3, 916, {}),
    ("Mondrian, verify", "census"): (1.96, 214, {"verifying": 1.95}),
    ("Mondrian, verify", "census_numbers"): (1.44, 216, {"verifying": 1.43}),
    ("suppressed, verify", "census"): (2.23, 405, {"verifying": 2.22}),
    ("suppressed, verify", "census_numbers"): (2.16, 326, {"verifying": 2.15}),
}
"""Seconds, peak memory in MB and the seconds of each step before rows were published faster.

Of freeform rows, only the total is known.

One run each, the second one of its session, on the same machine.
"""


def main() -> str:
    """Return the results as Markdown."""
    with private_server() as dsn:
        make_tables(dsn)
        floors = {name: floor(dsn, name) for name in TABLES}
        found: dict[tuple[str, str], Measured] = {}
        for name in TABLES:
            for what, call in CALLS.items():
                if name not in call.tables:
                    continue
                statement = call.statement.format(table=name)
                found[what, name] = measured(dsn, statement, runs=call.runs)
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(f"SELECT kanon.drop_publication('{name}_r')")
    rows = []
    for (what, name), one in found.items():
        before, target = BEFORE.get((what, name)), CALLS[what].target
        rows.append(
            [
                what, name, f"{one.seconds:.2f}", f"{one.seconds / floors[name]:.1f}",
                "" if before is None else f"{before[0] / BEFORE_FLOORS[name]:.1f}",
                "" if target is None else f"≤ {target:g}", f"{one.megabytes:.0f} MB",
                "" if before is None else f"{before[1]:.0f} MB",
            ]
        )  # fmt: skip
    heading = [
        "what", "table", "seconds", "ratio", "before", "target", "memory", "memory before",
    ]  # fmt: skip
    return (
        f"{N_RECORDS:,} records, 7 quasi-identifiers and a sensitive attribute, k = {K},"
        f" {os.cpu_count()} cores; medians of {RUNS} runs, of greedy_search and freeform one run,"
        " after a first one. The ratio is to `CREATE TABLE … AS SELECT … ORDER BY random()` of the"
        f" same table in the same run ({_floors(floors)}; before: {_floors(BEFORE_FLOORS)}); the"
        " memory is the peak of the backend in its first call, shared buffers of 128 MB"
        " included.\n\n"
        + table(heading, rows)
        + "\nSeconds of each step, and its share, by what the session says of itself every 5 ms in"
        f" the last run, beside what it was before:\n\n{_profiles(found)}"
    )


def _floors(floors: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {taken:.2f} s" for name, taken in floors.items())


def _profiles(found: Mapping[tuple[str, str], Measured]) -> str:
    tables = []
    for what in CALLS:
        profiles: dict[str, Mapping[str, float]] = {}
        for name in CALLS[what].tables:
            before = BEFORE.get((what, name))
            if before is not None and before[2]:
                profiles[f"{name}, before"] = before[2]
            profiles[f"{name}, now"] = found[what, name].steps
        steps = dict.fromkeys(step for profile in profiles.values() for step in profile)
        rows = [[step, *(_share(profile, step) for profile in profiles.values())] for step in steps]
        tables.append(table([what, *profiles], [row for row in rows if any(row[1:])]))
    return "\n".join(tables)


def _share(profile: Mapping[str, float], step: str) -> str:
    taken, total = profile.get(step, 0.0), sum(profile.values())
    return f"{taken:.2f}, {taken / total:.0%}" if total and taken / total >= 0.01 else ""


if __name__ == "__main__":
    print(main())
