"""What is called optimal is: of the loss, and of the records, that are published."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from kanon_db.algorithms.freeform import FreeformMatches, numbered_cells
from kanon_db.algorithms.ground.computation import Proof, Pulse
from kanon_db.algorithms.recoding import Constraint, Microdata
from kanon_db.algorithms.recoding.microdata import Attribute, Taxonomy
from kanon_db.declaration.operation import read_request
from kanon_db.metrics.information_loss import measure_classes, measure_freeform
from kanon_db.publications.freeform import methods as freeform
from kanon_db.publications.freeform.request import FreeformRequest
from kanon_db.publications.generalized import kind, methods
from kanon_db.publications.generalized.kind import find_classes
from kanon_db.publications.generalized.request import GeneralizedRequest

HEURISTICS = ("split_carry", "greedy_search", "k_member", "mondrian", "initial")
SORTS = ("numbers", "bins", "labels", "sets")
WITH_L = [
    pytest.param(sort, l, suppressed, marks=[] if is_short else [pytest.mark.long])
    for i, sort in enumerate(SORTS)
    for l in (None, 2)
    for suppressed in ("0", "0.3")
    for is_short in [(i + (l is None) + (suppressed == "0")) % 2 == 0]
]
"""Each two of a sort of domain, a constraint and a share that may be left out; all three: long."""

with_l = pytest.mark.parametrize(("sort", "l", "suppressed"), WITH_L)


def attribute(sort: str) -> Attribute:
    """A domain of six values."""
    if sort == "numbers":
        return Attribute(6, np.arange(6.0), 0, 6)
    if sort == "bins":
        lows = np.array([0.0, 5, 10, 15, 20, 40])
        return Attribute(6, lows, 0, 50, ends=np.append(lows[1:], 50.0))
    if sort == "labels":
        tree = Taxonomy.of([["x", "x", "x", "x", "y", "z"], ["X", "X", "X", "X", "Y", "Y"]])
        positions = tree.positions
        return Attribute(6, positions, 0, float(positions[-1]), taxonomy=tree)
    return Attribute(6)


def optimum(data: Microdata, k: int, constraint: Constraint | None, n_suppressed: int) -> float:
    """The least loss of anything that may be published."""
    n = data.n_records
    of_suppressed = sum(one.weight for one in data.attributes)
    losses = {}
    for mask in range(1, 2**n):
        members = np.array([record for record in range(n) if mask >> record & 1])
        alone = np.zeros(members.size, dtype=np.int64)
        if members.size >= k and (
            constraint is None or constraint.restricted_to(members).holds_for(alone).all()
        ):
            own = Microdata(data.codes[members], data.attributes)
            losses[mask] = measure_classes(own, alone).weighted_loss

    @cache
    def least(left: int, n_left_out: int) -> float:
        if not left:
            return 0.0
        first = left & -left
        found = [
            loss + least(left & ~mask, n_left_out)
            for mask, loss in losses.items()
            if mask & first and not mask & ~left
        ]
        if n_left_out:
            found.append(of_suppressed + least(left & ~first, n_left_out - 1))
        return min(found, default=float("inf"))

    return least(2**n - 1, n_suppressed)


def tables(
    sort: str, l: int | None, suppressed: str
) -> Iterator[tuple[Microdata, Constraint | None, float]]:
    """Small tables, constraints on them, and the least loss."""
    for seed in range(6):
        random = np.random.default_rng(seed)
        data = Microdata(random.integers(0, 6, (7, 2)), (attribute(sort), attribute("numbers")))
        constraint = None if l is None else Constraint(np.array([0, 1, 0, 0, 1, 2, 0]), 3, l=l)
        yield data, constraint, optimum(data, 2, constraint, int(Fraction(suppressed) * 7))


def published(
    data: Microdata, constraint: Constraint | None, method: str, **given: Any
) -> tuple[float, Proof | None]:
    """What a method publishes: the loss, and the proof that is shown."""
    asked = {"source": "public.t", "publication": "p", "k": 2, "method": method, **given}
    request = read_request(GeneralizedRequest, asked)
    pulse = Pulse(10)
    found = find_classes(
        data, request, constraint, pulse, method=method,
        search=lambda records: getattr(methods, method)(records, request, pulse),
        on_step=lambda _name: None,
    )  # fmt: skip
    return measure_classes(data, found.result).weighted_loss, found.proof


def check_proof(proof: Proof | None, loss: float, best: float) -> None:
    assert loss >= best - 1e-9
    if proof is not None:
        shown = proof.metrics
        assert shown["lower_bound"] <= best + 1e-9
        assert shown["lower_bound"] <= loss
        assert shown["gap"] > 0 or loss == pytest.approx(best)


@pytest.mark.long
@with_l
@pytest.mark.pitfall(46)
def test_a_bound_is_one_of_what_is_published(sort: str, l: int | None, suppressed: str) -> None:
    for data, constraint, best in tables(sort, l, suppressed):
        share = Fraction(suppressed)
        loss, proof = published(data, constraint, "optimal", max_suppressed=share)
        assert proof is not None
        check_proof(proof, loss, best)
        assert proof.gap == 0


@pytest.mark.long
@with_l
@pytest.mark.pitfall(46)
def test_bounds_of_tables_that_are_not_tried_out(
    monkeypatch: pytest.MonkeyPatch, sort: str, l: int | None, suppressed: str
) -> None:
    """As larger tables, on which the optimum cannot be looked up."""
    monkeypatch.setattr(kind, "MOST_RECORDS", 0)
    for data, constraint, best in tables(sort, l, suppressed):
        share = Fraction(suppressed)
        loss, proof = published(data, constraint, "optimal", max_suppressed=share)
        check_proof(proof, loss, best)
        assert (proof is None) == (sort == "labels" or suppressed != "0")


@pytest.mark.long
@with_l
@pytest.mark.pitfall(46)
def test_no_heuristic_publishes_less_loss(sort: str, l: int | None, suppressed: str) -> None:
    for seed in range(2):
        random = np.random.default_rng(seed)
        data = Microdata(random.integers(0, 6, (24, 2)), (attribute(sort), attribute("numbers")))
        constraint = None if l is None else Constraint(random.integers(0, 3, 24), 3, l=l)
        share = Fraction(suppressed)
        loss, _ = published(data, constraint, "optimal", max_suppressed=share)
        for method in HEURISTICS:
            other, _ = published(data, constraint, method, max_suppressed=share, refine=False)
            assert loss <= other + 1e-9, method


@pytest.mark.pitfall(46)
@pytest.mark.parametrize("n_attributes", [1, 2])
@pytest.mark.parametrize("digits", [2, 15])
def test_a_gap_is_none_only_where_losses_are_exact(digits: int, n_attributes: int) -> None:
    random = np.random.default_rng(digits)
    numbers = [np.sort(random.random(20).round(digits)) for _ in range(n_attributes)]
    attributes = tuple(Attribute(20, own, 0.0, 1.0) for own in numbers)
    data = Microdata(np.repeat(np.arange(20)[:, np.newaxis], n_attributes, axis=1), attributes)
    loss, proof = published(data, None, "optimal")
    assert proof is not None
    assert proof.lower_bound <= loss + 1e-12
    assert proof.gap == 0 if digits == 2 else 0 < proof.gap < 1e-6


@pytest.mark.pitfall(46)
def test_values_of_the_report() -> None:
    """Sensitive values p, q, NULL, NULL, p, r, p; then one record too many; then bins."""
    ages = Attribute(7, np.arange(7.0) * 3, 0, 18)
    rx = Microdata(np.arange(7)[:, np.newaxis], (ages,))
    sick = Constraint(np.array([0, 1, 3, 3, 0, 2, 0]), 4, l=2)
    least = optimum(rx, 2, sick, 0)
    loss, proof = published(rx, sick, "optimal")
    assert loss == pytest.approx(least)
    assert proof is not None
    assert proof.gap == 0
    apart = Attribute(3, np.array([0.0, 50, 100]), 0, 100)
    two = Microdata(np.array([[0], [0], [1], [1], [2]]), (apart,))
    loss, proof = published(two, None, "optimal", max_suppressed=Fraction("0.2"))
    assert (loss, proof) == (1.0, Proof(Fraction(1), Fraction(1)))
    lows = np.array([0.0, 5, 10, 20])
    bins = Attribute(4, lows, 0, 25, ends=lows + 5)
    rounded = Microdata(np.array([[0], [0], [1], [1], [2], [2], [3]]), (bins,))
    loss, proof = published(rounded, None, "optimal")
    assert loss == pytest.approx(optimum(rounded, 2, None, 0))
    assert proof is not None
    assert proof.lower_bound == Fraction(loss)


@pytest.mark.long
@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.pitfall(46)
def test_freeform_bounds_are_of_what_is_published(sort: str) -> None:
    n = 5
    for seed in range(6):
        random = np.random.default_rng(seed)
        data = Microdata(random.integers(0, 6, (n, 2)), (attribute(sort), attribute("numbers")))
        asked = {"source": "public.t", "publication": "p", "k": 2, "method": "optimal"}
        request = read_request(FreeformRequest, asked)

        def loss_of(found: FreeformMatches, data: Microdata = data) -> float:
            return measure_freeform(data, numbered_cells(data, found)).weighted_loss

        own = np.arange(n)
        best = min(
            loss_of(FreeformMatches.whole(np.column_stack([own, other]).astype(np.int32)))
            for other in map(np.array, permutations(range(n)))
            if (other != own).all()
        )
        found = freeform.optimal(data, request, Pulse(10))
        check_proof(found.proof, loss_of(found.result), best)
        for method in ("sort_greedy", "greedy", "hungarian"):
            heuristic = getattr(freeform, method)(data, replace(request, method=method), Pulse(10))
            assert loss_of(found.result) <= loss_of(heuristic.result) + 1e-9
