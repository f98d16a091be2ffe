"""Counts of tables, against brute force over all values of small classes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
import pytest

from kanon_db.algorithms.attacks import (
    Deductions,
    MatchCount,
    Preference,
    TableCounts,
    count_tables,
    deduce_from_patterns,
)
from kanon_db.algorithms.generalization.mondrian import CutDomains, median_cut
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.recoding import Attribute, Ranges, RowClasses, Sets
from kanon_db.algorithms.suppression import all_patterns, parse_patterns
from kanon_db.publications.rows.published_rows import single_values

SIZES = [(1, 3), (2, 2), (3, 3), (4, 2), (5, 3), (4, 5), (6, 2), (6, 4)]
"""How many rows a class has, and how many values its cell covers."""


def whole_range(width: int) -> Ranges:
    return Ranges(np.array([0]), np.array([width - 1]), np.array([False]))


def whole_set(width: int) -> Sets:
    return Sets(np.arange(width, dtype=np.int32), np.array([width]))


def count(cells: Ranges | Sets, n: int, width: int, deductions: Deductions) -> TableCounts:
    covering = RowClasses([cells], np.array([[0]]), [width])
    return count_tables(covering, np.array([n]), deductions, np.random.default_rng(0))


def brute(n: int, width: int, holds: Callable[[Sequence[int]], bool]) -> tuple[int, int]:
    """Count the sequences for which something holds, and their multisets."""
    left = [one for one in product(range(width), repeat=n) if holds(one)]
    return len(left), len({tuple(sorted(one)) for one in left})


def check(found: TableCounts, n: int, width: int, left: tuple[int, int]) -> None:
    n_left, n_multisets = left
    assert found.within == pytest.approx(n * math.log2(width))
    assert found.remaining == pytest.approx(math.log2(n_left) if n_left else found.within)
    assert found.n_known == (n if n_multisets == 1 else 0)


@pytest.mark.parametrize(("n", "width"), SIZES)
def test_tight_cells(n: int, width: int) -> None:
    tight = Deductions(2, np.array([True]))
    ends = brute(n, width, lambda one: {0, width - 1} <= set(one))
    check(count(whole_range(width), n, width, tight), n, width, ends)
    check(
        count(whole_set(width), n, width, tight),
        n,
        width,
        brute(n, width, lambda one: len(set(one)) == width),
    )


@pytest.mark.parametrize(("n", "width"), SIZES)
@pytest.mark.parametrize("k", [2, 3])
def test_classes_that_could_not_be_cut(n: int, width: int, k: int) -> None:
    """By the cuts of Mondrian itself."""
    domains = CutDomains.of([Attribute(width)])

    def holds(one: Sequence[int], needed: set[int]) -> bool:
        counts = np.bincount(one, minlength=width)
        return needed <= set(one) and median_cut(domains, [counts], k) is None

    uncut = Deductions(k, np.array([True]), is_uncut=True)
    ends = brute(n, width, lambda one: holds(one, {0, width - 1}))
    each = brute(n, width, lambda one: holds(one, set(range(width))))
    for cells, left in ((whole_range(width), ends), (whole_set(width), each)):
        found = count(cells, n, width, uncut)
        assert found.remaining == pytest.approx(math.log2(left[0]) if left[0] else found.within)


@pytest.mark.parametrize(("n", "width"), SIZES)
@pytest.mark.parametrize("k", [2, 3])
def test_values_of_few_rows(n: int, width: int, k: int) -> None:
    scarce = Deductions(k, np.array([False]), is_scarce=np.array([[True]]))
    left = brute(n, width, lambda one: max(Counter(one).values()) < k)
    if left[0]:  # no such class would be published
        check(count(whole_range(width), n, width, scarce), n, width, left)


def test_large_classes_are_counted_without_overflow() -> None:
    """And without numbers of millions of digits, during which nothing could be canceled."""
    tight = Deductions(5, np.array([True]), is_uncut=True)
    found = count(whole_set(5_000), 30_000, 5_000, Deductions(5, np.array([True])))
    assert found.remaining == found.within
    found = count(whole_set(40), 5000, 40, Deductions(5, np.array([True])))
    assert found.remaining == pytest.approx(found.within)
    most = 5 * math.log2(5000)  # fewer than 5 have the other value, either of two
    assert 1 < count(whole_set(2), 5000, 2, tight).remaining < most
    scarce = Deductions(5, np.array([False]), is_scarce=np.array([[True]]))
    left = count(whole_range(300), 900, 300, scarce).remaining
    assert 0 < left < 900 * math.log2(300)


def suppressed(stars: Sequence[str], codes: CodeArray) -> RowClasses:
    """Classes by their patterns, with the codes that they keep."""
    numbers = np.array(
        [
            [3 if star == "*" else code for star, code in zip(text, row, strict=True)]
            for text, row in zip(stars, codes.tolist(), strict=True)
        ]
    )
    return RowClasses([single_values(3)] * len(stars[0]), numbers, [3] * len(stars[0]))


def test_a_record_is_in_the_first_class_that_covers_it() -> None:
    covering = suppressed(["..", ".*", "*."], np.array([[0, 0], [0, 0], [0, 1]]))
    found = deduce_from_patterns(covering, np.array([3, 3, 2]), all_patterns(2), 2, is_greedy=True)
    assert found.preference is not None
    assert found.is_scarce is not None
    left = lambda *record: found.preference.remaining(
        covering.classes_of(np.array(record))
    ).tolist()
    assert (left(0, 0), left(0, 1), left(1, 1), left(2, 2)) == ([0], [1], [2], [])
    assert found.is_scarce.tolist() == [[False, False], [False, True], [True, False]]
    sizes = np.array([3, 3, 2])
    # Of the three values that class 1 may have, class 0 has taken one; of those of 2, class 1 has.
    counted = count_tables(covering, sizes, found, np.random.default_rng(0))
    assert counted.within == pytest.approx(5 * math.log2(3))
    assert counted.remaining < counted.within - 1


def test_a_class_of_k_rows_spares_none() -> None:
    covering = suppressed(["..", ".*", "**"], np.array([[0, 0], [0, 0], [0, 0]]))
    patterns = parse_patterns(["..", ".*", "**"], 2)
    sizes = np.array([2, 2, 5])
    found = deduce_from_patterns(covering, sizes, patterns, 2, is_greedy=False)
    assert found.preference is not None
    assert found.is_scarce is not None
    assert found.preference.remaining(np.arange(3)).tolist() == [0, 1]
    # The pattern "*." is not allowed, and two rows are fewer than twice k.
    assert found.is_scarce.tolist() == [[False, False], [False, False], [True, False]]
    assert Preference(np.array([1]), np.array([True])).remaining(np.arange(0)).size == 0


def test_an_order_that_is_drawn_is_known_but_for_a_margin() -> None:
    texts = ["..", ".*", "*.", "**"]
    covering = suppressed(texts, np.zeros((4, 2), dtype=np.int64))
    sizes, patterns = np.full(4, 3), parse_patterns(texts, 2)
    found = deduce_from_patterns(covering, sizes, patterns, 3, is_greedy=True, is_drawn=True)
    assert found.preference is not None
    assert found.preference.remaining(np.arange(4)).tolist() == [0]
    assert found.preference.remaining(np.arange(1, 4)).tolist() == [1, 2]
    heavy = parse_patterns(texts, 2, weights=[2, 3])
    assert heavy.margin == 2
    for seed in range(20):
        order = heavy.draw_order(np.random.default_rng(seed))
        assert (order[0], order[-1], sorted(order)) == (0, 3, [0, 1, 2, 3])


class MatchedTable(NamedTuple):
    """Cells of rows, made of the records that each matches."""

    covering: RowClasses
    sizes: IntArray
    row_of_class: list[int]
    boxes: list[list[list[int]]]  # the values of each row's cells
    is_tight: list[bool]
    is_range: list[bool]


def matched_table(random: np.random.Generator, n: int, k: int, *, is_exact: bool) -> MatchedTable:
    """Let rows match their own record, and those at some distances in a random order."""
    n_values, n_attributes = 4, int(random.integers(1, 3))
    is_range = [bool(one) for one in random.integers(2, size=n_attributes)]
    is_tight = [bool(one) for one in random.integers(4, size=n_attributes) > 0]
    records = random.integers(n_values, size=(n, n_attributes))
    order = random.permutation(n)
    distances = [0, *(random.choice(np.arange(1, n), k - 1, replace=False)).tolist()]
    matches = [
        {int(order[(place + far) % n]) for far in distances} for place in np.argsort(order).tolist()
    ]
    if not is_exact:
        for one in matches:
            one |= {int(other) for other in random.integers(n, size=random.integers(2))}
    boxes = [
        [
            values_of(sorted({int(records[i, a]) for i in own}), is_range[a], is_tight[a])
            for a in range(n_attributes)
        ]
        for own in matches
    ]
    distinct = sorted({tuple(map(tuple, box)) for box in boxes})
    numbers = [distinct.index(tuple(map(tuple, box))) for box in boxes]
    cells: list[Ranges | Sets] = []
    for a, whole in enumerate(is_range):
        own = [box[a] for box in distinct]
        if whole:
            low, high = (np.array([end(one) for one in own], np.int32) for end in (min, max))
            cells.append(Ranges(low, high, np.zeros(len(own), dtype=np.bool_)))
        else:
            codes = np.array([code for one in own for code in one], np.int32)
            cells.append(Sets(codes, np.cumsum([len(one) for one in own])))
    each = np.repeat(np.arange(len(distinct))[:, np.newaxis], n_attributes, axis=1)
    covering = RowClasses(cells, each, [n_values] * n_attributes)
    sizes = np.bincount(numbers)
    return MatchedTable(covering, sizes, numbers, boxes, is_tight, is_range)


def values_of(codes: list[int], is_range: bool, is_tight: bool) -> list[int]:
    """Cover codes; where that is not tight, the next one, too."""
    if not is_tight:
        codes = sorted({*codes, min(codes[-1] + 1, 3)})
    return list(range(codes[0], codes[-1] + 1)) if is_range else codes


def count_matched(table: MatchedTable, k: int, *, is_exact: bool) -> int:
    """Count the records that rows can have, by all ways to match them."""
    n = len(table.boxes)

    def makes(records: Sequence[tuple[int, ...]], own: Sequence[int], row: int) -> bool:
        for a, box in enumerate(table.boxes[row]):
            codes = {records[i][a] for i in own}
            needed = {box[0], box[-1]} if table.is_range[a] else set(box)
            if not codes <= set(box) or (table.is_tight[a] and not needed <= codes):
                return False
        return True

    def may_be(records: Sequence[tuple[int, ...]]) -> bool:
        sizes = [k] if is_exact else range(k, n + 1)
        ways = [
            [
                (row, *others)
                for size in sizes
                for others in combinations([i for i in range(n) if i != row], size - 1)
                if makes(records, (row, *others), row)
            ]
            for row in range(n)
        ]

        def complete(row: int, counts: tuple[int, ...]) -> bool:
            if row == n:
                return all(one == k if is_exact else one >= k for one in counts)
            if is_exact and max(counts) > k:
                return False
            return any(
                complete(row + 1, tuple(c + (i in own) for i, c in enumerate(counts)))
                for own in ways[row]
            )

        return complete(0, (0,) * n)

    return sum(map(may_be, product(*(list(product(*box)) for box in table.boxes))))


@pytest.mark.parametrize("is_exact", [True, False])
@pytest.mark.parametrize(("n", "k", "n_tables"), [(4, 2, 25), (4, 3, 10)])
def test_rows_that_match_records(n: int, k: int, n_tables: int, *, is_exact: bool) -> None:
    """No records are excluded that rows can have, and some are that they cannot have."""
    matches = MatchCount.EXACTLY_K if is_exact else MatchCount.AT_LEAST_K
    excluded, random = 0.0, np.random.default_rng(n)
    for _ in range(n_tables):
        table = matched_table(random, n, k, is_exact=is_exact)
        deductions = Deductions(k, np.array(table.is_tight), matches=matches)
        found = count_tables(table.covering, table.sizes, deductions, random)
        within = sum(math.log2(len(cell)) for box in table.boxes for cell in box)
        exact = math.log2(count_matched(table, k, is_exact=is_exact))
        assert found.within == pytest.approx(within)
        assert exact - 1e-9 <= found.remaining <= found.within + 1e-9
        excluded += found.within - found.remaining
    assert excluded > 0


def test_wide_cells_and_many_rows_are_not_listed() -> None:
    """What is not listed is taken as possible."""
    cells = Ranges(np.array([0, 0]), np.array([2**18, 2**18 - 1]), np.array([False, False]))
    covering = RowClasses([cells], np.array([[0], [1]]), [2**18 + 1])
    deductions = Deductions(3, np.array([True]), matches=MatchCount.EXACTLY_K)
    found = count_tables(covering, np.array([3, 3]), deductions, np.random.default_rng(0))
    assert found.remaining == pytest.approx(found.within)


def test_cells_that_the_source_no_longer_covers() -> None:
    """Their rows leave what they did, and others are looked at."""
    cells = Sets(np.array([0, 1, 0, 1], np.int32), np.array([2, 4, 4]))
    covering = RowClasses([cells], np.array([[0], [1], [2]]), [2])
    assert [covering.overlapping(g).tolist() for g in range(3)] == [[0, 1], [0, 1], []]
    deductions = Deductions(2, np.array([True]), matches=MatchCount.EXACTLY_K)
    found = count_tables(covering, np.array([1, 1, 1]), deductions, np.random.default_rng(0))
    assert (found.within, found.remaining) == (2, pytest.approx(1))


def test_classes_that_overlap() -> None:
    """By looking at the values of all cells."""
    random = np.random.default_rng(1)
    table = matched_table(random, 12, 3, is_exact=True)
    covering, numbers = table.covering, np.arange(table.covering.n_classes)
    attributes = range(len(covering.n_codes))
    for number in numbers.tolist():
        own = [covering.values_of(number, a) for a in attributes]
        meets = [
            all((own[a] & covering.values_of(other, a)).any() for a in attributes)
            for other in numbers.tolist()
        ]
        assert covering.overlapping(number).tolist() == np.flatnonzero(meets).tolist()
    for a in attributes:
        codes = np.array([0, 2])
        covered = np.column_stack([covering.values_of(g, a)[codes] for g in numbers.tolist()])
        assert (covering.cover(a, codes, numbers) == covered).all()
