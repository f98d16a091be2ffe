"""From a checked query to SQL over a generalized, freeform or suppressed publication.

**Source:** a range counts by the part of it that meets the condition, [FF] section 3; the rest is
in docs/estimation.md.

Records with the same cells are one type. Where a condition is on one column, its likelihood follows
from the cell. A column that is grouped by, summed, joined with a lookup table, compared with
another one or part of two conditions is *spread*: a type then has a row for each value that its
cell may stand for, so that what depends on one value stays together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kanon_db.counting.bucket_statement import condition_of, with_groups
from kanon_db.counting.check import Query
from kanon_db.counting.expressions import (
    Aggregate,
    Column,
    Expression,
    NullTest,
    attributes,
    columns,
)
from kanon_db.counting.intervals import can_cover, covered, share
from kanon_db.counting.joins import joined, speller
from kanon_db.counting.layout import Cell, CellLayout, Lookup
from kanon_db.counting.refusals import refusal
from kanon_db.counting.sql import Constants, Spelling, Statement, write
from kanon_db.counting.truth import COLUMNS, Likelihood, leaves, likelihood, of_subquery

MOST_VALUES: Final = 1000
"""Of a discrete range that are looked at one by one; of wider ones, so many at equal distances."""

_POINTS: Final = 100
"""At which a continuous range is looked at where its condition is no comparison."""

MOST_GROUPED: Final = 20_000
"""Values of a range that GROUP BY spreads out."""


def is_vague(cell: Cell) -> bool:
    """Whether a cell may stand for several values."""
    return cell.kind != "value" or cell.mark is not None


def spread_attributes(query: Query, aggregate: Aggregate, layout: CellLayout) -> list[str]:
    """Return the columns that need a row for each value that a cell may stand for."""
    condition = condition_of(query, aggregate)
    whole = [key.expression for key in query.keys]
    if aggregate.operand is not None and aggregate.function != "count":
        whole.append(aggregate.operand)
    apart = leaves(condition)
    whole += [leaf for leaf in apart if len(attributes(leaf)) > 1]
    found = {name for expression in whole for name in attributes(expression)}
    found |= {
        column.attribute
        for expression in (*whole, condition)
        for column in columns(expression)
        if column.lookup is not None
    }
    # A continuous range has points only, which leave its bounds open: better apart.
    found |= {
        name
        for name, cell in layout.cells.items()
        if (cell.kind != "range" or cell.is_discrete)
        and sum(name in attributes(leaf) for leaf in apart) > 1
    }
    return [name for name, cell in layout.cells.items() if name in found and is_vague(cell)]


def grouped_ranges(query: Query, layout: CellLayout) -> list[Cell]:
    """Return the columns of ranges that GROUP BY names; they must not be too wide."""
    names = {name for key in query.keys for name in attributes(key.expression)}
    return [layout.cells[name] for name in sorted(names) if layout.cells[name].kind == "range"]


def accuracy_of(expression: Expression, layout: CellLayout) -> str:
    """Say what is known of an expression, record by record."""
    cells = [layout.cells[name] for name in attributes(expression)]
    if not any(map(is_vague, cells)):
        return "exact: the values are published as they are"
    if any(cell.mark is not None for cell in cells):
        return "estimated: a suppressed cell could be anything, as often as the cells kept"
    if any(cell.kind == "range" for cell in cells):
        return "estimated: each value of a range is as likely as the others"
    return "estimated: each value of a set is as likely as the others"


def cell_statement(
    query: Query,
    aggregate: Aggregate,
    layout: CellLayout,
    lookups: Sequence[Lookup] = (),
    literal: Callable[[str], str] | None = None,
) -> Statement:
    """Write the statement that estimates one aggregate of a query.

    It returns the same columns as
    :func:`~kanon_db.counting.bucket_statement.bucket_statement`.

    Raises
    ------
    UnsupportedQueryError
        When GROUP BY names a column of continuous ranges.
    """
    for cell in grouped_ranges(query, layout):
        if not cell.is_discrete:
            error = refusal(
                "GROUP BY does not take a column of continuous ranges",
                hint="ask for each interval by WHERE",
            )
            error.detail = f'column "{cell.column.name}"'
            raise error
    writer = _Writer(query, aggregate, layout, lookups, Constants(literal))
    return Statement(
        with_groups(writer.text(), query.keys, writer.constants), writer.constants.values
    )


class _Writer:
    """Writes one statement. `c0 …` are cells, `m0 …` say of them whether they are suppressed."""

    def __init__(
        self,
        query: Query,
        aggregate: Aggregate,
        layout: CellLayout,
        lookups: Sequence[Lookup],
        constants: Constants,
    ) -> None:
        self.constants = constants
        self._layout = layout
        self._lookups = lookups
        self._function = aggregate.function
        self._weighed = None if aggregate.function == "count" else aggregate.operand
        self._condition = condition_of(query, aggregate)
        self._keys = [key.expression for key in query.keys]
        needed = [self._condition, *self._keys, self._weighed]
        names = {name for part in needed for name in attributes(part)}
        self._names = [name for name in layout.cells if name in names]
        self._spread = spread_attributes(query, aggregate, layout)
        self._grouped = {name for key in self._keys for name in attributes(key)}

    # -- names --------------------------------------------------------------------------------

    def _cell(self, name: str) -> Cell:
        return self._layout.cells[name]

    def _place(self, name: str) -> int:
        return self._names.index(name)

    def _value(self, name: str) -> str:
        """Name a column's value in the rows ``e``, where it is known."""
        return f"e.{'v' if name in self._spread else 'c'}{self._place(name)}"

    def _spell(self, column: Column) -> str:
        if column.lookup is not None:
            return speller("e")(column)
        return self._value(column.name)

    # -- parts --------------------------------------------------------------------------------

    def text(self) -> str:
        """Write the whole statement but for the groups' keys."""
        parts = [f"t AS ({self._types()})"]
        parts += [
            f"kept{self._place(name)} AS ({self._kept(name)})"
            for name in self._spread
            if self._cell(name).mark is not None
        ]
        parts.append(f"e AS ({self._rows()})")
        parts.append(f"p AS ({self._likely()})")
        return f"WITH {', '.join(parts)} {self._totals()}"

    def _types(self) -> str:
        """Count the records of each type."""
        selected = []
        for place, name in enumerate(self._names):
            cell = self._cell(name)
            selected.append(f"c.{cell.column.sql} AS c{place}")
            if cell.mark is not None:
                selected.append(
                    f"substr(c.{self._layout.pattern}, {cell.mark}, 1) = '*' AS m{place}"
                )
        if not selected:
            return f"SELECT count(*)::float8 AS n, 1 AS id FROM {self._layout.relation} AS c"
        grouped = ", ".join(str(i) for i in range(1, len(selected) + 1))
        return (
            "SELECT *, row_number() OVER () AS id FROM (SELECT"
            f" {', '.join(selected)}, count(*)::float8 AS n FROM {self._layout.relation} AS c"
            f" GROUP BY {grouped}) AS types"
        )

    def _kept(self, name: str) -> str:
        """Share out the values of a column among its cells that are not suppressed."""
        place = self._place(name)
        return (
            f"SELECT x.v, sum(t.n * x.w) / sum(sum(t.n * x.w)) OVER () AS w FROM t,"
            f" LATERAL ({self._values(name, 't')}) AS x WHERE NOT t.m{place} GROUP BY x.v"
        )

    def _rows(self) -> str:
        """Give a type a row for each combination of values of the columns that are spread."""
        if not self._spread:
            return "SELECT t.*, 1::float8 AS w FROM t"
        source, weights, values = "t", [], []
        for name in self._spread:
            place = self._place(name)
            inner = self._values(name, "t", is_grouped=name in self._grouped)
            if self._cell(name).mark is not None:
                inner = (
                    f"SELECT v, w, is_open, v AS least, v AS most FROM ({inner}) AS own"
                    f" WHERE NOT t.m{place} UNION ALL"
                    f" SELECT v, w, true, v, v FROM kept{place} WHERE t.m{place}"
                )
            source += f", LATERAL ({inner}) AS x{place}"
            weights.append(f"x{place}.w")
            values.append(
                f"x{place}.v AS v{place}, x{place}.is_open AS is_open{place},"
                f" x{place}.least AS least{place}, x{place}.most AS most{place}"
            )
        return f"SELECT t.*, {', '.join(values)}, {' * '.join(weights)} AS w FROM {source}"

    def _open(self, *expressions: Expression | None) -> str:
        """Write whether the values that are listed for these columns are not all."""
        names = {name for expression in expressions for name in attributes(expression)}
        flags = [f"e.is_open{self._place(name)}" for name in self._spread if name in names]
        return f"({' OR '.join(flags)})" if flags else "false"

    def _values(self, name: str, row: str, *, is_grouped: bool = False) -> str:
        """Write the values that a cell may stand for, with shares; open where some are left out."""
        cell, sql = self._cell(name), f"{row}.c{self._place(name)}"
        type_ = cell.column.type.name
        one = f"SELECT {sql} AS v, 1::float8 AS w, false AS is_open, {sql} AS least, {sql} AS most"
        match cell.kind:
            case "value":
                return one
            case "set":
                elements = f"coalesce({sql}, ARRAY[NULL::text])"
                return (
                    f"SELECT v, 1 / cardinality({elements})::float8 AS w, false AS is_open,"
                    f" v AS least, v AS most FROM unnest({elements}) AS v"
                )
        none = (
            f"SELECT NULL::{type_}, 1::float8, false, NULL::{type_}, NULL::{type_}"
            f" WHERE {sql} IS NULL"
        )
        low, high = f"lower({sql})", f"upper({sql})"
        if cell.is_discrete:
            most = MOST_GROUPED if is_grouped else MOST_VALUES
            width = f"({high} - {low})"
            n = f"least({width}, {most})"
            # Of a range that is too wide, values at equal distances, in the middle of each part.
            at = f"CASE WHEN {width} <= {most} THEN i ELSE (2 * i + 1) * {width} / (2 * {most}) END"
            step = "::int" if type_ == "date" else f"::{type_}"
            return (
                f"SELECT ({low} + ({at}){step})::{type_} AS v, (1 / {n}::float8) AS w,"
                f" {width} > {most} AS is_open, {low} AS least, ({high} - 1)::{type_} AS most"
                f" FROM generate_series(0, {n}::int8 - 1) AS i WHERE {sql} IS NOT NULL"
                f" UNION ALL {none}"
            )
        part = f"((i + 0.5) / {_POINTS})"
        if cell.column.type.category == "moment":
            part += "::float8"
        return (
            f"SELECT {low} + ({high} - {low}) * {part} AS v, 1 / {_POINTS}::float8 AS w,"
            f" true AS is_open, {low} AS least, {high} AS most"
            f" FROM generate_series(0, {_POINTS - 1}) AS i WHERE {low} < {high}"
            f" UNION ALL SELECT {low}, 1::float8, false, {low}, {low} WHERE {low} = {high}"
            f" UNION ALL {none}"
        )

    # -- conditions ---------------------------------------------------------------------------

    def _leaf(self, leaf: Expression, row: str) -> str:
        """Write the likelihood of a leaf as a subquery of one row, for a row of types or values."""
        mentioned = attributes(leaf)
        vague = [
            name for name in mentioned if is_vague(self._cell(name)) and name not in self._spread
        ]
        if not vague:
            return _known(write(leaf, self._spell, self.constants))
        (name,) = vague
        place, cell = self._place(name), self._cell(name)
        inner = self._leaf_of_cell(leaf, cell, f"{row}.c{place}", row)
        if cell.mark is None:
            return inner
        kept = (
            "SELECT sum(t.n * u.t) / sum(t.n) AS t, sum(t.n * u.f) / sum(t.n) AS f FROM t,"
            f" LATERAL ({self._leaf_of_cell(leaf, cell, f't.c{place}', 't')}) AS u"
            f" WHERE NOT t.m{place}"
        )
        # Computed once for all rows: it depends on none.
        return (
            f"SELECT {', '.join(f'own.{column}' for column in COLUMNS)} FROM ({inner}) AS own"
            f" WHERE NOT {row}.m{place} UNION ALL SELECT (SELECT coalesce(t, 0) FROM ({kept})"
            f" AS k), (SELECT coalesce(f, 0) FROM ({kept}) AS k), false, true, false, true"
            f" WHERE {row}.m{place}"
        )

    def _leaf_of_cell(self, leaf: Expression, cell: Cell, sql: str, row: str) -> str:
        """Write the likelihood of a leaf from one cell that is not suppressed."""

        def spelled(value: str) -> str:
            spell: Spelling = lambda _column: value  # noqa: E731  # there is but one column
            return write(leaf, spell, self.constants)

        if cell.kind == "value":
            return _known(spelled(sql))
        if cell.kind == "range" and can_cover(cell, leaf):
            part, whole, any_ = share(cell, sql, covered(leaf, self.constants) or "")
            inside = (
                f"SELECT t, 1 - t AS f, st, pt, NOT pt AS sf, NOT st AS pf"
                f" FROM (SELECT {part} AS t, {whole} AS st, {any_} AS pt) AS s"
                f" WHERE {sql} IS NOT NULL"
            )
            of_null = _known(spelled(f"NULL::{cell.column.type.name}"))
            return f"{inside} UNION ALL SELECT * FROM ({of_null}) AS z WHERE {sql} IS NULL"
        return (
            "SELECT coalesce(sum(w) FILTER (WHERE x), 0) AS t,"
            " coalesce(sum(w) FILTER (WHERE NOT x), 0) AS f,"
            " bool_and(x IS TRUE AND NOT is_open) AS st, bool_or(x IS TRUE OR is_open) AS pt,"
            " bool_and(x IS FALSE AND NOT is_open) AS sf, bool_or(x IS FALSE OR is_open) AS pf"
            f" FROM (SELECT {spelled('y.v')} AS x, y.w, y.is_open"
            f" FROM ({self._values(cell.column.name, row)}) AS y) AS z"
        )

    def _likely(self) -> str:
        """Find each type's likelihood for each group, and the moments of what is summed."""
        found = list(dict.fromkeys(leaves(self._condition)))
        places = {leaf: f"u{i}" for i, leaf in enumerate(found)}
        laterals = "".join(
            f" CROSS JOIN LATERAL ({self._leaf(leaf, 'e')}) AS {alias}"
            for leaf, alias in places.items()
        )
        of_leaf: Callable[[Expression], Likelihood] = lambda leaf: of_subquery(  # noqa: E731
            places[leaf]
        )
        whole = likelihood(self._condition, of_leaf)
        # Whether a range holds a NULL is known, however many of its values are listed.
        opened = [leaf for leaf in found if not self._is_plain_null_test(leaf)]
        source = joined(
            "e", "e", [self._condition, *self._keys, self._weighed], self._lookups,
            {name: self._value(name) for name in self._names},
        ).removeprefix("e AS ")  # fmt: skip
        keys = "".join(
            f", {write(key, self._spell, self.constants)} AS k{i}"
            for i, key in enumerate(self._keys)
        )
        measured = ""
        if self._weighed is not None:
            x = f"({write(self._weighed, self._spell, self.constants)})::float8"
            least, most, is_wild = x, x, self._open(self._weighed)
            match self._weighed:
                case Column(lookup=None, name=name) if name in self._spread:
                    cell, place = self._cell(name), self._place(name)
                    least, most = f"e.least{place}::float8", f"e.most{place}::float8"
                    is_wild = "false" if cell.mark is None else f"e.m{place}"
            measured = f", {x} AS x, {least} AS least_x, {most} AS most_x, {is_wild} AS is_wild"
        rows = (
            f"SELECT e.id, e.n, e.w{keys}, ({whole.true})::float8 AS t,"
            f" {whole.surely} AND NOT {self._open(*opened, *self._keys)} AS st,"
            f" {whole.possibly} OR {self._open(*opened)} AS pt{measured}"
            f" FROM {source}{laterals}"
        )
        names = "".join(f", k{i}" for i in range(len(self._keys)))
        # A group's share of a type is what its rows of values weigh; certain is what all agree on.
        surely = "bool_and(st)"
        if self._keys:
            surely += " AND sum(w) > 0.999999999"
        moments = ""
        if self._weighed is not None:
            can = "FILTER (WHERE pt)"
            moments = (
                f", coalesce(sum(w * t * x), 0) AS mx, coalesce(sum(w * t * x * x), 0) AS mxx,"
                f" coalesce(bool_or(is_wild), false) AS is_wild,"
                f" min(least_x) {can} AS least_x, max(most_x) {can} AS most_x"
            )
        return (
            f"SELECT id, n{names}, sum(w * t) AS m, {surely} AS st,"
            f" bool_or(pt) AS pt{moments} FROM ({rows}) AS rows GROUP BY id, n{names}"
        )

    def _is_plain_null_test(self, leaf: Expression) -> bool:
        match leaf:
            case NullTest(Column(lookup=None, name=name)):
                return self._cell(name).mark is None
            case _:
                return False

    # -- totals -------------------------------------------------------------------------------

    def _totals(self) -> str:
        names = ", ".join(f"k{i}" for i in range(len(self._keys)))
        keys = f"{names}, " if names else ""
        grouped = f" GROUP BY {names} HAVING bool_or(pt)" if names else ""
        if self._weighed is None:
            return (
                f"SELECT {keys}coalesce(sum(n * m), 0)::float8 AS estimate,"
                " sqrt(coalesce(sum(n * greatest(m * (1 - m), 0)), 0))::float8 AS std_error,"
                " coalesce(sum(n) FILTER (WHERE st), 0)::int8 AS lower_bound,"
                f" coalesce(sum(n) FILTER (WHERE pt), 0)::int8 AS upper_bound FROM p{grouped}"
            )
        high = "n * CASE WHEN st THEN most_x ELSE greatest(most_x, 0) END"
        low = "n * CASE WHEN st THEN least_x ELSE least(least_x, 0) END"
        totals = (
            f"SELECT {keys}sum(n * mx) AS t, sum(n * m) AS c, sum(n * (mxx - mx * mx)) AS tt,"
            " sum(n * m * (1 - m)) AS cc, sum(n * mx * (1 - m)) AS tc, bool_or(is_wild) AS is_wild,"
            f" sum({high}) AS t_high, sum({low}) AS t_low,"
            " coalesce(sum(n) FILTER (WHERE st), 0) AS c_low, sum(n) AS c_high,"
            f" min(least_x) AS least_x, max(most_x) AS most_x FROM p WHERE pt"
            f"{f' GROUP BY {names}' if names else ''}"
        )
        if self._function == "sum":
            return (
                f"SELECT {keys}t AS estimate,"
                " CASE WHEN t IS NOT NULL THEN sqrt(greatest(tt, 0)) END AS std_error,"
                " CASE WHEN NOT is_wild THEN t_low END AS lower_bound,"
                f" CASE WHEN NOT is_wild THEN t_high END AS upper_bound FROM ({totals}) AS totals"
            )
        return (
            f"SELECT {keys}t / nullif(c, 0) AS estimate,"
            " sqrt(greatest(tt - 2 * t / nullif(c, 0) * tc + (t / nullif(c, 0)) ^ 2 * cc, 0))"
            " / nullif(c, 0) AS std_error,"
            " CASE WHEN NOT is_wild THEN CASE WHEN c_low = c_high"
            " THEN greatest(least_x, t_low / c_low) ELSE least_x END END AS lower_bound,"
            " CASE WHEN NOT is_wild THEN CASE WHEN c_low = c_high"
            " THEN least(most_x, t_high / c_low) ELSE most_x END END AS upper_bound"
            f" FROM ({totals}) AS totals"
        )


def _known(condition: str) -> str:
    """Write the likelihood of a condition on known values."""
    return (
        "SELECT (x IS TRUE)::int::float8 AS t, (x IS FALSE)::int::float8 AS f, x IS TRUE AS st,"
        f" x IS TRUE AS pt, x IS FALSE AS sf, x IS FALSE AS pf FROM (SELECT {condition} AS x) AS z"
    )
