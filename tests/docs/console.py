"""What pages say that commands print, and whether they do."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

PAGES = Path(__file__).parents[2] / "docs"


def blocks(page: Path, language: str) -> list[str]:
    """Return the examples of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def commands(page: Path) -> Iterator[tuple[list[str], str]]:
    """Commands, with what the page says that they print; empty where it does not say it."""
    for block in blocks(page, "console"):
        for entry in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, printed = entry.partition("\n")
            yield shlex.split(line, comments=True), printed


def says(shown: str, printed: str) -> bool:
    """Whether a command printed what is shown, but for numbers, spaces, and what … stands for."""
    shown, printed = (
        " ".join(re.sub(r"\d[\d,.]*", "0", text).split()) for text in (shown, printed)
    )
    return re.fullmatch(".*".join(map(re.escape, shown.split("…"))), printed) is not None
