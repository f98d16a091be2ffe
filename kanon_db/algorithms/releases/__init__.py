"""What several releases of the same people tell together, and refreshing without telling more.

Readers keep copies of all releases, know everybody's quasi-identifiers, and link people by them.
"""

from kanon_db.algorithms.releases.candidates import Candidates, candidates_of
from kanon_db.algorithms.releases.differencing import (
    Differences,
    compare_all,
    differences,
    everybody,
    virtual_releases,
)
from kanon_db.algorithms.releases.forced import Forced, force
from kanon_db.algorithms.releases.m_invariance import NEW, WAITS, Refreshed, is_m_unique, refresh
from kanon_db.algorithms.releases.measure import Check, Measured, measure
from kanon_db.algorithms.releases.placements import NOWHERE, Release, Releases
from kanon_db.algorithms.releases.renewal import renew
from kanon_db.algorithms.releases.worlds import Posterior, count_worlds

__all__ = [
    "NEW", "NOWHERE", "WAITS", "Candidates", "Check", "Differences", "Forced", "Measured",
    "Posterior", "Refreshed", "Release", "Releases", "candidates_of", "compare_all",
    "count_worlds", "differences", "everybody", "force", "is_m_unique", "measure", "refresh",
    "renew", "virtual_releases",
]  # fmt: skip
