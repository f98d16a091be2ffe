"""Turns counts of buckets into estimates, standard errors and bounds."""

from __future__ import annotations

import json
import math
import operator as operators
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, field, replace
from decimal import MAX_EMAX, MIN_EMIN, Decimal, localcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from kanon_db.dataclasses import dataclass
from kanon_db.declaration.shown import ShownResult
from kanon_db.errors import UnsupportedQueryError
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import Order, Query, Rounded, refusal

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import AnyIntArray, FloatArray, IntArray


LIKELY: Final = 2.5
"""How many standard errors the likely range reaches to either side of an estimate.

It is chosen so that about 95 % of answers, measured on tables that nothing was chosen on, lie
inside; ``python -m benchmarks calibration`` prints how many do.
"""


_NEARLY_ALL: Final = 0.9
"""The part of what is possible that is likely where an answer tells nothing, at least."""

_LITTLE: Final = 0.1
"""The part of a number by which it may be off where an answer tells it all the same."""


@dataclass(frozen=True)
class Estimated(ShownResult):
    """The answer to one aggregate; see docs/understand/estimation.md."""

    # Numbers for a count, with whole bounds. Of a sum or an average, None where there is nothing to
    # sum; only a bound is None where none is certain.
    estimate: float | None
    std_error: float | None
    lower_bound: float | None
    upper_bound: float | None
    # Where the truth most likely is, within the bounds; None where estimate or error is
    likely_low: float | None = field(init=False)
    likely_high: float | None = field(init=False)
    likely: InitVar[tuple[float, float] | None] = None  # where estimate and error do not say it

    @property
    def numbers(self) -> tuple[float | None, ...]:
        """All of them, in the order of an answer's columns."""
        bounds = self.lower_bound, self.upper_bound
        return self.estimate, self.std_error, *bounds, self.likely_low, self.likely_high

    def is_untold(self, finest: int = 0) -> bool:
        """Whether nearly all that is possible is likely, and it is much, or more than finest."""
        ends = self.lower_bound, self.upper_bound, self.likely_low, self.likely_high
        if None in ends:
            return False
        low, high, likely_low, likely_high = (float(end) for end in ends if end is not None)
        reach = likely_high - likely_low
        is_much = reach > max(finest, _LITTLE * max(abs(low), abs(high)))
        return low < high and is_much and reach >= _NEARLY_ALL * (high - low)

    def __post_init__(self, likely: tuple[float, float] | None) -> None:
        low, high = likely or _likely(self)
        object.__setattr__(self, "likely_low", low)
        object.__setattr__(self, "likely_high", high)


def _likely(answer: Estimated) -> tuple[float | None, float | None]:
    if answer.estimate is None or answer.std_error is None:
        return None, None
    low, high = (
        None if end is None else float(end) for end in (answer.lower_bound, answer.upper_bound)
    )
    estimate, reach = float(answer.estimate), LIKELY * answer.std_error
    if not math.isfinite(reach):
        return low, high
    least, most = estimate - reach, estimate + reach
    # An estimate may lie beyond equal bounds by what is rounded.
    return (
        least if low is None else min(max(least, low), estimate),
        most if high is None else max(min(most, high), estimate),
    )


NOTHING = Estimated(None, None, None, None)
"""The sum, or the average, of no value."""


class Group(NamedTuple):
    """The answer for one group."""

    key: str  # JSON object: the group's values by the names that the query gives them
    ranks: tuple[int, ...]  # Places of the values in their order; those of NULL come last
    estimates: tuple[Estimated, ...]  # One for each measure of the query
    hidden: frozenset[int] = frozenset()  # Places of those that a rule of figures does not show


_EXACT: Final = 2.0**53
"""Up to this, every whole number is a floating-point number."""


_WHOLE_QUOTIENT: Final = 2.0**20
"""An average of whole numbers below it that is whole is not rounded: of fewer than 2^32 records,
another one is farther from it than floating-point numbers are from each other."""

_LOST: Final = 2.0**-40
"""How much of a bound adding up may lose where values are no whole numbers; see also
:func:`.formulas.rounding`."""


