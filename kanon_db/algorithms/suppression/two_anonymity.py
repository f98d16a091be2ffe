"""Optimal pattern-guided 2-anonymity ([PG] Theorem 2)."""

from __future__ import annotations

import numpy.typing as npt

from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.suppression.optimal import OptimalSuppression, optimal
from kanon_db.algorithms.suppression.patterns import PatternSet


def two_anonymity(
    codes: npt.ArrayLike,
    patterns: PatternSet,
    *,
    pulse: Pulse = UNLIMITED,
) -> OptimalSuppression:
    """Suppress cells at the lowest cost so that no combination of kept cells occurs only once.

    Parameters
    ----------
    codes : array_like of int, shape (n_records, m)
        One code for each quasi-identifier of each record; equal values have equal codes.
    patterns : PatternSet
        Allowed patterns of the m columns.
    pulse : Pulse
        Beaten every few milliseconds; what that raises ends the work.

    Returns
    -------
    OptimalSuppression

    Raises
    ------
    InfeasibleError, InvalidParameterError
        As :func:`~kanon_db.algorithms.suppression.optimal.optimal`.

    Notes
    -----
    **Source:** [PG] Theorem 2: for k = 2, simplex matching makes the problem polynomial.

    Deviation: the integer program of Section 2.2 finds the same optimum, and is the better way in
    practice, although its worst case is exponential. Simplex matching takes each record for a
    vertex, and each pair and triple that shares an allowed pattern for a hyperedge. With the
    all-star pattern these are all of them: 5 * 10^8 pairs and 6 * 10^12 triples of Adult's 32,561
    records, where the program has 10^5 variables, since identical records, and records with the
    same choices, are one in it.

    Examples
    --------
    >>> from kanon_db.algorithms.suppression.patterns import parse_patterns
    >>> rows = [[1, 0, 2], [0, 0, 0], [2, 0, 2], [0, 0, 2], [0, 2, 0]]
    >>> found = two_anonymity(rows, parse_patterns([".**", "*..", "*.*"], 3))
    >>> found.proof.status, found.suppression.n_suppressed
    ('optimal', 7)
    """
    return optimal(codes, patterns, 2, pulse=pulse)
