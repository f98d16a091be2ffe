"""A warning where the order of groups is within the errors of their estimates."""

from __future__ import annotations

import pytest

from kanon_db.answers.estimates import order_warning
from kanon_db.query.expressions import Order, Query
from kanon_db.query.formulas import NOTHING, Estimated, Group

BY_COUNT, BY_KEY = Order(None, 0, True, False), Order(0, None, False, False)


def count(n: float, error: float = 1.0, width: float = 9.0) -> Estimated:
    return Estimated(n, error, n - width, n + width)


def warning(
    *counts: Estimated,
    limit: int | None = 2,
    offset: int = 0,
    order: tuple[Order, ...] = (BY_COUNT,),
) -> str:
    groups = [Group("{}", (place,), (one,)) for place, one in enumerate(counts)]
    return order_warning(groups, Query(None, (), (), None, order, limit, offset))


CLOSE = (count(9), count(8), count(5), count(4.5), count(1))


def test_neighbours_and_the_cut_are_compared() -> None:
    assert "1 of 2 neighbours" in warning(*CLOSE)
    assert "(places 1 and 2; LIMIT leaves out those after place 2)" in warning(*CLOSE)
    assert "2 of 3 neighbours" in warning(*CLOSE, limit=3)
    assert "(places 1 and 2, 3 and 4; LIMIT" in warning(*CLOSE, limit=3)
    assert "(places 3 and 4)" in warning(*CLOSE, limit=None, offset=3)
    assert "1 of 1 neighbours" in warning(*CLOSE, limit=1)


@pytest.mark.parametrize(
    ("counts", "given"),
    [
        (CLOSE, {"limit": None}),
        (CLOSE, {"limit": 0}),
        (CLOSE, {"offset": 5}),
        (CLOSE, {"order": (BY_KEY,)}),
        (CLOSE, {"order": ()}),
        ((count(9), count(2)), {}),
        ((count(9, 9, 0.1), count(8, 9, 0.1)), {}),  # bounds do not overlap
        ((count(9, 0, 0), count(9, 0, 0)), {}),  # both are certain
        ((count(9), NOTHING), {}),
        ((), {}),
    ],
)
def test_no_warning(counts: tuple[Estimated, ...], given: dict[str, object]) -> None:
    assert not warning(*counts, **given)  # type: ignore[arg-type]


def test_where_no_error_is_known_overlapping_bounds_are_enough() -> None:
    one, other = Estimated(9, None, 5, 10), Estimated(6, None, None, 7)
    assert "1 of 1" in warning(one, other)


def test_many_places_are_not_all_named() -> None:
    assert "5 and 6, ..." in warning(*(count(9) for _ in range(9)), limit=9)
