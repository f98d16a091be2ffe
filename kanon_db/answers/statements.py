"""Writes the statement that estimates an aggregate, over buckets or over cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kanon_db.query import expressions as ex
from kanon_db.query.cell_conditions import is_endless, is_vague, values_of
from kanon_db.query.expressions import DERIVED, TEXT, Expression, Query, TruthTest, refusal
from kanon_db.query.formulas import (
    BUCKET_SUMS,
    COUNTS,
    EXTREMES,
    REACHED,
    SLOPE_DOUBT,
    all_but_answer,
    answer_sql,
    count_correlation,
    count_measures,
    sum_answer,
    trust,
    weights,
)
from kanon_db.query.layout import (
    BucketLayout,
    CellLayout,
    Side,
    Sides,
    by_side,
    disjoint_sides,
    factors,
    parts_of,
    side_of,
    sides_of,
)
from kanon_db.query.likelihoods import (
    SUPPRESSED,
    TOGETHER,
    TOGETHER_EVENLY,
    ExactWriter,
    LikelihoodWriter,
    average_of_types,
    count_answer,
    grouped_ranges,
    left_out,
    most_listed,
    sum_totals,
)
from kanon_db.query.sql import (
    ANSWER,
    Nested,
    Request,
    Select,
    SideWriter,
    Statement,
    numbered,
    over,
    same,
    speller,
    write,
)

# Answers from QIT and SAT where each condition, group and sum is on one side.
#
# **Source:** estimate, [GB] section 3.2; bounds and variances, docs/understand/estimation.md.


_SIDES = ("records", "values")
_WEIGHTS = same(*weights("x", ""))


class FactoredWriter(SideWriter):
    """Combines sums over each bucket's records with sums over its values."""

    def one_sided(self, side: Side) -> None:
        """Aggregate QIT or SAT as they are: exact."""
        value = f"coalesce({self.number(side)}, 0)"
        if self.weighed is not None:
            x = self.write(self.weighed, side)
            value = f"sum(({x})::float8{self.times(side)})"
            if self.function == "avg":
                value = f"{value} / {self.number(side)}"
        self.steps.add(
            "counted",
            "All of it is on one side, which is published as it is: the answer is exact.",
            Select(
                {**{name: self.write(key, side) for name, key in self.keys.items()}, "n": value},
                self.source(side, self.condition, self.weighed, *self.keys.values()),
                self.where(self.condition, side),
                numbered(len(self.keys)),
            ),
        )
        error = "CASE WHEN n IS NOT NULL THEN 0::float8 END"
        answer = dict(zip(ANSWER, ("n::float8", error, "n", "n"), strict=True))
        self.step("answers", "An exact number is its own bounds.", answer)

    def factored(self) -> None:
        """Estimate where the condition is a conjunction of its two sides."""
        split = factors(self.condition, self.layout)
        if split is None:
            raise TypeError("the condition does not split by side")
        if self.weighed is None:
            self._count(split)
        else:
            self._sum(split, self.weighed)

    def either(self, sides: tuple[Expression, Expression]) -> None:
        """Count what meets one condition or the other: all records but those that meet neither."""
        records, values = (TruthTest(side, "true", negated=True) for side in sides)
        self._count((records, values))
        answer = all_but_answer(self.tables.n_records)
        self.step("all_but_these", "All other records meet one of the conditions.", answer)

    # -- steps --------------------------------------------------------------------------------

    def _count(self, sides: Sides) -> None:
        side: Side
        for side in (0, 1):
            self._matching(side, sides[side])
            self._sized(side)
            self._in_all(side)
        columns = {
            "q": "r.n", "s": "v.n", "size": "r.size", "n_q": "r.total", "packed_q": "r.packed",
            "n_s": "v.total", "packed_s": "v.packed",
        }  # fmt: skip
        self.step(
            "buckets",
            "Each bucket with q matching records and s matching values.",
            columns,
            "records_in_all AS r",
            "JOIN values_in_all AS v USING (bucket_id)",
        )
        alike = {**same(*columns), "n": "count(*)"}
        self.step("alike", "Buckets with the same numbers together.", alike, group=list(columns))
        self.step("counts", "The number that a random matching gives.", COUNTS, group=())
        is_random = self.layout.assignment == "random"
        if is_random:
            n_records, n_buckets = self.tables.n_records, self.tables.n_buckets
            measures = count_measures(n_records)
            self.step("measures", "How unevenly s is spread over buckets.", measures)
            correlation = count_correlation(n_records, n_buckets)
            self.step("correlation", "How q follows s from bucket to bucket.", correlation)
            self.step("doubted", "The same may be so inside the buckets.", SLOPE_DOUBT)
        else:
            known = {"*": "*", "doubt": "0::float8"}
            self.step("doubted", "Gathered records tell nothing of others.", known)
        known_error = trust(self.layout.assignment, is_paper=True, is_composed=is_random)
        comment = "The error is that of a matching that is not random."
        self.step("answers", comment, answer_sql(known_error))

    def _sum(self, sides: Sides, weighed: Expression) -> None:
        side: Side = side_of(weighed, self.layout) or 0
        other: Side = 0 if side else 1
        self._matching(side, sides[side], weighed)
        self._matching(other, sides[other])
        size = f"{self.tables.size()}::float8"
        self.step(
            "buckets",
            "Each bucket with q records (or values) to sum, and s that match on the other side.",
            {"q": "x.n::float8", "s": "y.n::float8", "size": size, **_WEIGHTS},
            f"{_SIDES[side]}_matching AS x",
            f"JOIN {_SIDES[other]}_matching AS y USING (bucket_id)",
        )
        self.step("reached", "Between lo and hi of the q have one of the s.", REACHED)
        self.step("sums", "Each bucket's expected sum t and count c, with bounds.", BUCKET_SUMS)
        self.sum_totals()

    # -- parts --------------------------------------------------------------------------------

    def _matching(
        self, side: Side, condition: Expression | None, weighed: Expression | None = None
    ) -> None:
        """Count, in each bucket, what matches on one side; or also sum x."""
        comment = f"The {'sensitive values' if side else 'records'} of each bucket that match."
        name, keys = f"{_SIDES[side]}_matching", self.keys_of(side)
        self.count_in_buckets(name, comment, side, keys, condition, weighed)

    def _sized(self, side: Side) -> None:
        name, size = _SIDES[side], {"*": "*", "size": self.tables.size()}
        self.step(f"{name}_sized", "A bucket's size follows from its number.", size)

    def _in_all(self, side: Side) -> None:
        window = over(self.keys_of(side))
        total, packed = (f"(sum({x}) {window})::float8" for x in ("n", "n * n / size::float8"))
        sums = {"*": "*", "total": total, "packed": packed}
        comment = "The group's sums of n and n^2 / size over all buckets."
        self.step(f"{_SIDES[side]}_in_all", comment, sums)


