"""Computes how likely each value of a bucket is for each record, and plays two attacks with it.

Two learners play the deFinetti attack: naive Bayes, and the model whose weights publications may
have beside them. The minimality attack (Wong et al. 2007) names who opened or closed each bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Final, Self

import numpy as np

from kanon_db.algorithms.attacks.attack_scores import AttackScore, PairCounts, TrueValues
from kanon_db.algorithms.bucketization.buckets import BucketedRecords
from kanon_db.algorithms.bucketization.value_model import ValueModel, learn
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
class BucketValues:
    """The SAT as arrays: how often each sensitive value occurs in each bucket.

    Parameters
    ----------
    bucket, value, count : ndarray of int64, shape (n_pairs,)
        Each pair of a bucket and a value once, by bucket. Buckets are numbered from 0 without gaps.
    """

    bucket: IntArray
    value: IntArray
    count: IntArray

    @classmethod
    def of(cls, buckets: AnyIntArray, values: AnyIntArray, n_values: int) -> Self:
        """Count the values of records, whose buckets are given."""
        keys, counts = np.unique(buckets.astype(np.int64) * n_values + values, return_counts=True)
        return cls(keys // n_values, keys % n_values, counts.astype(np.int64))

    @property
    def starts(self) -> IntArray:
        """Where each bucket begins."""
        return np.flatnonzero(np.diff(self.bucket, prepend=-1))

    @property
    def sizes(self) -> IntArray:
        """The number of records of each bucket."""
        sizes: IntArray = np.add.reduceat(self.count, self.starts)
        return sizes

    def between(self, low: int, high: int) -> Self:
        """Take the buckets from `low` up to `high`, numbered from 0."""
        first, last = np.searchsorted(self.bucket, [low, high]).tolist()
        own = slice(first, last)
        return replace(
            self, bucket=self.bucket[own] - low, value=self.value[own], count=self.count[own]
        )

    def last_by(self, score: FloatArray | IntArray) -> IntArray:
        """Return the value of each bucket with the largest score, shape (n_buckets,).

        Examples
        --------
        >>> sat = BucketValues.of(np.array([0, 0, 0, 1]), np.array([3, 5, 5, 3]), 6)
        >>> sat.last_by(sat.count).tolist(), sat.sizes.tolist()
        ([5, 3], [3, 1])
        """
        order = np.lexsort((score, self.bucket))
        values: IntArray = self.value[order[np.append(self.starts[1:], self.bucket.size) - 1]]
        return values


@dataclass(frozen=True, eq=False)
class BucketCandidates:
    """Each record with each value of its bucket.

    Parameters
    ----------
    record : ndarray of int64, shape (n,)
        The record, ascending.
    value : ndarray of int64, shape (n,)
    cell : ndarray of int64, shape (n,)
        The position of the pair of its bucket and the value.
    count, share : ndarray of float64, shape (n,)
        How often the value occurs in the bucket, in records and as a share of its records.
    """

    record: IntArray
    value: IntArray
    cell: IntArray
    count: FloatArray
    share: FloatArray


def candidates_of(buckets: AnyIntArray, values: BucketValues) -> BucketCandidates:
    """List which values each record may have.

    Parameters
    ----------
    buckets : ndarray of int, shape (n_records,)
        The bucket of each record.
    values : BucketValues

    Examples
    --------
    >>> sat = BucketValues.of(np.array([0, 0, 1]), np.array([4, 5, 5]), 6)
    >>> found = candidates_of(np.array([1, 0]), sat)
    >>> found.record.tolist(), found.value.tolist(), found.share.tolist()
    ([0, 1, 1], [5, 4, 5], [1.0, 0.5, 0.5])
    """
    first = np.append(values.starts, values.bucket.size)
    lengths = np.diff(first)[buckets]
    record = np.repeat(np.arange(buckets.size), lengths)
    start = np.cumsum(lengths) - lengths
    cell = first[buckets][record] + np.arange(record.size) - start[record]
    count = values.count[cell].astype(np.float64)
    return BucketCandidates(
        record, values.value[cell], cell, count, count / values.sizes[buckets[record]]
    )


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

    def about(self, tuples: BoolArray) -> Guesses:
        """Return those about people with some combinations, given as a mask of all."""
        return replace(self, people=np.where(tuples[self.tuples], self.people, 0))


@dataclass(frozen=True, eq=False)
class Beliefs:
    """What someone who knows people's quasi-identifiers believes about their values.

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
        cls, candidates: BucketCandidates, weights: FloatArray, tuples: AnyIntArray, n_values: int
    ) -> Self:
        """Average over the records that may be a person's.

        Parameters
        ----------
        candidates : BucketCandidates
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
        >>> found = BucketCandidates(np.array([0, 0, 1]), np.array([4, 5, 5]), *[np.zeros(3)] * 3)
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
        """Return the beliefs about protected values, given as a mask of all values."""
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

    def surer_than(self, bounds: FloatArray) -> Guesses:
        """Name the value whose probability exceeds its bound the most, where one does.

        Parameters
        ----------
        bounds : ndarray of float64, shape (n_values,)

        Examples
        --------
        >>> likely = np.array([0.2, 0.8, 0.5, 0.5])
        >>> two = np.array([2, 2, 1, 1])
        >>> beliefs = Beliefs(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), likely, two)
        >>> surer = beliefs.surer_than(np.array([0.5, 0.6]))
        >>> surer.tuples.tolist(), surer.values.tolist(), surer.people.tolist()
        ([0], [1], [2])
        """
        excess = self.weights / bounds[self.values]
        surer = excess > 1 + _ROUNDING
        return Beliefs(
            self.tuples[surer], self.values[surer], excess[surer], self.people[surer]
        ).most_likely


_ROUNDING = 1e-6
ROUNDS = 15
_LEAST = 1e-12


def learn_weights(
    qi_codes: CodeArray,
    candidates: BucketCandidates,
    n_values: int,
    *,
    n_rounds: int = ROUNDS,
    pulse: Pulse = UNLIMITED,
) -> FloatArray:
    """Play the deFinetti attack: learn from QIT and SAT alone how likely each value of a record is.

    Parameters
    ----------
    qi_codes : ndarray of int32, shape (n_records, n_qi)
    candidates : BucketCandidates
        Candidates of the same records.
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
        weights = _scale(candidates, log_likelihood, pulse)
    return weights


