"""Learns from QIT and SAT alone how likely each sensitive value of a bucket is for each record.

The model is a multinomial one of the value given the quasi-identifiers. Readers could fit it
themselves, and attackers do (`kanon.attack`); publications have its weights beside them, so that
counts need not assume that the values of a bucket are equally likely for all of its records.

**Source:** D. Kifer, *Attacks on privacy and deFinetti's theorem*, SIGMOD 2009, for learning from
buckets; M. Boreale, F. Corradi, C. Viscardi, *Relative privacy threats and learning from anonymized
data*, IEEE TIFS 2020, for drawing matchings. Deviations: logistic regression in place of naive
Bayes, prior variances found from the data (D. MacKay, *Bayesian interpolation*, 1992), all
matchings of small buckets instead of draws, and a check on buckets that were not learned from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from math import prod
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.bucketization.buckets import (
    BucketedRecords,
    WeightUnits,
    capped,
    draw_seed,
    next_state,
)
from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    CodeArray,
    FloatArray,
    IntArray,
    SingleArray,
    numbered,
)
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse, in_threads, kernel, n_cores
from kanon_db.dataclasses import dataclass

MOST_VALUES: Final = 128
"""Of more sensitive values nothing is learned: a model would take too long."""

_FINE: Final = 12
"""Attributes with more values are also taken in bins of neighboring values."""

_BINS: Final = (4, 8, 16)
_PAIRED_BINS: Final = 8
_PAIRED: Final = 12
"""Of more attributes, only the first ones make pairs."""

_LEAST_ALIKE: Final = 20
"""Records that have a pair of values, or one of very many, for it to count as a feature."""

_VERY_MANY: Final = 1000

_ROW_NUMBERS: Final = 1 << 16
"""Numbers of a table of several attributes, at most: more are far from the processor."""

_RECORDS_PER_ROW: Final = 16
"""Records that are learned from for each row of such a table, at least."""

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
class _Binning:
    """Some attributes in bins; each combination of bins has a key."""

    attributes: tuple[int, ...]
    bins: tuple[CodeArray, ...]  # The bin of each code of each attribute

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of bins of each attribute."""
        return tuple(int(bins.max()) + 1 for bins in self.bins)

    def keys(self, columns: Sequence[AnyIntArray] | Mapping[int, AnyIntArray]) -> AnyIntArray:
        keys = self.bins[0][columns[self.attributes[0]]]
        for attribute, bins, size in zip(
            self.attributes[1:], self.bins[1:], self.sizes[1:], strict=True
        ):
            keys = keys * size + bins[columns[attribute]]
        return keys


@dataclass(frozen=True, eq=False)
class _Predictor(_Binning):
    """Combinations that have an effect if they occur often enough."""

    least: int


@dataclass(frozen=True, eq=False)
class _Table(_Binning):
    """Sums of effects of features."""

    rows: AnyIntArray  # By key

    def of(self, columns: Sequence[AnyIntArray]) -> AnyIntArray:
        return self.rows[self.keys(columns)]


def _rows(tables: Sequence[_Table], records: BucketedRecords) -> AnyIntArray:
    rows = np.empty((records.n_records, len(tables)), dtype=tables[0].rows.dtype)
    for place, one in enumerate(tables):
        rows[:, place] = one.of(records.columns)
    return rows


class _Design(NamedTuple):
    """Features whose effects are learned, and fewer tables that add the effects up."""

    lengths: IntArray  # The number of effects of each feature
    tables: Sequence[_Table]
    effects: AnyIntArray  # (n_rows, n): the effects that a row adds up, then -1

    def add_up(self, effects: SingleArray) -> SingleArray:
        """Return the rows of all tables."""
        rows = np.empty((len(self.effects), effects.shape[1]), dtype=np.float32)
        _score(self.effects, effects, np.zeros(effects.shape[1], dtype=np.float32), rows)
        return rows

    def divide(self, rows: SingleArray) -> SingleArray:
        """Return for each effect the sum of the rows that add it up."""
        effects = np.zeros((int(self.lengths.sum()), rows.shape[1]), dtype=np.float32)
        _gather(self.effects, rows, effects, np.zeros(rows.shape[1], dtype=np.float32))
        return effects


