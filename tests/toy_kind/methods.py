"""The methods of a tally."""

from __future__ import annotations

from kanon_db.publications.kind import MethodResult


def count(data, request, pulse):
    """Put the smallest counts first."""
    pulse.beat()
    return MethodResult((data, "ASC"))


def count_down(data, request, pulse):
    """Put the largest counts first."""
    pulse.beat()
    return MethodResult((data, "DESC"))
