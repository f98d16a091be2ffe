"""The polynomial algorithm of 2-anonymity, and its matchings, beside exhaustive search."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from kanon_db.algorithms import suppression
from kanon_db.algorithms.suppression.two_anonymity import MOST_RECORDS, _HeaviestMatching
from kanon_db.errors import InfeasibleError, InvalidParameterError


def most_weight(weights: list[list[int]]) -> int:
    """The most weight of a matching, of all."""

    @cache
    def most_of(left: frozenset[int]) -> int:
        if not left:
            return 0
        first = min(left)
        rest = left - {first}
        return max(
            most_of(rest),
            *(weights[first][v] + most_of(rest - {v}) for v in rest if weights[first][v]),
            0,
        )

    return most_of(frozenset(range(len(weights))))


@pytest.mark.parametrize("seed", range(3))
def test_no_matching_is_heavier(seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(100):
        n, most = random.integers(1, 10), random.choice([3, 99])
        drawn = random.integers(1, most, (n, n)) * (random.random((n, n)) < random.choice([0.4, 1]))
        lower = np.tril(drawn, -1)
        weights = (lower + lower.T).tolist()
        mates = _HeaviestMatching(weights).mates()
        assert all(v < 0 or mates[v] == u for u, v in enumerate(mates))
        assert sum(weights[u][v] for u, v in enumerate(mates) if v > u) == most_weight(weights)


def test_two_anonymity_is_optimal_on_a_larger_table() -> None:
    rows = np.random.default_rng(5).integers(0, 3, (23, 5)).tolist()
    patterns = suppression.parse_patterns(["..*.*", ".**..", "***..", "*****", "....."], 5)
    polynomial = suppression.two_anonymity(rows, patterns)
    program = suppression.optimal(rows, patterns, 2)
    assert polynomial.proof.status == program.proof.status == "optimal"
    assert polynomial.suppression.n_suppressed == program.suppression.n_suppressed
    shown = [
        tuple(None if star else value for value, star in zip(row, stars, strict=True))
        for row, stars in zip(rows, polynomial.suppression.suppressed.tolist(), strict=True)
    ]
    assert min(shown.count(row) for row in shown) >= 2


def test_what_two_anonymity_cannot_do_is_refused() -> None:
    patterns = suppression.parse_patterns(["."], 1)
    for rows in ([[1]], [[1], [1], [2]]):
        with pytest.raises(InfeasibleError):
            suppression.two_anonymity(rows, patterns)
    with pytest.raises(InvalidParameterError, match="too large"):
        suppression.two_anonymity([[1]] * (MOST_RECORDS + 1), patterns)
    assert suppression.two_anonymity([[1]] * 3, patterns).suppression.n_suppressed == 0
