"""Keeps the losses and constraints of equivalence classes up to date as records enter and leave.

Compiled code reads classes as summaries of bits and ends, and constraints on sensitive values and
entities as :class:`ConstraintRules`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field, replace
from fractions import Fraction
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
    Integer,
    WordArray,
)
from kanon_db.algorithms.ground.computation import kernel
from kanon_db.algorithms.recoding.loss import Ncp
from kanon_db.dataclasses import dataclass
from kanon_db.errors import IneligibleError, InvalidParameterError

_BITS = 64
# The product with a power of two identifies the power by its leading six bits.
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_LOWEST_BIT = np.zeros(64, dtype=np.int64)
_LOWEST_BIT[[(0x03F79D71B4CB0A89 << position) % 2**64 >> 58 for position in range(64)]] = np.arange(
    64
)


class PackedRecords(NamedTuple):
    """Records as bits and positions."""

    # (n_records, g): the word that holds the record's bits, for each group of attributes
    words: CodeArray
    bits: WordArray  # (n_records, g): the bits themselves: one for each attribute of the group
    bit_loss: IntArray  # (64 n_words,): loss, in units, of one more value, by its bit
    numbers: CodeArray  # (n_records, p): positions of the numeric attributes
    whole: IntArray  # (p,): loss, in units, of a numeric cell that tells nothing
    one_value: int  # Loss, in units, of the bits of one record, which a class does not lose

    @classmethod
    def of(cls, ncp: Ncp) -> PackedRecords:
        """Pack the values of records.

        Attributes with few values share a word; one with more than 64 has words of its own.
        """
        categorical = np.flatnonzero(~ncp.numeric).tolist()
        codes = {j: np.unique(ncp.values[:, j], return_inverse=True)[1] for j in categorical}
        sizes = {j: int(codes[j].max(initial=0)) + 1 for j in categorical}
        groups: list[tuple[int, list[int]]] = []  # bits in use, attributes
        for j in sorted(categorical, key=lambda j: -sizes[j]):
            for position, (n_used, members) in enumerate(groups):
                if n_used + sizes[j] <= _BITS:
                    groups[position] = (n_used + sizes[j], [*members, j])
                    break
            else:
                groups.append((sizes[j], [j]))
        n_words = [-(-n_used // _BITS) for n_used, _ in groups]
        words = np.zeros((ncp.values.shape[0], len(groups)), dtype=np.int32)
        bits = np.zeros(words.shape, dtype=np.uint64)
        bit_loss = np.zeros(sum(n_words) * _BITS, dtype=np.int64)
        for g, (_, members) in enumerate(groups):
            offset = sum(n_words[:g]) * _BITS
            words[:, g] = offset // _BITS
            for j in members:
                positions = offset + codes[j]
                words[:, g] = positions // _BITS
                bits[:, g] |= np.uint64(1) << (positions % _BITS).astype(np.uint64)
                bit_loss[offset : offset + sizes[j]] = ncp.step[j]
                offset += sizes[j]
        numbers = np.ascontiguousarray(ncp.values[:, ncp.numeric])
        one_value = int(ncp.step.sum())
        return cls(words, bits, bit_loss, numbers, ncp.whole[ncp.numeric], one_value)

    @property
    def n_words(self) -> int:
        """Words of the set of a class."""
        return self.bit_loss.size // _BITS


@kernel
def _lowest_bit(bits: np.uint64) -> Integer:
    """Find the position of the lowest bit that is set."""
    alone = bits & (~bits + np.uint64(1))
    return np.int64(_LOWEST_BIT[(alone * _DE_BRUIJN) >> np.uint64(58)])


@kernel
def bits_loss(bits: np.uint64, word: Integer, bit_loss: IntArray) -> Integer:
    """Loss, in units, of all values of a word."""
    total = 0
    while bits:
        total += int(bit_loss[np.int64(word) * 64 + _lowest_bit(bits)])
        bits &= bits - np.uint64(1)
    return total


_BEYOND = 2**31 - 1

NONE: Final = np.int64(-1)
"""No record, or no class. It is an int64, as are numbers of records, since numba would compile each
kernel again for other types."""


class ClassSummaries(NamedTuple):
    """Equivalence classes and summaries of their records; changed in place.

    The second set of bits and the second lowest and highest positions tell the loss of the class
    without a record, or with another one, without a look at its records.
    """

    class_of_record: IntArray  # (n_records,): -1 for a record in none
    # (starts[-1],): records of class g, in the first ``sizes[g]`` places from ``starts[g]`` on
    members: CodeArray
    starts: IntArray  # (n_classes + 1,)
    place: CodeArray  # (n_records,): where in ``members`` each record is
    sizes: IntArray  # (n_classes,): records of each class
    present: WordArray  # (n_classes, n_words): values that some record has, and that just one has
    once: WordArray
    ends: CodeArray  # (n_classes, p, 4): lowest, second lowest, highest and second highest position
    losses: IntArray  # (n_classes,): loss, in units, of each record of the class

    @classmethod
    def of(cls, records: PackedRecords, class_of_record: IntArray, room: int = 0) -> ClassSummaries:
        """Gather the records of each class."""
        n_classes = int(class_of_record.max(initial=-1)) + 1
        sizes = np.bincount(class_of_record + 1, minlength=n_classes + 1)[1:]
        order = np.argsort(class_of_record, kind="stable")[class_of_record.size - sizes.sum() :]
        starts = np.concatenate([[0], np.cumsum(sizes + room)])
        places = np.arange(order.size) + np.repeat(np.arange(n_classes) * room, sizes)
        place = np.zeros(class_of_record.size, dtype=np.int32)
        place[order] = places
        members = np.full(starts[-1], -1, dtype=np.int32)
        members[places] = order
        shape = (n_classes, records.n_words)
        classes = cls(
            class_of_record.copy(), members, starts, place, sizes,
            np.zeros(shape, dtype=np.uint64), np.zeros(shape, dtype=np.uint64),
            np.zeros((n_classes, records.whole.size, 4), dtype=np.int32),
            np.zeros(n_classes, dtype=np.int64),
        )  # fmt: skip
        _summarize_all(records, classes)
        return classes


@kernel(inline="always")
def members_of(classes: ClassSummaries, g: Integer) -> CodeArray:
    """List the records of class g."""
    start = classes.starts[g]
    return classes.members[start : start + classes.sizes[g]]


@kernel
def exchange(
    records: PackedRecords, classes: ClassSummaries, g: Integer, leaving: Integer, entering: Integer
) -> Integer:
    """Return the growth of a record's loss in class g if one record leaves and another enters."""
    difference = 0
    for group in range(records.words.shape[1]):
        word_out, word_in = records.words[leaving, group], records.words[entering, group]
        bits_in = records.bits[entering, group]
        gained = bits_in & ~classes.present[g, word_in]
        lost = records.bits[leaving, group] & classes.once[g, word_out]
        if word_out == word_in:
            lost &= ~bits_in
        if gained:
            difference += bits_loss(gained, word_in, records.bit_loss)
        if lost:
            difference -= bits_loss(lost, word_out, records.bit_loss)
    for j in range(records.whole.size):
        low, high = classes.ends[g, j, 0], classes.ends[g, j, 2]
        before = min(np.int64(high - low), records.whole[j])
        number = records.numbers[leaving, j]
        if number == low:
            low = classes.ends[g, j, 1]
        if number == high:
            high = classes.ends[g, j, 3]
        number = records.numbers[entering, j]
        low, high = min(low, number), max(high, number)
        difference += min(np.int64(high - low), records.whole[j]) - before
    return difference


