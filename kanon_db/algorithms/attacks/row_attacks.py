"""Plays attacks on published rows: guesses people's sensitive values, and the values behind cells.

The former is a deFinetti attack (Kifer 2009), the latter downcoding (Cohen 2022).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from kanon_db.algorithms.attacks.attack_scores import AttackScore, score_predicates
from kanon_db.algorithms.attacks.refinement import Preference
from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
)
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse
from kanon_db.algorithms.recoding.generalized_cells import Ranges, RowClasses, Sets, ends_of
from kanon_db.dataclasses import dataclass


def spread_values(
    cells: Ranges | Sets,
    cell: IntArray,  # (n,): cells of rows, each with a sensitive value
    value: IntArray,
    count: FloatArray,  # (n,): how many rows have both
    bin_of_code: IntArray,  # (n_codes,): not decreasing, from 0 without gaps
    n_values: int,
) -> FloatArray:
    """Count how often bins of codes occur with values, each cell spread evenly over its codes."""
    n_bins = int(bin_of_code[-1]) + 1
    size = (n_bins + 1) * n_values
    if isinstance(cells, Sets):
        joint: FloatArray = np.zeros(size)
        for at, owner, codes in _members(cells, cell):
            weights = (count[at] / np.maximum(cells.sizes[cell[at]], 1))[owner]
            pairs = bin_of_code[codes] * n_values + value[at][owner]
            joint = joint + np.bincount(pairs, weights, size)
        return joint[: n_bins * n_values].reshape(n_bins, n_values)
    ends = ends_of(cells, bin_of_code.size)[:, cell]
    covers = ends[0] <= ends[1]  # not so for values that the source no longer has
    low, high = bin_of_code[ends[:, covers]]
    value, count = value[covers], count[covers]
    share = count / (high - low + 1)
    begins = np.bincount(low * n_values + value, share, size)
    steps = begins - np.bincount((high + 1) * n_values + value, share, size)
    spread: FloatArray = np.cumsum(steps.reshape(n_bins + 1, n_values), axis=0)[:n_bins]
    return np.maximum(spread, 0)  # sums that cancel leave a rounding error


def masses_of_cells(
    cells: Ranges | Sets,
    cell: IntArray,
    value: IntArray,
    bin_of_code: IntArray,
    table: FloatArray,  # (n_bins, n_values)
) -> FloatArray:
    """Add up the entries of a table for the bins that each cell covers."""
    masses = np.zeros(cell.size)
    if isinstance(cells, Sets):
        for at, owner, codes in _members(cells, cell):
            weights = table[bin_of_code[codes], value[at][owner]]
            masses[at] = np.bincount(owner, weights, at.stop - at.start)
    else:
        ends = ends_of(cells, bin_of_code.size)[:, cell]
        covers = ends[0] <= ends[1]
        low, high = bin_of_code[ends[:, covers]]
        sums = np.concatenate([np.zeros((1, table.shape[1])), np.cumsum(table, axis=0)])
        masses[covers] = sums[high + 1, value[covers]] - sums[low, value[covers]]
    return np.where(masses > 0, masses, 1)


_CODES_PER_BLOCK = 2**21


def _members(cells: Sets, cell: IntArray) -> Iterator[tuple[slice, IntArray, CodeArray]]:
    """List the codes of many cells, a block of some million codes at a time."""
    starts = np.append(0, cells.ends)
    sizes = cells.sizes[cell]
    sums = np.cumsum(sizes)
    first = 0
    while first < cell.size:
        base = sums[first - 1] if first else 0
        end = max(first + 1, int(np.searchsorted(sums, base + _CODES_PER_BLOCK)))
        at = slice(first, end)
        owner = np.repeat(np.arange(end - first), sizes[at])
        rank = np.arange(owner.size) - np.repeat(np.cumsum(sizes[at]) - sizes[at], sizes[at])
        yield at, owner, cells.codes[starts[cell[at]][owner] + rank]
        first = end


_MOST_BINS_AND_VALUES: Final = 2**21


@dataclass(frozen=True, eq=False)
class PublishedRows:
    """Published rows, gathered into classes with the same cells.

    Parameters
    ----------
    covering : RowClasses
    rows : ndarray of int64, shape (n_classes,)
        The rows of each class.
    starts : ndarray of int64, shape (n_classes + 1,)
        Where the values of each class begin.
    values, counts : ndarray of int64, shape (n_pairs,)
        The sensitive values of each class, and how many of its rows have them. Without a sensitive
        attribute there is one value.
    n_values : int
    """

    covering: RowClasses
    rows: IntArray
    starts: IntArray
    values: IntArray
    counts: IntArray
    n_values: int

    @classmethod
    def of(
        cls, covering: RowClasses, class_of_row: AnyIntArray, values: AnyIntArray, n_values: int
    ) -> PublishedRows:
        """Count the values of each class.

        Parameters
        ----------
        class_of_row : ndarray of int, shape (n_rows,)
        values : ndarray of int, shape (n_rows,)
            The sensitive value of each row.
        """
        keys = class_of_row.astype(np.int64) * n_values + values
        pairs, counts = np.unique(keys, return_counts=True)
        classes, its_values = np.divmod(pairs, n_values)
        return cls(
            covering,
            np.bincount(class_of_row, minlength=covering.n_classes).astype(np.int64),
            np.searchsorted(classes, np.arange(covering.n_classes + 1)),
            its_values,
            counts.astype(np.int64),
            n_values,
        )

    @property
    def homogeneous_share(self) -> float:
        """The share of rows in classes that have one sensitive value."""
        return float(self.rows[np.diff(self.starts) == 1].sum() / self.rows.sum())

    @property
    def classes(self) -> IntArray:
        """The class of each pair of a class and a value."""
        return np.repeat(np.arange(self.rows.size), np.diff(self.starts))

    def pairs_of(self, classes: IntArray) -> IntArray:
        """Return where the values of several classes are."""
        lengths = np.diff(self.starts)[classes]
        first = self.starts[classes] - np.cumsum(lengths) + lengths
        return np.repeat(first, lengths) + np.arange(lengths.sum())


@dataclass(frozen=True, eq=False)
class RowGuesses:
    """Guesses about people from published rows; -1 stands for no guess.

    Attributes
    ----------
    n_rows : ndarray of int64, shape (n_people,)
        How many rows may be theirs.
    n_values : ndarray of int64, shape (n_people,)
        How many different sensitive values these rows have.
    most_frequent : ndarray of int64, shape (n_people,)
        The most frequent of these values.
    learned, known : ndarray of int64, shape (n_people,)
        The value that a learner from the publication finds most likely, and one that knows the
        source's correlations.
    """

    n_rows: IntArray
    n_values: IntArray
    most_frequent: IntArray
    learned: IntArray
    known: IntArray


def guess_people(
    rows: PublishedRows,
    codes: CodeArray,
    values: AnyIntArray,
    people: AnyIntArray,
    half: BoolArray,
    protected: BoolArray | None = None,
    preference: Preference | None = None,
    pulse: Pulse = UNLIMITED,
) -> RowGuesses:
    """Look people up by their quasi-identifiers, and guess their sensitive value.

    Parameters
    ----------
    rows : PublishedRows
    codes : ndarray of int32, shape (n_source, n_qi)
        The quasi-identifiers of everybody in the source.
    values : ndarray of int, shape (n_source,)
        Their sensitive values, -1 for one that is not published. They serve the guesses `known`.
    people : ndarray of int, shape (n_people,)
        Whom to look up.
    half : ndarray of bool, shape (n_source,)
        A random half of the source. Guesses about one half are learned from the other: otherwise,
        a rare quasi-identifier would give away the value of the only person who has it.
    protected : ndarray of bool, shape (n_values,), optional
        Which values to guess; all by default.
    preference : Preference, optional
        Which of the rows that cover a person the method would not have made theirs.

    Returns
    -------
    RowGuesses

    Notes
    -----
    **Source:** after D. Kifer, *Attacks on privacy and deFinetti's theorem*, SIGMOD 2009, and
    G. Cormode, *Personal privacy vs population privacy*, 2010: naive Bayes, with counts smoothed by
    adding one. A row with a value v and cells C is the person's, whose quasi-identifiers are x,
    with a probability proportional to P(x | v) / P(C | v). Rows show their sensitive values, so the
    learner from the publication need not iterate as in buckets; it takes each cell as spread evenly
    over its values. Where a table of all values of a quasi-identifier with all sensitive values
    would be too large, neighboring values are taken together.
    """
    covering, n_values = rows.covering, rows.n_values
    bins = [_bins(n, n_values) for n in covering.n_codes]
    published = _build_model(rows, bins, pulse)
    known = [_source_model(rows, codes[part], values[part], bins, pulse) for part in (half, ~half)]
    found = RowGuesses(*(np.full(people.size, -1, dtype=np.int64) for _ in range(5)))
    for i, person in enumerate(people.tolist()):
        pulse.beat()
        classes = covering.classes_of(codes[person])
        classes = classes if preference is None else preference.remaining(classes)
        found.n_rows[i] = rows.rows[classes].sum()
        pairs = rows.pairs_of(classes)
        found.n_values[i] = np.unique(rows.values[pairs]).size
        if protected is not None:
            pairs = pairs[protected[rows.values[pairs]]]
        if not pairs.size:
            continue
        candidates, number = np.unique(rows.values[pairs], return_inverse=True)
        counts = rows.counts[pairs].astype(np.float64)
        found.most_frequent[i] = candidates[np.bincount(number, counts).argmax()]
        places = [int(b[code]) for b, code in zip(bins, codes[person].tolist(), strict=True)]
        for guesses, model in (
            (found.learned, published),
            (found.known, known[int(half[person])]),
        ):
            score = model.score(places, candidates)[number] - model.of_cells[pairs]
            weights = counts * np.exp(score - score.max())
            guesses[i] = candidates[np.bincount(number, weights).argmax()]
    return found


@dataclass(frozen=True, eq=False)
class _Bayes:
    """Probabilities of values of each quasi-identifier, if the sensitive value is known."""

    likelihoods: Sequence[FloatArray]  # (n_bins, n_values)
    # (n_pairs,): the logarithm of the probability of the cells of each class, for each of its
    # values
    of_cells: FloatArray

    @classmethod
    def of(
        cls, rows: PublishedRows, joint: Iterable[FloatArray], bins: Sequence[IntArray],
        pulse: Pulse,
    ) -> _Bayes:  # fmt: skip
        """Take the counts of bins with values, for each quasi-identifier."""
        likelihoods = []
        of_cells = np.zeros(rows.values.size)
        classes = rows.classes
        for attribute, counted in enumerate(joint):
            pulse.beat()
            likelihood = (counted + 1) / (counted.sum(axis=0) + counted.shape[0])
            cell = rows.covering.cell_of_class[classes, attribute].astype(np.int64)
            cells = rows.covering.cells[attribute]
            of_cells += np.log(
                masses_of_cells(cells, cell, rows.values, bins[attribute], likelihood)
            )
            likelihoods.append(likelihood)
        return cls(likelihoods, of_cells)

    def score(self, places: Sequence[int], values: IntArray) -> FloatArray:
        """Return the logarithm of the likelihood of a person's bins for each value."""
        score = np.zeros(values.size)
        for likelihood, place in zip(self.likelihoods, places, strict=True):
            score += np.log(likelihood[place, values])
        return score


