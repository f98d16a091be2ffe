"""Benchmarks follow the code that they measure."""

from __future__ import annotations

import importlib

import pytest

from benchmarks.__main__ import SECTIONS


@pytest.mark.parametrize("name", SECTIONS)
def test_benchmarks_can_be_run(name: str) -> None:
    assert callable(importlib.import_module(f"benchmarks.{name}").main)
