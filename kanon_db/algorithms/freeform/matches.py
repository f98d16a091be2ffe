"""Defines the matches that methods of freeform generalization return, their cells and assignments.

A method can run on one segment of the sorted records after the other ([FF] Section 8.1). The
assignment along which a view is published is drawn anew, at random ([FF] Section 2.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol, Self

import numpy as np

from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    CodeArray,
    IntArray,
    Integer,
    order_of,
    sort_keys,
)
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse, in_threads, kernel, n_cores
from kanon_db.algorithms.recoding.generalized_cells import (
    NumberedCells,
    Ranges,
    Sets,
    distinct_cells,
    join_cells,
)
from kanon_db.algorithms.recoding.loss import Ncp
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata, check_k
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError
from kanon_db.randomness import SeededRandom

_RECORDS_OF_BLOCK = 2**16
_RECORDS_OF_RUN = 2**14


@dataclass(frozen=True, eq=False)
class MatchedPart:
    """Records that match only one another.

    Parameters
    ----------
    records : ndarray of int, shape (n_part,)
    matches : ndarray of int, shape (n_part, k)
        Row j holds the originals that published record j covers, as places among ``records``: k
        different ones. Each column is an assignment, in which every original occurs once; the
        first is the identity.
    """

    records: AnyIntArray
    matches: AnyIntArray

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Put some parts side by side."""
        starts = np.cumsum([0, *(part.records.size for part in parts)])
        return cls(
            np.concatenate([part.records for part in parts]),
            np.concatenate(
                [
                    part.matches.astype(np.int32) + np.int32(start)
                    for part, start in zip(parts, starts[:-1], strict=True)
                ]
            ),
        )


@dataclass(frozen=True, eq=False)
class FreeformMatches:
    """A k-regular generalization graph, as k disjoint assignments.

    Parameters
    ----------
    parts : sequence of MatchedPart
        Each record is in one of them.

    Notes
    -----
    **Source:** [FF] Definitions 2 and 3. The columns show how the graph was found, and the first
    of them shows who is who. So publish along an assignment that is drawn anew
    (:func:`~kanon_db.algorithms.freeform.matches.draw_assignments`), never along a column.
    """

    parts: Sequence[MatchedPart]

    @classmethod
    def whole(cls, matches: CodeArray) -> Self:
        """Take a graph as one part.

        Parameters
        ----------
        matches : ndarray of int32, shape (n_records, k)
            As in :attr:`matches`.
        """
        return cls([MatchedPart(np.arange(matches.shape[0]), matches)])

    def runs(self) -> list[list[MatchedPart]]:
        """Group parts, since work on a group of many records costs less than on each part."""
        sizes = np.array([part.records.size for part in self.parts], dtype=np.int64)
        run_of_part = (np.cumsum(sizes) - sizes) // _RECORDS_OF_RUN
        firsts = np.flatnonzero(np.diff(run_of_part, prepend=-1)).tolist()
        return [list(self.parts[first:end]) for first, end in pairwise([*firsts, len(self.parts)])]

    @property
    def matches(self) -> CodeArray:
        """The originals that each published record covers, shape (n_records, k)."""
        n_records = sum(part.records.size for part in self.parts)
        n_matches = self.parts[0].matches.shape[1] if self.parts else 0
        matches = np.full((n_records, n_matches), -1, dtype=np.int32)
        for part in self.parts:
            matches[part.records] = part.records[part.matches]
        return matches


def cells(
    microdata: Microdata, matches: AnyIntArray, *, pulse: Pulse = UNLIMITED
) -> tuple[Ranges | Sets, ...]:
    """Generalize each published record to what covers its matches.

    Parameters
    ----------
    microdata : Microdata
    matches : ndarray of int, shape (n_published, q)
        Originals that each published record covers, repeated ones allowed.
    pulse : Pulse
        Beaten every few milliseconds; what a beat raises ends the work.

    Returns
    -------
    tuple of Ranges or Sets, length m
        Cells of each attribute: ranges of a numeric one, sets of a categorical one.

    Notes
    -----
    **Source:** [FF] Section 3. A numeric cell with NULLs and numbers tells nothing
    (:class:`~kanon_db.algorithms.recoding.microdata.Attribute`).

    Examples
    --------
    >>> from kanon_db.algorithms.recoding.microdata import Attribute
    >>> age = Attribute(3, numbers=np.array([20.0, 40.0, np.nan]), lower=20, upper=40)
    >>> table = Microdata([[0, 1], [1, 0], [2, 1]], (age, Attribute(2)))
    >>> ages, jobs = cells(table, np.array([[0, 1], [1, 2], [2, 0]]))
    >>> ages.low.tolist(), ages.high.tolist(), ages.tells_nothing.tolist()
    ([0, 1, 0], [1, 1, 0], [False, True, True])
    >>> jobs.codes.tolist(), jobs.ends.tolist()
    ([0, 1, 0, 1, 1], [2, 4, 5])
    """
    n = matches.shape[0]
    found = []
    for start in range(0, max(n, 1), _RECORDS_OF_BLOCK):
        pulse.beat()
        found.append(_cells_of(microdata, matches[start : start + _RECORDS_OF_BLOCK]))
    return tuple(join_cells(blocks) for blocks in zip(*found, strict=True))


