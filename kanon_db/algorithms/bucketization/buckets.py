"""Describes buckets: their sizes, their sensitive values, and the places of their slots.

A :class:`BucketSetting` says how many buckets there are of which size ([GB] Section 3.4), and
:class:`BucketContents` which values they hold; :class:`BucketedRecords` has records and values,
bucket by bucket, and :class:`WeightUnits` how the weights of values are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Final, Self, TypeVar

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import (
    AnyFloatArray,
    AnyIntArray,
    CodeArray,
    IntArray,
    Integer,
    SingleArray,
    order_of,
    taken,
)
from kanon_db.algorithms.ground.computation import kernel
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError

MAX_RECORDS = 2**48
"""Largest table: with buckets of at most 5,000 records every product still fits 64 bits."""


@dataclass(frozen=True, eq=False)
class BucketSetting:
    """The number of buckets of each size; any number of sizes, none for an empty table.

    Parameters
    ----------
    sizes : ndarray of int64, shape (q,)
        Bucket sizes in records, strictly increasing, at least 1.
    counts : ndarray of int64, shape (q,)
        Number of buckets of each size, at least 1.

    Raises
    ------
    InvalidParameterError
        If the arrays are not as described.

    Notes
    -----
    **Source:** [GB] Section 3.4, where it is written <B_1, …, B_q> with B_j = (S_j, b_j).

    Examples
    --------
    >>> setting = BucketSetting.of([45, 3, 7], [83, 8809, 0])
    >>> setting.pairs
    ((3, 8809), (45, 83))
    >>> setting.n_records, setting.loss
    (30162, 195924)
    """

    sizes: IntArray
    counts: IntArray

    def __post_init__(self) -> None:
        sizes = np.array(self.sizes, dtype=np.int64)
        counts = np.array(self.counts, dtype=np.int64)
        if sizes.ndim != 1 or sizes.shape != counts.shape:
            raise InvalidParameterError(
                "a bucket setting needs one count for each size",
                detail=f"sizes: shape {sizes.shape}, counts: shape {counts.shape}",
            )
        if (sizes < 1).any() or (np.diff(sizes) < 1).any() or (counts < 1).any():
            raise InvalidParameterError(
                "a bucket setting needs increasing sizes and counts of at least 1",
                hint="BucketSetting.of sorts the sizes and drops those that have no bucket",
            )
        for name, array in (("sizes", sizes), ("counts", counts)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @classmethod
    def of(cls, sizes: npt.ArrayLike, counts: npt.ArrayLike) -> BucketSetting:
        """Make a setting of distinct sizes in any order, leaving out those without a bucket."""
        sizes = np.asarray(sizes, dtype=np.int64)
        counts = np.asarray(counts, dtype=np.int64)
        order = np.argsort(sizes)
        order = order[counts[order] != 0]
        return cls(sizes[order], counts[order])

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Each size with its number of buckets, as plain integers."""
        return tuple(zip(self.sizes.tolist(), self.counts.tolist(), strict=True))

    @property
    def n_buckets(self) -> int:
        """Number of buckets of all sizes."""
        return int(self.counts.sum())

    @property
    def n_records(self) -> int:
        """Number of records that fill all buckets."""
        return int(self.sizes @ self.counts)

    @property
    def largest_size(self) -> int:
        """Number of records in the largest bucket, 0 without buckets."""
        return int(self.sizes.max(initial=0))

    @property
    def loss(self) -> int:
        """Loss, [GB] Eq. (2): the sum over the buckets of (size - 1) squared, exact.

        Lower is better: 0 when every record is a bucket of its own, (n_records - 1) squared when
        all records share one bucket.
        """
        return sum(count * (size - 1) ** 2 for size, count in self.pairs)

    @property
    def msbs(self) -> float:
        """Mean squared bucket size, [GB] Definition 2: the loss per record. Lower is better.

        It is loss / (n_records - 1), and 0.0 for fewer than two records. For equal buckets of size
        l it is close to (l - 1)² / l, not "between l - 1 and l" as [GB] Section 3.2 says.
        """
        return self.loss / (self.n_records - 1) if self.n_records > 1 else 0.0


