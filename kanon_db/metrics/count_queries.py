"""Draws random count queries, and measures how well publications answer them ([GB] Section 7.2)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from kanon_db.algorithms.ground.arrays import (
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
    WordArray,
)
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse, kernel
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError


@dataclass(frozen=True, eq=False)
class CountQuery:
    """``COUNT(*)`` of the records whose values lie in a set, for each attribute of the query.

    Queries are drawn from the numbers of values alone and evaluated on codes, so that any
    publications of a table can answer the same ones.

    Parameters
    ----------
    quasi_identifiers : mapping of int to ndarray of bool, shape (n_values,)
        For each quasi-identifier of the query, by its position: which of its codes match.
        Quasi-identifiers that are not named match with any code.
    sensitive : ndarray of bool, shape (m,)
        Which codes of the sensitive attribute match.
    selectivity : float
        Fraction of the records that would match if all attributes were uniform and independent.
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


_QUERIES_PER_WORD = 64
_RECORDS_PER_BLOCK = 2**18
_ALL = np.uint64(2**64 - 1)
# A De Bruijn sequence: its product with a power of two identifies the bit by the top six bits.
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_BIT_NUMBERS = np.empty(64, dtype=np.int64)
_BIT_NUMBERS[[(int(_DE_BRUIJN) << bit & int(_ALL)) >> 58 for bit in range(64)]] = np.arange(64)


@dataclass(frozen=True, eq=False)
class CountErrors:
    """Answers of a publication to count queries, beside the true ones."""

    actual: IntArray  # (n_queries,): matching records: act
    estimated: FloatArray  # (n_queries,): estimate from the publication: est

    @property
    def relative(self) -> FloatArray:
        """|est - act| / act of each query; NaN where no record matches, act = 0."""
        relative = np.full(self.actual.size, np.nan)
        error = np.abs(self.estimated - self.actual)
        np.divide(error, self.actual, out=relative, where=self.actual > 0)
        return relative

    @property
    def n_undefined(self) -> int:
        """Number of queries without a relative error, which the averages leave out."""
        return int((self.actual == 0).sum())

    @property
    def mean(self) -> float:
        """Mean relative error of the queries with act > 0; NaN if there is none."""
        defined = self.relative[self.actual > 0]
        return float(defined.mean()) if defined.size else math.nan

    @property
    def median(self) -> float:
        """Median relative error of the queries with act > 0; NaN if there is none."""
        defined = self.relative[self.actual > 0]
        return float(np.median(defined)) if defined.size else math.nan

    def select(self, chosen: BoolArray) -> CountErrors:
        """Select some of the queries, such as those in a range of selectivity."""
        return CountErrors(self.actual[chosen], self.estimated[chosen])


def exact_counts(
    qi_codes: CodeArray,  # (n_records, n_qi)
    sa_codes: CodeArray,
    queries: Sequence[CountQuery],
    *,
    pulse: Pulse = UNLIMITED,
) -> IntArray:
    """Count the records that match each query.

    64 queries are evaluated at once, one in each bit of a word.
    """
    counts = np.zeros(len(queries), dtype=np.int64)
    for first, qi_tables, sa_table in _words(qi_codes, sa_codes, queries, pulse):
        pulse.done(first, len(queries))
        totals = np.zeros(_QUERIES_PER_WORD, dtype=np.int64)
        for start in range(0, sa_codes.size, _RECORDS_PER_BLOCK):
            pulse.beat()
            block = slice(start, start + _RECORDS_PER_BLOCK)
            matching = _matching(qi_codes[block], qi_tables) & sa_table[sa_codes[block]]
            _add_bits(matching, totals)
        counts[first : first + _QUERIES_PER_WORD] = totals[: len(queries) - first]
    return counts


def _words(
    qi_codes: CodeArray, sa_codes: CodeArray, queries: Sequence[CountQuery], pulse: Pulse
) -> Iterator[tuple[int, list[WordArray | None], WordArray]]:
    """Pack 64 queries at a time: for each attribute and code, the queries it matches."""
    if qi_codes.ndim != 2 or sa_codes.ndim != 1:
        raise InvalidParameterError(
            "codes need one row for each record and one column for each attribute",
            detail=f"quasi-identifiers: shape {qi_codes.shape}, sensitive: shape {sa_codes.shape}",
        )
    n_codes = [int(column.max(initial=-1)) + 1 for column in qi_codes.T]
    n_sensitive = int(sa_codes.max(initial=-1)) + 1
    if min(qi_codes.min(initial=0), sa_codes.min(initial=0)) < 0:
        raise InvalidParameterError("codes must be at least 0")
    for first in range(0, len(queries), _QUERIES_PER_WORD):
        word = queries[first : first + _QUERIES_PER_WORD]
        qi_tables: list[WordArray | None] = [None] * len(n_codes)
        sa_table = np.zeros(n_sensitive, dtype=np.uint64)
        for position, query in enumerate(word):
            pulse.beat()
            bit = np.uint64(1 << position)
            if any(not 0 <= a < len(n_codes) for a in query.quasi_identifiers) or any(
                mask.size < needed
                for mask, needed in [
                    (query.sensitive, n_sensitive),
                    *((mask, n_codes[a]) for a, mask in query.quasi_identifiers.items()),
                ]
            ):
                raise InvalidParameterError(
                    "a query does not fit the table",
                    detail=f"{len(n_codes)} quasi-identifiers",
                    hint="draw the queries for this table's numbers of values",
                )
            sa_table[query.sensitive[:n_sensitive]] |= bit
            for a, mask in query.quasi_identifiers.items():
                table = qi_tables[a]
                if table is None:
                    table = qi_tables[a] = np.full(n_codes[a], _ALL)
                table[~mask[: n_codes[a]]] &= ~bit
        yield first, qi_tables, sa_table


def _matching(qi_codes: CodeArray, qi_tables: list[WordArray | None]) -> WordArray:
    """Return which of the 64 queries match the quasi-identifiers of each record."""
    matching = np.full(qi_codes.shape[0], _ALL)
    for column, table in zip(qi_codes.T, qi_tables, strict=True):
        if table is not None:
            matching &= table[column]
    return matching


@kernel
def _add_bits(words: WordArray, totals: IntArray) -> None:
    """Add 1 to the total of each query, for each word in which its bit is set."""
    for i in range(words.size):
        word = words[i]
        while word:
            rest = word & (word - np.uint64(1))
            totals[_BIT_NUMBERS[((word ^ rest) * _DE_BRUIJN) >> np.uint64(58)]] += 1
            word = rest