def numbered_cells(
    microdata: Microdata, graph: FreeformMatches, *, pulse: Pulse = UNLIMITED
) -> tuple[NumberedCells, ...]:
    """Generalize each published record of a graph, and tell which have the same cells.

    Parameters
    ----------
    microdata : Microdata
    graph : FreeformMatches
    pulse : Pulse
        Beaten every few milliseconds; what a beat raises ends the work.

    Returns
    -------
    tuple of NumberedCells, length m
        The cells that :func:`cells` makes, in a fraction of the memory: records of a part have few
        different ones.

    Examples
    --------
    >>> from kanon_db.algorithms.recoding.microdata import Attribute
    >>> age = Attribute(4, numbers=np.array([20.0, 30, 50, 60]), lower=20, upper=60)
    >>> table = Microdata([[3], [1], [2], [0]], (age,))
    >>> swap = np.array([[0, 1], [1, 0]])
    >>> halves = [MatchedPart(np.array(half), swap) for half in ([0, 2], [3, 1])]
    >>> (ages,) = numbered_cells(table, FreeformMatches(halves))
    >>> ages.cells.low.tolist(), ages.cells.high.tolist(), ages.numbers.tolist()
    ([0, 2], [1, 3], [1, 0, 1, 0])
    """

    def of_run(parts: list[MatchedPart], pulse: Pulse) -> tuple[AnyIntArray, list[NumberedCells]]:
        pulse.beat()
        run = MatchedPart.joined(parts)
        own = _cells_of(microdata, run.records[run.matches])
        return run.records, [distinct_cells(its_cells) for its_cells in own]

    made = in_threads(of_run, graph.runs(), n_cores(), pulse.of_part())
    numbered = []
    for of_runs in zip(*(own for _, own in made), strict=True):
        pulse.beat()
        ends = np.cumsum([cells.n_cells for cells, _ in of_runs])
        few, numbers = distinct_cells(join_cells([cells for cells, _ in of_runs]))
        of_records = np.empty(microdata.n_records, dtype=numbers.dtype)
        for (records, _), (cells, own), end in zip(made, of_runs, ends, strict=True):
            of_records[records] = numbers[end - cells.n_cells : end][own]
        numbered.append(NumberedCells(few, of_records))
    return tuple(numbered)


def _cells_of(microdata: Microdata, matches: AnyIntArray) -> list[Ranges | Sets]:
    return [
        _cells(attribute, column[matches])
        for attribute, column in zip(microdata.attributes, microdata.codes.T, strict=True)
    ]


def _cells(attribute: Attribute, codes: CodeArray) -> Ranges | Sets:
    """Cover the codes of each row."""
    if attribute.numbers is None:
        codes.sort(axis=1)
        is_new = np.ones(codes.shape, dtype=np.bool_)
        is_new[:, 1:] = codes[:, 1:] != codes[:, :-1]
        return Sets(codes[is_new], np.cumsum(is_new.sum(axis=1, dtype=np.int64)))
    is_null = np.isnan(attribute.numbers)[codes]
    n_null = is_null.sum(axis=1)
    tells_nothing = (n_null > 0) & (n_null < codes.shape[1])
    low = codes.min(axis=1)
    known = np.where(is_null, low[:, np.newaxis], codes)
    return Ranges(low, known.max(axis=1), tells_nothing)


_NUMBERS_PER_CALL = 2**18
_WORD = 2**64


class RandomBytes(Protocol):
    """A source of random bytes, such as ``numpy.random.Generator``."""

    def bytes(self, length: int, /) -> bytes:
        """Return uniformly random bytes."""