def in_doubles(groups: Sequence[Group], aggregates: Sequence[ex.Aggregate]) -> list[Group]:
    """Widen bounds of aggregates that a floating-point number cannot tell.

    Raises UnsupportedQueryError for sums and averages of infinite values, or of what is no number.
    """
    # Sums and averages of numbers that are not whole are rounded when they are read, added up and
    # divided, averages of whole numbers when they are divided only. Bounds move outward by that.
    if all(one.function in ("count", "distinct") for one in aggregates):
        return list(groups)
    return [
        group._replace(
            estimates=tuple(map(_in_doubles, group.estimates, aggregates)),
        )
        for group in groups
    ]


def _in_doubles(answer: Estimated, aggregate: ex.Aggregate) -> Estimated:
    function = aggregate.function
    if function in ("count", "distinct"):
        return answer
    low, high = answer.lower_bound, answer.upper_bound
    if function in ("sum", "avg") and not all(
        number is None or math.isfinite(number) for number in (answer.estimate, low, high)
    ):
        raise not_finite()
    error = answer.std_error
    if error is not None and not math.isfinite(error):  # of squares beyond double precision
        if function == "avg" and aggregate.type is not None and aggregate.type.category == "float":
            raise not_finite()
        error = 0.0 if low == high else None
    if function in ("sum", "avg"):
        is_whole = aggregate.type is not None and aggregate.type.category == "integer"
        lost = 0.0 if is_whole else _LOST * max(abs(low or 0.0), abs(high or 0.0))
        low, high = (None if end is None else end + sign * lost
                     for end, sign in ((low, -1), (high, 1)))  # fmt: skip
    low, high = (
        end
        if end is None or math.isinf(end) or _is_exact(end, aggregate)
        else math.nextafter(end, towards)
        for end, towards in ((low, -math.inf), (high, math.inf))
    )
    return replace(answer, std_error=error, lower_bound=low, upper_bound=high)


def not_finite() -> UnsupportedQueryError:
    """Make the refusal of sums that are not finite."""
    return refusal(
        "sums and averages of infinite values, of what is no number, or of numbers whose squares"
        " are beyond double precision are not answered",
        hint="COUNT, MIN, MAX and percentiles are; for a sum, the source needs a view that has"
        " NULL in place of such values",
    )


def _is_exact(end: float, aggregate: ex.Aggregate) -> bool:
    if aggregate.function == "avg":
        return end == math.trunc(end) and abs(end) < _WHOLE_QUOTIENT
    return abs(end) < _EXACT


def within_limit(groups: Sequence[Group], query: Query) -> list[Group]:
    """Apply OFFSET and LIMIT."""
    end = None if query.limit is None else query.offset + query.limit
    return list(groups[query.offset : end])


def in_order(
    groups: Sequence[Group], query: Query, heartbeat: Callable[[], None] = lambda: None
) -> list[Group]:
    """Apply HAVING and ORDER BY to the estimates."""
    # Without ORDER BY, groups come in the order of their values. The heartbeat is called every few
    # milliseconds, or for each item of ORDER BY.
    expressions = [measure.aggregate for measure in query.measures]
    formulas = [formula.expression for formula in query.formulas]
    places = {one: place for place, one in enumerate([*expressions, *formulas])}
    kept = sorted(groups, key=lambda group: group.ranks)
    if query.having is not None:
        kept_groups = []
        # A product of constants that are allowed may have more digits than Decimal's default.
        with localcontext(Emax=MAX_EMAX, Emin=MIN_EMIN):
            for number, group in enumerate(kept):
                if number % 16 == 0:
                    heartbeat()
                if _holds(query.having, group, places):
                    kept_groups.append(group)
        kept = kept_groups
    for order in reversed(query.order):
        heartbeat()
        kept = _order(kept, order, query)
    return kept


def _order(groups: list[Group], order: Order, query: Query) -> list[Group]:
    def value(group: Group) -> float | None:
        if order.measure is not None:
            return group.estimates[order.measure].estimate
        place = order.key or 0
        is_null = json.loads(group.key)[query.keys[place].name] is None
        return None if is_null else group.ranks[place]

    unknown = [group for group in groups if value(group) is None]
    known = [group for group in groups if value(group) is not None]
    known.sort(key=lambda group: value(group) or 0, reverse=order.is_descending)
    return unknown + known if order.nulls_first else known + unknown


