"""Writes the statement that finds what each distinct cell or value tells of a query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Final

from kanon_db.answers.statements import CellWriter
from kanon_db.query import expressions as ex
from kanon_db.query.cell_conditions import (
    Likely,
    add_matched,
    all_values,
    can_cover,
    holds_anything,
    is_endless,
    is_vague,
    may_fail,
    of_cell,
    on_axis,
    values_of,
)
from kanon_db.query.expressions import TEXT
from kanon_db.query.layout import CellLayout, ClassTable, condition_of
from kanon_db.query.likelihoods import (
    MOST_GROUPED,
    Together,
    arranged,
    compares_ranges,
    key_of,
    listed_within,
    most_listed,
)
from kanon_db.query.sql import (
    COLUMNS,
    Nested,
    Request,
    Select,
    Statement,
    leaves,
    numbered,
    require_few,
    write,
)

# What is known of cells and values, of which answers are put together, and how it is named.


@dataclass(frozen=True)
class Unit:
    """A condition, or a part of it whose columns nothing else mentions.

    Attributes
    ----------
    condition : Expression or None
    spread : list of int
        The columns whose values are listed.
    places : list of int
        All of its columns.
    by_cell : mapping of Expression to (str, int)
        The leaves that follow from one cell, with the names of their pieces, and the column.
    by_ends : mapping of Expression to (str, int)
        The same of columns of which the ends of cells are known.
    by_value : mapping of Expression to (str, list of int)
        Those that follow from values, with the columns of these.
    compared : mapping of Expression to (str, int, int)
        Of the latter, comparisons of ranges: what is certain follows from the ends of these two.
    parts : mapping of Expression to Unit
    open_ : list of int
        Listed columns of which a leaf needs all values, for anything to be certain.
    tested : list of int
        Listed ranges of which it is asked whether they hold a NULL.
    """

    condition: ex.Expression | None
    spread: list[int]
    places: list[int]
    by_cell: Mapping[ex.Expression, tuple[str, int]]
    by_ends: Mapping[ex.Expression, tuple[str, int]]
    by_value: Mapping[ex.Expression, tuple[str, list[int]]]
    compared: Mapping[ex.Expression, tuple[str, int, int]]
    parts: Mapping[ex.Expression, Unit]
    open_: list[int]
    tested: list[int]


@dataclass(frozen=True)
class Summed:
    """What is summed.

    Attributes
    ----------
    moments : int or None
        The column whose cells alone decide on it.
    values : list of int
        Otherwise, the columns whose values do.
    own : int or None
        If it is one of these that is listed, itself.
    open_ : list of int
        Listed columns of which all values are needed, for bounds; not of the column itself.
    """

    moments: int | None
    values: list[int]
    own: int | None
    open_: list[int]


@dataclass(frozen=True)
class Pieces:
    """A statement, and what its rows mean.

    Attributes
    ----------
    text : str
        Its rows have a ``piece``, a ``part`` (bytes) and ``texts``.
    bound : tuple of str
        Its values.
    places : dict of str to int
        The number of each column that the request mentions.
    vague : list of int
        Those whose cells stand for several values, and have numbers.
    ended : list of int
        Those whose cells have their ends instead.
    marked : list of int
        Those that have suppressed cells.
    unit : Unit
    keys : list of list of int
        The columns of each group key.
    summed : Summed or None
    together : float
        See `kanon_db.query.likelihoods`.
    """

    text: str
    bound: tuple[str | list[str], ...]
    places: Mapping[str, int]
    vague: list[int]
    ended: list[int]
    marked: list[int]
    unit: Unit
    keys: list[list[int]]
    summed: Summed | None
    together: float


# The bytes of a row of a piece, as SQL; `kanon_db.answers.evidence` reads them.


def flag(sql: str) -> str:
    """Write whether something is true: a byte."""
    return f"boolsend(coalesce({sql}, false))"


def number(sql: str) -> str:
    """Write a number, after a byte: 1 if it is missing, 2 if it is no finite number."""
    value = f"({sql})::float8"
    odd = f"coalesce({value} IN ('NaN', 'Infinity', '-Infinity'), false)"
    return f"boolsend({value} IS NULL) || boolsend({odd}) || float8send(coalesce({value}, 0))"


# Which requests can be answered from the numbers of cells, or from their ends.


MOST_LEAVES: Final = 64
"""Conditions that are counted apart; more need the statement."""


def has_pieces(request: Request, layout: CellLayout, also: Iterable[str] = ()) -> bool:
    """Whether a request can be answered from the table of classes.

    Parameters
    ----------
    request : Request
    layout : CellLayout
    also : iterable of str
        Columns that are needed beside those that the request mentions.
    """
    query, aggregate = request.query, request.aggregate
    needed = [*query.evaluated, aggregate.operand, aggregate.condition]
    if layout.classes is None or aggregate.function in ex.DERIVED:
        return False
    if any(column.lookup is not None for part in needed for column in ex.columns(part)):
        return False
    if len(set(leaves(condition_of(query, aggregate)))) > MOST_LEAVES:
        return False
    names = {*also, *(name for part in needed for name in ex.attributes(part))}
    ended = names & layout.classes.ends
    if names - layout.classes.columns - ended or any(layout.cells[name].shares for name in ended):
        return False
    return not ended or not ended & {*also, *_needing_cells(request, layout)}


def _needing_cells(request: Request, layout: CellLayout) -> Iterator[str]:
    """Yield the columns of which more is asked than how likely a condition on one of them is."""
    query, aggregate = request.query, request.aggregate
    put = arranged(query, aggregate, layout)
    yield from (*put.spread, *put.apart)
    if aggregate.operand is not None and aggregate.function != "count":
        yield from ex.attributes(aggregate.operand)
    for leaf in leaves(condition_of(query, aggregate)):
        if len(ex.attributes(leaf)) > 1 or may_fail(leaf):
            yield from ex.attributes(leaf)


# What an answer depends on beside the records themselves, found once for each cell or value.
#
# A publication's table of classes has the cells of all records as numbers. With what this statement
# tells of each cell, and of each combination of values that a condition compares, records are
# counted without a statement over all of them; see `kanon_db.answers.evidence`. What a cell tells
# is written as for the statement over types of records.


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


# How many records of each distinct cell of a column count, and what values the cells have.
#
# Where a condition mentions the column together with others, its values are listed for each type of
# records instead.


_SHARES: Final = ("first", "last", "own")
_EACH_CELL: Final = "CROSS JOIN LATERAL"


class CellSumWriter(CellWriter):
    """Writes over the cells of one column, whose values the request's condition leaves open.

    Parameters
    ----------
    request : Request
        A count, by a condition and groups that do not mention the column.
    layout : CellLayout
    name : str
        The column.
    """

    def __init__(self, request: Request, layout: CellLayout, name: str) -> None:
        super().__init__(request, layout, also=(name,))
        self._name, self._place = name, self._places[name]

    def sums(self, most: int) -> Statement:
        """Write how many records of each group have each cell, if they count.

        The statement returns the group's key as JSON, the cell's ``cell_key``, whether it is
        ``suppressed``, and how many records are ``expected``, ``sure`` and ``possible``, with
        ``u``, the share of which nothing is known; ``is_unknown`` where most cells are suppressed.
        """
        self.likely()
        constants = self.constants
        self.steps.add(
            "cell_sums",
            f"How many records of each group have each of the cells c{self._place}.",
            Select(
                {
                    "group_key": _group_key(self),
                    **self._identified("t"),
                    "expected": "sum(y.n * y.m)",
                    "sure": "coalesce(sum(y.n) FILTER (WHERE y.st), 0)",
                    "possible": "sum(y.n)",
                    "u": "max(y.u)",
                    "is_unknown": f"({self._is_unknown() or 'false'})",
                },
                ["likely_types AS y", "JOIN types AS t ON t.id = y.id"],
                ["y.pt"],
                numbered(3),
                limit=most,
            ),
        )
        return Statement(self.steps.write(), constants.bound)

    def values(
        self, operand: ex.Expression, condition: ex.Expression, type_: str, most: int | None
    ) -> Statement:
        """Write what values an expression on the column has in each of its distinct cells.

        The statement returns ``cell_key`` and ``suppressed``; ``n``, how many records have the
        cell; how likely they meet a condition on the column: ``t``, ``st`` and ``pt``, as in
        :data:`~kanon_db.query.sql.COLUMNS`; the ``least`` and the ``most`` value of
        those that do, as texts, NULL where it could be anything; and either some of these values,
        ``xs``, with their shares, ``ws``, or what the table of shares has of a range: ``first``,
        ``last`` and ``own``.

        Parameters
        ----------
        type_ : str
            Of the expression.
        most : int or None
            How many values of a wide range are listed; None for the ends of ranges only.
        """
        place, cell = self._place, self._cell(self._name)
        sql = f"d.c{place}"
        self._find_cells()
        likely = self.shares(self._name, "s")
        matched = ("", "")
        if cell.shares is not None and cell.kind == "range":
            truth = write(condition, lambda _column: "p.v", self.constants)
            matched = add_matched(self.steps, truth, "own", place)
        met = Nested(
            of_cell(condition, cell, sql, self.constants, likely, matched), "w", _EACH_CELL
        )
        joins = [f"JOIN cells{place} AS s ON {self._same('s')}"] if is_vague(cell) else []
        columns = {column: f"d.{column}" for column in ("cell_key", "suppressed", "n")}
        columns |= {column: f"w.{column}" for column in ("t", "st", "pt")}
        if most is None:
            ends = (f"lower({sql})", f"upper({sql})" + (" - 1" if cell.is_discrete else ""))
            columns |= {
                name: f"CASE WHEN NOT {side}_inf({sql}) THEN ({end})::{type_}::text END"
                for name, side, end in zip(("least", "most"), ("lower", "upper"), ends, strict=True)
            }
            columns |= {
                name: "NULL::float8" if likely is None else f"s.{name}{place}" for name in _SHARES
            }
            listed: list[str | Nested] = []
        else:
            listed = [self._listed(operand, condition, type_, most)]
            columns |= {name: f"x.{name}" for name in ("least", "most", "xs", "ws")}
        self.steps.add(
            "cell_values",
            "What values they have.",
            Select(columns, ["distinct_cells AS d", *joins, met, *listed]),
        )
        return Statement(self.steps.write(), self.constants.bound)

    def _find_cells(self) -> None:
        """List the distinct cells of the column, with the records that have each."""
        self.types()
        place = self._place
        distinct = self._identified("a") | {f"c{place}": f"a.c{place}", "n": "sum(a.n)"}
        self.steps.add("distinct_cells", f"The distinct cells c{place}.",
                       Select(distinct, ["alike AS a"], group=numbered(3)))  # fmt: skip

    def _identified(self, alias: str) -> dict[str, str]:
        """Tell a cell of the rows with an alias from others."""
        place = self._place
        mark = self._cell(self._name).mark
        return {
            "cell_key": key_of(f"{alias}.c{place}"),
            "suppressed": "false" if mark is None else f"{alias}.m{place}",
        }

    def _same(self, alias: str) -> str:
        place = self._place
        found = f"{alias}.k{place} = d.cell_key"
        if self._cell(self._name).mark is not None:
            found += f" AND {alias}.m{place} = d.suppressed"
        return found

    def _listed(
        self, operand: ex.Expression, condition: ex.Expression, type_: str, most: int
    ) -> Nested:
        """List the values of one cell that meet the condition."""
        cell, sql = self._cell(self._name), f"d.c{self._place}"
        x = f"({write(operand, lambda _column: 'v.v', self.constants)})::{type_}"
        ok = write(condition, lambda _column: "v.v", self.constants)
        values = values_of(cell, sql, most, self.shares(self._name, "s"))
        each = {"x": x, "ok": f"({ok}) IS TRUE"}
        each |= {name: f"v.{name}" for name in ("w", "is_open", "least", "most")}
        of_open = {"least": "NULL", "most": "NULL"}
        if isinstance(operand, ex.Column):
            of_open = {"least": f"min(e.least)::{type_}", "most": f"max(e.most)::{type_}"}
        columns = {
            name: f"(CASE WHEN bool_or(e.is_open) THEN {of_open[name]}"
            f" ELSE {function}(e.x) FILTER (WHERE e.ok) END)::text"
            for name, function in (("least", "min"), ("most", "max"))
        }
        columns |= {
            "xs": "array_agg(e.x::float8) FILTER (WHERE e.ok)",
            "ws": "array_agg(e.w) FILTER (WHERE e.ok)",
        }
        inner = Nested([Select(each, [Nested(values, "v")])], "e")
        return Nested([Select(columns, [inner])], "x", _EACH_CELL)


class NumberedCellWriter(CellSumWriter, PieceWriter):
    """Writes what values cells have that are numbered: ``cell_key`` is the number."""

    def _find_cells(self) -> None:
        place, cell = self._place, self._cell(self._name)
        self.cells(self._name)
        columns = {
            "cell_key": f"a.i{place}::text",
            "suppressed": "false" if cell.mark is None else f"a.m{place}",
            f"c{place}": f"a.c{place}",
            "n": f"a.n{place}",
        }
        comment = f"The distinct cells c{place}, with the records that have each."
        self.steps.add("distinct_cells", comment, Select(columns, [f"cells{place} AS a"]))

    def _same(self, alias: str) -> str:
        return f"{alias}.i{self._place}::text = d.cell_key"


class SpreadSumWriter(CellWriter):
    """Writes over the values that the columns of a sum's operand may have in each type."""

    def __init__(self, request: Request, layout: CellLayout) -> None:
        super().__init__(request, layout)
        wanted = {*self._spread, *ex.attributes(self.weighed)}
        self._spread = [
            name for name, cell in layout.cells.items() if name in wanted and is_vague(cell)
        ]
        self._summed = None

    def sums(self, most: int) -> Statement:
        """Write how many records of each group count, by the values that they may have.

        The statement returns the group's key as JSON, and either, with ``most`` NULL, how many
        records are expected (``n``) with a value (``least``); or how many have values between
        ``least`` and ``most``, NULL where it could be anything, and whether they ``surely`` count.
        """
        self.rows_of_values()
        key = _group_key(self)
        surely = "bool_and(st)" + (" AND sum(w) > 0.999999999" if self.keys else "")
        ends = {
            name: f"CASE WHEN NOT bool_or(is_wild) FILTER (WHERE pt) THEN {end} END"
            for name, end in (
                ("least", "min(least_x) FILTER (WHERE pt)"),
                ("most", "max(most_x) FILTER (WHERE pt)"),
            )
        }
        self.step(
            "ends",
            "Between which values those of each type are.",
            {"n": "n", "surely": surely, **ends},
            group=["id", "n"],
            having="bool_or(pt)",
        )
        self.steps.add(
            "sums",
            "The records with each value, and those with values between any two.",
            Select(
                {
                    "group_key": key, "is_value": "true", "surely": "false", "least": "x",
                    "most": "NULL::float8", "n": "sum(n * w * t)",
                },
                ["likelihoods"], ["pt", "x IS NOT NULL"], ["group_key", "x"],
            ),
            Select(
                {
                    "group_key": key, "is_value": "false",
                    **{name: name for name in ("surely", "least", "most")}, "n": "sum(n)",
                },
                ["ends"], [], ["group_key", "surely", "least", "most"],
            ),
        )  # fmt: skip
        return Statement(f"{self.steps.write()}\nLIMIT {most}", self.constants.bound)


