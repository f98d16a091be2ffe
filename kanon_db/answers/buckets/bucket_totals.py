"""Adds up what the slots of buckets give for counts, sums and averages: arrays, no database."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, FloatArray, IntArray
from kanon_db.answers.buckets import bucket_pairs
from kanon_db.answers.buckets.ranked_counts import RankedSums
from kanon_db.answers.buckets.slots import Grouping, Mask, Outcomes, Slots, ValueOutcomes
from kanon_db.answers.plan import Plan
from kanon_db.answers.value_ranks import ExactValues
from kanon_db.dataclasses import dataclass
from kanon_db.publications.buckets.learned_weights import WeighedRecords
from kanon_db.publications.buckets.tallies import (
    GroupCounts,
    Margins,
    SumsByGroup,
    Tally,
    Weighed,
    weigh_draws,
    weigh_groups,
    weigh_slots,
)
from kanon_db.publications.codes import Chunk
from kanon_db.query.expressions import Expression
from kanon_db.query.layout import Side


@dataclass(eq=False)
class BucketTotals:
    """What buckets give for one plan; totals of chunks are added."""

    tally: Tally  # Of counts
    sums: SumsByGroup  # Of sums, of pairs, and of what is exact
    margins: Margins  # Of each side on its own
    records: WeighedRecords | None = None  # Where weights may tell more
    ranked: RankedSums | None = None  # For MIN, MAX and percentiles, in place of both

    def __add__(self, other: BucketTotals) -> BucketTotals:
        """Add the totals of other buckets."""
        return BucketTotals(
            self.tally + other.tally, self.sums + other.sums, self.margins + other.margins,
            None if self.records is None else self.records + other.records,
            None if self.ranked is None or other.ranked is None else self.ranked + other.ranked,
        )  # fmt: skip


def n_kinds(plan: Plan) -> int:
    """Return how many numbers of each group are added up, beside those of tallies."""
    if plan.shape == "exact":
        return 1
    return 4 if plan.summed is None else 9


def side_of_numbers(plan: Plan) -> Side | None:
    """Return the side of the numbers that are added up, if any are."""
    if plan.summed is None:
        return None
    return 0 if plan.has_number_on(0) else 1


@dataclass(frozen=True, eq=False)
class OccurringGroups:
    """The groups of one side that occur among what meets a condition, where many do not."""

    outcomes: ValueOutcomes
    grouping: Grouping
    condition: Expression | None

    def of(
        self, chunk: Chunk, codes: Mapping[str, bytes], heartbeat: Callable[[], None]
    ) -> IntArray:
        """Find those of a chunk."""
        slots = Slots(self.outcomes, chunk, codes, heartbeat)
        is_met = slots.where(self.condition).view(np.bool_)
        return np.unique(self.grouping.combine(slots)[is_met]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class BucketCounter:
    """Counts and sums, for some plans with the same keys, what the slots of buckets give."""

    plans: Sequence[Plan]
    outcomes: ValueOutcomes
    groupings: tuple[Grouping, Grouping]  # The groups that the keys of each side make
    begun: Sequence[BucketTotals]  # Without any bucket

    @property
    def keys(self) -> list[Outcomes]:
        """What was tried of the keys."""
        return [self.outcomes.key(key.expression) for key in self.plans[0].keys]

    def of(
        self, chunk: Chunk, codes: Mapping[str, bytes], heartbeat: Callable[[], None]
    ) -> list[BucketTotals]:
        """Count and sum the buckets of a chunk."""
        slots = Slots(self.outcomes, chunk, codes, heartbeat)
        totals = [
            BucketTotals(
                one.tally.begin(), SumsByGroup(n_kinds(plan)),
                Margins(one.tally.n_groups, side_of_numbers(plan)),
                None if one.records is None else one.records.begin(),
                None if one.ranked is None else one.ranked.begin(),
            )
            for plan, one in zip(self.plans, self.begun, strict=True)
        ]  # fmt: skip
        for plan, one in zip(self.plans, totals, strict=True):
            self._add(plan, one, slots)
        return totals

    def _add(self, plan: Plan, totals: BucketTotals, slots: Slots) -> None:
        totals.margins.n_records += slots.n
        totals.margins.n_buckets += sum(run.n_buckets for run in slots.chunk.runs)
        if plan.shape == "exact":
            self._add_exact(plan, totals, slots)
        elif plan.shape == "pairs":
            self._add_pairs(plan, totals, slots)
        else:
            masks = slots.where(plan.records), slots.where(plan.values)
            groups = [
                grouping.of(slots, mask)
                for grouping, mask in zip(self.groupings, masks, strict=True)
            ]
            if totals.ranked is not None:
                self._rank(plan, totals.ranked, totals.records, slots, masks, groups)
                return
            x = None if plan.summed is None else self._numbers_of(plan, slots)
            if totals.records is not None:
                own = 1 - masks[0] if groups[0] is None else groups[0]
                totals.records.put(slots, own, x if plan.has_number_on(0) else None)
            if x is None:
                self._count(totals, slots, masks, groups)
            else:
                side: Side = 0 if plan.has_number_on(0) else 1
                self._sum(totals, slots, masks, groups, np.where(masks[side], x, np.nan), side)

    def _numbers_of(self, plan: Plan, slots: Slots) -> FloatArray:
        if plan.summed is None:
            raise TypeError("nothing is summed")
        outcomes = self.outcomes.number(plan.summed)
        numbers: FloatArray = slots.look_up(outcomes, outcomes.answers)
        return numbers

    def _rank(
        self,
        plan: Plan,
        ranked: RankedSums,
        records: WeighedRecords | None,
        slots: Slots,
        masks: tuple[Mask, Mask],
        groups: Sequence[AnyIntArray | None],
    ) -> None:
        """Sort the slots of each bucket."""
        side = ranked.side
        other: Side = 0 if side else 1
        n_others = self.groupings[other].n
        place = self._places(plan, ranked, slots, masks[side], groups[side])
        if records is not None:
            of_records = groups[0]
            if side == 0:
                of_records = place
            elif of_records is None:
                of_records = 1 - masks[0]
            records.put(slots, of_records, None)
        none = self.groupings[side].n * ranked.n_ranks
        arrays = (place, none), (masks[other], 0), (groups[other], n_others)
        ranked.n_records += slots.n
        ranked.n_buckets += sum(run.n_buckets for run in slots.chunk.runs)
        for sizes, own, mask, other_group in slots.blocks(
            lambda size: size * self._n_lines(other, size), *arrays
        ):
            ranked.add(sizes, own, GroupCounts.of_side(mask, other_group, n_others))

    def _n_lines(self, side: Side, size: int) -> int:
        """Return how many groups of a side a bucket may have."""
        return min(self.groupings[side].n, size)

    def _places(
        self, plan: Plan, ranked: RankedSums, slots: Slots, mask: Mask, group: AnyIntArray | None
    ) -> AnyIntArray:
        """Return the group of each slot times the number of ranks, plus its rank."""
        n_places = self.groupings[ranked.side].n * ranked.n_ranks
        ranks = self.outcomes.of_operand(plan.measure).ranked()
        place = slots.look_up(ranks, ranks.answers)
        if group is not None:
            place = group.astype(place.dtype) * ranked.n_ranks + place
        places: AnyIntArray = np.where(mask.view(np.bool_), place, n_places)
        return places.astype(np.min_scalar_type(n_places))

    def _add_exact(self, plan: Plan, totals: BucketTotals, slots: Slots) -> None:
        """Count what is on one side, by group and by what is summed."""
        side = plan.only_side
        mask = slots.where(plan.values if side else plan.records)
        grouping = self.groupings[side]
        group = grouping.of(slots, mask)
        if plan.measure.function == "count":
            counts = (
                np.array([np.count_nonzero(mask)])
                if group is None
                else np.bincount(group, minlength=grouping.n)[: grouping.n]
            )
            numbers = np.flatnonzero(counts)
            totals.sums.add(numbers, counts[numbers][np.newaxis].astype(np.float64))
            return
        outcomes, is_met = self.outcomes.of_operand(plan.measure), mask.view(np.bool_)
        values = ExactValues(outcomes.distinct, totals.sums)
        ranks = outcomes.ranked().answers.astype(np.min_scalar_type(values.values.size))
        rank = slots.look_up(outcomes, ranks)[is_met]
        values.add(None if group is None else group[is_met], rank)

    def _count(
        self,
        totals: BucketTotals,
        slots: Slots,
        masks: tuple[Mask, Mask],
        groups: Sequence[AnyIntArray | None],
    ) -> None:
        """Count the buckets that are alike."""
        records, values = self.groupings
        for sizes, in_records, in_values, of_records, of_values in slots.blocks(
            lambda size: self._n_lines(0, size) * self._n_lines(1, size),
            *((mask, 0) for mask in masks), (groups[0], records.n), (groups[1], values.n),
        ):  # fmt: skip
            own = GroupCounts.of_side(in_records, of_records, records.n)
            beside = GroupCounts.of_side(in_values, of_values, values.n)
            totals.margins.records.add_counts(sizes, own)
            totals.margins.values.add_counts(sizes, beside)
            totals.tally.add(sizes, own, beside)

    def _sum(
        self,
        totals: BucketTotals,
        slots: Slots,
        masks: tuple[Mask, Mask],
        groups: Sequence[AnyIntArray | None],
        x: FloatArray,
        side: Side,
    ) -> None:
        """Add up what the draws from the buckets give; `x` is NaN where it is not chosen."""
        other: Side = 0 if side else 1
        n_groups, n_others = self.groupings[side].n, self.groupings[other].n
        arrays = (
            (x, np.nan), (groups[side], n_groups), (masks[other], 0), (groups[other], n_others),
        )  # fmt: skip
        margins = totals.margins
        of_sides = margins.records, margins.values

        def n_lines(size: int) -> int:
            return self._n_lines(other, size) * (1 if groups[side] is None else size)

        for sizes, own_x, own_group, mask, other_group in slots.blocks(n_lines, *arrays):
            if own_group is None:
                of_buckets = weigh_slots(own_x)
                bucket = np.flatnonzero(of_buckets.n)
                group = np.zeros(bucket.size, np.int64)
                weighed = Weighed(*(part[bucket] for part in of_buckets))
            else:
                group, bucket, weighed = weigh_groups(own_x, own_group, n_groups)
            beside = GroupCounts.of_side(mask, other_group, n_others)
            is_first = beside.is_first
            of_sides[side].add(sizes.of(bucket), group, weighed.n, weighed.x, weighed.squares)
            of_sides[other].add(sizes.among(is_first), beside.group[is_first], beside.n[is_first])
            # Each line of this side meets those of the other one in its bucket.
            own, line = np.nonzero(is_first.T[bucket])
            at = bucket[own], line
            met, n = (part.T[at].astype(np.int64) for part in (beside.group, beside.n))
            n_of = (n_others, 1) if side == 0 else (1, n_groups)
            totals.sums.add(
                group[own] * n_of[0] + met * n_of[1],
                *weigh_draws(sizes.of(bucket[own]), Weighed(*(part[own] for part in weighed)), n),
            )

    def _add_pairs(self, plan: Plan, totals: BucketTotals, slots: Slots) -> None:
        """Count, or sum, the pairs of a record and a value that match."""
        sums, ranked = totals.sums, totals.ranked
        number = None if plan.summed is None else self.outcomes.number(plan.summed)
        if ranked is not None:
            number = self.outcomes.of_operand(plan.measure).ranked()
        keys, counts = self.keys, np.zeros(4)
        for block in slots.chunk.blocks(lambda size: size * size):
            slots.heartbeat()
            pairs = bucket_pairs.PairSlots(slots, plan, block)
            hits = pairs.matching()
            if not keys and number is None:
                counts += bucket_pairs.count_all(hits, pairs.sizes)
                continue
            for matches in pairs.choose(hits, keys, number):
                slots.heartbeat()
                if ranked is not None:
                    for group, parts in bucket_pairs.rank_groups(matches, ranked.n_ranks):
                        ranked.pairs.add(group, parts)
                        slots.heartbeat()
                elif number is None:
                    sums.add(*bucket_pairs.count_groups(matches))
                else:
                    sums.add(*bucket_pairs.sum_groups(matches))
        if not keys and number is None:
            sums.add(np.zeros(1, np.int64), counts[:, np.newaxis])
