"""Orders of attributes and records, losses, cells, and classes that change."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from kanon_db.algorithms.generalization.greedy_classes import classes_of_k
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse
from kanon_db.algorithms.recoding import Ranges, Sets, annealing, distinct_cells, generalized_cells
from kanon_db.algorithms.recoding.annealing import (
    PROPOSALS_PER_SECOND,
    Schedule,
    TypedRecords,
    anneal_classes,
)
from kanon_db.algorithms.recoding.changing_classes import (
    ClassSummaries,
    Constraint,
    PackedRecords,
    departure,
    entry,
    exchange,
)
from kanon_db.algorithms.recoding.loss import NULL, ExactLoss, Ncp, simplest_fraction
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata, attribute_order, sort_order
from kanon_db.publications.rows.distinct_cells import NumberedRows, packed_rows, packing
from tests.generalization_plain import numeric_table, random_table


def test_orders() -> None:
    """Equal records stay in order, and what weighs more comes first."""
    assert sort_order(numeric_table([[2], [1], [2], [1]])).tolist() == [1, 3, 0, 2]
    rows = [[0, 3], [8, 4], [4, 3]]
    assert attribute_order(numeric_table(rows)).tolist() == [1, 0]
    weighted = numeric_table(rows, ["9/10", "1/10"])
    assert attribute_order(weighted).tolist() == [0, 1]  # 32/3 / 0.81 and 2/9 / 0.01


def test_null_does_not_count_in_the_variance_and_comes_last() -> None:
    numbers = np.array([1.0, 2.0, np.nan])
    microdata = Microdata(
        [[2, 0], [0, 2], [1, 0], [0, 1]], (Attribute(3, numbers, 1, 2), Attribute(3))
    )
    assert attribute_order(microdata).tolist() == [0, 1]
    assert sort_order(microdata).tolist() == [3, 1, 2, 0]


def test_members_are_drawn_as_often_as_their_shares_say() -> None:
    """In each cell, but for one record; and whatever the records of a cell have in common."""
    random = np.random.default_rng(1)
    cells = random.integers(0, 3, 1_000)
    ends, shares = np.array([2, 3, 6]), np.array([0.25, 0.75, 1.0, 0.0, 0.5, 0.5])
    levels = generalized_cells.spread_levels(cells, random)
    drawn = generalized_cells.draw_members(ends, shares, cells, levels)
    counts = np.bincount(drawn, minlength=6)
    expected = shares * np.bincount(cells)[[0, 0, 1, 2, 2, 2]]
    assert (np.abs(counts - expected) < 1).all()
    assert counts[3] == 0
    assert (np.searchsorted(ends, drawn, "right") == cells).all()
    alone = drawn[cells == 0] == 0
    assert 0.15 < alone[:50].mean() < 0.35
    assert generalized_cells.spread_levels(cells[:0], random).size == 0


def test_places_in_ranges_without_an_end() -> None:
    """Whole numbers from 25 to 49, of which the code at the bottom is below, that at the top 50."""
    low = np.array([np.nan, np.nan, 39.5, 49.5, np.nan, 24.5])
    high = np.array([24.5, 34.5, np.nan, np.nan, np.nan, 49.5])
    levels = (np.arange(1_000) + 0.5) / 1_000
    places = [
        np.rint(generalized_cells.even_places(low, high, np.full(1_000, cell), levels)).tolist()
        for cell in range(low.size)
    ]
    assert set(places[0]) == {24}
    assert Counter(places[1]) == {24: 500, **dict.fromkeys(range(25, 35), 50)}
    assert Counter(places[2]) == {50: 500, **dict.fromkeys(range(40, 50), 50)}
    assert set(places[3]) == {50}
    assert set(places[4]) == {-np.inf, np.inf}
    assert Counter(places[5]) == dict.fromkeys(range(25, 50), 40)


def test_places_on_an_axis_are_as_likely_as_its_shares() -> None:
    """The ends of a range first, then the parts in between; evenly where nothing is known."""
    axis = generalized_cells.Axis(
        is_each=True, upto=np.array([0.0, 0.1, 0.4, 0.5, 1.0]), points=np.array([7, 8, 9, 10]),
        first=np.array([0, 1, 0]), last=np.array([3, 2, 1]), own=np.array([0.0, 0.25, np.nan]),
        trust=0.8,
    )  # fmt: skip
    levels = (np.arange(1_000) + 0.5) / 1_000
    even = partial(
        generalized_cells.even_places, np.array([6.5, 7.5, 6.5]), np.array([10.5, 9.5, 8.5])
    )
    places = [
        np.rint(axis.places(np.full(1_000, cell), levels, even)).tolist() for cell in range(3)
    ]
    assert Counter(places[0]) == {7: 130, 8: 290, 9: 130, 10: 450}
    assert Counter(places[1]) == {-np.inf: 250, 8: 350, 9: 150, np.inf: 250}
    assert Counter(places[2]) == {7: 500, 8: 500}


def listed(found: Ranges | Sets) -> list[object]:
    if isinstance(found, Sets):
        return [tuple(part.tolist()) for part in np.split(found.codes, found.ends[:-1])]
    named = zip(found.low.tolist(), found.high.tolist(), found.tells_nothing.tolist(), strict=True)
    return [None if nothing else (low, high) for low, high, nothing in named]


def random_cells(kind: type[Ranges | Sets], seed: int) -> Ranges | Sets:
    random = np.random.default_rng(seed)
    if kind is Ranges:
        low = random.integers(4, size=60).astype(np.int32)
        high = low + random.integers(4, size=60).astype(np.int32)
        return Ranges(low, high, random.random(60) < 0.2)
    sizes = random.integers(1, 5, size=60)
    parts = [np.sort(random.choice(5, size=size, replace=False)) for size in sizes]
    return Sets(np.concatenate(parts).astype(np.int32), np.cumsum(sizes))


@pytest.mark.parametrize("kind", [Sets, Ranges])
def test_each_cell_is_one_of_those_that_differ(kind: type[Ranges | Sets]) -> None:
    for seed in range(5):
        given = random_cells(kind, seed)
        found, numbers = distinct_cells(given)
        shown, all_cells = listed(found), listed(given)
        assert len(set(shown)) == len(shown) == len(set(all_cells))
        assert [shown[number] for number in numbers] == all_cells


def test_sets_with_the_same_sum_are_still_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """By luck, sums of different sets may be equal; then all cells stay."""
    monkeypatch.setattr(generalized_cells, "hash_numbers", lambda codes: np.zeros(codes.size, "u8"))
    given = random_cells(Sets, 0)
    found, numbers = distinct_cells(given)
    assert [listed(found)[number] for number in numbers] == listed(given)


def test_losses_too_fine_to_be_whole_are_rounded() -> None:
    numbers = np.sort(np.random.default_rng(2).random(50))
    microdata = Microdata(np.arange(50)[:, None], (Attribute(50, numbers, 0, 1),))
    exact = ExactLoss.of(microdata, "ncp")
    assert not exact.is_exact
    assert float(exact.total(np.zeros(50))) == pytest.approx(50 * (numbers[-1] - numbers[0]))


@pytest.mark.parametrize("unit", [1, 7, 10, 100, 1000])
@pytest.mark.parametrize("largest", [90, 10**6, 10**11])
def test_losses_are_those_of_the_simplest_fractions(unit: int, largest: int) -> None:
    """Of whole numbers, of decimals that one fraction is nearest to, and of others, with a NULL."""
    random = np.random.default_rng(largest + unit)
    for weight in (1.0, 0.3):
        numbers = np.unique(random.integers(-largest, largest, 9)) / unit
        lower, upper = float(numbers[0]), float(numbers[-1]) + 0.5
        column = np.append(numbers, np.nan)
        codes = np.arange(column.size)[:, None]
        exact = ExactLoss.of(
            Microdata(codes, (Attribute(column.size, column, lower, upper, weight),)), "ncp"
        )
        span = simplest_fraction(upper) - simplest_fraction(lower)
        share = simplest_fraction(weight) / span
        rounding = Fraction(0) if exact.is_exact else exact.unit / 2 * Fraction(101, 100)
        for number, position in zip(numbers.tolist(), exact.values[:-1, 0].tolist(), strict=True):
            distance = (simplest_fraction(number) - simplest_fraction(lower)) * share
            assert abs(distance - position * exact.unit) <= rounding
        assert abs(int(exact.whole[0]) * exact.unit - simplest_fraction(weight)) <= rounding
        assert exact.values[-1, 0] == NULL


def test_simplest_fraction() -> None:
    assert simplest_fraction(12.35) == Fraction(247, 20)
    assert simplest_fraction(-2 / 7) == Fraction(-2, 7)
    assert simplest_fraction(1e-9) == Fraction(1e-9)
    assert float(simplest_fraction(0.1234567890123)) == 0.1234567890123


class Slow(Pulse):
    """A machine on which the time is over after some calls."""

    def __init__(self, seconds: float, shares: list[float]) -> None:
        super().__init__(seconds)
        self._shares = iter(shares)

    @property
    def spent(self) -> float:
        return next(self._shares)


def test_seconds_are_counted_in_proposals() -> None:
    """However long they take: the same request does the same. What takes far too long ends."""
    for workers in (1, 2):
        in_time = PROPOSALS_PER_SECOND * workers
        quick = list(Schedule(10**9).steps(1.0, Slow(1.0, [0.0] * 1000), workers))
        slow = list(Schedule(10**9).steps(1.0, Slow(1.0, [3.9] * 1000), workers))
        assert quick == slow
        assert sum(n_proposals for n_proposals, _ in quick) == in_time
        assert [temperature for _, temperature in quick][-1] == 0.0
        wide = Schedule(10**9).steps(1.0, Slow(1.0, [3.9] * 1000), workers, width=160)
        assert sum(n_proposals for n_proposals, _ in wide) == in_time // 10
    assert not list(Schedule(10**9).steps(1.0, Pulse(0.0)))
    assert len(list(Schedule(10**9).steps(1.0, Slow(60.0, [0.0, 3.9, 4.0])))) == 2


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("is_constrained", [False, True])
def test_threads_keep_what_one_keeps(
    workers: int, is_constrained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(annealing, "_RECORDS_PER_THREAD", 50)
    monkeypatch.setattr(annealing, "_PROPOSALS_PER_PART", 50)
    random = np.random.default_rng(workers)
    table = random_table(random, 2_000, "n0c", 3)
    ncp = Ncp.of(table).of_records(sort_order(table, "ascending"))
    before, values = classes_of_k(2_000, 4), np.tile([0, 1, 2, 3], 500)
    after = anneal_classes(
        TypedRecords.of(ncp, random, UNLIMITED), before, 4, Schedule(200_000), random,
        constraint=Constraint(values, 4, l=3) if is_constrained else None, workers=workers,
    )  # fmt: skip
    assert np.bincount(after).min() >= 4
    assert ncp.total(after) < ncp.total(before)
    if is_constrained:
        pairs = np.unique(np.column_stack([after, values]), axis=0)
        assert np.bincount(pairs[:, 0]).min() >= 3


def test_an_exchange_saves_no_more_than_a_departure_without_an_entry() -> None:
    """Losses of classes are submodular, NULLs included: annealing weighs few exchanges exactly."""
    for seed in range(5):
        random = np.random.default_rng(seed)
        ncp = Ncp.of(random_table(random, 60, "n0cn", 4))
        records = PackedRecords.of(ncp)
        classes = ClassSummaries.of(records, classes_of_k(60, 4))
        for record in range(60):
            g = classes.class_of_record[record]
            saved = departure(records, classes, g, record)
            for other in np.flatnonzero(classes.class_of_record != g):
                least = entry(records, classes, g, other) + saved
                assert exchange(records, classes, g, record, other) >= least


BASES = ([7, 5, 9, 4], [2**16, 2**16, 2**16, 2**16], [2**40, 2**10, 2**20, 2**60])


def packed(columns: list[np.ndarray], bases: list[int]) -> list[np.ndarray]:
    found = []
    for start, end in packing(bases):
        digits = np.zeros(columns[0].size, dtype=np.int64)
        for column, base in zip(columns[start:end], bases[start:end], strict=True):
            digits = digits * base + column + 1
        found.append(digits)
    return found


@pytest.mark.parametrize("bases", BASES)
def test_rows_are_sorted_by_class_and_then_by_the_others(bases: list[int]) -> None:
    random = np.random.default_rng(0)
    columns = [random.integers(3, size=500) for _ in bases]
    rows = NumberedRows.of(["a", "b"], ["c", "d"], bases, packed(columns, bases))
    assert rows is not None
    counted = Counter(zip(*(column.tolist() for column in columns[:2]), strict=True))
    classes = list(zip(*(numbers.tolist() for numbers in rows.of_classes), strict=True))
    assert classes == sorted(counted)
    assert rows.sizes.tolist() == [counted[each] for each in sorted(counted)]
    shown = [np.repeat(numbers, rows.sizes) for numbers in rows.of_classes]
    found = np.column_stack([*shown, *rows.of_rows]).tolist()
    assert found == sorted(np.column_stack(columns).tolist())
    for column in columns:  # a cell without a number is found
        before, column[3] = column[3], -1
        assert NumberedRows.of(["a", "b"], ["c", "d"], bases, packed(columns, bases)) is None
        column[3] = before


@pytest.mark.parametrize("bases", BASES)
def test_the_digits_of_classes_are_those_of_their_rows(bases: list[int]) -> None:
    random = np.random.default_rng(1)
    class_of_row = random.integers(20, size=300)
    for n_cells in range(5):
        of_classes = [random.integers(3, size=20) for _ in bases[:n_cells]]
        of_rows = [random.integers(3, size=300) for _ in bases[n_cells:]]
        columns = [numbers[class_of_row] for numbers in of_classes] + of_rows
        found = packed_rows(bases, of_classes, class_of_row, of_rows)
        for digits, wanted in zip(found, packed(columns, bases), strict=True):
            assert digits.tolist() == wanted.tolist()
