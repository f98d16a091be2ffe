"""Numbers the distinct cells of each column, of rows that are written and of a published view.

Columns with too many different ranges have one cell for all of them; each class then has where its
own range begins and ends in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, Final, Self, TypeVar

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    CodeArray,
    IntArray,
    order_of,
    sort_keys,
    taken,
)
from kanon_db.catalog.names import free_column_name
from kanon_db.dataclasses import dataclass
from kanon_db.errors import VerificationError
from kanon_db.publications.codes import Chunk, CodeTables, Store, StoredColumn, StoreWriter
from kanon_db.publications.kind import Job
from kanon_db.publications.relations import StagedRelations
from kanon_db.query.layout import CELLS, RowView
from kanon_db.query.ranges import (
    ANY_END,
    BEGINS,
    DISCRETE_RANGES,
    RANGES,
    holds_anything,
    is_endless,
)
from kanon_db.randomness import SecureRandom
from kanon_db.session import Session, fetch_one
from kanon_db.session.protocol import grouping_by_hash, joining_by_hash
from kanon_db.transfer.allowance import Allowance
from kanon_db.transfer.coded_columns import CodedRecords, count_in_sample, read_columns
from kanon_db.transfer.columns import (
    ColumnType,
    Relation,
    column_types,
    find_relation,
    incomparable,
    inverse_permutation,
    number_bytes,
    with_numbers,
)
from kanon_db.transfer.snapshot import Snapshot, take_snapshot
from kanon_db.transfer.values import (
    CodedColumn,
    DistinctValues,
    RankedColumn,
    number_column,
    number_presence,
    presence,
)


@dataclass(frozen=True, eq=False)
class CellColumn:
    """The distinct cells of a column, and which of them each combination of cells has."""

    # A temporary table of the cells, its column with their numbers from 0, and that with the cells;
    # quoted.
    table: str
    number: str
    cell: str
    n_cells: int
    # Shape (n_combinations,); the number of a cell; -1 where it is suppressed. Its type holds
    # ``n_cells``, too, for quasi-identifiers.
    of_combination: AnyIntArray
    is_spelled_once: bool = True  # whether all rows with equal cells have the same text there

    @classmethod
    def of_values(
        cls, values: DistinctValues, codes: AnyIntArray, *, is_spelled_once: bool = True
    ) -> Self:
        """Show values themselves."""
        n_values = len(values.labels)
        return cls(values.table, "code", "value", n_values, codes, is_spelled_once)

    @classmethod
    def of_ranked(cls, column: RankedColumn) -> Self:
        """Show values that stay on the server."""
        return cls(column.table, "code", "value", column.n_values, column.codes)


@dataclass(frozen=True, eq=False)
class CellTable:
    """The table of combinations of cells, in a random order; names are quoted.

    Neither its numbers nor its order tell where the records are from which a combination was made.
    """

    table: str
    number: str
    name: str  # the column `number`, not quoted
    columns: Mapping[str, CellColumn]  # by the quoted names of the table's columns
    _numbers: CodeArray

    @classmethod
    def write(
        cls, staging: StagedRelations, view: RowView, columns: Mapping[str, CellColumn],
        random: SecureRandom,
    ) -> Self:  # fmt: skip
        """Write the combinations of cells."""
        session, name = staging.session, free_column_name("number", view.columns)
        table, number = (
            session.identifier(staging.schema, staging.name + CELLS),
            session.identifier(name),
        )
        n_combinations = next(iter(columns.values())).of_combination.size
        order = random.permutation(n_combinations)
        bound = [number_bytes(column.of_combination[order] + 1) for column in columns.values()]
        numbered, numbers = with_numbers(
            session,
            f"(SELECT generate_series(0, ${1 + len(bound)}::int4 - 1) AS i)",
            *((parameter, "r.i") for parameter in range(1, 1 + len(bound))),
            widths=[width for _, width in bound],
        )
        named = ", ".join(
            f"p{i}.{column.cell} AS {name}" for i, (name, column) in enumerate(columns.items())
        )
        joins = " ".join(  # what is suppressed has no cell
            f"LEFT JOIN {column.table} AS p{i} ON p{i}.{column.number} = c.{its_number} - 1"
            for i, (column, its_number) in enumerate(zip(columns.values(), numbers, strict=True))
        )
        with joining_by_hash(session):
            staging.fill_table(
                CELLS,
                f"SELECT c.i AS {number}, {named} FROM {numbered} AS c {joins}",
                *(numbers for numbers, _ in bound),
                str(n_combinations),
            )
        # Otherwise the planner does not know that each number has one row, and sorts for a join.
        staging.analyze(CELLS, columns=[name])
        return cls(table, number, name, columns, inverse_permutation(order))

    @property
    def n_combinations(self) -> int:
        """Number of distinct combinations of cells."""
        return self._numbers.size

    def numbers_of(self, combinations: AnyIntArray) -> CodeArray:
        """Return the numbers of combinations; of -1, a number that the table does not have."""
        return np.append(self._numbers, np.int32(self._numbers.size))[combinations]

    def drop(self, session: Session) -> None:
        """Remove the tables of the columns before the transaction ends."""
        tables = {column.table for column in self.columns.values()}
        session.fetch(f"DROP TABLE {', '.join(sorted(tables))}")


_Code = TypeVar("_Code", bound=np.integer)

_MOST_IN_SAMPLE: Final = 5_000
"""Values in a sample of 10,000 records: those of a column with more stay on the server."""


@dataclass(frozen=True, eq=False)
class ShownRows:
    """Published rows, in any order."""

    cells: Mapping[str, CellColumn]  # the quasi-identifiers
    combination_of_row: AnyIntArray  # shape (n_rows,); each combination of cells has a row
    others: Mapping[str, RankedColumn]  # the other columns; one code for each row

    @classmethod
    def of_view(
        cls, session: Session, schema: str, name: str, layout: Mapping[str, Any], room: Allowance
    ) -> Self:
        """Read the rows of a view."""
        relation = Relation(schema, name)
        pattern = layout.get("pattern")
        cells = [str(cell["name"]) for cell in layout["quasi_identifiers"]]
        marks = [] if pattern is None else [pattern]
        others = [str(other) for other in layout["others"]]
        snapshot = take_snapshot(session, relation, [*cells, *marks, *others], room)
        _, oid, _ = find_relation(session, relation.quoted(session))
        coded, ranked = _read(
            snapshot, relation, column_types(session, oid), [*cells, *marks], others
        )
        snapshot.drop()
        keys = sort_keys([coded[column].codes for column in (*cells, *marks)])
        _, first, combination = np.unique(keys, return_index=True, return_inverse=True)
        shown = {}
        for place, column in enumerate(cells):
            of_combination = coded[column].codes[first].astype(np.int32)
            if pattern is not None:
                texts = [str(text) for text in coded[pattern].values.labels]
                stars = np.array([text[place] == "*" for text in texts])
                of_combination[stars[coded[pattern].codes[first]]] = -1
            shown[column] = CellColumn.of_values(
                coded[column].values, of_combination, is_spelled_once=False
            )
        return cls(shown, combination, ranked)


@dataclass(frozen=True, eq=False)
class SourceColumns:
    """The columns of a source whose rows are going to be published."""

    quasi_identifiers: list[CodedColumn]
    others: Mapping[str, RankedColumn]

    @classmethod
    def of(cls, job: Job[Any]) -> Self:
        """Read the columns."""
        names = list(job.source.quasi_identifiers)
        others = [column for column in job.source.published if column not in names]
        if isinstance(job.records, CodedRecords):
            columns = job.records.columns
            ranked = {name: RankedColumn.of(columns[name]) for name in others}
            return cls([columns[name] for name in names], ranked)
        coded, ranked = _read(job.snapshot, job.source.relation, job.types, names, others)
        return cls([coded[name] for name in names], ranked)

    @property
    def values(self) -> list[DistinctValues]:
        """The values of the quasi-identifiers."""
        return [column.values for column in self.quasi_identifiers]

    def codes(self, kind: np.dtype[_Code] | None = None) -> npt.NDArray[_Code]:
        """Put the codes of the quasi-identifiers into one array, shape (n_records, n_qi)."""
        columns = [column.codes for column in self.quasi_identifiers]
        kind = np.result_type(*columns) if kind is None else kind
        codes = np.empty((columns[0].size, len(columns)), dtype=kind)
        for position, column in enumerate(columns):
            codes[:, position] = column
        return codes

    def shown(
        self, cells: Mapping[str, CellColumn], combination_of_record: AnyIntArray
    ) -> ShownRows:
        """Show the records that have a combination of cells, and not -1."""
        published = np.flatnonzero(combination_of_record >= 0)
        others = {
            name: column._replace(codes=column.codes[published])
            for name, column in self.others.items()
        }
        return ShownRows(cells, combination_of_record[published], others)

    def drop(self) -> None:
        """Remove the tables of the other columns before the transaction ends."""
        for column in self.others.values():
            self.quasi_identifiers[0].values.session.fetch(f"DROP TABLE {column.table}")


def _read(
    snapshot: Snapshot,
    relation: Relation,
    types: Mapping[str, ColumnType],
    needed: Sequence[str],
    others: Sequence[str],
) -> tuple[dict[str, CodedColumn], dict[str, RankedColumn]]:
    """Read columns with their values, and others, whose values may stay on the server."""
    unequal = set(incomparable(snapshot.session, relation, others))
    equal = [name for name in others if name not in unequal]
    n_values = count_in_sample(snapshot, [types[name] for name in (*needed, *equal)])
    few = [name for name in equal if n_values[name] <= _MOST_IN_SAMPLE]
    coded = read_columns(snapshot, [types[name] for name in (*needed, *few)], n_values)
    ranked = {}
    for name in others:
        if name in coded:
            ranked[name] = RankedColumn.of(coded[name])
        else:
            ranked[name] = (
                number_presence(snapshot, types[name])
                if name in unequal
                else number_column(snapshot, types[name], in_order=False)
            )
    return coded, ranked


CODES: Final = 2**63
"""Bound on the digits of a row in one number; also the base of the codes of ends."""

ROWS_OF_CHUNK: Final = 1 << 18
"""Rows that are written, and read, at a time; a larger class is written as several.

