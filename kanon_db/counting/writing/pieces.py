"""What an answer depends on beside the records themselves, found once for each cell or value.

A publication's table of classes has the cells of all records as numbers. With what this statement
tells of each cell, and of each combination of values that a condition compares, records are counted
without a statement over all of them; see `kanon_db.counting.type_counts`. What a cell tells is
written as for the statement over types of records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import Final

from kanon_db.counting import expressions as ex
from kanon_db.counting.layout import CellLayout, ClassTable
from kanon_db.counting.pieces import Pieces, Summed, Unit
from kanon_db.counting.sides import condition_of
from kanon_db.counting.writing.cell_values import holds_anything, is_endless, is_vague, values_of
from kanon_db.counting.writing.cells import CellWriter
from kanon_db.counting.writing.compared import compares_ranges
from kanon_db.counting.writing.fields import flag, number
from kanon_db.counting.writing.intervals import can_cover, on_axis
from kanon_db.counting.writing.likely import Likely
from kanon_db.counting.writing.spread import (
    MOST_GROUPED,
    Together,
    listed_within,
    most_listed,
)
from kanon_db.counting.writing.sql import write
from kanon_db.counting.writing.steps import Nested, Select
from kanon_db.counting.writing.tabled import all_values
from kanon_db.counting.writing.truth import COLUMNS, leaves, require_few
from kanon_db.counting.writing.writer import Request

MOST_LISTED: Final = 400_000
"""Values that are listed of all cells of all columns."""

MOST_COMBINED: Final = 200_000
"""Combinations of values for which a condition is tried, and cells of which it is asked how likely
it holds; less where there are many conditions."""

_FULL: Final = 8
"""So many conditions may have as many each."""

MOST_BETWEEN: Final = 400_000
"""Values from the least to the greatest of a column for which a comparison is tried."""

MOST_TRIED: Final = 1 << 16
"""The same for other conditions: no more than the ranges have, so that each is tried as a whole."""

MOST_TEXT: Final = 8_000_000
"""Bytes of the values of a group key."""

_EACH: Final = "CROSS JOIN LATERAL"


class PieceWriter(CellWriter):
    """Writes the pieces of one request; :func:`has_pieces` holds."""

    def __init__(self, request: Request, layout: CellLayout, also: Iterable[str] = ()) -> None:
        super().__init__(request, layout, also)
        if layout.classes is None:
            raise TypeError("there is no table of classes")
        self._classes: ClassTable = layout.classes
        self._pieces: list[Select] = []
        n_listed = len(self._spread) + len(self._arranged.apart)
        self._most_listed = MOST_LISTED // max(n_listed, 1)
        n_leaves = len(set(leaves(condition_of(request.query, request.aggregate))))
        self._most_combined = MOST_COMBINED * _FULL // max(n_leaves, _FULL)

    @property
    def _own_sum(self) -> str | None:
        name = self.weighed.name if isinstance(self.weighed, ex.Column) else None
        return name if name in self._spread else None  # listed, and summed itself

    def pieces(self) -> Pieces:
        """Write them all."""
        grouped = {name for key in self.keys.values() for name in ex.attributes(key)}
        for name in self._places:
            self.cells(name)
        unit = self._unit("", self._arranged.condition, self._spread, grouped)
        keys = [self._key(number, key) for number, key in enumerate(self.keys.values())]
        summed = None if self.weighed is None else self._weighed(self.weighed)
        self.steps.add("pieces", "What each cell, and each value, tells.", *self._pieces)
        return Pieces(
            self.steps.write(), self.constants.bound,
            self._places,
            [
                place for name, place in self._places.items()
                if is_vague(self._cell(name)) and name not in self._classes.ends
            ],
            [place for name, place in self._places.items() if name in self._classes.ends],
            [self._places[name] for name in self._places if self._cell(name).mark is not None],
            unit, keys, summed, self.together(),
        )  # fmt: skip

    # -- cells --------------------------------------------------------------------------------

    def cells(self, name: str) -> None:
        """List the distinct cells of a column."""
        place, cell, own = self._places[name], self._cell(name), self._classes
        if name in own.ends:
            self._all_cells(name)
            return
        sql, source = f"t.{cell.column.sql}", [f"{own.table} AS t"]
        if cell.labels is not None:
            sql, join = self._members(name, sql)
            source.append(join)
        columns = {f"i{place}": f"t.{own.number}", f"c{place}": sql}
        columns[f"n{place}"] = f"t.{own.records}"
        if cell.mark is not None:
            columns[f"m{place}"] = f"t.{own.hidden}"
        where = [f"t.{own.attribute} = {self._text(name)}", f"t.{own.codes} IS NULL"]
        cells = f"The distinct cells c{place}."
        if not is_vague(cell):
            self.steps.add(f"cells{place}", cells, Select(columns, source, where))
            value = {"j": f"i{place}", "v": f"c{place}"}
            self.steps.add(f"domain{place}", "Its values.", Select(value, [f"cells{place}"]))
            number = [f"int8send(d.n{place})"]
            self._piece(f"c{place}", number, [f"d.i{place}"], [f"cells{place} AS d"])
            return
        self.steps.add(f"apart{place}", cells, Select(columns, source, where))
        self._share_cells(cell, name, place, {})
        is_range, c = cell.kind == "range", f"d.c{place}"
        fields = [
            f"float8send(d.u{place})",
            f"int8send(d.n{place})",
            flag(f"d.m{place}" if cell.mark is not None else "false"),
            flag(holds_anything(c) if is_range else "false"),
            flag(is_endless(c) if is_range else "false"),
        ]
        self._piece(f"c{place}", fields, [f"d.i{place}"], [f"cells{place} AS d"])

    def _all_cells(self, name: str) -> None:
        """Read what holds all cells of a column of which the ends are known."""
        place, own = self._places[name], self._classes
        sql = f"t.{self._cell(name).column.sql}"
        self.steps.add(
            f"all{place}",
            "The least value of all cells, and how many there are from it to the greatest.",
            Select(
                {"low": f"lower({sql})", "n": f"upper({sql}) - lower({sql})"},
                [f"{own.table} AS t"],
                [f"t.{own.attribute} = {self._text(name)}", f"t.{own.codes} IS NULL"],
            ),
        )
        self._piece(f"c{place}", ["int8send(d.n::int8)"], [], [f"all{place} AS d"])

    def _try_all(self, alias: str, leaf: ex.Expression, name: str) -> None:
        """Try a condition for each value that a column of which the ends are known may have."""
        place, cell = self._places[name], self._cell(name)
        most = MOST_BETWEEN if can_cover(cell, leaf) else MOST_TRIED
        values = all_values(f"all{place}", cell.column.type.name, most)
        truth = write(leaf, lambda _column: "z.v", self.constants)
        tried = Select({"i": "z.i", "x": truth}, [Nested(values, "z")])
        fields = [flag("d.x IS TRUE"), flag("d.x IS FALSE")]
        self._piece(alias, fields, ["d.i"], [Nested([tried], "d")])

    def _list(self, name: str, most: int) -> None:
        """List the values of a column's cells."""
        place, cell = self._places[name], self._cell(name)
        if self.steps.has(f"listed{place}"):
            return
        if cell.mark is not None:
            self._kept_values(name)
        likely = None if cell.shares is None else Likely.of("d", place)
        inner = values_of(cell, f"d.c{place}", most, likely)
        if cell.mark is not None:
            kept = {"v": "v", "w": "w", "is_open": "true", "least": "v", "most": "v"}
            inner = [
                Select({**kept, "is_open": "is_open"}, [Nested(inner, "own")], [f"NOT d.m{place}"]),
                Select(kept, [f"kept{place}"], [f"d.m{place}"]),
            ]
        columns = {column: f"x.{column}" for column in ("v", "w", "is_open", "least", "most")}
        self.steps.add(
            f"every{place}",
            f"The values that each of the cells c{place} may stand for.",
            Select(
                {"i": f"d.i{place}", **columns},
                [f"cells{place} AS d", Nested(inner, "x", _EACH)],
                limit=self._most_listed + 1,
            ),
        )
        numbers = {
            "j": "dense_rank() OVER (ORDER BY v) - 1",
            "nth": "row_number() OVER (PARTITION BY v)",
        }
        self.steps.add(
            f"listed{place}",
            "The same, with the numbers of the values.",
            Select({"*": "*", **numbers}, [f"every{place}"]),
        )
        value = {"j": "j", "v": "v"}
        self.steps.add(
            f"domain{place}", "The values.", Select(value, [f"listed{place}"], ["nth = 1"])
        )
        fields = [*(f"int4send(d.{number}::int4)" for number in "ij"), "float8send(d.w)"]
        fields.append(flag("d.is_open"))
        if name == self._own_sum:
            fields += [number("d.least"), number("d.most")]
        is_whole = f"(SELECT count(*) FROM every{place}) <= {self._most_listed}"
        self._piece(f"x{place}", fields, ["d.i"], [f"listed{place} AS d"], [is_whole])

    # -- conditions ---------------------------------------------------------------------------

    def _unit(
        self,
        prefix: str,
        condition: ex.Expression | None,
        spread: Sequence[str],
        grouped: frozenset[str] | set[str] = frozenset(),
    ) -> Unit:
        own = copy(self)
        own._spread = list(spread)
        for name in spread:
            most = MOST_GROUPED
            if name not in grouped:
                most = most_listed(map(self._cell, spread), self._layout.n_rows)
            self._list(name, most)
        by_cell: dict[ex.Expression, tuple[str, int]] = {}
        by_ends: dict[ex.Expression, tuple[str, int]] = {}
        parts: dict[ex.Expression, Unit] = {}
        by_value: dict[ex.Expression, tuple[str, list[int]]] = {}
        compared: dict[ex.Expression, tuple[str, int, int]] = {}
        found = dict.fromkeys(leaves(condition))
        for i, leaf in enumerate(found):
            alias = f"{prefix}u{i}"
            if isinstance(leaf, Together):
                inner = listed_within(leaf.condition, self._layout)
                parts[leaf] = self._unit(f"{alias}_", leaf.condition, inner)
            elif (vague := own._vague(leaf)) and vague[0] in self._classes.ends:
                self._try_all(alias, leaf, vague[0])
                by_ends[leaf] = alias, self._places[vague[0]]
            elif vague:
                own._leaf(leaf, alias)
                fields = [f"float8send(d.{name})" for name in COLUMNS[:2]]
                fields += [flag(f"d.{name}") for name in COLUMNS[2:]]
                place = self._places[vague[0]]
                is_few = f"(SELECT count(*) FROM cells{place}) <= {self._most_combined}"
                self._piece(alias, fields, ["d.i"], [f"leaf_{alias} AS d"], [is_few])
                by_cell[leaf] = alias, place
            else:
                names = self._tried(alias, leaf)
                by_value[leaf] = alias, names
                if compares_ranges(leaf, self._layout.cells):
                    compared[leaf] = (f"{alias}_ends", *self._ends(f"{alias}_ends", leaf))
        require_few(len(found), len(by_cell) + len(by_ends))
        opened = [leaf for leaf in found if not own._is_closed(leaf)]
        tests = [leaf for leaf in found if isinstance(leaf, ex.NullTest) and leaf not in opened]
        return Unit(
            condition, [self._places[name] for name in spread],
            [] if condition is None else self._mentioned(condition),
            by_cell, by_ends, by_value, compared, parts,
            [self._places[n] for n in spread if any(n in ex.attributes(leaf) for leaf in opened)],
            [
                self._places[n]
                for n in spread
                if self._cell(n).kind == "range"
                and any(n in ex.attributes(leaf) for leaf in tests)
            ],
        )  # fmt: skip

    def _tried(self, alias: str, leaf: ex.Expression) -> list[int]:
        """Try a condition for each combination of its columns' values."""
        truth = self._of_values(leaf)
        tried = Nested([Select({"x": truth})], "z", _EACH)
        self._combined(alias, leaf, [flag("z.x IS TRUE"), flag("z.x IS FALSE")], tried)
        return self._mentioned(leaf)

    def _ends(self, alias: str, leaf: ex.Expression) -> tuple[int, int]:
        """Put the ends of two columns' ranges in order on their common axis."""
        if not (
            isinstance(leaf, ex.Comparison)
            and isinstance(leaf.left, ex.Column)
            and isinstance(leaf.right, ex.Column)
        ):
            raise TypeError("two columns are compared")
        selects, names = [], (leaf.left.name, leaf.right.name)
        for side, name in enumerate(names):
            place = self._places[name]
            axis = on_axis(self._cell(name), f"d.c{place}")
            selects += [
                Select(
                    {"side": str(side), "i": f"d.i{place}", "is_high": str(end == "upper").lower(),
                     "at": f"{end}({axis})", "is_known": f"d.c{place} IS NOT NULL"},
                    [f"cells{place} AS d"],
                )
                for end in ("lower", "upper")
            ]  # fmt: skip
        self.steps.add(alias, "The ends of the ranges that are compared.", *selects)
        rank = "CASE WHEN at IS NOT NULL THEN dense_rank() OVER (ORDER BY at) ELSE 0 END"
        ranked = Nested([Select({"*": "*", "rank": rank}, [alias])], "d")
        fields = ["int4send(d.side)", "int4send(d.rank::int4)", flag("d.is_known")]
        self._piece(alias, fields, ["d.side", "d.i", "d.is_high"], [ranked])
        return self._places[names[0]], self._places[names[1]]

    # -- groups and sums ----------------------------------------------------------------------

    def _key(self, number: int, key: ex.Expression) -> list[int]:
        """Put the values of a group key in order."""
        names, alias = self._mentioned(key), f"g{number}"
        columns = {f"j{place}": f"d{place}.j" for place in names}
        self.steps.add(
            f"keys{number}",
            f"The values of k{number}.",
            Select({**columns, "k": self._of_values(key)}, self._product(names), self._few(names)),
        )
        ranked = {"*": "*", "r": "dense_rank() OVER (ORDER BY k) - 1"}
        self.steps.add(
            f"ranked{number}", "With their places in order.", Select(ranked, [f"keys{number}"])
        )
        self._piece(
            alias, ["int4send(d.r::int4)"], [f"d.j{place}" for place in names],
            [f"ranked{number} AS d"],
        )  # fmt: skip
        one = Select(
            {"r": "r", "t": 'min(to_jsonb(k)::text COLLATE "C")'}, [f"ranked{number}"], group=["r"]
        )
        texts = "array_agg(coalesce(d.t, 'null') ORDER BY d.r)"
        self.steps.add(f"key_texts{number}", "As JSON.", one)
        size = f"(SELECT coalesce(sum(octet_length(t)), 0) FROM key_texts{number})"
        self._pieces.append(
            Select(
                {"piece": f"'{alias}_texts'", "part": "NULL::bytea", "texts": texts},
                [f"key_texts{number} AS d"],
                [f"{size} <= {MOST_TEXT}"],
            )
        )
        return names

    def _weighed(self, weighed: ex.Expression) -> Summed:
        """Write what is summed."""
        if self._summed is not None:
            if self._cell(self._summed).mark is not None:
                self._kept_values(self._summed)
            self._moments(self._summed)
            columns = ("x", "xx", "least_x", "most_x")
            fields = [*(number(f"d.{column}") for column in columns), flag("d.is_wild")]
            self._piece("moments", fields, ["d.i"], ["moments AS d"])
            return Summed(self._places[self._summed], [], None, [])
        self._combined(
            "values", weighed, [number("z.x")],
            Nested([Select({"x": f"({self._of_values(weighed)})::float8"})], "z", _EACH),
        )  # fmt: skip
        own = None if self._own_sum is None else self._places[self._own_sum]
        names = self._mentioned(weighed)
        spread = [self._places[name] for name in self._spread]
        open_ = [place for place in names if place in spread and own is None]
        return Summed(None, names, own, open_)

    # -- pieces -------------------------------------------------------------------------------

    def _mentioned(self, expression: ex.Expression) -> list[int]:
        names = ex.attributes(expression)
        return [place for name, place in self._places.items() if name in names]

    def _of_values(self, expression: ex.Expression) -> str:
        def spell(column: ex.Column) -> str:
            return f"d{self._places[column.name]}.v"

        return write(expression, spell, self.constants)

    def _product(self, places: Sequence[int]) -> list[str]:
        """Write the combinations of the values of some columns."""
        if not places:
            return ["(VALUES (1)) AS one"]
        return [
            f"{'CROSS JOIN ' if number else ''}domain{place} AS d{place}"
            for number, place in enumerate(places)
        ]

    def _few(self, places: Sequence[int]) -> list[str]:
        """Write that there are not too many of them."""
        if not places:
            return []
        numbers = [f"(SELECT count(*) FROM domain{place})" for place in places]
        return [f"{' * '.join(numbers)} <= {self._most_combined}"]

    def _combined(
        self, alias: str, expression: ex.Expression, fields: Sequence[str], tried: Nested
    ) -> None:
        places = self._mentioned(expression)
        source: list[str | Nested] = [*self._product(places), tried]
        order = [f"d{place}.j" for place in places]
        self._piece(alias, fields, order, source, self._few(places))

    def _piece(
        self,
        name: str,
        fields: Sequence[str],
        order: Sequence[str],
        source: Sequence[str | Nested],
        where: Sequence[str] = (),
    ) -> None:
        by = f" ORDER BY {', '.join(order)}" if order else ""
        part = f"string_agg({' || '.join(fields)}, ''::bytea{by})"
        columns = {"piece": f"'{name}'", "part": part, "texts": "NULL::text[]"}
        self._pieces.append(Select(columns, source, where))
