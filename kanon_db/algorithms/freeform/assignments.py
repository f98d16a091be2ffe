"""The assignment that a freeform view is published along: drawn anew, at random ([FF] 2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numba
import numpy as np

from kanon_db.algorithms.freeform.result import Freeform, Part
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, Integer
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.ground.threads import in_threads
from kanon_db.errors import InvalidParameterError
from kanon_db.randomness import SeededRandom

_NUMBERS_PER_CALL = 2**18
_WORD = 2**64


class RandomBytes(Protocol):
    """The only kind of randomness needed; ``numpy.random.Generator`` provides it, too."""

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
    found: Freeform, random: RandomBytes, *, workers: int = 1, pulse: Pulse = UNLIMITED
) -> Assignments:
    """Split a k-regular graph into k disjoint assignments at random, and choose one of them.

    The choice is uniform: each of the k assignments is chosen with probability 1/k, independently
    of everything else. Every edge of the graph is in one of them. So whatever they are, each of
    the k matches of a record is its true one with a probability of exactly 1/k.

    Which k assignments there are to choose from is random, too, so that someone who
    knows the algorithm and the data does not know them; each edge can be in one with any other edge
    where the graph allows it. That draw is not uniform over all ways to split the graph, and need
    not be for the above. Two records' true matches depend on each other, as they do in equivalence
    classes.

    Parameters
    ----------
    found : Freeform
        Parts of it are split by themselves.
    random : RandomBytes
        Source of randomness.
    workers : int
        How many of these are split at a time.
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
    >>> found = Freeform.whole(np.array([[0, 1], [1, 2], [2, 0]], dtype=np.int32))
    >>> drawn = draw_assignments(found, np.random.default_rng(1))
    >>> sorted(drawn.cell_of_original.tolist())
    [[0, 1, 2], [2, 0, 1]]
    """
    n_records = sum(part.records.size for part in found.parts)
    k = found.parts[0].matches.shape[1] if found.parts else 1
    assignments = np.empty((k, n_records), dtype=np.int32)

    def draw(given: tuple[list[Part], RandomBytes], pulse: Pulse) -> None:
        parts, its_random = given
        run = Part.joined(parts)
        drawn = _drawn(run.matches.astype(np.int32, copy=False), its_random, pulse)
        assignments[:, run.records] = run.records[drawn]

    # Each has its own randomness, so that nothing depends on which thread comes first.
    runs = [(parts, SeededRandom(random.bytes(32))) for parts in found.runs()]
    in_threads(draw, runs, workers, pulse)
    return Assignments(assignments, _uniform(k, random) if n_records else 0)


def _drawn(matches: CodeArray, random: RandomBytes, pulse: Pulse) -> CodeArray:
    """Split a graph; return the cell of each original in each assignment, shape (k, n)."""
    remaining = _cells_of_originals(matches)
    for degree in range(matches.shape[1], 1, -1):
        _draw_one(remaining, degree, random, pulse)
    return np.ascontiguousarray(remaining.T)


def as_assignments(rows: AnyIntArray, *, pulse: Pulse = UNLIMITED) -> CodeArray:
    """Order the matches of each record so that columns are assignments, the identity first.

    Parameters
    ----------
    rows : ndarray of int, shape (n_records, k)
        Originals that each published record covers, itself among them, in any order; a k-regular
        graph.
    pulse : Pulse

    Returns
    -------
    ndarray of int32, shape (n_records, k)

    Raises
    ------
    InvalidParameterError
        If the graph is not k-regular.

    Notes
    -----
    **Source:** [FF] Theorem 2.3. The same rows always give the same columns. These only
    bring the graph into its form; they are not for publishing along.

    Examples
    --------
    >>> as_assignments(np.array([[1, 0, 2], [0, 1, 2], [2, 1, 0]])).tolist()
    [[0, 2, 1], [1, 0, 2], [2, 1, 0]]
    """
    n, k = rows.shape
    others = rows[rows != np.arange(n)[:, np.newaxis]]
    if others.size != n * (k - 1):
        raise InvalidParameterError(
            "each record must match itself exactly once", detail=f"n_records = {n}"
        )
    matches = np.empty((n, k), dtype=np.int32)
    matches[:, 0] = np.arange(n)
    if k > 1:
        matches[:, 1:] = _split(others.reshape(n, k - 1), pulse)
    return matches


def named_after_originals(rows: AnyIntArray, *, pulse: Pulse = UNLIMITED) -> CodeArray:
    """Split a graph into assignments, and name the cells so that one of them is the identity.

    Parameters
    ----------
    rows : ndarray of int, shape (n_records, k)
        Originals that each cell covers, in any order; a k-regular graph.
    pulse : Pulse

    Returns
    -------
    ndarray of int32, shape (n_records, k)
        The same cells in another order; columns are assignments, the identity first.

    Raises
    ------
    InvalidParameterError
        If the graph is not k-regular.

    Notes
    -----
    **Source:** [FF] Theorem 2.3. As in :func:`as_assignments`, the columns only bring the graph
    into its form.

    Examples
    --------
    >>> named_after_originals(np.array([[1, 2], [2, 0], [0, 1]])).tolist()
    [[0, 2], [1, 0], [2, 1]]
    """
    matches = _split(rows, pulse)
    return matches[np.argsort(matches[:, 0])]


def _split(rows: AnyIntArray, pulse: Pulse) -> CodeArray:
    """Order the matches of each cell so that columns are assignments."""
    found = Freeform.whole(rows.astype(np.int32))
    return draw_assignments(found, np.random.default_rng(0), pulse=pulse).matches


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


@numba.njit(cache=True, nogil=True)
def _is_regular(matches: CodeArray, cells: CodeArray) -> bool:
    """List the cells of each original, unless one has more or less than k."""
    n, k = matches.shape
    found = np.zeros(n, dtype=np.int32)
    for cell in range(n):
        for number in range(k):
            original = matches[cell, number]
            if original < 0 or original >= n or found[original] == k:
                return False
            cells[original, found[original]] = cell
            found[original] += 1
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


@numba.njit(cache=True, nogil=True)
def _walk(
    edges: CodeArray,
    degree: int,
    owner: CodeArray,
    exit_of: CodeArray,
    numbers: AnyIntArray,
    place: tuple[Integer, Integer, Integer],
) -> tuple[Integer, Integer, Integer]:
    """Walk on until all originals have a cell, or the random numbers are used up.

    A place is the original whose walk it is, the one where it is now, and the cell that this one
    has and must not leave by, or -1.
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


@numba.njit(cache=True, nogil=True)
def _set_aside(edges: CodeArray, degree: int, owner: CodeArray) -> None:
    for cell in range(owner.size):
        row = edges[owner[cell]]
        for place in range(degree):
            if row[place] == cell:
                row[place] = row[degree - 1]
                row[degree - 1] = cell
                break
