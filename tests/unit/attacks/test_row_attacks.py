"""Attacks on buckets and rows, against brute force and against tables whose answer is known."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations, permutations, product

import numpy as np
import pytest

from kanon_db.algorithms.attacks import (
    Beliefs,
    BucketCandidates,
    BucketValues,
    PublishedRows,
    SampledRows,
    SweepOrder,
    TrueValues,
    bucket_beliefs,
    candidates_of,
    downcode,
    guess_people,
    learn_weights,
    model_weights,
    name_rarest,
    score_guesses,
    single_out,
    sweep_orders,
    unusual_records,
    weights_of_source,
)
from kanon_db.algorithms.bucketization.bucket_assignment import assign_randomly
from kanon_db.algorithms.bucketization.buckets import BucketedRecords
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.bucketization.two_size import two_size
from kanon_db.algorithms.bucketization.value_model import learn
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, FloatArray
from kanon_db.algorithms.recoding import (
    Attribute,
    Microdata,
    Ranges,
    RowClasses,
    Sets,
    cells_of_classes,
)
from tests.attacks.sparse import sparse_codes, swept


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def table(random: np.random.Generator, n: int = 300) -> tuple[CodeArray, AnyIntArray, AnyIntArray]:
    """Quasi-identifiers, buckets without gaps, and values of records in random order."""
    codes = random.integers(0, [4, 3, 5], (n, 3)).astype(np.int32)
    return codes, random.permutation(n) // 6, random.integers(0, 5, n)


def share_right(
    candidates: BucketCandidates, weights: FloatArray, values: AnyIntArray, n_values: int
) -> float:
    """Name as many as have each value, everybody being alone with their quasi-identifiers."""
    alone = np.arange(values.size)
    named = Beliefs.of(candidates, weights, alone, n_values).named(np.bincount(values))
    return float(np.average(named.values == values[named.tuples], weights=named.people))


def test_achieved_leaves_out_what_is_not_bounded() -> None:
    truth = TrueValues.of(np.array([0, 1, 2]), np.array([0, 1, 1]), 4, 2)
    guesses, tuples = np.array([0, 1, 1, -1, 1]), np.array([0, 1, 0, 2, 3])
    found = score_guesses(truth, tuples, guesses, np.array([1.0, 0.25]))
    # Of persons 1 and 0, the one who has the value; nobody in the source has the tuple 3.
    assert (found.people, found.rate, found.base_rate, found.bound) == (2, 0.5, 0.5, 0.25)
    nobody = score_guesses(truth, tuples, guesses, np.array([1.0, 1.0]))
    assert (nobody.people, nobody.rate, nobody.base_rate, nobody.bound) == (0, None, None, None)
    unbounded = score_guesses(truth, tuples, guesses, None)
    assert (unbounded.people, unbounded.bound) == (3, None)
    several = score_guesses(truth, tuples, guesses, None, np.array([4, 1, 3, 9, 9]))
    assert (several.people, several.rate) == (8, 5 / 8)
    assert score_guesses(truth, tuples, guesses, None, np.zeros(5, dtype=int)).people == 0


def test_unusual_records(random: np.random.Generator) -> None:
    codes, _, _ = table(random, 60)
    for most in (1, 3):
        unusual = [
            any(
                sum(other[a] == record[a] and other[b] == record[b] for other in codes.tolist())
                <= most
                for a, b in combinations(range(3), 2)
            )
            for record in codes.tolist()
        ]
        assert unusual_records(codes, most).tolist() == unusual
    alone = np.array([[0], [0], [1]], dtype=np.int32)
    assert unusual_records(alone, 1).tolist() == [False, False, True]


def test_minimality_names_the_opening_record() -> None:
    """Buckets of four in the order of the second attribute; the first of each has the value 1."""
    n = 400
    codes = np.column_stack([np.arange(n) * 7 % 11, np.arange(n)]).astype(np.int32)
    buckets, values = np.arange(n) // 4, (np.arange(n) % 4 == 0).astype(np.int64)
    sat = BucketValues.of(buckets, values, 2)
    truth = TrueValues.of(np.arange(n), values, n, 2)
    half = np.arange(100) % 2 == 0
    bounds = np.array([1.0, 0.25])
    given = (codes, buckets, sat, np.arange(n), truth, bounds)
    found = name_rarest(*given, sweep_orders(codes), half)
    assert (found.people, found.rate, found.base_rate, found.bound) == (100, 1.0, 0.0, 0.25)
    blind = name_rarest(*given, [SweepOrder((0, 1), reflected=False)], half)
    assert blind.rate is not None
    assert blind.rate < 0.5
    unbounded = name_rarest(*given[:-1], np.array([1.0, 1.0]), sweep_orders(codes), half)
    assert (unbounded.people, unbounded.rate) == (0, None)


@pytest.mark.parametrize("assignment", ["random", "swept"])
def test_minimality_breaks_swept_buckets_and_not_random(assignment: str) -> None:
    """Birth date, zip, sex: whoever opens a swept bucket has the rare value."""
    codes, values = sparse_codes(12_000)
    counts = np.bincount(values)
    privacy = FPrimePrivacy((Fraction(1), Fraction(1, 10)))
    random = np.random.default_rng(2)
    if assignment == "swept":
        buckets = swept(codes, values, 1, 10)
    else:
        setting = two_size(counts, privacy, 50)
        limits = privacy.occurrence_limits(setting.sizes)
        buckets = assign_randomly(values, counts, limits, setting, random)
    sat = BucketValues.of(buckets, values, 2)
    tuples = np.arange(values.size)
    truth = TrueValues.of(tuples, values, values.size, 2)
    half = random.random(sat.sizes.size) < 0.5
    bounds = np.array([1.0, 0.1])
    found = name_rarest(codes, buckets, sat, tuples, truth, bounds, sweep_orders(codes), half)
    assert found.people > 100
    assert found.rate is not None
    if assignment == "swept":
        assert found.rate > 0.9
    else:
        assert found.rate < 0.1 + 4 * (0.1 * 0.9 / found.people) ** 0.5


@pytest.mark.pitfall(20)
@pytest.mark.parametrize("is_related", [True, False])
def test_minimality_of_random_buckets_follows_from_correlations(*, is_related: bool) -> None:
    """Records are drawn into buckets: only what goes with their value can place them.

    So whatever minimality is right about, whoever learns it from the buckets is right about, too.
    """
    n, n_values = 1200, 10
    ages = np.arange(n)
    random = np.random.default_rng(5)
    values = ages // (n // n_values) if is_related else random.integers(0, n_values, n)
    counts = np.bincount(values)
    privacy = FPrimePrivacy((Fraction(1, 3),) * n_values)
    setting = two_size(counts, privacy, 50)
    limits = privacy.occurrence_limits(setting.sizes)
    buckets = assign_randomly(values, counts, limits, setting, random)
    order = np.argsort(buckets, kind="stable")
    codes = np.column_stack([ages // 20, ages * 31 % 17]).astype(np.int32)[order]
    buckets, values = buckets[order], values[order]
    sat = BucketValues.of(buckets, values, n_values)
    truth = TrueValues.of(np.arange(n), values, n, n_values)
    half = random.random(sat.sizes.size) < 0.5
    named = name_rarest(
        codes, buckets, sat, np.arange(n), truth, np.full(n_values, 1 / 3), sweep_orders(codes),
        half,
    )  # fmt: skip
    candidates = candidates_of(buckets, sat)
    learned = share_right(candidates, learn_weights(codes, candidates, n_values), values, n_values)
    assert named.rate is not None
    if is_related:
        assert min(named.rate, learned) > 0.8
    else:
        assert max(named.rate, learned) < 1 / 3 + 0.1


def test_learners_find_correlations(random: np.random.Generator) -> None:
    """The first attribute tells the value; buckets are of random records with four values each."""
    n, n_values = 4000, 4
    values = np.repeat(np.arange(4), n // 4)
    codes = np.column_stack([values, random.integers(0, 3, n)]).astype(np.int32)
    buckets = np.concatenate([random.permutation(n // 4) for _ in range(4)])
    candidates = candidates_of(buckets, BucketValues.of(buckets, values, 4))
    right = lambda weights: share_right(candidates, weights, values, n_values)
    assert right(weights_of_source(codes, candidates, codes, values, 4)) == 1
    assert right(candidates.share) < 0.3
    # With pairs of buckets' values that repeat, the publication itself gives the correlation away.
    uneven = np.where(np.arange(n) < n // 2, 0, 1 + np.arange(n) % 3)
    codes[:, 0] = uneven
    buckets = random.permutation(n) // 5
    candidates = candidates_of(buckets, BucketValues.of(buckets, uneven, 4))
    learned = learn_weights(codes, candidates, 4)
    assert share_right(candidates, learned, uneven, 4) > 0.9


def test_the_start_by_which_buckets_are_likeliest_counts(
    random: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither one that learns nothing nor one whose values have each other's effects."""
    n, n_values = 2000, 4
    values = random.choice(n_values, n, p=[0.4, 0.3, 0.2, 0.1])
    codes = values.astype(np.int32)[:, np.newaxis]
    buckets = np.arange(n) // 5
    sat = BucketValues.of(buckets, values, n_values)
    candidates = candidates_of(buckets, sat)
    starts = np.append(0, np.cumsum(sat.sizes))
    its_values = np.repeat(sat.value, sat.count).astype(np.int32)
    right = learn(BucketedRecords([codes[:, 0]], its_values, starts, n_values), random)
    assert right is not None
    exchanged = replace(right, _effects=np.ascontiguousarray(right._effects[:, [1, 0, 2, 3]]))
    for order in permutations([None, right, exchanged]):
        left = list(order)
        monkeypatch.setattr(bucket_beliefs, "learn", lambda *_, left=left: left.pop(0))
        weights = model_weights(codes, buckets, sat, n_values, random.spawn(3))
        assert not left
        assert weights is not None
        assert share_right(candidates, weights, values, n_values) > 0.9
    monkeypatch.setattr(bucket_beliefs, "learn", lambda *_: exchanged)
    weights = model_weights(codes, buckets, sat, n_values, random.spawn(2))
    assert weights is not None
    assert share_right(candidates, weights, values, n_values) < 0.8
    monkeypatch.setattr(bucket_beliefs, "learn", lambda *_: None)
    assert model_weights(codes, buckets, sat, n_values, random.spawn(3)) is None