@dataclass(frozen=True, eq=False)
class Assignments:
    """k disjoint assignments that make up a generalization graph, and the one to publish along.

    Parameters
    ----------
    cell_of_original : ndarray of int32, shape (k, n_records)
        Published record that each original is assigned to, by each assignment.
    chosen : int
        Which of them is the true one: the other attributes of each original go to the cell it
        is assigned to.
    """

    cell_of_original: CodeArray
    chosen: int

    @property
    def k(self) -> int:
        """How many assignments there are."""
        return len(self.cell_of_original)

    @property
    def cells(self) -> CodeArray:
        """Published record that each original's other attributes go to, shape (n_records,)."""
        cells: CodeArray = self.cell_of_original[self.chosen]
        return cells

    @property
    def matches(self) -> CodeArray:
        """The originals that each published record covers, shape (n_records, k)."""
        matches = np.full(self.cell_of_original.T.shape, -1, dtype=np.int32)
        for number, cell_of_original in enumerate(self.cell_of_original):
            matches[cell_of_original, number] = np.arange(cell_of_original.size)
        return matches


def draw_assignments(
    graph: FreeformMatches, random: RandomBytes, *, workers: int = 1, pulse: Pulse = UNLIMITED
) -> Assignments:
    """Split a k-regular graph into k disjoint assignments at random, and choose one of them.

    The choice is uniform: each of the k assignments is chosen with probability 1/k, independently
    of everything else. Every edge of the graph is in one of them. So whatever they are, each of
    the k matches of a record is its true one with a probability of exactly 1/k.

    The k assignments are drawn at random, too, so that someone who knows the algorithm and the data
    does not know them; any two edges can share an assignment where the graph allows it. That draw
    is not uniform over all splits of the graph, and the probability of 1/k does not need it to be.
    The true matches of two records depend on each other, as they do in equivalence classes.

    Parameters
    ----------
    graph : FreeformMatches
        Parts of it are split by themselves.
    random : RandomBytes
        Source of randomness.
    workers : int
        How many parts are split at a time.
    pulse : Pulse
        Beaten every few milliseconds; what a beat raises ends the work.

    Returns
    -------
    Assignments

    Raises
    ------
    InvalidParameterError
        If the graph is not k-regular.

    Notes
    -----
    **Source:** [FF] Section 2.2, Lemma 2.2, Theorem 2.3. Each assignment is found by random walks
    and its edges are left out of the graph for the next. A walk goes from an original without a
    cell along a random edge; from a cell that is taken it goes on to the original that has it,
    until it comes to a free cell. Without its loops it is an augmenting path (Goel, Kapralov and
    Khanna: Perfect matchings in O(n log n) time in regular bipartite graphs, 2010; the paper's
    walks look for cycles). Expected time: O(k n log n), where the paper has O(k n^2).

    Examples
    --------
    >>> found = FreeformMatches.whole(np.array([[0, 1], [1, 2], [2, 0]], dtype=np.int32))
    >>> drawn = draw_assignments(found, np.random.default_rng(1))
    >>> sorted(drawn.cell_of_original.tolist())
    [[0, 1, 2], [2, 0, 1]]
    """
    n_records = sum(part.records.size for part in graph.parts)
    k = graph.parts[0].matches.shape[1] if graph.parts else 1
    assignments = np.empty((k, n_records), dtype=np.int32)

    def draw(given: tuple[list[MatchedPart], RandomBytes], pulse: Pulse) -> None:
        parts, its_random = given
        run = MatchedPart.joined(parts)
        drawn = _draw(run.matches.astype(np.int32, copy=False), its_random, pulse)
        assignments[:, run.records] = run.records[drawn]

    # Each part has its own random bytes, so that the order of threads does not matter.
    runs = [(parts, SeededRandom(random.bytes(32))) for parts in graph.runs()]
    in_threads(draw, runs, workers, pulse)
    return Assignments(assignments, _uniform(k, random) if n_records else 0)


def _draw(matches: CodeArray, random: RandomBytes, pulse: Pulse) -> CodeArray:
    """Split a graph; return the cell of each original in each assignment, shape (k, n)."""
    remaining = _cells_of_originals(matches)
    for degree in range(matches.shape[1], 1, -1):
        _draw_one(remaining, degree, random, pulse)
    return np.ascontiguousarray(remaining.T)


def as_assignments(rows: AnyIntArray, *, pulse: Pulse = UNLIMITED) -> CodeArray:
    """Order the matches of each record so that columns are assignments, the identity first.

    **Source:** [FF] Theorem 2.3. Deterministic, so not for publishing along.
    """
    n, k = rows.shape
    columns = rows[rows != np.arange(n)[:, np.newaxis]]
    if columns.size != n * (k - 1):
        raise InvalidParameterError(
            "each record must match itself exactly once", detail=f"n_records = {n}"
        )
    matches = np.empty((n, k), dtype=np.int32)
    matches[:, 0] = np.arange(n)
    if k > 1:
        matches[:, 1:] = _split(columns.reshape(n, k - 1), pulse)
    return matches


