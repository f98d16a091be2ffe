"""Bucketization: how many buckets of which size, and which records go into them.

Records are gathered by similarity in :mod:`.local_assignment`, which is not imported here: it
brings a compiler along.
"""

from kanon_db.algorithms.bucketization.anatomy import anatomy
from kanon_db.algorithms.bucketization.assignment import is_valid, partition_records
from kanon_db.algorithms.bucketization.multi_size import multi_size
from kanon_db.algorithms.bucketization.optimal import OptimalSetting, optimal
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.bucketization.random_assignment import assign_randomly
from kanon_db.algorithms.bucketization.setting import BucketSetting
from kanon_db.algorithms.bucketization.specification import PrivacySpecification, check_eligible
from kanon_db.algorithms.bucketization.two_size import two_size

__all__ = [
    "BucketSetting", "FPrimePrivacy", "OptimalSetting", "PrivacySpecification", "anatomy",
    "assign_randomly", "check_eligible", "is_valid", "multi_size", "optimal",
    "partition_records", "two_size",
]  # fmt: skip
