"""The bounds against someone who knows the method, by enumerating all tables there may be.

Each test compares exact posteriors (:mod:`tests.attacks.posterior`) with what a kind promises, on
tables of up to 7 records; where enumerating the randomness takes too long, a statistical test does,
whose false alarms are rarer than once in 10^8 runs of all tests together. The last tests of each
kind show that the same measure finds what is known to leak.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from fractions import Fraction
from typing import NamedTuple, cast

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kanon_db.algorithms.bucketization import cell_assignment
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.randomness import SecureRandom
from tests.attacks.posterior import (
    Outcomes,
    Posterior,
    chance_within_bounds,
    of_attribute,
    posteriors,
    worst_excess,
)
from tests.attacks.publishers import (
    ASSIGNMENTS,
    JOINT_ASSIGNMENTS,
    TRANSPARENT,
    Combinations,
    KnownSplit,
    People,
    along_a_graph,
    at_random,
    cells_of_matches,
    declared,
    in_buckets,
    in_cells,
    in_classes,
    in_halves_or_merged,
    jointly_at_random,
    jointly_in_buckets,
    jointly_in_cells,
    jointly_in_halves_or_merged,
    rows,
    with_suppressed_cells,
)
from tests.profiles import examples, long_but
from tests.property.strategies import tables

ONE, HALF, THIRD, QUARTER = Fraction(1), Fraction(1, 2), Fraction(1, 3), Fraction(1, 4)
IMPOSSIBLE = 1e-9
"""What does not happen by chance."""

LINE: People = tuple((i,) for i in range(7))
PLANE: People = ((0, 0), (0, 0), (0, 1), (1, 1), (2, 0), (2, 2), (2, 2))
PAIRS: People = ((0, 0), (0, 0), (0, 1), (0, 1), (1, 1), (1, 1), (1, 1))


class Case(NamedTuple):
    """Whose quasi-identifiers, how often each value occurs, and how often it may in a bucket."""

    people: People
    histogram: tuple[int, ...]
    thresholds: tuple[Fraction, ...]


DIVERSE = {
    "5 records, 2-diverse": Case(LINE[:5], (2, 2, 1), (HALF, HALF, HALF)),
    "5 records, some alike": Case(PAIRS[:5], (2, 1, 2), (HALF, HALF, HALF)),
    "6 records, 3-diverse": Case(LINE[:6], (2, 2, 2), (THIRD, THIRD, THIRD)),
    "7 records, 3-diverse": Case(PLANE, (2, 2, 2, 1), (THIRD,) * 4),
}
"""Tables that all methods can publish."""

UNEVEN = {
    "5 records, one rare": Case(LINE[:5], (1, 4), (THIRD, ONE)),
    "6 records, one rare": Case(PLANE[:6], (1, 2, 3), (THIRD, HALF, ONE)),
    "7 records, two rare": Case(LINE, (1, 1, 5), (QUARTER, THIRD, ONE)),
    "7 records, some alike": Case(PAIRS, (2, 2, 3), (HALF, THIRD, HALF)),
}
"""Tables that only thresholds by value can publish, and no l-diversity."""

RARE = (THIRD, ONE)
CASES = DIVERSE | UNEVEN
N_RUNS = examples(8000)
"""Of the methods that are not enumerated."""

MOST_RUNS = 25 * examples(1000)
"""Where all tables and outcomes are more than that, they are not enumerated."""


def methods_of(name: str) -> list[str]:
    return [m for m in declared("buckets") if name in DIVERSE or m != "anatomy"]


BUCKETS = [(name, method) for name in CASES for method in methods_of(name)]


def n_runs(case: Case | JointCase) -> int:
    """Count the tables, and for each the orders in which its records may be drawn."""
    all_orders = math.factorial(len(case.people))
    return all_orders**2 // math.prod(map(math.factorial, case.histogram))


ENUMERATED = [(name, method) for name, method in BUCKETS if n_runs(CASES[name]) <= MOST_RUNS]


def test_every_declared_assignment_is_examined() -> None:
    assert sorted(ASSIGNMENTS) == sorted(declared("buckets", "assignment"))


@pytest.mark.pitfall(14)
@pytest.mark.parametrize(
    ("name", "method"), long_but({m[0]: m for m in reversed(ENUMERATED)}.values(), ENUMERATED)
)
def test_random_buckets_tell_no_more_than_their_shares(name: str, method: str) -> None:
    """Exactly: not even in one publication of many, for one person of many."""
    people, histogram, thresholds = CASES[name]
    found = posteriors(in_buckets(people, thresholds, at_random, method), histogram)
    assert worst_excess(found, thresholds) <= 0
    if len(set(people)) == len(people):
        for published, posterior in found.items():
            assert posterior == [share_of(published, whom, histogram) for whom in people]


# What is enumerated above need not be drawn.
# Methods decide on the sizes of buckets only: each table has one of them, the others are long.
DRAWN = [
    pytest.param(assignment, name, method, marks=[] if is_short else [pytest.mark.long])
    for assignment in TRANSPARENT
    for i, name in enumerate(CASES)
    for j, method in enumerate(methods_of(name))
    if assignment != "random" or (name, method) not in ENUMERATED
    for is_short in [j == i % len(methods_of(name))]
]


@pytest.mark.pitfall(14)
@pytest.mark.parametrize(("assignment", "name", "method"), DRAWN)
def test_transparent_buckets_keep_the_bound_for_who_knows_the_method(
    assignment: str, name: str, method: str
) -> None:
    """Someone runs it on all tables with the same counts: no value is likelier than f'."""
    people, histogram, thresholds = CASES[name]
    publish = in_buckets(people, thresholds, ASSIGNMENTS[assignment], method)
    n_runs = N_RUNS // 4 if assignment == "cells" else N_RUNS  # each is a search of its own
    assert chance_within_bounds(publish, histogram, thresholds, n_runs) > IMPOSSIBLE


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case(LINE[:4], (1, 3), RARE), id="4"),
        pytest.param(CASES["5 records, one rare"], id="5", marks=pytest.mark.long),
    ],
)
def test_cells_keep_the_bound_exactly(monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    """In every publication, with every outcome of the draws that decline a cut."""
    monkeypatch.setattr(
        cell_assignment, "_FACTORS", (Fraction(3, 2),)
    )  # others are drawn in more ways
    people, histogram, thresholds = case
    found = posteriors(in_buckets(people, thresholds, in_cells, "two_size"), histogram)
    assert worst_excess(found, thresholds) <= 0


def _unguarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut wherever both sides can be put into buckets, and leave the thresholds as they are."""
    monkeypatch.setattr(cell_assignment.CellCutter, "_declines", lambda *_: False)
    monkeypatch.setattr(FPrimePrivacy, "tightened", lambda self, _: self)


def test_cuts_declined_for_their_values_alone_would_tell_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cells without their counter-measure: that there is no cut says why."""
    _unguarded(monkeypatch)
    publish = in_buckets(LINE[:5], RARE, in_cells, "two_size")
    assert worst_excess(posteriors(publish, (1, 4)), RARE) > 0


@st.composite
def cases(draw: st.DrawFn) -> Case:
    counts, thresholds = draw(tables(3, 3, eligible=True).filter(lambda table: sum(table[0]) <= 5))
    codes = st.tuples(st.integers(0, 2), st.integers(0, 1))
    people = draw(st.lists(codes, min_size=sum(counts), max_size=sum(counts)))
    return Case(tuple(people), tuple(counts), thresholds)


@given(cases(), st.sampled_from(declared("buckets")))
@settings(max_examples=examples(40))
def test_random_buckets_of_any_small_table_keep_the_bound(case: Case, method: str) -> None:
    people, histogram, thresholds = case
    found = posteriors(in_buckets(people, thresholds, at_random, method), histogram)
    assume(found)  # Anatomy needs more
    assert worst_excess(found, thresholds) <= 0


class InOrder(Outcomes):
    """No randomness: records keep their order."""

    def permutation(self, n: int) -> IntArray:
        return np.arange(n, dtype=np.int64)


@pytest.mark.parametrize("name", ["5 records, 2-diverse", "5 records, one rare"])
def test_without_the_shuffle_values_would_be_certain(name: str) -> None:
    """That the records are drawn at random is all that protects: the rest is known."""
    people, histogram, thresholds = CASES[name]
    publish = in_buckets(people, thresholds, at_random, "two_size")
    assert worst_excess(posteriors(publish, histogram, InOrder), thresholds) == 1 - thresholds[0]


@pytest.mark.parametrize("histogram", [(1, 4), (2, 4)], ids=["5 records", "6 records"])
def test_merging_cells_that_are_not_eligible_tells_that_they_were_not(
    histogram: tuple[int, int],
) -> None:
    publish = in_buckets(LINE[: sum(histogram)], RARE, in_halves_or_merged, "two_size")
    assert worst_excess(posteriors(publish, histogram), RARE) >= HALF - THIRD


@pytest.mark.parametrize("name", ["5 records, one rare", "7 records, two rare"])
def test_runs_alone_show_that_cells_were_merged(name: str) -> None:
    """What cannot be enumerated is found as well, by as many runs as the others are given."""
    people, histogram, thresholds = CASES[name]
    publish = in_buckets(people, thresholds, in_halves_or_merged, "two_size")
    assert chance_within_bounds(publish, histogram, thresholds, N_RUNS) < IMPOSSIBLE


class JointCase(NamedTuple):
    """Whose quasi-identifiers, how often each combination occurs, and what it is made of."""

    people: People
    histogram: tuple[int, ...]
    data: Combinations


SQUARE = ((0, 0), (0, 1), (1, 0), (1, 1))
CYCLES = ((0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (2, 0))
TWO_THIRDS = Fraction(2, 3)

JOINT = {
    "4 records": JointCase(LINE[:4], (1, 1, 1, 1), Combinations(SQUARE, ((HALF, HALF),) * 2)),
    "4 records, one rare": JointCase(
        LINE[:4], (1, 2, 1), Combinations(((0, 0), (1, 0), (1, 1)), (RARE, (ONE, HALF)))
    ),
    "5 records, one rare": JointCase(
        PAIRS[:5], (1, 1, 3), Combinations(((0, 1), (1, 0), (1, 1)), (RARE, (THIRD, ONE)))
    ),
    "5 records, some alike": JointCase(
        PAIRS[:5], (1, 1, 2, 1),
        Combinations(((0, 0), (0, 1), (1, 1), (2, 0)), ((HALF,) * 3, (HALF, TWO_THIRDS))),
    ),
    "6 records, 3-diverse": JointCase(
        LINE[:6], (1, 1, 1, 1, 1, 1), Combinations(CYCLES, ((THIRD,) * 3, (THIRD,) * 3))
    ),
    "6 records, one goes with the other": JointCase(
        PLANE[:6], (2, 2, 2), Combinations(((0, 0), (1, 1), (2, 2)), ((THIRD,) * 3, (HALF,) * 3))
    ),
    "6 records, one rare": JointCase(
        LINE[:6], (1, 1, 2, 2),
        Combinations(((0, 0), (1, 0), (1, 1), (2, 1)), ((THIRD, TWO_THIRDS, HALF), (HALF, ONE))),
    ),
}  # fmt: skip
"""Tables with two sensitive attributes; Anatomy takes those with one threshold for each."""

JOINTLY = [
    pytest.param(assignment, name, method, marks=[] if is_short else [pytest.mark.long])
    for assignment in JOINT_ASSIGNMENTS
    for i, (name, case) in enumerate(JOINT.items())
    for j, method in enumerate(declared("buckets"))
    if method != "anatomy" or all(len(set(one)) == 1 for one in case.data.thresholds)
    for is_short in [i % 4 == j and (assignment != "cells" or i > 4)]
]


@pytest.mark.pitfall(14)
@pytest.mark.parametrize(("assignment", "name", "method"), JOINTLY)
def test_buckets_of_several_attributes_keep_the_bound_of_each(
    assignment: str, name: str, method: str
) -> None:
    """For who knows the method, and all combinations: exactly, where that does not take long."""
    case = JOINT[name]
    publish = jointly_in_buckets(case.people, case.data, JOINT_ASSIGNMENTS[assignment], method)
    if assignment == "random" and n_runs(case) <= MOST_RUNS:
        assert joint_excess(posteriors(publish, case.histogram), case) <= 0
        return
    for of, bounds in zip(zip(*case.data.values, strict=True), case.data.thresholds, strict=True):
        chance = chance_within_bounds(publish, case.histogram, bounds, N_RUNS // 4, of)
        assert chance > IMPOSSIBLE


def joint_excess(found: dict[Hashable, Posterior], case: JointCase) -> Fraction:
    """Return by how much the worst posterior of any attribute exceeds its value's bound."""
    return max(
        worst_excess(of_attribute(found, values, len(bounds)), bounds)
        for values, bounds in zip(
            zip(*case.data.values, strict=True), case.data.thresholds, strict=True
        )
    )


@st.composite
def joint_cases(draw: st.DrawFn) -> JointCase:
    """Up to 5 records, of up to 3 values of each of two attributes."""
    value = st.integers(0, 2)
    records = draw(st.lists(st.tuples(value, value), min_size=1, max_size=5))
    values = tuple(sorted(set(records)))
    thresholds = []
    for column in zip(*records, strict=True):
        shares = [Fraction(column.count(value), len(records)) for value in range(3)]
        larger = st.sampled_from([Fraction(0), QUARTER, ONE])
        thresholds.append(tuple(max(x + (1 - x) * draw(larger), QUARTER) for x in shares))
    codes = st.tuples(st.integers(0, 2), st.integers(0, 1))
    people = tuple(draw(st.lists(codes, min_size=len(records), max_size=len(records))))
    histogram = tuple(map(records.count, values))
    return JointCase(people, histogram, Combinations(values, tuple(thresholds)))


@given(joint_cases(), st.sampled_from(declared("buckets")))
@settings(max_examples=examples(40))
def test_random_buckets_of_any_two_attributes_keep_the_bound_of_each(
    case: JointCase, method: str
) -> None:
    publish = jointly_in_buckets(case.people, case.data, jointly_at_random, method)
    found = posteriors(publish, case.histogram)
    assume(found)  # Anatomy needs more
    assert joint_excess(found, case) <= 0


SMALL_CELLS = JointCase(
    LINE[:4], (1, 1, 2), Combinations(((0, 1), (1, 0), (1, 1)), (RARE, (HALF, ONE)))
)


@pytest.mark.long
def test_cells_of_several_attributes_keep_the_bound_of_each_exactly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In every publication, with every outcome of the draws that decline a cut."""
    monkeypatch.setattr(cell_assignment, "_FACTORS", (Fraction(3, 2),))
    for case in (SMALL_CELLS, JOINT["4 records"], JOINT["4 records, one rare"]):
        publish = jointly_in_buckets(case.people, case.data, jointly_in_cells, "two_size")
        assert joint_excess(posteriors(publish, case.histogram), case) <= 0


def test_no_cell_is_refused_whose_attributes_ask_for_different_diversity() -> None:
    """Anatomy makes buckets for the strictest, so cells have room for these."""
    pairs = tuple((x, y) for x in range(4) for y in range(5))
    data = Combinations(pairs, ((HALF,) * 4, (QUARTER,) * 5))
    people = np.arange(80, dtype=np.int32)
    codes = people // 20 * 5 + people % 5
    for _ in range(10):
        buckets = jointly_in_cells(people[:, np.newaxis], codes, data, "anatomy", SecureRandom())
        assert np.bincount(buckets).min() >= 4


@pytest.mark.long
def test_cuts_declined_for_one_of_several_attributes_would_tell_its_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _unguarded(monkeypatch)
    case = JOINT["5 records, one rare"]._replace(people=LINE[:5])
    publish = jointly_in_buckets(case.people, case.data, jointly_in_cells, "two_size")
    assert joint_excess(posteriors(publish, case.histogram), case) > 0


def test_buckets_of_several_attributes_that_depend_on_who_has_what_are_noticed() -> None:
    """Records of each combination in their order; and halves, unless there are none."""
    case = JOINT["5 records, one rare"]._replace(people=LINE[:5])
    publish = jointly_in_buckets(case.people, case.data, jointly_in_halves_or_merged, "two_size")
    assert joint_excess(posteriors(publish, case.histogram), case) > 0
    publish = jointly_in_buckets(case.people, case.data, jointly_at_random, "two_size")
    assert joint_excess(posteriors(publish, case.histogram, InOrder), case) > 0
    chances = [
        chance_within_bounds(
            lambda table, _: publish(table, InOrder()), case.histogram, bounds, 2 * N_RUNS, of
        )
        for of, bounds in zip(
            zip(*case.data.values, strict=True), case.data.thresholds, strict=True
        )
    ]
    assert min(chances) < IMPOSSIBLE


def test_one_sensitive_value_can_tell_another() -> None:
    """Buckets show combinations: here each value is as likely as not, and tells the other one."""
    case = JOINT["4 records"]
    publish = jointly_in_buckets(case.people, case.data, jointly_at_random, "two_size")
    found = posteriors(publish, case.histogram)
    assert joint_excess(found, case) == 0
    for posterior in found.values():
        for person in posterior:
            for value in (0, 1):
                having = [
                    probability
                    for probability, values in zip(person, case.data.values, strict=True)
                    if values[0] == value
                ]
                assert max(having) == sum(having) == HALF


GENERALIZED = [method for method in declared("generalized") if method != "auto"]
FREEFORM = [method for method in declared("freeform") if method != "k_concealment"]
SMALL = pytest.mark.parametrize(
    "people", [LINE[:5], PLANE[:5], PAIRS[:5]], ids=["line", "plane", "pairs"]
)
ANYBODY = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=3, max_size=5).map(
    tuple
)


def histograms(n: int) -> list[tuple[int, ...]]:
    """With distinct values, a value names a row: the posterior is of whom the row belongs to."""
    return [(1,) * n, (1, n - 1), (2, n - 2)]


@pytest.mark.pitfall(14)
@SMALL
@pytest.mark.parametrize("method", GENERALIZED)
def test_generalized_rows_tell_no_more_than_the_shares_of_their_classes(
    method: str, people: People
) -> None:
    """A row is a person's with at most 1/k; a value is, with its share among the alike rows."""
    check_generalized(method, people)


def check_generalized(method: str, people: People) -> None:
    publish, cells_of_people = in_classes(people, method, k=2)
    for histogram in histograms(len(people)):
        for published, posterior in posteriors(publish, histogram).items():
            shown = cells_of_people(())
            assert posterior == [share_of(published, cell, histogram) for cell in shown]
            if max(histogram) == 1:
                assert max(map(max, posterior)) <= HALF


@given(st.sampled_from(GENERALIZED), ANYBODY)
@settings(max_examples=examples(20))
def test_generalized_rows_of_any_small_table(method: str, people: People) -> None:
    check_generalized(method, people)


@pytest.mark.parametrize("method", GENERALIZED)
def test_constraints_do_not_bind_someone_who_knows_the_method(method: str) -> None:
    """Which classes had to be united tells which ones would not have fulfilled the constraint.

    In every class, at most half of the rows have the first value; yet there is a publication from
    which someone who knows the method is certain of a person's value.
    """
    thresholds = (HALF, ONE)
    publish, _ = in_classes(LINE[:5], method, 2, thresholds)
    found = posteriors(publish, (2, 3))
    for published in found:
        for _, values in published:  # type: ignore[attr-defined]
            assert 2 * values.count(0) <= len(values)
    assert worst_excess(found, thresholds) == 1 - HALF


@given(st.sampled_from(declared("suppressed")), ANYBODY)
@settings(max_examples=examples(20))
def test_suppressed_rows_of_any_small_table(method: str, people: People) -> None:
    """A row is a person's with at most 1/k, unless it is left over: then fewer rows are alike."""
    check_suppressed(method, people)


def check_suppressed(method: str, people: People) -> None:
    publish, shown = with_suppressed_cells(people, method, k=2)
    left_over = {cells for cells in shown if shown.count(cells) < 2}
    assert not left_over or method == "greedy"
    for histogram in histograms(len(people)):
        for published, posterior in posteriors(publish, histogram).items():
            assert posterior == [share_of(published, cells, histogram) for cells in shown]
            for cells, person in zip(shown, posterior, strict=True):
                assert max(histogram) > 1 or cells in left_over or max(person) <= HALF


@pytest.mark.parametrize(
    ("method", "k", "people"),
    [
        pytest.param(method, k, people, marks=[] if is_short else [pytest.mark.long])
        for i, method in enumerate(FREEFORM)
        for j, k in enumerate((2, 3))
        for n, people in enumerate((LINE[:5], PLANE[:5], PAIRS[:5]))
        for is_short in [n == i % 3 and j == i % 2]
    ],
)
def test_each_freeform_match_is_the_true_one_with_one_in_k_although_the_graph_is_known(
    method: str, k: int, people: People
) -> None:
    """And its split into assignments is, too: only the choice of one of them protects."""
    check_freeform(method, k, people)


@pytest.mark.long
@given(st.sampled_from(FREEFORM), st.sampled_from([2, 3]), ANYBODY)
@settings(max_examples=examples(20))
def test_freeform_matches_of_any_small_table(method: str, k: int, people: People) -> None:
    check_freeform(method, k, people)


def check_freeform(method: str, k: int, people: People) -> None:
    publish, matches = along_a_graph(people, method, k)
    for seed in (1, 2):
        found = posteriors(publish, (1,) * len(people), lambda: KnownSplit(k, seed))
        for published, posterior in found.items():
            for row, value in enumerate(cast("tuple[int, ...]", published)):
                owners = {p: shares[value] for p, shares in enumerate(posterior) if shares[value]}
                assert owners == dict.fromkeys(matches[row].tolist(), Fraction(1, k))


def test_k_concealment_does_not_bind_someone_who_knows_the_method() -> None:
    """Each row's cells are made around its own person, and whoever repeats that knows whose."""
    _, matches = along_a_graph(LINE[:5], "k_concealment", 2)
    shown = cells_of_matches(LINE[:5], matches)
    found = posteriors(rows(lambda _: shown), (1,) * 5)
    assert worst_excess(found, [HALF] * 5) == 1 - HALF


def share_of(published: Hashable, whom: Hashable, histogram: tuple[int, ...]) -> list[Fraction]:
    """Return the share of each value among what is published about someone."""
    (values,) = [values for members, values in published if whom in members]  # type: ignore[attr-defined]
    return [Fraction(values.count(value), len(values)) for value in range(len(histogram))]
