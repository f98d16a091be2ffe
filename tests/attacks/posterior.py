"""What someone infers who knows a method: the posterior over all microdata, by enumeration.

The attacker knows everybody's quasi-identifiers, the method, and how often each sensitive value
occurs in the table, and holds all tables with these counts for equally likely. With the
publication P in hand, they believe that person r has the value x with the probability

    sum of Pr(P | D) over the tables D in which r has x  /  sum of Pr(P | D) over all tables D,

where Pr(P | D) comes from running the method on D. If all values are distinct, a value names a
row, and this is the probability that the row is the person's.

:func:`posteriors` runs a method once for each outcome of its randomness, and is exact;
:func:`chance_within_bounds` runs it on random tables, and tests.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import permutations
from typing import Any, TypeVar

import numpy as np

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.errors import IneligibleError, InfeasibleError
from kanon_db.randomness import SecureRandom

Result = TypeVar("Result")
Table = tuple[int, ...]
"""The sensitive value of each person, as a position in the histogram."""

Publish = Callable[[Table, Any], Hashable]
"""Publishes a table with a source of randomness: all that readers see, in one form only."""

Posterior = list[list[Fraction]]
"""The probability of each value, for each person."""

REFUSED = None
"""In the place of a publication where there is none: the bounds are about publications."""


def tables_of(histogram: Sequence[int]) -> Iterator[Table]:
    """List all tables in which each value occurs so often."""
    if not sum(histogram):
        yield ()
    for value, count in enumerate(histogram):
        if count:
            rest = [n - (other == value) for other, n in enumerate(histogram)]
            yield from ((value, *others) for others in tables_of(rest))


class Outcomes:
    """A source of randomness that has every outcome once; see :func:`every_outcome`."""

    def __init__(self) -> None:
        self._taken: list[int] = []
        self._sizes: list[int] = []
        self._at = 0

    def choose(self, n: int) -> int:
        """Return one of ``0 … n-1``."""
        if self._at == len(self._taken):
            self._taken.append(0)
            self._sizes.append(n)
        assert self._sizes[self._at] == n, "there is other randomness than this"
        self._at += 1
        return self._taken[self._at - 1]

    def permutation(self, n: int) -> IntArray:
        """Return an order of ``0 … n-1``."""
        order: IntArray = _orders(n)[self.choose(math.factorial(n))].copy()
        return order

    @property
    def probability(self) -> Fraction:
        """How likely the outcome is that was last seen."""
        return Fraction(1, math.prod(self._sizes))

    def advance(self) -> bool:
        """Go on to the next outcome; False after the last one."""
        self._at = 0
        while self._taken and self._taken[-1] + 1 == self._sizes[-1]:
            self._taken.pop()
            self._sizes.pop()
        if self._taken:
            self._taken[-1] += 1
        return bool(self._taken)


def every_outcome(
    run: Callable[[Any], Result], random: Outcomes | None = None
) -> Iterator[tuple[Result, Fraction]]:
    """Run something with every outcome of its randomness: what it returns, and how likely."""
    random = random or Outcomes()
    yield run(random), random.probability
    while random.advance():
        yield run(random), random.probability


def posteriors(
    publish: Publish, histogram: Sequence[int], new_random: Callable[[], Outcomes] = Outcomes
) -> dict[Hashable, Posterior]:
    """Compute the exact posterior, given each publication that there can be.

    It is of shape (n_records, m); ``publish`` draws only what ``new_random()`` offers.
    """
    n, m = sum(histogram), len(histogram)
    likelihood: dict[Hashable, dict[Table, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for table in tables_of(histogram):
        for published, probability in every_outcome(
            lambda random: _published(publish, table, random), new_random()
        ):
            likelihood[published][table] += probability
    likelihood.pop(REFUSED, None)
    found = {}
    for published, tables in likelihood.items():
        total = sum(tables.values())
        posterior = [[Fraction(0)] * m for _ in range(n)]
        for table, probability in tables.items():
            for person, value in enumerate(table):
                posterior[person][value] += probability / total
        found[published] = posterior
    return found


def of_attribute(
    found: dict[Hashable, Posterior], values: Sequence[int], n_values: int
) -> dict[Hashable, Posterior]:
    """Compute the posterior of one attribute's values from that of combinations, which have them.

    `values` is the value that each combination has, one of so many.
    """
    return {
        published: [
            [
                sum((p for p, of in zip(person, values, strict=True) if of == value), Fraction(0))
                for value in range(n_values)
            ]
            for person in posterior
        ]
        for published, posterior in found.items()
    }


def worst_excess(found: dict[Hashable, Posterior], bounds: Sequence[Fraction]) -> Fraction:
    """Return by how much the worst posterior exceeds its value's bound; below 0 if none does."""
    return max(
        probability - bound
        for posterior in found.values()
        for person in posterior
        for probability, bound in zip(person, bounds, strict=True)
    )


