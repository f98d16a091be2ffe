"""What all algorithms stand on: array types, exact numbers, the pulse, proofs, the solver.

Array types are imported from :mod:`.arrays`, and HiGHS, which not every algorithm needs, from
:mod:`.solver`.
"""

from kanon_db.algorithms.ground.distinct import distinct
from kanon_db.algorithms.ground.exact import exact_number, exact_text
from kanon_db.algorithms.ground.proof import Proof
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse

__all__ = ["UNLIMITED", "Proof", "Pulse", "distinct", "exact_number", "exact_text"]