def _bins(n_codes: int, n_values: int) -> IntArray:
    n_bins = max(1, min(n_codes, _MOST_BINS_AND_VALUES // n_values))
    return np.arange(n_codes, dtype=np.int64) * n_bins // n_codes


def _build_model(rows: PublishedRows, bins: Sequence[IntArray], pulse: Pulse) -> _Bayes:
    counts = rows.counts.astype(np.float64)
    joint = (
        spread_values(cells, cell.astype(np.int64), rows.values, counts, its_bins, rows.n_values)
        for cells, cell, its_bins in zip(
            rows.covering.cells, rows.covering.cell_of_class[rows.classes].T, bins, strict=True
        )
    )
    return _Bayes.of(rows, joint, bins, pulse)


def _source_model(
    rows: PublishedRows,
    codes: CodeArray,
    values: AnyIntArray,
    bins: Sequence[IntArray],
    pulse: Pulse,
) -> _Bayes:
    known = values >= 0
    its_values, n_values = values[known].astype(np.int64), rows.n_values

    def counted(column: CodeArray, its_bins: IntArray) -> FloatArray:
        n_bins = int(its_bins[-1]) + 1
        pairs = its_bins[column[known]] * n_values + its_values
        table = np.bincount(pairs, minlength=n_bins * n_values).reshape(n_bins, n_values)
        return table.astype(np.float64)

    joint = (counted(column, its_bins) for column, its_bins in zip(codes.T, bins, strict=True))
    return _Bayes.of(rows, joint, bins, pulse)


@dataclass(frozen=True, eq=False)
class SampledRows:
    """Published rows to attack, and the people of the source, who score what is guessed.

    Parameters
    ----------
    covering : RowClasses
    classes, values : ndarray of int, shape (n_rows,)
        The class and the sensitive value of each row.
    codes : ndarray of int32, shape (n_people, n_qi)
        The quasi-identifiers of everybody in the source.
    of_people : ndarray of int, shape (n_people,)
        Their sensitive values, by the same codes as those of the rows; -1 for one that no row has.
    """

    covering: RowClasses
    classes: AnyIntArray
    values: AnyIntArray
    codes: CodeArray
    of_people: AnyIntArray

    @property
    def frequencies(self) -> list[IntArray]:
        """How many people have each value of each attribute."""
        return [
            np.bincount(column, minlength=n)
            for column, n in zip(self.codes.T, self.covering.n_codes, strict=True)
        ]


def downcode(rows: SampledRows, members: IntArray, pulse: Pulse = UNLIMITED) -> AttackScore:
    """Guess the original value of each generalized cell of some rows.

    Parameters
    ----------
    rows : SampledRows
        How frequent values are among the people is taken as known in each attribute.
    members : ndarray of int64, shape (n_classes,)
        How many original records the cells of each class were made from, at least.

    Returns
    -------
    AttackScore
        The share of right guesses among the generalized cells, and of the most frequent value of
        the attribute. Nothing bounds it.

    Notes
    -----
    **Source:** A. Cohen, *Attacks on deidentification's defenses*, USENIX Security 2022, from which
    we take the weakness and not the attack. Cells are as tight as their records allow, so somebody
    in the class has the smallest value of a range, and somebody the largest; of a class of two,
    both values are known. The guess is the value that most records of the class are expected to
    have: one at each end of a range (or one for each value of a set), and the others as in the
    table. Cohen's attack also uses how cells of different classes depend on each other.

    Nobody knows which person a row is about. So a guess counts as the fraction of those who have
    the value, among the people who fit the row in all cells and in its sensitive value.
    """
    covering, frequencies = rows.covering, rows.frequencies
    common = [int(counts.argmax()) for counts in frequencies]
    right: list[float] = []
    base: list[float] = []
    n_rows = 0
    for number, value in zip(rows.classes.tolist(), rows.values.tolist(), strict=True):
        pulse.beat()
        people = covering.people_of(number, rows.codes)
        people = people[rows.of_people[people] == value]
        guesses = expect_values(covering, number, int(members[number]), frequencies)
        if not people.size or not guesses:
            continue
        n_rows += 1
        for attribute, guess in guesses.items():
            originals = rows.codes[people, attribute]
            right.append(float((originals == guess).mean()))
            base.append(float((originals == common[attribute]).mean()))
    if not n_rows:
        return AttackScore(0, None, None, None)
    return AttackScore(n_rows, float(np.mean(right)), float(np.mean(base)), None)


def expect_values(
    covering: RowClasses, number: int, members: int, frequencies: Sequence[IntArray]
) -> dict[int, int]:
    """Return the value that most records of a class are expected to have, by attribute.

    Attributes whose cell shows a single value are left out.
    """
    values = {}
    for attribute, counts in enumerate(frequencies):
        covered = covering.values_of(number, attribute)
        codes = np.flatnonzero(covered)
        if codes.size < 2:
            continue
        cells = covering.cells[attribute]
        surely: FloatArray = np.zeros(codes.size)
        if not isinstance(cells, Ranges):
            surely[:] = 1
        elif not cells.tells_nothing[covering.cell_of_class[number, attribute]]:
            surely[[0, -1]] = 1
        others = max(members - float(surely.sum()), 0)
        expected = surely + others * counts[codes] / max(int(counts[codes].sum()), 1)
        values[attribute] = int(codes[expected.argmax()])
    return values


def single_out(rows: SampledRows, n_alike: AnyIntArray, pulse: Pulse = UNLIMITED) -> AttackScore:
    """Describe single people by the cells and the sensitive values of published rows.

    Parameters
    ----------
    rows : SampledRows
    n_alike : ndarray of int, shape (n_rows,)
        How many of the published rows have the class and the value of each.

    Returns
    -------
    AttackScore
        See :func:`.score_predicates`. The weight of a predicate is the product of the shares of the
        people whom each cell covers, and who have the value.
    """
    covering, n_people = rows.covering, len(rows.codes)
    shares = [counts / max(n_people, 1) for counts in rows.frequencies]
    n_values = int(rows.values.max(initial=-1)) + 1
    of_value = np.bincount(rows.of_people[rows.of_people >= 0], minlength=n_values)
    holds_for = np.zeros(rows.classes.size, dtype=np.int64)
    weights = np.ones(rows.classes.size)
    order = np.argsort(rows.classes, kind="stable")
    numbers, starts = np.unique(rows.classes[order], return_index=True)
    for number, some in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
        pulse.beat()
        people = rows.of_people[covering.people_of(number, rows.codes)]
        covered = np.bincount(people[people >= 0], minlength=of_value.size)
        holds_for[some] = covered[rows.values[some]]
        for attribute, share in enumerate(shares):
            weights[some] *= share[covering.values_of(number, attribute)].sum()
    weights *= of_value[rows.values] / max(n_people, 1)
    return score_predicates(n_alike, holds_for, weights, n_people)
