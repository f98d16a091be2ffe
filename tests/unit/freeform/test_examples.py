"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "algorithms.freeform.assignments",
        "algorithms.freeform.greedy",
        "algorithms.freeform.hungarian",
        "algorithms.freeform.k_concealment",
        "algorithms.freeform.min_cost_flow",
        "algorithms.freeform.optimal",
        "algorithms.freeform.partitions",
        "algorithms.freeform.result",
        "algorithms.freeform.ring",
        "algorithms.freeform.sort_greedy",
        "algorithms.freeform.symmetric",
        "algorithms.freeform.verification",
        "metrics.freeform",
    ],
)
def test_examples(module: str) -> None:
    results = doctest.testmod(importlib.import_module(f"kanon_db.{module}"))
    assert results.attempted
    assert not results.failed
