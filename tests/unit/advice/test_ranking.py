"""The first choice is the best of those that leave nobody certain."""

from __future__ import annotations

from math import nan
from typing import Any

import pytest

from kanon_db.advice.publication_candidates import (
    Candidate,
    Protects,
    TrialResult,
    TriedCandidate,
    ranked,
)


def tried(
    title: str,
    protects: Protects,
    count_error: float = 0.1,
    loss: float = 0.1,
    certain: int | None = 0,
    *,
    is_sample: bool = False,
) -> TriedCandidate:
    return TriedCandidate(
        Candidate("buckets", title, protects, "", {}, "b"),
        TrialResult(certain, count_error, {"age": loss, "sex": loss}, [], 1.0, 9, is_sample),
    )


def titles(found: list[TriedCandidate], purpose: str) -> list[tuple[int | None, str]]:
    return [(one.place, one.tried.candidate.title) for one in ranked(found, purpose)]


def test_the_same_protection_is_ranked_by_what_it_is_for() -> None:
    some = [
        tried("exact", "row", count_error=0.1, loss=0.5),
        tried("whole", "row", count_error=0.5, loss=0.1),
    ]
    assert titles(some, "counts") == [(1, "exact"), (2, "whole")]
    assert titles(some, "both") == [(1, "exact"), (2, "whole")]
    assert titles(some, "rows") == [(1, "whole"), (2, "exact")]


def test_what_bounds_more_comes_first() -> None:
    some = [
        tried("row", "row", 0.01, 0.01),
        tried("both", "row and value", 0.2, 0.2),
        tried("value", "value", 0.3, 0.3),
    ]
    assert [title for _, title in titles(some, "counts")] == ["value", "both", "row"]
    assert [title for _, title in titles(some, "both")] == ["both", "row", "value"]
    assert [title for _, title in titles(some[:2], "rows")] == ["both", "row"]


def test_nobody_may_be_certain() -> None:
    some = [tried("certain", "value", 0.0, 0.0, certain=1), tried("safe", "row", 0.9, 0.9)]
    for purpose in ("counts", "both"):
        assert titles(some, purpose) == [(1, "safe"), (None, "certain")]
    last = ranked(some, "counts")[-1]
    assert last.objection is not None
    assert last.objection.startswith("the sensitive value of 1 people is certain")


def test_a_sample_shows_of_nobody_that_a_value_is_not_certain() -> None:
    """Unless the guarantee bounds values, or there are none to protect."""
    some = [
        tried("row", "row", 0.0, is_sample=True),
        tried("bounded", "value", 0.5, is_sample=True),
    ]
    assert titles(some, "counts") == [(1, "bounded"), (None, "row")]
    assert "may be certain" in str(ranked(some, "counts")[1].objection)
    nothing = tried("row", "row", certain=None, is_sample=True)
    assert titles([nothing], "counts") == [(1, "row")]


def test_what_was_not_tried_is_said() -> None:
    nothing = TriedCandidate(Candidate("buckets", "slow", "value", "", {}, "b"), failure="too slow")
    found = ranked([nothing, tried("done", "row", nan)], "counts")
    assert [(one.place, one.objection) for one in found] == [(1, None), (None, "too slow")]


@pytest.mark.parametrize(
    ("attacks", "worst"),
    [
        ({"linking a row": 0.9, "deFinetti": 0.2, "most frequent value": 0.3}, 0.3),
        ({"linking a row": 0.2, "downcoding": 0.9}, 0.2),
        ({"linking a row": 0.1, "unusual people: most frequent value": 0.9}, 0.1),
        ({"deFinetti": None}, None),
    ],
)
def test_the_worst_attack_is_on_values_where_there_are_any(
    attacks: dict[str, float | None], worst: float | None
) -> None:
    rows: list[dict[str, Any]] = [{"attack": name, "rate": rate} for name, rate in attacks.items()]
    found = TrialResult(None, 0.1, {"age": 0.1}, rows, 1.0, 9, is_sample=False).worst_attack
    assert (None if found is None else found["rate"]) == worst
