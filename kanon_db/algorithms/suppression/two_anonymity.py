"""Suppresses cells at the lowest cost for k = 2, in polynomial time ([PG] Theorem 2)."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, cycle
from typing import Final

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.computation import UNLIMITED, Proof, Pulse
from kanon_db.algorithms.suppression.greedy_suppression import Suppression, check_types
from kanon_db.algorithms.suppression.optimal_suppression import (
    OptimalSuppression,
    PatternOptions,
    none_exists,
    usable_instances,
)
from kanon_db.algorithms.suppression.pattern_vectors import PatternSet
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError, ServerError

MOST_RECORDS: Final = 60
"""A matching takes O(n³) steps, and there are as many as pairs of instances of patterns."""


def two_anonymity(
    codes: npt.ArrayLike, patterns: PatternSet, *, pulse: Pulse = UNLIMITED
) -> OptimalSuppression:
    """Suppress cells at the lowest cost so that no combination of kept cells occurs only once.

    Parameters
    ----------
    codes : array_like of int, shape (n_records, m)
        One code for each quasi-identifier of each record; equal values have equal codes. At most
        :data:`MOST_RECORDS` records.
    patterns : PatternSet
        Allowed patterns of the m columns.
    pulse : Pulse
        Beaten before each matching; what that raises ends the work.

    Returns
    -------
    OptimalSuppression

    Raises
    ------
    InfeasibleError
        If no suppression by these patterns exists.
    InvalidParameterError
        If there are too many records, or ``codes`` and ``patterns`` do not match.
    ServerError
        Without the extra ``matchings``: networkx finds them.

    Notes
    -----
    **Source:** [PG] Theorem 2, which reduces the problem to Simplex Matching, and refers to others
    for that. Records that share what they keep can be divided into pairs and triples. Where it is
    settled which instances of patterns have a triple, the rest is a matching: each of these
    instances gets three places, and records are matched with each other or with places, at the
    least cost (J. Edmonds 1965). From none, or one where the number of records is odd, the search
    changes two instances at a time, as long as that costs less.

    An instance gets 0, 2, 3, … records: degrees with gaps of at most one, for which this search
    ends at the optimum (S. Dudycz, K. Paluch: *Optimal general matchings*, 2018; another proof, and
    weights: Y. Kobayashi, *Optimal general factor problem and jump system intersection*, 2023).
    ``tests/property/test_programs.py`` compares with the paper's hypergraph and with the program.
    **Deviation:** the search also ends where the cost is that of the program's linear relaxation.

    Cost: each change lowers the cost by one unit at least, so that there are at most n max(cost) of
    them; each looks at the pairs of at most n p / 2 instances, with a matching of at most 2 n
    vertices in O(n³). Polynomial where costs are numbers of stars; the integer program of
    :func:`~kanon_db.algorithms.suppression.optimal_suppression.optimal` is faster in practice.

    Examples
    --------
    >>> from kanon_db.algorithms.suppression.pattern_vectors import parse_patterns
    >>> rows = [[1, 0, 2], [0, 0, 0], [2, 0, 2], [0, 0, 2], [0, 2, 0]]
    >>> found = two_anonymity(rows, parse_patterns([".**", "*..", "*.*"], 3))
    >>> found.proof.status, found.suppression.n_suppressed
    ('optimal', 7)
    """
    types = check_types(codes, patterns, 2)
    n = types.n_records
    if n > MOST_RECORDS:
        raise InvalidParameterError(
            "the table is too large for the polynomial algorithm of 2-anonymity",
            detail=f"n_records = {n:,}, limit = {MOST_RECORDS}",
            hint="use the method optimal",
        )
    if n == 0:
        return OptimalSuppression(
            Suppression(patterns, np.zeros(0, dtype=np.int64)), Proof.of(0, 0)
        )
    if n == 1:
        raise none_exists(n, 2)
    of_types = usable_instances(types, patterns, 2, pulse)
    instances = _PatternInstances.of(of_types[types.type_of_record], patterns.costs)
    least = PatternOptions.of(types, patterns, 2, pulse).program(2).solve_relaxation(pulse)
    pattern_of_record = _search(instances, least, pulse)
    if (pattern_of_record == len(patterns)).any():
        raise none_exists(n, 2)
    cost = int(patterns.costs[pattern_of_record].sum())
    proof = Proof.of(cost, cost, Fraction(1, patterns.cost_unit))
    return OptimalSuppression(Suppression(patterns, pattern_of_record), proof)


@dataclass(frozen=True, eq=False)
class _PatternInstances:
    """The instances of patterns; the last one takes all records, at more than any suppression."""

    members: list[list[int]]
    costs: list[int]  # Of one record
    patterns: list[int]
    cheapest: IntArray  # (n, n): the instance that costs two records least

    @classmethod
    def of(cls, instance_of_record: IntArray, costs: IntArray) -> _PatternInstances:
        n, p = instance_of_record.shape
        members, own_costs, patterns = [], [], []
        for pattern in range(p):
            of_pattern = instance_of_record[:, pattern]
            for instance in np.unique(of_pattern[of_pattern >= 0]):
                members.append(np.flatnonzero(of_pattern == instance).tolist())
                own_costs.append(int(costs[pattern]))
                patterns.append(pattern)
        members.append(list(range(n)))
        own_costs.append(n * int(costs.max()) + 1)
        patterns.append(p)
        cheapest = np.empty((n, n), dtype=np.int64)
        for instance in sorted(range(len(members)), key=lambda i: -own_costs[i]):
            cheapest[np.ix_(members[instance], members[instance])] = instance
        return cls(members, own_costs, patterns, cheapest)


def _search(instances: _PatternInstances, least: int, pulse: Pulse) -> IntArray:
    """Return the pattern of each record; nothing can cost less than ``least``."""
    n, last = len(instances.cheapest), len(instances.members) - 1
    odd = frozenset([last] if n % 2 else [])
    chosen = _match(instances, odd)
    pairs = list(combinations(range(last + 1), 2))
    n_idle = 0  # pairs in turn that would cost no less
    for two in cycle(pairs):
        if chosen[0] <= least or n_idle == len(pairs):
            break
        n_idle += 1
        changed_odd = odd.symmetric_difference(two)
        if 3 * len(changed_odd) > n:
            continue
        pulse.beat()
        changed = _match(instances, changed_odd)
        if changed[0] < chosen[0]:
            odd, chosen, n_idle = changed_odd, changed, 0
    return np.array([instances.patterns[instance] for instance in chosen[1]])


def _match(instances: _PatternInstances, odd: frozenset[int]) -> tuple[int, list[int]]:
    """Return the least cost, and each record's instance, where some have three places."""
    n, costs = len(instances.cheapest), instances.costs
    places = [instance for instance in sorted(odd) for _ in range(3)]
    size = n + len(places)
    enough = 2 * size * costs[-1]  # so that all are matched
    weights = np.zeros((size, size), dtype=np.int64)
    weights[:n, :n] = enough - 2 * np.array(costs)[instances.cheapest]
    for place, instance in enumerate(places, start=n):
        weights[instances.members[instance], place] = enough - costs[instance]
    weights = np.maximum(weights, weights.T)
    np.fill_diagonal(weights, 0)
    mates = _mates(weights)
    chosen = [
        int(instances.cheapest[i, mate]) if mate < n else places[mate - n]
        for i, mate in enumerate(mates[:n])
    ]
    # A place that no record takes would be matched with nothing.
    return (sum(costs[instance] for instance in chosen) if -1 not in mates else 1 << 62), chosen


def _mates(weights: IntArray) -> list[int]:
    """Return the vertex that each is matched with in a heaviest matching, or -1."""
    try:
        from networkx import Graph, max_weight_matching
    except ImportError:
        raise ServerError(
            "2-anonymity in polynomial time needs a package that is not installed here",
            detail="networkx",
            hint="pip install 'kanon_db[matchings]', or use the method optimal",
        ) from None
    ends = np.nonzero(np.triu(weights))
    graph = Graph()
    graph.add_weighted_edges_from(
        zip(*(one.tolist() for one in ends), weights[ends].tolist(), strict=True)
    )
    mates = [-1] * len(weights)
    for one, other in max_weight_matching(graph):
        mates[one], mates[other] = other, one
    return mates
