"""What is learned from buckets: where values go with quasi-identifiers, and nothing elsewhere."""

from __future__ import annotations

import tracemalloc
from itertools import combinations

import numpy as np
import pytest

from kanon_db.algorithms.bucketization import value_model
from kanon_db.algorithms.bucketization.buckets import BucketedRecords
from kanon_db.algorithms.bucketization.value_model import ValueModel, learn, sample_size
from kanon_db.algorithms.ground.arrays import BoolArray, CodeArray
from kanon_db.algorithms.ground.computation import Pulse

N, N_VALUES, SIZE = 3000, 4, 5


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(4)


def dealt(
    columns: list[CodeArray], values: CodeArray, size: int = SIZE
) -> tuple[BucketedRecords, CodeArray]:
    """Deal records, which are in no order, into buckets; the second array has the true values."""
    buckets = np.arange(values.size) // size
    in_bucket = np.lexsort((values, buckets))
    n_values = int(values.max()) + 1
    records, order = BucketedRecords.of(columns, buckets, values[in_bucket], n_values)
    return records, values[order]


def correlated(random: np.random.Generator, n: int = N, strength: float = 0.9) -> BucketedRecords:
    return with_truth(random, n, strength)[0]


def with_truth(
    random: np.random.Generator, n: int = N, strength: float = 0.9
) -> tuple[BucketedRecords, CodeArray]:
    """Make one column that tells the value as often as said, and one that says nothing."""
    told, noise = (random.integers(0, N_VALUES, n).astype(np.int32) for _ in range(2))
    values = np.where(random.random(n) < strength, told, np.minimum(noise, 1)).astype(np.int32)
    return dealt([told, random.integers(0, 30, n).astype(np.int32)], values)


def learned(records: BucketedRecords, seed: int) -> ValueModel | None:
    return learn(records, np.random.default_rng(seed))


def test_what_goes_together_is_learned(random: np.random.Generator) -> None:
    records, values = with_truth(random)
    model = learned(records, 1)
    assert model is not None
    assert model.gain > 0.1
    likely = model.posteriors(records, random)
    assert (likely.argmax(axis=1) == values).mean() > 0.8
    assert (records.shares.argmax(axis=1) == values).mean() < 0.6


@pytest.mark.long
def test_nothing_is_learned_of_what_does_not_go_together() -> None:
    found = [
        learned(correlated(np.random.default_rng(seed), strength=0.0), seed) for seed in range(12)
    ]
    assert sum(model is not None for model in found) <= 2


