"""From a checked query to SQL over QIT and SAT.

**Source:** estimate, [GB] section 3.2; bounds and variances, docs/estimation.md.

Each aggregate of a query is a statement of its own, in one of three forms. On one side only it is
counted exactly. Where the condition is a conjunction of its two sides, each bucket's answer follows
from sums over its records and sums over its values (`factored`). Anything else goes through the
pairs of a record and a value of the same bucket, alike ones together (`paired`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kanon_db.counting.bitmaps import FLAT
from kanon_db.counting.check import TEXT, Key, Query
from kanon_db.counting.expressions import (
    Aggregate,
    And,
    Column,
    Constant,
    Expression,
    NullTest,
    Or,
    TruthTest,
    attributes,
    children,
    conjoin,
    disjoin,
    replaced,
)
from kanon_db.counting.joins import joined, speller
from kanon_db.counting.layout import BucketLayout, Lookup
from kanon_db.counting.sql import Constants, Statement, write


@dataclass(frozen=True, slots=True)
class Factors:
    """A condition as a conjunction of one on records and one on sensitive values."""

    records: Expression | None
    values: Expression | None


def condition_of(query: Query, aggregate: Aggregate) -> Expression | None:
    """Return what a record must meet to be counted in an aggregate: NULLs are not."""
    parts = [] if query.where is None else [query.where]
    if aggregate.operand is not None:
        parts.append(NullTest(aggregate.operand, negated=True))
    return conjoin(parts)


def factors(condition: Expression | None, layout: BucketLayout) -> Factors | None:
    """Split a condition by side; None where a part of the conjunction mentions both."""
    sides: tuple[list[Expression], list[Expression]] = ([], [])
    for part in parts_of(condition):
        side = side_of(part, layout)
        if side is None:
            return None
        sides[side].append(part)
    return Factors(conjoin(sides[0]), conjoin(sides[1]))


def parts_of(condition: Expression | None) -> tuple[Expression, ...]:
    """Return the parts of a conjunction."""
    if condition is None:
        return ()
    return condition.parts if isinstance(condition, And) else (condition,)


def side_of(expression: Expression, layout: BucketLayout) -> int | None:
    """Return 0 for an expression on records, 1 on the sensitive attribute, None for both."""
    mentioned = attributes(expression)
    if layout.sensitive.name not in mentioned:
        return 0
    return 1 if len(mentioned) == 1 else None


def disjoint_sides(
    query: Query, aggregate: Aggregate, layout: BucketLayout
) -> tuple[Expression, Expression] | None:
    """Split a disjunction of conditions on one side each; None for anything else.

    Only for a count without groups: that of the records which meet neither gives it.
    """
    condition = condition_of(query, aggregate)
    if query.keys or aggregate.function != "count" or not isinstance(condition, Or):
        return None
    parts: tuple[list[Expression], list[Expression]] = ([], [])
    for part in condition.parts:
        side = side_of(part, layout)
        if side is None:
            return None
        parts[side].append(part)
    records, values = map(disjoin, parts)
    return None if records is None or values is None else (records, values)


def sides_of(query: Query, aggregate: Aggregate, layout: BucketLayout) -> set[int | None]:
    """Return the sides of all that an aggregate depends on."""
    parts = [
        *parts_of(condition_of(query, aggregate)),
        *(key.expression for key in query.keys),
        *(() if aggregate.operand is None else (aggregate.operand,)),
    ]
    return {side_of(part, layout) for part in parts}


def bucket_statement(
    query: Query,
    aggregate: Aggregate,
    layout: BucketLayout,
    lookups: Sequence[Lookup] = (),
    literal: Callable[[str], str] | None = None,
) -> Statement:
    """Write the statement that estimates one aggregate of a query.

    It returns ``estimate, std_error, lower_bound, upper_bound``; for a query with GROUP BY a row
    for each group that may have records, with ``group_key`` (JSON) and ``rank_0 …``, the places of
    the group's values in their order.

    Parameters
    ----------
    query : Query
    aggregate : Aggregate
    layout : BucketLayout
    lookups : sequence of Lookup
    literal : callable, optional
        Quotes a value: the values are then part of the text, for people to read and run.
    """
    writer = _Writer(query, aggregate, layout, lookups, Constants(literal))
    sides = sides_of(query, aggregate, layout)
    if len(sides) < 2 and None not in sides:
        text = writer.one_sided(1 if sides == {1} else 0)
    elif None not in sides:
        text = writer.factored()
    elif (either := disjoint_sides(query, aggregate, layout)) is not None:
        text = writer.either(either)
    else:
        text = writer.paired()
    return Statement(with_groups(text, query.keys, writer.constants), writer.constants.values)


def with_groups(text: str, keys: Sequence[Key], constants: Constants) -> str:
    """Add each group's key as JSON, and the places of its values in their order."""
    if not keys:
        return text
    named = ", ".join(
        f"{constants.write(Constant(key.name, TEXT))}, k{i}" for i, key in enumerate(keys)
    )
    ranks = ", ".join(f"dense_rank() OVER (ORDER BY k{i}) AS rank_{i}" for i in range(len(keys)))
    return (
        f"SELECT jsonb_build_object({named})::text AS group_key, {ranks}, estimate, std_error,"
        f" lower_bound, upper_bound FROM ({text}) AS estimated"
    )


