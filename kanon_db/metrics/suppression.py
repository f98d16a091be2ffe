"""Quality of a table with suppressed cells: usefulness and output row types ([PG] Section 3.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, FloatArray, IntArray
from kanon_db.algorithms.ground.distinct import distinct, numbered
from kanon_db.algorithms.ground.sorting import order_of
from kanon_db.errors import InvalidParameterError


@dataclass(frozen=True)
class OutputRowTypes:
    """Number and sizes of the distinct rows of a suppressed table.

    Parameters
    ----------
    number : int
        How many there are: #h.
    average_size : float
        Records per row type: h_avg; 0 for an empty table.
    smallest_size, largest_size : int
        Fewest and most records of a row type: h_min and h_max; 0 for an empty table.
    """

    number: int
    average_size: float
    smallest_size: int
    largest_size: int


def suppression_count(suppressed: npt.ArrayLike) -> int:
    """Count suppressed cells: s. Lower is better.

    Parameters
    ----------
    suppressed : array_like of bool, shape (n_records, m)
        Which cells are suppressed.

    Returns
    -------
    int

    Notes
    -----
    **Source:** [PG] Section 3.6.
    """
    return int(np.count_nonzero(np.asarray(suppressed, dtype=np.bool_)))


def output_row_types(codes: npt.ArrayLike, suppressed: npt.ArrayLike) -> OutputRowTypes:
    """Measure the output row types of a suppressed table.

    Parameters
    ----------
    codes : array_like of int, shape (n_records, m)
        The original table; equal values of a column have equal codes.
    suppressed : array_like of bool, shape (n_records, m)
        Which cells are suppressed.

    Returns
    -------
    OutputRowTypes
        Fully suppressed records are one row type, be they k or fewer.

    Raises
    ------
    InvalidParameterError
        If the shapes do not match.

    Notes
    -----
    **Source:** [PG] Section 3.3. The paper also calls the least size the degree of anonymity, from
    which fully suppressed left-over records are exempt.

    Examples
    --------
    >>> output_row_types([[1, 2], [1, 3], [2, 2]], [[0, 1], [0, 1], [1, 1]])
    OutputRowTypes(number=2, average_size=1.5, smallest_size=1, largest_size=2)
    """
    sizes = np.bincount(_row_types(*_checked(codes, suppressed)))
    if not sizes.size:
        return OutputRowTypes(0, 0.0, 0, 0)
    return OutputRowTypes(sizes.size, float(sizes.mean()), int(sizes.min()), int(sizes.max()))


def usefulness_loss(
    codes: npt.ArrayLike,
    suppressed: npt.ArrayLike,
    numeric: Mapping[int, npt.ArrayLike] | None = None,
) -> float:
    """Average diversity of the original rows behind an output row type: u.

    Lower is better, despite the paper's name for it, "usefulness": 0 to m. A categorical column
    adds the share of its values that occur among the rows, at least one of them; a numeric column
    adds the share of its range that they span.

    Parameters
    ----------
    codes : array_like of int, shape (n_records, m)
        The original table; equal values of a column have equal codes.
    suppressed : array_like of bool, shape (n_records, m)
        Which cells are suppressed.
    numeric : mapping of int to array_like of float, shape (n_records,), optional
        Values of the columns, by position, to be taken as numeric.

    Returns
    -------
    float
        0.0 for an empty table.

    Raises
    ------
    InvalidParameterError
        If the shapes do not match.

    Notes
    -----
    **Source:** [PG] Definitions 3 to 5. Domains are those observed in the table. A numeric column
    of a single value spans none of its range, where Definition 3 divides by zero.

    Examples
    --------
    >>> usefulness_loss([[1, 2], [1, 3], [2, 2]], [[0, 1], [0, 1], [0, 0]])
    1.25
    """
    table, cells = _checked(codes, suppressed)
    if not table.size:
        return 0.0
    values = {
        position: np.asarray(column, dtype=np.float64)
        for position, column in (numeric or {}).items()
    }
    for position, column in values.items():
        if not 0 <= position < table.shape[1] or column.shape != (table.shape[0],):
            raise InvalidParameterError(
                "a numeric column must hold one value for each record",
                detail=f"column {position}: shape {column.shape}, records: {table.shape[0]}",
            )
    diversity = RowTypeDiversity(_row_types(table, cells))
    total = sum(
        diversity.of_numbers(values[position])
        if position in values
        else diversity.of_categories(column)
        for position, column in enumerate(table.T)
    )
    return total / diversity.n_row_types


class RowTypeDiversity:
    """How diverse the original rows behind output row types are, column by column.

    It has all that :func:`usefulness_loss` adds up, so that a large table need not be there as a
    whole.

    Parameters
    ----------
    row_types : ndarray of int64, shape (n_records,)
        The number of each record's output row type, from 0 without gaps.

    Examples
    --------
    >>> diversity = RowTypeDiversity(np.array([0, 0, 1]))
    >>> diversity.of_categories(np.array([5, 7, 7])), diversity.of_numbers(np.array([2.0, 4, 6]))
    (1.5, 0.5)
    """

    def __init__(self, row_types: IntArray) -> None:
        self.n_row_types = int(row_types.max(initial=-1)) + 1
        self._row_types = row_types
        self._order = order_of(row_types, stable=True)
        sizes = np.bincount(row_types, minlength=self.n_row_types)
        self._starts: IntArray = np.cumsum(sizes) - sizes

    def of_numbers(self, values: FloatArray) -> float:
        """Add up the shares of a numeric column's range that the row types span."""
        if not self.n_row_types:
            return 0.0
        ordered = values[self._order]
        low, high = (end.reduceat(ordered, self._starts) for end in (np.minimum, np.maximum))
        span = float(high.max() - low.min())
        return float((high - low).sum()) / span if span else 0.0

    def of_categories(self, codes: AnyIntArray) -> float:
        """Add up the shares of a categorical column's values that occur in each row type."""
        column = numbered(codes)
        n_values = int(column.max(initial=-1)) + 1
        return distinct(self._row_types * n_values + column).size / max(n_values, 1)


def _checked(codes: npt.ArrayLike, suppressed: npt.ArrayLike) -> tuple[IntArray, BoolArray]:
    table = np.asarray(codes, dtype=np.int64)
    cells = np.asarray(suppressed, dtype=np.bool_)
    if table.ndim != 2 or table.shape != cells.shape:
        raise InvalidParameterError(
            "each cell of the table must be either suppressed or not",
            detail=f"codes: shape {table.shape}, suppressed: shape {cells.shape}",
        )
    return table, cells


def _row_types(table: IntArray, suppressed: BoolArray) -> IntArray:
    """Give each distinct row a number, all suppressed cells of a column being alike."""
    labels = np.zeros(table.shape[0], dtype=np.int64)
    for column, hidden in zip(table.T, suppressed.T, strict=True):
        seen = np.where(hidden, 0, numbered(column) + 1)
        labels = numbered(labels * (seen.max(initial=0) + 1) + seen)
    return labels
