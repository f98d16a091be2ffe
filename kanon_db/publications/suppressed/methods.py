"""The methods that choose what each row keeps, all with the same signature."""

from __future__ import annotations

from dataclasses import dataclass

from kanon_db.algorithms import suppression
from kanon_db.algorithms.ground.arrays import CodeArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.suppression import PatternSet
from kanon_db.publications.kind import Found
from kanon_db.publications.suppressed.request import SuppressedRequest
from kanon_db.randomness import SecureRandom


@dataclass(frozen=True, eq=False)
class CodedRows:
    """Quasi-identifiers as codes, and the patterns by which they may be suppressed.

    Attributes
    ----------
    codes : ndarray of int32, shape (n_records, m)
    patterns : PatternSet
    """

    codes: CodeArray
    patterns: PatternSet


def greedy(data: CodedRows, request: SuppressedRequest, pulse: Pulse) -> Found:
    """Try one pattern after another, the cheapest first."""
    found = suppression.greedy(data.codes, data.patterns, request.k, pulse=pulse)
    if request.options.left_over == "join":
        found = suppression.join_left_over(
            data.codes, found, request.k, SecureRandom(), pulse=pulse
        )
    return Found(found)


def optimal(data: CodedRows, request: SuppressedRequest, pulse: Pulse) -> Found:
    """Find the suppression of least cost."""
    found = suppression.optimal(
        data.codes, data.patterns, request.k, pulse=pulse.within(request.options.time_limit)
    )
    return Found(found.suppression, found.proof)
