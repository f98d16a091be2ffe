"""Answers counts, sums and averages over buckets from the codes of their slots."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, FloatArray, IntArray
from kanon_db.answers.buckets.bucket_totals import (
    BucketCounter,
    BucketTotals,
    OccurringGroups,
    n_kinds,
    side_of_numbers,
)
from kanon_db.answers.buckets.ranked_counts import CountedPair, Judge, RankedCounts, RankedSums
from kanon_db.answers.buckets.slots import (
    LARGEST,
    Grouping,
    Outcomes,
    Slots,
    ValueOutcomes,
    along,
    combine_codes,
    guard,
    leaves_of,
    may_fail,
)
from kanon_db.answers.plan import Plan
from kanon_db.answers.scope import OpenQuery
from kanon_db.answers.value_ranks import ExactValues
from kanon_db.dataclasses import dataclass
from kanon_db.publications.buckets.learned_weights import (
    ChosenValues,
    RecordWeights,
    find_needed_values,
    is_most,
)
from kanon_db.publications.buckets.tallies import (
    DependenceEffect,
    DependenceEffects,
    Margins,
    MatchedPairs,
    PairsOfGroups,
    PairSums,
    SumsByGroup,
    Tally,
    hide_mixed,
    judge_pairs,
    summed,
)
from kanon_db.publications.codes import Chunk, Store, StoredColumn
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import Aggregate
from kanon_db.query.formulas import (
    NOTHING,
    Estimated,
    Group,
    all_but,
    common_spelling,
    empty,
    write_key,
)
from kanon_db.query.layout import UNTOLD_STRENGTH, BucketLayout, parts_of
from kanon_db.transfer.tries import (
    TRUE,
    ColumnValues,
    Combinations,
    Domain,
    Ranked,
    Tries,
    Truth,
)

Answers = Mapping[tuple[int, ...], Estimated]
"""By the rank of each key's value."""

_EVERYBODY: Final = Aggregate("count", None)

_MOST_PLACES: Final = 1 << 16
"""Combinations of keys of one side that have a place each, whether they occur or not."""

MOST_CROSSED: Final = 1 << 20
"""Combinations of values that are tried whether they occur or not."""

_MOST_MARKED: Final = 1 << 24
"""Combinations of values that have a place each in an array."""

_MANY_VALUES: Final = 1 << 12
"""Of more, it is quicker to ask for the numbers of some, by another statement."""

_TRIED: Final = 16
"""Groups of one side that are looked at, for each answer."""


def answer_in_buckets(opened: OpenQuery, aggregates: Sequence[Aggregate]) -> list[Group]:
    """Answer counts, sums and averages for each group that can have records."""
    layout = opened.layout
    if not isinstance(layout, BucketLayout):
        raise TypeError("these are no buckets")
    # A group of which an aggregate chooses nobody is a group all the same.
    listing = _EVERYBODY if opened.query.keys else aggregates[0]
    measures = list(dict.fromkeys((listing, *aggregates)))
    evidence = BucketEvidence(opened, layout, opened.store)
    plans = map(opened.plan, measures)
    answers = dict(zip(measures, evidence.answers(list(plans)), strict=True))
    room = opened.limits.text
    groups = []
    for ranks in answers[listing]:
        key = evidence.key(ranks)
        room -= len(key.encode())
        if room < 0:
            raise opened.limits.too_many()
        estimates = tuple(answers[one].get(ranks, empty(one)) for one in aggregates)
        groups.append(Group(key, ranks, estimates))
    return groups


def rank_in_buckets(opened: OpenQuery, aggregate: Aggregate) -> RankedCounts:
    """Count what MIN, MAX and percentiles follow from, for each group that can have records."""
    layout = opened.layout
    if not isinstance(layout, BucketLayout):
        raise TypeError("these are no buckets")
    return BucketEvidence(opened, layout, opened.store).rank(opened.plan(aggregate))


class MostOfValues(NamedTuple):
    """More than half of the values of an attribute: they weigh what the others leave."""

    keys: Mapping[int, str]  # The group that they are, by the numbers of its keys: values as JSON
    x: float | None  # The number that they have, where one is summed


