"""What publications of ranges and sets refuse, and their layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kanon_db.catalog.entries import Source
from kanon_db.errors import InfeasibleError, InvalidParameterError
from kanon_db.publications.rows.row_kind import row_layout
from kanon_db.spark.rows.columns import QuasiIdentifier

_MOST_BYTES = 2**28
"""Of sets that a machine keeps at a time."""


def refuse_coarsened(source: Source) -> None:
    """Refuse bins and hierarchies, whose cells PostgreSQL makes.

    Raises
    ------
    InvalidParameterError
    """
    if source.coarsened:
        raise InvalidParameterError(
            "quasi-identifiers are not coarsened on Spark",
            detail=f"{source.relation}: {', '.join(source.coarsened)}; bins and labels are made by"
            " PostgreSQL, in its own types",
            hint="coarsen them in the source, as in a data frame, or publish in PostgreSQL",
        )


def refuse_method(method: str, reason: str, hint: str) -> InvalidParameterError:
    """Return the error for a method that stays on one machine."""
    return InvalidParameterError(
        f"the method {method} is not made on Spark", detail=reason, hint=hint
    )


def require_room(columns: Sequence[QuasiIdentifier], n_sets: int) -> None:
    """Refuse sets of so many values that a machine could not keep those of its records.

    Parameters
    ----------
    columns : sequence of QuasiIdentifier
    n_sets : int
        At a time; each has a bit for every value.

    Raises
    ------
    InfeasibleError
    """
    n_values = sum(len(c.values.labels) for c in columns if c.range_type is None)
    if n_sets * n_values / 8 > _MOST_BYTES:
        raise InfeasibleError(
            "there are too many values in sets for one machine",
            detail=f"{n_sets:,} sets of {n_values:,} values at a time",
            hint="leave out quasi-identifiers with very many values, or coarsen them",
        )


def recoded_layout(source: Source, columns: Sequence[QuasiIdentifier]) -> dict[str, Any]:
    """Choose the layout, with the types that ranges have in PostgreSQL."""
    layout = row_layout(source, [column.cell for column in columns])
    for described, column in zip(layout["quasi_identifiers"], columns, strict=True):
        described.update(column.described)
    return layout
