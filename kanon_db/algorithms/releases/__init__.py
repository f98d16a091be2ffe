"""What several releases of the same people tell together, and refreshing without telling more.

Readers keep copies of all releases, know everybody's quasi-identifiers, and link people by them.
"""

from kanon_db.algorithms.releases.bucket_releases import (
    NOWHERE,
    BucketRelease,
    BucketReleases,
    PossibleValues,
    possible_values,
)
from kanon_db.algorithms.releases.m_invariance import (
    NEW,
    WAITS,
    MInvariantRelease,
    refresh,
    renew,
)
from kanon_db.algorithms.releases.release_measures import (
    Differences,
    ReleaseCheck,
    ReleaseMeasures,
    compare_all,
    differences,
    everybody,
    measure_releases,
)

__all__ = [
    "NEW",
    "NOWHERE",
    "WAITS",
    "BucketRelease",
    "BucketReleases",
    "Differences",
    "MInvariantRelease",
    "PossibleValues",
    "ReleaseCheck",
    "ReleaseMeasures",
    "compare_all",
    "differences",
    "everybody",
    "measure_releases",
    "possible_values",
    "refresh",
    "renew",
]  # fmt: skip
