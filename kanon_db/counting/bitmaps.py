"""Counting with bitmaps: predicates and bucket sums on all records at once.

A bitmap is a Python integer with one bit a record, placed as
:mod:`kanon_db.algorithms.bucketization.slots` says. Integers of a million bits are combined in
microseconds; numpy adds up the slots of each bucket in some hundred.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import and_, or_
from typing import TYPE_CHECKING, NamedTuple, Self

from kanon_db.counting import expressions as ex
from kanon_db.counting.answers import Estimated
from kanon_db.counting.chains import by_attribute
from kanon_db.counting.formulas import Weighed

if TYPE_CHECKING:  # an answer on one side only needs no numpy
    from typing import Any

    import numpy as np
    from numpy.typing import NDArray

    from kanon_db.algorithms.ground.arrays import FloatArray
    from kanon_db.counting.formulas import Counts

    AnyArray = NDArray[Any]


_NUMBERS_AT_ONCE = 1 << 19
"""Of records that are looked up at a time: some megabytes."""


class Truth(NamedTuple):
    """For each record whether a predicate is true, or unknown for a NULL; else it is false."""

    true: int
    unknown: int


def is_readable(
    condition: ex.Expression, with_bitmaps: frozenset[str], sensitive: str | None = None
) -> bool:
    """Whether a condition is a combination of conditions on one attribute with bitmaps each.

    Parameters
    ----------
    condition : Expression
    with_bitmaps : frozenset of str
    sensitive : str, optional
        Conditions may also compare this attribute with one other.
    """
    mentioned = ex.attributes(condition)
    if len(mentioned) <= 1:
        return bool(with_bitmaps) and mentioned <= with_bitmaps
    if not is_combination(condition):
        return len(mentioned) == 2 and sensitive in mentioned and mentioned <= with_bitmaps
    if isinstance(condition, ex.Case) and any(map(_divides, ex.walk(condition))):
        return False  # what a branch keeps from a division by zero would be evaluated without it
    return all(is_readable(part, with_bitmaps, sensitive) for part in ex.children(condition))


def is_combination(condition: ex.Expression) -> bool:
    """Whether the truth of a condition follows from that of its parts."""
    return isinstance(condition, ex.And | ex.Or | ex.Not | ex.TruthTest | ex.Case)


def _divides(expression: ex.Expression) -> bool:
    return isinstance(expression, ex.Arithmetic) and expression.operator in "/%"


def is_on_one_attribute(condition: ex.Expression) -> bool:
    """Whether a condition depends on one attribute, or on none."""
    return len(ex.attributes(condition)) <= 1


def evaluate(
    condition: ex.Expression | None,
    read: Callable[[ex.Expression], Truth],
    everything: int,
    is_read: Callable[[ex.Expression], bool] = is_on_one_attribute,
) -> Truth:
    """Evaluate a readable condition in SQL's three-valued logic.

    Parameters
    ----------
    condition : Expression or None
        None is true for every record.
    read : callable
        Finds the truth of a condition as a whole.
    everything : int
        The bitmap of all records.
    is_read : callable, optional
        Which conditions are read; the others are evaluated from their parts.
    """
    if condition is None:
        return Truth(everything, 0)
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
            return Truth(true, possible & ~true)
        case ex.Not(part):
            truth = evaluate(part, read, everything, is_read)
            return Truth(everything & ~(truth.true | truth.unknown), truth.unknown)
        case ex.TruthTest(part, wanted, negated):
            truth = evaluate(part, read, everything, is_read)
            held = {
                "true": truth.true,
                "false": everything & ~(truth.true | truth.unknown),
                "unknown": truth.unknown,
            }[wanted]
            return Truth(everything & ~held if negated else held, 0)
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
                Truth(0, rest) if default is None else evaluate(default, read, everything, is_read)
            )
            return Truth(true | rest & truth.true, unknown | rest & truth.unknown)
    raise TypeError("the condition is not readable")


def count_exactly(true: int) -> Estimated:
    """Answer a query on one side only."""
    n = true.bit_count()
    return Estimated(float(n), 0.0, n, n)


def in_buckets(bitmap: int, sizes: Sequence[int], n_buckets: Sequence[int]) -> Counts:
    """Count the bits of each bucket.

    Parameters
    ----------
    bitmap : int
    sizes, n_buckets : sequence of int
        Each bucket size, ascending, with its number of buckets.

    Examples
    --------
    >>> [counts.tolist() for counts in in_buckets(0b1101_1, [1, 2], [1, 2])]
    [[1], [2, 1]]
    """
    import numpy as np

    bits = unpacked(bitmap, sum(size * n for size, n in zip(sizes, n_buckets, strict=True)))
    return [
        # 255 slots fit one byte, which numpy adds several times as fast.
        slots.sum(axis=0, dtype=np.uint8 if size < 256 else np.uint16)
        for slots, size, _ in by_size(bits, sizes, n_buckets)
    ]


def unpacked(bitmap: int, n_records: int) -> NDArray[np.uint8]:
    """Return the bits of a bitmap, each as a number."""
    import numpy as np

    packed = np.frombuffer(bitmap.to_bytes((n_records + 7) // 8, "little"), dtype=np.uint8)
    return np.unpackbits(packed, bitorder="little", count=n_records)


def numbered(bitmaps: Iterable[int], n_bitmaps: int, n_records: int) -> AnyArray:
    """Return which of several bitmaps has each bit, from 1; 0 where none has it.

    No two of them have a bit in common. The numbers are of the smallest type that holds them.
    """
    import numpy as np

    dtype = np.min_scalar_type(n_bitmaps)
    found = np.zeros(n_records, dtype=dtype)
    for number, bitmap in enumerate(bitmaps, start=1):
        found += unpacked(bitmap, n_records) * dtype.type(number)
    return found


def weigh(
    numbers: AnyArray, values: FloatArray, sizes: Sequence[int], n_buckets: Sequence[int]
) -> list[Weighed]:
    """Add up what is known of values, for the buckets of each size.

    Parameters
    ----------
    numbers : ndarray of unsigned int, shape (n_records,)
        Which of the values each record has, from 1; 0 for none.
    values : ndarray of float64
    sizes, n_buckets : sequence of int
        Each bucket size, ascending, with its number of buckets.
    """
    import numpy as np

    found = []
    for slots, size, n in by_size(numbers, sizes, n_buckets):
        sums = np.empty((7, n))
        for here in some_buckets(n, size):
            sums[:, here] = weigh_slots(slots[:, here], values)
        found.append(Weighed(*sums))
    return found


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


@dataclass(frozen=True, eq=False)
class Composed:
    """How the sensitive values of buckets go together; see `kanon_db.counting.regression`.

    Attributes
    ----------
    values : ndarray of uint8, shape (n_records,)
        The number of the sensitive value at each place of a bitmap.
    directions, hidden : ndarray of float64, shape (n_values, n_directions)
    """

    values: NDArray[np.uint8]
    directions: FloatArray
    hidden: FloatArray

    @classmethod
    def of(
        cls, rows: Iterable[tuple[bytes, Sequence[float], Sequence[float]]], n_records: int
    ) -> Self:
        """Gather the bitmap of each sensitive value, with its directions and what is hidden."""
        import numpy as np

        values = np.zeros(n_records, dtype=np.uint8)
        directions, hidden = [], []
        for number, (bits, one, other) in enumerate(rows):
            packed = np.frombuffer(bits, dtype=np.uint8)
            values += np.unpackbits(packed, bitorder="little", count=n_records) * np.uint8(number)
            directions.append(one)
            hidden.append(other)
        return cls(values, np.array(directions, dtype=float), np.array(hidden, dtype=float))

    def along(
        self, matching: Sequence[AnyArray], sizes: Sequence[int], n_buckets: Sequence[int]
    ) -> tuple[FloatArray, float, float]:
        """Estimate how often each value goes with a match, along the directions.

        Parameters
        ----------
        matching : sequence of ndarray, shape (n_buckets,)
            What matches in each bucket, for each bucket size.
        sizes, n_buckets : sequence of int

        Returns
        -------
        along : ndarray of float64, shape (n_directions,)
        total, packed : float
            The sum of what matches; that of its square over the size.
        """
        import numpy as np

        expected = np.zeros(self.directions.shape[0])
        total = packed = 0.0
        start = 0
        for size, n, numbers in zip(sizes, n_buckets, matching, strict=True):
            shares = numbers.astype(np.float64) / size
            total += float(shares.sum()) * size
            packed += float(shares @ shares) * size
            for _ in range(size):
                expected += np.bincount(
                    self.values[start : start + n], weights=shares, minlength=expected.size
                )
                start += n
        return expected @ self.directions, total, packed

    def levels(self, parts: Iterable[tuple[float, int]]) -> FloatArray:
        """Return what is hidden of values, along the directions.

        Parameters
        ----------
        parts : iterable of (float, int)
            What some values add, with the bitmap of these values.
        """
        import numpy as np

        n_records = self.values.size
        added = np.zeros(self.directions.shape[0])
        for x, bitmap in parts:
            bits = unpacked(bitmap, n_records).astype(bool)
            added[np.bincount(self.values[bits], minlength=added.size) > 0] += x
        return added @ self.hidden
