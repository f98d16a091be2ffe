"""Cutting a table into parts from counts alone."""

from __future__ import annotations

import numpy as np
import pytest

from kanon_db.algorithms.generalization import CutTree, Domains, best_cut, mondrian
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata


@pytest.mark.parametrize("seed", range(60))
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
    domains, tree, left = Domains.of(attributes), CutTree(n), [0]
    while left:
        node = left.pop()
        inside = codes[tree.nodes_of(codes) == node]
        assert inside.shape[0] == tree.sizes[node]
        counts = [
            np.bincount(inside[:, j], minlength=attribute.n_values)
            for j, attribute in enumerate(attributes)
        ]
        cut = best_cut(domains, counts, k)
        if cut is not None:
            left += tree.cut(node, cut)
    place = {node: number for number, node in enumerate(tree.leaves)}
    found = [place[node] for node in tree.nodes_of(codes).tolist()]
    assert found == mondrian(Microdata(codes, attributes), k).class_of_record.tolist()


def test_a_cut_that_is_undone() -> None:
    tree = CutTree(4)
    codes = np.array([[0], [1], [2], [3]])
    cut = best_cut(Domains.of([Attribute(4)]), [np.ones(4, dtype=np.int64)], 2)
    assert cut is not None
    tree.cut(0, cut)
    assert len(tree.leaves) == 2
    tree.undo(0)
    assert tree.leaves == [0]
    assert tree.nodes_of(codes).tolist() == [0, 0, 0, 0]
