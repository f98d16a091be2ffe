"""A table that people join and leave, published again under m-invariance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kanon_db.algorithms.bucketization.random_assignment import Permuter
from kanon_db.algorithms.ground.arrays import AnyIntArray
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.releases.m_invariance import NEW, WAITS, Refreshed, Signature, refresh


def renew(
    values: AnyIntArray,
    signature_of: AnyIntArray,
    signatures: Sequence[Signature],
    m: int,
    random: Permuter,
    pulse: Pulse = UNLIMITED,
) -> Refreshed:
    """Place survivors in new buckets with their old signatures, and new people in others.

    Of the survivors of a signature, as many are placed with each of its values as there are of the
    value that has the fewest; who is left out is drawn at random. New people are placed among
    themselves, or all wait if a value has more than 1/m of them.

    Parameters
    ----------
    values : ndarray of int, shape (n_records,)
        The sensitive value of everybody who is in the source now.
    signature_of : ndarray of int, shape (n_records,)
        The position of the signature under which somebody was published, or :data:`NEW`. Whoever
        was published and left out later must not be among them.
    signatures : sequence of tuple of int
        Distinct sets of at least m values, ascending.
    m : int
        At least 2.
    random : Permuter
        Who gets into which bucket, and who is left out.
    pulse : Pulse

    Returns
    -------
    Refreshed
        Without counterfeits. Survivors whose value is not in their signature are left out: it
        changed.

    Notes
    -----
    **Source:** X. Xiao, Y. Tao, *m-invariance: towards privacy preserving re-publication of dynamic
    datasets*, SIGMOD 2007. Deviation: neither new people nor counterfeits take the places of those
    who left, so more survivors are left out, and the bound holds for more readers.

    **Theorem.** A reader of all releases knows the method and, for each release, whose records are
    in the source and who is in which bucket. All tables with the same histogram are equally likely
    to them before. Then everybody who was ever published under a signature S has each value of S
    with probability 1/n, where n is the number of values of S, so at most 1/m; if values do not
    change, who is in the source does not depend on them, and new people never had to wait.

    *Proof.* Let p permute the values of S, and pD be the table D in which it is applied to
    everybody who was ever published under S. Each bucket of S holds every value of S once, when it
    is published first: so pD has the histogram of D, and so do those who came with each release.
    Each release is as likely for pD as for D, given those before it: which groups of new people
    there are follows from their histogram; who of them is in which bucket is uniform given that;
    how many survivors of S are placed is the least of their numbers of each value of S, which is
    symmetric in these; and the draws of survivors and their buckets are uniform. (Survivors who are
    not given must be chosen by what is published only.) Buckets of S look
    the same for both, and others are the same. So all releases together are as likely for pD as for
    D, and a person under S has every value of S equally often in the tables that are left.

    That new people wait because of their own values tells something of these: they are all in the
    source, and nobody of them is published. That is not covered. Nor is that somebody knows a
    value: it may be that of all who left a signature, as the number of those left out tells.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> first = renew(np.array([0, 1, 0, 1]), np.full(4, NEW), (), 2, random)
    >>> first.signatures, first.signature_of_bucket.tolist()
    (((0, 1),), [0, 0])
    >>> gone = renew(np.array([0, 0, 1]), np.zeros(3, dtype=int), first.signatures, 2, random)
    >>> int(gone.waits.sum()), bool(gone.waits[2])
    (1, False)
    """
    place = np.full(values.size, WAITS, dtype=np.int64)
    width = 1 + max(int(values.max(initial=0)), max((s[-1] for s in signatures), default=0))
    held = [number * width + v for number, s in enumerate(signatures) for v in s]
    stays = np.isin(signature_of.astype(np.int64) * width + values, held)
    stays &= signature_of != NEW
    old = refresh(values[stays], signature_of[stays], signatures, m, random, pulse=pulse)
    place[stays] = old.bucket_of
    comes = signature_of == NEW
    new = refresh(values[comes], signature_of[comes], (), m, random, pulse=pulse)
    place[comes] = np.where(new.waits, WAITS, new.bucket_of + old.signature_of_bucket.size)
    known = {signature: number for number, signature in enumerate(signatures)}
    numbers = [known.setdefault(signature, len(known)) for signature in new.signatures]
    return Refreshed(
        place,
        tuple(known),
        np.concatenate([
            old.signature_of_bucket,
            np.array(numbers, dtype=np.int64)[new.signature_of_bucket],
        ]),
        old.counterfeit_bucket,
        old.counterfeit_value,
    )  # fmt: skip