_OPERATORS: Final[Mapping[str, Callable[[Decimal, Decimal], Decimal]]] = {
    "+": operators.add,
    "-": operators.sub,
    "*": operators.mul,
    "/": operators.truediv,
}
COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operators.eq, "<>": operators.ne, "<": operators.lt,
    "<=": operators.le, ">": operators.gt, ">=": operators.ge,
}  # fmt: skip


def _holds(
    condition: ex.Expression, group: Group, places: Mapping[ex.Expression, int]
) -> bool | None:
    """Evaluate a condition of HAVING in SQL's three-valued logic."""

    def number(expression: ex.Expression) -> Decimal | None:
        match expression:
            case ex.Aggregate() | ex.Statistic():
                estimate = group.estimates[places[expression]].estimate
                return None if estimate is None else Decimal(estimate)
            case ex.Literal(_, text):
                return Decimal(text)
            case ex.Negative(operand):
                inner = number(operand)
                return None if inner is None else -inner
            case ex.Cast(operand, _):
                return number(operand)
            case Rounded(operand):
                inner = number(operand)
                return None if inner is None else Decimal(expression.of(float(inner)))
            case ex.NullIf(left, right):
                one, other = number(left), number(right)
                return None if one == other else one
            case ex.Coalesce((operand, otherwise)):
                inner = number(operand)
                return number(otherwise) if inner is None else inner
            case ex.Case(branches, default):
                for when, then in branches:
                    if _holds(when, group, places):
                        return number(then)
                return None if default is None else number(default)
            case ex.Arithmetic(operator, left, right):
                one, other = number(left), number(right)
                # What is divided by an estimate of 0 is not known.
                if one is None or other is None or (operator == "/" and other == 0):
                    return None
                return _OPERATORS[operator](one, other)
        raise TypeError(f"{type(expression).__name__} is not checked")

    match condition:
        case ex.Comparison() | ex.NullTest() if group.hidden and any(
            places.get(part) in group.hidden for part in ex.walk(condition)
        ):
            return None  # A figure that is not shown is no NULL.
        case ex.And(parts) | ex.Or(parts):
            truths = [_holds(part, group, places) for part in parts]
            decisive = isinstance(condition, ex.Or)
            if decisive in truths:
                return decisive
            return None if None in truths else not decisive
        case ex.Not(part):
            inner = _holds(part, group, places)
            return None if inner is None else not inner
        case ex.NullTest(operand, negated):
            return (number(operand) is None) != negated
        case ex.Range():
            return _holds(ex.spell_out(condition), group, places)
        case ex.Comparison(operator, left, right):
            one, other = number(left), number(right)
            if one is None or other is None:
                return None
            return COMPARISONS[operator](one, other)
    raise TypeError(f"{type(condition).__name__} is not checked")


@dataclass(frozen=True)
class Calculated:
    """A number with its bounds, infinite where none is certain."""

    estimate: float | None  # None for NULL
    low: float
    high: float
    # By how much it changes with each aggregate that it depends on, and with each number that is
    # rounded
    slopes: Mapping[ex.Expression, float] = field(default_factory=dict)


