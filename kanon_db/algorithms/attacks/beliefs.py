"""What an attacker who knows people's quasi-identifiers believes about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from kanon_db.algorithms.attacks.bucket_candidates import Candidates
from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Guesses:
    """Guesses about people with the same quasi-identifiers.

    Parameters
    ----------
    tuples, values : ndarray of int64, shape (n,)
        The combination of quasi-identifiers, and the value guessed.
    people : ndarray of int64, shape (n,)
        For how many of these people.
    """

    tuples: IntArray
    values: IntArray
    people: IntArray


@dataclass(frozen=True, eq=False)
class Beliefs:
    """How likely values are for people with the same quasi-identifiers.

    Parameters
    ----------
    tuples, values : ndarray of int64, shape (n,)
        Each combination of quasi-identifiers with each value that it may have, in this order.
    weights : ndarray of float64, shape (n,)
        The probabilities.
    people : ndarray of int64, shape (n,)
        How many people have the combination.
    """

    tuples: IntArray
    values: IntArray
    weights: FloatArray
    people: IntArray

    @classmethod
    def of(
        cls, candidates: Candidates, weights: FloatArray, tuples: AnyIntArray, n_values: int
    ) -> Self:
        """Average over the records that may be a person's.

        Parameters
        ----------
        candidates : Candidates
        weights : ndarray of float64, shape (n_candidates,)
            How likely each candidate is for its record; 1 in total for each record.
        tuples : ndarray of int, shape (n_records,)
            Each record's combination of quasi-identifiers.
        n_values : int

        Notes
        -----
        Somebody's record is any of those with their quasi-identifiers, with the same probability.
        A bound on the probability for each record is one for their average, too.

        Examples
        --------
        >>> found = Candidates(np.array([0, 0, 1]), np.array([4, 5, 5]), *[np.zeros(3)] * 3)
        >>> beliefs = Beliefs.of(found, np.array([0.5, 0.5, 1.0]), np.array([7, 7]), 6)
        >>> beliefs.values.tolist(), beliefs.weights.tolist(), beliefs.people.tolist()
        ([4, 5], [0.25, 0.75], [2, 2])
        """
        keys = tuples[candidates.record].astype(np.int64) * n_values + candidates.value
        distinct, numbers = np.unique(keys, return_inverse=True)
        its_tuples, values = np.divmod(distinct, n_values)
        people = np.bincount(tuples)[its_tuples].astype(np.int64)
        return cls(its_tuples, values, np.bincount(numbers, weights) / people, people)

    def among(self, protected: BoolArray) -> Beliefs:
        """Return those about protected values, given as a mask of all values."""
        kept = protected[self.values]
        return Beliefs(self.tuples[kept], self.values[kept], self.weights[kept], self.people[kept])

    @property
    def most_likely(self) -> Guesses:
        """The most likely value of everybody."""
        order = np.lexsort((self.weights, self.tuples))
        last = order[np.flatnonzero(np.diff(self.tuples[order], append=-1))]
        return Guesses(self.tuples[last], self.values[last], self.people[last])

    def named(self, holders: AnyIntArray) -> Guesses:
        """Name, for each value, as many people as have it: the most likely ones.

        Parameters
        ----------
        holders : ndarray of int, shape (n_values,)
            How many people have each value.

        Returns
        -------
        Guesses
            Somebody may be named for several values, or for none.

        Examples
        --------
        >>> likely = np.array([0.2, 0.9, 0.6])
        >>> beliefs = Beliefs(np.arange(3), np.array([1, 1, 1]), likely, np.array([5, 2, 5]))
        >>> named = beliefs.named(np.array([0, 4]))
        >>> named.tuples.tolist(), named.people.tolist()
        ([1, 2], [2, 2])
        """
        order = np.lexsort((-self.weights, self.values))
        values, people = self.values[order], self.people[order]
        starts = np.flatnonzero(np.diff(values, prepend=-1))
        before = np.cumsum(people) - people
        before -= np.repeat(before[starts], np.diff(starts, append=order.size))
        named = np.clip(holders[values] - before, 0, people)
        kept = named > 0
        return Guesses(self.tuples[order[kept]], values[kept], named[kept])
