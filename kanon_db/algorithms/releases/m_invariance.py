"""Refreshes Anatomy's buckets under m-invariance (Xiao and Tao 2007).

All releases together then tell no more than each one. :func:`renew` also lets people leave, and
publishes everybody who stays or came anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np

from kanon_db.algorithms.bucketization.bucket_assignment import Permuter
from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, IntArray
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError

NEW: Final = -1
"""The signature of somebody who has never been published."""

WAITS: Final = -1
"""The bucket of somebody who is not in the release."""

Signature = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class MInvariantRelease:
    """A release under m-invariance.

    Parameters
    ----------
    bucket_of : ndarray of int64, shape (n_records,)
        0-based, or :data:`WAITS`.
    signatures : tuple of tuple of int
        The given signatures, then new ones; values ascend.
    signature_of_bucket : ndarray of int64, shape (n_buckets,)
        A bucket holds each value of its signature once.
    counterfeit_bucket, counterfeit_value : ndarray of int64, shape (n_counterfeits,)
        Values in buckets that belong to nobody. How many each bucket has must be published, too.
    """

    bucket_of: IntArray
    signatures: tuple[Signature, ...]
    signature_of_bucket: IntArray
    counterfeit_bucket: IntArray
    counterfeit_value: IntArray

    @property
    def waits(self) -> BoolArray:
        """Which records are not in the release, shape (n_records,)."""
        waits: BoolArray = self.bucket_of == WAITS
        return waits


def refresh(
    values: AnyIntArray,
    signature_of: AnyIntArray,
    signatures: Sequence[Signature],
    m: int,
    random: Permuter,
    *,
    counterfeits: bool = False,
    pulse: Pulse = UNLIMITED,
) -> MInvariantRelease:
    """Place survivors in buckets with their old signatures, and new people in these or new buckets.

    Every bucket holds at least m values, each once, and whoever is published again is in a bucket
    with the same values as before.

    Parameters
    ----------
    values : ndarray of int, shape (n_records,)
        The sensitive value of everybody who is in the source now.
    signature_of : ndarray of int, shape (n_records,)
        The position of the signature under which somebody was last published, or :data:`NEW`.
    signatures : sequence of tuple of int
        Distinct sets of at least m values, ascending.
    m : int
        At least 2.
    random : Permuter
        Who gets into which bucket.
    counterfeits : bool
        Whether values that belong to nobody may fill buckets. Without them, survivors wait if their
        signature has too many people with their value.
    pulse : Pulse

    Returns
    -------
    MInvariantRelease

    Raises
    ------
    InvalidParameterError
        If m is less than 2, a signature is too short or not ascending, or a survivor's value is
        not in the signature: values must not change.

    Notes
    -----
    **Source:** X. Xiao, Y. Tao, *m-invariance: towards privacy preserving re-publication of dynamic
    datasets*, SIGMOD 2007: division, balancing, assignment, split.

    Deviations: buckets keep exact quasi-identifiers, as in Anatomy, so that the split is random
    instead of by similarity. Without counterfeits, balancing uses as many buckets of a signature as
    survivors and new people can fill. New people are m-eligible if no value has more than 1/m of
    them. If those left after balancing are not m-eligible, *all* of them wait: if only those with
    the too frequent value waited, waiting would reveal the value.

    Limits: the bound of 1/m holds for readers who count worlds, but not for readers who reason
    about the algorithm, which places new people where their values are needed. Publications are
    drawn by :func:`renew`, which does not. Somebody who came back must be passed with their old
    signature.

    Examples
    --------
    >>> first = refresh(np.array([0, 1, 2]), np.full(3, NEW), (), 3, np.random.default_rng(0))
    >>> first.bucket_of.tolist(), first.signatures
    ([0, 0, 0], ((0, 1, 2),))
    >>> gone = refresh(np.array([0, 1]), np.array([0, 0]), first.signatures, 3,
    ...                np.random.default_rng(0), counterfeits=True)
    >>> gone.bucket_of.tolist(), gone.counterfeit_value.tolist()
    ([0, 0], [2])
    """
    _check(values, signature_of, signatures, m)
    n_values = int(max(values.max(initial=-1), max((s[-1] for s in signatures), default=-1))) + 1
    order = random.permutation(values.size)
    is_new = signature_of[order] == NEW
    survivors, newcomers = order[~is_new], order[is_new]
    waiting = np.bincount(values[newcomers], minlength=n_values)
    known = {signature: number for number, signature in enumerate(signatures)}
    targets: dict[int, int] = {}
    taken: list[tuple[int, int, int]] = []
    invented: list[tuple[int, int, int]] = []
    having = _survivors_by_value(values[survivors], signature_of[survivors], n_values)
    for number in pulse.watched(having):
        counts = np.array([having[number].get(v, 0) for v in signatures[number]])
        of = np.array(signatures[number])
        if counterfeits:
            targets[number] = int(counts.max())
            takes = _available(waiting, of, counts.max() - counts, m)
            invented += _list(number, of, counts.max() - counts - takes)
        else:
            targets[number], takes = _balance(waiting, of, counts, m)
        waiting[of] -= takes
        taken += _list(number, of, takes)
    kept = dict(targets)
    if _is_eligible(waiting, m):
        for signature, height in _assign(waiting, m, pulse):
            number = known.setdefault(signature, len(known))
            targets[number] = targets.get(number, 0) + height
            taken += [(number, v, height) for v in signature]
    placed = _draw_placed(values, signature_of, survivors, newcomers, kept, taken, n_values)
    return _split(values, placed, invented, targets, tuple(known), random)


def _check(
    values: AnyIntArray, signature_of: AnyIntArray, signatures: Sequence[Signature], m: int
) -> None:
    if m < 2:
        raise InvalidParameterError("m must be at least 2", detail=f"m = {m}")
    bad = sum(len(s) < m or list(s) != sorted(set(s)) for s in signatures)
    if bad or len(set(signatures)) < len(signatures):
        raise InvalidParameterError(
            "signatures must be distinct, and have at least m ascending values",
            detail=f"m = {m}; {bad:,} of {len(signatures):,} signatures are too short or unsorted",
        )
    sets = [frozenset(s) for s in signatures]
    pairs = set(zip(signature_of.tolist(), values.tolist(), strict=True))
    changed = sum(s != NEW and v not in sets[s] for s, v in pairs)
    if changed:
        raise InvalidParameterError(
            "a survivor's value is not in the signature",
            detail=f"{changed:,} combinations of a signature and a value",
            hint="m-invariance needs values that do not change; publish a new series",
        )


def _survivors_by_value(
    values: AnyIntArray, signature_of: AnyIntArray, n_values: int
) -> dict[int, dict[int, int]]:
    keys, counts = np.unique(signature_of.astype(np.int64) * n_values + values, return_counts=True)
    survivors: dict[int, dict[int, int]] = defaultdict(dict)
    for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
        survivors[key // n_values][key % n_values] = count
    return survivors


def _is_eligible(counts: IntArray, m: int) -> bool:
    return int(counts.max(initial=0)) * m <= int(counts.sum())


def _list(number: int, of: IntArray, amounts: IntArray) -> list[tuple[int, int, int]]:
    pairs = zip(of.tolist(), amounts.tolist(), strict=True)
    return [(number, v, amount) for v, amount in pairs if amount]


def _available(waiting: IntArray, of: IntArray, needs: IntArray, m: int) -> IntArray:
    """Take new people with the values of a signature, as long as the others stay m-eligible."""
    left = waiting.copy()
    takes = np.zeros_like(needs)
    for k in np.flatnonzero(needs).tolist():
        v = int(of[k])
        most = min(int(needs[k]), int(left[v]))
        if most and _is_eligible(left, m):
            largest = int(max(left[:v].max(initial=0), left[v + 1 :].max(initial=0)))
            most = max(0, min(most, int(left.sum()) - m * largest))
        takes[k] = most
        left[v] -= most
    return takes


def _balance(waiting: IntArray, of: IntArray, counts: IntArray, m: int) -> tuple[int, IntArray]:
    """Find the most buckets of a signature that survivors and new people can fill."""
    is_eligible = _is_eligible(waiting, m)
    for target in range(int(counts.max()), int(counts.min()), -1):
        needs = np.maximum(target - counts, 0)
        if (needs <= waiting[of]).all():
            left = waiting.copy()
            left[of] -= needs
            if _is_eligible(left, m) or not is_eligible:
                return target, needs
    return int(counts.min()), np.zeros_like(counts)


def _assign(waiting: IntArray, m: int, pulse: Pulse) -> list[tuple[Signature, int]]:
    """Divide m-eligible new people into groups with equally many people of each value.

    Each takes the fewest most frequent values, and leaves the rest m-eligible.
    """
    left = waiting.copy()
    groups: list[tuple[Signature, int]] = []
    while (total := int(left.sum())) > 0:
        pulse.beat()
        order = np.argsort(-left, kind="stable")
        sorted_counts = [*left[order].tolist(), 0]
        n_some = int((left > 0).sum())
        for width in range(m, n_some + 1):
            height = min(
                sorted_counts[width - 1], (total - m * sorted_counts[width]) // width
            )  # fmt: skip
            if width > m:
                height = min(height, (total - m * sorted_counts[0]) // (width - m))
            if height > 0:
                break
        else:
            return groups
        left[order[:width]] -= height
        groups.append((tuple(sorted(order[:width].tolist())), height))
    return groups


def _draw_placed(
    values: AnyIntArray,
    signature_of: AnyIntArray,
    survivors: AnyIntArray,
    newcomers: AnyIntArray,
    most: dict[int, int],
    taken: list[tuple[int, int, int]],
    n_values: int,
) -> tuple[IntArray, IntArray]:
    """Draw which survivors are placed: up to a number of each value of a signature."""
    limit = np.zeros(max([*most, -1]) + 1, dtype=np.int64)
    limit[list(most)] = list(most.values())
    keys = signature_of[survivors].astype(np.int64) * n_values + values[survivors]
    kept = survivors[_ranks(keys) < limit[signature_of[survivors]]]
    by_value = newcomers[np.argsort(values[newcomers], kind="stable")]
    following = np.searchsorted(values[by_value], np.arange(n_values))
    chosen, numbers = [kept], [signature_of[kept]]
    for number, v, amount in taken:
        chosen.append(by_value[following[v] : following[v] + amount])
        numbers.append(np.full(amount, number))
        following[v] += amount
    return np.concatenate(chosen).astype(np.int64), np.concatenate(numbers).astype(np.int64)


def _split(
    values: AnyIntArray,
    placed: tuple[IntArray, IntArray],
    invented: list[tuple[int, int, int]],
    targets: dict[int, int],
    signatures: tuple[Signature, ...],
    random: Permuter,
) -> MInvariantRelease:
    """Deal the people and counterfeits of each signature to its buckets."""
    records, numbers = placed
    fill = [np.array([triple[k] for triple in invented], dtype=np.int64) for k in range(3)]
    amounts = fill[2]
    records = np.concatenate([records, np.full(int(amounts.sum()), -1)])
    numbers = np.concatenate([numbers, np.repeat(fill[0], amounts)])
    their_values = np.concatenate([values[records[records >= 0]], np.repeat(fill[1], amounts)])
    order = random.permutation(records.size)
    records, numbers, their_values = records[order], numbers[order], their_values[order]
    heights = np.zeros(len(signatures), dtype=np.int64)
    heights[list(targets)] = list(targets.values())
    starts = np.cumsum(heights) - heights
    width = int(their_values.max(initial=0)) + 1
    buckets = starts[numbers] + _ranks(numbers * width + their_values)
    bucket_of = np.full(values.size, WAITS, dtype=np.int64)
    is_person = records >= 0
    bucket_of[records[is_person]] = buckets[is_person]
    return MInvariantRelease(
        bucket_of,
        signatures,
        np.repeat(np.arange(len(signatures)), heights),
        buckets[~is_person],
        their_values[~is_person],
    )


def _ranks(keys: IntArray) -> IntArray:
    """Count those with the same key from 0, in the order given."""
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
    ranks = np.empty(keys.size, dtype=np.int64)
    ranks[order] = np.arange(keys.size) - np.repeat(starts, np.diff(starts, append=keys.size))
    return ranks


def renew(
    values: AnyIntArray,
    signature_of: AnyIntArray,
    signatures: Sequence[Signature],
    m: int,
    random: Permuter,
    pulse: Pulse = UNLIMITED,
) -> MInvariantRelease:
    """Place survivors in new buckets with their old signatures, and new people in others.

    A signature places equally many survivors of each of its values: as many as its rarest value
    has. Who is left out is drawn at random. New people are placed among themselves, or all wait if
    a value has more than 1/m of them.

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
    MInvariantRelease
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
    return MInvariantRelease(
        place,
        tuple(known),
        np.concatenate([
            old.signature_of_bucket,
            np.array(numbers, dtype=np.int64)[new.signature_of_bucket],
        ]),
        old.counterfeit_bucket,
        old.counterfeit_value,
    )  # fmt: skip
