from __future__ import annotations

import numpy as np
import pytest

from kanon_db.algorithms.generalization.greedy_classes import initial
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata, attribute_order, sort_order
from kanon_db.errors import InfeasibleError, InvalidParameterError
from tests.unit.generalization.exhaustive import numeric_microdata


def test_left_over_records_join_the_last_class() -> None:
    microdata = numeric_microdata([[5], [3], [9], [1], [7]], [0], [9])
    assert initial(microdata, 2).class_of_record.tolist() == [1, 0, 1, 0, 1]


def test_equal_records_stay_in_order() -> None:
    microdata = numeric_microdata([[2], [1], [2], [1]], [0], [9])
    assert sort_order(microdata).tolist() == [1, 3, 0, 2]


def test_the_least_variance_comes_first() -> None:
    microdata = numeric_microdata([[0, 3, 9], [8, 4, 1], [4, 3, 5]], [0] * 3, [9] * 3)
    # The first and the last one have the same variance.
    assert attribute_order(microdata).tolist() == [1, 0, 2]


def test_a_large_weight_makes_an_attribute_come_first() -> None:
    rows = [[0, 3], [8, 4], [4, 3]]
    assert attribute_order(numeric_microdata(rows, [0] * 2, [9] * 2)).tolist() == [1, 0]
    weighted = numeric_microdata(rows, [0] * 2, [9] * 2, ["9/10", "1/10"])
    # 32/3 / 0.81 and 2/9 / 0.01
    assert attribute_order(weighted).tolist() == [0, 1]


def test_null_does_not_count_in_the_variance_and_comes_last() -> None:
    numbers = np.array([1.0, 2.0, np.nan])
    microdata = Microdata(
        [[2, 0], [0, 2], [1, 0], [0, 1]], (Attribute(3, numbers, 1, 2), Attribute(3))
    )
    assert attribute_order(microdata).tolist() == [0, 1]
    assert sort_order(microdata).tolist() == [3, 1, 2, 0]


def test_a_column_of_nulls() -> None:
    nulls = Attribute(1, np.array([np.nan]), 0, 0)
    microdata = Microdata([[0, 1], [0, 0]], (nulls, Attribute(2)))
    assert sort_order(microdata).tolist() == [1, 0]


def test_refusals() -> None:
    microdata = numeric_microdata([[5], [3]], [0], [9])
    with pytest.raises(InvalidParameterError, match="k must be at least 1"):
        initial(microdata, 0)
    with pytest.raises(InfeasibleError, match="must not exceed") as caught:
        initial(microdata, 3)
    assert caught.value.detail == "k = 3, n_records = 2"


def test_no_records() -> None:
    microdata = Microdata(np.zeros((0, 1), dtype=np.int32), (Attribute(1),))
    assert initial(microdata, 5).class_of_record.tolist() == []
