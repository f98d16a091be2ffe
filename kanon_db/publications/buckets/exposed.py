"""Whom a bucketization does not protect: certain values, and values without a bound."""

from __future__ import annotations

from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.counting.layout import BucketTables
from kanon_db.errors import InvalidParameterError
from kanon_db.session import Session, fetch_one


def share_unbounded(privacy: FPrimePrivacy, counts: IntArray) -> float:
    """Return the share of the records whose value has a threshold of 1.

    Raises
    ------
    InvalidParameterError
        When that is so for every record: such a specification protects nobody.
    """
    unbounded = sum(
        count
        for count, threshold in zip(counts.tolist(), privacy.thresholds, strict=True)
        if threshold >= 1
    )
    if unbounded == counts.sum():
        raise InvalidParameterError(
            "the privacy specification bounds no value",
            detail=f"the threshold is 1 for all {len(counts)} values, so it protects nobody",
            hint="lower theta, or add a general rule such as default or l",
        )
    return float(unbounded / counts.sum())


def count_certain(session: Session, tables: BucketTables) -> int:
    """Count the people whose bucket has no other value than theirs, from the SAT alone."""
    row = fetch_one(
        session,
        f"SELECT coalesce(sum({tables.count}), 0)::int8 AS n FROM {tables.sat}"
        f" WHERE {tables.count} = {tables.size(tables.bucket_id)}",
    )
    return int(row["n"])
