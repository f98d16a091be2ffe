"""Measures the information loss of generalized, freeform and suppressed rows.

Cells have NCP and GCP ([FF] Section 3, [OB]); suppression has the quality measures of [PG] Section
3.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    BoolArray,
    FloatArray,
    IntArray,
    distinct,
    numbered,
    order_of,
)
from kanon_db.algorithms.recoding.generalized_cells import (
    NumberedCells,
    Ranges,
    Sets,
    cells_of_classes,
)
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError


@dataclass(frozen=True, eq=False)
class FreeformMetrics:
    """How much a freeform view loses."""

    gcp: float  # Global certainty penalty of [FF], in [0, 1]: NCP averaged over all cells
    weighted_loss: float  # Sum of NCP times the attribute's weight over all cells
    loss_by_attribute: FloatArray  # (m,): NCP averaged over the cells of each attribute, in [0, 1]


def measure_freeform(
    microdata: Microdata, cells: Sequence[Ranges | Sets | NumberedCells]
) -> FreeformMetrics:
    """Measure a freeform view.

    **Source:** [FF] Eq. (1) to (3). A numeric cell is relative to the range between its bounds.
    """
    weights = np.array([attribute.weight for attribute in microdata.attributes])
    losses = np.array(
        [
            cell_ncp(attribute, cell).sum()
            for attribute, cell in zip(microdata.attributes, cells, strict=True)
        ]
    )
    n = microdata.n_records
    return FreeformMetrics(
        float(losses.sum()) / max(n * losses.size, 1),
        float(losses @ weights),
        losses / max(n, 1),
    )


def cell_ncp(attribute: Attribute, cells: Ranges | Sets | NumberedCells) -> FloatArray:
    """Find the normalized certainty penalty of each cell of an attribute. Lower is better.

    (u - l) / (U - L) of a range, (count - 1) / (|A| - 1) of a set.
    """
    if isinstance(cells, NumberedCells):
        return cell_ncp(attribute, cells.cells)[cells.numbers]
    if isinstance(cells, Sets):
        return (cells.sizes - 1) / max(attribute.n_values - 1, 1)
    loss = cells.tells_nothing.astype(np.float64)
    if attribute.taxonomy is not None:
        known = ~cells.tells_nothing & (cells.low < attribute.taxonomy.n_values)
        loss[known] = attribute.taxonomy.losses_of(cells.low[known], cells.high[known])
        return loss
    span = attribute.upper - attribute.lower
    if attribute.numbers is not None and span > 0:
        ends = attribute.numbers if attribute.ends is None else attribute.ends
        width = ends[cells.high] - attribute.numbers[cells.low]
        narrow = ~cells.tells_nothing & (width > 0)  # that of NULL is NaN
        loss[narrow] = width[narrow] / span
    return loss


@dataclass(frozen=True, eq=False)
class GeneralizationMetrics:
    """How much a generalized table loses, and how large its equivalence classes are."""

    n_records: int  # Records of the table, suppressed ones included
    n_classes: int  # Equivalence classes
    n_suppressed: int  # Suppressed records
    smallest_class: int  # Records of the smallest class; 0 if there is none
    average_class_size: float  # Published records per class; 0.0 if there is none
    # Sum over the published records of the size of their class, and over suppressed ones of
    # ``n_records``
    discernibility_loss: int
    gcp: float  # Global certainty penalty of [FF], in [0, 1]: NCP averaged over all cells
    weighted_loss: float  # Sum of NCP times the attribute's weight over all cells, [OB] Eq. (34).
    # Weighted loss where each categorical attribute stands for one binary attribute for each of its
    # values, [OB] Section 2.5
    binary_loss: float
    # Global certainty penalty of [OB], in [0, n_records m]: the sum of NCP over all cells, where
    # that of a set is divided by the number of values of the attribute
    ob_gcp: float
    # (m,): NCP of [FF] averaged over the cells of each attribute, in [0, 1]
    loss_by_attribute: FloatArray


def measure_classes(
    microdata: Microdata,
    # (n_records,): equivalence class of each record, numbered from 0; -1 for a suppressed one
    class_of_record: npt.ArrayLike,
    # The result of :func:`.cells_of_classes`, if it is at hand
    cells: Sequence[Ranges | Sets] | None = None,
) -> GeneralizationMetrics:
    """Measure a generalized table.

    **Source:** GCP: [FF] Eq. (1) to (3); [OB] Definitions 8 and 9, Eq. (34). Discernibility, class
    size: Bayardo and Agrawal 2005; LeFevre et al. 2006. A suppressed cell loses 1.
    """
    classes = np.asarray(class_of_record, dtype=np.int64)
    n_records, m = microdata.codes.shape
    if classes.shape != (n_records,) or (classes < -1).any():
        raise InvalidParameterError(
            "each record must have a class, or -1",
            detail=f"classes: shape {classes.shape}, records: {n_records}",
        )
    sizes = np.bincount(classes + 1, minlength=1)
    n_suppressed, occupied = int(sizes[0]), sizes[1:][sizes[1:] > 0]
    weights = np.array([attribute.weight for attribute in microdata.attributes])

    # Loss of all cells of each attribute.
    ncp, ob_ncp, binary = (
        sizes[1:] @ of_classes + n_suppressed for of_classes in class_ncp(microdata, classes, cells)
    )
    return GeneralizationMetrics(
        n_records,
        occupied.size,
        n_suppressed,
        int(occupied.min(initial=n_records)) if occupied.size else 0,
        float(occupied.mean()) if occupied.size else 0.0,
        int((occupied**2).sum()) + n_suppressed * n_records,
        float(ncp.sum()) / max(n_records * m, 1),
        float(ncp @ weights),
        float(binary @ weights),
        float(ob_ncp.sum()),
        ncp / max(n_records, 1),
    )


def class_ncp(
    microdata: Microdata, class_of_record: IntArray, cells: Sequence[Ranges | Sets] | None = None
) -> FloatArray:
    """Find the normalized certainty penalty of each class in each attribute. Lower is better.

    **Source:** [FF] Eq. (2); [OB] Definition 8; [OB] Section 2.5. A set of c of n values loses (c -
    1) / (n - 1); (c - 1) / n; or c / n, but nothing if c = 1. Shape (3, n_classes, m).
    """
    sizes = np.bincount(class_of_record + 1, minlength=1)[1:]
    present = np.flatnonzero(sizes)
    if cells is None:
        dense = np.append(np.cumsum(sizes > 0) - 1, -1)[class_of_record]
        cells = cells_of_classes(microdata, dense)
    result = np.zeros((3, sizes.size, len(microdata.attributes)))
    for j, (attribute, its_cells) in enumerate(zip(microdata.attributes, cells, strict=True)):
        result[:, present, j] = (
            _set_loss(its_cells.sizes, attribute.n_values)
            if isinstance(its_cells, Sets)
            else cell_ncp(attribute, its_cells)
        )
    return result


def _set_loss(counts: IntArray, n: int) -> FloatArray:
    """Return the loss of sets, given their numbers of values out of n, by each normalization."""
    others = np.maximum(counts - 1, 0)
    return np.stack([others / max(n - 1, 1), others / n, np.where(counts > 1, counts, 0) / n])


@dataclass(frozen=True)
class OutputRowTypes:
    """Number and sizes of the distinct rows of a suppressed table."""

    number: int  # How many there are: #h
    average_size: float  # Records per row type: h_avg; 0 for an empty table
    # Fewest and most records of a row type: h_min and h_max; 0 for an empty table
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
        Fully suppressed records are one row type, even if fewer than k.

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
    sizes = np.bincount(_row_types(*_check_codes(codes, suppressed)))
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
    table, cells = _check_codes(codes, suppressed)
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

    Computes :func:`usefulness_loss` a column at a time, for tables that do not fit into memory.
    """

    def __init__(self, row_types: AnyIntArray) -> None:
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


def _check_codes(codes: npt.ArrayLike, suppressed: npt.ArrayLike) -> tuple[IntArray, BoolArray]:
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
