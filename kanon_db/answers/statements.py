"""Writes the statements that estimate an aggregate over buckets, and list an operand's values."""

from __future__ import annotations

from typing import Final

from kanon_db.query import expressions as ex
from kanon_db.query.cell_conditions import is_vague, labels, members_of, texts, values_of
from kanon_db.query.expressions import DERIVED, TEXT, Expression, TruthTest
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
    trust,
    weights,
)
from kanon_db.query.layout import (
    BucketLayout,
    CellDescription,
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
from kanon_db.query.likelihoods import ExactWriter, most_listed
from kanon_db.query.sql import (
    ANSWER,
    Constants,
    Nested,
    Request,
    Select,
    SideWriter,
    Statement,
    Steps,
    joined_relations,
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


# The statement that estimates an aggregate, in the form that fits it.
#
# Each aggregate of a query is a statement of its own. Over QIT and SAT it has one of three forms.
# On one side only it is counted exactly. Where the condition is a conjunction of its two sides,
# each bucket's answer follows from sums over its records and sums over its values (`factored`).
# Anything else goes through the pairs of a record and a value of the same bucket (`pairs`). Rows of
# cells have one only where it is exact; else their types are counted.


def statement(request: Request, layout: BucketLayout | CellLayout) -> Statement:
    """Write the statement that estimates one aggregate of a query.

    It returns ``estimate, std_error, lower_bound, upper_bound``; for a query with GROUP BY a row
    for each group that may have records, with ``group_key`` (JSON) and ``rank_0 …``, the places of
    the group's values in their order, before them.
    """
    if request.aggregate.function in DERIVED:
        # Unless it is exact, it follows from several counts, which are asked for one by one.
        exact = ExactWriter(request, layout)
        exact.exact()
        return exact.statement()
    if not isinstance(layout, BucketLayout):
        raise TypeError("types of records are counted")
    return _over_buckets(request, layout)


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


# The values at which the number of records below a value can change, in their order.


MOST_RUNGS: Final = 4096
"""The most values that one statement returns: of more, some at equal distances."""


def rungs(
    request: Request,
    layout: BucketLayout | CellLayout,
    above: str | None = None,
    below: str | None = None,
) -> Statement:
    """Write the values that an aggregate's operand may have.

    Of a column of ranges, these are their ends; of an expression on ranges, some of its values.

    Parameters
    ----------
    request : Request
    layout : BucketLayout or CellLayout
    above, below : str, optional
        Only values between these, both included.

    Returns
    -------
    Statement
        Rows of ``rung`` (text) and ``place`` (double precision), ascending, and ``n``, how many
        there are in all.
    """
    operand, type_ = request.aggregate.operand, request.aggregate.type
    if operand is None or type_ is None:
        raise TypeError("the values of an operand are asked for")
    steps, constants = Steps(), Constants(request.literal)
    if isinstance(layout, BucketLayout):
        selects = [_values_in_buckets(operand, request, layout, constants)]
    else:
        selects = _values_in_cells(operand, request, layout, constants)
    steps.add("possible", "The values that there may be.", *selects)
    limits = ["p.v IS NOT NULL"]
    for sign, end in ((">=", above), ("<=", below)):
        if end is not None:
            limits.append(f"p.v {sign} {constants.write(ex.Constant(end, type_))}")
    steps.add(
        "numbered",
        "Each of them once, in their order.",
        Select(
            {
                "v": "d.v",
                "i": "row_number() OVER (ORDER BY d.v)",
                "n": "count(*) OVER ()",
            },
            [Nested([Select({"v": "p.v"}, ["possible AS p"], limits, ["1"])], "d")],
        ),
    )
    step = f"((n - 2) / {MOST_RUNGS} + 1)"
    steps.add(
        "rungs",
        f"No more than about {MOST_RUNGS}, with the first and the last.",
        Select(
            {"rung": f"(v::{type_.name})::text", "place": "v::float8", "n": "n", "i": "i"},
            ["numbered"],
            [f"((i - 1) % {step} = 0 OR i = n)"],
        ),
    )
    return Statement(f"{steps.write()}\nORDER BY i", constants.bound)


def _values_in_buckets(
    operand: ex.Expression, request: Request, layout: BucketLayout, constants: Constants
) -> Select:
    tables, side = layout.tables, side_of(operand, layout)
    if side is not None:
        alias, relation = "qs"[side], tables.sat if side else tables.qit
        source = joined_relations(relation, alias, [operand], request.lookups)
        return Select({"v": write(operand, speller(alias), constants)}, source)
    sensitive = layout.sensitive

    def spell(column: ex.Column) -> str:
        return speller("s" if column.name == sensitive.name else "q")(column)

    relation, *lookups = joined_relations(
        tables.qit, "q", [operand], request.lookups, {sensitive.name: f"s.{sensitive.sql}"}
    )
    bucket = tables.bucket_id
    pairs = f"JOIN {tables.sat} AS s ON s.{bucket} = q.{bucket}"
    return Select({"v": write(operand, spell, constants)}, [relation, pairs, *lookups])


def _values_in_cells(
    operand: ex.Expression, request: Request, layout: CellLayout, constants: Constants
) -> list[Select]:
    names = sorted(ex.attributes(operand))
    view, only = _distinct(layout, names[0], constants) if len(names) == 1 else (None, [])
    view = view or f"{layout.view.view} AS c"
    match operand:
        case ex.Column(lookup=None, name=name) if layout.cells[name].kind == "range":
            return _ends(layout.cells[name], view, only or _kept(layout, layout.cells[name]))
    vague = [name for name in names if is_vague(layout.cells[name])]
    listed = most_listed(layout.cells[name] for name in vague)
    values = {name: f"c.{layout.cells[name].column.sql}" for name in names}
    source: list[str | Nested] = [view]
    where = [*only]
    for place, name in enumerate(vague):
        cell = layout.cells[name]
        shown = f"c.{cell.column.sql}"
        if cell.labels is not None:
            json = f"{constants.write(ex.Constant(cell.labels, TEXT))}::jsonb"
            its = labels(json).write()
            source.append(f"LEFT JOIN ({its}) AS l{place} ON l{place}.label = {shown}")
            shown = members_of(shown, f"l{place}", texts(json).write())
        inner = values_of(cell, shown, listed)
        source.append(Nested(inner, f"x{place}", "CROSS JOIN LATERAL"))
        values[name] = f"x{place}.v"
        where += [] if only else _kept(layout, cell)

    def spell(column: ex.Column) -> str:
        return values[column.name] if column.lookup is None else speller("c")(column)

    _, *lookups = joined_relations(view, "c", [operand], request.lookups, values)
    return [Select({"v": write(operand, spell, constants)}, [*source, *lookups], where)]


def _distinct(layout: CellLayout, name: str, constants: Constants) -> tuple[str | None, list[str]]:
    """Read each cell of a column once, if its cells have numbers."""
    own, cell = layout.classes, layout.cells[name]
    if own is None or name not in own.columns:
        return None, []
    of_column = f"c.{own.attribute} = {constants.write(ex.Constant(name, TEXT))}"
    kept = [] if cell.mark is None else [f"NOT c.{own.hidden}"]
    return f"{own.table} AS c", [of_column, f"c.{own.codes} IS NULL", *kept]


def _kept(layout: CellLayout, cell: CellDescription) -> list[str]:
    if cell.mark is None:
        return []
    return [f"substr(c.{layout.view.pattern}, {cell.mark}, 1) <> '*'"]


def _ends(cell: CellDescription, view: str, where: list[str]) -> list[Select]:
    sql, type_ = f"c.{cell.column.sql}", cell.column.type.name
    upper = f"upper({sql}) - 1" if cell.is_discrete else f"upper({sql})"
    return [
        Select({"v": f"({end})::{type_}"}, [view], [*where, f"NOT {side}_inf({sql})"])
        for side, end in (("lower", f"lower({sql})"), ("upper", upper))
    ]
