"""Scores guesses: the rate of right ones, beside its bound and the rate without the publication.

Records with rare pairs of values are found too, to be scored separately.
"""

from __future__ import annotations

from itertools import combinations
from typing import Self

import numpy as np

from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
    sort_keys,
)
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse
from kanon_db.dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class PairCounts:
    """How often each pair of codes occurs; a table of all pairs might not fit into memory."""

    n_second: int  # One more than the largest second code
    keys: IntArray  # (n_pairs,): ``first * n_second + second`` of the pairs that occur, ascending
    counts: IntArray  # (n_pairs,)

    @classmethod
    def of(cls, first: AnyIntArray, second: AnyIntArray, n_second: int) -> Self:
        """Count the pairs of two arrays of the same length, whose codes are at least 0."""
        keys, counts = np.unique(
            first.astype(np.int64) * n_second + second.astype(np.int64), return_counts=True
        )
        return cls(n_second, keys, counts.astype(np.int64))

    def count(self, first: AnyIntArray, second: AnyIntArray) -> IntArray:
        """Return how often each of these pairs occurs, shape as the arguments."""
        if not self.keys.size:
            return np.zeros(np.shape(first), dtype=np.int64)
        wanted = first.astype(np.int64) * self.n_second + second.astype(np.int64)
        place = np.minimum(np.searchsorted(self.keys, wanted), self.keys.size - 1)
        return np.where(self.keys[place] == wanted, self.counts[place], 0)


@dataclass(frozen=True)
class AttackScore:
    """What an attack achieves.

    Attributes
    ----------
    people : int
        How many people were guessed.
    rate : float or None
        The share of right guesses; None if nobody was guessed.
    base_rate : float or None
        The rate of someone without the publication; None if nobody was guessed.
    bound : float or None
        What the guarantee allows; None where nothing bounds it.
    """

    people: int
    rate: float | None
    base_rate: float | None
    bound: float | None


@dataclass(frozen=True, eq=False)
class TrueValues:
    """The sensitive values of the source's people, by their quasi-identifiers.

    Parameters
    ----------
    pairs : PairCounts
        How often each combination of quasi-identifiers occurs with each value.
    people : ndarray of int64, shape (n_tuples,)
        How many people have each combination.
    most_frequent : int
        The most frequent value of the source, -1 if it has none of those that are published.

    Notes
    -----
    Nobody knows which of several people with the same quasi-identifiers a published record is
    about. So a guess counts as the fraction of these people who have the value: the expected score
    of someone who picks one of them at random.

    Examples
    --------
    >>> truth = TrueValues.of(np.array([0, 0, 1]), np.array([2, 1, 1]), 3, 3)
    >>> truth.share(np.array([0, 1, 2]), np.array([1, 1, 1])).tolist()
    [0.5, 1.0, nan]
    """

    pairs: PairCounts
    people: IntArray
    most_frequent: int

    @classmethod
    def of(cls, tuples: AnyIntArray, values: AnyIntArray, n_tuples: int, n_values: int) -> Self:
        """Count the source's people.

        Parameters
        ----------
        tuples : ndarray of int, shape (n_people,)
            The number of each person's combination of quasi-identifiers, in [0, n_tuples).
        values : ndarray of int, shape (n_people,)
            The code of their sensitive value, in [0, n_values); -1 if it is not published.
        """
        known = values >= 0
        counts = np.bincount(values[known], minlength=n_values)
        return cls(
            PairCounts.of(tuples[known], values[known], n_values),
            np.bincount(tuples, minlength=n_tuples).astype(np.int64),
            int(counts.argmax()) if known.any() else -1,
        )

    def share(self, tuples: AnyIntArray, values: AnyIntArray) -> FloatArray:
        """Return the fraction of the people with these combinations who have these values.

        NaN for combinations that nobody in the source has.
        """
        people = self.people[tuples].astype(np.float64)
        right = self.pairs.count(tuples, values).astype(np.float64)
        unknown: FloatArray = np.full(right.shape, np.nan)
        return np.divide(right, people, out=unknown, where=people > 0)


