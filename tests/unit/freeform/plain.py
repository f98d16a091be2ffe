"""Freeform generalization straight from the definitions, in fractions, on an n x n matrix."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import partial
from itertools import combinations, permutations
from typing import Any

import numpy as np

from kanon_db.algorithms.freeform.matches import Method, cells, partitioned
from kanon_db.algorithms.freeform.matching_checks import verify_matching
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse
from kanon_db.algorithms.recoding.microdata import Microdata
from tests.generalization_plain import ncp


def run(
    method: Method,
    table: Microdata,
    k: int,
    *,
    pulse: Pulse = UNLIMITED,
    **options: Any,
) -> CodeArray:
    """Matches by a method, with what else it takes, of the whole table in one partition."""
    whole = max(table.n_records, k)
    return partitioned(table, k, partial(method, **options), whole, pulse=pulse).matches


def cell_loss(table: Microdata, originals: Iterable[int]) -> Fraction:
    """Loss of one cell: that of a class, of one of its records."""
    return ncp(table, originals)


def graph_loss(table: Microdata, matches: AnyIntArray) -> Fraction:
    """Loss of all cells."""
    return sum((cell_loss(table, set(row)) for row in matches.tolist()), Fraction(0))


def least_assignment(table: Microdata, matches: AnyIntArray) -> Fraction:
    """Loss after the best next round, over all assignments."""
    n = table.n_records
    best = None
    for assignment in permutations(range(n)):
        if all(assignment[j] not in matches[j] for j in range(n)):
            rows = np.column_stack([matches, assignment])
            loss = graph_loss(table, rows)
            best = loss if best is None else min(best, loss)
    assert best is not None
    return best


def least_graph(table: Microdata, k: int) -> Fraction:
    """Loss of the best k-regular graph, over all graphs with the identity."""
    n = table.n_records
    rows = [
        [(j, *rest) for rest in combinations(sorted({*range(n)} - {j}), k - 1)] for j in range(n)
    ]
    losses = [[cell_loss(table, row) for row in of_cell] for of_cell in rows]
    best: list[Fraction] = []

    def search(j: int, uses: tuple[int, ...], loss: Fraction) -> None:
        if best and loss >= best[0]:
            return
        if j == n:
            best[:] = [loss]
            return
        for row, added in zip(rows[j], losses[j], strict=True):
            after = list(uses)
            for original in row:
                after[original] += 1
            if max(after) <= k:
                search(j + 1, tuple(after), loss + added)

    search(0, (0,) * n, Fraction(0))
    return best[0]


def assert_valid(table: Microdata, matches: CodeArray, k: int) -> None:
    """k disjoint assignments, the identity first."""
    n = table.n_records
    assert matches.shape == (n, k)
    assert matches.dtype == np.int32
    assert np.array_equal(matches[:, 0], np.arange(n))
    for column in matches.T:
        assert np.array_equal(np.sort(column), np.arange(n))
    assert all(len(set(row)) == k for row in matches.tolist())
    assert verify_matching(matches, table, k, cells(table, matches)).holds
