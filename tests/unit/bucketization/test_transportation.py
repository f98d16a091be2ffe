from __future__ import annotations

import numpy as np
import pytest

from kanon_db.algorithms.bucketization.bucket_assignment import in_shares, transport
from kanon_db.algorithms.ground.computation import Pulse


def test_in_shares() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        weights = rng.integers(0, 9, size=6)
        total = int(rng.integers(0, weights.sum() + 1))
        shares = in_shares(total, weights)
        assert shares.sum() == total
        assert ((shares >= 0) & (shares <= weights)).all()
        assert (abs(shares * weights.sum() - total * weights) <= max(weights.sum(), 1)).all()


def test_in_shares_beyond_64_bits() -> None:
    assert in_shares(2**47, np.array([2**47, 2**47])).tolist() == [2**46, 2**46]


def hopeless(supplies: list[int], demands: list[int], capacities: list[list[int]]) -> bool:
    """Gale's criterion, for every set of supplies."""
    table = np.array(capacities)
    for chosen in range(1, 2 ** len(supplies)):
        members = [bool(chosen >> i & 1) for i in range(len(supplies))]
        taken = np.minimum(demands, table[members].sum(axis=0)).sum()
        if taken < np.array(supplies)[members].sum():
            return True
    return False


def test_all_is_sent_or_the_stranded_prove_that_it_cannot_be() -> None:
    rng = np.random.default_rng(7)
    n_solved = 0
    for _ in range(400):
        m, q = rng.integers(1, 6), rng.integers(1, 6)
        capacities = rng.integers(0, 5, size=(m, q))
        amounts = rng.integers(0, capacities + 1)
        supplies, demands = amounts.sum(axis=1), amounts.sum(axis=0)
        if rng.random() < 0.6:  # most of these have no solution
            demands = rng.multinomial(supplies.sum(), np.full(q, 1 / q))
        found = transport(supplies, demands, capacities)
        if found.stranded.any():
            taken = np.minimum(demands, capacities[found.stranded].sum(axis=0)).sum()
            assert taken < supplies[found.stranded].sum()
        else:
            n_solved += 1
            assert (found.amounts.sum(axis=1) == supplies).all()
            assert (found.amounts.sum(axis=0) == demands).all()
            assert ((found.amounts >= 0) & (found.amounts <= capacities)).all()
        assert found.stranded.any() == hopeless(
            supplies.tolist(), demands.tolist(), capacities.tolist()
        )
    assert 100 < n_solved < 350


def test_supplies_beyond_their_capacities() -> None:
    found = transport(np.array([3, 1]), np.array([2, 2]), np.array([[1, 1], [2, 2]]))
    assert found.stranded.tolist() == [True, False]


def test_demands_beyond_the_supplies() -> None:
    found = transport(np.array([1]), np.array([2, 2]), np.array([[1, 1]]))
    assert not found.stranded.any()
    assert found.amounts.sum() == 1


def test_the_heartbeat_ends_the_work() -> None:
    class StoppedError(BaseException):
        pass

    def heartbeat() -> None:
        raise StoppedError

    with pytest.raises(StoppedError):
        transport(np.array([1]), np.array([1]), np.array([[1]]), pulse=Pulse(heartbeat=heartbeat))
