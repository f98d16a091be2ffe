"""Suppression of small random tables against exhaustive search."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kanon_db.algorithms.suppression.greedy_suppression import (
    LEFT_OVER,
    Suppression,
    greedy,
    join_left_over,
)
from kanon_db.algorithms.suppression.optimal_suppression import optimal
from kanon_db.algorithms.suppression.pattern_vectors import PatternSet, all_patterns
from kanon_db.errors import InfeasibleError
from kanon_db.metrics.information_loss import (
    output_row_types,
    suppression_count,
    usefulness_loss,
)
from tests.profiles import examples

Rows = list[list[int]]


def published(rows: Rows, stars: list[list[bool]]) -> list[tuple[int | None, ...]]:
    return [
        tuple(None if star else value for value, star in zip(row, mask, strict=True))
        for row, mask in zip(rows, stars, strict=True)
    ]


def brute_force(rows: Rows, patterns: PatternSet, k: int) -> int | None:
    """Lowest cost of all assignments of patterns to records, or None."""
    stars, costs = patterns.stars.tolist(), patterns.costs.tolist()
    best = None
    for choice in product(range(len(patterns)), repeat=len(rows)):
        cost = sum(costs[i] for i in choice)
        if best is not None and cost >= best:
            continue
        # A set of kept cells and the pattern that keeps them.
        instances = Counter(published(rows, [stars[i] for i in choice]))
        if min(instances.values()) >= k:
            best = cost
    return best


def cheapest_group(rows: Rows, found: Suppression, k: int) -> int:
    """Lowest cost of all ways to give the left-over records and some others one pattern."""
    stars, costs = found.patterns.stars.tolist(), found.patterns.costs.tolist()
    before = found.pattern_of_record.tolist()
    left = [i for i, pattern in enumerate(before) if pattern == LEFT_OVER]
    others = [i for i, pattern in enumerate(before) if pattern != LEFT_OVER]
    possible = []
    for position in range(len(stars)):
        for n in range(k - len(left), len(others) + 1):
            for joining in combinations(others, n):
                chosen = list(before)
                for i in (*left, *joining):
                    chosen[i] = position
                shown = published(rows, [stars[pattern] for pattern in chosen])
                classes = list(zip(chosen, shown, strict=True))
                is_one = len({classes[i] for i in (*left, *joining)}) == 1
                if is_one and min(Counter(classes).values()) >= k:
                    possible.append(sum(costs[pattern] for pattern in chosen))
    return min(possible)


def test_left_over_records_join_at_least_cost_against_brute_force() -> None:
    random = np.random.default_rng(11)
    n_joined = Counter[str]()
    for number in range(600):
        n, m, k = int(random.integers(3, 9)), int(random.integers(1, 4)), int(random.integers(2, 4))
        masks = np.append(random.permutation(2**m)[: int(random.integers(1, 6))], 2**m - 1)
        weights = random.integers(1, 5, size=m).tolist() if number % 2 else None
        patterns = PatternSet.of(masks, m, weights)
        rows = random.integers(0, 3, size=(n, m)).tolist()
        found = greedy(rows, patterns, k)
        if n < k:
            with pytest.raises(InfeasibleError, match="fewer than k records"):
                join_left_over(rows, found, k, random)
            continue
        joined = join_left_over(rows, found, k, random)
        if not found.n_left_over:
            assert (joined.pattern_of_record == found.pattern_of_record).all()
            continue
        sizes = Counter(
            zip(
                joined.pattern_of_record.tolist(),
                published(rows, joined.suppressed.tolist()),
                strict=True,
            )
        )
        assert min(sizes.values()) >= k
        assert patterns.costs[joined.pattern_of_record].sum() == cheapest_group(rows, found, k)
        (position,) = set(joined.pattern_of_record[found.pattern_of_record == LEFT_OVER].tolist())
        moved = joined.pattern_of_record != found.pattern_of_record
        assert (joined.pattern_of_record[moved] == position).all()
        n_joined["fully" if patterns.stars[position].all() else "partly"] += 1
    assert min(n_joined["fully"], n_joined["partly"]) > 20


@pytest.mark.parametrize("m", [3, 4, 6])
def test_tight_example_of_theorem_4(m: int) -> None:
    rows = [[1] * m for _ in range(m)]
    for column in range(m):
        for copy in range(m - 1):
            row = [1] * m
            row[column] = 100 + column * m + copy
            rows.append(row)
    patterns = PatternSet.of([0, *(1 << i for i in range(m)), 2**m - 1], m)
    assert greedy(rows, patterns, m).n_suppressed == (m - 1) * m**2
    assert optimal(rows, patterns, m).suppression.n_suppressed == m**2


@st.composite
def tables(draw: st.DrawFn) -> tuple[Rows, PatternSet, int]:
    m = draw(st.integers(1, 5))
    row = st.lists(st.integers(-1, 3), min_size=m, max_size=m)
    masks = draw(st.lists(st.integers(0, 2**m - 1), min_size=1, max_size=8))
    rows = draw(st.lists(row, max_size=40))
    return rows or [[0] * m], PatternSet.of([*masks, 2**m - 1], m), draw(st.integers(1, 6))


def naive_greedy(rows: Rows, patterns: PatternSet, k: int) -> list[int]:
    """Algorithm 1 of [PG], record by record."""
    chosen = [-1] * len(rows)
    for position, stars in enumerate(patterns.stars.tolist()):
        left = [i for i, pattern in enumerate(chosen) if pattern < 0]
        kept = dict(zip(left, published([rows[i] for i in left], [stars] * len(left)), strict=True))
        sizes = Counter(kept.values())
        for i in left:
            if sizes[kept[i]] >= k:
                chosen[i] = position
    return chosen


@settings(deadline=None, max_examples=examples(300))
@given(tables())
def test_greedy_is_algorithm_1(table: tuple[Rows, PatternSet, int]) -> None:
    rows, patterns, k = table
    before = np.array(rows)
    found = greedy(before, patterns, k)
    assert before.tolist() == rows
    assert found.pattern_of_record.tolist() == naive_greedy(rows, patterns, k)
    assert found.n_left_over < k


@settings(deadline=None, max_examples=examples(100))
@given(tables())
def test_metrics_of_suppression(table: tuple[Rows, PatternSet, int]) -> None:
    rows, patterns, k = table
    found = greedy(rows, patterns, k)
    stars = found.suppressed.tolist()
    classes: dict[tuple[int | None, ...], Rows] = {}
    for row, output in zip(rows, published(rows, stars), strict=True):
        classes.setdefault(output, []).append(row)
    sizes = [len(members) for members in classes.values()]
    measured = output_row_types(rows, found.suppressed)
    assert measured.number == len(sizes)
    assert measured.average_size == pytest.approx(sum(sizes) / len(sizes))
    assert (measured.smallest_size, measured.largest_size) == (min(sizes), max(sizes))
    assert suppression_count(stars) == found.n_suppressed == sum(map(sum, stars)) == found.cost

    columns = list(zip(*rows, strict=True))
    diversity = sum(
        len(set(values)) / len(set(column))
        for members in classes.values()
        for values, column in zip(zip(*members, strict=True), columns, strict=True)
    )
    assert usefulness_loss(rows, stars) == pytest.approx(diversity / len(classes))
    numeric = sum(
        (max(values) - min(values)) / ((max(column) - min(column)) or 1)
        for members in classes.values()
        for values, column in zip(zip(*members, strict=True), columns, strict=True)
    )
    assert usefulness_loss(rows, stars, dict(enumerate(columns))) == pytest.approx(
        numeric / len(classes)
    )


@pytest.mark.long
def test_more_columns_than_one_integer_holds() -> None:
    # 12 columns of 100 values each: packed rows exceed 64 bits.
    random = np.random.default_rng(3)
    rows = random.permuted(np.tile(np.arange(100), (12, 3)), axis=1).T
    rows[::2, :8] = rows[0, :8]
    patterns = all_patterns(12)
    found = greedy(rows, patterns, 5)
    assert found.pattern_of_record.tolist() == naive_greedy(rows.tolist(), patterns, 5)


@settings(deadline=None, max_examples=examples(150))
@given(st.data())
def test_one_entity_with_k_rows_is_not_k_entities(data: st.DataObject) -> None:
    """Against the algorithm in sets, record by record."""
    n, m = data.draw(st.integers(1, 14)), data.draw(st.integers(1, 3))
    rows = data.draw(st.lists(st.tuples(*[st.integers(0, 2)] * m), min_size=n, max_size=n))
    entities = data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))
    k = data.draw(st.integers(1, 4))
    patterns = all_patterns(m)
    found = greedy(rows, patterns, k, entities=np.array(entities))
    expected = [-1] * n
    for position, stars in enumerate(patterns.stars.tolist()):
        left = [record for record in range(n) if expected[record] < 0]
        kept = published([list(rows[record]) for record in left], [stars] * len(left))
        for cells in set(kept):
            group = [record for record, own in zip(left, kept, strict=True) if own == cells]
            if len({entities[record] for record in group}) >= k:
                for record in group:
                    expected[record] = position
    assert found.pattern_of_record.tolist() == expected
    assert len({entities[record] for record in range(n) if expected[record] < 0}) < k
    # With one record of each entity, nothing changes.
    alone = greedy(rows, patterns, k, entities=np.arange(n))
    assert alone.pattern_of_record.tolist() == greedy(rows, patterns, k).pattern_of_record.tolist()
