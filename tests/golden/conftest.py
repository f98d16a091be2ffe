"""Where the golden results are: the folder named by KANON_SHARED, or ../shared."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder that holds golden/ and data/; the test is skipped where there is none."""
    beside = Path(__file__).resolve().parents[2].parent / "shared"
    folder = Path(os.environ.get("KANON_SHARED", beside))
    if not (folder / "golden").is_dir():
        pytest.skip("no golden results: set KANON_SHARED to the folder that holds golden/")
    return folder


@pytest.fixture(scope="session")
def golden(shared: Path) -> Callable[[str], Any]:
    """Read golden/<name>.json."""

    def read(name: str) -> Any:
        return json.loads((shared / "golden" / f"{name}.json").read_text(encoding="utf-8"))

    return read
