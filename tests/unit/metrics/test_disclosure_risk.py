"""The risks are those of the definitions, record by record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.errors import InvalidParameterError
from kanon_db.metrics import journalist_risk, marketer_risk, prosecutor_risk, uniqueness

CLASSES = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 90), st.integers(1, 3)), min_size=1, max_size=20
)
"""Of each class: its size, how many more people the population has, and how often there is one."""


@given(CLASSES, st.integers(1, 40))
def test_risks_are_those_of_each_record(classes: list[tuple[int, int, int]], k: int) -> None:
    """El Emam 2013, Chapter 16, written as sums over the records of a table."""
    sizes, more, times = zip(*classes, strict=True)
    population = [f + others for f, others in zip(sizes, more, strict=True)]
    records = [
        (f, people)
        for f, people, n in zip(sizes, population, times, strict=True)
        for _ in range(f * n)
    ]
    n = len(records)
    found = prosecutor_risk(sizes, k=k, times=times)
    assert found.highest == max(1 / f for f, _ in records)
    assert found.average == pytest.approx(sum(1 / f for f, _ in records) / n)
    assert found.at_risk == pytest.approx(sum(f < k for f, _ in records) / n)
    assert marketer_risk(sizes, times=times) == pytest.approx(found.average)
    assert uniqueness(sizes, times=times) == pytest.approx(sum(f == 1 for f, _ in records) / n)

    found = journalist_risk(sizes, population, k=k, times=times)
    to_population = sum(1 / people for _, people in records) / n
    everybody = sum(people / f for f, people in records)
    assert found.highest == max(1 / people for _, people in records)
    assert found.average == pytest.approx(max(sum(times) / everybody, to_population))
    assert found.at_risk == pytest.approx(sum(people < k for _, people in records) / n)
    assert marketer_risk(sizes, population, times=times) == pytest.approx(to_population)


def test_who_is_not_in_the_population_is_refused() -> None:
    for population in ([4, 5], [float("nan"), 5]):
        with pytest.raises(InvalidParameterError, match="at least as many people"):
            journalist_risk([5, 5], population, k=2)
    with pytest.raises(InvalidParameterError, match="at least one record"):
        prosecutor_risk([0, 5], k=2)
    with pytest.raises(InvalidParameterError, match="every class needs one size"):
        marketer_risk([1, 2], [3])


def test_no_records_have_no_risk() -> None:
    assert prosecutor_risk([], k=5).highest == marketer_risk([]) == uniqueness([]) == 0
