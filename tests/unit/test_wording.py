"""Hints say what whoever reads them can write."""

from __future__ import annotations

import pytest

from kanon_db.wording import for_models


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        ("TABLE kanon.publications lists the ones", "list_publications lists the ones"),
        ("write FROM a_b, or pass publication => 'a_b'; or a_k", "write FROM a_b; or a_k"),
        ("for SUM, use kanon.estimate", "for SUM, use ask"),
        ("kanon.explain_count says how", "explain says how"),
    ],
)
def test_a_model_is_told_of_its_tools(hint: str, said: str) -> None:
    assert for_models(hint) == said
