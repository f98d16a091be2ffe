"""Improves the graph of any method by simulated annealing, and makes ring generalizations (NH)."""

from __future__ import annotations

from functools import partial

import numpy as np

from kanon_db.algorithms.freeform._generalization_graph import pair_units, units_lost
from kanon_db.algorithms.freeform.matches import (
    PARTITION_SIZE,
    lexicographic_order,
    name_after_originals,
)
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray, Integer, WordArray
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse, kernel
from kanon_db.algorithms.recoding.annealing import (
    Schedule,
    TypedRecords,
    anneal_classes,
    random_bits,
    random_state,
    scaled,
    threshold_of,
)
from kanon_db.algorithms.recoding.changing_classes import (
    ClassSummaries,
    PackedRecords,
    exchange,
    summarize,
    union_loss,
)
from kanon_db.algorithms.recoding.class_growth import grow_classes
from kanon_db.algorithms.recoding.loss import Ncp


def ring(ncp: Ncp, k: int, *, pulse: Pulse = UNLIMITED) -> CodeArray:
    """Partition the records, and let each one match its k - 1 successors in its partition.

    Parameters
    ----------
    ncp : Ncp
    k : int
        Matches of each record, from 1 to the number of records.
    pulse : Pulse
        Beaten every few milliseconds; what a beat raises ends the work.

    Returns
    -------
    ndarray of int32, shape (n, k)
        As in :class:`~kanon_db.algorithms.freeform.matches.FreeformMatches`.

    Notes
    -----
    **Source:** the baseline NH of [FF] Sections 2.1 and 8: Wong, Mamoulis and Cheung:
    Non-homogeneous generalization in privacy preserving data publishing, 2010. [FF] says that its
    partitions have k to 2k - 1 records, but not how they are found. Here a partition is cut
    in two as long as it has 2k records: going twice to the farthest record finds two that lose
    much together; the others are sorted by how much closer they are to one of the two than to the
    other, and cut at the multiple of k nearest to the change of sign. The ring goes from each
    record to the nearest one left.

    Cost: a few passes over the records for each level of cuts.

    Examples
    --------
    >>> from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
    >>> age = Attribute(5, numbers=np.array([20.0, 30, 50, 55, 60]), lower=20, upper=60)
    >>> table = Microdata([[0], [1], [2], [3], [4]], (age,))
    >>> ring(Ncp.of(table), 2).tolist()
    [[0, 1], [1, 2], [2, 0], [3, 4], [4, 3]]
    """
    n = ncp.values.shape[0]
    matches = np.empty((n, k), dtype=np.int32)
    parts = [np.arange(n)]
    while parts:
        pulse.beat()
        part = parts.pop()
        if part.size >= 2 * k:
            parts += _halves(ncp, part, k)
            continue
        tour = _tour(ncp, part)
        for r in range(k):
            matches[tour, r] = np.roll(tour, -r)
    return matches


