"""Learns from QIT and SAT alone how likely each sensitive value of a bucket is for each record.

The model is a multinomial one of the value given the quasi-identifiers. Readers could fit it
themselves, and attackers do (`kanon.attack`); publications have its weights beside them, so that
counts need not assume that the values of a bucket are equally likely for all of its records.

**Source:** D. Kifer, *Attacks on privacy and deFinetti's theorem*, SIGMOD 2009, for learning from
buckets; M. Boreale, F. Corradi, C. Viscardi, *Relative privacy threats and learning from anonymized
data*, IEEE TIFS 2020, for drawing matchings. Deviations: logistic regression in place of naive
Bayes, prior variances found from the data (D. MacKay, *Bayesian interpolation*, 1992), and a check
on buckets that were not learned from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.bucketization.buckets import BucketedRecords, capped, next_state
from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    CodeArray,
    FloatArray,
    IntArray,
    SingleArray,
)
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse, in_threads, kernel, n_cores
from kanon_db.dataclasses import dataclass

MOST_VALUES: Final = 128
"""Of more sensitive values nothing is learned: a model would take too long."""

_FEW_LEVELS, _MOST_LEVELS = 15, 255
"""Levels of weights have four bits; up to eight where no fewer can write all shares."""

_FINE: Final = 12
"""Attributes with more values are also taken in bins of neighboring values."""

_BINS: Final = (4, 8, 16)
_PAIRED_BINS: Final = 8
_PAIRED: Final = 12
"""Of more attributes, only the first ones make pairs."""

_LEAST_ALIKE: Final = 20
"""Records that have a pair of values, or one of very many, for it to count as a feature."""

_VERY_MANY: Final = 1000

_SAMPLE: Final = 120_000
"""Records that are learned from, at most, in whole buckets."""

_CODES: Final = 20_000_000
"""Codes of their features, at most."""

_BATCH: Final = 40_000
_FEWEST_IN_THREADS: Final = 20_000
"""Records of a batch: fewer take as long as starting threads for them."""

_ROUNDS, _STEP, _PRIOR_EVERY, _PRIOR_UNTIL, _PRIOR_DRAWS = 60, 0.08, 15, 48, 12
_FIRST_PRECISION: Final = 100.0
_LEAST_PRECISION, _MOST_PRECISION = 30.0, 1e4

_SWEEPS = 4
_RELABELED: Final = (5, 15, 25, 35)
_AVERAGED_FROM = 40
_HELD_OUT, _MOST_HELD_OUT = 0.2, 10_000
_SCALES: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
_CONVINCING: Final = 15.0
"""By how much the log-likelihood of buckets that were not learned from must grow."""

_SIGNIFICANT: Final = 2.0
"""Standard errors by which small effects must make these buckets likelier; see `_first_order`."""

_LOOKED_AT, _RELATED = 50_000, 1.0
"""Of more records, standard errors by which effects on one half of the buckets must make the other
half likelier; fewer may not show what a fit finds, and are fitted soon."""

_WARM_UP, _DRAWS = 10, 40
_NUMBERS_AT_ONCE: Final = 1 << 21
"""Weights, or codes of features, that are calculated at once."""


@dataclass(frozen=True, eq=False)
class _Predictor:
    """One or two attributes in bins; each bin, or pair of bins, that occurs often has a number."""

    attributes: tuple[int, ...]
    bins: tuple[CodeArray, ...]  # The bin of each code of each attribute
    numbers: AnyIntArray  # By bin or pair of bins, in the order of the model's effects; -1 for none

    def of(self, columns: Sequence[AnyIntArray]) -> AnyIntArray:
        key = self.bins[0][columns[self.attributes[0]]]
        for attribute, bins in zip(self.attributes[1:], self.bins[1:], strict=True):
            key = key * (int(bins.max()) + 1) + bins[columns[attribute]]
        return self.numbers[key]


def _codes(features: Sequence[_Predictor], records: BucketedRecords) -> AnyIntArray:
    codes = np.empty((records.n_records, len(features)), dtype=features[0].numbers.dtype)
    for place, feature in enumerate(features):
        codes[:, place] = feature.of(records.columns)
    return codes


def _most_features(n_codes: Sequence[int]) -> int:
    pairs = combinations(n_codes[:_PAIRED], 2)
    alone = sum(1 + (n > _FINE) * sum(bins < n for bins in _BINS) for n in n_codes)
    return alone + sum(1 for _ in pairs)


def _type_of_numbers(n_codes: Sequence[int]) -> npt.DTypeLike:
    """Return the least type that has room for the numbers of all effects, and for none."""
    of_pairs = _FINE**2 * _most_features(n_codes)
    return np.min_scalar_type(-(sum(n_codes) + len(n_codes) * sum(_BINS) + of_pairs))


def _features(
    records: BucketedRecords, n_codes: Sequence[int]
) -> tuple[list[_Predictor], AnyIntArray]:
    """List single attributes, ordered ones also in bins, and pairs of attributes.

    Returns the codes of the records, too, as :func:`_codes` does.
    """
    features: list[_Predictor] = []
    kind = _type_of_numbers(n_codes)
    codes = np.empty((records.n_records, _most_features(n_codes)), dtype=kind)
    n_effects = 0

    def add(attributes: tuple[int, ...], bins: tuple[CodeArray, ...], least: int) -> None:
        nonlocal n_effects
        n_keys = int(np.prod([int(one.max()) + 1 for one in bins]))
        plain = _Predictor(attributes, bins, np.arange(n_keys, dtype=np.int32))
        keys = plain.of(records.columns)
        kept = np.bincount(keys, minlength=n_keys) >= least
        if np.count_nonzero(kept) < 2:
            return
        numbers = np.full(n_keys, -1, dtype=kind)
        numbers[kept] = np.arange(n_effects, n_effects + np.count_nonzero(kept))
        n_effects += int(np.count_nonzero(kept))
        codes[:, len(features)] = numbers[keys]
        features.append(_Predictor(attributes, bins, numbers))

    coarse: list[CodeArray] = []
    for attribute, (column, n) in enumerate(zip(records.columns, n_codes, strict=True)):
        own_codes = np.arange(n, dtype=np.int32)
        add((attribute,), (own_codes,), 1 if n <= _VERY_MANY else _LEAST_ALIKE)
        if n <= _FINE:
            coarse.append(own_codes)
            continue
        counts = np.bincount(column, minlength=n)
        middle = (np.cumsum(counts) - counts / 2) / max(records.n_records, 1)
        binned = {
            bins: np.minimum((middle * bins).astype(np.int32), bins - 1)
            for bins in (*_BINS, _PAIRED_BINS)
        }
        for bins in _BINS:
            if bins < n:
                add((attribute,), (binned[bins],), 1)
        coarse.append(binned[_PAIRED_BINS])
    for one, other in combinations(range(min(len(coarse), _PAIRED)), 2):
        add((one, other), (coarse[one], coarse[other]), _LEAST_ALIKE)
    return features, np.ascontiguousarray(codes[:, : len(features)])


@dataclass(frozen=True, eq=False)
class ValueModel:
    """How likely each sensitive value is, given the quasi-identifiers; see :func:`learn`."""

    _features: Sequence[_Predictor]
    _effects: SingleArray  # (n_effects, n_values)
    _prior: SingleArray  # (n_values,)
    gain: float

    def parts(self, records: BucketedRecords) -> list[tuple[int, int]]:
        """Divide the buckets into runs whose posteriors are calculated at once."""
        return records.parts(_NUMBERS_AT_ONCE // max(self._prior.size, len(self._features)))

    def _scores(self, records: BucketedRecords, codes: AnyIntArray | None = None) -> SingleArray:
        if codes is None:
            codes = _codes(self._features, records)
        scores = np.empty((records.n_records, self._prior.size), dtype=np.float32)
        _score(codes, self._effects, self._prior, scores)
        return scores

    def likelihood(
        self, records: BucketedRecords, random: np.random.Generator, pulse: Pulse = UNLIMITED
    ) -> float:
        """Return how much more likely buckets are than without any effects, in nats."""
        return float(_gains(self, records, _seed(random), pulse)[-1])

    def posteriors(self, records: BucketedRecords, random: np.random.Generator) -> SingleArray:
        """Return how likely each value of its bucket is for each record.

        Shape (n_records, n_values), rows add up to 1: averages over matchings drawn by swaps.
        """
        scores = self._scores(records)
        probabilities = np.zeros_like(scores)
        values, seed = records.values.copy(), _seed(random)
        _swap(scores, records.starts, values, probabilities, _WARM_UP, seed)
        probabilities[:] = 0
        _swap(scores, records.starts, values, probabilities, _DRAWS, seed + np.uint64(1))
        probabilities /= _DRAWS
        return probabilities

    def weights(
        self,
        records: BucketedRecords,
        caps: SingleArray,
        random: np.random.Generator,
        pulse: Pulse = UNLIMITED,
    ) -> Iterator[tuple[int, int, SingleArray]]:
        """Return the posteriors, none of them above the cap of its value.

        Parameters
        ----------
        records : BucketedRecords
        caps : ndarray of float32, shape (n_values,)
            At least the largest share of the value in a bucket.
        random : numpy.random.Generator
        pulse : Pulse

        Yields
        ------
        int, int
            The first bucket of a run, and the one after its last.
        ndarray of float32, shape (n, n_values)
            Those of the run; see :func:`capped`.
        """
        parts = self.parts(records)
        generators = random.spawn(len(parts))

        def run(number: int, within: Pulse) -> SingleArray:
            within.beat()
            own = records.between(*parts[number])
            likely = self.posteriors(own, generators[number])
            within.beat()
            capped(likely, own, caps)
            return likely

        at_once = n_cores()
        for first in range(0, len(parts), at_once):
            some = range(first, min(first + at_once, len(parts)))
            for number, likely in zip(some, in_threads(run, some, at_once, pulse), strict=True):
                yield *parts[number], likely


def sample_size(n_records: int, n_codes: Sequence[int]) -> int:
    """Return how many of so many records :func:`learn` learns from, in whole buckets.

    `n_codes`: how many codes each column has.
    """
    return min(n_records, _SAMPLE, _CODES // _most_features(n_codes))


def learn(
    records: BucketedRecords,
    random: np.random.Generator,
    pulse: Pulse = UNLIMITED,
    n_codes: Sequence[int] | None = None,
) -> ValueModel | None:
    """Fit a model of the sensitive value to buckets.

    Parameters
    ----------
    records : BucketedRecords
    random : numpy.random.Generator
        Chooses the buckets that are learned from, and draws matchings.
    pulse : Pulse
    n_codes : sequence of int, optional
        How many codes each column has, where the records are a random sample of whole buckets:
        the model is then one of all codes, and learned from :func:`sample_size` of these records.

    Returns
    -------
    ValueModel or None
        None where nothing is learned: buckets that were held out are not more likely by it.

    Notes
    -----
    The likelihood of a bucket sums over all matchings of its records with its values. Its gradient
    is estimated from matchings that are drawn by swaps, and followed by Adam (Kingma and Ba, 2015).
    Each group of effects has a normal prior, whose precision is gamma / (sum of squares), with the
    number gamma of effects that the data determine; the information on an effect is the sum of the
    squared scores of buckets. In some rounds, values exchange their effects where small effects
    then make buckets likelier; a maximum in which some values have each other's effects may be
    found all the same. All effects are then scaled by what makes the buckets that were held out
    most likely; the likelihood at each scale follows by thermodynamic integration. Before all that,
    in large tables, a look at small effects ends it where half of the buckets tell nothing of the
    other half.
    """
    n_values = records.n_values
    if not 2 <= n_values <= MOST_VALUES or records.starts.size < 4 or not records.columns:
        return None
    n_codes = n_codes or [int(column.max()) + 1 for column in records.columns]
    chosen = random.permutation(records.starts.size - 1)
    ends = np.cumsum(np.diff(records.starts)[chosen])
    n_sampled = sample_size(records.n_records, n_codes)
    n_held_out = min(int(_HELD_OUT * n_sampled), _MOST_HELD_OUT)
    first, last = np.searchsorted(ends, [n_held_out, n_sampled], side="left").tolist()
    sample, held_out = (
        records.of_buckets(chosen[own]) for own in (slice(first, last + 1), slice(0, first))
    )
    if held_out.n_records == 0 or sample.n_records == 0:
        return None
    features, codes = _features(sample, n_codes)
    if not features:
        return None
    if sample.n_records > _LOOKED_AT and _relation(sample, features, codes) < _RELATED:
        return None
    fit = _Fit(sample, features, codes, _seed(random))
    for number in range(1, _ROUNDS + 1):
        pulse.beat()
        fit.step(number, pulse)
    model = fit.model
    gains = _gains(model, held_out, _seed(random), pulse)
    best = int(np.argmax(gains))
    if gains[best] < _CONVINCING or _first_order(model, held_out) < _SIGNIFICANT:
        return None
    scaled = (np.float32(_SCALES[best]) * model._effects).astype(np.float32)
    return ValueModel(model._features, scaled, model._prior, gains[best] / held_out.n_records)


def _seed(random: np.random.Generator) -> np.uint64:
    return np.uint64(random.integers(1, 2**63))


def _match_columns(total: FloatArray) -> IntArray:
    """Return which column each row takes, so that no exchange of two makes their sum larger.

    Examples
    --------
    >>> _match_columns(np.array([[1.0, 5.0, 0.0], [4.0, 1.0, 0.0], [0.0, 0.0, 2.0]])).tolist()
    [1, 0, 2]
    """
    order = np.arange(len(total))
    for _ in range(len(order) ** 2):
        taken_by = total[:, order]
        own = np.diagonal(taken_by)
        more = taken_by + taken_by.T - own - own[:, np.newaxis]
        one, other = np.unravel_index(int(more.argmax()), more.shape)
        if more[one, other] <= 1e-9 * max(float(np.abs(total).max()), 1e-300):
            break
        order[[one, other]] = order[[other, one]]
    return order


class _Slopes(NamedTuple):
    """What some buckets tell of how the parameters should change."""

    effects: SingleArray
    prior: SingleArray
    information: SingleArray  # On each effect; nothing of a single draw
    n_records: int


class _Fit:
    """A model while it is fitted."""

    def __init__(
        self,
        records: BucketedRecords,
        features: Sequence[_Predictor],
        codes: AnyIntArray,
        seed: np.uint64,
    ) -> None:
        self._records, self._features, self._seed = records, features, seed
        self._lengths = np.array([np.count_nonzero(one.numbers >= 0) for one in features])
        self._firsts = np.cumsum(self._lengths) - self._lengths
        counts = np.bincount(records.values, minlength=records.n_values)
        prior = np.log(np.maximum(counts, 0.5) / counts.sum()).astype(np.float32)
        effects = np.zeros((int(self._lengths.sum()), records.n_values), dtype=np.float32)
        self._parameters = [effects, prior]
        self._means = [np.zeros_like(one) for one in self._parameters]
        self._squares = [np.zeros_like(one) for one in self._parameters]
        self._sums = [np.zeros_like(one) for one in self._parameters]
        self._n_averaged = 0
        self._precisions = np.full(len(features), _FIRST_PRECISION)
        self._parts = records.parts(_BATCH)
        self._values = records.values.copy()
        self._codes = codes

    @property
    def model(self) -> ValueModel:
        """The mean of the last rounds."""
        effects, prior = (one / np.float32(self._n_averaged) for one in self._sums)
        return ValueModel(self._features, effects, prior, 0.0)

    def step(self, number: int, pulse: Pulse) -> None:
        """Follow the gradient of some buckets."""
        low, high = self._parts[number % len(self._parts)]
        middle = (low + high) // 2
        halves = [one for one in ((low, middle), (middle, high)) if one[0] < one[1]]
        is_prior_due = number % _PRIOR_EVERY == 0 and number <= _PRIOR_UNTIL
        seed = self._seed
        self._seed += np.uint64(len(halves))

        def run(half: int, within: Pulse) -> _Slopes:
            within.beat()
            return self._slopes(
                halves[half], seed + np.uint64(half), _PRIOR_DRAWS if is_prior_due else _SWEEPS
            )

        if self._records.starts[high] - self._records.starts[low] < _FEWEST_IN_THREADS:
            gradients = [run(half, pulse) for half in range(len(halves))]
        else:
            gradients = in_threads(run, range(len(halves)), n_cores(), pulse.of_part())
        times = np.float32(self._values.size / sum(one.n_records for one in gradients))
        slopes, prior, information = (
            np.sum([getattr(one, name) for one in gradients], axis=0) * times
            for name in ("effects", "prior", "information")
        )
        if is_prior_due and slopes.size:
            self._find_precisions(information)
        each = np.repeat(self._precisions, self._lengths)[:, np.newaxis]
        slopes -= (each * self._parameters[0]).astype(np.float32)
        rate = _STEP * min(1.0, 2 * (_ROUNDS - number + 1) / _ROUNDS)
        for place, slope in enumerate((slopes, prior)):
            mean = self._means[place] = (
                np.float32(0.9) * self._means[place] + np.float32(0.1) * slope
            )
            square = self._squares[place] = (
                np.float32(0.99) * self._squares[place] + np.float32(0.01) * slope * slope
            )
            spread = np.sqrt(square / np.float32(1 - 0.99**number)) + np.float32(1e-3)
            self._parameters[place] += np.float32(rate / (1 - 0.9**number)) * mean / spread
        if number in _RELABELED:
            self._relabel(low, high)
        if number > _AVERAGED_FROM:
            self._n_averaged += 1
            self._sums = [
                total + own for total, own in zip(self._sums, self._parameters, strict=True)
            ]

    def _relabel(self, low: int, high: int) -> None:
        """Exchange the effects of values, where small effects then make buckets likelier.

        Values that most buckets have equally often can change places with hardly any difference to
        the likelihood, and chance decides which one takes whose. Those buckets that have more of
        one tell.
        """
        own = self._records.between(low, high)
        start = int(self._records.starts[low])
        effects, prior = self._parameters
        scores = np.empty((own.n_records, prior.size), dtype=np.float32)
        codes = self._codes[start : start + own.n_records]
        _score(codes, effects, np.zeros_like(prior), scores)
        shares = own.shares
        joint = ((shares - shares.mean(axis=0)).T @ scores).astype(np.float64)
        order = _match_columns(joint)
        for place, one in enumerate((effects, self._means[0], self._squares[0])):
            held = (self._parameters, self._means, self._squares)[place]
            held[0] = np.ascontiguousarray(one[:, order])

    def _slopes(self, buckets: tuple[int, int], seed: np.uint64, n_draws: int) -> _Slopes:
        """Return the gradient of a run of buckets, and with several draws what is known of it."""
        starts = self._records.starts[buckets[0] : buckets[1] + 1]
        some = slice(int(starts[0]), int(starts[-1]))
        codes, values, starts = self._codes[some], self._values[some], starts - starts[0]
        scores = np.empty((values.size, self._records.n_values), dtype=np.float32)
        _score(codes, self._parameters[0], self._parameters[1], scores)
        likely = np.zeros_like(scores)
        _swap(scores, starts, values, likely, n_draws, seed)
        likely /= n_draws
        _residuals(scores, likely)
        effects, prior = (np.zeros_like(one) for one in self._parameters)
        _gather(codes, likely, effects, prior)
        information = np.zeros_like(effects)
        if n_draws == _PRIOR_DRAWS:
            _inform(codes, likely, starts, information)
        return _Slopes(effects, prior, information, values.size)

    def _find_precisions(self, information: SingleArray) -> None:
        each = np.repeat(self._precisions, self._lengths)[:, np.newaxis]
        determined = np.add.reduceat((information / (information + each)).sum(1), self._firsts)
        squares = np.add.reduceat(
            (self._parameters[0].astype(np.float64) ** 2).sum(1), self._firsts
        )
        precisions = determined / np.maximum(squares, 1e-9)
        self._precisions = np.clip(precisions, _LEAST_PRECISION, _MOST_PRECISION)


def _relation(
    records: BucketedRecords, features: Sequence[_Predictor], codes: AnyIntArray
) -> float:
    """Return how much likelier each half of the buckets is by what small effects say of the other.

    In standard errors, and in much less time than a fit takes, which ends in `_first_order`.
    """
    counts = np.maximum(np.bincount(records.values, minlength=records.n_values), 0.5)
    shares = (counts / counts.sum()).astype(np.float32)
    middle = (records.starts.size - 1) // 2
    halves = (records.between(0, middle), records.between(middle, records.starts.size - 1))
    its_codes = np.split(codes, [halves[0].n_records])
    models = []
    for half, own in zip(halves, its_codes, strict=True):
        residuals = half.shares - shares
        n_effects = sum(np.count_nonzero(one.numbers >= 0) for one in features)
        effects = np.zeros((n_effects, shares.size), dtype=np.float32)
        _gather(own, residuals, effects, np.zeros_like(shares))
        n_equal = np.zeros(n_effects)
        for of_feature in own.T:
            n_equal += np.bincount(of_feature[of_feature >= 0], minlength=n_effects)
        effects /= n_equal.astype(np.float32)[:, np.newaxis] * shares + np.float32(_FIRST_PRECISION)
        models.append(ValueModel(features, effects, np.log(shares), 0.0))
    return sum(map(_first_order, models, reversed(halves), reversed(its_codes))) / 2**0.5


def _first_order(
    model: ValueModel, records: BucketedRecords, codes: AnyIntArray | None = None
) -> float:
    """Return how much likelier buckets become by small effects, in standard errors of the sum.

    Where values that go with each other's records are swapped, as in a wrong local maximum of the
    likelihood, buckets with more of a value do not have more of the records that it goes with.
    """
    scores = model._scores(records, codes) - model._prior
    usual = np.exp(model._prior - model._prior.max())
    more = ((records.shares - usual / usual.sum()) * scores).sum(axis=1, dtype=np.float64)
    of_buckets = np.add.reduceat(more, records.starts[:-1])
    spread = float(np.sqrt((of_buckets**2).sum()))
    return float(of_buckets.sum()) / spread if spread > 0 else 0.0


def _gains(
    model: ValueModel, records: BucketedRecords, seed: np.uint64, pulse: Pulse
) -> FloatArray:
    """Return how much more likely buckets are at each scale than without any effects, in nats."""
    scores = model._scores(records) - model._prior
    shares = np.exp(model._prior - model._prior.max())
    shares /= shares.sum()
    values = records.values.copy()
    counts = np.bincount(values, minlength=shares.size)
    slopes, norms = [], []
    for number, scale in enumerate(_SCALES):
        pulse.beat()
        scaled = (np.float32(scale) * scores + model._prior).astype(np.float32)
        likely = np.zeros_like(scores)
        own = seed + np.uint64(2 * number)
        _swap(scaled, records.starts, values, likely, _WARM_UP, own)
        likely[:] = 0
        _swap(scaled, records.starts, values, likely, _DRAWS, own + np.uint64(1))
        slopes.append(float((likely * scores).sum(dtype=np.float64)) / _DRAWS)
        # A bucket's values are given, its records are drawn: P(x | v) = P(v | x) P(x) / P(v).
        each = shares * np.exp(scale * scores)
        totals = each.sum(axis=1, keepdims=True)
        usual = (each / totals).mean(axis=0, dtype=np.float64)
        norms.append(float(np.log(totals).sum() + counts @ np.log(usual / shares)))
    slope, steps = np.array(slopes), np.diff(_SCALES)
    likelihood = np.append(0.0, np.cumsum((slope[1:] + slope[:-1]) / 2 * steps))
    gains: FloatArray = likelihood - np.array(norms)
    return gains


@dataclass(frozen=True, eq=False)
class WeightUnits:
    """What a level of weights stands for: the weight of level a for value v is ``a / parts[v]``.

    Parameters
    ----------
    most : ndarray of int64, shape (n_values,)
        The largest level of each value, at most 255.
    parts : ndarray of int64, shape (n_values,)
    """

    most: IntArray
    parts: IntArray

    @classmethod
    def of(cls, thresholds: Sequence[Fraction], shares: Sequence[Fraction]) -> Self | None:
        """Choose units so that no weight exceeds its threshold, and all shares can be written.

        Parameters
        ----------
        thresholds : sequence of Fraction
            The largest weight that each value may have.
        shares : sequence of Fraction
            The largest share of each value in a bucket; none is above its threshold.

        Returns
        -------
        WeightUnits or None
            None where 255 levels are too few for some value.

        Examples
        --------
        >>> units = WeightUnits.of([Fraction(31, 100), Fraction(1)], [Fraction(3, 10)] * 2)
        >>> units.most.tolist(), units.parts.tolist()
        ([13, 15], [42, 15])
        """
        units = []
        for threshold, share in zip(thresholds, shares, strict=True):
            most = min(threshold, Fraction(1))
            best = _unit(most, share, range(1, _FEW_LEVELS + 1))
            for level in range(_FEW_LEVELS + 1, _MOST_LEVELS + 1):
                best = best or _unit(most, share, (level,))
            if best is None:
                return None
            units.append(best)
        return cls(*np.array(units, dtype=np.int64).reshape(-1, 2).T)

    @classmethod
    def between(
        cls,
        thresholds: Sequence[Fraction],
        least: Sequence[Fraction],
        most: Sequence[Fraction],
    ) -> Self | None:
        """Choose units; None also where no weight could differ from the share of its value.

        `least, most`: the least and the largest share of each value in the buckets that have it.
        """
        units = cls.of(thresholds, most)
        if units is None:
            return None
        largest = map(Fraction, units.most.tolist(), units.parts.tolist())
        is_fixed = all(share == limit for share, limit in zip(least, largest, strict=True))
        return None if is_fixed else units

    @property
    def caps(self) -> SingleArray:
        """The largest weight of each value."""
        return (self.most / self.parts).astype(np.float32)

    def levels(
        self, weights: SingleArray, records: BucketedRecords, random: np.random.Generator
    ) -> npt.NDArray[np.uint8]:
        """Round weights to levels.

        Parameters
        ----------
        weights : ndarray of float32, shape (n_records, n_values)
            See :func:`capped`.
        records : BucketedRecords
            In each bucket in any order that does not depend on their values.
        random : numpy.random.Generator

        Returns
        -------
        ndarray of uint8, shape (n_records, n_values)
            Those of a value in a bucket add up to `parts` times how often the bucket has it.

        Notes
        -----
        Systematic rounding (Madow 1949): each level is its weight on average, and next to it.
        """
        levels = np.empty(weights.shape, dtype=np.uint8)
        _round(
            weights, records.starts, records.values, self.most, self.parts, _seed(random), levels
        )
        return levels


def learn_levels(
    records: BucketedRecords,
    thresholds: Sequence[Fraction],
    random: np.random.Generator,
    pulse: Pulse = UNLIMITED,
) -> tuple[npt.NDArray[np.uint8], WeightUnits] | None:
    """Learn the weights of values, none above its threshold.

    Parameters
    ----------
    records : BucketedRecords
        The records of each bucket in any order that does not depend on their values, and its values
        in ascending order.
    thresholds : sequence of Fraction
        The largest weight that each value may have: at least its largest share in a bucket.
    random : numpy.random.Generator
    pulse : Pulse

    Returns
    -------
    levels : ndarray of uint8, shape (n_records, n_values)
    units : WeightUnits
        What they stand for. Or None: nothing is learned, or no weight may differ from its share.
    """
    units = WeightUnits.between(thresholds, *records.extreme_shares)
    if units is None:
        return None
    model = learn(records, random, pulse)
    if model is None:
        return None
    return levels_of(model, units, records, random, pulse), units


def levels_of(
    model: ValueModel,
    units: WeightUnits,
    records: BucketedRecords,
    random: np.random.Generator,
    pulse: Pulse = UNLIMITED,
) -> npt.NDArray[np.uint8]:
    """Write the weights that a model gives the records of some buckets as levels.

    Parameters
    ----------
    model : ValueModel
        Of all buckets.
    units : WeightUnits
    records : BucketedRecords
        Of whole buckets; see :func:`learn_levels`.
    random : numpy.random.Generator
    pulse : Pulse

    Returns
    -------
    ndarray of uint8, shape (n_records, n_values)
        Those of a value in a bucket add up to its number, times its parts.
    """
    levels = np.empty((records.n_records, records.n_values), dtype=np.uint8)
    for first, number, weights in model.weights(records, units.caps, random, pulse):
        own = records.between(first, number)
        start = int(records.starts[first])
        levels[start : start + own.n_records] = units.levels(weights, own, random)
        pulse.beat()
    return levels


def _unit(most: Fraction, share: Fraction, levels: Iterable[int]) -> tuple[int, int] | None:
    """Return the level and the parts that are nearest to what is allowed."""
    candidates = ((level, -(-level * most.denominator // most.numerator)) for level in levels)
    enough = [(Fraction(*one), one) for one in candidates if Fraction(*one) >= share]
    return max(enough)[1] if enough else None


@kernel(fastmath=True)
def _score(
    codes: AnyIntArray, effects: SingleArray, prior: SingleArray, scores: SingleArray
) -> None:
    n_features, n_values = codes.shape[1], prior.size
    for i in range(codes.shape[0]):
        row = scores[i]
        for v in range(n_values):
            row[v] = prior[v]
        for j in range(n_features):
            code = codes[i, j]
            if code >= 0:
                effect = effects[code]
                for v in range(n_values):
                    row[v] += effect[v]


@kernel(fastmath=True)
def _swap(
    scores: SingleArray,
    starts: IntArray,
    values: CodeArray,
    sums: SingleArray,
    times: int,
    seed: np.uint64,
) -> None:
    """Let each record swap values with another one of its bucket; add what is likely to `sums`."""
    state = seed * np.uint64(0x9E3779B97F4A7C15) | np.uint64(1)
    one = np.float32(1)
    for g in range(starts.size - 1):
        start, end = starts[g], starts[g + 1]
        rest = np.uint64(max(end - start - 1, 0))
        if end - start == 1:
            sums[start, values[start]] += np.float32(times)
            continue
        for _ in range(times):
            for i in range(start, end):
                state = next_state(state)
                j = start + np.int64(((state >> np.uint64(32)) * rest) >> np.uint64(32))
                if j >= i:
                    j += 1
                a, b = values[i], values[j]
                if a == b:
                    sums[i, a] += one
                    continue
                more = scores[i, b] + scores[j, a] - scores[i, a] - scores[j, b]
                p = one / (one + np.exp(-more))
                sums[i, a] += one - p
                sums[i, b] += p
                if np.float32(state & np.uint64(0xFFFFFF)) < p * np.float32(0x1000000):
                    values[i], values[j] = b, a


@kernel(fastmath=True)
def _residuals(scores: SingleArray, likely: SingleArray) -> None:
    """Subtract from `likely` what the model says of each record alone."""
    n_values = scores.shape[1]
    each = np.empty(n_values, dtype=np.float32)
    for i in range(scores.shape[0]):
        highest = scores[i, 0]
        for v in range(1, n_values):
            highest = max(highest, scores[i, v])
        total = np.float32(0)
        for v in range(n_values):
            each[v] = np.exp(scores[i, v] - highest)
            total += each[v]
        share = np.float32(1) / total
        for v in range(n_values):
            likely[i, v] -= each[v] * share


@kernel(fastmath=True)
def _gather(
    codes: AnyIntArray, residuals: SingleArray, of_effects: SingleArray, of_prior: SingleArray
) -> None:
    n_features, n_values = codes.shape[1], of_prior.size
    for i in range(codes.shape[0]):
        row = residuals[i]
        for v in range(n_values):
            of_prior[v] += row[v]
        for j in range(n_features):
            code = codes[i, j]
            if code >= 0:
                effect = of_effects[code]
                for v in range(n_values):
                    effect[v] += row[v]


@kernel(fastmath=True)
def _inform(
    codes: AnyIntArray, residuals: SingleArray, starts: IntArray, information: SingleArray
) -> None:
    """Add up the squared scores of buckets for each effect."""
    n_features, n_values = codes.shape[1], residuals.shape[1]
    longest = 0
    for g in range(starts.size - 1):
        longest = max(longest, starts[g + 1] - starts[g])
    sums = np.empty((longest, n_values), dtype=np.float32)  # by effect of a bucket
    its_effects = np.empty(longest, dtype=np.int32)
    places = np.empty(information.shape[0], dtype=np.int32)
    for code in range(places.size):
        places[code] = -1
    for g in range(starts.size - 1):
        for j in range(n_features):
            n_effects = 0
            for i in range(starts[g], starts[g + 1]):
                code = codes[i, j]
                if code < 0:
                    continue
                if places[code] < 0:
                    places[code] = n_effects
                    its_effects[n_effects] = code
                    for v in range(n_values):
                        sums[n_effects, v] = 0
                    n_effects += 1
                for v in range(n_values):
                    sums[places[code], v] += residuals[i, v]
            for place in range(n_effects):
                code = its_effects[place]
                places[code] = -1
                for v in range(n_values):
                    information[code, v] += sums[place, v] * sums[place, v]


_FINEST: Final = 1 << 24


@kernel
def _round(
    weights: SingleArray,
    starts: IntArray,
    values: CodeArray,
    most: IntArray,
    parts: IntArray,
    seed: np.uint64,
    levels: npt.NDArray[np.uint8],
) -> None:
    """Round in whole numbers, so that sums are exact."""
    n_values = weights.shape[1]
    counts = np.empty(n_values, dtype=np.int64)
    state = seed * np.uint64(0x9E3779B97F4A7C15) | np.uint64(1)
    longest = 0
    for g in range(starts.size - 1):
        longest = max(longest, starts[g + 1] - starts[g])
    fine = np.empty(longest, dtype=np.int64)
    for g in range(starts.size - 1):
        start, end = starts[g], starts[g + 1]
        for v in range(n_values):
            counts[v] = 0
        for i in range(start, end):
            counts[values[i]] += 1
        for v in range(n_values):
            limit = most[v] * _FINEST
            missing = counts[v] * parts[v] * _FINEST
            for i in range(start, end):
                exact = np.int64(np.float64(weights[i, v]) * parts[v] * _FINEST)
                fine[i - start] = min(max(exact, 0), limit)
                missing -= fine[i - start]
            for i in range(end - start):  # what is lost by rounding goes where there is room
                if missing == 0:
                    break
                more = min(max(missing, -fine[i]), limit - fine[i])
                fine[i] += more
                missing -= more
            state = next_state(state)
            upto = np.int64(state & np.uint64(_FINEST - 1))
            for i in range(start, end):
                before = upto // _FINEST
                upto += fine[i - start]
                levels[i, v] = upto // _FINEST - before