def name_after_originals(rows: AnyIntArray, *, pulse: Pulse = UNLIMITED) -> CodeArray:
    """Split a graph into assignments, and name the cells so that one of them is the identity.

    **Source:** [FF] Theorem 2.3.
    """
    matches = _split(rows, pulse)
    return matches[np.argsort(matches[:, 0])]


def _split(rows: AnyIntArray, pulse: Pulse) -> CodeArray:
    """Order the matches of each cell so that columns are assignments."""
    graph = FreeformMatches.whole(rows.astype(np.int32))
    return draw_assignments(graph, np.random.default_rng(0), pulse=pulse).matches


def _cells_of_originals(matches: CodeArray) -> CodeArray:
    """Find the cells that cover each original, ascending, shape (n, k)."""
    n, k = matches.shape
    cells = np.empty((n, k), dtype=np.int32)
    if not _is_regular(matches, cells):
        raise _irregular(n, k)
    if (cells[:, 1:] == cells[:, :-1]).any():
        raise InvalidParameterError(
            "the matches of a record must all be different", detail=f"n_records = {n}, k = {k}"
        )
    return cells


def _irregular(n: int, k: int) -> InvalidParameterError:
    return InvalidParameterError(
        "every record must have k matches on both sides", detail=f"n_records = {n}, k = {k}"
    )


@kernel
def _is_regular(matches: CodeArray, cells: CodeArray) -> bool:
    """List the cells of each original, unless one has more or less than k."""
    n, k = matches.shape
    n_cells = np.zeros(n, dtype=np.int32)
    for cell in range(n):
        for number in range(k):
            original = matches[cell, number]
            if original < 0 or original >= n or n_cells[original] == k:
                return False
            cells[original, n_cells[original]] = cell
            n_cells[original] += 1
    return True


def _uniform(k: int, random: RandomBytes) -> int:
    """Draw from 0 … k-1, all with the same probability."""
    while True:
        number = int.from_bytes(random.bytes(8), "little")
        if number < _WORD - _WORD % k:
            return number % k


def _draw_one(edges: CodeArray, degree: int, random: RandomBytes, pulse: Pulse) -> None:
    """Draw an assignment from the first columns; move its edges to the last one of them."""
    n = edges.shape[0]
    owner = np.full(n, -1, dtype=np.int32)
    exit_of = np.full(n, -1, dtype=np.int32)
    place: tuple[Integer, Integer, Integer] = (0, 0, -1)
    while place[0] < n:
        # As a rule, as many as all walks of few records need.
        n_numbers = min(_NUMBERS_PER_CALL, 4 * n)
        numbers = np.frombuffer(random.bytes(4 * n_numbers), dtype=np.uint32)
        place = _walk(edges, degree, owner, exit_of, numbers, place)
        pulse.beat()
    _set_aside(edges, degree, owner)


@kernel
def _walk(
    edges: CodeArray,
    degree: int,
    owner: CodeArray,
    exit_of: CodeArray,
    numbers: AnyIntArray,
    place: tuple[Integer, Integer, Integer],
) -> tuple[Integer, Integer, Integer]:
    """Walk on until all originals have a cell, or the random numbers are used up.

    ``place``: the walk's first original, the current one, and its cell, not to be next, or -1.
    """
    walker, current, held = place
    for number in numbers:
        if walker == owner.size:
            break
        cell = edges[current, number % degree]
        if cell == held:
            continue
        # The last way out of an original is the one without loops.
        exit_of[current] = cell
        if owner[cell] >= 0:
            current, held = np.int64(owner[cell]), np.int64(cell)
            continue
        current = walker
        while current >= 0:
            cell = exit_of[current]
            current, owner[cell] = np.int64(owner[cell]), current
        walker += 1
        current, held = walker, -1
    return walker, current, held


@kernel
def _set_aside(edges: CodeArray, degree: int, owner: CodeArray) -> None:
    for cell in range(owner.size):
        row = edges[owner[cell]]
        for place in range(degree):
            if row[place] == cell:
                row[place] = row[degree - 1]
                row[degree - 1] = cell
                break


PARTITION_SIZE = 2000
"""Least number of records of a segment, unless told otherwise; tables of up to 3,999 stay whole.

At 10,000 records and k = 10, SortGreedy with improvement had a GCP of 0.0405 in 20 s this way, and
of 0.0404 in 37 s on the whole table (ipums1980).
"""