def model_weights(
    qi_codes: CodeArray,
    buckets: AnyIntArray,
    values: BucketValues,
    n_values: int,
    starts: Sequence[np.random.Generator],
    pulse: Pulse = UNLIMITED,
) -> FloatArray | None:
    """Play the deFinetti attack with a multinomial model; see :func:`.value_model.learn`.

    Parameters
    ----------
    qi_codes : ndarray of int32, shape (n_records, n_qi)
    buckets : ndarray of int, shape (n_records,)
        The bucket of each record, ascending.
    values : BucketValues
    n_values : int
    starts : sequence of numpy.random.Generator
        One for each time that the model starts. Of the models that learn anything, that one counts
        by which buckets, some 10,000 records of them, are most likely: what is published decides.

    Returns
    -------
    ndarray of float64, shape (n_candidates,), or None
        Of the candidates that :func:`candidates_of` lists; None where nothing is learned.
    """
    firsts = np.append(0, np.cumsum(values.sizes))
    its_values = np.repeat(values.value, values.count).astype(np.int32)
    records = BucketedRecords([*qi_codes.T], its_values, firsts, n_values)
    models = [one for start in starts if (one := learn(records, start, pulse)) is not None]
    if not models:
        return None
    model = models[0] if len(models) == 1 else likeliest(models, records, starts[0], pulse)
    weights = []
    for low, high in model.parts(records):
        pulse.beat()
        likely = model.posteriors(records.between(low, high), starts[0])
        candidates = candidates_of(
            buckets[firsts[low] : firsts[high]] - low, values.between(low, high)
        )
        weights.append(likely[candidates.record, candidates.value].astype(np.float64))
    return np.concatenate(weights)