class BucketEvidence:
    """Answers the aggregates of one question, which have the same keys."""

    def __init__(self, opened: OpenQuery, layout: BucketLayout, store: Store) -> None:
        self._opened, self._layout, self._store = opened, layout, store

    @np.errstate(over="ignore", invalid="ignore")  # Sums of infinite numbers are refused later
    def answers(self, plans: Sequence[Plan]) -> list[Answers]:
        """Answer some plans; what they ask of values is tried by one statement."""
        totals = self._count(plans)
        return [
            self._answer(plan, one, own)
            for plan, one, own in zip(plans, totals, self._chosen, strict=True)
        ]

    def rank(self, plan: Plan) -> RankedCounts:
        """Order the values of a plan."""
        (totals,), (chosen,) = self._count([plan]), self._chosen
        sums = totals.ranked
        if sums is None or plan.ranked is None:
            raise TypeError("nothing is ordered")
        groups = sums.numbers.tolist() if plan.keys else [0]
        if len(groups) > self._opened.limits.n_answers:
            raise self._opened.limits.too_many()
        keys = {common_spelling(self.key(self._ranks(plan, group))): group for group in groups}
        places = self._outcomes.number(plan.ranked).distinct
        judge = self._judge_ranks(plan, totals, chosen, places)
        return RankedCounts(sums, places, keys, judge)

    def key(self, ranks: tuple[int, ...]) -> str:
        """Write a group's key."""
        names = (key.name for key in self._opened.query.keys)
        texts = (key.texts[rank] for key, rank in zip(self._keys, ranks, strict=True))
        return write_key(names, texts)

    def find_most(self, plans: Sequence[Plan]) -> list[list[MostOfValues] | None]:
        """Find where more than half of the values weigh together; None without weights."""
        self._try_values(plans)
        return [
            None if groups is None else [
                MostOfValues(self._value_keys(h), x)
                for h, values in enumerate(groups)
                for x in values.distinct_x
                if plan.shape == "either" or is_most(values.choose(x))
            ]
            for plan, groups in zip(plans, self._chosen, strict=True)
        ]  # fmt: skip

    def _value_keys(self, group: int) -> dict[int, str]:
        ranks = self._groupings[1].ranks(group)
        return {
            number: self._keys[number].texts[rank]
            for number, rank in zip(self._numbers[1], ranks, strict=True)
        }

    def _count(self, plans: Sequence[Plan]) -> list[BucketTotals]:
        plans = self._try_values(plans)
        begun = [self._begin(plan, own) for plan, own in zip(plans, self._chosen, strict=True)]
        counter = BucketCounter(plans, self._outcomes, self._groupings, begun)
        totals = begun
        names = list(dict.fromkeys(name for plan in plans for name in plan.columns))
        for more in self._store.each(names, counter):
            totals = [one + other for one, other in zip(totals, more, strict=True)]
        return totals

    def _try_values(self, plans: Sequence[Plan]) -> list[Plan]:
        """Ask the server of the values of some plans; return these, guarded."""
        plans = [
            replace(plan, pairs=tuple(
                guard(part, (*parts_of(plan.records), *parts_of(plan.values)))
                for part in plan.pairs
            ))
            for plan in plans
        ]  # fmt: skip
        tries = ValueTries(self._opened, self._store)
        for key in plans[0].keys:
            tries.want("key", key.expression)
        self._coded = self._find_coded(plans)
        for column in self._coded:
            tries.want_codes(column)
        for plan in plans:
            for condition in (plan.records, plan.values, *plan.pairs):
                tries.want_truth(condition)
            if plan.measure.function == "distinct" and plan.measure.operand is not None:
                tries.want("rank", plan.measure.operand)
            elif plan.number is not None:
                tries.want("number", plan.number)
            if plan.shape == "pairs":
                self._require_room()
        self._outcomes, self._with_nan = tries.ask(), tries.with_nan
        keys = plans[0].keys
        self._keys = [self._outcomes.key(key.expression) for key in keys]
        self._groupings = self._find_groups(plans[0])
        self._numbers = [[key.number for key in keys if key.side == side] for side in (0, 1)]
        self._chosen = [self._choose_values(plan) for plan in plans]
        return list(plans)

    def _find_coded(self, plans: Sequence[Plan]) -> set[ex.Column]:
        """Find the columns of many values of which only the order is needed, as codes have it."""
        columns: dict[ex.Column, bool] = {}
        for plan in plans:
            if isinstance(plan.number, ex.Column) and plan.number.lookup is None:
                is_ordered = plan.shape == "exact" and plan.ranked is not None
                columns[plan.number] = columns.get(plan.number, True) and is_ordered
        stored = self._store.columns
        return {
            column
            for column, is_ordered in columns.items()
            if is_ordered and stored[column.name].n_values > _MANY_VALUES
        }

    def _find_groups(self, plan: Plan) -> tuple[Grouping, Grouping]:
        """Find the groups of each side, given the plan that lists them."""
        groupings = []
        for side, condition in ((0, plan.records), (1, plan.values)):
            keys = [key for key in plan.keys if key.side == side]
            grouping = Grouping([self._keys[key.number] for key in keys])
            if grouping.n_combinations > _MOST_PLACES:
                # A group that no bucket has beside what is asked of the other side is no answer.
                most = _TRIED * self._opened.limits.n_answers
                if grouping.n_combinations > LARGEST:
                    raise self._opened.limits.too_many()
                # The first has a place in any case, since arrays have a line of some group.
                numbers = np.zeros(1, np.int64)
                finder = OccurringGroups(self._outcomes, grouping, condition)
                for more in self._store.each(plan.columns, finder):
                    numbers = np.union1d(numbers, more)
                    if numbers.size > most:
                        raise self._opened.limits.too_many()
                grouping = Grouping(grouping.keys, numbers)
            groupings.append(grouping)
        records, values = groupings
        tables, every = self._layout.tables, Grouping(self._keys).n_combinations
        if plan.shape == "pairs" and every > LARGEST // tables.n_buckets:
            raise self._opened.limits.too_many()
        if records.n * values.n > LARGEST // sum((size + 1) ** 2 for size in tables.sizes):
            raise self._opened.limits.too_many()
        return records, values

    def _require_room(self) -> None:
        """Refuse buckets whose pairs do not fit into the memory of a question."""
        if 16 * self._layout.tables.sizes[-1] ** 2 > self._opened.limits.kept:
            raise self._opened.too_much()

    def _begin(self, plan: Plan, chosen: list[ChosenValues] | None) -> BucketTotals:
        records, values = self._groupings
        n_groups = records.n, values.n
        weights, ranked, n_of_records = None, None, records.n
        if plan.ranked is not None and plan.shape != "exact":
            side, of_ranks = plan.side(plan.ranked), n_groups
            if plan.shape == "pairs":  # whose groups are those of all keys
                side, of_ranks = 0, (Grouping(self._keys).n_combinations, 1)
            n_ranks = max(self._outcomes.number(plan.ranked).distinct.size, 1)
            if of_ranks[0] * of_ranks[1] * n_ranks > LARGEST:
                raise self._opened.limits.too_many()
            ranked = RankedSums(of_ranks, n_ranks, side or 0)
            if side == 0:
                n_of_records *= n_ranks
        attribute = self._attribute_of_weights(plan)
        if attribute is not None and chosen is not None:
            needed = find_needed_values(chosen, by_others=plan.shape == "either")
            # Where weights of all groups have no room, the paper's estimator answers.
            if 16 * needed.size * n_of_records <= self._opened.limits.kept:
                is_summed = plan.summed is not None and plan.has_number_on(0)
                weights = self._opened.weights(attribute, needed, n_of_records, is_summed=is_summed)
        return BucketTotals(
            Tally(n_groups, np.array(self._layout.tables.sizes)), SumsByGroup(n_kinds(plan)),
            Margins(n_groups, side_of_numbers(plan)), weights, ranked,
        )  # fmt: skip

    def _attribute_of_weights(self, plan: Plan) -> str | None:
        """Return the sensitive attribute that alone is asked for, if its values have weights."""
        sensitive = [name for name in plan.columns if name in plan.uncertain]
        if plan.shape not in ("apart", "either") or len(sensitive) != 1:
            return None
        return sensitive[0] if sensitive[0] in self._layout.tables.weighted else None

    def _answer(
        self, plan: Plan, totals: BucketTotals, chosen: list[ChosenValues] | None
    ) -> Answers:
        if plan.shape == "exact":
            answers = self._exact(plan, totals)
        elif plan.shape == "pairs":
            answers = self._of_pairs(plan, totals)
        elif plan.summed is None:
            answers = self._counts(plan, totals, chosen)
        else:
            answers = self._sums(plan, totals, chosen)
        if len(answers) > self._opened.limits.n_answers:
            raise self._opened.limits.too_many()
        return answers

    def _exact(self, plan: Plan, totals: BucketTotals) -> Answers:
        sums = totals.sums
        if plan.measure.function == "count":
            if not plan.keys:
                return {(): _exactly(float(sums.totals.sum()))}
            return {
                self._ranks(plan, group): _exactly(n)
                for group, n in zip(sums.group.tolist(), sums.totals[0].tolist(), strict=True)
            }
        answers: dict[tuple[int, ...], Estimated] = {} if plan.keys else {(): empty(plan.measure)}
        values = ExactValues(self._outcomes.of_operand(plan.measure).distinct, sums)
        if plan.ranked in self._coded:
            values = self._decode(plan.measure, values)
        for group, answer in values.aggregates(plan.measure, has_nan=plan.number in self._with_nan):
            answers[self._ranks(plan, group) if plan.keys else ()] = answer
        return answers

    def _decode(self, measure: Aggregate, codes: ExactValues) -> ExactValues:
        """Find the numbers that a quantile is made of, whose codes are ranks."""
        column, tries = measure.operand, self._opened.tries()
        if not isinstance(column, ex.Column):
            raise TypeError("a column has codes")
        needed = codes.find_ranks(measure)
        if not needed.size:
            return codes
        domain = ValueTries(self._opened, self._store).domain(column.name)
        combinations = Combinations({column.name: domain}, needed[:, np.newaxis])
        numbers = tries.want_number(column, combinations)
        tries.ask()
        values = np.full(codes.values.size, np.nan)
        values[needed] = numbers()
        self._with_nan |= tries.with_nan
        return ExactValues(values, codes.sums)

    def _counts(
        self, plan: Plan, totals: BucketTotals, chosen: list[ChosenValues] | None
    ) -> Answers:
        groups = totals.tally.groups()
        by_others = plan.shape == "either"
        by_weights: list[FloatArray | None] = [None] * self._groupings[1].n
        if chosen is not None and (weights := self._weights(totals)) is not None:
            by_weights = [weights.count(values, by_others=by_others) for values in chosen]
        margins = totals.margins.of_pairs(groups.number)

        def weigh(at: int) -> float | None:
            g, h = divmod(int(groups.number[at]), self._groupings[1].n)
            own = by_weights[h]
            return None if own is None else own[g]

        judge = self._judge_counts(plan, groups, margins, weigh)
        answers: dict[tuple[int, ...], Estimated] = {}
        for at, (number, upper) in enumerate(zip(groups.number, groups.upper, strict=True)):
            if plan.keys and not upper:
                continue
            answer = judge(at)
            if by_others:
                answer = all_but(totals.margins.n_records, answer)
            answers[self._ranks(plan, int(number))] = answer
        return answers

    def _judge_counts(
        self,
        plan: Plan,
        pairs: PairsOfGroups,
        margins: PairSums,
        weigh: Callable[[int], float | None],
    ) -> Callable[[int], Estimated]:
        """Judge counts of pairs of groups; `weigh`: what weights say of one of them."""
        hidden = self._hide(plan, margins, pairs.estimate)
        return lambda at: self._judge(pairs.pairs(at), hidden.at(at), weigh(at))

    def _judge_ranks(
        self,
        plan: Plan,
        totals: BucketTotals,
        chosen: list[ChosenValues] | None,
        places: FloatArray,
    ) -> Judge:
        """Judge counts of some ranks, of which these are the values."""
        if plan.shape == "pairs":
            return lambda counted, _: (
                lambda at: self._judge_mixed(plan, counted[0].pairs(at), totals)
            )
        weights = self._weights(totals)

        def judge(counted: CountedPair, ranks: Sequence[range]) -> Callable[[int], Estimated]:
            pairs, margins = counted
            weigh = self._weigh_ranks(int(pairs.number[0]), weights, chosen, places)
            return self._judge_counts(plan, pairs, margins, lambda at: weigh(ranks[at]))

        return judge

    def _weigh_ranks(
        self,
        number: int,
        weights: RecordWeights | None,
        chosen: list[ChosenValues] | None,
        places: FloatArray,
    ) -> Callable[[range], float | None]:
        """Count the records of a pair of groups that have some ranks by their weights."""
        if weights is None or chosen is None:
            return lambda _: None
        g, h = divmod(number, self._groupings[1].n)
        are_chosen, x = chosen[h]
        if x is None:  # records are ordered: each of their ranks is a group
            n_ranks = len(weights.n) // self._groupings[0].n
            own = weights.of(slice(g * n_ranks, (g + 1) * n_ranks)).count(chosen[h])
            upto = None if own is None else np.append(0.0, np.cumsum(own))
            return lambda ranks: (
                None if upto is None or not ranks else float(upto[ranks.stop] - upto[ranks.start])
            )
        of_group = weights.of(slice(g, g + 1))

        def weigh(ranks: range) -> float | None:
            if not ranks:
                return None
            first, last = places[ranks[0]], places[ranks[-1]]
            are_inside = are_chosen & (first <= x) & (x <= last)
            counted = of_group.count(ChosenValues(are_inside, None))
            return None if counted is None else float(counted[0])

        return weigh

    def _sums(self, plan: Plan, totals: BucketTotals, chosen: list[ChosenValues] | None) -> Answers:
        sums = totals.sums
        is_average = plan.measure.function == "avg"
        by_weights: list[FloatArray | None] = [None] * self._groupings[1].n
        if chosen is not None and (weights := self._weights(totals)) is not None:
            by_weights = [weights.sum(values, is_average=is_average) for values in chosen]
        t, c = sums.totals[:2]
        means = np.divide(t, c, out=np.zeros_like(t), where=c > 0) if is_average else None
        margins = totals.margins.of_pairs(sums.group, means)
        hidden = self._hide(plan, margins, np.zeros_like(t) if is_average else t)
        answers: dict[tuple[int, ...], Estimated] = {} if plan.keys else {(): NOTHING}
        for i, number in enumerate(sums.group.tolist()):
            extremes = float(sums.least[i]), float(sums.most[i])
            pairs = summed(sums.totals[:, i].tolist(), extremes, is_average=is_average)
            g, h = divmod(number, self._groupings[1].n)
            own = by_weights[h]
            answer = NOTHING
            if pairs is not None:
                answer = self._judge(pairs, hidden.at(i), None if own is None else own[g])
            answers[self._ranks(plan, number)] = answer
        return answers

    def _of_pairs(self, plan: Plan, totals: BucketTotals) -> Answers:
        sums = totals.sums
        is_average = plan.measure.function == "avg"
        nothing = Estimated(0.0, 0.0, 0, 0) if plan.summed is None else NOTHING
        answers: dict[tuple[int, ...], Estimated] = {} if plan.keys else {(): nothing}
        for i, number in enumerate(sums.group.tolist()):
            pairs: MatchedPairs | None
            if plan.summed is None:
                pairs = PairsOfGroups(sums.group, *sums.totals).pairs(i)
            else:
                extremes = float(sums.least[i]), float(sums.most[i])
                pairs = summed(sums.totals[:, i].tolist(), extremes, is_average=is_average)
            ranks = self._ranks(plan, number)
            answers[ranks] = NOTHING if pairs is None else self._judge_mixed(plan, pairs, totals)
        return answers

    @staticmethod
    def _weights(totals: BucketTotals) -> RecordWeights | None:
        """Return what is learned of the records of each group, if something is."""
        return None if totals.records is None else totals.records.weights()

    def _choose_values(self, plan: Plan) -> list[ChosenValues] | None:
        """Find the weighted values of each group, as if each were in a slot."""
        attribute = self._attribute_of_weights(plan)
        if attribute is None:
            return None
        column = self._store.columns[attribute]
        codes = np.arange(column.n_values).astype(column.dtype).tobytes()
        slots = Slots(self._outcomes, Chunk(0, column.n_values, []), {attribute: codes})
        mask = slots.where(plan.values)
        grouping = self._groupings[1]
        group = grouping.of(slots, mask)
        x = None
        if plan.number is not None and plan.has_number_on(1):
            outcomes = self._outcomes.number(plan.number)
            x = slots.look_up(outcomes, outcomes.answers)
        if group is None:
            return [ChosenValues(mask.astype(np.bool_), x)]
        return [ChosenValues(group == h, x) for h in range(grouping.n)]

    def _judge(
        self, pairs: MatchedPairs, hidden: DependenceEffect, by_weights: float | None = None
    ) -> Estimated:
        """Judge an estimate, by weights where there are any."""
        if by_weights is not None:
            by_weights = None if math.isnan(by_weights) else float(by_weights)
        is_paper = self._layout.is_paper
        return judge_pairs(pairs, hidden, by_weights=by_weights, is_paper=is_paper)

    def _judge_mixed(self, plan: Plan, pairs: MatchedPairs, totals: BucketTotals) -> Estimated:
        """Judge an estimate of pairs that are compared with each other."""
        n_records, n_buckets = totals.margins.n_records, totals.margins.n_buckets
        strength = find_strength(self._layout, plan)
        hidden = hide_mixed(pairs.variance, n_records, n_buckets, strength)
        return self._judge(pairs, DependenceEffect(hidden))

    def _hide(self, plan: Plan, margins: PairSums, expected: FloatArray) -> DependenceEffects:
        """Find what a dependence adds to sums, which a random matching expects to be these."""
        is_shown = self._layout.is_drawn_from_all
        return margins.hide(find_strength(self._layout, plan), expected if is_shown else None)

    def _ranks(self, plan: Plan, number: int) -> tuple[int, ...]:
        """Return the rank of each key's value in a group, or a pair of them."""
        if plan.shape == "pairs":
            return Grouping(self._keys).ranks(number)
        if plan.shape == "exact":
            return self._groupings[plan.only_side].ranks(number)
        records, values = self._groupings
        of_sides = divmod(number, values.n)
        ranks = {
            key: rank
            for numbers, grouping, group in zip(
                self._numbers, (records, values), of_sides, strict=True
            )
            for key, rank in zip(numbers, grouping.ranks(group), strict=True)
        }
        return tuple(ranks[key] for key in sorted(ranks))