class TruthRange(NamedTuple):
    """The truth of a condition by estimates, and what it may be by bounds."""

    estimate: bool | None
    may_be_true: bool
    may_be_false: bool
    may_be_unknown: bool

    @classmethod
    def of(cls, condition: ex.Expression, leaf: Callable[[ex.Expression], Self]) -> Self:
        """Tell the truth of a condition, in SQL's three-valued logic, from that of its leaves."""
        match condition:
            case ex.And(parts) | ex.Or(parts):
                decisive = isinstance(condition, ex.Or)
                inner = [cls.of(part, leaf) for part in parts]
                estimates = [one.estimate for one in inner]
                estimate = None if None in estimates else not decisive
                if decisive in estimates:
                    estimate = decisive
                true = [one.may_be_true for one in inner]
                false = [one.may_be_false for one in inner]
                may_be = (any(true), all(false)) if decisive else (all(true), any(false))
                return cls(estimate, *may_be, any(one.may_be_unknown for one in inner))
            case ex.Not(part):
                one = cls.of(part, leaf)
                estimate = None if one.estimate is None else not one.estimate
                return cls(estimate, one.may_be_false, one.may_be_true, one.may_be_unknown)
            case ex.Range():
                return cls.of(ex.spell_out(condition), leaf)
        return leaf(condition)

    @classmethod
    def of_comparison(
        cls,
        operator: ex.ComparisonOperator,
        one: Calculated,
        other: Calculated,
        *,
        may_be_unknown: bool,
    ) -> Self:
        """Compare two numbers."""
        estimate = None
        if one.estimate is not None and other.estimate is not None:
            estimate = COMPARISONS[operator](one.estimate, other.estimate)
        is_same = one.low == one.high == other.low == other.high
        may_meet = one.low <= other.high and other.low <= one.high
        may_be: dict[str, tuple[bool, bool]] = {
            "=": (may_meet, not is_same),
            "<": (one.low < other.high, one.high >= other.low),
            "<=": (one.low <= other.high, one.high > other.low),
        }
        for name, opposite in (("<>", "="), (">", "<="), (">=", "<")):
            may_be[name] = may_be[opposite][::-1]
        return cls(estimate, *may_be[operator], may_be_unknown)


NULL: Final = Calculated(None, math.inf, -math.inf)
"""No number: its bounds are those of nothing."""

CANCELLED: Final = 1e-14
"""What a difference of doubles loses at most, relative to both."""

_ALIKE: Final = 2.0**-40
"""The part of a sum of squares up to which a centered one may be of numbers that are all alike."""


def combine(*parts: tuple[Calculated, float]) -> dict[ex.Expression, float]:
    """Return the slopes of a number that changes by so much with each of some others."""
    slopes: dict[ex.Expression, float] = {}
    for number, slope in parts:
        for name, own in number.slopes.items():
            slopes[name] = slopes.get(name, 0.0) + _product(own, slope)
    return slopes


def multiply(one: Calculated, other: Calculated) -> Calculated:
    """Multiply two numbers."""
    ends = [_product(x, y) for x in (one.low, one.high) for y in (other.low, other.high)]
    if one.estimate is None or other.estimate is None:
        return Calculated(None, min(ends), max(ends))
    slopes = combine((one, other.estimate), (other, one.estimate))
    return Calculated(one.estimate * other.estimate, min(ends), max(ends), slopes)


def _product(x: float, y: float) -> float:
    return 0.0 if 0 in (x, y) else x * y  # what is not known is a number


# Aggregates that follow from sums.
#
# `n` records have x and y; `xy` is the sum of their products. A sum of (x - mean)(y - mean), which
# is Sxy - Sx Sy / n, is called centered.


def _center(xy: Calculated, x: Calculated, y: Calculated, n: Calculated) -> Calculated:
    """Return a centered sum; `y` is `x` itself for squares."""
    product, is_square = multiply(x, y), x is y
    if is_square:
        least = 0.0 if x.low <= 0 <= x.high else min(x.low * x.low, x.high * x.high)
        product = replace(product, low=least)
    part = _divide(product, n)
    # Bounds move outward by what the difference may lose.
    low = xy.low - part.high - CANCELLED * (abs(xy.low) + abs(part.high))
    high = xy.high - part.low + CANCELLED * (abs(xy.high) + abs(part.low))
    if is_square:
        low, high = max(low, 0.0), max(high, 0.0)
    if xy.estimate is None or part.estimate is None:
        return Calculated(None, low, high)
    estimate = xy.estimate - part.estimate
    estimate = max(estimate, 0.0) if is_square else estimate
    return Calculated(estimate, low, high, combine((xy, 1), (part, -1)))


def _divide(number: Calculated, n: Calculated, lost: int = 0) -> Calculated:
    """Divide by a number of records, less some."""
    low, high = (
        end if math.isinf(end) else extreme(end / (n.low - lost), end / (n.high - lost))
        for end, extreme in ((number.low, min), (number.high, max))
    )
    if number.estimate is None or n.estimate is None:
        return Calculated(None, low, high)
    by = n.estimate - lost
    slopes = combine((number, 1 / by), (n, -number.estimate / by / by))
    return Calculated(number.estimate / by, low, high, slopes)


