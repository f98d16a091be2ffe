"""Memory that was freed is the system's again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from kanon_db.algorithms.ground.arrays import give_back, giving_back

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="it asks Linux how large a process is"
)


def test_what_was_freed_is_given_back() -> None:
    assert _kept(8_000, then=give_back) < 40 * 2**20


def test_arrays_are_given_back_at_once() -> None:
    """In a process that has had larger ones, as each has; what is chosen would outlive the test."""
    with get_context("spawn").Pool(1) as process:
        assert process.apply(_kept, [200_000]) > 20 * 2**20
        assert process.apply(_kept_while_giving_back, [200_000]) < 5 * 2**20
        assert process.apply(_kept, [200_000]) > 20 * 2**20


def _kept_while_giving_back(n_numbers: int) -> int:
    with giving_back():
        return _kept(n_numbers)


def _nothing() -> None:
    pass


def _kept(n_numbers: int, *, then: Callable[[], None] = _nothing) -> int:
    """Fill 128 MB with arrays, free nearly all of them; how much of it the process still has."""
    bytearray(8 << 20)
    before = _resident()
    kept = []
    for i in range((128 << 20) // (8 * n_numbers)):
        array = np.ones(n_numbers)
        if i % 2:  # one that is kept lies behind each other one
            kept.append(array)
    kept = kept[-1:]
    then()
    return _resident() - before


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