@kernel
def entry(
    records: PackedRecords, classes: ClassSummaries, g: Integer, entering: Integer
) -> Integer:
    """Return the growth of a record's loss in class g if another record enters."""
    difference = 0
    for group in range(records.words.shape[1]):
        word = records.words[entering, group]
        gained = records.bits[entering, group] & ~classes.present[g, word]
        if gained:
            difference += bits_loss(gained, word, records.bit_loss)
    for j in range(records.whole.size):
        low, high = classes.ends[g, j, 0], classes.ends[g, j, 2]
        number = records.numbers[entering, j]
        after = max(high, number) - min(low, number)
        difference += min(np.int64(after), records.whole[j])
        difference -= min(np.int64(high - low), records.whole[j])
    return difference


@kernel
def departure(
    records: PackedRecords, classes: ClassSummaries, g: Integer, leaving: Integer
) -> Integer:
    """Return the growth, at most 0, of a record's loss in class g if one of several leaves."""
    difference = 0
    for group in range(records.words.shape[1]):
        word = records.words[leaving, group]
        lost = records.bits[leaving, group] & classes.once[g, word]
        if lost:
            difference -= bits_loss(lost, word, records.bit_loss)
    for j in range(records.whole.size):
        low, high = classes.ends[g, j, 0], classes.ends[g, j, 2]
        before = min(np.int64(high - low), records.whole[j])
        number = records.numbers[leaving, j]
        if number == low:
            low = classes.ends[g, j, 1]
        if number == high:
            high = classes.ends[g, j, 3]
        difference += min(np.int64(high - low), records.whole[j]) - before
    return difference


