"""Row types and their neighbors, equivalence classes annealed on them, and the schedule of that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, IntArray, WordArray
from kanon_db.algorithms.recoding.classes import Classes, PackedRecords, disperse
from kanon_db.algorithms.recoding.constraints import NO_RULES, Constraint
from kanon_db.algorithms.recoding.ncp import Ncp
from kanon_db.algorithms.recoding.neighbors import neighbors
from kanon_db.algorithms.recoding.record_annealing import anneal

_N_NEIGHBORS = 12
_DISPERSED_SHARE = 0.015  # of the classes are given up first
_COLD_SHARE = 0.05  # of the proposals come last, without any heat
_PROPOSALS_PER_CALL = 2**13  # some milliseconds


def _unlimited() -> float:
    return 0.0


@dataclass(frozen=True, eq=False)
class RowTypes:
    """Records in an order in which those with the same row, a row type, lie side by side.

    Parameters
    ----------
    ncp : Ncp
    records : PackedRecords
    first_of_type : ndarray of int64, shape (t + 1,)
        First record of each row type, and the number of records.
    type_of_record : ndarray of int32, shape (n_records,)
    near : ndarray of int32, shape (t, 12)
        Row types that lose little together with each one, itself being one of them if it has
        several records; -1: none.
    """

    ncp: Ncp
    records: PackedRecords
    first_of_type: IntArray
    type_of_record: CodeArray
    near: CodeArray

    @classmethod
    def of(cls, ncp: Ncp, random: np.random.Generator, heartbeat: Callable[[], None]) -> RowTypes:
        """Find the row types and their neighbors.

        Parameters
        ----------
        ncp : Ncp
            Of records in such an order, at least one.
        random : numpy.random.Generator
        heartbeat : callable
            Called every few milliseconds.

        Returns
        -------
        RowTypes
        """
        values = ncp.values
        is_first = np.ones(values.shape[0], dtype=np.bool_)
        is_first[1:] = (values[1:] != values[:-1]).any(axis=1)
        first_of_type = np.append(np.flatnonzero(is_first), is_first.size)
        type_of_record = (np.cumsum(is_first) - 1).astype(np.int32)
        near = neighbors(
            values[is_first], ncp.numeric, ncp.whole, ncp.step, _N_NEIGHBORS, random, heartbeat
        )
        repeated = np.flatnonzero(np.diff(first_of_type) > 1)
        near[repeated, -1] = repeated
        return cls(ncp, PackedRecords.of(ncp), first_of_type, type_of_record, near)


@dataclass(frozen=True)
class Schedule:
    """How much is proposed, and how the temperature falls from the first proposal to the last.

    Parameters
    ----------
    n_proposals : int
    hottest, coldest : float
        Temperatures as shares of the mean loss; 0 as ``hottest``: no heat at all. The default is
        for equivalence classes.
    spent : callable
        Tells the share of a time limit that has passed. The work goes by it and by
        ``n_proposals``, whichever is further, and ends at 1.
    """

    n_proposals: int
    hottest: float = 0.4
    coldest: float = 0.045
    spent: Callable[[], float] = _unlimited

    def steps(self, mean_loss: float, heartbeat: Callable[[], None]) -> Iterator[tuple[int, float]]:
        """Divide the work into calls of some milliseconds.

        Parameters
        ----------
        mean_loss : float
            In units.
        heartbeat : callable
            Called before each of them.

        Yields
        ------
        n_proposals : int
        temperature : float
            In units.
        """
        n_done = 0
        while True:
            heartbeat()
            done = max(n_done / self.n_proposals if self.n_proposals else 1.0, self.spent())
            if done >= 1.0:
                return
            n_proposals = min(_PROPOSALS_PER_CALL, self.n_proposals - n_done)
            yield n_proposals, mean_loss * self._temperature(done)
            n_done += n_proposals

    def _temperature(self, done: float) -> float:
        """Temperature after a share of the work, as a share of the mean loss."""
        if not self.hottest or done >= 1 - _COLD_SHARE:
            return 0.0
        return float(self.hottest * (self.coldest / self.hottest) ** (done / (1 - _COLD_SHARE)))


def random_state(random: np.random.Generator) -> WordArray:
    """Draw where the random numbers of an annealing begin.

    Parameters
    ----------
    random : numpy.random.Generator

    Returns
    -------
    ndarray of uint64, shape (1,)
        Not 0.
    """
    return random.integers(1, 2**64, size=1, dtype=np.uint64)


def annealed_classes(
    types: RowTypes,
    class_of_record: IntArray,
    k: int,
    schedule: Schedule,
    random: np.random.Generator,
    heartbeat: Callable[[], None],
    constraint: Constraint | None = None,
) -> IntArray:
    """Anneal equivalence classes.

    Without a constraint some classes are given up first, their records dispersed, so that others
    have more than k records and can lose some.

    Parameters
    ----------
    types : RowTypes
    class_of_record : ndarray of int64, shape (n_records,)
        Classes of at least k records, numbered from 0 without gaps.
    k : int
    schedule : Schedule
    random : numpy.random.Generator
    heartbeat : callable
        Called every few milliseconds.
    constraint : Constraint, optional
        On the records in the order of ``types``; it holds for each class, and keeps holding.

    Returns
    -------
    ndarray of int64, shape (n_records,)
        Classes of at least k records, numbered from 0 without gaps. They may lose more than those
        before.
    """
    if constraint is None:
        class_of_record = disperse(
            types.records, class_of_record, types.near, types.type_of_record, types.first_of_type,
            k, _DISPERSED_SHARE, random,
        )  # fmt: skip
    classes = Classes.of(types.records, class_of_record, room=k)
    rules = NO_RULES if constraint is None else constraint.rules
    state = random_state(random)
    mean_loss = float(classes.losses @ classes.sizes) / class_of_record.size
    for n_proposals, temperature in schedule.steps(mean_loss, heartbeat):
        anneal(
            types.records, classes, k, types.near, types.first_of_type, types.type_of_record,
            rules, constraint is not None, n_proposals, temperature, state,
        )  # fmt: skip
    return classes.class_of_record