def record_counts(counts: npt.ArrayLike, n_values: int | None = None) -> tuple[IntArray, int]:
    """Check the numbers of records of each sensitive value and add them up."""
    array = np.asarray(counts)
    if array.ndim != 1 or (n_values is not None and array.size != n_values):
        raise InvalidParameterError(
            "counts must hold one number of records for each sensitive value",
            detail=f"counts: shape {array.shape}"
            + ("" if n_values is None else f", sensitive values: {n_values}"),
        )
    if array.size and (not np.issubdtype(array.dtype, np.integer) or array.min() < 0):
        raise InvalidParameterError("counts must be whole numbers of at least 0")
    n_records = sum(array.tolist())
    if n_records > MAX_RECORDS:
        raise InvalidParameterError(
            "the table has too many records",
            detail=f"n_records = {n_records:,}, limit = {MAX_RECORDS:,}",
            hint="publish parts of the table separately",
        )
    return array.astype(np.int64), n_records


_Integer = TypeVar("_Integer", bound=np.integer)


def bit_positions(
    # (n_records,): bucket of each record, from 1, ascending with the bucket size; n_records below
    # 2^31
    bucket_numbers: AnyIntArray,
    # (n_records,): A permutation of the records: in each bucket, they take their slots in this
    # order
    order: AnyIntArray,
    setting: BucketSetting,
) -> tuple[CodeArray, CodeArray]:
    """Return the bit that stands for each record, and the record that each bit stands for.

    Equal buckets' first records are one run of bits, then the second: one operation for all.
    """
    ranked = taken(bucket_numbers, order)
    by_bucket = taken(order, order_of(ranked, stable=True))
    at_bits = in_slots(by_bucket.astype(np.int32), setting)
    positions = np.empty(bucket_numbers.size, dtype=np.int32)
    positions[at_bits] = np.arange(positions.size, dtype=np.int32)
    return positions, at_bits


def in_slots(by_bucket: npt.NDArray[_Integer], setting: BucketSetting) -> npt.NDArray[_Integer]:
    """Reorder numbers of records from the order of buckets to the order of bits."""
    ordered = np.empty_like(by_bucket)
    start = 0
    for size, count in setting.pairs:
        own = slice(start, start + size * count)
        # The records of a size form a table (bucket, slot): transpose it.
        ordered[own].reshape(size, count)[:] = by_bucket[own].reshape(count, size).T
        start = own.stop
    return ordered


@dataclass(frozen=True, eq=False)
class BucketContents:
    """The sensitive values of all buckets.

    Nothing in it depends on the order of the records.
    """

    # (n_records,): codes of the values, by bucket number, ascending in each bucket
    codes: AnyIntArray
    setting: BucketSetting  # Buckets are numbered from 1, ascending with their size

    @classmethod
    def of(cls, codes: AnyIntArray, bucket_ids: CodeArray, setting: BucketSetting) -> Self:
        """Gather the values of records."""
        by_value = order_of(codes, stable=True)
        by_bucket = order_of(taken(bucket_ids, by_value), stable=True)
        return cls(taken(taken(codes, by_value), by_bucket), setting)

    @property
    def sizes(self) -> IntArray:
        """The size of each bucket, by its number."""
        return np.repeat(self.setting.sizes, self.setting.counts)

    @property
    def in_slots(self) -> AnyIntArray:
        """The code at each bit; a bucket's codes take its slots in ascending order."""
        return in_slots(self.codes, self.setting)

    def pairs(self) -> tuple[AnyIntArray, CodeArray, CodeArray]:
        """Count how often each value stands in each bucket."""
        sizes = self.sizes
        is_first = np.ones(self.codes.size, dtype=np.bool_)
        np.not_equal(self.codes[1:], self.codes[:-1], out=is_first[1:])
        is_first[np.cumsum(sizes) - sizes] = True
        firsts = np.flatnonzero(is_first)
        counts = np.diff(firsts, append=self.codes.size).astype(np.int32)
        bucket_ids = np.repeat(np.arange(1, sizes.size + 1, dtype=np.int32), sizes)[firsts]
        codes = self.codes[firsts]
        by_value = order_of(codes, stable=True)
        return taken(codes, by_value), taken(bucket_ids, by_value), taken(counts, by_value)


