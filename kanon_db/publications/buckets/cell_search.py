"""The settings of cells: what a request asks for, of each of them."""

from __future__ import annotations

from fractions import Fraction

from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.bucketization.setting import BucketSetting
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.proof import Proof
from kanon_db.publications.buckets import methods
from kanon_db.publications.buckets.methods import SensitiveValues
from kanon_db.publications.searching import Searching, run_method


class CellSearch:
    """Finds the setting of each cell by the method that is asked for.

    Parameters
    ----------
    job : Searching
    data : SensitiveValues
        Of the whole table.

    Attributes
    ----------
    pulse : Pulse
        With one time limit for all cells.
    max_bucket_size : int
        The most records in a bucket.
    """

    def __init__(self, job: Searching, data: SensitiveValues) -> None:
        request = job.request
        self._job = job
        self._privacy = data.privacy
        # Anatomy knows l only, and has sizes of its own.
        self._is_anatomy = request.method == "anatomy"
        self._proofs: list[Proof] = []
        self.pulse = job.pulse(
            request.options.time_limit if request.method == "optimal" else float("inf")
        )
        self.max_bucket_size: int = (
            int(data.counts.sum()) if self._is_anatomy else request.max_bucket_size
        )

    def tightened(self, factor: Fraction) -> FPrimePrivacy:
        """Return the thresholds for a factor by which the odds of a guess may have been raised."""
        privacy = self._privacy.tightened(factor)
        return privacy.diverse() if self._is_anatomy else privacy

    def setting(self, counts: IntArray, privacy: FPrimePrivacy) -> BucketSetting:
        """Find the setting of a cell."""
        found = run_method(methods, self._job, SensitiveValues(counts, privacy), self.pulse)
        if found.proof is not None:
            self._proofs.append(found.proof)
        setting: BucketSetting = found.result.setting
        return setting

    @property
    def proof(self) -> Proof | None:
        """How close all cells together are to the optimum, by a method that knows."""
        if not self._proofs:
            return None
        return Proof(
            sum((proof.objective for proof in self._proofs), Fraction(0)),
            sum((proof.lower_bound for proof in self._proofs), Fraction(0)),
        )