# Answers from QIT and SAT where a condition, a group or a sum mentions both sides.
#
# Every pair of a record and a sensitive value of one bucket is looked at, alike ones together;
# bounds and variances are in docs/understand/estimation.md.


_PAIR_SIDES = ("record", "value")
_ALIASES = ("r", "v")
_OF_RECORDS, _OF_VALUES = "NOT is_value", "is_value"

Features = dict[ex.Expression, str]
"""Expressions on one side, with the names of their columns."""


class PairWriter(SideWriter):
    """Looks at the pairs of a record and a value."""

    def paired(self) -> None:
        """Estimate whatever the condition."""
        on_records, on_values, both = by_side(parts_of(self.condition), self.layout)
        weighed = [] if self.weighed is None else [self.weighed]
        features: tuple[Features, Features] = ({}, {})
        for expression in (*both, *self.keys.values(), *weighed):
            self._collect(expression, features)
        self._classes(0, ex.joined(ex.And, on_records), features[0])
        self._classes(1, ex.joined(ex.And, on_values), features[1])
        self._pairs(both, features)
        if self.weighed is None:
            self._count()
        else:
            self._sum()
            self.sum_totals()

    def _collect(self, expression: ex.Expression, found: tuple[Features, Features]) -> None:
        """Name the largest parts of an expression that are on one side."""
        if not ex.attributes(expression):
            return
        side = side_of(expression, self.layout)
        if side is None:
            for inner in ex.children(expression):
                self._collect(inner, found)
        else:
            found[side].setdefault(expression, f"f{len(found[side])}")

    def _classes(self, side: Side, condition: ex.Expression | None, features: Features) -> None:
        name = _PAIR_SIDES[side]
        comment = f"The {name}s of each bucket; those alike in all that both sides need, together."
        parts = {column: feature for feature, column in features.items()}
        self.count_in_buckets(f"alike_{name}s", comment, side, parts, condition)
        numbers = {"*": "*", "size": self.tables.size(), "id": "row_number() OVER ()"}
        self.step(f"{name}_classes", "A bucket's size follows from its number.", numbers)

    def _pairs(self, both: list[ex.Expression], features: tuple[Features, Features]) -> None:
        names = {
            feature: f"{alias}.{column}"
            for alias, on_side in zip(_ALIASES, features, strict=True)
            for feature, column in on_side.items()
        }
        columns = {key: self._over(part, names) for key, part in self.keys.items()}
        columns |= {"bucket_id": "r.bucket_id", "size": "r.size"}
        columns |= {"record": "r.id", "n_records": "r.n", "value": "v.id", "n_values": "v.n"}
        if self.weighed is not None:
            columns["x"] = f"({self._over(self.weighed, names)})::float8"
        self.step(
            "pairs",
            "Each pair of a record and a value of one bucket that counts, if it is a real one.",
            columns,
            "record_classes AS r",
            "JOIN value_classes AS v ON v.bucket_id = r.bucket_id",
            where=[f"({self._over(part, names)})" for part in both],
        )

    def _over(self, expression: ex.Expression, names: dict[ex.Expression, str]) -> str:
        """Write an expression of which some parts are columns already."""

        def change(part: ex.Expression) -> ex.Expression | None:
            if part not in names:
                return None
            # A column's type decides on the operators; conditions and results need none.
            type_ = part.type if isinstance(part, ex.Column) else TEXT
            return ex.Column(names[part], names[part], type_)

        return write(ex.replaced(expression, change), lambda column: column.sql, self.constants)

    def _lines(self, sums: dict[str, str]) -> None:
        """Sum the pairs of each record and of each value; `{n}` is how many of the other side."""
        keys = list(self.keys)
        lines = []
        for side in (0, 1):
            one, other = _PAIR_SIDES[side], _PAIR_SIDES[1 - side]
            columns = same(*keys, "bucket_id", "size")
            columns |= {"is_value": str(bool(side)).lower(), "n": f"n_{one}s"}
            columns |= {name: sql.format(n=f"n_{other}s") for name, sql in sums.items()}
            lines.append(
                Select(columns, ["pairs"], group=[*keys, "bucket_id", "size", one, f"n_{one}s"])
            )
        self.steps.add("lines", "The pairs of each record, then those of each value.", *lines)

    def _count(self) -> None:
        """Count with bounds on a matching: each cover of the pairs by records and values is one.

        A record is full that goes with every value of its bucket. Of the pairs, the matching's
        size is at most that of a cover; of the pairs that do not count, too.
        """
        self._lines({"total": "sum({n})::int8"})
        window = over([*self.keys, "bucket_id"])

        def number(which: str) -> str:
            return f"sum(n) FILTER (WHERE {which})"

        full = "AND total = size"
        self.step(
            "marked",
            "With how many of the bucket's records (q) and values (s) are in any pair, or in all.",
            {
                "*": "*",
                "q_any": f"{number(_OF_RECORDS)} {window}",
                "s_any": f"{number(_OF_VALUES)} {window}",
                "q_full": f"coalesce({number(f'{_OF_RECORDS} {full}')} {window}, 0)",
                "s_full": f"coalesce({number(f'{_OF_VALUES} {full}')} {window}, 0)",
            },
        )
        whole = same("size", "q_any", "s_any", "q_full", "s_full")
        rest = {
            "q_all": f"{_OF_RECORDS} AND total = s_any",
            "s_all": f"{_OF_VALUES} AND total = q_any",
            "q_rest": f"{_OF_RECORDS} AND total > s_full",
            "s_rest": f"{_OF_VALUES} AND total > q_full",
        }
        self.step(
            "buckets",
            "Each bucket: t pairs, and the records and values by which they can be covered.",
            {
                **whole,
                "size": "size::float8",
                "t": f"sum(n * total) FILTER (WHERE {_OF_RECORDS})::float8",
                "squares": "sum(n * total * total)::float8",
                **{name: f"coalesce({number(which)}, 0)" for name, which in rest.items()},
            },
            group=["bucket_id", *whole],
        )
        self.step(
            "matched",
            "Of a random matching: the expected number of pairs, its error and its bounds.",
            {
                "estimate": "coalesce(sum(t / size), 0)::float8",
                "std_error": f"sqrt(greatest(coalesce(sum({_spread('t', 'squares', 't * t')}), 0),"
                " 0))::float8",
                "lower_bound": "coalesce(sum(greatest(q_full, s_full, q_any + s_all - size,"
                " q_all + s_any - size, 0)), 0)::int8",
                "upper_bound": "coalesce(sum(least(q_any, s_any, q_full + s_rest,"
                " s_full + q_rest)), 0)::int8",
            },
            group=(),
        )
        self.calibrated()

    def _sum(self) -> None:
        """Sum with bounds: what every record, or else every value, can add at least and at most."""
        self._lines(
            {
                "tx": "sum({n} * x)", "tc": "sum({n})::int8", "txx": "sum({n} * x * x)",
                "may_miss": "sum({n}) < size", "least_x": "min(x)", "most_x": "max(x)",
            }
        )  # fmt: skip
        records, values = (f"FILTER (WHERE {which})" for which in (_OF_RECORDS, _OF_VALUES))
        high = "sum(n * CASE WHEN may_miss THEN greatest(most_x, 0) ELSE most_x END)"
        low = "sum(n * CASE WHEN may_miss THEN least(least_x, 0) ELSE least_x END)"
        certain = [
            f"coalesce(sum(n) FILTER (WHERE {which} AND NOT may_miss), 0)"
            for which in (_OF_RECORDS, _OF_VALUES)
        ]
        self.step(
            "buckets",
            "Each bucket's sums over its pairs, over the lines' squares, and their bounds.",
            {
                "size": "size::float8",
                "sx": f"sum(n * tx) {records}",
                "sc": f"(sum(n * tc) {records})::float8",
                "sxx": f"sum(n * txx) {records}",
                "lxx": "sum(n * tx * tx)",
                "lcc": "sum(n * tc * tc)::float8",
                "lxc": "sum(n * tx * tc)",
                "t_high": f"least({high} {records}, {high} {values})",
                "t_low": f"greatest({low} {records}, {low} {values})",
                "c_high": f"least(sum(n) {records}, sum(n) {values})::float8",
                "c_low": f"greatest({', '.join(certain)})::float8",
                **EXTREMES,
            },
            group=["bucket_id", "size"],
        )
        self.step(
            "sums",
            "Each bucket's expected sum t and count c, with variances, covariance and bounds.",
            {
                "t": "sx / size",
                "c": "sc / size",
                "tt": _spread("sxx", "lxx", "sx * sx"),
                "cc": _spread("sc", "lcc", "sc * sc"),
                "tc": _spread("sx", "lxc", "sx * sc"),
                **same("t_low", "t_high", "c_low", "c_high", "least_x", "most_x"),
            },
        )


