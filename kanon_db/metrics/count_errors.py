"""How well a bucketization answers count queries ([GB] Sections 3.2 and 7.2)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
    WordArray,
)
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.errors import InvalidParameterError
from kanon_db.metrics.workload import CountQuery

_QUERIES_PER_WORD = 64
_RECORDS_PER_BLOCK = 2**18
_ALL = np.uint64(2**64 - 1)
# Each window of six bits in this number differs: it tells the 64 words with one bit set apart.
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_BIT_NUMBERS = np.empty(64, dtype=np.int64)
_BIT_NUMBERS[[(int(_DE_BRUIJN) << bit & int(_ALL)) >> 58 for bit in range(64)]] = np.arange(64)


@dataclass(frozen=True, eq=False)
class CountErrors:
    """Answers of a publication to count queries, beside the true ones.

    Parameters
    ----------
    actual : ndarray of int64, shape (n_queries,)
        Matching records: act.
    estimated : ndarray of float64, shape (n_queries,)
        Estimate from the publication: est.
    """

    actual: IntArray
    estimated: FloatArray

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
        """Take some of the queries, for averages over a range of selectivity, say.

        Parameters
        ----------
        chosen : ndarray of bool, shape (n_queries,)

        Returns
        -------
        CountErrors
        """
        return CountErrors(self.actual[chosen], self.estimated[chosen])


def count_errors(
    bucket_of_record: AnyIntArray,
    qi_codes: CodeArray,
    sa_codes: CodeArray,
    queries: Sequence[CountQuery],
    *,
    pulse: Pulse = UNLIMITED,
) -> CountErrors:
    """Answer queries from microdata and from its bucketization.

    Parameters
    ----------
    bucket_of_record : ndarray of int, shape (n_records,)
        Bucket of each record: any whole numbers of at least 0, best without gaps.
    qi_codes : ndarray of int32, shape (n_records, n_qi)
    sa_codes : ndarray of int32, shape (n_records,)
    queries : sequence of CountQuery
    pulse : Pulse
        Beaten every few dozen milliseconds of work; what that raises ends the evaluation.

    Returns
    -------
    CountErrors

    Raises
    ------
    InvalidParameterError
        As :func:`exact_counts` and :func:`estimated_counts`.

    Notes
    -----
    **Source:** [GB] Section 3.2.

    Examples
    --------
    >>> query = CountQuery({0: np.array([True, False])}, np.array([True, False]), 0.25)
    >>> codes = np.array([[0], [1], [0], [1]], dtype=np.int32)
    >>> errors = count_errors(np.array([0, 0, 1, 1]), codes, np.int32([0, 1, 1, 0]), [query])
    >>> errors.actual.tolist(), errors.estimated.tolist(), errors.mean
    ([1], [1.0], 0.0)
    """
    return CountErrors(
        exact_counts(qi_codes, sa_codes, queries, pulse=pulse),
        estimated_counts(
            bucket_of_record,
            qi_codes,
            bucket_of_record,
            sa_codes,
            np.ones(sa_codes.size, dtype=np.int64),
            queries,
            pulse=pulse,
        ),
    )


def exact_counts(
    qi_codes: CodeArray,
    sa_codes: CodeArray,
    queries: Sequence[CountQuery],
    *,
    pulse: Pulse = UNLIMITED,
) -> IntArray:
    """Count the records that match each query.

    Parameters
    ----------
    qi_codes : ndarray of int32, shape (n_records, n_qi)
    sa_codes : ndarray of int32, shape (n_records,)
    queries : sequence of CountQuery
    pulse : Pulse
        Beaten every few dozen milliseconds of work; what that raises ends the evaluation.

    Returns
    -------
    ndarray of int64, shape (n_queries,)

    Raises
    ------
    InvalidParameterError
        If the shapes do not match, or a code lies outside a query's condition.

    Notes
    -----
    64 queries are evaluated at once, one in each bit of a word. Cost: O(n_records (n_qi / 64 + h))
    per query, where h is the share of records that match it.
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


