"""The table of combinations of cells, in an order that tells nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray
from kanon_db.catalog.names import free_column_name
from kanon_db.counting.layout import CELLS, RowView
from kanon_db.publications.staging import Staging
from kanon_db.randomness import SecureRandom
from kanon_db.session import Session
from kanon_db.session.settings import joining_by_hash
from kanon_db.transfer.columns import inverse_permutation, number_bytes, with_numbers
from kanon_db.transfer.values import DistinctValues


@dataclass(frozen=True, eq=False)
class CellColumn:
    """The distinct cells of a column, and which of them each combination of cells has.

    Attributes
    ----------
    table, number, cell : str
        A temporary table of the cells, its column with their numbers from 0, and that with the
        cells; quoted.
    n_cells : int
    of_combination : ndarray of int, shape (n_combinations,)
        The number of a cell; -1 where it is suppressed. Of quasi-identifiers, its type holds
        ``n_cells``, too.
    is_spelled_once : bool
        Whether all rows with equal cells have the same text there.
    """

    table: str
    number: str
    cell: str
    n_cells: int
    of_combination: AnyIntArray
    is_spelled_once: bool = True

    @classmethod
    def of_values(
        cls, values: DistinctValues, codes: AnyIntArray, *, is_spelled_once: bool = True
    ) -> Self:
        """Show values themselves."""
        n_values = len(values.labels)
        return cls(values.table, "code", "value", n_values, codes, is_spelled_once)


@dataclass(frozen=True, eq=False)
class CellTable:
    """The table of combinations of cells, in a random order; names are quoted.

    Neither its numbers nor its order tell where the records are from which a combination was made.

    Attributes
    ----------
    table, number : str
    name : str
        The column `number`, not quoted.
    columns : mapping of str to CellColumn
        By the quoted names of the table's columns.
    """

    table: str
    number: str
    name: str
    columns: Mapping[str, CellColumn]
    _numbers: CodeArray

    @classmethod
    def write(
        cls, staging: Staging, view: RowView, columns: Mapping[str, CellColumn],
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
        """How many there are."""
        return self._numbers.size

    def numbers_of(self, combinations: AnyIntArray) -> CodeArray:
        """Return the numbers of combinations; of -1, a number that the table does not have."""
        return np.append(self._numbers, np.int32(self._numbers.size))[combinations]

    def drop(self, session: Session) -> None:
        """Remove the tables of the columns before the transaction ends."""
        tables = {column.table for column in self.columns.values()}
        session.fetch(f"DROP TABLE {', '.join(sorted(tables))}")