def _widen(low: float, high: float) -> tuple[float, float]:
    return low - CANCELLED * abs(low), high + CANCELLED * abs(high)


def _variance(lost: int, n: Calculated, x: Calculated, xx: Calculated) -> Calculated:
    variance = _divide(_center(xx, x, x, n), n, lost)
    low, high = _widen(variance.low, variance.high)
    return replace(variance, low=low, high=high)


def _deviation(lost: int, n: Calculated, x: Calculated, xx: Calculated) -> Calculated:
    variance = _variance(lost, n, x, xx)
    low, high = _widen(math.sqrt(variance.low), math.sqrt(variance.high))
    if variance.estimate is None:
        return Calculated(None, low, high)
    root = math.sqrt(variance.estimate)
    return Calculated(root, low, high, combine((variance, 0.5 / root if root else math.inf)))


def _correlation(
    n: Calculated,
    x: Calculated,
    y: Calculated,
    xx: Calculated,
    yy: Calculated,
    xy: Calculated,
) -> Calculated:
    """Calculate Pearson's correlation: NULL where one of both is the same for all records."""
    both, squares = _center(xy, x, y, n), (_center(xx, x, x, n), _center(yy, y, y, n))
    if any(own.high == 0 for own in squares):
        return Calculated(None, -math.inf, math.inf)
    # Divided by the least that is possible, it is farthest from 0.
    far, near = (
        math.sqrt(one) * math.sqrt(other)
        for one, other in ([own.low for own in squares], [own.high for own in squares])
    )
    low, high = _widen(
        max(_divide_by_root(both.low, near if both.low > 0 else far), -1.0),
        min(_divide_by_root(both.high, near if both.high < 0 else far), 1.0),
    )
    low, high = max(low, -1.0), min(high, 1.0)
    spreads = [
        own.estimate
        for own, total in zip(squares, (xx, yy), strict=True)
        if own.estimate is not None and total.estimate is not None
        and own.estimate > _ALIKE * total.estimate
    ]  # fmt: skip
    if both.estimate is None or len(spreads) < len(squares):
        return Calculated(None, low, high)
    root = math.sqrt(spreads[0]) * math.sqrt(spreads[1])
    estimate = min(max(both.estimate / root, -1.0), 1.0)
    parts = ((own, -estimate / 2 / spread) for own, spread in zip(squares, spreads, strict=True))
    return Calculated(estimate, low, high, combine((both, 1 / root), *parts))


def _divide_by_root(number: float, root: float) -> float:
    """Divide; by 0, a number other than 0 is infinite."""
    if number == 0:
        return 0.0
    return number / root if root > 0 else math.copysign(math.inf, number)


class StatisticRule(NamedTuple):
    """How an aggregate follows from COUNT, the SUM of each operand, and those of products."""

    n_operands: int
    products: tuple[tuple[int, int], ...]  # Places of the operands that are multiplied
    lost: int  # It is NULL unless there are more records
    # From numbers of records, at least lost + 1, and the sums
    calculate: Callable[..., Calculated]

    def make(self, function: str, operands: Sequence[ex.Expression]) -> ex.Statistic:
        """Make the expression; a record counts where none of the operands is NULL."""
        # Squares of whole numbers could be out of range.
        numbers = [ex.Cast(operand, "double precision") for operand in operands]
        factors = [*((place,) for place in range(len(operands))), *self.products]

        def condition(places: Sequence[int]) -> ex.Expression | None:
            left = [one for place, one in enumerate(operands) if place not in places]
            return ex.joined(ex.And, [ex.NullTest(one, negated=True) for one in left])

        def total(places: Sequence[int]) -> ex.Expression:
            parts = [numbers[place] for place in places]
            product = ex.Arithmetic("*", *parts) if len(parts) > 1 else parts[0]
            return ex.Aggregate("sum", product, condition(places))

        count = ex.Aggregate("count", operands[0], condition([0]))
        return ex.Statistic(function, tuple(operands), (count, *map(total, factors)))

    def of(self, n: Calculated, *sums: Calculated) -> Calculated:
        """Calculate: bounds hold where it is not NULL."""
        n = replace(n, low=max(n.low, self.lost + 1.0))
        if n.high < n.low:
            return Calculated(None, -math.inf, math.inf)
        if n.estimate is not None and n.estimate <= self.lost:
            n = replace(n, estimate=None)
        return self.calculate(n, *sums)


