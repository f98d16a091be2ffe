"""Puts records with several sensitive values each into buckets, under a bound for each attribute.

A record has a *combination*: a value of each sensitive attribute. Of two attributes, combinations
are the edges of a bipartite multigraph between the values of both, and buckets are sets of edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.bucketization.bucket_assignment import Permuter, numbers_by_size
from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray, Integer, order_of, taken
from kanon_db.algorithms.ground.computation import Proof, Pulse, inlined, kernel
from kanon_db.dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class SensitiveCombinations:
    """The combinations of sensitive values that records have, and thresholds of the values.

    There are two attributes or more. Of one, a setting says all: see :func:`.assign_randomly`.
    """

    counts: IntArray  # (c,): records of each combination, at least 1; no two are the same
    values: IntArray  # (c, s): the code of each attribute's value
    privacies: tuple[FPrimePrivacy, ...]  # Of the values of each attribute

    @property
    def n_records(self) -> int:
        """Number of records."""
        return int(self.counts.sum())

    @cached_property
    def counts_of_values(self) -> tuple[IntArray, ...]:
        """Records of each value of each attribute."""
        return tuple(
            np.bincount(values, self.counts, len(privacy.thresholds)).astype(np.int64)
            for values, privacy in zip(self.values.T, self.privacies, strict=True)
        )

    def having(self, counts: IntArray) -> SensitiveCombinations:
        """Return a part of the records: those of the combinations with a count above 0."""
        kept = np.flatnonzero(counts)
        return SensitiveCombinations(counts[kept], self.values[kept], self.privacies)

    def bounded(self) -> Iterator[tuple[IntArray, FPrimePrivacy]]:
        """Yield counts and thresholds of what a bucket bounds: values, and combinations of them.

        A combination is no more frequent than its rarest value, which excludes small buckets.
        """
        for counts, privacy in zip(self.counts_of_values, self.privacies, strict=True):
            present = np.flatnonzero(counts)
            yield counts[present], FPrimePrivacy(tuple(privacy.thresholds[i] for i in present))
        each = [
            [privacy.thresholds[i] for i in values.tolist()]
            for values, privacy in zip(self.values.T, self.privacies, strict=True)
        ]
        yield self.counts, FPrimePrivacy(tuple(map(min, *each)))

    def limits(self, sizes: IntArray) -> list[IntArray]:
        """Most occurrences of each value in a bucket of each size: (m, q) for each attribute."""
        return [privacy.occurrence_limits(sizes) for privacy in self.privacies]


@dataclass(frozen=True, eq=False)
class JointPlan:
    """A bucket setting, and the bucket of each record when these are in the order of combinations.

    Buckets count from 0, smaller ones first; :func:`deal_randomly` draws who is who.
    """

    setting: BucketSetting
    buckets: CodeArray  # (n_records,)
    proof: Proof | None = None


def equal_buckets(counts: IntArray, values: IntArray, n_buckets: int, pulse: Pulse) -> CodeArray:
    """Deal records to buckets so that each has as even a share of both attributes as can be.

    Parameters
    ----------
    counts : ndarray of int64, shape (c,)
        Records of each combination.
    values : ndarray of int64, shape (c, 2)
        The code of the value of each of two attributes.
    n_buckets : int
        B, at least 1.
    pulse : Pulse

    Returns
    -------
    ndarray of int32, shape (n_records,)
        The bucket of each record, in the order of combinations.

    Notes
    -----
    **Source:** that a bipartite multigraph has such a colouring with B colours is known from D. de
    Werra, *Equitable colorations of graphs* (RAIRO 1971). The construction is ours: halving by
    controlled rounding, L. Cox, *A constructive procedure for unbiased controlled rounding* (JASA
    1987), here without its randomness.

    **Theorem.** Each bucket has floor(d/B) or ceil(d/B) of the d records of each value of both
    attributes, of each combination, and of all records.

    *Proof.* The B buckets are divided into B' = floor(B/2) and B - B', and the table n of
    combinations into a first part near n B'/B. That table of fractions is rounded so that each
    entry, each sum of a row or a column, and the total become one of both neighboring whole
    numbers: with a further row and column that make all sums whole, each row and each column with a
    fraction has two of them, so there is a cycle of fractions. Raising and lowering them in turn
    keeps all sums, until one is whole; so it ends with none. Now let d records have something, and
    d' of them come to the first part: d' <= ceil(d B'/B) <= ceil(ceil(d/B) B') = ceil(d/B) B', and
    likewise d' >= floor(d/B) B', and the same holds of the other part. So ceil(d'/B') <= ceil(d/B)
    and floor(d'/B') >= floor(d/B): in a single bucket, the number is one of both. ∎

    Examples
    --------
    >>> from kanon_db.algorithms.ground.computation import UNLIMITED
    >>> found = equal_buckets(np.array([2, 2]), np.array([[0, 0], [1, 1]]), 2, UNLIMITED)
    >>> sorted(found[:2].tolist()), sorted(found[2:].tolist())
    ([0, 1], [0, 1])
    """
    n_values = values.max(axis=0, initial=0) + 1
    buckets = np.empty(int(counts.sum()), dtype=np.int32)
    scratch = _scratch(counts.size, n_values)
    # What is left to divide: entries (the first record of each, and its number), and buckets.
    waiting = [(counts, values.astype(np.int32), np.cumsum(counts) - counts, 0, n_buckets)]
    while waiting:
        pulse.beat()
        amounts, its, firsts, first_bucket, n = waiting.pop()
        if amounts.size == 0:
            continue
        if n <= _BUCKETS_AT_ONCE:
            rows, columns, vertices, edges, adjacent = scratch
            _deal(
                amounts, its, firsts, first_bucket, n, rows, columns, vertices, edges, adjacent,
                buckets,
            )  # fmt: skip
            continue
        lower = round_shares(amounts, its, n // 2, n, scratch)
        for part, start, bucket, number in (
            (lower, firsts, first_bucket, n // 2),
            (amounts - lower, firsts + lower, first_bucket + n // 2, n - n // 2),
        ):
            kept = np.flatnonzero(part)
            waiting.append((part[kept], its[kept], start[kept], bucket, number))
    return buckets


_BUCKETS_AT_ONCE: Final = 4096
"""Buckets that are dealt to without a beat: some milliseconds of work."""

_DEPTH: Final = 14
"""More than the binary logarithm of that."""


def _scratch(n_entries: int, n_values: IntArray) -> tuple[IntArray, ...]:
    """Make the arrays that :func:`round_shares` works in: of vertices, and of edges."""
    vertices = int(n_values.sum()) + 2
    edges = n_entries + vertices
    return (
        np.full(int(n_values[0]), -1, dtype=np.int64),
        np.full(int(n_values[1]), -1, dtype=np.int64),
        np.zeros((6, vertices + 1), dtype=np.int64),
        np.zeros((3, edges), dtype=np.int64),
        np.zeros(2 * edges, dtype=np.int64),
    )


def round_shares(
    amounts: IntArray,
    values: CodeArray,  # (n, 2): row and column of each entry, no two of them the same
    part: int,
    total: int,
    scratch: tuple[IntArray, ...] | None = None,
) -> IntArray:
    """Round ``amounts * part / total``: entries, sums of rows and of columns, and the total.

    Each becomes the floor or the ceiling of what it was; see the proof of :func:`equal_buckets`.
    """
    if scratch is None:
        scratch = _scratch(amounts.size, values.max(axis=0, initial=0) + 1)
    shares = np.empty_like(amounts)
    rows, columns, vertices, edges, adjacent = scratch
    _round(amounts, values, part, total, rows, columns, vertices, edges, adjacent, shares)
    return shares


@kernel
def _deal(
    amounts: IntArray,
    values: CodeArray,
    firsts: IntArray,
    first_bucket: int,
    n_buckets: int,
    rows: IntArray,
    columns: IntArray,
    vertices: IntArray,
    edges: IntArray,
    adjacent: IntArray,
    buckets: CodeArray,
) -> None:
    """Halve until buckets are single, with a stack of the parts that wait."""
    n = amounts.size
    # There are no more than _DEPTH halvings, and at each a part that waits.
    stack_amount = np.empty(_DEPTH * n, dtype=np.int64)
    stack_entry = np.empty_like(stack_amount)
    stack_first = np.empty_like(stack_amount)
    tops = np.empty((_DEPTH, 4), dtype=np.int64)  # start, end, first bucket, number of buckets
    for e in range(n):
        stack_amount[e], stack_entry[e], stack_first[e] = amounts[e], e, firsts[e]
    _put_part(tops, 0, 0, n, first_bucket, n_buckets)
    n_tops = 1
    its_values = np.empty((n, 2), dtype=values.dtype)
    its_amounts = np.empty(n, dtype=np.int64)
    shares = np.empty(n, dtype=np.int64)
    while n_tops:
        n_tops -= 1
        start, end = tops[n_tops, 0], tops[n_tops, 1]
        bucket, number = tops[n_tops, 2], tops[n_tops, 3]
        if number == 1:
            for k in range(start, end):
                for record in range(stack_first[k], stack_first[k] + stack_amount[k]):
                    buckets[record] = bucket
            continue
        m = end - start
        for k in range(m):
            entry = stack_entry[start + k]
            its_values[k, 0], its_values[k, 1] = values[entry, 0], values[entry, 1]
            its_amounts[k] = stack_amount[start + k]
        half = number // 2
        _round(
            its_amounts[:m], its_values[:m], half, number, rows, columns, vertices, edges,
            adjacent, shares[:m],
        )  # fmt: skip
        # The upper part takes the place of both, the lower one comes on top and is looked at first.
        place, above = start, end
        for k in range(m):
            entry, record = stack_entry[start + k], stack_first[start + k]
            lower, amount = shares[k], its_amounts[k]
            if lower:
                stack_amount[above], stack_entry[above] = lower, entry
                stack_first[above] = record
                above += 1
            if amount > lower:
                stack_amount[place], stack_entry[place] = amount - lower, entry
                stack_first[place] = record + lower
                place += 1
        _put_part(tops, n_tops, start, place, bucket + half, number - half)
        _put_part(tops, n_tops + 1, end, above, bucket, half)
        n_tops += 2


@inlined
def _put_part(
    tops: IntArray, place: Integer, start: Integer, end: Integer, bucket: Integer, number: Integer
) -> None:
    # Assigning a tuple would compile a message for tuples of another length.
    tops[place, 0], tops[place, 1] = start, end
    tops[place, 2], tops[place, 3] = bucket, number


@kernel
def _round(
    amounts: IntArray,
    values: CodeArray,
    part: int,
    total: int,
    rows: IntArray,
    columns: IntArray,
    vertices: IntArray,
    edges: IntArray,
    adjacent: IntArray,
    shares: IntArray,
) -> None:
    """See :func:`round_shares`; `rows` and `columns` are -1 before and afterwards."""
    n = amounts.size
    fractions, left, right = edges[0], edges[1], edges[2]
    sums, start, end = vertices[0], vertices[1], vertices[2]
    # Of the path that is walked: its edges, its vertices, and the place of each vertex on it.
    path, passed, place = vertices[3], vertices[4], vertices[5]
    # Vertices: 0 is the further row, 1 the further column; then rows and columns as they come.
    n_vertices, n_edges = 2, 0
    sums[0] = sums[1] = 0
    for e in range(n):
        product = amounts[e] * part
        shares[e] = product // total
        fraction = product - shares[e] * total
        if not fraction:
            continue
        x, y = values[e, 0], values[e, 1]
        if rows[x] < 0:
            rows[x], sums[n_vertices] = n_vertices, 0
            n_vertices += 1
        if columns[y] < 0:
            columns[y], sums[n_vertices] = n_vertices, 0
            n_vertices += 1
        fractions[n_edges], left[n_edges], right[n_edges] = fraction, rows[x], columns[y]
        sums[rows[x]] += fraction
        sums[columns[y]] += fraction
        n_edges += 1
    for e in range(n):
        for side in range(2):
            v = rows[values[e, 0]] if side == 0 else columns[values[e, 1]]
            if v < 0:
                continue
            if side == 0:
                rows[values[e, 0]] = -1
            else:
                columns[values[e, 1]] = -1
            lacking = -sums[v] % total
            if lacking:
                fractions[n_edges] = lacking
                left[n_edges], right[n_edges] = (v, 1) if side == 0 else (0, v)
                sums[1 - side] += lacking
                n_edges += 1
    lacking = -sums[0] % total
    if lacking:
        fractions[n_edges], left[n_edges], right[n_edges] = lacking, 0, 1
        n_edges += 1
    # The edges at each vertex.
    for v in range(n_vertices):
        end[v], place[v] = 0, -1
    for e in range(n_edges):
        end[left[e]] += 1
        end[right[e]] += 1
    at = 0
    for v in range(n_vertices):
        start[v] = at
        at += end[v]
        end[v] = start[v]
    for e in range(n_edges):
        for v in (left[e], right[e]):
            adjacent[end[v]] = e
            end[v] += 1
    for origin in range(n_vertices):
        v, depth = origin, 0
        place[origin] = 0
        incoming = -1
        while True:
            # The next edge with a fraction, other than the one that led here.
            entry = -1
            while end[v] > start[v]:
                last = adjacent[end[v] - 1]
                if not 0 < fractions[last] < total:
                    end[v] -= 1
                elif last != incoming:
                    entry = last
                    break
                elif end[v] - start[v] == 1:
                    break
                else:
                    before = adjacent[end[v] - 2]
                    if 0 < fractions[before] < total:
                        entry = before
                        break
                    adjacent[end[v] - 2] = last
                    end[v] -= 1
            if entry < 0:
                break
            w = right[entry] if left[entry] == v else left[entry]
            path[depth] = entry
            if place[w] < 0:
                depth += 1
                place[w], passed[depth] = depth, w
                v, incoming = w, entry
                continue
            # A cycle: its edges are raised and lowered in turn.
            first = place[w]
            most = total
            for k in range(first, depth + 1):
                fraction = fractions[path[k]]
                most = min(most, total - fraction if (k - first) % 2 == 0 else fraction)
            for k in range(first, depth + 1):
                e = path[k]
                fractions[e] += most if (k - first) % 2 == 0 else -most
                if k > first:
                    place[passed[k]] = -1
            v, depth = w, first
            incoming = path[first - 1] if first else -1
        place[origin] = -1  # the path has come back to where nothing is left
    k = 0
    for e in range(n):
        product = amounts[e] * part
        if product % total:
            if fractions[k] == total:
                shares[e] += 1
            k += 1


def arrange(data: SensitiveCombinations, setting: BucketSetting, pulse: Pulse) -> CodeArray | None:
    """Find a bucket for each record, in the order of combinations; None if none is found.

    Of two attributes and at most two sizes, there is none then; of more, that is no proof.
    """
    # The method is our own. How many records of each combination go to the buckets of a size is an
    # integer flow between values of both attributes, with bounds on what each value sends (A.
    # Hoffman 1960), begun with even shares and mended along augmenting paths; of three sizes or
    # more, it is found for one size after the other. `equal_buckets` then deals the records of each
    # size, within the limits: a value that has at most L B records has at most L in each of B
    # buckets. Of three attributes or more, which is NP-hard, two that leave least room are arranged
    # like this, and records then change places at random (with a fixed seed), until the others are
    # right.
    pair = _tightest(data)
    keys = data.values[:, pair[0]] * (int(data.values[:, pair[1]].max(initial=0)) + 1)
    keys += data.values[:, pair[1]]
    distinct, firsts, entry = np.unique(keys, return_index=True, return_inverse=True)
    counts = np.bincount(entry, data.counts, distinct.size).astype(np.int64)
    values = data.values[firsts].take(pair, axis=1)  # in the order of C, unlike [:, pair]
    limits_of_pair = [data.limits(setting.sizes)[a] for a in pair]
    of_pair = _arrange_pair(counts, values, limits_of_pair, setting, pulse)
    if of_pair is None:
        return None
    if len(data.privacies) == 2:
        order = np.argsort(entry, kind="stable")
        if (order == np.arange(order.size)).all():
            return of_pair
    # Records of a pair of values take its buckets in the order of combinations.
    order = np.argsort(np.repeat(entry, data.counts), kind="stable")
    buckets = np.empty(data.n_records, dtype=np.int32)
    buckets[order] = of_pair
    if len(data.privacies) == 2 or _mended(data, setting, buckets, pulse):
        return buckets
    return None


def _tightest(data: SensitiveCombinations) -> list[int]:
    """Return the two attributes of which some value comes closest to its threshold."""
    tightness = [
        max(
            (n / float(f) for n, f in zip(counts.tolist(), privacy.thresholds, strict=True)),
            default=0.0,
        )
        for counts, privacy in zip(data.counts_of_values, data.privacies, strict=True)
    ]
    order = sorted(range(len(tightness)), key=lambda a: -tightness[a])
    return sorted(order[:2])


def _arrange_pair(
    counts: IntArray,
    values: IntArray,
    limits: list[IntArray],
    setting: BucketSetting,
    pulse: Pulse,
) -> CodeArray | None:
    """Arrange the records of two attributes; see :func:`arrange`."""
    n_values = [len(limit) for limit in limits]
    totals = [np.bincount(values[:, a], counts, n_values[a]).astype(np.int64) for a in range(2)]
    n_buckets, sizes = setting.n_buckets, setting.sizes
    if (
        sizes.size
        and sizes[-1] - sizes[0] == sizes.size - 1 <= 1
        and all(
            (total <= limit[:, 0] * n_buckets).all()
            for total, limit in zip(totals, limits, strict=True)
        )
    ):
        return by_size(equal_buckets(counts, values, n_buckets, pulse), n_buckets)
    if any(
        (total > limit @ setting.counts).any() for total, limit in zip(totals, limits, strict=True)
    ):
        return None
    buckets = np.empty(int(counts.sum()), dtype=np.int32)
    firsts = np.cumsum(counts) - counts  # of the records of each combination that are left
    left = counts.copy()
    first_bucket = 0
    for j, n in enumerate(setting.counts.tolist()):
        amounts: IntArray | None = left
        if j < sizes.size - 1:
            amounts = _share_of_size(left, values, limits, setting, j)
        if amounts is None:
            return None
        kept = np.flatnonzero(amounts)
        part = amounts[kept]
        own = first_bucket + equal_buckets(part, values[kept], n, pulse)
        places = np.repeat(firsts[kept] - (np.cumsum(part) - part), part)
        buckets[places + np.arange(own.size)] = own
        firsts, left = firsts + amounts, left - amounts
        first_bucket += n
    return buckets


def by_size(buckets: CodeArray, n_buckets: int) -> CodeArray:
    """Renumber buckets by their sizes."""
    return taken(numbers_by_size(np.bincount(buckets, minlength=n_buckets)), buckets)


def _share_of_size(
    counts: IntArray,
    values: IntArray,
    limits: list[IntArray],
    setting: BucketSetting,
    j: int,
) -> IntArray | None:
    """Decide how many of the records of each combination go to size j, and not to later ones."""
    totals, low, high = [], [], []
    for a, limit in enumerate(limits):
        total = np.bincount(values[:, a], counts, len(limit)).astype(np.int64)
        room = np.minimum(limit * setting.counts, total[:, np.newaxis])
        totals.append(total)
        high.append(room[:, j])
        low.append(total - np.minimum(room[:, j + 1 :].sum(axis=1), total))
        if (low[a] > high[a]).any():
            return None
    part = int(setting.sizes[j] * setting.counts[j])
    its = values.astype(np.int32)
    amounts = round_shares(counts, its, part, int(counts.sum()))
    n_rows = len(limits[0])
    edges = its.astype(np.int64)
    edges[:, 1] += n_rows
    is_found = _repair(amounts, counts, edges, n_rows, np.concatenate(low), np.concatenate(high))
    return amounts if is_found else None


@kernel
def _repair(
    amounts: IntArray, counts: IntArray, edges: IntArray, n_rows: int, low: IntArray, high: IntArray
) -> bool:
    """Change a flow until each value sends as much as it must and may; tell if that is possible.

    Vertices are the values of both attributes, the source, and the sink.
    """
    n, m = amounts.size, low.size
    source, sink = m, m + 1
    flow = np.zeros(m, dtype=np.int64)
    start = np.zeros(m + 1, dtype=np.int64)
    for e in range(n):
        for side in range(2):
            flow[edges[e, side]] += amounts[e]
            start[edges[e, side] + 1] += 1
    for v in range(m):
        start[v + 1] += start[v]
    at = start[:-1].copy()
    adjacent = np.empty(2 * n, dtype=np.int64)
    for e in range(n):
        for side in range(2):
            v = edges[e, side]
            adjacent[at[v]] = e
            at[v] += 1
    came = np.empty(m + 2, dtype=np.int64)
    via = np.empty(m + 2, dtype=np.int64)
    queue = np.empty(m + 2, dtype=np.int64)
    for v in range(m):
        outer = source if v < n_rows else sink
        while flow[v] > high[v] or flow[v] < low[v]:
            is_over = flow[v] > high[v]
            # What is too much comes another way: to a row from the source, from a column to the
            # sink; what is missing goes the other way round.
            is_from_outer = is_over == (v < n_rows)
            begin, goal = (outer, v) if is_from_outer else (v, outer)
            came[:] = -1
            came[begin] = begin
            queue[0] = begin
            head, tail = 0, 1
            while head < tail and came[goal] < 0:
                u = queue[head]
                head += 1
                if u >= m:
                    first, last = (0, n_rows) if u == source else (n_rows, m)
                    for w in range(first, last):
                        is_open = flow[w] < high[w] if u == source else flow[w] > low[w]
                        if came[w] < 0 and is_open:
                            came[w], via[w] = u, -1
                            queue[tail] = w
                            tail += 1
                    continue
                is_row = u < n_rows
                end = source if is_row else sink
                is_open = flow[u] > low[u] if is_row else flow[u] < high[u]
                if came[end] < 0 and is_open:
                    came[end], via[end] = u, -1
                    queue[tail] = end
                    tail += 1
                for k in range(start[u], start[u + 1]):
                    e = adjacent[k]
                    w = edges[e, 1] if is_row else edges[e, 0]
                    is_open = amounts[e] < counts[e] if is_row else amounts[e] > 0
                    if came[w] < 0 and is_open:
                        came[w], via[w] = u, e
                        queue[tail] = w
                        tail += 1
            if came[goal] < 0:
                return False
            most = flow[v] - high[v] if is_over else low[v] - flow[v]
            for is_second in (False, True):
                w = goal
                while w != begin:
                    u, e = came[w], via[w]
                    if e >= 0:
                        sign = 1 if u < n_rows else -1
                        room = counts[e] - amounts[e] if sign > 0 else amounts[e]
                    else:
                        # From the source into a row, or from a column into the sink, flow grows.
                        sign = 1 if u == source or w == sink else -1
                        inner = w if u >= m else u
                        room = high[inner] - flow[inner] if sign > 0 else flow[inner] - low[inner]
                    if not is_second:
                        most = min(most, room)
                    elif e >= 0:
                        amounts[e] += sign * most
                    else:
                        flow[inner] += sign * most
                    w = u
            flow[v] += -most if is_over else most
    return True


def _mended(
    data: SensitiveCombinations, setting: BucketSetting, buckets: CodeArray, pulse: Pulse
) -> bool:
    """Let records change places until no bucket has too many of any value; tell if that is so."""
    sizes = np.repeat(setting.sizes, setting.counts)
    size_class = np.repeat(np.arange(setting.sizes.size), setting.counts)
    order = order_of(buckets, stable=True)
    combinations = np.repeat(np.arange(data.counts.size), data.counts)[order]
    bucket_of = np.repeat(np.arange(sizes.size, dtype=np.int32), sizes)
    n_values = [len(privacy.thresholds) for privacy in data.privacies]
    values = data.values + np.cumsum([0, *n_values[:-1]])
    limits = np.concatenate(data.limits(setting.sizes))
    starts = np.cumsum(sizes) - sizes
    state = np.array([0x9E3779B97F4A7C15], dtype=np.uint64)
    steps = len(n_values) * setting.largest_size  # at most, of an exchange

    def excess(n_tries: int) -> int:
        n_at_once = max(1, _STEPS_AT_ONCE // (max(1, n_tries) * steps))
        total = 0
        for first in range(0, sizes.size, n_at_once):
            pulse.beat()
            total += _mend(
                values, combinations, bucket_of, starts, sizes, size_class, limits,
                first, min(first + n_at_once, sizes.size), n_tries, state,
            )  # fmt: skip
        return total

    now, n_tries = excess(0), _FEWEST_TRIES
    goal = now
    while now:
        excess(n_tries)
        now = excess(0)  # what one bucket gets rid of, another may have got
        if now < goal:
            goal = now - now // _SLOWEST
        elif n_tries * max(now, steps) > _MOST_IN_VAIN:
            return False
        else:
            n_tries *= 2
    # The records of a combination take its places in the order of buckets.
    buckets[:] = bucket_of[order_of(combinations, stable=True)]
    return True


_FEWEST_TRIES: Final = 50
"""Exchanges that are tried for each bucket in a round, at first; more where they are in vain."""

_SLOWEST: Final = 32
"""A round is in vain where less than 1 / this of what is too much is gone."""

_MOST_IN_VAIN: Final = 2**19
"""Exchanges of a round that are in vain, after which it is given up."""

_STEPS_AT_ONCE: Final = 2**22
"""Work between two beats: some dozen milliseconds."""


@kernel
def _mend(
    values: IntArray,
    combinations: IntArray,  # (n_records,): by bucket
    bucket_of: CodeArray,  # (n_records,): of each place
    starts: IntArray,
    sizes: IntArray,
    size_class: IntArray,
    limits: IntArray,
    first: int,  # The buckets to mend, as a range
    end: int,
    n_tries: int,
    state: npt.NDArray[np.uint64],
) -> int:
    """Try to mend each bucket by some exchanges; return by how much they exceed their limits."""
    n_attributes = values.shape[1]
    own = np.zeros(limits.shape[0], dtype=np.int64)  # records of each value in the bucket
    left = 0
    for g in range(first, end):
        start, size, own_class = starts[g], sizes[g], size_class[g]
        excess = 0
        for i in range(start, start + size):
            for a in range(n_attributes):
                v = values[combinations[i], a]
                excess += own[v] >= limits[v, own_class]
                own[v] += 1
        tries = 0
        while excess and tries < n_tries:
            tries += 1
            # A linear congruential generator: D. Knuth's constants.
            state[0] = state[0] * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            i = start + np.int64((state[0] >> np.uint64(33)) % np.uint64(size))
            state[0] = state[0] * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            j = np.int64((state[0] >> np.uint64(24)) % np.uint64(combinations.size))
            h = bucket_of[j]
            goes, comes = combinations[i], combinations[j]
            if h == g or goes == comes:
                continue
            here = there = 0
            for a in range(n_attributes):
                v, w = values[goes, a], values[comes, a]
                if v == w:
                    continue
                here += (own[w] >= limits[w, own_class]) - (own[v] > limits[v, own_class])
                n_v = n_w = 0
                for k in range(starts[h], starts[h] + sizes[h]):
                    other = values[combinations[k], a]
                    n_v += other == v
                    n_w += other == w
                its_class = size_class[h]
                there += (n_v >= limits[v, its_class]) - (n_w > limits[w, its_class])
            if here + there < 0 or (here + there == 0 and tries % 4 == 0):
                combinations[i], combinations[j] = comes, goes
                excess += here
                for a in range(n_attributes):
                    own[values[goes, a]] -= 1
                    own[values[comes, a]] += 1
        left += excess
        for i in range(start, start + size):
            for a in range(n_attributes):
                own[values[combinations[i], a]] = 0
    return left


def deal_randomly(codes: CodeArray, plan: JointPlan, random: Permuter) -> CodeArray:
    """Draw a bucket for each record.

    Parameters
    ----------
    codes : ndarray of int32, shape (n_records,)
        The code of each record's combination.
    plan : JointPlan
        For the numbers of records of these combinations.
    random : Permuter

    Returns
    -------
    ndarray of int32, shape (n_records,)
        0-based bucket numbers; buckets of smaller sizes come first.

    Notes
    -----
    **Theorem.** To someone who knows the algorithm, all quasi-identifiers and the publication, and
    thinks every microdata that it may come from equally likely, the probability that a record of a
    bucket has a value is the share of the bucket's records that have it, for each attribute.

    *Proof.* The plan follows from how many records have each combination, which the publication
    shows, too; and given the plan, each assignment of the records of each combination to its places
    is equally likely. Two microdata that the publication may come from have the same numbers, so
    the same plan, and differ by a permutation of records: they lead to it with the same
    probability. In a bucket, every way to match its records with its combinations then is equally
    likely. A record has each combination with the probability of its share, and a value with the
    sum over the combinations that have it. ∎

    What it says of somebody of whom another value is known is not bounded.
    """
    order = random.permutation(codes.size)
    order = taken(order, order_of(taken(codes, order), stable=True))
    buckets = np.empty(codes.size, dtype=np.int32)
    buckets[order] = plan.buckets
    return buckets
