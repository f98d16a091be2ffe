"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "algorithms.bucketization.anatomy",
        "algorithms.bucketization.assignment",
        "algorithms.bucketization.multi_size",
        "algorithms.bucketization.optimal",
        "algorithms.bucketization.privacy",
        "algorithms.bucketization.setting",
        "algorithms.bucketization.transportation",
        "algorithms.bucketization.two_size",
        "metrics.loss",
    ],
)
def test_examples(module: str) -> None:
    results = doctest.testmod(importlib.import_module(f"kanon_db.{module}"))
    assert results.attempted
    assert not results.failed
