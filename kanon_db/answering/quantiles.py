"""MIN, MAX and percentiles: a search among the values for where enough records are below."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kanon_db.answering.opened import OpenQuery
from kanon_db.counting import expressions as ex
from kanon_db.counting.answers import NOTHING, Estimated
from kanon_db.counting.checking import Measure, Query
from kanon_db.counting.layout import BucketLayout
from kanon_db.counting.quantiles import Quantile, Sides, answer, between
from kanon_db.counting.sides import chosen_by
from kanon_db.counting.writing.cell_values import is_vague

MOST_COUNTS: Final = 120
"""The most counts that one aggregate is made from: after these, bounds are as they were found."""

MOST_CHEAP: Final = 2_000
"""The same, of counts that take no statement."""

_FIRST_COUNTS: Final = 16
"""How many values are counted at first, if there are many groups."""

_ZERO: Final = Estimated(0.0, 0.0, 0, 0)
_CLOSE: Final = 1e-9

Counts = dict[str, Estimated]
"""The answer for each group."""


def below(
    query: Query, aggregate: ex.Aggregate, operator: ex.ComparisonOperator, rung: str
) -> Query:
    """Count the records of each group whose value compares like that with a constant."""
    if aggregate.operand is None or aggregate.type is None:
        raise TypeError("a percentile is that of something")
    chosen = chosen_by(query, aggregate)
    constant = ex.Constant(rung, aggregate.type)
    parts = [*([] if chosen is None else [chosen])]
    parts.append(ex.Comparison(operator, aggregate.operand, constant))
    count = Measure("", ex.Aggregate("count", None))
    return Query(ex.joined(ex.And, parts), query.keys, (count,), listed=(0,))


@dataclass(frozen=True, slots=True)
class Ladder:
    """Values in their order: all that there may be from one to another, or some of them."""

    rungs: list[str]
    places: list[float]
    is_complete: bool
    is_whole: bool

    def at(self, number: int) -> Rung | None:
        """Return a value; None beyond either end."""
        if 0 <= number < len(self.rungs):
            return Rung(self.rungs[number], self.places[number])
        return None


@dataclass(frozen=True, slots=True)
class Rung:
    """A value, as text and as a number."""

    text: str
    place: float


_Test = Callable[[Ladder, int], float | None]
"""A number that is not negative where something holds, and never falls from rung to rung; None if
it is not known."""


class Search:
    """Finds one percentile, for all groups.

    Parameters
    ----------
    opened : OpenQuery
    aggregate : Aggregate
    count : callable
        Counts the records of each group whose value compares like that with a constant.
    totals : Counts
        How many records have a value.
    most : int
        How many counts it may take.
    """

    def __init__(
        self,
        opened: OpenQuery,
        aggregate: ex.Aggregate,
        count: Callable[[ex.ComparisonOperator, str], Counts],
        totals: Counts,
        most: int = MOST_COUNTS,
    ) -> None:
        self._opened = opened
        self._aggregate = aggregate
        self._count = count
        self._totals = totals
        self._quantile = Quantile(aggregate.share or 0.0, aggregate.function == "cont")
        self._known: dict[tuple[str, str], Counts] = {}
        self._left = min(most, opened.limits.n_answers // (len(totals) + 1))
        layout, names = opened.layout, ex.attributes(aggregate.operand)
        cells = [] if isinstance(layout, BucketLayout) else [layout.cells[n] for n in names]
        self._is_known = not any(map(is_vague, cells))
        self._is_between = any(cell.kind == "range" for cell in cells)
        self._ladders: dict[tuple[str | None, str | None], Ladder] = {}

    def answers(self) -> Counts:
        """Answer for each group."""
        if len(self._totals) > 1:
            rungs = self._ladder(None, None).rungs
            step = max(len(rungs) // _FIRST_COUNTS, 1)
            for rung in rungs[step // 2 :: step]:
                self._at("<=", rung)
        return {group: self._answer(group, total) for group, total in self._totals.items()}

    # -- one group ----------------------------------------------------------------------------

    def _answer(self, group: str, total: Estimated) -> Estimated:
        self._opened.session.heartbeat()
        if not total.upper_bound or not self._ladder(None, None).rungs:
            return NOTHING
        low, high = self._bounds(group, total)
        if low is not None and low == high:
            return answer(low, 0.0, low, high)
        return answer(*self._estimate(group, total), low, high)

    def _bounds(self, group: str, total: Estimated) -> tuple[float | None, float | None]:
        quantile, n = self._quantile, total.lower_bound or 0
        first, last = quantile.first(n), quantile.last(n)
        if n != total.upper_bound or first == last:
            return (
                self._greatest(group, total, lambda sides: sides.too_many(quantile)),
                self._least(group, total, lambda sides: sides.enough(quantile)),
            )
        # The ranks of both neighbours are known: each has bounds of its own.
        lows = (
            self._greatest(group, total, lambda sides: sides.too_many_for(first)),
            self._greatest(group, total, lambda sides: sides.too_many_for(last)),
        )
        highs = (
            self._least(group, total, lambda sides: sides.enough_for(first)),
            self._least(group, total, lambda sides: sides.enough_for(last)),
        )
        low, high = (
            None if one is None or other is None else between(one, other, quantile.part(n))
            for one, other in (lows, highs)
        )
        return low, high

    def _greatest(
        self, group: str, total: Estimated, too_many: Callable[[Sides], float]
    ) -> float | None:
        """Return the greatest value below which there are not too many records."""

        def test(ladder: Ladder, number: int) -> float | None:
            sides = self._less(group, total, ladder, number)
            return None if sides is None else too_many(sides)

        before, _ = self._first(test)
        return None if before is None else before.place

    def _least(
        self, group: str, total: Estimated, enough: Callable[[Sides], float]
    ) -> float | None:
        """Return the least value up to which there are enough records."""

        def test(ladder: Ladder, number: int) -> float | None:
            sides = self._up_to(group, total, ladder.rungs[number])
            return None if sides is None else enough(sides)

        _, found = self._first(test)
        return None if found is None else found.place

    # -- the estimate -------------------------------------------------------------------------

    def _estimate(self, group: str, total: Estimated) -> tuple[float | None, float | None]:
        """Estimate the value, and its error from that of how many records are below it.

        Woodruff (1952): the values at which one error less, and one more, are expected below. They
        are read off what is counted already: on straight lines if there are values in between,
        and otherwise at the next value outwards.
        """
        n, quantile = round(total.estimate or 0, 9), self._quantile
        if n <= 0:
            return None, None
        ends, width = [], 0.0
        for rank in dict.fromkeys((quantile.first(n), quantile.last(n))):
            target = rank - 0.5
            if target >= n:
                target = n * min(max(quantile.share, 0.05), 0.95)
            value, step, rung = self._expected(group, target)
            ends.append(value)
            off = max(self._error_below(group, total, rung), 1.0)  # a rank is a whole number
            low, high = (self._near(group, target + sign * off, sign) for sign in (-1, 1))
            width = max(width, high - low, step)
        return between(ends[0], ends[-1], quantile.part(n)), width / 2

    def _expected(self, group: str, target: float) -> tuple[float, float, str]:
        """Return the value up to which so many records are expected, the step to it, its rung."""

        def test(ladder: Ladder, number: int) -> float | None:
            counts = self._at("<=", ladder.rungs[number])
            if counts is None:
                return None
            return (counts.get(group, _ZERO).estimate or 0) - (target - _CLOSE)

        before, found = self._first(test)
        if found is None:  # less are expected altogether
            found = self._ladder(None, None).at(len(self._ladder(None, None).rungs) - 1)
        if found is None:
            raise TypeError("there is no value")
        if before is None:
            return found.place, 0.0, found.text
        step = max(found.place - before.place, 0)
        if not self._is_between or not math.isfinite(step):
            return found.place, step, found.text
        less, more = (
            (self._at("<=", rung.text) or {}).get(group, _ZERO).estimate or 0
            for rung in (before, found)
        )
        part = (target - less) / (more - less) if more > less else 1
        place = between(before.place, found.place, min(max(part, 0), 1))
        is_whole = self._aggregate.type is not None and self._aggregate.type.category == "integer"
        if is_whole:
            return float(math.ceil(place)), 1.0, found.text
        return place, 0.0, found.text

    def _near(self, group: str, target: float, sign: int) -> float:
        """Return about the value up to which so many are expected."""
        known = sorted(
            (float(rung), counts.get(group, _ZERO).estimate or 0)
            for (operator, rung), counts in self._known.items()
            if operator == "<="
        )
        before = None
        for place, n in known:
            if n >= target - _CLOSE:
                if before is None or n <= before[1]:
                    return place
                if not self._is_between and self._ladder(None, None).is_complete:
                    return place if sign > 0 else before[0]
                part = min(max((target - before[1]) / (n - before[1]), 0), 1)
                return between(before[0], place, part)
            before = (place, n)
        return known[-1][0] if known else math.nan

    def _error_below(self, group: str, total: Estimated, rung: str) -> float:
        """Return by how many records the result's place among the others may be off."""
        below = (self._at("<=", rung) or {}).get(group, _ZERO).std_error or 0
        if total.lower_bound == total.upper_bound:
            return below
        above = (self._at(">", rung) or {}).get(group, _ZERO).std_error or 0
        share = self._quantile.share
        return (1 - share) * below + share * above

    # -- counts -------------------------------------------------------------------------------

    def _first(self, test: _Test) -> tuple[Rung | None, Rung | None]:
        """Search for where a test begins to hold: the last rung before that, and the first after.

        They are neighbours, unless the test does not know more.
        """
        before = after = None
        ladder = self._ladder(None, None)
        while True:
            low, high = self._narrowed(test, ladder)
            before, after = ladder.at(low) or before, ladder.at(high) or after
            if ladder.is_complete or high - low > 1:
                return before, after
            ladder = self._ladder(before and before.text, after and after.text)

    @staticmethod
    def _narrowed(test: _Test, ladder: Ladder) -> tuple[int, int]:
        """Search by turns where the number would be 0 on a straight line, and in the middle."""
        low, high = -1, len(ladder.rungs)
        at_low = at_high = math.nan
        is_turn = True
        while high - low > 1:
            number = (low + high) // 2
            if is_turn and at_low < 0 < at_high:
                number = round(low - at_low / (at_high - at_low) * (high - low))
                number = min(max(number, low + 1), high - 1)
            is_turn = not is_turn
            found = test(ladder, number)
            if found is None:  # no more counts: only those that are known already
                known = ((i, test(ladder, i)) for i in range(low + 1, high))
                number, found = next(((i, one) for i, one in known if one is not None), (0, None))
            if found is None:
                break
            if found >= 0:
                high, at_high = number, found
            else:
                low, at_low = number, found
        return low, high

    def _up_to(self, group: str, total: Estimated, rung: str) -> Sides | None:
        """Return what is known of the records up to a value, and above it."""
        return self._sides(group, total, self._at("<=", rung), lambda: self._at(">", rung))

    def _less(self, group: str, total: Estimated, ladder: Ladder, number: int) -> Sides | None:
        """Return what is known of the records below a value, and of the others."""
        if self._is_known and ladder.is_complete:
            if number:
                return self._up_to(group, total, ladder.rungs[number - 1])
            if ladder.is_whole:
                least, most = total.lower_bound or 0, total.upper_bound or 0
                return Sides(least, most, (0, 0), (least, most))
        rung = ladder.rungs[number]
        return self._sides(group, total, self._at("<", rung), lambda: self._at(">=", rung))

    @staticmethod
    def _sides(
        group: str, total: Estimated, below: Counts | None, others: Callable[[], Counts | None]
    ) -> Sides | None:
        if below is None:
            return None
        least, most = total.lower_bound or 0, total.upper_bound or 0
        one = _ends(below.get(group, _ZERO))
        if least == most:
            return Sides(least, most, one, (least - one[1], least - one[0]))
        above = others()
        return None if above is None else Sides(least, most, one, _ends(above.get(group, _ZERO)))

    def _at(self, operator: ex.ComparisonOperator, rung: str) -> Counts | None:
        """Count the records of each group whose value compares like that; None if no more may."""
        found = self._known.get((operator, rung))
        if found is None and self._left > 0:
            self._left -= 1
            found = self._count(operator, rung)
            self._known[operator, rung] = found
        return found

    def _ladder(self, above: str | None, below_: str | None) -> Ladder:
        """Read the values between two."""
        if (above, below_) not in self._ladders:
            rows = self._opened.rungs(self._aggregate, above, below_)
            self._ladders[above, below_] = Ladder(
                [row["rung"] for row in rows],
                [float(row["place"]) for row in rows],
                not rows or rows[0]["n"] <= len(rows),
                above is None and below_ is None,
            )
        return self._ladders[above, below_]


def _ends(count: Estimated) -> tuple[float, float]:
    return count.lower_bound or 0, count.upper_bound or 0
