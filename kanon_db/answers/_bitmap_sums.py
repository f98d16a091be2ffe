"""Combines bitmaps of records and values, and sums over buckets and over pairs of classes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import and_, or_
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeAlias

from kanon_db.answers.plan import Plan, is_combination
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import TEXT, Expression, by_attribute
from kanon_db.query.formulas import Estimated, MatchedPairs, Weighed, summed
from kanon_db.query.layout import BucketTables, Lookup, Side
from kanon_db.query.sql import Constants, Select, Statement, Steps, count_in_buckets, write

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import BoolArray, FloatArray
    from kanon_db.query.formulas import Counts


# Counting with bitmaps: predicates and bucket sums on all records at once.
#
# A bitmap is a Python integer with one bit a record, placed as
# :mod:`kanon_db.algorithms.bucketization.buckets` says. Integers of a million bits are combined in
# microseconds; numpy adds up the slots of each bucket in some hundred.


if TYPE_CHECKING:  # an answer on one side only needs no numpy
    from typing import Any

    import numpy as np
    from numpy.typing import NDArray

    from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
    from kanon_db.query.formulas import Counts

    AnyArray = NDArray[Any]


_NUMBERS_AT_ONCE = 1 << 19
"""Of records that are looked up at a time: some megabytes."""


class TruthBitmaps(NamedTuple):
    """For each record whether a predicate is true, or unknown for a NULL; else it is false."""

    true: int
    unknown: int


def is_readable(
    condition: ex.Expression, with_bitmaps: frozenset[str], sensitive: Collection[str] = ()
) -> bool:
    """Whether a condition is a combination of conditions on one attribute with bitmaps each.

    A comparison of a quasi-identifier with a sensitive attribute is one, too.
    """
    mentioned = ex.attributes(condition)
    if len(mentioned) <= 1:
        return bool(with_bitmaps) and mentioned <= with_bitmaps
    if not is_combination(condition):
        is_of_both = len(mentioned) == 2 and len(mentioned.intersection(sensitive)) == 1
        return is_of_both and mentioned <= with_bitmaps
    if isinstance(condition, ex.Case) and any(map(_divides, ex.walk(condition))):
        return False  # what a branch keeps from a division by zero would be evaluated without it
    return all(is_readable(part, with_bitmaps, sensitive) for part in ex.children(condition))


def _divides(expression: ex.Expression) -> bool:
    return isinstance(expression, ex.Arithmetic) and expression.operator in "/%"


def is_on_one_attribute(condition: ex.Expression) -> bool:
    """Whether a condition depends on one attribute, or on none."""
    return len(ex.attributes(condition)) <= 1


def evaluate(
    condition: ex.Expression | None,
    read: Callable[[ex.Expression], TruthBitmaps],
    everything: int,
    is_read: Callable[[ex.Expression], bool] = is_on_one_attribute,
) -> TruthBitmaps:
    """Evaluate a readable condition in SQL's three-valued logic."""
    if condition is None:
        return TruthBitmaps(everything, 0)
    if is_read(condition):
        return read(condition)
    match by_attribute(condition):
        case ex.And(parts) | ex.Or(parts):
            join = and_ if isinstance(condition, ex.And) else or_
            true = possible = everything if isinstance(condition, ex.And) else 0
            for part in parts:  # one at a time: there may be thousands
                truth = evaluate(part, read, everything, is_read)
                true = join(true, truth.true)
                possible = join(possible, truth.true | truth.unknown)
            return TruthBitmaps(true, possible & ~true)
        case ex.Not(part):
            truth = evaluate(part, read, everything, is_read)
            return TruthBitmaps(everything & ~(truth.true | truth.unknown), truth.unknown)
        case ex.TruthTest(part, wanted, negated):
            truth = evaluate(part, read, everything, is_read)
            held = {
                "true": truth.true,
                "false": everything & ~(truth.true | truth.unknown),
                "unknown": truth.unknown,
            }[wanted]
            return TruthBitmaps(everything & ~held if negated else held, 0)
        case ex.Case(branches, default):
            true = unknown = 0
            rest = everything
            for when, then in branches:
                here = rest & evaluate(when, read, everything, is_read).true
                truth = evaluate(then, read, everything, is_read)
                true |= here & truth.true
                unknown |= here & truth.unknown
                rest &= ~here
            truth = (
                TruthBitmaps(0, rest)
                if default is None
                else evaluate(default, read, everything, is_read)
            )
            return TruthBitmaps(true | rest & truth.true, unknown | rest & truth.unknown)
    raise TypeError("the condition is not readable")


