"""What the sensitive values of a bucketization are protected by, and what it is called in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.bucketization.specification import check_eligible
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.publications.buckets.request import BucketRequest
from kanon_db.publications.cautions import Warns
from kanon_db.publications.exposure import share_unbounded
from kanon_db.publications.waiting import CLAUSE


@dataclass(frozen=True)
class Protection:
    """How frequent each sensitive value may be in a bucket.

    Attributes
    ----------
    privacy : FPrimePrivacy
        The thresholds.
    l : int or None
        The diversity of buckets that have one.
    unbounded : float
        The share of the records whose value has a threshold of 1.
    """

    privacy: FPrimePrivacy
    l: int | None
    unbounded: float

    @classmethod
    def of(
        cls, request: BucketRequest, labels: Sequence[str | None], counts: IntArray
    ) -> Protection:
        """Find the thresholds of the values that a source has.

        Raises
        ------
        IneligibleError
            When no bucketization can keep them.
        InvalidParameterError
            When they bound nothing.
        """
        check_eligible(request.privacy, labels, counts)
        privacy = request.privacy.thresholds(labels, counts)
        unbounded = share_unbounded(privacy, counts)
        is_diverse = request.method == "anatomy" or request.assignment == "m_invariant"
        return cls(privacy, privacy.corresponding_l() if is_diverse else None, unbounded)

    def guarantee(self, request: BucketRequest, certain: int, session: Warns) -> str:
        """Say what is guaranteed, and warn of the people for whom it is not.

        Parameters
        ----------
        request : BucketRequest
        certain : int
            People whose bucket has no other value than theirs.
        session : Warns
        """
        unbounded = self.unbounded if self.l is None else 0.0
        if unbounded:
            session.warn(f"the threshold is 1 for {unbounded:.1%} of the records: no bound")
        if certain:
            session.warn(f"the value of {certain} people is certain: their buckets have no other")
        return _guarantee(request, self.l, certain, unbounded)


_NOT_COVERED: Final = f"; what correlations with other columns tell is not covered{CLAUSE}"


def _guarantee(request: BucketRequest, l: int | None, certain: int, unbounded: float) -> str:
    if l is not None:
        over_time = ""
        if request.assignment == "m_invariant":
            over_time = (
                ", also from all its states together while people come and go, unless values"
                " change; whoever knows one person's value can learn those of many who left"
            )
        return (
            f"{l}-diversity: no person's sensitive value can be inferred with a probability"
            f" above 1/{l}{over_time}{_NOT_COVERED}"
        )
    guarantee = (
        "F'-privacy: no person's sensitive value can be inferred with a probability above the"
        f" threshold of that value ({request.privacy.describe()})"
    )
    if request.assignment == "local":
        guarantee += ", by readers who do not know how records were put into buckets"
    guarantee += _NOT_COVERED
    if unbounded:
        guarantee += f"; the threshold is 1 for {unbounded:.1%} of the records"
    if certain:
        guarantee += f"; the value of {certain} people is certain"
    return guarantee
