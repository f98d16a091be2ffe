"""Refinement: classes of any method made to lose less, by simulated annealing."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.generalization.checked_classes import checked_classes
from kanon_db.algorithms.generalization.result import Generalization
from kanon_db.algorithms.generalization.split import split
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.recoding.class_annealing import annealed_classes
from kanon_db.algorithms.recoding.constraints import Constraint
from kanon_db.algorithms.recoding.cooling import Schedule
from kanon_db.algorithms.recoding.microdata import Microdata
from kanon_db.algorithms.recoding.ncp import Ncp
from kanon_db.algorithms.recoding.order import sort_order
from kanon_db.algorithms.recoding.typed_records import TypedRecords
from kanon_db.errors import InvalidParameterError


def refine(
    microdata: Microdata,
    class_of_record: npt.ArrayLike,
    k: int,
    *,
    random: np.random.Generator,
    effort: int = 1000,
    constraint: Constraint | None = None,
    pulse: Pulse = UNLIMITED,
    workers: int = 1,
) -> Generalization:
    """Lower the loss of equivalence classes.

    The result never loses more than what is given, all its classes have at least ``k`` records,
    and the constraint holds for them if it held before. Suppressed records stay so.

    Parameters
    ----------
    microdata : Microdata
    class_of_record : array_like of int, shape (n_records,)
        Equivalence class of each record; -1 for a suppressed one.
    k : int
        Fewest records of a class, at least 1.
    random : numpy.random.Generator
        Draws the changes that are tried.
    effort : int
        Changes to be proposed for each record, at least 0.
    constraint : Constraint, optional
        On the sensitive values of each class.
    pulse : Pulse
        The work is planned by the share of its time that has passed or by ``effort``, whichever is
        further along, and ends when either is used up.
    workers : int
        Threads that propose changes.

    Returns
    -------
    Generalization
        Classes numbered from 0, anew.

    Raises
    ------
    InfeasibleError
        If there are records, but fewer than ``k``.
    InvalidParameterError
        If ``k`` is less than 1, ``effort`` less than 0, a class smaller than ``k``, or the
        constraint does not hold for a class.

    Notes
    -----
    Classes of 2k records or more are split first, which never loses more. Then simulated annealing:
    a record that is drawn moves to the class of a record much like it, or changes places with one
    of that class. Changes that lose more are made too, with a chance that falls as the work goes
    on. Some classes are given up at the start, their records dispersed, so that others have more
    than k records and moves are possible.

    Losses after a change follow from summaries of the classes, not from their records
    (:mod:`~kanon_db.algorithms.recoding.class_summaries`), so a proposal takes about a
    microsecond; only a change that is made takes time that grows with k. Memory grows with the
    number of records, and with the number of classes times that of categorical values, two bits
    each.
    """
    classes = checked_classes(microdata, class_of_record, k, constraint)
    if effort < 0:
        raise InvalidParameterError("effort must be at least 0", detail=f"effort = {effort}")
    published = np.flatnonzero(classes >= 0)
    if not published.size:
        return Generalization(classes)
    if published.size < classes.size:
        microdata = Microdata(microdata.codes[published], microdata.attributes)
        constraint = constraint and constraint.restricted_to(published)
    classes[published] = _refined(
        microdata, classes[published], k, random, effort, constraint, pulse, workers
    )
    return Generalization(classes)


def _refined(
    microdata: Microdata,
    class_of_record: IntArray,
    k: int,
    random: np.random.Generator,
    effort: int,
    constraint: Constraint | None,
    pulse: Pulse,
    workers: int,
) -> IntArray:
    """Refine classes of all records."""
    before = class_of_record
    if constraint is None:
        before = split(microdata, class_of_record, k, pulse=pulse)
    ncp = Ncp.of(microdata)
    if ncp.total(before) == 0:
        return before
    order = sort_order(microdata)
    typed = TypedRecords.of(ncp.of_records(order), random, pulse)
    after = np.empty_like(before)
    after[order] = annealed_classes(
        typed, before[order], k, Schedule(effort * order.size), random,
        constraint=constraint and constraint.restricted_to(order), pulse=pulse, workers=workers,
    )  # fmt: skip
    return after if ncp.total(after) < ncp.total(before) else before
