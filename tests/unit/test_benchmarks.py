"""Benchmarks follow the code that they measure."""

from __future__ import annotations

import importlib

import pytest

from benchmarks.__main__ import SECTIONS
from benchmarks.analysts_questions import QUESTIONS
from benchmarks.calibration import Chance, Judgement
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


def judgement(*likely: int) -> Judgement:
    """Judge a hundred numbers of each publication, so many of which are in the likely range."""
    return Judgement((100,) * len(likely), likely, (0.7, 0.95, 1.0), 1.5, 1.0, 0.0, 0)


def test_a_share_is_low_if_chance_does_not_explain_it() -> None:
    alone = Chance.of([judgement(95, 94, 96, 95)])
    together = Chance.of([judgement(100, 100, 100, 80)])
    assert alone.together == 1
    assert together.together == pytest.approx(400 / 19)
    low = judgement(90, 90, 90, 90)
    assert alone.is_low(low)
    assert not together.is_low(low)
    assert not alone.is_low(judgement(93, 93, 93, 93))


def test_chance_takes_cells_below_the_least_where_numbers_are_few() -> None:
    chance = Chance(1.0)
    many, few = ([judgement(*[100] * n)] * 10 for n in (40, 1))
    assert chance.n_below(many) < 0.1
    assert 1 < chance.n_below(few) < 3
