"""The table of the papers names tests and benchmarks that there are."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.__main__ import SECTIONS

ROOT = Path(__file__).parents[2]


def test_each_row_of_the_papers_names_what_there_is() -> None:
    page = (ROOT / "docs/understand/methods.md").read_text(encoding="utf-8")
    lines = page.partition("| source | what | repeated by |")[2].strip().splitlines()[1:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert {source for source, *_ in rows} == {"[GB]", "[OB]", "[FF]", "[PG]", "[TH]", ""}
    for _, what, repeated_by in rows:
        named = re.findall(r"`([^`]+)`", repeated_by)
        tests = [name for name in named if name.endswith(".py")]
        benchmarks = [
            name
            for listed in re.findall(r"benchmarks? ((?:`\w+`(?:, )?)+)", repeated_by)
            for name in re.findall(r"\w+", listed)
        ]
        assert [name for name in tests if not (ROOT / "tests" / name).is_file()] == [], what
        assert set(benchmarks) <= SECTIONS.keys(), what
        is_repeated = bool(tests or benchmarks or repeated_by == "[OB]")
        assert is_repeated != repeated_by.startswith("not repeated: "), what
