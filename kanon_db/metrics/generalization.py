"""Information loss of a generalized table: NCP and GCP, and measures of its classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.algorithms.recoding.cells import Ranges, Sets, cells_of_classes
from kanon_db.algorithms.recoding.microdata import Microdata
from kanon_db.errors import InvalidParameterError
from kanon_db.metrics.freeform import cell_ncp


@dataclass(frozen=True, eq=False)
class GeneralizationMetrics:
    """How much a generalized table loses, and how large its equivalence classes are.

    Parameters
    ----------
    n_records : int
        Records of the table, suppressed ones included.
    n_classes : int
        Equivalence classes.
    n_suppressed : int
        Suppressed records.
    smallest_class : int
        Records of the smallest class; 0 if there is none.
    average_class_size : float
        Published records per class; 0.0 if there is none.
    discernibility_loss : int
        Sum over the published records of the size of their class, and over suppressed ones of
        ``n_records``.
    gcp : float
        Global certainty penalty of [FF], in [0, 1]: NCP averaged over all cells.
    weighted_loss : float
        Sum of NCP times the attribute's weight over all cells, [OB] Eq. (34).
    ob_gcp : float
        Global certainty penalty of [OB], in [0, n_records m]: the sum of NCP over all cells, where
        that of a set is divided by the number of values of the attribute.
    binary_loss : float
        Sum of the loss over all cells, where each categorical attribute stands for one binary
        attribute for each of its values, [OB] Section 2.5.
    loss_by_attribute : ndarray of float64, shape (m,)
        NCP of [FF] averaged over the cells of each attribute, in [0, 1].
    """

    n_records: int
    n_classes: int
    n_suppressed: int
    smallest_class: int
    average_class_size: float
    discernibility_loss: int
    gcp: float
    weighted_loss: float
    ob_gcp: float
    binary_loss: float
    loss_by_attribute: FloatArray


def measure(
    microdata: Microdata,
    class_of_record: npt.ArrayLike,
    cells: Sequence[Ranges | Sets] | None = None,
) -> GeneralizationMetrics:
    """Measure a generalized table.

    Parameters
    ----------
    microdata : Microdata
    class_of_record : array_like of int, shape (n_records,)
        Equivalence class of each record, numbered from 0; -1 for a suppressed one.
    cells : sequence of Ranges or Sets, optional
        What :func:`.cells_of_classes` has found, if it was asked.

    Returns
    -------
    GeneralizationMetrics

    Raises
    ------
    InvalidParameterError
        If there is not one class for each record.

    Notes
    -----
    **Source:** GCP: [FF] Eq. (1) to (3); [OB] Definitions 8 and 9, Eq. (34). Discernibility and
    class size: Bayardo and Agrawal 2005; LeFevre, DeWitt and Ramakrishnan 2006.

    A cell of a suppressed record loses 1 by every measure.

    Examples
    --------
    >>> from kanon_db.algorithms.recoding.microdata import Attribute
    >>> age = Attribute(3, numbers=np.array([20.0, 30.0, 60.0]), lower=20, upper=60)
    >>> table = Microdata([[0, 0], [1, 1], [2, 0], [2, 0]], (age, Attribute(3)))
    >>> measured = measure(table, [0, 0, 1, 1])
    >>> measured.gcp, measured.ob_gcp, measured.loss_by_attribute.tolist()
    (0.1875, 1.1666666666666665, [0.125, 0.25])
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
        float(ob_ncp.sum()),
        float(binary.sum()),
        ncp / max(n_records, 1),
    )


def class_ncp(
    microdata: Microdata, class_of_record: IntArray, cells: Sequence[Ranges | Sets] | None = None
) -> FloatArray:
    """Find the normalized certainty penalty of each class in each attribute. Lower is better.

    Parameters
    ----------
    microdata : Microdata
    class_of_record : ndarray of int64, shape (n_records,)
        Equivalence class of each record, numbered from 0; -1 for a suppressed one.
    cells : sequence of Ranges or Sets, optional
        What :func:`.cells_of_classes` has found, if it was asked.

    Returns
    -------
    ndarray of float64, shape (3, n_classes, m)
        By each of three normalizations: a set of c of the n values of a categorical attribute
        loses (c - 1) / (n - 1), in [0, 1]; (c - 1) / n; or c / n, but nothing if c = 1. Without
        weights; 0 for a number that no record has as its class.

    Notes
    -----
    **Source:** [FF] Eq. (2); [OB] Definition 8; [OB] Section 2.5, n binary attributes of weight
    1 / n each, of which those of the values in the set are not kept.

    A numeric class loses (max - min) / (U - L), and 1 if it holds NULL and numbers. NULL is one of
    the values of a categorical attribute.
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
    """Loss of sets of so many of n values, by each normalization."""
    others = np.maximum(counts - 1, 0)
    return np.stack([others / max(n - 1, 1), others / n, np.where(counts > 1, counts, 0) / n])
