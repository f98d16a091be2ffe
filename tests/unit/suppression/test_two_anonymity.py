"""The polynomial algorithm of 2-anonymity, beside the program."""

from __future__ import annotations

import numpy as np
import pytest

from kanon_db.algorithms import suppression
from kanon_db.algorithms.suppression.two_anonymity import MOST_RECORDS
from kanon_db.errors import InfeasibleError, InvalidParameterError


def test_two_anonymity_is_optimal_on_a_larger_table() -> None:
    rows = np.random.default_rng(5).integers(0, 3, (23, 5)).tolist()
    patterns = suppression.parse_patterns(["..*.*", ".**..", "***..", "*****", "....."], 5)
    polynomial = suppression.two_anonymity(rows, patterns)
    program = suppression.optimal(rows, patterns, 2)
    assert polynomial.proof.status == program.proof.status == "optimal"
    assert polynomial.suppression.n_suppressed == program.suppression.n_suppressed
    shown = [
        tuple(None if star else value for value, star in zip(row, stars, strict=True))
        for row, stars in zip(rows, polynomial.suppression.suppressed.tolist(), strict=True)
    ]
    assert min(shown.count(row) for row in shown) >= 2


def test_what_two_anonymity_cannot_do_is_refused() -> None:
    patterns = suppression.parse_patterns(["."], 1)
    for rows in ([[1]], [[1], [1], [2]]):
        with pytest.raises(InfeasibleError):
            suppression.two_anonymity(rows, patterns)
    with pytest.raises(InvalidParameterError, match="too large"):
        suppression.two_anonymity([[1]] * (MOST_RECORDS + 1), patterns)
    assert suppression.two_anonymity([[1]] * 3, patterns).suppression.n_suppressed == 0
