from __future__ import annotations

import numpy as np

from kanon_db.algorithms.generalization._class_search import CandidateClasses, DistinctRecords
from kanon_db.algorithms.generalization.set_partition import RestrictedMaster
from kanon_db.algorithms.ground.computation import UNLIMITED


def types_of(copies: list[int], whole: int) -> DistinctRecords:
    n_types = len(copies)
    return DistinctRecords(
        np.arange(n_types)[:, None], np.array(copies), np.array([True]), np.array([whole]),
        np.zeros((1, 1), dtype=np.int64),
    )  # fmt: skip


def triangle() -> CandidateClasses:
    """Each two of three records, dear with the others: all pairs are half chosen."""
    members = np.array([[0, 1, -1], [0, 2, -1], [1, 2, -1], [0, 1, 2], [3, 4, 5], [3, 4, -1]])
    return CandidateClasses(members, (members >= 0).sum(axis=1), np.array([2, 2, 2, 60, 60, 10]))


def test_duals_price_records_and_pairs() -> None:
    types = types_of([1, 1, 1, 1, 1, 1], 100)
    master = RestrictedMaster(types, 2)
    classes = triangle()
    assert master.add(classes)
    duals = master.solve(UNLIMITED)
    # Three halves of 2, and the last three records at 60.
    assert duals.bound(types.copies, 3) == 63
    assert duals.cuts.worth(types.copies) == 0
    assert master.add_cuts()
    priced = master.solve(UNLIMITED)
    # At most one of the pairs: all three records are in one class.
    assert priced.bound(types.copies, 3) == 120
    assert priced.cuts.members.tolist() == [[0, 1, 2]]
    for row, loss in zip(classes.members, classes.losses, strict=True):
        members = row[row >= 0]
        pairs = np.isin(members, priced.cuts.members).sum() // 2
        price = priced.price + priced.cuts.prices.sum() * pairs
        assert loss + price - priced.types[members].sum() >= 0
    assert not master.add_cuts()


def test_sets_with_an_even_number_of_records_say_nothing() -> None:
    master = RestrictedMaster(types_of([2, 1, 1, 1, 1, 1], 100), 2)
    master.add(triangle())
    master.solve(UNLIMITED)
    assert not master.add_cuts()


def test_only_new_classes_are_added() -> None:
    master = RestrictedMaster(types_of([1] * 6, 100), 2)
    assert master.add(triangle())
    assert len(master) == 6
    assert not master.add(triangle().take(np.array([1, 4])))
    assert len(master) == 6
