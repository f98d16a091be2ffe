"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "algorithms.suppression.greedy",
        "algorithms.suppression.patterns",
        "algorithms.suppression.row_types",
        "algorithms.suppression.two_anonymity",
        "metrics.suppression",
    ],
)
def test_examples(module: str) -> None:
    results = doctest.testmod(importlib.import_module(f"kanon_db.{module}"))
    assert results.attempted
    assert not results.failed
