"""Bucketization: how many buckets of which size, and which records go into them.

Records are gathered by similarity in :mod:`.cell_assignment`; :mod:`.multi_size` needs a solver.
Neither is imported here.
"""

from kanon_db.algorithms.bucketization.bucket_assignment import (
    assign_randomly,
    is_valid,
    partition_records,
)
from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.bucketization.privacy import (
    FPrimePrivacy,
    PrivacySpecification,
    check_eligible,
)
from kanon_db.algorithms.bucketization.two_size import anatomy, two_size

__all__ = [
    "BucketSetting", "FPrimePrivacy", "PrivacySpecification", "anatomy", "assign_randomly",
    "check_eligible", "is_valid", "partition_records", "two_size",
]  # fmt: skip
