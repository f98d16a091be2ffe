"""What the estimator knows of a publication: its columns, and where to count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal as OneOf

from kanon_db.counting.expressions import Column

CellKind = OneOf["range", "set", "value"]


@dataclass(frozen=True, slots=True)
class BucketLayout:
    """The published relations of a bucketization; all names are quoted.

    Attributes
    ----------
    quasi_identifiers : mapping of str to Column
    sensitive : Column
    qit, sat : str
        Schema-qualified tables.
    bucket_id, count : str
        Columns of QIT and SAT, and of the SAT.
    size : str
        Expression for the size of the bucket whose number is ``bucket_id``, unqualified.
    n_records, n_buckets : int
    """

    quasi_identifiers: Mapping[str, Column]
    sensitive: Column
    qit: str
    sat: str
    bucket_id: str
    count: str
    size: str
    n_records: int
    n_buckets: int

    @property
    def columns(self) -> dict[str, Column]:
        """All columns that a query may name."""
        return {**self.quasi_identifiers, self.sensitive.name: self.sensitive}


@dataclass(frozen=True, slots=True)
class Cell:
    """A column of a generalized, freeform or suppressed publication.

    Attributes
    ----------
    column : Column
        With the type of the original values.
    kind : {"range", "set", "value"}
        What a cell holds: a range with the original in it, a set of texts with it, or itself.
    is_discrete : bool
        Whether the values of a range can be counted.
    mark : int or None
        Position in the pattern, from 1, of the mark that tells a suppressed cell; None where no
        cell is suppressed.
    """

    column: Column
    kind: CellKind
    is_discrete: bool = True
    mark: int | None = None


@dataclass(frozen=True, slots=True)
class CellLayout:
    """The published relation of a generalized, freeform or suppressed table; names are quoted.

    Attributes
    ----------
    cells : mapping of str to Cell
        Every column that a query may name.
    relation : str
        Schema-qualified.
    pattern : str or None
        The column of marks.
    """

    cells: Mapping[str, Cell]
    relation: str
    pattern: str | None = None

    @property
    def columns(self) -> dict[str, Column]:
        """All columns that a query may name."""
        return {name: cell.column for name, cell in self.cells.items()}


@dataclass(frozen=True, slots=True)
class Lookup:
    """A table joined to a publication, with at most one row for each value of its join column.

    Attributes
    ----------
    relation : str
        Schema-qualified and quoted.
    key : Column
        Its join column.
    on : Column
        The publication's.
    """

    relation: str
    key: Column
    on: Column
