"""Writes the statements that estimate an aggregate over cells, and that join buckets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kanon_db.query import expressions as ex
from kanon_db.query.cell_conditions import is_endless, is_vague, values_of
from kanon_db.query.expressions import DERIVED, TEXT, Expression, Query, refusal
from kanon_db.query.formulas import sum_answer
from kanon_db.query.layout import (
    BucketLayout,
    CellLayout,
    Lookup,
    Side,
    by_side,
    parts_of,
    side_of,
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
    Constants,
    Nested,
    Request,
    Select,
    Statement,
    Steps,
    counted_in_buckets,
    same,
    speller,
    write,
)

# The pairs of a record and a sensitive value of one bucket, alike ones together, where a condition,
# a group or a sum mentions both sides.


_ALIASES: Final = ("r", "v")

Features = dict[ex.Expression, str]
"""Expressions on one side, with the names of their columns."""


def joined_pairs(
    condition: Expression | None,
    keys: Mapping[str, Expression],
    weighed: Expression | None,
    layout: BucketLayout,
    lookups: Sequence[Lookup],
) -> Statement:
    """Write the statement that joins the records of each bucket with its values."""
    # It returns the `keys`, ``bucket`` from 0, ``record`` and ``value`` (the numbers of what is
    # alike in all that both sides need), how many of each there are, and what is summed: ``x``,
    # where it ``has`` one.
    *on_sides, both = by_side(parts_of(condition), layout)
    constants, steps = Constants(), Steps()
    features: tuple[Features, Features] = ({}, {})
    for expression in (*both, *keys.values(), *([] if weighed is None else [weighed])):
        _collect(expression, layout, features)
    names: Features = {}
    side: Side
    for side in (0, 1):
        what, alias = ("record", "value")[side], _ALIASES[side]
        parts = {column: feature for feature, column in features[side].items()}
        where = ex.joined(ex.And, on_sides[side])
        alike = counted_in_buckets(layout.tables, side, parts, where, None, lookups, constants)
        comment = f"The {what}s of each bucket; those alike in all that both sides need, together."
        steps.add(f"alike_{what}s", comment, alike)
        numbered_ = Select({"*": "*", "id": "row_number() OVER ()"}, [f"alike_{what}s"])
        steps.add(f"{what}_classes", "Each with a number.", numbered_)
        names |= {feature: f"{alias}.{column}" for feature, column in features[side].items()}

    def over(expression: Expression) -> str:
        return _over(expression, names, constants)

    columns = {name: over(key) for name, key in keys.items()}
    columns |= {"bucket": "r.bucket", "record": "r.id", "n_records": "r.n"}
    columns |= {"value": "v.id", "n_values": "v.n"}
    if weighed is not None:
        x = over(weighed)
        columns |= {"has": f"(({x}) IS NOT NULL)::int4", "x": f"({x})::float8"}
    source = ["record_classes AS r", "JOIN value_classes AS v ON v.bucket = r.bucket"]
    where_both = [f"({over(part)})" for part in both]
    steps.add("pairs", "Each pair that counts, if it is a real one.",
              Select(columns, source, where_both))  # fmt: skip
    return Statement(steps.write(), constants.bound)


def _collect(
    expression: Expression, layout: BucketLayout, found: tuple[Features, Features]
) -> None:
    """Name the largest parts of an expression that are on one side."""
    if not ex.attributes(expression):
        return
    side = side_of(expression, layout)
    if side is None:
        for inner in ex.children(expression):
            _collect(inner, layout, found)
    else:
        found[side].setdefault(expression, f"f{len(found[side])}")


def _over(expression: Expression, names: Features, constants: Constants) -> str:
    """Write an expression of which some parts are columns already."""

    def change(part: Expression) -> Expression | None:
        if part not in names:
            return None
        # A column's type decides on the operators; conditions and results need none.
        type_ = part.type if isinstance(part, ex.Column) else TEXT
        return ex.Column(names[part], names[part], type_)

    return write(ex.replaced(expression, change), lambda column: column.sql, constants)


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


# The statement that estimates an aggregate over cells, or that reads one relation as it is.


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
        raise TypeError("buckets are counted, whatever is asked")
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
