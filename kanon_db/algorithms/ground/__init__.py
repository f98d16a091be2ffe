"""What all algorithms are built on: arrays, exact numbers, interruptible computation, the solver.

Array types are imported from :mod:`.arrays`, and HiGHS, which not every algorithm needs, from
:mod:`.solver`.
"""

from kanon_db.algorithms.ground.arrays import distinct
from kanon_db.algorithms.ground.computation import UNLIMITED, Proof, Pulse
from kanon_db.algorithms.ground.exact_numbers import exact_number, exact_text

__all__ = ["UNLIMITED", "Proof", "Pulse", "distinct", "exact_number", "exact_text"]