class NumberedSpreadWriter(SpreadSumWriter, PieceWriter):
    """Writes what their cells tell, where these have numbers."""


def _group_key(writer: CellWriter) -> str:
    """Write a group's values as JSON."""
    named = ", ".join(
        f"{writer.constants.write(ex.Constant(key.name, TEXT))}, {sql}"
        for key, sql in zip(writer.query.keys, writer.keys, strict=True)
    )
    return f"jsonb_build_object({named})::text" if named else "'{}'::text"


# The cells of a column, with the records that count: what percentiles and DISTINCT follow from.


_ENDS: Final = {"low": "lower", "high": "upper"}


class SureCellWriter(CellWriter):
    """Writes over the cells of types of records, as what it is derived from."""

    def sure_cells(self, name: str, most: int) -> Statement:
        """Write the cells of a column of the records that surely count, without groups.

        The statement returns ``low`` and ``high``, or the ``elements`` of a set, as texts.
        """
        self.likely()
        columns = self._shown(name, "t")
        self.steps.add(
            "sure_cells",
            "The cells of the types of which every record counts.",
            Select(
                columns,
                ["likely_types AS y", "JOIN types AS t ON t.id = y.id"],
                ["y.st"],
                numbered(len(columns)),
                limit=most,
            ),
        )
        return Statement(self.steps.write(), self.constants.bound)

    def _shown(self, name: str, alias: str) -> dict[str, str]:
        """Show the cell of a column."""
        cell, sql = self._cell(name), f"{alias}.c{self._places[name]}"
        if cell.kind != "range":
            return {"elements": f"to_jsonb({sql})::text"}
        return {end: f"{bound}({on_axis(cell, sql)})::text" for end, bound in _ENDS.items()}


class NumberedSureCellWriter(SureCellWriter, PieceWriter):
    """Writes the cells that have numbers."""

    def numbered_cells(self, name: str, numbers: Sequence[int]) -> Statement:
        """Write the cells of a column with these numbers, as :meth:`sure_cells`."""
        self.cells(name)
        place = self._places[name]
        listed = ", ".join(map(str, numbers)) or "-1"
        self.steps.add(
            "sure_cells",
            "The cells of which every record counts.",
            Select(self._shown(name, "c"), [f"cells{place} AS c"], [f"c.i{place} IN ({listed})"]),
        )
        return Statement(self.steps.write(), self.constants.bound)