def estimated_counts(
    qit_buckets: AnyIntArray,
    qi_codes: CodeArray,
    sat_buckets: AnyIntArray,
    sat_codes: CodeArray,
    sat_counts: AnyIntArray,
    queries: Sequence[CountQuery],
    *,
    pulse: Pulse = UNLIMITED,
) -> FloatArray:
    """Estimate the answers from QIT and SAT: the sum of q s / |g| over the buckets g.

    Parameters
    ----------
    qit_buckets : ndarray of int, shape (n_records,)
        Bucket of each row of the QIT: any whole numbers of at least 0, best without gaps.
    qi_codes : ndarray of int32, shape (n_records, n_qi)
        Quasi-identifiers of the rows of the QIT.
    sat_buckets, sat_codes, sat_counts : ndarray of int, shape (n_rows,)
        Rows of the SAT: bucket, sensitive value, number of its occurrences.
    queries : sequence of CountQuery
    pulse : Pulse
        Beaten every few dozen milliseconds of work; what that raises ends the evaluation.

    Returns
    -------
    ndarray of float64, shape (n_queries,)

    Raises
    ------
    InvalidParameterError
        If the shapes do not match, a code lies outside a query's condition, or a bucket has not
        as many rows in the QIT as occurrences in the SAT.

    Notes
    -----
    **Source:** [GB] Section 3.2, Eq. of est, after Anatomy.
    """
    if qit_buckets.shape != qi_codes.shape[:1] or not (
        sat_buckets.shape == sat_codes.shape == sat_counts.shape
    ):
        raise InvalidParameterError("QIT and SAT need one bucket for each of their rows")
    n_buckets = 1 + max(int(qit_buckets.max(initial=-1)), int(sat_buckets.max(initial=-1)))
    pulse.beat()
    sizes = np.bincount(qit_buckets, minlength=n_buckets)
    occurrences = np.zeros(n_buckets, dtype=np.int64)
    np.add.at(occurrences, sat_buckets, sat_counts)
    if (sizes != occurrences).any():
        raise InvalidParameterError(
            "QIT and SAT do not belong together",
            detail=f"{int((sizes != occurrences).sum())} of {n_buckets} buckets differ in size",
        )
    # Rows of a bucket follow each other; ends[g] is where those of the next bucket begin.
    by_bucket = np.argsort(qit_buckets, kind="stable")
    pulse.beat()
    qi_codes = qi_codes[by_bucket]
    pulse.beat()
    qit_ends = np.cumsum(sizes)
    sat_order = np.argsort(sat_buckets, kind="stable")
    sat_codes = sat_codes[sat_order]
    numbers: IntArray = sat_counts[sat_order].astype(np.int64)
    sat_ends = np.cumsum(np.bincount(sat_buckets, minlength=n_buckets))
    estimates = np.zeros(len(queries))
    # A block of buckets holds about so many records, however large its last bucket.
    n_blocks = -(-int(sizes.sum()) // _RECORDS_PER_BLOCK)
    cuts = np.searchsorted(qit_ends, np.arange(1, n_blocks) * _RECORDS_PER_BLOCK)
    borders = [0, *(cuts + 1).tolist(), n_buckets]
    for first, qi_tables, sa_table in _words(qi_codes, sat_codes, queries, pulse):
        pulse.done(first, len(queries))
        totals = np.zeros(_QUERIES_PER_WORD)
        for low, high in pairwise(borders):
            if low >= high:
                continue
            pulse.beat()
            qit = slice(qit_ends[low] - sizes[low], qit_ends[high - 1])
            sat = slice(sat_ends[low - 1] if low else 0, sat_ends[high - 1])
            _add_estimates(
                _matching(qi_codes[qit], qi_tables),
                qit_ends[low:high] - qit.start,
                sa_table[sat_codes[sat]],
                numbers[sat],
                sat_ends[low:high] - sat.start,
                totals,
            )
        estimates[first : first + _QUERIES_PER_WORD] = totals[: len(queries) - first]
    return estimates


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
    """Tell which of the 64 queries match the quasi-identifiers of each record."""
    matching = np.full(qi_codes.shape[0], _ALL)
    for column, table in zip(qi_codes.T, qi_tables, strict=True):
        if table is not None:
            matching &= table[column]
    return matching


@numba.njit(cache=True, nogil=True)
def _add_bits(words: WordArray, totals: IntArray) -> None:
    for i in range(words.size):
        _add_word(words[i], 1, totals)


@numba.njit(cache=True, nogil=True)
def _add_word(word: np.uint64, amount: int, totals: IntArray) -> None:
    """Add an amount to the total of each query whose bit is set."""
    while word:
        rest = word & (word - np.uint64(1))
        totals[_BIT_NUMBERS[((word ^ rest) * _DE_BRUIJN) >> np.uint64(58)]] += amount
        word = rest


@numba.njit(cache=True, nogil=True)
def _add_estimates(
    qit_words: WordArray,
    qit_ends: IntArray,
    sat_words: WordArray,
    sat_counts: IntArray,
    sat_ends: IntArray,
    totals: FloatArray,
) -> None:
    """Add q s / |g| of each bucket to the 64 totals."""
    q = np.zeros(64, dtype=np.int64)
    s = np.zeros(64, dtype=np.int64)
    record, row = 0, 0
    for g in range(qit_ends.size):
        size = qit_ends[g] - record
        any_q, any_s = np.uint64(0), np.uint64(0)
        for i in range(record, qit_ends[g]):
            any_q |= qit_words[i]
        for j in range(row, sat_ends[g]):
            any_s |= sat_words[j]
        both = any_q & any_s
        if both:
            q[:] = 0
            s[:] = 0
            for i in range(record, qit_ends[g]):
                _add_word(qit_words[i] & both, 1, q)
            for j in range(row, sat_ends[g]):
                _add_word(sat_words[j] & both, sat_counts[j], s)
            for bit in range(64):
                totals[bit] += q[bit] * s[bit] / size
        record, row = qit_ends[g], sat_ends[g]
