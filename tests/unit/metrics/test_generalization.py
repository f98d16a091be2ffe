from __future__ import annotations

import numpy as np
import pytest

from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
from kanon_db.errors import InvalidParameterError
from kanon_db.metrics.information_loss import measure_classes

AGE = Attribute(4, np.array([20.0, 30.0, 60.0, np.nan]), 20.0, 60.0, weight=2.0)
PLACE = Attribute(3)
TABLE = Microdata([[0, 0], [1, 1], [2, 2], [3, 2], [3, 0], [3, 0]], (AGE, PLACE))


def test_measures_of_classes_and_suppressed_records() -> None:
    measured = measure_classes(TABLE, [0, 0, 1, 1, 1, -1])
    assert (measured.n_records, measured.n_classes, measured.n_suppressed) == (6, 2, 1)
    assert (measured.smallest_class, measured.average_class_size) == (2, 2.5)
    assert measured.discernibility_loss == 2**2 + 3**2 + 6
    # Ages: 2 cells lose 1/4, 3 lose 1; places: 5 lose 1/2; the suppressed record 1 each.
    assert measured.loss_by_attribute.tolist() == pytest.approx([4.5 / 6, 3.5 / 6])
    assert measured.gcp == pytest.approx(8 / 12)
    assert measured.weighted_loss == pytest.approx(2 * 4.5 + 3.5)
    assert measured.ob_gcp == pytest.approx(4.5 + 5 / 3 + 1)
    assert measured.binary_loss == pytest.approx(4.5 + 5 * 2 / 3 + 1)


def test_all_suppressed_and_empty() -> None:
    measured = measure_classes(TABLE, [-1] * 6)
    assert (measured.gcp, measured.n_classes, measured.smallest_class) == (1.0, 0, 0)
    empty = measure_classes(Microdata(np.zeros((0, 2), dtype=np.int32), (AGE, PLACE)), [])
    assert (empty.gcp, empty.discernibility_loss, empty.average_class_size) == (0.0, 0, 0.0)


def test_refusals() -> None:
    with pytest.raises(InvalidParameterError, match="must have a class"):
        measure_classes(TABLE, [0, 0])
