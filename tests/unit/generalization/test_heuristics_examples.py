"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("module", ["constraints", "greedy_search", "mondrian"])
def test_examples(module: str) -> None:
    results = doctest.testmod(
        importlib.import_module(f"kanon_db.algorithms.generalization.{module}")
    )
    assert results.attempted
    assert not results.failed
