from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from kanon_db.algorithms.freeform.matches import (
    FreeformMatches,
    MatchedPart,
    as_assignments,
    draw_assignments,
    named_after_originals,
    numbered_cells,
)
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
from kanon_db.errors import InvalidParameterError
from kanon_db.randomness import SecureRandom

MATCHES = np.array(
    [[0, 4, 6], [1, 0, 3], [2, 3, 1], [3, 5, 0], [4, 6, 2], [5, 1, 4], [6, 2, 5]], dtype=np.int32
)
GRAPH = FreeformMatches.whole(MATCHES)
CRITICAL_2 = 13.82  # chi-square with 2 degrees of freedom, exceeded once in 1,000


def chi_square(observed: IntArray) -> float:
    expected = observed.sum() / observed.size
    return float(((observed - expected) ** 2 / expected).sum())


def test_each_match_is_the_true_one_as_often() -> None:
    random = np.random.default_rng(7)
    n, k = MATCHES.shape
    drawn = [draw_assignments(GRAPH, random) for _ in range(2000)]
    assert chi_square(np.bincount([one.chosen for one in drawn], minlength=k)) < CRITICAL_2
    of_cell = np.array([np.argsort(one.cells) for one in drawn])
    for cell in range(n):
        observed = np.array([np.count_nonzero(of_cell[:, cell] == i) for i in MATCHES[cell]])
        assert observed.sum() == 2000
        assert chi_square(observed) < CRITICAL_2


def test_another_draw_of_the_same_graph_is_another_one() -> None:
    """Not only the choice, but what there is to choose from."""
    random = np.random.default_rng(11)
    graphs = Counter(
        frozenset(map(bytes, draw_assignments(GRAPH, random).cell_of_original)) for _ in range(300)
    )
    assert len(graphs) > 1
    assert graphs.most_common(1)[0][1] < 300 * 0.9


def test_the_random_source_is_asked_for_each_choice() -> None:
    """A source that rejects its first number, for it would make the choice uneven."""

    class Scripted:
        def __init__(self) -> None:
            self.numbers = [2**64 - 1, 5]
            self.walks = np.random.default_rng(1)

        def bytes(self, length: int, /) -> bytes:
            if length > 8:
                return self.walks.bytes(length)
            return self.numbers.pop(0).to_bytes(8, "little")

    source = Scripted()
    assert draw_assignments(GRAPH, source).chosen == 5 % 3
    assert not source.numbers


def test_long_walks_ask_for_more_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kanon_db.algorithms.freeform.matches._NUMBERS_PER_CALL", 3)
    n = 50
    matches = np.column_stack([(np.arange(n) + r) % n for r in range(4)]).astype(np.int32)
    drawn = draw_assignments(FreeformMatches.whole(matches), np.random.default_rng(3))
    for assignment in drawn.cell_of_original:
        assert np.array_equal(np.sort(assignment), np.arange(n))


@pytest.mark.parametrize(
    "matches",
    [
        [[0, 1], [1, 1], [2, 0]],
        [[0, 0], [1, 1], [2, 2]],
        [[0, 1], [1, 2], [2, 3]],
        [[0, 1], [1, 0], [2, -1]],
    ],
)
def test_irregular_graphs_are_refused(matches: list[list[int]]) -> None:
    with pytest.raises(InvalidParameterError, match="matches"):
        draw_assignments(
            FreeformMatches.whole(np.array(matches, dtype=np.int32)), np.random.default_rng(1)
        )


def test_one_match_and_no_records() -> None:
    random = np.random.default_rng(1)
    alone = draw_assignments(
        FreeformMatches.whole(np.arange(3, dtype=np.int32)[:, np.newaxis]), random
    )
    assert alone.cell_of_original.tolist() == [[0, 1, 2]]
    empty = FreeformMatches.whole(np.empty((0, 2), dtype=np.int32))
    table = Microdata(np.empty((0, 2), dtype=np.int32), (Attribute(1), Attribute(1)))
    assert [cells.n_cells for cells in numbered_cells(table, empty)] == [0, 0]
    assert draw_assignments(empty, random).cells.size == 0


def test_columns_become_assignments() -> None:
    rows = np.sort(MATCHES, axis=1)
    found = as_assignments(rows)
    assert np.array_equal(found[:, 0], np.arange(7))
    assert np.array_equal(np.sort(found, axis=1), rows)
    assert all(np.array_equal(np.sort(column), np.arange(7)) for column in found.T)
    named = named_after_originals(rows[[3, 0, 6, 1, 5, 2, 4]])
    assert np.array_equal(named[:, 0], np.arange(7))
    assert all(np.array_equal(np.sort(column), np.arange(7)) for column in named.T)
    assert sorted(np.sort(named, axis=1).tolist()) == sorted(rows.tolist())
    with pytest.raises(InvalidParameterError, match="itself"):
        as_assignments(np.array([[1, 2], [0, 1], [2, 0]]))


def test_parts_of_a_graph_are_split_by_themselves() -> None:
    n, k = 20_000, 4
    records = np.random.default_rng(4).permutation(n).reshape(-1, k)
    among = np.repeat(np.arange(k, dtype=np.uint8)[np.newaxis], k, axis=0)
    found = FreeformMatches([MatchedPart(some, among) for some in records])
    drawn = draw_assignments(found, SecureRandom(), workers=2)
    for cell_of_original in drawn.cell_of_original:
        assert (np.sort(cell_of_original) == np.arange(n)).all()
        assert (found.matches[cell_of_original] == np.arange(n)[:, np.newaxis]).any(axis=1).all()
    assert (np.diff(np.sort(drawn.cell_of_original, axis=0), axis=0) > 0).all()
    assert np.array_equal(np.sort(drawn.matches, axis=1), np.sort(found.matches, axis=1))
