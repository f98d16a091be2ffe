"""Draws buckets whose sets of values, their signatures, stay while people come and go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, CodeArray
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.releases.m_invariance import NEW, renew
from kanon_db.algorithms.releases.m_invariance import MInvariantRelease as Dealt
from kanon_db.catalog.entries import Publication
from kanon_db.publications.kind import Job
from kanon_db.randomness import SecureRandom
from kanon_db.transfer.values import distinct_values, read_codes

FEWEST_BUCKETS: Final = 10
"""Buckets that must share a signature before the ledger keeps who has it: with fewer, the signature
would come close to naming the bucket."""

Labels = tuple[str | None, ...]


@dataclass(frozen=True, eq=False)
class BucketSignatures:
    """The signatures of a bucketization."""

    labels: list[Labels]  # The values of each signature that enough buckets have, as texts
    # (n_records,): the number of each record's signature from 1 on; 0 for another one
    numbers: CodeArray


@dataclass(frozen=True, eq=False)
class DrawnBuckets:
    """Buckets of equal sizes, numbered together, and their signatures."""

    setting: BucketSetting
    slots: CodeArray
    signed: BucketSignatures


def draw_buckets(
    codes: CodeArray, labels: Sequence[str | None], l: int, random: SecureRandom, pulse: Pulse
) -> DrawnBuckets:
    """Draw everybody into buckets that hold l values or more, each once, of few kinds.

    Parameters
    ----------
    codes : ndarray of int32, shape (n_records,)
        The sensitive values; none has more than 1/l of the records.
    labels : sequence of (str or None)
        The values' texts.
    l : int
    random : SecureRandom
    pulse : Pulse
    """
    new = np.full(codes.size, NEW, dtype=np.int64)
    dealt = renew(codes, new, (), l, random, pulse)
    return _numbered(dealt, ~dealt.waits, labels)


@dataclass(frozen=True, eq=False)
class RedrawnRecords:
    """The buckets that :func:`redraw_buckets` found, with the people left in the snapshot."""

    job: Job[Any]
    drawn: DrawnBuckets
    n_stay: int  # See :class:`~kanon_db.publications.kind.RedrawnBuckets`
    n_new: int
    n_left_out: int
    n_waiting: int


def redraw_buckets(job: Job[Any], old: Publication, signature_of: CodeArray) -> RedrawnRecords:
    """Draw people who stay into new buckets of their signatures, and new people into others.

    Parameters
    ----------
    job : Job
        Of everybody who stays or came.
    old : Publication
    signature_of : ndarray of int32, shape (n_records,)
        The number of each record's signature, as in :class:`BucketSignatures`; -1 for new people.
    """
    session = job.session
    values = distinct_values(job.snapshot, job.types[str(job.source.sensitive)])
    codes = read_codes(job.snapshot, [values])[:, 0]
    values.drop()
    labels = list(values.labels)
    known: dict[str | None, int] = {label: code for code, label in enumerate(labels)}
    signatures = []
    for signature in old.layout["signatures"]:
        for label in signature:
            if known.setdefault(label, len(labels)) == len(labels):
                labels.append(label)
        signatures.append(tuple(sorted(known[label] for label in signature)))
    session.step("assigning records to buckets")
    # Whoever has a signature that was not kept cannot be published again.
    l, renewals = int(old.parameters["l"]), int(old.parameters.get("renewals", 0))
    known_of = repr((l, renewals + 1, labels, signatures)).encode()
    job.random.absorb(known_of, np.ascontiguousarray(signature_of).tobytes())
    is_known = signature_of != 0
    position = np.where(signature_of > 0, signature_of - 1, NEW)[is_known]
    dealt = renew(codes[is_known], position, signatures, l, job.random, job.pulse())
    placed = is_known.copy()
    placed[is_known] = ~dealt.waits
    is_new = signature_of == NEW
    drawn = _numbered(dealt, ~dealt.waits, labels)
    places = np.where(placed, np.cumsum(placed) - 1, -1).astype(np.int32)
    job = replace(job, records=job.snapshot.keeping(places))
    return RedrawnRecords(
        job,
        drawn,
        int((placed & ~is_new).sum()),
        int((placed & is_new).sum()),
        int((~placed & ~is_new).sum()),
        int((~placed & is_new).sum()),
    )


def _numbered(dealt: Dealt, placed: BoolArray, labels: Sequence[str | None]) -> DrawnBuckets:
    """Give numbers to buckets, by their sizes, and to signatures, as they were found."""
    widths = np.array([len(signature) for signature in dealt.signatures], dtype=np.int64)
    of_bucket: AnyIntArray = dealt.signature_of_bucket
    sizes = widths[of_bucket]
    slot_of_bucket = np.empty(of_bucket.size, dtype=np.int32)
    slot_of_bucket[np.argsort(sizes, kind="stable")] = np.arange(of_bucket.size, dtype=np.int32)
    buckets = dealt.bucket_of[placed]
    heights = np.bincount(of_bucket, minlength=widths.size)
    is_kept = heights >= FEWEST_BUCKETS
    numbers = np.where(is_kept, np.cumsum(is_kept), 0).astype(np.int32)
    kept = [
        tuple(labels[value] for value in dealt.signatures[number])
        for number in np.flatnonzero(is_kept).tolist()
    ]
    return DrawnBuckets(
        BucketSetting.of(*np.unique(sizes, return_counts=True)),
        slot_of_bucket[buckets],
        BucketSignatures(kept, numbers[of_bucket[buckets]]),
    )