They are fewer than records of buckets: numbers of combinations of cells take eight bytes each.
"""


@dataclass(frozen=True, eq=False)
class NumberedRows:
    """The rows of a view as numbers."""

    cells: Sequence[str]  # the columns of quasi-identifiers, and the other ones
    others: Sequence[str]
    sizes: IntArray  # shape (n_classes,)
    # Shape (n_classes,); for each quasi-identifier, the numbers of its cells, or their ends as
    # codes; ascending. Classes that differ only in columns without either are merged.
    of_classes: Sequence[AnyIntArray]
    # Shape (n_rows,); for each other column, the numbers of its cells; class by class, ascending.
    of_rows: Sequence[AnyIntArray]
    ends: frozenset[str]  # columns with ends

    @classmethod
    def of(
        cls,
        cells: Sequence[str],
        others: Sequence[str],
        bases: Sequence[int],  # more than the largest digit of each column
        packed: list[IntArray],
        ends: frozenset[str] = frozenset(),  # columns with ends
    ) -> Self | None:
        """Sort rows by the cells, then by the other columns; None where a cell has no number.

        `packed` has the digits of the rows as :func:`packing` groups the columns, each array of
        shape (n_rows,), and is emptied. A digit is a number, or a code of ends, plus 1; or 0.
        """
        groups = packing(bases)
        if len(groups) == 1:
            ordered = [packed.pop()]
            ordered[0].sort()  # which is faster than to sort by their order
        else:
            order = order_of(packed[-1])
            for digits in packed[-2::-1]:
                order = taken(order, order_of(taken(digits, order), stable=True))
            ordered = [taken(packed.pop(0), order) for _ in groups]
        n_rows, n_cells = ordered[0].size, len(cells)
        is_first = np.zeros(n_rows, dtype=np.bool_)
        is_first[:1] = True
        for (start, end), digits in zip(groups, ordered, strict=True):
            if start < n_cells:
                of_cells = digits // prod(bases[max(start, n_cells) : end])
                is_first[1:] |= of_cells[1:] != of_cells[:-1]
        firsts = np.flatnonzero(is_first)
        found: list[AnyIntArray] = []
        for (start, end), digits in zip(groups, ordered, strict=True):
            for column in range(start, end):
                shown = digits[firsts] if column < n_cells else digits
                numbers = shown // prod(bases[column + 1 : end])
                numbers = (numbers % bases[column] if column > start else numbers) - 1
                if numbers.min(initial=0) < 0:
                    return None
                is_code = column < n_cells and cells[column] in ends
                kind = np.dtype(np.int64) if is_code else np.min_scalar_type(bases[column])
                found.append(numbers.astype(kind, copy=False))
        sizes = np.diff(firsts, append=n_rows)
        return cls(cells, others, sizes, found[:n_cells], found[n_cells:], ends)

    def patterns(self, hidden: Sequence[int]) -> tuple[list[str], IntArray]:
        """Return the distinct patterns of suppressed cells, and which of them each class has.

        `hidden` is the number of each quasi-identifier's suppressed cells; -1 if there are none.
        """
        stars = np.zeros(self.sizes.size, dtype=np.int64)
        for place, number in enumerate(hidden):
            if number >= 0:
                stars |= (self.of_classes[place] == number).astype(np.int64) << place
        found, pattern_of_class = np.unique(stars, return_inverse=True)
        texts = [
            "".join("*" if mask >> place & 1 else "." for place in range(len(hidden)))
            for mask in found.tolist()
        ]
        return texts, pattern_of_class

    def chunks(self) -> Iterator[tuple[Chunk, dict[str, AnyIntArray]]]:
        """Return each chunk, and the codes of each column in it, by its name.

        The sizes of classes are those of the column ``""``.
        """
        class_of, sizes = self._parts()
        ends = np.cumsum(sizes)
        number, first, first_row = 0, 0, 0
        while first < sizes.size:
            last = int(np.searchsorted(ends, first_row + ROWS_OF_CHUNK, side="right"))
            last_row = int(ends[last - 1])
            some = class_of[first:last]
            codes: dict[str, AnyIntArray] = {"": sizes[first:last]}
            codes |= {n: own[some] for n, own in zip(self.cells, self.of_classes, strict=True)}
            for name, of_rows in zip(self.others, self.of_rows, strict=True):
                codes[name] = of_rows[first_row:last_row]
            yield Chunk(number, last_row - first_row, (), last - first), codes
            number, first, first_row = number + 1, last, last_row

    def _parts(self) -> tuple[IntArray, IntArray]:
        """Divide classes larger than a chunk; return the class and the size of each part."""
        n_parts = -(-self.sizes // ROWS_OF_CHUNK)
        class_of = np.repeat(np.arange(self.sizes.size), n_parts)
        sizes = np.full(class_of.size, ROWS_OF_CHUNK, dtype=np.int64)
        sizes[np.cumsum(n_parts) - 1] = self.sizes - (n_parts - 1) * ROWS_OF_CHUNK
        return class_of, sizes


def packing(bases: Sequence[int]) -> list[tuple[int, int]]:
    """Group columns so that the digits of each group are those of one number of 63 bits.

    Examples
    --------
    >>> packing([2**20, 2**40, 2**4, 2]), packing([])
    ([(0, 2), (2, 4)], [(0, 0)])
    """
    groups, start = [], 0
    for end in range(1, 1 + len(bases)):
        if prod(bases[start:end]) > CODES:
            groups.append((start, end - 1))
            start = end - 1
    return [*groups, (start, len(bases))]


def packed_rows(
    bases: Sequence[int],  # more than the largest digit of each column
    of_classes: Sequence[AnyIntArray],
    class_of_row: AnyIntArray,  # shape (n_rows,)
    of_rows: Sequence[AnyIntArray],  # shape (n_rows,); the other columns
) -> list[IntArray]:
    """Pack the numbers of each row as digits, each plus 1; see :func:`packing`.

    Columns `of_classes`, each of shape (n_classes,), come first: their numbers follow from a row's
    class.

    Examples
    --------
    >>> packed_rows([5, 9], [np.array([3, 0])], np.array([0, 0, 1]), [np.array([7, 1, 2])])
    [array([44, 38, 12])]
    """
    packed = []
    for start, end in packing(bases):
        n_own = max(min(end, len(of_classes)) - start, 0)
        digits = _appended(
            np.zeros(of_classes[0].size if of_classes else 1, dtype=np.int64),
            of_classes[start : start + n_own],
            bases[start : start + n_own],
        )
        digits = digits[class_of_row] if n_own else np.zeros(class_of_row.size, dtype=np.int64)
        first = start + n_own
        others = of_rows[first - len(of_classes) : end - len(of_classes)] if end > first else []
        packed.append(_appended(digits, others, bases[first:end]))
    return packed


def _appended(digits: IntArray, columns: Sequence[AnyIntArray], bases: Sequence[int]) -> IntArray:
    for column, base in zip(columns, bases, strict=True):
        digits *= min(base, CODES - 1)  # where a base is larger, the digits before are 0
        digits += column
        digits += 1
    return digits


@dataclass(frozen=True, eq=False)
class ClassSizes:
    """The sizes of a view's classes: rows with the same cells and the same pattern."""

    sizes: IntArray  # shape (n_classes,)
    patterns: Sequence[str | None]  # distinct ones; one empty text if nothing is suppressed
    pattern_of_class: IntArray  # shape (n_classes,)
    n_shown: int = 0  # cells of rows that are not NULL, although the pattern suppresses them

    @classmethod
    def of_numbers(cls, rows: NumberedRows, hidden: Sequence[int]) -> Self:
        """Take the sizes of classes from the numbers of all cells, where none of these is shown."""
        return cls(rows.sizes, *rows.patterns(hidden))

    @classmethod
    def counted(cls, session: Session, view: RowView) -> Self:
        """Count the rows of a view."""
        with grouping_by_hash(session):
            found = session.fetch(
                "SELECT pattern, string_agg(int4send(n::int4), ''::bytea) AS sizes,"
                f" sum(n * shown)::int8 AS shown FROM ({class_statement(view)}) AS class"
                " GROUP BY pattern"
            )
        sizes = [np.frombuffer(row["sizes"], dtype=">i4").astype(np.int64) for row in found]
        return cls(
            np.concatenate([np.empty(0, dtype=np.int64), *sizes]),
            [row["pattern"] for row in found],
            np.repeat(np.arange(len(found)), [each.size for each in sizes]),
            sum(row["shown"] for row in found),
        )


