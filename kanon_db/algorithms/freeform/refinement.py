"""Refinement: the graph of any method made to lose less, by simulated annealing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.freeform.assignments import named_after_originals
from kanon_db.algorithms.freeform.exchanges import anneal, summarize_cells
from kanon_db.algorithms.freeform.graph import units_lost
from kanon_db.algorithms.freeform.partitions import PARTITION_SIZE, lexicographic_order
from kanon_db.algorithms.freeform.result import MatchArray
from kanon_db.algorithms.generalization import annealing
from kanon_db.algorithms.generalization.classes import Classes, PackedRecords, disperse
from kanon_db.algorithms.generalization.constraints import NO_RULES
from kanon_db.algorithms.generalization.greedy_search import finished
from kanon_db.algorithms.generalization.growth import Pool
from kanon_db.algorithms.generalization.loss import IntArray, Ncp, ValueArray
from kanon_db.algorithms.generalization.neighbors import neighbors

EFFORT = 300
"""Exchanges that are proposed for each match of each record, at least."""

_SMALL = PARTITION_SIZE  # records; below, the effort rises with the square, up to fourfold ...
_FEW_PROPOSALS = 2**25  # ... but to no more than some ten seconds
_LARGE_K = 30  # from where on only classes are annealed

_N_NEIGHBORS = 12
_HOTTEST, _COLDEST = 0.25, 0.04  # temperature as a share of the mean loss of a match
_HOTTEST_OF_CLASSES, _COLDEST_OF_CLASSES = 0.4, 0.045  # ... of a record in its class
_COLD_PART = 4  # of the proposals, where no heat is used at all
_COLD_SHARE = 0.05  # of the proposals come last, without any heat
_DISPERSED_SHARE = 0.015  # of the classes are given up first
_PROPOSALS_PER_CALL = 2**13  # some milliseconds


def refined_matches(
    ncp: Ncp, matches: MatchArray, heartbeat: Callable[[], None]
) -> npt.NDArray[np.int32]:
    """Lower the loss of a k-regular generalization graph.

    Parameters
    ----------
    ncp : Ncp
    matches : ndarray of int32, shape (n, k)
        As in :class:`~kanon_db.algorithms.freeform.result.Freeform`.
    heartbeat : callable
        Called every few milliseconds; what it raises ends the work.

    Returns
    -------
    ndarray of int32, shape (n, k)
        It never loses more than ``matches``. The same for the same records, whatever their order
        but for identical ones; what is published is drawn from it anew.

    Notes
    -----
    Not in [FF]. Pairs of cells exchange an original each
    (:mod:`~kanon_db.algorithms.freeform.exchanges`), so that the graph stays k-regular.
    An exchange changes two cells alone; what many cells share, as is so when k is large, hardly
    gets better by single exchanges. So equivalence classes are found and annealed too, and from
    k = 30 on they alone: on 1,000 records at k = 50 the graph of SortGreedy went from a GCP of
    0.37 to 0.31, and classes to 0.26. In their graph each record matches its successors in a ring
    through its class, which loses no more than the class; where it loses less than the other
    graph, it is taken instead.
    """
    n, k = matches.shape
    if k == 1 or n <= k or not units_lost(ncp, matches):
        return matches
    order = lexicographic_order(ncp.values)
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    types = _RowTypes.of(ncp.of_records(order), heartbeat)
    n_proposals = EFFORT * n * k
    raised = int(n_proposals * min((_SMALL / n) ** 2, 4.0))
    n_proposals = max(n_proposals, min(raised, _FEW_PROPOSALS))
    start = rank[matches[order]].astype(np.int32)
    of_classes = _ring_of_classes(types, k, n_proposals * min(k, _LARGE_K) // _LARGE_K, heartbeat)
    found = [start, of_classes]
    if k < _LARGE_K:
        found.append(_annealed(types, start, n_proposals, _HOTTEST, heartbeat))
    rows = min(found, key=partial(units_lost, types.ncp))
    if rows is not found[-1] or k >= _LARGE_K:
        # Heat would do harm to it: make those exchanges alone that lose less.
        rows = _annealed(types, rows, n_proposals // _COLD_PART, 0.0, heartbeat)
    result = np.empty_like(rows)
    result[order] = order[named_after_originals(rows, heartbeat=heartbeat)]
    return result


@dataclass(frozen=True, eq=False)
class _RowTypes:
    """Records in order of their rows, those of a type side by side."""

    ncp: Ncp
    records: PackedRecords
    first_of_type: IntArray
    type_of_record: ValueArray
    near: ValueArray
    random: np.random.Generator

    @classmethod
    def of(cls, ncp: Ncp, heartbeat: Callable[[], None]) -> _RowTypes:
        values = ncp.values
        # Chance decides here how much is lost, not who is who.
        random = np.random.default_rng(0)
        is_first = np.ones(values.shape[0], dtype=np.bool_)
        is_first[1:] = (values[1:] != values[:-1]).any(axis=1)
        first_of_type = np.append(np.flatnonzero(is_first), values.shape[0])
        near = neighbors(
            values[first_of_type[:-1]], ncp.numeric, ncp.whole, ncp.step, _N_NEIGHBORS, random,
            heartbeat,
        )  # fmt: skip
        repeated = np.flatnonzero(np.diff(first_of_type) > 1)
        near[repeated, -1] = repeated
        return cls(
            ncp, PackedRecords.of(ncp), first_of_type,
            (np.cumsum(is_first) - 1).astype(np.int32), near, random,
        )  # fmt: skip

    def state(self) -> npt.NDArray[np.uint64]:
        """Draw where the random numbers of the annealing begin."""
        return self.random.integers(1, 2**64, size=1, dtype=np.uint64)


def _annealed(
    types: _RowTypes,
    start: MatchArray,
    n_proposals: int,
    hottest: float,
    heartbeat: Callable[[], None],
) -> MatchArray:
    """Anneal a graph."""
    n, k = start.shape
    shape = (n, types.records.n_words)
    rows = start.copy()
    cells = Classes(
        np.zeros(0, dtype=np.int64), rows.reshape(-1), np.arange(n + 1) * k,
        np.zeros(0, dtype=np.int32), np.full(n, k), np.zeros(shape, dtype=np.uint64),
        np.zeros(shape, dtype=np.uint64),
        np.zeros((n, types.records.whole.size, 4), dtype=np.int32), np.zeros(n, dtype=np.int64),
    )  # fmt: skip
    summarize_cells(types.records, cells)
    cells_of = (np.argsort(rows.ravel(), kind="stable") // k).astype(np.int32).reshape(n, k)
    mean_loss = float(cells.losses.sum()) / (n * k)
    state = types.state()
    for done in range(0, n_proposals, _PROPOSALS_PER_CALL):
        heartbeat()
        anneal(
            types.records, cells, cells_of, types.near, types.first_of_type,
            types.type_of_record, min(_PROPOSALS_PER_CALL, n_proposals - done),
            mean_loss * _temperature(done / n_proposals, hottest, _COLDEST), state,
        )  # fmt: skip
    return rows


def _ring_of_classes(
    types: _RowTypes, k: int, n_proposals: int, heartbeat: Callable[[], None]
) -> MatchArray:
    """Anneal equivalence classes, and let records match their successors in them."""
    n = types.type_of_record.size
    values = types.ncp.values
    by_variance = np.argsort(values.var(axis=0), kind="stable")
    pool = Pool(types.ncp, np.lexsort(values.T[by_variance[::-1]]), k)
    while pool.n_left >= k:
        heartbeat()
        pool.grow_from_first()
    class_of_record = disperse(
        types.records, finished(pool, "least_increase", heartbeat).class_of_record, types.near,
        types.type_of_record, types.first_of_type, k, _DISPERSED_SHARE, types.random,
    )  # fmt: skip
    classes = Classes.of(types.records, class_of_record, room=k)
    mean_loss = float(classes.losses @ classes.sizes) / n
    state = types.state()
    for done in range(0, n_proposals, _PROPOSALS_PER_CALL):
        heartbeat()
        share = _temperature(done / n_proposals, _HOTTEST_OF_CLASSES, _COLDEST_OF_CLASSES)
        annealing.anneal(
            types.records, classes, k, types.near, types.first_of_type, types.type_of_record,
            NO_RULES, False, min(_PROPOSALS_PER_CALL, n_proposals - done), mean_loss * share, state,
        )  # fmt: skip
    # In the order of their rows, records are close to their successors.
    order = np.argsort(classes.class_of_record, kind="stable")
    in_order = classes.class_of_record[order]
    first = np.searchsorted(in_order, in_order)
    size = np.bincount(in_order, minlength=1)[in_order]
    matches = np.empty((n, k), dtype=np.int32)
    for r in range(k):
        matches[order, r] = order[first + (np.arange(n) - first + r) % size]
    return matches


def _temperature(done: float, hottest: float, coldest: float) -> float:
    """Temperature after a share of the work, as a share of the mean loss."""
    if not hottest or done >= 1 - _COLD_SHARE:
        return 0.0
    return float(hottest * (coldest / hottest) ** (done / (1 - _COLD_SHARE)))
