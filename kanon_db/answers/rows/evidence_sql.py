"""Writes the statement that finds what each distinct cell or value tells of a query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Final

from kanon_db.answers.rows.pieces import Pieces, Unit
from kanon_db.query import expressions as ex
from kanon_db.query.cell_conditions import (
    Likely,
    add_matched,
    holds_anything,
    is_endless,
    of_cell,
    on_axis,
    values_of,
)
from kanon_db.query.layout import CellLayout, ClassTable, condition_of, is_vague
from kanon_db.query.likelihoods import (
    TypeWriter,
)
from kanon_db.query.sql import (
    COLUMNS,
    Nested,
    Request,
    Select,
    Statement,
    join_relations,
    leaves,
    number_columns,
    number_text,
    speller,
    write,
)


@dataclass(frozen=True)
class WrittenPieces:
    """A statement, and what its rows mean."""

    pieces: Pieces
    text: str  # Its rows have a ``piece``, a ``part`` (bytes) and ``texts``
    bound: tuple[str | list[str], ...]  # Its values
    names: Mapping[ex.Expression, str]  # The piece of each leaf
    # The piece of each condition that follows from values, its place there, and of how many
    tried: Mapping[str, tuple[str, int, int]]
    # The columns of which only those combinations of values are tried that types have
    met: list[tuple[int, ...]]


def flag(sql: str) -> str:
    """Write whether something is true: a byte."""
    return f"boolsend(coalesce({sql}, false))"


def number(sql: str) -> str:
    """Write a number, after a byte: 1 if it is missing, 2 if it is no finite number."""
    value = f"({sql})::float8"
    odd = f"coalesce({value} IN ('NaN', 'Infinity', '-Infinity'), false)"
    return f"boolsend({value} IS NULL) || boolsend({odd}) || float8send(coalesce({value}, 0))"


def is_numbered(request: Request, layout: CellLayout, also: Iterable[str] = ()) -> bool:
    """Whether the table of classes has what a request needs of each of its columns.

    `also`: columns that are needed beside those that the request mentions.
    """
    query, aggregate, more = request.query, request.aggregate, {*also}
    if layout.classes is None:
        return False
    needed = [*query.evaluated, aggregate.operand, aggregate.condition]
    names = {name for part in needed for name in ex.attributes(part)}
    return more <= layout.classes.columns and names <= layout.classes.columns | layout.classes.ends


# What an answer depends on beside the records themselves, found once for each cell or value.
#
# A publication's table of classes has the cells of all records as numbers. Where it does not have
# those of all columns, the statement numbers the cells of the view itself, and lists the types of
# records. With what it tells of each cell, and of each combination of values that a condition
# compares, records are counted; see `kanon_db.answers.rows.evidence`.


MOST_LISTED: Final = 400_000
"""Values that are listed of all cells of all columns."""

MOST_COMBINED: Final = 200_000
"""Combinations of values for which a condition is tried, and cells of which it is asked how likely
it holds; less where there are many conditions."""

_OF_VIEW: Final = 5
"""So many times as much where the cells of the view are numbered, and only what its records have is
listed and tried."""

_TRIED_TOGETHER: Final = 32
"""Conditions on the same columns that one piece has."""

_FULL: Final = 8
"""So many conditions may have as many each."""

MOST_TEXT: Final = 8_000_000
"""Bytes of the values of a group key."""

_EACH: Final = "CROSS JOIN LATERAL"


class PieceWriter(TypeWriter):
    """Writes the pieces of one request.

    Parameters
    ----------
    request : Request
    layout : CellLayout
    also : iterable of str
        Columns to tell types apart by, beside those that the request mentions.
    is_stored : bool
        Whether cells have the numbers of the table of classes; see :func:`is_numbered`.
    required : sequence of Expression
        What all rows of the view must meet.
    room : int
        How many bytes the types of records may take where they are listed.
    """

    def __init__(
        self,
        request: Request,
        layout: CellLayout,
        also: Iterable[str] = (),
        *,
        is_stored: bool,
        required: Sequence[ex.Expression] = (),
        room: int = 0,
    ) -> None:
        super().__init__(request, layout, also, required)
        self.is_stored = is_stored
        self._classes = layout.classes if is_stored else None
        self._room = room
        self._pieces: list[Select] = []
        self._conditions: dict[tuple[int, ...], dict[str, ex.Expression]] = {}
        self._met: dict[tuple[int, ...], str] = {}
        self._names: dict[ex.Expression, str] = {}
        n_listed = len(self._spread) + len(self._arranged.apart)
        more = 1 if is_stored else _OF_VIEW
        self._most_listed = more * MOST_LISTED // max(n_listed, 1)
        n_leaves = len(set(leaves(condition_of(request.query, request.aggregate))))
        self._most_combined = more * MOST_COMBINED * _FULL // max(n_leaves, _FULL)
        self._most_text = more * MOST_TEXT

    @property
    def _own_sum(self) -> str | None:
        name = self.weighed.name if isinstance(self.weighed, ex.Column) else None
        return name if name in self._spread else None  # listed, and summed itself

    _lists_values = False

    def pieces(self) -> WrittenPieces:
        """Write them all."""
        pieces = Pieces.of(self.request, self.layout, self._also, lists_values=self._lists_values)
        self._types()
        for name in self._places:
            self.cells(name)
        for unit in pieces.unit.all():
            self._write_unit(unit, pieces)
        for number, key in enumerate(self.keys.values()):
            self._key(number, key)
        if self.weighed is not None:
            self._weigh(self.weighed)
        tried = self._try()
        self.steps.add("pieces", "What each cell, and each value, tells.", *self._pieces)
        return WrittenPieces(
            pieces, self.steps.write(), self.constants.bound, self._names, tried, [*self._met]
        )

    def _types(self) -> None:
        """List the types of records with the numbers of their cells."""
        self.types()
        fields = [*(f"int4send(d.i{place}::int4)" for place in self._places.values())]
        size = 4 * len(fields) + 8
        is_few = f"(SELECT count(*) FROM types) <= {self._room // size}"
        self._piece("types", [*fields, "float8send(d.n)"], [], ["types AS d"], [is_few])

    # -- cells --------------------------------------------------------------------------------

    def cells(self, name: str) -> None:
        """List the distinct cells of a column."""
        place, cell = self._places[name], self._cell(name)
        if self._classes is not None:
            self._read_stored_cells(name, self._classes)
        elif not self.steps.has("types"):
            self.types()
        if not is_vague(cell):
            value = {"j": f"i{place}", "v": f"c{place}"}
            self.steps.add(f"domain{place}", "Its values.", Select(value, [f"cells{place}"]))
            counted = Nested([Select({"n": "count(*)"}, [f"cells{place}"])], "d")
            self._piece(f"c{place}", ["int8send(d.n)"], [], [counted])
            return
        is_range, c = cell.kind == "range", f"d.c{place}"
        fields = [
            f"float8send(d.u{place})",
            f"int8send(d.n{place}::int8)",
            flag(f"d.m{place}" if cell.mark is not None else "false"),
            flag(holds_anything(c) if is_range else "false"),
            flag(is_endless(c) if is_range else "false"),
        ]
        self._piece(f"c{place}", fields, [f"d.i{place}"], [f"cells{place} AS d"])

    def _read_stored_cells(self, name: str, own: ClassTable) -> None:
        """Read the distinct cells of a column that have numbers."""
        place, cell = self._places[name], self._cell(name)
        sql, source = f"t.{cell.column.sql}", [f"{own.table} AS t"]
        if cell.labels is not None:
            sql, join = self._members(name, sql)
            source.append(join)
        columns = {f"i{place}": f"t.{own.number}", f"c{place}": sql}
        columns[f"n{place}"] = f"t.{own.records}"
        if cell.mark is not None:
            columns[f"m{place}"] = f"t.{own.hidden}"
        where = [f"t.{own.attribute} = {self._text(name)}", f"t.{own.codes} IS NULL"]
        first = f"{'apart' if is_vague(cell) else 'cells'}{place}"
        self.steps.add(first, f"The distinct cells c{place}.", Select(columns, source, where))
        if is_vague(cell):
            self._share_cells(name, {})

    def _list(self, name: str, most: int) -> None:
        """List the values of a column's cells."""
        place, cell = self._places[name], self._cell(name)
        if self.steps.has(f"listed{place}"):
            return
        if cell.mark is not None:
            self._share_values(name)
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

    def _write_unit(self, unit: Unit, pieces: Pieces) -> None:
        own, names = copy(self), [*self._places]
        own._spread = [names[place] for place in unit.spread]
        for place in unit.spread:
            self._list(names[place], pieces.most_listed[place])
        for leaf, place in unit.by_cell.items():
            alias = self._name(leaf)
            own._leaf(leaf, alias)
            fields = [f"float8send(d.{name})" for name in COLUMNS[:2]]
            fields += [flag(f"d.{name}") for name in COLUMNS[2:]]
            is_few = f"(SELECT count(*) FROM cells{place}) <= {self._most_combined}"
            self._piece(alias, fields, ["d.i"], [f"leaf_{alias} AS d"], [is_few])
        for leaf, places in unit.by_value.items():
            alias = self._name(leaf)
            self._conditions.setdefault(places, {})[alias] = leaf
            if leaf in unit.compared:
                self._ends(f"{alias}_ends", leaf)

    def _name(self, leaf: ex.Expression) -> str:
        return self._names.setdefault(leaf, f"u{len(self._names)}")

    def _try(self) -> dict[str, tuple[str, int, int]]:
        """Try all conditions for each combination of their columns' values."""
        piece_of: dict[str, tuple[str, int, int]] = {}
        for places, conditions in self._conditions.items():
            given = [*conditions.items()]
            for first in range(0, len(given), _TRIED_TOGETHER):
                some = given[first : first + _TRIED_TOGETHER]
                piece = f"v{len(piece_of)}"
                piece_of |= {alias: (piece, i, len(some)) for i, (alias, _) in enumerate(some)}
                truths = {f"x{i}": self._of_values(leaf) for i, (_, leaf) in enumerate(some)}
                fields = [
                    f"int2send(CASE z.{x} WHEN true THEN 1::int2 WHEN false THEN 2::int2"
                    " ELSE 0::int2 END)"
                    for x in truths
                ]
                self._combine(piece, places, fields, truths, *(leaf for _, leaf in some))
        return piece_of

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
        names, alias = self._places_mentioned(key), f"g{number}"
        columns = {f"j{place}": f"d{place}.j" for place in names}
        self.steps.add(
            f"keys{number}",
            f"The values of k{number}.",
            Select(
                {**columns, "k": self._of_values(key)},
                self._product(names, key),
                self._few(names),
            ),
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
                [f"{size} <= {self._most_text}"],
            )
        )
        return names

    def _weigh(self, weighed: ex.Expression) -> None:
        """Write what is summed."""
        if self._summed is not None:
            if self._cell(self._summed).mark is not None:
                self._share_values(self._summed)
            self._moments(self._summed)
            columns = ("x", "xx", "least_x", "most_x")
            fields = [*(number(f"d.{column}") for column in columns), flag("d.is_wild")]
            self._piece("moments", fields, ["d.i"], ["moments AS d"])
            return
        value = {"x": f"({self._of_values(weighed)})::float8"}
        self._combine("values", self._places_mentioned(weighed), [number("z.x")], value, weighed)

    # -- pieces -------------------------------------------------------------------------------

    def _places_mentioned(self, expression: ex.Expression) -> list[int]:
        names = ex.attributes(expression)
        return [place for name, place in self._places.items() if name in names]

    def _spell(self, column: ex.Column) -> str:
        if column.lookup is None:
            return f"d{self._places[column.name]}.v"
        return speller("d")(column)

    def _of_values(self, expression: ex.Expression) -> str:
        return write(expression, self._spell, self.constants)

    def _product(self, places: Sequence[int], *expressions: ex.Expression) -> list[str]:
        """Write the combinations of the values of some columns, with the lookup tables."""
        relations = ["(VALUES (1)) AS one"]
        if met := self._write_met(places):
            relations = [f"{met} AS met"]
            relations += [f"JOIN domain{place} AS d{place} ON d{place}.j = met.j{place}"
                      for place in places]  # fmt: skip
        elif places:
            relations = [
                f"{'CROSS JOIN ' if number else ''}domain{place} AS d{place}"
                for number, place in enumerate(places)
            ]
        values = {name: f"d{place}.v" for name, place in self._places.items()}
        _, *lookups = join_relations("", "", expressions, self.lookups, values)
        return [*relations, *lookups]

    def _few(self, places: Sequence[int]) -> list[str]:
        """Write that there are not too many of them."""
        numbers = [f"domain{place}" for place in places]
        if met := self._write_met(places):
            numbers = [met]
        if not places:
            return []
        counts = [f"(SELECT count(*) FROM {one})" for one in numbers]
        return [f"{' * '.join(counts)} <= {self._most_combined}"]

    def _write_met(self, places: Sequence[int]) -> str:
        """Find which combinations of the values of some columns types of records have.

        Empty where all combinations are tried: those of one column, and where types are not listed.
        """
        key = tuple(places)
        if self._classes is not None or len(key) < 2:
            return ""
        if key in self._met:
            return self._met[key]
        name = self._met[key] = f"met{'_'.join(map(str, key))}"
        kinds = {f"i{place}": f"t.i{place}" for place in key}
        source: list[str | Nested] = [
            Nested([Select(kinds, ["types AS t"], group=number_columns(len(kinds)))], "t")
        ]
        numbers = {}
        for place in key:
            numbers[f"j{place}"] = f"t.i{place}"
            if self.steps.has(f"listed{place}"):
                numbers[f"j{place}"] = f"x{place}.j"
                source.append(f"JOIN listed{place} AS x{place} ON x{place}.i = t.i{place}")
        self.steps.add(
            name,
            "The combinations of values that records may have.",
            Select(numbers, source, group=number_columns(len(numbers))),
        )
        fields = [f"int4send(d.j{place}::int4)" for place in key]
        order = [f"d.j{place}" for place in key]
        self._piece(name, fields, order, [f"{name} AS d"], self._few(places))
        return name

    def _combine(
        self,
        alias: str,
        places: Sequence[int],
        fields: Sequence[str],
        calculated: Mapping[str, str],
        *expressions: ex.Expression,
    ) -> None:
        """Calculate something of each combination of values."""
        # In a subquery: for each field, the planner copies the whole expression.
        results = Nested([Select(calculated)], "z", _EACH)
        source: list[str | Nested] = [*self._product(places, *expressions), results]
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
        """Add a piece; none where a condition of `where`, on all of it, does not hold."""
        by = f" ORDER BY {', '.join(order)}" if order else ""
        part = f"coalesce(string_agg({' || '.join(fields)}, ''::bytea{by}), ''::bytea)"
        columns = {"piece": f"'{name}'", "part": part, "texts": "NULL::text[]"}
        self._pieces.append(Select(columns, source, where, having=" AND ".join(where)))


