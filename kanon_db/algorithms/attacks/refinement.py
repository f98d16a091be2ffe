"""Refinement: counts the tables from which a known method could have made the published rows."""

from __future__ import annotations

import math
from enum import Enum, auto
from functools import cache
from typing import Final

import numpy as np

from kanon_db.algorithms.attacks.attack_scores import AttackScore
from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, FloatArray, IntArray
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse
from kanon_db.algorithms.recoding.generalized_cells import Ranges, RowClasses
from kanon_db.algorithms.suppression import PatternSet
from kanon_db.dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Preference:
    """Where a method would rather have put a record, of all classes that cover it.

    Parameters
    ----------
    ranks : ndarray of int64, shape (n_classes,)
        The lower, the rather.
    can_spare : ndarray of bool, shape (n_classes,)
        Whether each record of the class would have gone to a class of a lower rank that covers it.
    slack : int
        By how much the rank must be lower for that.

    Examples
    --------
    >>> greedy = Preference(np.array([2, 0, 1]), np.array([True, True, True]))
    >>> greedy.remaining(np.array([0, 2])).tolist()
    [2]
    """

    ranks: IntArray
    can_spare: BoolArray
    slack: int = 0

    def remaining(self, classes: IntArray) -> IntArray:
        """Return those of the classes that cover a record which it may be in."""
        if not classes.size:
            return classes
        ranks = self.ranks[classes]
        is_left: BoolArray = (ranks - self.slack <= ranks.min()) | ~self.can_spare[classes]
        return classes[is_left]


class MatchCount(Enum):
    """How many records each row matches, its own among them, and how many rows each record."""

    EXACTLY_K = auto()
    AT_LEAST_K = auto()


@dataclass(frozen=True, eq=False)
class Deductions:
    """What follows from the method about the records of each class.

    Parameters
    ----------
    k : int
        Fewest rows of a class.
    is_tight : ndarray of bool, shape (n_qi,)
        Whether some record has each end of a range, and each value of a set.
    is_uncut : bool
        Whether no class of 2k rows or more could be cut at the median of a tight attribute so that
        both sides keep k rows, equal values staying together.
    is_scarce : ndarray of bool, shape (n_classes, n_qi), optional
        Whether each value occurs in fewer than k rows of the class.
    preference : Preference, optional
    matches : MatchCount, optional
        For freeform rows: the cells of each cover the records that it matches. Where they are
        tight, it is these that have the ends and values.
    """

    k: int
    is_tight: BoolArray
    is_uncut: bool = False
    is_scarce: BoolArray | None = None
    preference: Preference | None = None
    matches: MatchCount | None = None


_MOST_CLASSES: Final = 400
_MOST_DRAWS: Final = 32
"""Classes, and records of each, that are drawn to find how many a preference leaves."""


@dataclass(frozen=True)
class TableCounts:
    """How many tables remain, as logarithms to base 2.

    Attributes
    ----------
    within : float
        Of the tables whose records lie within the cells.
    remaining : float
        Of those among them that the method can have published so, at most.
    n_rows, n_cells : int
        The rows, and the cells of theirs that cover several values.
    n_known : int
        Those of the cells for which the values of all rows of the class follow, up to which row has
        which.
    """

    within: float
    remaining: float
    n_rows: int
    n_cells: int
    n_known: int

    @property
    def values_before(self) -> float:
        """How many values each such cell leaves, as a geometric mean."""
        return float(2.0 ** (self.within / max(self.n_cells, 1)))

    @property
    def values_after(self) -> float:
        """The same for someone who knows the method, at most."""
        return float(2.0 ** (self.remaining / max(self.n_cells, 1)))

    @property
    def score(self) -> AttackScore:
        """The share of what is uncertain, in bits, that the method removes."""
        if not self.within:
            return AttackScore(0, None, None, None)
        return AttackScore(self.n_rows, 1 - self.remaining / self.within, 0.0, None)

    @property
    def known_score(self) -> AttackScore:
        """The share of the cells whose values are known, up to which row has which."""
        if not self.n_cells:
            return AttackScore(0, None, None, None)
        return AttackScore(self.n_rows, self.n_known / self.n_cells, 0.0, None)


