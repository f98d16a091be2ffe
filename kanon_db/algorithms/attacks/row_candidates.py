"""What someone who knows a person's quasi-identifiers finds in published rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kanon_db.algorithms.attacks.covering import Covering, masses_of_cells, spread_values
from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
)
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse

_MOST_BINS_AND_VALUES: Final = 2**21


@dataclass(frozen=True, eq=False)
class PublishedRows:
    """Published rows, gathered into classes with the same cells.

    Parameters
    ----------
    covering : Covering
    rows : ndarray of int64, shape (n_classes,)
        The rows of each class.
    starts : ndarray of int64, shape (n_classes + 1,)
        Where the values of each class begin.
    values, counts : ndarray of int64, shape (n_pairs,)
        The sensitive values of each class, and how many of its rows have them. Without a sensitive
        attribute there is one value.
    n_values : int
    """

    covering: Covering
    rows: IntArray
    starts: IntArray
    values: IntArray
    counts: IntArray
    n_values: int

    @classmethod
    def of(
        cls, covering: Covering, class_of_row: AnyIntArray, values: AnyIntArray, n_values: int
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
    """What was found about people; -1 stands for no guess.

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
    published = _published_model(rows, bins, pulse)
    known = [_source_model(rows, codes[part], values[part], bins, pulse) for part in (half, ~half)]
    found = RowGuesses(*(np.full(people.size, -1, dtype=np.int64) for _ in range(5)))
    for i, person in enumerate(people.tolist()):
        pulse.beat()
        classes = covering.classes_of(codes[person])
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
    """Probabilities of values of each quasi-identifier, if the sensitive value is known.

    Attributes
    ----------
    likelihoods : sequence of ndarray of float64, shape (n_bins, n_values)
    of_cells : ndarray of float64, shape (n_pairs,)
        The logarithm of the probability of the cells of each class, for each of its values.
    """

    likelihoods: Sequence[FloatArray]
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


def _published_model(rows: PublishedRows, bins: Sequence[IntArray], pulse: Pulse) -> _Bayes:
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
