"""Bucketization: how many buckets of which size, and which records go into them.

Records are gathered by similarity in :mod:`.cell_assignment`, which is not imported here.
"""

from kanon_db.algorithms.bucketization.bucket_assignment import (
    assign_randomly,
    is_valid,
    partition_records,
)
from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.bucketization.multi_size import OptimalSetting, multi_size, optimal
from kanon_db.algorithms.bucketization.privacy import (
    FPrimePrivacy,
    PrivacySpecification,
    check_eligible,
)
from kanon_db.algorithms.bucketization.two_size import anatomy, two_size

__all__ = [
    "BucketSetting", "FPrimePrivacy", "OptimalSetting", "PrivacySpecification", "anatomy",
    "assign_randomly", "check_eligible", "is_valid", "multi_size", "optimal",
    "partition_records", "two_size",
]  # fmt: skip