@dataclass(frozen=True, eq=False)
class BucketedRecords:
    """QIT and SAT as arrays, bucket by bucket: quasi-identifiers and sensitive values."""

    columns: Sequence[AnyIntArray]  # (n_records,) each: codes in the order of their values
    # (n_records,): those of each bucket, in any order that does not depend on the records
    values: CodeArray
    starts: IntArray  # (n_buckets + 1,): where each bucket begins, and the last one ends
    n_values: int

    @classmethod
    def of(
        cls,
        columns: Sequence[AnyIntArray],
        buckets: AnyIntArray,  # (n_records,): that of each record, from 0; none is empty
        values: AnyIntArray,  # (n_records,): the sensitive values, by bucket
        n_values: int,
    ) -> tuple[Self, IntArray]:
        """Gather records by their buckets; return the place that each of these records had, too."""
        order = order_of(buckets, stable=True)
        starts = np.append(0, np.cumsum(np.bincount(buckets)))
        gathered = [taken(column, order) for column in columns]
        return cls(gathered, values.astype(np.int32), starts, n_values), order

    @property
    def n_records(self) -> int:
        """The number of records in all buckets."""
        return self.values.size

    def of_buckets(self, chosen: AnyIntArray) -> Self:
        """Take some buckets, in the given order."""
        sizes = np.diff(self.starts)[chosen]
        starts = np.append(0, np.cumsum(sizes))
        places = np.repeat(self.starts[chosen] - starts[:-1], sizes) + np.arange(starts[-1])
        columns = [column[places] for column in self.columns]
        return replace(self, columns=columns, values=self.values[places], starts=starts)

    def between(self, low: int, high: int) -> Self:
        """Take the buckets from `low` up to `high`."""
        own = slice(int(self.starts[low]), int(self.starts[high]))
        columns = [column[own] for column in self.columns]
        starts = self.starts[low : high + 1] - self.starts[low]
        return replace(self, columns=columns, values=self.values[own], starts=starts)

    def parts(self, most: int) -> list[tuple[int, int]]:
        """Divide the buckets into runs of about `most` records, or of one bucket."""
        n_parts = max(1, round(self.n_records / max(most, 1)))
        wanted = np.linspace(0, self.n_records, n_parts + 1)
        cuts = np.unique(np.searchsorted(self.starts, wanted)).tolist()
        return list(pairwise(cuts))

    @property
    def shares(self) -> SingleArray:
        """The share of each value in each record's bucket, shape (n_records, n_values)."""
        sizes = np.diff(self.starts)
        keys = np.repeat(np.arange(sizes.size), sizes) * self.n_values + self.values
        counts = np.bincount(keys, minlength=sizes.size * self.n_values)
        of_buckets = counts.reshape(sizes.size, self.n_values) / np.maximum(sizes, 1)[:, np.newaxis]
        repeated: SingleArray = np.repeat(of_buckets.astype(np.float32), sizes, axis=0)
        return repeated

    @property
    def extreme_shares(self) -> tuple[list[Fraction], list[Fraction]]:
        """The least and the largest share of each value; see :func:`extreme_shares`."""
        least, most = [Fraction(1)] * self.n_values, [Fraction(0)] * self.n_values
        for own in (self.between(*part) for part in self.parts(_AT_ONCE)):
            sizes = np.diff(own.starts)
            keys = np.repeat(np.arange(sizes.size), sizes) * self.n_values + own.values
            firsts = np.flatnonzero(np.diff(keys, prepend=-1))
            counts = np.diff(firsts, append=keys.size)
            buckets, values = np.divmod(keys[firsts], self.n_values)
            its_least, its_most = extreme_shares(values, counts, sizes[buckets], self.n_values)
            least, most = [*map(min, least, its_least)], [*map(max, most, its_most)]
        return least, most


_AT_ONCE: Final = 1 << 17
"""Records whose shares are looked at together, so that what is worked out of them stays small."""


def extreme_shares(
    values: AnyIntArray, counts: AnyIntArray, sizes: AnyIntArray, n_values: int
) -> tuple[list[Fraction], list[Fraction]]:
    """Return the least and the largest share of each value in the buckets that have it.

    Parameters
    ----------
    values, counts, sizes : ndarray of int, each of shape (n,)
        Codes of values, how often a bucket has each, and how many records that bucket has.
    n_values : int

    Examples
    --------
    >>> least, most = extreme_shares(np.array([0, 0]), np.array([1, 2]), np.array([4, 5]), 1)
    >>> str(least[0]), str(most[0])
    ('1/4', '2/5')
    """
    least, most = [Fraction(1)] * n_values, [Fraction(0)] * n_values
    for size in np.flatnonzero(np.bincount(sizes)).tolist():
        own = sizes == size
        # How often each value is there so many times: few numbers, found without sorting.
        n_times = int(counts[own].max()) + 1
        seen = np.bincount(values[own] * n_times + counts[own], minlength=n_values * n_times)
        for value, times in np.argwhere(seen.reshape(n_values, n_times)).tolist():
            share = Fraction(times, size)
            least[value], most[value] = min(least[value], share), max(most[value], share)
    return least, most


_FITTED: Final = 30
"""How often rows and columns are scaled in turn."""