def _halves(ncp: Ncp, part: IntArray, k: int) -> list[IntArray]:
    """Cut a partition of at least 2k records in two, of at least k records each."""
    first = part[np.argmax(pair_units(ncp, part[0], part))]
    to_first = pair_units(ncp, first, part)
    to_second = pair_units(ncp, part[np.argmax(to_first)], part)
    closer = to_first - to_second
    order = np.argsort(closer, kind="stable")
    cut = int(np.count_nonzero(closer < 0))
    cut = min(max(round(cut / k), 1), part.size // k - 1) * k
    return [np.sort(part[order[cut:]]), np.sort(part[order[:cut]])]


def _tour(ncp: Ncp, part: IntArray) -> IntArray:
    """Go from each record to the nearest that is left."""
    left = list(range(part.size))
    tour = [left.pop(0)]
    while left:
        distances = pair_units(ncp, part[tour[-1]], part[left])
        tour.append(left.pop(int(np.argmin(distances))))
    return part[tour]


_TRIES = 5  # originals of the other cell that one may change places with, at each proposal


@kernel
def anneal(
    records: PackedRecords,  # In order of their row types
    # Changed in place. Its members are the rows, one after the other; records are in several.
    cells: ClassSummaries,
    rows: CodeArray,  # (n, k): the matches of each cell
    cells_of: CodeArray,  # (n, k): cells that cover each original, changed in place
    # (t, q): row types that each one is to be brought together with; -1: none
    neighbors: CodeArray,
    first_of_type: IntArray,  # (t + 1,): first record of each row type, and the number of records
    type_of_record: CodeArray,
    n_proposals: Integer,
    # In units of loss: an exchange that loses so much more is made with a chance of 1 / e
    temperature: float,
    state: WordArray,  # (1,): state of the random numbers; not 0
) -> None:
    """Propose exchanges; make those that lose less, and others with a chance that falls with loss.

    An original moves to a cell that covers a similar one, in exchange for an original of that cell.
    """
    n, k = cells_of.shape
    low_bits = np.uint64(0xFFFFFFFF)
    for _ in range(n_proposals):
        draw = random_bits(state)
        original = np.int64(scaled(draw >> np.uint64(32), np.uint64(n)))
        which = np.int64(scaled(draw & low_bits, np.uint64(neighbors.shape[1])))
        near = neighbors[type_of_record[original], which]
        if near < 0:
            continue
        draw = random_bits(state)
        same_type = np.uint64(first_of_type[near + 1] - first_of_type[near])
        other = first_of_type[near] + np.int64(scaled(draw >> np.uint64(32), same_type))
        cell_place = np.int64(scaled(draw & low_bits, np.uint64(k)))
        draw = random_bits(state)
        a = np.int64(cells_of[original, cell_place])
        b = np.int64(cells_of[other, np.int64(scaled(draw >> np.uint64(32), np.uint64(k)))])
        if a == b or cells.losses[a] + cells.losses[b] == 0 or _place_of(rows[b], original) >= 0:
            continue
        place: Integer = np.int64(scaled(draw & low_bits, np.uint64(k)))
        for _ in range(min(k, _TRIES)):
            place = place + 1 if place + 1 < k else 0
            other = np.int64(rows[b, place])
            if type_of_record[other] == type_of_record[original]:
                continue
            threshold = threshold_of(temperature, state)
            change_b = exchange(records, cells, b, other, original)
            if change_b - cells.losses[a] > threshold:
                continue  # whatever the other cell saves
            change_a = exchange(records, cells, a, original, other)
            if change_a + change_b > threshold or _place_of(rows[a], other) >= 0:
                continue
            rows[a, _place_of(rows[a], original)] = other
            rows[b, place] = original
            cells_of[other, _place_of(cells_of[other], b)] = a
            cells_of[original, cell_place] = b
            cells.losses[a] += change_a
            cells.losses[b] += change_b
            summarize(records, cells, a)
            summarize(records, cells, b)
            break


@kernel
def summarize_cells(records: PackedRecords, cells: ClassSummaries) -> None:
    """Find the sets, ends and losses of all cells from their members."""
    for cell in range(cells.sizes.size):
        summarize(records, cells, cell)
        cells.losses[cell] = union_loss(records, cells, cell, cell)


@kernel
def _place_of(row: CodeArray, number: Integer) -> int:
    """Find a number in a row, -1 if it is not there."""
    for place in range(row.size):
        if row[place] == number:
            return place
    return -1


EFFORT = 300
"""Exchanges that are proposed for each match of each record, at least."""

_SMALL = PARTITION_SIZE  # records; below, the effort rises with the square, up to fourfold ...
_FEW_PROPOSALS = 2**25  # ... but to no more than some ten seconds
_LARGE_K = 30  # from here on, only classes are annealed

_HOTTEST, _COLDEST = 0.25, 0.04  # temperature as a share of the mean loss of a match
_COLD_PART = 4  # of the proposals, where no heat is used at all


def improve_matches(ncp: Ncp, matches: CodeArray, *, pulse: Pulse = UNLIMITED) -> CodeArray:
    """Lower the loss of a k-regular generalization graph.

    Parameters
    ----------
    ncp : Ncp
    matches : ndarray of int32, shape (n, k)
        As in :class:`~kanon_db.algorithms.freeform.matches.FreeformMatches`.
    pulse : Pulse
        Beaten every few milliseconds; what a beat raises ends the work.

    Returns
    -------
    ndarray of int32, shape (n, k)
        It never loses more than ``matches``. The same for the same records, whatever their order
        but for identical ones; what is published is drawn from it anew.

    Notes
    -----
    Not in [FF]. Pairs of cells exchange an original each (:func:`anneal`), so that the graph stays
    k-regular. An exchange changes only two cells; when k is large, many cells have matches in
    common, and single exchanges hardly lower the loss. So equivalence classes are found and
    annealed too, from k = 30 on these alone: on 1,000 records at k = 50 the graph of SortGreedy
    went from a GCP of 0.37 to 0.31, and classes to 0.26. In their graph each record matches its
    successors in a ring through its class, which loses no more than the class; where it loses less
    than the other graph, it is taken instead. So is the graph of
    :func:`~kanon_db.algorithms.freeform.improvement.ring`, which takes no time and is better where
    there are two attributes and k is large.
    """
    n, k = matches.shape
    if k == 1 or n <= k or not units_lost(ncp, matches):
        return matches
    order = lexicographic_order(ncp.values)
    rank = np.argsort(order)
    # Randomness here affects the loss, not privacy: a fixed seed will do.
    random = np.random.default_rng(0)
    in_order = ncp.of_records(order)
    typed = TypedRecords.of(in_order, random, pulse)
    n_proposals = EFFORT * n * k
    raised = int(n_proposals * min((_SMALL / n) ** 2, 4.0))
    n_proposals = max(n_proposals, min(raised, _FEW_PROPOSALS))
    start = rank[matches[order]].astype(np.int32)
    of_classes = Schedule(n_proposals * min(k, _LARGE_K) // _LARGE_K)
    graphs = [
        start,
        ring(in_order, k, pulse=pulse),
        _ring_of_classes(in_order, typed, k, of_classes, random, pulse),
    ]
    if k < _LARGE_K:
        hot = Schedule(n_proposals, _HOTTEST, _COLDEST)
        graphs.append(_anneal_graph(typed, start, hot, random, pulse))
    rows = min(graphs, key=partial(units_lost, in_order))
    if rows is not graphs[-1] or k >= _LARGE_K:
        # Only exchanges that lower the loss: heat would undo what was gained.
        cold = Schedule(n_proposals // _COLD_PART, hottest=0.0)
        rows = _anneal_graph(typed, rows, cold, random, pulse)
    result = np.empty_like(rows)
    result[order] = order[name_after_originals(rows, pulse=pulse)]
    return result


def _anneal_graph(
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
            typed.records, cells, rows, cells_of, typed.near, typed.first_of_type,
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
    # The number of classes grown is not the progress of the whole step.
    grown = grow_classes(ncp, order, k, pulse=Pulse(pulse.seconds_left, pulse.beat))
    classes = anneal_classes(typed, grown, k, schedule, random, pulse=pulse)
    # In the order of their rows, records are close to their successors.
    order = np.argsort(classes, kind="stable")
    in_order = classes[order]
    first = np.searchsorted(in_order, in_order)
    size = np.bincount(in_order)[in_order]
    matches = np.empty((n, k), dtype=np.int32)
    for r in range(k):
        matches[order, r] = order[first + (np.arange(n) - first + r) % size]
    return matches