def count_tables(
    covering: RowClasses,
    sizes: AnyIntArray,
    deductions: Deductions,
    random: np.random.Generator,
    pulse: Pulse = UNLIMITED,
) -> TableCounts:
    """Count the tables within published cells, and those among them that a method leaves.

    A table gives each published row one value of each quasi-identifier.

    Parameters
    ----------
    covering : RowClasses
    sizes : ndarray of int, shape (n_classes,)
        How many rows each class has.
    deductions : Deductions
    random : numpy.random.Generator
        Draws records within cells, if there are a preference or matches, and of many classes some.
    pulse : Pulse
        Only its heartbeat is used.

    Returns
    -------
    TableCounts
        ``remaining`` is an upper bound, but for chance, since only what :class:`Deductions` says is
        used: where classes are drawn, or a part is estimated, it can come out too low. It
        is exact for these in classes of up to 2,000 rows, except that where there is a preference,
        the smaller is taken of two numbers: of the tables without it, and of those that it leaves;
        the latter is estimated. Of larger classes, only what cannot be cut is counted. With
        matches, it is a bound on the number for these deductions, of which a part is estimated.

    Notes
    -----
    **Source:** S. Chhillar, M. K. Righi, R. E. Sutter, E. M. Kornaropoulos, *Exposing privacy risks
    in anonymizing clinical data: combinatorial refinement attacks on k-anonymity without auxiliary
    information*, 2025, from whom we take the aim: they refine what ARX publishes by linear
    programs. K. Minami, Y. Abe, *Algorithmic matching attacks on optimally suppressed tabular
    data*, 2019, match suppression patterns with those of candidate tables. The deductions are ours.

    What is deduced of one attribute says nothing of another one, so the tables of a class are
    products of counts:

    - n rows of which some has each of w values: surjections, by inclusion and exclusion; of a
      range, some row has both ends.
    - of an uncut class, fewer than k rows lie below its median, and fewer than k above it.
    - n rows of which fewer than k have each of w values: by the sum of w truncated Poisson
      variables, given that it is n.

    Rows that match records of each other have no classes, and nobody knows which they match. But it
    follows that

    - each record is covered by k rows: the records for which this holds are listed;
    - of the records of the rows that overlap one, k are within its cells, and have their ends.
      Where k are exact, a record that only k rows cover matches them all, so that at most k such
      records are within the cells, and the others have at most the remaining places. For k = 2,
      each value of a record is an end of the ranges that it matches.

    How many choices of records satisfy the latter, for the rows around one, is counted, or, of many
    choices, estimated, as a probability P. Those of different rows depend on each other. By H.
    Finner, *A generalization of Hölder's inequality and some probability inequalities*, The Annals
    of Probability 20 (1992), all hold together with a probability of at most the product of P^w, if
    the weights w of those that depend on the same record add up to at most 1.
    """
    chosen = np.arange(covering.n_classes)
    preference = deductions.preference
    matching = None if deductions.matches is None else _MatchedRows(covering, sizes, deductions)
    if (preference or matching) and chosen.size > _MOST_CLASSES:
        chosen = np.sort(random.choice(chosen, _MOST_CLASSES, replace=False))
    widths = np.column_stack([covering.widths_of(a) for a in range(len(covering.n_codes))])
    within = remaining = 0.0
    n_cells = n_known = 0
    for number in chosen.tolist():
        pulse.beat()
        n, before, after = int(sizes[number]), 0.0, 0.0
        is_apart = matching is None or matching.neighbors_of(number).size == 1
        for attribute, width in enumerate(widths[number].tolist()):
            if width > 1:
                free = n * math.log2(width)
                before += free
                n_cells += n
                if is_apart:
                    rule = _rule_of(covering, deductions, number, attribute)
                    after += min(free, _log2_left(rule, n, width, deductions.k))
                    n_known += n * _is_known(rule, n, width, deductions.k)
        # A cell covers nothing where the source no longer has its value.
        if preference is not None and before and widths[number].all():
            share = _share_left(covering, preference, number, random)
            after = min(after, before + n * math.log2(share))
        if matching is not None and not is_apart and before:
            after = min(before, matching.log2_left(number, random))
        within, remaining = within + before, remaining + after
    return TableCounts(within, remaining, int(sizes[chosen].sum()), n_cells, n_known)


