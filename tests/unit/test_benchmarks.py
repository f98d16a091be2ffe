"""Benchmarks follow the code that they measure."""

from __future__ import annotations

import importlib

import pytest

from benchmarks.__main__ import SECTIONS
from benchmarks.analysts_questions import QUESTIONS
from benchmarks.questions import Answer, Number, _cell, _summary


@pytest.mark.parametrize("name", SECTIONS)
def test_benchmarks_can_be_run(name: str) -> None:
    assert callable(importlib.import_module(f"benchmarks.{name}").main)


def test_there_are_forty_different_ones() -> None:
    assert len({question.words for question in QUESTIONS}) == 40
    assert len({question.query for question in QUESTIONS}) == 40
    assert all("{t}" in question.query for question in QUESTIONS)


@pytest.mark.parametrize(
    ("truth", "lower", "upper", "is_inside"),
    [
        (5, 5, 5, True), (5, 4, 6, True), (5, 6, 7, False), (5, 3, 4, False),
        (5, None, None, True), (5, None, 4, False),
        (1e9 / 3, 333333333.3333, 333333333.3333, True), (None, 1, 2, True),
    ],
)  # fmt: skip
def test_truth_within_bounds(
    truth: float | None, lower: float | None, upper: float | None, *, is_inside: bool
) -> None:
    assert Number("", truth, 5, 1, lower, upper).is_inside is is_inside


def test_the_largest_group_is_shown_and_all_are_judged() -> None:
    numbers = [Number(str(i), 100 - i, 100, 1, 90, 110) for i in range(12)]
    answer = Answer("adult_b", numbers)
    assert _cell(answer, numbers[0]) == "100 ± 1"
    assert _cell(answer, numbers[1]) == "100 ± 1 (0)"
    assert "11 of 12" in _summary([(QUESTIONS[0], [answer] * 4)])