@kernel
def union_loss(records: PackedRecords, classes: ClassSummaries, g: Integer, h: Integer) -> Integer:
    """Loss, in units, of each record of two classes as one."""
    total = -records.one_value
    for word in range(classes.present.shape[1]):
        total += bits_loss(
            classes.present[g, word] | classes.present[h, word], np.int32(word), records.bit_loss
        )
    for j in range(records.whole.size):
        low = min(classes.ends[g, j, 0], classes.ends[h, j, 0])
        high = max(classes.ends[g, j, 2], classes.ends[h, j, 2])
        total += min(np.int64(high - low), records.whole[j])
    return total


@kernel
def move(classes: ClassSummaries, record: Integer, g: Integer) -> None:
    """Move a record into class g, or out of all classes if g is -1; summaries stay as they are."""
    h = classes.class_of_record[record]
    if h >= 0:
        classes.sizes[h] -= 1
        last = classes.members[classes.starts[h] + classes.sizes[h]]
        classes.members[classes.place[record]] = last
        classes.place[last] = classes.place[record]
    if g >= 0:
        place = classes.starts[g] + classes.sizes[g]
        classes.members[place] = record
        classes.place[record] = place
        classes.sizes[g] += 1
    classes.class_of_record[record] = g


@kernel
def make_move(records: PackedRecords, classes: ClassSummaries, record: Integer, h: Integer) -> None:
    """Move a record into class h, or out of all classes if h is -1, and summarize again."""
    g = classes.class_of_record[record]
    if g >= 0:
        classes.losses[g] += departure(records, classes, g, record)
    if h >= 0:
        classes.losses[h] += entry(records, classes, h, record)
    move(classes, record, h)
    for changed in (g, h):
        if changed >= 0:
            summarize(records, classes, changed)


@kernel
def summarize(records: PackedRecords, classes: ClassSummaries, g: Integer) -> None:
    """Find the sets and ends of class g anew from its members."""
    present, twice = classes.present[g], classes.once[g]
    present[:] = 0
    twice[:] = 0
    members = members_of(classes, g)
    for record in members:
        for group in range(records.words.shape[1]):
            word, bits = records.words[record, group], records.bits[record, group]
            twice[word] |= present[word] & bits
            present[word] |= bits
    for word in range(present.size):
        classes.once[g, word] = present[word] & ~twice[word]
    for j in range(records.whole.size):
        low, low2, high, high2 = _BEYOND, _BEYOND, -1, -1
        for record in members:
            number = records.numbers[record, j]
            if number < low:
                low, low2 = number, low
            elif number < low2:
                low2 = number
            if number > high:
                high, high2 = number, high
            elif number > high2:
                high2 = number
        classes.ends[g, j, 0], classes.ends[g, j, 1] = low, low2
        classes.ends[g, j, 2], classes.ends[g, j, 3] = high, high2


@kernel
def _summarize_all(records: PackedRecords, classes: ClassSummaries) -> None:
    for g in range(classes.sizes.size):
        if classes.sizes[g]:
            summarize(records, classes, g)
            classes.losses[g] = union_loss(records, classes, g, g)


_ENTROPY_TOLERANCE = 1e-9


