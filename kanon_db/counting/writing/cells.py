"""From a checked query to SQL over a generalized, freeform or suppressed publication.

Records with the same cells are one type. Where a condition is on one column, its likelihood follows
from the cell. A column that is grouped by, summed, joined with a lookup table, compared with
another one or part of two conditions is *spread*: a type then has a row for each value that its
cell may stand for, so that what depends on one value stays together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kanon_db.counting import expressions as ex
from kanon_db.counting.formulas import sum_answer
from kanon_db.counting.writing.cell_totals import (
    SUPPRESSED,
    TOGETHER,
    TOGETHER_EVENLY,
    average_of_types,
    count_answer,
    left_out,
    sum_totals,
)
from kanon_db.counting.writing.cell_values import (
    holds_anything,
    is_vague,
    of_cell,
    values_of,
)
from kanon_db.counting.writing.compared import compares_ranges, of_ranges
from kanon_db.counting.writing.joins import joined, speller
from kanon_db.counting.writing.likely import add_matched
from kanon_db.counting.writing.spread import MOST_GROUPED, most_listed
from kanon_db.counting.writing.sql import write
from kanon_db.counting.writing.steps import Nested, Select
from kanon_db.counting.writing.tabled import tabled
from kanon_db.counting.writing.truth import (
    COLUMNS,
    Likelihood,
    leaves,
    likelihood,
    of_known,
    of_subquery,
    require_few,
)
from kanon_db.counting.writing.types_of_records import TypeWriter
from kanon_db.counting.writing.writer import same


class CellWriter(TypeWriter):
    """Writes over the cells of types of records.

    ``c0 …`` are cells, ``m0 …`` say of them whether they are suppressed, ``v0 …`` are the values
    of the columns that are spread.
    """

    # -- names --------------------------------------------------------------------------------

    def _value(self, name: str) -> str:
        """Name a column's value in the rows ``e``, where it is known."""
        return f"e.{'v' if name in self._spread else 'c'}{self._places[name]}"

    def _spell(self, column: ex.Column) -> str:
        return self._value(column.name) if column.lookup is None else speller("e")(column)

    def _write(self, expression: ex.Expression) -> str:
        return write(expression, self._spell, self.constants)

    def _open(self, *expressions: ex.Expression | None) -> str:
        """Write whether the values that are listed for these columns are not all."""
        names = {name for expression in expressions for name in ex.attributes(expression)}
        flags = [f"e.is_open{self._places[name]}" for name in self._spread if name in names]
        return f"({' OR '.join(flags)})" if flags else "false"

    # -- steps --------------------------------------------------------------------------------

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
        self.types()
        for name in (*self._spread, *([] if self._summed is None else [self._summed])):
            if self._cell(name).mark is not None:
                self._kept_values(name)
        self._spread_rows()
        self._likelihoods()
        self._likely_types()

    def _kept_values(self, name: str) -> None:
        """Share out the values of a column among its cells that are not suppressed."""
        place = self._places[name]
        values = Nested(values_of(self._cell(name), f"t.c{place}"), "x", _EACH)
        self.steps.add(
            f"kept{place}",
            f"The values of the cells c{place} that are not suppressed, with their shares.",
            Select(
                {"v": "x.v", "w": "sum(t.n * x.w) / sum(sum(t.n * x.w)) OVER ()"},
                ["types AS t", values],
                [f"NOT t.m{place}"],
                ["x.v"],
            ),
        )

    def _spread_rows(self) -> None:
        """Give a type a row for each combination of values of the columns that are spread."""
        grouped = {name for key in self.keys.values() for name in ex.attributes(key)}
        source: list[str | Nested] = ["types AS t"]
        values: dict[str, str] = {}
        for name in self._spread:
            place, cell = self._places[name], self._cell(name)
            most = MOST_GROUPED
            if name not in grouped:
                most = most_listed(map(self._cell, self._spread), self._layout.n_rows)
            inner = values_of(cell, f"t.c{place}", most, self.shares(name, "t"))
            if cell.mark is not None:
                value = {"v": "v", "w": "w"}
                kept = {**value, "is_open": "true", "least": "v", "most": "v"}
                own = {**kept, "is_open": "is_open"}
                inner = [
                    Select(own, [Nested(inner, "own")], [f"NOT t.m{place}"]),
                    Select(kept, [f"kept{place}"], [f"t.m{place}"]),
                ]
            source.append(Nested(inner, f"x{place}", _EACH))
            values |= {
                f"{column}{place}": f"x{place}.{column}"
                for column in ("v", "is_open", "least", "most")
            }
        weights = " * ".join(f"x{self._places[name]}.w" for name in self._spread)
        comment = "No column needs a row for each value that its cells may stand for."
        if self._spread:
            comment = "A row for each combination of values that a type's cells may stand for."
        columns = {"t.*": "t.*", **values, "w": weights or "1::float8"}
        self.steps.add("spread", comment, Select(columns, source))

    def _likelihoods(self) -> None:
        """Find the likelihood of each row, its group and what is summed."""
        found = dict.fromkeys(leaves(self.condition))
        vague = {leaf: f"u{i}" for i, leaf in enumerate(filter(self._vague, found))}
        known = {leaf: f"x{i}" for i, leaf in enumerate(found) if leaf not in vague}
        require_few(len(found), len(vague))
        source: list[str | Nested] = list(
            joined(
                "spread", "e", [self.condition, *self.keys.values(), self.weighed], self.lookups,
                {name: self._value(name) for name in self._places},
            )
        )  # fmt: skip
        source += [self._leaf(leaf, alias) for leaf, alias in vague.items()]
        if self._summed is not None:
            source.append(self._moments(self._summed))
        if known:
            # In one subquery: for each of them, the planner copies the whole condition.
            truths = {name: self._write(leaf) for leaf, name in known.items()}
            source.append(Nested([Select(truths)], "known", _EACH))
        likelihoods = {leaf: of_subquery(alias) for leaf, alias in vague.items()}
        likelihoods |= {leaf: self._of_known(leaf, f"known.{name}") for leaf, name in known.items()}
        whole = likelihood(self.condition, likelihoods.__getitem__)
        # Whether a range holds a NULL is known, however many of its values are listed, unless it
        # holds anything; and so are comparisons of ranges, from their ends.
        opened = [leaf for leaf in found if not self._is_closed(leaf)]
        tests = [leaf for leaf in found if isinstance(leaf, ex.NullTest) and leaf not in opened]
        tested = {name for leaf in tests for name in ex.attributes(leaf)}
        anything = [
            holds_anything(f"e.c{self._places[name]}")
            for name in self._spread
            if name in tested and self._cell(name).kind == "range"
        ]
        is_open = " OR ".join([self._open(*opened), *anything])
        closed = f"NOT ({' OR '.join([self._open(*opened, *self.keys.values()), *anything])})"
        self.step(
            "likelihoods",
            "The likelihood t of the condition; whether it holds surely (st) or possibly (pt).",
            {
                **{name: f"e.{name}" for name in ("id", "n", "u", "w")},
                **{name: self._write(key) for name, key in self.keys.items()},
                "t": f"({whole.true})::float8",
                "st": f"{whole.surely} AND {closed}",
                "pt": f"{whole.possibly} OR {is_open}",
                **self._measured(),
            },
            *source,
        )

    def _measured(self) -> Mapping[str, str]:
        """Write what is summed, with its extreme values; wild where it could be anything."""
        if self.weighed is None:
            return {}
        if self._summed is not None:
            return {name: f"mo.{name}" for name in ("x", "xx", "least_x", "most_x", "is_wild")}
        x = f"({self._write(self.weighed)})::float8"
        least, most, is_wild = x, x, self._open(self.weighed)
        match self.weighed:
            case ex.Column(lookup=None, name=name) if name in self._spread:
                cell, place = self._cell(name), self._places[name]
                least, most = f"e.least{place}::float8", f"e.most{place}::float8"
                is_wild = "false" if cell.mark is None else f"e.m{place}"
                if cell.kind == "range":
                    is_wild = holds_anything(f"e.c{place}")
        return {"x": x, "xx": f"({x}) ^ 2", "least_x": least, "most_x": most, "is_wild": is_wild}

    def _moments(self, name: str) -> str:
        """Sum over the values of each distinct cell of the column that is summed."""
        if self.weighed is None:
            raise TypeError("nothing is summed")
        place, cell = self._places[name], self._cell(name)
        x = f"({write(self.weighed, lambda _column: 'v.v', self.constants)})::float8"
        is_column = isinstance(self.weighed, ex.Column)
        is_wild = "bool_or(v.is_open)"
        if is_column:
            is_wild = holds_anything(f"d.c{place}") if cell.kind == "range" else "false"
        likely = self.shares(name, "d")
        values = values_of(cell, f"d.c{place}", most_listed([cell]), likely)
        least, most = ("v.least::float8", "v.most::float8") if is_column else (x, x)
        per = f"nullif(sum(v.w) FILTER (WHERE {x} IS NOT NULL), 0)"
        own = {
            "i": f"d.i{place}",
            "x": f"sum(v.w * {x}) / {per}", "xx": f"sum(v.w * ({x}) ^ 2) / {per}",
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

    def _vague(self, leaf: ex.Expression) -> list[str]:
        """Return the columns of a leaf whose values are not known."""
        return [
            name
            for name in ex.attributes(leaf)
            if is_vague(self._cell(name)) and name not in self._spread
        ]

    def _leaf(self, leaf: ex.Expression, alias: str) -> str:
        """Find the likelihood of a leaf for each distinct cell, and write how to join it."""
        (name,) = self._vague(leaf)
        place, cell = self._places[name], self._cell(name)
        matched = ("", "")
        if cell.shares is not None and cell.kind == "range":
            truth = write(leaf, lambda _column: "p.v", self.constants)
            matched = add_matched(self.steps, truth, alias, place)
        likely = self.shares(name, "d")
        tried = tabled(self.steps, leaf, self.constants, alias, place, cell)
        own = of_cell(leaf, cell, f"d.c{place}", self.constants, likely, matched, tried)
        found = {"i": f"d.i{place}", **{column: f"x.{column}" for column in COLUMNS}}
        source: list[str | Nested] = [f"cells{place} AS d", Nested(own, "x", _EACH)]
        comment = f"The likelihood of condition {alias} for each of the cells c{place}."
        joined_by = f"JOIN leaf_{alias} AS {alias} ON {alias}.i = e.i{place}"
        if cell.mark is None:
            self.steps.add(f"leaf_{alias}", comment, Select(found, source))
            return joined_by
        self.steps.add(f"own_{alias}", comment, Select(found, source, [f"NOT d.m{place}"]))
        likelihoods = {t: f"coalesce(sum(t.n * u.{t}) / sum(t.n), 0)" for t in ("t", "f")}
        self.steps.add(
            f"kept_{alias}",
            "The same among all cells that are not suppressed.",
            Select(likelihoods, ["types AS t", f"JOIN own_{alias} AS u ON u.i = t.i{place}"]),
        )
        kept = [f"(SELECT {truth} FROM kept_{alias})" for truth in ("t", "f")]
        of_kept = dict(zip(COLUMNS, [*kept, "false", "true", "false", "true"], strict=True))
        self.steps.add(
            f"leaf_{alias}",
            "A suppressed cell is as likely to meet the condition as those kept.",
            Select(same("i", *COLUMNS), [f"own_{alias}"]),
            Select({"i": f"d.i{place}", **of_kept}, [f"cells{place} AS d"], [f"d.m{place}"]),
        )
        return joined_by

    def _of_known(self, leaf: ex.Expression, truth: str) -> Likelihood:
        if not compares_ranges(leaf, self._layout.cells):
            return of_known(truth)
        return of_ranges(
            leaf, self._layout.cells, lambda name: f"e.c{self._places[name]}", truth
        )  # fmt: skip

    def _is_closed(self, leaf: ex.Expression) -> bool:
        """Whether what is certain of a condition does not depend on the values that are listed."""
        match leaf:
            case ex.NullTest(ex.Column(lookup=None, name=name)):
                return self._cell(name).mark is None
            case _:
                return compares_ranges(leaf, self._layout.cells)

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
            f"(SELECT sum(n) FILTER (WHERE m{place}) > sum(n) / 2 FROM types)"
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
