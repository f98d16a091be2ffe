"""How values go with what is asked of records, and how well buckets tell.

Who of a bucket has which of its values is hidden. But records came into buckets at random, so
how the matching records go with a value from bucket to bucket tells how they go with it inside.

**Source:** our own; docs/understand/estimation.md derives it. The estimate without dependence is
[GB] section 3.2; learning a slope from totals of groups is ecological regression (L. Goodman 1953,
G. King 1997), which holds here because groups are drawn at random; variances of priors that are
learned from many questions are empirical Bayes (B. Efron, C. Morris 1973).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple, Self

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, FloatArray, IntArray

MOST_CLASSES: Final = 64
"""Of more values, neighbors are one class: no dependence is looked for inside it."""

STRENGTHS: Final = np.array([0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5])
"""Correlations that a condition may have with each contrast of the values, as standard
deviations."""

ASKED: Final = np.array([0, 0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.25])
"""The same of what is asked, which is rarely an arbitrary contrast."""

USUAL: Final = np.outer(
    np.array([8, 12, 8, 12, 14, 13, 11, 10, 5, 3.5, 2, 1.5]) / 100,
    np.array([15, 15, 15, 15, 15, 10, 10, 5]) / 100,
)
"""How often both are met, before a publication is looked at, (n_strengths, n_asked)."""

_PERSISTENCE: Final = 0.05
"""How many questions the usual strengths count for, beside each that is learned from."""

_FLAT: Final = 1e-6
"""Contrasts that vary less from bucket to bucket, as parts of all that they vary, tell nothing."""

_NOTHING: Final = 1e-12

_WELL_TOLD: Final = 0.5
"""What is learned of strengths holds for contrasts of which buckets tell so much; of others, the
usual strengths are expected in part."""

_GAIN: Final = 0.1
"""Unless dependence makes what is seen of conditions more likely by this, in logarithms, estimates
assume none; errors still allow for it."""

_GOLDEN: Final = 0.6180339887
"""Steps of this part of a circle visit all of it evenly."""

_CHUNK: Final = 4_000_000
"""Numbers that are written out at once."""


class MatchingRecords(NamedTuple):
    """What the matching records of each bucket weigh: 1 each, or the number that is added up."""

    sums: FloatArray  # (n_groups, n_buckets)
    squares: FloatArray  # (n_groups, n_buckets): equal to the sums where each weighs 1


class Estimates(NamedTuple):
    """Totals over the pairs of a record and its value, for each group of an answer."""

    numbers: FloatArray  # (n_groups,)
    without: FloatArray  # (n_groups,): the same if nothing depended on anything
    # Variances: (n_groups, n_groups) of the draw; (n_groups,) of what is learned of the dependence,
    # and of what no bucket tells
    draw: FloatArray
    learned: FloatArray
    untold: FloatArray
    # (n_groups, n_groups): of everything together
    covariance: FloatArray

    @property
    def errors(self) -> FloatArray:
        """Standard errors, (n_groups,)."""
        return np.sqrt(np.maximum(np.diagonal(self.covariance), 0.0))


@dataclass(frozen=True, eq=False)
class BucketHistograms:
    """How often each value stands in each bucket, an entry each, in the order of buckets."""

    sizes: FloatArray  # (n_buckets,)
    bucket: IntArray  # (n_entries,)
    value: AnyIntArray  # (n_entries,)
    count: FloatArray  # (n_entries,)
    n_values: int
    stratum: IntArray  # (n_buckets,): records are drawn for its buckets together; of all, zeros

    @cached_property
    def n_records(self) -> float:
        """All records."""
        return float(self.sizes.sum())

    @cached_property
    def totals(self) -> FloatArray:
        """Records with each value, (n_values,)."""
        return np.bincount(self.value, self.count, self.n_values).astype(np.float64)

    def sums(self, scores: FloatArray) -> FloatArray:
        """Add up the scores of each bucket's values, (n_buckets,)."""
        sums = np.bincount(self.bucket, self.count * scores[self.value], self.sizes.size)
        return sums.astype(np.float64)

    def spread(self, shares: FloatArray) -> FloatArray:
        """Give each value its records' part of the buckets' shares, (n_values,)."""
        spread = np.bincount(self.value, self.count * shares[self.bucket], self.n_values)
        return spread.astype(np.float64)

    def meetings(self, weights: FloatArray) -> FloatArray:
        """Count which values meet in a bucket, as parts of its size, (n_values, n_values)."""
        meetings = np.zeros((self.n_values, self.n_values))
        step = max(_CHUNK // self.n_values, 1)
        for start in range(0, self.sizes.size, step):
            end = min(start + step, self.sizes.size)
            first, last = np.searchsorted(self.bucket, (start, end))
            counts = np.zeros((end - start, self.n_values))
            at = self.bucket[first:last] - start, self.value[first:last]
            np.add.at(counts, at, self.count[first:last])
            scaled = counts * (weights[start:end] / self.sizes[start:end])[:, None]
            meetings += counts.T @ scaled
        return meetings

    @cached_property
    def by_stratum(self) -> FloatArray:
        """Records of each stratum with each value, (n_strata, n_values)."""
        n_strata = int(self.stratum.max()) + 1
        places = self.stratum[self.bucket] * self.n_values + self.value
        counts = np.bincount(places, self.count, n_strata * self.n_values)
        return counts.reshape(n_strata, self.n_values).astype(np.float64)

    def in_classes(self, classes: AnyIntArray) -> Self:
        """Put values into classes."""
        return replace(self, value=classes[self.value], n_values=int(classes.max()) + 1)


class _Contrasts(NamedTuple):
    """Contrasts of the values that the draw makes uncorrelated."""

    between: FloatArray  # (n_values,): the part of each that varies between buckets
    vectors: FloatArray  # (n_values, n_values)
    inside: FloatArray  # (n_values, n_values): what varies inside buckets, turned to contrasts
    shares: FloatArray  # (n_values,): of all records
    n_records: float
    spread: float  # the variance of what is asked

    @classmethod
    def of(cls, contents: BucketHistograms, spreads: FloatArray) -> Self:
        """Find them; `spreads` are variances of what is asked in each stratum."""
        n_records, weights = contents.n_records, spreads[contents.stratum]
        own = contents.by_stratum
        spread = float(weights @ contents.sizes) / n_records
        scale = contents.n_values / max(spread * n_records, _NOTHING)
        meetings = contents.meetings(weights)
        varying = meetings - own.T @ (own * (spreads / own.sum(axis=1))[:, None])
        between, vectors = np.linalg.eigh(varying * scale)
        inside = np.diag(contents.spread(weights)) - meetings
        shares = contents.totals / n_records
        return cls(
            np.maximum(between, 0), vectors, vectors.T @ inside * scale, shares, n_records, spread
        )

    def measure(self, differences: FloatArray) -> FloatArray:
        """How far each contrast is off what no dependence would give, (n_values,)."""
        deviations: FloatArray = self.vectors.T @ differences
        return deviations * float(np.sqrt(self.shares.size / self.n_records))

    def contrast(self, scores: FloatArray) -> FloatArray | None:
        """Write scores as a contrast of correlation 1; None where all values count alike."""
        centered = scores - self.shares @ scores
        length = float(np.sqrt(self.shares @ centered**2 * self.shares.size))
        return self.vectors.T @ centered / length if length > _NOTHING else None

    def weigh(self, scores: FloatArray) -> FloatArray:
        """Say what each contrast's inside of buckets adds to the total of scores, (n_values,)."""
        leverage: FloatArray = self.inside @ scores
        return leverage * float(np.sqrt(self.n_records / self.shares.size))


class _Shift(NamedTuple):
    """What dependence adds to an estimate."""

    mean: float
    learned: float
    untold: float


@dataclass(frozen=True, eq=False)
class ValueDependence:
    """What buckets tell of dependences between records and one sensitive attribute."""

    contents: BucketHistograms
    # (n_strengths, n_asked): how often each is expected, where buckets tell, and where they hide
    strengths: FloatArray
    hidden_strengths: FloatArray
    is_shown: bool  # whether estimates follow it
    classes: AnyIntArray  # (n_values,): the class of each value
    _pooled: BucketHistograms
    _contrasts: _Contrasts | None  # None where they differ from question to question

    @classmethod
    def of(cls, contents: BucketHistograms) -> Self:
        """Look at the values of all buckets, once for a publication."""
        classes = _classes(contents.totals)
        pooled = contents.in_classes(classes)
        contrasts = None if contents.stratum.any() else _Contrasts.of(pooled, np.ones(1))
        return cls(contents, USUAL, USUAL, True, classes, pooled, contrasts)

    def learn(self, records: MatchingRecords, rounds: int = 100) -> Self:
        """Learn how strong dependences are from conditions that were drawn at random."""
        likelihoods = []
        middles = np.cumsum(self._pooled.totals) - self._pooled.totals / 2
        for place, (sums, squares) in enumerate(zip(*records, strict=True)):
            contrasts, deviations = self._look(sums, squares)
            if contrasts.spread > _NOTHING:
                # Intervals of values with a third of all records, and with more.
                for width in (0.33, 0.6):
                    from_start = (middles / self._n - place * _GOLDEN) % 1
                    scores = (from_start < width).astype(np.float64)
                    target = contrasts.contrast(scores)
                    if target is not None:
                        likelihoods.append(_Prior(contrasts, target, deviations).likelihoods)
        if not likelihoods:
            return self
        logs = np.array(likelihoods)
        most = logs.max(axis=(1, 2))
        relative = np.exp(logs - most[:, None, None])
        strengths = USUAL
        for _ in range(rounds):
            shares = relative * strengths
            shares /= shares.sum(axis=(1, 2), keepdims=True)
            strengths = (shares.mean(axis=0) + _PERSISTENCE * USUAL) / (1 + _PERSISTENCE)
        gains = most - logs[:, 0, 0] + np.log((relative * strengths).sum(axis=(1, 2)))
        return replace(self, strengths=strengths, is_shown=bool(gains.mean() >= _GAIN))

    def estimate(self, records: MatchingRecords, scores: FloatArray) -> Estimates:
        """Estimate what the scores of the matching records' values add up to.

        `scores`: of each value, 1 where it counts and 0 otherwise, or what is added up.
        """
        contents = self.contents
        sizes = contents.sizes
        values, squared = contents.sums(scores), contents.sums(scores * scores)
        without = records.sums @ (values / sizes)
        rest = (squared - values * values / sizes) / np.maximum(sizes - 1, 1)
        draw = -(records.sums * (rest / sizes)) @ records.sums.T
        np.fill_diagonal(draw, ((records.squares - records.sums**2 / sizes) * rest).sum(axis=1))
        totals = np.maximum(self._pooled.totals, 1e-12)
        pooled = np.bincount(self.classes, contents.totals * scores, totals.size) / totals
        shifts = [self._shift(*own, pooled) for own in zip(*records, strict=True)]
        mean, learned, untold = np.array(shifts).reshape(-1, 3).T
        unsure = np.sqrt(learned + untold)
        dependence = _correlate_exclusive(records, self._n) * np.outer(unsure, unsure)
        return Estimates(without + mean, without, draw, learned, untold, draw + dependence)

    def average_records(
        self, numbers: MatchingRecords, counts: MatchingRecords, scores: FloatArray
    ) -> Estimates:
        """Average the numbers of matching records over those whose values count.

        `numbers`, `counts`: what the same records add up to, and how many they are.
        """
        means = _ratio(self.estimate(numbers, scores), self.estimate(counts, scores))[:, None]
        off = MatchingRecords(
            numbers.sums - means * counts.sums,
            numbers.squares - means * (2 * numbers.sums - means * counts.sums),
        )
        return self._divide(off, scores, self.estimate(counts, scores), means[:, 0])

    def average_values(
        self, records: MatchingRecords, scores: FloatArray, counted: FloatArray
    ) -> Estimates:
        """Average the scores of the matching records' values over those that are counted."""
        counts = self.estimate(records, counted)
        means = _ratio(self.estimate(records, scores), counts)
        common = float(np.average(means, weights=np.maximum(counts.numbers, _NOTHING)))
        return self._divide(records, scores - common * counted, counts, means)

    def _divide(
        self, records: MatchingRecords, scores: FloatArray, counts: Estimates, means: FloatArray
    ) -> Estimates:
        """To first order, a mean is off by what differences from it add up to."""
        off = self.estimate(records, scores)
        n = np.maximum(counts.numbers, _NOTHING)
        pairs = np.outer(n, n)
        return Estimates(
            means, means - off.numbers / n + off.without / n, off.draw / pairs,
            off.learned / n**2, off.untold / n**2, off.covariance / pairs,
        )  # fmt: skip

    @property
    def _n(self) -> float:
        return self.contents.n_records

    def _look(self, sums: FloatArray, squares: FloatArray) -> tuple[_Contrasts, FloatArray]:
        """Contrasts, and how far each is off."""
        pooled = self._pooled
        own, n_strata = pooled.by_stratum, len(pooled.by_stratum)
        sizes = own.sum(axis=1)
        means = np.bincount(pooled.stratum, sums, n_strata) / sizes
        spreads = np.bincount(pooled.stratum, squares, n_strata) / sizes - means * means
        spreads = np.maximum(spreads, 0.0)
        if self._contrasts is None:
            contrasts = _Contrasts.of(pooled, spreads)
        else:
            contrasts = self._contrasts._replace(spread=float(spreads[0]))
        return contrasts, contrasts.measure(pooled.spread(sums / pooled.sizes) - means @ own)

    def _shift(self, sums: FloatArray, squares: FloatArray, scores: FloatArray) -> _Shift:
        contrasts, deviations = self._look(sums, squares)
        target = contrasts.contrast(scores)
        if contrasts.spread <= _NOTHING or target is None:
            return _Shift(0.0, 0.0, 0.0)
        prior, leverage = _Prior(contrasts, target, deviations), contrasts.weigh(scores)
        known = min(float(contrasts.between @ target**2) / _WELL_TOLD, 1.0)
        allowed = prior.shift(
            leverage, known * self.strengths + (1 - known) * self.hidden_strengths
        )
        mean = prior.shift(leverage, self.strengths).mean if self.is_shown else 0.0
        return _Shift(mean, allowed.learned + (mean - allowed.mean) ** 2, allowed.untold)


class _Prior:
    """Correlations are normal: those of all contrasts, and one more of what is asked."""

    def __init__(self, contrasts: _Contrasts, target: FloatArray, deviations: FloatArray) -> None:
        between, spread = contrasts.between, contrasts.spread
        self._target = target
        variance = contrasts.n_records * spread * STRENGTHS[:, None] ** 2
        # What is seen of a contrast varies by its part between buckets, and by the draw's own
        # error, (n_strengths, n_values).
        varies_between = between > _FLAT
        varies = np.where(varies_between, spread * between + between**2 * variance, np.inf)
        self._left = 1 / (1 + between * variance / spread)  # what of the prior stays unknown
        self._posterior = variance * self._left
        self._expected = self._posterior * deviations / spread
        self._pull = between * target
        self._own = self._posterior * self._pull / spread
        information = (self._pull**2 / varies).sum(axis=1)[:, None]
        score = (self._pull * deviations / varies).sum(axis=1)[:, None]
        along = contrasts.n_records * spread * ASKED**2  # (n_asked,)
        self._target_left = 1 / (1 + along * information)
        self._target_variance = along * self._target_left
        self._strength = self._target_variance * score
        deviations, varies = deviations[varies_between], varies[:, varies_between]
        logs = -(np.log(varies) + deviations**2 / varies).sum(axis=1) / 2
        self.likelihoods = (
            logs[:, None] + np.log(self._target_left) / 2 + self._strength * score / 2
        )
        """Logarithms of how likely what was seen is, (n_strengths, n_asked)."""

    def shift(self, leverage: FloatArray, strengths: FloatArray) -> _Shift:
        """Return what the hidden part of contrasts adds."""
        with np.errstate(divide="ignore"):
            logs = self.likelihoods + np.log(strengths)
        shares = np.exp(logs - logs.max())
        shares /= shares.sum()
        gain = (leverage @ self._target - self._own @ leverage)[:, None]
        means = (self._expected @ leverage)[:, None] + gain * self._strength
        along = gain**2 * self._target_variance
        variances = (self._posterior @ leverage**2)[:, None] + along
        unknown = ((self._posterior * self._left) @ leverage**2)[:, None]
        unknown = unknown + along * self._target_left
        mean = float((shares * means).sum())
        total = float((shares * (variances + (means - mean) ** 2)).sum())
        untold = min(float((shares * unknown).sum()), total)
        return _Shift(mean, total - untold, untold)


def _ratio(totals: Estimates, counts: Estimates) -> FloatArray:
    ratio: FloatArray = totals.numbers / np.maximum(counts.numbers, _NOTHING)
    return ratio


def _correlate_exclusive(records: MatchingRecords, n_records: float) -> FloatArray:
    """Correlate groups that exclude each other: who is in one is in no other."""
    means = records.sums.sum(axis=1) / n_records
    spreads = np.maximum(records.squares.sum(axis=1) / n_records - means**2, _NOTHING)
    relative = means / np.sqrt(spreads)
    opposed = np.clip(-np.outer(relative, relative), -1.0, 1.0)
    np.fill_diagonal(opposed, 1.0)
    return opposed


def _classes(totals: FloatArray) -> IntArray:
    """Put neighboring values into classes where there are many."""
    if totals.size <= MOST_CLASSES:
        return np.arange(totals.size)
    middles = np.cumsum(totals) - totals / 2
    places = np.floor(middles / totals.sum() * MOST_CLASSES).astype(np.int64)
    classes: IntArray = np.unique(places, return_inverse=True)[1]
    return classes
