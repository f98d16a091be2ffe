from __future__ import annotations

import numpy as np
import pytest

from kanon_db.algorithms.generalization import set_partition
from kanon_db.algorithms.generalization._class_search import NO_LIMIT, CandidateClasses
from kanon_db.algorithms.generalization.set_partition import CoverSearch
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse


def random_classes(random: np.random.Generator, n_types: int, n_classes: int) -> CandidateClasses:
    """Different classes of two or three records, some of which are of one type."""
    found = set()
    while len(found) < n_classes:
        members = sorted(random.integers(0, n_types, size=random.integers(2, 4)).tolist())
        found.add(tuple(members + [-1] * (3 - len(members))))
    members = np.array(sorted(found))
    return CandidateClasses(
        members, (members >= 0).sum(axis=1), random.integers(3, 50, size=n_classes)
    )


def least_loss(classes: CandidateClasses, copies: IntArray) -> int | None:
    """Least loss of classes that hold every record once."""
    counts = np.array(
        [np.bincount(one[one >= 0], minlength=copies.size) for one in classes.members]
    )

    def least(left: IntArray, first: int) -> int | None:
        if not left.any():
            return 0
        found = [
            int(classes.losses[i]) + rest
            for i in range(first, len(classes))
            if (counts[i] <= left).all() and (rest := least(left - counts[i], i)) is not None
        ]
        return min(found, default=None)

    return least(copies, 0)


@pytest.mark.parametrize("most_copies", [1, 3])
def test_the_least_loss_of_all_partitions_is_found(most_copies: int) -> None:
    n_found = 0
    for seed in range(60):
        random = np.random.default_rng(seed)
        classes = random_classes(random, 6, 24)
        copies = random.integers(1, most_copies + 1, size=6)
        expected = least_loss(classes, copies)
        # Some of each loss lies in the bound, as if from duals of 1 for each record.
        bound = int(copies.sum())
        search = CoverSearch(
            classes, classes.losses - classes.sizes, copies, bound, NO_LIMIT,
            pulse=UNLIMITED,
        )  # fmt: skip
        assert search.run()
        if expected is None:
            assert search.best is None
            continue
        n_found += 1
        assert search.best is not None
        assert search.best.losses.sum() == expected
        taken = search.best.members
        assert np.array_equal(np.bincount(taken[taken >= 0], minlength=6), copies)
        for limit, is_found in ((expected, False), (expected + 1, True)):
            again = CoverSearch(
                classes, np.zeros(24, dtype=np.int64), copies, 0, limit, pulse=UNLIMITED
            )
            assert again.run()
            assert (again.best is not None) == is_found
    assert n_found > 10


def test_the_reduced_costs_may_be_less_than_the_loss() -> None:
    # As where inequalities have prices: the best by reduced costs, 1 + 1, loses more.
    classes = CandidateClasses(
        np.array([[0, 1], [2, 3], [0, 2], [1, 3]]), np.full(4, 2), np.array([9, 9, 2, 2])
    )
    copies = np.ones(4, dtype=np.int64)
    search = CoverSearch(classes, np.array([1, 1, 2, 2]), copies, 0, NO_LIMIT, pulse=UNLIMITED)
    assert search.run()
    assert search.best is not None
    assert sorted(search.best.members.tolist()) == [[0, 2], [1, 3]]


def test_stopping(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    classes = random_classes(random, 30, 400)
    monkeypatch.setattr(set_partition, "_VISITS_PER_BEAT", 1000)
    beats = 0

    class ThreeBeats(Pulse):
        @property
        def is_over(self) -> bool:
            return beats == 3

    def beat() -> None:
        nonlocal beats
        beats += 1

    def search(pulse: Pulse) -> CoverSearch:
        none = np.zeros(400, dtype=np.int64)
        return CoverSearch(classes, none, np.ones(30, dtype=np.int64), 0, NO_LIMIT, pulse=pulse)

    assert not search(ThreeBeats(heartbeat=beat)).run()
    assert beats == 3

    def stop() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        search(Pulse(heartbeat=stop)).run()
