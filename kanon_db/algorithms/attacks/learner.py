"""The deFinetti attack: learn from the publication itself which values go with whom."""

from __future__ import annotations

import numpy as np

from kanon_db.algorithms.attacks.bucket_candidates import Candidates
from kanon_db.algorithms.attacks.pair_counts import PairCounts
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, FloatArray, IntArray
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse

ROUNDS = 15
_LEAST = 1e-12


def learned_weights(
    qi_codes: CodeArray,
    candidates: Candidates,
    n_values: int,
    *,
    n_rounds: int = ROUNDS,
    pulse: Pulse = UNLIMITED,
) -> FloatArray:
    """Learn from QIT and SAT alone how likely each value of a record is.

    Parameters
    ----------
    qi_codes : ndarray of int32, shape (n_records, n_qi)
    candidates : Candidates
        Of the same records.
    n_values : int
        How many sensitive values there are.
    n_rounds : int
        How often the model is learned anew.

    Returns
    -------
    ndarray of float64, shape (n_candidates,)

    Notes
    -----
    **Source:** D. Kifer, *Attacks on privacy and deFinetti's theorem*, SIGMOD 2009; G. Cormode,
    *Personal privacy vs population privacy*, 2010. Beginning with the shares in the buckets, two
    steps alternate: a naive Bayes model from the weights, and weights from the model, scaled within
    each bucket so that each record has one value and each value its number of records. Counts are
    smoothed by adding one.
    """
    # The pairs of a code and a value are the same in every round.
    pairs = [
        np.unique(
            column[candidates.record].astype(np.int64) * n_values + candidates.value,
            return_inverse=True,
        )[1].astype(np.int32)
        for column in qi_codes.T
    ]
    n_codes = (qi_codes.max(axis=0, initial=-1) + 1).tolist()
    weights = candidates.share
    for _ in range(n_rounds):
        pulse.beat()
        prior = np.bincount(candidates.value, weights, n_values)[candidates.value]
        log_likelihood = np.zeros(weights.size)
        for pair, n in zip(pairs, n_codes, strict=True):
            joint = np.bincount(pair, weights)[pair]
            log_likelihood += np.log((joint + 1) / (prior + n))
        weights = _scaled(candidates, log_likelihood, pulse)
    return weights


def weights_of_source(
    qi_codes: CodeArray,
    candidates: Candidates,
    source_codes: CodeArray,
    source_values: AnyIntArray,
    n_values: int,
    *,
    own: FloatArray | None = None,
    pulse: Pulse = UNLIMITED,
) -> FloatArray:
    """Return how likely each value of a record is for someone who knows the source's correlations.

    Parameters
    ----------
    qi_codes : ndarray of int32, shape (n_records, n_qi)
    candidates : Candidates
        Of the same records.
    source_codes : ndarray of int32, shape (n_people, n_qi)
        The quasi-identifiers of the source's people, by the same codes.
    source_values : ndarray of int, shape (n_people,)
        Their sensitive values, by the same codes.
    own : ndarray of float64, shape (n_candidates,), optional
        How far the record itself is among the people with the candidate's value. If given, the
        records of a bucket are not known when its values are guessed: otherwise, a rare
        quasi-identifier would give away the value of the only person who has it.

    Returns
    -------
    ndarray of float64, shape (n_candidates,)

    Notes
    -----
    The model of :func:`learned_weights`, from the true values of everybody else: an upper end of
    what correlations can tell such a learner. To leave out a whole bucket, and not only the record
    itself, treats its records alike: whoever has a value is not told apart from the others by
    being missing among those who have it.
    """
    prior = np.bincount(source_values, minlength=n_values)[candidates.value].astype(np.float64)
    if own is not None:
        prior -= np.bincount(candidates.cell, own)[candidates.cell]
    log_likelihood = np.zeros(candidates.value.size)
    for column, source_column in zip(qi_codes.T, source_codes.T, strict=True):
        pulse.beat()
        pairs = PairCounts.of(source_column, source_values, n_values)
        codes = column[candidates.record]
        joint = pairs.count(codes, candidates.value).astype(np.float64)
        if own is not None:
            keys = candidates.cell * (int(column.max()) + 1) + codes
            alike = np.unique(keys, return_inverse=True)[1]
            joint -= np.bincount(alike, own)[alike]
        n_codes = int(source_column.max(initial=-1)) + 1
        log_likelihood += np.log((np.maximum(joint, 0) + 1) / (np.maximum(prior, 0) + n_codes))
    return _scaled(candidates, log_likelihood, pulse)


def _scaled(candidates: Candidates, log_likelihood: FloatArray, pulse: Pulse) -> FloatArray:
    """Turn likelihoods into weights that fit each record and each bucket."""
    highest = _highest(log_likelihood, candidates.record)
    weights = np.maximum(np.exp(log_likelihood - highest), _LEAST) * candidates.count
    for _ in range(ROUNDS):
        pulse.beat()
        weights *= candidates.count / np.bincount(candidates.cell, weights)[candidates.cell]
        weights /= np.bincount(candidates.record, weights)[candidates.record]
    return weights


def _highest(scores: FloatArray, record: IntArray) -> FloatArray:
    starts = np.flatnonzero(np.diff(record, prepend=-1))
    return np.maximum.reduceat(scores, starts)[record]
