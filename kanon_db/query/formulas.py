"""Estimates of groups with their errors and bounds, and what a query calculates from them."""

from __future__ import annotations

import json
import math
import operator as operators
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import InitVar, field, replace
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple, Self

from kanon_db.dataclasses import dataclass
from kanon_db.declaration.shown import ShownResult
from kanon_db.errors import UnsupportedQueryError
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import Query, Rounded, refusal
from kanon_db.query.layout import parts_of

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


def write_key(names: Iterable[str], values: Iterable[str]) -> str:
    """Write a group's key from its values as JSON, by the lengths of names, as a jsonb."""
    by_name = dict(zip(names, values, strict=True))
    ordered = sorted(by_name, key=lambda name: (len(name.encode()), name.encode()))
    written = (f"{json.dumps(name, ensure_ascii=False)}: {by_name[name]}" for name in ordered)
    return f"{{{', '.join(written)}}}"


def split_key(key: str) -> dict[str, str]:
    """Split a group's key into its values as JSON, with all digits."""
    decoder, values, at = json.JSONDecoder(), dict[str, str](), 1
    while key[at] != "}":
        name, at = decoder.raw_decode(key, at)
        begin = at + 1 + (key[at + 1] == " ")
        _, at = decoder.raw_decode(key, begin)
        values[name] = key[begin:at]
        at += len(key[at:]) - len(key[at:].lstrip(", "))
    return values


def common_spelling(key: str, names: Collection[str] | None = None) -> str:
    """Write a group's key, or what some names have in it, in one spelling: 1.0 and 1.00 are equal.

    Groups of several questions that are alike in these names have it in common.
    """

    def plain(number: str) -> str:
        return number if "e" in number.lower() else number.rstrip("0").rstrip(".")

    values: dict[str, Any] = json.loads(key, parse_float=plain, parse_int=str)
    return json.dumps(
        sorted((name, value) for name, value in values.items() if names is None or name in names)
    )


def empty(aggregate: ex.Aggregate) -> Estimated:
    """Answer an aggregate of no record."""
    is_number = aggregate.function in ("count", "distinct")
    return Estimated(0.0, 0.0, 0, 0) if is_number else NOTHING


def all_but(n_records: int, neither: Estimated) -> Estimated:
    """Count the records that are not among those counted."""
    lower, upper = neither.lower_bound or 0, neither.upper_bound or 0
    estimate = n_records - (neither.estimate or 0)
    return Estimated(estimate, neither.std_error, n_records - upper, n_records - lower)


_EXACT: Final = 2.0**53
"""Up to this, every whole number is a floating-point number."""


_WHOLE_QUOTIENT: Final = 2.0**20
"""An average of whole numbers below it that is whole is not rounded: of fewer than 2^32 records,
another one is farther from it than floating-point numbers are from each other."""

_LOST: Final = 2.0**-40
"""How much of a bound adding up may lose where values are no whole numbers; see also
:func:`.rounding`."""


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


COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operators.eq, "<>": operators.ne, "<": operators.lt,
    "<=": operators.le, ">": operators.gt, ">=": operators.ge,
}  # fmt: skip


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
    def of(cls, condition: ex.Expression, known: Mapping[ex.Expression, Estimated]) -> Self:
        """Tell the truth of a condition on estimates, in SQL's three-valued logic."""
        match condition:
            case ex.And(parts) | ex.Or(parts):
                decisive = isinstance(condition, ex.Or)
                inner = [cls.of(part, known) for part in parts]
                estimates = [one.estimate for one in inner]
                estimate = None if None in estimates else not decisive
                if decisive in estimates:
                    estimate = decisive
                true = [one.may_be_true for one in inner]
                false = [one.may_be_false for one in inner]
                may_be = (any(true), all(false)) if decisive else (all(true), any(false))
                return cls(estimate, *may_be, any(one.may_be_unknown for one in inner))
            case ex.Not(part):
                one = cls.of(part, known)
                estimate = None if one.estimate is None else not one.estimate
                return cls(estimate, one.may_be_false, one.may_be_true, one.may_be_unknown)
            case ex.Range():
                return cls.of(ex.spell_out(condition), known)
        values = [_evaluate(part, known) for part in condition.children]
        if isinstance(condition, ex.NullTest):
            return cls((values[0].estimate is None) != condition.negated, True, True, False)
        if not isinstance(condition, ex.Comparison):
            raise TypeError(f"{type(condition).__name__} is not checked")
        is_sure = not any(may_be_null(part, known) for part in condition.children)
        return cls._compare(condition.operator, *values, may_be_unknown=not is_sure)

    @classmethod
    def _compare(
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


def _combine(*parts: tuple[Calculated, float]) -> dict[ex.Expression, float]:
    """Return the slopes of a number that changes by so much with each of some others."""
    slopes: dict[ex.Expression, float] = {}
    for number, slope in parts:
        for name, own in number.slopes.items():
            slopes[name] = slopes.get(name, 0.0) + _product(own, slope)
    return slopes


def _multiply(one: Calculated, other: Calculated) -> Calculated:
    """Multiply two numbers."""
    ends = [_product(x, y) for x in (one.low, one.high) for y in (other.low, other.high)]
    if one.estimate is None or other.estimate is None:
        return Calculated(None, min(ends), max(ends))
    slopes = _combine((one, other.estimate), (other, one.estimate))
    return Calculated(one.estimate * other.estimate, min(ends), max(ends), slopes)


def _product(x: float, y: float) -> float:
    return 0.0 if 0 in (x, y) else x * y  # what is not known is a number


# Aggregates that follow from sums.
#
# `n` records have x and y; `xy` is the sum of their products. A sum of (x - mean)(y - mean), which
# is Sxy - Sx Sy / n, is called centered.


def _center(xy: Calculated, x: Calculated, y: Calculated, n: Calculated) -> Calculated:
    """Return a centered sum; `y` is `x` itself for squares."""
    product, is_square = _multiply(x, y), x is y
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
    estimate, slopes = xy.estimate - part.estimate, _combine((xy, 1), (part, -1))
    lost = CANCELLED * (abs(xy.estimate) + abs(part.estimate))
    if is_square and 0 < abs(estimate) <= lost:  # nothing is left but what is rounded
        estimate, slopes = 0.0, {**slopes, _ROUNDED_AWAY: math.inf}
    estimate = max(estimate, 0.0) if is_square else estimate
    return Calculated(estimate, low, high, slopes)


_ROUNDED_AWAY: Final = ex.Literal("number", "0")
"""What an answer is off by of which only the bounds are known."""


def _divide(number: Calculated, n: Calculated, lost: int = 0) -> Calculated:
    """Divide by a number of records, less some."""
    low, high = (
        end if math.isinf(end) else extreme(end / (n.low - lost), end / (n.high - lost))
        for end, extreme in ((number.low, min), (number.high, max))
    )
    if number.estimate is None or n.estimate is None:
        return Calculated(None, low, high)
    by = n.estimate - lost
    slopes = _combine((number, 1 / by), (n, -number.estimate / by / by))
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
    return Calculated(root, low, high, _combine((variance, 0.5 / root if root else math.inf)))


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
    return Calculated(estimate, low, high, _combine((both, 1 / root), *parts))


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


def with_calculated(
    groups: Sequence[Group],
    query: Query,
    heartbeat: Callable[[], None] = lambda: None,
    totals: Mapping[ex.WindowTotal, Mapping[str, Estimated]] | None = None,
    exact: Sequence[Group] | None = None,
) -> list[Group]:
    """Append what the query calculates from its aggregates to each group's estimates.

    `totals` are those of groups, by what these have in common (`common_spelling`).
    """
    # `exact` are the groups before a rule of figures, from which a deviation is calculated. Nothing
    # is calculated from what the rule does not show.
    if not query.formulas:
        return list(groups)
    parts = chain.from_iterable(ex.walk(formula.expression) for formula in query.formulas)
    statistics = [part for part in parts if isinstance(part, ex.Statistic)]
    calculated = []
    for number, group in enumerate(groups):
        if number % 16 == 0:
            heartbeat()
        known = map_answers(query, group)
        for total, found_totals in (totals or {}).items():
            names = [key.name for key in query.keys if key.expression in total.by]
            known[total] = found_totals.get(common_spelling(group.key, names), NOTHING)
        few = {query.measures[place].aggregate for place in group.hidden}
        if exact is not None:
            own = map_answers(query, exact[number])
            known |= {
                one: calculate(one, own)
                for one in statistics if few.isdisjoint(one.sums)
            }  # fmt: skip
        more = tuple(calculate(one.expression, known, few) for one in query.formulas)
        calculated.append(group._replace(estimates=group.estimates + more))
    return calculated


def map_answers(query: Query, group: Group) -> dict[ex.Expression, Estimated]:
    """Return a group's estimates by the aggregates that they answer."""
    aggregates = (measure.aggregate for measure in query.measures)
    return dict(zip(aggregates, group.estimates, strict=False))


def calculate(
    expression: ex.Expression,
    known: Mapping[ex.Expression, Estimated],
    few: Set[ex.Expression] = frozenset(),
) -> Estimated:
    """Calculate from estimates, but not from those of few people."""
    # How the errors of several aggregates go together is not known: they are added, which is the
    # most that they can come to. No error is greater than half the distance between the bounds.
    while isinstance(expression, ex.Cast):
        expression = expression.operand
    if expression in known:
        return known[expression]
    value = _evaluate(expression, known)
    if value.estimate is None or not few.isdisjoint(ex.walk(expression)):
        return NOTHING
    if not math.isfinite(value.estimate):
        raise _fails()
    error: float | None = 0.0
    for part, slope in value.slopes.items():
        # An estimate that is rounded may be off by half a unit more than it was.
        own = known[part].std_error if part in known else _unit(part) / 2
        if own != 0:  # What is exact adds nothing, however steep.
            error = None if own is None or error is None else error + abs(slope) * own
    low, high = (bound if math.isfinite(bound) else None for bound in (value.low, value.high))
    estimate = value.estimate if low is None else max(value.estimate, low)
    if error is not None and low is not None and high is not None:
        error = min(error, (high - low) / 2)
    if error is not None and not math.isfinite(error):
        error = None
    return Estimated(estimate if high is None else min(estimate, high), error, low, high)


def _evaluate(expression: ex.Expression, known: Mapping[ex.Expression, Estimated]) -> Calculated:
    match expression:
        case _ if expression in known:
            own = known[expression]
            low = -math.inf if own.lower_bound is None else float(own.lower_bound)
            high = math.inf if own.upper_bound is None else float(own.upper_bound)
            return Calculated(own.estimate, low, high, {expression: 1.0})
        case ex.Literal(_, text):
            number = float(text)
            return Calculated(number, number, number)
        case ex.Negative(operand):
            return _multiply(Calculated(-1, -1, -1), _evaluate(operand, known))
        case ex.Cast(operand, _):
            return _evaluate(operand, known)
        case Rounded(operand):
            value = _evaluate(operand, known)
            low, high = expression.between(value.low, value.high)
            estimate = None if value.estimate is None else expression.of(value.estimate)
            return Calculated(estimate, low, high, {**value.slopes, expression: 1.0})
        case ex.Statistic(function, sums=sums):
            return STATISTICS[function].of(*(_evaluate(one, known) for one in sums))
        case ex.NullIf(left, ex.Literal(_, text)):
            value = _evaluate(left, known)
            return replace(value, estimate=None) if value.estimate == float(text) else value
        case ex.Coalesce((operand, ex.Literal(_, text))):
            value, otherwise = _evaluate(operand, known), float(text)
            if not may_be_null(operand, known):
                return value
            if value.estimate is None:
                value = replace(value, estimate=otherwise)
            low, high = min(value.low, otherwise), max(value.high, otherwise)
            return replace(value, low=low, high=high)
        case ex.Case(branches, default):
            return _choose(branches, default, known)
        case ex.Arithmetic("+" | "-" as operator, left, right):
            one, other = _evaluate(left, known), _evaluate(right, known)
            if operator == "-":
                other = _multiply(Calculated(-1, -1, -1), other)
            estimate = None
            if one.estimate is not None and other.estimate is not None:
                estimate = one.estimate + other.estimate
            slopes = _combine((one, 1), (other, 1))
            return Calculated(estimate, one.low + other.low, one.high + other.high, slopes)
        case ex.Arithmetic("*", left, right):
            return _multiply(_evaluate(left, known), _evaluate(right, known))
        case ex.Arithmetic("/", left, right):
            return _ratio(expression, _evaluate(left, known), _evaluate(right, known))
    raise TypeError(f"{type(expression).__name__} is not checked")


def may_be_null(expression: ex.Expression, known: Mapping[ex.Expression, Estimated]) -> bool:
    """Whether a calculation may have no result: there may be no value, or what divides is 0."""
    match expression:
        case ex.NullIf() | ex.Statistic() | ex.WindowTotal():
            return True
        case ex.Case(branches, default):
            results = [result for _, result in branches]
            return default is None or any(may_be_null(one, known) for one in (*results, default))
        case ex.Aggregate("count" | "distinct"):
            return False
        case ex.Aggregate(_, operand, condition):
            number = known.get(ex.Aggregate("count", operand, condition))
            return number is None or number.lower_bound is None or number.lower_bound < 1
    return any(may_be_null(part, known) for part in expression.children)


def _choose(
    branches: Sequence[tuple[ex.Expression, ex.Expression]],
    default: ex.Expression | None,
    known: Mapping[ex.Expression, Estimated],
) -> Calculated:
    """Calculate a CASE: bounds are those of all branches that may be the one."""
    chosen: Calculated | None = None
    possible = []
    for condition, result in branches:
        truth = TruthRange.of(condition, known)
        if truth.may_be_true:
            possible.append(_evaluate(result, known))
            if truth.estimate and chosen is None:
                chosen = possible[-1]
        if not (truth.may_be_false or truth.may_be_unknown):
            break
    else:
        possible.append(NULL if default is None else _evaluate(default, known))
        chosen = chosen or possible[-1]
    chosen = chosen or possible[-1]
    low, high = min(one.low for one in possible), max(one.high for one in possible)
    slopes = chosen.slopes
    if len(possible) > 1:  # whose odds are not known: off by as much as the bounds let it
        slopes = {**slopes, ex.Case(tuple(branches), default): math.inf}
    return replace(chosen, low=low, high=high, slopes=slopes)


def _ratio(division: ex.Arithmetic, one: Calculated, other: Calculated) -> Calculated:
    """Divide; where PostgreSQL divides by zero, there is no result to hold in bounds."""
    is_nullable = _is_nullable(division.right)
    scaled = _split_factor(division.right)
    if scaled is not None and scaled[0] == 1 and scaled[1].function == "count":
        # A number of records that is not 0 is at least 1.
        if other.high < 1:
            if is_nullable:
                return Calculated(None, -math.inf, math.inf)
            raise _fails()
        other = replace(other, low=max(other.low, 1.0))
    elif other.low == other.high == 0 and not is_nullable and other.estimate is not None:
        raise _fails()
    low, high = -math.inf, math.inf
    if other.low > 0 or other.high < 0:
        ends = [x / y for x in (one.low, one.high) for y in (other.low, other.high)]
        if not any(map(math.isnan, ends)):
            low, high = min(ends), max(ends)
    least, most = _share(division)
    low, high = max(low, least), min(high, most)
    if one.estimate is None or other.estimate is None or other.estimate == 0:
        return Calculated(None, low, high)
    ratio = one.estimate / other.estimate
    slopes = _combine((one, 1 / other.estimate), (other, -ratio / other.estimate))
    return Calculated(ratio, low, high, slopes)


def _is_nullable(divisor: ex.Expression) -> bool:
    return isinstance(divisor, ex.NullIf) or (
        isinstance(divisor, ex.Cast | Rounded) and _is_nullable(divisor.operand)
    )


def _unit(part: ex.Expression) -> float:
    return part.unit if isinstance(part, Rounded) else 1.0


def _share(division: ex.Arithmetic) -> tuple[float, float]:
    """Return between what a part of records, over all of them, lies."""
    part, total = _split_factor(division.left), _split_factor(division.right)
    if part is None or total is None or total[1].function != "count" or total[0] <= 0:
        return -math.inf, math.inf
    least, most = _each(part[1])
    if not _conditions_of(total[1]) <= _conditions_of(part[1]):
        return -math.inf, math.inf
    ends = [0.0 if part[0] == 0 else part[0] / total[0] * end for end in (least, most)]
    return min(ends), max(ends)


def _conditions_of(aggregate: ex.Aggregate) -> set[ex.Expression]:
    """Return what a record must meet to be counted, beside WHERE."""
    conditions = set(parts_of(aggregate.condition))
    if aggregate.operand is not None and aggregate.function == "count":
        conditions.add(ex.NullTest(aggregate.operand, negated=True))
    return conditions


def _each(aggregate: ex.Aggregate) -> tuple[float, float]:
    """Return what each record adds at least, and at most; 0 if it is not counted."""
    if aggregate.function == "count":
        return 0, 1
    operand = aggregate.operand
    if aggregate.function == "sum" and isinstance(operand, ex.Case):
        results = [then for _, then in operand.branches]
        results += [] if operand.default is None else [operand.default]
        texts = [result.text for result in results if isinstance(result, ex.Constant)]
        if len(texts) == len(results):
            numbers = [0.0, *(_number(text) for text in texts if text is not None)]
            if all(map(math.isfinite, numbers)):
                return min(numbers), max(numbers)
    return -math.inf, math.inf


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # PostgreSQL knows more spellings
        return math.nan


def _split_factor(expression: ex.Expression) -> tuple[float, ex.Aggregate] | None:
    """Read an expression as a number times an aggregate."""
    match expression:
        case ex.Aggregate():
            return 1.0, expression
        case ex.Cast(operand, _) | ex.NullIf(operand, _):
            return _split_factor(operand)
        case ex.Arithmetic("*", ex.Literal(_, text), operand) | ex.Arithmetic(
            "*", operand, ex.Literal(_, text)
        ):
            inner, factor = _split_factor(operand), float(text)
        case ex.Arithmetic("/", operand, ex.Literal(_, text)) if float(text) != 0:
            inner, factor = _split_factor(operand), 1 / float(text)
        case _:
            return None
    return None if inner is None else (inner[0] * factor, inner[1])


def _fails() -> Exception:
    return refusal(
        "the query's arithmetic fails on some group",
        hint="write NULLIF(COUNT(*), 0), or exclude such groups with WHERE",
        detail="as for a division by zero",
    )
