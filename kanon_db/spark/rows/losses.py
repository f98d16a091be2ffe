"""What published ranges and sets lose, from the cells themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray
from kanon_db.algorithms.recoding.microdata import Attribute
from kanon_db.spark.environment import in_own_words
from kanon_db.spark.names import quoted
from kanon_db.spark.rows.cells import losses
from kanon_db.spark.rows.columns import QuasiIdentifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, eq=False)
class RowLoss:
    """As :class:`kanon_db.metrics.information_loss.GeneralizationMetrics` has it.

    Attributes
    ----------
    gcp, weighted_loss, ob_gcp : float
    loss_by_attribute : ndarray of float64, shape (m,)
    """

    gcp: float
    weighted_loss: float
    ob_gcp: float
    loss_by_attribute: FloatArray


def measure_rows(
    rows: DataFrame,
    columns: Sequence[QuasiIdentifier],
    attributes: Sequence[Attribute],
    n_records: int,
    left_out: int = 0,
) -> RowLoss:
    """Measure published rows.

    Parameters
    ----------
    rows : DataFrame
        With cells under the names of the quasi-identifiers.
    columns : sequence of QuasiIdentifier
    attributes : sequence of Attribute
    n_records : int
        Of the source.
    left_out : int
        Records without a row, each of whose cells loses 1.
    """
    from pyspark.sql import functions as f

    sums = []
    for column, attribute in zip(columns, attributes, strict=True):
        extent = attribute.upper - attribute.lower
        of_cell = losses(column, f.col(quoted(column.name)), extent)
        sums += [f.coalesce(f.sum(loss.cast("double")), f.lit(0.0)) for loss in of_cell]
    with in_own_words("the loss could not be measured"):
        (row,) = rows.agg(*(one.alias(f"l{i}") for i, one in enumerate(sums))).collect()
    ncp, ob_ncp = np.array(list(row), dtype=np.float64).reshape(-1, 2).T + left_out
    weights = np.array([attribute.weight for attribute in attributes])
    return RowLoss(
        float(ncp.sum()) / max(n_records * ncp.size, 1),
        float(ncp @ weights),
        float(ob_ncp.sum()),
        ncp / max(n_records, 1),
    )
