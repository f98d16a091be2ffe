"""Optimal pattern-guided 2-anonymity ([PG] Theorem 2)."""

from __future__ import annotations

from collections.abc import Callable

import numpy.typing as npt

from kanon_db.algorithms.ground.pulse import no_heartbeat
from kanon_db.algorithms.suppression.optimal import OptimalSuppression, optimal
from kanon_db.algorithms.suppression.patterns import PatternSet


def two_anonymity(
    codes: npt.ArrayLike,
    patterns: PatternSet,
    *,
    time_limit: float = 60.0,
    heartbeat: Callable[[], None] = no_heartbeat,
) -> OptimalSuppression:
    """Suppress cells at the lowest cost so that no combination of kept cells occurs only once.

    Parameters
    ----------
    codes : array_like of int, shape (n_records, m)
        One code for each quasi-identifier of each record; equal values have equal codes.
    patterns : PatternSet
        Allowed patterns of the m columns.
    time_limit : float
        Seconds that the solver may take.
    heartbeat : callable
        Called every few milliseconds; what it raises ends the work.

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
    >>> found.status, found.suppression.n_suppressed
    ('optimal', 7)
    """
    return optimal(codes, patterns, 2, time_limit=time_limit, heartbeat=heartbeat)