def find_strength(layout: BucketLayout, plan: Plan) -> float:
    """Return how strongly values may depend on what is asked of records."""
    stated, strengths = layout.strengths, []
    for attribute in plan.uncertain & stated.keys() & set(plan.columns):
        of_columns = stated[attribute]
        named = [of_columns[name] for name in plan.columns if name in of_columns]
        strengths.append(math.hypot(*named) / math.sqrt(max(len(named), 1)))
    return max(strengths, default=UNTOLD_STRENGTH)


def _exactly(n: float) -> Estimated:
    return Estimated(float(round(n)), 0.0, round(n), round(n))


@dataclass(frozen=True)
class Occurring:
    """The combinations of codes that slots have, or pairs of slots if columns are on two sides."""

    columns: Sequence[StoredColumn]
    numbers: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))

    def of(
        self, chunk: Chunk, codes: Mapping[str, bytes], heartbeat: Callable[[], None]
    ) -> Occurring:
        """Find those of a chunk."""
        own = {column.name: column for column in self.columns}
        slots = Slots(ValueOutcomes(own, {}), chunk, codes, heartbeat)
        sizes = [column.n_values for column in self.columns]
        has = np.zeros(prod(sizes), np.bool_) if prod(sizes) <= _MOST_MARKED else None
        numbers = self.numbers[:0]
        for number in self._numbers(slots, sizes):
            if has is None:
                numbers = np.union1d(numbers, number)
            else:
                has[number] = True
        return Occurring(self.columns, numbers if has is None else np.flatnonzero(has))

    def __add__(self, other: Occurring) -> Occurring:
        """Put those of two chunks together."""
        return Occurring(self.columns, np.union1d(self.numbers, other.numbers))

    def _numbers(self, slots: Slots, sizes: Sequence[int]) -> Iterator[AnyIntArray]:
        if len({column.side for column in self.columns}) < 2:
            yield combine_codes([slots.codes(column.name) for column in self.columns], sizes)
            return
        for block in slots.chunk.blocks(lambda size: size * size):
            slots.heartbeat()
            codes = [along(block.slots(slots.codes(c.name)), c.side) for c in self.columns]
            yield combine_codes(codes, sizes)


