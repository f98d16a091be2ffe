"""Evaluates conditions, numbers and groups for the slots of buckets, from codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kanon_db.algorithms.ground.arrays import AnyIntArray, FloatArray, IntArray
from kanon_db.answers.plan import is_combination
from kanon_db.dataclasses import dataclass
from kanon_db.publications.codes import Chunk, StoredColumn
from kanon_db.query import expressions as ex
from kanon_db.query.layout import Side
from kanon_db.transfer.tries import FALSE, TRUE

Mask = NDArray[np.uint8]
"""0 or 1 for each slot."""

LARGEST: Final = 1 << 62
"""Up to this, combinations have numbers of 64 bits."""


def may_fail(expression: ex.Expression) -> bool:
    """Whether PostgreSQL may fail to calculate an expression for some values."""
    return any(
        isinstance(part, ex.Arithmetic | ex.Cast | ex.Negative | ex.Call)
        for part in ex.walk(expression)
    )


def divides(expression: ex.Expression) -> bool:
    """Whether PostgreSQL may fail to calculate an expression for values that are not large."""
    return any(
        isinstance(part, ex.Cast | ex.Call)
        or (isinstance(part, ex.Arithmetic) and part.operator in "/%")
        for part in ex.walk(expression)
    )


def guard(condition: ex.Expression, guards: Sequence[ex.Expression]) -> ex.Expression:
    """Let the parts of a condition that may fail be tried only where other conditions hold."""
    chosen = ex.joined(ex.And, guards)

    def change(part: ex.Expression) -> ex.Expression | None:
        if chosen is None or is_combination(part) or not divides(part):
            return None
        return ex.Case(((chosen, part),), None)

    return ex.replace_parts(condition, change)


@lru_cache(maxsize=1 << 8)  # It is asked again for each run of buckets.
def is_tried_whole(condition: ex.Expression) -> bool:
    """Whether the server tries a condition as a whole: a part alone might fail."""
    if len(ex.attributes(condition)) <= 1 or not is_combination(condition):
        return True
    if isinstance(condition, ex.Case) and divides(condition):
        return True  # what a branch keeps from a division by zero would be tried without it
    return any(
        len(ex.attributes(part)) > 1 and not is_combination(part) and may_fail(part)
        for part in ex.walk(condition)
    )


def leaves_of(condition: ex.Expression | None) -> Iterator[ex.Expression]:
    """Yield the parts of a condition that the server tries."""
    if condition is None:
        return
    if is_tried_whole(condition):
        yield condition
        return
    for part in ex.by_attribute(condition).children:
        yield from leaves_of(part)


class Outcomes(NamedTuple):
    """An answer for each combination of the values of some columns."""

    columns: tuple[str, ...]
    answers: Any
    # The numbers of the combinations that were tried, ascending; None for all
    codes: IntArray | None = None
    texts: Sequence[str] = ()  # of keys, by rank

    def of(self, codes: AnyIntArray) -> Any:
        """Return the answers for the numbers of combinations."""
        if self.codes is None:
            return self.answers.take(codes)
        return self.answers.take(np.searchsorted(self.codes, codes))

    @property
    def distinct(self) -> FloatArray:
        """The numbers that there are, ascending, NaN for NULL not among them."""
        numbers: FloatArray = np.unique(self.answers)
        return numbers[~np.isnan(numbers)]

    def ranked(self) -> Outcomes:
        """Replace each number by its rank; that of NULL is the last."""
        return self._replace(answers=np.searchsorted(self.distinct, self.answers))


@dataclass(frozen=True, eq=False)
class ValueOutcomes:
    """What the server says of the values of a store's columns: data, which other machines read."""

    columns: Mapping[str, StoredColumn]
    _answers: Mapping[tuple[str, ex.Expression], Outcomes]

    def truth(self, leaf: ex.Expression) -> Outcomes:
        """Return where a condition is true, unknown or false."""
        return self._answers["truth", leaf]

    def number(self, expression: ex.Expression) -> Outcomes:
        """Return the number of each combination; NaN for NULL."""
        return self._answers["number", expression]

    def of_operand(self, measure: ex.Aggregate) -> Outcomes:
        """Return the number of what an aggregate is of, or where values are only told apart, rank.

        Either is NaN for NULL.
        """
        if measure.operand is None:
            raise TypeError("nothing but records is counted")
        what = "rank" if measure.function == "distinct" else "number"
        return self._answers[what, measure.operand]

    def key(self, expression: ex.Expression) -> Outcomes:
        """Return the rank of each combination's value, with texts."""
        return self._answers["key", expression]


def combine_codes(codes: Sequence[AnyIntArray], sizes: Sequence[int]) -> AnyIntArray:
    """Give each combination of codes, whose shapes are broadcast, a number; the last is fastest."""
    kind = np.int32 if prod(sizes) < 1 << 31 else np.int64
    number: AnyIntArray = np.zeros((), kind)
    for own, size in zip(codes, sizes, strict=True):
        number = own.astype(kind) if number.ndim == 0 else number * kind(size) + own
    return number


def along(in_block: Any, side: Side) -> Any:
    """Put an array (size, n_buckets) along the axis of its side: for pairs."""
    return in_block[np.newaxis] if side else in_block[:, np.newaxis]


