"""Strengths that buckets show, beside those that the records themselves have."""

from __future__ import annotations

import numpy as np
import pytest

from kanon_db.algorithms.bucketization.buckets import BucketedRecords
from kanon_db.algorithms.bucketization.strengths import USUAL, HiddenDependence, find_cells
from kanon_db.algorithms.ground.arrays import AnyIntArray, FloatArray

N_RECORDS, SIZE, N_VALUES = 24_000, 4, 5
UNSEEN = np.sqrt(3) * USUAL
"""Where nothing shows: what is usual, and twice that."""


def ranked(x: FloatArray, n_values: int) -> AnyIntArray:
    """Cut numbers into values of about as many records each."""
    return np.searchsorted(np.quantile(x, np.linspace(0, 1, n_values + 1)[1:-1]), x).astype("i4")


def bucketed(
    columns: list[AnyIntArray], values: AnyIntArray, cell: AnyIntArray | None = None
) -> BucketedRecords:
    """Put records into random buckets of four, inside of cells."""
    random = np.random.default_rng(9)
    order = random.permutation(values.size)
    if cell is not None:
        order = order[np.argsort(cell[order], kind="stable")]
    starts = np.arange(0, values.size + 1, SIZE)
    columns = [column[order] for column in columns]
    return BucketedRecords(columns, values[order], starts, N_VALUES)


def dependent(correlation: float) -> tuple[AnyIntArray, AnyIntArray, AnyIntArray]:
    """A column that values depend on, one that they do not, and the values."""
    x, other, noise = np.random.default_rng(5).normal(size=(3, N_RECORDS))
    y = correlation * x + np.sqrt(1 - correlation**2) * noise
    return ranked(x, 20), ranked(other, 20), ranked(y, N_VALUES)


@pytest.mark.parametrize(
    ("correlation", "least", "most"), [(0.0, 0.0, 0.02), (0.3, 0.05, 0.11), (0.8, 0.17, 0.25)]
)
def test_buckets_show_how_strong_a_dependence_is(
    correlation: float, least: float, most: float
) -> None:
    x, other, y = dependent(correlation)
    strengths = HiddenDependence(bucketed([x, other], y)).strengths()
    assert least <= strengths[0] <= most
    assert strengths[1] < strengths[0] + 0.005