_SQUARE: Final = ((0, 0),)
STATISTICS: Final[Mapping[str, StatisticRule]] = {
    **dict.fromkeys(
        ("stddev", "stddev_samp"), StatisticRule(1, _SQUARE, 1, partial(_deviation, 1))
    ),
    **dict.fromkeys(("variance", "var_samp"), StatisticRule(1, _SQUARE, 1, partial(_variance, 1))),
    "stddev_pop": StatisticRule(1, _SQUARE, 0, partial(_deviation, 0)),
    "var_pop": StatisticRule(1, _SQUARE, 0, partial(_variance, 0)),
    "corr": StatisticRule(2, ((0, 0), (1, 1), (0, 1)), 1, _correlation),
}
"""The aggregates that follow from sums, by PostgreSQL's names."""


def common_spelling(group_key: str, without: str | None = None) -> str:
    """Return a group's key, a JSON object, in one spelling: equal numbers may be 1.0 and 1.00.

    A key without one of its names tells the groups that are alike in all others.
    """

    def plain(number: str) -> str:
        return number if "e" in number.lower() else number.rstrip("0").rstrip(".")

    values: dict[str, Any] = json.loads(group_key, parse_float=plain, parse_int=str)
    return json.dumps(sorted((name, value) for name, value in values.items() if name != without))


class MatchedPairs(NamedTuple):
    """What a random matching gives."""

    estimate: float
    # Of a count or a sum; of an average, of the sum of its `number` differences from it
    variance: float
    lower_bound: float
    upper_bound: float
    number: float = 1.0


# Estimates, errors and bounds over buckets.
#
# A bucket has ``size`` records, of which ``q`` match on the quasi-identifiers, and ``s`` of its
# sensitive values match. Which record has which value is hidden: every matching of them is as
# likely as the others.
#
# **Source:** [GB] section 3.2 for the estimate; docs/understand/estimation.md for the rest.
#
# numpy is imported where it is used, so that statements are written without it.


def empty(aggregate: ex.Aggregate) -> Estimated:
    """Answer an aggregate of no record."""
    is_number = aggregate.function in ("count", "distinct")
    return Estimated(0.0, 0.0, 0, 0) if is_number else NOTHING


def all_but(n_records: int, neither: Estimated) -> Estimated:
    """Count the records that are not among those counted."""
    lower, upper = neither.lower_bound or 0, neither.upper_bound or 0
    estimate = n_records - (neither.estimate or 0)
    return Estimated(estimate, neither.std_error, n_records - upper, n_records - lower)


class Weighed(NamedTuple):
    """What the matching records, or values, of each bucket of one size weigh."""

    # (n_buckets,): their number, and the sums of their values, squares, positive and negative parts
    n: FloatArray
    x: FloatArray
    squares: FloatArray
    positive: FloatArray
    negative: FloatArray
    least: FloatArray  # (n_buckets,): their extreme values; infinite where there is none
    most: FloatArray


_ROUNDING: Final = 2.0**-47
"""What adding up whole numbers loses of the sum of their absolute values, at most."""

_OF_EACH, _AT_LEAST = 2.0**-52, 2.0**-40
"""The same of other numbers: each record rounds once more, and values and buckets do, too."""

_ALWAYS, _NEVER, _NOTICED = 2.0**53, 2.0**33, 1e-12
"""Sums of absolute values from which bounds are always widened, and up to which those of whole
numbers never are; between, where it is more than this part of them (see :func:`.in_doubles`)."""


