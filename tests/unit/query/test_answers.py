"""HAVING, ORDER BY and LIMIT on estimates."""

from __future__ import annotations

import json
import math
from dataclasses import astuple, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.answers.estimates import in_order, order_warning, within_limit
from kanon_db.query._bind import Scope
from kanon_db.query.check import check
from kanon_db.query.expressions import INTEGER, Column, Order, Query, RelationText
from kanon_db.query.formulas import (
    LIKELY,
    NOTHING,
    Estimated,
    Group,
    common_spelling,
    split_key,
    write_key,
)
from kanon_db.query.parse import parse_query

SCOPE = Scope(
    RelationText("published", "t"), {name: Column(name, name, INTEGER) for name in ("a", "b")}
)

# Values of a with their ranks (NULL comes last), counts and sums of b.
GROUPS = [
    (3, 1, 5.5, 10.0),
    (None, 2, 7.0, None),
    (1, 0, 5.5, -2.0),
]


def query(clauses: str) -> Query:
    return check(parse_query(f"SELECT a, COUNT(*), SUM(b) FROM t GROUP BY a {clauses}"), [SCOPE])


def keys(clauses: str) -> list[int | None]:
    groups = [
        Group(
            json.dumps({"a": value}),
            (rank,),
            (
                Estimated(count, 0.0, 0, 9),
                NOTHING if total is None else Estimated(total, 0.0, 0, 9),
            ),
        )
        for value, rank, count, total in GROUPS
    ]
    asked = query(clauses)
    return [json.loads(group.key)["a"] for group in within_limit(in_order(groups, asked), asked)]


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ("", [1, 3, None]), ("ORDER BY a", [1, 3, None]), ("ORDER BY a DESC", [None, 3, 1]),
        ("ORDER BY a NULLS FIRST", [None, 1, 3]), ("ORDER BY a DESC NULLS LAST", [3, 1, None]),
        ("ORDER BY COUNT(*)", [1, 3, None]), ("ORDER BY COUNT(*) DESC, a DESC", [None, 3, 1]),
        ("ORDER BY 2, a DESC", [3, 1, None]), ("ORDER BY SUM(b)", [1, 3, None]),
        ("ORDER BY SUM(b) DESC", [None, 3, 1]), ("LIMIT 2", [1, 3]), ("LIMIT 0", []),
        ("LIMIT 1 OFFSET 1", [3]), ("OFFSET 2", [None]), ("HAVING COUNT(*) > 6", [None]),
        ("HAVING COUNT(*) <= 5.5", [1, 3]), ("HAVING COUNT(*) = 5.5 AND SUM(b) <> 10", [1]),
        ("HAVING SUM(b) > 0", [3]), ("HAVING NOT SUM(b) > 0", [1]),
        ("HAVING SUM(b) > 0 OR COUNT(*) > 6", [3, None]), ("HAVING SUM(b) IS NULL", [None]),
        ("HAVING SUM(b) IS NOT NULL", [1, 3]), ("HAVING SUM(b) BETWEEN -2 AND 10", [1, 3]),
        ("HAVING SUM(b) NOT BETWEEN 0 AND 10", [1]),
        ("HAVING COUNT(*) * 2 - 1 >= 10 + -1 + SUM(b)", [1]),
        ("HAVING COUNT(*) > 5 ORDER BY SUM(b) NULLS FIRST LIMIT 2", [None, 1]),
    ],
)  # fmt: skip
def test_clauses(clauses: str, expected: list[int | None]) -> None:
    assert keys(clauses) == expected


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


ENDS = st.none() | st.floats(0, 1e9)


@given(st.floats(-1e9, 1e9), st.floats(0), ENDS, ENDS)
def test_the_likely_range_is_between_the_bounds(
    estimate: float, error: float, below: float | None, above: float | None
) -> None:
    low = None if below is None else estimate - below
    high = None if above is None else estimate + above
    found = Estimated(estimate, error, low, high)
    ends = (low, found.likely_low, estimate, found.likely_high, high)
    known = [end for end in ends if end is not None]
    assert known == sorted(known)
    if math.isfinite(LIKELY * error):
        least, most = estimate - LIKELY * error, estimate + LIKELY * error
        assert found.likely_low == (least if low is None else max(least, low))
        assert found.likely_high == (most if high is None else min(most, high))
    else:
        assert (found.likely_low, found.likely_high) == (low, high)


def test_what_is_exact_or_not_known_has_no_wider_range() -> None:
    exact = Estimated(7.0, 0.0, 7, 7)
    assert (exact.likely_low, exact.likely_high) == (7.0, 7.0)
    for unknown in (NOTHING, Estimated(None, None, 1, 9), Estimated(4.0, None, 1, 9)):
        assert (unknown.likely_low, unknown.likely_high) == (None, None)
    # Other bounds move the range with them.
    wide = Estimated(5.0, 1.0, 0, 20)
    assert replace(wide, lower_bound=4).likely_low == 4.0


def test_the_range_comes_after_what_there_was() -> None:
    names = ["estimate", "std_error", "lower_bound", "upper_bound", "likely_low", "likely_high"]
    assert [one.name for one in fields(Estimated)] == names
    assert astuple(Estimated(5.0, 1.0, 4, 20)) == (5.0, 1.0, 4, 20, 4.0, 5.0 + LIKELY)


def test_keys_keep_their_digits() -> None:
    values = {"a": "1.50", "b": '"x, \\"y\\": 2}"', "\u00e9": "null", "long": "[1]"}
    key = write_key(values, values.values())
    assert key == '{"a": 1.50, "b": "x, \\"y\\": 2}", "\u00e9": null, "long": [1]}'
    assert split_key(key) == values
    assert write_key(reversed(values), reversed(values.values())) == key


def test_equal_numbers_have_one_spelling() -> None:
    one, other = '{"a": 1.50, "b": 20}', '{"b": 20, "a": 1.5}'
    assert common_spelling(one) == common_spelling(other) != common_spelling('{"a": 1.5, "b": 2}')
    assert common_spelling('{"a": 1.0, "b": 2}', ["a"]) == common_spelling('{"a": 1}')
