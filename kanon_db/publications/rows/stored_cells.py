"""Reads the distinct cells of columns as arrays, from the store of codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Self

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.algorithms.recoding.generalized_cells import Axis
from kanon_db.catalog.entries import Publication, changed, require_codes
from kanon_db.dataclasses import dataclass
from kanon_db.errors import VerificationError
from kanon_db.publications.codes import CodeTables, Store
from kanon_db.publications.rows.cell_columns import (
    Cells,
    Flags,
    KnownCells,
    RangeColumn,
    RangeEnds,
    SetColumn,
    ValueColumn,
    doubt_hidden,
)
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import TEXT
from kanon_db.query.layout import CellDescription, CellLayout, labels, members_of, texts
from kanon_db.query.ranges import (
    ANY_END,
    BEGINS,
    on_axis,
    place_of,
    place_of_end,
    type_of_ends,
    value_of_end,
)
from kanon_db.query.sql import Constants
from kanon_db.session.protocol import Row, Session, Value
from kanon_db.transfer.columns import fix_labels, label
from kanon_db.transfer.tries import ColumnValues, Domain, Fetcher

_CELL: Final = [("hidden", "?"), ("known", ">f8")]
_RANGE: Final = [
    *_CELL, ("low", ">i8"), ("high", ">i8"), ("is_null", "?"), ("from_all", "?"), ("to_all", "?"),
    ("first", ">i4"), ("last", ">i4"), ("own", ">f8"),
]  # fmt: skip
_MEMBER: Final = [("cell", ">i4"), ("value", ">i4"), ("w", ">f8")]


@dataclass(frozen=True)
class PublicationReader:
    """Reads the store of a publication that may not be entered in the catalog yet."""

    session: Session
    publication: Publication
    store: Store
    known_cells: dict[str, KnownCells] = field(default_factory=dict)

    @classmethod
    def of(cls, session: Session, schema: str, publication: Publication) -> Self:
        """Open the store; refuse one that lacks a column."""
        layout = publication.layout
        names = [*(cell["name"] for cell in layout["quasi_identifiers"]), *layout["others"]]
        require_codes(publication, names)
        tables = CodeTables.of(session, schema, publication.name, layout)
        return cls(session, publication, Store(session, tables))

    def fetch(self, statement: str, *values: Value) -> list[Row]:
        """Run a statement."""
        return self.session.fetch(statement, *values)

    def changed(self) -> VerificationError:
        """Make the error for relations that are not those that were published."""
        return changed(self.publication)

    def labels(self, name: str) -> list[str | None]:
        """Return the texts of a column's values, by their codes."""
        values = f"SELECT {label('t.v')} AS label FROM ({self.store.values(name)}) AS t"
        with fix_labels(self.session):
            return [row["label"] for row in self.fetch(f"{values} ORDER BY t.i")]


