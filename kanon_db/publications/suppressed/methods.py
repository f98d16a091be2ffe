"""The methods that choose what each row keeps, all with the same signature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kanon_db.algorithms import suppression
from kanon_db.algorithms.ground.arrays import AnyIntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.suppression import PatternSet
from kanon_db.errors import InvalidParameterError
from kanon_db.publications.kind import Found
from kanon_db.publications.suppressed.request import SuppressedRequest
from kanon_db.randomness import SecureRandom


@dataclass(frozen=True, eq=False)
class CodedRows:
    """Quasi-identifiers as codes, and the patterns by which they may be suppressed.

    Attributes
    ----------
    codes : ndarray of int, shape (n_records, m)
    patterns : PatternSet
    random : SecureRandom
        For whom left-over records join.
    entities : ndarray of int, shape (n_records,), or None
        Whom each record is about, if several can be about the same entity.
    require_room : callable or None
        Refuses an integer program of so many variables where there is no memory for it.
    """

    codes: AnyIntArray
    patterns: PatternSet
    random: SecureRandom
    entities: AnyIntArray | None = None
    require_room: Callable[[int], None] | None = None


def greedy(data: CodedRows, request: SuppressedRequest, pulse: Pulse) -> Found:
    """Try one pattern after another, the cheapest first."""
    left_over = request.options.left_over
    if data.entities is not None and left_over != "withhold":
        raise InvalidParameterError(
            "left-over records can only be left out where several records are about the same"
            " entity",
            detail=f'left_over is "{left_over}": fewer than k entities are left over, possibly with'
            " more than k records",
            hint="leave out left_over, or publish a view with one record of each entity",
        )
    found = suppression.greedy(
        data.codes, data.patterns, request.k, entities=data.entities, pulse=pulse
    )
    if left_over == "join":
        found = suppression.join_left_over(data.codes, found, request.k, data.random, pulse=pulse)
    return Found(found)


def optimal(data: CodedRows, request: SuppressedRequest, pulse: Pulse) -> Found:
    """Find the suppression of least cost, where there is one record of each person."""
    if data.entities is not None:
        raise InvalidParameterError(
            "the method optimal counts records, and several records are about the same entity",
            detail="its integer program says how many records, not whose, share what they keep",
            hint="use the method greedy, or publish a view with one record of each entity",
        )
    found = suppression.optimal(
        data.codes, data.patterns, request.k, formulation=request.options.formulation,
        on_program=data.require_room, pulse=pulse.within(request.options.time_limit),
    )  # fmt: skip
    return Found(found.suppression, found.proof)
