"""Answers counts, sums and averages over buckets from the codes of their slots."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray
from kanon_db.answers.buckets.bucket_totals import (
    BucketCounter,
    BucketTotals,
    OccurringGroups,
    n_kinds,
    side_of_numbers,
)
from kanon_db.answers.buckets.dependence import Doubt, HiddenParts, PairSums, judge_pairs
from kanon_db.answers.buckets.learned_weights import ChosenValues, RecordWeights, find_needed_values
from kanon_db.answers.buckets.ranked_counts import Judge, RankedCounts, RankedSums
from kanon_db.answers.buckets.slots import LARGEST, Grouping, Slots, guard
from kanon_db.answers.buckets.tallies import Margins, PairsOfGroups, SumsByGroup, Tally
from kanon_db.answers.buckets.value_tries import ValueTries
from kanon_db.answers.plan import Plan
from kanon_db.answers.scope import OpenQuery
from kanon_db.publications.codes import Chunk, Store
from kanon_db.query.expressions import Aggregate
from kanon_db.query.formulas import (
    NOTHING,
    Estimated,
    Group,
    MatchedPairs,
    all_but,
    common_spelling,
    empty,
    summed,
)
from kanon_db.query.layout import UNTOLD_STRENGTH, BucketLayout, parts_of

Answers = Mapping[tuple[int, ...], Estimated]
"""By the rank of each key's value."""

_EVERYBODY: Final = Aggregate("count", None)

_MOST_PLACES: Final = 1 << 16
"""Combinations of keys of one side that have a place each, whether they occur or not."""

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


