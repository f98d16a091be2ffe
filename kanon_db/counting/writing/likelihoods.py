"""How likely a condition holds for records whose cells stand for several values.

Records with the same cells are one type. Where a condition is on one column, its likelihood follows
from the cell. A column that is grouped by, summed, joined with a lookup table, compared with
another one or part of two conditions is *spread*: a type then has a row for each value that its
cell may stand for, so that what depends on one value stays together. Conditions that have no such
column in common with anything else are listed apart, for each combination of their own cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Final, Self

from kanon_db.counting import expressions as ex
from kanon_db.counting.writing.cell_values import holds_anything, is_vague, of_cell, values_of
from kanon_db.counting.writing.compared import compares_ranges, of_ranges
from kanon_db.counting.writing.joins import joined, speller
from kanon_db.counting.writing.likely import add_matched
from kanon_db.counting.writing.spread import (
    MOST_GROUPED,
    Arranged,
    Together,
    listed_within,
    most_listed,
)
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


class LikelihoodWriter(TypeWriter):
    """Writes over the cells of types of records.

    ``c0 …`` are cells, ``m0 …`` say of them whether they are suppressed, ``v0 …`` are the values
    of the columns that are spread.
    """

    _prefix = ""
    """What the names of steps begin with, where a part of the condition has steps of its own."""

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

    def _rarer(self, number: str) -> str:
        """Write what a number of kept cells weighs among the values of suppressed ones."""
        rarity = self._layout.rarity
        return number if rarity == 1 else f"power({number}, {rarity})"

    # -- steps --------------------------------------------------------------------------------

    def _kept_values(self, name: str) -> None:
        """Share out the values of a column among its cells that are not suppressed."""
        place = self._places[name]
        if self.steps.has(f"kept{place}"):  # of another part of the condition, or of a sum
            return
        values = Nested(values_of(self._cell(name), f"d.c{place}"), "x", _EACH)
        weight = self._rarer(f"sum(d.n{place} * x.w)")
        self.steps.add(
            f"kept{place}",
            f"The values of the cells c{place} that are not suppressed, and the shares of these in"
            " those that are.",
            Select(
                {"v": "x.v", "w": f"{weight} / sum({weight}) OVER ()"},
                [f"cells{place} AS d", values],
                [f"NOT d.m{place}"],
                ["x.v"],
            ),
        )

    def _list_values(self, *source: str) -> None:
        """Give a type a row for each combination of values of the columns that are spread.

        Parameters
        ----------
        *source : str
            The types ``t``; by default, all.
        """
        for name in self._spread:
            if self._cell(name).mark is not None:
                self._kept_values(name)
        grouped = {name for key in self.keys.values() for name in ex.attributes(key)}
        found: list[str | Nested] = list(source or ["types AS t"])
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
            found.append(Nested(inner, f"x{place}", _EACH))
            values |= {
                f"{column}{place}": f"x{place}.{column}"
                for column in ("v", "is_open", "least", "most")
            }
        weights = " * ".join(f"x{self._places[name]}.w" for name in self._spread)
        comment = "No column needs a row for each value that its cells may stand for."
        if self._spread:
            comment = "A row for each combination of values that a type's cells may stand for."
        columns = {"t.*": "t.*", **values, "w": weights or "1::float8"}
        self.steps.add(f"{self._prefix}spread", comment, Select(columns, found))

    def _find_likelihoods(
        self, kept: Sequence[str], measured: Mapping[str, str], *source: str, is_part: bool = False
    ) -> None:
        """Find the likelihood of each row, and its group.

        Parameters
        ----------
        kept : sequence of str
            Columns of the rows to keep.
        measured : mapping of str to str
            What to add to them.
        *source : str
            What this is read from, beside the rows ``e``.
        is_part : bool
            Whether to find how likely the condition is false, too.
        """
        condition = self._arranged.condition
        found = dict.fromkeys(leaves(condition))
        units = {leaf: f"{self._prefix}u{i}" for i, leaf in enumerate(found)
                 if isinstance(leaf, Together)}  # fmt: skip
        vague = {leaf: f"{self._prefix}u{i}" for i, leaf in enumerate(found)
                 if leaf not in units and self._vague(leaf)}  # fmt: skip
        known = {leaf: f"x{i}" for i, leaf in enumerate(found)
                 if leaf not in units and leaf not in vague}  # fmt: skip
        require_few(len(found), len(vague))
        read: list[str | Nested] = list(
            joined(
                f"{self._prefix}spread", "e", [*known, *self.keys.values(), self.weighed],
                self.lookups, {name: self._value(name) for name in self._places},
            )
        )  # fmt: skip
        read += [self._part(leaf.condition, alias) for leaf, alias in units.items()]
        read += [self._leaf(leaf, alias) for leaf, alias in vague.items()]
        read += source
        if known:
            # In one subquery: for each of them, the planner copies the whole condition.
            truths = {name: self._write(leaf) for leaf, name in known.items()}
            read.append(Nested([Select(truths)], "known", _EACH))
        likelihoods = {leaf: of_subquery(alias) for leaf, alias in (units | vague).items()}
        likelihoods |= {leaf: self._of_known(leaf, f"known.{name}") for leaf, name in known.items()}
        whole = likelihood(condition, likelihoods.__getitem__)
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
        truths = {
            "t": f"({whole.true})::float8",
            "st": f"{whole.surely} AND {closed}",
            "pt": f"{whole.possibly} OR {is_open}",
        }
        if is_part:
            truths |= {
                "f": f"({whole.false})::float8",
                "sf": f"{whole.surely_false} AND {closed}",
                "pf": f"{whole.possibly_false} OR {is_open}",
            }
        self.step(
            f"{self._prefix}likelihoods",
            "The likelihood t of the condition; whether it holds surely (st) or possibly (pt).",
            {
                **{name: f"e.{name}" for name in kept},
                **{name: self._write(key) for name, key in self.keys.items()},
                **truths,
                **measured,
            },
            *read,
        )

    def _part(self, condition: ex.Expression, alias: str) -> str:
        """Find the likelihood of a part that is listed apart, and write how to join it."""
        part = self._of_part(condition, alias)
        names = [name for name in self._places if name in ex.attributes(condition)]
        by, source = ["id"], ["types AS t"]
        if all(is_vague(self._cell(name)) for name in names):
            by = [f"i{self._places[name]}" for name in names]
            first = f"{alias}_first"
            self.steps.add(
                first,
                "A type for each combination of their cells.",
                Select({"first": "min(id)"}, ["types"], group=by),
            )
            source = [f"{first} AS f", "JOIN types AS t ON t.id = f.first"]
        part._list_values(*source)
        part._find_likelihoods([*by, "w"], {}, is_part=True)
        found = {"t": "sum(w * t)", "f": "sum(w * f)"}
        found |= {truth: f"bool_and({truth})" for truth in ("st", "sf")}
        found |= {truth: f"bool_or({truth})" for truth in ("pt", "pf")}
        self.steps.add(
            f"leaf_{alias}",
            f"The likelihood of condition {alias}, all values together.",
            Select({**same(*by), **found}, [f"{alias}_likelihoods"], group=by),
        )
        joined_by = " AND ".join(f"{alias}.{column} = e.{column}" for column in by)
        return f"JOIN leaf_{alias} AS {alias} ON {joined_by}"

    def _of_part(self, condition: ex.Expression, alias: str) -> Self:
        """Make a writer of more steps of this statement, for a part of its condition only."""
        part = copy(self)
        part._prefix = f"{alias}_"
        part._spread = listed_within(condition, self._layout)
        part._arranged = Arranged(condition, part._spread, [])
        part.keys, part.weighed = {}, None
        return part

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
        likelihoods = {t: f"coalesce(sum(k.n * u.{t}) / sum(k.n), 0)" for t in ("t", "f")}
        numbers = {"i": f"c.i{place}", "n": self._rarer(f"c.n{place}")}
        kept_cells = Nested([Select(numbers, [f"cells{place} AS c"])], "k")
        self.steps.add(
            f"kept_{alias}",
            "The same among the cells that are not suppressed, which are rarer where they are.",
            Select(likelihoods, [kept_cells, f"JOIN own_{alias} AS u ON u.i = k.i"]),
        )
        kept = [f"(SELECT {truth} FROM kept_{alias})" for truth in ("t", "f")]
        of_kept = dict(zip(COLUMNS, [*kept, "false", "true", "false", "true"], strict=True))
        self.steps.add(
            f"leaf_{alias}",
            "A suppressed cell meets the condition as these do.",
            Select(same("i", *COLUMNS), [f"own_{alias}"]),
            Select({"i": f"d.i{place}", **of_kept}, [f"cells{place} AS d"], [f"d.m{place}"]),
        )
        return joined_by

    def _of_known(self, leaf: ex.Expression, truth: str) -> Likelihood:
        if not compares_ranges(leaf, self._layout.cells):
            return of_known(truth)
        cells = {name: f"e.c{place}" for name, place in self._places.items()}
        return of_ranges(leaf, self._layout.cells, cells, truth)

    def _is_closed(self, leaf: ex.Expression) -> bool:
        """Whether what is certain of a condition does not depend on the values that are listed."""
        match leaf:
            case ex.NullTest(ex.Column(lookup=None, name=name)):
                return self._cell(name).mark is None
            case _:
                return compares_ranges(leaf, self._layout.cells)


_EACH: Final = "CROSS JOIN LATERAL"