def _spread(pairs: str, lines: str, product: str) -> str:
    """Write a variance, or the covariance, over random matchings."""
    return f"({pairs} - {lines} / size + {product} / (size * size)) / greatest(size - 1, 1)"


# From a checked query to SQL over a generalized, freeform or suppressed publication.
#
# How likely the records of each type are counted is found by `likelihoods`; here it is added up.


class CellWriter(LikelihoodWriter):
    """Writes an estimate over the cells of types of records."""

    def estimated(self) -> None:
        """Estimate the aggregate."""
        self.likely()
        if self._layout.left_out:
            self._left_out()
        if self.weighed is None:
            self._count()
        else:
            self._sum()

    def likely(self) -> None:
        """Find how likely the records of each type are counted."""
        self.rows_of_values()
        self._likely_types()

    def rows_of_values(self) -> None:
        """Find how likely the records of each type are counted, with each of their values."""
        self.types(self._required())
        moments = []
        if self._summed is not None:
            if self._cell(self._summed).mark is not None:
                self._kept_values(self._summed)
            moments.append(self._moments(self._summed))
        self._list_values()
        self._find_likelihoods(["id", "n", "u", "w"], self._measured(), *moments)

    def _required(self) -> list[str]:
        """Write what rows must meet whatever their cells stand for: others need no type.

        Not where cells are suppressed, or records left out, which are like all the others.
        """
        cells = [self._cell(name) for name in self._places]
        if self._layout.left_out or any(cell.mark is not None for cell in cells):
            return []
        return [
            write(part, speller("c"), self.constants)
            for part in parts_of(self.condition)
            if all(column.lookup is None for column in ex.columns(part))
            and not any(is_vague(self._cell(name)) for name in ex.attributes(part))
        ]

    def _measured(self) -> Mapping[str, str]:
        """Write what is summed, with its extreme values; wild where it could be anything."""
        if self.weighed is None:
            return {}
        if self._summed is not None:
            return {name: f"mo.{name}" for name in ("x", "xx", "least_x", "most_x", "is_wild")}
        x = f"({self._write(self.weighed)})::float8"
        least, most, is_wild, hidden = x, x, self._open(self.weighed), ""
        match self.weighed:
            case ex.Column(lookup=None, name=name) if name in self._spread:
                cell, place = self._cell(name), self._places[name]
                least, most = f"e.least{place}::float8", f"e.most{place}::float8"
                is_wild = "false" if cell.mark is None else f"e.m{place}"
                if cell.kind == "range":
                    is_wild = is_endless(f"e.c{place}")
                    beyond = f"((max({x}) OVER () - min({x}) OVER ()) / 2) ^ 2"
                    hidden = f" + CASE WHEN {is_wild} THEN {beyond} ELSE 0 END"
        xx = f"({x}) ^ 2{hidden}"
        return {"x": x, "xx": xx, "least_x": least, "most_x": most, "is_wild": is_wild}

    def _moments(self, name: str) -> str:
        """Sum over the values of each distinct cell of the column that is summed."""
        if self.weighed is None:
            raise TypeError("nothing is summed")
        place, cell = self._places[name], self._cell(name)
        x = f"({write(self.weighed, lambda _column: 'v.v', self.constants)})::float8"
        is_column = isinstance(self.weighed, ex.Column)
        is_wild = "bool_or(v.is_open)"
        if is_column:
            is_wild = is_endless(f"d.c{place}") if cell.kind == "range" else "false"
        likely = self.shares(name, "d")
        values = values_of(cell, f"d.c{place}", most_listed([cell]), likely)
        least, most = ("v.least::float8", "v.most::float8") if is_column else (x, x)
        per = f"nullif(sum(v.w) FILTER (WHERE {x} IS NOT NULL), 0)"
        hidden = ""
        if cell.kind == "range":
            # Of what lies beyond a coded end nothing is published: half of the ranges' width.
            beyond = f"((max(max({x})) OVER () - min(min({x})) OVER ()) / 2) ^ 2"
            hidden = f" + CASE WHEN {is_endless(f'd.c{place}')} THEN {beyond} ELSE 0 END"
        own = {
            "i": f"d.i{place}",
            "x": f"sum(v.w * {x}) / {per}", "xx": f"sum(v.w * ({x}) ^ 2) / {per}{hidden}",
            "least_x": f"min({least}) FILTER (WHERE {x} IS NOT NULL)",
            "most_x": f"max({most}) FILTER (WHERE {x} IS NOT NULL)", "is_wild": is_wild,
        }  # fmt: skip
        group = [f"d.i{place}", f"d.c{place}"]
        cells = f"cells{place} AS d"
        if cell.mark is None:
            self.steps.add(
                "moments",
                "What the values of each cell sum up to, on average.",
                Select(own, [cells, Nested(values, "v", _EACH)], group=group),
            )
        else:
            kept = {**own, "is_wild": "true"}
            self.steps.add(
                "moments",
                "What the values of each cell sum up to, on average; of suppressed ones, the kept.",
                Select(own, [cells, Nested(values, "v", _EACH)], [f"NOT d.m{place}"], group),
                Select(
                    {**kept, "least_x": f"min({x})", "most_x": f"max({x})"},
                    [cells, f"CROSS JOIN kept{place} AS v"], [f"d.m{place}"], group,
                ),
            )  # fmt: skip
        return f"JOIN moments AS mo ON mo.i = e.i{place}"

    def _likely_types(self) -> None:
        """Find each type's likelihood for each group, and the moments of what is summed."""
        # A group's share of a type is what its rows of values weigh; certain is what all agree on.
        surely = "bool_and(st)"
        if self.keys:
            surely += " AND sum(w) > 0.999999999"
        moments = {}
        if self.weighed is not None:
            moments = {
                "mx": "coalesce(sum(w * t * x), 0)",
                "mxx": "coalesce(sum(w * t * xx), 0)",
                "is_wild": "coalesce(bool_or(is_wild), false)",
                "least_x": "min(least_x) FILTER (WHERE pt)",
                "most_x": "max(most_x) FILTER (WHERE pt)",
            }
        self.step(
            "likely_types",
            "Each type with the likelihood m that a record of it is counted.",
            {
                **same("id", "n", "u"),
                "m": "sum(w * t)",
                "st": surely,
                "pt": "bool_or(pt)",
                **moments,
            },
            group=["id", "n", "u"],
        )

    def _left_out(self) -> None:
        """Add the records without a row, of which nothing is known, as a type of their own.

        It is as likely as the others together, and certain only where every record counts.
        """
        is_sure, is_summed = self.condition is None and not self.keys, self.weighed is not None
        number = self._layout.left_out
        own = same(*self.keys) | left_out(number, is_sure=is_sure, is_summed=is_summed)
        self.steps.add(
            "with_left_out",
            "The records that are left out are counted as often as the others, and could be any.",
            Select(same(*own), ["likely_types"]),
            Select(own, ["likely_types"], group=list(self.keys)),
        )

    # -- totals -------------------------------------------------------------------------------

    def _count(self) -> None:
        self.step(
            "answers",
            "All types together: what is expected, its error, what is certain, what is possible.",
            count_answer(self.together(), self._is_unknown()),
            group=(),
            having="bool_or(pt)" if self.keys else "",
        )

    def _sum(self) -> None:
        is_average = self.function == "avg"
        self.step(
            "centred",
            "The average a; how t (x - a) varies among the records of a type.",
            {"*": "*", "a": average_of_types(self.keys) if is_average else "0::float8"},
            where=["pt"],
        )
        self.step(
            "totals",
            "All types together: sum t and count c, with errors and bounds.",
            sum_totals(self.together(), self._is_unknown()),
            group=(),
        )
        error = "error / nullif(c, 0)" if is_average else "CASE WHEN t IS NOT NULL THEN error END"
        comment = "The estimate with its standard error and bounds; none where x could be anything."
        answer = sum_answer(is_average=is_average, certain="NOT is_wild", error=error)
        self.step("answers", comment, answer)

    def _is_unknown(self) -> str:
        """Write whether more than half of a column's cells are suppressed; the kept ones differ."""
        return " OR ".join(
            f"(SELECT coalesce(sum(n) FILTER (WHERE m{place}), 0) > sum(n) / 2 FROM types)"
            for name, place in self._places.items()
            if self._cell(name).mark is not None
        )

    def together(self) -> float:
        """Return which part of the records' standard deviations adds up."""
        vague = [cell for name in self._places if is_vague(cell := self._cell(name))]
        if any(cell.mark is not None for cell in vague):
            return SUPPRESSED
        return TOGETHER if all(cell.shares for cell in vague) else TOGETHER_EVENLY


