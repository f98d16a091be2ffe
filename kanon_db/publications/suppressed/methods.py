"""Chooses what each row keeps: the patterns that are allowed, and a function for each method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from kanon_db.algorithms import suppression
from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.suppression import PatternSet, all_patterns, expand_rules, parse_patterns
from kanon_db.catalog.entries import Publication, Source
from kanon_db.catalog.sources import open_source
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError
from kanon_db.publications.kind import MethodResult
from kanon_db.publications.rows.row_kind import weights_of, weights_of_columns
from kanon_db.publications.suppressed.request import SuppressedRequest
from kanon_db.randomness import SecureRandom
from kanon_db.session import Session


@dataclass(frozen=True)
class SuppressionPattern:
    """One pattern vector, as it is shown before publishing."""

    position: int  # Its place in the order in which the greedy method tries patterns, from 1
    pattern: str  # ``*`` suppresses, ``.`` keeps, in the order of the quasi-identifiers
    suppressed: list[str]  # The quasi-identifiers that it suppresses
    cost: float  # The cost for one record: the sum of the weights of these quasi-identifiers


def suppression_patterns(
    session: Session,
    source: str,
    patterns: Sequence[str] | None = None,
    rules: Sequence[Any] | None = None,
    weights: Mapping[str, Fraction] | None = None,
) -> list[SuppressionPattern]:
    """Say which patterns `publish_suppressed` would use, in the order in which it tries them.

    Raises
    ------
    NotFoundError
        When the source is not registered.
    InvalidParameterError
        When patterns, rules or weights do not fit the source.
    """
    registered, _ = open_source(session, source)
    allowed = allowed_patterns(registered, patterns, rules, weights)
    names = np.array(registered.quasi_identifiers, dtype=object)
    return [
        SuppressionPattern(position, text, names[stars].tolist(), cost / allowed.cost_unit)
        for position, (text, stars, cost) in enumerate(
            zip(allowed.texts, allowed.stars, allowed.costs.tolist(), strict=True), start=1
        )
    ]


def allowed_patterns(
    source: Source,
    patterns: Sequence[str] | None,
    rules: Sequence[Any] | None,
    weights: Mapping[str, Fraction] | None,
) -> PatternSet:
    """Return the listed patterns, or those that the rules make; without either, all patterns.

    Of equal cost, listed ones are in the order given, others in that of the columns' names.

    Raises
    ------
    InvalidParameterError
        When one of them does not fit the quasi-identifiers.
    """
    costs, n_columns = weights_of(source, weights), len(source.quasi_identifiers)
    if patterns is not None:
        return parse_patterns(patterns, n_columns, costs)
    if rules is not None:
        found = expand_rules(rules, source.quasi_identifiers, costs)
    else:
        found = all_patterns(n_columns, costs)
    return found.in_order_of(by_name(source.quasi_identifiers))


def by_name(names: Sequence[str]) -> IntArray:
    """Return the places of the quasi-identifiers in the order of their names."""
    order: IntArray = np.argsort(np.array(names, dtype=object))
    return order


def recorded_patterns(request: SuppressedRequest, patterns: PatternSet) -> dict[str, Any]:
    """Return what the catalog keeps of the patterns: none where any is allowed."""
    is_any = request.patterns is None and request.rules is None
    return {
        "patterns": None if is_any else list(patterns.texts),
        "left_over": request.options.left_over,
    }


def patterns_of(
    publication: Publication, attributes: Mapping[str, Mapping[str, Any]]
) -> PatternSet:
    """Return the patterns that a publication could use, in the order in which they were tried."""
    names = [cell["name"] for cell in publication.layout["quasi_identifiers"]]
    given = publication.parameters
    costs = weights_of_columns(names, attributes, given["weights"] or {})
    if given["patterns"] is not None:
        return parse_patterns(given["patterns"], len(names), costs)
    return all_patterns(len(names), costs).in_order_of(by_name(names))


@dataclass(frozen=True, eq=False)
class SuppressibleRows:
    """Quasi-identifiers as codes, and the patterns by which they may be suppressed."""

    codes: AnyIntArray  # (n_records, m)
    patterns: PatternSet
    random: SecureRandom  # For whom left-over records join, and the order of patterns
    # (n_records,): whom each record is about, if several can be about the same entity
    entities: AnyIntArray | None = None
    # Refuses an integer program of so many variables where there is no memory for it
    require_room: Callable[[int], None] | None = None


def greedy(data: SuppressibleRows, request: SuppressedRequest, pulse: Pulse) -> MethodResult:
    """Try one pattern after another, the cheapest first."""
    left_over = request.options.left_over
    if data.entities is not None and left_over != "withhold":
        raise InvalidParameterError(
            "left-over records can only be left out where several records are about the same"
            " entity",
            detail=f'left_over is "{left_over}": fewer than k entities are left over, possibly with'
            " more than k records",
            hint="leave out left_over, or register the source with keep, for one record of each",
        )
    patterns, k = data.patterns, request.k
    order = order_of_patterns(request, patterns, data.random)
    in_order = suppression.greedy(
        data.codes, patterns.in_order(order), k, entities=data.entities, pulse=pulse
    )
    number = np.append(order, suppression.LEFT_OVER)  # which is -1, the last place
    chosen = suppression.Suppression(patterns, number[in_order.pattern_of_record])
    if left_over == "join":
        chosen = suppression.join_left_over(data.codes, chosen, k, data.random, pulse=pulse)
    return MethodResult(chosen)


def order_of_patterns(
    request: SuppressedRequest, patterns: PatternSet, random: SecureRandom
) -> IntArray:
    """Return the order in which patterns are tried."""
    if request.options.order == "drawn":
        return patterns.draw_order(random)
    return np.arange(len(patterns))


def optimal(data: SuppressibleRows, request: SuppressedRequest, pulse: Pulse) -> MethodResult:
    """Find the suppression of least cost, where there is one record of each person."""
    _require_one_record_each(data, request)
    found = suppression.optimal(
        data.codes, data.patterns, request.k, formulation=request.options.formulation,
        solver=request.options.solver,
        on_program=data.require_room, pulse=pulse.within(request.options.time_limit),
    )  # fmt: skip
    return MethodResult(found.suppression, found.proof)


def two_anonymity(data: SuppressibleRows, request: SuppressedRequest, pulse: Pulse) -> MethodResult:
    """Find the suppression of least cost for k = 2 by matchings."""
    _require_one_record_each(data, request)
    best = suppression.two_anonymity(data.codes, data.patterns, pulse=pulse)
    return MethodResult(best.suppression, best.proof)


def _require_one_record_each(data: SuppressibleRows, request: SuppressedRequest) -> None:
    if data.entities is not None:
        raise InvalidParameterError(
            f"the method {request.method} counts records, and several records are about the same"
            " entity",
            detail="it finds how many records, not whose, share what they keep",
            hint="use the method greedy, or register the source with keep, for one record of each",
        )