def class_statement(view: RowView) -> str:
    """Write the classes of a view: their pattern, rows, and suppressed cells that are not NULL."""
    pattern, names, shown = "''", list(view.quasi_identifiers), ["0"]
    if view.pattern is not None:
        # Unlike IS NULL, num_nulls() distinguishes a NULL from a row of NULLs.
        pattern = view.pattern
        shown = [
            f"CASE WHEN substr({pattern}, {place}, 1) = '*' AND num_nulls({name}) = 0 THEN 1"
            " ELSE 0 END"
            for place, name in enumerate(names, start=1)
        ]
        names.append(pattern)
    return (
        f"SELECT {pattern} AS pattern, count(*) AS n, {' + '.join(shown)} AS shown"
        f" FROM {view.view} GROUP BY {', '.join(names)}"
    )


@dataclass(frozen=True)
class SpecialCells:
    """The numbers of the suppressed cells and of NULL in a column; -1 if it has none."""

    hidden: int
    null: int


class CellNumbers:
    """Finds the numbers of cells: their codes, which the store has already."""

    def __init__(
        self, session: Session, view: RowView, tables: CodeTables, described: Mapping[str, Any]
    ) -> None:
        self.session, self.view, self.tables = session, view, tables
        row = fetch_one(session, "SELECT to_regclass($1::text)::oid::text AS oid", view.view)
        self._oid = row["oid"]
        self._types = column_types(session, self._oid)
        self._places = {
            str(cell["name"]): place
            for place, cell in enumerate(described["quasi_identifiers"], start=1)
        }
        self._others = [str(name) for name in described["others"]]

    def marks(self, names: Sequence[str], alias: str) -> str:
        """Write which of the cells of these columns are suppressed in a row of the view."""
        pattern = f"{alias}.{self.view.pattern}"
        if len(names) == len(self._places):
            return pattern
        return " || ".join(f"substr({pattern}, {self._places[name]}, 1)" for name in names) or "''"

    def type_of(self, name: str) -> str:
        """Return the type of a column of the view."""
        return self._types[name].type_name

    def hidden(self, name: str, alias: str) -> str:
        """Write whether the cell of a row of the view is suppressed."""
        if self.view.pattern is None or name not in self._places:
            return "false"
        return f"substr({alias}.{self.view.pattern}, {self._places[name]}, 1) = '*'"

    def of_cells(self, name: str, cells: CellColumn) -> CodeArray:
        """Return the number of each cell of a column, and of the suppressed ones; -1: none."""
        value, special = f"v.{cells.cell}", self.special(name)
        row = fetch_one(
            self.session,
            f"SELECT string_agg(int4send(v.{cells.number}) || int4send("
            f"{self._number(value, 'd', special, 'false')}), ''::bytea) AS numbers"
            f" FROM {cells.table} AS v{self._join(name, value, 'd')}",
        )
        found = np.full(1 + cells.n_cells, special.hidden, dtype=np.int32)
        of_cell, numbers = np.frombuffer(row["numbers"], dtype=">i4").reshape(-1, 2).T
        found[of_cell] = numbers
        return found

    def special(self, name: str) -> SpecialCells:
        """Look up the numbers of the cells of a column that are not compared."""
        column = self.tables.columns[name]
        row = fetch_one(
            self.session,
            f"SELECT coalesce(min(o.{self.tables.code}), -1) AS null"
            f" FROM {self.tables.of_column(name)} AS o WHERE o.{self.tables.code} <"
            f" {column.n_shown} AND num_nulls(o.{self.session.identifier(name)}) = 1",
        )
        return SpecialCells(column.n_shown if column.has_hidden else -1, int(row["null"]))

    def stored(self, most: int) -> NumberedRows | None:
        """Read the codes of all rows as the store has them; None where these are no codes.

        No more than `most` rows can have been published.
        """
        stored, store = self.tables.columns, Store(self.session, self.tables)
        cells = [name for name in self._places if name in stored]
        others = [name for name in self._others if name in stored]
        if sum(chunk.n_records for chunk in store.chunks) > most:
            return None
        try:
            found = store.all_codes(["", *cells, *others])
        except VerificationError:
            return None
        sizes = found[""].astype(np.int64)
        if any(
            int(of_chunk.sum()) != chunk.n_records
            for chunk, of_chunk in zip(
                store.chunks, np.split(sizes, np.cumsum([c.n_classes for c in store.chunks])),
                strict=False,
            )
        ):  # fmt: skip
            return None
        of_classes = [found[n].view("<i8") if n in self.ends else found[n] for n in cells]
        of_rows = [found[name] for name in others]
        class_of_row = np.repeat(np.arange(sizes.size, dtype=np.int32), sizes)
        bases = [self.base(name) for name in (*cells, *others)]
        packed = packed_rows(bases, of_classes, class_of_row, of_rows)
        return NumberedRows.of(cells, others, bases, packed, self.ends)

    @property
    def ends(self) -> frozenset[str]:
        """The columns whose ranges are known by their ends."""
        return frozenset(name for name, own in self.tables.columns.items() if own.by_ends)

    def base(self, name: str) -> int:
        """Return more than the largest digit of a column."""
        column = self.tables.columns[name]
        return CODES if column.by_ends else 1 + column.n_values

    def looked_up(self, names: Sequence[str]) -> tuple[list[str], str]:
        """Write the digits of the cells of some columns, and the joins that find their numbers.

        A digit is a number plus 1, or 0 for a cell without one; or a code of ends plus 1.
        """
        digits, joins = list[str](), ""
        for i, name in enumerate(names):
            value = f"v.{self.session.identifier(name)}"
            if self.tables.columns[name].by_ends:
                digits.append(f"{self._code(name, value)} + 1")
                continue
            number = self._number(value, f"d{i}", self.special(name), self.hidden(name, "v"))
            digits.append(f"{number} + 1")
            joins += self._join(name, value, f"d{i}")
        return digits, joins

    def _number(self, value: str, alias: str, special: SpecialCells, hidden: str) -> str:
        """Write the number of a cell; -1 if it has none."""
        when = f"WHEN num_nulls({value}) = 0 THEN -1"
        if hidden != "false":
            when += f" WHEN {hidden} THEN {special.hidden}"
        return f"coalesce({alias}.{self.tables.code}, CASE {when} ELSE {special.null} END)"

    def _code(self, name: str, value: str) -> str:
        """Write the ends of a range as a code; -1 if it has none within what holds all."""
        own = self.session.identifier(name)
        low = f"(SELECT lower(o.{own}) FROM {self.tables.of_column(name)} AS o LIMIT 1)"
        begins, ends = (f"({end}({value}) - {low})::int8" for end in ("lower", "upper"))
        is_within = f"{begins} >= 0 AND {begins} < {ends} AND {ends} < {1 << (BEGINS - 1)}"
        return (
            f"CASE WHEN num_nulls({value}) = 1 THEN 0 WHEN {holds_anything(value)} THEN {ANY_END}"
            f" WHEN {is_within} THEN ({begins} << {BEGINS}) | {ends} ELSE -1 END"
        )

    def _join(self, name: str, value: str, alias: str) -> str:
        tables, column = self.tables, self.tables.columns[name]
        stored = f"{alias}.{self.session.identifier(name)}"
        matches = f"{value} {self._types[name].operator(self.session, '=')} {stored}"
        if column.tells_presence:
            matches = f"{presence(value)} = {presence(stored)}"
        return (
            f" LEFT JOIN {tables.values} AS {alias} ON {matches}"
            f" AND {alias}.{tables.column_no} = {column.number}"
            f" AND {alias}.{tables.code} < {column.n_shown}"
        )