class ConstraintRules(NamedTuple):
    """A constraint as compiled code reads it.

    The values of all a attributes are numbered on, v together: those of attribute j lie from
    ``starts[j]`` to ``starts[j + 1]``.
    """

    # (a, n_records): sensitive values of each record, plus v times its entity where entities are
    # counted; empty where there is no constraint
    codes: IntArray
    starts: IntArray  # (a + 1,)
    totals: IntArray  # (v,): records of each value in the whole table
    n_records: int  # The sum of the totals of each attribute
    distinct: IntArray  # (a,): fewest distinct values of a class
    entropy: FloatArray  # (a,): least entropy of a class
    closeness: IntArray  # (a, 2): t as a fraction; negative: none
    is_ordered: BoolArray  # (a,): whether distributions are compared by the ordered distance
    # (2, v) or (2, 0): numerators and denominators of the largest share of each value in a class
    thresholds: IntArray
    entities: int  # Fewest entities of a class; 0: records are counted
    missing: IntArray  # (a,): the code of NULL, which makes no class more diverse; -1 for none


NO_RULES = ConstraintRules(
    np.zeros((0, 0), dtype=np.int64), np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64), 0,
    np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros((0, 2), dtype=np.int64),
    np.zeros(0, dtype=np.bool_), np.zeros((2, 0), dtype=np.int64), 0, np.zeros(0, dtype=np.int64),
)  # fmt: skip
"""The constraint that every class fulfils."""


@kernel
def _one_holds(rules: ConstraintRules, j: Integer, counts: IntArray, size: Integer) -> bool:
    """Whether a class of ``size`` records or entities fulfils the rules for attribute j."""
    start, end, missing = rules.starts[j], rules.starts[j + 1], rules.missing[j]
    n_distinct, known = 0, size
    for i in range(start, end):
        n_distinct += counts[i] > 0 and i != missing
    if missing >= 0:
        known -= counts[missing]
    if n_distinct < rules.distinct[j]:
        return False
    if rules.entropy[j] > 0.0:
        entropy = 0.0
        for i in range(start, end):
            if counts[i] and i != missing:
                entropy -= counts[i] / known * math.log(counts[i] / known)
        if entropy < rules.entropy[j] - _ENTROPY_TOLERANCE:
            return False
    if rules.thresholds.shape[1]:
        for i in range(start, end):
            if counts[i] * rules.thresholds[1, i] > rules.thresholds[0, i] * size:
                return False
    if rules.closeness[j, 0] >= 0:
        n_records, is_ordered = rules.n_records, rules.is_ordered[j]
        difference, running = 0, 0
        for i in range(start, end):
            surplus = counts[i] * n_records - rules.totals[i] * size
            running += surplus
            difference += abs(running) if is_ordered else abs(surplus)
        scale = end - start - 1 if is_ordered else 2
        limit = rules.closeness[j, 0] * size * n_records * scale
        if difference * rules.closeness[j, 1] > limit:
            return False
    return True


@kernel
def counts_hold(rules: ConstraintRules, counts: IntArray, size: Integer) -> bool:
    """Whether a class of ``size`` records or entities fulfils the rules, given its counts."""
    for j in range(rules.distinct.size):  # noqa: SIM110  # compiled
        if not _one_holds(rules, j, counts, size):
            return False
    return True


@kernel
def members_hold(rules: ConstraintRules, members: IntArray, counts: IntArray) -> bool:
    """Whether a class of these records fulfils the constraint.

    ``counts`` is working memory for the number of records, or entities, of each value.
    """
    counts[:] = 0
    if not rules.entities:
        for j in range(rules.distinct.size):
            for record in members:
                counts[rules.codes[j, record]] += 1
            if not _one_holds(rules, j, counts, members.size):
                return False
        return True
    for j in range(rules.distinct.size):
        n_entities, entity, last = 0, -1, -1
        for code in np.sort(rules.codes[j][members]):
            if code != last:  # an entity counts once for each of its values
                counts[code % counts.size] += 1
            if code // counts.size != entity:
                n_entities += 1
            entity, last = code // counts.size, code
        if n_entities < rules.entities or not _one_holds(rules, j, counts, n_entities):
            return False
    return True


@kernel(inline="always")
def have_same_values(rules: ConstraintRules, record: Integer, other: Integer) -> bool:
    """Whether two records have the same sensitive values, and entity where these are counted."""
    for j in range(rules.distinct.size):  # noqa: SIM110  # compiled
        if rules.codes[j, record] != rules.codes[j, other]:
            return False
    return True


