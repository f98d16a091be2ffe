from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from kanon_db.algorithms.bucketization.multi_size import multi_size
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.errors import IneligibleError, InfeasibleError, InvalidParameterError


def privacy(*thresholds: str) -> FPrimePrivacy:
    return FPrimePrivacy(tuple(Fraction(threshold) for threshold in thresholds))


def test_an_empty_table() -> None:
    assert multi_size([], privacy(), 10).pairs == ()


def test_nothing_is_sensitive() -> None:
    assert multi_size([3, 4], privacy("1", "1"), 10).pairs == ((1, 7),)


def test_no_bucket_of_all_records_beyond_the_largest_size() -> None:
    """Where no two sizes will do, Algorithm 4 returns one bucket of the whole table."""
    thresholds = privacy("52/225", "139/450", "67/225", "109/450")
    with pytest.raises(InfeasibleError, match="at most two sizes"):
        multi_size([19, 26, 25, 20], thresholds, 20)


def test_refusals() -> None:
    with pytest.raises(IneligibleError):
        multi_size([3, 1], privacy("1/2", "1/2"), 4)
    with pytest.raises(InvalidParameterError, match="max_bucket_size"):
        multi_size([1, 1], privacy("1/2", "1/2"), 0)
    with pytest.raises(InvalidParameterError, match="for each sensitive value"):
        multi_size([1, 1, 1], privacy("1/2", "1/2"), 2)


def test_input_is_not_changed() -> None:
    counts = np.array([1, 3, 2, 6, 4, 4])
    multi_size(counts, privacy("11/50", "31/50", "21/50", "1", "41/50", "41/50"), 8)
    assert counts.tolist() == [1, 3, 2, 6, 4, 4]


@pytest.mark.parametrize("beats", [1, 5, 40])
def test_the_heartbeat_ends_the_search(beats: int) -> None:
    class CanceledError(BaseException):
        pass

    left = beats

    def heartbeat() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise CanceledError

    with pytest.raises(CanceledError):
        multi_size(
            [10, 30, 20, 60, 40, 40],
            privacy("11/50", "31/50", "21/50", "1", "41/50", "41/50"),
            8,
            pulse=Pulse(heartbeat=heartbeat),
        )