class Method(Protocol):
    """A way to find a k-regular graph."""

    def __call__(self, ncp: Ncp, k: int, *, pulse: Pulse) -> CodeArray:
        """Find the matches of records whose losses are known in units."""


def lexicographic_order(values: AnyIntArray) -> IntArray:
    """Sort records by their attributes, those with the fewest distinct values first.

    **Source:** [FF] Section 5: so large changes between neighbors are rare.
    """
    n_distinct = [np.unique(column).size for column in values.T]
    by_size = np.argsort(n_distinct, kind="stable")
    return order_of(sort_keys(list(values.T[by_size])), stable=True)


def partitions(values: AnyIntArray, partition_size: int) -> list[IntArray]:
    """Cut the lexicographic order into segments of about the same size.

    **Source:** [FF] Section 8.1. All but the last are even, as many a symmetric graph needs.
    """
    if partition_size < 1:
        raise InvalidParameterError(
            "partition_size must be at least 1", detail=f"partition_size = {partition_size}"
        )
    order = lexicographic_order(values)
    if not order.size:
        return []
    return np.split(order, segment_starts(order.size, partition_size)[1:])


def segment_starts(n_records: int, partition_size: int) -> IntArray:
    """Return where the segments of sorted records begin; see :func:`partitions`.

    Examples
    --------
    >>> segment_starts(11, 4)
    array([0, 4])
    """
    n_pairs, n_parts = n_records // 2, max(n_records // (partition_size + partition_size % 2), 1)
    starts: IntArray = 2 * (np.arange(n_parts) * n_pairs // n_parts)
    return starts


def check_partition_size(partition_size: int, k: int) -> None:
    """Refuse segments in which no record could have k matches.

    Raises
    ------
    InvalidParameterError
    """
    if partition_size < k:
        raise InvalidParameterError(
            "partition_size must not be less than k",
            detail=f"partition_size = {partition_size}, k = {k}",
        )


def partitioned(
    microdata: Microdata,
    k: int,
    method: Method,
    partition_size: int = PARTITION_SIZE,
    *,
    workers: int = 1,
    pulse: Pulse = UNLIMITED,
) -> FreeformMatches:
    """Run a method on each segment of the sorted records.

    Parameters
    ----------
    microdata : Microdata
    k : int
        Matches of each record, at least 1.
    method : Method
        Such as :func:`~kanon_db.algorithms.freeform.matching_heuristics.sort_greedy`.
    partition_size : int
        Least records of a segment, at least ``k``.
    workers : int
        Segments that are worked on at the same time, at least 1; the result does not depend on it.
    pulse : Pulse
        Beaten every few milliseconds, in the thread of the caller; what a beat raises ends the
        work.

    Returns
    -------
    FreeformMatches

    Raises
    ------
    InfeasibleError
        If there are fewer than ``k`` records, or as the method says.
    InvalidParameterError
        If ``k`` or ``workers`` is less than 1, ``partition_size`` less than ``k``, or as the
        method says.

    Notes
    -----
    **Source:** [FF] Section 8.1, with threads for its machines: the work is done without the
    interpreter's lock.

    Examples
    --------
    >>> from kanon_db.algorithms.freeform.matching_heuristics import sort_greedy
    >>> from kanon_db.algorithms.recoding.microdata import Attribute
    >>> age = Attribute(4, numbers=np.array([20.0, 30, 50, 60]), lower=20, upper=60)
    >>> table = Microdata([[3], [1], [2], [0]], (age,))
    >>> partitioned(table, 2, sort_greedy, 2).matches.tolist()
    [[0, 2], [1, 3], [2, 0], [3, 1]]
    """
    check_k(k, microdata.n_records)
    check_partition_size(partition_size, k)
    if workers < 1:
        raise InvalidParameterError("workers must be at least 1", detail=f"workers = {workers}")
    ncp = Ncp.of(microdata, pulse=pulse)
    parts = partitions(ncp.values, partition_size)

    def run(records: IntArray, pulse: Pulse) -> MatchedPart:
        matches = method(ncp.of_records(records), k, pulse=pulse)
        return MatchedPart(records, matches.astype(np.min_scalar_type(max(records.size - 1, 0))))

    if not parts:
        return FreeformMatches.whole(np.empty((0, k), dtype=np.int32))
    if workers == 1 or len(parts) == 1:
        return FreeformMatches([run(part, pulse) for part in parts])
    return FreeformMatches(in_threads(run, parts, workers, pulse))
