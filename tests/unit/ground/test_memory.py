"""Memory that was freed is the system's again."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from kanon_db.algorithms.ground.memory import give_back


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it asks Linux")
def test_what_was_freed_is_given_back() -> None:
    kept = []
    for i in range(2000):  # of the heap, where an array that is kept lies behind each other one
        array = np.ones(8_000)
        if i % 2:
            kept.append(array)
    most = _resident()
    kept = kept[-1:]
    give_back()
    assert _resident() < most - 40 * 2**20


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
