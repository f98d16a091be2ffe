"""Answers to count queries from published rows, whose cells stand for several values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
)
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.recoding.cell_shares import axis_of_ranges, shares_of_sets
from kanon_db.algorithms.recoding.cells import Ranges, Sets
from kanon_db.metrics.workload import CountQuery

_ShareOf = Callable[[BoolArray], FloatArray]
"""From which codes match to the share of each cell's records whose value does."""


def row_counts(
    cells: Sequence[Ranges | Sets],
    numbers: CodeArray,
    classes: CodeArray,
    sa_codes: AnyIntArray,
    queries: Sequence[CountQuery],
    *,
    matches: int | None = None,
    n_left_out: int = 0,
    coarse: Sequence[bool] | None = None,
    rarity: float = 1.0,
    pulse: Pulse = UNLIMITED,
) -> FloatArray:
    """Estimate counts from rows: the sum of the probabilities that each of them matches.

    Parameters
    ----------
    cells : sequence of Ranges or Sets
        The distinct cells of each quasi-identifier.
    numbers : ndarray of int32, shape (n_rows, n_qi)
        Which of them each row has.
    classes : ndarray of int32, shape (n_classes, n_qi)
        Which of them each class of rows with the same cells has.
    sa_codes : ndarray of int, shape (n_rows,)
        The sensitive value of each row; a negative code matches nothing.
    queries : sequence of CountQuery
    matches : int, optional
        How many originals each cell covers, if it is not all of a class (freeform rows).
    n_left_out : int
        Records without a row, which are as likely to match as the others.
    coarse : sequence of bool, optional
        Of each quasi-identifier, whether nobody need have the ends of its ranges, or the values of
        its sets; none by default.
    rarity : float
        A cell that tells nothing has each value as often as this power of how many others do.
    pulse : Pulse

    Returns
    -------
    ndarray of float64, shape (n_queries,)

    Notes
    -----
    The estimator of `estimate_count`, in numpy: how often a value occurs in a cell follows from all
    cells of its column (:mod:`~kanon_db.algorithms.recoding.cell_shares`), and columns are taken as
    independent. One difference: numbers that no record has are not part of a range.

    Examples
    --------
    >>> cells = [Ranges(np.array([0]), np.array([1]), np.array([False]))]
    >>> numbers, one = np.zeros((4, 1), dtype=np.int32), np.array([True, False])
    >>> query = CountQuery({0: one}, np.array([True]), 0.5)
    >>> row_counts(cells, numbers, numbers[:1], np.zeros(4, dtype=np.int64), [query]).tolist()
    [2.0]
    """
    coarse = [False] * len(cells) if coarse is None else coarse
    shares = [
        _shares(
            its_cells, numbers[:, a], classes[:, a], matches, is_coarse=coarse[a], rarity=rarity
        )
        for a, its_cells in enumerate(cells)
    ]
    times = 1 + n_left_out / max(sa_codes.size, 1)
    counts = np.zeros(len(queries))
    for at, query in enumerate(queries):
        pulse.beat()
        expected: FloatArray = np.append(query.sensitive, False)[sa_codes].astype(np.float64)
        for a, matching in query.quasi_identifiers.items():
            expected *= shares[a](matching)[numbers[:, a]]
        counts[at] = expected.sum() * times
    return counts


def column_losses(
    cells: Sequence[Ranges | Sets],
    numbers: CodeArray,
    n_codes: Sequence[int],
    n_left_out: int = 0,
) -> FloatArray:
    """Say how much of each column is lost: the mean of (n - 1) / (N - 1) over all records.

    n is how many of the column's N values a record's cell covers. A record without a row loses
    everything.

    Examples
    --------
    >>> cells = [Ranges(np.array([0, 0]), np.array([0, 4]), np.array([False, False]))]
    >>> numbers = np.array([[0], [1]], dtype=np.int32)
    >>> column_losses(cells, numbers, [5]).tolist(), column_losses(cells, numbers, [5], 2).tolist()
    ([0.5], [0.75])
    """
    losses = []
    for a, (its_cells, n) in enumerate(zip(cells, n_codes, strict=True)):
        if isinstance(its_cells, Sets):
            covered = its_cells.sizes
        else:
            covered = its_cells.high.astype(np.int64) - its_cells.low + 1
            covered = np.where(its_cells.tells_nothing, n, covered)
        lost = np.clip((covered - 1) / max(n - 1, 1), 0, 1)[numbers[:, a]].sum() + n_left_out
        losses.append(lost / (len(numbers) + n_left_out))
    return np.array(losses)


def _shares(
    cells: Ranges | Sets,
    numbers: CodeArray,
    classes: CodeArray,
    matches: int | None,
    *,
    is_coarse: bool,
    rarity: float,
) -> _ShareOf:
    n_cells = cells.ends.size if isinstance(cells, Sets) else cells.low.size
    records = np.bincount(numbers, minlength=n_cells)
    witnesses = np.bincount(classes, minlength=n_cells).astype(np.float64)
    if matches is not None:
        witnesses = records / matches
    if is_coarse:
        witnesses = np.zeros(n_cells)
    if isinstance(cells, Sets):
        return _of_sets(cells, records, witnesses)
    return _of_ranges(cells, records, witnesses, rarity)


def _of_sets(cells: Sets, records: IntArray, witnesses: FloatArray) -> _ShareOf:
    sizes = cells.sizes
    used = np.flatnonzero((records > 0) & (sizes > 0))
    owner = np.repeat(np.arange(sizes.size), sizes)
    codes = cells.codes[np.isin(owner, used)]
    its_sizes = sizes[used]
    known = Sets(codes, np.cumsum(its_sizes))
    shares = shares_of_sets(
        known, records[used], np.minimum(witnesses[used], records[used] / its_sizes)
    )

    def share(matching: BoolArray) -> FloatArray:
        found = np.zeros(sizes.size)
        if used.size:
            found[used] = np.add.reduceat(shares * matching[codes], known.ends - its_sizes)
        return found

    return share


def _of_ranges(cells: Ranges, records: IntArray, witnesses: FloatArray, rarity: float) -> _ShareOf:
    plain = ~cells.tells_nothing & (cells.low <= cells.high)
    used = np.flatnonzero(plain & (records > 0))
    if not used.size:
        return lambda matching: np.full(records.size, float(matching.mean()))
    low, high, its_records = cells.low[used], cells.high[used], records[used]
    own = np.minimum(witnesses[used] / its_records, 0.5)
    below, above = low.astype(np.float64) - 0.5, high.astype(np.float64) + 0.5
    axis = axis_of_ranges(below, above, its_records, own * its_records, is_whole=True)
    first, last = axis.parts_of(below, above)
    code_of_part = np.rint(axis.middles).astype(np.int64)
    upto = np.concatenate([[0.0], np.cumsum(axis.shares)])
    whole = upto[last + 1] - upto[first]

    def share(matching: BoolArray) -> FloatArray:
        inside = np.concatenate([[0.0], np.cumsum(axis.shares * matching[code_of_part])])
        between = (inside[last + 1] - inside[first]) / whole
        of_used = own * matching[low] + own * matching[high] + (1 - 2 * own) * between
        found = np.zeros(records.size)
        found[used] = of_used
        # A cell that tells nothing counts like those that were kept, or rarer ones.
        weights = its_records.astype(np.float64) ** rarity
        found[cells.tells_nothing] = weights @ of_used / weights.sum()
        return found

    return share
