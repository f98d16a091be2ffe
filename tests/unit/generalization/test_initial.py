from __future__ import annotations

import numpy as np

from kanon_db.algorithms.recoding.microdata import Attribute, Microdata, attribute_order, sort_order
from tests.generalization_plain import numeric_table


def test_equal_records_stay_in_order() -> None:
    microdata = numeric_table([[2], [1], [2], [1]])
    assert sort_order(microdata).tolist() == [1, 3, 0, 2]


def test_a_large_weight_makes_an_attribute_come_first() -> None:
    rows = [[0, 3], [8, 4], [4, 3]]
    assert attribute_order(numeric_table(rows)).tolist() == [1, 0]
    weighted = numeric_table(rows, ["9/10", "1/10"])
    # 32/3 / 0.81 and 2/9 / 0.01
    assert attribute_order(weighted).tolist() == [0, 1]


def test_null_does_not_count_in_the_variance_and_comes_last() -> None:
    numbers = np.array([1.0, 2.0, np.nan])
    microdata = Microdata(
        [[2, 0], [0, 2], [1, 0], [0, 1]], (Attribute(3, numbers, 1, 2), Attribute(3))
    )
    assert attribute_order(microdata).tolist() == [0, 1]
    assert sort_order(microdata).tolist() == [3, 1, 2, 0]