def score_guesses(
    truth: TrueValues,
    tuples: AnyIntArray,
    guesses: AnyIntArray,
    bounds: FloatArray | None,
    people: AnyIntArray | None = None,
) -> AttackScore:
    """Score guesses.

    Parameters
    ----------
    truth : TrueValues
    tuples, guesses : ndarray of int, shape (n,)
        The combination of quasi-identifiers of each person, and the value guessed; -1 for none.
    bounds : ndarray of float64, shape (n_values,), optional
        The largest probability that the guarantee allows for each value. Guesses of a value whose
        bound is 1 are left out: the guarantee says nothing about them.
    people : ndarray of int, shape (n,), optional
        For how many people each guess stands; one by default.

    Returns
    -------
    AttackScore
        The bound is the mean over the guesses: if each of them is right with at most the
        probability that its value allows, so is their share.

    Examples
    --------
    >>> truth = TrueValues.of(np.array([0, 1, 2]), np.array([0, 1, 1]), 3, 2)
    >>> score_guesses(truth, np.array([0, 1]), np.array([0, 0]), np.array([0.5, 0.25]))
    AttackScore(people=2, rate=0.5, base_rate=0.5, bound=0.5)
    """
    chosen = guesses >= 0
    if bounds is not None:
        chosen &= bounds[guesses] < 1
    right = truth.share(tuples, guesses)
    chosen &= ~np.isnan(right)
    numbers = np.ones(chosen.size, dtype=np.int64) if people is None else people
    chosen &= numbers > 0
    if not chosen.any():
        return AttackScore(0, None, None, None)
    tuples, guesses, numbers = tuples[chosen], guesses[chosen], numbers[chosen]
    base = truth.share(tuples, np.full(tuples.size, truth.most_frequent))
    return AttackScore(
        int(numbers.sum()),
        float(np.average(right[chosen], weights=numbers)),
        float(np.average(base, weights=numbers)),
        None if bounds is None else float(np.average(bounds[guesses], weights=numbers)),
    )


def score_predicates(
    n_alike: AnyIntArray, holds_for: AnyIntArray, weights: FloatArray, n_people: int
) -> AttackScore:
    """Score predicates that are to hold for exactly one person.

    Parameters
    ----------
    n_alike : ndarray of int, shape (n,)
        How many published records are as each predicate describes. Of so many, it picks one: it is
        narrowed to the people of whom a hash, which nobody else knows, is one of as many values.
    holds_for : ndarray of int, shape (n,)
        For how many people of the source it holds without that.
    weights : ndarray of float64, shape (n,)
        With which probability it holds for somebody of whom nothing is known, without that.
    n_people : int
        The people of the source.

    Returns
    -------
    AttackScore
        The share of predicates that hold for one person, as expected over the hash, beside that of
        predicates of the same weights that are chosen without the publication. Nothing bounds it.

    Notes
    -----
    **Source:** A. Cohen, K. Nissim, *Towards formalizing the GDPR's notion of singling out*, 2020:
    predicate singling out, and its attack on k-anonymity.

    Examples
    --------
    >>> score_predicates(np.array([1, 2]), np.array([1, 2]), np.array([0.5, 0.5]), 2)
    AttackScore(people=2, rate=0.75, base_rate=0.4375, bound=None)
    """
    if not n_alike.size:
        return AttackScore(0, None, None, None)
    share = 1 / n_alike
    isolated = holds_for * share * (1 - share) ** np.maximum(holds_for - 1, 0)
    narrow = weights * share
    base = n_people * narrow * (1 - narrow) ** (n_people - 1)
    return AttackScore(int(n_alike.size), float(isolated.mean()), float(base.mean()), None)


MOST_ALIKE = 3


def unusual_records(
    qi_codes: CodeArray, most_alike: int = MOST_ALIKE, pulse: Pulse = UNLIMITED
) -> BoolArray:
    """Find the records of people who stand out: with a pair of values that few records have.

    Parameters
    ----------
    qi_codes : ndarray of int32, shape (n_records, n_qi)
        With a single quasi-identifier, its values count instead of pairs.
    most_alike : int
        How many records may have the pair.

    Returns
    -------
    ndarray of bool, shape (n_records,)

    Notes
    -----
    **Source:** M. J. Elliot, A. M. Manning, R. W. Ford, *A computational algorithm for handling the
    special uniques problem*, 2002: whoever is rare by few attributes is easier to find, and stays
    rare, than those who are rare by all of them together.

    Examples
    --------
    >>> ages_and_sexes = np.array([[0, 0], [0, 0], [0, 1], [1, 1], [1, 1]], dtype=np.int32)
    >>> unusual_records(ages_and_sexes, 1).tolist()
    [False, False, True, False, False]
    """
    n_records, n_qi = qi_codes.shape
    unusual = np.zeros(n_records, dtype=np.bool_)
    for attributes in combinations(range(n_qi), min(2, n_qi)):
        pulse.beat()
        keys = sort_keys([qi_codes[:, a] for a in attributes])
        _, number, counts = np.unique(keys, return_inverse=True, return_counts=True)
        unusual |= counts[number] <= most_alike
    return unusual
