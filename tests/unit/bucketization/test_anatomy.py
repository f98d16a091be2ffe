from __future__ import annotations

import pytest

from kanon_db.algorithms.bucketization.two_size import anatomy
from kanon_db.errors import IneligibleError, InvalidParameterError


def test_sizes_l_and_l_plus_1() -> None:
    assert anatomy([40, 30, 33], 2).pairs == ((2, 50), (3, 1))


def test_no_residue() -> None:
    assert anatomy([5, 5, 5], 3).pairs == ((3, 5),)


def test_a_large_residue_is_spread_evenly() -> None:
    # 11 records, l = 4: two buckets, three records left over; Anatomy's sizes would be 4 and 5.
    assert anatomy([2, 2, 2, 2, 2, 1], 4).pairs == ((5, 1), (6, 1))
    assert anatomy([1] * 11, 6).pairs == ((11, 1),)


def test_every_record_its_own_bucket() -> None:
    assert anatomy([3, 2], 1).pairs == ((1, 5),)


def test_an_empty_table() -> None:
    assert anatomy([], 3).pairs == ()


def test_ineligible() -> None:
    with pytest.raises(IneligibleError) as caught:
        anatomy([6, 3, 4], 3)
    error = caught.value
    assert error.detail == "l = 3; 1 of 3 sensitive values have more than 4 of 13 records"
    assert error.hint == "lower l to 2"


def test_the_frequency_bound_itself_is_eligible() -> None:
    assert anatomy([4, 4, 4], 3).pairs == ((3, 4),)


@pytest.mark.parametrize("l", [0, -2])
def test_range_of_l(l: int) -> None:
    with pytest.raises(InvalidParameterError, match="l must be at least 1"):
        anatomy([1, 1], l)
