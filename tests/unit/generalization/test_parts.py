"""Cutting a table into parts from counts alone."""

from __future__ import annotations

import numpy as np
import pytest

from kanon_db.algorithms.generalization import (
    CutDomains,
    PartTree,
    gap_cut,
    median_cut,
    mondrian,
)
from kanon_db.algorithms.recoding.loss import Ncp
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata


@pytest.mark.parametrize("seed", range(6))
def test_cuts_are_those_of_mondrian(seed: int) -> None:
    """A table that is cut until nothing can be cut has the same classes."""
    random = np.random.default_rng(seed)
    n, k = int(random.integers(6, 200)), int(random.integers(1, 6))
    numbers = np.sort(random.choice(1000, 20, replace=False)).astype(float)
    lower, upper = numbers[0], numbers[-2]
    numbers[-1] = np.nan
    attributes = (
        Attribute(20, numbers=numbers, lower=lower, upper=upper), Attribute(7, weight=2.0),
        Attribute(3),
    )  # fmt: skip
    codes = np.column_stack([
        random.integers(0, 20, n), np.minimum(random.geometric(0.4, n) - 1, 6),
        random.integers(0, 3, n),
    ])  # fmt: skip
    domains, tree, left = CutDomains.of(attributes), PartTree(n), [0]
    while left:
        node = left.pop()
        inside = codes[tree.nodes_of(codes) == node]
        assert inside.shape[0] == tree.sizes[node]
        counts = [
            np.bincount(inside[:, j], minlength=attribute.n_values)
            for j, attribute in enumerate(attributes)
        ]
        cut = median_cut(domains, counts, k)
        left += [] if cut is None else tree.cut(node, cut)
    place = {node: number for number, node in enumerate(tree.leaves)}
    found = [place[node] for node in tree.nodes_of(codes).tolist()]
    assert found == mondrian(Microdata(codes, attributes), k).class_of_record.tolist()


@pytest.mark.parametrize("seed", range(8))
def test_gaps_are_the_widest(seed: int) -> None:
    """No cut that leaves enough on both sides is between values that lie further apart."""
    random = np.random.default_rng(seed)
    n, least = 80, 10
    numbers = np.append(np.sort(random.choice(100, 8, replace=False)).astype(float), np.nan)
    attributes = (
        Attribute(9, numbers=numbers, lower=numbers[0], upper=numbers[7], weight=0.5),
        Attribute(int(random.integers(2, 9))),
    )
    codes = np.column_stack([random.integers(0, one.n_values, n) for one in attributes])
    domains = CutDomains.of(attributes)

    def crossing(j: int, last: int) -> float:
        """What a class loses that has the values on either side."""
        there = np.unique(codes[:, j])
        place = int(np.flatnonzero(there == last)[0])
        both = np.zeros((2, 2), dtype=np.int64)
        both[:, j] = there[place : place + 2]
        return float(Ncp.of(Microdata(both, attributes)).total([0, 0]))

    allowed = {
        (j, int(last)): crossing(j, int(last))
        for j in range(2)
        for last in np.unique(codes[:, j])
        if least <= np.count_nonzero(codes[:, j] <= last) <= n - least
    }
    counts = [np.bincount(codes[:, j], minlength=one.n_values) for j, one in enumerate(attributes)]
    cut = gap_cut(domains, counts, 3)
    assert cut is not None
    assert allowed[cut.attribute, cut.last] == pytest.approx(max(allowed.values()))
    assert cut.n_lower == np.count_nonzero(codes[:, cut.attribute] <= cut.last)


def test_without_a_gap_it_is_the_median() -> None:
    """Where no cut leaves an eighth of the records, or k of them, on both sides."""
    age = Attribute(3, numbers=np.array([20.0, 30, 90]), lower=20, upper=90)
    domains = CutDomains.of([age])
    counts = [np.array([2, 97, 1])]
    assert gap_cut(domains, counts, 2) == median_cut(domains, counts, 2)
    assert gap_cut(domains, counts, 3) is None
    assert gap_cut(domains, [np.array([0, 5, 0])], 1) is None
