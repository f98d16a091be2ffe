"""Giving the distinct cells of published rows numbers, in one order whatever that of the rows."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.counting.layout import RowView
from kanon_db.session import Session, fetch_one
from kanon_db.session.settings import grouping_by_hash, roomy
from kanon_db.transfer.columns import ColumnType, Relation, column_types, incomparable
from kanon_db.transfer.labels import fixed_labels, label

Numbers = NDArray[np.uint16]

MOST_CELLS: Final = 1 << 16
"""Of a column: a number takes two bytes."""

_SAMPLE: Final = 10_000
"""In so many rows we look for columns with too many cells."""

_MOST_IN_SAMPLE: Final = 5_000

_FETCHED_BYTES: Final = 1 << 26
"""What is fetched at once."""

_BLOCK: Final = 1 << 18
"""Rows that are written, and read, at a time; a larger class is written as several."""


@dataclass(frozen=True)
class NumberedColumn:
    """A column whose cells are numbered.

    Attributes
    ----------
    name : str
    table : str
        A temporary table ``(number, value, hidden, records)``.
    equal : str
        The operator that compares two cells.
    """

    name: str
    table: str
    equal: str

    def number(self, value: str, alias: str, hidden: str = "") -> str:
        """Write the number of a cell, as :attr:`table`, joined as ``alias``, has it; -1 for none.

        Parameters
        ----------
        value, alias : str
        hidden : str
            Whether the cell is suppressed; empty where none is.
        """
        odd = f"(SELECT o.number FROM {self.table} AS o WHERE {{}} LIMIT 1)"
        null = odd.format("num_nulls(o.value) = 1 AND NOT o.hidden")
        found = f"CASE WHEN num_nulls({value}) = 0 THEN {alias}.number ELSE {null} END"
        if hidden:
            found = f"CASE WHEN {hidden} THEN {odd.format('o.hidden')} ELSE {found} END"
        return f"coalesce({found}, -1)"

    def join(self, value: str, alias: str) -> str:
        """Join :attr:`table` to rows with a cell that is not NULL."""
        return f" LEFT JOIN {self.table} AS {alias} ON {value} {self.equal} {alias}.value"


@dataclass(frozen=True, eq=False)
class NumberedRows:
    """The rows of a view as numbers.

    Attributes
    ----------
    cells : sequence of NumberedColumn
        Of the quasi-identifiers.
    others : sequence of NumberedColumn
    sizes : ndarray of int64, shape (n_classes,)
    of_classes : ndarray of uint16, shape (n_classes, n_cells)
    of_rows : ndarray of uint16, shape (n_rows, n_others)
        Class by class.
    """

    cells: Sequence[NumberedColumn]
    others: Sequence[NumberedColumn]
    sizes: IntArray
    of_classes: Numbers
    of_rows: Numbers

    @property
    def columns(self) -> list[NumberedColumn]:
        """All columns."""
        return [*self.cells, *self.others]

    def blocks(self) -> Iterator[tuple[int, dict[str, bytes]]]:
        """Return the number of each block, and the bytes of each column in it, by its name.

        The sizes of classes are those of the column ``""``.
        """
        class_of, sizes = self._parts()
        ends = np.cumsum(sizes)
        number, first, first_row = 0, 0, 0
        while first < sizes.size:
            last = int(np.searchsorted(ends, first_row + _BLOCK, side="right"))
            last_row = int(ends[last - 1])
            of_classes = self.of_classes[class_of[first:last]]
            written = {"": sizes[first:last].astype("<u4").tobytes()}
            for column, numbers in zip(self.cells, of_classes.T, strict=True):
                written[column.name] = numbers.astype("<u2").tobytes()
            for column, numbers in zip(
                self.others, self.of_rows[first_row:last_row].T, strict=True
            ):
                written[column.name] = numbers.astype("<u2").tobytes()
            yield number, written
            number, first, first_row = number + 1, last, last_row

    def _parts(self) -> tuple[IntArray, IntArray]:
        """Divide classes larger than a block; the class of each part, and its size."""
        n_parts = -(-self.sizes // _BLOCK)
        class_of = np.repeat(np.arange(self.sizes.size), n_parts)
        sizes = np.full(class_of.size, _BLOCK, dtype=np.int64)
        sizes[np.cumsum(n_parts) - 1] = self.sizes - (n_parts - 1) * _BLOCK
        return class_of, sizes

    def drop(self, session: Session) -> None:
        """Drop the temporary tables."""
        for column in self.columns:
            session.fetch(f"DROP TABLE {column.table}")


def number_rows(
    session: Session,
    view: RowView,
    relation: Relation,
    described: Mapping[str, Any],
    wanted: Collection[str] | None = None,
) -> NumberedRows | None:
    """Find the numbers of all cells; None where the server does not find some of them again.

    Parameters
    ----------
    session : Session
    view : RowView
    relation : Relation
        The same.
    described : mapping
        The publication's layout.
    wanted : collection of str, optional
        The columns to number; by default, those with few values in a sample.
    """
    row = fetch_one(session, "SELECT to_regclass($1::text)::oid::text AS oid", view.view)
    types, loose = column_types(session, row["oid"]), _loosely_equal(session, row["oid"])
    others = list(described["others"])
    unequal = incomparable(session, relation, others)

    def is_wanted(name: str) -> bool:
        if wanted is not None:
            return name in wanted
        return _has_few_values(session, view, session.identifier(name))

    found = [
        _numbered_values(
            session, types[name], view.view, session.identifier(name), is_loose=name in loose
        )
        for name in others
        if name not in unequal and is_wanted(name)
    ]
    of_rows = [column for column in found if column is not None]
    classes = session.identifier("pg_temp", f"kanon_classes_{secrets.token_hex(8)}")
    _group(session, view, classes, of_rows)
    cells = []
    for place, cell in enumerate(described["quasi_identifiers"], start=1):
        name = cell["name"]
        if wanted is not None and name not in wanted:
            continue
        hidden = "false" if view.pattern is None else f"substr(v.{{}}, {place}, 1) = '*'"
        if name in loose:  # a class has one of the cells that are equal
            column = _numbered_values(
                session, types[name], view.view, session.identifier(name), "1",
                hidden.format(view.pattern), is_loose=True,
            )  # fmt: skip
        else:
            column = _numbered_values(
                session, types[name], classes, f"c{place}", "size", hidden.format("pattern")
            )
        if column is not None:
            cells.append((place, column))
    read = _read(session, classes, cells, len(of_rows), with_marks=view.pattern is not None)
    session.fetch(f"DROP TABLE {classes}")
    if read is None:
        return None
    return _sorted([column for _, column in cells], of_rows, *read)


_LOOSELY_EQUAL = """
SELECT a.attname::text AS name
FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation
WHERE a.attrelid = $1::text::oid AND a.attnum > 0 AND NOT a.attisdropped
  AND (a.atttypid <> ALL ('{bool,int2,int4,int8,date,timestamp,timestamptz,uuid,text,varchar,'
        'int4range,int8range,daterange,tsrange,tstzrange,text[]}'::regtype[])
       OR NOT coalesce(c.collisdeterministic, true))