_SHARES: Final = ("first", "last", "own")
_ENDS_OF: Final = {"low": "lower", "high": "upper"}


class CellValueWriter(PieceWriter):
    """Writes over the cells of one column, whose values the request's condition leaves open.

    Parameters
    ----------
    types : PieceWriter
        Of a count, by a condition and groups that do not mention the column; cells have its
        numbers.
    name : str
        The column.
    """

    def __init__(self, types: PieceWriter, name: str) -> None:
        super().__init__(
            types.request, types.layout, (name,),
            is_stored=types.is_stored, required=types.required,
        )  # fmt: skip
        self._own_name, self._place = name, self._places[name]
        self.cells(name)

    def values(
        self, operand: ex.Expression, condition: ex.Expression, type_: str, most: int | None
    ) -> Statement:
        """Write what values an expression on the column has in each of its distinct cells.

        `type_`: of the expression.
        """
        # The statement returns a row for each cell, in the order of their numbers: whether it is
        # ``suppressed``; ``n``, how many records have it; how likely they meet a condition on the
        # column: ``t``, ``st`` and ``pt``, as in :data:`~kanon_db.query.sql.COLUMNS`; the ``least``
        # and the ``most`` value of those that do, as texts, NULL where it could be anything; and
        # either some of these values, ``xs``, with their shares, ``ws``, or what the table of
        # shares has of a range: ``first``, ``last`` and ``own``.
        # `most`: how many values of a wide range are listed; None for the ends of ranges only.
        place, cell = self._place, self._cell(self._own_name)
        sql, likely = f"d.c{place}", self.shares(self._own_name, "d")
        numbers_met = ("", "")
        if cell.shares is not None and cell.kind == "range":
            truth = write(condition, lambda _column: "p.v", self.constants)
            numbers_met = add_matched(self.steps, truth, "own", place)
        met = Nested(of_cell(condition, cell, sql, self.constants, likely, numbers_met), "w", _EACH)
        columns = {
            "i": f"d.i{place}",
            "suppressed": "false" if cell.mark is None else f"d.m{place}",
            "n": f"d.n{place}::int8",
            **{column: f"w.{column}" for column in ("t", "st", "pt")},
        }
        if most is None:
            ends = (f"lower({sql})", f"upper({sql})" + (" - 1" if cell.is_discrete else ""))
            columns |= {
                name: f"CASE WHEN NOT {side}_inf({sql}) THEN {number_text(end, type_)} END"
                for name, side, end in zip(("least", "most"), ("lower", "upper"), ends, strict=True)
            }
            columns |= {
                name: "NULL::float8" if likely is None else f"d.{name}{place}" for name in _SHARES
            }
            listed: list[str | Nested] = []
        else:
            listed = [self._list_values(operand, condition, type_, most)]
            columns |= {name: f"x.{name}" for name in ("least", "most", "xs", "ws")}
        self.steps.add(
            "cell_values",
            "What values they have.",
            Select(columns, [f"cells{place} AS d", met, *listed]),
        )
        return Statement(f"{self.steps.write()}\nORDER BY 1", self.constants.bound)

    def cells_of(self, numbers: Sequence[int]) -> Statement:
        """Write some cells, by their numbers: ``low`` and ``high``, or ``elements``, as texts."""
        cell, sql = self._cell(self._own_name), f"d.c{self._place}"
        columns = {"elements": f"to_jsonb({sql})::text"}
        if cell.kind == "range":
            axis = on_axis(cell, sql)
            columns = {end: f"{bound}({axis})::text" for end, bound in _ENDS_OF.items()}
        chosen = f"d.i{self._place} IN ({', '.join(map(str, numbers)) or '-1'})"
        self.steps.add(
            "chosen_cells",
            "The cells of which every record counts.",
            Select(columns, [f"cells{self._place} AS d"], [chosen]),
        )
        return Statement(self.steps.write(), self.constants.bound)

    def _list_values(
        self, operand: ex.Expression, condition: ex.Expression, type_: str, most: int
    ) -> Nested:
        """List the values of one cell that meet the condition."""
        cell, sql = self._cell(self._own_name), f"d.c{self._place}"
        x = f"({write(operand, lambda _column: 'v.v', self.constants)})::{type_}"
        ok = write(condition, lambda _column: "v.v", self.constants)
        values = values_of(cell, sql, most, self.shares(self._own_name, "d"))
        each = {"x": x, "ok": f"({ok}) IS TRUE"}
        each |= {name: f"v.{name}" for name in ("w", "is_open", "least", "most")}
        of_open = {"least": "NULL", "most": "NULL"}
        if isinstance(operand, ex.Column):
            of_open = {"least": f"min(e.least)::{type_}", "most": f"max(e.most)::{type_}"}
        columns = {
            name: number_text(
                f"CASE WHEN bool_or(e.is_open) THEN {of_open[name]}"
                f" ELSE {function}(e.x) FILTER (WHERE e.ok) END",
                type_,
            )
            for name, function in (("least", "min"), ("most", "max"))
        }
        columns |= {
            "xs": "array_agg(e.x::float8) FILTER (WHERE e.ok)",
            "ws": "array_agg(e.w) FILTER (WHERE e.ok)",
        }
        inner = Nested([Select(each, [Nested(values, "v")])], "e")
        return Nested([Select(columns, [inner])], "x", _EACH)


class ValuePieceWriter(PieceWriter):
    """Writes the pieces of a request whose operand's values are listed, those of each record."""

    _lists_values = True

    def __init__(
        self,
        request: Request,
        layout: CellLayout,
        also: Iterable[str] = (),
        *,
        is_stored: bool,
        required: Sequence[ex.Expression] = (),
        room: int = 0,
    ) -> None:
        super().__init__(request, layout, also, is_stored=is_stored, required=required, room=room)
        wanted = {*self._spread, *ex.attributes(self.weighed)}
        self._spread = [
            name for name, cell in layout.cells.items() if name in wanted and is_vague(cell)
        ]
        self._summed = None
