"""What the writers of all statements share: the aggregate's parts, its groups, its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kanon_db.counting.checking.query import Query
from kanon_db.counting.checking.types import TEXT
from kanon_db.counting.expressions import Aggregate, Constant, Expression
from kanon_db.counting.formulas import TOTALS, sum_answer, weights
from kanon_db.counting.layout import BucketLayout, Lookup
from kanon_db.counting.regression import calibrated_sql, trust
from kanon_db.counting.sides import Side, condition_of, parts_of, side_of
from kanon_db.counting.writing.joins import joined, speller
from kanon_db.counting.writing.sql import Constants, Statement, write
from kanon_db.counting.writing.steps import Nested, Select, Steps

ANSWER = ("estimate", "std_error", "lower_bound", "upper_bound")


def same(*names: str) -> dict[str, str]:
    """Return columns that keep their names."""
    return {name: name for name in names}


def over(keys: Iterable[str]) -> str:
    """Write the window of each group's rows; of all rows, if there are no keys."""
    by = ", ".join(keys)
    return f"OVER ({f'PARTITION BY {by}' if by else ''})"


def numbered(n: int) -> list[str]:
    """Return the numbers of a SELECT's first n columns, for GROUP BY.

    Their names could be those of columns that are read, which GROUP BY would prefer.
    """
    return [str(i) for i in range(1, n + 1)]


@dataclass(frozen=True, slots=True)
class Request:
    """What one statement is to estimate.

    Attributes
    ----------
    query : Query
    aggregate : Aggregate
    lookups : sequence of Lookup
    literal : callable, optional
        Quotes a value: the values are then part of the text, for people to read and run.
    most : int, optional
        How many groups to answer at most, before they are put in order.
    """

    query: Query
    aggregate: Aggregate
    lookups: Sequence[Lookup] = ()
    literal: Callable[[str], str] | None = None
    most: int | None = None


class Writer:
    """Collects the steps of one statement; ``k0 …`` are the group's values throughout."""

    def __init__(self, request: Request) -> None:
        query, aggregate = request.query, request.aggregate
        self.steps = Steps()
        self.constants = Constants(request.literal)
        self.lookups = request.lookups
        self.function = aggregate.function
        self.weighed = None if aggregate.function in ("count", "distinct") else aggregate.operand
        self.condition = condition_of(query, aggregate)
        self.keys = {f"k{i}": key.expression for i, key in enumerate(query.keys)}
        self.query = query
        self._most = request.most

    def step(
        self,
        name: str,
        comment: str,
        columns: dict[str, str],
        *source: str | Nested,
        where: Sequence[str] = (),
        group: Sequence[str] | None = None,
        having: str = "",
    ) -> None:
        """Add a step that keeps the group's values.

        Parameters
        ----------
        *source : str or Nested
            What it reads; by default, the step before.
        group : sequence of str, optional
            What rows are put together by, beside the group's values; by default, they are not.
        """
        kept = {} if "*" in columns else same(*self.keys)
        by = [] if group is None else [*self.keys, *group]
        read = source or [self.steps.last]
        self.steps.add(name, comment, Select({**kept, **columns}, read, where, by, having))

    def statement(self) -> Statement:
        """Write the steps so far; each group with its key as JSON and its values' places."""
        if self.keys:
            names = (self.constants.write(Constant(key.name, TEXT)) for key in self.query.keys)
            named = ", ".join(f"{name}, {key}" for name, key in zip(names, self.keys, strict=True))
            ranks = {
                f"rank_{i}": f"dense_rank() OVER (ORDER BY {key})"
                for i, key in enumerate(self.keys)
            }
            columns = {"group_key": f"jsonb_build_object({named})::text", **ranks, **same(*ANSWER)}
            comment = "Each group's values as JSON, and their places in their order."
            source: str | Nested = self.steps.last
            if self._most is not None:
                source = Nested([Select(same("*"), [source], limit=self._most)], "some_groups")
            self.steps.add("groups", comment, Select(columns, [source]))
        return Statement(self.steps.write(), self.constants.bound)


class SideWriter(Writer):
    """Writes over QIT, with the alias ``q``, and SAT, with the alias ``s``."""

    def __init__(self, request: Request, layout: BucketLayout) -> None:
        super().__init__(request)
        self.layout = layout
        self.tables = layout.tables

    def write(self, expression: Expression, side: Side) -> str:
        """Write an expression on one side."""
        return write(expression, speller("qs"[side]), self.constants)

    def where(self, condition: Expression | None, side: Side) -> list[str]:
        """Write the parts of a condition on one side."""
        return [self.write(part, side) for part in parts_of(condition)]

    def source(self, side: Side, *expressions: Expression | None) -> list[str]:
        """Write the relation of a side, with the lookup tables that the expressions need."""
        relation = self.tables.sat if side else self.tables.qit
        return joined(relation, "qs"[side], expressions, self.lookups)

    def keys_of(self, side: Side) -> dict[str, Expression]:
        """Return the group's values that one side decides."""
        return {name: key for name, key in self.keys.items() if side_of(key, self.layout) == side}

    def number(self, side: Side) -> str:
        """Count the rows of a side; a row of the SAT stands for several records."""
        return f"sum(s.{self.tables.count})::int8" if side else "count(*)"

    def times(self, side: Side) -> str:
        """Multiply by how often a row counts."""
        return f" * s.{self.tables.count}" if side else ""

    def count_in_buckets(
        self,
        name: str,
        comment: str,
        side: Side,
        parts: Mapping[str, Expression],
        condition: Expression | None,
        weighed: Expression | None = None,
    ) -> None:
        """Add a step that counts the rows of a side in each bucket.

        Parameters
        ----------
        parts : mapping of str to Expression
            What rows are put together by, beside the bucket, by the names of the columns.
        condition : Expression or None
            What the rows must meet.
        weighed : Expression, optional
            What to add up beside them.
        """
        columns = {"bucket_id": f"{'qs'[side]}.{self.tables.bucket_id}"}
        columns |= {column: self.write(part, side) for column, part in parts.items()}
        columns["n"] = self.number(side)
        if weighed is not None:
            columns |= weights(f"({self.write(weighed, side)})::float8", self.times(side))
        source = self.source(side, condition, weighed, *parts.values())
        by = numbered(1 + len(parts))
        self.steps.add(name, comment, Select(columns, source, self.where(condition, side), by))

    def sum_totals(self) -> None:
        """Add up buckets' sums and counts, in each group, to a sum or an average."""
        self.step("totals", "All buckets together.", TOTALS, group=())
        answer = sum_answer(is_average=self.function == "avg")
        self.step("matched", "The estimate with its standard error and bounds.", answer)
        self.calibrated()

    def calibrated(self) -> None:
        """Multiply the error of a random matching: a real one is not random."""
        known = trust(self.layout.assignment, is_paper=True, is_composed=False)
        self.step("answers", "A real matching is not random.", calibrated_sql(known.times))
