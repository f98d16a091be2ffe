"""Writes estimates, and how far off they may be, as a statement over the relations of buckets.

Estimates are sums of the views of weights, within the certain bounds that follow from what each
bucket has of both sides; so does the standard error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from sqlglot import exp

from kanon_db.answers import _statement_nodes as nodes
from kanon_db.answers._statement_nodes import FromClause, Node, WeightedAggregates
from kanon_db.answers.buckets.bucket_evidence import MostOfValues, find_strength
from kanon_db.answers.plan import Plan
from kanon_db.answers.scope import OpenQuery
from kanon_db.dataclasses import dataclass
from kanon_db.publications.buckets.tallies import NEVER_SHOWN, Weighed, limit_sums
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import Aggregate, Expression
from kanon_db.query.layout import BucketLayout, Side


def bucket_source(
    opened: OpenQuery, layout: BucketLayout, relation: str, side: Side | None = None
) -> FromClause:
    """Read a relation of buckets, with the lookup tables of one side, or of both."""
    lookups = {
        number: lookup
        for number, lookup in enumerate(opened.lookups)
        if side is None or (lookup.on.name in layout.sensitive) == bool(side)
    }
    taken: set[str] = set()
    alias = nodes.unique(nodes.split_name(relation)[-1], taken) if lookups else ""
    (weight,) = nodes.split_name(layout.tables.weight)
    source = FromClause(
        nodes.relation(relation, alias),
        lambda column: nodes.column(column.name, alias),
        nodes.column(weight, alias),
    )
    nodes.join_lookups(source, lookups, taken)
    return source


def find_count_alone(opened: OpenQuery) -> int | None:
    """Find the count that is shown alone, with its error; None for other questions."""
    match opened.query.shown:
        case [(_, ex.Measure(aggregate=Aggregate("count") as count))]:
            number = [measure.aggregate for measure in opened.query.measures].index(count)
            return number if opened.plans[number].shape in ("apart", "either") else None
    return None


@dataclass(frozen=True)
class BucketStatement:
    """Writes estimates within their certain bounds; of a count that is alone, its error, too.

    What each bucket has of both sides gives bounds and error; the views of weights, the estimates.
    """

    opened: OpenQuery
    layout: BucketLayout
    most: Sequence[list[MostOfValues] | None]  # Of each measure; None where weights do not answer
    write: Callable[[OpenQuery], Node]  # Writes the statement of another query

    def tree(self) -> Node:
        """Build the statement."""
        query = self.opened.query
        lists = [
            ("records", self._records()), ("sensitive", self._sensitive()),
            ("buckets", self._buckets()), ("bounds", self._bounds()),
        ]  # fmt: skip
        if self._weighed:
            lists.append(("learned", self._weigh()))
        if any(self.most):
            lists.append(("remainder", self._remainder()))
        if self._by_shares:
            lists.append(("paper", self._paper()))
        if self._alone is not None:
            lists += [
                ("spread_of_records", self._spread(self._alone, 0)),
                ("spread_of_values", self._spread(self._alone, 1)),
            ]
            if self.layout.is_drawn_from_all:
                lists.append(("between", self._between(self._alone)))
        names = [name for name, _ in lists[3:]]
        totals = self._totals()
        lists += [("estimates", self._estimates(names))]
        lists += [(name, statement) for name, statement, _ in totals.values()]
        statement = exp.Select().from_("estimates")
        for name, _, keys in totals.values():
            statement = statement.join(_join_groups("estimates", name, keys))
        table = "estimates" if totals else ""

        def write_aggregate(expression: Expression) -> Node | None:
            if isinstance(expression, ex.WindowTotal):
                return nodes.column("total", totals[expression][0])
            if not isinstance(expression, Aggregate):
                return None
            return nodes.column(f"estimate_{self._measures.index(expression) + 1}", table)

        shown = [
            (nodes.column(key, table), one.name)
            for key, one in zip(self._keys(), query.keys, strict=True)
        ]
        shown += [*nodes.select_aggregates(query, write_aggregate), *self._show_error()]
        statement = statement.select(*(nodes.give_name(column, name) for column, name in shown))
        if query.having is not None:
            statement = statement.where(nodes.tree(query.having, nodes.rounding(write_aggregate)))
        return nodes.with_lists(
            nodes.in_order(statement, query, nodes.rounding(write_aggregate)), lists
        )

    # What is asked of each measure

    @cached_property
    def _weighed(self) -> dict[int, Plan]:
        """The plans of the measures that weights answer, by their numbers."""
        plans = enumerate(self.opened.plans)
        return {number: plan for number, plan in plans if self.most[number] is not None}

    @cached_property
    def _measures(self) -> list[Aggregate]:
        return [measure.aggregate for measure in self.opened.query.measures]

    @cached_property
    def _bounded(self) -> dict[int, Plan]:
        """The plans whose bounds are added up."""
        alone = self._alone
        own = {} if alone is None else {alone: self.opened.plans[alone]}
        return self._weighed | own

    @cached_property
    def _by_shares(self) -> list[int]:
        """The numbers of the measures that are estimated by shares of buckets."""
        own = range(len(self._measures))
        return [number for number in own if self.layout.is_paper or number not in self._weighed]

    @cached_property
    def _alone(self) -> int | None:
        """The number of the count whose error is shown, if there is one."""
        return find_count_alone(self.opened)

    def _keys(self, *sides: Side) -> list[str]:
        """Name the columns of the keys on some sides."""
        keys = self.opened.plans[0].keys
        return [f"key_{key.number + 1}" for key in keys if not sides or key.side in sides]

    def _select_keys(self, source: FromClause, *sides: Side) -> list[tuple[Node, str]]:
        keys = self.opened.plans[0].keys
        return [
            (source.tree(key.expression), f"key_{key.number + 1}")
            for key in keys
            if not sides or key.side in sides
        ]

    # What buckets have

    def _records(self) -> Node:
        """Count, in each bucket and group of its records, those that match."""
        (bucket,) = nodes.split_name(self.layout.tables.bucket_id)
        source = bucket_source(self.opened, self.layout, self.layout.tables.qit, 0)
        columns = [(nodes.column(bucket), "bucket"), *self._select_keys(source, 0)]
        n_keys = len(columns)
        if self._alone is not None:
            n: Node = exp.Count(this=exp.Star())
            columns.append((_of_bucket(n, nodes.column(bucket), n_keys), "size"))
        for number, plan in self._bounded.items():
            columns += self._of_side(source, number, plan, 0, None)
        return source.select(*columns).group_by(*nodes.places(n_keys))

    def _sensitive(self) -> Node:
        """Count, in each bucket and group of its values, those that match."""
        tables = self.layout.tables
        source = bucket_source(self.opened, self.layout, tables.sat, 1)
        (bucket,), (count,) = map(nodes.split_name, (tables.bucket_id, tables.count))
        columns = [(nodes.column(bucket), "bucket"), *self._select_keys(source, 1)]
        n_keys = len(columns)
        total: Node = exp.Sum(this=nodes.column(count))
        columns.append((_of_bucket(total, nodes.column(bucket), n_keys), "size"))
        for number, plan in self._bounded.items():
            columns += self._of_side(source, number, plan, 1, nodes.column(count))
        return source.select(*columns).group_by(*nodes.places(n_keys))

    def _of_side(
        self, source: FromClause, number: int, plan: Plan, side: Side, count: Node | None
    ) -> list[tuple[Node, str]]:
        """Write what one side of a bucket has of a measure."""
        condition = source.tree(plan.values if side else plan.records)
        named = f"{'s' if side else 'q'}_{number + 1}"

        def total(x: Node | None, *also: Node) -> Node:
            chosen = nodes.join_all(condition, *also)
            if x is None:
                n = exp.Count(this=exp.Star()) if count is None else exp.Sum(this=count)
                return nodes.filter_rows(n, chosen)
            weighed = x if count is None else exp.Mul(this=count, expression=nodes.enclose(x))
            return nodes.filter_rows(exp.Sum(this=weighed), chosen)

        if not plan.has_number_on(side):
            return [(_or_zero(total(None)), named)]
        x, zero = self._number(source, plan), exp.Literal.number(0)
        is_number = exp.Not(this=exp.Is(this=nodes.enclose(x), expression=exp.Null()))
        ends = (("least", exp.Min), ("most", exp.Max))
        return [
            (_or_zero(total(None, is_number)), named),
            (total(x), f"x_{number + 1}"),
            (total(nodes.greatest(x, zero)), f"positive_{number + 1}"),
            (total(nodes.least(x, zero)), f"negative_{number + 1}"),
            *(
                (nodes.filter_rows(end(this=x), condition), f"{name}_{number + 1}")
                for name, end in ends
            ),
        ]

    @staticmethod
    def _number(source: FromClause, plan: Plan) -> Node:
        """Write what is summed; sums of `real` have its few digits."""
        x, type_ = source.tree(plan.number), plan.measure.type
        is_real = type_ is not None and type_.name == "real"
        return nodes.cast(x, "double precision") if is_real else x

    def _buckets(self) -> Node:
        """Say how many of the values of a bucket that match are drawn, at least and at most."""
        columns = [(nodes.column(key), key) for key in self._keys()]
        for number, plan in self._bounded.items():
            own = _BucketNumbers(number + 1, plan)
            columns += own.columns() + (own.draws() if number == self._alone else [])
        shared = ["bucket"] if self._alone is None else ["bucket", "size"]
        return nodes.select(*columns).from_("records").join("sensitive", using=shared)

    def _bounds(self) -> Node:
        """Add up the bounds of the buckets."""
        columns = [(nodes.column(key), key) for key in self._keys()]
        for number, plan in self._bounded.items():
            own = _BucketNumbers(number + 1, plan)
            columns += own.sums() if plan.summed is not None else own.counts()
            if number == self._alone:
                columns += [(exp.Sum(this=nodes.column(name)), name) for _, name in own.draws()]
        return _group(nodes.select(*columns).from_("buckets"), self._keys())

    def _spread(self, number: int, side: Side) -> Node:
        """Add up how much what matches on one side varies inside of buckets, and among all."""
        keys = self._keys(side)
        n = nodes.column(f"{'s' if side else 'q'}_{number + 1}")
        size = nodes.cast(nodes.column("size"), nodes.DOUBLE)
        inside = exp.Sum(this=n - nodes.divide(n * n, size))
        columns = [(nodes.column(key), key) for key in keys]
        total = exp.Sum(this=n)
        columns += [(total, "total"), (nodes.greatest(inside, nodes.ZERO), "inside")]
        if side:
            everybody = nodes.double(self.layout.tables.n_records)
            columns.append((total - nodes.divide(total * total, everybody), "varying"))
        return _group(nodes.select(*columns).from_("sensitive" if side else "records"), keys)

    def _between(self, number: int) -> Node:
        """Say what shows of a dependence between buckets, and how far it is heard."""
        n = self.layout.tables.n_records
        strength = self._write_strength(number) * nodes.double(n)
        inside, varying = (nodes.column(name, "spread_of_values") for name in ("inside", "varying"))
        varying = nodes.greatest(varying, nodes.ZERO)
        between = strength * nodes.greatest(varying - inside, nodes.ZERO)
        of_all = exp.Nullif(this=between + varying, expression=nodes.ZERO)
        records, values = (
            nodes.column("total", f"spread_of_{one}") for one in ("records", "values")
        )
        product = nodes.column(f"expected_{number + 1}", "bounds") - nodes.divide(
            records * values, nodes.double(n)
        )
        shown = strength * inside * nodes.enclose(product)
        columns = [(nodes.column(key, "bounds"), key) for key in self._keys()]
        columns += [
            (exp.Coalesce(this=nodes.divide(part, of_all), expressions=[nodes.ZERO]), name)
            for part, name in ((between, "heard"), (shown, "shown"))
        ]
        statement = nodes.select(*columns).from_("bounds")
        sides: dict[str, Side] = {"spread_of_records": 0, "spread_of_values": 1}
        for name, side in sides.items():
            statement = statement.join(_join_groups("bounds", name, self._keys(side)))
        return statement

    # What the views weigh

    def _weigh(self) -> Node:
        """Add up learned weights."""
        query = self.opened.query
        source = bucket_source(self.opened, self.layout, self.layout.tables.likely)
        where = query.where
        columns = self._select_keys(source)
        written = WeightedAggregates(source, None, bool(query.keys))
        for number, plan in self._weighed.items():
            measure = plan.measure
            if plan.shape == "either":  # those are weighed that meet neither condition
                where = ex.joined(ex.And, [one for one in (plan.records, plan.values) if one])
                measure = replace(measure, operand=None, condition=None)
            if measure.function == "avg":
                n = written.of(replace(measure, function="count"))
                columns.append((n, f"n_{number + 1}"))
                measure = replace(measure, function="sum")
            columns.append((written.of(measure), f"total_{number + 1}"))
        return self._of_groups(source, columns, where)

    def _remainder(self) -> Node:
        """Say what the weights of all values leave of the records, since these are rounded."""
        keys = self._keys(0)
        source = bucket_source(self.opened, self.layout, self.layout.tables.likely)
        weighed, counted = self._select_keys(source, 0), [(nodes.column(key), key) for key in keys]
        left = [(nodes.column(key, "w"), key) for key in keys]
        for number, plan in self._weighed.items():
            if not self.most[number]:
                continue
            condition = source.tree(plan.records)
            x = self._number(source, plan) if plan.has_number_on(0) else None
            parts: dict[str, tuple[str, Node]] = {"n": ("q", source.weight)}
            if x is not None:
                condition = nodes.join_all(
                    condition, exp.Not(this=exp.Is(this=x, expression=exp.Null()))
                )
                parts["x"] = ("x", exp.Mul(this=source.weight, expression=x))
            for name, (own, weight) in parts.items():
                label = f"{name}_{number + 1}"
                weighed.append(
                    (_or_zero(nodes.filter_rows(exp.Sum(this=weight.copy()), condition)), label)
                )
                own_column = nodes.column(f"{own}_{number + 1}")
                counted.append((_or_zero(exp.Sum(this=own_column)), label))
                left.append((nodes.column(label, "r") - nodes.column(label, "w"), label))
        groups = nodes.places(len(keys))
        of_records = nodes.select(*counted).from_("records")
        of_weights = source.select(*weighed)
        if keys:
            of_records, of_weights = (one.group_by(*groups) for one in (of_records, of_weights))
        joined = _join_groups("w", "r", keys)
        joined.set("this", nodes.listing(of_records, "r"))
        return nodes.select(*left).from_(nodes.listing(of_weights, "w")).join(joined)

    def _paper(self) -> Node:
        """Add up shares of buckets, for what weights do not answer."""
        query = self.opened.query
        source = bucket_source(self.opened, self.layout, self.layout.tables.view)
        written = WeightedAggregates(source, None, bool(query.keys))
        nodes.require_weighted(self.opened, source)
        columns = self._select_keys(source)
        for number in self._by_shares:
            columns.append((written.of(self._measures[number]), f"total_{number + 1}"))
        return self._of_groups(source, columns, query.where)

    def _of_groups(
        self, source: FromClause, columns: list[tuple[Node, str]], where: Expression | None
    ) -> Node:
        statement = source.select(*columns)
        if where is not None:
            statement = statement.where(source.tree(where))
        keys = self._keys()
        return statement.group_by(*nodes.places(len(keys))) if keys else statement

    # What is shown

    def _totals(self) -> dict[ex.WindowTotal, tuple[str, Node, list[str]]]:
        """Write the totals of groups: the name, the statement and the keys of each."""
        query = self.opened.query
        totals: dict[ex.WindowTotal, tuple[str, Node, list[str]]] = {}
        parts = (inner for one in query.formulas for inner in ex.walk(one.expression))
        for total in dict.fromkeys(one for one in parts if isinstance(one, ex.WindowTotal)):
            names = [
                (key, name)
                for key, name in zip(query.keys, self._keys(), strict=True)
                if key.expression in total.by
            ]
            question = ex.Query(
                query.where if total.is_filtered else None,
                tuple(key._replace(name=name) for key, name in names),
                (ex.Measure("total", total.aggregate),), listed=(0,),
            )  # fmt: skip
            statement = self.write(replace(self.opened, query=question))
            totals[total] = (
                f"total_{len(totals) + 1}", statement, [name for _, name in names]
            )  # fmt: skip
        return totals

    def _estimates(self, names: Sequence[str]) -> Node:
        """Put together what the lists of these names say of each group."""
        base = "learned" if self._weighed else "paper"
        columns = [(nodes.column(key, base), key) for key in self._keys()]
        columns += [
            (self._estimate(number), f"estimate_{number + 1}")
            for number in range(len(self._measures))
        ]
        if self._alone is not None:
            columns += self._judge(self._alone)
        sides: dict[str, tuple[Side, ...]] = {
            "remainder": (0,), "spread_of_records": (0,), "spread_of_values": (1,)
        }  # fmt: skip
        statement = nodes.select(*columns).from_(base)
        for name in names:
            if name != base:
                keys = self._keys(*sides.get(name, ()))
                statement = statement.join(_join_groups(base, name, keys))
        return statement

    def _estimate(self, number: int) -> Node:
        """Write the estimate of a measure."""
        if number in self._by_shares:
            total: Node = nodes.column(f"total_{number + 1}", "paper")
            if number not in self._bounded:
                return total
        else:
            total = self._all_but(number, self._write_learned(number))
        lower, upper = self._limits(number)
        return nodes.least(nodes.greatest(total, lower), upper)

    def _all_but(self, number: int, total: Node) -> Node:
        """Count those that meet either condition, where those are counted that meet neither."""
        if self.opened.plans[number].shape != "either":
            return total
        return nodes.number(str(self.layout.tables.n_records)) - total

    def _write_learned(self, number: int) -> Node:
        """Write what learned weights say of a measure."""
        plan, most = self._weighed[number], self.most[number] or []

        def add(name: str, part: str, times: Callable[[float], float]) -> Node:
            total: Node = nodes.column(f"{name}_{number + 1}", "learned")
            for one in most:
                left = nodes.column(f"{part}_{number + 1}", "remainder")
                if one.x is not None:
                    left = left * nodes.number(repr(times(one.x)))
                total = total + self._where_group(one.keys, left)
            return total

        total = add("total", "x" if plan.has_number_on(0) else "n", lambda x: x)
        if plan.measure.function == "avg":
            n = exp.Nullif(this=add("n", "n", lambda _: 1.0), expression=nodes.ZERO)
            mean = nodes.column(f"mean_{number + 1}", "bounds")
            total = exp.Coalesce(this=total / n, expressions=[mean])
        return total

    def _write_strength(self, number: int) -> Node:
        """Write the squared correlation with what records are asked for, before any is seen."""
        tables = self.layout.tables
        strength = find_strength(self.layout, self.opened.plans[number])
        of_half = 4 * strength**2 / max(tables.n_records - tables.n_buckets, 1)
        return nodes.number(repr(of_half)) * nodes.column("inside", "spread_of_records")

    def _limits(self, number: int) -> tuple[Node, Node]:
        """Write the bounds of a measure."""
        lower, upper = (
            nodes.column(f"{name}_{number + 1}", "bounds") for name in ("lower", "upper")
        )
        if self.opened.plans[number].shape == "either":
            return self._all_but(number, upper), self._all_but(number, lower)
        return lower, upper

    def _judge(self, number: int) -> list[tuple[Node, str]]:
        """Write the standard error of the count that is alone, and its bounds."""
        # As `judge_pairs` and `PairSums.hide` of `kanon_db.publications.buckets.tallies` say it.
        tables = self.layout.tables
        n = tables.n_records
        drawn = n / max(n - tables.n_buckets, 1)
        factor = self._write_strength(number) * nodes.number(repr(drawn))
        of_records = nodes.column("inside", "spread_of_records")
        of_values = nodes.column("inside", "spread_of_values")
        varying = nodes.column("varying", "spread_of_values")
        reach = exp.Coalesce(
            this=nodes.divide(
                factor * of_records * of_values * of_values,
                exp.Nullif(this=nodes.greatest(varying, nodes.ZERO), expression=nodes.ZERO),
            ),
            expressions=[nodes.ZERO],
        )  # fmt: skip
        miss = nodes.column(f"variance_{number + 1}", "bounds")
        two, learned = exp.Literal.number(2), None
        if number in self._weighed:
            expected = nodes.column(f"expected_{number + 1}", "bounds")
            learned = nodes.enclose(self._write_learned(number) - expected)
        if self.layout.is_drawn_from_all:
            heard, left = (nodes.column(name, "between") for name in ("heard", "shown"))
            reach = reach * nodes.greatest(
                exp.Literal.number(1) - heard, nodes.number(repr(NEVER_SHOWN))
            )
            if learned is not None:
                left = left - heard * learned
            miss = miss + nodes.call("POWER", left, two)
        miss = miss + reach
        if learned is not None and number in self._by_shares:
            miss = miss + nodes.call("POWER", learned, two)
        lower, upper = self._limits(number)
        half = nodes.divide(upper - nodes.enclose(lower), exp.Literal.number("2.0"))
        error = nodes.least(exp.Sqrt(this=miss), half)
        return [
            (error, "std_error"), (nodes.cast(lower, "bigint"), "lower_bound"),
            (nodes.cast(upper, "bigint"), "upper_bound"),
        ]  # fmt: skip

    def _show_error(self) -> list[tuple[Node, str]]:
        """Show how far off a count that is alone may be."""
        if self._alone is None:
            return []
        return nodes.show_error(nodes.column(f"estimate_{self._alone + 1}"))

    @staticmethod
    def _where_group(keys: Mapping[int, str], left: Node) -> Node:
        """Add something only for the group that has some keys, given as JSON."""
        if not keys:
            return left
        conditions = []
        for number, text in keys.items():
            value = json.loads(text, parse_float=str, parse_int=str)
            if isinstance(value, bool):
                value = str(value).lower()
            constant = exp.Null() if value is None else exp.Literal.string(value)
            key = nodes.column(f"key_{number + 1}", "learned")
            conditions.append(exp.NullSafeEQ(this=key, expression=constant))
        is_own = exp.and_(*conditions, copy=False)
        return exp.Case(ifs=[exp.If(this=is_own, true=left)], default=exp.Literal.number(0))


def _of_bucket(total: Node, bucket: Node, n_keys: int) -> Node:
    """Write a total of all of a bucket, where rows are grouped by it and by other keys, or not."""
    if n_keys == 1:
        return total
    return exp.Window(this=exp.Sum(this=total), partition_by=[bucket])


def _group(statement: Node, keys: Sequence[str]) -> Node:
    return statement.group_by(*nodes.places(len(keys))) if keys else statement


def _or_zero(node: Node) -> Node:
    if isinstance(node, exp.Count) or isinstance(node.this, exp.Count):
        return node
    return exp.Coalesce(this=node, expressions=[exp.Literal.number(0)])


def _join_groups(one: str, other: str, keys: Sequence[str]) -> Node:
    """Join what is known of the same groups, one row each."""
    equal = [
        exp.NullSafeEQ(this=nodes.column(key, one), expression=nodes.column(key, other))
        for key in keys
    ]
    if not equal:
        return exp.Join(this=exp.to_table(other), kind="CROSS")
    return exp.Join(this=exp.to_table(other), on=exp.and_(*equal, copy=False))


class _BucketNumbers:
    """What the buckets have of a measure, whose bounds follow from it."""

    def __init__(self, number: int, plan: Plan) -> None:
        self._number, self._is_average = number, plan.measure.function == "avg"
        self._is_sum = plan.summed is not None
        self._sides = ("s", "q") if plan.has_number_on(1) else ("q", "s")

    def _column(self, name: str) -> Node:
        return nodes.column(f"{name}_{self._number}")

    def columns(self) -> list[tuple[Node, str]]:
        """Write what a bucket has of both sides."""
        n, matches, size = *map(self._column, self._sides), nodes.column("size")
        columns = [
            (nodes.greatest(n + matches - size, exp.Literal.number(0)), "fewest"),
            (nodes.least(n, matches), "many"),
        ]
        if self._is_sum:
            names = self._sides[0], "x", "least", "most", "positive", "negative"
            columns += [(self._column(name), name) for name in names]
            share = nodes.cast(matches, "double precision") / size
            columns += [(share, "share")]
        return [(node, f"{name}_{self._number}") for node, name in columns]

    def draws(self) -> list[tuple[Node, str]]:
        """Write how many meet if each matching is as likely as the others, and the variance."""
        # A hypergeometric number; see `count_draws` of `kanon_db.publications.buckets.tallies`.
        q, s, size = *map(self._column, self._sides), nodes.column("size")
        one, pairs = exp.Literal.number(1), nodes.cast(q * s, nodes.DOUBLE)
        spread = pairs * exp.Paren(this=size - q) * exp.Paren(this=size - s)
        cases = size * size * nodes.greatest(size - one, one)
        return [
            (nodes.divide(pairs, size), f"expected_{self._number}"),
            (nodes.divide(spread, cases), f"variance_{self._number}"),
        ]

    def counts(self) -> list[tuple[Node, str]]:
        """Write the bounds of a count."""
        named = (("fewest", "lower"), ("many", "upper"))
        return [(exp.Sum(this=self._column(own)), f"{name}_{self._number}") for own, name in named]

    def sums(self) -> list[tuple[Node, str]]:
        """Write the bounds of a sum, or of an average, and the average of random matchings."""
        n, x, least, most, positive, negative, fewest, many, share = map(
            self._column,
            (
                self._sides[0],
                "x",
                "least",
                "most",
                "positive",
                "negative",
                "fewest",
                "many",
                "share",
            ),
        )
        parts: Any = n, x, None, positive, negative, least, most
        bounds = limit_sums(Weighed(*parts), (fewest, many), nodes.least, nodes.greatest)
        meets = exp.GT(this=many, expression=exp.Literal.number(0))

        def total(node: Node, function: type = exp.Sum) -> Node:
            return nodes.filter_rows(function(this=node.copy()), meets.copy())

        lower, upper = map(total, bounds)
        if not self._is_average:
            return [(lower, f"lower_{self._number}"), (upper, f"upper_{self._number}")]
        first, last = total(least, exp.Min), total(most, exp.Max)
        is_certain = exp.EQ(this=total(fewest), expression=total(many))

        def divide(sum_: Node, end: Node) -> Node:
            mean = nodes.cast(sum_, "double precision") / total(many)
            own = nodes.greatest(nodes.least(mean, last), first)
            return exp.Case(ifs=[exp.If(this=is_certain.copy(), true=own)], default=end.copy())

        mean = total(x * share) / total(n * share)
        named = (("lower", divide(lower, first)), ("upper", divide(upper, last)), ("mean", mean))
        return [(node, f"{name}_{self._number}") for name, node in named]