class _CellRule(Enum):
    """What is known of an attribute in the rows of a class, whatever the preference."""

    NOTHING = auto()
    SCARCE = auto()  # Fewer than k have each value
    ENDS = auto()  # Some have each end of the range
    EACH = auto()  # Some have each value of the set
    UNCUT_ENDS = auto()  # The same, and fewer than k are on either side of the median
    UNCUT_EACH = auto()


def _rule_of(
    covering: RowClasses, deductions: Deductions, number: int, attribute: int
) -> _CellRule:
    if deductions.is_scarce is not None and deductions.is_scarce[number, attribute]:
        return _CellRule.SCARCE
    if not deductions.is_tight[attribute]:
        return _CellRule.NOTHING
    cells = covering.cells[attribute]
    if not isinstance(cells, Ranges):
        return _CellRule.UNCUT_EACH if deductions.is_uncut else _CellRule.EACH
    if cells.tells_nothing[covering.cell_of_class[number, attribute]]:
        return _CellRule.NOTHING
    return _CellRule.UNCUT_ENDS if deductions.is_uncut else _CellRule.ENDS


def _log2_left(rule: _CellRule, n: int, width: int, k: int) -> float:
    """Count the sequences of n values, of so many, that a rule leaves; infinite if it says nothing.

    A class that could not be cut has fewer than 2k rows, or its median rule holds.
    """
    is_range = rule in (_CellRule.ENDS, _CellRule.UNCUT_ENDS)
    if rule is _CellRule.NOTHING:
        return math.inf
    if rule is _CellRule.SCARCE:
        return _log2_scarce(n, width, k)
    is_uncut = rule in (_CellRule.UNCUT_ENDS, _CellRule.UNCUT_EACH) and n >= 2 * k
    if is_uncut and width * k * k <= _MOST_TERMS:
        return _log2_uncut(n, width, k, is_range=is_range)
    return _log2_attained(n, width, is_range=is_range)


def _is_known(rule: _CellRule, n: int, width: int, k: int) -> bool:
    """Tell whether a rule leaves one multiset of values."""
    if rule in (_CellRule.NOTHING, _CellRule.SCARCE):
        return rule is _CellRule.SCARCE and n == width * (k - 1)
    return n == (2 if rule in (_CellRule.ENDS, _CellRule.UNCUT_ENDS) else width)


def _share_left(
    covering: RowClasses, preference: Preference, number: int, random: np.random.Generator
) -> float:
    """Estimate which share of the records within a class's cells may be in it.

    Its logarithm is too high on average: the mean of (n + 1) / (hits + 1) is below 1 / share.
    """
    drawn = np.column_stack(
        [
            random.choice(np.flatnonzero(covering.values_of(number, a)), _MOST_DRAWS)
            for a in range(len(covering.n_codes))
        ]
    )
    records, counts = np.unique(drawn, axis=0, return_counts=True)
    n_left = sum(
        count
        for record, count in zip(records, counts.tolist(), strict=True)
        if number in preference.remaining(covering.classes_of(record))
    )
    return float((n_left + 1) / (_MOST_DRAWS + 1))


_MOST_TERMS: Final = 2**20
_MOST_ROWS: Final = 2_000
"""Of a class whose sequences are counted; larger ones are taken as free, as most of theirs are.

A count of millions of digits would take seconds without a beat.
"""


@cache
def _log2_attained(n: int, width: int, *, is_range: bool) -> float:
    """Count sequences of n values that have both ends of a range, or each value of a set."""
    if n > _MOST_ROWS:
        return math.inf
    if is_range:
        count = width**n - 2 * (width - 1) ** n + (width - 2) ** n
    else:
        count = _surjections(n, width)
    return math.log2(count) if count > 0 else math.inf


