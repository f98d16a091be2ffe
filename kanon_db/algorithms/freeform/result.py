"""What the methods of freeform generalization return: matches, and the cells they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, IntArray
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.ground.threads import in_threads, n_cores
from kanon_db.algorithms.recoding.cells import Ranges, Sets
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata

_RECORDS_OF_BLOCK = 2**16


@dataclass(frozen=True, eq=False)
class Freeform:
    """A k-regular generalization graph, as k disjoint assignments.

    Parameters
    ----------
    matches : ndarray of int32, shape (n_records, k)
        Row j holds the originals that published record j covers: k different ones. Each column
        is an assignment, in which every original occurs once; the first is the identity.
    order : ndarray of int64, shape (n_records,), optional
        All records, those of a partition side by side: they match only one another.

    Notes
    -----
    **Source:** [FF] Definitions 2 and 3. The columns show how the graph was found, and the first
    of them shows who is who. So publish along an assignment that is drawn anew
    (:func:`~kanon_db.algorithms.freeform.assignments.draw_assignments`), never along a column.
    """

    matches: CodeArray
    order: IntArray | None = field(default=None, kw_only=True)


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
    blocks = [slice(start, start + _RECORDS_OF_BLOCK) for start in range(0, n, _RECORDS_OF_BLOCK)]

    def of_block(block: slice, pulse: Pulse) -> list[Ranges | Sets]:
        pulse.beat()
        return [
            _cells(attribute, column[matches[block]])
            for attribute, column in zip(microdata.attributes, microdata.codes.T, strict=True)
        ]

    found = in_threads(of_block, blocks or [slice(0)], n_cores(), pulse.of_part())
    return tuple(_joined(parts) for parts in zip(*found, strict=True))


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


def _joined(parts: Sequence[Ranges | Sets]) -> Ranges | Sets:
    """Put the cells of an attribute one after the other."""
    ranges = [part for part in parts if isinstance(part, Ranges)]
    if ranges:
        return Ranges(
            np.concatenate([part.low for part in ranges]),
            np.concatenate([part.high for part in ranges]),
            np.concatenate([part.tells_nothing for part in ranges]),
        )
    sets = [part for part in parts if isinstance(part, Sets)]
    sizes = np.concatenate([part.sizes for part in sets])
    return Sets(np.concatenate([part.codes for part in sets]), np.cumsum(sizes))