"""


def _loosely_equal(session: Session, oid: str) -> set[str]:
    """Find the columns where values that are written differently may be equal, as 1.0 and 1.00."""
    return {row["name"] for row in session.fetch(_LOOSELY_EQUAL, oid)}


def _has_few_values(session: Session, view: RowView, column: str) -> bool:
    """Whether a column has few values in some rows, which are in a random order."""
    row = fetch_one(
        session,
        f"SELECT count(*) AS n FROM (SELECT DISTINCT s.{column}"
        f" FROM (SELECT v.{column} FROM {view.view} AS v LIMIT {_SAMPLE}) AS s) AS d",
    )
    return int(row["n"]) <= _MOST_IN_SAMPLE


def _numbered_values(
    session: Session,
    type_: ColumnType,
    relation: str,
    column: str,
    records: str = "1",
    hidden: str = "false",
    *,
    is_loose: bool = False,
) -> NumberedColumn | None:
    """Give the distinct cells of a column numbers, in the order of their texts; None if too many.

    Parameters
    ----------
    relation : str
        With the alias ``v``.
    column : str
        Quoted.
    records : str
        How many rows each of its rows stands for.
    hidden : str
        Whether the cell is suppressed.
    is_loose : bool
        Whether equal cells may have several texts: the first one stands for them, whatever the
        order of the rows.
    """
    table = session.identifier("pg_temp", f"kanon_cells_{secrets.token_hex(8)}")
    text = f'{label("value")} COLLATE "C"'
    counted = (
        f"SELECT v.{column} AS value, {hidden} AS hidden, sum({records})::int8 AS records"
        f" FROM {relation} AS v GROUP BY 1, 2"
    )
    if is_loose:
        counted = (
            "SELECT DISTINCT ON (hidden, value) value, hidden, sum(records) OVER (PARTITION BY"
            f" hidden, value)::int8 AS records FROM ({counted}, {label(f'v.{column}')}) AS spelled"
            f" ORDER BY hidden, value, {text}"
        )
    with fixed_labels(session), grouping_by_hash(session):
        session.fetch(
            f"CREATE TEMPORARY TABLE {table} ON COMMIT DROP AS SELECT (row_number() OVER"
            f" (ORDER BY hidden, {text}))::int4 - 1 AS number, value, hidden, records"
            f" FROM ({counted} LIMIT {MOST_CELLS + 1}) AS counted"
        )
    row = fetch_one(session, f"SELECT count(*) AS n FROM {table}")
    if row["n"] > MOST_CELLS:
        session.fetch(f"DROP TABLE {table}")
        return None
    return NumberedColumn(type_.name, table, type_.operator(session, "="))


def _group(session: Session, view: RowView, classes: str, others: Sequence[NumberedColumn]) -> None:
    """Write the classes to a temporary table, with the numbers of the other columns."""
    cells = [f"v.{name} AS c{place}" for place, name in enumerate(view.quasi_identifiers, start=1)]
    if view.pattern is not None:
        cells.append(f"v.{view.pattern} AS pattern")
    named = [f"v.{session.identifier(column.name)}" for column in others]
    numbers = [
        f"int4send({column.number(name, f'd{i}')})"
        for i, (name, column) in enumerate(zip(named, others, strict=True))
    ]
    joins = [
        column.join(name, f"d{i}")
        for i, (name, column) in enumerate(zip(named, others, strict=True))
    ]
    gathered = f"string_agg({' || '.join(numbers)}, ''::bytea)" if numbers else "''::bytea"
    with grouping_by_hash(session):
        session.fetch(
            f"CREATE TEMPORARY TABLE {classes} ON COMMIT DROP AS"
            f" SELECT {', '.join(cells)}, count(*)::int4 AS size, {gathered} AS others,"
            f" row_number() OVER () AS at FROM {view.view} AS v{''.join(joins)}"
            f" GROUP BY {', '.join(map(str, range(1, 1 + len(cells))))}"
        )


def _read(
    session: Session,
    classes: str,
    cells: Sequence[tuple[int, NumberedColumn]],
    n_others: int,
    *,
    with_marks: bool,
) -> tuple[NDArray[np.int32], NDArray[np.int32]] | None:
    """Read the classes: the size and the numbers of each, and those of the others of all rows."""
    counted = fetch_one(
        session, f"SELECT count(*) AS n, coalesce(sum(size), 0)::int8 AS n_rows FROM {classes}"
    )
    n_bytes = 4 * (counted["n"] * (1 + len(cells)) + counted["n_rows"] * n_others)
    at_once = max(1, counted["n"] * _FETCHED_BYTES // max(n_bytes, 1))
    numbers, joins = ["int4send(v.size)"], ""
    for place, column in cells:
        value = f"v.c{place}"
        hidden = f"substr(v.pattern, {place}, 1) = '*'" if with_marks else ""
        numbers.append(f"int4send({column.number(value, f'd{place}', hidden)})")
        joins += column.join(value, f"d{place}")
    of_classes = [np.empty((0, 1 + len(cells)), dtype=np.int32)]
    of_rows = [np.empty((0, n_others), dtype=np.int32)]
    with roomy(session):
        for row in session.stream(
            1,
            f"SELECT string_agg({' || '.join(numbers)}, ''::bytea) AS cells,"
            f" string_agg(v.others, ''::bytea) AS others FROM {classes} AS v{joins}"
            f" GROUP BY v.at / {at_once}",
        ):
            of_classes.append(_array(row["cells"], 1 + len(cells)))
            of_rows.append(_array(row["others"], n_others))
            session.heartbeat()
    found = np.concatenate(of_classes), np.concatenate(of_rows)
    return None if any(part.min(initial=0) < 0 for part in found) else found


def _array(numbers: bytes, n_columns: int) -> NDArray[np.int32]:
    found = np.frombuffer(numbers, dtype=">i4").astype(np.int32)
    return found.reshape(-1, n_columns) if n_columns else np.empty((0, 0), dtype=np.int32)


def _sorted(
    cells: Sequence[NumberedColumn],
    others: Sequence[NumberedColumn],
    of_classes: NDArray[np.int32],
    of_rows: NDArray[np.int32],
) -> NumberedRows:
    """Sort the classes by their cells, and the rows of each by their other columns.

    Classes that differ only in columns without numbers become one.
    """
    sizes, numbers = of_classes[:, 0].astype(np.int64), of_classes[:, 1:]
    order = np.lexsort(numbers[:, ::-1].T) if cells else np.arange(sizes.size)
    ordered = numbers[order]
    is_first = np.ones(sizes.size, dtype=np.bool_)
    is_first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    if others:
        rank = np.empty(order.size, dtype=np.int32)
        rank[order] = np.cumsum(is_first, dtype=np.int32)
        of_rows = of_rows[np.lexsort([*of_rows.T[::-1], np.repeat(rank, sizes)])]
    return NumberedRows(
        cells,
        others,
        np.add.reduceat(sizes[order], np.flatnonzero(is_first)),
        ordered[is_first].astype(np.uint16),
        of_rows.astype(np.uint16),
    )