@cache
def _surjections(n: int, width: int) -> int:
    if width > n:
        return 0
    return sum((-1) ** j * math.comb(width, j) * (width - j) ** n for j in range(width + 1))


@cache
def _log2_uncut(n: int, width: int, k: int, *, is_range: bool) -> float:
    """Count those of which fewer than k lie below the median, and fewer than k above it."""
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    sides = np.array([_sides(values, k, is_range=is_range) for values in range(width)])
    few = np.arange(k)
    ways = sides - factorials[few]
    middle = factorials[n] - factorials[n - few[:, np.newaxis] - few]
    # Of width values, m are below the median, and the others above it.
    logs = ways[:, :, np.newaxis] + ways[::-1, np.newaxis, :] + middle
    greatest = logs.max()
    if greatest == -np.inf:
        return math.inf
    return float((greatest + np.log(np.exp(logs - greatest).sum())) / math.log(2))


def _sides(values: int, k: int, *, is_range: bool) -> list[float]:
    """Count, by how many records lie on one side of the median, what they have of its values."""
    if not values:
        return [0.0] + [-math.inf] * (k - 1)
    logs = []
    for n in range(k):
        count = values**n - (values - 1) ** n if is_range else _surjections(n, values)
        logs.append(math.log(count) if count > 0 else -math.inf)
    return logs


@cache
def _log2_scarce(n: int, width: int, k: int) -> float:
    """Count sequences of n values of which each occurs fewer than k times."""
    if n < k or n > _MOST_ROWS:
        return math.inf
    mean = n / width
    counts = np.arange(k)
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    each = np.exp(counts * math.log(mean) - mean - factorials[:k])
    share = float(each.sum())
    chance = _power(each / share, width, n)
    if n >= chance.size or chance[n] <= 0:
        return math.inf
    log = math.log(float(chance[n])) + width * math.log(share)
    log -= n * math.log(n) - n - float(factorials[n])  # that a Poisson variable of mean n is n
    return n * math.log2(width) + log / math.log(2)


def _power(series: FloatArray, exponent: int, last: int) -> FloatArray:
    """Multiply a power series with itself, up to the power `last` of its variable."""
    result: FloatArray = np.ones(1)
    while exponent:
        if exponent & 1:
            result = np.convolve(result, series)[: last + 1]
        series = np.convolve(series, series)[: last + 1]
        exponent >>= 1
    return result


def deduce_from_patterns(
    covering: RowClasses,
    sizes: IntArray,
    patterns: PatternSet,
    k: int,
    *,
    is_greedy: bool,
    is_drawn: bool = False,
) -> Deductions:
    """Deduce what cheaper patterns would have taken from the classes of suppressed rows.

    Parameters
    ----------
    covering : RowClasses
        Cells cover a single value, or all of them: these are suppressed.
    sizes : ndarray of int64, shape (n_classes,)
    patterns : PatternSet
        Those that are allowed; any class with another pattern is of left-over records.
    k : int
    is_greedy : bool
        Whether the patterns were tried in turn, or the cost is the least of all.
    is_drawn : bool
        Whether the order was drawn, by :meth:`.PatternSet.draw_order`, and is not known.

    Returns
    -------
    Deductions

    Notes
    -----
    In turn, a pattern takes every group of k records that are left, and with them each record that
    shares what it keeps. So a record is in the first class that covers it, and no k records of a
    class share a value that a pattern before would have kept. Where the order was drawn, patterns
    are known to come before those that cost more than the margin more.

    At least cost, the same holds of classes that can spare records, since less would be lost
    otherwise: of more than k rows, no record is covered by a class of a cheaper pattern; of 2k rows
    or more, no k records share such a value.
    """
    columns = zip(covering.cells, covering.cell_of_class.T, strict=True)
    stars = np.column_stack([own.tells_nothing[c] for own, c in columns if isinstance(own, Ranges)])
    place = {text: number for number, text in enumerate(patterns.texts)}
    texts = ["".join("*" if star else "." for star in row) for row in stars.tolist()]
    position = np.array([place.get(text, len(patterns)) for text in texts])
    ranks, slack = position, 0
    if not is_greedy or is_drawn:
        costs = np.append(patterns.costs, np.iinfo(np.int64).max)
        ranks = costs[position]
    if is_drawn:
        # No stars come first, and all of them last.
        slack, n_stars = patterns.margin, stars.sum(axis=1)
        ranks = np.select([n_stars == 0, n_stars == stars.shape[1]], [-slack - 1, costs[-1]], ranks)
    can_spare, can_spare_k = (sizes > k, sizes >= 2 * k) if not is_greedy else (sizes > 0,) * 2
    is_scarce = np.zeros(stars.shape, dtype=np.bool_)
    for number, attribute in zip(*np.nonzero(stars & can_spare_k[:, np.newaxis]), strict=True):
        text = texts[number]
        lifted = place.get(f"{text[:attribute]}.{text[attribute + 1 :]}")
        if lifted is not None:
            rank = -slack - 1 if not patterns.masks[lifted] else patterns.costs[lifted]
            is_scarce[number, attribute] = not slack or rank + slack < ranks[number]
    is_tight = np.zeros(stars.shape[1], dtype=np.bool_)
    return Deductions(
        k, is_tight, is_scarce=is_scarce, preference=Preference(ranks, can_spare, slack)
    )


