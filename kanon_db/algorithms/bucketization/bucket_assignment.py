"""Assigns records to buckets at random, by record partition and round robin ([GB] Section 4).

How many records of each value go to the buckets of each size is a transportation problem. Limits on
the occurrences of a value in a bucket come in as an array: floor(f'_i S_j) for F'-privacy, 1 for
Anatomy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from itertools import pairwise
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.bucketization.buckets import (
    BucketSetting,
    fit_margins,
    next_state,
    record_counts,
)
from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
    narrow,
    order_of,
    taken,
)
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse, kernel
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InfeasibleError, InvalidParameterError


@dataclass(frozen=True, eq=False)
class Transport:
    """Amounts sent from supplies to demands."""

    # (m, q): within the capacities. If nothing is stranded, rows add up to the supplies, and
    # columns to no more than the demands.
    amounts: IntArray
    # (m,): supplies that are, together, more than the demands can take from them: the sum over j of
    # min{demand_j, sum of their capacities to j} is less than their sum. None if the problem is
    # solved.
    stranded: BoolArray


def transport(
    supplies: IntArray,  # (m,)
    # (q,): their sum is that of the supplies, or else not all of them are met exactly
    demands: IntArray,
    # (m, q): most that each supply may send to each demand; all sums must stay below 2**63
    capacities: IntArray,
    *,
    pulse: Pulse = UNLIMITED,
) -> Transport:
    """Send all supplies to demands within the capacities, spread evenly, or prove it infeasible.

    **Source:** Gale 1957; augmenting paths: Dinic 1970. About q³ paths at most, each in O(m q).
    """
    # A dummy demand of 0 takes what a supply cannot send anywhere.
    capacity = np.vstack([capacities.T, np.maximum(supplies - capacities.sum(axis=1), 0)])
    demands = np.append(demands, 0)
    amount = _in_proportion(supplies, capacity)
    room = capacity - amount
    excess = amount.sum(axis=1) - demands
    has, free = amount > 0, room > 0
    passes = np.empty((demands.size, demands.size), dtype=np.bool_)
    for j in range(demands.size):
        pulse.beat()
        passes[j] = (has[j] & free).any(axis=1)
    while True:
        pulse.beat()
        path, reached = _shortest_path(excess, passes)
        if not path:
            break
        steps = list(pairwise(path))
        passable = [int(np.minimum(amount[j], room[k]).sum()) for j, k in steps]
        passed = min(int(excess[path[0]]), -int(excess[path[-1]]), *passable)
        # Backward, so that each step uses the capacity that the step after it has freed.
        for j, k in reversed(steps):
            shares = in_shares(passed, np.minimum(amount[j], room[k]))
            amount[j] -= shares
            room[j] += shares
            amount[k] += shares
            room[k] -= shares
        excess[path[0]] -= passed
        excess[path[-1]] += passed
        has[path], free[path] = amount[path] > 0, room[path] > 0
        for j in path:
            passes[j] = (has[j] & free).any(axis=1)
            passes[:, j] = (has & free[j]).any(axis=1)
    stranded = np.zeros(supplies.size, dtype=np.bool_)
    if (excess > 0).any():
        # Stranded supplies saturate their capacities to the demands that are out of reach.
        stranded = supplies > capacity[:-1][~reached[:-1]].sum(axis=0)
    return Transport(np.ascontiguousarray(amount[:-1].T), stranded)


def in_shares(total: int, weights: IntArray) -> IntArray:
    """Divide a whole number in proportion to weights.

    Each share is within 1 of its proportion, and at most its weight.
    """
    return _in_proportion(np.array([total]), weights[:, np.newaxis])[:, 0]


def _in_proportion(totals: IntArray, weights: IntArray) -> IntArray:
    """Divide each total in proportion to its column of weights, which adds up to no less."""
    # Rounding the running total, not each share, makes the shares add up.
    reached = np.cumsum(weights, axis=0)
    if reached.size == 0:
        return reached
    largest = int(reached[-1].max()) * int(totals.max())
    integer = np.int64 if largest < 2**63 else object
    divisor = np.maximum(reached[-1], 1).astype(integer)
    shares: IntArray = (reached.astype(integer) * totals.astype(integer) // divisor).astype(
        np.int64
    )
    shares[1:] -= shares[:-1].copy()
    return shares


def _shortest_path(excess: IntArray, passes: BoolArray) -> tuple[list[int], BoolArray]:
    """Find a shortest path from surplus to deficit, and the demands that can be reached."""
    reached = excess > 0
    came_from = np.full(excess.size, -1)
    front = np.flatnonzero(reached)
    while front.size:
        ends = front[excess[front] < 0]
        if ends.size:
            path = [int(ends[0])]
            while came_from[path[0]] >= 0:
                path.insert(0, int(came_from[path[0]]))
            return path, reached
        ahead = np.flatnonzero(~reached)
        steps = passes[np.ix_(front, ahead)]
        entered = steps.any(axis=0)
        came_from[ahead[entered]] = front[steps[:, entered].argmax(axis=0)]
        front = ahead[entered]
        reached[front] = True
    return [], reached


def is_valid(counts: npt.ArrayLike, limits: npt.ArrayLike, setting: BucketSetting) -> bool:
    """Tell whether the records fit a bucket setting within the limits.

    Parameters
    ----------
    counts : array_like of int, shape (m,)
        Records of each sensitive value: o_i.
    limits : array_like of int, shape (m, q)
        Most occurrences of each value in one bucket of each size.
    setting : BucketSetting
        Any number of sizes.

    Returns
    -------
    bool
        True if and only if all records can be assigned so that each bucket is full and holds no
        value more often than its limit.

    Raises
    ------
    InvalidParameterError
        If the shapes do not match.

    Notes
    -----
    **Source:** [GB] Theorem 1; Lemma 2 for one size. Its conditions are not sufficient for three
    sizes or more: there it takes a solution of the transportation problem of Section 6.1, see
    :func:`~kanon_db.algorithms.bucketization.bucket_assignment.transport`.

    Examples
    --------
    >>> is_valid([2, 3], [[1], [2]], BucketSetting.of([5], [1]))
    False
    >>> is_valid([2, 3], [[0, 1], [1, 2]], BucketSetting.of([1, 2], [1, 2]))
    True
    """
    checked, available = _available(counts, limits, setting)
    if not _satisfies_theorem_1(checked, available, setting):
        return False
    return setting.sizes.size <= 2 or not _transport(checked, available, setting).stranded.any()


def partition_records(
    counts: npt.ArrayLike, limits: npt.ArrayLike, setting: BucketSetting
) -> IntArray:
    """Decide how many records of each value go to the buckets of each size.

    Within the result, round-robin keeps every bucket within the limits.

    Parameters
    ----------
    counts : array_like of int, shape (m,)
        Records of each sensitive value: o_i.
    limits : array_like of int, shape (m, q)
        Most occurrences of each value in one bucket of each size.
    setting : BucketSetting
        Any number of sizes.

    Returns
    -------
    ndarray of int64, shape (m, q)
        Rows add up to ``counts``, columns to the capacity of the buckets of each size; no entry
        exceeds limit times number of buckets.

    Raises
    ------
    InfeasibleError
        If the setting is not valid: see :func:`is_valid`.
    InvalidParameterError
        If the shapes do not match.

    Notes
    -----
    **Source:** [GB] Algorithm 1 for one or two sizes, Section 6.1 for more.

    Deviations: a record may move to the second size only while o_i2 < min(u_i2, o_i); line 5
    forgets that the value must still have a record to move. The paper moves *any* such record;
    here the moves are spread over the values in proportion to the room each has left (each value
    within one record of its share), so that no value is exhausted before the others. For three
    sizes or more, the paper takes the partition from the solution of its program; here it follows
    from the setting alone, by a transportation problem whose solution is spread likewise.

    Examples
    --------
    >>> partition_records([2, 3], [[0, 1], [1, 2]], BucketSetting.of([1, 2], [1, 2])).tolist()
    [[0, 2], [1, 2]]
    """
    checked, available = _available(counts, limits, setting)
    valid = _satisfies_theorem_1(checked, available, setting)
    if valid and setting.sizes.size > 2:
        transported = _transport(checked, available, setting)
        if not transported.stranded.any():
            return transported.amounts
        valid = False
    if not valid:
        raise InfeasibleError(
            "the bucket setting is not valid",
            detail=f"{setting.n_buckets:,} buckets for {setting.n_records:,} records, table of "
            f"{int(checked.sum()):,} records and {checked.size} sensitive values",
            hint="search for a setting with these counts and limits",
        )
    if setting.sizes.size == 0:
        return available
    first = available[:, 0]
    excess = int(first.sum()) - int(setting.sizes[0] * setting.counts[0])
    if excess > 0:
        first -= in_shares(excess, available[:, 1] - (checked - first))
    return np.column_stack([first, checked - first])[:, : setting.sizes.size]


_RUN: Final = 2**17
"""Records whose buckets are worked out at once."""


@dataclass(frozen=True, eq=False)
class Allotment:
    """Which bucket each record goes to, by its value and its rank among the value's records.

    Rank r goes to ``first_bucket + (start + r - first_rank) % n_buckets`` of its value's entry.
    """

    # (e,): position of the value in the counts; ascending, at most one entry per value and size
    value: IntArray
    first_rank: IntArray  # (e,): 0-based rank of the entry's first record; ascending within a value
    n_records: IntArray  # (e,): number of records of the entry, at least 1
    first_bucket: IntArray  # (e,): 0-based number of the first bucket of the entry's size
    n_buckets: IntArray  # (e,): number of buckets of the entry's size
    start: IntArray  # (e,): where round-robin resumes, in [0, n_buckets)

    @property
    def arrays(self) -> list[IntArray]:
        """All that it consists of."""
        return [getattr(self, field.name) for field in fields(self)]

    def bucket_of(self, values: npt.ArrayLike, ranks: npt.ArrayLike) -> IntArray:
        """Find the buckets of records."""
        value = np.asarray(values, dtype=np.int64)
        rank = np.asarray(ranks, dtype=np.int64)
        # Entries cover the records without gaps when these are numbered value by value.
        ends = np.cumsum(self.n_records)
        offset = np.concatenate(([0], ends))[np.searchsorted(self.value, value)]
        entry = np.searchsorted(ends, offset + rank, side="right")
        known = (rank >= 0) & (entry < ends.size)
        known[known] = self.value[entry[known]] == value[known]
        if not known.all():
            raise InvalidParameterError(
                "a record is not part of the allotment",
                detail=f"{int((~known).sum())} of {known.size} records",
            )
        steps = self.start[entry] + rank - self.first_rank[entry]
        buckets: IntArray = self.first_bucket[entry] + steps % self.n_buckets[entry]
        return buckets

    def runs(self) -> Iterator[IntArray]:
        """Give the buckets of all records, value by value, each in the order of ranks."""
        ends = np.cumsum(self.n_records)
        n_records = int(ends[-1]) if ends.size else 0
        for start in range(0, n_records, _RUN):  # so that none takes much more memory
            end = min(start + _RUN, n_records)
            first, last = np.searchsorted(ends, [start, end - 1], side="right").tolist()
            numbers = np.arange(first, last + 1)
            begin = ends[numbers] - self.n_records[numbers]
            inside = np.minimum(ends[numbers], end) - np.maximum(begin, start)
            entry = np.repeat(numbers, inside)
            steps = np.arange(start, end) + (self.start - ends + self.n_records)[entry]
            yield self.first_bucket[entry] + steps % self.n_buckets[entry]

    def deal_to(self, order: AnyIntArray) -> CodeArray:
        """Deal the buckets to records."""
        buckets = np.empty(order.size, dtype=np.int32)
        dealt = 0
        for run in self.runs():
            buckets[order[dealt : dealt + run.size]] = run
            dealt += run.size
        return buckets


def round_robin(partition: npt.ArrayLike, setting: BucketSetting) -> Allotment:
    """Deal the records of each value in turn to the buckets of each size.

    **Source:** [GB] 4.1; the pointer goes on from value to value, else bucket sizes would differ.
    """
    dealt = np.asarray(partition, dtype=np.int64)
    capacities = setting.sizes * setting.counts
    if (
        dealt.shape[1:] != capacities.shape
        or (dealt < 0).any()
        or (dealt.sum(axis=0) != capacities).any()
    ):
        raise InvalidParameterError(
            "the record partition does not fill the buckets",
            detail=f"partition: shape {dealt.shape}, bucket sizes: {setting.sizes.size}",
        )
    value, size_class = np.nonzero(dealt)
    dealt_before = np.cumsum(dealt, axis=0) - dealt
    ranked_before = np.cumsum(dealt, axis=1) - dealt
    n_buckets = setting.counts[size_class]
    return Allotment(
        value=value.astype(np.int64),
        first_rank=ranked_before[value, size_class],
        n_records=dealt[value, size_class],
        first_bucket=(np.cumsum(setting.counts) - setting.counts)[size_class],
        n_buckets=n_buckets,
        start=dealt_before[value, size_class] % n_buckets,
    )


def _available(
    counts: npt.ArrayLike, limits: npt.ArrayLike, setting: BucketSetting
) -> tuple[IntArray, IntArray]:
    """Compute o_i, and a_ij = min{limit_ij b_j, o_i} of [GB] Definition 5."""
    checked, _ = record_counts(counts)
    per_bucket = np.asarray(limits, dtype=np.int64)
    if per_bucket.shape != (checked.size, setting.sizes.size):
        raise InvalidParameterError(
            "limits must hold one number for each sensitive value and bucket size",
            detail=f"limits: shape {per_bucket.shape}, sensitive values: {checked.size}, "
            f"bucket sizes: {setting.sizes.size}",
        )
    # A bucket cannot hold more of a value than its size, whatever the limit: the product then
    # stays within the capacity of the buckets.
    per_bucket = np.minimum(per_bucket, setting.sizes)
    return checked, np.minimum(per_bucket * setting.counts, checked[:, np.newaxis])


def _satisfies_theorem_1(counts: IntArray, available: IntArray, setting: BucketSetting) -> bool:
    """Privacy (3), fill (4) and capacity (5) constraints of [GB] Theorem 1; necessary for any q."""
    return bool(
        (available.sum(axis=1) >= counts).all()
        and (available.sum(axis=0) >= setting.sizes * setting.counts).all()
        and int(counts.sum()) == setting.n_records
    )


def _transport(counts: IntArray, available: IntArray, setting: BucketSetting) -> Transport:
    """Send the records to the bucket sizes."""
    return transport(counts, setting.sizes * setting.counts, available)


class Permuter(Protocol):
    """A source of random permutations, such as ``numpy.random.Generator``."""

    def permutation(self, n: int, /) -> AnyIntArray:
        """Return a uniformly random order of ``0 … n-1``."""


def assign_randomly(
    codes: CodeArray,
    counts: IntArray,
    limits: IntArray,
    setting: BucketSetting,
    random: Permuter,
) -> CodeArray:
    """Draw a bucket for each record.

    Given which values each bucket holds, every way to match the records with the values is
    equally likely: that is what makes ``count / size`` the probability of a value.

    Parameters
    ----------
    codes : ndarray of int32, shape (n_records,)
        Position of each record's sensitive value in `counts`.
    counts : ndarray of int64, shape (m,)
        Records of each sensitive value: o_i.
    limits : ndarray of int64, shape (m, q)
        Most occurrences of each value in one bucket of each size.
    setting : BucketSetting
        A valid setting.
    random : Permuter
        Source of randomness.

    Returns
    -------
    ndarray of int32, shape (n_records,)
        0-based bucket numbers; buckets of smaller sizes come first.

    Raises
    ------
    InfeasibleError
        If the setting is not valid.

    Notes
    -----
    **Source:** [GB] Section 4: record partition (Algorithm 1), then round-robin assignment. "Any"
    records are moved and dealt there; here the records of each value come in random order.
    """
    allotment = round_robin(partition_records(counts, limits, setting), setting)
    return draw_allotted(codes, allotment, random)


def draw_allotted(codes: CodeArray, allotment: Allotment, random: Permuter) -> CodeArray:
    """Draw a bucket for each record, as many of each value as are allotted to a bucket."""
    # A stable sort by value leaves the records of each value in their random order.
    order = random.permutation(codes.size)
    # numpy sorts 16 bits by their digits
    order = taken(order, order_of(taken(narrow(codes), order), stable=True))
    return allotment.deal_to(order)


def numbers_by_size(sizes: IntArray) -> CodeArray:
    """Return the number of each bucket by size, from 0; those of one size stay in their order."""
    numbers = np.empty(sizes.size, dtype=np.int32)
    numbers[np.argsort(sizes, kind="stable")] = np.arange(sizes.size, dtype=np.int32)
    return numbers


_WHOLE: Final = 1 << 24
"""What the chances of a record add up to, and of a value in a bucket to this times its number."""


def draw_matchings(
    weights: FloatArray,
    starts: IntArray,
    firsts: IntArray,
    counts: IntArray,
    caps: FloatArray,
    random: np.random.Generator,
    pulse: Pulse = UNLIMITED,
) -> IntArray:
    """Draw a value for each record, so that each bucket uses its values as often as it has them.

    Parameters
    ----------
    weights : ndarray of float64
        Bucket by bucket, a row for each record with a weight for each value of the bucket.
    starts : ndarray of int64, shape (n_buckets + 1,)
        Where the records of each bucket begin, and where the last ones end.
    firsts : ndarray of int64, shape (n_buckets + 1,)
        Likewise of the values in `counts`, `caps` and columns of `weights`.
    counts : ndarray of int64, shape (n_pairs,)
        How often each bucket has each of its values.
    caps : ndarray of float64, shape (n_pairs,)
        The most that a weight of the value may be; at least its share of the bucket.
    random : numpy.random.Generator
    pulse : Pulse

    Returns
    -------
    ndarray of int64, shape (n_records,)
        The place of each record's value in `counts`.

    Notes
    -----
    Weights become chances by fitting them to their margins, in whole numbers: those of a record add
    up to 1, those of a value to its number, and none is above the cap by as much as 2**-24. Where
    fitting leaves a gap, it is closed by shortest augmenting paths. One matching is then drawn that
    has each value of each record with exactly its chance.

    **Source:** R. Gandhi, S. Khuller, S. Parthasarathy, A. Srinivasan, *Dependent rounding and its
    applications to approximation algorithms*, JACM 2006; deviation: along cycles only, as all
    margins are whole.

    Examples
    --------
    One bucket of two records, of which the first one has the first value more often:

    >>> one = np.array([0, 2])
    >>> args = np.array([0.75, 0.25, 0.25, 0.75]), one, one, np.array([1, 1]), np.ones(2)
    >>> drawn = [draw_matchings(*args, np.random.default_rng(i)).tolist() for i in range(400)]
    >>> sorted(map(tuple, set(map(tuple, drawn)))), drawn.count([0, 1]) > drawn.count([1, 0])
    ([(0, 1), (1, 0)], True)
    """
    places = np.empty(int(starts[-1]), dtype=np.int64)
    sizes, n_values = np.diff(starts), np.diff(firsts)
    offsets = np.append(0, np.cumsum(sizes * n_values))
    seeds = random.integers(1, 2**63, starts.size - 1, dtype=np.uint64)
    for low in range(0, starts.size - 1, _BUCKETS_AT_ONCE):
        pulse.beat()
        high = min(low + _BUCKETS_AT_ONCE, starts.size - 1)
        _draw_matchings(weights, offsets, starts, firsts, counts, caps, seeds, low, high, places)
    return places


_BUCKETS_AT_ONCE: Final = 10_000


@kernel
def _draw_matchings(
    weights: FloatArray,
    offsets: IntArray,
    starts: IntArray,
    firsts: IntArray,
    counts: IntArray,
    caps: FloatArray,
    seeds: npt.NDArray[np.uint64],
    low: int,
    high: int,
    places: IntArray,
) -> None:
    for g in range(low, high):
        n, m = starts[g + 1] - starts[g], firsts[g + 1] - firsts[g]
        own = np.empty((n, m))
        for i in range(n):
            for k in range(m):
                own[i, k] = weights[offsets[g] + i * m + k]
        its_counts, its_caps = counts[firsts[g] : firsts[g + 1]], caps[firsts[g] : firsts[g + 1]]
        chances = _fit_chances(own, its_counts, its_caps)
        _round_along_cycles(chances, seeds[g])
        for i in range(n):
            for k in range(m):
                if chances[i, k] == _WHOLE:
                    places[starts[g] + i] = firsts[g] + k


@kernel
def _fit_chances(weights: FloatArray, counts: IntArray, caps: FloatArray) -> IntArray:
    """Return chances in parts of `_WHOLE` that have exact margins and are next to the weights."""
    n, m = weights.shape
    fitted = np.maximum(weights, 1e-12)
    fit_margins(fitted, n, m, counts.astype(np.float64), caps, np.empty_like(caps), 200, 1e-7)
    chances = np.empty((n, m), dtype=np.int64)
    limits = np.empty(m, dtype=np.int64)
    of_values = counts * _WHOLE
    of_records = np.full(n, _WHOLE, dtype=np.int64)
    for k in range(m):
        least = -(-counts[k] * _WHOLE // n)
        limits[k] = min(max(np.int64(np.ceil(caps[k] * _WHOLE)), least), _WHOLE)
        for i in range(n):
            wanted = min(np.int64(fitted[i, k] * _WHOLE), limits[k])
            chances[i, k] = min(wanted, of_records[i], of_values[k])
            of_records[i] -= chances[i, k]
            of_values[k] -= chances[i, k]
    for i in range(n):
        for k in range(m):
            more = min(of_records[i], of_values[k], limits[k] - chances[i, k])
            chances[i, k] += more
            of_records[i] -= more
            of_values[k] -= more
    for i in range(n):
        while of_records[i] > 0:
            _augment(chances, limits, of_records, of_values, i)
    return chances


@kernel
def _augment(
    chances: IntArray, limits: IntArray, of_records: IntArray, of_values: IntArray, first: int
) -> None:
    """Give a record more, along a shortest path on which others exchange; there is always one.

    The shares of the bucket fit all margins and limits, so by Gale's theorem whole numbers do, too.
    """
    n, m = chances.shape
    before_value = np.full(m, -1, dtype=np.int64)  # the record that a value was reached from
    before_record = np.full(n, -1, dtype=np.int64)
    queue = np.empty(n, dtype=np.int64)
    queue[0], head, tail, last = first, 0, 1, -1
    before_record[first] = m
    while head < tail and last < 0:
        i = queue[head]
        head += 1
        for k in range(m):
            if before_value[k] >= 0 or chances[i, k] >= limits[k]:
                continue
            before_value[k] = i
            if of_values[k] > 0:
                last = k
                break
            for j in range(n):
                if before_record[j] < 0 and chances[j, k] > 0:
                    before_record[j] = k
                    queue[tail] = j
                    tail += 1
    amount = min(of_records[first], of_values[last])
    k = last
    while True:
        i = before_value[k]
        amount = min(amount, limits[k] - chances[i, k])
        if i == first:
            break
        k = before_record[i]
        amount = min(amount, chances[i, k])
    of_records[first] -= amount
    of_values[last] -= amount
    k = last
    while True:
        i = before_value[k]
        chances[i, k] += amount
        if i == first:
            break
        k = before_record[i]
        chances[i, k] -= amount


@kernel
def _round_along_cycles(chances: IntArray, seed: np.uint64) -> None:
    """Make each chance 0 or whole, with its own probability; margins stay as they are."""
    n, m = chances.shape
    state = seed
    rows, columns = np.empty(n + m, dtype=np.int64), np.empty(n + m, dtype=np.int64)
    seen = np.empty(n, dtype=np.int64)  # the step at which a record was met
    start = 0
    while start < n:
        first = -1
        for k in range(m):
            if 0 < chances[start, k] < _WHOLE:
                first = k
                break
        if first < 0:
            start += 1
            continue
        # From record to record, leaving each by another value than the one that led to it: with
        # whole margins, who has one fraction has two.
        seen[:] = -1
        i, via, n_steps = start, -1, 0
        while seen[i] < 0:
            seen[i] = n_steps
            for k in range(m):
                if k != via and 0 < chances[i, k] < _WHOLE:
                    rows[n_steps], columns[n_steps] = i, k
                    break
            via = columns[n_steps]
            n_steps += 1
            for j in range(n):
                if j != i and 0 < chances[j, via] < _WHOLE:
                    i = j
                    break
        begin = seen[i]
        if columns[begin] == via:  # the others have it as well, and make a cycle without this one
            begin += 1
        # The cycle: record r has value c of its own step, and the value of the step before.
        up = down = np.int64(_WHOLE)
        for step in range(begin, n_steps):
            r, c = rows[step], columns[step]
            before = columns[step - 1] if step > begin else columns[n_steps - 1]
            up = min(up, _WHOLE - chances[r, c], chances[r, before])
            down = min(down, chances[r, c], _WHOLE - chances[r, before])
        state = next_state(state)
        is_up = np.float64(state >> np.uint64(11)) * 2.0**-53 * (up + down) < down
        more = up if is_up else -down
        for step in range(begin, n_steps):
            r, c = rows[step], columns[step]
            before = columns[step - 1] if step > begin else columns[n_steps - 1]
            chances[r, c] += more
            chances[r, before] -= more