class BucketEvidence:
    """Answers the aggregates of one question, which have the same keys."""

    def __init__(self, opened: OpenQuery, layout: BucketLayout, store: Store) -> None:
        self._opened, self._layout, self._store = opened, layout, store

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
        texts = (key.texts[rank] for key, rank in zip(self._keys, ranks, strict=True))
        return self._opened.key(tuple((i, text, ranks[i] + 1) for i, text in enumerate(texts)))

    def _count(self, plans: Sequence[Plan]) -> list[BucketTotals]:
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
        for plan in plans:
            for condition in (plan.records, plan.values, *plan.pairs):
                tries.want_truth(condition)
            if plan.number is not None:
                tries.want("number", plan.number)
            if plan.shape == "pairs":
                self._require_room()
        self._outcomes = tries.ask()
        keys = plans[0].keys
        self._keys = [self._outcomes.key(key.expression) for key in keys]
        self._groupings = self._find_groups(plans[0])
        self._numbers = [[key.number for key in keys if key.side == side] for side in (0, 1)]
        self._chosen = [self._choose_values(plan) for plan in plans]
        begun = [self._begin(plan, own) for plan, own in zip(plans, self._chosen, strict=True)]
        counter = BucketCounter(plans, self._outcomes, self._groupings, begun)
        totals = begun
        names = list(dict.fromkeys(name for plan in plans for name in plan.columns))
        for more in self._store.each(names, counter):
            totals = [one + other for one, other in zip(totals, more, strict=True)]
        return totals

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
                numbers = np.zeros(0, np.int64)
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
        if records.n * values.n > LARGEST // (tables.sizes[-1] + 1) ** 2:
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
        if plan.ranked is not None:
            side = plan.side(plan.ranked)
            n_ranks = max(self._outcomes.number(plan.ranked).distinct.size, 1)
            if n_groups[0] * n_groups[1] * n_ranks > LARGEST:
                raise self._opened.limits.too_many()
            ranked = RankedSums(n_groups, n_ranks, side or 0)
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
            Tally(n_groups), SumsByGroup(n_kinds(plan)), Margins(n_groups, side_of_numbers(plan)),
            weights, ranked,
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
        if plan.summed is None:
            if not plan.keys:
                return {(): _exactly(float(sums.totals.sum()))}
            return {
                self._ranks(plan, group): _exactly(n)
                for group, n in zip(sums.group.tolist(), sums.totals[0].tolist(), strict=True)
            }
        outcomes = self._outcomes.number(plan.summed)
        x_of, is_average = np.unique(outcomes.answers), plan.measure.function == "avg"
        groups, ranks = np.divmod(sums.group, outcomes.answers.size + 1)
        answers: dict[tuple[int, ...], Estimated] = {} if plan.keys else {(): NOTHING}
        for group in np.unique(groups).tolist():
            here = groups == group
            x, n = x_of[ranks[here]], sums.totals[0, here]
            is_number = ~np.isnan(x)
            own = _sum_exactly(x[is_number], n[is_number], is_average=is_average)
            answers[self._ranks(plan, group) if plan.keys else ()] = own
        return answers

    def _counts(
        self, plan: Plan, totals: BucketTotals, chosen: list[ChosenValues] | None
    ) -> Answers:
        groups = totals.tally.groups()
        by_others = plan.shape == "either"
        by_weights: list[FloatArray | None] = [None] * self._groupings[1].n
        if chosen is not None and (weights := self._weights(totals)) is not None:
            by_weights = [weights.count(values, by_others=by_others) for values in chosen]
        margins = totals.margins.of_pairs(groups.number)
        judge = self._judge_counts(plan, groups, margins, by_weights.__getitem__)
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
        groups: PairsOfGroups,
        margins: PairSums,
        by_weights: Callable[[int], FloatArray | None],
    ) -> Callable[[int], Estimated]:
        """Judge counts of pairs of groups.

        `by_weights`: what weights say of each group of records, for a group of values.
        """
        hidden = self._hide(plan, margins, groups.estimate)

        def judge(at: int) -> Estimated:
            g, h = divmod(int(groups.number[at]), self._groupings[1].n)
            own = by_weights(h)
            return self._judge(groups.pairs(at), hidden.at(at), None if own is None else own[g])

        return judge

    def _judge_ranks(
        self,
        plan: Plan,
        totals: BucketTotals,
        chosen: list[ChosenValues] | None,
        places: FloatArray,
    ) -> Judge:
        """Judge counts of some ranks, of which these are the values."""
        if plan.shape == "pairs":
            return lambda groups, _margins, _ranks: (
                lambda at: self._judge_mixed(plan, groups.pairs(at), totals)
            )
        weights = self._weights(totals)

        def judge(groups: PairsOfGroups, margins: PairSums, ranks: range) -> Any:
            @cache
            def by_weights(h: int) -> FloatArray | None:
                if weights is None or chosen is None or not ranks:
                    return None
                are_chosen, x = chosen[h]
                if x is not None and places.size:
                    first, last = places[ranks[0]], places[ranks[-1]]
                    are_chosen = are_chosen & (first <= x) & (x <= last)
                own = weights.count(ChosenValues(are_chosen, None), by_others=False)
                if own is None or x is not None:
                    return own
                of_ranks = own.reshape(self._groupings[0].n, -1)[:, ranks.start : ranks.stop]
                summed: FloatArray = of_ranks.sum(axis=1)
                return summed

            return self._judge_counts(plan, groups, margins, by_weights)

        return judge

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
        self, pairs: MatchedPairs, doubt: Doubt, by_weights: float | None = None
    ) -> Estimated:
        """Judge an estimate, by weights where there are any."""
        if by_weights is not None:
            by_weights = None if math.isnan(by_weights) else float(by_weights)
        layout = self._layout
        return judge_pairs(
            pairs, doubt, layout.assignment, by_weights=by_weights, is_paper=layout.is_paper
        )

    def _judge_mixed(self, plan: Plan, pairs: MatchedPairs, totals: BucketTotals) -> Estimated:
        """Judge an estimate of pairs that are compared with each other."""
        n_records, n_buckets = totals.margins.n_records, totals.margins.n_buckets
        strength = self._strength(plan)
        return self._judge(pairs, Doubt.of_mixed(pairs.variance, n_records, n_buckets, strength))

    def _hide(self, plan: Plan, margins: PairSums, expected: FloatArray) -> HiddenParts:
        """Return what buckets hide of a plan's answers."""
        return margins.hide(expected, self._strength(plan))

    def _strength(self, plan: Plan) -> float:
        """Return how strongly values may depend on what is asked of records."""
        strengths = self._layout.strengths
        of_columns = [strengths[name] for name in plan.columns if name in strengths]
        return max(of_columns, default=UNTOLD_STRENGTH)

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


def _exactly(n: float) -> Estimated:
    return Estimated(float(round(n)), 0.0, round(n), round(n))


def _sum_exactly(x: FloatArray, n: FloatArray, *, is_average: bool) -> Estimated:
    """Sum, or average, values that occur so many times."""
    many = float(n.sum())
    if not many:
        return NOTHING
    if not np.isfinite(x).all():
        return Estimated(math.inf, 0.0, math.inf, math.inf)
    # A product of a number of records and half of a value's digits is not rounded.
    part, exponent = np.frexp(x)
    high = np.ldexp(np.round(np.ldexp(part, 26)), exponent - 26)
    total = math.fsum([*(n * high).tolist(), *(n * (x - high)).tolist()])
    if is_average:
        total /= many
    return Estimated(total, 0.0, total, total)
