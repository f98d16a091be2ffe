"""COUNT(DISTINCT …): how many values occur, from how many records have each of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal

from kanon_db.counting.answers import Estimated


def count_distinct(
    values: Sequence[Estimated], total: Estimated, n_unlisted: int | None, n_apart: int = 0
) -> Estimated:
    """Count the values that occur.

    Parameters
    ----------
    values : sequence of Estimated
        How many records have each value that is listed.
    total : Estimated
        How many have any value, NULL not being one.
    n_unlisted : int or None
        How many records, at most, have a value that is not listed; None if none is listed.
    n_apart : int
        How many records are known that surely count and have values different from one another.

    Notes
    -----
    **Lower bound.** A value occurs that at least one record surely has. If the records that surely
    count are more than these values can take, the others take some of them: as few values as can
    hold the rest, the ones that most records may have. The values that are not listed are taken for
    one, which holds as many as there may be.

    **Upper bound.** No more values occur than may have a record, and no more than there are
    records.

    **Estimate.** With e records expected of the m that may have a value, as many independent draws
    miss it with probability (1 - e / m)^m. The error adds to the variance of these draws what the
    errors of all e come to if they go together, and half the number of values that may occur
    without being listed. If no value is listed, all that is known are the bounds: the estimate is
    their middle, the error half their distance.
    """
    surely = [one for one in values if (one.lower_bound or 0) >= 1]
    maybe = [_most(one) for one in values if (one.lower_bound or 0) < 1 <= _most(one)]
    rest = (total.lower_bound or 0) - sum(map(_most, surely))
    lower = len(surely)
    holders = sorted([*maybe, *([n_unlisted] if n_unlisted else [])], reverse=True)
    if n_unlisted is None:
        holders = [math.inf]
    for most in holders:
        if rest <= 0:
            break
        rest -= most
        lower += 1
    lower = max(lower, n_apart)
    upper = _most(total)
    n_more = 0.0
    if n_unlisted is not None:
        n_listed = len(surely) + len(maybe)
        upper = min(upper, n_listed + n_unlisted)
        n_more = max(upper - n_listed, 0)
    width = (upper - lower) / 2
    if n_unlisted is None:
        return Estimated(lower + width, width, lower, upper)
    chances = [_chance(one, 0) for one in values]
    variance = sum(chance * (1 - chance) for chance in chances)
    shift = sum(_chance(one, 1) - _chance(one, -1) for one in values) / 2
    error = min(math.sqrt(variance + shift * shift + (n_more / 2) ** 2), width)
    return Estimated(min(max(sum(chances), lower), upper), error, lower, upper)


def apart_ranges(ranges: Iterable[tuple[Decimal, Decimal]]) -> int:
    """Return how many ranges are the most of which no two have a value in common.

    Notes
    -----
    Taking the one that ends first, again and again, is optimal. Ranges that touch may both have the
    value at which they do.

    Examples
    --------
    >>> apart_ranges([(1, 5), (4, 9), (6, 7), (7, 20)])
    2
    """
    n, end = 0, None
    for high, low in sorted((high, low) for low, high in ranges):
        if end is None or low > end:
            n, end = n + 1, high
    return n


def apart_sets(sets: Iterable[Sequence[str]]) -> int:
    """Return of how many sets no two have an element in common: small ones first.

    Examples
    --------
    >>> apart_sets(["ab", "bcd", "dc", "a"])
    2
    """
    n, used = 0, set[str]()
    for elements in sorted(sets, key=lambda one: (len(one), one)):
        if used.isdisjoint(elements):
            n += 1
            used.update(elements)
    return n


def _most(count: Estimated) -> float:
    return count.upper_bound or 0


def _chance(count: Estimated, errors: int) -> float:
    """Return how likely a value occurs, if its count is off by so many errors."""
    most = _most(count)
    if (count.lower_bound or 0) >= 1 or most < 1:
        return float(most >= 1)
    expected = (count.estimate or 0) + errors * (count.std_error or 0)
    return 1.0 - math.pow(1 - min(max(expected / most, 0), 1), most)
