"""Reading the golden results in the shared folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def golden(shared: Path) -> Callable[[str], Any]:
    """Read golden/<name>.json."""

    def read(name: str) -> Any:
        return json.loads((shared / "golden" / f"{name}.json").read_text(encoding="utf-8"))

    return read