def test_own_record_teaches_nothing(random: np.random.Generator) -> None:
    """A quasi-identifier that everybody has alone gives away nobody's value."""
    n, n_values = 1000, 2
    codes, values = np.arange(n, dtype=np.int32)[:, np.newaxis], random.integers(0, 2, n)
    buckets = random.permutation(n) // 10
    candidates = candidates_of(buckets, BucketValues.of(buckets, values, 2))
    own = (candidates.value == values[candidates.record]).astype(np.float64)
    given = (codes, candidates, codes, values, 2)
    right = lambda weights: share_right(candidates, weights, values, n_values)
    assert right(weights_of_source(*given)) > 0.95
    shares = right(candidates.share)
    assert right(weights_of_source(*given, own=own)) == pytest.approx(shares, abs=0.05)


HALF = np.arange(60) % 2 == 0


def published(
    random: np.random.Generator, n: int = 60, k: int = 3
) -> tuple[CodeArray, AnyIntArray, AnyIntArray, list[Ranges | Sets], list[int]]:
    """Records with NULLs in classes at random: a range, a set, and a range of a sorted column."""
    codes = np.column_stack(
        [random.integers(0, 7, n), random.integers(0, 4, n), np.arange(n) // 2]
    ).astype(np.int32)
    numbers = np.append(np.arange(6.0), np.nan)
    attributes = (
        Attribute(7, numbers=numbers, lower=0, upper=5),
        Attribute(4),
        Attribute(n // 2, numbers=np.arange(n / 2), lower=0, upper=n),
    )
    classes = np.arange(n) // k
    cells = list(cells_of_classes(Microdata(codes, attributes), classes))
    return codes, classes, random.integers(0, 3, n), cells, [7, 4, n // 2]


def covering_of(cells: list[Ranges | Sets], n_classes: int, n_codes: list[int]) -> RowClasses:
    numbers = np.repeat(np.arange(n_classes)[:, np.newaxis], len(cells), axis=1)
    return RowClasses(cells, numbers, n_codes)


def test_people_are_looked_up(random: np.random.Generator) -> None:
    codes, classes, values, cells, n_codes = published(random)
    rows = PublishedRows.of(covering_of(cells, 20, n_codes), classes, values, 3)
    found = guess_people(rows, codes, values, np.arange(60), HALF)
    for person in range(60):
        its_classes = rows.covering.classes_of(codes[person])
        its_values = values[np.isin(classes, its_classes)]
        assert found.n_rows[person] == its_values.size
        assert found.n_values[person] == len(set(its_values.tolist()))
        counts = np.bincount(its_values, minlength=3)
        assert counts[found.most_frequent[person]] == counts.max()
        assert found.learned[person] in its_values
        assert found.known[person] in its_values
    protected = guess_people(
        rows, codes, values, np.arange(60), HALF, np.array([False, True, False])
    )
    assert set(protected.most_frequent.tolist()) <= {-1, 1}
    assert set(protected.learned.tolist()) <= {-1, 1}


def test_homogeneous_classes() -> None:
    covering = covering_of([Sets(np.arange(2, dtype=np.int32), np.array([1, 2]))], 2, [2])
    rows = PublishedRows.of(covering, np.array([0, 0, 1, 1, 1]), np.array([0, 1, 1, 1, 1]), 2)
    assert rows.homogeneous_share == pytest.approx(3 / 5)


def test_learners_of_rows_find_correlations(random: np.random.Generator) -> None:
    """Half of the classes tell the second attribute, and with it the value; the others learn."""
    n, k = 800, 4
    kind = random.permutation(np.arange(n) % 2).astype(np.int32)
    kind[: n // 2].sort()
    codes = np.column_stack([np.arange(n) // k, kind]).astype(np.int32)
    classes = np.arange(n) // k
    n_classes = n // k
    attributes = (
        Attribute(n_classes, numbers=np.arange(float(n_classes)), lower=0, upper=n),
        Attribute(2),
    )
    cells = list(cells_of_classes(Microdata(codes, attributes), classes))
    rows = PublishedRows.of(covering_of(cells, n_classes, [n_classes, 2]), classes, kind, 2)
    half = random.random(n) < 0.5
    found = guess_people(rows, codes, kind, np.arange(n), half)
    guessed = {name: np.mean(getattr(found, name) == kind) for name in vars(found)}
    assert guessed["most_frequent"] < 0.88
    assert guessed["learned"] > guessed["most_frequent"] + 0.05
    assert guessed["known"] > 0.98


def test_own_row_teaches_nothing(random: np.random.Generator) -> None:
    n = 300
    codes = np.arange(n, dtype=np.int32)[:, np.newaxis]
    values = random.integers(0, 2, n)
    everything = Ranges(np.array([0]), np.array([n - 1]), np.array([False]))
    rows = PublishedRows.of(
        covering_of([everything], 1, [n]), np.zeros(n, dtype=np.int64), values, 2
    )
    half = random.random(n) < 0.5
    assert np.mean(guess_people(rows, codes, values, np.arange(n), half).known == values) < 0.62


def test_downcoding_of_pairs(random: np.random.Generator) -> None:
    """Of a class of two, both values are the ends of its range: half of the guesses are right."""
    n = 200
    codes = np.arange(n, dtype=np.int32)[:, np.newaxis] * 3
    numbers = np.arange(3.0 * n)
    attribute = Attribute(3 * n, numbers=numbers, lower=0, upper=3 * n)
    classes = np.arange(n) // 2
    cells = list(cells_of_classes(Microdata(codes, (attribute,)), classes))
    covering = covering_of(cells, n // 2, [3 * n])
    values = np.zeros(n, dtype=np.int64)
    found = downcode(SampledRows(covering, classes, values, codes, values), np.full(n // 2, 2))
    assert (found.people, found.rate, found.bound) == (n, 0.5, None)
    assert found.base_rate is not None
    assert found.base_rate < 0.01
    # With a sensitive value of its own, each row is about one person.
    own = np.arange(n) % 2
    found = downcode(SampledRows(covering, classes, own, codes, own), np.full(n // 2, 2))
    assert found.rate == 0.5


def test_predicates_hold_for_one_person_as_often_as_all_hashes_say(
    random: np.random.Generator,
) -> None:
    n = 40
    codes = random.integers(0, 12, (n, 1), dtype=np.int32)
    values = random.integers(-1, 3, n)
    low = random.integers(0, 6, 5)
    cells = Ranges(low, low + random.integers(0, 6, 5), np.zeros(5, dtype=np.bool_))
    classes, of_rows = np.repeat(np.arange(5), 3), np.tile(np.arange(3), 5)
    alike = random.integers(1, 4, classes.size)
    rates, bases = [], []
    for number, value, size in zip(classes, of_rows, alike, strict=True):
        covered = (cells.low[number] <= codes[:, 0]) & (codes[:, 0] <= cells.high[number])
        n_alike = int((covered & (values == value)).sum())
        hashes = product(range(size), repeat=n_alike)
        rates.append(np.mean([each.count(0) == 1 for each in hashes]))
        weight = covered.mean() * (values == value).mean() / size
        bases.append(n * weight * (1 - weight) ** (n - 1))
    covering = covering_of([cells], 5, [12])
    found = single_out(SampledRows(covering, classes, of_rows, codes, values), alike)
    assert found.people == classes.size
    assert found.rate == pytest.approx(np.mean(rates))
    assert found.base_rate == pytest.approx(np.mean(bases))


def test_cells_of_one_value_are_not_downcoded() -> None:
    codes = np.zeros((4, 1), dtype=np.int32)
    cells = Ranges(np.array([0]), np.array([0]), np.array([False]))
    zeros = np.zeros(4, dtype=np.int64)
    covering = covering_of([cells], 1, [2])
    found = downcode(SampledRows(covering, zeros, zeros, codes, zeros), np.array([4]))
    assert (found.people, found.rate) == (0, None)
