"""Write down how long each test of `make test` takes, from the report of a run.

    .venv/bin/python scripts/durations.py REPORT

REPORT is what pytest writes with ``--junitxml``; `make durations` does both. The file
``tests/durations.tsv`` has the seconds of each folder and of each test that takes half a second or
more, with its fixtures.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

ROOT: Final = Path(__file__).resolve().parents[1]
WRITTEN: Final = ROOT / "tests" / "durations.tsv"
LEAST: Final = 0.5
"""Seconds from which on a test is listed."""


def read(report: Path) -> Iterator[tuple[str, float]]:
    """Yield the path and name of each test, and its seconds."""
    for case in ET.parse(report).iter("testcase"):  # noqa: S314  # our own report
        if "classname" not in case.attrib:  # a run that was stopped
            continue
        *parts, last = case.attrib["classname"].split(".")
        # A class of tests comes after its module.
        module, names = (parts, [last]) if last[0].isupper() else ([*parts, last], [])
        path = "/".join(module) + ".py"
        yield "::".join([path, *names, case.attrib["name"]]), float(case.attrib["time"])


def main() -> None:
    """Write the file."""
    tests = sorted(read(Path(sys.argv[1])), key=lambda test: (-test[1], test[0]))
    folders: Counter[str] = Counter()
    for name, seconds in tests:
        folders["/".join(name.partition("::")[0].split("/")[:2])] += seconds
    lines = [f"{sum(seconds for _, seconds in tests):.1f}\tall {len(tests)} tests of make test"]
    lines += [f"{seconds:.1f}\t{folder}" for folder, seconds in folders.most_common()]
    lines += [f"{seconds:.1f}\t{name}" for name, seconds in tests if seconds >= LEAST]
    WRITTEN.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
