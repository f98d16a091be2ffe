"""Run the benchmarks: ``python -m benchmarks [--write]``; the latter updates docs/benchmarks.md."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks import publication, setting_search

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
MARK = "<!-- results: python -m benchmarks --write -->\n"


def main() -> None:
    """Print the results, and keep them if asked to."""
    results = "\n".join(
        [
            "## Search of the bucket setting\n",
            setting_search.main(),
            "## Publishing and answering\n",
            publication.main(),
        ]
    )
    print(results)
    if "--write" in sys.argv[1:]:
        before = PAGE.read_text().split(MARK)[0]
        PAGE.write_text(before + MARK + "\n" + results)


if __name__ == "__main__":
    main()
