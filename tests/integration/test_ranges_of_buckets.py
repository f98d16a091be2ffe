"""Which buckets a check of bitmaps compares: those whose numbers lie in some ranges."""

from __future__ import annotations

import pytest

from kanon_db.publications.buckets._derived_tables import _lies_in
from tests.integration.parties import Parties, value


@pytest.mark.parametrize(
    "ranges", [[(1, 9)], [(1, 3), (4, 9)], [(2, 2)], [(2, 3), (5, 5), (6, 7)], [(1, 1), (9, 9)]]
)
def test_ranges_of_buckets(parties: Parties, ranges: list[tuple[int, int]]) -> None:
    """A number is found in the ranges or not, whether they touch or not; none is in none."""
    inside = [number for low, high in ranges for number in range(low, high + 1)]
    found = value(
        parties.publisher,
        "SELECT array_agg(n ORDER BY n) FROM"
        f" (SELECT generate_series(-1, 12) AS n UNION ALL SELECT NULL) AS s"
        f" WHERE {_lies_in('n', ranges)}",
    )
    assert found == inside
