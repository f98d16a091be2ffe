"""What someone who knows the method excludes of published rows, and how much that can be lowered.

Run from the root of the repository: ``python -m benchmarks refinement``. The data are looked for in
``data/`` of the folder named by KANON_SHARED, or of ``../shared``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.generalization import TABLES, read
from benchmarks.harness import table
from kanon_db.algorithms.attacks import (
    Deductions,
    MatchCount,
    count_tables,
    deduce_from_patterns,
)
from kanon_db.algorithms.freeform import numbered_cells, partitioned, ring, sort_greedy
from kanon_db.algorithms.generalization import greedy_search, mondrian, refine
from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.recoding import (
    Microdata,
    Ranges,
    RowClasses,
    Sets,
    cells_of_classes,
)
from kanon_db.algorithms.suppression import (
    LEFT_OVER,
    PatternSet,
    all_patterns,
    classes_of,
    greedy,
)
from kanon_db.metrics.information_loss import measure_classes, measure_freeform
from kanon_db.publications.rows.published_rows import single_values

K = 5
N_RECORDS = 30_000
N_PEOPLE = 2_000
REFINE_SECONDS = 20.0
DRAWN = 5
"""Orders of patterns."""


def main() -> str:
    """Return the results as Markdown."""
    tables = {name: _sample(read(name)) for name in TABLES}
    generalized = [
        [name, *row]
        for name, data in tables.items()
        for rows in (_generalized(data), _freeform(data))
        for row in rows
    ]
    suppressed = [[name, *row] for name, data in tables.items() for row in _suppressed(data)]
    shown = ["table", "method", "within the cells", "that remain", "removed", "known", "loss"]
    linked = ["table", "order", "removed", "linked by cells", "by the method", "suppressed cells"]
    return (
        f"{N_RECORDS:,} records of each table, k = {K}; what the figures mean is [on the page of"
        " attacks](../understand/attacks.md#refinement). Values that a generalized cell leaves, as"
        " geometric means: *within the cells*, and those *that remain* for who knows the method;"
        " the share of the bits that this removes, and of the cells whose values are *known*, up to"
        " which row has which. *Loss* is the GCP.\n\n"
        + table(shown, generalized)
        + f"\nSuppressed rows, by the greedy method, of {N_PEOPLE:,} people. *Linked*: how often"
        " one of the rows that may be a person's is theirs, 0.2 at most. *Drawn*: the option"
        f" `order` (means of {DRAWN} orders).\n\n" + table(linked, suppressed)
    )


def _sample(whole: Microdata) -> Microdata:
    chosen = np.random.default_rng(0).permutation(whole.n_records)[:N_RECORDS]
    return Microdata(whole.codes[chosen], whole.attributes)


def _generalized(data: Microdata) -> Iterator[list[str]]:
    tight = Deductions(K, np.ones(len(data.attributes), dtype=np.bool_))
    uncut = replace(tight, is_uncut=True)
    strict = mondrian(data, K).class_of_record
    relaxed = mondrian(data, K, cut="relaxed").class_of_record
    grown = greedy_search(data, K, block_size=5_000).class_of_record
    refined = refine(
        data, grown, K, random=np.random.default_rng(0), pulse=Pulse(REFINE_SECONDS), workers=2
    ).class_of_record
    for name, classes, deductions in (
        ("Mondrian", strict, uncut), ("Mondrian, relaxed cuts", relaxed, tight),
        ("Greedy Search", grown, tight), ("Greedy Search, refined", refined, tight),
    ):  # fmt: skip
        cells = list(cells_of_classes(data, classes))
        sizes = np.bincount(classes)
        numbers = np.repeat(np.arange(sizes.size)[:, np.newaxis], len(cells), axis=1)
        loss = measure_classes(data, classes).gcp
        yield [name, *_left(data, cells, numbers, sizes, deductions), f"{loss:.4f}"]


def _freeform(data: Microdata) -> Iterator[list[str]]:
    tight = np.ones(len(data.attributes), dtype=np.bool_)
    deductions = Deductions(K, tight, matches=MatchCount.EXACTLY_K)
    for name, method in (
        ("freeform", sort_greedy),
        ("freeform, not refined", partial(sort_greedy, improve=False)),
        ("freeform, ring", ring),
    ):
        cells = numbered_cells(data, partitioned(data, K, method))
        of_rows = np.column_stack([numbered.numbers for numbered in cells])
        numbers, sizes = np.unique(of_rows, axis=0, return_counts=True)
        left = _left(data, [own.cells for own in cells], numbers, sizes, deductions)
        yield [name, *left, f"{measure_freeform(data, cells).gcp:.4f}"]


def _left(
    data: Microdata,
    cells: list[Ranges | Sets],
    numbers: AnyIntArray,
    sizes: IntArray,
    deductions: Deductions,
) -> list[str]:
    """Count what someone who knows the method excludes."""
    covering = RowClasses(cells, numbers, [one.n_values for one in data.attributes])
    left = count_tables(covering, sizes, deductions, np.random.default_rng(0))
    return [
        f"{left.values_before:.2f}", f"{left.values_after:.2f}",
        f"{left.score.rate:.1%}", f"{left.known_score.rate:.1%}",
    ]  # fmt: skip


def _suppressed(data: Microdata) -> Iterator[list[str]]:
    patterns = all_patterns(len(data.attributes))
    orders = [patterns.draw_order(np.random.default_rng(seed)) for seed in range(DRAWN)]
    drawn = [_play(data, patterns, order, is_drawn=True) for order in orders]
    for name, played in (
        ("cheapest first", [_play(data, patterns, np.arange(len(patterns)), is_drawn=False)]),
        ("drawn", drawn),
    ):
        removed, by_cells, by_method, stars = np.mean(played, axis=0).tolist()
        yield [
            name, f"{removed:.1%}", f"{by_cells:.3f}", f"{by_method:.3f}", f"{stars:,.0f}",
        ]  # fmt: skip


def _play(data: Microdata, patterns: PatternSet, order: IntArray, *, is_drawn: bool) -> list[float]:
    """Suppress cells, trying patterns in an order, and attack what would be published."""
    tried = patterns.in_order(order)
    found = greedy(data.codes, tried, K)
    is_shown = found.pattern_of_record != LEFT_OVER
    codes, pattern = data.codes[is_shown], found.pattern_of_record[is_shown]
    classes = classes_of(codes, found, pattern)
    first = np.unique(classes, return_index=True)[1]
    n_codes = [one.n_values for one in data.attributes]
    cells = np.where(tried.stars[pattern[first]], n_codes, codes[first])
    covering, sizes = (
        RowClasses([*map(single_values, n_codes)], cells, n_codes),
        np.bincount(classes),
    )
    deductions = deduce_from_patterns(
        covering, sizes, patterns, K, is_greedy=True, is_drawn=is_drawn
    )
    left = count_tables(covering, sizes, deductions, np.random.default_rng(0))
    assert deductions.preference is not None  # noqa: S101  # for the type checker
    by_cells, by_method = [], []
    for person in np.random.default_rng(1).choice(len(codes), N_PEOPLE, replace=False).tolist():
        covers = covering.classes_of(codes[person])
        remain = deductions.preference.remaining(covers)
        assert classes[person] in remain  # noqa: S101  # the attack excludes nobody's own rows
        by_cells.append(1 / sizes[covers].sum())
        by_method.append(1 / sizes[remain].sum())
    rates = left.score.rate or 0.0, np.mean(by_cells), np.mean(by_method)
    return [*map(float, rates), float(found.n_suppressed)]


if __name__ == "__main__":
    print(main())