def capped(weights: SingleArray, records: BucketedRecords, caps: SingleArray) -> None:
    """Put weights below caps, in place: each value keeps its number exactly, up to rounding."""
    # A cap is at least the largest share of its value in a bucket. Rows and columns are scaled in
    # turn and cut: the weights go towards those that are nearest, by relative entropy, of all that
    # add up to 1 for a record and to the numbers of a bucket's values (L. Bregman 1967). In the
    # end, a record's weights may be a little off 1.
    longest = int(np.diff(records.starts).max(initial=0))
    _cap(
        weights, records.starts, records.values, caps,
        np.zeros((2, caps.size), dtype=np.int64), np.empty((longest, caps.size), dtype=np.float32),
        np.empty((3, caps.size), dtype=np.float32),
    )  # fmt: skip


_TINY: Final = np.float32(1e-4)


@kernel(error_model="numpy")
def _cap(
    weights: SingleArray,
    starts: IntArray,
    values: CodeArray,
    caps: SingleArray,
    # (2, n_values): how often a bucket has each value, at first 0, and the values that it has
    occurrences: IntArray,
    # (longest bucket, n_values), (3, n_values): room for the weights of the values that it has, and
    # for their numbers, caps and factors
    own: SingleArray,
    margins: SingleArray,
) -> None:
    n_values = caps.size
    number, present = occurrences[0], occurrences[1]
    counts, its_caps, factors = margins[0], margins[1], margins[2]
    for g in range(starts.size - 1):
        start, n = starts[g], starts[g + 1] - starts[g]
        n_present = 0
        for i in range(n):
            value = values[start + i]
            if number[value] == 0:
                present[n_present] = value
                n_present += 1
            number[value] += 1
        for k in range(n_present):
            value = present[k]
            counts[k], its_caps[k] = number[value], caps[value]
            number[value] = 0
            for i in range(n):
                own[i, k] = max(weights[start + i, value], _TINY)
        fit_margins(own, n, n_present, counts, its_caps, factors, _FITTED, 1e-3)
        for i in range(n):
            for v in range(n_values):
                weights[start + i, v] = 0
        for k in range(n_present):  # give each value its number of records
            total = 0.0
            for i in range(n):
                total += own[i, k]
            part, more = min(counts[k] / total, 1.0), 0.0
            room = n * np.float64(its_caps[k]) - total
            if total < counts[k] and room > 0:
                more = min((counts[k] - total) / room, 1.0)
                part = 1.0 - more
            for i in range(n):
                weights[start + i, present[k]] = part * own[i, k] + more * its_caps[k]


@kernel(error_model="numpy")
def fit_margins(
    weights: AnyFloatArray,
    n: Integer,
    m: Integer,
    counts: AnyFloatArray,
    caps: AnyFloatArray,
    columns: AnyFloatArray,
    times: int,
    enough: float,
) -> None:
    """Scale the first n rows to 1 and m columns to their numbers in turn, cut at caps.

    Until they are off by less than enough, or so many times; all of one float type.
    """
    one = counts.dtype.type(1)
    for _ in range(times):
        off = one - one
        for v in range(m):
            columns[v] = 0
        for i in range(n):
            total = one - one
            for v in range(m):
                total += weights[i, v]
            off = max(off, abs(total - one))
            share = one / total
            for v in range(m):
                weights[i, v] = min(weights[i, v] * share, caps[v])
                columns[v] += weights[i, v]
        for v in range(m):
            if counts[v] > 0:
                columns[v] = counts[v] / columns[v]
                off = max(off, abs(columns[v] - one))
        for i in range(n):
            for v in range(m):
                weights[i, v] = min(weights[i, v] * columns[v], caps[v])
        if off < enough:
            break


@kernel(error_model="numpy")
def next_state(state: np.uint64) -> np.uint64:
    """Return the next state of xorshift64 (Marsaglia 2003)."""
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    state ^= state << np.uint64(17)
    return state


_FEW_LEVELS, _MOST_LEVELS = 15, 255
"""Levels of weights have four bits; up to eight where no fewer can write all shares."""


