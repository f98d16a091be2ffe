"""Suppresses cells at the lowest cost for k = 2, in polynomial time ([PG] Theorem 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Final

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.computation import UNLIMITED, Proof, Pulse
from kanon_db.algorithms.suppression.greedy_suppression import Suppression, check_types
from kanon_db.algorithms.suppression.optimal_suppression import (
    OptimalSuppression,
    none_exists,
    usable_instances,
)
from kanon_db.algorithms.suppression.pattern_vectors import PatternSet
from kanon_db.errors import InvalidParameterError

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

    Notes
    -----
    **Source:** [PG] Theorem 2, which reduces the problem to Simplex Matching, and refers to others
    for that. Records that share what they keep can be divided into pairs and triples. Where it is
    settled which instances of patterns have a triple, the rest is a matching: each of these
    instances gets three places, and records are matched with each other or with places, at the
    least cost (J. Edmonds 1965). From none, or one where the number of records is odd, the search
    changes two instances at a time, as long as that costs less.

    That this ends in the optimum is a theorem on degrees with gaps of at most one, as here: an
    instance gets 0, 2, 3, … records (S. Dudycz, K. Paluch: *Optimal general matchings*, 2018; Y.
    Kobayashi: *Optimal general factor problem and jump system intersection*, 2023).
    ``tests/property/test_programs.py`` compares it with the paper's hypergraph and program.

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
    pattern_of_record = _search(instances, pulse)
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


def _search(instances: _PatternInstances, pulse: Pulse) -> IntArray:
    """Return the pattern of each record."""
    n, last = len(instances.cheapest), len(instances.members) - 1
    odd = frozenset([last] if n % 2 else [])
    chosen = _match(instances, odd)
    is_better = True
    while is_better:
        is_better = False
        for two in combinations(range(last + 1), 2):
            if 3 * len(odd.symmetric_difference(two)) > n:
                continue
            pulse.beat()
            changed = _match(instances, odd.symmetric_difference(two))
            if changed[0] < chosen[0]:
                odd, chosen, is_better = odd.symmetric_difference(two), changed, True
                break
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
    mates = _HeaviestMatching(weights.tolist()).mates()
    chosen = [
        int(instances.cheapest[i, mate]) if mate < n else places[mate - n]
        for i, mate in enumerate(mates[:n])
    ]
    # A place that no record takes would be matched with nothing.
    return (sum(costs[instance] for instance in chosen) if -1 not in mates else 1 << 62), chosen


class _HeaviestMatching:
    """A matching of the most weight in a graph, by blossoms and dual variables (J. Edmonds 1965).

    Vertices count from 1, as 0 is none; blossoms follow them.
    """

    def __init__(self, weights: Sequence[Sequence[int]]) -> None:
        n = self.n = self.n_used = len(weights)
        size = 2 * n + 1
        # The edge between two vertices or blossoms: its ends, and its weight; 0 is no edge.
        self.edges = [[(u, v, 0) for v in range(size)] for u in range(size)]
        for u in range(n):
            for v in range(n):
                self.edges[u + 1][v + 1] = (u + 1, v + 1, weights[u][v])
        heaviest = max(map(max, weights), default=0)
        self.duals = [heaviest if 1 <= u <= n else 0 for u in range(size)]
        self.mate = [0] * size
        self.slack = [0] * size
        self.outer = [u if u <= n else 0 for u in range(size)]  # the blossom around
        self.parent = [0] * size
        self.side = [-1] * size  # 0 at an even distance from a root, 1 at an odd one
        self.petals: list[list[int]] = [[] for _ in range(size)]
        self.petal_of = [[u if u == v else 0 for v in range(n + 1)] for u in range(size)]
        self.seen = [0] * size
        self.n_seen = 0
        self.waiting: list[int] = []

    def mates(self) -> list[int]:
        """Return the vertex that each is matched with, from 0, or -1."""
        while self._grow():
            pass
        return [mate - 1 for mate in self.mate[1 : self.n + 1]]

    def _distance(self, edge: tuple[int, int, int]) -> int:
        u, v, _ = edge
        return self.duals[u] + self.duals[v] - 2 * self.edges[u][v][2]

    def _note_slack(self, u: int, x: int) -> None:
        known = self.slack[x]
        if not known or self._distance(self.edges[u][x]) < self._distance(self.edges[known][x]):
            self.slack[x] = u

    def _find_slack(self, x: int) -> None:
        self.slack[x] = 0
        for u in range(1, self.n + 1):
            if self.edges[u][x][2] and self.outer[u] != x and self.side[self.outer[u]] == 0:
                self._note_slack(u, x)

    def _wait(self, x: int) -> None:
        if x <= self.n:
            self.waiting.append(x)
        for petal in self.petals[x] if x > self.n else []:
            self._wait(petal)

    def _enclose(self, x: int, outer: int) -> None:
        self.outer[x] = outer
        for petal in self.petals[x] if x > self.n else []:
            self._enclose(petal, outer)

    def _steps_to(self, blossom: int, petal: int) -> int:
        """Turn a blossom so that a petal is an even number of steps from its base; return it."""
        petals = self.petals[blossom]
        place = petals.index(petal)
        if place % 2:
            petals[1:] = petals[:0:-1]
            return len(petals) - place
        return place

    def _set_mate(self, u: int, v: int) -> None:
        edge = self.edges[u][v]
        self.mate[u] = edge[1]
        if u > self.n:
            petals, petal = self.petals[u], self.petal_of[u][edge[0]]
            n_steps = self._steps_to(u, petal)
            for i in range(n_steps):
                self._set_mate(petals[i], petals[i ^ 1])
            self._set_mate(petal, v)
            petals[:] = petals[n_steps:] + petals[:n_steps]

    def _augment(self, u: int, v: int) -> None:
        while True:
            before = self.outer[self.mate[u]]
            self._set_mate(u, v)
            if not before:
                return
            self._set_mate(before, self.outer[self.parent[before]])
            u, v = self.outer[self.parent[before]], before

    def _meeting(self, u: int, v: int) -> int:
        self.n_seen += 1
        while u or v:
            if u:
                if self.seen[u] == self.n_seen:
                    return u
                self.seen[u] = self.n_seen
                u = self.outer[self.mate[u]]
                if u:
                    u = self.outer[self.parent[u]]
            u, v = v, u
        return 0

    def _make_blossom(self, u: int, base: int, v: int) -> None:
        b = self.n + 1
        while b <= self.n_used and self.outer[b]:
            b += 1
        self.n_used = max(self.n_used, b)
        self.duals[b], self.side[b], self.mate[b] = 0, 0, self.mate[base]
        petals = self.petals[b] = [base]
        for end in (u, v):
            petals[1:] = petals[:0:-1]
            even = end
            while even != base:
                odd = self.outer[self.mate[even]]
                petals += even, odd
                self._wait(odd)
                even = self.outer[self.parent[odd]]
        self._enclose(b, b)
        for x in range(1, self.n_used + 1):
            self.edges[b][x] = (b, x, 0)
            self.edges[x][b] = (x, b, 0)
        self.petal_of[b] = [0] * (self.n + 1)
        for petal in petals:
            for x in range(1, self.n_used + 1):
                edge, known = self.edges[petal][x], self.edges[b][x]
                if not known[2] or self._distance(edge) < self._distance(known):
                    self.edges[b][x] = edge
                    self.edges[x][b] = self.edges[x][petal]
            for x in range(1, self.n + 1):
                if self.petal_of[petal][x]:
                    self.petal_of[b][x] = petal
        self._find_slack(b)

    def _open_blossom(self, b: int) -> None:
        petals = self.petals[b]
        for petal in petals:
            self._enclose(petal, petal)
        entered = self.petal_of[b][self.edges[b][self.parent[b]][0]]
        n_steps = self._steps_to(b, entered)
        for i in range(0, n_steps, 2):
            odd, even = petals[i], petals[i + 1]
            self.parent[odd] = self.edges[even][odd][0]
            self.side[odd], self.side[even] = 1, 0
            self.slack[odd] = 0
            self._find_slack(even)
            self._wait(even)
        self.side[entered], self.parent[entered] = 1, self.parent[b]
        for petal in petals[n_steps + 1 :]:
            self.side[petal] = -1
            self._find_slack(petal)
        self.outer[b] = 0

    def _follow(self, edge: tuple[int, int, int]) -> bool:
        """Grow a tree by a tight edge; tell whether the matching has grown."""
        u, v = self.outer[edge[0]], self.outer[edge[1]]
        if self.side[v] == -1:
            self.parent[v], self.side[v] = edge[0], 1
            after = self.outer[self.mate[v]]
            self.slack[v] = self.slack[after] = 0
            self.side[after] = 0
            self._wait(after)
        elif self.side[v] == 0:
            base = self._meeting(u, v)
            if not base:
                self._augment(u, v)
                self._augment(v, u)
                return True
            self._make_blossom(u, base, v)
        return False

    def _grow(self) -> bool:
        """Enlarge the matching by an edge; tell whether that was possible."""
        used = range(1, self.n_used + 1)
        self.side, self.slack = [-1] * len(self.side), [0] * len(self.slack)
        self.waiting = []
        for x in used:
            if self.outer[x] == x and not self.mate[x]:
                self.parent[x], self.side[x] = 0, 0
                self._wait(x)
        if not self.waiting:
            return False
        while True:
            if self._follow_tight():
                return True
            if not self._change_duals():
                return False
            self.waiting = []
            for x in range(1, self.n_used + 1):
                u = self.slack[x]
                if self.outer[x] == x and u and self.outer[u] != x:
                    edge = self.edges[u][x]
                    if self._distance(edge) == 0 and self._follow(edge):
                        return True
            for b in range(self.n + 1, self.n_used + 1):
                if self.outer[b] == b and self.side[b] == 1 and self.duals[b] == 0:
                    self._open_blossom(b)

    def _follow_tight(self) -> bool:
        place = 0
        while place < len(self.waiting):
            u = self.waiting[place]
            place += 1
            if self.side[self.outer[u]] == 1:
                continue
            for v in range(1, self.n + 1):
                edge = self.edges[u][v]
                if edge[2] and self.outer[u] != self.outer[v]:
                    if self._distance(edge):
                        self._note_slack(u, self.outer[v])
                    elif self._follow(edge):
                        return True
        return False

    def _change_duals(self) -> bool:
        """Make another edge tight, or a blossom empty; tell whether that was possible."""
        outer, side, duals = self.outer, self.side, self.duals
        blossoms = [b for b in range(self.n + 1, self.n_used + 1) if outer[b] == b]
        changes = [duals[b] // 2 for b in blossoms if side[b] == 1]
        for x in range(1, self.n_used + 1):
            if outer[x] == x and self.slack[x] and side[x] != 1:
                distance = self._distance(self.edges[self.slack[x]][x])
                changes.append(distance if side[x] == -1 else distance // 2)
        vertices = range(1, self.n + 1)
        least = min(duals[u] for u in vertices if side[outer[u]] == 0)
        change = min(changes, default=least)
        if least <= change:
            return False
        for u in vertices:
            duals[u] += change * {0: -1, 1: 1, -1: 0}[side[outer[u]]]
        for b in blossoms:
            duals[b] += 2 * change * {0: 1, 1: -1, -1: 0}[side[b]]
        return True