@dataclass(frozen=True)
class StoredCells:
    """The distinct cells of a publication's columns, by their numbers."""

    layout: CellLayout
    store: Store
    # How many records have each cell, of columns some of whose cells are suppressed
    counts: Mapping[str, FloatArray] = field(default_factory=dict)
    # The codes that are read, ascending, of columns of which not all are, or whose ranges are known
    # by their ends: their places are numbers
    met: Mapping[str, IntArray] = field(default_factory=dict)

    def cells(self, name: str, constants: Constants) -> str:
        """Write the cells of a column: ``number``, ``cell`` and ``hidden``."""
        column, met = self.store.columns[name], self.met.get(name)
        source, number = f"({self.store.values(name)}) AS t", "t.i"
        if met is not None:
            is_met = np.zeros(column.n_values, dtype=np.bool_)
            is_met[met] = True
            bits = np.packbits(is_met, bitorder="little").tobytes().hex()
            bound = constants.write(ex.Constant(rf"\x{bits}", TEXT))
            source += f" WHERE get_bit((SELECT {bound}::bytea), t.i) = 1"
            number = "(row_number() OVER (ORDER BY t.i) - 1)::int4"
        written = (
            f"SELECT {number} AS number, t.v AS cell, t.i >= {column.n_shown} AS hidden"
            f" FROM {source}"
        )
        cell = self.layout.cells[name]
        if cell.labels is None:
            return written
        json = f"{constants.write(ex.Constant(cell.labels, TEXT))}::jsonb"
        members = members_of("t.cell", "l", texts(json))
        return (
            f"SELECT t.number, {members} AS cell, t.hidden FROM ({written}) AS t"
            f" LEFT JOIN ({labels(json)}) AS l ON l.label = t.cell"
        )

    def read(self, fetcher: Fetcher, names: Sequence[str]) -> dict[str, KnownCells]:
        """Read the cells of columns, those of sets and ranges in one statement."""
        constants, written, readers = Constants(), list[str](), dict[str, _Reader]()
        for place, name in enumerate(names):
            kind, write = self.layout.cells[name].kind, self._ranges
            if kind != "value":
                if self.store.columns[name].by_ends:
                    write = self._whole_ranges
                elif kind == "set":
                    write = self._sets
                sql, readers[name] = write(name, constants, place)
                written.append(f"(\n{sql}\n) AS q{place}")
        row: Mapping[str, Any] = {}
        if written:
            given = f"SELECT * FROM {' CROSS JOIN '.join(written)}"
            (row,) = fetcher.fetch(given, *constants.bound)
        known = {}
        for name in names:
            own = readers[name](row) if name in readers else self._values(name)
            if own is None or own.cells.n.size != self._codes(name).size:
                raise fetcher.changed()
            known[name] = own
        return known

    def _codes(self, name: str) -> IntArray:
        return self.met.get(name, np.arange(self.store.columns[name].n_values))

    def _values(self, name: str) -> KnownCells:
        column = self.store.columns[name]
        codes = self._codes(name)
        known = np.ones(codes.size)

        def write(constants: Constants) -> str:
            return f"SELECT c.number AS i, c.cell AS v FROM ({self.cells(name, constants)}) AS c"

        cells = self._cells(name, codes >= column.n_shown, known)
        return ValueColumn(name, cells, ColumnValues(write, codes.size), self.layout.rarity)

    def _sets(self, name: str, constants: Constants, place: int) -> tuple[str, _Reader]:
        cell = self.layout.cells[name]
        shares = self._shares(name, constants, "c.cell::text")
        none = "NULL::float8[]", "NULL::float8"
        of_share, known = ("s.shares", "s.known") if shares else none
        # Distinct values are few, so they are ranked, and not each member: in arrays, NULLs are
        # equal, too.
        sql = (
            f"WITH t AS ({self.cells(name, constants)}), c AS MATERIALIZED (SELECT c.number,"
            f" c.hidden, coalesce(c.cell, ARRAY[NULL::text]) AS cell, {known} AS known,"
            f" {of_share} AS shares FROM t AS c {shares}), m AS MATERIALIZED ("
            ' SELECT c.number, u.o, u.v COLLATE "C" AS v,'
            " coalesce(u.s, 1 / cardinality(c.cell)::float8) AS w"
            " FROM c, unnest(c.cell, c.shares) WITH ORDINALITY AS u (v, s, o)"
            " WHERE u.o <= cardinality(c.cell)), d AS MATERIALIZED ("
            " SELECT e.v, row_number() OVER (ORDER BY e.v) - 1 AS j"
            " FROM (SELECT DISTINCT m.v FROM m) AS e)"
            f" SELECT (SELECT string_agg({_PACKED.format('coalesce(c.known, 0)')}, ''::bytea"
            f" ORDER BY c.number) FROM c) AS c{place},"
            " (SELECT string_agg(int4send(m.number) || int4send(d.j::int4) || float8send(m.w),"
            " ''::bytea ORDER BY m.number, m.o) FROM m JOIN d ON ARRAY[d.v] = ARRAY[m.v])"
            f" AS m{place}, (SELECT array_agg(d.v ORDER BY d.j) FROM d) AS v{place}"
        )

        def read(row: Mapping[str, Any]) -> KnownCells:
            packed = np.frombuffer(row[f"c{place}"] or b"", np.dtype(_CELL))
            cells = self._cells(name, packed["hidden"], packed["known"])
            members = np.frombuffer(row[f"m{place}"] or b"", np.dtype(_MEMBER))
            return SetColumn(
                name, cells, _texts(row[f"v{place}"] or [], cell),
                members["cell"].astype(np.int64), members["value"].astype(np.int64),
                members["w"].astype(np.float64), self.layout.rarity,
            )  # fmt: skip

        return sql, read

    def _ranges(self, name: str, constants: Constants, place: int) -> tuple[str, _Reader]:
        cell = self.layout.cells[name]
        type_ = cell.column.type
        shares = self._shares(name, constants, "c.cell::text")
        low, high, joined, more = _place(cell, "lower"), _place(cell, "upper"), "", ""
        if not cell.is_discrete:
            joined = f" LEFT JOIN e AS a ON a.v = {_end(cell, 'lower')}"
            joined += f" LEFT JOIN e AS b ON b.v = {_end(cell, 'upper')}"
            low, high = "a.i", "b.i"
            more = f", e AS MATERIALIZED ({_ends('c', cell)})"
        parts = ("s.first", "s.last", "s.own", "s.known") if shares else ("NULL",) * 4
        first, last, own, known = parts
        fields = [
            _PACKED.format(f"coalesce({known}, 0)"),
            *(f"int8send(coalesce({end}, 0)::int8)" for end in (low, high)),
            "boolsend(num_nulls(c.cell) = 1)",
            *(f"boolsend(coalesce({side}_inf(c.cell), false))" for side in ("lower", "upper")),
            *(f"int4send(coalesce({part}, 1)::int4)" for part in (first, last)),
            f"float8send(coalesce({own}::float8, 'NaN'))",
        ]
        sql = (
            f"WITH c AS MATERIALIZED ({self.cells(name, constants)}){more}"
            f" SELECT (SELECT string_agg({' || '.join(fields)}, ''::bytea ORDER BY c.number)"
            f" FROM c {shares}{joined}) AS c{place}"
        )
        if not cell.is_discrete:
            at = f"({place_of(type_, 'e.v')})::float8"
            packed = f"string_agg(float8send({at}), ''::bytea ORDER BY e.i)"
            sql += f", (SELECT {packed} FROM e) AS e{place}"
        if cell.shares is not None:
            sql += f", {self._axis(name, constants, place)}"

        def values(inner: Constants) -> str:
            return _ends(f"({self.cells(name, inner)})", cell)

        def read(row: Mapping[str, Any]) -> KnownCells:
            packed = np.frombuffer(row[f"c{place}"] or b"", np.dtype(_RANGE))
            at = of_ends = None
            if not cell.is_discrete:
                at = np.frombuffer(row[f"e{place}"] or b"", ">f8").astype(np.float64)
                of_ends = ColumnValues(values, at.size)
            ends = RangeEnds(
                packed["low"].astype(np.int64), packed["high"].astype(np.int64),
                packed["is_null"], packed["from_all"], packed["to_all"], at, of_ends,
            )  # fmt: skip
            cells = self._cells(name, packed["hidden"], packed["known"])
            return RangeColumn(
                name, cell,
                Cells(cells.n, cells.u, cells.hidden, ends.anything, ends.endless),
                ends, _read_axis(cell, row, place, packed),
            )  # fmt: skip

        return sql, read

    def _whole_ranges(
        self,
        name: str,
        constants: Constants,  # noqa: ARG002
        place: int,
    ) -> tuple[str, _Reader]:
        """Write what is read of ranges of which each class has the ends."""
        cell, codes = self.layout.cells[name], self.met[name]
        first = place_of_end(cell.column.type, "lower(t.v)")
        sql = (
            f"SELECT min(({first})::int8) AS low{place},"
            f" min(upper(t.v) - lower(t.v))::int8 AS n{place} FROM ({self.store.values(name)}) AS t"
        )

        def read(row: Mapping[str, Any]) -> KnownCells | None:
            least, n_values = row[f"low{place}"], row[f"n{place}"]
            low, end = codes >> BEGINS, codes & ((1 << BEGINS) - 1)
            is_null, is_anything = codes == 0, codes == ANY_END
            if least is None or n_values is None:
                return None
            is_range = (low < end) & (low >= 0) & (end <= n_values)
            if not (is_range | is_null | is_anything).all():
                return None
            none, one = np.zeros(codes.size, dtype=np.bool_), np.ones(codes.size)
            ends = RangeEnds(least + low, least + end - 1, is_null, is_anything, is_anything)
            cells = Cells(one, one, none, is_anything, is_anything)
            return RangeColumn(name, cell, cells, ends, None)

        return sql, read

    def _cells(self, name: str, hidden: Flags, known: Any) -> Cells:
        none, n = np.zeros(hidden.size, dtype=np.bool_), np.ones(hidden.size)
        n, u = self.counts.get(name, n), 1 - known.astype(np.float64)
        u = np.where(hidden, doubt_hidden(hidden, n, self.layout.k), u)
        return Cells(n, u, hidden, none, none)

    def _axis(self, name: str, constants: Constants, place: int) -> str:
        cell = self.layout.cells[name]
        at = place_of_end(cell.column.type, f"u.v::{type_of_ends(cell)}")
        attribute = constants.write(ex.Constant(name, TEXT))
        source = (
            f"{self.layout.view.shares} AS s, unnest(s.points, s.shares) WITH ORDINALITY"
            f" AS u (v, p, i) WHERE s.attribute = {attribute} AND s.cell IS NULL"
        )
        return (
            f"(SELECT string_agg(float8send(u.p) || float8send(({at})::float8)"
            f" || float8send(s.known), ''::bytea ORDER BY u.i) FROM {source}) AS p{place}"
        )

    def _shares(self, name: str, constants: Constants, text: str) -> str:
        """Write the join of what is known of cells; empty where nothing is."""
        if self.layout.cells[name].shares is None:
            return ""
        attribute = constants.write(ex.Constant(name, TEXT))
        return (
            f"LEFT JOIN {self.layout.view.shares} AS s"
            f" ON s.attribute = {attribute} AND s.cell = {text}"
        )

    def ends_of_two(self, fetcher: Fetcher, one: str, other: str) -> tuple[Any, ...]:
        """Return the places of the ends of two columns' ranges on one axis; 0 for none.

        Of the lower and the upper ends of one, then of the other; then whether there are any.
        """
        constants, selects = Constants(), list[str]()
        for side, name in enumerate((one, other)):
            axis = on_axis(self.layout.cells[name], "c.cell")
            for is_high, end in enumerate(("lower", "upper")):
                selects.append(
                    f"SELECT {side} AS side, c.number, {is_high} AS is_high, {end}({axis}) AS at,"
                    f" num_nulls(c.cell) = 0 AS is_known FROM ({self.cells(name, constants)}) AS c"
                )
        rank = "CASE WHEN num_nulls(d.at) = 0 THEN dense_rank() OVER (ORDER BY d.at) ELSE 0 END"
        (row,) = fetcher.fetch(
            "SELECT string_agg(int4send(r.side) || int4send(r.rank::int4) || boolsend(r.is_known),"
            " ''::bytea ORDER BY r.side, r.number, r.is_high) AS ends FROM (SELECT d.*,"
            f" {rank} AS rank FROM ({' UNION ALL '.join(selects)}) AS d) AS r",
            *constants.bound,
        )
        read = np.frombuffer(row["ends"] or b"", [("s", ">i4"), ("rank", ">i4"), ("known", "?")])
        sides = [read[read["s"] == side].reshape(-1, 2) for side in (0, 1)]
        ranks = [side["rank"].astype(np.int64) for side in sides]
        known = [side["known"][:, 0] for side in sides]
        return ranks[0][:, 0], ranks[0][:, 1], ranks[1][:, 0], ranks[1][:, 1], known[0], known[1]


