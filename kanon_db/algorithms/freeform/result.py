"""What the methods of freeform generalization return: matches, and the cells they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.ground.threads import in_threads, n_cores
from kanon_db.algorithms.recoding.cells import (
    NumberedCells,
    Ranges,
    Sets,
    distinct_cells,
    joined_cells,
)
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata

_RECORDS_OF_BLOCK = 2**16
_RECORDS_OF_RUN = 2**14


@dataclass(frozen=True, eq=False)
class Part:
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
class Freeform:
    """A k-regular generalization graph, as k disjoint assignments.

    Parameters
    ----------
    parts : sequence of Part
        Each record is in one of them.

    Notes
    -----
    **Source:** [FF] Definitions 2 and 3. The columns show how the graph was found, and the first
    of them shows who is who. So publish along an assignment that is drawn anew
    (:func:`~kanon_db.algorithms.freeform.assignments.draw_assignments`), never along a column.
    """

    parts: Sequence[Part]

    @classmethod
    def whole(cls, matches: CodeArray) -> Self:
        """Take a graph as one part.

        Parameters
        ----------
        matches : ndarray of int32, shape (n_records, k)
            As in :attr:`matches`.
        """
        return cls([Part(np.arange(matches.shape[0]), matches)])

    def runs(self) -> list[list[Part]]:
        """Group parts, so that what is done for each group is not done for a few records only."""
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
    return tuple(joined_cells(blocks) for blocks in zip(*found, strict=True))


def numbered_cells(
    microdata: Microdata, found: Freeform, *, pulse: Pulse = UNLIMITED
) -> tuple[NumberedCells, ...]:
    """Generalize each published record of a graph, and tell which have the same cells.

    Parameters
    ----------
    microdata : Microdata
    found : Freeform
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
    >>> halves = [Part(np.array(half), np.array([[0, 1], [1, 0]])) for half in ([0, 2], [3, 1])]
    >>> (ages,) = numbered_cells(table, Freeform(halves))
    >>> ages.cells.low.tolist(), ages.cells.high.tolist(), ages.numbers.tolist()
    ([0, 2], [1, 3], [1, 0, 1, 0])
    """

    def of_run(parts: list[Part], pulse: Pulse) -> tuple[AnyIntArray, list[NumberedCells]]:
        pulse.beat()
        run = Part.joined(parts)
        own = _cells_of(microdata, run.records[run.matches])
        return run.records, [distinct_cells(its_cells) for its_cells in own]

    made = in_threads(of_run, found.runs(), n_cores(), pulse.of_part())
    numbered = []
    for of_runs in zip(*(own for _, own in made), strict=True):
        pulse.beat()
        ends = np.cumsum([cells.n_cells for cells, _ in of_runs])
        few, numbers = distinct_cells(joined_cells([cells for cells, _ in of_runs]))
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
