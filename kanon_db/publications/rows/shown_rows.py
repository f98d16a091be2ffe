"""Rows by the distinct cells of each of their columns: what the numbers of cells are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import AnyIntArray
from kanon_db.algorithms.ground.sort_keys import sort_keys
from kanon_db.publications.job import Job
from kanon_db.publications.rows.cell_table import CellColumn
from kanon_db.session import Session
from kanon_db.transfer.coded import CodedRecords
from kanon_db.transfer.columns import (
    ColumnType,
    Relation,
    column_types,
    find_relation,
    incomparable,
)
from kanon_db.transfer.few_values import count_in_sample, read_columns
from kanon_db.transfer.room import Room
from kanon_db.transfer.snapshot import Snapshot, take_snapshot
from kanon_db.transfer.values import CodedColumn, DistinctValues

_Code = TypeVar("_Code", bound=np.integer)

MOST_IN_SAMPLE: Final = 5_000
"""Values in a sample of records: a column that is no quasi-identifier, with more, has no numbers.

The sample has 10,000 records.
"""


@dataclass(frozen=True, eq=False)
class ShownRows:
    """Published rows, in any order.

    Attributes
    ----------
    cells : mapping of str to CellColumn
        The quasi-identifiers.
    combination_of_row : ndarray of int, shape (n_rows,)
        Each combination of cells has a row.
    others : mapping of str to CodedColumn
        The other columns with few values, and their codes in each row.
    """

    cells: Mapping[str, CellColumn]
    combination_of_row: AnyIntArray
    others: Mapping[str, CodedColumn]

    @classmethod
    def of_view(
        cls, session: Session, schema: str, name: str, layout: Mapping[str, Any], room: Room
    ) -> Self:
        """Read the rows of a view."""
        relation = Relation(schema, name)
        pattern = layout.get("pattern")
        cells = [str(cell["name"]) for cell in layout["quasi_identifiers"]]
        marks = [] if pattern is None else [pattern]
        others = _comparable(session, relation, layout["others"])
        snapshot = take_snapshot(session, relation, [*cells, *marks, *others], room)
        _, oid, _ = find_relation(session, relation.quoted(session))
        coded = _read(snapshot, column_types(session, oid), [*cells, *marks], others)
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
        return cls(shown, combination, {c: coded[c] for c in others if c in coded})


@dataclass(frozen=True, eq=False)
class SourceColumns:
    """The columns of a source whose rows are going to be published.

    Attributes
    ----------
    quasi_identifiers : list of CodedColumn
    others : mapping of str to CodedColumn
        The other columns with few values.
    """

    quasi_identifiers: list[CodedColumn]
    others: Mapping[str, CodedColumn]

    @classmethod
    def of(cls, job: Job[Any]) -> Self:
        """Read the columns."""
        names = list(job.source.quasi_identifiers)
        others = [column for column in job.source.published if column not in names]
        others = _comparable(job.session, job.source.relation, others)
        coded = _coded(job, names, others)
        return cls(
            [coded[name] for name in names],
            {name: coded[name] for name in others if name in coded},
        )

    @property
    def values(self) -> list[DistinctValues]:
        """The values of the quasi-identifiers."""
        return [column.values for column in self.quasi_identifiers]

    def codes(self, kind: np.dtype[_Code] | None = None) -> npt.NDArray[_Code]:
        """Put the codes of the quasi-identifiers into one array, shape (n_records, n_qi).

        Parameters
        ----------
        kind : dtype, optional
            By default, that of the fewest bytes that holds all of them.
        """
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
            name: CodedColumn(column.values, column.codes[published])
            for name, column in self.others.items()
        }
        return ShownRows(cells, combination_of_record[published], others)

    def drop(self) -> None:
        """Remove the tables of the other columns before the transaction ends."""
        for column in self.others.values():
            column.values.drop()


def _comparable(session: Session, relation: Relation, columns: Sequence[str]) -> list[str]:
    unequal = set(incomparable(session, relation, columns))
    return [column for column in columns if column not in unequal]


def _coded(
    job: Job[Any], needed: Sequence[str], others: Sequence[str]
) -> Mapping[str, CodedColumn]:
    """Return columns, and others if they have few values."""
    if not isinstance(job.records, CodedRecords):
        return _read(job.snapshot, job.types, needed, others)
    columns = job.records.columns
    few = [name for name in others if len(columns[name].values.labels) <= MOST_IN_SAMPLE]
    return {name: columns[name] for name in (*needed, *few)}


def _read(
    snapshot: Snapshot,
    types: Mapping[str, ColumnType],
    needed: Sequence[str],
    others: Sequence[str],
) -> dict[str, CodedColumn]:
    """Read columns, and others if they have few values."""
    n_values = count_in_sample(snapshot, [types[name] for name in (*needed, *others)])
    few = [name for name in others if n_values[name] <= MOST_IN_SAMPLE]
    return read_columns(snapshot, [types[name] for name in (*needed, *few)], n_values)