@kernel
def holds_after(
    rules: ConstraintRules,
    classes: ClassSummaries,
    g: Integer,
    leaving: Integer,
    entering: Integer,
    counts: IntArray,
) -> bool:
    """Whether class g fulfils the constraint if one record leaves and another enters; -1: none.

    ``counts`` is working memory for the number of records, or entities, of each value.
    """
    if not rules.codes.size:
        return True
    after = np.empty(classes.sizes[g] + 1, dtype=np.int64)
    size = 0
    for record in members_of(classes, g):
        if record != leaving:
            after[size] = record
            size += 1
    if entering >= 0:
        after[size] = entering
        size += 1
    return members_hold(rules, after[:size], counts)


@kernel
def all_hold(rules: ConstraintRules, counts: IntArray) -> BoolArray:
    """Check classes, given the number of records of each value, a row for each class."""
    hold = np.empty(counts.shape[0], dtype=np.bool_)
    for g in range(counts.shape[0]):
        # Each record has one value of the first attribute.
        hold[g] = counts_hold(rules, counts[g], counts[g, : rules.starts[1]].sum())
    return hold


@kernel
def classes_hold(rules: ConstraintRules, order: IntArray, classes: IntArray) -> BoolArray:
    """Check classes whose records lie one after the other in ``order``."""
    n_classes = classes[order[-1]] + 1 if order.size else 0
    hold = np.empty(n_classes, dtype=np.bool_)
    counts = np.zeros(rules.totals.size, dtype=np.int64)
    start = 0
    for i in range(order.size):
        if i + 1 == order.size or classes[order[i + 1]] != classes[order[i]]:
            hold[classes[order[i]]] = members_hold(rules, order[start : i + 1], counts)
            start = i + 1
    return hold


_LARGEST_INTEGER = 2**62


