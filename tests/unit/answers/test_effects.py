"""What each column decides of an answer, compared with all values that cells may stand for."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.answers.likelihoods import Judgement, judge
from kanon_db.answers.rows.cell_evidence import Effect, ListedColumn, Listing, combinations
from kanon_db.publications.rows.cell_columns import Truths
from kanon_db.query import expressions as ex

SIZES = (2, 3, 2)
"""How many values a record may have in each of three columns."""

SEEDS = st.integers(0, 10_000)


def weights(random: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    return [own / own.sum() for own in (random.random(size) + 0.05 for size in SIZES)]


def decided(
    truth: np.ndarray[Any, Any], x: np.ndarray[Any, Any], w: list[Any], place: int
) -> list[float]:
    """Return the variance of what is expected given a column's value, by all combinations."""
    others = tuple(other for other in range(len(SIZES)) if other != place)
    joint = np.einsum("i,j,k->ijk", *w)
    both = [(joint * truth * own).sum(axis=others) / w[place] for own in (np.ones(SIZES), x)]
    means = [float(w[place] @ own) for own in both]
    return [float(w[place] @ (both[a] * both[b])) - means[a] * means[b]
            for a, b in ((0, 0), (0, 1), (1, 1))]  # fmt: skip


@given(SEEDS)
def test_listed_columns_decide_what_differs_between_their_values(seed: int) -> None:
    random = np.random.default_rng(seed)
    w, evenly = weights(random), weights(random)
    truth, x = random.integers(0, 2, SIZES), random.normal(0, 5, SIZES)
    none = np.empty(0)
    lists = {
        place: Listing(
            np.zeros(1, dtype=np.int64), np.array([size]), np.arange(size), w[place],
            evenly[place], np.zeros(size, dtype=np.bool_), none, none,
        )
        for place, size in enumerate(SIZES)
    }  # fmt: skip
    codes = {place: np.zeros(1, dtype=np.int64) for place in lists}
    rows = combinations(lists, codes, 1)
    at = tuple(rows.at[place] for place in lists)
    for place in lists:
        column = ListedColumn(place, lists, rows, np.zeros(rows.w.size, dtype=np.int64))
        likely = truth[at].astype(np.float64)
        given_ = np.stack([column.expect(likely), column.expect(likely * x[at])])
        mean = np.array([[rows.w @ likely], [rows.w @ (likely * x[at])]])
        effect = Effect.of_values(mean, given_, column)
        found = effect.variances[:, 0]
        assert found == pytest.approx(decided(truth, x, w, place), abs=1e-9)
        other = [evenly[place] if one == place else w[one] for one in lists]
        changed = (np.einsum("i,j,k->ijk", *other) * truth).sum()
        assert effect.away[0, 0] == pytest.approx(mean[0, 0] - changed)


def column(name: str) -> ex.Expression:
    return ex.Comparison("=", ex.Column(name, name, ex.INTEGER), ex.Constant("1", ex.INTEGER))


A, B, C = map(column, "abc")
CONDITIONS = [
    A, ex.And((A, B, C)), ex.Or((A, ex.And((B, C)))), ex.Not(ex.And((A, B))),
    ex.And((A, ex.Not(ex.Or((B, C))))), ex.TruthTest(ex.And((A, B)), "true", negated=True),
    ex.TruthTest(ex.Or((A, B)), "false"),
]  # fmt: skip


@pytest.mark.parametrize("condition", CONDITIONS)
@given(SEEDS)
def test_leaves_decide_what_differs_where_they_hold(condition: ex.Expression, seed: int) -> None:
    random = np.random.default_rng(seed)
    p, evenly = random.random((2, 3))
    leaves = {}
    for number, leaf in enumerate((A, B, C)):
        likely = (np.array([x]) for x in (p[number], 1 - p[number]))
        flags = (np.array([flag]) for flag in (False, True, False, True))
        even = (np.array([x]) for x in (evenly[number], 1 - evenly[number]))
        leaves[leaf] = Judgement.of(Truths(*likely, *flags, *even), (number,))
    judged = judge(condition, leaves.__getitem__)

    def expected(p: Any) -> float:
        total = 0.0
        for world in itertools.product((False, True), repeat=3):
            known = dict(zip((A, B, C), world, strict=True))
            weight = np.prod([q if holds else 1 - q for q, holds in zip(p, world, strict=True)])
            total += weight * holds_in(condition, known)
        return float(total)

    mean = expected(p)
    assert judged.likely.true[0] == pytest.approx(mean)
    for (number,), own in judged.blocks.items():
        with_false, with_true = (
            expected([value if one == number else p[one] for one in range(3)]) for value in (0, 1)
        )
        ends = [np.array([[x.true[0]], [0.0]]) for x in (own.least, own.most)]
        means, even = (np.array([[x], [0.0]]) for x in (mean, own.evenly.true[0]))
        effect = Effect.of_leaf(means, even, (ends[0], ends[1]))
        spread = p[number] * (1 - p[number]) * (with_true - with_false) ** 2
        assert effect.variances[0, 0] == pytest.approx(spread, abs=1e-9)
        other = [evenly[one] if one == number else p[one] for one in range(3)]
        assert effect.away[0, 0] == pytest.approx(mean - expected(other), abs=1e-9)


def holds_in(condition: ex.Expression, known: dict[ex.Expression, bool]) -> bool:
    match condition:
        case ex.And(parts):
            return all(holds_in(part, known) for part in parts)
        case ex.Or(parts):
            return any(holds_in(part, known) for part in parts)
        case ex.Not(part):
            return not holds_in(part, known)
        case ex.TruthTest(part, wanted, negated):
            return (holds_in(part, known) == (wanted == "true")) != negated
    return known[condition]


def test_a_test_for_unknown_is_doubted_by_all_of_it() -> None:
    """It is likeliest where a leaf is NULL, not where that holds, or does not."""
    a, b = (
        Truths(
            *(np.array([x]) for x in likely), *(np.array([x]) for x in (False, True, False, True)),
            *(np.array([x]) for x in likely),
        )
        for likely in ((0.3, 0.4), (0.6, 0.1))
    )  # fmt: skip
    leaves = {A: Judgement.of(a, (0,)), B: Judgement.of(b, (1,))}
    judged = judge(ex.TruthTest(ex.And((A, B)), "unknown"), leaves.__getitem__)
    mean = judged.likely.true[0]
    assert mean == pytest.approx(0.3 * 0.3 + 0.3 * 0.6 + 0.3 * 0.3)
    own = judged.blocks[0,]
    effect = Effect.of_leaf(
        np.array([[mean]]), own.evenly.true[None],
        (own.least.true[None], own.most.true[None]),
    )  # fmt: skip
    # If a is true, b is NULL; never, if a is false; if a is NULL, b is not false.
    exact = sum(w * (p - mean) ** 2 for w, p in ((0.3, 0.3), (0.4, 0.0), (0.3, 0.9)))
    assert effect.variances[0, 0] >= exact
