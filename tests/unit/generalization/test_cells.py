"""What covers the records of each class."""

from __future__ import annotations

import numpy as np
import pytest

from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.recoding.generalized_cells import cells_of_classes
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata


@pytest.mark.parametrize("attribute", [Attribute(2), Attribute(2, np.array([0.0, 1.0]), 0.0, 1.0)])
def test_a_cancel_is_heard_between_attributes(attribute: Attribute) -> None:
    beats = []

    def third_time() -> None:
        beats.append(1)
        if len(beats) == 3:
            raise InterruptedError

    table = Microdata([[0] * 5, [1] * 5], (attribute,) * 5)
    with pytest.raises(InterruptedError):
        cells_of_classes(table, np.array([0, 0]), Pulse(heartbeat=third_time))
