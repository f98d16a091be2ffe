from __future__ import annotations

from fractions import Fraction

from kanon_db.algorithms.ground.computation import Proof


def test_units() -> None:
    proof = Proof.of(10, 9, Fraction(1, 4))
    assert (proof.objective, proof.lower_bound) == (Fraction(5, 2), Fraction(9, 4))
    assert (proof.status, proof.is_optimal, proof.gap) == ("feasible", False, 0.1)


def test_a_bound_above_the_objective_proves_no_more_than_it() -> None:
    proof = Proof.of(10, 12)
    assert proof == Proof(Fraction(10), Fraction(10))
    assert (proof.status, proof.gap) == ("optimal", 0.0)


def test_nothing_to_lose() -> None:
    assert Proof.of(0, 0).gap == 0.0
    assert Proof.of(0, 0).is_optimal
