from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from kanon_db.algorithms.generalization import _class_search
from kanon_db.algorithms.generalization._class_search import (
    NO_LIMIT,
    CandidateClasses,
    ClassSearch,
    DistinctRecords,
    PairCuts,
    loss_of_pair,
)
from kanon_db.algorithms.generalization.set_partition import nearest_neighbor_duals
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse
from kanon_db.algorithms.recoding.loss import ExactLoss
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata, sort_order
from tests.unit.generalization.exhaustive import loss_of_class, random_microdata


def plain_reduced_costs(
    exact: ExactLoss, microdata: Microdata, order: IntArray, k: int, duals: IntArray, cuts: PairCuts
) -> dict[tuple[int, ...], int]:
    """Reduced costs of all classes, as sorted tuples of types."""
    types = DistinctRecords.of(exact, order)
    type_of_row = np.repeat(np.arange(types.copies.size), types.copies)
    found = {}
    for size in range(k, 2 * k):
        for rows in combinations(range(order.size), size):
            members = type_of_row[list(rows)]
            loss = loss_of_class(microdata, order[list(rows)].tolist(), "ncp") / exact.unit
            pairs = [np.isin(members, one).sum() // 2 for one in cuts.members]
            cost = int(loss) - int(duals[members].sum()) + int(np.dot(cuts.prices, pairs))
            found[tuple(members.tolist())] = cost
    return found


@pytest.fixture(params=["nc", "0cn", "cc"])
def problem(request: pytest.FixtureRequest) -> tuple[ExactLoss, Microdata, IntArray]:
    microdata = random_microdata(np.random.default_rng(3), 9, request.param, 3)
    return ExactLoss.of(microdata, "ncp"), microdata, sort_order(microdata)


@pytest.mark.parametrize("k", [2, 3])
def test_all_classes_below_a_limit_are_found(
    problem: tuple[ExactLoss, Microdata, IntArray], k: int
) -> None:
    exact, microdata, order = problem
    types = DistinctRecords.of(exact, order)
    n_types = types.copies.size
    random = np.random.default_rng(4)
    for _ in range(5):
        duals = random.integers(-1, 3 * types.largest_loss, size=n_types)
        members = np.array([random.permutation(n_types)[:3] for _ in range(4)])
        cuts = PairCuts.of(members, random.integers(0, types.largest_loss, size=4), n_types)
        expected = plain_reduced_costs(exact, microdata, order, k, duals, cuts)
        for limit in (NO_LIMIT, 0, -types.largest_loss):
            search = ClassSearch(types, k, duals, limit, cuts=cuts, capacity=5000, pulse=UNLIMITED)
            classes = search.all()
            assert classes is not None
            found = {
                tuple(sorted(row[row >= 0].tolist())): cost
                for row, cost in zip(classes.members, search.reduced_costs.tolist(), strict=True)
            }
            assert len(found) == len(classes)
            assert found == {key: cost for key, cost in expected.items() if cost < limit}


def test_the_best_classes_are_found(problem: tuple[ExactLoss, Microdata, IntArray]) -> None:
    exact, microdata, order = problem
    types = DistinctRecords.of(exact, order)
    duals = np.full(types.copies.size, types.largest_loss)
    none = PairCuts.none(types.copies.size)
    expected = sorted(plain_reduced_costs(exact, microdata, order, 2, duals, none).values())
    search = ClassSearch(types, 2, duals, capacity=types.copies.size + 8, pulse=UNLIMITED)
    assert len(search.best(5)) == 5
    assert sorted(search.reduced_costs.tolist()) == expected[:5]
    assert search.is_complete


def test_giving_up(monkeypatch: pytest.MonkeyPatch) -> None:
    microdata = random_microdata(np.random.default_rng(5), 40, "nnnn", 20)
    exact = ExactLoss.of(microdata, "ncp")
    types = DistinctRecords.of(exact, sort_order(microdata))
    duals = np.full(types.copies.size, 2 * types.largest_loss)

    def search(**options: object) -> ClassSearch:
        return ClassSearch(types, 4, duals, capacity=9000, **options)  # type: ignore[arg-type]

    by_quota = search(quota=10, pulse=UNLIMITED)
    assert 100 < len(by_quota.best(8000)) <= 8000
    assert not by_quota.is_complete
    too_many = search(pulse=UNLIMITED)
    assert too_many.all() is None
    monkeypatch.setattr(_class_search, "_LOSSES_PER_BEAT", 100)
    over = search(pulse=Pulse(0))
    over.best(10)
    assert not over.is_complete


def test_many_categories_need_more_than_one_word() -> None:
    codes = np.random.default_rng(6).permutation(np.repeat(np.arange(150), 2))[:, None]
    microdata = Microdata(codes, (Attribute(150),))
    exact = ExactLoss.of(microdata, "ncp")
    types = DistinctRecords.of(exact, sort_order(microdata))
    search = ClassSearch(types, 2, np.zeros(150, dtype=np.int64), 1, capacity=999, pulse=UNLIMITED)
    classes = search.all()
    assert classes is not None
    assert sorted(map(tuple, classes.members[:, :2].tolist())) == [(i, i) for i in range(150)]


def test_nearest_neighbor_duals_leave_no_negative_reduced_cost(
    problem: tuple[ExactLoss, Microdata, IntArray],
) -> None:
    exact, microdata, order = problem
    types = DistinctRecords.of(exact, order)
    for k in (2, 3, 4):
        duals = nearest_neighbor_duals(types, k)
        none = PairCuts.none(types.copies.size)
        costs = plain_reduced_costs(exact, microdata, order, k, duals, none)
        assert min(costs.values()) >= 0


def test_loss_of_pair(problem: tuple[ExactLoss, Microdata, IntArray]) -> None:
    exact, microdata, order = problem
    types = DistinctRecords.of(exact, order)
    first = np.append(0, np.cumsum(types.copies)[:-1])
    for t in range(types.copies.size):
        for u in range(types.copies.size):
            pair = order[first[[t, u]]].tolist()
            expected = loss_of_class(microdata, pair, "ncp") / 2 / exact.unit
            assert loss_of_pair(types, t, u) == expected


def test_classes_of_records() -> None:
    classes = CandidateClasses(
        np.array([[0, 2, -1], [0, 1, 1]]), np.array([2, 3]), np.zeros(2, dtype=np.int64)
    )
    assert classes.of_records().tolist() == [0, 1, 1, 1, 0]
