"""Strengths that buckets show, beside those that the records themselves have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kanon_db.algorithms.bucketization.buckets import BucketedRecords, measure_strength
from kanon_db.algorithms.ground.arrays import FloatArray

N_RECORDS, SIZE = 24_000, 4


def ranked(x: FloatArray, n_values: int) -> np.ndarray:
    """Cut numbers into values of about as many records each."""
    return np.searchsorted(np.quantile(x, np.linspace(0, 1, n_values + 1)[1:-1]), x).astype("i4")


def strengths(columns: list[np.ndarray], values: np.ndarray) -> tuple[list[float], list[float]]:
    """Measure in random buckets, and in buckets of one record each, which hide nothing."""
    n_values = int(values.max()) + 1
    open_ones = BucketedRecords(columns, values, np.arange(values.size + 1), n_values)
    starts = np.arange(0, values.size + 1, SIZE)
    sorted_ones = np.sort(values.reshape(-1, SIZE), axis=1).reshape(-1)
    hidden = replace(open_ones, values=sorted_ones, starts=starts)
    found = (measure_strength(one).tolist() for one in (hidden, open_ones))
    return next(found), next(found)


@pytest.mark.parametrize("correlation", [0.0, 0.2, 0.6])
def test_buckets_show_how_strong_a_dependence_is(correlation: float) -> None:
    random = np.random.default_rng(5)
    x, other, noise = random.normal(size=(3, N_RECORDS))
    y = correlation * x + np.sqrt(1 - correlation**2) * noise
    hidden, actual = strengths([ranked(x, 20), ranked(other, 20)], ranked(y, 5))
    assert hidden == pytest.approx(actual, abs=0.03)
    assert actual[0] == pytest.approx(0.5 * correlation, abs=0.1)


def test_what_two_columns_tell_together_counts_for_both() -> None:
    random = np.random.default_rng(6)
    sex, age, noise = random.integers(0, 2, N_RECORDS), *random.normal(size=(2, N_RECORDS))
    y = np.where(sex == 1, 1.0, -1.0) * age + 0.5 * noise
    hidden, actual = strengths([sex.astype("i4"), ranked(age, 8)], ranked(y, 4))
    assert min(actual) > 0.15
    assert hidden == pytest.approx(actual, abs=0.04)


def test_nobody_shows_nothing() -> None:
    nobody = np.zeros(0, "i4")
    records = BucketedRecords([nobody, nobody], nobody, np.zeros(1, np.int64), 0)
    assert measure_strength(records).tolist() == [0.15, 0.15]


@pytest.mark.parametrize("n_values", [1, 2])
def test_where_nothing_shows_a_usual_strength_is_said(n_values: int) -> None:
    values = np.tile(np.arange(n_values, dtype="i4"), 6)
    columns = [np.zeros(values.size, "i4"), np.arange(values.size, dtype="i4")]
    records = BucketedRecords(columns, values, np.arange(0, values.size + 1, n_values), n_values)
    found = measure_strength(records)
    assert ((found >= 0.0) & (found <= 1.0)).all()
    assert found[0] == pytest.approx(0.15)
