"""Optimal pattern-guided 2-anonymity, by the integer program of all k."""

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
    **Source:** [PG] Section 2.2. **The polynomial algorithm of [PG] Theorem 2 is not implemented.**

    Theorem 2 reduces the problem for k = 2 to Simplex Matching: each record is a vertex, and each
    pair and each triple of records that share an allowed pattern is a hyperedge. For the matching,
    the paper refers to Anshelevich and Karagiozova (2011). The integer program finds the same
    optimum (``tests/property/test_programs.py`` compares it with the least matching of the paper's
    hypergraph), but its worst case is exponential. It is the better way in practice: with the
    all-star pattern, all pairs and triples are hyperedges, 5 * 10^8 and 6 * 10^12 of Adult's 32,561
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