_EACH: Final = "CROSS JOIN LATERAL"


# The statement that estimates an aggregate, in the form that fits it.
#
# Each aggregate of a query is a statement of its own. Over QIT and SAT it has one of three forms.
# On one side only it is counted exactly. Where the condition is a conjunction of its two sides,
# each bucket's answer follows from sums over its records and sums over its values (`factored`).
# Anything else goes through the pairs of a record and a value of the same bucket (`pairs`). Over
# cells there is one form (`cells`).


def statement(request: Request, layout: BucketLayout | CellLayout) -> Statement:
    """Write the statement that estimates one aggregate of a query.

    It returns ``estimate, std_error, lower_bound, upper_bound``; for a query with GROUP BY a row
    for each group that may have records, with ``group_key`` (JSON) and ``rank_0 …``, the places of
    the group's values in their order, before them.

    Raises
    ------
    UnsupportedQueryError
        When GROUP BY names a column of continuous ranges.
    """
    if request.aggregate.function in DERIVED:
        # Unless it is exact, it follows from several counts, which are asked for one by one.
        exact = ExactWriter(request, layout)
        exact.exact()
        return exact.statement()
    if isinstance(layout, BucketLayout):
        return _over_buckets(request, layout)
    refuse_continuous_groups(request.query, layout)
    writer = CellWriter(request, layout)
    writer.estimated()
    return writer.statement()


def refuse_continuous_groups(query: Query, layout: CellLayout) -> None:
    """Refuse to group by a column of continuous ranges, whose values cannot be listed.

    Raises
    ------
    UnsupportedQueryError
    """
    for cell in grouped_ranges(query, layout):
        if not cell.is_discrete:
            raise refusal(
                "GROUP BY does not accept a column of continuous ranges",
                hint="ask for each interval in a query of its own, with WHERE",
                detail=f'column "{cell.column.name}"',
            )


def _over_buckets(request: Request, layout: BucketLayout) -> Statement:
    query, aggregate = request.query, request.aggregate
    sides = sides_of(query, aggregate, layout)
    either = disjoint_sides(query, aggregate, layout)
    if None in sides and either is None:
        pairs = PairWriter(request, layout)
        pairs.paired()
        return pairs.statement()
    writer = FactoredWriter(request, layout)
    if None in sides and either is not None:
        writer.either(either)
    elif len(sides) < 2:
        writer.one_sided(1 if sides == {1} else 0)
    else:
        writer.factored()
    return writer.statement()