def test_what_lies_between_cells_is_no_dependence_inside() -> None:
    """Values that differ from cell to cell alone depend on nothing inside of buckets."""
    random = np.random.default_rng(6)
    cell = np.repeat(np.arange(40), N_RECORDS // 40)
    y = ranked(cell + 5 * random.normal(size=N_RECORDS), N_VALUES)
    other = random.integers(0, 6, N_RECORDS)
    inside = HiddenDependence(bucketed([cell, other], y, cell)).strengths()
    assert inside.max() < 0.03
    everywhere = HiddenDependence(bucketed([cell, other], y)).strengths()
    assert everywhere[0] > 0.15


def test_cells_of_few_buckets_are_found() -> None:
    """Records and values that differ from cell to cell, of five buckets each, go together there."""
    random = np.random.default_rng(6)
    n_cells = N_RECORDS // (5 * SIZE)
    cell = np.repeat(np.arange(n_cells), 5 * SIZE)
    of_cell = random.integers(0, 6, n_cells)[cell]
    other = np.where(random.random(N_RECORDS) < 0.7, of_cell, random.integers(0, 6, N_RECORDS))
    y = ranked(of_cell + random.normal(size=N_RECORDS), N_VALUES)
    assert HiddenDependence(bucketed([cell, other], y, cell)).strengths().max() < 0.06


def test_batches_have_cells_of_their_own() -> None:
    """Cells of people who came later lie across those of before: none would be left of both."""
    random = np.random.default_rng(8)
    age = np.repeat(np.arange(60), N_RECORDS // 60)
    batch = np.arange(N_RECORDS) % 2
    cell = (age + 3 * batch) // 6 + 20 * batch
    y = ranked(cell % 20 + 5 * random.normal(size=N_RECORDS), N_VALUES)
    records = bucketed([age], y, cell)
    batches = np.repeat([0, 1], records.starts.size // 2)
    assert HiddenDependence(records, batches=batches).strengths().max() < 0.05
    assert HiddenDependence(records).strengths().max() > 0.15


def test_cells_are_what_no_bucket_crosses() -> None:
    random = np.random.default_rng(7)
    age, sex = np.repeat(np.arange(60), N_RECORDS // 60), random.integers(0, 2, N_RECORDS)
    values = np.zeros(N_RECORDS, "i4")
    cell = (age >= 20) * 1 + (age >= 50) * 1
    sizes = np.bincount(find_cells(bucketed([age, sex], values, cell))) * SIZE
    assert sorted(sizes.tolist()) == [N_RECORDS // 60 * years for years in (10, 20, 30)]
    assert np.unique(find_cells(bucketed([age, sex], values))).size == 1


def test_weights_that_say_who_has_what_leave_nothing() -> None:
    x, other, y = dependent(0.8)
    records = bucketed([x, other], y)
    hidden = HiddenDependence(records)
    true_ones = np.eye(N_VALUES)[records.values]
    assert hidden.explains(lambda places: true_ones[places])
    assert hidden.strengths(lambda places: true_ones[places]).max() < 0.03


def test_a_dependence_of_another_attribute_is_not_taken_for_one() -> None:
    """Buckets have as many of one value as of another: what goes with either goes with both."""
    x, other, y = dependent(0.8)
    records = bucketed([x, other], y)
    random = np.random.default_rng(4)
    alike = np.where(
        random.random(N_RECORDS) < 0.7, records.values, ranked(random.random(N_RECORDS), 5)
    )
    of_alike = BucketedRecords(records.columns, alike.astype("i4"), records.starts, N_VALUES)
    alone = HiddenDependence(of_alike)
    beside = HiddenDependence(of_alike, [records.values])
    assert alone.strengths()[0] > 0.1
    assert beside.strengths()[0] < 0.06


def test_weights_that_say_the_opposite_explain_nothing() -> None:
    x, other, y = dependent(0.8)
    records = bucketed([x, other], y)
    shares = records.shares.astype(np.float64)
    opposite = 2 * shares - np.eye(N_VALUES)[records.values]
    assert not HiddenDependence(records).explains(lambda places: opposite[places])


def test_who_of_a_bucket_has_which_value_tells_nothing() -> None:
    """Strengths follow from QIT and SAT: they are the same whoever has which value."""
    x, other, y = dependent(0.6)
    records = bucketed([x, other], y)
    swapped = records.values.reshape(-1, SIZE)[:, ::-1].reshape(-1)
    again = BucketedRecords(records.columns, swapped, records.starts, N_VALUES)
    stated, repeated = (HiddenDependence(one).strengths().tolist() for one in (records, again))
    assert stated == pytest.approx(repeated, rel=1e-9)


@pytest.mark.parametrize("n_values", [1, 2])
@pytest.mark.parametrize("n_buckets", [0, 6])
def test_where_nothing_shows_a_usual_strength_is_said(n_values: int, n_buckets: int) -> None:
    values = np.tile(np.arange(n_values, dtype="i4"), n_buckets)
    columns = [np.zeros(values.size, "i4"), np.arange(values.size, dtype="i4")]
    records = BucketedRecords(columns, values, np.arange(n_buckets + 1) * n_values, n_values)
    one, several = (HiddenDependence(records, further).strengths() for further in ((), [values]))
    assert one == pytest.approx(UNSEEN)
    assert several == pytest.approx(UNSEEN)


def test_less_than_chance_takes_nothing_from_what_is_assumed() -> None:
    """Where buckets with the same values have opposite records, values seem to go with none."""
    random = np.random.default_rng(3)
    n_pairs = 50
    x = np.tile(np.array([0, 0, 3, 3, 1, 1, 2, 2], "i4"), n_pairs)
    values = np.repeat(random.integers(0, N_VALUES, (n_pairs, 1, SIZE)), 2, axis=1).reshape(-1)
    starts = np.arange(0, x.size + 1, SIZE)
    hidden = HiddenDependence(BucketedRecords([x], values.astype("i4"), starts, N_VALUES))
    assert hidden.strengths().min() > USUAL / 4


def test_records_of_which_all_buckets_have_as_many_tell_nothing() -> None:
    random = np.random.default_rng(3)
    x = np.tile(np.arange(SIZE, dtype="i4"), 100)
    values = random.integers(0, N_VALUES, x.size).astype("i4")
    starts = np.arange(0, x.size + 1, SIZE)
    hidden = HiddenDependence(BucketedRecords([x], values, starts, N_VALUES))
    assert hidden.strengths() == pytest.approx(UNSEEN)


def test_few_buckets_of_records_and_values_alike_show_no_dependence() -> None:
    """Where buckets that differ in records differ in values, too, products are large by chance."""
    random = np.random.default_rng(0)
    size, n_buckets, n_alike = 8, 1000, 60
    x = random.integers(0, 20, (n_buckets, size))
    values = np.tile(np.arange(size), (n_buckets, 1))
    x[:n_alike] = random.integers(0, 20, (n_alike, 1))
    values[:n_alike] = random.integers(0, size, (n_alike, 1))
    starts = np.arange(0, x.size + 1, size)
    records = BucketedRecords([x.reshape(-1)], values.reshape(-1).astype("i4"), starts, size)
    assert HiddenDependence(records).strengths().max() < 0.1


def test_what_records_of_smaller_cells_have_in_common_is_no_dependence() -> None:
    """Buckets of records alike differ more than random ones do, and so do products by chance."""
    random = np.random.default_rng(10)
    alike = np.repeat(random.normal(size=150), 4 * SIZE)
    x = ranked(alike + 0.5 * random.normal(size=alike.size), 20)
    starts = np.arange(0, x.size + 1, SIZE)
    values = random.integers(0, N_VALUES, x.size).astype("i4")
    strengths = HiddenDependence(BucketedRecords([x], values, starts, N_VALUES)).strengths()
    assert strengths.max() < 0.07
