"""Finding classes, step by step: the method, the constraints, refinement, and what is left out."""

from __future__ import annotations

from collections.abc import Callable

from kanon_db.algorithms.generalization import enforce, one_of_each, refine, suppress
from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.recoding import Constraint, Microdata
from kanon_db.publications.generalized import methods
from kanon_db.publications.generalized.request import GeneralizedRequest
from kanon_db.publications.kind import Found


def find_classes(
    data: Microdata,
    request: GeneralizedRequest,
    constraint: Constraint | None,
    pulse: Pulse,
    *,
    method: str,
    search: Callable[[Microdata], Found],
    entities: AnyIntArray | None = None,
    workers: int = 1,
    on_step: Callable[[str], None],
) -> Found:
    """Find classes, enforce the constraints, lower the loss, and leave records out.

    Parameters
    ----------
    data : Microdata
    request : GeneralizedRequest
    constraint : Constraint or None
    pulse : Pulse
    method : str
        The name of the method to use.
    search : callable
        Runs it.
    entities : ndarray of int, shape (n_records,), optional
        Whom each record is about, if several can be about the same entity.
    workers : int
        Threads that refine.
    on_step : callable
        Called with the name of each step.

    Returns
    -------
    Found
        The class of each record, from 0; -1 for one that is left out.
    """
    on_step(f"searching classes: {method}")
    searched, place = data, None
    if entities is not None:
        searched, place = one_of_each(data, entities)
    found = search(searched)
    classes: IntArray = found.result if place is None else found.result[place]
    # What is optimal for fewer records need not be so for all of them.
    proof = found.proof if place is None else None
    if constraint is not None:
        on_step("enforcing the constraints")
        classes = enforce(data, classes, request.k, constraint, pulse=pulse).class_of_record
    if request.refine and method != "optimal":
        on_step("refining the classes")
        classes = refine(
            data, classes, request.k,
            random=methods.new_random(), constraint=constraint, pulse=pulse, workers=workers,
        ).class_of_record  # fmt: skip
    if request.max_suppressed:
        on_step("suppressing records")
        classes = suppress(
            data, classes, request.k, request.max_suppressed, constraint=constraint, pulse=pulse
        ).class_of_record
    return Found(classes, proof, method)
