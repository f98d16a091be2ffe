"""Attacks on rows, against brute force and against tables whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from kanon_db.algorithms.attacks import PublishedRows, RowClasses, downcode, guess_people
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray
from kanon_db.algorithms.recoding import Attribute, Microdata, Ranges, Sets, cells_of_classes

HALF = np.arange(60) % 2 == 0


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def published(
    random: np.random.Generator, n: int = 60, k: int = 3
) -> tuple[CodeArray, AnyIntArray, AnyIntArray, list[Ranges | Sets], list[int]]:
    """Records with NULLs in classes at random: a range, a set, and a range of a sorted column."""
    codes = np.column_stack(
        [random.integers(0, 7, n), random.integers(0, 4, n), np.arange(n) // 2]
    ).astype(np.int32)
    numbers = np.append(np.arange(6.0), np.nan)
    attributes = (
        Attribute(7, numbers=numbers, lower=0, upper=5),
        Attribute(4),
        Attribute(n // 2, numbers=np.arange(n / 2), lower=0, upper=n),
    )
    classes = np.arange(n) // k
    cells = list(cells_of_classes(Microdata(codes, attributes), classes))
    return codes, classes, random.integers(0, 3, n), cells, [7, 4, n // 2]


def covering_of(cells: list[Ranges | Sets], n_classes: int, n_codes: list[int]) -> RowClasses:
    numbers = np.repeat(np.arange(n_classes)[:, np.newaxis], len(cells), axis=1)
    return RowClasses(cells, numbers, n_codes)


def test_people_are_looked_up(random: np.random.Generator) -> None:
    codes, classes, values, cells, n_codes = published(random)
    rows = PublishedRows.of(covering_of(cells, 20, n_codes), classes, values, 3)
    found = guess_people(rows, codes, values, np.arange(60), HALF)
    for person in range(60):
        its_classes = rows.covering.classes_of(codes[person])
        its_values = values[np.isin(classes, its_classes)]
        assert found.n_rows[person] == its_values.size
        assert found.n_values[person] == len(set(its_values.tolist()))
        counts = np.bincount(its_values, minlength=3)
        assert counts[found.most_frequent[person]] == counts.max()
        assert found.learned[person] in its_values
        assert found.known[person] in its_values
    protected = guess_people(
        rows, codes, values, np.arange(60), HALF, np.array([False, True, False])
    )
    assert set(protected.most_frequent.tolist()) <= {-1, 1}
    assert set(protected.learned.tolist()) <= {-1, 1}


def test_homogeneous_classes() -> None:
    covering = covering_of([Sets(np.arange(2, dtype=np.int32), np.array([1, 2]))], 2, [2])
    rows = PublishedRows.of(covering, np.array([0, 0, 1, 1, 1]), np.array([0, 1, 1, 1, 1]), 2)
    assert rows.homogeneous_share == pytest.approx(3 / 5)


def test_learners_find_correlations(random: np.random.Generator) -> None:
    """Half of the classes tell the second attribute, and with it the value; the others learn."""
    n, k = 800, 4
    kind = random.permutation(np.arange(n) % 2).astype(np.int32)
    kind[: n // 2].sort()
    codes = np.column_stack([np.arange(n) // k, kind]).astype(np.int32)
    classes = np.arange(n) // k
    n_classes = n // k
    attributes = (
        Attribute(n_classes, numbers=np.arange(float(n_classes)), lower=0, upper=n),
        Attribute(2),
    )
    cells = list(cells_of_classes(Microdata(codes, attributes), classes))
    rows = PublishedRows.of(covering_of(cells, n_classes, [n_classes, 2]), classes, kind, 2)
    half = random.random(n) < 0.5
    found = guess_people(rows, codes, kind, np.arange(n), half)
    guessed = {name: np.mean(getattr(found, name) == kind) for name in vars(found)}
    assert guessed["most_frequent"] < 0.88
    assert guessed["learned"] > guessed["most_frequent"] + 0.05
    assert guessed["known"] > 0.98


def test_own_record_teaches_nothing(random: np.random.Generator) -> None:
    n = 300
    codes = np.arange(n, dtype=np.int32)[:, np.newaxis]
    values = random.integers(0, 2, n)
    everything = Ranges(np.array([0]), np.array([n - 1]), np.array([False]))
    rows = PublishedRows.of(
        covering_of([everything], 1, [n]), np.zeros(n, dtype=np.int64), values, 2
    )
    half = random.random(n) < 0.5
    assert np.mean(guess_people(rows, codes, values, np.arange(n), half).known == values) < 0.62


def test_downcoding_of_pairs(random: np.random.Generator) -> None:
    """Of a class of two, both values are the ends of its range: half of the guesses are right."""
    n = 200
    codes = np.arange(n, dtype=np.int32)[:, np.newaxis] * 3
    numbers = np.arange(3.0 * n)
    attribute = Attribute(3 * n, numbers=numbers, lower=0, upper=3 * n)
    classes = np.arange(n) // 2
    cells = list(cells_of_classes(Microdata(codes, (attribute,)), classes))
    covering = covering_of(cells, n // 2, [3 * n])
    values = np.zeros(n, dtype=np.int64)
    found = downcode(covering, classes, values, np.full(n // 2, 2), codes, values)
    assert (found.people, found.rate, found.bound) == (n, 0.5, None)
    assert found.base_rate is not None
    assert found.base_rate < 0.01
    # With a sensitive value of its own, each row is about one person.
    own = np.arange(n) % 2
    found = downcode(covering, classes, own, np.full(n // 2, 2), codes, own)
    assert found.rate == 0.5


def test_cells_of_one_value_are_not_downcoded() -> None:
    codes = np.zeros((4, 1), dtype=np.int32)
    cells = Ranges(np.array([0]), np.array([0]), np.array([False]))
    zeros = np.zeros(4, dtype=np.int64)
    found = downcode(covering_of([cells], 1, [2]), zeros, zeros, np.array([4]), codes, zeros)
    assert (found.people, found.rate) == (0, None)