def _most_features(n_codes: Sequence[int]) -> int:
    pairs = combinations(n_codes[:_PAIRED], 2)
    alone = sum(1 + (n > _FINE) * sum(bins < n for bins in _BINS) for n in n_codes)
    return alone + sum(1 for _ in pairs)


def _plan(records: BucketedRecords, n_codes: Sequence[int]) -> _Design | None:
    """List single attributes, ordered ones also in bins, and pairs of attributes."""
    planned: list[tuple[_Table, list[_Predictor]]] = []
    coarse: list[CodeArray] = []
    others: list[_Predictor] = []
    for attribute, (column, n) in enumerate(zip(records.columns, n_codes, strict=True)):
        codes = np.arange(n, dtype=np.int32)
        if n <= _FINE:
            coarse.append(codes)
            others.append(_Predictor((attribute,), (codes,), 1))
            continue
        counts = np.bincount(column, minlength=n)
        middle = (np.cumsum(counts) - counts / 2) / max(records.n_records, 1)
        binned = {
            bins: np.minimum((middle * bins).astype(np.int32), bins - 1)
            for bins in (*_BINS, _PAIRED_BINS)
        }
        coarse.append(binned[_PAIRED_BINS])
        least = 1 if n <= _VERY_MANY else _LEAST_ALIKE
        own = [_Predictor((attribute,), (codes,), least)]
        own += [_Predictor((attribute,), (binned[bins],), 1) for bins in _BINS if bins < n]
        # Codes without effects of their own differ by their bins alone.
        rows = numbered(np.where(counts >= least, codes, n + binned[max(_BINS)]))
        planned.append((_Table((attribute,), (codes,), rows), own))
    others += [
        _Predictor((one, other), (coarse[one], coarse[other]), _LEAST_ALIKE)
        for one, other in combinations(range(min(len(coarse), _PAIRED)), 2)
    ]
    sizes = [int(bins.max()) + 1 for bins in coarse]
    most = min(_ROW_NUMBERS // records.n_values, records.n_records // _RECORDS_PER_ROW)
    for group in [*_group(sizes[:_PAIRED], most), *((one,) for one in range(len(sizes)))]:
        own = [one for one in others if {*one.attributes} <= {*group}]
        others = [one for one in others if one not in own]
        rows = np.arange(prod(sizes[one] for one in group))
        if own:
            planned.append((_Table(group, tuple(coarse[one] for one in group), rows), own))
    return _number(planned, records)


def _group(sizes: Sequence[int], most: int) -> list[tuple[int, ...]]:
    """Cover all pairs of attributes by groups with few combinations of bins."""
    left = set(combinations(range(len(sizes)), 2))
    groups: list[tuple[int, ...]] = []
    while left:
        group: tuple[int, ...] = min(
            left, key=lambda pair: (prod(sizes[one] for one in pair), pair)
        )
        while True:
            room = most // prod(sizes[one] for one in group)
            larger = [
                tuple(sorted((*group, one)))
                for one, size in enumerate(sizes) if size <= room and one not in group
            ]  # fmt: skip
            covered = [len(left.intersection(combinations(one, 2))) for one in (group, *larger)]
            if max(covered) == covered[0]:
                break
            group = larger[covered.index(max(covered)) - 1]
        left -= set(combinations(group, 2))
        groups.append(group)
    return groups


def _number(
    planned: Sequence[tuple[_Table, list[_Predictor]]], records: BucketedRecords
) -> _Design | None:
    """Give numbers to rows and effects; None where no feature has two."""
    tables: list[_Table] = []
    lengths: list[int] = []
    of_rows: list[IntArray] = []
    for table, features in planned:
        keys = np.arange(table.rows.size)
        codes = {}
        for attribute, bins, its_bins in zip(
            table.attributes, table.bins, np.unravel_index(keys, table.sizes), strict=True
        ):
            codes_of_bins = np.zeros(int(bins.max()) + 1, dtype=np.int64)  # any code of each
            codes_of_bins[bins] = np.arange(bins.size)
            codes[attribute] = codes_of_bins[its_bins]
        counts = np.bincount(table.keys(records.columns), minlength=keys.size)
        numbers = np.full((int(table.rows.max()) + 1, len(features)), -1)
        for place, feature in enumerate(features):
            its_keys = feature.keys(codes)
            kept = np.bincount(its_keys, weights=counts) >= feature.least
            if np.count_nonzero(kept) > 1:
                of_kept = np.where(kept, sum(lengths) + np.cumsum(kept) - 1, -1)
                numbers[table.rows, place] = of_kept[its_keys]
                lengths.append(int(np.count_nonzero(kept)))
        if numbers.max() >= 0:
            rows = table.rows + sum(map(len, of_rows))
            tables.append(_Table(table.attributes, table.bins, rows))
            of_rows.append(-np.sort(-numbers, axis=1))
    if not tables:
        return None
    effects = np.full((sum(map(len, of_rows)), max(one.shape[1] for one in of_rows)), -1)
    for table, own in zip(tables, of_rows, strict=True):
        first = int(table.rows.min())
        effects[first : first + len(own), : own.shape[1]] = own
    kind = np.min_scalar_type(-max(len(effects), sum(lengths)))
    tables = [_Table(one.attributes, one.bins, one.rows.astype(kind)) for one in tables]
    return _Design(np.array(lengths), tables, effects.astype(kind))


@dataclass(frozen=True, eq=False)
class ValueModel:
    """How likely each sensitive value is, given the quasi-identifiers; see :func:`learn`."""

    _tables: Sequence[_Table]
    _effects: SingleArray  # (n_rows, n_values)
    _prior: SingleArray  # (n_values,)
    gain: float

    def parts(self, records: BucketedRecords) -> list[tuple[int, int]]:
        """Divide the buckets into runs whose posteriors are calculated at once."""
        return records.parts(_NUMBERS_AT_ONCE // max(self._prior.size, len(self._tables)))

    def _scores(self, records: BucketedRecords, rows: AnyIntArray | None = None) -> SingleArray:
        if rows is None:
            rows = _rows(self._tables, records)
        scores = np.empty((records.n_records, self._prior.size), dtype=np.float32)
        _score(rows, self._effects, self._prior, scores)
        return scores

    def likelihood(
        self, records: BucketedRecords, random: np.random.Generator, pulse: Pulse = UNLIMITED
    ) -> float:
        """Return how much more likely buckets are than without any effects, in nats."""
        return float(_gains(self, records, draw_seed(random), pulse)[-1])

    def posteriors(self, records: BucketedRecords, random: np.random.Generator) -> SingleArray:
        """Return how likely each value of its bucket is for each record.

        Shape (n_records, n_values), rows add up to 1: averages over matchings.
        """
        scores = self._scores(records)
        probabilities = np.zeros_like(scores)
        values = records.values.copy()
        seed = draw_seed(random)
        _match(
            scores, records.starts, values, probabilities, _WARM_UP, _DRAWS, seed, np.empty(_ROOM)
        )
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

    None where nothing is learned: buckets that were held out are not more likely by it.
    """
    # `n_codes`: how many codes each column has, where the records are a random sample of whole
    # buckets: the model is then one of all codes, and learned from `sample_size` of these records.
    #
    # The likelihood of a bucket sums over all matchings of its records with its values. Its
    # gradient does so, too, in small buckets, and is estimated in others from matchings that are
    # drawn by swaps. It is followed by Adam (Kingma and Ba, 2015).
    #
    # Each group of effects has a normal prior, whose precision is gamma / (sum of squares), with
    # the number gamma of effects that the data determine; the information on an effect is the sum
    # of the squared scores of buckets. In some rounds, values exchange their effects where small
    # effects then make buckets likelier; a maximum in which some values have each other's effects
    # may be found all the same. All effects are then scaled by what makes the buckets that were
    # held out most likely; the likelihood at each scale follows by thermodynamic integration.
    # Before all that, in large tables, a look at small effects ends it where half of the buckets
    # tell nothing of the other half.
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
    design = _plan(sample, n_codes)
    if design is None:
        return None
    rows = _rows(design.tables, sample)
    if sample.n_records > _LOOKED_AT and _relation(sample, design, rows) < _RELATED:
        return None
    fit = _Fit(sample, design, rows, draw_seed(random))
    for number in range(1, _ROUNDS + 1):
        pulse.beat()
        fit.step(number, pulse)
    model = fit.model
    gains = _gains(model, held_out, draw_seed(random), pulse)
    best = int(np.argmax(gains))
    if gains[best] < _CONVINCING or _first_order(model, held_out) < _SIGNIFICANT:
        return None
    scaled = (np.float32(_SCALES[best]) * model._effects).astype(np.float32)
    return ValueModel(model._tables, scaled, model._prior, gains[best] / held_out.n_records)


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

    rows: SingleArray
    prior: SingleArray
    information: SingleArray  # On each effect; 0 where no prior is due
    n_records: int


class _Fit:
    """A model while it is fitted."""

    def __init__(
        self,
        records: BucketedRecords,
        design: _Design,
        rows: AnyIntArray,
        seed: np.uint64,
    ) -> None:
        self._records, self._design, self._rows, self._seed = records, design, rows, seed
        self._lengths = design.lengths
        self._firsts = np.cumsum(self._lengths) - self._lengths
        counts = np.bincount(records.values, minlength=records.n_values)
        prior = np.log(np.maximum(counts, 0.5) / counts.sum()).astype(np.float32)
        effects = np.zeros((int(self._lengths.sum()), records.n_values), dtype=np.float32)
        self._parameters = [effects, prior]
        self._means = [np.zeros_like(one) for one in self._parameters]
        self._squares = [np.zeros_like(one) for one in self._parameters]
        self._sums = [np.zeros_like(one) for one in self._parameters]
        self._n_averaged = 0
        self._precisions = np.full(len(self._lengths), _FIRST_PRECISION)
        self._parts = records.parts(_BATCH)
        self._values = records.values.copy()

    @property
    def model(self) -> ValueModel:
        """The mean of the last rounds."""
        effects, prior = (one / np.float32(self._n_averaged) for one in self._sums)
        return ValueModel(self._design.tables, self._design.add_up(effects), prior, 0.0)

    def step(self, number: int, pulse: Pulse) -> None:
        """Follow the gradient of some buckets."""
        low, high = self._parts[number % len(self._parts)]
        middle = (low + high) // 2
        halves = [one for one in ((low, middle), (middle, high)) if one[0] < one[1]]
        is_prior_due = number % _PRIOR_EVERY == 0 and number <= _PRIOR_UNTIL
        seed = self._seed
        self._seed += np.uint64(len(halves))
        effects = self._design.add_up(self._parameters[0])

        def run(half: int, within: Pulse) -> _Slopes:
            within.beat()
            return self._slopes(halves[half], effects, seed + np.uint64(half), is_prior_due)

        if self._records.starts[high] - self._records.starts[low] < _FEWEST_IN_THREADS:
            gradients = [run(half, pulse) for half in range(len(halves))]
        else:
            gradients = in_threads(run, range(len(halves)), n_cores(), pulse.of_part())
        times = np.float32(self._values.size / sum(one.n_records for one in gradients))
        slopes, prior, information = (
            np.sum([getattr(one, name) for one in gradients], axis=0) * times
            for name in ("rows", "prior", "information")
        )
        slopes = self._design.divide(slopes)
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
        """Exchange the effects of values, where small effects then make buckets likelier."""
        # Values that most buckets have equally often can change places with hardly any difference
        # to the likelihood, and chance decides which one takes whose. Those buckets that have more
        # of one tell.
        own = self._records.between(low, high)
        start = int(self._records.starts[low])
        effects, prior = self._parameters
        scores = np.empty((own.n_records, prior.size), dtype=np.float32)
        rows = self._rows[start : start + own.n_records]
        _score(rows, self._design.add_up(effects), np.zeros_like(prior), scores)
        shares = own.shares
        joint = ((shares - shares.mean(axis=0)).T @ scores).astype(np.float64)
        order = _match_columns(joint)
        for place, one in enumerate((effects, self._means[0], self._squares[0])):
            held = (self._parameters, self._means, self._squares)[place]
            held[0] = np.ascontiguousarray(one[:, order])

    def _slopes(
        self, buckets: tuple[int, int], effects: SingleArray, seed: np.uint64, is_prior_due: bool
    ) -> _Slopes:
        """Return the gradient of a run of buckets; where a prior is due, what is known of it."""
        starts = self._records.starts[buckets[0] : buckets[1] + 1]
        some = slice(int(starts[0]), int(starts[-1]))
        rows, values, starts = self._rows[some], self._values[some], starts - starts[0]
        scores = np.empty((values.size, self._records.n_values), dtype=np.float32)
        _score(rows, effects, self._parameters[1], scores)
        n_draws = _PRIOR_DRAWS if is_prior_due else _SWEEPS
        likely = np.zeros_like(scores)
        _match(scores, starts, values, likely, 0, n_draws, seed, np.empty(_ROOM))
        likely /= n_draws
        # What the model says of each record alone
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        likely -= scores
        of_rows, prior = np.zeros_like(effects), np.zeros_like(self._parameters[1])
        _gather(rows, likely, of_rows, prior)
        information = np.zeros_like(self._parameters[0])
        if is_prior_due:
            n_of_bucket = int(np.diff(starts).max()) * rows.shape[1] * self._design.effects.shape[1]
            sums = np.empty((min(n_of_bucket, len(information)), prior.size), dtype=np.float32)
            places = np.full(len(information), -1)
            _inform(rows, self._design.effects, likely, starts, sums, places, information)
        return _Slopes(of_rows, prior, information, values.size)

    def _find_precisions(self, information: SingleArray) -> None:
        each = np.repeat(self._precisions, self._lengths)[:, np.newaxis]
        determined = np.add.reduceat((information / (information + each)).sum(1), self._firsts)
        squares = np.add.reduceat(
            (self._parameters[0].astype(np.float64) ** 2).sum(1), self._firsts
        )
        precisions = determined / np.maximum(squares, 1e-9)
        self._precisions = np.clip(precisions, _LEAST_PRECISION, _MOST_PRECISION)


def _relation(records: BucketedRecords, design: _Design, rows: AnyIntArray) -> float:
    """Return how much likelier each half of the buckets is by what small effects say of the other.

    In standard errors, and in much less time than a fit takes, which ends in `_first_order`.
    """
    counts = np.maximum(np.bincount(records.values, minlength=records.n_values), 0.5)
    shares = (counts / counts.sum()).astype(np.float32)
    middle = (records.starts.size - 1) // 2
    halves = (records.between(0, middle), records.between(middle, records.starts.size - 1))
    its_rows = np.split(rows, [halves[0].n_records])
    models = []
    for half, own in zip(halves, its_rows, strict=True):
        slopes = np.zeros((len(design.effects), shares.size), dtype=np.float32)
        _gather(own, half.shares - shares, slopes, np.zeros_like(shares))
        effects = design.divide(slopes)
        n_equal = design.divide(
            np.bincount(own.ravel(), minlength=len(slopes)).astype(np.float32)[:, np.newaxis]
        )
        effects /= n_equal * shares + np.float32(_FIRST_PRECISION)
        models.append(ValueModel(design.tables, design.add_up(effects), np.log(shares), 0.0))
    return sum(map(_first_order, models, reversed(halves), reversed(its_rows))) / 2**0.5


def _first_order(
    model: ValueModel, records: BucketedRecords, rows: AnyIntArray | None = None
) -> float:
    """Return how much likelier buckets become by small effects, in standard errors of the sum."""
    # Where values that go with each other's records are swapped, as in a wrong local maximum of the
    # likelihood, buckets with more of a value do not have more of the records that it goes with.
    scores = model._scores(records, rows) - model._prior
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
        own = seed + np.uint64(number)
        _match(scaled, records.starts, values, likely, _WARM_UP, _DRAWS, own, np.empty(_ROOM))
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


@kernel(fastmath=True)
def _score(
    places: AnyIntArray, effects: SingleArray, prior: SingleArray, scores: SingleArray
) -> None:
    """Add up the effects at some places for each record, until one is -1."""
    n_values = prior.size
    for i in range(places.shape[0]):
        row = scores[i]
        for v in range(n_values):
            row[v] = prior[v]
        for j in range(places.shape[1]):
            if places[i, j] < 0:
                break
            effect = effects[places[i, j]]
            for v in range(n_values):
                row[v] += effect[v]


@kernel(fastmath=True)
def _gather(
    places: AnyIntArray, residuals: SingleArray, of_effects: SingleArray, of_prior: SingleArray
) -> None:
    """Add each record's residuals at its places, until one is -1."""
    n_values = of_prior.size
    for i in range(places.shape[0]):
        row = residuals[i]
        for v in range(n_values):
            of_prior[v] += row[v]
        for j in range(places.shape[1]):
            if places[i, j] < 0:
                break
            effect = of_effects[places[i, j]]
            for v in range(n_values):
                effect[v] += row[v]


_ALL_MATCHED: Final = 6
"""Records of a bucket whose matchings are all summed over: that takes less time than swaps."""

_N_HELD: Final = np.array([held.bit_count() for held in range(1 << _ALL_MATCHED)])
_ROOM: Final = (3, _N_HELD.size)  # at least as many as pairs of a record and a value


@kernel(error_model="numpy")
def _match(
    scores: SingleArray,
    starts: IntArray,
    values: CodeArray,
    sums: SingleArray,
    warm_up: int,
    times: int,
    seed: np.uint64,
    room: FloatArray,  # of the shape `_ROOM`
) -> None:
    """Add to `sums`, `times` times, how likely each value of its bucket is for each record.

    Sums over all matchings of few records; more swap values, and count after a warm-up.
    """
    state = seed * np.uint64(0x9E3779B97F4A7C15) | np.uint64(1)
    one = np.float32(1)
    # By the set of values that the first records hold: sums over who holds which of them, and over
    # who holds which of the others.
    before, after, odds = room[0], room[1], room[2]
    for g in range(starts.size - 1):
        start, end = starts[g], starts[g + 1]
        n = end - start
        if n <= _ALL_MATCHED:
            last = (1 << n) - 1
            for held in range(last + 1):
                before[held] = after[held] = 0.0
            for i in range(n):
                first = scores[start + i, values[start]]
                for j in range(n):
                    # In single precision, what is far less likely would lose its digits.
                    more = scores[start + i, values[start + j]] - first
                    odds[i * n + j] = np.exp(np.float64(more))
            after[last] = 1.0
            for held in range(last - 1, -1, -1):
                for j in range(n):
                    if not held >> j & 1:
                        after[held] += odds[_N_HELD[held] * n + j] * after[held | 1 << j]
            if _LEAST_SUM < after[0] < 1 / _LEAST_SUM:
                before[0] = times / after[0]
                for held in range(last):
                    i = _N_HELD[held]
                    for j in range(n):
                        if not held >> j & 1:
                            own = before[held] * odds[i * n + j]
                            before[held | 1 << j] += own
                            sums[start + i, values[start + j]] += own * after[held | 1 << j]
                continue
        rest = np.uint64(n - 1)
        for time in range(-warm_up, times):
            counts = np.float32(time >= 0)
            for i in range(start, end):
                state = next_state(state)
                j = start + np.int64(((state >> np.uint64(32)) * rest) >> np.uint64(32))
                if j >= i:
                    j += 1
                a, b = values[i], values[j]
                if a == b:
                    sums[i, a] += counts
                    continue
                more = scores[i, b] + scores[j, a] - scores[i, a] - scores[j, b]
                p = one / (one + np.exp(-more))
                sums[i, a] += counts * (one - p)
                sums[i, b] += counts * p
                if np.float32(state & np.uint64(0xFFFFFF)) < p * np.float32(0x1000000):
                    values[i], values[j] = b, a


_LEAST_SUM: Final = 1e-250
"""Beyond this sum over all matchings, or its inverse, parts of it may be lost."""


@kernel(fastmath=True)
def _inform(
    rows: AnyIntArray,
    effects: AnyIntArray,
    residuals: SingleArray,
    starts: IntArray,
    sums: SingleArray,
    places: IntArray,
    information: SingleArray,
) -> None:
    """Add up the squared scores of buckets for each effect.

    `sums` has room for the effects of a bucket, and `places` for where each of all stands: -1.
    """
    n_values = residuals.shape[1]
    for g in range(starts.size - 1):
        n_effects = 0
        for i in range(starts[g], starts[g + 1]):
            for j in range(rows.shape[1]):
                for effect in effects[rows[i, j]]:
                    if effect < 0:
                        break
                    place = places[effect]
                    if place < 0:
                        place = places[effect] = n_effects
                        n_effects += 1
                        for v in range(n_values):
                            sums[place, v] = 0
                    for v in range(n_values):
                        sums[place, v] += residuals[i, v]
        for i in range(starts[g], starts[g + 1]):
            for j in range(rows.shape[1]):
                for effect in effects[rows[i, j]]:
                    if effect < 0:
                        break
                    place = places[effect]
                    if place >= 0:
                        places[effect] = -1
                        for v in range(n_values):
                            information[effect, v] += sums[place, v] * sums[place, v]
