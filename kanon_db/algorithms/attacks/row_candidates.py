"""What someone who knows a person's quasi-identifiers finds in published rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kanon_db.algorithms.attacks.covering import Covering, spread_values
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

    def values_of(self, classes: IntArray) -> tuple[IntArray, IntArray]:
        """Return the values that occur in several classes together, and how often."""
        lengths = np.diff(self.starts)[classes]
        place = np.repeat(self.starts[classes] - np.cumsum(lengths) + lengths, lengths)
        place += np.arange(place.size)
        values, number = np.unique(self.values[place], return_inverse=True)
        return values, np.bincount(number, self.counts[place]).astype(np.int64)


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
    adding one. Rows show their sensitive values, so the learner from the publication need not
    iterate as in buckets; it takes each cell as spread evenly over its values. Where a table of all
    values of a quasi-identifier with all sensitive values would be too large, neighboring values
    are taken together.
    """
    covering, n_values = rows.covering, rows.n_values
    bins = [_bins(n, n_values) for n in covering.n_codes]
    published = _published_model(rows, bins, pulse)
    known = [_source_model(codes[part], values[part], bins, n_values) for part in (half, ~half)]
    found = RowGuesses(*(np.full(people.size, -1, dtype=np.int64) for _ in range(5)))
    for i, person in enumerate(people.tolist()):
        pulse.beat()
        classes = covering.classes_of(codes[person])
        found.n_rows[i] = rows.rows[classes].sum()
        if not classes.size:
            continue
        candidates, counts = rows.values_of(classes)
        found.n_values[i] = candidates.size
        if protected is not None:
            candidates, counts = candidates[protected[candidates]], counts[protected[candidates]]
            if not candidates.size:
                continue
        found.most_frequent[i] = candidates[counts.argmax()]
        places = [int(b[code]) for b, code in zip(bins, codes[person].tolist(), strict=True)]
        weights = np.log(counts)
        found.learned[i] = candidates[(weights + published.score(places, candidates)).argmax()]
        others = known[int(half[person])]
        found.known[i] = candidates[(weights + others.score(places, candidates)).argmax()]
    return found


@dataclass(frozen=True, eq=False)
class _Bayes:
    joint: Sequence[FloatArray]
    prior: FloatArray

    def score(self, places: Sequence[int], values: IntArray) -> FloatArray:
        """Return the logarithm of the likelihood of each value."""
        score = np.zeros(values.size)
        for joint, place in zip(self.joint, places, strict=True):
            score += np.log((joint[place, values] + 1) / (self.prior[values] + joint.shape[0]))
        return score


def _bins(n_codes: int, n_values: int) -> IntArray:
    n_bins = max(1, min(n_codes, _MOST_BINS_AND_VALUES // n_values))
    return np.arange(n_codes, dtype=np.int64) * n_bins // n_codes


def _published_model(rows: PublishedRows, bins: Sequence[IntArray], pulse: Pulse) -> _Bayes:
    classes = np.repeat(np.arange(rows.rows.size), np.diff(rows.starts))
    joint = []
    for attribute, (cells, its_bins) in enumerate(zip(rows.covering.cells, bins, strict=True)):
        pulse.beat()
        cell = rows.covering.cell_of_class[classes, attribute].astype(np.int64)
        counts = rows.counts.astype(np.float64)
        joint.append(spread_values(cells, cell, rows.values, counts, its_bins, rows.n_values))
    prior = np.bincount(rows.values, rows.counts, rows.n_values)
    return _Bayes(joint, prior.astype(np.float64))


def _source_model(
    codes: CodeArray, values: AnyIntArray, bins: Sequence[IntArray], n_values: int
) -> _Bayes:
    known = values >= 0
    its_values = values[known].astype(np.int64)
    joint = []
    for column, its_bins in zip(codes.T, bins, strict=True):
        n_bins = int(its_bins[-1]) + 1
        pairs = its_bins[column[known]] * n_values + its_values
        counted = np.bincount(pairs, minlength=n_bins * n_values).reshape(n_bins, n_values)
        joint.append(counted.astype(np.float64))
    return _Bayes(joint, np.bincount(its_values, minlength=n_values).astype(np.float64))