_MOST_RECORDS: Final = 2**17
"""Records of a row, times the cells that may cover them, of which those that match are listed."""

_MOST_NEIGHBORS: Final = 32
"""Rows that are looked at together, to find how likely their records make a cell."""

_MOST_CHOICES: Final = 2**11
"""Choices of their records: all of them, or as many that are drawn."""


@dataclass(frozen=True, eq=False)
class _PossibleRecords:
    """The records that each row of a class may have."""

    codes: IntArray  # (n_records, n_qi)
    neighbors: IntArray  # (n_neighbors,): classes, ascending
    is_covered: BoolArray  # (n_records, n_neighbors): whether their rows may match it


class _MatchedRows:
    """Rows of which each matches k records, its own among them, and each record as many rows."""

    def __init__(self, covering: RowClasses, sizes: AnyIntArray, deductions: Deductions) -> None:
        self._covering = covering
        self._sizes = sizes
        self._deductions = deductions
        self._are_exact = deductions.matches is MatchCount.EXACTLY_K

    def neighbors_of(self, number: int) -> IntArray:
        """Return the classes whose rows may match records of the rows of one, it among them."""
        return self._covering.overlapping(number)

    def log2_left(self, number: int, random: np.random.Generator) -> float:
        """Return the part that the rows of a class have in what is left of the whole table."""
        records = self._records_of(number)
        if records is None:
            return math.inf
        n_rows = int(self._sizes[number])
        return n_rows * math.log2(len(records.codes)) + self._log2_chance(number, random)

    def _records_of(self, number: int) -> _PossibleRecords | None:
        """List the records that k rows may match; None if they are too many, or there are none."""
        neighbors = self.neighbors_of(number)
        sizes, k = self._sizes[neighbors], self._deductions.k
        n_attributes = len(self._covering.n_codes)
        codes = np.zeros((1, n_attributes), dtype=np.int64)
        is_covered = np.ones((1, neighbors.size), dtype=np.bool_)
        for attribute in range(n_attributes):
            values = np.flatnonzero(self._covering.values_of(number, attribute))
            if not values.size or is_covered.size * values.size > _MOST_RECORDS:
                return None
            covers = self._may_match(attribute, values, neighbors)
            both = is_covered[:, np.newaxis, :] & covers
            is_left = both[:, :, neighbors == number].any(axis=2) & (both @ sizes >= k)
            record, value = np.nonzero(is_left)
            codes, is_covered = codes[record], both[is_left]
            codes[:, attribute] = values[value]
        return _PossibleRecords(codes, neighbors, is_covered) if codes.size else None

    def _may_match(self, attribute: int, codes: IntArray, classes: IntArray) -> BoolArray:
        """Tell which codes the rows of classes may match, shape (n_codes, n_classes)."""
        covers = self._covering.cover(attribute, codes, classes)
        cells = self._covering.cells[attribute]
        are_ends = (
            self._are_exact and self._deductions.k == 2 and self._deductions.is_tight[attribute]
        )
        if are_ends and isinstance(cells, Ranges):
            cell, code = self._covering.cell_of_class[classes, attribute], codes[:, np.newaxis]
            covers &= (
                (code == cells.low[cell]) | (code == cells.high[cell]) | cells.tells_nothing[cell]
            )
        return covers

    def _log2_chance(self, number: int, random: np.random.Generator) -> float:
        """Return its part of the logarithm of the chance that records make all cells, at most."""
        neighbors = self.neighbors_of(number)
        if int(self._sizes[neighbors].sum()) > _MOST_NEIGHBORS:
            return 0.0
        rows: list[_PossibleRecords] = []
        for neighbor in neighbors.tolist():
            records = self._records_of(neighbor)
            if records is None:
                return 0.0
            if records.is_covered[:, records.neighbors == number].any():
                rows += [records] * int(self._sizes[neighbor])
        n_records = [len(records.codes) for records in rows]
        if (n_choices := math.prod(n_records)) <= _MOST_CHOICES:
            choices = np.stack(np.unravel_index(np.arange(n_choices), n_records))
            share = self._make_cells(number, rows, choices).mean()
        else:
            size = len(rows), _MOST_CHOICES
            choices = random.integers(np.array(n_records)[:, np.newaxis], size=size)
            share = (self._make_cells(number, rows, choices).sum() + 1) / (_MOST_CHOICES + 1)
        # As many rows' cells may depend on a record.
        most = max(self.neighbors_of(neighbor).size for neighbor in neighbors.tolist())
        return math.log2(share) / most if share else 0.0

    def _make_cells(
        self, number: int, rows: list[_PossibleRecords], choices: IntArray
    ) -> BoolArray:
        """Tell which choices of the rows' records can make the cells of a class.

        Records that only k rows cover match these, whatever the others do.
        """
        k, n_choices = self._deductions.k, choices.shape[1]
        most = k if self._are_exact else len(rows)
        inside = np.zeros(choices.shape, dtype=np.bool_)
        surely = np.zeros(choices.shape, dtype=np.bool_)
        for place, (one, chosen) in enumerate(zip(rows, choices, strict=True)):
            own = int(np.searchsorted(one.neighbors, number))
            n_covering = one.is_covered @ self._sizes[one.neighbors]
            inside[place] = one.is_covered[chosen, own]
            surely[place] = inside[place] & (n_covering == k)[chosen]
        n_surely = surely.sum(axis=0)
        made: BoolArray = (inside.sum(axis=0) >= k) & (n_surely <= most)
        for attribute, is_tight in enumerate(self._deductions.is_tight.tolist()):
            needed = self._needed(number, attribute) if is_tight else []
            if not needed:
                continue
            codes = np.stack(
                [one.codes[chosen, attribute] for one, chosen in zip(rows, choices, strict=True)]
            )
            n_lacking = np.zeros(n_choices, dtype=np.int64)
            for code in needed:
                made &= (inside & (codes == code)).any(axis=0)
                n_lacking += ~(surely & (codes == code)).any(axis=0)
            made &= n_lacking <= most - n_surely
        return made

    def _needed(self, number: int, attribute: int) -> list[int]:
        """Return the values that some record has which a row of a class matches."""
        cells = self._covering.cells[attribute]
        codes = np.flatnonzero(self._covering.values_of(number, attribute)).tolist()
        if not isinstance(cells, Ranges):
            return codes if len(codes) > 1 else []
        if cells.tells_nothing[self._covering.cell_of_class[number, attribute]]:
            return []
        return [codes[0], codes[-1]] if len(codes) > 1 else []
