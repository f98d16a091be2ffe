"""Whether the order of groups is more than chance, where only the first of them are asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from kanon_db.counting.answers import Estimated, Group
from kanon_db.counting.checking.query import Query

_MOST_NAMED: Final = 5


def order_warning(
    groups: Sequence[Group], query: Query, heartbeat: Callable[[], None] = lambda: None
) -> str:
    """Say which neighbours could as well stand in another order; empty if there are none.

    Parameters
    ----------
    groups : sequence of Group
        All groups in their order, also those that LIMIT and OFFSET leave out.
    query : Query
    heartbeat : callable, optional

    Notes
    -----
    Only where LIMIT or OFFSET takes a part of groups that are ordered by an estimate: this part is
    read as a ranking. The first and the last group returned are compared with those left out, too.
    """
    if not any(one.measure is not None for one in query.order):
        return ""
    if query.limit is None and not query.offset:
        return ""
    first = query.offset
    end = len(groups) if query.limit is None else min(first + query.limit, len(groups))
    found = []
    n_compared = 0
    for place in range(max(first, 1), min(end + 1, len(groups)) if first < end else 0):
        if place % 16 == 0:
            heartbeat()
        n_compared += 1
        if is_unsure(groups[place - 1], groups[place], query):
            found.append(place)
    if not found:
        return ""
    named = ", ".join(f"{place} and {place + 1}" for place in found[:_MOST_NAMED])
    more = ", ..." if len(found) > _MOST_NAMED else ""
    cut = f"; LIMIT leaves out those after place {end}" if end < len(groups) else ""
    return (
        f"the order of the groups is uncertain: {len(found)} of {n_compared} neighbours differ by"
        f" no more than their standard errors (places {named}{more}{cut})"
    )


def is_unsure(one: Group, other: Group, query: Query) -> bool:
    """Whether two groups differ by no more than the errors of the estimates that order them.

    Examples
    --------
    >>> from kanon_db.counting.checking.query import Order
    >>> by_count = Query(None, (), (), order=(Order(None, 0, False, False),))
    >>> few, many = (Group("{}", (), (Estimated(n, 2, n - 5, n + 5),)) for n in (10, 12))
    >>> is_unsure(few, many, by_count)
    True
    """
    for order in query.order:
        if order.measure is None:
            place = order.key or 0
            if one.ranks[place] != other.ranks[place]:
                return False
            continue
        a, b = one.estimates[order.measure], other.estimates[order.measure]
        if a.estimate is None or b.estimate is None:
            return False  # these stand apart, at one end
        if _is_exact(a) and _is_exact(b):
            if a.estimate != b.estimate:
                return False
            continue
        if _below(a, b) or _below(b, a):
            return False
        if a.std_error is None or b.std_error is None:
            return True
        return abs(a.estimate - b.estimate) <= math.hypot(a.std_error, b.std_error)
    return False


def _is_exact(answer: Estimated) -> bool:
    return answer.lower_bound is not None and answer.lower_bound == answer.upper_bound


def _below(one: Estimated, other: Estimated) -> bool:
    if one.upper_bound is None or other.lower_bound is None:
        return False
    return one.upper_bound < other.lower_bound