class Slots:
    """The slots of a chunk, on both sides: an array has an element for each."""

    def __init__(
        self,
        outcomes: ValueOutcomes,
        chunk: Chunk,
        codes: Mapping[str, bytes],
        heartbeat: Callable[[], None] = lambda: None,
    ) -> None:
        self.outcomes, self.chunk, self._codes = outcomes, chunk, codes
        self.heartbeat = heartbeat
        self.n = chunk.n_records
        self._masks: dict[tuple[ex.Expression, int], Mask] = {}

    def look_up(self, outcomes: Outcomes, table: Any) -> Any:
        """Give each slot its element of a table of what was tried."""
        columns = [self.outcomes.columns[name] for name in outcomes.columns]
        if not columns:
            return np.full(self.n, table.ravel()[0])
        if len(columns) == 1 and table.size <= 256 and table.dtype.itemsize == 1:
            # bytes.translate takes half a nanosecond a slot, numpy's take two.
            translated = self._codes[columns[0].name].translate(table.tobytes().ljust(256, b"\0"))
            return np.frombuffer(translated, table.dtype)
        if len(columns) == 1:
            return table.take(self.codes(columns[0].name))
        codes = combine_codes([self.codes(c.name) for c in columns], [c.n_values for c in columns])
        return outcomes._replace(answers=table).of(codes)

    def levels(self, name: str) -> AnyIntArray:
        """Return the level of a weight for each slot, where these are read with the codes."""
        return np.frombuffer(self._codes[name], np.uint8)

    def codes(self, name: str) -> AnyIntArray:
        """Return the code of a column for each slot."""
        return np.frombuffer(self._codes[name], self.outcomes.columns[name].dtype)

    def blocks(
        self, n_lines: Callable[[int], int], *arrays: tuple[Any, Any]
    ) -> Iterator[tuple[Any, ...]]:
        """Divide arrays, each with what a slot has that is not there, some buckets at a time.

        Yields their sizes, then arrays (size, n_buckets); `n_lines`: how many of theirs are paired.
        """
        for block in self.chunk.blocks(lambda size: 8 * max(size, n_lines(size))):
            yield (
                block.sizes,
                *(None if own is None else block.slots(own, lacking) for own, lacking in arrays),
            )
            self.heartbeat()

    def where(self, condition: ex.Expression | None, wanted: int = TRUE) -> Mask:
        """Mark where a condition is true, or false."""
        if condition is None:
            return np.full(self.n, int(wanted == TRUE), np.uint8)
        if (condition, wanted) not in self._masks:
            self._masks[condition, wanted] = self._find(condition, wanted)
        return self._masks[condition, wanted]

    def _find(self, condition: ex.Expression, wanted: int) -> Mask:
        if is_tried_whole(condition):
            outcomes = self.outcomes.truth(condition)
            mask: Mask = self.look_up(outcomes, (outcomes.answers == wanted).astype(np.uint8))
        else:
            mask = combine_truths(condition, wanted, self.where)
        return mask


def combine_truths(condition: ex.Expression, wanted: int, where: Callable[[Any, int], Any]) -> Any:
    """Find where a combination is true, or false, from where its parts are: arrays of 0 and 1."""
    match ex.by_attribute(condition):
        case ex.And(parts) | ex.Or(parts) as chain:
            join = (
                np.bitwise_and if isinstance(chain, ex.And) == (wanted == TRUE) else np.bitwise_or
            )
            return reduce(join, (where(part, wanted) for part in parts))
        case ex.Not(part):
            return where(part, TRUE - wanted)
        case ex.TruthTest(part, truth, negated):
            if truth == "unknown":
                met = 1 - (where(part, TRUE) | where(part, FALSE))
            else:
                met = where(part, TRUE if truth == "true" else FALSE)
            return met if negated == (wanted == FALSE) else 1 - met
        case ex.Case(branches, default):
            met, rest = np.uint8(0), np.uint8(1)
            for when, then in branches:
                true = where(when, TRUE)
                met = met | (rest & true & where(then, wanted))
                rest = rest & (1 - true)
            return met if default is None else met | (rest & where(default, wanted))
        case other:  # all parts of the chain are on one attribute
            return where(other, wanted)


class Grouping(NamedTuple):
    """The groups that the keys of one side make: numbers of combinations of ranks."""

    keys: Sequence[Outcomes]
    # The numbers of the groups that occur, ascending, which have their places; None for all
    numbers: IntArray | None = None

    @property
    def n_combinations(self) -> int:
        """The number of combinations of ranks."""
        return prod(len(key.texts) for key in self.keys)

    @property
    def n(self) -> int:
        """The number of groups that there may be."""
        return self.n_combinations if self.numbers is None else self.numbers.size

    def combine(self, slots: Slots) -> AnyIntArray:
        """Return the combination of ranks of each slot."""
        ranks = [slots.look_up(key, key.answers) for key in self.keys]
        return combine_codes(ranks, [len(key.texts) for key in self.keys])

    def of(self, slots: Slots, mask: Mask) -> AnyIntArray | None:
        """Return the group of each slot, `n` where the mask has 0; None if there is one group."""
        if not self.keys:
            return None
        if self.numbers is not None:
            place = np.searchsorted(self.numbers, self.combine(slots))
            return np.where(mask.view(np.bool_), place, self.n)
        kind = np.dtype(np.uint8 if self.n < 255 else np.uint16 if self.n < 65_535 else np.int64)
        group: AnyIntArray = np.zeros(slots.n, kind)
        for key in self.keys:
            group = group * kind.type(len(key.texts))
            group += slots.look_up(key, key.answers.astype(kind))
        return np.where(mask.view(np.bool_), group, kind.type(self.n))

    def ranks(self, group: int) -> tuple[int, ...]:
        """Return the rank of each key's value."""
        ranks = []
        if self.numbers is not None:
            group = int(self.numbers[group])
        for key in reversed(self.keys):
            group, rank = divmod(group, len(key.texts))
            ranks.append(rank)
        return tuple(reversed(ranks))
