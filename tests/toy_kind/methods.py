"""The methods of a tally."""

from __future__ import annotations

from kanon_db.publications.kind import Found


def count(data, request, pulse):
    """Count from one up."""
    pulse.beat()
    return Found((data, "ASC"))


def count_down(data, request, pulse):
    """Count from the top."""
    pulse.beat()
    return Found((data, "DESC"))
