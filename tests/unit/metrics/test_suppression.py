from __future__ import annotations

import numpy as np
import pytest

from kanon_db.errors import InvalidParameterError
from kanon_db.metrics.information_loss import (
    OutputRowTypes,
    output_row_types,
    usefulness_loss,
)

ROWS = [[20, 1], [30, 1], [40, 2], [60, 2]]
SUPPRESSED = [[1, 0], [1, 0], [1, 1], [1, 1]]


def test_usefulness_by_hand() -> None:
    # Two row types; the first column has 4 values, and both hold 2; the second has 2, both hold 1.
    assert usefulness_loss(ROWS, SUPPRESSED) == 2 / 4 + 1 / 2
    ages = {0: [row[0] for row in ROWS]}
    assert usefulness_loss(ROWS, SUPPRESSED, ages) == pytest.approx((10 / 40 + 20 / 40) / 2 + 1 / 2)


def test_fully_suppressed_records_are_one_row_type() -> None:
    assert output_row_types(ROWS, np.ones((4, 2))) == OutputRowTypes(1, 4.0, 4, 4)


def test_refusals() -> None:
    with pytest.raises(InvalidParameterError, match="either suppressed or not"):
        output_row_types(ROWS, [[0, 0]])
    with pytest.raises(InvalidParameterError, match="one value for each record") as caught:
        usefulness_loss(ROWS, SUPPRESSED, {0: [1, 2]})
    assert caught.value.detail == "column 0: shape (2,), records: 4"
    with pytest.raises(InvalidParameterError, match="one value for each record"):
        usefulness_loss(ROWS, SUPPRESSED, {2: [1, 2, 3, 4]})
