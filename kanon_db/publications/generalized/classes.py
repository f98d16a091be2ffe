"""Finding classes, step by step: the method, the constraints, refinement, and what is left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from kanon_db.algorithms.generalization import enforce, one_of_each, refine, suppress
from kanon_db.algorithms.generalization.exact.all_partitions import (
    MOST_RECORDS,
    best_partition,
    members_of_sets,
)
from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray
from kanon_db.algorithms.ground.proof import Proof
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.recoding import Constraint, Microdata
from kanon_db.metrics.generalization import class_ncp, measure
from kanon_db.publications.generalized import methods
from kanon_db.publications.generalized.request import GeneralizedRequest
from kanon_db.publications.kind import Found
from kanon_db.publications.rows.proving import proof_of_published

_HEURISTICS: Final = (
    methods.split_carry, methods.greedy_search, methods.k_member, methods.mondrian,
    methods.initial,
)  # fmt: skip
"""What `optimal` starts from, too, where what it has found is not proven to be published best."""


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
    finishing = _Finishing(data, request, constraint, workers, on_step)
    on_step(f"searching classes: {method}")
    searched, place = data, None
    if entities is not None:
        searched, place = one_of_each(data, entities)
    found = search(searched)
    classes: IntArray = found.result if place is None else found.result[place]
    if method != "optimal":
        return Found(finishing.finished(classes, pulse, is_refined=request.refine), None, method)
    # What is optimal for fewer records need not be so for all of them.
    bound = found.proof if place is None else None
    best = finishing.finished(classes, pulse, is_refined=False)
    proof, least = finishing.proof(bound, best), finishing.loss(best)
    if proof is not None and proof.is_optimal:
        return Found(best, proof, method)
    if data.n_records <= MOST_RECORDS:
        return Found(*finishing.best_of_all(pulse), method)
    starts = [classes]
    for heuristic in _HEURISTICS:
        pulse.beat()
        start = heuristic(searched, request, pulse).result
        starts.append(start if place is None else start[place])
    for number, start in enumerate(starts):
        part = pulse.within(max(pulse.seconds_left, 0) / (len(starts) - number))
        # Refining lowers the loss of the search, which need not be that of what is published.
        for is_refined in (False, True) if request.refine else (False,):
            other = finishing.finished(start, part, is_refined=is_refined)
            if finishing.loss(other) < least:
                best, least = other, finishing.loss(other)
    return Found(best, finishing.proof(bound, best), method)


@dataclass(frozen=True, eq=False)
class _Finishing:
    """What is done with the classes of any method before they are published."""

    data: Microdata
    request: GeneralizedRequest
    constraint: Constraint | None
    workers: int
    on_step: Callable[[str], None]

    def finished(self, classes: IntArray, pulse: Pulse, *, is_refined: bool) -> IntArray:
        """Enforce the constraints, lower the loss, and leave records out."""
        data, request, constraint = self.data, self.request, self.constraint
        if constraint is not None:
            self.on_step("enforcing the constraints")
            enforced = enforce(data, classes, request.k, constraint, pulse=pulse)
            classes = enforced.class_of_record
        if is_refined:
            self.on_step("refining the classes")
            classes = refine(
                data, classes, request.k, random=methods.new_random(), constraint=constraint,
                pulse=pulse, workers=self.workers,
            ).class_of_record  # fmt: skip
        if request.max_suppressed:
            self.on_step("suppressing records")
            classes = suppress(
                data, classes, request.k, request.max_suppressed, constraint=constraint,
                pulse=pulse,
            ).class_of_record  # fmt: skip
        return classes

    def best_of_all(self, pulse: Pulse) -> tuple[IntArray, Proof]:
        """Find the best of everything that may be published of a few records."""
        data, k = self.data, self.request.k
        records, sets = members_of_sets(data.n_records)
        sizes = np.bincount(sets, minlength=2**data.n_records)
        weights = np.array([attribute.weight for attribute in data.attributes])
        every = Microdata(data.codes[records], data.attributes)
        losses = class_ncp(every, sets)[0] @ weights * sizes
        if self.constraint is not None:
            holds = self.constraint.restricted_to(records).holds_for(sets - 1)
            losses[1:][~holds] = np.inf
        losses[sizes < k] = np.inf
        most = int(self.request.max_suppressed * data.n_records)
        classes, _ = best_partition(losses, float(weights.sum()), most, pulse=pulse)
        loss = Fraction(self.loss(classes))
        return classes, Proof(loss, loss)

    def loss(self, classes: IntArray) -> float:
        """Measure the loss of what is published."""
        return measure(self.data, classes).weighted_loss

    def proof(self, bound: Proof | None, classes: IntArray) -> Proof | None:
        """Compare what is published with a bound on the loss of all records, without constraints.

        None where more is allowed than classes of all records: then less may be lost.
        """
        if int(self.request.max_suppressed * self.data.n_records):
            return None
        return proof_of_published(bound, self.data, self.loss(classes))