def chance_within_bounds(
    publish: Publish,
    histogram: Sequence[int],
    bounds: Sequence[Fraction],
    n_runs: int,
    values: Sequence[int] | None = None,
) -> float:
    """Say how likely such publications are at most if no posterior exceeds its bound.

    Each run draws a table, uniformly, and publishes it. Given the publications, their tables are
    independent; where the posterior of a value is at most f', the number of tables in which a
    person has it is at most binomial with f'. Two tests look for more than that: one at each
    person, value and publication; and one at all publications together, of the person and value
    that looked worst in each in the first half of the runs, counted in the second half. The least
    tail probability is multiplied by the number of comparisons (Bonferroni): so the result is below
    a with a probability of at most a, if the bounds hold; above 1 if nothing speaks against them.

    Where tables have combinations, `values` is the value of each of them that `bounds` are for.
    """
    limits = np.array([float(bound) for bound in bounds])
    has = np.eye(limits.size, dtype=np.int64)
    if values is not None:
        has = has[list(values)]
    first, second = (_observed(publish, histogram, n_runs // 2) for _ in range(2))
    for observed in (first, second):
        observed.update({published: counts @ has for published, counts in observed.items()})
        observed.default_factory = lambda: np.zeros((sum(histogram), limits.size), dtype=np.int64)
    n_guesses, n_right = np.zeros((2, limits.size), dtype=np.int64)
    for published in first.keys() & second.keys():
        surplus = first[published] - first[published][0].sum() * limits
        person, value = divmod(int((surplus / np.sqrt(limits)).argmax()), limits.size)
        n_guesses[value] += second[published][0].sum()
        n_right[value] += second[published][person, value]
    together = min(map(tail, n_guesses.tolist(), limits.tolist(), n_right.tolist()))
    counted = [first[published] + second[published] for published in first.keys() | second.keys()]
    each = min(
        tail(int(counts[0].sum()), limit, int(counts[:, value].max()))
        for counts in counted
        for value, limit in enumerate(limits.tolist())
    )
    return 2 * min(together * limits.size, each * len(counted) * counted[0].size)


def tail(n: int, p: float, least: int) -> float:
    """Return the probability that at least so many of n independent events happen, each with p."""
    if least <= n * p:
        return 1.0
    counts = np.arange(least, n + 1)
    logs = [math.lgamma(c + 1) + math.lgamma(n - c + 1) for c in counts.tolist()]
    terms = counts * math.log(p) + (n - counts) * math.log1p(-p) + math.lgamma(n + 1) - logs
    return float(np.exp(terms).sum())


def _observed(
    publish: Publish, histogram: Sequence[int], n_runs: int
) -> defaultdict[Hashable, IntArray]:
    """Count, for each publication, in how many of its tables each person has each value."""
    random, n = SecureRandom(), sum(histogram)
    values = np.repeat(np.arange(len(histogram)), histogram)
    seen: defaultdict[Hashable, IntArray] = defaultdict(
        lambda: np.zeros((n, len(histogram)), dtype=np.int64)
    )
    for _ in range(n_runs):
        table = tuple(values[random.permutation(n)].tolist())
        seen[_published(publish, table, random)][np.arange(n), table] += 1
    seen.pop(REFUSED, None)
    return seen


def _published(publish: Publish, table: Table, random: Any) -> Hashable:
    try:
        return publish(table, random)
    except (IneligibleError, InfeasibleError):
        return REFUSED


@cache
def _orders(n: int) -> IntArray:
    return np.array(list(permutations(range(n))), dtype=np.int64).reshape(math.factorial(n), n)
