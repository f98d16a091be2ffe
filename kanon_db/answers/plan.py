"""Plans how an aggregate is answered: what is asked of records, of values, and of both together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple, Self
from typing import Literal as OneOf

from kanon_db.dataclasses import dataclass
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import Aggregate, Expression, Query
from kanon_db.query.layout import (
    BucketLayout,
    CellLayout,
    Side,
    condition_of,
    condition_on,
    is_vague,
    parts_of,
)

Shape = OneOf["exact", "apart", "either", "pairs"]
"""``exact``: all of it is published as it is. ``apart``: what is asked of each side, or column, is
a condition of its own. ``either``: what meets a condition on either side; those that meet neither
are counted. ``pairs``: a condition, a group or a sum needs several of them at once."""

_WORDS: Final[dict[tuple[bool, Shape], str]] = {
    (True, "exact"): "counted as published: all of it is on one side of the buckets",
    (True, "apart"): "each bucket's matching records, times the share of its values that match",
    (True, "either"): "all records, but for those that meet neither side's condition",
    (True, "pairs"): "the pairs of a record and a value of its bucket that match",
    (False, "exact"): "counted as published: no cell of it stands for several values",
    (False, "apart"): "the share of each cell's values that match, column by column",
    (False, "pairs"): "the values that cells stand for, one by one",
}
"""What `explain_count` says of a shape, of buckets and of rows."""


class PlannedKey(NamedTuple):
    """A key of GROUP BY: its number among all of them, and its side."""

    number: int
    expression: Expression
    side: Side | None


class Leaves(NamedTuple):
    """The largest parts of a condition that are on one side, and what compares both."""

    records: tuple[Expression, ...]
    values: tuple[Expression, ...]
    pairs: tuple[Expression, ...]


@dataclass(frozen=True)
class Plan:
    """How one aggregate is answered.

    Side 0 is what is known of each record, side 1 what is not: values of buckets, or cells.
    """

    measure: Aggregate
    keys: tuple[PlannedKey, ...]
    columns: tuple[str, ...]  # All that are needed, in the order of the publication
    uncertain: frozenset[str]  # The columns of side 1
    is_of_buckets: bool
    shape: Shape = "apart"
    # The conditions that a record must meet: on either side, and those that need both; of
    # ``either``, what a record meets that is not counted
    records: Expression | None = None
    values: Expression | None = None
    pairs: tuple[Expression, ...] = ()
    spread: tuple[str, ...] = ()  # Columns of cells of which each value gets a row of its own

    @classmethod
    def of(cls, query: Query, measure: Aggregate, layout: BucketLayout | CellLayout) -> Self:
        """Divide what an aggregate of a query needs by sides."""
        # A sum ignores NULLs by itself, and a group with nothing but NULLs is still a group.
        choose = condition_on if measure.function in ("sum", "avg") else condition_of
        condition = choose(query, measure)
        uncertain = frozenset(
            layout.sensitive
            if isinstance(layout, BucketLayout)
            else (name for name, cell in layout.cells.items() if is_vague(cell))
        )
        keys = tuple(
            PlannedKey(number, key.expression, _side(key.expression, uncertain))
            for number, key in enumerate(query.keys)
        )
        needed = ex.attributes(condition) | ex.attributes(measure.operand)
        needed = needed.union(*(ex.attributes(key.expression) for key in keys))
        columns = tuple(name for name in layout.columns if name in needed)
        if isinstance(layout, BucketLayout):
            return cls(measure, keys, columns, uncertain, True)._in_buckets(condition)
        plan = cls(measure, keys, columns, uncertain, False)
        if needed.isdisjoint(uncertain) and not layout.left_out:
            return replace(plan, shape="exact", records=condition)
        return plan._in_cells(query, layout)

    def _in_buckets(self, condition: Expression | None) -> Self:
        """Plan for a condition on buckets."""
        records, values, pairs = self._divide(parts_of(condition))
        operands = [] if self.measure.operand is None else [self.measure.operand]
        sides = {key.side for key in self.keys} | set(
            map(self.side, (*parts_of(condition), *operands))
        )
        plan = replace(
            self, records=ex.joined(ex.And, records), values=ex.joined(ex.And, values),
            pairs=tuple(self._put_sides_together(part) for part in pairs),
        )  # fmt: skip
        if None not in sides:
            return replace(plan, shape="apart" if len(sides) > 1 else "exact")
        if isinstance(condition, ex.Or) and self.measure.function == "count" and not self.keys:
            records, values, pairs = self._divide(condition.parts)
            if records and values and not pairs:
                neither = [
                    ex.TruthTest(either, "true", negated=True)
                    for side in (records, values)
                    if (either := ex.joined(ex.Or, side)) is not None
                ]
                return replace(self, shape="either", records=neither[0], values=neither[1])
        return replace(plan, shape="pairs")

    def _in_cells(self, query: Query, layout: CellLayout) -> Self:
        """Plan for what the cells of rows stand for."""
        from kanon_db.answers.likelihoods import JointCondition, arrange  # not needed for buckets

        arranged = arrange(query, self.measure, layout)
        conditions: tuple[list[Expression], ...] = ([], [], [])
        for part in parts_of(arranged.condition):
            if isinstance(part, JointCondition):
                conditions[2].append(part.condition)
            else:
                conditions[0 if self.side(part) == 0 else 1].append(part)
        return replace(
            self, shape="pairs" if arranged.spread or arranged.apart else "apart",
            records=ex.joined(ex.And, conditions[0]), values=ex.joined(ex.And, conditions[1]),
            pairs=tuple(conditions[2]), spread=tuple(arranged.spread),
        )  # fmt: skip

    def side(self, expression: Expression) -> Side | None:
        """Return the side that an expression depends on; None for both."""
        return _side(expression, self.uncertain)

    def keys_of(self, side: Side) -> list[PlannedKey]:
        """Return the keys on one side."""
        return [key for key in self.keys if key.side == side]

    @property
    def summed(self) -> Expression | None:
        """What is summed or averaged."""
        return self.measure.operand if self.measure.function in ("sum", "avg") else None

    @property
    def number(self) -> Expression | None:
        """What is summed, averaged or ordered."""
        return self.summed or self.ranked

    def has_number_on(self, side: Side) -> bool:
        """Whether what is summed, averaged or ordered is on one side."""
        return self.number is not None and self.side(self.number) == side

    @property
    def ranked(self) -> Expression | None:
        """What is ordered, for MIN, MAX and percentiles."""
        return None if self.measure.share is None else self.measure.operand

    @property
    def only_side(self) -> Side:
        """The side that an exact answer of buckets is on."""
        return 0 if self.uncertain.isdisjoint(self.columns) else 1

    @property
    def leaves(self) -> Leaves:
        """The parts from which the truth of what needs both sides follows."""
        leaves: tuple[dict[Expression, None], ...] = ({}, {}, {})

        def collect(part: Expression) -> None:
            side = self.side(part)
            if side is None and is_combination(part):
                for inner in part.children:
                    collect(inner)
            else:
                leaves[2 if side is None else side][part] = None

        for part in self.pairs:
            collect(part)
        return Leaves(*map(tuple, leaves))

    def describe(self) -> str:
        """Say in an analyst's words how the aggregate is answered, and from which columns."""
        words = _WORDS[self.is_of_buckets, self.shape]
        return f"{words}; columns: {', '.join(self.columns) or 'none'}"

    def _divide(
        self, parts: Iterable[Expression]
    ) -> tuple[list[Expression], list[Expression], list[Expression]]:
        """Separate expressions on records, those on values, and those that need both."""
        divided: tuple[list[Expression], list[Expression], list[Expression]] = ([], [], [])
        for part in parts:
            side = self.side(part)
            divided[2 if side is None else side].append(part)
        return divided

    def _put_sides_together(self, condition: Expression) -> Expression:
        """Bring the parts of each AND and OR that are on one side together."""
        if self.side(condition) is not None:
            return condition
        inner = ex.rebuilt(condition, self._put_sides_together)
        if not isinstance(inner, ex.And | ex.Or):
            return inner
        kind = type(inner)
        records, values, both = self._divide(inner.parts)
        sides = [one for side in (records, values) if (one := ex.joined(kind, side)) is not None]
        return kind((*sides, *both))


def _side(expression: Expression, uncertain: frozenset[str]) -> Side | None:
    mentioned = ex.attributes(expression)
    if mentioned.isdisjoint(uncertain):
        return 0
    return 1 if mentioned <= uncertain else None


def is_combination(condition: Expression) -> bool:
    """Whether the truth of a condition follows from that of its parts."""
    return isinstance(condition, ex.And | ex.Or | ex.Not | ex.TruthTest | ex.Case)
