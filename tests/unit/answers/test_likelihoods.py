"""How far counts of rows may be off."""

from __future__ import annotations

import pytest

from kanon_db.answers.likelihoods import MOSTLY_SUPPRESSED, error_of_count


def test_parts_of_an_error_add_up_as_squares() -> None:
    assert error_of_count(9.0, 4.0, 12.0, 500.0, is_unknown=False) == pytest.approx(13)
    unknown = error_of_count(9.0, 4.0, 12.0, 500.0, is_unknown=True)
    assert unknown**2 == pytest.approx(169 + (MOSTLY_SUPPRESSED * 500) ** 2)
    assert error_of_count(9.0, 4.0, 12.0, 6.0, is_unknown=True) == 6


@pytest.mark.parametrize("is_unknown", [False, True])
def test_nothing_is_known_where_only_the_bounds_differ(is_unknown: bool) -> None:
    assert error_of_count(0.0, 0.0, 3.0, 10.0, is_unknown=is_unknown) == 10
    assert error_of_count(0.0, 0.0, 0.0, 0.0, is_unknown=is_unknown) == 0