@dataclass(frozen=True, eq=False)
class Constraint:
    """Conditions on the sensitive values and the entities of each class; all that are given hold.

    Parameters
    ----------
    codes : ndarray of int64, shape (n_records,)
        Sensitive value of each record, in [0, v).
    n_values : int
        v, at least 1.
    l : int, optional
        Distinct l-diversity: fewest distinct values, at least 1.
    entropy_l : Fraction, optional
        Entropy l-diversity: the entropy is at least log(l); l is at least 1.
    t : Fraction, optional
        t-closeness: most that the distribution may differ from that in the table, in [0, 1].
    distance : {"equal", "ordered"}
        Earth mover's distance for t: all values equally far from each other, or by their order.
    f_prime : FPrimePrivacy, optional
        Thresholds f'_i: a class of s records holds value i at most floor(f'_i s) times. Where
        entities are counted, at most floor(f'_i s) of the s entities of a class have value i in
        any of their records there.
    totals : ndarray of int64, shape (v,), optional
        Records of each value in the whole table; by default those of ``codes``.
    entities : ndarray of int, shape (n_records,), optional
        Whom each record is about, in [0, e). Given if several records can be about the same
        entity: then these are counted, and not records. It cannot be combined with
        ``entropy_l`` and ``t``, which compare distributions of records.
    least_entities : int
        Fewest entities of a class, at least 1 if there are ``entities``.
    missing : int
        The code of NULL; -1 if there is none.
    also : tuple of Constraint
        Constraints on further sensitive attributes of the same records, without entities of their
        own: those of this one are counted for all.

    Raises
    ------
    InvalidParameterError
        If a number lies out of its range, or entities are combined with what counts records.

    Notes
    -----
    **Source:** l-diversity: Machanavajjhala et al. 2007, Definitions 4.1 and 4.2. t-closeness: Li,
    Li and Venkatasubramanian 2007, Sections 4 and 5.2; the ordered distance of adjacent ones of v
    values is 1 / (v - 1). F'-privacy: [GB] Definition 3.

    Deviation: a missing value is none of the values that ``l`` and ``entropy_l`` count. Otherwise
    a class of three equal values and a missing one would be 2-diverse, although whoever has a value
    has that one. By ``t`` and ``f_prime``, which compare shares, it is a value like all others.

    All comparisons are exact, except that of entropies, which has a tolerance of 1e-9.

    Where records are counted, a constraint that holds for two classes holds for their union, and so
    does the least number of entities. Hence some classes fulfil a constraint if and only if one
    class of all records does, and merging ends there at the latest. Only thresholds ``f_prime`` on
    fractions of entities may fail for the union of two classes that have entities in common; then
    merging goes on, and a table is refused because one class of all records violates them.

    Examples
    --------
    >>> constraint = Constraint(np.array([0, 1, 1, 2]), 3, l=2, t=Fraction(1, 2))
    >>> constraint.holds([[1, 1, 0], [0, 1, 1], [0, 2, 0], [1, 0, 1]]).tolist()
    [True, True, False, True]
    """

    codes: IntArray
    n_values: int
    l: int | None = None
    entropy_l: Fraction | None = None
    t: Fraction | None = None
    distance: Literal["equal", "ordered"] = "equal"
    f_prime: FPrimePrivacy | None = None
    totals: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    entities: AnyIntArray | None = None
    least_entities: int = 0
    missing: int = -1
    also: tuple[Constraint, ...] = ()

    def __post_init__(self) -> None:
        codes = np.asarray(self.codes, dtype=np.int64)
        object.__setattr__(self, "codes", codes)
        if codes.ndim != 1 or (codes < 0).any() or (codes >= self.n_values).any():
            raise InvalidParameterError(
                "each record must have a valid code for its sensitive value",
                detail=f"codes: shape {codes.shape}, values: {self.n_values}",
            )
        if not self.totals.size:
            object.__setattr__(self, "totals", np.bincount(codes, minlength=self.n_values))
        _check("l must be at least 1", self.l is None or self.l >= 1)
        _check("entropy_l must be at least 1", self.entropy_l is None or self.entropy_l >= 1)
        _check("t must lie in [0, 1]", self.t is None or 0 <= self.t <= 1)
        _check("distance must be equal or ordered", self.distance in ("equal", "ordered"))
        _check(
            "thresholds must be one for each sensitive value",
            self.f_prime is None or len(self.f_prime.thresholds) == self.n_values,
        )
        _check(
            "entities must be one for each record, and at least one is needed in a class",
            self.least_entities == 0
            if self.entities is None
            else self.entities.shape == codes.shape and self.least_entities >= 1,
        )
        _check(
            "entropy_l and t count records, not entities",
            self.entities is None
            or all(one.entropy_l is None and one.t is None for one in self.each),
        )
        _check(
            "sensitive attributes must have values of the same records",
            all(
                one.codes.size == codes.size and one.entities is None and not one.also
                for one in self.also
            ),
        )
        size = int(self.totals.sum()) + 1
        if (
            self.t is not None
            and 2 * size**2 * self.n_values * self.t.denominator > _LARGEST_INTEGER
        ):
            raise InvalidParameterError(
                "t has too large a denominator for the number of records",
                detail=f"denominator {self.t.denominator:,}, records {codes.size:,}",
                hint="write t with fewer digits",
            )
        if self.f_prime is not None and any(
            threshold.denominator * size > _LARGEST_INTEGER for threshold in self.f_prime.thresholds
        ):
            raise InvalidParameterError(
                "a privacy threshold has too large a denominator for the number of records",
                detail=f"{codes.size:,} records",
                hint="write the thresholds with fewer digits",
            )

    @property
    def each(self) -> tuple[Constraint, ...]:
        """The constraint on each attribute."""
        return (self, *self.also)

    @property
    def starts(self) -> IntArray:
        """Where the values of each attribute begin among those of all, and their number."""
        return np.cumsum([0, *(one.n_values for one in self.each)])

    @property
    def rules(self) -> ConstraintRules:
        """The constraint as compiled code reads it."""
        starts, codes = self.starts, self.codes_of_all
        thresholds = np.zeros((2, 0), dtype=np.int64)
        if any(one.f_prime is not None for one in self.each):
            fractions = [
                fraction
                for one in self.each
                for fraction in (
                    [Fraction(1)] * one.n_values if one.f_prime is None else one.f_prime.thresholds
                )
            ]
            thresholds = np.array(
                [[f.numerator for f in fractions], [f.denominator for f in fractions]],
                dtype=np.int64,
            )
        if self.entities is not None:
            codes = codes + self.entities.astype(np.int64) * int(starts[-1])
        return ConstraintRules(
            codes,
            starts,
            np.concatenate([one.totals for one in self.each]),
            int(self.totals.sum()),
            np.array([one.l or 0 for one in self.each], dtype=np.int64),
            np.array([math.log(one.entropy_l) if one.entropy_l else 0.0 for one in self.each]),
            np.array(
                [(-1, 1) if one.t is None else (one.t.numerator, one.t.denominator)
                 for one in self.each], dtype=np.int64,
            ),
            np.array([one.distance == "ordered" for one in self.each]),
            thresholds,
            self.least_entities,
            np.array(
                [-1 if one.missing < 0 else start + one.missing
                 for one, start in zip(self.each, starts.tolist(), strict=False)], dtype=np.int64,
            ),
        )  # fmt: skip

    @property
    def codes_of_all(self) -> IntArray:
        """The values of each attribute, shape (a, n_records), numbered on."""
        numbered: IntArray = np.stack([one.codes for one in self.each]) + self.starts[:-1, None]
        return numbered

    def holds(self, counts: npt.ArrayLike) -> BoolArray:
        """Tell which classes fulfil the constraint, which must not count entities.

        Parameters
        ----------
        counts : array_like of int, shape (n_classes, v)
            Records of each sensitive value in each class, at least one in each class; the values of
            several attributes one after the other.

        Returns
        -------
        ndarray of bool, shape (n_classes,)
        """
        table = np.ascontiguousarray(np.asarray(counts, dtype=np.int64))
        return all_hold(self.rules, table)

    def holds_for(self, class_of_record: npt.ArrayLike) -> BoolArray:
        """Tell which classes of records fulfil the constraint.

        Parameters
        ----------
        class_of_record : array_like of int, shape (n_records,)
            Classes numbered from 0 without gaps; -1 for a record in none.

        Returns
        -------
        ndarray of bool, shape (n_classes,)
        """
        classes = np.asarray(class_of_record, dtype=np.int64)
        order = np.argsort(classes, kind="stable")
        order = order[np.searchsorted(classes[order], 0) :]
        return classes_hold(self.rules, order, classes)

    def restricted_to(self, records: IntArray) -> Constraint:
        """Return the constraint on some records, in order; the table's totals stay.

        Parameters
        ----------
        records : ndarray of int64

        Returns
        -------
        Constraint
        """
        entities = None if self.entities is None else self.entities[records]
        also = tuple(one.restricted_to(records) for one in self.also)
        return replace(
            self, codes=self.codes[records], totals=self.totals, entities=entities, also=also
        )

    def check_matches(self, n_records: int) -> None:
        """Refuse a constraint on another number of records.

        Parameters
        ----------
        n_records : int

        Raises
        ------
        InvalidParameterError
            If there is not one sensitive value for each record.
        """
        if self.codes.size != n_records:
            raise InvalidParameterError(
                "each record must have a sensitive value",
                detail=f"sensitive values: {self.codes.size}, records: {n_records}",
            )

    def check_eligible(self, which: str = "") -> None:
        """Refuse a constraint that no classes can fulfil.

        Parameters
        ----------
        which : str
            What to add to "the sensitive attribute".

        Raises
        ------
        IneligibleError
            If not even one class of all records fulfils it.
        """
        if self.codes.size and not self.holds_for(np.zeros_like(self.codes))[0]:
            entities = ""
            if self.entities is not None:
                entities = f" of {np.unique(self.entities).size:,} entities"
            known = [np.unique(one.codes[one.codes != one.missing]).size for one in self.each]
            raise ineligible(self.codes.size, entities, known, which)


def ineligible(
    n_records: int, entities: str, n_values: Sequence[int], which: str = ""
) -> IneligibleError:
    """Return the error for a constraint that one class of all records violates.

    `n_values` are the numbers of distinct values of each attribute.
    """
    attribute = f"attribute{which}" if len(n_values) == 1 else "attributes"
    values = " and ".join(f"{number:,}" for number in n_values)
    return IneligibleError(
        f"no equivalence classes can satisfy the constraint on the sensitive {attribute}",
        detail=f"even a single class of all {n_records:,} records{entities}, with "
        f"{values} distinct sensitive values, does not satisfy it",
        hint="weaken the constraint",
    )


def _check(message: str, is_so: bool) -> None:
    if not is_so:
        raise InvalidParameterError(message)