# A class stores the ends of its own range, so that a condition is tried once for each end point of
# a column, not once for each range.

_MOST: Final = 1 << (BEGINS - 1)
_LARGEST: Final = 1 << 61

_NULL, _RANGE, _ANYTHING, _ODD = range(4)
_ENDS: Final = [("number", ">i4"), ("kind", ">i4"), ("low", ">i8"), ("high", ">i8")]


def write_ends(
    writer: StoreWriter, type_: str, name: str, cells: CellColumn, records: IntArray
) -> AnyIntArray | None:
    """Write the cell that holds all ranges of a column, which are of this type.

    Returns the code of each range (:class:`~kanon_db.publications.codes.StoredColumn`), shape
    (n_cells + 1,), and -1 for suppressed cells; None if they are no ranges of whole numbers or
    days, or one has no end. `records`, shape (n_cells,), says how many rows have each.
    """
    session = writer.session
    if type_ not in DISCRETE_RANGES:
        return None
    number, value = RANGES[type_].number, RANGES[type_].at
    sql = f"c.{cells.cell}"
    kind = (
        f"CASE WHEN num_nulls({sql}) = 1 THEN {_NULL}"
        f" WHEN {holds_anything(sql)} THEN {_ANYTHING}"
        f" WHEN {is_endless(sql)} OR isempty({sql}) THEN {_ODD}"
        f" ELSE {_RANGE} END"
    )
    low, high = (f"coalesce({number.format(f'{end}({sql})')}, 0)" for end in ("lower", "upper"))
    row = fetch_one(
        session,
        f"SELECT string_agg(int4send(c.{cells.number}) || int4send({kind}) || int8send({low})"
        f" || int8send({high}), ''::bytea) AS ends FROM {cells.table} AS c",
    )
    read = np.frombuffer(row["ends"], dtype=_ENDS)
    found = np.zeros(cells.n_cells, dtype=read.dtype)
    found[read["number"]] = read
    used = records > 0
    there = used & (found["kind"] == _RANGE)
    begins, ends = (found[end][there].astype(np.int64) for end in ("low", "high"))
    if not begins.size or (found["kind"][used] == _ODD).any():
        return None
    least, most = int(begins.min()), int(ends.max())
    if max(-least, most) > _LARGEST or most - least >= _MOST:
        return None
    of_all = ", ".join(value.format(f"${n}::int8") for n in (1, 2))
    column = StoredColumn(name, len(writer.columns), 1, of_classes=True, by_ends=True)
    values = f"SELECT 0 AS code, {type_}({of_all}) AS value"
    writer.write_values(column, values, str(least), str(most))
    codes = np.full(1 + cells.n_cells, -1, dtype=np.int64)
    codes[:-1][used] = np.where(found["kind"][used] == _ANYTHING, ANY_END, 0)
    codes[:-1][there] = (begins - least) << BEGINS | (ends - least)
    return codes


def count_loose_ends(session: Session, tables: CodeTables, rows: NumberedRows) -> int:
    """Count the columns whose cell of all ranges is not the smallest one, or is not there."""
    differing = 0
    for name, codes in zip(rows.cells, rows.of_classes, strict=True):
        if name not in rows.ends:
            continue
        sql = f"t.{session.identifier(name)}"
        (found,) = session.fetch(
            f"SELECT min(upper({sql}) - lower({sql}))::int8 AS n FROM {tables.of_column(name)} AS t"
        )
        ends = codes & ((1 << BEGINS) - 1)
        there = codes[ends > 0]
        differing += int((there >> BEGINS).min()) != 0 or int(ends.max()) != found["n"]
    return differing
