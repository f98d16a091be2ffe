from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kanon_db.algorithms.freeform.matches import cells
from kanon_db.algorithms.freeform.matching_checks import least_coverage, verify_matching
from kanon_db.algorithms.recoding.generalized_cells import Ranges, Sets
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata

AGE = Attribute(5, np.array([20.0, 30, 40, 50, np.nan]), lower=20, upper=50)
TABLE = Microdata([[0, 0], [1, 1], [2, 0], [3, 2], [4, 1]], (AGE, Attribute(3)))
MATCHES = np.array([[0, 1], [1, 0], [2, 3], [3, 4], [4, 2]])


def test_what_holds() -> None:
    checks = verify_matching(MATCHES, TABLE, 2, cells(TABLE, MATCHES))
    assert checks.holds
    assert (checks.least_originals, checks.least_published) == (2, 2)
    assert not verify_matching(MATCHES, TABLE, 3, cells(TABLE, MATCHES)).holds


@pytest.mark.parametrize(
    ("changed", "value", "least", "of_originals"),
    [((0, 1), 0, 1, 1), ((0, 1), 3, 2, 1), ((4, 0), 2, 1, 1)],
)
def test_other_graphs(changed: tuple[int, int], value: int, least: int, of_originals: int) -> None:
    matches = MATCHES.copy()
    matches[changed] = value
    checks = verify_matching(matches, TABLE, 2, cells(TABLE, matches))
    assert not checks.is_regular
    assert not checks.holds
    assert checks.least_originals == least
    assert checks.least_published == of_originals


def test_matches_that_are_no_records() -> None:
    matches = MATCHES.copy()
    matches[2, 1], matches[3, 1] = 5, -1
    checks = verify_matching(matches, TABLE, 2, cells(TABLE, MATCHES))
    assert checks.n_unknown == 2
    assert not checks.holds


def test_values_outside_their_cells() -> None:
    ages, jobs = cells(TABLE, MATCHES)
    assert isinstance(ages, Ranges)
    assert isinstance(jobs, Sets)
    high = ages.high.copy()
    high[1] = 0
    narrow = verify_matching(MATCHES, TABLE, 2, (replace(ages, high=high), jobs))
    assert (narrow.n_outside, narrow.holds) == (1, False)
    known = replace(ages, tells_nothing=np.zeros(5, dtype=np.bool_))
    assert verify_matching(MATCHES, TABLE, 2, (known, jobs)).n_outside == 2
    codes = jobs.codes.copy()
    codes[1] = 2  # the first cell's set is 0 and 1
    other = verify_matching(MATCHES, TABLE, 2, (ages, replace(jobs, codes=codes)))
    assert (other.n_outside, other.holds) == (1, False)


def test_coverage_against_all_pairs() -> None:
    random = np.random.default_rng(3)
    for _ in range(50):
        codes = np.column_stack([random.integers(0, 5, 8), random.integers(0, 3, 8)])
        table = Microdata(codes, (AGE, Attribute(3)))
        ages, jobs = cells(table, random.integers(0, 8, (8, 3)))
        assert isinstance(ages, Ranges)
        assert isinstance(jobs, Sets)
        sets = np.split(jobs.codes, jobs.ends[:-1])
        covers = np.array(
            [
                [
                    (nothing or low <= age <= high) and job in members
                    for low, high, nothing, members in zip(
                        ages.low, ages.high, ages.tells_nothing, sets, strict=True
                    )
                ]
                for age, job in codes.tolist()
            ]
        )
        assert least_coverage(table, (ages, jobs)) == (
            covers.sum(axis=1).min(), covers.sum(axis=0).min(),
        )  # fmt: skip
