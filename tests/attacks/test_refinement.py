"""What remains for someone who knows the method, against all source tables that there may be."""

from __future__ import annotations

from functools import partial

import pytest

from tests.attacks.refined import (
    CASES,
    SMALL,
    Deduce,
    Publication,
    Publish,
    along_matches,
    in_turn,
    leave,
    matched,
    publications,
    tight,
    with_patterns,
)

ROUNDING = 1e-9
DEDUCE = {name: case.deduce for name, case in CASES.items()}
FEWER = {"generalized, optimal", "generalized, greedy_search, refined",
         "suppressed, greedy, in an order that is drawn", "freeform, sort_greedy, not refined",
         "freeform, sort_greedy", "freeform, ring", "freeform, k_concealment"}  # fmt: skip
ONLY_LONG = {"suppressed, optimal", "freeform, optimal", "freeform, sort_greedy, k = 3"}
SHORT = {name: 3 if name in FEWER else 4 for name in DEDUCE if name not in ONLY_LONG}
"""How many records tables have where all of them are published in a second or two."""


def check(found: list[Publication], deduce: Deduce) -> None:
    """The attack leaves all that there is, and less than the cells do."""
    gained = 0.0
    for one in found:
        left = leave(one, deduce)
        assert left.within == pytest.approx(one.within)
        assert one.exact - ROUNDING <= left.remaining <= left.within + ROUNDING
        assert (left.n_cells, left.n_rows) == (one.n_cells, len(one.rows))
        assert left.n_known <= one.n_known
        gained += left.within - left.remaining
    assert gained > 0


@pytest.mark.pitfall(14)
@pytest.mark.parametrize("name", SHORT)
def test_refinement_leaves_every_table_that_the_rows_can_be_of(name: str) -> None:
    """The method runs on every small table, and each of the records may be where it is."""
    case = CASES[name]
    check(publications(case.publish, SHORT[name], case.domain), DEDUCE[name])


@pytest.mark.long
@pytest.mark.parametrize("name", [n for n in DEDUCE if CASES[n].n_records != SHORT.get(n)])
def test_refinement_leaves_every_larger_table_that_the_rows_can_be_of(name: str) -> None:
    case = CASES[name]
    check(publications(case.publish, case.n_records, case.domain), DEDUCE[name])


@pytest.mark.parametrize(
    ("publish", "deduce"),
    [
        pytest.param(with_patterns("optimal"), in_turn, id="patterns were not tried in turn"),
        pytest.param(with_patterns("optimal"), tight, id="what is suppressed is not tight"),
        pytest.param(along_matches("ring"), partial(matched, k=3), id="two rows match"),
    ],
)
def test_what_does_not_follow_from_a_method_is_noticed(publish: Publish, deduce: Deduce) -> None:
    with pytest.raises(AssertionError):
        check(publications(publish, 3, SMALL), deduce)