def rounding(n: float, largest: float, low: float, high: float) -> float:
    """Return by how much the bounds of a sum are widened, since adding up rounds.

    `n`, `largest`: how many are added up, at most, and the largest absolute value of one.
    """
    # `low`, `high`: the bounds as they were added up.
    total = n * largest
    finite = [number for number in (total, low, high) if math.isfinite(number)]
    is_whole = all(number == math.trunc(number) for number in finite)
    lost = total * (_ROUNDING if is_whole else n * _OF_EACH + _AT_LEAST)
    is_noticed = (total > _NEVER or not is_whole) and lost > _NOTICED * max(abs(low), abs(high))
    return lost if total > _ALWAYS or is_noticed else 0.0


def limit_sums(
    weighed: Weighed, drawn: tuple[Any, Any], least: Callable[..., Any], most: Callable[..., Any]
) -> tuple[Any, Any]:
    """Bound the sum of those values that are drawn, between so many: numbers, or statements.

    `least`, `most`: return the least, and the greatest, of two.
    """
    (fewest, many), x = drawn, weighed.x
    left = weighed.n - fewest, weighed.n - many
    low, high = weighed.least, weighed.most
    lowest = least(fewest * low, many * low)
    highest = most(fewest * high, many * high)
    at_least = least(x - left[0] * high, x - left[1] * high)
    at_most = most(x - left[0] * low, x - left[1] * low)
    return (
        most(most(weighed.negative, lowest), at_least),
        least(least(weighed.positive, highest), at_most),
    )


def weigh_draws(
    size: int | IntArray, weighed: Weighed, matches: AnyIntArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return what a sum, or an average, takes of buckets in which records and values meet.

    Of q values, s matches in each bucket: totals (9, n_buckets), and (n_buckets,) least and most.
    """
    # In a bucket, s of size records are drawn at random; for the q values of x, the expected sum is
    # t = s sum(x) / size, their expected number c = q s / size, with the variances and the
    # covariance of drawing without replacement. Between lo = max(q + s - size, 0) and hi = min(q,
    # s) of the q are drawn; each bound of the sum is the extreme that so many can reach.
    import numpy as np

    q, x, low, high = weighed.n, weighed.x, weighed.least, weighed.most
    s = matches.astype(np.float64)
    lo, hi = np.maximum(q + s - size, 0), np.minimum(q, s)
    rest = (s - s * s / size) / np.maximum(size - 1, 1)
    lower, upper = limit_sums(weighed, (lo, hi), np.minimum, np.maximum)
    variances = ((weighed.squares - x * x / size) * rest, (q - q * q / size) * rest)
    covariance = (x - x * q / size) * rest
    parts = (x * s / size, q * s / size, *variances, covariance, lower, upper, lo, hi)
    return np.stack(parts), low, high


def summed(
    totals: Sequence[float], extremes: tuple[float, float], *, is_average: bool
) -> MatchedPairs | None:
    """Return a sum, or an average, from totals; None where there is nothing to sum."""
    # `totals` are t and c, their variances tt and cc, their covariance tc, and the bounds of both:
    # t_low, t_high, c_low, c_high. `extremes` are the least and the greatest value.
    t, c, tt, cc, tc, t_low, t_high, c_low, c_high = totals
    least, most = extremes
    if c == 0:
        return None
    lost = rounding(c_high, max(abs(least), abs(most)), t_low, t_high)
    t_low, t_high = t_low - lost, t_high + lost
    if not is_average:
        return MatchedPairs(t, tt, t_low, t_high)
    mean = t / c
    low, high = limit_average((t_low, t_high), (c_low, c_high), extremes)
    return MatchedPairs(mean, tt - 2 * mean * tc + mean * mean * cc, low, high, c)


def limit_average(
    total: tuple[float, float], number: tuple[float, float], extremes: tuple[float, float]
) -> tuple[float, float]:
    """Find the bounds of an average from those of its sum and of how many it is of."""
    (low, high), (least, most) = total, extremes
    fewest = max(number[0], 1.0)  # there is no average of none
    many = max(number[1], fewest)
    low, high = low / (many if low > 0 else fewest), high / (fewest if high > 0 else many)
    # Rounded, an average could lie beyond the values that it is of.
    return float(min(max(low, least), most)), float(max(min(high, most), least))