def test_nothing_is_fitted_where_nothing_is_related(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first look, which takes a small part of the time of a fit, ends it."""

    def fitted(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(value_model, "_Fit", fitted)
    n, found = 2 * value_model._LOOKED_AT, list[object]()
    for seed in range(6):
        try:
            found.append(learned(correlated(np.random.default_rng(seed), n, strength=0.0), seed))
        except AssertionError:
            found.append(seed)
    assert found.count(None) >= 4
    with pytest.raises(AssertionError):
        learned(correlated(np.random.default_rng(1), n, strength=0.3), 1)
    with pytest.raises(AssertionError):  # little shows in few records, and their fit is quick
        learned(correlated(np.random.default_rng(1), strength=0.0), 1)


@pytest.mark.parametrize(
    "records",
    [
        dealt([np.zeros(40, dtype=np.int32)], np.arange(40, dtype=np.int32) % 4)[0],
        dealt([], np.arange(40, dtype=np.int32) % 4)[0],
        dealt([np.arange(40, dtype=np.int32) % 2], np.zeros(40, dtype=np.int32))[0],
        dealt([np.arange(10, dtype=np.int32)], np.arange(10, dtype=np.int32) % 4)[0],
        dealt([np.arange(1290, dtype=np.int32) % 129] * 2, np.arange(1290, dtype=np.int32) % 129)[
            0
        ],
        dealt([np.arange(40, dtype=np.int32) % 2], np.arange(40, dtype=np.int32) % 4, 20)[0],
    ],
    ids=["one code", "no column", "one value", "two buckets", "many values", "large buckets"],
)
def test_where_nothing_can_be_learned(records: BucketedRecords) -> None:
    assert learned(records, 1) is None


def test_the_same_generator_gives_the_same(random: np.random.Generator) -> None:
    records = correlated(random)
    first, second = (learned(records, 3) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.gain == second.gain
    one, other = (model.posteriors(records, np.random.default_rng(5)) for model in (first, second))
    assert np.array_equal(one, other)


def test_large_tables_are_sampled(
    random: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty times as many records take little more memory than what they are given in."""
    monkeypatch.setattr(value_model, "_SAMPLE", 2000)
    learned(correlated(random), 1)  # compiles
    peaks = []
    for n in (5_000, 100_000):
        records = correlated(random, n)
        tracemalloc.start()
        learned(records, 1)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 4 * 8 * 100_000


def test_a_sample_of_buckets_tells_of_all(
    random: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of codes that only other buckets have; as Spark learns."""
    records, values = with_truth(random, 20_000)
    monkeypatch.setattr(value_model, "_SAMPLE", 4_000)
    last = np.add.reduceat(records.columns[1] == 29, records.starts[:-1])
    chosen = np.flatnonzero(last == 0)[: sample_size(20_000, [4, 30]) // SIZE]
    sample = records.of_buckets(chosen)
    assert sample.n_records == 4_000
    assert sample.columns[1].max() < 29
    model = learn(sample, np.random.default_rng(1), n_codes=[4, 30])
    assert model is not None
    likely = model.posteriors(records, random)
    assert (likely.argmax(axis=1) == values).mean() > 0.8


@pytest.mark.parametrize(("n_columns", "n_codes"), [(300, 40), (3, 60_000)])
def test_many_columns_and_many_values_take_bounded_memory(n_columns: int, n_codes: int) -> None:
    """Of 300 columns there are 44,850 pairs; 60,000 codes alone would be 60,000 effects."""
    random = np.random.default_rng(1)
    n = 60_000
    columns = [random.integers(0, n_codes, n).astype(np.int32) for _ in range(n_columns)]
    values = random.integers(0, N_VALUES, n).astype(np.int32)
    records, _ = dealt(columns, values)
    n_codes_of = [n_codes] * n_columns
    n_sampled = sample_size(n, n_codes_of)
    sample = records.between(0, n_sampled // SIZE)
    design = value_model._plan(sample, n_codes_of)
    assert design is not None
    n_features = len(design.lengths)
    assert n_features <= value_model._most_features(n_codes_of) <= 4 * n_columns + 66
    assert sample.n_records * n_features <= value_model._CODES
    assert design.lengths.sum() < 200 * n_features
    assert len(design.tables) < n_columns + 66
    assert len(design.effects) < 200 * n_features
    if n_columns > 100:
        return
    model = learned(records, 1)
    assert model is None


def test_information_is_the_sum_of_squared_scores_of_buckets(random: np.random.Generator) -> None:
    effects = np.array([[1, -1], [2, 0], [3, -1], [5, 4], [-1, -1]], dtype=np.int16)
    rows = np.column_stack([random.integers(0, 2, 30), random.integers(2, 5, 30)]).astype(np.int16)
    residuals = random.normal(size=(30, 4)).astype(np.float32)
    starts = np.array([0, 1, 12, 30])
    sums = np.empty((6, 4), dtype=np.float32)
    information = np.zeros((6, 4), dtype=np.float32)
    value_model._inform(rows, effects, residuals, starts, sums, np.full(6, -1), information)
    for effect in range(6):
        has = (effects[rows] == effect).any(axis=(1, 2))[:, np.newaxis]
        scores = np.add.reduceat(np.where(has, residuals, 0), starts[:-1], axis=0)
        assert information[effect] == pytest.approx((scores**2).sum(axis=0), rel=1e-4)


def test_tables_add_up_the_effects_of_all_features(random: np.random.Generator) -> None:
    """Of few and many codes, in bins and pairs; records of other buckets have rows, too."""
    n_codes = [2, 3, 40, 5, 14, 12]
    columns = [random.integers(0, n, N).astype(np.int32) for n in n_codes]
    records = BucketedRecords(
        columns, random.integers(0, N_VALUES, N).astype(np.int32), np.arange(0, N + 1, 5), N_VALUES
    )
    design = value_model._plan(records.between(0, 400), n_codes)
    assert design is not None
    effects = random.normal(size=(int(design.lengths.sum()), N_VALUES)).astype(np.float32)
    rows = value_model._rows(design.tables, records)
    own = design.effects[rows].reshape(N, -1)
    feature_of = np.append(np.repeat(np.arange(design.lengths.size), design.lengths), -1)
    assert len(design.lengths) == 4 * 1 + 4 + 3 + 15
    expected = np.vstack([effects, np.zeros((1, N_VALUES), dtype=np.float32)])[own].sum(axis=1)
    added = design.add_up(effects)
    assert added[rows].sum(axis=1) == pytest.approx(expected, abs=1e-4)
    # Each feature is in one table, and tells apart what it is to tell apart.
    its_effects = [np.where(feature_of[own] == one, own, -1) for one in range(4 + 4 + 3 + 15)]
    assert all(((one >= 0).sum(axis=1) <= 1).all() for one in its_effects)
    of_features = [one.max(axis=1) for one in its_effects]
    few = (0, 1, 3, 5)
    keys = [*columns, *(columns[a] * 12 + columns[b] for a, b in combinations(few, 2))]
    for key in keys:
        alike = [
            own
            for own in of_features
            if len({*zip(key[own >= 0].tolist(), own[own >= 0].tolist(), strict=True)})
            == len({*key[own >= 0].tolist()})
            == len({*own[own >= 0].tolist()})
        ]
        assert len(alike) == 1
        assert (alike[0] >= 0).mean() > 0.9


def test_a_heartbeat_that_raises_ends_it(random: np.random.Generator) -> None:
    records = correlated(random)

    class Stopped(BaseException):
        pass

    def beat() -> None:
        nonlocal beats
        beats += 1
        if beats == most:
            raise Stopped

    for most in (1, 20, 62):
        beats = 0
        with pytest.raises(Stopped):
            learn(records, np.random.default_rng(1), Pulse(heartbeat=beat))
        assert beats == most


def test_runs_of_buckets_are_whole(random: np.random.Generator) -> None:
    records = correlated(random)
    model = learned(records, 1)
    assert model is not None
    parts = model.parts(records)
    assert parts[0][0] == 0
    assert parts[-1][1] == records.starts.size - 1
    caps = np.ones(N_VALUES, dtype=np.float32)
    found = list(model.weights(records, caps, random))
    assert sum(len(weights) for *_, weights in found) == records.n_records
    is_of_bucket: BoolArray = records.shares > 0
    for low, high, weights in found:
        own = is_of_bucket[records.starts[low] : records.starts[high]]
        assert (weights[~own] == 0).all()
