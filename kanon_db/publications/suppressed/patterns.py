"""The patterns by which a source's quasi-identifiers may be suppressed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from kanon_db.algorithms.suppression import PatternSet, all_patterns, expand_rules, parse_patterns
from kanon_db.catalog.entries import Source
from kanon_db.catalog.sources import open_source
from kanon_db.publications.rows.view import weights_of
from kanon_db.publications.suppressed.request import SuppressedRequest
from kanon_db.session import Session


@dataclass(frozen=True)
class SuppressionPattern:
    """One pattern vector, as it is shown before publishing.

    Attributes
    ----------
    position : int
        Its place in the order in which the greedy method tries patterns, from 1.
    pattern : str
        ``*`` suppresses, ``.`` keeps, in the order of the quasi-identifiers.
    suppressed : list of str
        The quasi-identifiers that it suppresses.
    cost : float
        The cost for one record: the sum of the weights of these quasi-identifiers.
    """

    position: int
    pattern: str
    suppressed: list[str]
    cost: float


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

    Raises
    ------
    InvalidParameterError
        When one of them does not fit the quasi-identifiers.
    """
    costs, n_columns = weights_of(source, weights), len(source.quasi_identifiers)
    if patterns is not None:
        return parse_patterns(patterns, n_columns, costs)
    if rules is not None:
        return expand_rules(rules, source.quasi_identifiers, costs)
    return all_patterns(n_columns, costs)


def recorded_patterns(request: SuppressedRequest, patterns: PatternSet) -> dict[str, Any]:
    """Return what the catalog keeps of the patterns: none where any is allowed."""
    is_any = request.patterns is None and request.rules is None
    return {
        "patterns": None if is_any else list(patterns.texts),
        "left_over": request.options.left_over,
    }
