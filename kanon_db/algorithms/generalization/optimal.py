"""Optimal classes: the least total information loss, proven ([OB] Section 2)."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isfinite
from typing import Literal, get_args

from kanon_db.algorithms.generalization.exact.distinct_records import DistinctRecords
from kanon_db.algorithms.generalization.exact.neighborhoods import improve_neighborhoods
from kanon_db.algorithms.generalization.exact.pairwise import solve_pairwise
from kanon_db.algorithms.generalization.exact.set_partition import check_size, set_partition
from kanon_db.algorithms.generalization.greedy_search import greedy_search
from kanon_db.algorithms.generalization.split_carry import split_carry
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.proof import Proof
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.recoding.exact_loss import ExactLoss, Loss
from kanon_db.algorithms.recoding.microdata import Microdata, check_k
from kanon_db.algorithms.recoding.order import sort_order
from kanon_db.errors import InvalidParameterError

Formulation = Literal["set_partition", "paper"]

_SHARE_OF_START = 1 / 6  # of the time, each of two steps
_TOLERANCE = 1e-6  # of the solver's bound, relative


@dataclass(frozen=True, eq=False)
class OptimalGeneralization:
    """Classes, and how close to the optimum they are known to be.

    Parameters
    ----------
    class_of_record : ndarray of int64, shape (n_records,)
        Number of the class of each record.
    proof : Proof
        Loss of all records, which is the sum over records and attributes, times the attributes'
        weights; and a bound on that of any classes.
    n_classes : int
        Most classes that the search had as columns of its model at a time; 0 by the formulation
        ``paper``.
    """

    class_of_record: IntArray
    proof: Proof
    n_classes: int


def optimal(
    microdata: Microdata,
    k: int,
    *,
    formulation: Formulation = "set_partition",
    loss: Loss = "ncp",
    pulse: Pulse = UNLIMITED,
) -> OptimalGeneralization:
    """Find classes of at least k records with the least total loss.

    Parameters
    ----------
    microdata : Microdata
    k : int
        Fewest records of a class, at least 1.
    formulation : {"set_partition", "paper"}
        The program to solve: one variable for each class that is worth a look, or the paper's, one
        for each pair of records, for some ten records.
    loss : {"ncp", "binary"}
        See :class:`~kanon_db.algorithms.recoding.exact_loss.ExactLoss`.
    pulse : Pulse
        Beaten every few milliseconds, in the thread of the caller; what that raises ends the work.

    Returns
    -------
    OptimalGeneralization
        The best classes found, with the bound proven when the time ran out.

    Raises
    ------
    InfeasibleError
        If there are fewer than ``k`` records.
    InvalidParameterError
        If ``k``, ``formulation`` or ``loss`` is out of range, there are more than
        :data:`~.exact.set_partition.MAX_RECORDS` records, or the table is not for the formulation
        ``paper``: it is too large, or a numeric attribute holds NULL.

    Notes
    -----
    **Source:** [OB] Section 2.2, Eq. (34); see
    :func:`~kanon_db.algorithms.generalization.exact.set_partition.set_partition` and
    :func:`~kanon_db.algorithms.programs.class_program`.

    The search starts from Split & Carry or Greedy Search, whichever loses less, improved by the
    best partition of neighboring classes.
    By ``set_partition``, losses and bounds are whole units throughout, so that no tolerance
    decides whether the classes are optimal; where losses are rounded, so are objective and bound
    (``ExactLoss.is_exact``).

    Examples
    --------
    >>> import numpy as np
    >>> from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
    >>> age = Attribute(4, numbers=np.array([20.0, 30.0, 50.0, 60.0]), lower=20, upper=60)
    >>> found = optimal(Microdata([[0], [1], [2], [3]], (age,)), 2)
    >>> found.proof.status, found.proof.objective, found.class_of_record.tolist()
    ('optimal', Fraction(1, 1), [0, 0, 1, 1])
    """
    n_records = microdata.n_records
    check_k(k, n_records)
    _check(formulation, loss)
    if formulation == "set_partition":
        check_size(n_records)
    exact = ExactLoss.of(microdata, loss)
    order = sort_order(microdata)
    seconds = pulse.seconds * _SHARE_OF_START
    classes = split_carry(microdata, k, loss=loss, pulse=pulse.within(seconds)).class_of_record
    bound = n_classes = 0
    greedy = greedy_search(microdata, k, pulse=pulse).class_of_record
    if exact.units_of(greedy) < exact.units_of(classes):
        classes = greedy
    if k > 1 and n_records and formulation == "set_partition":
        classes = improve_neighborhoods(exact, order, classes, k, pulse=pulse.within(seconds))
        records = DistinctRecords.of(exact, order)
        found = set_partition(records, k, exact.units_of(classes), pulse=pulse)
        bound, n_classes = int(found.proof.lower_bound), found.n_classes
        if found.classes is not None:
            classes[order] = found.classes.of_records()
    elif k > 1 and n_records:
        better, least = solve_pairwise(microdata, loss, k, classes, pulse)
        if isfinite(least):
            units = least / float(exact.unit)
            bound = max(ceil(units - _TOLERANCE * abs(units)), 0)
        if better is not None and exact.units_of(better) < exact.units_of(classes):
            classes = better
    proof = Proof.of(exact.units_of(classes), bound, exact.unit)
    return OptimalGeneralization(classes, proof, n_classes)


def _check(formulation: Formulation, loss: Loss) -> None:
    if formulation not in get_args(Formulation):
        raise InvalidParameterError(
            "unknown formulation", hint=f"use one of {', '.join(get_args(Formulation))}"
        )
    if loss not in get_args(Loss):
        raise InvalidParameterError("unknown loss", hint=f"use one of {', '.join(get_args(Loss))}")
