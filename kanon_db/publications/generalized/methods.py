"""Finds equivalence classes: a function for each method, all with the same signature."""

from __future__ import annotations

from typing import Final

import numpy as np

from kanon_db.algorithms import generalization
from kanon_db.algorithms.ground.computation import Pulse, n_cores
from kanon_db.algorithms.recoding import Microdata
from kanon_db.errors import InvalidParameterError
from kanon_db.publications.generalized.request import GeneralizedRequest
from kanon_db.publications.kind import MethodResult

_MOST_FOR_K_MEMBER: Final = 50_000  # it compares every record with every other


def optimal(data: Microdata, request: GeneralizedRequest, pulse: Pulse) -> MethodResult:
    """Find the classes that lose least of all; a third of the time is left for what follows."""
    found = generalization.optimal(
        data,
        request.k,
        formulation=request.options.formulation,
        solver=request.options.solver,
        loss=request.options.loss,
        pulse=pulse.until(2 / 3),
    )
    return MethodResult(found.class_of_record, found.proof)


def split_carry(data: Microdata, request: GeneralizedRequest, pulse: Pulse) -> MethodResult:
    """Find the optimum for the records of a few classes at a time."""
    options = request.options
    found = generalization.split_carry(
        data, request.k, s=options.s, carry=options.carry, bubble=options.bubble,
        sorting=options.sorting, loss=options.loss, pulse=pulse,
    )  # fmt: skip
    return MethodResult(found.class_of_record)


def greedy_search(data: Microdata, request: GeneralizedRequest, pulse: Pulse) -> MethodResult:
    """Grow classes record by record."""
    options = request.options
    found = generalization.greedy_search(
        data, request.k, block_size=options.block_size, left_over=options.left_over,
        sorting=options.sorting, pulse=pulse,
    )  # fmt: skip
    return MethodResult(found.class_of_record)


def k_member(data: Microdata, request: GeneralizedRequest, pulse: Pulse) -> MethodResult:
    """Grow classes, each from the record that is furthest from the last one placed."""
    if data.n_records > _MOST_FOR_K_MEMBER:
        raise InvalidParameterError(
            "the table is too large for the method k_member",
            detail=f"n_records = {data.n_records:,}, limit = {_MOST_FOR_K_MEMBER:,}",
            hint="use the method greedy_search",
        )
    found = generalization.k_member(data, request.k, random=new_random(), pulse=pulse)
    return MethodResult(found.class_of_record)


def mondrian(data: Microdata, request: GeneralizedRequest, pulse: Pulse) -> MethodResult:
    """Cut the table into halves, again and again."""
    found = generalization.mondrian(
        data, request.k, cut=request.options.cut, workers=n_cores(), pulse=pulse
    )
    return MethodResult(found.class_of_record)


def initial(data: Microdata, request: GeneralizedRequest, pulse: Pulse) -> MethodResult:  # noqa: ARG001
    """Take groups of k consecutive records in sorted order."""
    classes = generalization.initial(data, request.k, sorting=request.options.sorting)
    return MethodResult(classes.class_of_record)


def new_random() -> np.random.Generator:
    """Return a generator, always in the same state, so that the same classes are found again.

    It only influences the loss, not who can be distinguished from whom: that follows from the
    quasi-identifiers, and of records that share them, from their secret order.
    """
    return np.random.default_rng(0)