_Reader = Callable[[Mapping[str, Any]], KnownCells | None]
"""Reads the cells of a column from a row; None where they cannot be what was written."""

_PACKED: Final = "boolsend(c.hidden) || float8send({}::float8)"


def _texts(values: Sequence[str | None], cell: CellDescription) -> Domain:
    """Return the values that texts of sets stand for; NULL is last."""
    shown = tuple(text for text in values if text is not None)

    def write(constants: Constants) -> str:
        sql = (
            f"SELECT u.o - 1 AS i, u.t{cell.element} AS v"
            f" FROM unnest({constants.texts(shown)}) WITH ORDINALITY AS u (t, o)"
        )
        if len(shown) < len(values):
            sql += f" UNION ALL SELECT {len(shown)}, NULL::text{cell.element}"
        return sql

    return ColumnValues(write, len(values))


def _place(cell: CellDescription, end: str) -> str:
    """Write an end of a range of whole numbers as a number; both ends belong to it."""
    last = " - 1" if end == "upper" else ""
    return f"{place_of_end(cell.column.type, f'{end}(c.cell)')}{last}"


def _end(cell: CellDescription, end: str) -> str:
    return value_of_end(cell.column.type, f"{end}(c.cell)")


def _ends(cells: str, cell: CellDescription) -> str:
    """Write the ends of continuous ranges in their order, with their numbers."""
    both = " UNION ALL ".join(
        f"SELECT {_end(cell, end)} AS v FROM {cells} AS c WHERE NOT {end}_inf(c.cell)"
        for end in ("lower", "upper")
    )
    return (
        "SELECT d.v, row_number() OVER (ORDER BY d.v) - 1 AS i"
        f" FROM (SELECT DISTINCT b.v FROM ({both}) AS b) AS d"
    )


def _read_axis(
    cell: CellDescription, row: Mapping[str, Any], place: int, packed: Any
) -> Axis | None:
    parts = row.get(f"p{place}")
    if cell.shares is None or parts is None:
        return None
    read = np.frombuffer(parts, [("p", ">f8"), ("at", ">f8"), ("trust", ">f8")])
    points = read["at"].astype(np.float64)
    return Axis(
        cell.shares == "of_each",
        np.append(0.0, np.cumsum(read["p"].astype(np.float64))),
        np.rint(points).astype(np.int64) if cell.is_discrete else points,
        packed["first"].astype(np.int64) - 1, packed["last"].astype(np.int64) - 1,
        packed["own"].astype(np.float64), float(read["trust"][0]) if read.size else 0.0,
    )  # fmt: skip