@dataclass(frozen=True, eq=False)
class WeightUnits:
    """What a level of weights stands for: the weight of level a for value v is ``a / parts[v]``."""

    most: IntArray  # (n_values,): the largest level of each, at most 255
    parts: IntArray

    @classmethod
    def of(cls, thresholds: Sequence[Fraction], shares: Sequence[Fraction]) -> Self | None:
        """Choose units so that no weight exceeds its threshold, and all shares can be written.

        Parameters
        ----------
        thresholds : sequence of Fraction
            The largest weight that each value may have.
        shares : sequence of Fraction
            The largest share of each value in a bucket; none is above its threshold.

        Returns
        -------
        WeightUnits or None
            None where 255 levels are too few for some value.

        Examples
        --------
        >>> units = WeightUnits.of([Fraction(31, 100), Fraction(1)], [Fraction(3, 10)] * 2)
        >>> units.most.tolist(), units.parts.tolist()
        ([13, 15], [42, 15])
        """
        units = []
        for threshold, share in zip(thresholds, shares, strict=True):
            most = min(threshold, Fraction(1))
            best = _unit(most, share, range(1, _FEW_LEVELS + 1))
            for level in range(_FEW_LEVELS + 1, _MOST_LEVELS + 1):
                best = best or _unit(most, share, (level,))
            if best is None:
                return None
            units.append(best)
        return cls(*np.array(units, dtype=np.int64).reshape(-1, 2).T)

    @classmethod
    def between(
        cls,
        thresholds: Sequence[Fraction],
        least: Sequence[Fraction],
        most: Sequence[Fraction],
    ) -> Self | None:
        """Choose units; None also where no weight could differ from the share of its value.

        `least, most`: the least and the largest share of each value in the buckets that have it.
        """
        units = cls.of(thresholds, most)
        if units is None:
            return None
        largest = map(Fraction, units.most.tolist(), units.parts.tolist())
        is_fixed = all(share == limit for share, limit in zip(least, largest, strict=True))
        return None if is_fixed else units

    @property
    def caps(self) -> SingleArray:
        """The largest weight of each value."""
        return (self.most / self.parts).astype(np.float32)

    def levels(
        self, weights: SingleArray, records: BucketedRecords, random: np.random.Generator
    ) -> npt.NDArray[np.uint8]:
        """Round weights to levels: those of a value in a bucket add up to `parts` times its number.

        The records of each bucket are in any order that does not depend on their values.
        """
        # Systematic rounding (Madow 1949): each level is its weight on average, and next to it.
        levels = np.empty(weights.shape, dtype=np.uint8)
        seed = draw_seed(random)
        longest = int(np.diff(records.starts).max(initial=0))
        counts, fine = np.empty(self.most.size, dtype=np.int64), np.empty(longest, dtype=np.int64)
        _round(
            weights, records.starts, records.values, self.most, self.parts, seed, counts, fine,
            levels,
        )  # fmt: skip
        return levels


def _unit(most: Fraction, share: Fraction, levels: Iterable[int]) -> tuple[int, int] | None:
    """Return the level and the parts that are nearest to what is allowed."""
    candidates = ((level, -(-level * most.denominator // most.numerator)) for level in levels)
    enough = [(Fraction(*one), one) for one in candidates if Fraction(*one) >= share]
    return max(enough)[1] if enough else None


_FINEST: Final = 1 << 24


@kernel(error_model="numpy")
def _round(
    weights: SingleArray,
    starts: IntArray,
    values: CodeArray,
    most: IntArray,
    parts: IntArray,
    seed: np.uint64,
    counts: IntArray,  # (n_values,): room for the numbers of a bucket's values
    fine: IntArray,  # (longest bucket,): room for the weights of one of them
    levels: npt.NDArray[np.uint8],
) -> None:
    """Round in whole numbers, so that sums are exact."""
    n_values = weights.shape[1]
    state = seed * np.uint64(0x9E3779B97F4A7C15) | np.uint64(1)
    for g in range(starts.size - 1):
        start, end = starts[g], starts[g + 1]
        for v in range(n_values):
            counts[v] = 0
        for i in range(start, end):
            counts[values[i]] += 1
        for v in range(n_values):
            limit = most[v] * _FINEST
            missing = counts[v] * parts[v] * _FINEST
            for i in range(start, end):
                exact = np.int64(np.float64(weights[i, v]) * parts[v] * _FINEST)
                fine[i - start] = min(max(exact, 0), limit)
                missing -= fine[i - start]
            for i in range(end - start):  # what is lost by rounding goes where there is room
                if missing == 0:
                    break
                more = min(max(missing, -fine[i]), limit - fine[i])
                fine[i] += more
                missing -= more
            state = next_state(state)
            upto = np.int64(state & np.uint64(_FINEST - 1))
            for i in range(start, end):
                before = upto // _FINEST
                upto += fine[i - start]
                levels[i, v] = upto // _FINEST - before


def draw_seed(random: np.random.Generator) -> np.uint64:
    """Draw a state that :func:`next_state` may follow."""
    return np.uint64(random.integers(1, 2**63))
