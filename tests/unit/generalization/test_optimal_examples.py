"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("module", ["exact_loss", "initial", "optimal"])
def test_examples(module: str) -> None:
    name = f"kanon_db.algorithms.generalization.{module}"
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted
    assert not results.failed
