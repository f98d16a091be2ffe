from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from kanon_db.algorithms.freeform.matches import (
    FreeformMatches,
    MatchedPart,
    draw_assignments,
)
from kanon_db.algorithms.ground.arrays import IntArray
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