_SUMS: Final = "sx, sxx, positive, negative, least_x, most_x"
"""Of x over one side of a bucket: its sum, its squares', its positive and negative parts'."""


class _Writer:
    """Writes one statement; `k0 …` are the group's values throughout."""

    def __init__(
        self,
        query: Query,
        aggregate: Aggregate,
        layout: BucketLayout,
        lookups: Sequence[Lookup],
        constants: Constants,
    ) -> None:
        self.constants = constants
        self._query = query
        self._function = aggregate.function
        self._weighed = None if aggregate.function == "count" else aggregate.operand
        self._condition = condition_of(query, aggregate)
        self._layout = layout
        self._lookups = lookups
        self._keys = [key.expression for key in query.keys]

    # -- names --------------------------------------------------------------------------------

    def _write(self, expression: Expression, side: int) -> str:
        return write(expression, speller("qs"[side]), self.constants)

    def _where(self, condition: Expression | None, side: int) -> str:
        return "true" if condition is None else self._write(condition, side)

    def _from(self, side: int, *expressions: Expression | None) -> str:
        relation = self._layout.sat if side else self._layout.qit
        return joined(relation, "qs"[side], expressions, self._lookups)

    def _numbered(self, side: int | None = None) -> list[str]:
        """Name the group's values, of one side or all."""
        return [
            f"k{i}"
            for i, key in enumerate(self._keys)
            if side is None or side_of(key, self._layout) == side
        ]

    # -- one side -----------------------------------------------------------------------------

    def one_sided(self, side: int) -> str:
        """Aggregate QIT or SAT as they are: exact."""
        keys = "".join(f"{self._write(key, side)} AS k{i}, " for i, key in enumerate(self._keys))
        each = f"s.{self._layout.count}" if side else "1"
        n = f"sum({each})" if side else "count(*)"
        value = f"coalesce({n}, 0)::int8"
        if self._weighed is not None:
            x = self._write(self._weighed, side)
            value = f"sum(({x})::float8 * {each})" if side else f"sum({x})::float8"
            if self._function == "avg":
                value = f"({value} / {n})::float8"
        source = self._from(side, self._condition, self._weighed, *self._keys)
        grouped = f" GROUP BY {', '.join(self._numbered())}" if self._keys else ""
        numbers = ", ".join(self._numbered())
        return (
            f"SELECT {numbers + ', ' if numbers else ''}n::float8 AS estimate,"
            " CASE WHEN n IS NOT NULL THEN 0::float8 END AS std_error, n AS lower_bound,"
            " n AS upper_bound"
            f" FROM (SELECT {keys}{value} AS n FROM {source}"
            f" WHERE {self._where(self._condition, side)}{grouped}) AS c"
        )

    # -- a conjunction of both sides ----------------------------------------------------------

    def factored(self) -> str:
        """Combine sums over a bucket's records with sums over its values."""
        split = factors(self._condition, self._layout)
        if split is None:
            raise TypeError("the condition does not split by side")
        return self._combined((split.records, split.values))

    def either(self, sides: tuple[Expression, Expression]) -> str:
        """Count what meets one condition or the other: all records but those that meet neither."""
        neither = self._combined(
            (TruthTest(sides[0], "true", negated=True), TruthTest(sides[1], "true", negated=True))
        )
        n = self._layout.n_records
        return (
            f"SELECT {n} - estimate AS estimate, std_error, {n} - upper_bound AS lower_bound,"
            f" {n} - lower_bound AS upper_bound FROM ({neither}) AS neither"
        )

    def _combined(self, sides: tuple[Expression | None, Expression | None]) -> str:
        keys = "".join(f"{name}, " for name in self._numbered())
        if self._weighed is None:
            buckets = (
                f"SELECT {keys}x.n AS q, y.n AS s, x.size, x.total AS n_q, x.packed AS packed_q,"
                " y.total AS n_s, y.packed AS packed_s"
                f" FROM ({self._totaled(0, sides[0])}) AS x"
                f" JOIN ({self._totaled(1, sides[1])}) AS y USING (bucket_id)"
            )
            return self._counted(buckets)
        first = side_of(self._weighed, self._layout) or 0
        buckets = (
            f"SELECT {keys}x.n AS q, y.n AS s, {self._layout.size} AS size, {_SUMS}"
            f" FROM ({self._side(first, sides[first], self._weighed)}) AS x"
            f" JOIN ({self._side(1 - first, sides[1 - first], None)}) AS y USING (bucket_id)"
        )
        return self._summed(buckets)

    def _totaled(self, side: int, condition: Expression | None) -> str:
        """Add to each bucket and group what the group has in all buckets."""
        names = self._numbered(side)
        over = f"OVER ({f'PARTITION BY {chr(44).join(names)}' if names else ''})"
        return (
            f"SELECT *, (sum(n) {over})::float8 AS total,"
            f" (sum(n * n / size::float8) {over})::float8 AS packed"
            f" FROM (SELECT *, {self._layout.size} AS size"
            f" FROM ({self._side(side, condition, None)}) AS counted) AS sized"
        )

    def _side(self, side: int, condition: Expression | None, weighed: Expression | None) -> str:
        """Sum over the records, or values, of each bucket and group."""
        bucket = f"{'qs'[side]}.{self._layout.bucket_id}"
        names = self._numbered(side)
        keys = [key for key in self._keys if side_of(key, self._layout) == side]
        selected = "".join(
            f", {self._write(key, side)} AS {name}" for key, name in zip(keys, names, strict=True)
        )
        each = f"s.{self._layout.count}" if side else "1"
        sums = f"sum({each})::int8 AS n" if side else "count(*) AS n"
        if weighed is not None:
            x = f"({self._write(weighed, side)})::float8"
            sums += (
                f", sum({x} * {each}) AS sx, sum({x} * {x} * {each}) AS sxx,"
                f" sum(greatest({x}, 0) * {each}) AS positive,"
                f" sum(least({x}, 0) * {each}) AS negative,"
                f" min({x}) AS least_x, max({x}) AS most_x"
            )
        return (
            f"SELECT {bucket} AS bucket_id{selected}, {sums}"
            f" FROM {self._from(side, condition, weighed, *keys)}"
            f" WHERE {self._where(condition, side)}"
            f" GROUP BY {', '.join(['1', *names])}"
        )

    def _counted(self, buckets: str) -> str:
        """Add up buckets with q matching records and s matching values; alike ones together.

        The error is that of a random matching and of the correlation that the buckets show.
        """
        keys = "".join(f"{name}, " for name in self._numbered())
        grouped = f" GROUP BY {', '.join(self._numbered())}" if self._keys else ""
        share = "(s / size::float8)"
        totals = "n_q, packed_q, n_s, packed_s"
        n, hidden = self._layout.n_records, self._layout.n_records - self._layout.n_buckets
        counts = (
            f"SELECT {keys}coalesce(sum(n * q * {share}), 0)::float8 AS estimate,"
            f" coalesce(sum(n * q * {share} * (1 - {share}) * (size - q)"
            " / greatest(size - 1, 1)), 0)::float8 AS variance,"
            " coalesce(sum(n * greatest(q + s - size, 0)), 0)::int8 AS lower_bound,"
            " coalesce(sum(n * least(q, s)), 0)::int8 AS upper_bound,"
            f" max(n_q) AS n_q, max(packed_q) AS packed_q, max(n_s) AS n_s,"
            f" max(packed_s) AS packed_s FROM (SELECT {keys}q, s, size, {totals}, count(*) AS n"
            f" FROM ({buckets}) AS b GROUP BY {keys}q, s, size, {totals}) AS alike{grouped}"
        )
        measures = (
            f"SELECT *, (upper_bound - lower_bound) / 2::float8 AS half_width,"
            f" packed_s - n_s * n_s / {n} AS spread_s, n_q / {n} AS share FROM ({counts}) AS counts"
        )
        return (
            f"SELECT {keys}estimate, CASE WHEN half_width = 0 OR variance <= 0 THEN 0"
            f" WHEN spread_s <= {FLAT} * n_s THEN half_width"
            " ELSE least(half_width, sqrt(variance"
            f" + ((n_s - packed_s) * (n_q - packed_q) / ({hidden} * share * (1 - share))) ^ 2"
            f" * (((estimate - n_q * n_s / {n}) / spread_s) ^ 2 + share * (1 - share) / spread_s)))"
            f" END::float8 AS std_error, lower_bound, upper_bound FROM ({measures}) AS measures"
        )

    def _summed(self, buckets: str) -> str:
        """Add up buckets with sums of x over q matching records (or values), s on the other side.

        Between lo and hi of the q are meant; each bound takes the extreme that so many can reach.
        """
        keys = "".join(f"{name}, " for name in self._numbered())
        most = (
            "least(positive, greatest(lo * most_x, hi * most_x),"
            " greatest(sx - (q - lo) * least_x, sx - (q - hi) * least_x))"
        )
        least = (
            "greatest(negative, least(lo * least_x, hi * least_x),"
            " least(sx - (q - lo) * most_x, sx - (q - hi) * most_x))"
        )
        other = "(s - s * s / size) / greatest(size - 1, 1)"
        bucket = (
            f"SELECT {keys}sx * s / size AS t, q * s / size AS c,"
            f" (sxx - sx * sx / size) * {other} AS tt, (q - q * q / size) * {other} AS cc,"
            f" (sx - sx * q / size) * {other} AS tc, {least} AS t_low, {most} AS t_high,"
            " lo AS c_low, hi AS c_high, least_x, most_x"
            f" FROM (SELECT {keys}q::float8 AS q, s::float8 AS s, size::float8 AS size, {_SUMS},"
            " greatest(q + s - size, 0)::float8 AS lo, least(q, s)::float8 AS hi"
            f" FROM ({buckets}) AS b) AS sized"
        )
        return self._totals(bucket)

    def _totals(self, bucket: str) -> str:
        """Add up buckets' sums t and counts c, with variances, covariance and bounds."""
        keys = "".join(f"{name}, " for name in self._numbered())
        grouped = f" GROUP BY {', '.join(self._numbered())}" if self._keys else ""
        totals = (
            f"SELECT {keys}sum(t) AS t, sum(c) AS c, sum(tt) AS tt, sum(cc) AS cc, sum(tc) AS tc,"
            " sum(t_low) AS t_low, sum(t_high) AS t_high, sum(c_low) AS c_low,"
            " sum(c_high) AS c_high, min(least_x) AS least_x, max(most_x) AS most_x"
            f" FROM ({bucket}) AS bounded{grouped}"
        )
        if self._function == "sum":
            return (
                f"SELECT {keys}t::float8 AS estimate, CASE WHEN t IS NOT NULL THEN"
                " sqrt(greatest(tt, 0)) END::float8 AS std_error,"
                " t_low::float8 AS lower_bound, t_high::float8 AS upper_bound"
                f" FROM ({totals}) AS totals"
            )
        # A ratio's error to first order; of a count that is certain, its bounds are the sum's.
        return (
            f"SELECT {keys}(t / c)::float8 AS estimate, (sqrt(greatest(tt - 2 * t / c * tc"
            " + t / c * t / c * cc, 0)) / c)::float8 AS std_error, CASE WHEN c_low = c_high"
            " THEN greatest(least_x, t_low / c) ELSE least_x END::float8 AS lower_bound,"
            " CASE WHEN c_low = c_high THEN least(most_x, t_high / c) ELSE most_x END::float8"
            f" AS upper_bound FROM ({totals}) AS totals"
        )

    # -- anything else ------------------------------------------------------------------------

    def paired(self) -> str:
        """Look at every pair of a record and a value of one bucket, alike ones together."""
        keys = "".join(f"{name}, " for name in self._numbered())
        apart: tuple[list[Expression], list[Expression]] = ([], [])
        mixed: list[Expression] = []
        for part in parts_of(self._condition):
            side = side_of(part, self._layout)
            (mixed if side is None else apart[side]).append(part)
        weighed = [] if self._weighed is None else [self._weighed]
        needed = [*mixed, *self._keys, *weighed]
        features: tuple[dict[Expression, str], dict[Expression, str]] = ({}, {})
        for expression in needed:
            self._collect(expression, features)
        sides = [self._classes(side, conjoin(apart[side]), features[side]) for side in (0, 1)]
        names = {**features[0], **features[1]}

        def pair(expression: Expression) -> str:
            return _over(expression, names, self.constants)

        key_columns = "".join(f"{pair(key)} AS k{i}, " for i, key in enumerate(self._keys))
        where = " AND ".join(f"({pair(part)})" for part in mixed) or "true"
        x = "".join(f", ({pair(operand)})::float8 AS x" for operand in weighed)
        text = (
            f"WITH r AS ({sides[0]}), v AS ({sides[1]}),"
            f" p AS (SELECT {key_columns}r.bucket_id, r.size, r.id AS record, r.n AS n_records,"
            f" v.id AS value, v.n AS n_values{x}"
            f" FROM r JOIN v ON v.bucket_id = r.bucket_id WHERE {where})"
        )
        return f"{text} {self._pairs_summed(keys) if weighed else self._pairs_counted(keys)}"

    def _collect(
        self, expression: Expression, found: tuple[dict[Expression, str], dict[Expression, str]]
    ) -> None:
        """Name the largest parts of an expression that are on one side."""
        if not attributes(expression):
            return
        side = side_of(expression, self._layout)
        if side is None:
            for inner in children(expression):
                self._collect(inner, found)
        else:
            found[side].setdefault(expression, f"{'rv'[side]}.f{len(found[side])}")

    def _classes(
        self, side: int, condition: Expression | None, features: dict[Expression, str]
    ) -> str:
        """Write the classes of a bucket's records, or values, alike in all features, numbered."""
        bucket = f"{'qs'[side]}.{self._layout.bucket_id}"
        columns = "".join(
            f", {self._write(feature, side)} AS {name.split('.')[1]}"
            for feature, name in features.items()
        )
        n = f"sum(s.{self._layout.count})::int8" if side else "count(*)"
        grouped = ", ".join(["1", *(name.split(".")[1] for name in features.values())])
        return (
            f"SELECT *, {self._layout.size} AS size, row_number() OVER () AS id"
            f" FROM (SELECT {bucket} AS bucket_id{columns}, {n} AS n"
            f" FROM {self._from(side, condition, *features)}"
            f" WHERE {self._where(condition, side)} GROUP BY {grouped}) AS alike"
        )

    def _lines(self, keys: str, sums: Callable[[str], str]) -> str:
        """Sum the pairs of each record and, after these, of each value."""
        lines = []
        for one, other, is_value in (("record", "value", "false"), ("value", "record", "true")):
            lines.append(
                f"SELECT {keys}bucket_id, size, {is_value} AS is_value, n_{one}s AS n,"
                f" {sums(f'n_{other}s')} FROM p GROUP BY {keys}bucket_id, size, {one}, n_{one}s"
            )
        return f"({' UNION ALL '.join(lines)}) AS lines"

    def _pairs_counted(self, keys: str) -> str:
        """Count with bounds on a matching: each cover of the pairs by records and values is one.

        A record is full that goes with every value of its bucket. Of the pairs, the matching's
        size is at most that of a cover; of the pairs that do not count, too.
        """
        counts = self._lines(keys, lambda n: f"sum({n})::int8 AS total")
        window = f"(PARTITION BY {keys}bucket_id)"
        marked = (
            "SELECT *"
            f", sum(n) FILTER (WHERE NOT is_value) OVER {window} AS q_any"
            f", sum(n) FILTER (WHERE is_value) OVER {window} AS s_any"
            f", coalesce(sum(n) FILTER (WHERE NOT is_value AND total = size) OVER {window}, 0)"
            " AS q_full"
            f", coalesce(sum(n) FILTER (WHERE is_value AND total = size) OVER {window}, 0)"
            f" AS s_full FROM {counts}"
        )
        buckets = (
            f"SELECT {keys}size::float8 AS size, q_any, s_any, q_full, s_full,"
            " sum(n * total) FILTER (WHERE NOT is_value)::float8 AS t,"
            " sum(n * total * total)::float8 AS squares,"
            " coalesce(sum(n) FILTER (WHERE NOT is_value AND total = s_any), 0) AS q_all,"
            " coalesce(sum(n) FILTER (WHERE is_value AND total = q_any), 0) AS s_all,"
            " coalesce(sum(n) FILTER (WHERE NOT is_value AND total > s_full), 0) AS q_rest,"
            " coalesce(sum(n) FILTER (WHERE is_value AND total > q_full), 0) AS s_rest"
            f" FROM ({marked}) AS marked"
            f" GROUP BY {keys}bucket_id, size, q_any, s_any, q_full, s_full"
        )
        grouped = f" GROUP BY {', '.join(self._numbered())}" if self._keys else ""
        return (
            f"SELECT {keys}coalesce(sum(t / size), 0)::float8 AS estimate,"
            " sqrt(greatest(coalesce(sum((t - squares / size + t * t / (size * size))"
            " / greatest(size - 1, 1)), 0), 0))::float8 AS std_error,"
            " coalesce(sum(greatest(q_full, s_full, q_any + s_all - size, q_all + s_any - size,"
            " 0)), 0)::int8 AS lower_bound,"
            " coalesce(sum(least(q_any, s_any, q_full + s_rest, s_full + q_rest)), 0)::int8"
            f" AS upper_bound FROM ({buckets}) AS buckets{grouped}"
        )

    def _pairs_summed(self, keys: str) -> str:
        """Sum with bounds: what every record, or else every value, can add at least and at most."""
        sums = self._lines(
            keys,
            lambda n: (
                f"sum({n} * x) AS tx, sum({n})::int8 AS tc, sum({n} * x * x) AS txx,"
                f" sum({n}) < size AS may_miss, min(x) AS least_x, max(x) AS most_x"
            ),
        )
        rows, cols = "FILTER (WHERE NOT is_value)", "FILTER (WHERE is_value)"
        high = "n * CASE WHEN may_miss THEN greatest(most_x, 0) ELSE most_x END"
        low = "n * CASE WHEN may_miss THEN least(least_x, 0) ELSE least_x END"
        buckets = (
            f"SELECT {keys}size::float8 AS size, sum(n * tx) {rows} AS sx,"
            f" (sum(n * tc) {rows})::float8 AS sc, sum(n * txx) {rows} AS sxx,"
            " sum(n * tx * tx) AS lxx, sum(n * tc * tc)::float8 AS lcc, sum(n * tx * tc) AS lxc,"
            f" least(sum({high}) {rows}, sum({high}) {cols}) AS t_high,"
            f" greatest(sum({low}) {rows}, sum({low}) {cols}) AS t_low,"
            f" least(sum(n) {rows}, sum(n) {cols})::float8 AS c_high,"
            f" greatest(coalesce(sum(n) FILTER (WHERE NOT is_value AND NOT may_miss), 0),"
            " coalesce(sum(n) FILTER (WHERE is_value AND NOT may_miss), 0))::float8 AS c_low,"
            f" min(least_x) AS least_x, max(most_x) AS most_x FROM {sums}"
            f" GROUP BY {keys}bucket_id, size"
        )
        rest = "greatest(size - 1, 1)"
        return self._totals(
            f"SELECT {keys}sx / size AS t, sc / size AS c,"
            f" (sxx - lxx / size + sx * sx / (size * size)) / {rest} AS tt,"
            f" (sc - lcc / size + sc * sc / (size * size)) / {rest} AS cc,"
            f" (sx - lxc / size + sx * sc / (size * size)) / {rest} AS tc,"
            f" t_low, t_high, c_low, c_high, least_x, most_x FROM ({buckets}) AS buckets"
        )


def _over(expression: Expression, names: dict[Expression, str], constants: Constants) -> str:
    """Write an expression of which some parts are columns already."""

    def change(part: Expression) -> Expression | None:
        if part not in names:
            return None
        # A column's type decides on the operators; conditions and results need none.
        type_ = part.type if isinstance(part, Column) else TEXT
        return Column(names[part], names[part], type_)

    return write(replaced(expression, change), lambda column: column.sql, constants)
