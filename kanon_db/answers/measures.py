"""Answers the aggregates of a query one at a time, and calculates with the answers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Final

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.answers._distribution import derive_answers, is_derived
from kanon_db.answers.buckets.bucket_evidence import answer_in_buckets
from kanon_db.answers.rows.coded_rows import (
    CountedRows,
    GroupMoments,
    TypeCounter,
    from_types,
    key_of_values,
)
from kanon_db.answers.rows.evidence import KnownTypes, is_unknown
from kanon_db.answers.scope import OpenQuery
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import (
    DERIVED,
    Aggregate,
    Query,
    Rounded,
    refusal,
)
from kanon_db.query.formulas import (
    NOTHING,
    Between,
    Estimated,
    Group,
    TruthRange,
    common_spelling,
    empty,
    rounding,
)
from kanon_db.query.layout import BucketLayout, CellLayout, Side, condition_on, parts_of
from kanon_db.query.likelihoods import MOST_GROUPED, find_grouped_ranges
from kanon_db.query.sql import (
    ANSWER,
    Request,
    Select,
    Writer,
    join_relations,
    number_columns,
    speller,
    write,
)


@dataclass(frozen=True, slots=True)
class _Value:
    """A number with its bounds, infinite where none is certain."""

    estimate: float | None  # None for NULL
    low: float
    high: float
    # By how much it changes with each aggregate that it depends on, and with each number that is
    # rounded
    slopes: Mapping[ex.Expression, float] = field(default_factory=dict)


def with_calculated(
    groups: Sequence[Group],
    query: Query,
    heartbeat: Callable[[], None] = lambda: None,
    totals: Mapping[ex.WindowTotal, Mapping[str, Estimated]] | None = None,
    exact: Sequence[Group] | None = None,
) -> list[Group]:
    """Append what the query calculates from its aggregates to each group's estimates.

    `totals` are those of groups, by what these have in common (`common_key`).
    """
    # `exact` are the groups before a rule of figures, from which a deviation is calculated. Nothing
    # is calculated from what the rule does not show.
    if not query.formulas:
        return list(groups)
    parts = chain.from_iterable(ex.walk(formula.expression) for formula in query.formulas)
    spreads = [part for part in parts if isinstance(part, ex.Deviation)]
    calculated = []
    for number, group in enumerate(groups):
        if number % 16 == 0:
            heartbeat()
        known = _map_answers(query, group)
        for total, found_totals in (totals or {}).items():
            names = [key.name for key in query.keys if key.expression in total.by]
            known[total] = found_totals.get(common_key(group.key, names), NOTHING)
        few = set[ex.Expression]()
        if exact is not None:
            own = _map_answers(query, exact[number])
            few = {
                one for one, answer in own.items()
                if answer.estimate is not None and known[one].estimate is None
            }  # fmt: skip
            known |= {
                spread: _calculate(spread, own)
                for spread in spreads if few.isdisjoint(ex.children(spread))
            }  # fmt: skip
        more = tuple(_calculate(one.expression, known, few) for one in query.formulas)
        calculated.append(group._replace(estimates=group.estimates + more))
    return calculated


def _map_answers(query: Query, group: Group) -> dict[ex.Expression, Estimated]:
    aggregates = (measure.aggregate for measure in query.measures)
    return dict(zip(aggregates, group.estimates, strict=False))


def common_key(key: str, names: Sequence[str]) -> str:
    """Write the values that a group's key has under some names."""
    values = json.loads(key, parse_float=str, parse_int=str)
    return json.dumps([values[name] for name in names])