def count_exactly(true: int) -> Estimated:
    """Answer a query on one side only."""
    n = true.bit_count()
    return Estimated(float(n), 0.0, n, n)


def in_buckets(bitmap: int, sizes: Sequence[int], n_buckets: Sequence[int]) -> Counts:
    """Count the bits of each bucket.

    Examples
    --------
    >>> [counts.tolist() for counts in in_buckets(0b1101_1, [1, 2], [1, 2])]
    [[1], [2, 1]]
    """
    import numpy as np

    bits = unpack_bits(bitmap, sum(size * n for size, n in zip(sizes, n_buckets, strict=True)))
    return [
        # 255 slots fit one byte, which numpy adds several times as fast.
        slots.sum(axis=0, dtype=np.uint8 if size < 256 else np.uint16)
        for slots, size, _ in by_size(bits, sizes, n_buckets)
    ]


def unpack_bits(bitmap: int, n_records: int) -> NDArray[np.uint8]:
    """Return the bits of a bitmap, each as a number."""
    import numpy as np

    packed = np.frombuffer(bitmap.to_bytes((n_records + 7) // 8, "little"), dtype=np.uint8)
    return np.unpackbits(packed, bitorder="little", count=n_records)


def number_bits(bitmaps: Iterable[int], n_bitmaps: int, n_records: int) -> AnyArray:
    """Return which of several bitmaps has each bit, from 1; 0 where none has it.

    No two of them have a bit in common. The numbers are of the smallest type that holds them.
    """
    import numpy as np

    dtype = np.min_scalar_type(n_bitmaps)
    numbers = np.zeros(n_records, dtype=dtype)
    for number, bitmap in enumerate(bitmaps, start=1):
        numbers += unpack_bits(bitmap, n_records) * dtype.type(number)
    return numbers


def weigh(
    numbers: AnyArray, values: FloatArray, sizes: Sequence[int], n_buckets: Sequence[int]
) -> list[Weighed]:
    """Add up values for the buckets of each size; `numbers` says which each record has, from 1."""
    import numpy as np

    weighed = []
    for slots, size, n in by_size(numbers, sizes, n_buckets):
        sums = np.empty((7, n))
        for here in some_buckets(n, size):
            sums[:, here] = weigh_slots(slots[:, here], values)
        weighed.append(Weighed(*sums))
    return weighed


def by_size(
    numbers: AnyArray, sizes: Sequence[int], n_buckets: Sequence[int]
) -> Iterator[tuple[AnyArray, int, int]]:
    """Yield the slots of the buckets of each size, shape (size, n_buckets), with both numbers."""
    start = 0
    for size, n in zip(sizes, n_buckets, strict=True):
        yield numbers[start : start + size * n].reshape(size, n), size, n
        start += size * n


def some_buckets(n_buckets: int, width: int) -> Iterator[slice]:
    """Yield some buckets at a time, of which each takes `width` numbers."""
    at_once = max(1, _NUMBERS_AT_ONCE // width)
    for low in range(0, n_buckets, at_once):
        yield slice(low, low + at_once)


def weigh_slots(slots: AnyArray, values: FloatArray) -> FloatArray:
    """Add up the values of some buckets; a row for each attribute of :class:`Weighed`."""
    import numpy as np

    counted, added = slots > 0, np.concatenate(([0.0], values))[slots]
    return np.stack(
        [
            counted.sum(axis=0), added.sum(axis=0), (added * added).sum(axis=0),
            np.maximum(added, 0).sum(axis=0), np.minimum(added, 0).sum(axis=0),
            np.where(counted, added, np.inf).min(axis=0),
            np.where(counted, added, -np.inf).max(axis=0),
        ]
    )  # fmt: skip


def can_meet(records: Counts, values: Counts) -> bool:
    """Whether some bucket has both a matching record and a matching value."""
    return any(bool(((q > 0) & (s > 0)).any()) for q, s in zip(records, values, strict=True))


MOST_PLANES: Final = 8
"""Binary digits of a level."""


class WeightedValue(NamedTuple):
    """The weights of one sensitive value for all records.

    See `kanon_db.publications.buckets.bucket_relations`.
    """

    planes: tuple[int, ...]  # Bitmaps of the levels' binary digits, the lowest first
    parts: int  # A level a is the weight ``a / parts``

    @classmethod
    def of(cls, packed: bytes, n_records: int, parts: int) -> Self:
        """Read the planes, which follow each other."""
        length = (n_records + 7) // 8
        planes = (packed[at : at + length] for at in range(0, len(packed), length))
        return cls(tuple(int.from_bytes(one, "little") for one in planes), parts)

    def sum(self, records: int) -> float:
        """Add up the weights of some records, given as a bitmap."""
        levels = sum((plane & records).bit_count() << at for at, plane in enumerate(self.planes))
        return levels / self.parts


@dataclass(frozen=True)
class Weights:
    """The weights of some sensitive values together."""

    values: Sequence[WeightedValue]
    n_records: int
    # Whether the weights are those of all other values: those of a record add up to 1
    are_others: bool = False

    def sum(self, records: int) -> float:
        """Add up the weights of some records, given as a bitmap."""
        found = sum(value.sum(records) for value in self.values)
        return records.bit_count() - found if self.are_others else found

    @cached_property
    def of_records(self) -> FloatArray:
        """The weight of each record, by its bit."""
        import numpy as np

        weights = np.zeros(self.n_records)
        for value in self.values:
            for at, plane in enumerate(value.planes):
                weights += unpack_bits(plane, self.n_records) * ((1 << at) / value.parts)
        return 1 - weights if self.are_others else weights


class RecordWeights(NamedTuple):
    """What some records weigh together, where QIT has their weights, as in files."""

    n: float  # Their number; of those that have an x, where one is summed
    of_values: FloatArray  # (n_values,): the sum of the weights of each value
    x: float  # The sum of x, and of x times the weights of each value; 0 without
    x_of_values: FloatArray


class ChosenValues(NamedTuple):
    """Some sensitive values, by their places among all."""

    are_chosen: BoolArray  # (n_values,)
    x: FloatArray  # (n_values,): what is summed of each; NaN for nothing


def add_up(
    total: float, of_values: FloatArray, are_chosen: BoolArray, *, by_others: bool = False
) -> float | None:
    """Add up what values weigh together; of most values, what the others leave of a total.

    None where no value is chosen.
    """
    n_chosen = int(are_chosen.sum())
    if not n_chosen:
        return None
    if by_others or 2 * n_chosen > are_chosen.size:
        return total - float(of_values[~are_chosen].sum())
    return float(of_values[are_chosen].sum())


def sum_weighted(
    records: RecordWeights, values: ChosenValues, side: Side, *, is_average: bool
) -> float | None:
    """Sum, or average, what x is of records (side 0), or of values, by their weights."""
    import numpy as np

    if side == 0:
        total = add_up(records.x, records.x_of_values, values.are_chosen)
        number = add_up(records.n, records.of_values, values.are_chosen)
    else:
        total = number = 0.0
        for x in np.unique(values.x[values.are_chosen & ~np.isnan(values.x)]):
            its = values.are_chosen & (values.x == x)
            own = add_up(records.n, records.of_values, its) or 0.0
            total, number = total + own * float(x), number + own
    if total is None or number is None or not is_average:
        return total
    return total / number if number > 0 else None


# Dividing records and values into classes, where a condition needs both sides of a bucketization.
#
# Records are divided into classes by what the condition asks of records alone, and values likewise.
# The condition is then evaluated once for each pair of classes.


Labels: TypeAlias = tuple[int, ...]
"""The number of a class's part in each division."""

Classes: TypeAlias = list[tuple[int, Labels]]
"""The bitmaps of classes that have nothing in common, with their labels."""

Pairs: TypeAlias = Callable[[Labels, Labels], bool | None]
"""Whether a condition is true for a class of records and one of values; None is unknown."""


def divide_classes(classes: Classes, parts: Sequence[int], most: int) -> Classes | None:
    """Divide classes by the part that they are in; None if there would be more than `most`."""
    parts_of = []
    for bits, labels in classes:
        for number, part in enumerate(parts):
            if both := bits & part:
                parts_of.append((both, (*labels, number)))
        if len(parts_of) > most:
            return None
    return parts_of


@dataclass(frozen=True)
class Matching:
    """Which classes of records and of values match; each of them matches one at least."""

    sides: tuple[list[int], list[int]]  # the bitmaps of the classes of records, and of values
    matches: list[tuple[bool, ...]]  # of each class of records with each class of values

    def along(self, side: Side) -> list[tuple[bool, ...]]:
        """Return the matches of each class of one side."""
        return list(zip(*self.matches, strict=True)) if side else self.matches


def match(
    condition: ex.Expression, truths: Mapping[ex.Expression, Pairs], sides: tuple[Classes, Classes]
) -> Matching:
    """Evaluate a condition for each pair of classes, and put alike ones together."""
    records, values = sides
    pairs = [(record, value) for _, record in records for _, value in values]

    def read(leaf: ex.Expression) -> TruthBitmaps:
        truths_of_pairs = [truths[leaf](*pair) for pair in pairs]
        return TruthBitmaps(
            _bitmap([truth is True for truth in truths_of_pairs]),
            _bitmap([truth is None for truth in truths_of_pairs]),
        )

    true = evaluate(condition, read, _bitmap([True] * len(pairs)), truths.__contains__).true
    matches = [bit == "1" for bit in reversed(f"{true:0{len(pairs)}b}")]
    width = len(values)
    of_records = _alike(records, [matches[n * width :][:width] for n in range(len(records))])
    rows = list(of_records)
    of_values = _alike(values, [[row[n] for row in rows] for n in range(width)])
    bitmaps = list(of_records.values()), list(of_values.values())
    return Matching(bitmaps, list(zip(*of_values, strict=True)))


def _bitmap(bits: Sequence[bool]) -> int:
    return int("".join("01"[bit] for bit in reversed(bits)) or "0", 2)


def _alike(classes: Classes, rows: Sequence[Sequence[bool]]) -> dict[tuple[bool, ...], int]:
    """Put classes together that match the same, and leave out those that match nothing."""
    bits_of: dict[tuple[bool, ...], int] = {}
    for (bits, _), row in zip(classes, map(tuple, rows), strict=True):
        if any(row):
            bits_of[row] = bits_of.get(row, 0) | bits
    return bits_of


# Counting the pairs of a record and a value that match, where a condition needs both sides.
#
# Which of them match follows from their classes; see `kanon_db.answers._bitmap_sums`. What a bucket
# gives follows from how many records and values of each class it has or, where there are many
# classes, from its records and values one by one.
#
# Where classes are not known from bitmaps, the server joins the records of each bucket with its
# values (`join_pairs`); alike ones are then a line, as a class is.


_FEW_CODES: Final = 1 << 18
_MOST_CODES: Final = 1 << 62
"""Codes of how many records and values of each class a bucket has: few can be counted each."""


class Divided:
    """How the records, or values, of each bucket are divided into classes; found when asked for."""

    def __init__(
        self,
        bits: int,
        classes: Sequence[int],
        shape: tuple[Sequence[int], Sequence[int]],
        heartbeat: Callable[[], None],
    ) -> None:
        self._bits = bits
        self._classes = classes
        self.shape = shape
        self.heartbeat = heartbeat

    @cached_property
    def counts(self) -> list[Counts]:
        """For each class, how many of it each bucket has, for each bucket size."""
        return [in_buckets(bits, *self.shape) for bits in self._parts()]

    @cached_property
    def slots(self) -> list[AnyArray]:
        """For each bucket size, the class at each place, from 1, shape (size, n_buckets)."""
        n_records = sum(size * n for size, n in zip(*self.shape, strict=True))
        numbers = number_bits(self._parts(), len(self._classes), n_records)
        return [slots for slots, *_ in by_size(numbers, *self.shape)]

    def _parts(self) -> Iterator[int]:
        for bitmap in self._classes:
            self.heartbeat()
            yield self._bits & bitmap


def is_one_by_one(size: int, n_pairs: int) -> bool:
    """Whether the places of a bucket make fewer pairs than the classes."""
    return size * size < n_pairs


def count_pairs(
    records: Divided, values: Divided, matches: Sequence[Sequence[bool]]
) -> MatchedPairs:
    """Count over all buckets what records and values of each class allow."""
    # A bucket has t pairs that match, and t / size of them are expected to be real. The variance is
    # that of Hoeffding 1951. Every cover of the pairs by records and values (König) bounds their
    # number from above, and a cover of the other pairs from below. See
    # docs/understand/estimation.md.
    import numpy as np

    estimate = variance = 0.0
    lower = upper = 0
    m = np.array(matches, dtype=np.float64)
    for place, (size, n_buckets) in enumerate(zip(*records.shape, strict=True)):
        if is_one_by_one(size, m.size):
            found = _one_by_one(records.slots[place], values.slots[place], m)
        else:
            in_records, in_values = (
                [counts[place] for counts in side.counts] for side in (records, values)
            )
            found = _by_classes(in_records, in_values, m, size, n_buckets)
        for n, q, of_q, s, of_s in found:
            records.heartbeat()
            t, spread, least, most = _count_covered(
                _LineClasses(q, of_q), _LineClasses(s, of_s), size
            )
            estimate += float((n * t).sum()) / size
            variance += float((n * spread).sum())
            lower += int((n * least).sum())
            upper += int((n * most).sum())
    return MatchedPairs(estimate, variance, lower, upper)


@dataclass(frozen=True, eq=False)
class _LineClasses:
    """Records, or values, that are alike, in some buckets."""

    n: FloatArray  # how many a line stands for
    of: FloatArray  # with how many of the other side each of them matches
    bucket: IntArray | None = (
        None  # of each line, from 0; without it, rows are lines of all buckets
    )
    n_buckets: int = 0

    def sum(self, numbers: FloatArray) -> FloatArray:
        """Add up numbers of lines in each bucket."""
        import numpy as np

        if self.bucket is None:
            found: FloatArray = numbers.sum(axis=0)
            return found
        return np.bincount(self.bucket, numbers, self.n_buckets).astype(np.float64, copy=False)

    def at(self, numbers: FloatArray | int) -> FloatArray | int:
        """Give each line the number of its bucket."""
        if self.bucket is None or isinstance(numbers, int):
            return numbers
        of_bucket: FloatArray = numbers[self.bucket]
        return of_bucket


def _count_covered(
    records: _LineClasses, values: _LineClasses, size: FloatArray | int
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return the pairs of each bucket, the variance of their number, and its bounds."""
    import numpy as np

    q, of_q, s, of_s = records.n, records.of, values.n, values.of
    q_any, s_any = records.sum(q * (of_q > 0)), values.sum(s * (of_s > 0))
    q_full = records.sum(q * (of_q == records.at(size)))
    s_full = values.sum(s * (of_s == values.at(size)))
    q_all = records.sum(q * ((of_q == records.at(s_any)) & (of_q > 0)))
    s_all = values.sum(s * ((of_s == values.at(q_any)) & (of_s > 0)))
    q_rest = records.sum(q * (of_q > records.at(s_full)))
    s_rest = values.sum(s * (of_s > values.at(q_full)))
    t = records.sum(q * of_q)
    squares = records.sum(q * of_q * of_q) + values.sum(s * of_s * of_s)
    least = np.maximum.reduce(
        [q_full, s_full, q_any + s_all - size, q_all + s_any - size, np.zeros(t.shape)]
    )
    most = np.minimum.reduce([q_any, s_any, q_full + s_rest, s_full + q_rest])
    return t, _spread(t, squares, t * t, size), least, most


def _join_lines(pairs: AnyArray, side: Side, size: FloatArray, bucket: IntArray) -> _PairLines:
    """Put the pairs of each record, or of each value, together."""
    import numpy as np

    own, other = ("record", "value") if side == 0 else ("value", "record")
    _, first, line = np.unique(pairs[own], return_index=True, return_inverse=True)
    n, times = (pairs[f"n_{name}s"].astype(np.float64) for name in (own, other))
    of = np.bincount(line, times).astype(np.float64, copy=False)
    return _PairLines(_LineClasses(n[first], of, bucket[first], size.size), line, times)


class _PairLines(NamedTuple):
    """The lines of one side, the line of each pair, and how many of the other side it has."""

    lines: _LineClasses
    line: IntArray
    times: FloatArray


def _sides(pairs: AnyArray, sizes: SizesOfBuckets) -> tuple[_PairLines, _PairLines, FloatArray]:
    """Return the lines of both sides, and the size of each bucket that has pairs."""
    import numpy as np

    buckets, place = np.unique(pairs["bucket"], return_inverse=True)
    size = sizes(buckets)
    return _join_lines(pairs, 0, size, place), _join_lines(pairs, 1, size, place), size


SizesOfBuckets: TypeAlias = "Callable[[IntArray], FloatArray]"
"""Returns the size of each of some buckets, by their numbers from 0."""


def count_joined(pairs: AnyArray, sizes: SizesOfBuckets) -> FloatArray:
    """Return what the pairs of whole buckets add to an estimate, its variance and its bounds."""
    import numpy as np

    records, values, size = _sides(pairs, sizes)
    t, *error_and_bounds = _count_covered(records.lines, values.lines, size)
    return np.array([one.sum() for one in (t / size, *error_and_bounds)])


def sum_joined(pairs: AnyArray, sizes: SizesOfBuckets) -> tuple[FloatArray, tuple[float, float]]:
    """Return what the pairs of whole buckets add to the totals of a sum, and their extremes."""
    import numpy as np

    x = pairs["x"]
    records, values, size = _sides(pairs, sizes)
    sums: list[list[FloatArray]] = []
    for own in (records, values):
        lines, n, tc = own.lines, own.lines.n, own.lines.of
        tx, txx = (np.bincount(own.line, own.times * one, n.size) for one in (x, x * x))
        least, most = np.full(n.size, np.inf), np.full(n.size, -np.inf)
        np.minimum.at(least, own.line, x)
        np.maximum.at(most, own.line, x)
        is_full = tc == lines.at(size)
        low = np.where(is_full, least, np.minimum(least, 0))
        high = np.where(is_full, most, np.maximum(most, 0))
        parts = (tx, tc, txx, tx * tx, tc * tc, tx * tc, low, high, is_full, np.ones(n.size))
        sums.append([lines.sum(n * part) for part in parts])
    (sx, sc, sxx, *one), other = sums[0], sums[1][3:]
    lxx, lcc, lxc = (a + b for a, b in zip(one[:3], other[:3], strict=True))
    (t_low, c_low), (t_high, c_high) = (
        (choose(one[at], other[at]), choose(one[at + 2], other[at + 2]))
        for at, choose in ((3, np.maximum), (4, np.minimum))
    )
    totals = _totals(size, (sx, sc, sxx), (lxx, lcc, lxc), (t_low, t_high, c_low, c_high))
    return totals, (float(x.min()), float(x.max()))


def _totals(
    size: FloatArray | int,
    of_pairs: Sequence[FloatArray],
    of_lines: Sequence[FloatArray],
    bounds: Sequence[FloatArray],
) -> FloatArray:
    """Add up the sums of some buckets as :func:`~kanon_db.query.formulas.summed` takes them."""
    import numpy as np

    (sx, sc, sxx), (lxx, lcc, lxc) = of_pairs, of_lines
    parts = (
        sx / size, sc / size, _spread(sxx, lxx, sx * sx, size), _spread(sc, lcc, sc * sc, size),
        _spread(sx, lxc, sx * sc, size), *bounds,
    )  # fmt: skip
    return np.array([part.sum() for part in parts])


def _by_classes(
    records: Sequence[AnyArray], values: Sequence[AnyArray], m: FloatArray, size: int, n: int
) -> Iterator[tuple[FloatArray, ...]]:
    """Yield some buckets at a time, with how many are like each.

    For each class of either side, this is how many each bucket has of it, and of its matches.
    """
    import numpy as np

    every, n_classes = (*records, *values), len(records) + len(values)
    n_codes = (size + 1) ** n_classes
    if n_codes <= _MOST_CODES:  # buckets with the same numbers together
        code = np.zeros(n, dtype=np.int64)
        for counts in every:
            code = code * (size + 1) + counts
        if n_codes <= _FEW_CODES:
            times = np.bincount(code)
            different = np.flatnonzero(times)
            times = times[different]
        else:
            different, times = np.unique(code, return_counts=True)
        numbers = np.empty((n_classes, different.size))
        for row in reversed(numbers):
            different, row[:] = np.divmod(different, size + 1)
        q, s = numbers[: len(records)], numbers[len(records) :]
        yield times.astype(np.float64), q, m @ s, s, m.T @ q
        return
    for here in some_buckets(n, n_classes):
        numbers = np.array([counts[here] for counts in every], dtype=np.float64)
        q, s = numbers[: len(records)], numbers[len(records) :]
        yield np.ones(q.shape[1]), q, m @ s, s, m.T @ q


def _one_by_one(
    records: AnyArray, values: AnyArray, m: FloatArray
) -> Iterator[tuple[FloatArray, ...]]:
    """Yield what :func:`_by_classes` does, with each record and value as a class of its own."""
    import numpy as np

    size, n = records.shape
    for here in some_buckets(n, size * size):
        q, s = records[:, here], values[:, here]
        hits = _hits(q, s, m)
        of_q, of_s = (hits.sum(axis=axis, dtype=np.float64) for axis in (0, 1))
        yield np.ones(q.shape[1]), (q > 0).astype(float), of_q, (s > 0).astype(float), of_s


def _hits(records: AnyArray, values: AnyArray, m: FloatArray) -> BoolArray:
    """Return which places match, shape (size of values, size of records, n_buckets)."""
    import numpy as np

    matches = np.zeros((m.shape[0] + 1, m.shape[1] + 1), dtype=bool)  # no class matches nothing
    matches[1:, 1:] = m
    first = records.astype(np.intp) * matches.shape[1]
    hits: BoolArray = matches.ravel()[first + values[:, np.newaxis]]
    return hits


# A line is a class, or one place. Arrays have the shape (n_lines, n_buckets).
@dataclass(frozen=True)
class _Lines:
    """What each line of a side weighs, in some buckets, and each of the other side's."""

    own: Weighed
    others: FloatArray  # how many of the other side a line stands for
    of_own: FloatArray  # how many of the other side match
    of_others: FloatArray
    x: FloatArray  # for lines of the other side, the sum over what matches
    least: FloatArray  # the extremes of what matches; infinite where there is none
    most: FloatArray


def sum_pairs(
    own: Divided,
    numbers: tuple[AnyArray, FloatArray],
    other: Divided,
    matches: Sequence[Sequence[bool]],
    *,
    is_average: bool,
) -> MatchedPairs | None:
    """Sum, or average, what the records, or the values, of each class have over their matches."""
    # A bound of a bucket's sum is what each place of this side can add at most, or what each place
    # of the other side can; the tighter one is taken.
    import numpy as np

    m = np.array(matches, dtype=np.float64)
    which, x_of = numbers
    totals, extremes = np.zeros(9), (math.inf, -math.inf)
    for place, (slots, size, n) in enumerate(by_size(which, *own.shape)):
        for here in some_buckets(n, size * min(size, len(m))):
            own.heartbeat()
            classes, x = own.slots[place][:, here], slots[:, here]
            if is_one_by_one(size, m.size):
                lines = _places(classes, x, x_of, other.slots[place][:, here], m)
            else:
                s = np.array([counts[place][here] for counts in other.counts], dtype=np.float64)
                lines = _weigh_classes(classes, x, x_of, s, m)
            sums, (least, most) = _sums(lines, size)
            totals += sums
            extremes = min(extremes[0], least), max(extremes[1], most)
    return summed(totals.tolist(), extremes, is_average=is_average)


def _weigh_classes(
    classes: AnyArray, slots: AnyArray, x_of: FloatArray, s: FloatArray, m: FloatArray
) -> _Lines:
    """Weigh the classes of some buckets."""
    import numpy as np

    weighed = (
        weigh_slots(np.where(classes == number, slots, 0), x_of) for number in range(1, len(m) + 1)
    )
    own = Weighed(*np.stack(list(weighed), axis=1))
    of_own = m @ s
    low, high = np.where(of_own > 0, own.least, np.inf), np.where(of_own > 0, own.most, -np.inf)
    least = np.array([low[column > 0].min(axis=0) for column in m.T])
    most = np.array([high[column > 0].max(axis=0) for column in m.T])
    return _Lines(own, s, of_own, m.T @ own.n, m.T @ own.x, least, most)


def _places(
    classes: AnyArray, slots: AnyArray, x_of: FloatArray, values: AnyArray, m: FloatArray
) -> _Lines:
    """Weigh each place of some buckets."""
    import numpy as np

    has = slots > 0
    x = np.concatenate(([0.0], x_of))[slots]
    hits = _hits(classes * has, values, m)
    of_own, of_others = (hits.sum(axis=axis, dtype=np.float64) for axis in (0, 1))
    low, high = np.where(hits, x, np.inf).min(axis=1), np.where(hits, x, -np.inf).max(axis=1)
    own = Weighed(
        has.astype(np.float64), x, x * x, np.maximum(x, 0), np.minimum(x, 0),
        np.where(has, x, np.inf), np.where(has, x, -np.inf),
    )  # fmt: skip
    s = (values > 0).astype(np.float64)
    return _Lines(own, s, of_own, of_others, np.where(hits, x, 0).sum(axis=1), low, high)


def _sums(lines: _Lines, size: int) -> tuple[FloatArray, tuple[float, float]]:
    """Add up the sums of some buckets; the least and the greatest value."""
    import numpy as np

    own, of_own, q_of, x_of = lines.own, lines.of_own, lines.of_others, lines.x
    q, x, s = own.n, own.x, lines.others
    has, full, is_full = of_own > 0, of_own == size, q_of == size
    # What a place of the other side can add: the extremes of what it matches, or nothing.
    is_any = (s > 0) & (q_of > 0)
    lowest, highest = (np.where(is_any, ends, 0) for ends in (lines.least, lines.most))
    lowest = np.where(is_full, lowest, np.minimum(lowest, 0))
    highest = np.where(is_full, highest, np.maximum(highest, 0))
    sx, sc, sxx = ((numbers * of_own).sum(axis=0) for numbers in (x, q, own.squares))
    lxx, lcc, lxc = (
        (numbers * of_own * of_own).sum(axis=0) + (s * one * other).sum(axis=0)
        for numbers, one, other in ((own.squares, x_of, x_of), (q, q_of, q_of), (x, x_of, q_of))
    )
    own_high, own_low = (
        (has * np.where(full, x, ends)).sum(axis=0) for ends in (own.positive, own.negative)
    )
    t_high = np.minimum(own_high, (s * highest).sum(axis=0))
    t_low = np.maximum(own_low, (s * lowest).sum(axis=0))
    c_high = np.minimum((q * has).sum(axis=0), (s * (q_of > 0)).sum(axis=0))
    c_low = np.maximum((q * full).sum(axis=0), (s * is_full).sum(axis=0))
    totals = _totals(size, (sx, sc, sxx), (lxx, lcc, lxc), (t_low, t_high, c_low, c_high))
    least, most = np.where(has, own.least, np.inf), np.where(has, own.most, -np.inf)
    return totals, (float(least.min()), float(most.max()))


def _spread(
    pairs: FloatArray, lines: FloatArray, product: FloatArray, size: FloatArray | int
) -> FloatArray:
    """Return a variance, or the covariance, over random matchings."""
    import numpy as np

    variance: FloatArray = pairs - lines / size + product / (size * size)
    variance /= np.maximum(size - 1, 1)
    return variance


_ALIASES: Final = ("r", "v")

Features = dict[ex.Expression, str]
"""Expressions on one side, with the names of their columns."""


def join_pairs(plan: Plan, tables: BucketTables, lookups: Sequence[Lookup]) -> Statement:
    """Write the statement that joins the records of each bucket with its values."""
    # It returns the keys ``k0 …``, ``bucket`` from 0, ``record`` and ``value`` (the numbers of what
    # is alike in all that both sides need), how many of each there are, and what is summed: ``x``,
    # where it ``has`` one.
    keys = {f"k{key.number}": key.expression for key in plan.keys}
    constants, steps = Constants(), Steps()
    features: tuple[Features, Features] = ({}, {})
    summed = [] if plan.summed is None else [plan.summed]
    for expression in (*plan.pairs, *keys.values(), *summed):
        _collect(expression, plan, features)
    names: Features = {}
    side: Side
    for side, where in ((0, plan.records), (1, plan.values)):
        what, alias = ("record", "value")[side], _ALIASES[side]
        parts = {column: feature for feature, column in features[side].items()}
        lines = count_in_buckets(tables, side, parts, where, None, lookups, constants)
        comment = f"The {what}s of each bucket; those lines in all that both sides need, together."
        steps.add(f"alike_{what}s", comment, lines)
        numbered_ = Select({"*": "*", "id": "row_number() OVER ()"}, [f"alike_{what}s"])
        steps.add(f"{what}_classes", "Each with a number.", numbered_)
        names |= {feature: f"{alias}.{column}" for feature, column in features[side].items()}

    def over(expression: Expression) -> str:
        return _over(expression, names, constants)

    columns = {name: over(key) for name, key in keys.items()}
    columns |= {"bucket": "r.bucket", "record": "r.id", "n_records": "r.n"}
    columns |= {"value": "v.id", "n_values": "v.n"}
    if plan.summed is not None:
        x = over(plan.summed)
        columns |= {"has": f"(({x}) IS NOT NULL)::int4", "x": f"({x})::float8"}
    source = ["record_classes AS r", "JOIN value_classes AS v ON v.bucket = r.bucket"]
    where_both = [f"({over(part)})" for part in plan.pairs]
    comment = "Each pair that counts, if it is a real one."
    steps.add("pairs", comment, Select(columns, source, where_both))
    return Statement(steps.write(), constants.bound)


def _collect(expression: Expression, plan: Plan, features: tuple[Features, Features]) -> None:
    """Name the largest parts of an expression that are on one side."""
    if not ex.attributes(expression):
        return
    side = plan.side(expression)
    if side is None:
        for inner in ex.children(expression):
            _collect(inner, plan, features)
    else:
        features[side].setdefault(expression, f"f{len(features[side])}")


def _over(expression: Expression, names: Features, constants: Constants) -> str:
    """Write an expression of which some parts are columns already."""

    def change(part: Expression) -> Expression | None:
        if part not in names:
            return None
        # A column's type decides on the operators; conditions and results need none.
        type_ = part.type if isinstance(part, ex.Column) else TEXT
        return ex.Column(names[part], names[part], type_)

    return write(ex.replace_parts(expression, change), lambda column: column.sql, constants)