_COMPARED: Final = 10_000


def likeliest(
    models: Sequence[ValueModel],
    records: BucketedRecords,
    random: np.random.Generator,
    pulse: Pulse = UNLIMITED,
) -> ValueModel:
    """Return the model by which a random sample of the buckets is most likely."""
    chosen = random.permutation(records.starts.size - 1)
    ends = np.cumsum(np.diff(records.starts)[chosen])
    some = records.of_buckets(chosen[: np.searchsorted(ends, _COMPARED) + 1])
    seed = int(random.integers(2**32))  # the same draws for each

    def likelihood(model: ValueModel) -> float:
        return model.likelihood(some, np.random.default_rng(seed), pulse)

    return max(models, key=likelihood)


def weights_of_source(
    qi_codes: CodeArray,
    candidates: BucketCandidates,
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
    candidates : BucketCandidates
        Candidates of the same records.
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
    The model of :func:`learn_weights`, from the true values of everybody else: an upper end of
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
    return _scale(candidates, log_likelihood, pulse)


def _scale(candidates: BucketCandidates, log_likelihood: FloatArray, pulse: Pulse) -> FloatArray:
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


ALL_ORDERS_OF = 4
"""Most attributes of which all orders are tried."""


@dataclass(frozen=True)
class SweepOrder:
    """An order in which records may have been gathered.

    Attributes
    ----------
    attributes : tuple of int
        The quasi-identifiers to sort by, the first foremost.
    reflected : bool
        Whether the order within an attribute turns back and forth (see :func:`.sort_keys`).
    """

    attributes: tuple[int, ...]
    reflected: bool


def sweep_orders(qi_codes: CodeArray) -> list[SweepOrder]:
    """List the orders to try.

    Parameters
    ----------
    qi_codes : ndarray of int32, shape (n_records, n_qi)

    Returns
    -------
    list of SweepOrder
        All orders of up to four attributes. If there are more, all orders of the four in which most
        records agree, followed by the others, and one order that starts with each of the others.
        Each order comes plain and reflected.

    Examples
    --------
    >>> len(sweep_orders(np.zeros((2, 3), np.int32))), len(sweep_orders(np.zeros((2, 8), np.int32)))
    (12, 56)
    """
    n_records = qi_codes.shape[0]
    agreement = [
        float(np.square(np.bincount(column) / max(n_records, 1)).sum()) for column in qi_codes.T
    ]
    own = np.argsort(np.negative(agreement), kind="stable").tolist()
    head, tail = own[:ALL_ORDERS_OF], own[ALL_ORDERS_OF:]
    orders = [(*first, *tail) for first in permutations(head)]
    orders += [(a, *(b for b in own if b != a)) for a in tail]
    return [SweepOrder(order, reflected) for order in orders for reflected in (True, False)]


def ends_of_buckets(
    keys: IntArray, by_bucket: IntArray, starts: IntArray
) -> tuple[IntArray, IntArray]:
    """Return the first and the last record of each bucket by their keys."""
    ordered = keys[by_bucket]
    bucket = np.repeat(np.arange(starts.size), np.diff(starts, append=keys.size))
    ends = []
    for extreme in (np.minimum, np.maximum):
        at = np.flatnonzero(ordered == extreme.reduceat(ordered, starts)[bucket])
        _, first = np.unique(bucket[at], return_index=True)
        ends.append(by_bucket[at[first]])
    return ends[0], ends[1]


def name_rarest(
    qi_codes: CodeArray,
    buckets: AnyIntArray,
    values: BucketValues,
    tuples: AnyIntArray,
    truth: TrueValues,
    bounds: FloatArray,
    orders: Sequence[SweepOrder],
    half: BoolArray,
    pulse: Pulse = UNLIMITED,
) -> AttackScore:
    """Name the opening or the closing record of each bucket as the holder of its rarest value.

    Parameters
    ----------
    qi_codes : ndarray of int32, shape (n_records, n_qi)
        The QIT; codes of ordered types in the type's order.
    buckets : ndarray of int, shape (n_records,)
        Each record's bucket, from 0 without gaps.
    values : BucketValues
        The SAT.
    tuples : ndarray of int, shape (n_records,)
        Each record's combination of quasi-identifiers, as `truth` numbers them.
    truth : TrueValues
        Only scores what was guessed.
    bounds : ndarray of float64, shape (n_values,)
        The thresholds f'. Buckets whose rarest value has a threshold of 1 are left out.
    orders : sequence of SweepOrder
    half : ndarray of bool, shape (n_buckets,)
        A random half of the buckets.

    Returns
    -------
    AttackScore
        The score of the best order and end. One half of the buckets chooses the best, and the other
        half scores it, in both directions; otherwise the luckiest of many orders would look like
        an attack where there is none.

    Notes
    -----
    **Source:** R. C.-W. Wong, A. W.-C. Fu, K. Wang, J. Pei, *Minimality attack in privacy
    preserving data publishing*, VLDB 2007, which shows that knowing the algorithm helps. We
    play it against the buckets of a sweep: a bucket that is closed as soon as it satisfies the
    thresholds was kept open by its rarest value.
    """
    table = np.bincount(values.value, values.count, bounds.size)
    rarest = values.last_by(-table[values.value])
    chosen = np.flatnonzero(bounds[rarest] < 1)
    guessed = rarest[chosen]
    by_bucket = np.argsort(buckets, kind="stable")
    starts = np.searchsorted(buckets[by_bucket], np.arange(rarest.size))
    columns = [qi_codes[:, a] for a in range(qi_codes.shape[1])]
    attempts = []
    for order in orders:
        pulse.beat()
        keys = sort_keys([columns[a] for a in order.attributes], reflected=order.reflected)
        for records in ends_of_buckets(keys, by_bucket, starts):
            persons = tuples[records[chosen]]
            attempts.append(_Attempt.of(truth, persons, guessed, bounds, half[chosen]))
    best_of_first = max(attempts, key=lambda tried: tried.rate(0))
    best_of_second = max(attempts, key=lambda tried: tried.rate(1))
    return _Attempt.joined(best_of_second, best_of_first)


@dataclass(frozen=True)
class _Attempt:
    """Sums of one variant over the buckets of each half: people, right, base and bound."""

    sums: tuple[tuple[float, float, float, float], ...]

    @classmethod
    def of(
        cls,
        truth: TrueValues,
        tuples: AnyIntArray,
        guessed: IntArray,
        bounds: FloatArray,
        half: BoolArray,
    ) -> _Attempt:
        right = truth.share(tuples, guessed)
        base = truth.share(tuples, np.full(tuples.size, truth.most_frequent))
        scored = ~np.isnan(right)
        return cls(
            tuple(
                (
                    float(at.sum()),
                    float(right[at].sum()),
                    float(base[at].sum()),
                    float(bounds[guessed[at]].sum()),
                )
                for at in (scored & half, scored & ~half)
            )
        )

    def rate(self, side: int) -> float:
        people, right, *_ = self.sums[side]
        return right / people if people else 0.0

    @staticmethod
    def joined(first: _Attempt, second: _Attempt) -> AttackScore:
        """Take the first half of one variant and the second half of another."""
        sums = [a + b for a, b in zip(first.sums[0], second.sums[1], strict=True)]
        people, right, base, bound = sums
        if not people:
            return AttackScore(0, None, None, None)
        return AttackScore(int(people), right / people, base / people, bound / people)
