"""Sparse data: hardly two people share their quasi-identifiers, and few have a rare value.

A method that gathers records in some order, and closes a bucket as soon as its thresholds allow
it, shows in the bucket which record it waited for. The attacker has only the publication: they
sort it as the method may have sorted the table, and say that the first record of each bucket with
a rare value has it, or the last one.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest

from kanon_db.algorithms.bucketization import FPrimePrivacy
from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, CodeArray, IntArray, sort_keys
from kanon_db.randomness import SecureRandom
from tests.attacks.posterior import tail
from tests.attacks.publishers import ASSIGNMENTS, TRANSPARENT
from tests.attacks.sparse import swept

N_RECORDS, N_RARE, RARE = 12_000, 250, 0
PRIVACY = FPrimePrivacy((Fraction(1, 10), *[Fraction(1)] * 9))
IMPOSSIBLE = 1e-9


def minimality_guesses(
    qi_codes: CodeArray, buckets: AnyIntArray, has_value: BoolArray
) -> list[IntArray]:
    """Guess by every order of the attributes, and by either end of the buckets.

    Each way to guess is one record of each bucket that has the value.
    """
    candidates = np.flatnonzero(has_value[buckets])
    guesses = []
    for attributes in permutations(range(qi_codes.shape[1])):
        keys = sort_keys([qi_codes[:, a] for a in attributes], reflected=True)
        order = candidates[np.argsort(keys[candidates], kind="stable")]
        guesses += [
            sequence[np.unique(buckets[sequence], return_index=True)[1]]
            for sequence in (order, order[::-1])
        ]
    return guesses


@pytest.fixture(scope="module")
def people() -> tuple[CodeArray, CodeArray]:
    """Birth date, zip code and sex; and an illness, the first of which is rare."""
    random = np.random.default_rng(1)
    qi_codes = random.integers(0, [25_000, 500, 2], (N_RECORDS, 3)).astype(np.int32)
    illness = random.integers(1, len(PRIVACY.thresholds), N_RECORDS).astype(np.int32)
    illness[random.choice(N_RECORDS, N_RARE, replace=False)] = RARE
    return qi_codes, illness


def rights(qi_codes: CodeArray, illness: CodeArray, buckets: AnyIntArray) -> list[tuple[int, int]]:
    """Return how many guesses are right, and how many there are, of each way to guess."""
    has_rare = np.zeros(buckets.max() + 1, dtype=np.bool_)
    has_rare[buckets[illness == RARE]] = True
    # The rows of the QIT come in a random order.
    order = SecureRandom().permutation(N_RECORDS)
    guesses = minimality_guesses(qi_codes[order], buckets[order], has_rare)
    assert len(guesses) == 12
    return [(int((illness[order][guess] == RARE).sum()), guess.size) for guess in guesses]


@pytest.mark.pitfall(20)
@pytest.mark.parametrize("assignment", TRANSPARENT)
def test_minimality_finds_rare_values_in_sparse_data_as_rarely_as_promised(
    people: tuple[CodeArray, CodeArray], assignment: str
) -> None:
    """In every bucket a guess is right with at most f', whatever happens in the others."""
    buckets = ASSIGNMENTS[assignment](*people, PRIVACY, "two_size", SecureRandom())
    for right, n in rights(*people, buckets):
        assert n
        assert tail(n, float(PRIVACY.thresholds[RARE]), right) > IMPOSSIBLE


@pytest.mark.pitfall(20)
def test_minimality_names_the_rare_people_of_swept_buckets(
    people: tuple[CodeArray, CodeArray],
) -> None:
    """The attack is able to, where buckets wait for their rare record: it is mostly right."""
    right, n = max(rights(*people, swept(*people, RARE, 10)))
    assert n > 200
    assert right > 0.9 * n
