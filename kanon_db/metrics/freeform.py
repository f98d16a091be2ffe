"""Information loss of a freeform view: NCP and GCP of cells that differ from record to record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray
from kanon_db.algorithms.recoding.cells import NumberedCells, Ranges, Sets
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata


@dataclass(frozen=True, eq=False)
class FreeformMetrics:
    """How much a freeform view loses.

    Parameters
    ----------
    gcp : float
        Global certainty penalty of [FF], in [0, 1]: NCP averaged over all cells.
    weighted_loss : float
        Sum of NCP times the attribute's weight over all cells.
    loss_by_attribute : ndarray of float64, shape (m,)
        NCP averaged over the cells of each attribute, in [0, 1].
    """

    gcp: float
    weighted_loss: float
    loss_by_attribute: FloatArray


def measure(
    microdata: Microdata, cells: Sequence[Ranges | Sets | NumberedCells]
) -> FreeformMetrics:
    """Measure a freeform view.

    Parameters
    ----------
    microdata : Microdata
        What the view was made from.
    cells : sequence of Ranges, Sets or NumberedCells, length m
        As :func:`~kanon_db.algorithms.freeform.result.cells` makes them, or `numbered_cells`.

    Returns
    -------
    FreeformMetrics

    Notes
    -----
    **Source:** [FF] Eq. (1) to (3). The range that a numeric cell is related to is that of the
    attribute's bounds, which are the data's smallest and largest number unless told otherwise.

    Examples
    --------
    >>> from kanon_db.algorithms.freeform.result import cells
    >>> age = Attribute(3, numbers=np.array([20.0, 30.0, 60.0]), lower=20, upper=60)
    >>> table = Microdata([[0, 0], [1, 1], [2, 0]], (age, Attribute(3)))
    >>> measured = measure(table, cells(table, np.array([[0, 1], [1, 0], [2, 2]])))
    >>> measured.loss_by_attribute.tolist(), measured.gcp
    ([0.16666666666666666, 0.3333333333333333], 0.25)
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

    Parameters
    ----------
    attribute : Attribute
    cells : Ranges, Sets or NumberedCells

    Returns
    -------
    ndarray of float64, shape (n_records,)
        In [0, 1]: (u - l) / (U - L) of a range, (count - 1) / (|A| - 1) of a set.
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
