"""The papers' programs, as oracles of the exact methods: on small random tables, all agree.

Each program is solved as it is stated, by a solver that PuLP starts, and by the method ``optimal``
with the formulation ``paper``. Both are held to exhaustive search and to the method's default.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import combinations

import numpy as np
import pulp  # type: ignore[import-untyped]
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from kanon_db.algorithms import freeform, generalization, suppression
from kanon_db.algorithms.bucketization.multi_size import optimal as optimal_setting
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy
from kanon_db.algorithms.programs import (
    PaperProgram,
    bucket_program,
    class_program,
    graph_program,
    pattern_program,
)
from kanon_db.algorithms.recoding.microdata import Microdata
from kanon_db.errors import IneligibleError, InfeasibleError, InvalidParameterError
from tests.generalization_plain import assert_valid as assert_classes
from tests.generalization_plain import optimal_loss, total_loss
from tests.profiles import examples
from tests.property import generalization_tables, strategies
from tests.property.test_bucketization import Table, holds_every_set, least_loss
from tests.property.test_suppression import Rows, brute_force, published
from tests.unit.freeform.plain import assert_valid, graph_loss, least_graph

# PuLP 4, which pyproject.toml excludes, has CBC in a package of its own.
pytestmark = pytest.mark.filterwarnings("ignore:PULP_CBC_CMD is deprecated")
SOLVERS = st.sampled_from(["HiGHS", "PULP_CBC_CMD"])
LOSSES = st.sampled_from(["ncp", "binary"])


def least(program: PaperProgram, solver: str) -> float | None:
    """The optimum as a solver of PuLP finds it; None if there is no solution."""
    options = {"gapRel": 0} if solver == "HiGHS" else {}
    status = program.problem.solve(pulp.getSolver(solver, msg=False, **options))
    if status == pulp.LpStatusInfeasible:
        return None
    assert status == pulp.LpStatusOptimal
    # PuLP has no value where all losses are 0.
    return float(pulp.value(program.problem.objective) or 0)


# Without (2), buckets could hold other numbers of records than their sizes say.
@example(([6, 3, 2], (Fraction(3, 4), Fraction(3, 8), Fraction(3, 8))), 4, "HiGHS")
@given(strategies.tables(4, 5), st.integers(1, 6), SOLVERS)
@settings(max_examples=examples(80))
def test_buckets(table: Table, max_size: int, solver: str) -> None:
    if sum(table[0]) > 16:
        max_size = min(max_size, 4)
    counts, thresholds = table
    privacy, expected = FPrimePrivacy(thresholds), least_loss(table, max_size)
    smallest = privacy.smallest_bucket_size()
    assume(smallest <= max_size)
    found = least(bucket_program(counts, thresholds, smallest, max_size), solver)
    if expected is None:
        assert found is None
        with pytest.raises((IneligibleError, InfeasibleError)):
            optimal_setting(counts, privacy, max_size, formulation="paper")
        return
    assert found == pytest.approx(expected, abs=1e-6)
    for formulation in ("paper", "projected"):
        best = optimal_setting(counts, privacy, max_size, formulation=formulation)  # type: ignore[arg-type]
        assert best.proof.objective == best.proof.lower_bound == expected
        setting = best.setting
        assert setting.loss == expected
        assert holds_every_set(table, setting.sizes.tolist(), setting.counts.tolist())


def holds_null(table: Microdata) -> bool:
    """Whether a number is missing where numbers have a range."""
    return any(
        attribute.numbers is not None
        and attribute.upper > attribute.lower
        and bool(np.isnan(attribute.numbers[column]).any())
        for attribute, column in zip(table.attributes, table.codes.T, strict=True)
    )


@given(generalization_tables.tables(6, 3), LOSSES, SOLVERS)
@settings(max_examples=examples(60))
def test_classes(given_table: tuple[Microdata, int], loss: str, solver: str) -> None:
    table, k = given_table
    has_null = holds_null(table)
    expected = optimal_loss(table, k, loss)
    if has_null:
        with pytest.raises(InvalidParameterError, match="cannot handle NULL"):
            class_program(table, k)
    else:
        found = least(class_program(table, k, loss=loss), solver)  # type: ignore[arg-type]
        assert found == pytest.approx(float(expected), abs=1e-6)
    for formulation in ("set_partition",) if has_null else ("paper", "set_partition"):
        best = generalization.optimal(table, k, formulation=formulation, loss=loss)  # type: ignore[arg-type]
        assert best.proof.objective == best.proof.lower_bound == expected
        assert total_loss(table, best.class_of_record, loss) == expected
        assert_classes(best.class_of_record, table.n_records, k)


@given(generalization_tables.tables(6, 3), SOLVERS)
@settings(max_examples=examples(60))
def test_graphs(given_table: tuple[Microdata, int], solver: str) -> None:
    table, k = given_table
    has_null = holds_null(table)
    expected = least_graph(table, k)
    if has_null:
        with pytest.raises(InvalidParameterError, match="cannot handle NULL"):
            graph_program(table, k)
    else:
        found = least(graph_program(table, k), solver)
        assert found == pytest.approx(float(expected), abs=1e-6)
    for formulation in ("match_sets",) if has_null else ("paper", "match_sets"):
        best = freeform.optimal(table, k, formulation=formulation)  # type: ignore[arg-type]
        assert best.proof.objective == best.proof.lower_bound == expected
        assert graph_loss(table, best.matches) == expected
        assert_valid(table, best.matches, k)


@st.composite
def suppressed_tables(draw: st.DrawFn) -> tuple[Rows, suppression.PatternSet, int]:
    """Up to seven records, some patterns with weights or without, and a k."""
    m = draw(st.integers(1, 3))
    row = st.lists(st.integers(0, 2), min_size=m, max_size=m)
    rows = draw(st.lists(row, min_size=2, max_size=7))
    masks = draw(st.lists(st.integers(0, 2**m - 1), min_size=1, max_size=4))
    weights = draw(st.one_of(st.none(), st.lists(st.integers(1, 4), min_size=m, max_size=m)))
    return rows, suppression.PatternSet.of(masks, m, weights), draw(st.integers(1, 4))


@given(suppressed_tables(), SOLVERS)
@settings(max_examples=examples(80))
def test_patterns(table: tuple[Rows, suppression.PatternSet, int], solver: str) -> None:
    rows, patterns, k = table
    expected = brute_force(rows, patterns, k)
    types = suppression.RowTypes.of(rows)
    found = least(
        pattern_program(
            types.codes, types.counts.tolist(), patterns.stars, patterns.costs.tolist(), k
        ),
        solver,
    )
    if expected is None:
        assert found is None
        with pytest.raises(InfeasibleError):
            suppression.optimal(rows, patterns, k, formulation="paper")
        return
    assert found == pytest.approx(expected, abs=1e-6)
    for formulation in ("paper", "reduced"):
        best = suppression.optimal(rows, patterns, k, formulation=formulation)  # type: ignore[arg-type]
        assert best.proof.objective == best.proof.lower_bound == expected / patterns.cost_unit
        assert best.suppression.cost == best.proof.objective
        shown = published(rows, best.suppression.suppressed.tolist())
        assert min(shown.count(one) for one in shown) >= k
    try:
        greedy = suppression.greedy(rows, patterns, k)
    except InfeasibleError:
        assert not patterns.suppresses_fully
        return
    if patterns.masks[0] == 0 and (patterns.costs == patterns.n_stars).all():
        assert greedy.n_suppressed <= patterns.n_columns * expected


# --- [PG] Theorem 2 -------------------------------------------------------------------------------


def hyperedges(rows: Rows, patterns: suppression.PatternSet) -> dict[frozenset[int], int]:
    """The hypergraph of Theorem 2: pairs and triples of records that share an allowed pattern."""
    stars, costs = patterns.stars.tolist(), patterns.costs.tolist()
    found = {}
    for size in (2, 3):
        for members in combinations(range(len(rows)), size):
            suitable = [
                cost
                for mask, cost in zip(stars, costs, strict=True)
                if len(set(published([rows[i] for i in members], [mask] * size))) == 1
            ]
            if suitable:
                found[frozenset(members)] = size * min(suitable)
    return found


def least_matching(n: int, costs: dict[frozenset[int], int]) -> int | None:
    """Lowest cost of hyperedges that hold each vertex exactly once."""

    @cache
    def least_of(left: frozenset[int]) -> int | None:
        if not left:
            return 0
        totals = [
            cost + rest
            for edge, cost in costs.items()
            if min(left) in edge and edge <= left and (rest := least_of(left - edge)) is not None
        ]
        return min(totals, default=None)

    return least_of(frozenset(range(n)))


@given(suppressed_tables())
@settings(max_examples=examples(100))
def test_two_anonymity_costs_what_the_least_simplex_matching_costs(
    table: tuple[Rows, suppression.PatternSet, int],
) -> None:
    rows, patterns, _ = table
    costs = hyperedges(rows, patterns)
    for edge, cost in costs.items():
        if len(edge) == 3:  # conditions 1 and 2 of Simplex Matching
            pairs = [costs[frozenset(pair)] for pair in combinations(edge, 2)]
            assert sum(pairs) <= 2 * cost
    expected = least_matching(len(rows), costs)
    if expected is None:
        with pytest.raises(InfeasibleError):
            suppression.two_anonymity(rows, patterns)
        return
    best = suppression.two_anonymity(rows, patterns)
    assert best.proof.objective == best.proof.lower_bound == Fraction(expected, patterns.cost_unit)
    assert best.suppression.cost == suppression.optimal(rows, patterns, 2).proof.objective
    shown = published(rows, best.suppression.suppressed.tolist())
    assert min(shown.count(one) for one in shown) >= 2
