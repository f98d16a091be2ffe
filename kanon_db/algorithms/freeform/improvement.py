"""Improvement: the graph of any method made to lose less, by simulated annealing."""

from __future__ import annotations

from functools import partial

import numpy as np

from kanon_db.algorithms.freeform.assignments import named_after_originals
from kanon_db.algorithms.freeform.losses import units_lost
from kanon_db.algorithms.freeform.match_annealing import anneal, summarize_cells
from kanon_db.algorithms.freeform.partitions import PARTITION_SIZE, lexicographic_order
from kanon_db.algorithms.freeform.ring import ring
from kanon_db.algorithms.ground.arrays import CodeArray
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.recoding.class_annealing import annealed_classes
from kanon_db.algorithms.recoding.class_summaries import ClassSummaries
from kanon_db.algorithms.recoding.cooling import Schedule, random_state
from kanon_db.algorithms.recoding.ncp import Ncp
from kanon_db.algorithms.recoding.pool import grown_classes
from kanon_db.algorithms.recoding.typed_records import TypedRecords

EFFORT = 300
"""Exchanges that are proposed for each match of each record, at least."""

_SMALL = PARTITION_SIZE  # records; below, the effort rises with the square, up to fourfold ...
_FEW_PROPOSALS = 2**25  # ... but to no more than some ten seconds
_LARGE_K = 30  # from here on, only classes are annealed

_HOTTEST, _COLDEST = 0.25, 0.04  # temperature as a share of the mean loss of a match
_COLD_PART = 4  # of the proposals, where no heat is used at all


def improved_matches(ncp: Ncp, matches: CodeArray, *, pulse: Pulse = UNLIMITED) -> CodeArray:
    """Lower the loss of a k-regular generalization graph.

    Parameters
    ----------
    ncp : Ncp
    matches : ndarray of int32, shape (n, k)
        As in :class:`~kanon_db.algorithms.freeform.result.Freeform`.
    pulse : Pulse
        Beaten every few milliseconds; what a beat raises ends the work.

    Returns
    -------
    ndarray of int32, shape (n, k)
        It never loses more than ``matches``. The same for the same records, whatever their order
        but for identical ones; what is published is drawn from it anew.

    Notes
    -----
    Not in [FF]. Pairs of cells exchange an original each
    (:mod:`~kanon_db.algorithms.freeform.match_annealing`), so that the graph stays k-regular.
    An exchange changes only two cells; what many cells share, as they do when k is large, hardly
    gets better by single exchanges. So equivalence classes are found and annealed too, and from
    k = 30 on only they are: on 1,000 records at k = 50 the graph of SortGreedy went from a GCP of
    0.37 to 0.31, and classes to 0.26. In their graph each record matches its successors in a ring
    through its class, which loses no more than the class; where it loses less than the other
    graph, it is taken instead. So is the graph of
    :func:`~kanon_db.algorithms.freeform.ring.ring`, which takes no time and is better where there
    are two attributes and k is large.
    """
    n, k = matches.shape
    if k == 1 or n <= k or not units_lost(ncp, matches):
        return matches
    order = lexicographic_order(ncp.values)
    rank = np.argsort(order)
    # Chance decides here how much is lost, not who is who.
    random = np.random.default_rng(0)
    in_order = ncp.of_records(order)
    typed = TypedRecords.of(in_order, random, pulse)
    n_proposals = EFFORT * n * k
    raised = int(n_proposals * min((_SMALL / n) ** 2, 4.0))
    n_proposals = max(n_proposals, min(raised, _FEW_PROPOSALS))
    start = rank[matches[order]].astype(np.int32)
    of_classes = Schedule(n_proposals * min(k, _LARGE_K) // _LARGE_K)
    found = [
        start,
        ring(in_order, k, pulse=pulse),
        _ring_of_classes(in_order, typed, k, of_classes, random, pulse),
    ]
    if k < _LARGE_K:
        hot = Schedule(n_proposals, _HOTTEST, _COLDEST)
        found.append(_annealed(typed, start, hot, random, pulse))
    rows = min(found, key=partial(units_lost, in_order))
    if rows is not found[-1] or k >= _LARGE_K:
        # Heat would make it worse: only make exchanges that lose less.
        cold = Schedule(n_proposals // _COLD_PART, hottest=0.0)
        rows = _annealed(typed, rows, cold, random, pulse)
    result = np.empty_like(rows)
    result[order] = order[named_after_originals(rows, pulse=pulse)]
    return result


def _annealed(
    typed: TypedRecords,
    start: CodeArray,
    schedule: Schedule,
    random: np.random.Generator,
    pulse: Pulse,
) -> CodeArray:
    """Anneal a graph."""
    n, k = start.shape
    shape = (n, typed.records.n_words)
    rows = start.copy()
    cells = ClassSummaries(
        np.zeros(0, dtype=np.int64), rows.reshape(-1), np.arange(n + 1) * k,
        np.zeros(0, dtype=np.int32), np.full(n, k), np.zeros(shape, dtype=np.uint64),
        np.zeros(shape, dtype=np.uint64),
        np.zeros((n, typed.records.whole.size, 4), dtype=np.int32), np.zeros(n, dtype=np.int64),
    )  # fmt: skip
    summarize_cells(typed.records, cells)
    cells_of = (np.argsort(rows.ravel(), kind="stable") // k).astype(np.int32).reshape(n, k)
    mean_loss = float(cells.losses.sum()) / (n * k)
    state = random_state(random)
    for n_proposals, temperature in schedule.steps(mean_loss, pulse):
        anneal(
            typed.records, cells, cells_of, typed.near, typed.first_of_type,
            typed.type_of_record, n_proposals, temperature, state,
        )  # fmt: skip
    return rows


def _ring_of_classes(
    ncp: Ncp,
    typed: TypedRecords,
    k: int,
    schedule: Schedule,
    random: np.random.Generator,
    pulse: Pulse,
) -> CodeArray:
    """Anneal equivalence classes, and let records match their successors in them."""
    n = typed.type_of_record.size
    by_variance = np.argsort(ncp.values.var(axis=0), kind="stable")
    order = np.lexsort(ncp.values.T[by_variance[::-1]])
    # How many are grown does not say how much of the search is done.
    grown = grown_classes(ncp, order, k, pulse=Pulse(pulse.seconds_left, pulse.beat))
    classes = annealed_classes(typed, grown, k, schedule, random, pulse=pulse)
    # In the order of their rows, records are close to their successors.
    order = np.argsort(classes, kind="stable")
    in_order = classes[order]
    first = np.searchsorted(in_order, in_order)
    size = np.bincount(in_order)[in_order]
    matches = np.empty((n, k), dtype=np.int32)
    for r in range(k):
        matches[order, r] = order[first + (np.arange(n) - first + r) % size]
    return matches
