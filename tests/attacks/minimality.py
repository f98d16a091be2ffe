"""The minimality attack on published buckets: who made a bucket as large as it is?

A method that gathers records in some order, and closes a bucket as soon as its thresholds allow
it, shows in the bucket which record it waited for. The attacker has only the publication: they
sort it as the method may have sorted the table, and say that the first record of each bucket with
a rare value has it, or the last one.
"""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, CodeArray, IntArray, sort_keys


class Guesses(NamedTuple):
    """Who has the value, by one way to guess: one record of each bucket that has the value."""

    attributes: tuple[int, ...]
    end: str
    records: IntArray


def minimality_guesses(
    qi_codes: CodeArray, buckets: AnyIntArray, has_value: BoolArray
) -> list[Guesses]:
    """Guess by every order of the attributes, and by either end of the buckets.

    Parameters
    ----------
    qi_codes : ndarray of int32, shape (n_records, n_qi)
    buckets : ndarray of int, shape (n_records,)
        Numbered from 0.
    has_value : ndarray of bool, shape (n_buckets,)
        Which buckets have the value.

    Returns
    -------
    list of Guesses
    """
    candidates = np.flatnonzero(has_value[buckets])
    guesses = []
    for attributes in permutations(range(qi_codes.shape[1])):
        keys = sort_keys([qi_codes[:, a] for a in attributes], reflected=True)
        order = candidates[np.argsort(keys[candidates], kind="stable")]
        for end, sequence in (("opening", order), ("closing", order[::-1])):
            first = np.unique(buckets[sequence], return_index=True)[1]
            guesses.append(Guesses(attributes, end, sequence[first]))
    return guesses
