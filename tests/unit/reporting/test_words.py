"""What is said in words of a publication."""

from __future__ import annotations

import pytest

import kanon_db.publications.registry  # noqa: F401  # registers them
from kanon_db.publications.registry import KINDS as REGISTERED
from kanon_db.publications.results import Attack
from kanon_db.reporting.page import KINDS, NOT_COVERED, _exceeds, _percent, promise


def test_every_kind_has_words() -> None:
    ours = {name for name, kind in REGISTERED.items() if kind.room.startswith("kanon_db.")}
    assert KINDS.keys() == NOT_COVERED.keys() == ours


def test_k_rows_are_promised_of_people_with_one_row_each() -> None:
    assert "1 in 5" in promise("generalized", "mondrian", 5, has_entities=False)
    assert "1 in" not in promise("generalized", "mondrian", 5, has_entities=True)
    assert "1 in 5" in promise("freeform", "ring", 5, has_entities=False)
    assert "1 in" not in promise("freeform", "k_concealment", 5, has_entities=False)
    assert "At least 5 people" in promise("suppressed", "greedy", 5, has_entities=True)


@pytest.mark.parametrize(
    ("share", "shown"),
    [(None, "-"), (0.0, "0.00 %"), (1e-6, "< 0.01 %"), (0.0123, "1.23 %"), (0.5, "50.0 %"),
     (0.99999, "> 99.99 %"), (1.0, "100.0 %")],
)  # fmt: skip
def test_shares_are_rounded_but_not_to_nothing_or_all(share: float | None, shown: str) -> None:
    assert _percent(share) == shown


@pytest.mark.parametrize(
    ("rate", "bound", "people", "exceeds"),
    [(0.13, 0.1, 410, False), (0.16, 0.1, 410, True), (0.1, 0.1, 10**6, False),
     (None, 0.1, 5, False), (0.9, None, 5, False), (1.0, 0.0, 5, True)],
)  # fmt: skip
def test_more_than_chance(
    rate: float | None, bound: float | None, people: int, exceeds: bool
) -> None:
    assert _exceeds(Attack("a", bound, 0.1, rate, people)) is exceeds