def _calculate(
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
        error = None if own is None or error is None else error + abs(slope) * own
    low, high = (bound if math.isfinite(bound) else None for bound in (value.low, value.high))
    estimate = value.estimate if low is None else max(value.estimate, low)
    if error is not None and low is not None and high is not None:
        error = min(error, (high - low) / 2)
    if error is not None and not math.isfinite(error):
        error = None
    return Estimated(estimate if high is None else min(estimate, high), error, low, high)


def _evaluate(expression: ex.Expression, known: Mapping[ex.Expression, Estimated]) -> _Value:
    match expression:
        case _ if expression in known:
            own = known[expression]
            low = -math.inf if own.lower_bound is None else float(own.lower_bound)
            high = math.inf if own.upper_bound is None else float(own.upper_bound)
            return _Value(own.estimate, low, high, {expression: 1.0})
        case ex.Literal(_, text):
            number = float(text)
            return _Value(number, number, number)
        case ex.Negative(operand):
            return _times(_Value(-1, -1, -1), _evaluate(operand, known))
        case ex.Cast(operand, _):
            return _evaluate(operand, known)
        case Rounded(operand):
            value = _evaluate(operand, known)
            low, high = expression.between(value.low, value.high)
            estimate = None if value.estimate is None else expression.of(value.estimate)
            return _Value(estimate, low, high, {**value.slopes, expression: 1.0})
        case ex.Deviation():
            return _deviation(expression, known)
        case ex.NullIf(left, ex.Literal(_, text)):
            value = _evaluate(left, known)
            return replace(value, estimate=None) if value.estimate == float(text) else value
        case ex.Coalesce((operand, ex.Literal(_, text))):
            value, otherwise = _evaluate(operand, known), float(text)
            if not _may_be_null(operand, known):
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
                other = _times(_Value(-1, -1, -1), other)
            estimate = None
            if one.estimate is not None and other.estimate is not None:
                estimate = one.estimate + other.estimate
            slopes = _combine(one.slopes, 1, other.slopes, 1)
            return _Value(estimate, one.low + other.low, one.high + other.high, slopes)
        case ex.Arithmetic("*", left, right):
            return _times(_evaluate(left, known), _evaluate(right, known))
        case ex.Arithmetic("/", left, right):
            return _ratio(expression, _evaluate(left, known), _evaluate(right, known))
    raise TypeError(f"{type(expression).__name__} is not checked")


_NULL: Final = _Value(None, math.inf, -math.inf)
"""No number: its bounds are those of nothing."""


def _may_be_null(expression: ex.Expression, known: Mapping[ex.Expression, Estimated]) -> bool:
    """Whether a calculation may have no result: there may be no value, or what divides is 0."""
    for part in ex.walk(expression):
        match part:
            case ex.NullIf() | ex.Case() | ex.Deviation() | ex.WindowTotal():
                return True
            case ex.Aggregate("count" | "distinct"):
                continue
            case ex.Aggregate(_, operand, condition):
                number = known.get(ex.Aggregate("count", operand, condition))
                if number is None or number.lower_bound is None or number.lower_bound < 1:
                    return True
    return False


def _choose(
    branches: Sequence[tuple[ex.Expression, ex.Expression]],
    default: ex.Expression | None,
    known: Mapping[ex.Expression, Estimated],
) -> _Value:
    """Calculate a CASE: bounds are those of all branches that may be the one."""
    chosen: _Value | None = None
    possible = []
    for condition, result in branches:
        truth = TruthRange.of(condition, partial(_tell_truth, known))
        if truth.may_be_true:
            possible.append(_evaluate(result, known))
            if truth.estimate and chosen is None:
                chosen = possible[-1]
        if not (truth.may_be_false or truth.may_be_unknown):
            break
    else:
        possible.append(_NULL if default is None else _evaluate(default, known))
        chosen = chosen or possible[-1]
    chosen = chosen or possible[-1]
    low, high = min(one.low for one in possible), max(one.high for one in possible)
    slopes = chosen.slopes
    if len(possible) > 1:  # whose odds are not known: off by as much as the bounds let it
        slopes = {**slopes, ex.Case(tuple(branches), default): math.inf}
    return replace(chosen, low=low, high=high, slopes=slopes)


def _tell_truth(known: Mapping[ex.Expression, Estimated], condition: ex.Expression) -> TruthRange:
    """Tell the truth of a comparison, or of a test for NULL."""
    values = [_evaluate(part, known) for part in ex.children(condition)]
    if isinstance(condition, ex.NullTest):
        return TruthRange((values[0].estimate is None) != condition.negated, True, True, False)
    if not isinstance(condition, ex.Comparison):
        raise TypeError(f"{type(condition).__name__} is not checked")
    one, other = (Between(value.estimate, value.low, value.high) for value in values)
    return TruthRange.of_comparison(
        condition.operator, one, other,
        may_be_unknown=any(_may_be_null(part, known) for part in ex.children(condition)),
    )  # fmt: skip


def _times(one: _Value, other: _Value) -> _Value:
    ends = [_product(x, y) for x in (one.low, one.high) for y in (other.low, other.high)]
    if one.estimate is None or other.estimate is None:
        return _Value(None, min(ends), max(ends))
    slopes = _combine(one.slopes, other.estimate, other.slopes, one.estimate)
    return _Value(one.estimate * other.estimate, min(ends), max(ends), slopes)


def _ratio(division: ex.Arithmetic, one: _Value, other: _Value) -> _Value:
    """Divide; where PostgreSQL divides by zero, there is no result to hold in bounds."""
    is_nullable = _is_nullable(division.right)
    scaled = _split_factor(division.right)
    if scaled is not None and scaled[0] == 1 and scaled[1].function == "count":
        # A number of records that is not 0 is at least 1.
        if other.high < 1:
            if is_nullable:
                return _Value(None, -math.inf, math.inf)
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
        return _Value(None, low, high)
    ratio = one.estimate / other.estimate
    slopes = _combine(one.slopes, 1 / other.estimate, other.slopes, -ratio / other.estimate)
    return _Value(ratio, low, high, slopes)


_CANCELLED: Final = 1e-14
"""What a difference of doubles loses at most, relative to both."""


def _deviation(spread: ex.Deviation, known: Mapping[ex.Expression, Estimated]) -> _Value:
    """Calculate a standard deviation or a variance: bounds hold where it is not NULL."""
    q, s, n = (_evaluate(part, known) for part in ex.children(spread))
    fewest = max(n.low, spread.lost + 1.0)
    if n.high < fewest:
        return _Value(None, -math.inf, math.inf)
    least = 0.0 if s.low <= 0 <= s.high else min(s.low**2, s.high**2)
    most = max(s.low**2, s.high**2)
    # Divided by fewer than are possible, the squares are at most, and by more, at least.
    far = q.high - least / n.high + _CANCELLED * (abs(q.high) + least)
    near = q.low - most / fewest - _CANCELLED * (abs(q.low) + most)
    high = max(far, 0.0) / (fewest - spread.lost)
    low = max(near, 0.0) / (n.high - spread.lost) if math.isfinite(near) else 0.0
    if spread.is_root:
        low, high = math.sqrt(low), math.sqrt(high)
    low, high = low * (1 - _CANCELLED), high * (1 + _CANCELLED)
    if q.estimate is None or s.estimate is None or n.estimate is None:
        return _Value(None, low, high)
    estimate = spread.of(q.estimate, s.estimate, n.estimate)
    if estimate is None:
        return _Value(None, low, high)
    variance = estimate**2 if spread.is_root else estimate
    by, mean = n.estimate - spread.lost, s.estimate / n.estimate
    changes = (1 / by, -2 * mean / by, (mean**2 - variance) / by)
    inner = (0.5 / estimate if estimate else math.inf) if spread.is_root else 1.0
    slopes: dict[ex.Expression, float] = {
        part: change * inner
        for part, change in zip(ex.children(spread), changes, strict=True)
        if isinstance(part, ex.Aggregate) and known[part].std_error != 0
    }
    return _Value(estimate, low, high, slopes)


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
    ends = [_product(part[0] / total[0], end) for end in (least, most)]
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


def _combine(
    one: Mapping[ex.Expression, float], x: float, other: Mapping[ex.Expression, float], y: float
) -> dict[ex.Expression, float]:
    names = dict.fromkeys((*one, *other))
    return {name: one.get(name, 0) * x + other.get(name, 0) * y for name in names}


def _product(x: float, y: float) -> float:
    return 0.0 if 0 in (x, y) else x * y  # what is not known is a number


def _fails() -> Exception:
    return refusal(
        "the query's arithmetic fails on some group",
        hint="write NULLIF(COUNT(*), 0), or exclude such groups with WHERE",
        detail="as for a division by zero",
    )


# From the likelihoods of types of records to the answer for each group.
#
# A record of a type is counted with a probability m. Were the errors of records independent, the
# variance of a count would be the sum of m (1 - m). But where a distribution is a little off, it is
# so for many records in the same direction: a part of their standard deviations adds up
# (`kanon_db.query.likelihoods`). The same model, with x in place of 1, gives the errors of sums and
# averages, so that one quantity has one error, however it is asked for.
# ``python -m benchmarks calibration`` measures how often the truth lies within the errors;
# docs/understand/estimation.md has the figures.


@dataclass(frozen=True, eq=False)
class _GroupSums:
    """Sums over the types of each group; arrays of shape (n_groups,)."""

    m: FloatArray  # The expected number of records, and the expected sums of x and its square
    mx: FloatArray
    mxx: FloatArray
    squares: FloatArray  # What standard errors follow from
    deviations: FloatArray
    sure: FloatArray  # Records that surely, and possibly, count
    possible: FloatArray
    low: FloatArray  # The bounds of the sum
    high: FloatArray

    @classmethod
    def empty(cls, n_groups: int) -> _GroupSums:
        return cls(*(np.zeros(n_groups) for _ in cls.__match_args__))

    def all(self) -> Iterator[FloatArray]:
        return (getattr(self, name) for name in self.__match_args__)


@dataclass(frozen=True, eq=False)
class _Doubts:
    """What the error of an answer follows from: a row for each type and group.

    The attributes are those of :class:`CountedRows`, and of its moments; without groups, `group` is
    None.
    """

    group: IntArray | None
    n: FloatArray
    u: FloatArray
    m: FloatArray
    x: FloatArray | None
    xx: FloatArray | None

    @classmethod
    def of(cls, counted: CountedRows, n_groups: int) -> _Doubts:
        group = None if n_groups == 1 else counted.group
        x = counted.moments
        own = (None, None) if x is None else (x.x, x.xx)
        return cls(group, counted.n, counted.u, counted.m, *own)


class Totals:
    """Adds up all types of records in each group.

    Parameters
    ----------
    types : KnownTypes
    left_out : int
        Records without a row, of which nothing is known.
    room : int
        How many bytes may be kept until the averages are known.
    is_average : bool
    """

    def __init__(
        self,
        types: KnownTypes,
        left_out: int,
        room: int,
        *,
        is_average: bool,
    ) -> None:
        pieces = types.pieces
        self._together = pieces.together
        self._is_unknown = is_unknown(types.read, pieces.marked)
        self._has_keys, self._is_summed = bool(pieces.keys), pieces.summed is not None
        self._is_sure = pieces.unit.condition is None and not pieces.keys
        self._left_out, self._is_average = left_out, is_average
        self._n_groups, self._n = 0, 0.0
        self._sums = _GroupSums.empty(0)
        self._is_seen, self._is_possible, self._is_wild = np.zeros((3, 0), dtype=np.bool_)
        self._least, self._most = np.zeros((2, 0))
        self._kept: list[_Doubts] | None = []
        self._room = room

    def grow(self, n_groups: int) -> None:
        """Make room for so many groups."""
        more = n_groups - self._n_groups
        if more <= 0:
            return
        self._n_groups = n_groups
        self._sums = _GroupSums(*(np.append(own, np.zeros(more)) for own in self._sums.all()))
        self._is_seen, self._is_possible, self._is_wild = (
            np.append(own, np.zeros(more, dtype=np.bool_))
            for own in (self._is_seen, self._is_possible, self._is_wild)
        )
        self._least = np.append(self._least, np.full(more, np.inf))
        self._most = np.append(self._most, np.full(more, -np.inf))

    def add_records(self, number: float) -> None:
        """Say how many records some types have, whether they count or not."""
        self._n += number

    def add(self, counted: CountedRows) -> None:
        """Add the records of some types."""
        self._is_seen[counted.group] = True
        self._is_possible[counted.group[counted.possibly]] = True
        c = self._choose(counted)
        self._sum("m", c.group, c.n * c.m)
        self._sum("sure", c.group, c.n * c.surely)
        self._sum("possible", c.group, c.n * c.possibly)
        doubts = _Doubts.of(c, self._n_groups)
        if self._is_average:
            self._keep(doubts)
        else:
            self._add_errors(doubts, np.zeros(self._n_groups))
        if c.moments is not None:
            self._add_moments(c, c.moments)

    @property
    def n_answers(self) -> int:
        """How many groups may have records."""
        # What is left out may be in each group that was seen.
        own = self._is_seen if self._left_out else self._is_possible
        return int(own.sum())

    def answers(self, again: Iterable[CountedRows] = ()) -> dict[int, Estimated]:
        """Answer for each group that may have records, by its number.

        `again`: all that was added, once more; it is read if there was no room to keep it.
        """
        s = self._sums
        average = np.divide(s.mx, s.m, out=np.zeros(self._n_groups), where=s.m > 0)
        if self._is_average:
            kept: Iterable[_Doubts] | None = self._kept
            if kept is None:
                kept = (_Doubts.of(self._choose(one), self._n_groups) for one in again)
            for doubts in kept:
                self._add_errors(doubts, average)
        if self._left_out:
            self._add_left_out(average)
        groups = np.flatnonzero(self._is_possible).tolist() if self._has_keys else [0]
        answer = self._sum_of if self._is_summed else self._count_of
        return {group: answer(group, float(average[group])) for group in groups}

    def _choose(self, counted: CountedRows) -> CountedRows:
        """Leave out what cannot count, unless others may be like it."""
        return counted if self._left_out else counted.of(counted.possibly)

    def _keep(self, doubts: _Doubts) -> None:
        """Keep what the errors of an average follow from, while there is room."""
        self._room -= (5 if doubts.group is None else 6) * 8 * doubts.n.size
        if self._room < 0:
            self._kept = None
        elif self._kept is not None:
            self._kept.append(doubts)

    def _sum(self, name: str, group: IntArray | None, values: FloatArray) -> None:
        own = getattr(self._sums, name)
        if group is None or self._n_groups == 1:
            own += values.sum()
        else:
            own += np.bincount(group, values, self._n_groups)

    def _add_moments(self, c: CountedRows, x: GroupMoments) -> None:
        self._sum("mx", c.group, c.n * x.x)
        self._sum("mxx", c.group, c.n * x.xx)
        is_there = np.isfinite(x.least)
        least, most = np.where(is_there, x.least, 0.0), np.where(is_there, x.most, 0.0)
        self._sum("low", c.group, c.n * np.where(c.surely, least, np.minimum(least, 0)))
        self._sum("high", c.group, c.n * np.where(c.surely, most, np.maximum(most, 0)))
        np.minimum.at(self._least, c.group, x.least)
        np.maximum.at(self._most, c.group, x.most)
        self._is_wild[c.group[x.is_wild]] = True

    def _add_errors(self, d: _Doubts, average: FloatArray) -> None:
        """Add what the standard errors of sums of x - a, or of counts, follow from."""
        variance = d.m * (1 - d.m)
        if d.x is not None and d.xx is not None:
            a = average[0] if d.group is None else average[d.group]
            variance = d.xx - 2 * a * d.x + a * a * d.m - (d.x - a * d.m) ** 2
            variance = np.where(variance > _CANCELLED * d.xx, variance, 0)
        variance = np.maximum(variance, 0)
        self._sum("squares", d.group, d.n * variance)
        self._sum("deviations", d.group, d.n * d.u * np.sqrt(variance))

    def _add_left_out(self, average: FloatArray) -> None:
        """Add the records that are left out, in each group: as likely as all others together."""
        s, groups = self._sums, np.flatnonzero(self._is_seen)
        n, share = groups.size, 1 / self._n
        moments = None
        if self._is_summed:
            moments = GroupMoments(
                s.mx[groups] * share, s.mxx[groups] * share,
                self._least[groups], self._most[groups], np.ones(n, dtype=np.bool_),
            )  # fmt: skip
        rows = CountedRows(
            groups, groups, np.full(n, float(self._left_out)), np.ones(n), s.m[groups] * share,
            np.full(n, self._is_sure), np.ones(n, dtype=np.bool_), moments,
        )  # fmt: skip
        self._is_possible[groups] = True
        self._sum("m", groups, rows.n * rows.m)
        self._sum("sure", groups, rows.n * rows.surely)
        self._sum("possible", groups, rows.n)
        doubts = _Doubts.of(rows, self._n_groups)
        self._add_errors(doubts, average if self._is_average else np.zeros(self._n_groups))
        if moments is not None:
            self._add_moments(rows, moments)

    def _error(self, group: int, widest: float) -> float:
        """Return the standard error, at most half the distance between the bounds."""
        # An error of 0 says that an answer is exact: if only the bounds differ, nothing is known.
        s = self._sums
        added = self._together * float(s.deviations[group])
        error = math.sqrt(float(s.squares[group]) + added**2)
        return min(error or widest, widest)

    def _count_of(self, group: int, _average: float) -> Estimated:
        s = self._sums
        sure, possible = round(float(s.sure[group])), round(float(s.possible[group]))
        widest = (possible - sure) / 2
        error = widest if self._is_unknown else self._error(group, widest)
        return Estimated(float(s.m[group]), error, sure, possible)

    def _sum_of(self, group: int, average: float) -> Estimated:
        s = self._sums
        if not self._is_possible[group]:
            return NOTHING
        c = float(s.m[group])
        estimate: float | None = float(s.mx[group])
        low, high = float(s.low[group]), float(s.high[group])
        least, most = float(self._least[group]), float(self._most[group])
        widest = (high - low) / 2
        lost = rounding(float(s.possible[group]), max(abs(least), abs(most)), low, high)
        low, high = low - lost, high + lost
        if self._is_average:
            # Bounds are known also where no record is expected, though some may count.
            estimate = average if c > 0 else None
            if s.sure[group] == s.possible[group]:
                number = float(s.sure[group])
                low, high = (min(max(t / number, least), most) for t in (low, high))
            else:
                low, high = least, most
                widest = (most - least) / 2 * c
        is_wild = bool(self._is_wild[group])
        error = None
        if not self._is_unknown and (c > 0 or not self._is_average):
            error = self._error(group, math.inf if is_wild else widest)
            error /= c if self._is_average else 1
        if is_wild:
            return Estimated(estimate, None if error == math.inf else error, None, None)
        if error is not None:
            error = max(min(error, (high - low) / 2), 0)
        return Estimated(estimate, error, low, high)


Answers = dict[str, tuple[tuple[int, ...], Estimated]]
"""The places of each group's values in their order, and its answer, by its key."""


def count_types(opened: OpenQuery, request: Request, layout: CellLayout) -> Answers:
    """Answer one aggregate from the types of records."""
    # Raises UnsupportedQueryError where a key is a column of continuous ranges; where there are too
    # many groups, or too much to be listed or tried.
    refuse_continuous_groups(opened.query, layout)
    is_average = request.aggregate.function == "avg"
    most = opened.limits.n_answers if request.most is None else request.most - 1
    names = [key.name for key in opened.query.keys]

    def answered(types: KnownTypes) -> Answers:
        counter = TypeCounter(types, opened.session.heartbeat, lists_all=bool(layout.left_out))
        totals = Totals(types, layout.left_out, opened.limits.kept, is_average=is_average)
        # One group alone is counted without numbers of groups.
        totals.grow(counter.n_groups if counter.has_few_groups else 2)
        for codes, n in types.all():
            totals.add_records(float(n.sum()))
            for counted in counter.counted(codes, n):
                totals.grow(counter.n_groups)
                totals.add(counted)
                opened.session.heartbeat()
                if names and totals.n_answers > most:
                    raise opened.limits.too_many()

        def again() -> Iterator[CountedRows]:
            for codes, n in types.all():
                for counted in counter.counted(codes, n):
                    opened.session.heartbeat()
                    yield counted

        answers: Answers = {}
        room = opened.limits.text
        for number, estimated in totals.answers(again()).items():
            ranks, values = counter.values(number)
            key = key_of_values(names, values)
            room -= len(key.encode())
            if room < 0:
                raise opened.limits.too_many()
            answers[key] = ranks, estimated
        return answers

    return from_types(opened, request, layout, answered)


def refuse_continuous_groups(query: Query, layout: CellLayout) -> None:
    """Refuse to group by a column of continuous ranges, whose values cannot be listed.

    Raises UnsupportedQueryError.
    """
    for cell in find_grouped_ranges(query, layout):
        if not cell.is_discrete:
            raise refusal(
                "GROUP BY does not accept a column of continuous ranges",
                hint="write COUNT(*) FILTER (WHERE x >= 10 AND x < 20) for each interval",
                detail=f'column "{cell.column.name}"',
            )


def refuse_wide_groups(opened: OpenQuery, layout: CellLayout) -> None:
    """Refuse to group by ranges with too many values to list all of them."""
    for cell in find_grouped_ranges(opened.query, layout):
        if cell.is_discrete and opened.is_wide(layout, cell):
            raise refusal(
                f"GROUP BY accepts neither ranges without an end nor of more than {MOST_GROUPED:,}"
                " values",
                hint="ask for each interval by itself, as in COUNT(*) FILTER (WHERE x >= 65),"
                " COUNT(*) FILTER (WHERE x < 65)",
                detail=f'column "{cell.column.name}"',
            )


def each_measure(opened: OpenQuery, answered: Callable[[OpenQuery], list[Group]]) -> list[Group]:
    """Answer each measure, and collect the answers for each group.

    `answered`: answers the counts that an aggregate follows from, likewise.
    """
    query = opened.query
    if isinstance(opened.layout, CellLayout):
        refuse_wide_groups(opened, opened.layout)
    aggregates = [measure.aggregate for measure in query.measures]
    everybody = Aggregate("count", None)
    # A group whose values are all NULL has no sum, but it is still a group.
    aggregates_counted = (
        aggregates if everybody in aggregates or not query.keys else [*aggregates, everybody]
    )
    n_asked = len(aggregates_counted) + len(query.formulas)

    plain = [one for one in dict.fromkeys(aggregates_counted) if not is_derived(opened, one)]
    answers = _answer_plain(opened, plain, n_asked)
    listed: Answers = answers[everybody] if query.keys else {"{}": ((), NOTHING)}

    def rows(aggregate: Aggregate) -> Answers:
        if aggregate in answers:
            own = answers[aggregate]
            return _as_listed(own, listed) if query.keys else own
        of = derive_answers(opened, aggregate, answered)
        return {key: ((), of[common_spelling(key)]) for key in listed if common_spelling(key) in of}

    of_all = [(empty(aggregate), rows(aggregate)) for aggregate in aggregates]

    def estimates(key: str) -> tuple[Estimated, ...]:
        return tuple(rows[key][1] if key in rows else nothing for nothing, rows in of_all)

    return [Group(key, ranks, estimates(key)) for key, (ranks, _) in listed.items()]


def _as_listed(answers: Answers, listed: Answers) -> Answers:
    """Name groups as they are listed: equal values may be written differently, as 1.0 and 1.00."""
    if answers.keys() <= listed.keys():
        return answers
    names = {common_spelling(key): key for key in listed}
    return {names.get(common_spelling(key), key): answer for key, answer in answers.items()}


def _answer_plain(
    opened: OpenQuery, aggregates: Sequence[Aggregate], n_asked: int
) -> dict[Aggregate, Answers]:
    """Answer the aggregates that need no others."""
    # Raises UnsupportedQueryError when the answers to all `n_asked` aggregates would be too many,
    # or their keys too long.
    most = opened.limits.n_answers // n_asked
    answers = {
        one: _ask_exactly(opened, one, most) for one in aggregates if one.function in DERIVED
    }
    counted = [one for one in aggregates if one not in answers]
    if isinstance(opened.layout, CellLayout):
        for one in counted:
            request = Request(opened.query, one, opened.lookups, most=most + 1)
            answers[one] = count_types(opened, request, opened.layout)
    elif counted:
        groups = answer_in_buckets(opened, counted)
        if len(groups) > most:
            raise opened.limits.too_many()
        for place, one in enumerate(counted):
            answers[one] = {group.key: (group.ranks, group.estimates[place]) for group in groups}
    return answers


def _ask_exactly(opened: OpenQuery, aggregate: Aggregate, most: int) -> Answers:
    """Have the server order, or tell apart, values that are published as they are."""
    request = Request(opened.query, aggregate, opened.lookups, most=most + 1)
    written = ExactWriter(request, opened.layout, opened.plan(aggregate).only_side).statement()
    names = [f"rank_{i}" for i in range(len(opened.query.keys))]
    text, limits = written.text, opened.limits
    if names:
        size = "sum(octet_length(a.group_key)) OVER (ROWS UNBOUNDED PRECEDING)"
        text = f"SELECT a.*, {size} <= {limits.text} AS fits FROM (\n{text}\n) AS a"
    answers: Answers = {}
    for row in opened.fetch(text, *written.bound):
        if names and (len(answers) == most or not row["fits"]):
            raise limits.too_many()
        answer = (row["estimate"], row["std_error"], row["lower_bound"], row["upper_bound"])
        ranks = tuple(row[name] for name in names)
        answers[row["group_key"] if names else "{}"] = (ranks, Estimated(*answer))
    return answers


class ExactWriter(Writer):
    """Writes an aggregate over one relation, where all of it is published as it is."""

    # The statement returns ``estimate, std_error, lower_bound, upper_bound``; for a query with
    # GROUP BY a row for each group, with ``group_key`` (JSON) and ``rank_0 …``, the places of the
    # group's values in their order, before them.

    def __init__(self, request: Request, layout: BucketLayout | CellLayout, side: Side) -> None:
        super().__init__(request)
        self._aggregate = request.aggregate
        self._chosen = condition_on(request.query, request.aggregate)
        self._alias, self._more = "c", list[str]()
        if isinstance(layout, CellLayout):
            self._relation = layout.view.view
        elif side == 1:
            self._relation, self._alias = layout.tables.sat, "s"
            if request.aggregate.function in ("disc", "cont"):
                self._more = [f"CROSS JOIN generate_series(1, s.{layout.tables.count})"]
        else:
            self._relation, self._alias = layout.tables.qit, "q"
        self._aggregate_all()

    def _aggregate_all(self) -> None:
        parts = [self._chosen, self._aggregate.operand, *self.keys.values()]
        source = [*join_relations(self._relation, self._alias, parts, self.lookups), *self._more]
        keys = {name: self._write(key) for name, key in self.keys.items()}
        where = [self._write(part) for part in parts_of(self._chosen)]
        self.steps.add(
            "counted",
            "All of it is published as it is: the answer is exact.",
            Select({**keys, "n": self._value()}, source, where, number_columns(len(keys))),
        )
        error = "CASE WHEN n IS NOT NULL THEN 0::float8 END"
        answer = dict(zip(ANSWER, ("n::float8", error, "n", "n"), strict=True))
        self.step("answers", "An exact number is its own bounds.", answer)

    def _write(self, expression: ex.Expression) -> str:
        return write(expression, speller(self._alias), self.constants)

    def _value(self) -> str:
        operand = self._aggregate.operand
        if operand is None:
            raise TypeError("these aggregates have an operand")
        x, share = self._write(operand), self._aggregate.share
        match self._aggregate.function:
            case "distinct":
                return f"count(DISTINCT {x})"
            case "min" | "max" as function:
                return f"{function}({x})::float8"
            case function:
                return f"(percentile_{function}({share!r}) WITHIN GROUP (ORDER BY {x}))::float8"
