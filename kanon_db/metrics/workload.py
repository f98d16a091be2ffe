"""Random count queries ([GB] Section 7.2).

Queries are drawn knowing only the numbers of values and evaluated on codes, so the same ones can be
put to any publication of a table. A query has one condition on each of some quasi-identifiers and
one on the sensitive attribute; a condition is a set of values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.errors import InvalidParameterError


@dataclass(frozen=True, eq=False)
class CountQuery:
    """``COUNT(*)`` of the records whose values lie in a set for each attribute of the query.

    Parameters
    ----------
    quasi_identifiers : mapping of int to ndarray of bool, shape (n_values,)
        For each quasi-identifier of the query, by its position: which of its codes match.
        Quasi-identifiers that are not named match with any code.
    sensitive : ndarray of bool, shape (m,)
        Which codes of the sensitive attribute match.
    selectivity : float
        Share of the records that would match if all attributes were uniform and independent.
    """

    quasi_identifiers: Mapping[int, BoolArray]
    sensitive: BoolArray
    selectivity: float


def random_queries(
    n_queries: int,
    n_values: Sequence[int],
    n_sensitive: int,
    generator: np.random.Generator,
    *,
    dimensionality: Sequence[int],
    selectivity: Sequence[float],
    pulse: Pulse = UNLIMITED,
) -> list[CountQuery]:
    """Draw count queries with random attributes and random sets of values.

    A query of dimensionality qd and expected selectivity s has conditions on qd random
    quasi-identifiers and on the sensitive attribute, each with ceil(n s^(1 / (qd + 1))) of the
    n values of its attribute.

    Parameters
    ----------
    n_queries : int
        At least 0.
    n_values : sequence of int
        Number of values of each quasi-identifier, at least 1.
    n_sensitive : int
        Number of values of the sensitive attribute, at least 1.
    generator : numpy.random.Generator
        The same state gives the same queries.
    dimensionality : sequence of int
        Values of qd, each from 1 to the number of quasi-identifiers; a query draws one of them.
    selectivity : sequence of float
        Values of s, each in (0, 1]; a query draws one of them.
    pulse : Pulse
        Beaten for each query; what that raises ends the drawing.

    Returns
    -------
    list of CountQuery

    Raises
    ------
    InvalidParameterError
        If a number lies outside its range.

    Notes
    -----
    **Source:** [GB] Section 7.2, which refers to X. Xiao, Y. Tao, *Anatomy: simple and effective
    privacy preservation*, VLDB 2006, Section 6.1. Both draw numerical values as sets, too, not as
    ranges.

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> [query] = random_queries(1, [9, 2], 4, generator, dimensionality=[1], selectivity=[0.25])
    >>> {a: int(codes.sum()) for a, codes in query.quasi_identifiers.items()}
    {1: 1}
    >>> int(query.sensitive.sum())
    2
    """
    if n_queries < 0 or n_sensitive < 1 or any(n < 1 for n in n_values):
        raise InvalidParameterError(
            "a workload needs at least one value of every attribute",
            detail=f"{n_queries} queries; fewest values: {min([n_sensitive, *n_values])}",
        )
    if not dimensionality or not all(1 <= qd <= len(n_values) for qd in dimensionality):
        raise InvalidParameterError(
            "a query's dimensionality must lie between 1 and the number of quasi-identifiers",
            detail=f"{len(n_values)} quasi-identifiers",
        )
    if not selectivity or not all(0 < s <= 1 for s in selectivity):
        raise InvalidParameterError("an expected selectivity must lie in (0, 1]")
    queries = []
    for i in range(n_queries):
        pulse.done(i, n_queries)
        qd = int(dimensionality[int(generator.integers(len(dimensionality)))])
        s = float(selectivity[int(generator.integers(len(selectivity)))])
        share = s ** (1 / (qd + 1))
        attributes = np.sort(generator.choice(len(n_values), qd, replace=False)).tolist()
        conditions = {a: _random_set(n_values[a], share, generator) for a in attributes}
        queries.append(CountQuery(conditions, _random_set(n_sensitive, share, generator), s))
    return queries


def _random_set(n_values: int, share: float, generator: np.random.Generator) -> BoolArray:
    chosen = np.zeros(n_values, dtype=np.bool_)
    # The power is not exact: 8 values at 1/8 must not become 2. A relative margin of 1e-9 is
    # far below 1 / n_values for every attribute that fits the memory.
    size = min(n_values, math.ceil(n_values * share * (1 - 1e-9)))
    chosen[generator.choice(n_values, max(1, size), replace=False)] = True
    return chosen
