from __future__ import annotations

import pytest

from kanon_db.algorithms.bucketization.two_size import anatomy
from kanon_db.errors import IneligibleError, InvalidParameterError


def test_a_large_residue_is_spread_evenly() -> None:
    # 11 records, l = 4: two buckets, three records left over; Anatomy's sizes would be 4 and 5.
    assert anatomy([2, 2, 2, 2, 2, 1], 4).pairs == ((5, 1), (6, 1))
    assert anatomy([1] * 11, 6).pairs == ((11, 1),)


def test_ineligible() -> None:
    with pytest.raises(IneligibleError) as caught:
        anatomy([6, 3, 4], 3)
    error = caught.value
    assert error.detail == "l = 3; 1 of 3 sensitive values have more than 4 of 13 records"
    assert error.hint == "lower l to 2"


@pytest.mark.parametrize("l", [0, -2])
def test_range_of_l(l: int) -> None:
    with pytest.raises(InvalidParameterError, match="l must be at least 1"):
        anatomy([1, 1], l)