@dataclass(eq=False)
class ValueTries:
    """Asks the server of the values of a store's columns."""

    opened: OpenQuery
    store: Store
    _tries: Tries = field(init=False)
    _wanted: dict[tuple[str, ex.Expression], tuple[Callable[[], Any], tuple[str, ...], Any]] = (
        field(default_factory=dict)
    )
    _domains: dict[str, Domain] = field(default_factory=dict)
    _combinations: dict[tuple[str, ...], tuple[Combinations, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._tries = self.opened.tries()

    @property
    def with_nan(self) -> set[ex.Expression]:
        """The expressions of which some number is NaN."""
        return self._tries.with_nan

    def columns(self, expression: ex.Expression | None) -> tuple[str, ...]:
        """Return the columns that an expression depends on, in the order of the store."""
        names = ex.attributes(expression)
        return tuple(name for name in self.store.columns if name in names)

    def want_truth(self, condition: ex.Expression | None) -> None:
        """Ask for the truth of a condition's leaves."""
        for leaf in leaves_of(condition):
            self.want("truth", leaf)

    def want(self, what: str, expression: ex.Expression) -> None:
        """Ask for a ``truth``, ``number``, ``rank`` or ``key`` of each combination of values."""
        if (what, expression) in self._wanted:
            return
        columns = self.columns(expression)
        combinations, codes = self._combine(columns, may_fail(expression))
        ask = {
            "truth": self._tries.want_truth,
            "number": self._tries.want_number,
            "rank": self._tries.want_rank,
            "key": self._tries.want_key,
        }[what]
        self._wanted[what, expression] = ask(expression, combinations), columns, codes

    def want_codes(self, column: ex.Column) -> None:
        """Let the codes of a column stand for its numbers, which are in the same order."""
        domain, is_value = self.domain(column.name), ex.NullTest(column, negated=True)
        last = Combinations({column.name: domain}, np.array([[domain.n - 1]]))
        is_last = self._tries.want_truth(is_value, last)

        def numbers() -> FloatArray:
            codes = np.arange(domain.n, dtype=np.float64)
            return codes if is_last()[0] == TRUE else np.append(codes[:-1], np.nan)

        def truths() -> Truth:
            return np.append(np.full(domain.n - 1, TRUE, np.uint8), is_last()[0])

        names = (column.name,)
        self._wanted["number", column] = numbers, names, None
        self._wanted["truth", is_value] = truths, names, None

    def ask(self) -> ValueOutcomes:
        """Run the statement."""
        self._tries.ask()
        answers = {
            wanted: self._place(answer(), columns, codes)
            for wanted, (answer, columns, codes) in self._wanted.items()
        }
        return ValueOutcomes(self.store.columns, answers)

    def _place(self, answers: Any, columns: tuple[str, ...], codes: IntArray | None) -> Outcomes:
        texts: Sequence[str] = ()
        if isinstance(answers, Ranked):
            if answers.texts is None:
                raise self.opened.limits.too_many()
            answers, texts = answers.ranks, answers.texts
        n = prod(self.store.columns[name].n_values for name in columns)
        if codes is not None and n <= _MOST_MARKED:
            # A place for each combination is found faster than one among those that were tried.
            placed = np.zeros(n, answers.dtype)
            placed[codes] = answers
            answers, codes = placed, None
        return Outcomes(columns, answers, codes, texts)

    def _combine(self, columns: tuple[str, ...], is_unsafe: bool) -> tuple[Combinations, Any]:
        domains = {name: self.domain(name) for name in columns}
        n = prod(domain.n for domain in domains.values())
        if len(columns) < 2 or (n <= MOST_CROSSED and not is_unsafe):
            return Combinations(domains), None
        if n > LARGEST:
            raise self.opened.too_much()
        if columns not in self._combinations:
            codes = self._occurring(columns)
            numbers = np.stack(np.unravel_index(codes, [d.n for d in domains.values()]), axis=1)
            self._combinations[columns] = Combinations(domains, numbers), codes
        return self._combinations[columns]

    def domain(self, name: str) -> Domain:
        """Return the values of a column."""
        if name not in self._domains:
            text = self.store.values(name)
            self._domains[name] = ColumnValues(lambda _: text, self.store.columns[name].n_values)
        return self._domains[name]

    def _occurring(self, columns: tuple[str, ...]) -> IntArray:
        """Return the numbers of the combinations that some slot has, or some pair of slots."""
        met = Occurring([self.store.columns[name] for name in columns])
        for part in self.store.each(columns, met):
            met = met + part
            if 64 * met.numbers.size > self.opened.limits.kept:
                raise self.opened.too_much()
        return met.numbers
